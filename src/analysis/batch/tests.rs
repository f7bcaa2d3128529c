use proptest::prelude::*;

use super::*;
use crate::analysis::answer::{Labels, Measure};

fn pods(names: &[&str]) -> Vec<PodName> {
    names
        .iter()
        .map(|name| PodName::new(name).unwrap())
        .collect()
}

fn batch(text: &str) -> Option<Batch> {
    assert!(parse(text).is_ok(), "{text} is PromQL");
    Batch::of(text)
}

#[test]
fn what_keeps_the_label_is_asked_once() {
    let cases = [
        // selectors
        r#"a{pod="<<pod>>"}"#,
        r#"a{pod=~"<<pod>>"}"#,
        "a{pod='<<pod>>'}",
        "a{pod=`<<pod>>`}",
        r#"a{app="x", pod = "<<pod>>", b!="c"}"#,
        r#"a{pod="<<pod>>", pod!="x"}"#,
        r#"{__name__="a", pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} offset 5m"#,
        r#"a{pod="<<pod>>"} @ 100"#,
        r#"-a{pod="<<pod>>"}"#,
        r#"((a{pod="<<pod>>"}))"#,
        // functions
        r#"rate(a{pod="<<pod>>"}[1m])"#,
        r#"clamp(a{pod="<<pod>>"}, 0, scalar(b))"#,
        r#"histogram_quantile(0.9, sum by (le, pod) (rate(a_bucket{pod="<<pod>>"}[1m])))"#,
        r#"quantile_over_time(0.5, a{pod="<<pod>>"}[5m])"#,
        r#"max_over_time(rate(a{pod="<<pod>>"}[1m])[10m:30s])"#,
        r#"label_replace(a{pod="<<pod>>"}, "b", "$1", "pod", "(.*)")"#,
        r#"label_join(a{pod="<<pod>>"}, "b", "-", "c", "pod")"#,
        // aggregations
        r#"sum by (pod) (a{pod="<<pod>>"})"#,
        r#"sum(a{pod="<<pod>>"}) by (topic, pod)"#,
        r#"max without (partition) (a{pod="<<pod>>"})"#,
        r#"quantile by (pod) (0.9, a{pod="<<pod>>"})"#,
        r#"count_values by (pod) ("version", a{pod="<<pod>>"})"#,
        // with a number
        r#"a{pod="<<pod>>"} > bool 5"#,
        r#"5 - a{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} * scalar(b) > bool time()"#,
        // with one another
        r#"a{pod="<<pod>>"} / b{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} / on (pod) b{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} / ignoring (x) b{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} > bool on (pod) group_left (x) b{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} or b{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} unless on (pod) b{pod="<<pod>>"}"#,
        // with what names no pod
        r#"a{pod="<<pod>>"} > bool on () group_left () avg(b)"#,
        r#"avg(b) < bool on () group_right () a{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} / limits"#,
        r#"limits / on (pod) a{pod="<<pod>>"}"#,
        r#"limits / on (pod) group_left () a{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} and on () up == 1"#,
        r#"a{pod="<<pod>>"} unless ignoring (pod) b"#,
        r#"b and on (pod) a{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} and absent(b)"#,
        r#"a{pod="<<pod>>"} > bool on () group_left () 0.9 * avg(a{pod=~"<<primary>>"})"#,
        r#"a{pod="<<pod>>"} > bool scalar(avg(a{pod=~"<<canary>>|z"}))"#,
    ];
    for text in cases {
        assert!(batch(text).is_some(), "{text}");
    }
}

#[test]
fn what_loses_the_label_or_may_lose_it_is_asked_pod_by_pod() {
    let cases = [
        // nothing to tell apart
        "a",
        "avg(a) > bool 5",
        r#"a{pod=~"<<canary>>"}"#,
        // not the whole of an equality matcher
        r#"a{pod!="<<pod>>"}"#,
        // labels that Prometheus keeps as it likes
        r#"limit{__type__="<<pod>>"} unless h_count{__type__="<<pod>>"}"#,
        r#"a{pod!~"<<pod>>"}"#,
        r#"a{pod=~"<<pod>>|x"}"#,
        r#"a{pod=~"(<<pod>>)"}"#,
        r#"a{pod="<<pod>>-0"}"#,
        r#"a{pod="<<pod>>"} - a{pod!="<<pod>>"}"#,
        // labels that do not stay
        r#"{__name__="<<pod>>"}"#,
        r#"a{le="<<pod>>"}"#,
        r#"a{pod="<<pod>>", instance="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} + on (x) group_left () b{instance="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} and b{instance="<<pod>>"}"#,
        // functions
        r#"absent(a{pod="<<pod>>"})"#,
        r#"absent_over_time(a{pod="<<pod>>"}[5m])"#,
        r#"scalar(a{pod="<<pod>>"})"#,
        r#"vector(scalar(a{pod="<<pod>>"}))"#,
        r#"b * scalar(a{pod="<<pod>>"})"#,
        r#"clamp_max(a{pod="<<pod>>"}, scalar(b{pod="<<pod>>"}))"#,
        r#"max_over_time(absent(a{pod="<<pod>>"})[5m:])"#,
        r#"label_replace(a{pod="<<pod>>"}, "pod", "x", "", "")"#,
        r#"label_replace(a{pod="<<pod>>"}, "x", "<<pod>>", "", "")"#,
        r#"label_replace(a, "pod", "<<pod>>", "", "")"#,
        r#"label_join(a{pod="<<pod>>"}, "pod", "-", "c", "pod")"#,
        // aggregations
        r#"sum(a{pod="<<pod>>"})"#,
        r#"sum by () (a{pod="<<pod>>"})"#,
        r#"sum by (topic) (a{pod="<<pod>>"})"#,
        r#"sum without (pod) (a{pod="<<pod>>"})"#,
        r#"topk by (pod) (1, a{pod="<<pod>>"})"#,
        r#"bottomk by (pod) (1, a{pod="<<pod>>"})"#,
        r#"count_values by (pod) ("pod", a{pod="<<pod>>"})"#,
        r#"quantile by (pod) (scalar(b{pod="<<pod>>"}), a{pod="<<pod>>"})"#,
        // joins
        r#"a{pod="<<pod>>"} / on (x) b{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} / ignoring (pod) b{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} / on (x) b"#,
        r#"a{pod="<<pod>>"} / on (x) group_left (pod) b"#,
        r#"a{pod="<<pod>>"} / on (x) group_right () b"#,
        r#"a{pod="<<pod>>"} / on (x) group_left () b{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} / on (pod) fill (0) b{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} and on (x) b{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} unless on (x) b{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} or on (x) b{pod="<<pod>>"}"#,
        r#"a{pod="<<pod>>"} or b"#,
        r#"b or a{pod="<<pod>>"}"#,
        r#"b unless on (pod) a{pod="<<pod>>"}"#,
        r#"b and on (x) a{pod="<<pod>>"}"#,
    ];
    for text in cases {
        assert_eq!(batch(text), None, "{text}");
    }
}

#[test]
fn a_hole_that_the_tree_does_not_show_is_not_trusted() {
    for text in [
        r#"sum by (pod, "<<pod>>") (a{pod="<<pod>>"})"#,
        r#"{"<<pod>>", pod="<<pod>>"}"#,
        r#"a{"<<pod>>"="x", pod="<<pod>>"}"#,
        // one hides in a list of labels, where another is found that the text does not show
        r#"sum without ("<<pod>>") (a{pod="<<pod>>"}) > 1 or a{pod=~"\x3c<pod>>"}"#,
        // the parser reads two characters where Prometheus reads one
        r#"n{"pöd"="<<pod>>"} / ignoring("p\xc3\xb6d") group_left() sum without("p\xc3\xb6d")(m{"pöd"="<<pod>>"}) > bool 1"#,
    ] {
        assert_eq!(Batch::of(text), None, "{text}");
    }
}

#[test]
fn the_names_become_alternatives_of_a_regular_expression_in_any_quotes() {
    let names = pods(&["a-1", "b.c-2", "d"]);
    let names: Vec<&PodName> = names.iter().collect();
    let cases = [
        (
            r#"a{pod="<<pod>>"} > bool 5"#,
            r#"a{pod=~"a-1|b[.]c-2|d"} > bool 5"#,
        ),
        (
            r#"a{pod =~ '<<pod>>',x!="y"} - b{pod= `<<pod>>`}"#,
            r#"a{pod =~ 'a-1|b[.]c-2|d',x!="y"} - b{pod=~ `a-1|b[.]c-2|d`}"#,
        ),
    ];
    for (text, expected) in cases {
        let resolved = batch(text).map(|batch| batch.resolve(&names, &Pods::default()));
        assert_eq!(resolved.as_deref(), Some(expected), "{text}");
    }
}

fn sample(labels: &[(&str, &str)], number: f64) -> Sample {
    Sample {
        labels: Labels::new(labels.iter().copied()),
        measure: Measure::Number(number),
    }
}

#[test]
fn an_answer_is_split_by_the_label_and_whoever_is_not_in_it_has_no_sample() {
    let batch = batch(r#"a{pod="<<pod>>"}"#).unwrap();
    let names = pods(&["x", "y", "z"]);
    let names: Vec<&PodName> = names.iter().collect();
    let of = |pod: &str, number| sample(&[("pod", pod), ("n", "1")], number);
    let answer = Answer::Vector(vec![of("z", 1.0), of("x", 2.0)]);
    assert_eq!(
        batch.split(answer, &names),
        Some(vec![
            Answer::Vector(vec![of("x", 2.0)]),
            Answer::Vector(vec![]),
            Answer::Vector(vec![of("z", 1.0)]),
        ])
    );
    let stranger = Answer::Vector(vec![of("x", 1.0), of("w", 1.0)]);
    assert_eq!(batch.split(stranger, &names), None);
    let nobody = Answer::Vector(vec![sample(&[("n", "1")], 1.0)]);
    assert_eq!(batch.split(nobody, &names), None);
    assert_eq!(
        batch.split(Answer::Text, &names),
        Some(vec![Answer::Text; 3])
    );
}

proptest! {
    /// Whatever is accepted stands as it was but for the matchers of pods.
    #[test]
    fn the_query_for_one_pod_of_a_batch_is_the_query_for_that_pod_with_a_regular_expression(
        blanks in "[ ]{0,2}",
        function in prop::sample::select(OF_EACH_SERIES.iter().filter(|name| name.ends_with("_over_time")).collect::<Vec<_>>()),
    ) {
        let argument = if *function == "quantile_over_time" { "0.5, " } else { "" };
        let text = format!(r#"{function}({argument}a{{pod{blanks}={blanks}"<<pod>>"}}[1m]) > bool 5"#);
        let batch = batch(&text).unwrap();
        let pod = PodName::new("a-1").unwrap();
        let asked = batch.resolve(&[&pod], &Pods::default());
        prop_assert_eq!(parse(&asked).map(drop), Ok(()));
        prop_assert_eq!(asked.replace('~', ""), Template::new(&text).unwrap().show(Some(&pod)));
    }
}
