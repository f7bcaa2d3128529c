//! What failed and stands still, and what replaces it in place.

use super::*;
use crate::analysis::{CheckReport, Finding};
use crate::config::OnFailure;
use crate::rollout::observation::{Container, End, Role};
use crate::rollout::plan::Event;
use crate::rollout::state::{Motion, Outcome};
use crate::rollout::{Status, judge};

fn forward_only() -> Service {
    Service {
        on_failure: OnFailure::Freeze,
        ..service()
    }
}

fn decided_after(seen: &Observation, since: u64) -> Plan {
    let since = Duration::from_secs(since);
    decide(&forward_only(), Desired::Managed(Turn::Taken), seen, since)
}

fn failure() -> Failure {
    Failure {
        cause: Cause::ChecksFailed,
        evidence: "my_errors is 1".to_owned(),
    }
}

/// v2 failed in the second of three steps, at (4,6) of R = 10; X asks for `image`.
fn frozen(image: &str) -> Observation {
    let mut seen = in_step(4, Stage::Checking, 4, 6);
    let Phase::Stepping { candidate, step } = state(&mut seen).phase.clone() else {
        panic!("is no step")
    };
    state(&mut seen).phase = Phase::Frozen {
        candidate,
        step,
        failure: failure(),
    };
    x(&mut seen).template = template(image);
    seen
}

/// v3 is to replace v2 in place; the canary has the template of `image` and these pods of v2 and v3.
fn replacing(image: &str, old: u32, new: Option<u32>) -> Observation {
    let mut seen = frozen(V3);
    let step = Step::new(2, Replicas(4), Replicas(10));
    state(&mut seen).phase = Phase::Replacing {
        candidate: template(V3).hash(),
        step,
        elapsed: Elapsed::ZERO,
    };
    canary(&mut seen).template = template(image);
    seen.replica_sets.retain(|set| set.name != "orders-2");
    seen.pods.retain(|pod| pod.owner != uid("orders-2"));
    give(&mut seen, set("orders-2", "orders-canary", V2, old));
    if let Some(new) = new {
        let mut set = set("orders-3", "orders-canary", V3, new);
        set.revision = Some(9);
        give(&mut seen, set);
    }
    seen
}

fn canary(seen: &mut Observation) -> &mut Deployment {
    seen.canary.as_mut().expect("there is a canary")
}

fn unpause(seen: &mut Observation) {
    canary(seen).rolling = Rolling::Unpaused;
}

#[test]
fn on_hold_nothing_of_it_moves_but_with_r() {
    let mut rolling = replacing(V3, 3, Some(2));
    unpause(&mut rolling);
    for (why, seen, wanted, expected) in [
        ("a new template waits", frozen(V3), 10, "waits"),
        ("R up", frozen(V3), 12, "primary 8"),
        ("not yet replaced", replacing(V2, 4, None), 10, "waits"),
        ("being replaced", rolling, 10, "stop Recreate"),
    ] {
        let mut seen = seen;
        state(&mut seen).motion = Motion::Held;
        x(&mut seen).replicas = Replicas(wanted);
        let plan = decided_after(&seen, 9999);
        assert_eq!(doing(&plan), expected, "{why}");
        assert!(matches!(plan.status, Status::Held { .. }), "{why}");
    }
}

/// What a plan does, in a word.
fn doing(plan: &Plan) -> String {
    let actions = match &plan.next {
        Next::Act(actions) => actions,
        Next::Wait(_) => return "waits".to_owned(),
        other => return format!("{other:?}"),
    };
    let word = |action: &Action| match action {
        Action::WriteState { state, .. } => match &state.phase {
            Phase::Frozen { step, .. } => format!("frozen with {}", step.canary),
            Phase::Replacing { step, .. } => format!("replacing {}", step.canary),
            Phase::Stepping { step, .. } => format!("step {} with {}", step.number, step.canary),
            Phase::Closing { outcome, .. } => format!("{outcome:?}"),
            other => format!("{other:?}"),
        },
        Action::Scale { clone, to, .. } => format!("{} {to}", clone.role()),
        Action::ReplaceTemplate { template, .. } => format!("template {}", template.images()[0]),
        Action::CreateReplicaSet { .. } => "create".to_owned(),
        Action::RaiseRevision { to, .. } => format!("revision {to}"),
        Action::LetRoll { strategy, .. } => format!("roll {}", brief(strategy)),
        Action::StopRolling { strategy, .. } => format!("stop {}", brief(strategy)),
        Action::DeleteReplicaSet { name, .. } => format!("delete {name}"),
        other => format!("{other:?}"),
    };
    let words: Vec<String> = actions.iter().map(word).collect();
    words.join(", ")
}

fn brief(strategy: &serde_json::Value) -> String {
    match strategy.pointer("/rollingUpdate") {
        Some(rolling) => format!("{}/{}", rolling["maxSurge"], rolling["maxUnavailable"]),
        None => strategy["type"].as_str().unwrap_or_default().to_owned(),
    }
}

#[test]
fn whatever_fails_in_a_step_freezes_it_and_is_told_once() {
    let mut unready = in_step(2, raising(), 2, 10);
    for pod in unready
        .pods
        .iter_mut()
        .filter(|pod| pod.owner == uid("orders-2"))
    {
        pod.ready = Ready::No;
        pod.containers = vec![Container {
            name: "worker".to_owned(),
            restarts: 3,
            waiting: Some("CrashLoopBackOff".to_owned()),
            last_end: Some(End {
                reason: Some("Error".to_owned()),
                exit_code: Some(3),
                message: Some("no broker".to_owned()),
            }),
            restarted_after: None,
        }];
    }
    let mut finishing = unready.clone();
    let step = Step::new(5, Replicas(2), Replicas(10));
    state(&mut finishing).phase = Phase::Finishing {
        candidate: candidate(),
        step,
    };
    for (seen, at) in [(unready, "step 1/3"), (finishing, "finishing")] {
        let plan = decided_after(&seen, 60);
        assert_eq!(doing(&plan), "frozen with 2");
        assert!(written(&plan).rejected.is_none());
        let [Event::Froze { failure, .. }] = plan.events.as_slice() else {
            panic!("{:?}", plan.events)
        };
        assert_eq!(failure.cause, Cause::NotAvailable);
        for part in ["orders-2-0", "CrashLoopBackOff", "exit code 3: no broker"] {
            assert!(failure.evidence.contains(part), "{}", failure.evidence);
        }
        let status = plan.status.to_string();
        assert!(
            status.starts_with(&format!("frozen at {at}: {V2} failed")),
            "{status}"
        );
        assert!(status.contains("canary 2 and primary 10 stay"), "{status}");
    }
}

#[test]
fn checks_freeze_it_too() {
    let report = |finding| CheckReport {
        findings: vec![finding],
    };
    let failed = Finding::Failed {
        pod: Some("orders-2-0".to_owned()),
        expression: "e".to_owned(),
        text: "e is false".to_owned(),
    };
    let unavailable = Finding::Unavailable {
        text: "HTTP 500".to_owned(),
    };
    let mut doubtful = in_step(4, Stage::Checking, 4, 6);
    if let Phase::Stepping { step, .. } = &mut state(&mut doubtful).phase {
        step.checks.doubt_for = Some(Elapsed::ZERO);
        step.checks.since_last = Some(Elapsed::ZERO);
    }
    for (seen, since, finding, cause) in [
        (
            in_step(4, Stage::Checking, 4, 6),
            10,
            failed,
            Cause::ChecksFailed,
        ),
        (doubtful, 30, unavailable, Cause::MetricsUnavailable),
    ] {
        let time = Duration::from_secs(since);
        let plan = judge(
            &forward_only(),
            Desired::Managed(Turn::Taken),
            &seen,
            time,
            &report(finding),
        );
        assert_eq!(doing(&plan), "frozen with 4");
        match &written(&plan).phase {
            Phase::Frozen { failure, .. } => assert_eq!(failure.cause, cause),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_frozen_is_not_checked_and_not_let_go_by_the_configuration() {
    for service in [forward_only(), service()] {
        let plan = decide(
            &service,
            Desired::Managed(Turn::Taken),
            &frozen(V2),
            Duration::from_secs(9999),
        );
        assert_eq!(plan.next, Next::Wait(None));
        assert!(matches!(plan.status, Status::Frozen { .. }));
    }
}

#[test]
fn only_r_is_followed_and_the_primary_takes_all_of_it() {
    for (why, wanted, canary_has, primary_has, expected) in [
        ("as it should be", 10, 4, 6, "waits"),
        ("R up", 14, 4, 6, "primary 10"),
        ("R down", 7, 4, 6, "primary 3"),
        ("R is the canary", 4, 4, 6, "primary 0"),
        ("R below the canary", 3, 4, 0, "frozen with 3"),
        ("no R", 0, 4, 6, "primary 0, canary 0"),
        ("R back", 10, 0, 0, "canary 4, primary 6"),
        ("less R back", 2, 0, 0, "frozen with 2"),
        ("a hand on the canary", 10, 1, 6, "canary 4"),
        ("another", 10, 6, 6, "canary 4"),
        ("a hand on the primary", 10, 4, 2, "primary 6"),
        ("another", 10, 4, 9, "primary 6"),
    ] {
        let mut seen = frozen(V2);
        x(&mut seen).replicas = Replicas(wanted);
        canary(&mut seen).replicas = Replicas(canary_has);
        seen.primary.as_mut().expect("is there").replicas = Replicas(primary_has);
        if (canary_has, primary_has) == (0, 0) {
            seen.pods.clear();
            for set in &mut seen.replica_sets {
                (set.replicas, set.existing, set.available) = Default::default();
            }
        }
        let plan = decided_after(&seen, 1);
        assert_eq!(doing(&plan), expected, "{why}");
    }
}

#[test]
fn a_frozen_rollout_ends_by_what_x_asks_for_and_by_nothing_else() {
    let mut gone = frozen(V2);
    gone.canary = None;
    for (why, seen, desired, expected) in [
        (
            "the accepted one",
            frozen(V1),
            Desired::Managed(Turn::Taken),
            "Cancelled",
        ),
        ("released", frozen(V2), Desired::Released, "Released"),
        (
            "a new one",
            frozen(V3),
            Desired::Managed(Turn::Taken),
            "replacing 4",
        ),
        (
            "no canary",
            gone,
            Desired::Managed(Turn::Taken),
            "Interrupted { what: \"the canary was deleted\" }",
        ),
    ] {
        let plan = decide(&forward_only(), desired, &seen, Duration::ZERO);
        assert_eq!(doing(&plan), expected, "{why}");
    }
}

#[test]
fn the_intent_to_replace_raises_the_rollout_and_forgets_the_checks() {
    let mut seen = frozen(V3);
    x(&mut seen).replicas = Replicas(8);
    if let Phase::Frozen { step, .. } = &mut state(&mut seen).phase {
        step.checks.failed = 3;
    }
    let before = state(&mut seen).rollout;
    let plan = decided_after(&seen, 1);
    assert_eq!(written(&plan).rollout, before.next());
    let Phase::Replacing {
        candidate, step, ..
    } = &written(&plan).phase
    else {
        panic!("{}", doing(&plan))
    };
    assert_eq!(*candidate, template(V3).hash());
    assert_eq!(
        (step.number, step.canary, step.wanted),
        (2, Replicas(4), Replicas(8))
    );
    assert_eq!((step.stage, step.checks.failed), (raising(), 0));
}

#[test]
fn a_canary_is_replaced_write_by_write_and_each_follows_from_what_is_seen() {
    let changed = |change: fn(&mut Observation), mut seen: Observation| {
        change(&mut seen);
        seen
    };
    let unrecognised = |seen: &mut Observation| {
        for set in &mut seen.replica_sets {
            if set.name == "orders-3" {
                set.revision = None;
            }
        }
    };
    let low = |seen: &mut Observation| {
        for set in &mut seen.replica_sets {
            set.revision = Some(1);
        }
    };
    let late = |seen: &mut Observation| canary(seen).observed = Observed::NotYet;
    let newer = |seen: &mut Observation| x(seen).template = template("orders:v4");
    let back = |seen: &mut Observation| x(seen).template = template(V1);
    for (why, seen, expected) in [
        (
            "first the template",
            replacing(V2, 4, None),
            format!("template {V3}"),
        ),
        (
            "observed",
            changed(late, replacing(V3, 4, None)),
            "waits".to_owned(),
        ),
        (
            "then its ReplicaSet",
            replacing(V3, 4, None),
            "create".to_owned(),
        ),
        (
            "recognised",
            changed(unrecognised, replacing(V3, 4, Some(0))),
            "waits".to_owned(),
        ),
        (
            "the newest",
            changed(low, replacing(V3, 4, Some(0))),
            "revision 2".to_owned(),
        ),
        (
            "then it rolls",
            replacing(V3, 4, Some(0)),
            "roll 1/0".to_owned(),
        ),
        (
            "on its way",
            changed(unpause, replacing(V3, 2, Some(3))),
            "waits".to_owned(),
        ),
        (
            "all are new",
            changed(unpause, replacing(V3, 0, Some(4))),
            "stop Recreate".to_owned(),
        ),
        (
            "the pause is seen",
            changed(late, replacing(V3, 0, Some(4))),
            "waits".to_owned(),
        ),
        (
            "what failed goes",
            replacing(V3, 0, Some(4)),
            "delete orders-2".to_owned(),
        ),
        (
            "a newer one",
            changed(newer, replacing(V3, 3, Some(1))),
            "replacing 4".to_owned(),
        ),
        (
            "a newer one on the way",
            changed(
                |seen| {
                    unpause(seen);
                    x(seen).template = template("orders:v4");
                },
                replacing(V3, 3, Some(2)),
            ),
            "stop Recreate".to_owned(),
        ),
        (
            "a newer one before the ReplicaSet is made",
            changed(newer, replacing(V3, 4, None)),
            "create".to_owned(),
        ),
        (
            "the accepted one",
            changed(back, replacing(V3, 3, Some(1))),
            "Cancelled".to_owned(),
        ),
        (
            "the accepted one on the way",
            changed(
                |seen| {
                    unpause(seen);
                    x(seen).template = template(V1);
                },
                replacing(V3, 3, Some(2)),
            ),
            "stop Recreate".to_owned(),
        ),
    ] {
        assert_eq!(doing(&decided_after(&seen, 1)), expected, "{why}");
    }
    let mut done = replacing(V3, 0, Some(4));
    done.replica_sets.retain(|set| set.name != "orders-2");
    assert_eq!(doing(&decided_after(&done, 1)), "step 2 with 4");
}

#[test]
fn a_replacement_that_is_not_available_in_time_is_paused_and_frozen_again() {
    let mut seen = replacing(V3, 4, Some(1));
    for pod in seen
        .pods
        .iter_mut()
        .filter(|pod| pod.owner == uid("orders-3"))
    {
        pod.ready = Ready::No;
    }
    seen.replica_sets.last_mut().expect("is there").available = Replicas::ZERO;
    let paused = seen.clone();
    unpause(&mut seen);
    assert_eq!(doing(&decided_after(&seen, 59)), "waits");
    assert_eq!(doing(&decided_after(&seen, 60)), "stop Recreate");
    let plan = decided_after(&paused, 60);
    let Phase::Frozen {
        candidate,
        step,
        failure,
    } = &written(&plan).phase
    else {
        panic!("{}", doing(&plan))
    };
    assert_eq!(*candidate, template(V3).hash());
    assert_eq!(step.canary, Replicas(4));
    assert_eq!(failure.cause, Cause::NotAvailable);
    assert!(
        failure.evidence.contains("orders-3-0"),
        "{}",
        failure.evidence
    );
}

#[test]
fn no_pod_of_two_versions_is_started_on_a_paused_canary() {
    for (why, wanted, canary_has, strategy, expected) in [
        ("R up", 14, 4, "Recreate", "primary 10"),
        ("R below the canary", 3, 4, "Recreate", "frozen with 3"),
        ("no R", 0, 4, "Recreate", "stop 0/1, primary 0, canary 0"),
        ("no R", 0, 4, "RollingUpdate", "primary 0, canary 0"),
        (
            "R back while pods are left",
            10,
            0,
            "RollingUpdate",
            "waits",
        ),
    ] {
        let mut seen = replacing(V3, 3, Some(1));
        let Phase::Replacing {
            candidate, step, ..
        } = state(&mut seen).phase.clone()
        else {
            panic!("is no replacement")
        };
        state(&mut seen).phase = Phase::Frozen {
            candidate,
            step,
            failure: failure(),
        };
        x(&mut seen).replicas = Replicas(wanted);
        canary(&mut seen).replicas = Replicas(canary_has);
        canary(&mut seen).rest.strategy = json!({"type": strategy});
        assert_eq!(doing(&decided_after(&seen, 1)), expected, "{why}");
    }
}

#[test]
fn a_native_roll_keeps_within_the_envelope_and_the_deployments_own_strategy() {
    for (why, strategy, primary_has, expected) in [
        (
            "X's own surge",
            json!({"rollingUpdate": {"maxSurge": 1}}),
            6,
            "roll 1/0",
        ),
        (
            "cut to one step",
            json!({"rollingUpdate": {"maxSurge": "100%"}}),
            6,
            "roll 2/0",
        ),
        (
            "X surges by nothing",
            json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "50%"}}),
            6,
            "roll 0/2",
        ),
        (
            "both come to nothing",
            json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "1%"}}),
            6,
            "roll 0/1",
        ),
        ("recreated", json!({"type": "Recreate"}), 6, "roll Recreate"),
    ] {
        let mut seen = replacing(V3, 4, Some(0));
        x(&mut seen).rest.strategy = strategy;
        seen.primary.as_mut().expect("is there").replicas = Replicas(primary_has);
        assert_eq!(doing(&decided_after(&seen, 1)), expected, "{why}");
    }
    // The primary still stands in for canary pods that were never available: nothing is left to surge.
    let mut seen = replacing(V3, 4, Some(0));
    for set in &mut seen.replica_sets {
        if set.name == "orders-2" {
            set.available = Replicas::ZERO;
        }
    }
    seen.primary.as_mut().expect("is there").replicas = Replicas(8);
    assert_eq!(doing(&decided_after(&seen, 1)), "roll 0/1");
}

#[test]
fn a_canary_that_is_changed_on_its_way_in_is_rolled_back() {
    let mut seen = replacing("orders:v3-by-webhook", 4, None);
    seen.canary.as_mut().expect("is there").rolling = Rolling::Paused;
    let plan = decided_after(&seen, 1);
    let rejection = written(&plan).rejected.as_ref().expect("is rejected");
    assert_eq!(rejection.failure.cause, Cause::CanaryChanged);
    assert!(matches!(
        written(&plan).phase,
        Phase::Closing {
            outcome: Outcome::RolledBack,
            ..
        }
    ));
}

#[test]
fn only_the_canary_is_left_un_paused_while_it_is_replaced() {
    for role in [Role::Original, Role::Primary] {
        let mut seen = replacing(V3, 2, Some(2));
        unpause(&mut seen);
        let deployment = match role {
            Role::Original => seen.original.as_mut(),
            Role::Primary | Role::Canary => seen.primary.as_mut(),
        };
        let deployment = deployment.expect("is there");
        deployment.rolling = Rolling::Unpaused;
        let name = deployment.name.clone();
        let plan = decided_after(&seen, 1);
        assert!(
            matches!(actions(&plan), [Action::Pause { name: paused, .. }, ..] if *paused == name),
            "{}",
            doing(&plan)
        );
    }
}
