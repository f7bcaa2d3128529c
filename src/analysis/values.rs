//! What an expression is judged by: the values themselves, of passing ones too, for people who look for a threshold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use futures::StreamExt as _;

use super::answer::{Answer, Labels, Measure};
use super::check::MAX_IN_FLIGHT;
use super::expression::Query;
use super::metrics::Metrics;
use super::pod::{PodName, Pods};
use super::prometheus::Unavailable;
use super::source::Comparison;
use super::verdict::Side;

/// One series, and what it is compared with, where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// Which series, without its name.
    pub series: Labels,
    /// Its value.
    pub measure: Measure,
    against: Option<(Comparison, Measure)>,
}

impl Value {
    /// Whether its comparison is true; what is not compared does not fail.
    #[must_use]
    pub fn holds(&self) -> bool {
        match (self.measure, self.against) {
            (Measure::Number(left), Some((comparison, Measure::Number(right)))) => {
                comparison.holds(left, right)
            }
            (Measure::Histogram, _) | (_, Some((_, Measure::Histogram)) | None) => true,
        }
    }
}

/// Such as `12 > 500`, without the series.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.against {
            Some((comparison, against)) => write!(f, "{} {comparison} {against}", self.measure),
            None => self.measure.fmt(f),
        }
    }
}

/// The values of one expression about one pod.
pub type Values = Result<Vec<Value>, Unavailable>;

/// The values of `query` about each of these pods, or about none in particular where it names no pod; and what Prometheus
/// had to say about them. When it falls silent, the rest is not asked.
///
/// They are read after the judgement that they explain, so they may differ from what was judged.
pub async fn values(
    metrics: &dyn Metrics,
    deadline: Duration,
    query: &Query,
    pods: &Pods,
    subjects: &[Option<&PodName>],
) -> (Vec<Values>, BTreeSet<String>) {
    let texts: BTreeSet<String> = subjects
        .iter()
        .flat_map(|pod| match query.sides(*pod, pods) {
            Some((sides, _)) => sides
                .into_iter()
                .filter(|side| number(side).is_none())
                .collect(),
            None => vec![query.judged(*pod, pods)],
        })
        .collect();
    let silence = OnceLock::new();
    let answers = texts.into_iter().map(|text| {
        let silence = &silence;
        async move {
            let answer = match silence.get() {
                Some(reason) => Err(Unavailable::clone(reason)),
                None => metrics.query(&text, deadline).await,
            };
            if let Err(reason) = &answer
                && (reason.concerns_all_queries() || matches!(reason, Unavailable::TimedOut(_)))
            {
                // Whichever of those in flight fails first tells the reason for all.
                let _ = silence.set(reason.clone());
            }
            (text, answer)
        }
    });
    let mut known = BTreeMap::new();
    let mut warnings = BTreeSet::new();
    let mut answers = futures::stream::iter(answers).buffered(MAX_IN_FLIGHT);
    while let Some((text, answer)) = answers.next().await {
        let answer = answer.map(|response| {
            warnings.extend(response.warnings);
            response.answer
        });
        known.insert(text, answer);
    }
    let side = |text: &String| match (number(text), known.get(text)) {
        (Some(number), _) => Ok(Side::Measured(Answer::Scalar(number))),
        (None, Some(answer)) => answer.clone().map(Side::Measured),
        (None, None) => Ok(Side::Number),
    };
    let values = |pod: &Option<&PodName>| match query.sides(*pod, pods) {
        Some(([left, right], comparison)) => {
            Ok(compared(&side(&left)?, comparison, &side(&right)?))
        }
        None => Ok(alone(&side(&query.judged(*pod, pods))?)),
    };
    (subjects.iter().map(values).collect(), warnings)
}

/// A number that is written as one.
fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Each series of the one side with its counterpart on the other.
fn compared(left: &Side, comparison: Comparison, right: &Side) -> Vec<Value> {
    let series: Vec<Labels> = match (series(left), series(right)) {
        (Some(series), _) | (None, Some(series)) => series,
        (None, None) => vec![Labels::default()],
    };
    let value = |series: Labels| {
        Some(Value {
            measure: left.value(&series)?,
            against: Some((comparison, right.value(&series)?)),
            series,
        })
    };
    series.into_iter().filter_map(value).collect()
}

fn alone(side: &Side) -> Vec<Value> {
    let value = |series: Labels| {
        Some(Value {
            measure: side.value(&series)?,
            against: None,
            series,
        })
    };
    series(side)
        .unwrap_or_default()
        .into_iter()
        .filter_map(value)
        .collect()
}

/// The series of a side, unless it is a single number.
fn series(side: &Side) -> Option<Vec<Labels>> {
    match side {
        Side::Measured(Answer::Vector(samples)) => Some(
            samples
                .iter()
                .map(|sample| sample.labels.without_name())
                .collect(),
        ),
        Side::Measured(Answer::Scalar(_) | Answer::Text | Answer::Matrix)
        | Side::Number
        | Side::Unknown(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::stub::{Stub, body, vector};
    use super::*;

    async fn told(expression: &str) -> Vec<String> {
        let stub = Stub::start(|query| async move {
            match query.as_str() {
                "lag{pod=\"a\"}" => vector(&[
                    (
                        &[("__name__", "lag"), ("pod", "a"), ("partition", "0")],
                        "5",
                    ),
                    (
                        &[("__name__", "lag"), ("pod", "a"), ("partition", "1")],
                        "70",
                    ),
                ]),
                "rate(done{pod=\"a\"}[1m])" => vector(&[(&[("pod", "a")], "90")]),
                "scalar(x)" => body(
                    200,
                    r#"{"status":"success","data":{"resultType":"scalar","result":[1,"100"]}}"#,
                ),
                "done{pod=\"a\"}" => vector(&[(&[("pod", "a"), ("job", "x")], "3")]),
                "all{pod=\"a\"}" => vector(&[(&[("pod", "a"), ("job", "x")], "4")]),
                "up{pod=\"a\"} or up" => {
                    vector(&[(&[("pod", "a")], "1"), (&[("pod", "b")], "NaN")])
                }
                _ => vector(&[]),
            }
        })
        .await;
        let query = Query::parse(expression).unwrap();
        let pods = Pods {
            canary: vec![PodName::new("a").unwrap()],
            primary: Vec::new(),
        };
        let subjects = [query.mentions_pod().then_some(&pods.canary[0])];
        let deadline = Duration::from_secs(60);
        let (values, _) = values(&stub.client(), deadline, &query, &pods, &subjects).await;
        assert!(
            stub.queries().iter().all(|asked| number(asked).is_none()),
            "no number is asked for: {:?}",
            stub.queries()
        );
        let [values] = &values[..] else {
            panic!("{values:?}")
        };
        let line = |value: &Value| format!("{} {value} {}", value.series, value.holds());
        values.as_ref().unwrap().iter().map(line).collect()
    }

    #[tokio::test]
    async fn each_series_is_shown_with_what_it_is_compared_with() {
        for (expression, expected) in [
            (
                "lag{pod=\"<<pod>>\"} < 50",
                &[
                    "{partition=\"0\", pod=\"a\"} 5 < 50 true",
                    "{partition=\"1\", pod=\"a\"} 70 < 50 false",
                ][..],
            ),
            (
                "50 > lag{pod=\"<<pod>>\"}",
                &[
                    "{partition=\"0\", pod=\"a\"} 50 > 5 true",
                    "{partition=\"1\", pod=\"a\"} 50 > 70 false",
                ],
            ),
            ("rate(done{pod=\"<<pod>>\"}[1m]) >= 0.9 * scalar(y)", &[]),
            (
                "rate(done{pod=\"<<pod>>\"}[1m]) >= scalar(x)",
                &["{pod=\"a\"} 90 >= 100 false"],
            ),
            (
                "done{pod=\"<<pod>>\"} == all{pod=\"<<pod>>\"}",
                &["{job=\"x\", pod=\"a\"} 3 == 4 false"],
            ),
            ("scalar(x) > bool -1e3", &["{} 100 > -1000 true"]),
            (
                "up{pod=\"<<pod>>\"} or up",
                &["{pod=\"a\"} 1 true", "{pod=\"b\"} NaN true"],
            ),
            ("nothing{pod=\"<<pod>>\"} > 0", &[]),
        ] {
            assert_eq!(told(expression).await, expected, "{expression}");
        }
    }

    #[tokio::test]
    async fn a_prometheus_that_falls_silent_is_asked_no_more() {
        let stub = Stub::start(|_| std::future::pending()).await;
        let query = Query::parse("lag{pod=\"<<pod>>\"} < 50").unwrap();
        let pods = Pods {
            canary: (0..40)
                .map(|index| PodName::new(&format!("pod-{index}")).unwrap())
                .collect(),
            primary: Vec::new(),
        };
        let subjects: Vec<Option<&PodName>> = pods.canary.iter().map(Some).collect();
        let deadline = Duration::from_millis(50);
        let (values, _) = values(&stub.client(), deadline, &query, &pods, &subjects).await;
        assert_eq!(values, vec![Err(Unavailable::TimedOut(deadline)); 40]);
        let asked = stub.asked().len();
        assert!(asked <= MAX_IN_FLIGHT, "{asked}");
    }
}
