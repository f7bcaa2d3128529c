//! How services stand, from the cluster alone.

use std::fmt;

use serde::Serialize;

use super::service::{Service, Unusable, steerable};
use super::table::Table;
use crate::cluster::Sight;
use crate::config::display_duration;
use crate::rollout::command::{Answer, Answered};
use crate::rollout::observation::{Deployment, Life, Mark};
use crate::rollout::plan::Images;
use crate::rollout::state::{
    Checks, Elapsed, Failure, Motion, Order, Outcome, Phase, Rewrite, Stage, State, Step,
};
use crate::rollout::template::Template;

/// How one service stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Its namespace.
    pub namespace: String,
    /// X's name.
    pub service: String,
    /// Where it is in its life.
    pub phase: Standing,
    /// Why it cannot be told where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// R: `spec.replicas` of X.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u32>,
    /// Pods by who owns them.
    pub pods: Pods,
    /// The images of both versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
    /// The open rollout, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// Whether a person has ordered that nothing moves.
    pub motion: Motion,
    /// Why the version that failed last did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// What was ordered and is not done yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// What the last order was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_order: Option<Answer>,
    /// How the daemon says that it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Where a service is in its life, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Nothing of Volery's is known of it, or what is known makes no sense.
    Unknown,
    /// It is being taken on.
    Registering,
    /// X owns its pods, and they are of the version that X asks for.
    AtRest,
    /// X owns its pods; the version that X asks for has failed.
    Rejected,
    /// X asks for another version, and R = 0.
    WaitingForReplicas,
    /// X asks for another version, and no rollout of it is open yet.
    Pending,
    /// The clones are being made.
    Opening,
    /// A checked step.
    Step,
    /// Past the breakpoint.
    Finishing,
    /// Failed, and everything stands still.
    Frozen,
    /// The frozen canary gets a new version in place.
    Replacing,
    /// The candidate's pods are handed over to X.
    Promoting,
    /// Promoted; the clones are removed.
    Promoted,
    /// Failed; back to the accepted version.
    RollingBack,
    /// X asks for the accepted version again; back to it.
    Cancelling,
    /// A newer version came; back to the accepted one first.
    Superseding,
    /// It starts again.
    Interrupted,
    /// It is given back.
    Releasing,
}

/// Pods by the Deployment that owns them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pods {
    /// X's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original: Option<Count>,
    /// The primary's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary: Option<Count>,
    /// The canary's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<Count>,
}

/// The pods of one Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Count {
    /// `status.availableReplicas`.
    pub available: u32,
    /// `spec.replicas`; of X while a rollout is open: what the clones share.
    pub wanted: u32,
}

/// The images of both versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// Of the accepted version.
    pub accepted: Vec<String>,
    /// Of the version that X asks for, if that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate: Option<Vec<String>>,
}

/// A rollout.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// From 1.
    pub number: u64,
    /// How long the open one had been watched when its state was last written, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_for_seconds: Option<u64>,
    /// How many checked steps it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// How long warming up and checking took at least from there, in seconds, if every check passes; pods need time to
    /// start and to stop besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least_ahead_seconds: Option<u64>,
    /// The step it has reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepReport>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepReport {
    /// From 1.
    pub number: u32,
    /// How many canary pods it has.
    pub canary: u32,
    /// How far it has come.
    pub stage: StageWord,
    /// Checks passed.
    pub checks_passed: u32,
    /// Checks failed.
    pub checks_failed: u32,
    /// For how long it had been checked when its state was last written, in seconds.
    pub checked_for_seconds: u64,
    /// For how long no check had said yes or no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_doubt_for_seconds: Option<u64>,
}

/// How far a step has come, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StageWord {
    /// R = 0.
    Sleeping,
    /// Primary down first: there is no surge.
    MakingRoom,
    /// Canary up, primary down.
    Raising,
    /// The primary's removed pods end.
    Settling,
    /// `start_delay`.
    WarmingUp,
    /// Checks run.
    Checking,
}

impl Report {
    /// What can be said of a service by this sight of it.
    pub fn of(sight: &Sight) -> Self {
        let seen = &sight.observation;
        let count = |deployment: &Deployment| Count {
            available: deployment.status.available.0,
            wanted: deployment.replicas.0,
        };
        let ours = |clone: &&Deployment| clone.mark == Mark::Ours;
        let bare = Self {
            namespace: sight.namespace.clone(),
            service: sight.deployment.clone(),
            phase: Standing::Unknown,
            problem: None,
            wanted: seen.original.as_ref().map(|original| original.replicas.0),
            pods: Pods {
                original: seen.original.as_ref().map(count),
                primary: seen.primary.as_ref().filter(ours).map(count),
                canary: seen.canary.as_ref().filter(ours).map(count),
            },
            versions: None,
            rollout: None,
            motion: Motion::Free,
            failure: None,
            order: sight
                .waiting
                .as_ref()
                .map(|order| format!("{order} (waits to be taken)")),
            last_order: sight.answered.clone(),
            message: sight.told.clone(),
        };
        let (original, accepted, state) = match registered(sight) {
            Ok(registered) => registered,
            Err(problem) => {
                return Self {
                    problem: Some(problem.to_string()),
                    ..bare
                };
            }
        };
        let candidate = original.template != *accepted;
        Self {
            phase: standing(state, original, accepted),
            versions: Some(Versions {
                accepted: images(accepted),
                candidate: candidate.then(|| images(&original.template)),
            }),
            rollout: (state.rollout.0 > 0).then(|| Rollout {
                number: state.rollout.0,
                open_for_seconds: state.is_open().then(|| seconds(state.open_for)),
                steps: state.ahead.map(|ahead| ahead.of),
                at_least_ahead_seconds: state.ahead.map(|ahead| seconds(ahead.at_least)),
                step: step_of(&state.phase).map(StepReport::of),
            }),
            motion: state.motion,
            failure: failure(state, original),
            order: bare
                .order
                .clone()
                .or_else(|| state.leaving.map(|_| "release".to_owned()))
                .or_else(|| state.order.as_ref().map(order_text)),
            ..bare
        }
    }

    /// In one line that changes when a person should read a new one: not with each pod and each check.
    pub fn progress(&self) -> String {
        let mut text = self.phase_text();
        if let (Some(canary), Some(primary)) = (self.pods.canary, self.pods.primary) {
            text += &format!(": canary {}, primary {}", canary.wanted, primary.wanted);
        }
        if let Some(failure) = &self.failure {
            text += &format!(" ({failure})");
        }
        match self.phase {
            Standing::WaitingForReplicas => {
                text += ": it is rolled out when replicas are wanted again (now 0)";
            }
            Standing::Pending => text += ": no rollout of it is open yet",
            Standing::Unknown
            | Standing::Registering
            | Standing::AtRest
            | Standing::Rejected
            | Standing::Opening
            | Standing::Step
            | Standing::Finishing
            | Standing::Frozen
            | Standing::Replacing
            | Standing::Promoting
            | Standing::Promoted
            | Standing::RollingBack
            | Standing::Cancelling
            | Standing::Superseding
            | Standing::Interrupted
            | Standing::Releasing => {}
        }
        text
    }

    fn phase_text(&self) -> String {
        let mut text = self.phase.to_string();
        if let (Standing::Step, Some(step)) = (self.phase, self.step()) {
            let of = self.rollout.as_ref().and_then(|rollout| rollout.steps);
            let of = of.map_or_else(String::new, |of| format!("/{of}"));
            text = format!("step {}{of}, {}", step.number, step.stage);
        }
        if self.motion == Motion::Held {
            text += ", on hold";
        }
        text
    }

    fn step(&self) -> Option<&StepReport> {
        self.rollout.as_ref()?.step.as_ref()
    }

    /// Whether the clones have the pods; those that are left after a promotion have none.
    fn has_clones(&self) -> bool {
        let there = self.pods.canary.is_some() || self.pods.primary.is_some();
        there && self.phase != Standing::Promoted
    }

    fn version_text(&self) -> String {
        let Some(versions) = &self.versions else {
            return String::new();
        };
        let accepted = Images(versions.accepted.clone());
        match &versions.candidate {
            // Another template of the same images: a changed variable, a restart.
            Some(candidate) if *candidate == versions.accepted => {
                format!("{accepted} → the same images, another template")
            }
            Some(candidate) => format!("{accepted} → {}", Images(candidate.clone())),
            None => accepted.to_string(),
        }
    }

    fn open_for(&self) -> Option<String> {
        Some(long(self.rollout.as_ref()?.open_for_seconds?))
    }

    fn ahead(&self) -> Option<String> {
        Some(long(self.rollout.as_ref()?.at_least_ahead_seconds?))
    }
}

/// One service, in full.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.service, self.namespace)?;
        let line =
            |f: &mut fmt::Formatter<'_>, name: &str, text: &str| write!(f, "\n  {name:<11} {text}");
        if let Some(problem) = &self.problem {
            line(f, "problem", problem)?;
        } else {
            line(f, "phase", &self.phase_text())?;
        }
        let version = self.version_text();
        if !version.is_empty() {
            line(f, "version", &version)?;
        }
        if let Some(wanted) = self.wanted {
            let pods = [("canary", self.pods.canary), ("primary", self.pods.primary)];
            let mut told: Vec<String> = pods
                .iter()
                .filter(|_| self.has_clones())
                .filter_map(|(name, count)| Some(format!("{name} {} available", (*count)?)))
                .collect();
            if told.is_empty() {
                let available = self.pods.original.map_or(0, |count| count.available);
                told.push(format!("{available} available"));
            }
            line(f, "pods", &format!("{}; {wanted} wanted", told.join(", ")))?;
        }
        if let Some(rollout) = &self.rollout {
            let mut text = rollout.number.to_string();
            if let Some(open_for) = self.open_for() {
                text += &format!(", open for {open_for} when last noted");
            }
            if let Some(ahead) = self.ahead() {
                text += &format!(", at least {ahead} of checks to go");
            }
            line(f, "rollout", &text)?;
        }
        if let Some(step) = self.step() {
            line(f, "checks", &step.to_string())?;
        }
        if let Some(failure) = &self.failure {
            line(f, "failed", &failure.to_string())?;
        }
        if self.motion == Motion::Held {
            let text = format!("nothing moves until: volery resume {}", self.service);
            line(f, "on hold", &text)?;
        }
        if let Some(order) = &self.order {
            line(f, "order", order)?;
        }
        if let Some(answer) = &self.last_order {
            let outcome = match answer.outcome {
                Answered::Done => "done",
                Answered::Refused => "refused",
            };
            let text = format!("{} {outcome}: {}", answer.command, answer.message);
            line(f, "last order", &text)?;
        }
        if let Some(message) = &self.message {
            line(f, "says", message)?;
        }
        Ok(())
    }
}

/// Many services, a line each.
pub fn table(reports: &[Report]) -> String {
    let mut table = Table::new([
        "NAMESPACE",
        "SERVICE",
        "PHASE",
        "CANARY",
        "PRIMARY",
        "PODS",
        "WANTED",
        "OPEN FOR",
        "TO GO",
        "VERSION",
    ]);
    let count = |count: Option<Count>| count.map_or_else(|| "-".to_owned(), |c| c.to_string());
    for report in reports {
        let open = report.has_clones();
        let pods = report.pods.original.filter(|_| !open);
        table.row([
            report.namespace.clone(),
            report.service.clone(),
            report.phase_text(),
            count(report.pods.canary.filter(|_| open)),
            count(report.pods.primary.filter(|_| open)),
            count(pods),
            report
                .wanted
                .map_or_else(|| "-".to_owned(), |r| r.to_string()),
            report.open_for().unwrap_or_else(|| "-".to_owned()),
            report
                .ahead()
                .map_or_else(|| "-".to_owned(), |ahead| format!("{ahead}+")),
            report.version_text(),
        ]);
    }
    let mut text = table.to_string();
    for report in reports {
        let note = report.problem.clone().or_else(|| {
            let failure = report.failure.as_ref()?;
            Some(failure.to_string())
        });
        if let Some(note) = note {
            text += &format!("\n{}/{}: {note}", report.namespace, report.service);
        }
    }
    text
}

/// X, the accepted template and the state of a service that is registered.
///
/// # Errors
///
/// What is wrong with it.
pub(super) fn registered(sight: &Sight) -> Result<(&Deployment, &Template, &State), Unusable> {
    let seen = &sight.observation;
    let service = Service {
        namespace: sight.namespace.clone(),
        deployment: sight.deployment.clone(),
    };
    let clones = [&seen.primary, &seen.canary].into_iter().flatten();
    let Some(original) = &seen.original else {
        return Err(Unusable::NoDeployment(service));
    };
    if original.life == Life::Deleting {
        return Err(Unusable::DeploymentGoing(service));
    }
    for clone in clones.clone() {
        if clone.mark == Mark::Foreign {
            return Err(Unusable::Foreign {
                kind: "Deployment",
                name: clone.name.clone(),
            });
        }
    }
    let Some(object) = &seen.state else {
        return Err(if clones.count() > 0 {
            Unusable::StateLost(service)
        } else {
            Unusable::NotRegistered(service)
        });
    };
    let state = steerable(&service, object)?;
    Ok((original, &object.accepted, state))
}

fn standing(state: &State, original: &Deployment, accepted: &Template) -> Standing {
    match &state.phase {
        Phase::Registering => Standing::Registering,
        Phase::AtRest if original.template == *accepted => Standing::AtRest,
        Phase::AtRest => {
            let rejected = state
                .rejected
                .as_ref()
                .is_some_and(|rejected| rejected.candidate == original.template.hash());
            if rejected && state.order.is_none() {
                Standing::Rejected
            } else if original.replicas.0 == 0 {
                Standing::WaitingForReplicas
            } else {
                Standing::Pending
            }
        }
        Phase::Opening { .. } => Standing::Opening,
        Phase::Stepping { .. } => Standing::Step,
        Phase::Finishing { .. } => Standing::Finishing,
        Phase::Frozen { .. } => Standing::Frozen,
        Phase::Replacing { .. } => Standing::Replacing,
        Phase::HandingOver { .. } => Standing::Promoting,
        Phase::Closing { outcome, .. } => match outcome {
            Outcome::Promoted => Standing::Promoted,
            Outcome::RolledBack => Standing::RollingBack,
            Outcome::Cancelled => Standing::Cancelling,
            Outcome::Superseded => Standing::Superseding,
            Outcome::Interrupted { .. } => Standing::Interrupted,
            Outcome::Released => Standing::Releasing,
        },
        Phase::Releasing => Standing::Releasing,
    }
}

/// Why what X asks for is not what runs.
fn failure(state: &State, original: &Deployment) -> Option<Failure> {
    if let Phase::Frozen { failure, .. } = &state.phase {
        return Some(failure.clone());
    }
    let rejected = state.rejected.as_ref()?;
    (original.template.hash() == rejected.candidate).then(|| rejected.failure.clone())
}

fn step_of(phase: &Phase) -> Option<&Step> {
    match phase {
        Phase::Stepping { step, .. }
        | Phase::Finishing { step, .. }
        | Phase::Frozen { step, .. }
        | Phase::Replacing { step, .. } => Some(step),
        Phase::Registering
        | Phase::AtRest
        | Phase::Opening { .. }
        | Phase::HandingOver { .. }
        | Phase::Closing { .. }
        | Phase::Releasing => None,
    }
}

fn order_text(order: &Order) -> String {
    match order {
        Order::Rewrite { with, .. } => match with {
            Rewrite::Restart { .. } => "restart".to_owned(),
            Rewrite::Undo { revision } => format!("undo to revision {revision}"),
            Rewrite::Restore => "the accepted template again".to_owned(),
            Rewrite::Release => "release, with the accepted template".to_owned(),
        },
        Order::Retry { .. } => "retry".to_owned(),
        Order::Bypass { why, .. } => format!("without checks: {why}"),
    }
}

fn images(template: &Template) -> Vec<String> {
    template.images().into_iter().map(str::to_owned).collect()
}

fn seconds(elapsed: Elapsed) -> u64 {
    elapsed.duration().as_secs()
}

fn long(seconds: u64) -> String {
    display_duration(std::time::Duration::from_secs(seconds)).to_string()
}

impl StepReport {
    fn of(step: &Step) -> Self {
        let Checks {
            passed,
            failed,
            elapsed,
            doubt_for,
            ..
        } = &step.checks;
        Self {
            number: step.number,
            canary: step.canary.0,
            stage: match step.stage {
                Stage::Sleeping => StageWord::Sleeping,
                Stage::MakingRoom => StageWord::MakingRoom,
                Stage::Raising { .. } => StageWord::Raising,
                Stage::Settling => StageWord::Settling,
                Stage::WarmingUp { .. } => StageWord::WarmingUp,
                Stage::Checking => StageWord::Checking,
            },
            checks_passed: *passed,
            checks_failed: *failed,
            checked_for_seconds: seconds(*elapsed),
            in_doubt_for_seconds: doubt_for.map(seconds),
        }
    }
}

impl fmt::Display for StepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed in step {}, checked for {}",
            self.checks_passed,
            self.checks_failed,
            self.number,
            long(self.checked_for_seconds)
        )?;
        match self.in_doubt_for_seconds {
            Some(seconds) => write!(
                f,
                "; the last one said neither, in doubt for {}",
                long(seconds)
            ),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.available, self.wanted)
    }
}

impl fmt::Display for StageWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sleeping => "sleeping: no replicas wanted",
            Self::MakingRoom => "making room",
            Self::Raising => "raising",
            Self::Settling => "settling",
            Self::WarmingUp => "warming up",
            Self::Checking => "checking",
        })
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Registering => "registering",
            Self::AtRest => "at rest",
            Self::Rejected => "rejected",
            Self::WaitingForReplicas => "waiting for replicas",
            Self::Pending => "pending",
            Self::Opening => "opening",
            Self::Step => "step",
            Self::Finishing => "finishing",
            Self::Frozen => "frozen",
            Self::Replacing => "replacing",
            Self::Promoting => "promoting",
            Self::Promoted => "promoted",
            Self::RollingBack => "rolling back",
            Self::Cancelling => "cancelling",
            Self::Superseding => "superseding",
            Self::Interrupted => "interrupted",
            Self::Releasing => "releasing",
        })
    }
}
