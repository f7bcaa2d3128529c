//! People's orders: what each does in each phase, and that it is done once.

use std::fmt::Write as _;

use super::*;
use crate::rollout::command::{Answered, Command, Leave, Verb};
use crate::rollout::observation::WallTime;
use crate::rollout::plan::Vetting;
use crate::rollout::state::{Bypass, Motion, Order, Outcome, Rewrite};
use crate::rollout::{Event, Status};

const VERBS: [Verb; 11] = [
    Verb::Abort,
    Verb::Promote,
    Verb::Hold,
    Verb::Resume,
    Verb::Retry,
    Verb::Bypass,
    Verb::Restart,
    Verb::Undo { to: None },
    Verb::Release(Leave::AsItIs),
    Verb::Release(Leave::Accepted),
    Verb::Release(Leave::Original),
];

fn ordered(seen: &Observation, text: &str) -> Plan {
    let mut seen = seen.clone();
    seen.state.as_mut().expect("is registered").command = Some(text.parse());
    decided(&seen, 0)
}

/// What the state becomes by an order that must be accepted; the observation then holds it.
fn obey(seen: &mut Observation, text: &str) {
    let plan = ordered(seen, text);
    let answer = answer(&plan);
    assert_eq!(answer.0, Answered::Done, "{text}: {}", answer.1);
    take(seen, &plan);
}

/// Puts what a plan writes into the observation.
fn take(seen: &mut Observation, plan: &Plan) {
    *state(seen) = written(plan).clone();
}

fn answer(plan: &Plan) -> (Answered, String) {
    let answer = actions(plan).iter().find_map(|action| match action {
        Action::WriteState { answer, .. } => answer.clone(),
        _ => None,
    });
    let answer = answer.expect("an order is answered in the write that carries it out");
    (answer.outcome, answer.message)
}

fn in_phase(mut seen: Observation, phase: Phase) -> Observation {
    state(&mut seen).phase = phase;
    seen
}

fn frozen() -> Observation {
    let mut step = Step::new(2, Replicas(4), Replicas(10));
    step.stage = Stage::Checking;
    in_phase(
        in_step(4, Stage::Checking, 4, 6),
        Phase::Frozen {
            candidate: candidate(),
            step,
            failure: Failure {
                cause: Cause::ChecksFailed,
                evidence: "1 of 1 in step 2/3: my_errors is 1".to_owned(),
            },
        },
    )
}

fn situations() -> Vec<(&'static str, Observation)> {
    let mut rejected = at_rest(V2, 10);
    reject(&mut rejected, candidate(), None);
    let mut held = at_rest(V2, 10);
    state(&mut held).motion = Motion::Held;
    let mut with_history = at_rest(V1, 10);
    stash(&mut with_history, "v0", 7);
    let step = || Step::new(4, Replicas(7), Replicas(10));
    let closing = |outcome| Phase::Closing {
        outcome,
        elapsed: Elapsed::ZERO,
    };
    let mut moved = at_rest(V2, 10);
    moved.replica_sets.clear();
    give(&mut moved, set("orders-2", "orders", V2, 10));
    let handing_over = || Phase::HandingOver {
        candidate: candidate(),
        elapsed: Elapsed::ZERO,
    };
    vec![
        (
            "being registered",
            in_phase(at_rest(V1, 10), Phase::Registering),
        ),
        ("at rest", at_rest(V1, 10)),
        ("at rest with a history", with_history),
        ("a candidate waits at R = 0", at_rest(V2, 0)),
        ("rejected", rejected),
        ("on hold, a candidate waits", held),
        (
            "opening",
            in_phase(
                at_rest(V2, 10),
                Phase::Opening {
                    candidate: candidate(),
                    elapsed: Elapsed::ZERO,
                },
            ),
        ),
        ("step 2, checking", in_step(4, Stage::Checking, 4, 6)),
        (
            "finishing",
            in_phase(
                in_step(7, raising(), 7, 3),
                Phase::Finishing {
                    candidate: candidate(),
                    step: step(),
                },
            ),
        ),
        ("frozen", frozen()),
        (
            "handing over, not moved yet",
            in_phase(in_step(10, Stage::Checking, 10, 0), handing_over()),
        ),
        (
            "handing over, moved",
            in_phase(moved.clone(), handing_over()),
        ),
        (
            "closing: promoted",
            in_phase(moved, closing(Outcome::Promoted)),
        ),
        (
            "closing: rolled back",
            in_phase(in_step(4, raising(), 0, 10), closing(Outcome::RolledBack)),
        ),
        ("releasing", in_phase(at_rest(V1, 10), Phase::Releasing)),
    ]
}

fn name(phase: &Phase) -> String {
    match phase {
        Phase::Closing { outcome, .. } => format!("closing: {outcome:?}"),
        phase => {
            let debug = format!("{phase:?}");
            let end = debug.find([' ', '{']).unwrap_or(debug.len());
            debug[..end].to_lowercase()
        }
    }
}

#[test]
fn what_each_order_does_in_each_situation() {
    let mut page = String::new();
    for (situation, seen) in situations() {
        writeln!(page, "{situation}").expect("a string");
        for verb in VERBS {
            let plan = ordered(&seen, &verb.to_string());
            let before = state(&mut seen.clone()).clone();
            let after = written(&plan);
            let (outcome, message) = answer(&plan);
            let mut changes = Vec::new();
            if after.phase != before.phase {
                changes.push(name(&after.phase));
            }
            if after.motion != before.motion {
                changes.push(format!("{:?}", after.motion).to_lowercase());
            }
            if after.leaving != before.leaving {
                changes.push("leaving".to_owned());
            }
            if after.rejected != before.rejected {
                changes.push("rejected".to_owned());
            }
            match &after.order {
                Some(Order::Rewrite { with, .. }) => changes.push(format!("rewrite: {with:?}")),
                Some(Order::Bypass { why, .. }) => changes.push(format!("bypass: {why:?}")),
                Some(Order::Retry { .. }) => changes.push("retry".to_owned()),
                None => {}
            }
            if outcome == Answered::Refused {
                // Beyond what people read of the road ahead, which each write notes.
                let left = State {
                    ahead: before.ahead,
                    ..after.clone()
                };
                assert_eq!(
                    left, before,
                    "{situation}: a refused {verb} leaves something behind"
                );
                writeln!(page, "  {verb}: refused: {message}").expect("a string");
            } else {
                writeln!(page, "  {verb}: [{}] {message}", changes.join(", ")).expect("a string");
            }
        }
    }
    insta::assert_snapshot!(page);
}

#[test]
fn an_order_is_answered_on_a_live_look_only() {
    let mut seen = in_step(4, Stage::Checking, 4, 6);
    seen.freshness = Freshness::Cached;
    assert_eq!(ordered(&seen, "abort").next, Next::LookLive);
}

#[test]
fn what_is_no_order_is_refused_with_what_is_expected() {
    let told: Vec<String> = [
        "",
        "explode",
        "undo to=x",
        "abort to=3",
        "release template=old",
        "undo 3",
    ]
    .iter()
    .map(|text| answer(&ordered(&at_rest(V1, 10), text)).1)
    .collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn orders_read_back_as_they_are_written() {
    for verb in VERBS.into_iter().chain([Verb::Undo { to: Some(3) }]) {
        let command = Command {
            verb,
            id: Some("7f".to_owned()),
            rollout: Some(crate::rollout::template::RolloutNumber(4)),
        };
        assert_eq!(command.to_string().parse(), Ok(command));
    }
}

#[test]
fn an_order_for_another_rollout_does_nothing_to_this_one() {
    let seen = in_step(4, Stage::Checking, 4, 6);
    let (outcome, message) = answer(&ordered(&seen, "promote rollout=7"));
    assert_eq!(outcome, Answered::Refused);
    assert_eq!(
        message,
        "it is meant for rollout 7, and rollout 0 is the latest now: look again with volery status orders"
    );
    let (outcome, _) = answer(&ordered(&seen, "promote rollout=0"));
    assert_eq!(outcome, Answered::Done);
}

#[test]
fn a_rejected_version_that_is_tried_again_leaves_nothing_of_its_first_try() {
    let mut seen = at_rest(V2, 10);
    stash(&mut seen, "v2", 3);
    reject(&mut seen, candidate(), Some("v2-3"));
    assert!(matches!(decided(&seen, 0).status, Status::Rejected { .. }));
    obey(&mut seen, "retry");
    let plan = decided(&seen, 0);
    assert!(matches!(actions(&plan)[0], Action::DeleteReplicaSet { .. }));
    let opened = written(&plan);
    assert!(matches!(opened.phase, Phase::Opening { .. }));
    assert_eq!((&opened.rejected, &opened.order), (&None, &None));
}

#[test]
fn a_bypass_opens_and_goes_on_without_checks() {
    let mut seen = at_rest(V2, 10);
    reject(&mut seen, candidate(), None);
    obey(&mut seen, "bypass");
    let plan = decided(&seen, 0);
    let [Event::Candidate { vetting, .. }] = plan.events.as_slice() else {
        panic!("{:?}", plan.events)
    };
    assert_eq!(
        *vetting,
        Vetting::Bypass {
            steps: 5,
            why: Bypass::Asked
        }
    );
    take(&mut seen, &plan);
    let opened = state(&mut seen).clone();
    let mut open = in_step(4, raising(), 0, 10);
    for set in &mut open.replica_sets {
        if set.name == "orders-2" {
            set.revision = Some(9);
        }
    }
    *state(&mut open) = opened;
    let plan = decided(&open, 0);
    assert!(
        matches!(&written(&plan).phase, Phase::Finishing { step, .. } if step.canary == Replicas(2)),
        "{plan:?}"
    );
}

#[test]
fn what_is_interrupted_begins_again_as_it_was_ordered() {
    let ended = |why: Bypass| {
        let mut seen = in_step(4, raising(), 4, 6);
        let order = Order::Bypass {
            candidate: candidate(),
            why,
        };
        state(&mut seen).order = Some(order.clone());
        seen.canary = None;
        let plan = decided(&seen, 0);
        assert!(matches!(
            written(&plan).phase,
            Phase::Closing {
                outcome: Outcome::Interrupted { .. },
                ..
            }
        ));
        written(&plan).order == Some(order)
    };
    for why in [Bypass::Asked, Bypass::Restart, Bypass::Undo] {
        assert!(ended(why), "{why}");
    }
    for why in [Bypass::KnownGood, Bypass::NotContainers] {
        assert!(!ended(why), "{why}");
    }
}

#[test]
fn an_order_about_a_template_is_void_when_a_newer_one_lands() {
    for order in ["bypass", "retry"] {
        let mut seen = at_rest(V2, 10);
        reject(&mut seen, candidate(), None);
        obey(&mut seen, order);
        x(&mut seen).template = template(V3);
        let plan = decided(&seen, 0);
        assert_eq!(written(&plan).order, None, "{order}");
        assert!(matches!(plan.events.as_slice(), [Event::OrderVoid { .. }]));
        take(&mut seen, &plan);
        let plan = decided(&seen, 0);
        let [Event::Candidate { vetting, .. }] = plan.events.as_slice() else {
            panic!("{:?}", plan.events)
        };
        assert!(
            matches!(vetting, Vetting::Checks { .. }),
            "it is not waved through"
        );
    }
}

#[test]
fn a_restart_writes_the_template_once_and_rolls_it_without_checks() {
    let mut seen = at_rest(V1, 10);
    obey(&mut seen, "restart");
    let plan = decided(&seen, 0);
    let [Action::Rewrite { template, .. }, Action::WriteState { .. }] = actions(&plan) else {
        panic!("{plan:?}")
    };
    assert_eq!(
        template
            .json()
            .pointer("/metadata/annotations/kubectl.kubernetes.io~1restartedAt"),
        Some(&json!("2026-01-05T08:00:00Z"))
    );
    x(&mut seen).template = template.clone();
    let plan = decided(&seen, 0);
    take(&mut seen, &plan);
    assert!(matches!(
        state(&mut seen).order,
        Some(Order::Bypass {
            why: Bypass::Restart,
            ..
        })
    ));
    let plan = decided(&seen, 0);
    assert!(matches!(written(&plan).phase, Phase::Opening { .. }));
}

#[test]
fn a_restart_gives_way_to_a_version_that_lands_before_it_is_written() {
    let mut seen = at_rest(V1, 10);
    obey(&mut seen, "restart");
    x(&mut seen).template = template(V2);
    let plan = decided(&seen, 0);
    assert_eq!(written(&plan).order, None);
}

#[test]
fn an_undo_goes_to_the_revision_asked_for() {
    let history = || {
        let mut seen = at_rest(V1, 10);
        seen.replica_sets[0].revision = Some(5);
        stash(&mut seen, "v0", 2);
        stash(&mut seen, "v3", 4);
        seen
    };
    for (order, expected) in [("undo", V3), ("undo to=2", "orders:v0")] {
        let mut seen = history();
        obey(&mut seen, order);
        let plan = decided(&seen, 0);
        let [
            Action::Rewrite { template: new, .. },
            Action::WriteState { .. },
        ] = actions(&plan)
        else {
            panic!("{plan:?}")
        };
        assert_eq!(*new, template(expected), "{order}");
    }
    assert_eq!(
        answer(&ordered(&history(), "undo to=5")).1,
        "that revision is what runs"
    );
    assert_eq!(
        answer(&ordered(&history(), "undo to=3")).1,
        "the history has revisions 4, 2"
    );
}

#[test]
fn an_undo_of_what_was_rejected_touches_no_pod() {
    let mut seen = at_rest(V2, 10);
    reject(&mut seen, candidate(), None);
    obey(&mut seen, "undo");
    let plan = decided(&seen, 0);
    let [
        Action::Rewrite { template: new, .. },
        Action::WriteState { .. },
    ] = actions(&plan)
    else {
        panic!("{plan:?}")
    };
    assert_eq!(*new, template(V1));
    x(&mut seen).template = template(V1);
    let plan = decided(&seen, 0);
    take(&mut seen, &plan);
    assert_eq!(state(&mut seen).order, None);
    assert_eq!(decided(&seen, 0).next, Next::Wait(None));
}

#[test]
fn on_hold_at_rest_nothing_opens_and_resuming_opens_it() {
    let mut seen = at_rest(V2, 10);
    obey(&mut seen, "hold");
    let plan = decided(&seen, 0);
    assert!(matches!(plan.status, Status::Held { at: None, .. }));
    assert_eq!(plan.next, Next::Wait(None));
    obey(&mut seen, "resume");
    assert!(matches!(
        written(&decided(&seen, 0)).phase,
        Phase::Opening { .. }
    ));
}

#[test]
fn a_version_accepted_by_hand_at_zero_replicas_is_what_comes_back() {
    let mut seen = at_rest(V2, 0);
    let plan = ordered(&seen, "promote");
    let accepted = actions(&plan).iter().find_map(|action| match action {
        Action::WriteState { accepted, .. } => accepted.clone(),
        _ => None,
    });
    assert_eq!(accepted, Some(template(V2)));
    take(&mut seen, &plan);
    seen.state.as_mut().expect("is registered").accepted = template(V2);
    // The version before is history now, and R = 10 starts the new one.
    assert!(matches!(
        actions(&decided(&seen, 0)),
        [Action::MoveReplicaSet { .. }]
    ));
    seen.replica_sets[0].owner = uid("orders-volery");
    x(&mut seen).replicas = Replicas(10);
    let plan = decided(&seen, 0);
    let [Action::CreateReplicaSet { template: new, .. }] = actions(&plan) else {
        panic!("{plan:?}")
    };
    assert_eq!(*new, template(V2));
}

#[test]
fn a_version_that_failed_is_no_history_once_another_is_accepted_by_order() {
    let mut seen = at_rest(V3, 0);
    reject(&mut seen, candidate(), Some("orders-2"));
    give(&mut seen, set("orders-2", "orders-volery", V2, 0));
    let plan = ordered(&seen, "promote");
    let [
        Action::DeleteReplicaSet { name, .. },
        Action::WriteState { state, .. },
    ] = actions(&plan)
    else {
        panic!("{plan:?}")
    };
    assert_eq!((name.as_str(), &state.rejected), ("orders-2", &None));
}

#[test]
fn a_release_by_order_does_what_was_decided_about_the_template() {
    let rejected = || {
        let mut seen = at_rest(V2, 10);
        reject(&mut seen, candidate(), None);
        seen
    };
    let mut seen = rejected();
    obey(&mut seen, "release template=accepted");
    assert!(matches!(
        state(&mut seen).order,
        Some(Order::Rewrite {
            with: Rewrite::Release,
            ..
        })
    ));
    assert!(matches!(
        actions(&decided(&seen, 0)),
        [Action::Rewrite { .. }, Action::WriteState { .. }]
    ));
    x(&mut seen).template = template(V1);
    let plan = decided(&seen, 0);
    take(&mut seen, &plan);
    assert_eq!(written(&decided(&seen, 0)).phase, Phase::Releasing);

    let mut seen = rejected();
    obey(&mut seen, "release template=original");
    let plan = decided(&seen, 0);
    take(&mut seen, &plan);
    assert_eq!(state(&mut seen).phase, Phase::Releasing);
    assert!(matches!(
        actions(&decided(&seen, 0)),
        [Action::Unpause { .. }]
    ));
}

#[test]
fn what_is_unpaused_three_times_in_ten_minutes_is_blocked_until_it_is_quiet() {
    let mut seen = at_rest(V2, 10);
    for minute in 0..3 {
        seen.at = WallTime(1_767_600_000 + minute * 60);
        x(&mut seen).rolling = Rolling::Unpaused;
        let plan = decided(&seen, 0);
        assert!(matches!(actions(&plan)[0], Action::Pause { .. }));
        take(&mut seen, &plan);
        x(&mut seen).rolling = Rolling::Paused;
    }
    let plan = decided(&seen, 0);
    assert!(matches!(plan.status, Status::Blocked(_)), "{}", plan.status);
    assert_eq!(plan.next, Next::Wait(Some(Duration::from_secs(600))));
    seen.at = WallTime(1_767_600_000 + 120 + 600);
    assert!(matches!(
        written(&decided(&seen, 0)).phase,
        Phase::Opening { .. }
    ));
}

#[test]
fn on_hold_in_the_middle_of_a_step_only_r_is_followed_and_no_time_counts() {
    let mut seen = in_step(4, Stage::Checking, 4, 6);
    obey(&mut seen, "hold");
    let plan = decided(&seen, 100_000);
    assert_eq!(plan.next, Next::Wait(None));
    insta::assert_snapshot!(plan.status.to_string());
    x(&mut seen).replicas = Replicas(14);
    assert_eq!(scales(&decided(&seen, 100_000)), ["primary 10"]);
    // A newer version waits too.
    x(&mut seen).template = template(V3);
    assert_eq!(scales(&decided(&seen, 100_000)), ["primary 10"]);
    x(&mut seen).replicas = Replicas(10);
    assert_eq!(decided(&seen, 100_000).next, Next::Wait(None));
    obey(&mut seen, "resume");
    assert!(matches!(
        written(&decided(&seen, 0)).phase,
        Phase::Closing {
            outcome: Outcome::Superseded,
            ..
        }
    ));
}

#[test]
fn what_fails_while_it_is_rolled_back_on_hold_is_rolled_back_all_the_same() {
    let mut seen = in_step(4, Stage::Checking, 4, 6);
    obey(&mut seen, "hold");
    obey(&mut seen, "abort");
    assert_eq!(scales(&decided(&seen, 0)), ["canary 0", "primary 10"]);
}

#[test]
fn without_a_turn_nothing_opens_and_what_is_open_goes_on() {
    let waits = Desired::Managed(Turn::Waits { ahead: 2, open: 20 });
    let plan = decide(&service(), waits, &at_rest(V2, 10), Duration::ZERO);
    assert_eq!(plan.next, Next::Wait(None));
    insta::assert_snapshot!(plan.status.to_string());
    let open = in_step(4, Stage::Checking, 0, 10);
    let plan = decide(&service(), waits, &open, Duration::ZERO);
    assert!(matches!(plan.next, Next::Act(_)));
}

#[test]
fn a_hold_before_the_first_canary_pod_starts_none() {
    let mut seen = in_step(2, raising(), 0, 8);
    obey(&mut seen, "hold");
    assert_eq!(scales(&decided(&seen, 0)), ["primary 10"]);
    let mut asleep = in_step(2, Stage::Sleeping, 0, 0);
    obey(&mut asleep, "hold");
    asleep.pods.clear();
    let plan = decided(&asleep, 0);
    assert_eq!(
        scales(&plan),
        ["canary 2", "primary 8"],
        "R is back: {plan:?}"
    );
}

#[test]
fn who_gives_an_order_that_is_none_finds_the_answer_too() {
    let plan = ordered(&at_rest(V1, 10), "explode id=7f");
    let answered = actions(&plan).iter().find_map(|action| match action {
        Action::WriteState { answer, .. } => answer.clone(),
        _ => None,
    });
    assert_eq!(answered.and_then(|answer| answer.id).as_deref(), Some("7f"));
}
