//! What Prometheus answers to an instant query.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The label that holds a metric's name.
const NAME: &str = "__name__";

/// A series' labels. Ordered, so that two of the same content are equal and print alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// Labels of these names and values.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    /// Without the metric's name, as comparisons return them.
    #[must_use]
    pub fn without_name(&self) -> Self {
        let pairs = self.0.iter().filter(|(name, _)| *name != NAME);
        Self(
            pairs
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )
    }

    /// Without labels of this value, which tell nothing where it stands beside them.
    #[must_use]
    pub fn without_value(&self, value: &str) -> Self {
        let pairs = self.0.iter().filter(|(_, known)| *known != value);
        Self(
            pairs
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )
    }

    /// Whether each label here has the same value in `other`.
    #[must_use]
    pub fn all_in(&self, other: &Self) -> bool {
        self.0
            .iter()
            .all(|(name, value)| other.0.get(name) == Some(value))
    }

    /// The value of the label `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.get(NAME).map_or("", String::as_str);
        let pairs = self.0.iter().filter(|(name, _)| *name != NAME);
        let pairs: Vec<String> = pairs
            .map(|(name, value)| format!("{name}={value:?}"))
            .collect();
        write!(f, "{name}{{{}}}", pairs.join(", "))
    }
}

/// What a sample holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measure {
    /// A number; infinities are numbers like others, NaN is the absence of one (case K16).
    Number(f64),
    /// A native histogram.
    Histogram,
}

impl Measure {
    /// Whether there is no number where one should be.
    #[must_use]
    pub fn is_nan(self) -> bool {
        matches!(self, Self::Number(number) if number.is_nan())
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) if *number == f64::INFINITY => f.write_str("+Inf"),
            Self::Number(number) if *number == f64::NEG_INFINITY => f.write_str("-Inf"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Histogram => f.write_str("a histogram"),
        }
    }
}

/// One series at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Which series.
    pub labels: Labels,
    /// Its value.
    pub measure: Measure,
}

/// The result of an instant query, by its type.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Any number of series, each one once.
    Vector(Vec<Sample>),
    /// A single number.
    Scalar(f64),
    /// A text.
    Text,
    /// Samples over time.
    Matrix,
}

/// An answer of Prometheus and what it had to say about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// The answer itself.
    pub answer: Answer,
    /// Warnings, for people; they change no verdict.
    pub warnings: Vec<String>,
}

/// Why a body is not an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Prometheus says that it could not answer.
    #[error("Prometheus answered with an error ({kind}): {message}")]
    Error {
        /// `errorType` of the body, such as `execution` or `timeout`.
        kind: String,
        /// `error` of the body.
        message: String,
    },
    /// Not what the Prometheus HTTP API is documented to send.
    #[error("the answer is not one of Prometheus ({0}); is prometheus-base-url right?")]
    Nonsense(String),
}

#[derive(Deserialize)]
struct Body {
    status: Status,
    data: Option<Data>,
    #[serde(rename = "errorType", default)]
    error_type: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Success,
    Error,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Vector(Vec<Series>),
    Scalar((f64, String)),
    String(IgnoredAny),
    Matrix(IgnoredAny),
}

#[derive(Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    value: Option<(f64, String)>,
    histogram: Option<IgnoredAny>,
}

impl Response {
    /// Reads the body of an answer to an instant query.
    ///
    /// # Errors
    /// When the body reports an error, or is not what Prometheus' HTTP API is documented to send; the same series
    /// twice included, since no rule could say which one counts.
    pub fn read(body: &[u8]) -> Result<Self, AnswerError> {
        let body: Body = serde_json::from_slice(body)
            .map_err(|error| AnswerError::Nonsense(error.to_string()))?;
        let data = match (body.status, body.data) {
            (Status::Success, Some(data)) => data,
            (Status::Success, None) => {
                return Err(AnswerError::Nonsense("it has no data".to_owned()));
            }
            (Status::Error, _) => {
                return Err(AnswerError::Error {
                    kind: body.error_type,
                    message: body.error,
                });
            }
        };
        let answer = match data {
            Data::Vector(series) => Answer::Vector(vector(series)?),
            Data::Scalar((_, value)) => Answer::Scalar(number(&value)?),
            Data::String(_) => Answer::Text,
            Data::Matrix(_) => Answer::Matrix,
        };
        Ok(Self {
            answer,
            warnings: body.warnings,
        })
    }
}

fn vector(series: Vec<Series>) -> Result<Vec<Sample>, AnswerError> {
    let mut seen = BTreeSet::new();
    let mut samples = Vec::with_capacity(series.len());
    for series in series {
        let labels = Labels(series.metric);
        let measure = match (series.value, series.histogram) {
            (Some((_, value)), None) => Measure::Number(number(&value)?),
            (None, Some(_)) => Measure::Histogram,
            (Some(_), Some(_)) | (None, None) => {
                return Err(AnswerError::Nonsense(format!("{labels} has no value")));
            }
        };
        if !seen.insert(labels.clone()) {
            return Err(AnswerError::Nonsense(format!("{labels} is in it twice")));
        }
        samples.push(Sample { labels, measure });
    }
    Ok(samples)
}

fn number(text: &str) -> Result<f64, AnswerError> {
    text.parse()
        .map_err(|_| AnswerError::Nonsense(format!("{text:?} is not a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Answer, AnswerError> {
        Response::read(body.as_bytes()).map(|response| response.answer)
    }

    fn success(kind: &str, result: &str) -> String {
        format!(
            r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result},"stats":{{}}}}}}"#
        )
    }

    #[test]
    fn every_result_type_is_read() {
        let number = |text: &str| {
            let body = success(
                "vector",
                &format!(r#"[{{"metric":{{"a":"b"}},"value":[1.5,"{text}"]}}]"#),
            );
            match read(&body) {
                Ok(Answer::Vector(samples)) => samples[0].measure.to_string(),
                other => panic!("{text}: {other:?}"),
            }
        };
        let numbers = [
            ("1", "1"),
            ("1e+06", "1000000"),
            ("+Inf", "+Inf"),
            ("-Inf", "-Inf"),
            ("NaN", "NaN"),
        ];
        for (sent, shown) in numbers {
            assert_eq!(number(sent), shown);
        }
        let histogram = r#"[{"metric":{},"histogram":[1,{"count":"1","sum":"2"}]}]"#;
        assert!(matches!(
            read(&success("vector", histogram)),
            Ok(Answer::Vector(samples)) if samples[0].measure == Measure::Histogram
        ));
        assert_eq!(read(&success("vector", "[]")), Ok(Answer::Vector(vec![])));
        assert_eq!(
            read(&success("scalar", r#"[1,"2.5"]"#)),
            Ok(Answer::Scalar(2.5))
        );
        assert_eq!(read(&success("string", r#"[1,"x"]"#)), Ok(Answer::Text));
        assert_eq!(
            read(&success("matrix", r#"[{"metric":{},"values":[[1,"1"]]}]"#)),
            Ok(Answer::Matrix)
        );
    }

    #[test]
    fn a_body_that_is_no_answer_is_never_read_as_one() {
        let twice =
            r#"[{"metric":{"a":"b"},"value":[1,"1"]},{"metric":{"a":"b"},"value":[1,"0"]}]"#;
        let bodies = [
            String::new(),
            "null".to_owned(),
            "[]".to_owned(),
            "<html>login</html>".to_owned(),
            r#"{"status":"success"}"#.to_owned(),
            r#"{"status":"perhaps","data":{"resultType":"vector","result":[]}}"#.to_owned(),
            success("tensor", "[]"),
            success("vector", "{}"),
            success("vector", r#"[{"metric":{}}]"#),
            success("vector", r#"[{"metric":{},"value":[1,"one"]}]"#),
            success("vector", r#"[{"metric":{},"value":[1,1]}]"#),
            success("vector", twice),
            success("scalar", "[]"),
            "[".repeat(100_000),
        ];
        for body in bodies {
            assert!(
                matches!(read(&body), Err(AnswerError::Nonsense(_))),
                "{:.200}",
                body
            );
        }
    }

    #[test]
    fn an_error_in_the_body_is_an_error_whatever_else_it_says() {
        let body = r#"{"status":"error","errorType":"timeout","error":"query timed out",
            "data":{"resultType":"vector","result":[]}}"#;
        let error = read(body).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Prometheus answered with an error (timeout): query timed out"
        );
    }

    #[test]
    fn warnings_are_kept_for_people() {
        let body = r#"{"status":"success","warnings":["partial"],"data":{"resultType":"vector","result":[]}}"#;
        assert_eq!(
            Response::read(body.as_bytes()).unwrap().warnings,
            ["partial"]
        );
    }
}
