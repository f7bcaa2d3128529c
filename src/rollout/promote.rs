//! Promotion: the canary's ReplicaSet, which runs all R pods by now, is handed over to X. The move is the point of no
//! return: a newer template before it supersedes, after it the moved version is the accepted one.

use super::action::replica_set_name;
use super::decide::{Pass, images};
use super::handover::{Handover, await_recognition, hand_over};
use super::observation::{ReplicaSet, Role};
use super::plan::{Event, Next, Plan, Status};
use super::state::{Elapsed, Motion, Outcome, Phase};
use super::step::candidate_set;
use super::template::TemplateHash;

pub(super) fn decide(pass: &Pass<'_>, candidate: &TemplateHash, elapsed: Elapsed) -> Plan {
    let status = Status::HandingOver;
    if let Some(plan) = pass.repause(status.clone()) {
        return plan;
    }
    let canary = pass.deployment(Role::Canary);
    let on_canary = canary.and_then(|canary| candidate_set(pass, canary));
    let Some(set) = on_canary.or_else(|| moved_set(pass, candidate)) else {
        let what = "the canary was deleted".to_owned();
        return pass.interrupt(what);
    };
    if set.owner != pass.original.uid
        && let Some(plan) = pass
            .interruption(candidate)
            // The move may have been carried out although its answer never came.
            .map(|plan| pass.observation.live(plan))
            .or_else(|| pass.clear_original(status.clone()))
    {
        return plan;
    }
    if pass.state.motion == Motion::Held && set.owner != pass.original.uid {
        return Plan::wait(Status::Held {
            at: None,
            deployment: pass.original.name.clone(),
        });
    }
    match hand_over(pass, set, Role::Canary, Role::Original, &status) {
        Handover::Go(plan) => plan,
        Handover::Unrecognised => await_recognition(status, Role::Original, elapsed),
        Handover::Done => {
            let mut state = pass.state.in_phase(Phase::Closing {
                outcome: Outcome::Promoted,
                elapsed: Elapsed::ZERO,
            });
            state.rejected = None;
            state.order = None;
            state.accepted = Some(set.uid.clone());
            Plan {
                status: Status::Closing {
                    outcome: Outcome::Promoted,
                },
                events: vec![Event::Promoted {
                    images: images(&set.template),
                    replicas: pass.wanted(),
                    after: pass.state.open_for.duration(),
                }],
                next: Next::Act(vec![pass.write(state, Some(set.template.clone()))]),
            }
        }
    }
}

/// Whether the point of no return is passed.
pub(super) fn is_moved(pass: &Pass<'_>, candidate: &TemplateHash) -> bool {
    let on_canary = pass
        .deployment(Role::Canary)
        .and_then(|canary| candidate_set(pass, canary));
    on_canary.is_none() && moved_set(pass, candidate).is_some()
}

/// The candidate's ReplicaSet once X owns it, recognised by the name that this rollout gave it: X's own template may be
/// a newer one by now.
fn moved_set<'a>(pass: &Pass<'a>, candidate: &TemplateHash) -> Option<&'a ReplicaSet> {
    pass.observation
        .replica_sets
        .iter()
        .filter(|set| set.owner == pass.original.uid)
        .find(|set| {
            let template = &set.template;
            let hash = template.hash_in_rollout(pass.state.rollout);
            template.hash() == *candidate
                || set.name == replica_set_name(&pass.original.name, &hash)
                || pass
                    .deployment(Role::Canary)
                    .is_some_and(|canary| canary.template == *template)
        })
}
