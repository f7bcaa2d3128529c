//! What must hold of every input, whatever it is: shared by the fuzz targets and by the test that replays their corpus
//! (`tests/fuzz_corpus.rs`).

use std::path::Path;

use promql_parser::parser;
use volery::analysis::verdict::{self, Judgement, Side};
use volery::analysis::{PodName, Pods, Query, Response, Rule};
use volery::config::{Config, ConfigError, Position};

/// The loader: any bytes are either read or told what is wrong with them, each thing at a place that the text has.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let check = |expression: &str| {
        Query::parse(expression)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    // YAML takes a carriage return by itself for the end of a line, too.
    let breaks = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines = breaks.split('\n').count();
    let stands = |at: Position, told: &str| {
        assert!(at.line >= 1 && at.column >= 1, "{told}");
        assert!(at.line <= lines + 1, "{told}: there is no such line");
        assert!(!told.contains('\n'), "{told}: more than one line");
    };
    match Config::parse(Path::new("volery.yaml"), text, &check) {
        Err(ConfigError::Invalid { problems, .. }) => {
            assert!(!problems.is_empty(), "refused without a reason");
            for problem in problems {
                stands(problem.at, &problem.to_string());
            }
        }
        Err(ConfigError::Unreadable { .. }) => panic!("nothing was read"),
        Ok(loaded) => {
            for problem in &loaded.problems {
                stands(problem.at, &problem.to_string());
            }
            for warning in &loaded.warnings {
                stands(warning.at, &warning.to_string());
            }
            for (name, service) in &loaded.config.services {
                assert!(!loaded.refused.contains(name), "{name} is used and refused");
                assert!(!service.max_step_duration.is_zero());
                assert!(!service.check_interval.is_zero());
                for expression in &service.success {
                    assert!(Query::parse(expression.text()).is_ok(), "{expression}");
                }
            }
        }
    }
}

/// Success expressions: whatever is accepted can be asked about any pod, and means the same when it is read again.
pub fn promql(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(query) = Query::parse(text) else {
        return;
    };
    assert!(!query.text().contains('\n'), "{:?}", query.text());
    let again = Query::parse(&query.text());
    assert_eq!(again.as_ref(), Ok(&query), "{text:?}");
    let names = ["a", "orders-worker-5d9f8c7b6-abcde", "0.x-y.9"];
    let pods: Vec<PodName> = names
        .iter()
        .filter_map(|name| PodName::new(name).ok())
        .collect();
    for (canary, primary) in [(&pods[..], &pods[..1]), (&pods[..1], &[][..])] {
        let all = Pods {
            canary: canary.to_vec(),
            primary: primary.to_vec(),
        };
        for pod in canary {
            let sent = query.judged(Some(pod), &all);
            assert!(!sent.contains("<<"), "{sent}");
            assert!(parser::parse(&sent).is_ok(), "{text:?} is sent as {sent}");
            let shown = query.shown(Some(pod));
            assert!(!shown.contains("<<pod>>"), "{shown}");
        }
    }
}

/// Answers of Prometheus: any bytes are an answer or none, and any answer can be judged by any rule. Nothing passes that
/// holds no sample.
pub fn response(data: &[u8]) {
    let Ok(response) = Response::read(data) else {
        return;
    };
    for rule in [Rule::Comparison, Rule::Inequality, Rule::SetOperation] {
        let side = Side::Measured(response.answer.clone());
        match verdict::judge(rule, &response.answer) {
            Judgement::Fails(failing) => {
                assert!(!failing.series.is_empty());
                assert!(failing.series.len() <= failing.compared);
                let _ = verdict::explain(&failing, &side, &Side::Number);
                let _ = verdict::explain(&failing, &side, &side);
            }
            Judgement::Differs(series) => {
                let _ = verdict::differ_by_numbers(&series, &side, &Side::Number);
            }
            Judgement::Holds => assert!(has_a_number(&response)),
            Judgement::Empty | Judgement::NotANumber | Judgement::Unusable(_) => {}
        }
    }
}

fn has_a_number(response: &Response) -> bool {
    use volery::analysis::Answer;
    match &response.answer {
        Answer::Vector(samples) => samples.iter().any(|sample| !sample.measure.is_nan()),
        Answer::Scalar(number) => !number.is_nan(),
        Answer::Text | Answer::Matrix => false,
    }
}
