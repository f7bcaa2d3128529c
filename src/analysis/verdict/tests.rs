use super::super::answer::{Response, Sample};
use super::*;

fn vector(samples: &[(&[(&str, &str)], f64)]) -> Answer {
    let sample = |(labels, number): &(&[(&str, &str)], f64)| Sample {
        labels: Labels::new(labels.iter().copied()),
        measure: Measure::Number(*number),
    };
    Answer::Vector(samples.iter().map(sample).collect())
}

fn numbers(numbers: &[f64]) -> Answer {
    let sample = |(index, number): (usize, &f64)| Sample {
        labels: Labels::new([("partition", index.to_string().as_str())]),
        measure: Measure::Number(*number),
    };
    Answer::Vector(numbers.iter().enumerate().map(sample).collect())
}

fn word(judgement: &Judgement) -> &'static str {
    match judgement {
        Judgement::Holds => "holds",
        Judgement::Differs(_) => "holds unless NaN",
        Judgement::Fails(_) => "fails",
        Judgement::Empty => "empty",
        Judgement::NotANumber => "no number",
        Judgement::Unusable(_) => "unusable",
    }
}

#[test]
fn the_first_answer_is_read_by_the_table() {
    let histogram = Answer::Vector(vec![Sample {
        labels: Labels::default(),
        measure: Measure::Histogram,
    }]);
    let cases = [
        ("[]", numbers(&[]), ["empty", "empty", "empty"]),
        ("1", numbers(&[1.0]), ["holds", "holds unless NaN", "holds"]),
        ("0", numbers(&[0.0]), ["fails", "fails", "holds"]),
        ("2", numbers(&[2.0]), ["fails", "fails", "holds"]),
        (
            "NaN",
            numbers(&[f64::NAN]),
            ["no number", "no number", "no number"],
        ),
        (
            "+Inf",
            numbers(&[f64::INFINITY]),
            ["fails", "fails", "holds"],
        ),
        (
            "-Inf",
            numbers(&[f64::NEG_INFINITY]),
            ["fails", "fails", "holds"],
        ),
        (
            "1, 1",
            numbers(&[1.0, 1.0]),
            ["holds", "holds unless NaN", "holds"],
        ),
        ("1, 0", numbers(&[1.0, 0.0]), ["fails", "fails", "holds"]),
        (
            "1, NaN",
            numbers(&[1.0, f64::NAN]),
            ["no number", "no number", "holds"],
        ),
        (
            "0, NaN",
            numbers(&[0.0, f64::NAN]),
            ["fails", "fails", "holds"],
        ),
        (
            "scalar 1",
            Answer::Scalar(1.0),
            ["holds", "holds unless NaN", "unusable"],
        ),
        (
            "scalar 0",
            Answer::Scalar(0.0),
            ["fails", "fails", "unusable"],
        ),
        (
            "scalar NaN",
            Answer::Scalar(f64::NAN),
            ["no number", "no number", "unusable"],
        ),
        ("histogram", histogram, ["unusable", "unusable", "holds"]),
        ("string", Answer::Text, ["unusable", "unusable", "unusable"]),
        (
            "matrix",
            Answer::Matrix,
            ["unusable", "unusable", "unusable"],
        ),
    ];
    for (name, answer, expected) in cases {
        let rules = [Rule::Comparison, Rule::Inequality, Rule::SetOperation];
        let read = rules.map(|rule| word(&judge(rule, &answer)));
        assert_eq!(read, expected, "{name}");
    }
}

#[test]
fn one_bad_partition_of_twelve_fails_and_is_named() {
    let mut values = [1.0; 12];
    values[7] = 0.0;
    let Judgement::Fails(failing) = judge(Rule::Comparison, &numbers(&values)) else {
        panic!("one of them is false");
    };
    let mut lags = [3.0; 12];
    lags[7] = 250.0;
    assert_eq!(
        explain(&failing, &Side::Measured(numbers(&lags)), &Side::Number),
        Explained::False(r#"is false for {partition="7"} (1 of 12 series): value 250"#.to_owned())
    );
}

fn failing(labels: &[(&str, &str)]) -> Failing {
    Failing {
        series: vec![Labels::new(labels.iter().copied())],
        compared: 1,
    }
}

#[test]
fn a_failure_is_told_with_the_values_that_make_it_one() {
    let errors: &[(&str, &str)] = &[("__name__", "errors"), ("pod", "a"), ("job", "x")];
    let other: &[(&str, &str)] = &[("__name__", "errors"), ("pod", "b"), ("job", "x")];
    let is_false = |rest: &str| Explained::False(format!("is false{rest}"));
    let measured = |samples| Side::Measured(vector(samples));
    let pod_a = failing(&[("pod", "a"), ("job", "x")]);
    let cases = [
        (
            &pod_a,
            measured(&[(errors, 3.0)]),
            Side::Number,
            is_false(": value 3"),
        ),
        (
            &pod_a,
            Side::Number,
            measured(&[(other, 4.0), (errors, 0.25)]),
            is_false(": value 0.25"),
        ),
        (
            &pod_a,
            measured(&[(errors, f64::INFINITY)]),
            Side::Number,
            is_false(": value +Inf"),
        ),
        (
            &pod_a,
            measured(&[(errors, 3.0)]),
            Side::Measured(Answer::Scalar(5.0)),
            is_false(": left side 3, right side 5"),
        ),
        (
            &pod_a,
            measured(&[(other, 3.0)]),
            Side::Number,
            is_false(": value gone when asked for"),
        ),
        (
            &pod_a,
            Side::Unknown("timed out".to_owned()),
            Side::Number,
            is_false(": value unknown (timed out)"),
        ),
        (&failing(&[]), Side::Number, Side::Number, is_false("")),
        // `on (pod)`: the result has fewer labels than the sides
        (
            &failing(&[("pod", "a")]),
            measured(&[(other, 4.0), (errors, 3.0)]),
            Side::Number,
            is_false(": value 3"),
        ),
        // two candidates: no guess
        (
            &failing(&[("job", "x")]),
            measured(&[(other, 4.0), (errors, 3.0)]),
            Side::Number,
            is_false(": value gone when asked for"),
        ),
        (
            &pod_a,
            measured(&[(errors, f64::NAN)]),
            Side::Number,
            Explained::NotANumber,
        ),
        (
            &pod_a,
            measured(&[(errors, 1.0)]),
            Side::Measured(Answer::Scalar(f64::NAN)),
            Explained::NotANumber,
        ),
    ];
    for (failing, left, right, expected) in cases {
        assert_eq!(
            explain(failing, &left, &right),
            expected,
            "{left:?} {right:?}"
        );
    }
}

#[test]
fn a_series_that_fails_by_a_number_is_not_excused_by_another_ones_nan() {
    let Judgement::Fails(failing) = judge(Rule::Comparison, &numbers(&[0.0, 0.0, 1.0])) else {
        panic!("two are false");
    };
    let left = Side::Measured(numbers(&[f64::NAN, 9.0, 1.0]));
    assert_eq!(
        explain(&failing, &left, &Side::Number),
        Explained::False(r#"is false for {partition="1"} (1 of 3 series): value 9"#.to_owned())
    );
}

#[test]
fn an_inequality_with_nan_has_no_data_and_an_unknown_side_gives_no_verdict() {
    let series = [Labels::new([("partition", "0")])];
    let side = |number| Side::Measured(numbers(&[number]));
    assert_eq!(
        differ_by_numbers(&series, &side(2.0), &Side::Number),
        Ok(true)
    );
    assert_eq!(
        differ_by_numbers(&series, &side(f64::NAN), &Side::Number),
        Ok(false)
    );
    assert_eq!(
        differ_by_numbers(&series, &side(2.0), &side(f64::NAN)),
        Ok(false)
    );
    let unknown = Side::Unknown("refused".to_owned());
    assert_eq!(
        differ_by_numbers(&series, &unknown, &Side::Number),
        Err("refused".to_owned())
    );
}

#[test]
fn what_a_stub_answers_in_turn_is_never_passed_by_mistake() {
    let results = [
        ("vector", "[]"),
        ("vector", r#"[{"metric":{},"value":[1,"NaN"]}]"#),
        ("vector", r#"[{"metric":{},"value":[1,"+Inf"]}]"#),
        ("scalar", r#"[1,"0"]"#),
        ("matrix", r#"[{"metric":{},"values":[[1,"1"]]}]"#),
        (
            "vector",
            r#"[{"metric":{"a":"1"},"value":[1,"1"]},{"metric":{"a":"2"},"value":[1,"0"]}]"#,
        ),
    ];
    let read = results.map(|(kind, result)| {
        let body =
            format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}"#);
        word(&judge(
            Rule::Comparison,
            &Response::read(body.as_bytes()).unwrap().answer,
        ))
    });
    assert_eq!(
        read,
        ["empty", "no number", "fails", "fails", "unusable", "fails"]
    );
}

fn passed(pod: &str) -> Finding {
    Finding::Passed {
        pod: Some(pod.to_owned()),
        expression: "e".to_owned(),
    }
}

fn failed(pod: &str) -> Finding {
    Finding::Failed {
        pod: Some(pod.to_owned()),
        expression: "e".to_owned(),
        text: format!("bad {pod}"),
    }
}

fn no_data(pod: &str, then: OnNoData) -> Finding {
    Finding::NoData {
        pod: Some(pod.to_owned()),
        expression: "e".to_owned(),
        text: format!("none {pod}"),
        then,
    }
}

fn unavailable() -> Finding {
    Finding::Unavailable {
        text: "down".to_owned(),
    }
}

#[test]
fn failed_wins_over_inconclusive_wins_over_passed() {
    let failed_with =
        |texts: &[&str]| Verdict::Failed(texts.iter().map(|t| (*t).to_owned()).collect());
    let doubtful =
        |texts: &[&str]| Verdict::Inconclusive(texts.iter().map(|t| (*t).to_owned()).collect());
    use Grace::{Over, Running};
    use OnNoData::{Fail, Pass, Wait};
    let cases = [
        (vec![], Over, doubtful(&["nothing was checked"])),
        (vec![passed("a"), passed("b")], Running, Verdict::Passed),
        (vec![passed("a"), unavailable()], Over, doubtful(&["down"])),
        (
            vec![passed("a"), failed("b")],
            Running,
            failed_with(&["bad b"]),
        ),
        (
            vec![unavailable(), failed("b"), no_data("c", Wait)],
            Over,
            failed_with(&["bad b"]),
        ),
        (
            vec![passed("a"), no_data("b", Fail)],
            Running,
            doubtful(&["none b"]),
        ),
        (
            vec![passed("a"), no_data("b", Pass)],
            Running,
            doubtful(&["none b"]),
        ),
        (
            vec![passed("a"), no_data("b", Wait)],
            Over,
            doubtful(&["none b"]),
        ),
        (
            vec![passed("a"), no_data("b", Fail)],
            Over,
            failed_with(&["none b"]),
        ),
        (vec![passed("a"), no_data("b", Pass)], Over, Verdict::Passed),
        (
            vec![no_data("a", Pass), no_data("b", Wait), no_data("c", Fail)],
            Over,
            failed_with(&["none c"]),
        ),
    ];
    for (findings, grace, expected) in cases {
        let report = CheckReport { findings };
        assert_eq!(report.verdict(|_, _| grace), expected, "{report:?}");
    }
}

#[test]
fn whether_data_may_still_come_is_asked_for_each_pod_and_expression() {
    let report = CheckReport {
        findings: vec![
            no_data("young", OnNoData::Fail),
            no_data("old", OnNoData::Fail),
        ],
    };
    let by_age = |pod: Option<&str>, expression: &str| {
        assert_eq!(expression, "e");
        if pod == Some("old") {
            Grace::Over
        } else {
            Grace::Running
        }
    };
    assert_eq!(
        report.verdict(by_age),
        Verdict::Failed(vec!["none old".to_owned()])
    );
}

#[test]
fn a_pod_that_went_away_during_the_check_neither_fails_nor_passes_it() {
    let mut report = CheckReport {
        findings: vec![
            failed("gone"),
            no_data("gone", OnNoData::Fail),
            passed("here"),
        ],
    };
    report.drop_pods(|pod| pod == "gone");
    let reason = "pod gone went away during the check".to_owned();
    assert_eq!(
        report.verdict(|_, _| Grace::Over),
        Verdict::Inconclusive(vec![reason])
    );
}

/// The core decides by these rules, also in simulated time: nothing in them may reach outside.
#[test]
fn the_rules_of_judgement_touch_neither_the_network_nor_the_clock() {
    let sources = [
        include_str!("../verdict.rs"),
        include_str!("../answer.rs"),
        include_str!("../expression.rs"),
        include_str!("../source.rs"),
        include_str!("../pod.rs"),
    ];
    for source in sources {
        for outside in [
            "tokio::",
            "reqwest::",
            "kube::",
            "std::net",
            "std::time",
            "std::fs",
            "std::env",
            "async fn",
        ] {
            assert!(!source.contains(outside), "{outside} in {:.60}", source);
        }
    }
}
