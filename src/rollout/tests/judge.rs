//! The verdict of a check, and what follows.

use super::*;
use crate::analysis::{CheckReport, Finding};
use crate::config::{CompletedContainers, OnNoData};
use crate::rollout::judge;
use crate::rollout::observation::{Container, Disruption, End};
use crate::rollout::state::{Cause, KnownPod, Outcome};

fn passed(pod: u32) -> Finding {
    Finding::Passed {
        pod: Some(format!("orders-2-{pod}")),
        expression: "e".to_owned(),
    }
}

fn failed(pod: &str) -> Finding {
    Finding::Failed {
        pod: Some(pod.to_owned()),
        expression: "e".to_owned(),
        text: "e is false".to_owned(),
    }
}

fn unavailable() -> Finding {
    Finding::Unavailable {
        text: "HTTP 500".to_owned(),
    }
}

fn no_data() -> Finding {
    Finding::NoData {
        pod: Some("orders-2-1".to_owned()),
        expression: "e".to_owned(),
        text: "e has no series".to_owned(),
        then: OnNoData::Fail,
    }
}

/// What follows in a word, `since` seconds after the step's checks began.
fn follows(seen: &Observation, since: u64, findings: Vec<Finding>) -> String {
    let report = CheckReport { findings };
    let time = Duration::from_secs(since);
    let plan = judge(
        &service(),
        Desired::Managed(Turn::Taken),
        seen,
        time,
        &report,
    );
    match &written(&plan).phase {
        Phase::Stepping { step, .. } if step.number == 1 => format!(
            "goes on, {} passed, {} failed",
            step.checks.passed, step.checks.failed
        ),
        Phase::Stepping { step, .. } => format!("step {}", step.number),
        Phase::Closing {
            outcome: Outcome::RolledBack,
            ..
        } => match written(&plan).rejected.as_ref().map(|it| it.failure.cause) {
            Some(Cause::ChecksFailed) => "checks failed".to_owned(),
            Some(Cause::MetricsUnavailable) => "metrics unavailable".to_owned(),
            other => format!("{other:?}"),
        },
        other => format!("{other:?}"),
    }
}

#[test]
fn a_step_ends_only_on_a_passed_check_after_its_time() {
    let seen = in_step(2, Stage::Checking, 2, 8);
    let good = || vec![passed(0), passed(1)];
    for (since, findings, expected) in [
        (0, good(), "goes on, 1 passed, 0 failed"),
        (29, good(), "goes on, 1 passed, 0 failed"),
        (30, good(), "step 2"),
        (
            29,
            vec![passed(0), unavailable()],
            "goes on, 0 passed, 0 failed",
        ),
        // One answer that says nothing is a doubt, however late in the step it comes.
        (
            30,
            vec![passed(0), unavailable()],
            "goes on, 0 passed, 0 failed",
        ),
        (0, vec![passed(0), failed("orders-2-1")], "checks failed"),
        (30, vec![passed(0), failed("orders-2-1")], "checks failed"),
        (
            10,
            vec![passed(0), no_data()],
            "goes on, 0 passed, 0 failed",
        ),
        // The pod is gone by now: what was found about it holds neither way, and its absence is a doubt (K12, K59).
        (
            0,
            vec![passed(0), passed(1), failed("gone")],
            "goes on, 0 passed, 0 failed",
        ),
        (0, Vec::new(), "goes on, 0 passed, 0 failed"),
    ] {
        let text = format!("{since}s {findings:?}");
        assert_eq!(follows(&seen, since, findings), expected, "{text}");
    }
}

#[test]
fn a_canary_that_is_not_complete_passes_nothing() {
    let mut seen = in_step(2, Stage::Checking, 2, 8);
    seen.replica_sets[1].available = Replicas(1);
    assert_eq!(
        follows(&seen, 29, vec![passed(0), passed(1)]),
        "goes on, 0 passed, 0 failed"
    );
}

#[test]
fn a_restart_is_a_failed_check_once() {
    let mut seen = in_step(2, Stage::Checking, 2, 8);
    let restarted = seen.pods.last_mut().expect("has pods");
    restarted.containers = vec![Container {
        name: "worker".to_owned(),
        restarts: 1,
        waiting: None,
        last_end: Some(End {
            reason: Some("Error".to_owned()),
            exit_code: Some(1),
            message: None,
        }),
        restarted_after: None,
    }];
    let known = restarted.uid.clone();
    assert_eq!(
        follows(&seen, 0, vec![passed(0), passed(1)]),
        "checks failed"
    );
    let Phase::Stepping { step, .. } = &mut state(&mut seen).phase else {
        panic!("not stepping")
    };
    step.checks.pods.insert(
        known,
        KnownPod {
            restarts: BTreeMap::from([("worker".to_owned(), 1)]),
            counted: 1,
            ..KnownPod::default()
        },
    );
    assert_eq!(
        follows(&seen, 0, vec![passed(0), passed(1)]),
        "goes on, 1 passed, 0 failed"
    );
}

#[test]
fn a_canary_that_falls_short_has_abort_from_the_check_that_found_it() {
    // The last check, long ago, found all of them: one missing now is a doubt, however far apart checks are.
    let mut seen = in_step(2, Stage::Checking, 2, 8);
    seen.replica_sets[1].available = Replicas(1);
    let mut slow = service();
    slow.check_interval = Duration::from_secs(120);
    slow.inconclusive_timeout = Duration::from_secs(600);
    let report = CheckReport {
        findings: vec![passed(0), passed(1)],
    };
    let verdict = |seen: &Observation, since: u64| {
        judge(
            &slow,
            Desired::Managed(Turn::Taken),
            seen,
            Duration::from_secs(since),
            &report,
        )
    };
    let plan = verdict(&seen, 120);
    let found = written(&plan).clone();
    assert!(matches!(found.phase, Phase::Stepping { .. }), "{found:?}");
    // The check after it finds the same: more than `abort` has gone by.
    *state(&mut seen) = found;
    let plan = verdict(&seen, 120);
    let cause = written(&plan).rejected.as_ref().map(|it| it.failure.cause);
    assert_eq!(cause, Some(Cause::NotAvailable));
}

#[test]
fn doubt_ends_a_rollout_only_when_it_lasts() {
    let mut seen = in_step(2, Stage::Checking, 2, 8);
    let report = CheckReport {
        findings: vec![passed(0), unavailable()],
    };
    let judged = |seen: &Observation, since: u64| {
        judge(
            &service(),
            Desired::Managed(Turn::Taken),
            seen,
            Duration::from_secs(since),
            &report,
        )
    };
    for since in [10, 10, 10] {
        let plan = judged(&seen, since);
        let next = written(&plan).clone();
        assert!(matches!(next.phase, Phase::Stepping { .. }), "{next:?}");
        *state(&mut seen) = next;
    }
    // inconclusive_timeout is max_step_duration here: 30s since the first doubt.
    let plan = judged(&seen, 10);
    let cause = written(&plan).rejected.as_ref().map(|it| it.failure.cause);
    assert_eq!(cause, Some(Cause::MetricsUnavailable));
}

#[test]
fn each_pod_has_its_own_grace_without_data() {
    let mut seen = in_step(2, Stage::Checking, 2, 8);
    let mut slow = service();
    slow.inconclusive_timeout = Duration::from_secs(600);
    slow.check_interval = Duration::from_secs(5);
    let judged = |seen: &Observation, since: u64, pod: &str| {
        let lacking = Finding::NoData {
            pod: Some(pod.to_owned()),
            expression: "e".to_owned(),
            text: "e has no series".to_owned(),
            then: OnNoData::Fail,
        };
        let report = CheckReport {
            findings: vec![lacking],
        };
        written(&judge(
            &slow,
            Desired::Managed(Turn::Taken),
            seen,
            Duration::from_secs(since),
            &report,
        ))
        .clone()
    };
    let goes_on = |state: &State| matches!(state.phase, Phase::Stepping { .. });
    let next = judged(&seen, 20, "orders-2-0");
    assert!(goes_on(&next), "it is first seen now");
    *state(&mut seen) = next;
    // At minute five a node is drained: another pod comes in place of one, and has not been scraped yet (case K16).
    let replaced = seen.pods.last_mut().expect("has pods");
    replaced.uid = uid("another");
    replaced.name = "orders-2-9".to_owned();
    let next = judged(&seen, 300, "orders-2-9");
    assert!(goes_on(&next), "the successor has its own grace");
    *state(&mut seen) = next;
    assert!(goes_on(&judged(&seen, 9, "orders-2-9")));
    assert!(!goes_on(&judged(&seen, 10, "orders-2-9")), "which ends");
}

/// Case K16: no series *yet*.
#[test]
fn a_pod_that_has_had_data_in_this_step_has_no_grace_for_that_expression_any_more() {
    let mut patient = service();
    patient.no_data_grace = Duration::from_secs(25);
    let judged = |seen: &Observation, since: u64, findings: Vec<Finding>| {
        written(&judge(
            &patient,
            Desired::Managed(Turn::Taken),
            seen,
            Duration::from_secs(since),
            &CheckReport { findings },
        ))
        .clone()
    };
    let lacking = |expression: &str, then: OnNoData| Finding::NoData {
        pod: Some("orders-2-1".to_owned()),
        expression: expression.to_owned(),
        text: "it has no series".to_owned(),
        then,
    };
    let goes_on = |state: &State| matches!(state.phase, Phase::Stepping { .. });
    let mut seen = in_step(2, Stage::Checking, 2, 8);
    let next = judged(&seen, 0, vec![passed(0), passed(1)]);
    *state(&mut seen) = next;
    let gone = judged(&seen, 10, vec![passed(0), lacking("e", OnNoData::Fail)]);
    assert!(!goes_on(&gone), "it had data for e");
    for then in [OnNoData::Wait, OnNoData::Pass] {
        assert!(goes_on(&judged(&seen, 10, vec![lacking("e", then)])));
    }
    let next = judged(&seen, 10, vec![passed(0), lacking("other", OnNoData::Fail)]);
    assert!(goes_on(&next), "it never had any for the other one");
    *state(&mut seen) = next;
    let next = judged(&seen, 15, vec![passed(0), passed(1)]);
    let Phase::Stepping { step, .. } = &next.phase else {
        panic!("{next:?}")
    };
    assert!(
        step.checks.pods.values().all(|pod| pod.data.is_empty()),
        "nothing is remembered of a grace that is over: {step:?}"
    );
    let gone = judged(&seen, 15, vec![passed(0), lacking("other", OnNoData::Fail)]);
    assert!(!goes_on(&gone), "its grace is over");
}

#[test]
fn a_pod_that_was_driven_out_or_told_to_end_is_no_evidence() {
    for (life, disruption, expected) in [
        (Life::Alive, Disruption::None, "checks failed"),
        (
            Life::Alive,
            Disruption::Target,
            "goes on, 1 passed, 0 failed",
        ),
        (
            Life::Deleting,
            Disruption::None,
            "goes on, 1 passed, 0 failed",
        ),
    ] {
        let mut seen = in_step(2, Stage::Checking, 2, 8);
        let mut ended = seen.pods.last().expect("has pods").clone();
        ended.name = "orders-2-8".to_owned();
        ended.uid = uid("orders-2-8");
        ended.phase = PodPhase::Failed;
        (ended.life, ended.disruption) = (life, disruption);
        seen.pods.push(ended);
        assert_eq!(
            follows(&seen, 0, vec![passed(0), passed(1)]),
            expected,
            "{life:?} {disruption:?}"
        );
    }
}

/// Case K22: it failed, and was deleted before the next check; its successor is clean.
#[test]
fn a_pod_that_fails_between_checks_is_a_failed_check_at_once() {
    let mut seen = in_step(2, Stage::Checking, 2, 8);
    let mut patient = service();
    patient.check_max_failures = std::num::NonZeroU32::new(2).expect("is not zero");
    let decided = |seen: &Observation| {
        decide(
            &patient,
            Desired::Managed(Turn::Taken),
            seen,
            Duration::from_secs(1),
        )
    };
    {
        let Phase::Stepping { step, .. } = &mut state(&mut seen).phase else {
            panic!("not stepping")
        };
        step.checks.since_last = Some(Elapsed::ZERO);
    }
    assert!(matches!(decided(&seen).next, Next::Wait(_)));
    let mut ended = seen.pods.last().expect("has pods").clone();
    ended.name = "orders-2-8".to_owned();
    ended.uid = uid("orders-2-8");
    ended.phase = PodPhase::Failed;
    seen.pods.push(ended);
    let plan = decided(&seen);
    let counted = |state: &State| match &state.phase {
        Phase::Stepping { step, .. } => step.checks.failed,
        other => panic!("{other:?}"),
    };
    assert_eq!(counted(written(&plan)), 1);
    assert!(
        plan.events
            .iter()
            .any(|event| event.to_string().contains("orders-2-8 failed")),
        "{:?}",
        plan.events
    );
    *state(&mut seen) = written(&plan).clone();
    assert!(
        matches!(decided(&seen).next, Next::Wait(_)),
        "it is held against the version once"
    );
    seen.pods.pop();
    assert!(
        matches!(decided(&seen).next, Next::Wait(_)),
        "and is not forgotten"
    );
    assert_eq!(counted(&state(&mut seen).clone()), 1);
    // Without a second chance that is the end.
    patient.check_max_failures = std::num::NonZeroU32::MIN;
    let mut seen = in_step(2, Stage::Checking, 2, 8);
    let mut ended = seen.pods.last().expect("has pods").clone();
    ended.uid = uid("orders-2-8");
    ended.phase = PodPhase::Failed;
    seen.pods.push(ended);
    let plan = decide(
        &patient,
        Desired::Managed(Turn::Taken),
        &seen,
        Duration::from_secs(1),
    );
    let cause = written(&plan).rejected.as_ref().map(|it| it.failure.cause);
    assert_eq!(cause, Some(Cause::ChecksFailed));
}

#[test]
fn what_was_held_against_a_pod_is_not_held_against_it_in_the_next_step() {
    let mut seen = in_step(2, Stage::Checking, 2, 8);
    seen.pods.last_mut().expect("has pods").containers = vec![Container {
        name: "worker".to_owned(),
        restarts: 1,
        waiting: None,
        last_end: None,
        restarted_after: None,
    }];
    let mut patient = service();
    patient.check_max_failures = std::num::NonZeroU32::new(4).expect("not zero");
    let report = CheckReport {
        findings: vec![passed(0), passed(1)],
    };
    let judged = |seen: &Observation, since: u64| {
        judge(
            &patient,
            Desired::Managed(Turn::Taken),
            seen,
            Duration::from_secs(since),
            &report,
        )
    };
    let first = written(&judged(&seen, 0)).clone();
    *state(&mut seen) = first;
    let second = written(&judged(&seen, 30)).clone();
    let Phase::Stepping { step, .. } = second.phase else {
        panic!("not stepping")
    };
    assert_eq!(step.number, 2);
    assert_eq!(
        step.checks
            .pods
            .values()
            .map(|pod| pod.counted)
            .collect::<Vec<_>>(),
        [1]
    );
}

/// A canary pod's containers as the kubelet tells them: name, restarts, how it last ended.
type Told<'a> = &'a [(&'a str, u32, Option<(&'a str, i64)>)];

fn containers(told: Told<'_>) -> Vec<Container> {
    let container = |(name, restarts, end): &(&str, u32, Option<(&str, i64)>)| Container {
        name: (*name).to_owned(),
        restarts: *restarts,
        waiting: None,
        last_end: None,
        restarted_after: end.map(|(reason, code)| End {
            reason: Some(reason.to_owned()),
            exit_code: Some(code),
            message: None,
        }),
    };
    told.iter().map(container).collect()
}

#[test]
fn a_restart_counts_unless_it_is_by_design() {
    const ERROR: Option<(&str, i64)> = Some(("Error", 1));
    const DONE: Option<(&str, i64)> = Some(("Completed", 0));
    const OOM: Option<(&str, i64)> = Some(("OOMKilled", 137));
    // Like a main process that says 0 although a child of it was killed.
    const QUIET_OOM: Option<(&str, i64)> = Some(("OOMKilled", 0));
    #[derive(Clone, Copy)]
    struct Row<'a> {
        max_restarts: u32,
        ignore_containers: &'a [&'a str],
        completed: CompletedContainers,
        /// The same pod at each check.
        checks: &'a [Told<'a>],
        failed: &'a [u32],
    }
    let strict = Row {
        max_restarts: 0,
        ignore_containers: &[],
        completed: CompletedContainers::Count,
        checks: &[],
        failed: &[],
    };
    for row in [
        // K20: the lists are absent, or hold nothing bad.
        Row {
            checks: &[&[], &[("worker", 0, None)]],
            failed: &[0, 0],
            ..strict
        },
        // Worker, init container and native sidecar alike; each restart once.
        Row {
            checks: &[&[("worker", 1, ERROR)], &[("worker", 1, ERROR)]],
            failed: &[1, 1],
            ..strict
        },
        Row {
            checks: &[
                &[("setup", 2, ERROR), ("worker", 0, None)],
                &[("setup", 2, ERROR), ("worker", 1, OOM)],
            ],
            failed: &[1, 2],
            ..strict
        },
        // One container named in `ignore_containers`, another not.
        Row {
            ignore_containers: &["proxy"],
            checks: &[&[("proxy", 7, OOM)], &[("proxy", 8, OOM)]],
            failed: &[0, 0],
            ..strict
        },
        Row {
            ignore_containers: &["proxy"],
            checks: &[
                &[("proxy", 7, OOM), ("worker", 0, None)],
                &[("proxy", 7, OOM), ("worker", 1, ERROR)],
            ],
            failed: &[0, 1],
            ..strict
        },
        // K21: ends by design, but only where the file says so, and only with code 0.
        Row {
            checks: &[&[("worker", 3, DONE)]],
            failed: &[1],
            ..strict
        },
        Row {
            completed: CompletedContainers::Ignore,
            checks: &[&[("worker", 3, DONE)], &[("worker", 9, DONE)]],
            failed: &[0, 0],
            ..strict
        },
        Row {
            completed: CompletedContainers::Ignore,
            checks: &[&[("worker", 3, DONE)], &[("worker", 4, OOM)]],
            failed: &[0, 1],
            ..strict
        },
        Row {
            completed: CompletedContainers::Ignore,
            checks: &[&[("worker", 1, QUIET_OOM)]],
            failed: &[1],
            ..strict
        },
        Row {
            completed: CompletedContainers::Ignore,
            checks: &[&[("worker", 1, None)]],
            failed: &[1],
            ..strict
        },
        // What was not held against it when it was seen is not held against it because another end came last.
        Row {
            completed: CompletedContainers::Ignore,
            checks: &[&[("worker", 3, DONE)], &[("worker", 3, OOM)]],
            failed: &[0, 0],
            ..strict
        },
        // `max_restarts` of each pod, all its containers together; each one beyond is another failed check.
        Row {
            max_restarts: 2,
            checks: &[
                &[("worker", 2, ERROR)],
                &[("worker", 2, ERROR), ("setup", 1, ERROR)],
                &[("worker", 3, ERROR), ("setup", 1, ERROR)],
            ],
            failed: &[0, 1, 2],
            ..strict
        },
        Row {
            max_restarts: 2,
            checks: &[&[("worker", 3, ERROR)]],
            failed: &[1],
            ..strict
        },
        Row {
            max_restarts: 1,
            completed: CompletedContainers::Ignore,
            checks: &[
                &[("worker", 9, DONE)],
                &[("worker", 10, ERROR)],
                &[("worker", 11, ERROR)],
            ],
            failed: &[0, 0, 1],
            ..strict
        },
    ] {
        let mut service = service();
        service.max_restarts = row.max_restarts;
        service.ignore_containers = row
            .ignore_containers
            .iter()
            .map(|&name| name.to_owned())
            .collect();
        service.ignore_completed = row.completed;
        service.max_step_duration = Duration::from_secs(600);
        service.check_max_failures = std::num::NonZeroU32::MAX;
        let mut seen = in_step(2, Stage::Checking, 2, 8);
        let mut failed = Vec::new();
        for told in row.checks {
            seen.pods.last_mut().expect("has pods").containers = containers(told);
            let report = CheckReport {
                findings: vec![passed(0), passed(1)],
            };
            let next = written(&judge(
                &service,
                Desired::Managed(Turn::Taken),
                &seen,
                Duration::from_secs(10),
                &report,
            ))
            .clone();
            let Phase::Stepping { step, .. } = &next.phase else {
                panic!("not stepping")
            };
            failed.push(step.checks.failed);
            *state(&mut seen) = next;
        }
        assert_eq!(failed, row.failed, "{:?}", row.checks);
    }
}
