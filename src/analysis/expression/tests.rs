use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::config::Config;

fn pod() -> PodName {
    PodName::new("orders-worker-abc").unwrap()
}

fn parsed(text: &str) -> Query {
    Query::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn resolve(side: &Operand) -> String {
    match side {
        Operand::Number => "(number)".to_owned(),
        Operand::Query(template) => template.each.show(Some(&pod())),
    }
}

/// Whether the outermost operation of `text` is a comparison with the `bool` modifier.
fn answers_for_every_series(text: &str) -> bool {
    let tree = parse(text).unwrap();
    matches!(unwrap(&tree).1, Expr::Binary(b) if b.op.is_comparison_operator() && b.return_bool())
}

#[test]
fn a_comparison_is_sent_with_bool_and_its_sides_can_be_asked_for() {
    let cases = [
        // vector and number, both ways round
        (
            r#"my_errors{pod="<<pod>>"} == 0"#,
            r#"my_errors{pod="orders-worker-abc"} == bool 0"#,
            r#"my_errors{pod="orders-worker-abc"}"#,
            "(number)",
        ),
        (
            r#"500 < rate(done{pod="<<pod>>"}[1m])"#,
            r#"500 < bool rate(done{pod="orders-worker-abc"}[1m])"#,
            "(number)",
            r#"rate(done{pod="orders-worker-abc"}[1m])"#,
        ),
        ("a>=-1.5e3", "a>= bool-1.5e3", "a", "(number)"),
        ("a > (5)", "a > bool (5)", "a", "(number)"),
        // vector and vector, with each kind of modifier
        ("a != b", "a != bool b", "a", "b"),
        (
            "a > on (pod, or) group_left (app) b * 2",
            "a > bool on (pod, or) group_left (app) b * 2",
            "a",
            "b * 2",
        ),
        (
            "a < ignoring(x) (b)",
            "a < bool ignoring(x) (b)",
            "a",
            "(b)",
        ),
        (
            "a < on(x) group_right b",
            "a < bool on(x) group_right b",
            "a",
            "b",
        ),
        // a computed number
        ("a <= scalar(b)", "a <= bool scalar(b)", "a", "scalar(b)"),
        // already bool
        ("a > bool 5", "a > bool 5", "a", "(number)"),
        (
            "scalar(a) > bool 5",
            "scalar(a) > bool 5",
            "scalar(a)",
            "(number)",
        ),
        ("a > BOOL ON(x) b", "a > BOOL ON(x) b", "a", "b"),
        // precedence
        (
            "a + b > c * d ^ 2",
            "a + b > bool c * d ^ 2",
            "a + b",
            "c * d ^ 2",
        ),
        ("-a < -5", "-a < bool -5", "-a", "(number)"),
        // parentheses around all of it, and inside
        ("((a) > 5)", "((a) > bool 5)", "(a)", "(number)"),
        ("( ( a > (b) ) )", "( ( a > bool (b) ) )", "a", "(b)"),
        ("(a or b) > 5", "(a or b) > bool 5", "(a or b)", "(number)"),
        // comparisons that are not the outermost one
        (
            "count(a > 5) > 0",
            "count(a > 5) > bool 0",
            "count(a > 5)",
            "(number)",
        ),
        (
            "(a > bool 5) == 1",
            "(a > bool 5) == bool 1",
            "(a > bool 5)",
            "(number)",
        ),
        (
            "a == bool 1 == 1",
            "a == bool 1 == bool 1",
            "a == bool 1",
            "(number)",
        ),
        // operators in strings, comments and matchers
        (
            "a{b!=\"x > 5\",c=~'\\\\d<='} > 5 # not > 6",
            "a{b!=\"x > 5\",c=~'\\\\d<='} > bool 5",
            "a{b!=\"x > 5\",c=~'\\\\d<='}",
            "(number)",
        ),
        (
            "a{b=\"ä → ≥\"}\n  > # why\n 5",
            "a{b=\"ä → ≥\"} > bool 5",
            "a{b=\"ä → ≥\"}",
            "(number)",
        ),
        // subquery, offset, at
        (
            "max_over_time(a[5m:1m] offset 1m) < a @ end()",
            "max_over_time(a[5m:1m] offset 1m) < bool a @ end()",
            "max_over_time(a[5m:1m] offset 1m)",
            "a @ end()",
        ),
    ];
    for (text, judged, left, right) in cases {
        let query = parsed(text);
        assert_eq!(
            query.judged(Some(&pod()), &Pods::default()),
            judged,
            "{text}"
        );
        assert!(
            answers_for_every_series(&query.judged(Some(&pod()), &Pods::default())),
            "{text}"
        );
        let Form::Comparison {
            left: l, right: r, ..
        } = query.form()
        else {
            panic!("{text} is a comparison");
        };
        assert_eq!(
            (resolve(l).as_str(), resolve(r).as_str()),
            (left, right),
            "{text}"
        );
    }
}

#[test]
fn a_set_operation_is_sent_as_it_is_and_knows_how_to_ask_for_its_data() {
    let cases = [
        ("a > 5 and b < 3", "(a > bool 5) or (b < bool 3)"),
        ("a or b unless on(x) c", "(a) or (b) or (c)"),
        (
            "(a > 5 AND (b or c == bool 1))",
            "(a > bool 5) or (b) or (c == bool 1)",
        ),
        // only what is about the pod tells whether the pod has data
        (
            r#"errors{pod="<<pod>>"} < 5 and on() up == 1"#,
            r#"(errors{pod="orders-worker-abc"} < bool 5)"#,
        ),
    ];
    for (text, expected) in cases {
        let query = parsed(text);
        assert_eq!(query.rule(), Rule::SetOperation, "{text}");
        assert_eq!(
            query.judged(Some(&pod()), &Pods::default()),
            query.shown(Some(&pod())),
            "{text}"
        );
        let Form::SetOperation { presence } = query.form() else {
            panic!("{text} is a set operation");
        };
        assert_eq!(presence.each.show(Some(&pod())), expected, "{text}");
    }
}

#[test]
fn only_an_inequality_is_true_of_nan() {
    assert_eq!(parsed("a != 5").rule(), Rule::Inequality);
    assert_eq!(parsed("a == 5").rule(), Rule::Comparison);
    assert_eq!(parsed("a < 5").rule(), Rule::Comparison);
}

#[test]
fn an_expression_that_names_no_pod_is_legal_and_says_so() {
    assert!(!parsed("up > 0").mentions_pod());
    assert!(!parsed("up > 0 # <<pod>>").mentions_pod());
    assert!(parsed(r#"a{pod="<<pod>>"} > 0"#).mentions_pod());
    assert!(parsed(r#"a{pod=~"<<pod>>"} > 0"#).mentions_pod());
}

#[test]
fn what_cannot_be_judged_is_refused_with_a_way_out() {
    let long = format!("a > {}", "1".repeat(9000));
    let cases: &[&str] = &[
        "",
        "  # only a comment",
        r#"rate(done{pod="<<pod>>"}[1m])"#,
        "5",
        "absent(a)",
        "sum(a > 5)",
        "min(a > bool 5)",
        "-(a > 5)",
        "(a > 5) * 2",
        "a > 5 < 10",
        "5 < (a > 3)",
        "scalar(a) > 5",
        "1 > 0",
        "a >",
        "a > > 5",
        "a > 5 6",
        "a = 5",
        "a{} b > 5",
        "nosuchfunction(a) > 5",
        "rate(a) > 5",
        "a[5m] > 5",
        "a{b=~\"(\"} > 5",
        "a[1e30] > 5",
        "rate(a[99999999999999999999y]) > 5",
        "a{b=\"\\.\"} > 5",
        "errors_<<pod>> > 5",
        r#"a{pod="<<canary>>"} > 5"#,
        r#"a{pod=~"[<<primary>>]"} > 5"#,
        "a{pod=\"x} > 5",
        "(a > 5",
        "a > 5)",
        &long,
    ];
    let refusals: Vec<String> = cases
        .iter()
        .map(|text| match Query::parse(text) {
            Ok(_) => format!("{text}\n    ACCEPTED"),
            Err(error) => format!("{text:.60}\n    {error:.300}"),
        })
        .collect();
    insta::assert_snapshot!(refusals.join("\n"));
}

/// A quarter of the stack that the smallest thread of the daemon has.
const SMALL_STACK: usize = 512 * 1024;

#[test]
fn expressions_at_the_limits_neither_overflow_the_stack_nor_panic() {
    let texts = [
        (true, format!("{}a > 5", "-".repeat(497))),
        (true, format!("{}a > 5", "a+".repeat(248))),
        (true, format!("{}a > 5", "a^".repeat(248))),
        (true, format!("5 > {}a", "a^-".repeat(165))),
        (false, format!("{}a", "a>".repeat(249))),
        (true, format!("{}a", "a or ".repeat(249))),
        (true, format!("{}a{} > 5", "(".repeat(64), ")".repeat(64))),
        (true, format!("{}a > 5{}", "(".repeat(64), ")".repeat(64))),
        (
            true,
            format!("{}a{} > 5", "abs(".repeat(64), ")".repeat(64)),
        ),
        (false, format!("{}a > 5", "-".repeat(8000))),
        (false, "(".repeat(9000)),
    ];
    for (accepted, text) in texts {
        let parse = move || (Query::parse(&text).is_ok(), text);
        let thread = std::thread::Builder::new()
            .stack_size(SMALL_STACK)
            .spawn(parse)
            .unwrap();
        let (parsed, text) = thread.join().unwrap();
        assert_eq!(parsed, accepted, "{text:.40}");
    }
}

fn selector() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("up".to_owned()),
        Just(r#"errors_total{pod="<<pod>>"}"#.to_owned()),
        Just(r#"lag{pod=~"<<pod>>", partition!="<=5"}"#.to_owned()),
        Just("x{a=`b > c`, b='\\'=='}".to_owned()),
        Just(r#"rate(done{pod="<<pod>>"}[1m])"#.to_owned()),
        Just("histogram_quantile(0.9, sum by (le, or) (rate(b[5m])))".to_owned()),
        Just("scalar(up)".to_owned()),
        Just("vector(1)".to_owned()),
    ]
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i32>().prop_map(|n| n.to_string()),
        Just("1e-3".to_owned()),
        Just("+Inf".to_owned()),
        Just("NaN".to_owned()),
        Just("0x1f".to_owned()),
    ]
}

fn operator() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "+",
        "-",
        "*",
        "/",
        "^",
        "%",
        "atan2",
        "and",
        "or",
        "unless",
        "> bool",
        "== on(pod)",
        "< ignoring(a, b)",
        "/ on(pod) group_left(app)",
        "and on(pod)",
        "!= bool on(x) group_right",
    ])
}

/// Expressions of all shapes, most of them valid.
fn promql() -> impl Strategy<Value = String> {
    prop_oneof![3 => selector(), 1 => number()].prop_recursive(5, 24, 2, |inner| {
        prop_oneof![
            6 => (inner.clone(), operator(), inner.clone(), prop::sample::select(vec![" ", "\n", " # > 1\n"]))
                .prop_map(|(left, operator, right, blank)| format!("{left}{blank}{operator} {right}")),
            2 => inner.clone().prop_map(|inner| format!("({inner})")),
            1 => inner.clone().prop_map(|inner| format!("-{inner}")),
            1 => inner.clone().prop_map(|inner| format!("sum by (pod) ({inner})")),
            1 => inner.prop_map(|inner| format!("max_over_time(({inner})[5m:1m])")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_text_whatever_makes_the_parser_panic(text in "\\PC{0,60}") {
        let _ = Query::parse(&text);
    }

    #[test]
    fn no_soup_of_promql_makes_the_parser_panic(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "a", "5", "(", ")", "{", "}", "[", "]", "[5m]", "{a=\"", "\"", "'", "`", "\\", "<<", ">>", "<<pod>>",
                "==", "!=", "=~", "<", ">", "bool", "on", "(x)", "and", "or", "unless", "group_left", ",", "sum", "by",
                "offset", "@", "#", "\n", " ", "-", "ä", "NaN", "1e999", "fill", "(1)",
            ]),
            0..24,
        )
    ) {
        let _ = Query::parse(&words.concat());
    }

    /// Whatever is accepted is sent in a form that parses for any pod; a comparison with `bool` on top, and
    /// otherwise the same tree; everything else as it was written.
    #[test]
    fn what_is_rewritten_means_the_same_and_answers_for_every_series(text in promql()) {
        let Ok(query) = Query::parse(&text) else { return Ok(()) };
        let pod = PodName::new("web-0.a").unwrap();
        let shown = parse(&query.shown(Some(&pod))).unwrap();
        let judged = parse(&query.judged(Some(&pod), &Pods::default())).unwrap();
        match query.form() {
            Form::Comparison { left, right, .. } => {
                prop_assert!(answers_for_every_series(&query.judged(Some(&pod), &Pods::default())));
                prop_assert_eq!(&judged, &returning_bool(shown));
                let (_, Expr::Binary(binary)) = unwrap(&judged) else { unreachable!() };
                for (side, tree) in [(left, &binary.lhs), (right, &binary.rhs)] {
                    if let Operand::Query(template) = side {
                        prop_assert_eq!(&parse(&template.each.show(Some(&pod))).unwrap(), tree.as_ref());
                    }
                }
            }
            Form::SetOperation { presence } => {
                prop_assert_eq!(judged, shown);
                prop_assert!(parse(&presence.each.show(Some(&pod))).is_ok());
            }
        }
    }

    /// No valid comparison or set operation is turned away because of how it is written.
    #[test]
    fn every_comparison_that_parses_is_accepted(text in promql()) {
        let tidied = tidy(&text).unwrap();
        let Ok(tree) = parse(&tidied) else { return Ok(()) };
        let refused = Query::parse(&text).err();
        let unusual = matches!(refused, Some(ExpressionError::Unsplittable { .. } | ExpressionError::Invalid { .. }));
        prop_assert!(!unusual, "{} is {:?}: {:?}", tidied, tree, refused);
    }
}

#[test]
fn the_expressions_of_a_service_are_as_its_file_has_them() {
    let text = "namespace: workers\nprometheus-base-url: http://prometheus:9090/\norders: {breakpoint: 50%, step: 10%, abort: 2m, \
                max_step_duration: 10m, check_success_step_duration: 2m, success: [{expr: a == 0}, {expr: b > 5, on_no_data: pass}]}\n";
    let loaded = Config::parse(Path::new("orders.yaml"), text, &|_| Ok(())).unwrap();
    let config = loaded.into_valid().unwrap();
    let queries = Query::of(config.services.values().next().unwrap());
    let told: Vec<(String, OnNoData)> = queries
        .iter()
        .map(|query| (query.text(), query.on_no_data()))
        .collect();
    assert_eq!(
        told,
        [
            ("a == 0".to_owned(), OnNoData::Fail),
            ("b > 5".to_owned(), OnNoData::Pass)
        ]
    );
}
