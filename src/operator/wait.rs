//! Waiting until the template that X has now is rolled out, or is not (case K45).

use std::fmt;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::service::{Service, Unusable, problem};
use super::status::{Report, registered};
use crate::cluster::{Cluster, ClusterError, Depth};
use crate::config::display_duration;
use crate::rollout::plan::Images;
use crate::rollout::state::{Order, Phase, State};
use crate::rollout::template::Template;

/// How often it is looked.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What became of the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It is the accepted one, and X owns its pods.
    Promoted(String),
    /// It is not, and will not be without somebody's doing.
    Failed(String),
    /// Neither, in the time given.
    TimedOut(Duration),
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Promoted(text) | Self::Failed(text) => f.write_str(text),
            Self::TimedOut(after) => write!(
                f,
                "not over after {}; the rollout goes on, or waits, by itself",
                display_duration(*after)
            ),
        }
    }
}

/// Waits for the template that X has now, for ever where no patience is given, and says each change in a line.
/// A template that an order is about to write is waited for first.
pub async fn wait(
    cluster: &Cluster,
    service: &Service,
    patience: Option<Duration>,
    mut say: impl FnMut(&str),
) -> Waited {
    let watch = watch(cluster, service, &mut say);
    match patience {
        None => watch.await,
        Some(patience) => timeout(patience, watch)
            .await
            .unwrap_or(Waited::TimedOut(patience)),
    }
}

async fn watch(cluster: &Cluster, service: &Service, say: &mut impl FnMut(&str)) -> Waited {
    let mut said = String::new();
    let mut tell = |text: String| {
        if text != said {
            say(&text);
            said = text;
        }
    };
    let mut awaited: Option<Template> = None;
    loop {
        let seen = cluster
            .sight(&service.namespace, &service.deployment, Depth::Surface)
            .await;
        match seen.as_ref().map(|sight| (sight, registered(sight))) {
            Ok((sight, Ok((original, accepted, state)))) => {
                let rewritten = matches!(state.order, Some(Order::Rewrite { .. }));
                if rewritten && awaited.is_none() {
                    tell(
                        "an order is about to write another template: waiting for that".to_owned(),
                    );
                } else {
                    let awaited = awaited.get_or_insert_with(|| original.template.clone());
                    let now = Now {
                        wanted: &original.template,
                        accepted,
                        state,
                    };
                    if let Some(over) = now.verdict(awaited) {
                        return over;
                    }
                    tell(Report::of(sight).progress());
                }
            }
            Ok((_, Err(unusable))) => {
                if let Some(over) = over_by(&unusable, awaited.is_some()) {
                    return over;
                }
                tell(unusable.to_string());
            }
            Err(error) => {
                if awaited.is_none() && !is_passing(error) {
                    return Waited::Failed(problem(error));
                }
                tell(format!("{}; looking again", problem(error)));
            }
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// What decides about a template.
struct Now<'a> {
    wanted: &'a Template,
    accepted: &'a Template,
    state: &'a State,
}

impl Now<'_> {
    /// What became of the awaited template; none while that is open.
    fn verdict(&self, awaited: &Template) -> Option<Waited> {
        let images = |template: &Template| {
            Images(template.images().into_iter().map(str::to_owned).collect())
        };
        let at_rest = self.state.phase == Phase::AtRest;
        if self.accepted == awaited {
            // Until X owns its pods again, it is not over; unless another rollout is open by now.
            let over = at_rest || (self.wanted != awaited && !is_ending(&self.state.phase));
            return over
                .then(|| Waited::Promoted(format!("{} is the accepted version", images(awaited))));
        }
        if let Phase::Frozen {
            candidate, failure, ..
        } = &self.state.phase
            && *candidate == awaited.hash()
        {
            return Some(Waited::Failed(format!(
                "{} is frozen: {failure}",
                images(awaited)
            )));
        }
        if self.wanted != awaited {
            return Some(Waited::Failed(if self.wanted == self.accepted {
                format!(
                    "cancelled: the Deployment asks for the accepted version ({}) again",
                    images(self.accepted)
                )
            } else {
                format!(
                    "superseded: the Deployment asks for another template by now ({})",
                    images(self.wanted)
                )
            }));
        }
        if self.state.leaving.is_some() {
            return Some(Waited::Failed(
                "the service is being given back: Volery does not roll it out".to_owned(),
            ));
        }
        let rejected = self.state.rejected.as_ref();
        let rejected = rejected.filter(|rejected| rejected.candidate == awaited.hash());
        rejected
            .filter(|_| at_rest && self.state.order.is_none())
            .map(|rejected| {
                Waited::Failed(format!(
                    "{} was rolled back: {}",
                    images(awaited),
                    rejected.failure
                ))
            })
    }
}

fn is_ending(phase: &Phase) -> bool {
    match phase {
        Phase::HandingOver { .. } | Phase::Closing { .. } => true,
        Phase::Registering
        | Phase::AtRest
        | Phase::Opening { .. }
        | Phase::Stepping { .. }
        | Phase::Finishing { .. }
        | Phase::Frozen { .. }
        | Phase::Replacing { .. }
        | Phase::Releasing => false,
    }
}

/// Whether there is nothing to wait for: at the start whatever cannot be watched, later only what cannot come back.
fn over_by(unusable: &Unusable, begun: bool) -> Option<Waited> {
    let lost = match unusable {
        Unusable::NoDeployment(_) | Unusable::NotRegistered(_) => true,
        Unusable::DeploymentGoing(_)
        | Unusable::StateLost(_)
        | Unusable::Foreign { .. }
        | Unusable::Going { .. }
        | Unusable::Orphaned { .. }
        | Unusable::Unreadable { .. } => !begun,
    };
    lost.then(|| Waited::Failed(unusable.to_string()))
}

fn is_passing(error: &ClusterError) -> bool {
    match error {
        ClusterError::Unavailable { .. } | ClusterError::Timeout { .. } => true,
        ClusterError::Stale { .. }
        | ClusterError::NotLeading { .. }
        | ClusterError::Forbidden { .. }
        | ClusterError::Refused { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rollout::Replicas;
    use crate::rollout::state::{Cause, Elapsed, Failure, Outcome, Rejection, Step};
    use crate::rollout::template::TemplateHash;

    fn template(tag: &str) -> Template {
        Template::new(json!({"spec": {"containers": [{"image": format!("orders:{tag}")}]}}))
    }

    fn verdict(phase: Phase, wanted: &str, accepted: &str, rejected: Option<&str>) -> String {
        let mut state = State::registering().in_phase(phase);
        state.rejected = rejected.map(|tag| Rejection {
            candidate: template(tag).hash(),
            replica_set: None,
            images: Vec::new(),
            failure: failure(),
        });
        let now = Now {
            wanted: &template(wanted),
            accepted: &template(accepted),
            state: &state,
        };
        let verdict = now.verdict(&template("v2"));
        verdict.map_or_else(|| "waits".to_owned(), |over| format!("{over:?}"))
    }

    fn failure() -> Failure {
        Failure {
            cause: Cause::Aborted,
            evidence: "volery abort".to_owned(),
        }
    }

    fn hash(tag: &str) -> TemplateHash {
        template(tag).hash()
    }

    #[test]
    fn what_is_awaited_is_the_template_of_the_start() {
        let step = || Step::new(1, Replicas(2), Replicas(10));
        let stepping = |tag: &str| Phase::Stepping {
            candidate: hash(tag),
            step: step(),
        };
        let closing = |outcome: Outcome| Phase::Closing {
            outcome,
            elapsed: Elapsed::ZERO,
        };
        let frozen = |tag: &str| Phase::Frozen {
            candidate: hash(tag),
            step: step(),
            failure: failure(),
        };
        let cases = [
            (
                "not seen by the daemon yet",
                verdict(Phase::AtRest, "v2", "v1", None),
            ),
            (
                "nothing to roll out",
                verdict(Phase::AtRest, "v2", "v2", None),
            ),
            ("on trial", verdict(stepping("v2"), "v2", "v1", None)),
            (
                "an older one is still on trial",
                verdict(stepping("v0"), "v2", "v1", Some("v0")),
            ),
            (
                "being handed over",
                verdict(closing(Outcome::Promoted), "v2", "v2", None),
            ),
            (
                "promoted, and the next one is on trial",
                verdict(stepping("v3"), "v3", "v2", None),
            ),
            (
                "rolling back",
                verdict(closing(Outcome::RolledBack), "v2", "v1", Some("v2")),
            ),
            (
                "rolled back",
                verdict(Phase::AtRest, "v2", "v1", Some("v2")),
            ),
            ("frozen", verdict(frozen("v2"), "v2", "v1", None)),
            (
                "replaces a frozen one",
                verdict(frozen("v0"), "v2", "v1", None),
            ),
            ("superseded", verdict(stepping("v2"), "v3", "v1", None)),
            ("cancelled", verdict(stepping("v2"), "v1", "v1", None)),
        ];
        let page: Vec<String> = cases
            .iter()
            .map(|(name, verdict)| format!("{name}: {verdict}"))
            .collect();
        insta::assert_snapshot!(page.join("\n"), @r#"
        not seen by the daemon yet: waits
        nothing to roll out: Promoted("orders:v2 is the accepted version")
        on trial: waits
        an older one is still on trial: waits
        being handed over: waits
        promoted, and the next one is on trial: Promoted("orders:v2 is the accepted version")
        rolling back: waits
        rolled back: Failed("orders:v2 was rolled back: aborted by hand: volery abort")
        frozen: Failed("orders:v2 is frozen: aborted by hand: volery abort")
        replaces a frozen one: waits
        superseded: Failed("superseded: the Deployment asks for another template by now (orders:v3)")
        cancelled: Failed("cancelled: the Deployment asks for the accepted version (orders:v1) again")
        "#);
    }
}
