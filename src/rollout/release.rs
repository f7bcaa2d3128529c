//! Giving a service back: the history returns to X, X is un-paused, the state object goes. No pod is touched.

use super::Replicas;
use super::action::{Action, Guard, Owner};
use super::command::Leave;
use super::decide::{Desired, Pass};
use super::observation::{Observed, ReplicaSet, Rolling};
use super::plan::{Blocked, Event, Next, Plan, Status};
use super::state::Phase;

/// A service at rest, or on its way there, that has left the configuration.
pub(super) fn begin(pass: &Pass<'_>) -> Plan {
    if pass.original.rolling == Rolling::Paused && !may_roll(pass) {
        return Plan::wait(Status::Blocked(Blocked::ReleaseNeedsDecision {
            deployment: pass.original.name.clone(),
        }));
    }
    Plan::act(Status::Releasing, vec![pass.enter(Phase::Releasing)])
}

/// Whether un-pausing X does what is wanted: nothing, or what a person has decided (case K06).
fn may_roll(pass: &Pass<'_>) -> bool {
    pass.original.template == *pass.accepted() || pass.state.leaving == Some(Leave::Original)
}

/// A service that is being given back.
pub(super) fn go_on(pass: &Pass<'_>) -> Plan {
    let original = pass.original;
    // The entry came back, or a new template did, which un-pausing would roll out unchecked (case K06).
    let paused = original.rolling == Rolling::Paused;
    if paused && (pass.desired != Desired::Released || !may_roll(pass)) {
        return Plan::act(Status::Releasing, vec![pass.enter(Phase::AtRest)]);
    }
    if original.observed == Observed::NotYet {
        return Plan::wait(Status::Releasing);
    }
    let history = history(pass);
    if !history.is_empty() {
        let owner = Owner::Deployment {
            name: original.name.clone(),
            uid: original.uid.clone(),
        };
        let give_back = |set: &ReplicaSet| Action::MoveReplicaSet {
            name: set.name.clone(),
            uid: set.uid.clone(),
            from: set.owner.clone(),
            to: owner.clone(),
            guard: Guard::Replicas(Replicas::ZERO),
        };
        let actions = history.into_iter().map(give_back).collect();
        return pass.observation.live(Plan::act(Status::Releasing, actions));
    }
    if !paused {
        return Plan {
            status: Status::Releasing,
            events: vec![Event::Released {
                history: pass
                    .observation
                    .replica_sets_of(&original.uid)
                    .filter(|set| set.template != original.template)
                    .count(),
            }],
            next: Next::Act(vec![Action::DeleteState {
                uid: pass.object.uid.clone(),
            }]),
        };
    }
    pass.observation.live(Plan::act(
        Status::Releasing,
        vec![Action::Unpause {
            name: original.name.clone(),
            uid: original.uid.clone(),
            resource_version: original.resource_version.clone(),
        }],
    ))
}

/// What goes back, oldest first: without the version that failed, and without twins of what runs (or, un-paused by hand,
/// is being rolled out), which the controller would take for the current one and roll to (design section 3, fact 6).
fn history<'a>(pass: &Pass<'a>) -> Vec<&'a ReplicaSet> {
    let rejected = pass.state.rejected_set();
    let mut sets: Vec<&ReplicaSet> = pass
        .observation
        .replica_sets
        .iter()
        .filter(|set| set.owner == pass.object.uid)
        .filter(|set| set.template != *pass.accepted() && set.template != pass.original.template)
        .filter(|set| rejected != Some(set.name.as_str()))
        .collect();
    sets.sort_by_key(|set| set.revision);
    sets
}
