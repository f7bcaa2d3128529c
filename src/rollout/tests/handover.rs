//! The gates of the handover: each by itself keeps the pods where they are.

use super::*;
use crate::rollout::action::Guard;

/// All canary pods run: the candidate's ReplicaSet is about to go to X.
fn promoting() -> Observation {
    let mut seen = in_step(10, Stage::Checking, 10, 0);
    state(&mut seen).phase = Phase::HandingOver {
        candidate: candidate(),
        elapsed: Elapsed::ZERO,
    };
    seen
}

#[test]
fn with_every_gate_open_the_pods_move_in_one_guarded_patch() {
    let plan = decided(&promoting(), 0);
    let [
        Action::MoveReplicaSet {
            name, from, guard, ..
        },
    ] = actions(&plan)
    else {
        panic!("{:?}", plan.next)
    };
    assert_eq!((name.as_str(), from), ("orders-2", &uid("orders-canary")));
    assert_eq!(*guard, Guard::AnyNumber);
}

#[test]
fn each_gate_by_itself_stops_the_move() {
    type Change = fn(&mut Observation);
    let gates: [(&str, Change); 5] = [
        ("X is not observed", |seen| {
            x(seen).observed = Observed::NotYet;
        }),
        ("the canary is not observed", |seen| {
            seen.canary.as_mut().expect("exists").observed = Observed::NotYet;
        }),
        ("X is not paused", |seen| {
            x(seen).rolling = Rolling::Unpaused;
        }),
        ("X owns another ReplicaSet", |seen| {
            give(seen, set("orders-3", "orders", V3, 0));
        }),
        ("the look is not a live one", |seen| {
            seen.freshness = Freshness::Cached;
        }),
    ];
    for (why, close) in gates {
        let mut seen = promoting();
        close(&mut seen);
        let plan = decided(&seen, 0);
        let moves = match &plan.next {
            Next::Act(actions) => actions
                .iter()
                .any(|action| matches!(action, Action::MoveReplicaSet { .. })),
            Next::LookLive | Next::Check(_) | Next::Wait(_) | Next::Done => false,
        };
        assert!(!moves, "{why}: {:?}", plan.next);
    }
}

#[test]
fn a_newer_template_before_the_move_supersedes_and_after_it_does_not() {
    let mut seen = promoting();
    x(&mut seen).template = template(V3);
    assert!(matches!(
        written(&decided(&seen, 0)).phase,
        Phase::Closing { .. }
    ));
    assert!(written(&decided(&seen, 0)).rejected.is_none());
    seen.replica_sets[1].owner = uid("orders");
    let plan = decided(&seen, 0);
    assert!(
        matches!(
            actions(&plan),
            [Action::WriteState { accepted: Some(now), .. }] if *now == template(V2)
        ),
        "{:?}",
        plan.next
    );
}

#[test]
fn a_version_that_x_started_beside_the_moved_one_does_not_block_the_close() {
    let mut seen = promoting();
    seen.replica_sets[1].owner = uid("orders");
    give(&mut seen, set("orders-3", "orders", V3, 3));
    x(&mut seen).status.replicas = Replicas(13);
    assert!(matches!(
        written(&decided(&seen, 0)).phase,
        Phase::Closing { .. }
    ));
}
