//! At rest.

use super::*;
use crate::rollout::plan::Status;

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
    reject(&mut rejected, candidate(), None);
    let mut unobserved = at_rest(V2, 10);
    x(&mut unobserved).observed = Observed::NotYet;
    let mut taken = at_rest(V2, 10);
    taken.primary = Some(deployment("orders-primary", V1, 1));
    give(&mut taken, set("orders-0", "orders-primary", V3, 1));
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
    reject(&mut seen, template(V3).hash(), Some("orders-2"));
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
        matches!(actions(&plan), [Action::Pause { name, .. }, Action::WriteState { .. }] if name == "orders"),
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

/// The names of the ReplicaSets that are deleted at once.
fn deleted(seen: &Observation) -> Vec<String> {
    let Next::Act(actions) = decided(seen, 0).next else {
        return Vec::new();
    };
    actions
        .into_iter()
        .filter_map(|action| match action {
            Action::DeleteReplicaSet { name, .. } => Some(name),
            _ => None,
        })
        .collect()
}

#[test]
fn the_stash_holds_each_version_once_and_as_many_as_the_user_keeps() {
    for (held, limit, expected) in [
        (
            vec![("v2", 1), ("v1", 2), ("v2", 3)],
            10,
            vec!["v1-2", "v2-1"],
        ),
        (vec![("v2", 1), ("v3", 2)], 10, vec![]),
        (vec![("v2", 1), ("v3", 2)], 1, vec!["v2-1"]),
        (vec![("v2", 1), ("v3", 2), ("v2", 3)], 2, vec!["v2-1"]),
        (vec![("v2", 1)], 0, vec!["v2-1"]),
    ] {
        let mut seen = at_rest(V1, 10);
        seen.replica_sets[0].revision = Some(4);
        x(&mut seen).rest.history_limit = limit;
        for (tag, revision) in &held {
            stash(&mut seen, tag, *revision);
        }
        assert_eq!(deleted(&seen), expected, "{held:?}, limit {limit}");
    }
}

/// v1 is accepted; v2, which X asks for, failed, and the stash holds it.
fn at_rest_on_a_failed_version() -> Observation {
    let mut seen = at_rest(V2, 10);
    stash(&mut seen, "v2", 2);
    reject(&mut seen, candidate(), Some("v2-2"));
    seen
}

#[test]
fn a_rejected_version_is_told_once_and_not_again_after_every_change_of_the_deployment() {
    let mut seen = at_rest_on_a_failed_version();
    let told = |seen: &Observation| decided(seen, 0).status.to_string();
    let first = told(&seen);
    assert!(first.starts_with("rejected: "), "{first}");
    x(&mut seen).observed = Observed::NotYet;
    assert_eq!(told(&seen), first);
}

#[test]
fn a_version_that_failed_is_no_history_once_another_is_tried() {
    let mut seen = at_rest_on_a_failed_version();
    assert_eq!(deleted(&seen), Vec::<String>::new(), "it is remembered");
    x(&mut seen).template = template(V3);
    assert_eq!(deleted(&seen), ["v2-2"]);
}

#[test]
fn the_accepted_pods_are_known_whatever_is_done_to_their_template() {
    // kubectl set image replicaset/..., a webhook, API servers of two versions: no reason to delete what runs.
    let mut seen = at_rest(V1, 10);
    seen.replica_sets[0].template = template(V3);
    assert_eq!(decided(&seen, 0).next, Next::Wait(None));
    // Nor when the state does not name it: the accepted version is started first.
    state(&mut seen).accepted = None;
    let plan = decided(&seen, 0);
    assert!(
        matches!(
            actions(&plan),
            [Action::CreateReplicaSet {
                replicas: Replicas::ZERO,
                ..
            }]
        ),
        "{:?}",
        plan.next
    );
}

#[test]
fn a_clone_left_over_is_removed_when_it_owns_nothing() {
    let mut seen = at_rest(V2, 10);
    seen.primary = Some(deployment("orders-primary", V1, 0));
    let plan = decided(&seen, 0);
    assert!(
        matches!(actions(&plan), [Action::DeleteClone { .. }]),
        "{:?}",
        plan.next
    );
    give(&mut seen, set("orders-0", "orders-primary", V3, 1));
    assert!(
        decided(&seen, 0)
            .status
            .to_string()
            .starts_with("blocked: Deployment orders-primary exists")
    );
}

#[test]
fn a_version_that_failed_is_no_history_once_another_is_accepted_by_hand() {
    let mut seen = at_rest(V3, 10);
    seen.replica_sets[0].available = Replicas(0);
    reject(&mut seen, candidate(), Some("orders-2"));
    give(&mut seen, set("orders-2", "orders-volery", V2, 0));
    give(&mut seen, set("orders-3", "orders", V3, 10));
    let plan = decided(&seen, 0);
    let [
        Action::DeleteReplicaSet { name, .. },
        Action::WriteState { state, .. },
    ] = actions(&plan)
    else {
        panic!("{plan:?}")
    };
    assert_eq!((name.as_str(), &state.rejected), ("orders-2", &None));
}
