//! At rest.

use super::*;
use crate::rollout::plan::Status;
use crate::rollout::state::{Cause, Failure, Rejection};

#[test]
fn a_new_template_opens_a_rollout_and_writes_nothing_but_the_intent() {
    let plan = decided(&at_rest(V2, 10), 0);
    assert_eq!(actions(&plan).len(), 1);
    assert!(matches!(
        &written(&plan).phase,
        Phase::Opening { candidate: hash, .. } if *hash == candidate()
    ));
}

#[test]
fn what_must_not_open_a_rollout_does_not() {
    let mut rejected = at_rest(V2, 10);
    state(&mut rejected).rejected = Some(Rejection {
        candidate: candidate(),
        replica_set: None,
        images: vec![V2.to_owned()],
        failure: Failure {
            cause: Cause::ChecksFailed,
            evidence: String::new(),
        },
    });
    let mut unobserved = at_rest(V2, 10);
    x(&mut unobserved).observed = Observed::NotYet;
    let mut taken = at_rest(V2, 10);
    taken.primary = Some(deployment("orders-primary", V1, 0));
    for (why, seen) in [
        ("the accepted template", at_rest(V1, 10)),
        ("the rejected template", rejected),
        ("no replicas", at_rest(V2, 0)),
        ("X not observed", unobserved),
        ("a clone that no rollout made", taken),
    ] {
        let plan = decided(&seen, 3600);
        assert!(matches!(plan.next, Next::Wait(_)), "{why}: {:?}", plan.next);
    }
}

#[test]
fn a_rejected_template_is_known_by_its_replica_set_when_defaults_have_changed() {
    let mut seen = at_rest(V2, 10);
    state(&mut seen).rejected = Some(Rejection {
        candidate: template(V3).hash(),
        replica_set: Some("orders-2".to_owned()),
        images: vec![V2.to_owned()],
        failure: Failure {
            cause: Cause::ChecksFailed,
            evidence: String::new(),
        },
    });
    give(&mut seen, set("orders-2", "orders-volery", V2, 0));
    assert!(matches!(decided(&seen, 0).status, Status::Rejected { .. }));
}

#[test]
fn found_unpaused_it_is_paused_before_anything_else() {
    let mut seen = at_rest(V2, 10);
    x(&mut seen).rolling = Rolling::Unpaused;
    x(&mut seen).observed = Observed::NotYet;
    give(&mut seen, set("orders-2", "orders", V2, 3));
    let plan = decided(&seen, 0);
    assert!(
        matches!(actions(&plan), [Action::Pause { name, .. }] if name == "orders"),
        "{:?}",
        plan.next
    );
}

#[test]
fn strays_are_removed_only_after_the_pause_is_observed_and_on_a_live_look() {
    let mut seen = at_rest(V2, 10);
    give(&mut seen, set("orders-2", "orders", V2, 3));
    let plan = decided(&seen, 0);
    assert!(
        matches!(actions(&plan), [Action::DeleteReplicaSet { name, .. }] if name == "orders-2"),
        "{:?}",
        plan.next
    );
    seen.freshness = Freshness::Cached;
    assert_eq!(decided(&seen, 0).next, Next::LookLive);
    x(&mut seen).observed = Observed::NotYet;
    assert_eq!(decided(&seen, 0).next, Next::Wait(None));
}

#[test]
fn a_version_that_a_hand_let_take_over_is_accepted() {
    // 25% of 10 may go missing, rounded down: 8 available carry the load, 7 do not.
    // Nor does a version that has no more pods available than the accepted one, which may be starting after a rollback.
    for (available, other, taken_over) in [
        (10, 12, false),
        (8, 9, false),
        (7, 8, true),
        (7, 7, false),
        (7, 5, false),
        (0, 1, true),
        (0, 0, false),
    ] {
        let mut seen = at_rest(V2, 10);
        seen.replica_sets[0].available = Replicas(available);
        let mut started = set("orders-2", "orders", V2, 12);
        started.available = Replicas(other);
        give(&mut seen, started);
        let plan = decided(&seen, 0);
        let accepts = matches!(
            actions(&plan),
            [Action::WriteState { accepted: Some(now), .. }] if *now == template(V2)
        );
        assert_eq!(accepts, taken_over, "{available} against {other} available");
    }
}

#[test]
fn empty_replica_sets_of_x_go_to_the_stash() {
    let mut seen = at_rest(V1, 10);
    give(&mut seen, set("orders-0", "orders", V3, 0));
    let plan = decided(&seen, 0);
    assert!(
        matches!(
            actions(&plan),
            [Action::MoveReplicaSet { name, to: crate::rollout::action::Owner::Stash { .. }, .. }] if name == "orders-0"
        ),
        "{:?}",
        plan.next
    );
}
