//! What is told: from what happened to the words and their id.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::config::{Occasion, Service};
use crate::rollout::observation::{Observation, Role, Uid};
use crate::rollout::plan::{Attention, Images};
use crate::rollout::state::{Cause, Outcome, Phase, State};
use crate::rollout::template::RolloutNumber;
use crate::rollout::{Event, Replicas, Status};

/// The longest message, in characters: Slack shows some four thousand.
const LONGEST_MESSAGE: usize = 3000;

/// How much an alert wants to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The ordinary course of things.
    Info,
    /// A person should look at it.
    Warning,
}

impl From<Attention> for Severity {
    fn from(attention: Attention) -> Self {
        match attention {
            Attention::Wanted => Self::Warning,
            Attention::Routine | Attention::Passing | Attention::Detail => Self::Info,
        }
    }
}

/// One alert. Its fields are the JSON that a generic webhook gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alert {
    /// The same whenever the same transition is told again: 32 hexadecimal digits, made of the Deployment's uid, the
    /// rollout's number, the event, and what tells one such event from another.
    pub id: String,
    /// The service's name in the configuration.
    pub service: String,
    /// Where it is.
    pub namespace: String,
    /// Its Deployment.
    pub deployment: String,
    /// What happened, as `events` spells it.
    #[serde(serialize_with = "word")]
    pub event: Occasion,
    /// `info` or `warning`.
    pub severity: Severity,
    /// What the log says of it.
    pub message: String,
    /// The images of the version that it is about.
    pub images: Vec<String>,
    /// The number of the rollout; 0 before the first.
    pub rollout: u64,
    /// When it was told, in RFC 3339, UTC, whole seconds.
    #[serde(serialize_with = "text")]
    pub time: Timestamp,
}

fn word<S: Serializer>(event: &Occasion, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(event.word())
}

fn text<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

/// What an alert says, less what it is about.
struct Words {
    event: Occasion,
    severity: Severity,
    message: String,
    images: Vec<String>,
    rollout: RolloutNumber,
    /// What tells this one from others of its kind in the same rollout.
    told_apart_by: String,
}

impl Alert {
    /// What is told of something that happened, if anything is.
    pub fn of_event(
        service: &Service,
        observation: &Observation,
        event: &Event,
        time: Timestamp,
    ) -> Option<Self> {
        Self::new(service, observation, event_words(observation, event)?, time)
    }

    /// What is told when a service comes to do this, if anything is.
    pub fn of_status(
        service: &Service,
        observation: &Observation,
        status: &Status,
        time: Timestamp,
    ) -> Option<Self> {
        Self::new(
            service,
            observation,
            status_words(observation, status)?,
            time,
        )
    }

    /// What a daemon that finds a rollout under way cannot know to have been told: how it began or how it ended. Its id is
    /// that of the alert that the daemon before it has sent, or has not (case K55).
    pub fn of_find(service: &Service, observation: &Observation, time: Timestamp) -> Option<Self> {
        Self::new(service, observation, found_words(observation)?, time)
    }

    fn new(
        service: &Service,
        observation: &Observation,
        words: Words,
        time: Timestamp,
    ) -> Option<Self> {
        let original = observation.original.as_ref()?;
        let rollout = words.rollout.to_string();
        Some(Self {
            id: id([
                original.uid.0.as_str(),
                &rollout,
                words.event.word(),
                &words.told_apart_by,
            ]),
            service: service.name.to_string(),
            namespace: service.namespace.clone(),
            deployment: original.name.clone(),
            event: words.event,
            severity: words.severity,
            message: cut(&words.message),
            images: words.images,
            rollout: words.rollout.0,
            time,
        })
    }
}

fn id(parts: [&str; 4]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    let mut id = String::new();
    for byte in digest.finalize().iter().take(16) {
        // Writing to a String cannot fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// What happens at most once in a rollout is told apart by its number alone.
fn event_words(observation: &Observation, event: &Event) -> Option<Words> {
    let (occasion, images, rollout) = match event {
        Event::Candidate { rollout, .. } | Event::Replacing { rollout, .. } => {
            (Occasion::Started, wanted(observation), *rollout)
        }
        Event::Promoted { images, .. } => (
            Occasion::Promoted,
            images.0.clone(),
            rollout_of(observation),
        ),
        Event::Failed { failure, .. } => {
            let occasion = match failure.cause {
                Cause::Aborted => Occasion::Aborted,
                Cause::ChecksFailed
                | Cause::NotAvailable
                | Cause::MetricsUnavailable
                | Cause::CanaryChanged => Occasion::Failed,
            };
            (occasion, tried(observation), rollout_of(observation))
        }
        Event::Ended { outcome } => (
            ending(outcome)?,
            tried(observation),
            rollout_of(observation),
        ),
        Event::Registered { .. }
        | Event::CheckFailed { .. }
        | Event::CheckInconclusive { .. }
        | Event::CheckConclusive { .. }
        | Event::Trusted { .. }
        | Event::Closed { .. }
        | Event::Repaused { .. }
        | Event::Removed { .. }
        | Event::AcceptedByHand { .. }
        | Event::Restored { .. }
        | Event::Released { .. }
        // The status that follows says so with its reason.
        | Event::Froze { .. }
        | Event::Answered(_)
        | Event::AcceptedByOrder { .. }
        | Event::TakenUp { .. }
        | Event::OrderVoid { .. }
        | Event::Rewritten { .. }
        | Event::SetBack { .. }
        | Event::AutoscalerOfClone { .. }
        | Event::AutoscalersOfSamePods { .. } => return None,
    };
    Some(Words {
        event: occasion,
        severity: event.attention().into(),
        message: event.to_string(),
        images,
        rollout,
        told_apart_by: String::new(),
    })
}

fn ending(outcome: &Outcome) -> Option<Occasion> {
    match outcome {
        Outcome::Cancelled | Outcome::Released => Some(Occasion::Cancelled),
        Outcome::Superseded => Some(Occasion::Superseded),
        Outcome::Interrupted { .. } => Some(Occasion::Interrupted),
        Outcome::Promoted | Outcome::RolledBack => None,
    }
}

/// What a service can come to several times in a rollout is told apart by the state that was written before, which a crash
/// does not change.
fn status_words(observation: &Observation, status: &Status) -> Option<Words> {
    let (occasion, images) = match status {
        Status::Frozen { images, .. } => (Occasion::Frozen, images.0.clone()),
        Status::CandidateWaits { images } | Status::Queued { images, .. } => {
            (Occasion::Waiting, images.0.clone())
        }
        Status::Unsettled { .. } | Status::Sleeping { .. } => {
            (Occasion::Waiting, wanted(observation))
        }
        Status::Held { .. } => (Occasion::Held, wanted(observation)),
        Status::Blocked(_) => (Occasion::Blocked, wanted(observation)),
        Status::Missing { .. }
        | Status::Going
        | Status::Registering
        | Status::AtRest { .. }
        | Status::Rejected { .. }
        | Status::Opening
        | Status::Raising { .. }
        | Status::MakingRoom { .. }
        | Status::Settling { .. }
        | Status::WarmingUp { .. }
        | Status::Checking { .. }
        | Status::Replacing { .. }
        | Status::HandingOver
        | Status::TakingBack { .. }
        | Status::Closing { .. }
        | Status::Obeying
        | Status::Releasing
        | Status::Released => return None,
    };
    let written = observation.state.as_ref();
    let written = written.map_or("", |state| state.resource_version.0.as_str());
    Some(Words {
        event: occasion,
        severity: status.attention().into(),
        message: status.to_string(),
        images,
        rollout: rollout_of(observation),
        told_apart_by: format!("{written}\0{}", status.lasting()),
    })
}

fn found_words(observation: &Observation) -> Option<Words> {
    let state = state(observation)?;
    let accepted = observation.state.as_ref().map(|state| &state.accepted);
    let event = match &state.phase {
        Phase::Closing { outcome, .. } => match (outcome, &state.rejected) {
            (Outcome::Promoted, _) => Event::Promoted {
                images: Images(accepted.map_or_else(Vec::new, |template| owned(template.images()))),
                replicas: wanted_replicas(observation),
                after: state.open_for.duration(),
            },
            (Outcome::RolledBack, Some(rejected)) => {
                let event = Event::Failed {
                    failure: rejected.failure.clone(),
                    replicas: wanted_replicas(observation),
                    available: available(observation, state),
                };
                return event_words(observation, &event).map(|words| Words {
                    images: rejected.images.clone(),
                    ..words
                });
            }
            (outcome, _) => Event::Ended {
                outcome: outcome.clone(),
            },
        },
        Phase::Opening { .. } | Phase::Replacing { .. } => {
            return Some(Words {
                event: Occasion::Started,
                severity: Severity::Info,
                message: format!("rollout {}: new template", state.rollout),
                images: wanted(observation),
                rollout: state.rollout,
                told_apart_by: String::new(),
            });
        }
        Phase::Registering
        | Phase::AtRest
        | Phase::Stepping { .. }
        | Phase::Finishing { .. }
        | Phase::Frozen { .. }
        | Phase::HandingOver { .. }
        | Phase::Releasing => return None,
    };
    event_words(observation, &event)
}

fn state(observation: &Observation) -> Option<&State> {
    observation.state.as_ref()?.state.as_ref().ok()
}

fn rollout_of(observation: &Observation) -> RolloutNumber {
    state(observation).map_or(RolloutNumber::default(), |state| state.rollout)
}

fn owned(images: Vec<&str>) -> Vec<String> {
    images.into_iter().map(str::to_owned).collect()
}

/// The images that X asks for.
fn wanted(observation: &Observation) -> Vec<String> {
    let original = observation.original.as_ref();
    original.map_or_else(Vec::new, |original| owned(original.template.images()))
}

/// The images of the version on trial.
fn tried(observation: &Observation) -> Vec<String> {
    match observation.deployment(Role::Canary) {
        Some(canary) => owned(canary.template.images()),
        None => wanted(observation),
    }
}

fn wanted_replicas(observation: &Observation) -> Replicas {
    let original = observation.original.as_ref();
    original.map_or(Replicas::ZERO, |original| original.replicas)
}

fn available(observation: &Observation, state: &State) -> Replicas {
    let is_accepted = |uid: &Uid| state.accepted.as_ref() == Some(uid);
    let mut sets = observation.replica_sets.iter();
    sets.find(|set| is_accepted(&set.uid))
        .map_or(Replicas::ZERO, |set| set.available)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_follows_from_what_it_is_made_of_and_from_nothing_else() {
        let parts = ["a-life", "3", "failed", ""];
        assert_eq!(id(parts), "b1ceda6546a381867efdcbd633fc203a");
        for other in [
            ["another-life", "3", "failed", ""],
            ["a-life", "4", "failed", ""],
            ["a-life", "3", "frozen", ""],
            ["a-life", "3", "failed", "again"],
            ["a-life3", "", "failed", ""],
        ] {
            assert_ne!(id(other), id(parts), "{other:?}");
        }
    }

    #[test]
    fn a_message_of_many_lines_is_cut_between_characters() {
        assert_eq!(cut("rollout 1\n- image: ä"), "rollout 1\n- image: ä");
        let long = cut(&"ä".repeat(LONGEST_MESSAGE + 1));
        assert_eq!(long.chars().count(), LONGEST_MESSAGE + 1);
        assert!(long.ends_with("ä…"));
    }
}
