use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::response::Response;

use super::super::stub::{Stub, body, client, vector};
use super::super::verdict::{NoDataMeans, Verdict};
use super::*;

/// Never reached by an answer that comes at all, however slow the machine.
const GENEROUS: Duration = Duration::from_secs(25);

const POD: &str = "orders-worker-abc";

fn queries(texts: &[&str]) -> Vec<Query> {
    texts
        .iter()
        .map(|text| Query::parse(text).unwrap())
        .collect()
}

fn pods(names: &[&str]) -> Vec<PodName> {
    names
        .iter()
        .map(|name| PodName::new(name).unwrap())
        .collect()
}

/// One round about one pod and one expression, against a Prometheus that answers queries by their text.
async fn round(expression: &str, script: fn(&str) -> Response) -> (Finding, Vec<String>) {
    let stub = Stub::start(move |query| std::future::ready(script(&query))).await;
    let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
    let mut report = checker.check(&queries(&[expression]), &pods(&[POD])).await;
    assert_eq!(report.findings.len(), 1, "{report:?}");
    (report.findings.remove(0), stub.queries())
}

/// What a person reads about a finding.
fn told(finding: &Finding) -> String {
    match finding {
        Finding::Passed { expression, .. } => format!("passed: {expression}"),
        Finding::Failed { text, .. } => format!("failed: {text}"),
        Finding::NoData { text, .. } => format!("no data: {text}"),
        Finding::Unavailable { text } => format!("unavailable: {text}"),
    }
}

const ERRORS: &str = r#"my_errors{pod="<<pod>>"} == 0"#;

#[tokio::test]
async fn a_true_comparison_passes_with_a_single_query() {
    let (finding, asked) = round(ERRORS, |_| vector(&[(&[("pod", POD)], "1")])).await;
    assert_eq!(told(&finding), r#"passed: my_errors{pod="<<pod>>"} == 0"#);
    assert_eq!(finding.pod(), Some(POD));
    assert_eq!(asked, [r#"my_errors{pod="orders-worker-abc"} == bool 0"#]);
}

#[tokio::test]
async fn a_false_comparison_fails_and_tells_the_value() {
    let (finding, asked) = round(ERRORS, |query| {
        if query.contains("bool") {
            vector(&[(&[("pod", POD)], "0")])
        } else {
            vector(&[(&[("__name__", "my_errors"), ("pod", POD)], "3")])
        }
    })
    .await;
    assert_eq!(
        told(&finding),
        r#"failed: my_errors{pod="orders-worker-abc"} == 0 is false: value 3"#
    );
    assert_eq!(
        asked,
        [
            r#"my_errors{pod="orders-worker-abc"} == bool 0"#,
            r#"my_errors{pod="orders-worker-abc"}"#
        ]
    );
}

#[tokio::test]
async fn a_false_comparison_fails_even_when_its_value_cannot_be_told() {
    let (finding, _) = round(ERRORS, |query| {
        if query.contains("bool") {
            vector(&[(&[("pod", POD)], "0")])
        } else {
            body(503, "busy")
        }
    })
    .await;
    assert_eq!(
        told(&finding),
        "failed: my_errors{pod=\"orders-worker-abc\"} == 0 is false: \
         value unknown (Prometheus answered HTTP 503: busy)"
    );
}

/// The comparison answers `first`, and its sides are `NaN`.
fn is_nan(query: &str, first: &str) -> Response {
    let value = if query.contains("bool") { first } else { "NaN" };
    vector(&[(&[("pod", POD)], value)])
}

#[tokio::test]
async fn a_comparison_with_nan_has_no_data_whether_true_or_false() {
    let (less, _) = round(r#"a{pod="<<pod>>"} < 5"#, |query| is_nan(query, "0")).await;
    assert_eq!(
        told(&less),
        r#"no data: a{pod="orders-worker-abc"} < 5 compares with NaN"#
    );
    let (differs, _) = round(r#"a{pod="<<pod>>"} != 5"#, |query| is_nan(query, "1")).await;
    assert_eq!(
        told(&differs),
        r#"no data: a{pod="orders-worker-abc"} != 5 compares with NaN"#
    );
}

#[tokio::test]
async fn an_inequality_passes_only_once_its_sides_are_known() {
    let text = r#"a{pod="<<pod>>"} != 5"#;
    let (finding, asked) = round(text, |_| vector(&[(&[("pod", POD)], "1")])).await;
    assert!(matches!(finding, Finding::Passed { .. }), "{finding:?}");
    assert_eq!(asked.len(), 2);
    let (finding, _) = round(text, |query| {
        if query.contains("bool") {
            vector(&[(&[("pod", POD)], "1")])
        } else {
            body(500, "oops")
        }
    })
    .await;
    assert!(
        matches!(finding, Finding::Unavailable { .. }),
        "{finding:?}"
    );
}

#[tokio::test]
async fn a_pod_without_series_has_no_data() {
    let (finding, asked) = round(ERRORS, |_| vector(&[])).await;
    assert_eq!(
        told(&finding),
        r#"no data: my_errors{pod="orders-worker-abc"} == 0 has no series"#
    );
    assert_eq!(asked.len(), 1);
}

#[tokio::test]
async fn a_set_operation_without_a_sample_fails_only_if_there_is_data_for_the_pod() {
    let text = r#"a{pod="<<pod>>"} < 5 and on() up == 1"#;
    let (passed, _) = round(text, |_| vector(&[(&[("pod", POD)], "3")])).await;
    assert!(matches!(passed, Finding::Passed { .. }), "{passed:?}");
    let (failed, asked) = round(text, |query| {
        if query.contains("bool") {
            vector(&[(&[("pod", POD)], "0")])
        } else {
            vector(&[])
        }
    })
    .await;
    assert_eq!(
        told(&failed),
        r#"failed: a{pod="orders-worker-abc"} < 5 and on() up == 1 returned no sample"#
    );
    assert_eq!(
        asked.last().map(String::as_str),
        Some(r#"(a{pod="orders-worker-abc"} < bool 5)"#)
    );
    let (no_data, _) = round(text, |_| vector(&[])).await;
    assert!(matches!(no_data, Finding::NoData { .. }), "{no_data:?}");
}

#[tokio::test]
async fn whatever_goes_wrong_is_unavailable_and_names_the_expression() {
    let cases: [fn(&str) -> Response; 5] = [
        |_| body(500, ""),
        |_| {
            body(
                400,
                r#"{"status":"error","errorType":"bad_data","error":"no"}"#,
            )
        },
        |_| {
            body(
                200,
                r#"{"status":"error","errorType":"execution","error":"no"}"#,
            )
        },
        |_| body(200, "nonsense"),
        |_| {
            body(
                200,
                r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#,
            )
        },
    ];
    for case in cases {
        let (finding, _) = round(ERRORS, case).await;
        let Finding::Unavailable { text } = finding else {
            panic!("{finding:?}")
        };
        assert!(
            text.starts_with(r#"my_errors{pod="<<pod>>"} == 0: "#),
            "{text}"
        );
    }
}

#[tokio::test]
async fn every_pod_is_asked_about_and_an_expression_without_pod_once() {
    let stub = Stub::start(|_| async { vector(&[(&[], "1")]) }).await;
    let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
    let report = checker
        .check(&queries(&[ERRORS, "up == 1"]), &pods(&["a", "b", "c"]))
        .await;
    let asked_about: Vec<Option<&str>> = report.findings.iter().map(Finding::pod).collect();
    assert_eq!(asked_about, [Some("a"), Some("b"), Some("c"), None]);
    assert_eq!(report.verdict(|_| NoDataMeans::Wait), Verdict::Passed);
    assert_eq!(stub.asked().len(), 4);
    assert!(
        stub.asked()
            .iter()
            .all(|asked| asked.parameter("time").is_none())
    );
}

#[tokio::test]
async fn a_round_about_no_pod_is_inconclusive_and_asks_nothing() {
    let stub = Stub::start(|_| async { vector(&[(&[], "1")]) }).await;
    let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
    let report = checker.check(&queries(&[ERRORS, "up == 1"]), &[]).await;
    let reason = "there is no canary pod to check".to_owned();
    assert_eq!(
        report.verdict(|_| NoDataMeans::Pass),
        Verdict::Inconclusive(vec![reason])
    );
    assert!(stub.asked().is_empty());
}

#[tokio::test]
async fn a_service_without_expressions_has_nothing_to_fail() {
    let stub = Stub::start(|_| async { body(500, "") }).await;
    let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
    let report = checker.check(&[], &pods(&[POD])).await;
    assert_eq!(report.verdict(|_| NoDataMeans::Wait), Verdict::Passed);
}

/// The stub answers only once four questions are open, and sees at no time a fifth.
#[tokio::test]
async fn four_questions_are_open_at_once_and_never_five() {
    let open = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let four = Arc::new(tokio::sync::Barrier::new(MAX_IN_FLIGHT));
    let (counted, seen) = (Arc::clone(&open), Arc::clone(&most));
    let stub = Stub::start(move |_| {
        let (open, most, four) = (Arc::clone(&counted), Arc::clone(&seen), Arc::clone(&four));
        async move {
            let now = open.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            four.wait().await;
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            open.fetch_sub(1, Ordering::SeqCst);
            vector(&[(&[], "1")])
        }
    })
    .await;
    let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
    let names: Vec<String> = (0..10).map(|index| format!("pod-{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let report = checker
        .check(
            &queries(&[ERRORS, r#"b{pod="<<pod>>"} > 1"#]),
            &pods(&names),
        )
        .await;
    assert_eq!(report.findings.len(), 20);
    assert_eq!(report.verdict(|_| NoDataMeans::Wait), Verdict::Passed);
    assert_eq!(most.load(Ordering::SeqCst), MAX_IN_FLIGHT);
}

#[tokio::test]
async fn an_expression_that_hangs_is_not_asked_again_in_the_round_and_hides_no_failure_of_another()
{
    let stub = Stub::start(|query| async move {
        if query.contains("slow") {
            std::future::pending::<()>().await;
        }
        vector(&[(&[], "0")])
    })
    .await;
    let mut checker = Checker {
        metrics: std::sync::Arc::new(stub.client()),
        deadline: Duration::from_secs(4),
    };
    let names: Vec<String> = (0..40).map(|index| format!("pod-{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let report = checker
        .check(
            &queries(&[r#"slow{pod="<<pod>>"} > 1"#, "up == 1"]),
            &pods(&names),
        )
        .await;
    let slow = stub
        .queries()
        .iter()
        .filter(|query| query.contains("slow"))
        .count();
    assert_eq!(slow, MAX_IN_FLIGHT);
    assert_eq!(
        report.findings.iter().map(told).collect::<Vec<_>>(),
        [
            r#"unavailable: slow{pod="<<pod>>"} > 1: Prometheus did not answer within 4s"#,
            "failed: up == 1 is false: value 0",
        ]
    );
}

#[tokio::test]
async fn a_prometheus_that_refuses_is_asked_no_more_in_the_round_and_told_once() {
    let stub = Stub::start(|_| async { body(429, "slow down") }).await;
    let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
    let names: Vec<String> = (0..40).map(|index| format!("pod-{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let report = checker.check(&queries(&[ERRORS]), &pods(&names)).await;
    assert_eq!(
        report.findings.iter().map(told).collect::<Vec<_>>(),
        [
            "unavailable: Prometheus has too much to do (HTTP 429): slow down; it is left alone for 1s"
        ]
    );
    assert!(
        stub.asked().len() <= 2 * MAX_IN_FLIGHT,
        "{}",
        stub.asked().len()
    );
}

#[tokio::test]
async fn a_round_may_run_on_another_thread_and_the_next_one_starts_afresh() {
    let refusing = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = refusing.local_addr().unwrap();
    drop(refusing);
    let mut checker = Checker::new(
        std::sync::Arc::new(client(&format!("http://{address}/"))),
        GENEROUS,
    );
    let (mut checker, report) = tokio::spawn(async move {
        let report = checker.check(&queries(&[ERRORS]), &pods(&[POD])).await;
        (checker, report)
    })
    .await
    .unwrap();
    assert!(matches!(
        report.verdict(|_| NoDataMeans::Pass),
        Verdict::Inconclusive(_)
    ));
    let stub = Stub::start(|_| async { vector(&[(&[], "1")]) }).await;
    checker.metrics = std::sync::Arc::new(stub.client());
    let report = checker.check(&queries(&[ERRORS]), &pods(&[POD])).await;
    assert_eq!(report.verdict(|_| NoDataMeans::Pass), Verdict::Passed);
}
