//! The rules of judgement: from answers to findings, from findings to a verdict. Pure: no I/O, no clock.
//!
//! The first question about an expression is answered as this table says (design section 5, cases K01, K16):
//!
//! | answer | top-level comparison (asked with `bool`) | top-level `and`, `or`, `unless` |
//! | --- | --- | --- |
//! | no sample | no data | failed if the operands have data for the pod, else no data |
//! | every sample 1 | passed | passed |
//! | samples of 1 and others | failed: each series must hold | passed: it returned a sample |
//! | 0, any other number, `+Inf`, `-Inf` | failed | passed |
//! | only `NaN`, or `NaN` and 1 | no data | no data if only `NaN`, else passed |
//! | a scalar | as one sample | unavailable |
//! | native histogram | unavailable | passed |
//! | string, matrix | unavailable | unavailable |
//! | the same series twice, nonsense | unavailable | unavailable |
//! | error, HTTP status other than 200, time-out, refused | unavailable | unavailable |
//!
//! A comparison with `NaN` is false (`!=`: true), which says nothing about the canary. So where a comparison is
//! false, and where a `!=` is true, its sides are asked for as well: a series with `NaN` on a side has no data;
//! the others are shown with their values. Where the sides cannot be had a false comparison stays failed and a true
//! `!=` is unavailable. The sides are read a moment after the answer, so they may differ from what was compared: the
//! verdict stands on the first answer, and `NaN` is all that the second look can change.
//!
//! The operands of a set operation have data when any that names the pod (when none does: any at all) returns a
//! sample, comparisons among them asked with `bool`; a `NaN` that was compared counts as data there.
//!
//! What is found becomes the verdict of the check: failed if anything failed, else inconclusive if anything is unavailable
//! or may still come, else passed. No data may still come while a pod is not ready, and while it has had none for this
//! expression in this step, for `no_data_grace`; then it is what the expression's `on_no_data` says: failed (`fail`),
//! inconclusive (`wait`), or passed (`pass`). Warnings of Prometheus are logged and change nothing.
//!
//! While the primary has no pod (the candidate has all replicas), `<<primary>>` matches nothing, so what is compared with
//! the primary's series has no data, and the text says why.

use super::answer::{Answer, Labels, Measure};
use crate::config::OnNoData;

/// How the first answer about an expression is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A comparison that `NaN` makes false: every sample must be 1.
    Comparison,
    /// `!=`, which `NaN` makes true: every sample must be 1, and no side `NaN`.
    Inequality,
    /// A set operation: there must be a sample.
    SetOperation,
}

/// What the first answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// It holds.
    Holds,
    /// These series differ from what they are compared with, unless a side is `NaN`.
    Differs(Vec<Labels>),
    /// It is false.
    Fails(Failing),
    /// There is no sample.
    Empty,
    /// There are samples and none is a number.
    NotANumber,
    /// Not an answer to this kind of question; the reason.
    Unusable(&'static str),
}

/// The series for which a comparison is false.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// Their labels, without names, in order.
    pub series: Vec<Labels>,
    /// Of how many series that were compared.
    pub compared: usize,
}

/// One side of a comparison, asked for to explain an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Side {
    /// A number in the expression itself: nothing to explain.
    Number,
    /// What Prometheus said.
    Measured(Answer),
    /// Why it cannot be told.
    Unknown(String),
}

/// What a false comparison comes to once its sides are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Explained {
    /// It is false; the rest of the sentence that starts with the expression.
    False(String),
    /// No series failed by a number: a side is `NaN`.
    NotANumber,
}

/// Reads the first answer about an expression.
#[must_use]
pub fn judge(rule: Rule, answer: &Answer) -> Judgement {
    let samples = match (rule, answer) {
        (_, Answer::Vector(samples)) => samples
            .iter()
            .map(|sample| (sample.labels.without_name(), sample.measure))
            .collect(),
        (Rule::Comparison | Rule::Inequality, Answer::Scalar(number)) => {
            vec![(Labels::default(), Measure::Number(*number))]
        }
        (Rule::SetOperation, Answer::Scalar(_)) => {
            return Judgement::Unusable("a single number instead of series");
        }
        (_, Answer::Text) => return Judgement::Unusable("a string instead of series"),
        (_, Answer::Matrix) => {
            return Judgement::Unusable("samples over time instead of one moment");
        }
    };
    if samples.is_empty() {
        return Judgement::Empty;
    }
    let without_number = samples
        .iter()
        .filter(|(_, measure)| measure.is_nan())
        .count();
    match rule {
        Rule::SetOperation if without_number < samples.len() => Judgement::Holds,
        Rule::SetOperation => Judgement::NotANumber,
        Rule::Comparison | Rule::Inequality => {
            let compared = samples.len();
            let mut series = Vec::new();
            let mut failing = Vec::new();
            for (labels, measure) in samples {
                match measure {
                    Measure::Histogram => {
                        return Judgement::Unusable("histograms instead of 0 and 1");
                    }
                    Measure::Number(1.0) => series.push(labels),
                    Measure::Number(number) if number.is_nan() => {}
                    Measure::Number(_) => failing.push(labels),
                }
            }
            // Prometheus answers in any order; people are to read the same from round to round.
            failing.sort();
            if !failing.is_empty() {
                Judgement::Fails(Failing {
                    series: failing,
                    compared,
                })
            } else if without_number > 0 {
                Judgement::NotANumber
            } else if rule == Rule::Inequality {
                Judgement::Differs(series)
            } else {
                Judgement::Holds
            }
        }
    }
}

/// Explains why a comparison is false, by the values of its sides.
#[must_use]
pub fn explain(failing: &Failing, left: &Side, right: &Side) -> Explained {
    let by_number: Vec<&Labels> = failing
        .series
        .iter()
        .filter(|labels| !left.is_nan(labels) && !right.is_nan(labels))
        .collect();
    let Some(first) = by_number.first() else {
        return Explained::NotANumber;
    };
    let at = if failing.compared == 1 {
        String::new()
    } else {
        format!(
            " for {first} ({} of {} series)",
            by_number.len(),
            failing.compared
        )
    };
    let values = match (left.says(first), right.says(first)) {
        (None, None) => String::new(),
        (Some(value), None) | (None, Some(value)) => format!(": value {value}"),
        (Some(left), Some(right)) => format!(": left side {left}, right side {right}"),
    };
    Explained::False(format!("is false{at}{values}"))
}

/// Whether `series`, found to differ, differ by numbers: `Ok(true)`; or by a `NaN`: `Ok(false)`.
///
/// # Errors
/// The reason, when a side is not known.
pub fn differ_by_numbers(series: &[Labels], left: &Side, right: &Side) -> Result<bool, String> {
    for side in [left, right] {
        match side {
            Side::Unknown(reason) => return Err(reason.clone()),
            Side::Number | Side::Measured(_) => {}
        }
    }
    Ok(!series
        .iter()
        .any(|labels| left.is_nan(labels) || right.is_nan(labels)))
}

impl Side {
    fn is_nan(&self, series: &Labels) -> bool {
        self.value(series).is_some_and(Measure::is_nan)
    }

    /// The value that was compared for `series`. A comparison's result carries the labels of the side it comes
    /// from, or those of them that were matched on.
    pub(super) fn value(&self, series: &Labels) -> Option<Measure> {
        let samples = match self {
            Self::Measured(Answer::Vector(samples)) => samples,
            Self::Measured(Answer::Scalar(number)) => return Some(Measure::Number(*number)),
            Self::Measured(Answer::Text | Answer::Matrix) | Self::Number | Self::Unknown(_) => {
                return None;
            }
        };
        let exact = samples
            .iter()
            .find(|sample| sample.labels.without_name() == *series);
        let mut related = samples.iter().filter(|sample| {
            let labels = sample.labels.without_name();
            labels.all_in(series) || series.all_in(&labels)
        });
        let only_related = related.next().filter(|_| related.next().is_none());
        exact.or(only_related).map(|sample| sample.measure)
    }

    fn says(&self, series: &Labels) -> Option<String> {
        match self {
            Self::Number => None,
            Self::Unknown(reason) => Some(format!("unknown ({reason})")),
            Self::Measured(_) => Some(
                self.value(series)
                    .map_or_else(|| "gone when asked for".to_owned(), |v| v.to_string()),
            ),
        }
    }
}

/// What was found about one expression, for one pod where the expression names a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It holds.
    Passed {
        /// The pod's name.
        pod: Option<String>,
        /// The expression as configured, the key by which findings of several rounds belong together.
        expression: String,
    },
    /// It is false.
    Failed {
        /// The pod's name.
        pod: Option<String>,
        /// The expression as configured.
        expression: String,
        /// The resolved expression with the values that make it false, for people.
        text: String,
    },
    /// Prometheus has nothing to judge by. For how long that is no evidence is for the caller to say, who knows the time
    /// (`no_data_grace`).
    NoData {
        /// The pod's name.
        pod: Option<String>,
        /// The expression as configured.
        expression: String,
        /// The resolved expression and what is missing, for people.
        text: String,
        /// What it means once the grace is over (`on_no_data` of the expression).
        then: OnNoData,
    },
    /// It could not be asked, or the answer cannot be used: no evidence either way.
    Unavailable {
        /// Why, for people.
        text: String,
    },
}

impl Finding {
    /// The pod that it is about, if about one.
    #[must_use]
    pub fn pod(&self) -> Option<&str> {
        match self {
            Self::Passed { pod, .. } | Self::Failed { pod, .. } | Self::NoData { pod, .. } => {
                pod.as_deref()
            }
            Self::Unavailable { .. } => None,
        }
    }
}

/// What one round found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// One for each expression and pod; equal reasons of unavailability once. Never empty after a round.
    pub findings: Vec<Finding>,
}

/// Whether the absence of data may still be a beginning (`no_data_grace`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// It may: inconclusive, whatever the expression says.
    Running,
    /// It is as the expression's `on_no_data` says.
    Over,
}

/// The verdict of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Everything that was asked holds.
    Passed,
    /// Something is false; what.
    Failed(Vec<String>),
    /// Nothing is false, and not everything is known to hold; why not.
    Inconclusive(Vec<String>),
}

impl CheckReport {
    /// Failed wins over inconclusive, inconclusive over passed; and nothing found at all is inconclusive (case K12).
    /// `grace` says whether a pod, if it is about one, may still be without data for an expression (case K16).
    #[must_use]
    pub fn verdict(&self, grace: impl Fn(Option<&str>, &str) -> Grace) -> Verdict {
        let mut failures = Vec::new();
        let mut doubts = Vec::new();
        for finding in &self.findings {
            match finding {
                Finding::Passed { .. } => {}
                Finding::Failed { text, .. } => failures.push(text.clone()),
                Finding::Unavailable { text } => doubts.push(text.clone()),
                Finding::NoData {
                    pod,
                    expression,
                    text,
                    then,
                } => match (grace(pod.as_deref(), expression), then) {
                    (Grace::Running, _) | (Grace::Over, OnNoData::Wait) => {
                        doubts.push(text.clone());
                    }
                    (Grace::Over, OnNoData::Fail) => failures.push(text.clone()),
                    (Grace::Over, OnNoData::Pass) => {}
                },
            }
        }
        if self.findings.is_empty() {
            doubts.push("nothing was checked".to_owned());
        }
        if !failures.is_empty() {
            Verdict::Failed(failures)
        } else if !doubts.is_empty() {
            Verdict::Inconclusive(doubts)
        } else {
            Verdict::Passed
        }
    }

    /// Drops what was found about pods that are gone by now (case K59). Their absence stays as a doubt: fewer pods
    /// were judged than were meant to be (case K12).
    pub fn drop_pods(&mut self, is_gone: impl Fn(&str) -> bool) {
        let mut gone = Vec::new();
        self.findings
            .retain(|finding| match finding.pod().filter(|pod| is_gone(pod)) {
                Some(pod) => {
                    let text = format!("pod {pod} went away during the check");
                    if !gone.contains(&text) {
                        gone.push(text);
                    }
                    false
                }
                None => true,
            });
        self.findings
            .extend(gone.into_iter().map(|text| Finding::Unavailable { text }));
    }
}

#[cfg(test)]
mod tests;
