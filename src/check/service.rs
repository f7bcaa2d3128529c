//! What is told of one service that was looked at: pure, from what was seen.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::report::Severity;
use crate::analysis::{CheckReport, Finding};
use crate::cluster::{Inspection, Manifest, PauseInManifest};
use crate::config::{Bound, OnNoData, Service};
use crate::rollout::autoscaler::{Autoscaler, conflicts};
use crate::rollout::observation::{Deployment, Observation, Ready};
use crate::rollout::plan::{Attention, Images, Unsettled};
use crate::rollout::replicas::Ladder;
use crate::rollout::{Desired, Replicas, Status, Turn, decide, older_sets};

/// One thing about a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Good to know.
    Fact(String),
    /// To be changed.
    Remark(Severity, String),
}

impl Said {
    fn error(message: impl Into<String>) -> Self {
        Self::Remark(Severity::Error, message.into())
    }

    fn warning(message: impl Into<String>) -> Self {
        Self::Remark(Severity::Warning, message.into())
    }
}

/// What is told of a Deployment and of what is around it.
pub(super) fn of_deployment(
    service: &Service,
    inspection: &Inspection,
    autoscalers: &[Autoscaler],
) -> Vec<Said> {
    let observation = &inspection.observation;
    let turn = Desired::Managed(Turn::Taken);
    let status = decide(service, turn, observation, std::time::Duration::ZERO).status;
    let Some(original) = &observation.original else {
        return vec![Said::error(format!(
            "there is no Deployment {} in namespace {}",
            service.deployment, service.namespace
        ))];
    };
    let mut said = vec![Said::Fact(format!(
        "{} of {} pods of {} are available",
        available(observation, original),
        original.replicas,
        images(original)
    ))];
    said.push(standing(&status));
    if observation.state.is_none() && status == Status::Registering {
        said.push(registering(original, observation));
    }
    said.push(steps(service, original.replicas));
    said.extend(envelope(service, original.replicas));
    if original.rest.recreates() {
        said.push(Said::warning(
            "its strategy is Recreate, and a rollout in steps runs two versions side by side: register it only if they get \
             along",
        ));
    }
    let conflicts = conflicts(&service.deployment, autoscalers);
    said.extend(
        conflicts
            .iter()
            .map(|event| Said::warning(event.to_string())),
    );
    said.extend(inspection.manifest.iter().flat_map(of_manifest));
    said
}

/// How it stands, in the daemon's own words.
fn standing(status: &Status) -> Said {
    let is_lasting = matches!(
        status,
        Status::Blocked(_)
            | Status::Unsettled {
                reason: Unsettled::Paused { .. }
            }
    );
    let is_waiting = matches!(status, Status::Unsettled { .. } | Status::Going);
    if is_lasting {
        Said::error(status.to_string())
    } else if is_waiting || status.attention() == Attention::Wanted {
        Said::warning(status.to_string())
    } else if *status == Status::Registering {
        Said::Fact("it is settled, and can be registered".to_owned())
    } else {
        Said::Fact(format!("registered: {status}"))
    }
}

fn registering(original: &Deployment, observation: &Observation) -> Said {
    let mut names: Vec<&str> = older_sets(original, observation)
        .map(|set| set.name.as_str())
        .collect();
    names.sort_unstable();
    let mut text = "registering pauses it (spec.paused) and touches no pod".to_owned();
    match names.as_slice() {
        [] => {}
        [one] => {
            // Writing to a String cannot fail.
            let _ = write!(text, "; older ReplicaSet {one} goes to the stash");
        }
        many => {
            let _ = write!(
                text,
                "; {} older ReplicaSets go to the stash: {}",
                many.len(),
                many.join(", ")
            );
        }
    }
    Said::Fact(text)
}

fn steps(service: &Service, wanted: Replicas) -> Said {
    if wanted == Replicas::ZERO {
        return Said::Fact("a new version waits until replicas are wanted again".to_owned());
    }
    let ladder = Ladder::of(service, wanted);
    let checked = ladder.checked_steps();
    let plural = if checked == 1 { "" } else { "s" };
    Said::Fact(format!(
        "a rollout has {checked} checked step{plural}, of {} pods at most, to {} of {wanted}, and {} steps in all",
        ladder.step(),
        ladder.breakpoint(),
        ladder.all_steps(),
    ))
}

/// As a Deployment whose two bounds both come to zero: one may be missing.
fn envelope(service: &Service, wanted: Replicas) -> Option<Said> {
    let unavailable = service.max_unavailable?;
    let is_none = unavailable != Bound::Zero && unavailable.rounded_down(wanted) == Replicas::ZERO;
    (is_none && service.max_surge == Some(Bound::Zero) && wanted > Replicas::ZERO).then(|| {
        Said::warning(format!(
            "max_unavailable: {unavailable} of {wanted} replicas comes to none, and with max_surge: 0 one pod may be missing \
             all the same: no other could ever be replaced"
        ))
    })
}

fn of_manifest(manifest: &Manifest) -> Vec<Said> {
    let mut said = Vec::new();
    if manifest.pause == PauseInManifest::SaysUnpaused {
        said.push(Said::warning(
            "its manifest says paused: false, so each apply un-pauses it: remove that line",
        ));
    }
    if let Some(tool) = manifest.waits_for_ever {
        said.push(Said::warning(format!(
            "{tool} waits for ever for a paused Deployment that has a progress deadline: say progressDeadlineSeconds: \
             2147483647 in its manifest before it is registered"
        )));
    }
    said
}

/// The pods that expressions are asked about: those that run and are ready, of whichever version.
pub(super) fn running_pods(observation: &Observation) -> Vec<String> {
    let owners = [
        &observation.original,
        &observation.primary,
        &observation.canary,
    ];
    let pods = owners
        .into_iter()
        .flatten()
        .flat_map(|owner| observation.pods_of(&owner.uid));
    let ready = pods.filter(|pod| pod.is_alive() && pod.ready == Ready::Yes);
    let mut names: Vec<String> = ready.map(|pod| pod.name.clone()).collect();
    names.sort_unstable();
    names
}

/// What came of one expression.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
    empty: Vec<String>,
    /// `on_no_data` of the expression.
    then: OnNoData,
}

/// What is told of a round of questions about running pods: of the version that is accepted, as a rule.
pub(super) fn of_expressions(report: &CheckReport, asked: usize, running: usize) -> Vec<Said> {
    let mut unavailable = Vec::new();
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for finding in &report.findings {
        match finding {
            Finding::Passed { expression, .. } => {
                tallies.entry(expression).or_default().passed += 1;
            }
            Finding::Failed {
                expression, text, ..
            } => tallies
                .entry(expression)
                .or_default()
                .failed
                .push(text.clone()),
            Finding::NoData {
                expression,
                text,
                then,
                ..
            } => {
                let tally = tallies.entry(expression).or_default();
                tally.empty.push(text.clone());
                tally.then = *then;
            }
            Finding::Unavailable { text } => unavailable.push(text),
        }
    }
    let of = if asked == running {
        format!("{running} running pods")
    } else {
        format!("{asked} of {running} running pods")
    };
    let mut said: Vec<Said> = unavailable
        .into_iter()
        .map(|text| Said::error(format!("an expression cannot be judged: {text}")))
        .collect();
    for (expression, tally) in tallies {
        let judged = tally.passed + tally.failed.len() + tally.empty.len();
        match (tally.empty.first(), tally.failed.first()) {
            (Some(first), _) if tally.empty.len() == judged && tally.then == OnNoData::Fail => said
                .push(Said::error(format!(
                    "{expression} finds nothing for any of {of}: {first}; a canary would fail by it"
                ))),
            (Some(first), _) => said.push(Said::warning(format!(
                "{expression} finds nothing for {} of {judged} asked about: {first}",
                tally.empty.len()
            ))),
            (None, None) => said.push(Said::Fact(format!("{expression} holds ({of})"))),
            (None, Some(_)) => {}
        }
        if let Some(first) = tally.failed.first() {
            said.push(Said::warning(format!(
                "{expression} does not hold for {} of {judged} asked about, which run already: {first}; a canary that does \
                 no better is rejected",
                tally.failed.len()
            )));
        }
    }
    said
}

fn available(observation: &Observation, original: &Deployment) -> Replicas {
    let clones = [&observation.primary, &observation.canary];
    clones
        .into_iter()
        .flatten()
        .filter(|clone| clone.owner.as_ref() == Some(&original.uid))
        .map(|clone| clone.status.available)
        .fold(original.status.available, Replicas::saturating_add)
}

fn images(deployment: &Deployment) -> Images {
    let images = deployment.template.images();
    Images(images.into_iter().map(str::to_owned).collect())
}
