//! Closing a rollout, however it ended: X owns the accepted ReplicaSet, all else of the clones is stashed or deleted, the
//! clones go.

use super::Replicas;
use super::action::{Action, CloneRole};
use super::decide::{Desired, Pass, delete, images};
use super::freeze::let_shrink;
use super::handover::{Handover, await_recognition, hand_over, scale};
use super::observation::{Deployment, Life, ReplicaSet, Role, Rolling};
use super::plan::{Event, Next, Plan, Status};
use super::register::stash;
use super::replicas::{Haste, Retreat, Side, Sides, retreat};
use super::rest::is_rejected;
use super::state::{Elapsed, Outcome, Phase, Rewrite, State};
use crate::config::AfterRollback;

pub(super) fn decide(pass: &Pass<'_>, outcome: &Outcome, elapsed: Elapsed) -> Plan {
    let status = Status::Closing {
        outcome: outcome.clone(),
    };
    if let Some(plan) = pass.repause(status.clone()) {
        return plan;
    }
    let set = pass.accepted_set();
    let primary_runs = pass
        .deployment(Role::Primary)
        .filter(|primary| set.is_some_and(|set| set.owner == primary.uid));
    if *outcome != Outcome::Promoted
        && let Some(plan) = take_back(pass, outcome, elapsed, primary_runs, &status)
    {
        return plan;
    }
    if primary_runs.is_some()
        && let Some(plan) = pass.clear_original(status.clone())
    {
        return plan;
    }
    let Some(set) = set else {
        // Only a live look can say that nothing is left of the accepted version: it would be started anew.
        return pass.observation.live(tidy(pass, outcome, status));
    };
    match hand_over(pass, set, Role::Primary, Role::Original, &status) {
        Handover::Go(plan) => plan,
        Handover::Unrecognised => await_recognition(status, Role::Original, elapsed),
        Handover::Done => tidy(pass, outcome, status),
    }
}

/// A canary of two versions, paused amid its replacement, does not shrink whatever its number says: its strategy is
/// `Recreate`. It is given one by which it does, and only once its number is lower than what it has, so that none grows.
fn let_go(pass: &Pass<'_>, status: &Status) -> Option<Plan> {
    let canary = pass.deployment(Role::Canary)?;
    let sets = || pass.observation.replica_sets_of(&canary.uid);
    let wanted = sets().map(|set| set.replicas.0);
    let is_stuck = canary.rolling == Rolling::Paused
        && canary.rest.recreates()
        && sets().filter(|set| !set.is_empty()).count() > 1
        && wanted.fold(0, u32::saturating_add) > canary.replicas.0;
    is_stuck.then(|| Plan::act(status.clone(), vec![let_shrink(canary)]))
}

/// Brings the numbers back: the primary to R, the canary to 0. After a failure all at once: a bad consumer harms data
/// (case K04). Where nothing failed, by turns: the envelope holds (promise 3).
fn take_back(
    pass: &Pass<'_>,
    outcome: &Outcome,
    elapsed: Elapsed,
    primary: Option<&Deployment>,
    status: &Status,
) -> Option<Plan> {
    let canary = pass.deployment(Role::Canary);
    let Some(primary) = primary else {
        // X has the accepted version's pods back and keeps their number itself.
        let Some(canary) = canary.filter(|canary| canary.replicas != Replicas::ZERO) else {
            return let_go(pass, status);
        };
        let action = scale(CloneRole::Canary, canary, Replicas::ZERO);
        return Some(Plan::act(status.clone(), vec![action]));
    };
    let sides = Sides {
        canary: canary.map_or(Side::NONE, |canary| pass.side(canary)),
        primary: pass.side(primary),
    };
    let now = sides.numbers();
    let step = |haste: Haste| retreat(&pass.envelope(), pass.wanted(), haste, &sides);
    let abort = pass.service.abort;
    let gradual = *outcome != Outcome::RolledBack;
    let next = match step(if gradual {
        Haste::InStep
    } else {
        Haste::AtOnce
    }) {
        // What cannot be had is not waited for: X asks for the accepted version, not for the canary.
        Retreat::AwaitPrimary if elapsed.duration() >= abort => step(Haste::AtOnce),
        next @ (Retreat::Write(_) | Retreat::AwaitPrimary | Retreat::AwaitRoom | Retreat::Done) => {
            next
        }
    };
    match next {
        Retreat::Write(next) => {
            let mut actions = Vec::new();
            if gradual && next.primary > now.primary && now.canary > Replicas::ZERO {
                // Pods that are asked for later than others have their own time.
                actions.push(pass.enter(Phase::Closing {
                    outcome: outcome.clone(),
                    elapsed: Elapsed::ZERO,
                }));
            }
            if let Some(canary) = canary.filter(|_| next.canary != now.canary) {
                actions.push(scale(CloneRole::Canary, canary, next.canary));
            }
            if next.primary != now.primary {
                actions.push(scale(CloneRole::Primary, primary, next.primary));
            }
            Some(Plan::act(status.clone(), actions))
        }
        Retreat::AwaitPrimary => Some(Plan::wait_for(status.clone(), abort - elapsed.duration())),
        Retreat::AwaitRoom => let_go(pass, status).or_else(|| {
            Some(Plan::wait(Status::TakingBack {
                outcome: outcome.clone(),
                going: there(pass, canary),
                most: pass.envelope().most(pass.wanted()),
                stuck: canary.and_then(|canary| pass.stuck(&[canary])),
            }))
        }),
        Retreat::Done => let_go(pass, status),
    }
}

/// How many pods a clone has, terminating ones included.
fn there(pass: &Pass<'_>, clone: Option<&Deployment>) -> Replicas {
    let pods = clone.map_or(0, |clone| {
        let pods = pass.observation.pods_of(&clone.uid);
        pods.filter(|pod| pod.is_there()).count()
    });
    Replicas(u32::try_from(pods).unwrap_or(u32::MAX))
}

/// X has what it should have, or, where nothing is left of the accepted version, gets it at rest.
fn tidy(pass: &Pass<'_>, outcome: &Outcome, status: Status) -> Plan {
    let clones: Vec<(CloneRole, &Deployment)> = [CloneRole::Primary, CloneRole::Canary]
        .into_iter()
        .filter_map(|clone| Some((clone, pass.deployment(clone.into())?)))
        .collect();
    if clones.is_empty() {
        let state = State {
            open_for: Elapsed::ZERO,
            ..restoring(pass, outcome).in_phase(Phase::AtRest)
        };
        let closed = Event::Closed {
            images: images(pass.accepted()),
            replicas: pass.wanted(),
        };
        // A clone that only a late watch does not show would be forgotten with its pods.
        return pass.observation.live(Plan {
            status,
            events: if *outcome == Outcome::Promoted {
                Vec::new()
            } else {
                vec![closed]
            },
            next: Next::Act(vec![pass.write(state, None)]),
        });
    }
    let mut actions: Vec<Action> = Vec::new();
    let mut left = Vec::new();
    for (clone, deployment) in &clones {
        let sets: Vec<&ReplicaSet> = pass
            .observation
            .replica_sets
            .iter()
            .filter(|set| set.owner == deployment.uid)
            .collect();
        if !sets.is_empty() && deployment.replicas != Replicas::ZERO {
            actions.push(scale(*clone, deployment, Replicas::ZERO));
        }
        left.extend(sets);
    }
    if !actions.is_empty() {
        return Plan::act(status, actions);
    }
    let empty: Vec<&ReplicaSet> = left
        .iter()
        .copied()
        .filter(|set| set.is_empty() && set.life == Life::Alive)
        .collect();
    if !empty.is_empty() {
        let (keep, drop): (Vec<&ReplicaSet>, Vec<&ReplicaSet>) = empty
            .into_iter()
            .partition(|set| worth_keeping(pass, outcome, set));
        let mut actions = stash(pass, keep);
        actions.extend(drop.into_iter().map(delete));
        return pass.observation.live(Plan::act(status, actions));
    }
    if !left.is_empty() {
        return Plan::wait(status);
    }
    // A live look proves that nothing is deleted with them (design section 3, fact 7).
    let gone = |(clone, deployment): (CloneRole, &Deployment)| Action::DeleteClone {
        clone,
        uid: deployment.uid.clone(),
    };
    pass.observation
        .live(Plan::act(status, clones.into_iter().map(gone).collect()))
}

/// `restore_original`: X gets the accepted template again, once. Whatever puts the rejected one back after that is not
/// answered: the rejection is remembered, the order is not.
fn restoring(pass: &Pass<'_>, outcome: &Outcome) -> State {
    let is_asked = pass.service.restore_original == AfterRollback::RestoreTemplate
        && pass.desired != Desired::Released
        && *outcome == Outcome::RolledBack
        && is_rejected(pass);
    if is_asked {
        pass.rewriting(Rewrite::Restore)
    } else {
        pass.state.clone()
    }
}

/// History is what ran as the accepted version, and the version that failed, which must be known again.
fn worth_keeping(pass: &Pass<'_>, outcome: &Outcome, set: &ReplicaSet) -> bool {
    if set.template == *pass.accepted() {
        return false;
    }
    match outcome {
        Outcome::Promoted => pass
            .deployment(Role::Primary)
            .is_some_and(|primary| primary.uid == set.owner),
        Outcome::RolledBack => pass.state.rejected_set() == Some(set.name.as_str()),
        Outcome::Cancelled
        | Outcome::Superseded
        | Outcome::Released
        | Outcome::Interrupted { .. } => false,
    }
}
