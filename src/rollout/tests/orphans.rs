//! What has lost its owner, and what X says beside template and number.

use super::*;
use crate::rollout::action::{CloneRole, Orphan};
use crate::rollout::{Event, Status};

/// X was deleted with `--cascade=orphan` in step 2 and made again, un-paused, and has started pods of its own.
fn made_again() -> Observation {
    let mut seen = in_step(4, Stage::Checking, 4, 6);
    for clone in [&mut seen.primary, &mut seen.canary] {
        clone.as_mut().expect("is there").owner = None;
    }
    seen.state.as_mut().expect("is there").owner = None;
    x(&mut seen).uid = uid("the new orders");
    x(&mut seen).rolling = Rolling::Unpaused;
    let mut started = set("orders-9", "orders", V2, 10);
    started.owner = uid("the new orders");
    give(&mut seen, started);
    seen
}

#[test]
fn what_an_orphaning_deletion_left_is_taken_up_behind_a_pause() {
    let plan = decided(&made_again(), 0);
    let done: Vec<String> = actions(&plan)
        .iter()
        .map(|action| match action {
            Action::Pause { name, .. } => format!("pause {name}"),
            Action::Adopt { name, what, .. } => format!("adopt {what:?} {name}"),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        done,
        [
            "pause orders",
            "adopt Clone orders-primary",
            "adopt Clone orders-canary",
            "adopt State orders-volery"
        ]
    );
    assert!(matches!(plan.events.as_slice(), [Event::TakenUp { .. }]));
}

#[test]
fn after_that_what_the_new_one_started_is_removed_once_its_pause_is_observed() {
    let mut seen = made_again();
    for clone in [&mut seen.primary, &mut seen.canary] {
        clone.as_mut().expect("is there").owner = Some(uid("the new orders"));
    }
    seen.state.as_mut().expect("is there").owner = Some(uid("the new orders"));
    x(&mut seen).rolling = Rolling::Paused;
    x(&mut seen).observed = Observed::NotYet;
    assert_eq!(decided(&seen, 0).next, Next::Wait(None));
    x(&mut seen).observed = Observed::Yes;
    let plan = decided(&seen, 0);
    assert!(
        matches!(actions(&plan), [Action::DeleteReplicaSet { name, .. }] if name == "orders-9"),
        "{plan:?}"
    );
}

#[test]
fn orphans_of_another_selector_or_without_a_state_are_left_alone() {
    let mut other = made_again();
    x(&mut other).rest.selector = json!({"matchLabels": {"app": "other"}});
    let mut lost = made_again();
    lost.state = None;
    let mut other_at_rest = at_rest(V1, 10);
    other_at_rest.state.as_mut().expect("is there").owner = None;
    x(&mut other_at_rest).rest.selector =
        json!({"matchLabels": {"app": "orders", "generation": "second"}});
    for seen in [other, lost, other_at_rest] {
        let plan = decided(&seen, 0);
        assert_eq!(plan.next, Next::Wait(None));
        assert!(matches!(plan.status, Status::Blocked(_)), "{}", plan.status);
    }
}

#[test]
fn a_deployment_selects_what_the_api_server_says_it_selects() {
    let labels = json!({"metadata": {"labels": {"app": "orders", "tier": "queue"}}});
    let template = Template::new(labels);
    let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    for (selector, expected) in [
        (json!({"matchLabels": {"app": "orders"}}), true),
        (json!({"matchLabels": {"app": "billing"}}), false),
        (
            json!({"matchLabels": {"app": "orders", "other": "x"}}),
            false,
        ),
        (expression("tier", "In", &["batch", "queue"]), true),
        (expression("tier", "In", &["batch"]), false),
        (expression("other", "In", &["x"]), false),
        (expression("tier", "NotIn", &["batch"]), true),
        (expression("tier", "NotIn", &["queue"]), false),
        (expression("other", "NotIn", &["x"]), true),
        (expression("tier", "Exists", &[]), true),
        (expression("other", "Exists", &[]), false),
        (expression("other", "DoesNotExist", &[]), true),
        (expression("tier", "DoesNotExist", &[]), false),
    ] {
        let mut seen = at_rest(V1, 10);
        x(&mut seen).rest.selector = selector.clone();
        assert_eq!(x(&mut seen).rest.selects(&template), expected, "{selector}");
    }
}

#[test]
fn an_orphaned_state_at_rest_is_taken_up_and_nothing_else_happens() {
    let mut seen = at_rest(V1, 10);
    seen.state.as_mut().expect("is there").owner = None;
    let plan = decided(&seen, 0);
    assert!(
        matches!(
            actions(&plan),
            [Action::Adopt {
                what: Orphan::State,
                ..
            }]
        ),
        "{plan:?}"
    );
}

#[test]
fn another_strategy_of_x_goes_to_both_clones_and_starts_no_rollout() {
    let mut seen = in_step(4, Stage::Checking, 4, 6);
    x(&mut seen).rest.strategy = json!({"type": "Recreate"});
    x(&mut seen).rest.min_ready_seconds = 7;
    let plan = decided(&seen, 0);
    let synced: Vec<CloneRole> = actions(&plan)
        .iter()
        .map(|action| match action {
            Action::Sync { clone, rest, .. } => {
                assert_eq!(rest.min_ready_seconds, 7);
                *clone
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(synced, [CloneRole::Primary, CloneRole::Canary]);
}

#[test]
fn a_paused_worker_whose_state_is_lost_needs_help_and_is_not_touched() {
    let mut seen = at_rest(V2, 10);
    seen.state = None;
    let plan = decided(&seen, 0);
    assert_eq!(plan.next, Next::Wait(None));
    insta::assert_snapshot!(plan.status.to_string());
}

#[test]
fn clones_carry_the_labels_that_the_service_names_and_no_others() {
    let mut seen = at_rest(V2, 10);
    state(&mut seen).phase = Phase::Opening {
        candidate: candidate(),
        elapsed: Elapsed::ZERO,
    };
    let mut service = service();
    let labels = |service: &Service, seen: &Observation| -> Vec<String> {
        let plan = decide(service, Desired::Managed(Turn::Taken), seen, Duration::ZERO);
        let labels = actions(&plan).iter().filter_map(|action| match action {
            Action::CreateClone { labels, .. } => Some(labels),
            _ => None,
        });
        labels
            .map(|labels| format!("{labels:?}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(labels(&service, &seen), ["{}", "{}"]);
    service.copy_labels = ["team", "absent"].map(str::to_owned).into();
    assert_eq!(
        labels(&service, &seen),
        [r#"{"team": "shop"}"#, r#"{"team": "shop"}"#]
    );
}
