//! Taking a service on: no pod is touched.

use super::Replicas;
use super::action::{Action, Guard, Owner, state_name};
use super::decide::{Desired, Pass, images};
use super::observation::{Deployment, Observation, Observed, ReplicaSet, Rolling};
use super::plan::{Event, Next, Plan, Status, Strategy, Unsettled};
use super::release;
use super::state::{Phase, State};

/// A service without a state object.
pub(super) fn begin(original: &Deployment, observation: &Observation) -> Plan {
    if let Err(reason) = settled(original, observation) {
        let stuck = original.rolling == Rolling::Paused
            && original.observed == Observed::Yes
            && !observation
                .replica_sets_of(&original.uid)
                .any(|set| !set.is_empty() && set.template == original.template);
        let reason = if stuck {
            Unsettled::Paused {
                deployment: original.name.clone(),
            }
        } else {
            reason
        };
        return Plan::wait(Status::Unsettled { reason });
    }
    observation.live(Plan::act(
        Status::Registering,
        vec![Action::CreateState {
            accepted: original.template.clone(),
            state: Box::new(State::registering()),
        }],
    ))
}

/// A service whose state object exists, not yet at rest.
pub(super) fn go_on(pass: &Pass<'_>) -> Plan {
    let original = pass.original;
    if pass.desired == Desired::Released {
        return release::begin(pass);
    }
    if original.rolling == Rolling::Unpaused {
        if let Err(reason) = settled(original, pass.observation) {
            return Plan::wait(Status::Unsettled { reason });
        }
        if original.template != *pass.accepted() {
            return Plan::act(
                Status::Registering,
                vec![pass.write(pass.state.clone(), Some(original.template.clone()))],
            );
        }
        // Refused if X has changed since it was judged settled (design section 2, "Register").
        return pass.observation.live(Plan::act(
            Status::Registering,
            vec![Action::Pause {
                name: original.name.clone(),
                uid: original.uid.clone(),
                resource_version: Some(original.resource_version.clone()),
            }],
        ));
    }
    if original.observed == Observed::NotYet {
        return Plan::wait(Status::Registering);
    }
    let older = history(pass);
    if !older.is_empty() {
        return pass
            .observation
            .live(Plan::act(Status::Registering, stash(pass, older)));
    }
    let registered = State {
        accepted: pass.accepted_set().map(|set| set.uid.clone()),
        ..pass.state.in_phase(Phase::AtRest)
    };
    pass.observation.live(Plan {
        status: Status::Registering,
        events: vec![Event::Registered {
            replicas: pass.wanted(),
            images: images(pass.accepted()),
            stashed: pass.observation.replica_sets_of(&pass.object.uid).count(),
            strategy: if original.rest.recreates() {
                Strategy::Recreate
            } else {
                Strategy::Rolling
            },
        }],
        next: Next::Act(vec![pass.write(registered, None)]),
    })
}

/// X's empty ReplicaSets but the accepted one.
fn history<'a>(pass: &Pass<'a>) -> Vec<&'a ReplicaSet> {
    let accepted = pass.accepted_set();
    pass.observation
        .replica_sets_of(&pass.original.uid)
        .filter(|set| set.is_empty() && accepted.is_none_or(|accepted| accepted.uid != set.uid))
        .collect()
}

/// Those of X's ReplicaSets that registering would move to the stash: the empty ones but for the one that is accepted
/// then, which is the one of X's own template.
pub fn older_sets<'a>(
    original: &'a Deployment,
    observation: &'a Observation,
) -> impl Iterator<Item = &'a ReplicaSet> {
    let own = observation
        .replica_sets_of(&original.uid)
        .filter(|set| set.template == original.template)
        .max_by_key(|set| (set.available, set.existing, set.replicas));
    observation
        .replica_sets_of(&original.uid)
        .filter(move |set| set.is_empty() && own.is_none_or(|own| own.uid != set.uid))
}

/// Moves empty ReplicaSets to the stash (design section 3, fact 5: an empty ReplicaSet of X is a loaded gun).
pub(super) fn stash(pass: &Pass<'_>, sets: Vec<&ReplicaSet>) -> Vec<Action> {
    let stash = Owner::Stash {
        name: state_name(&pass.original.name),
        uid: pass.object.uid.clone(),
    };
    sets.into_iter()
        .map(|set| Action::MoveReplicaSet {
            name: set.name.clone(),
            uid: set.uid.clone(),
            from: set.owner.clone(),
            to: stash.clone(),
            guard: Guard::Replicas(Replicas::ZERO),
        })
        .collect()
}

/// Whether X does what its spec says: observed, complete, one active ReplicaSet of its own template, or none at R = 0.
fn settled(original: &Deployment, observation: &Observation) -> Result<(), Unsettled> {
    if original.observed == Observed::NotYet {
        return Err(Unsettled::NotObserved);
    }
    let active: Vec<&ReplicaSet> = observation
        .replica_sets_of(&original.uid)
        .filter(|set| !set.is_empty())
        .collect();
    let wanted = original.replicas;
    match active.as_slice() {
        // Paused by somebody while it runs nothing: only a ReplicaSet of its own template proves that it ever ran that.
        [] if wanted == Replicas::ZERO
            && original.rolling == Rolling::Paused
            && !observation
                .replica_sets_of(&original.uid)
                .any(|set| set.template == original.template) =>
        {
            Err(Unsettled::Rolling)
        }
        [] if wanted == Replicas::ZERO => Ok(()),
        [set] if set.template == original.template && wanted > Replicas::ZERO => {
            let available = set.available.min(original.status.available);
            if set.replicas != wanted || set.existing != wanted || original.status.updated != wanted
            {
                Err(Unsettled::Rolling)
            } else if available < wanted {
                Err(Unsettled::Unavailable { available, wanted })
            } else {
                Ok(())
            }
        }
        [] => Err(Unsettled::Unavailable {
            available: Replicas::ZERO,
            wanted,
        }),
        _ => Err(Unsettled::Rolling),
    }
}
