//! The way back from a rollout.

use super::*;
use crate::config::{AfterRollback, Bound};
use crate::rollout::command::Leave;
use crate::rollout::plan::Status;
use crate::rollout::state::{Order, Outcome, Rewrite};

/// A rollout of 10 replicas that ends like this, with these numbers.
fn closing(outcome: Outcome, canary: u32, primary: u32) -> Observation {
    let mut seen = in_step(5, raising(), canary, primary);
    let state = state(&mut seen);
    *state = state.in_phase(Phase::Closing {
        outcome,
        elapsed: Elapsed::ZERO,
    });
    seen
}

/// The numbers written first when a rollout at (5,5) of 10 ends like this.
fn first_numbers(outcome: Outcome) -> Vec<String> {
    scales(&decided(&closing(outcome, 5, 5), 0))
}

#[test]
fn after_a_failure_both_numbers_are_written_at_once() {
    assert_eq!(
        first_numbers(Outcome::RolledBack),
        ["canary 0", "primary 10"]
    );
}

#[test]
fn where_nothing_failed_both_go_by_turns_and_no_pod_is_missing_meanwhile() {
    for outcome in [Outcome::Cancelled, Outcome::Superseded] {
        assert_eq!(first_numbers(outcome), ["primary 7"]);
    }
    for (primary, expected) in [(7, "canary 3"), (10, "canary 0")] {
        let seen = closing(Outcome::Cancelled, 5, primary);
        assert_eq!(
            scales(&decided(&seen, 0)),
            [expected],
            "{primary} available"
        );
    }
}

#[test]
fn under_the_cap_the_canary_goes_first_and_accepted_pods_follow_as_its_pods_vanish() {
    let service = Service {
        max_surge: Some(Bound::Zero),
        ..service()
    };
    let decided = |seen: &Observation| {
        decide(
            &service,
            Desired::Managed(Turn::Taken),
            seen,
            Duration::ZERO,
        )
    };
    let failed = closing(Outcome::RolledBack, 5, 5);
    assert_eq!(scales(&decided(&failed)), ["canary 0"]);

    let mut seen = closing(Outcome::RolledBack, 0, 5);
    let going = |pod: Pod| Pod {
        life: Life::Deleting,
        ..pod
    };
    let canary = set("orders-2", "orders-canary", V2, 5);
    seen.pods.extend(pods(&canary).map(going));
    let plan = decided(&seen);
    assert_eq!(plan.next, Next::Wait(None));
    assert_eq!(
        plan.status.to_string(),
        "rolling back: 5 canary pods must end before more of the accepted version start, there may be 10 at most"
    );
    seen.pods.truncate(8);
    assert_eq!(scales(&decided(&seen)), ["primary 7"]);
}

#[test]
fn accepted_pods_that_do_not_come_are_not_waited_for_longer_than_abort() {
    let mut seen = closing(Outcome::Cancelled, 5, 7);
    seen.replica_sets[0].available = Replicas(5);
    assert_eq!(
        decided(&seen, 59).next,
        Next::Wait(Some(Duration::from_secs(1)))
    );
    assert_eq!(scales(&decided(&seen, 60)), ["canary 0", "primary 10"]);
}

#[test]
fn the_accepted_pods_wait_for_a_canary_whose_number_was_not_yet_seen() {
    // Raised a moment ago, and superseded: the controllers may still start pods for the number before.
    let mut seen = closing(Outcome::Superseded, 5, 5);
    seen.canary.as_mut().expect("is open").observed = Observed::NotYet;
    assert_eq!(decided(&seen, 0).next, Next::Wait(None));
}

/// The clones of a rollout that failed are gone, X still asks for v2.
fn failed() -> Observation {
    let mut seen = at_rest(V2, 10);
    reject(&mut seen, candidate(), None);
    let state = state(&mut seen);
    *state = state.in_phase(Phase::Closing {
        outcome: Outcome::RolledBack,
        elapsed: Elapsed::ZERO,
    });
    seen
}

fn restored(seen: &Observation, desired: Desired) -> Plan {
    let service = Service {
        restore_original: AfterRollback::RestoreTemplate,
        ..service()
    };
    decide(&service, desired, seen, Duration::ZERO)
}

#[test]
fn the_original_gets_the_accepted_template_again_where_the_service_says_so_and_only_once() {
    let managed = Desired::Managed(Turn::Taken);
    let mut seen = failed();
    let order = Order::Rewrite {
        with: Rewrite::Restore,
        instead_of: candidate(),
    };
    let plan = restored(&seen, managed);
    assert_eq!(written(&plan).order, Some(order));
    *state(&mut seen) = written(&plan).clone();
    let plan = restored(&seen, managed);
    let [
        Action::Rewrite { template: new, .. },
        Action::WriteState { .. },
    ] = actions(&plan)
    else {
        panic!("{plan:?}")
    };
    assert_eq!(*new, template(V1));
    x(&mut seen).template = template(V1);
    *state(&mut seen) = written(&restored(&seen, managed)).clone();
    assert_eq!(state(&mut seen).order, None);
    assert_eq!(restored(&seen, managed).next, Next::Wait(None));
    // Another tool puts the rejected one back: it is neither tried nor answered.
    x(&mut seen).template = template(V2);
    let plan = restored(&seen, managed);
    assert!(matches!(plan.status, Status::Rejected { .. }));
    assert_eq!(plan.next, Next::Wait(None));
}

#[test]
fn what_must_not_be_restored_is_not() {
    let managed = Desired::Managed(Turn::Taken);
    let mut newer = failed();
    x(&mut newer).template = template(V3);
    let mut reverted = failed();
    x(&mut reverted).template = template(V1);
    let mut cancelled = failed();
    state(&mut cancelled).phase = Phase::Closing {
        outcome: Outcome::Cancelled,
        elapsed: Elapsed::ZERO,
    };
    let mut leaving = failed();
    state(&mut leaving).leaving = Some(Leave::Original);
    for (why, seen, desired) in [
        ("X asks for a newer one", newer, managed),
        ("X asks for the accepted one", reverted, managed),
        ("nothing failed", cancelled, managed),
        ("it is given back by order", leaving, managed),
        ("it has left the configuration", failed(), Desired::Released),
    ] {
        let plan = restored(&seen, desired);
        assert_eq!(written(&plan).phase, Phase::AtRest, "{why}");
        assert_eq!(written(&plan).order, None, "{why}");
    }
    assert_eq!(written(&decided(&failed(), 0)).order, None);
}

#[test]
fn a_canary_of_two_versions_that_was_stopped_amid_its_replacement_is_let_go() {
    let mut seen = closing(Outcome::Cancelled, 2, 10);
    give(&mut seen, set("orders-3", "orders-canary", V3, 2));
    let stopped = |seen: &mut Observation, canary: u32| {
        let clone = seen.canary.as_mut().expect("is open");
        clone.rest.strategy = json!({"type": "Recreate"});
        clone.replicas = Replicas(canary);
    };
    let strategy = |seen: &Observation| match actions(&decided(seen, 0)) {
        [Action::StopRolling { strategy, .. }] => Some(strategy["type"].clone()),
        _ => None,
    };
    stopped(&mut seen, 0);
    assert_eq!(strategy(&seen), Some(json!("RollingUpdate")));
    // While its number is not lower it would grow by that.
    stopped(&mut seen, 4);
    assert_eq!(strategy(&seen), None);
}
