//! The handover: a ReplicaSet with its running pods changes owner from one Deployment to another, and no pod restarts.
//!
//! One primitive for open, promote and roll back (design section 3, "The handover"). The intent is the phase in the
//! state object, written before the first step; after a crash everything is derived again from it and from ownership.

use std::time::Duration;

use super::action::{Action, CloneRole, Guard, Owner};
use super::decide::Pass;
use super::observation::{Deployment, Observed, ReplicaSet, Role, Rolling};
use super::plan::{Blocked, Next, Plan, Status};
use super::state::Elapsed;

/// How far a handover is.
pub(super) enum Handover {
    /// Do this.
    Go(Plan),
    /// Moved, but not yet reported by the new owner.
    Unrecognised,
    /// The new owner reports it.
    Done,
}

/// The next step of handing `set` over from one Deployment to another.
pub(super) fn hand_over(
    pass: &Pass<'_>,
    set: &ReplicaSet,
    from: Role,
    to: Role,
    status: &Status,
) -> Handover {
    let wait = || Handover::Go(Plan::wait(status.clone()));
    let (Some(target), source) = (pass.deployment(to), pass.deployment(from)) else {
        return wait();
    };
    if set.owner == target.uid {
        // X was un-paused and started another version beside it: its status counts both and will never match. At rest
        // it is judged which of them stays.
        let shares = to == Role::Original
            && pass
                .observation
                .replica_sets_of(&target.uid)
                .any(|other| other.uid != set.uid);
        return if shares || recognised(target, set) {
            Handover::Done
        } else {
            Handover::Unrecognised
        };
    }
    // The source may be gone only if the set is not its any more, and then there is nothing to hand over.
    let Some(source) = source.filter(|source| source.uid == set.owner) else {
        return wait();
    };
    for deployment in [source, target] {
        if deployment.rolling == Rolling::Unpaused || deployment.observed == Observed::NotYet {
            return wait();
        }
    }
    // `to` must own nothing: two ReplicaSets of one Deployment are scaled against each other (facts 1, 5 and 6).
    if pass
        .observation
        .replica_sets_of(&target.uid)
        .next()
        .is_some()
    {
        return wait();
    }
    let guard = match to {
        Role::Original => Guard::AnyNumber,
        Role::Primary | Role::Canary => Guard::Replicas(set.replicas),
    };
    if let Some(clone) = as_clone(to).filter(|_| target.replicas != set.replicas) {
        return Handover::Go(Plan::act(
            status.clone(),
            vec![scale(clone, target, set.replicas)],
        ));
    }
    Handover::Go(pass.observation.live(Plan {
        status: status.clone(),
        events: Vec::new(),
        next: Next::Act(vec![Action::MoveReplicaSet {
            name: set.name.clone(),
            uid: set.uid.clone(),
            from: source.uid.clone(),
            to: Owner::Deployment {
                name: target.name.clone(),
                uid: target.uid.clone(),
            },
            guard,
        }]),
    }))
}

/// How long a new owner may take to report the pods it was given before a person is told (design section 3, handover 6
/// and 7). Without lag it takes a third of a second; a minute is a controller-manager that restarts.
pub(super) const RECOGNITION: Duration = Duration::from_secs(60);

/// Waits for the new owner's report. X keeps what it was given however long that takes: its pods run on, and taking them
/// back from a controller that does not answer would only be one more thing that it does not see.
pub(super) fn await_recognition(status: Status, by: Role, elapsed: Elapsed) -> Plan {
    let left = RECOGNITION.saturating_sub(elapsed.duration());
    if left.is_zero() {
        return Plan::wait(Status::Blocked(Blocked::NotRecognised { by }));
    }
    Plan::wait_for(status, left)
}

/// Whether the new owner reports the ReplicaSet: its status proves that the controller took it for its own (fact 14).
/// A ReplicaSet without pods shows nothing, and there is nothing to lose.
fn recognised(target: &Deployment, set: &ReplicaSet) -> bool {
    if set.is_empty() {
        return true;
    }
    let same_template = target.template == set.template;
    target.observed == Observed::Yes
        && target.status.replicas == set.existing
        && (!same_template || target.status.updated == set.existing)
}

/// Sets a clone's number.
pub(super) fn scale(clone: CloneRole, deployment: &Deployment, to: super::Replicas) -> Action {
    Action::Scale {
        clone,
        uid: deployment.uid.clone(),
        from: deployment.replicas,
        to,
    }
}

fn as_clone(role: Role) -> Option<CloneRole> {
    match role {
        Role::Original => None,
        Role::Primary => Some(CloneRole::Primary),
        Role::Canary => Some(CloneRole::Canary),
    }
}
