//! A service that leaves Volery.

use super::*;

fn released(seen: &Observation) -> Plan {
    decide(&service(), Desired::Released, seen, Duration::ZERO)
}

/// The names of the ReplicaSets that change their owner at once.
fn moved(seen: &Observation) -> Vec<String> {
    let Next::Act(actions) = released(seen).next else {
        return Vec::new();
    };
    actions
        .into_iter()
        .filter_map(|action| match action {
            Action::MoveReplicaSet { name, .. } => Some(name),
            _ => None,
        })
        .collect()
}

#[test]
fn what_a_person_unpauses_is_let_go_instead_of_being_paused_again() {
    let mut seen = at_rest(V2, 10);
    seen.replica_sets[0].revision = Some(2);
    stash(&mut seen, "v0", 1);
    stash(&mut seen, "v2", 3);
    reject(&mut seen, candidate(), Some("v2-3"));
    assert_eq!(
        released(&seen).next,
        Next::Wait(None),
        "it needs a decision"
    );
    x(&mut seen).rolling = Rolling::Unpaused;
    let plan = released(&seen);
    assert_eq!(actions(&plan).len(), 1);
    assert_eq!(written(&plan).phase, Phase::Releasing);
    state(&mut seen).phase = Phase::Releasing;
    assert_eq!(moved(&seen), ["v0-1"]);
}

#[test]
fn at_zero_replicas_the_accepted_version_is_not_told_as_an_older_one() {
    let mut seen = at_rest(V1, 0);
    x(&mut seen).rolling = Rolling::Unpaused;
    state(&mut seen).phase = Phase::Releasing;
    let told: Vec<String> = released(&seen)
        .events
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        told,
        ["released: un-paused, older ReplicaSets given back: 0; no pod touched by Volery"]
    );
}

#[test]
fn history_goes_back_oldest_first_without_what_the_controller_would_roll_to() {
    let mut seen = at_rest(V1, 10);
    seen.replica_sets[0].revision = Some(5);
    for (tag, revision) in [("v2", 4), ("v3", 2), ("v1", 3)] {
        stash(&mut seen, tag, revision);
    }
    state(&mut seen).phase = Phase::Releasing;
    assert_eq!(moved(&seen), ["v3-2", "v2-4"]);
}
