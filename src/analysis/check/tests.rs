use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::response::Response;

use super::super::stub::{Stub, body, client, vector};
use super::super::verdict::{Grace, Verdict};
use super::*;
use crate::config::OnNoData;

/// Never reached by an answer that comes at all, however slow the machine.
const GENEROUS: Duration = Duration::from_secs(25);

const POD: &str = "orders-worker-abc";

fn queries(texts: &[&str]) -> Vec<Query> {
    texts
        .iter()
        .map(|text| Query::parse(text).unwrap())
        .collect()
}

fn names(names: &[&str]) -> Vec<PodName> {
    names
        .iter()
        .map(|name| PodName::new(name).unwrap())
        .collect()
}

fn pods(canary: &[&str]) -> Pods {
    Pods {
        canary: names(canary),
        primary: Vec::new(),
    }
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

/// The pods that a query names, alone or as alternatives.
fn named(query: &str) -> Vec<String> {
    let names = query
        .split_once("pod=")
        .and_then(|(_, rest)| rest.trim_start_matches('~').split('"').nth(1));
    names
        .into_iter()
        .flat_map(|names| names.split('|'))
        .map(str::to_owned)
        .collect()
}

/// A series of each pod that the query names, with the value that `value` says, if any.
fn of_each(query: &str, value: impl Fn(&str) -> Option<&'static str>) -> Response {
    let pods = named(query);
    let labels: Vec<[(&str, &str); 1]> = pods.iter().map(|pod| [("pod", pod.as_str())]).collect();
    let samples: Vec<(&[(&str, &str)], &str)> = labels
        .iter()
        .filter_map(|labels| Some((labels.as_slice(), value(labels[0].1)?)))
        .collect();
    vector(&samples)
}

fn many(count: usize) -> Pods {
    let name = |index| PodName::new(&format!("orders-worker-{index}")).unwrap();
    Pods {
        canary: (0..count).map(name).collect(),
        primary: Vec::new(),
    }
}

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
async fn every_pod_is_judged_by_a_single_query_and_an_expression_without_pod_once() {
    let stub = Stub::start(|query| async move {
        if query.contains("up") {
            vector(&[(&[], "1")])
        } else {
            of_each(&query, |_| Some("1"))
        }
    })
    .await;
    let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
    let report = checker
        .check(&queries(&[ERRORS, "up == 1"]), &pods(&["a", "b", "c"]))
        .await;
    let asked_about: Vec<Option<&str>> = report.findings.iter().map(Finding::pod).collect();
    assert_eq!(asked_about, [Some("a"), Some("b"), Some("c"), None]);
    assert_eq!(report.verdict(|_, _| Grace::Over), Verdict::Passed);
    assert_eq!(
        stub.queries(),
        [r#"my_errors{pod=~"a|b|c"} == bool 0"#, "up == bool 1"]
    );
    assert!(
        stub.asked()
            .iter()
            .all(|asked| asked.parameter("time").is_none())
    );
}

/// Case K58. What is printed are the numbers of the closing note.
#[tokio::test]
async fn four_expressions_are_four_queries_for_any_number_of_pods() {
    let texts = [
        ERRORS,
        r#"rate(done{pod="<<pod>>"}[1m]) > 500"#,
        r#"max by (pod) (lag{pod="<<pod>>"}) < 1000"#,
        r#"a{pod="<<pod>>"} > 1 and on (pod) b{pod="<<pod>>"} < 5"#,
    ];
    for count in [1, 20, 200] {
        let stub = Stub::start(|query| async move { of_each(&query, |_| Some("1")) }).await;
        let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
        let report = checker.check(&queries(&texts), &many(count)).await;
        assert_eq!(report.verdict(|_, _| Grace::Over), Verdict::Passed);
        assert_eq!(report.findings.len(), 4 * count);
        let asked = stub.queries().len();
        assert_eq!(asked, 4);
    }
}

#[tokio::test]
async fn more_pods_than_a_query_can_name_are_asked_about_in_parts() {
    let stub = Stub::start(|query| async move { of_each(&query, |_| Some("1")) }).await;
    let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
    let all = many(MAX_PODS * 2 + 1);
    let report = checker.check(&queries(&[ERRORS]), &all).await;
    assert_eq!(report.findings.len(), all.canary.len());
    assert_eq!(report.verdict(|_, _| Grace::Over), Verdict::Passed);
    let asked: Vec<usize> = stub
        .queries()
        .iter()
        .map(|query| named(query).len())
        .collect();
    assert_eq!(asked, [MAX_PODS, MAX_PODS, 1]);
}

/// Of four pods one holds, one is false, one is `NaN` and one has no series.
fn mixed(query: &str) -> Response {
    let judged = query.contains("bool");
    of_each(query, |pod| match (pod, judged) {
        ("good", true) => Some("1"),
        ("bad" | "nan", true) => Some("0"),
        ("good", false) => Some("0"),
        ("bad", false) => Some("7"),
        ("nan", false) => Some("NaN"),
        _ => None,
    })
}

/// What is found about the pods in one round, and in rounds of their own.
async fn both_ways(
    expression: &str,
    names: &[&str],
    script: fn(&str) -> Response,
) -> (Vec<Finding>, Vec<Finding>, Vec<String>) {
    let stub = Stub::start(move |query| std::future::ready(script(&query))).await;
    let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
    let queries = queries(&[expression]);
    let at_once = checker.check(&queries, &pods(names)).await.findings;
    let asked = stub.queries();
    let mut one_by_one = Vec::new();
    for name in names {
        one_by_one.extend(checker.check(&queries, &pods(&[name])).await.findings);
    }
    (at_once, one_by_one, asked)
}

#[tokio::test]
async fn the_findings_of_a_batch_are_those_of_its_pods_and_take_a_query_each_to_explain() {
    let names = ["good", "bad", "none", "nan"];
    let (at_once, one_by_one, asked) = both_ways(ERRORS, &names, mixed).await;
    assert_eq!(at_once, one_by_one);
    assert_eq!(
        at_once.iter().map(told).collect::<Vec<_>>(),
        [
            r#"passed: my_errors{pod="<<pod>>"} == 0"#,
            r#"failed: my_errors{pod="bad"} == 0 is false: value 7"#,
            r#"no data: my_errors{pod="none"} == 0 has no series"#,
            r#"no data: my_errors{pod="nan"} == 0 compares with NaN"#,
        ]
    );
    assert_eq!(
        asked,
        [
            r#"my_errors{pod=~"good|bad|none|nan"} == bool 0"#,
            r#"my_errors{pod=~"bad|nan"}"#,
        ]
    );
}

#[tokio::test]
async fn what_a_set_operation_lacks_is_asked_at_once_too() {
    let text = r#"a{pod="<<pod>>"} < 5 and on () up == 1"#;
    let (at_once, one_by_one, asked) = both_ways(text, &["x", "y", "z"], |query| {
        let presence = query.contains("bool");
        of_each(query, |pod| match pod {
            "x" => Some("3"),
            "y" if presence => Some("0"),
            _ => None,
        })
    })
    .await;
    assert_eq!(at_once, one_by_one);
    assert_eq!(
        at_once.iter().map(told).collect::<Vec<_>>(),
        [
            r#"passed: a{pod="<<pod>>"} < 5 and on () up == 1"#,
            r#"failed: a{pod="y"} < 5 and on () up == 1 returned no sample"#,
            r#"no data: a{pod="z"} < 5 and on () up == 1 has no series"#,
        ]
    );
    assert_eq!(
        asked,
        [
            r#"a{pod=~"x|y|z"} < 5 and on () up == 1"#,
            r#"(a{pod=~"y|z"} < bool 5)"#,
        ]
    );
}

/// A side that names no pod is the same for all.
#[tokio::test]
async fn a_side_without_pod_is_asked_once_for_all_that_fail() {
    let text = r#"a{pod="<<pod>>"} > on () group_left () avg(b)"#;
    let (at_once, one_by_one, asked) = both_ways(text, &["x", "y"], |query| {
        if query == "avg(b)" {
            return vector(&[(&[], "9")]);
        }
        let value = if query.contains("bool") { "0" } else { "4" };
        of_each(query, move |_| Some(value))
    })
    .await;
    assert_eq!(at_once, one_by_one);
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert_eq!(
        told(&at_once[1]),
        r#"failed: a{pod="y"} > on () group_left () avg(b) is false: left side 4, right side 9"#
    );
}

/// An error about one pod spoils no other, and what answers for strangers is not trusted to tell pods apart.
#[tokio::test]
async fn a_batch_that_cannot_be_told_apart_is_asked_pod_by_pod() {
    let duplicates = |query: &str| {
        if named(query).iter().any(|pod| pod == "twice") {
            let error =
                r#"{"status":"error","errorType":"execution","error":"found duplicate series"}"#;
            return body(422, error);
        }
        mixed(query)
    };
    let (at_once, one_by_one, asked) =
        both_ways(ERRORS, &["good", "twice", "bad"], duplicates).await;
    assert_eq!(at_once, one_by_one);
    assert_eq!(
        at_once.iter().map(told).collect::<Vec<_>>(),
        [
            r#"passed: my_errors{pod="<<pod>>"} == 0"#,
            r#"unavailable: my_errors{pod="<<pod>>"} == 0: Prometheus answered HTTP 422: execution: found duplicate series"#,
            r#"failed: my_errors{pod="bad"} == 0 is false: value 7"#,
        ]
    );
    assert_eq!(asked.len(), 5, "{asked:?}");
    let (at_once, one_by_one, asked) =
        both_ways(ERRORS, &["a", "b"], |_| vector(&[(&[], "1")])).await;
    assert_eq!(at_once, one_by_one);
    assert!(matches!(at_once[1], Finding::Passed { .. }), "{at_once:?}");
    assert_eq!(asked.len(), 3, "{asked:?}");
}

#[tokio::test]
async fn the_pods_of_a_role_are_asked_about_together_and_the_text_keeps_the_placeholder() {
    let texts = [
        r#"sum(a{pod=~"<<canary>>"}) / count(a{pod=~"<<canary>>"}) >= 0.9 * scalar(avg(a{pod=~"<<primary>>"}))"#,
        r#"a{pod="<<pod>>"} >= on () group_left () 0.9 * avg(a{pod=~"<<primary>>"})"#,
    ];
    let stub = Stub::start(|query| async move {
        if query.contains("bool") {
            if query.starts_with("sum") {
                vector(&[(&[], "0")])
            } else {
                of_each(&query, |_| Some("0"))
            }
        } else if query.starts_with("a{") {
            of_each(&query, |_| Some("3"))
        } else {
            vector(&[(&[], "9")])
        }
    })
    .await;
    let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
    let pods = Pods {
        canary: names(&["c-1", "c-2"]),
        primary: names(&["p-1", "p-2", "p-3"]),
    };
    let report = checker.check(&queries(&texts), &pods).await;
    assert_eq!(
        report.findings.iter().map(told).collect::<Vec<_>>(),
        [
            r#"failed: sum(a{pod=~"<<canary>>"}) / count(a{pod=~"<<canary>>"}) >= 0.9 * scalar(avg(a{pod=~"<<primary>>"})) is false: left side 9, right side 9"#,
            r#"failed: a{pod="c-1"} >= on () group_left () 0.9 * avg(a{pod=~"<<primary>>"}) is false: left side 3, right side 9"#,
            r#"failed: a{pod="c-2"} >= on () group_left () 0.9 * avg(a{pod=~"<<primary>>"}) is false: left side 3, right side 9"#,
        ]
    );
    let mut asked = stub.queries();
    asked.sort();
    assert_eq!(
        asked,
        [
            r#"0.9 * avg(a{pod=~"p-1|p-2|p-3"})"#,
            r#"0.9 * scalar(avg(a{pod=~"p-1|p-2|p-3"}))"#,
            r#"a{pod=~"c-1|c-2"}"#,
            r#"a{pod=~"c-1|c-2"} >= bool on () group_left () 0.9 * avg(a{pod=~"p-1|p-2|p-3"})"#,
            r#"sum(a{pod=~"c-1|c-2"}) / count(a{pod=~"c-1|c-2"})"#,
            r#"sum(a{pod=~"c-1|c-2"}) / count(a{pod=~"c-1|c-2"}) >= bool 0.9 * scalar(avg(a{pod=~"p-1|p-2|p-3"}))"#,
        ]
    );
}

/// There is nothing to compare with: no verdict is made of that but what `on_no_data` says.
#[tokio::test]
async fn a_primary_without_pods_has_no_data_and_the_text_says_so() {
    let stub = Stub::start(|query| async move {
        assert!(query.contains(r#"avg(a{pod=~"-no-pod-"})"#), "{query}");
        vector(&[])
    })
    .await;
    let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
    let text = r#"a{pod="<<pod>>"} >= on () group_left () avg(a{pod=~"<<primary>>"})"#;
    for (then, expected) in [
        (OnNoData::Fail, "failed"),
        (OnNoData::Wait, "inconclusive"),
        (OnNoData::Pass, "passed"),
    ] {
        let query = Query::parse(text).unwrap().with_on_no_data(then);
        let report = checker.check(&[query], &pods(&["c-1", "c-2"])).await;
        assert_eq!(
            told(&report.findings[1]),
            r#"no data: a{pod="c-2"} >= on () group_left () avg(a{pod=~"<<primary>>"}) has no series (the primary has no pod)"#
        );
        let said = match report.verdict(|_, _| Grace::Over) {
            Verdict::Passed => "passed",
            Verdict::Failed(_) => "failed",
            Verdict::Inconclusive(_) => "inconclusive",
        };
        assert_eq!(said, expected);
        assert!(matches!(
            report.verdict(|_, _| Grace::Running),
            Verdict::Inconclusive(_)
        ));
    }
}

#[tokio::test]
async fn a_prometheus_in_trouble_is_not_asked_again_pod_by_pod() {
    // What may be about the question is tried once more, about a single pod.
    for (status, asked) in [(429, 1), (401, 1), (500, 2), (503, 2)] {
        let stub = Stub::start(move |_| async move { body(status, "busy") }).await;
        let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
        let report = checker.check(&queries(&[ERRORS]), &many(40)).await;
        assert_eq!(report.findings.len(), 1, "{report:?}");
        assert_eq!(stub.queries().len(), asked, "{status}");
    }
}

#[tokio::test]
async fn pods_about_which_no_question_at_once_is_answered_are_asked_about_alone() {
    for status in [422, 500, 503, 504] {
        let stub = Stub::start(move |query| async move {
            if query.contains('|') {
                return body(status, "query timed out in expression evaluation");
            }
            of_each(&query, |pod| {
                Some(if pod == "orders-worker-3" { "0" } else { "1" })
            })
        })
        .await;
        let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
        let report = checker.check(&queries(&[ERRORS]), &many(5)).await;
        let failed = report
            .findings
            .iter()
            .filter(|finding| matches!(finding, Finding::Failed { .. }));
        assert_eq!(failed.count(), 1, "{status}: {report:?}");
    }
}

#[tokio::test]
async fn a_round_about_no_pod_is_inconclusive_and_asks_nothing() {
    let stub = Stub::start(|_| async { vector(&[(&[], "1")]) }).await;
    let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
    let report = checker
        .check(&queries(&[ERRORS, "up == 1"]), &pods(&[]))
        .await;
    let reason = "there is no canary pod to check".to_owned();
    assert_eq!(
        report.verdict(|_, _| Grace::Over),
        Verdict::Inconclusive(vec![reason])
    );
    assert!(stub.asked().is_empty());
}

#[tokio::test]
async fn a_service_without_expressions_has_nothing_to_fail() {
    let stub = Stub::start(|_| async { body(500, "") }).await;
    let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
    let report = checker.check(&[], &pods(&[POD])).await;
    assert_eq!(report.verdict(|_, _| Grace::Over), Verdict::Passed);
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
    let report = checker
        .check(
            &queries(&[r#"sum(a{pod="<<pod>>"}) == 0"#, r#"b{pod!="<<pod>>"} > 1"#]),
            &many(10),
        )
        .await;
    assert_eq!(report.findings.len(), 20);
    assert_eq!(report.verdict(|_, _| Grace::Over), Verdict::Passed);
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
    let report = checker
        .check(
            &queries(&[r#"sum(slow{pod="<<pod>>"}) > 1"#, "up == 1"]),
            &many(40),
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
            r#"unavailable: sum(slow{pod="<<pod>>"}) > 1: Prometheus did not answer within 4s"#,
            "failed: up == 1 is false: value 0",
        ]
    );
}

#[tokio::test]
async fn a_prometheus_that_refuses_is_asked_no_more_in_the_round_and_told_once() {
    let stub = Stub::start(|_| async { body(429, "slow down") }).await;
    let mut checker = Checker::new(std::sync::Arc::new(stub.client()), GENEROUS);
    let report = checker
        .check(&queries(&[r#"sum(a{pod="<<pod>>"}) == 0"#]), &many(40))
        .await;
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
        report.verdict(|_, _| Grace::Over),
        Verdict::Inconclusive(_)
    ));
    let stub = Stub::start(|_| async { vector(&[(&[], "1")]) }).await;
    checker.metrics = std::sync::Arc::new(stub.client());
    let report = checker.check(&queries(&[ERRORS]), &pods(&[POD])).await;
    assert_eq!(report.verdict(|_, _| Grace::Over), Verdict::Passed);
}
