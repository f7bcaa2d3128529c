//! One round of questions about a set of pods.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::StreamExt as _;

use super::answer::Answer;
use super::expression::{Form, Operand, Query};
use super::metrics::Metrics;
use super::pod::PodName;
use super::prometheus::Unavailable;
use super::verdict::{
    CheckReport, Explained, Finding, Judgement, Side, differ_by_numbers, explain, judge,
};

/// How many questions of one round are open at any time (case K58).
pub const MAX_IN_FLIGHT: usize = 4;

/// Asks about the canary of one rollout, round by round.
pub struct Checker {
    metrics: Arc<dyn Metrics>,
    deadline: Duration,
}

impl Checker {
    /// A checker whose questions end within `check_interval` (case K17), and as much sooner as the metrics see fit.
    #[must_use]
    pub fn new(metrics: Arc<dyn Metrics>, check_interval: Duration) -> Self {
        Self {
            metrics,
            deadline: check_interval,
        }
    }

    /// One round: every expression about every pod of `pods`, which must be the canary's live pods at this moment
    /// (case K59). Taking `&mut self` keeps the rounds of a rollout from overlapping.
    ///
    /// After a sign that Prometheus as a whole does not answer, nothing more is asked in this round; after a time-out
    /// nothing more about that expression. So a round takes at most about as many deadlines as there are expressions,
    /// not as there are pods. Dropping the future ends the round; nothing is left behind.
    pub async fn check(&mut self, queries: &[Query], pods: &[PodName]) -> CheckReport {
        if pods.is_empty() {
            let text = "there is no canary pod to check".to_owned();
            return CheckReport {
                findings: vec![Finding::Unavailable { text }],
            };
        }
        if queries.is_empty() {
            let expression = "no success expressions".to_owned();
            return CheckReport {
                findings: vec![Finding::Passed {
                    pod: None,
                    expression,
                }],
            };
        }
        let nobody_answers = OnceLock::new();
        let unanswered: Vec<OnceLock<Unavailable>> =
            queries.iter().map(|_| OnceLock::new()).collect();
        let mut questions = Vec::new();
        for (query, unanswered) in queries.iter().zip(&unanswered) {
            let about: Vec<Option<&PodName>> = if query.mentions_pod() {
                pods.iter().map(Some).collect()
            } else {
                vec![None]
            };
            for pod in about {
                let question = Question {
                    metrics: self.metrics.as_ref(),
                    deadline: self.deadline,
                    query,
                    pod,
                    nobody_answers: &nobody_answers,
                    unanswered,
                };
                questions.push(question.ask());
            }
        }
        let mut findings: Vec<Finding> = Vec::with_capacity(questions.len());
        let mut answers = futures::stream::iter(questions).buffered(MAX_IN_FLIGHT);
        while let Some(finding) = answers.next().await {
            let repeated =
                matches!(finding, Finding::Unavailable { .. }) && findings.contains(&finding);
            if !repeated {
                findings.push(finding);
            }
        }
        CheckReport { findings }
    }
}

/// One expression about one pod.
struct Question<'a> {
    metrics: &'a dyn Metrics,
    deadline: Duration,
    query: &'a Query,
    pod: Option<&'a PodName>,
    /// Set when Prometheus does not answer at all in this round.
    nobody_answers: &'a OnceLock<Unavailable>,
    /// Set when this expression was not answered in time in this round.
    unanswered: &'a OnceLock<Unavailable>,
}

impl Question<'_> {
    async fn ask(self) -> Finding {
        match self.answer().await {
            Ok(finding) => finding,
            Err(reason) if reason.concerns_all_queries() => Finding::Unavailable {
                text: reason.to_string(),
            },
            Err(reason) => Finding::Unavailable {
                text: format!("{}: {reason}", self.query.text()),
            },
        }
    }

    async fn answer(&self) -> Result<Finding, Unavailable> {
        let answer = self.evaluate(&self.query.judged(self.pod)).await?;
        match judge(self.query.rule(), &answer) {
            Judgement::Holds => Ok(self.passed()),
            Judgement::Unusable(reason) => Err(Unavailable::Unusable(reason)),
            Judgement::NotANumber => Ok(self.no_data("is NaN")),
            Judgement::Empty => match self.query.form() {
                Form::Comparison { .. } => Ok(self.no_data("has no series")),
                Form::SetOperation { presence } => {
                    match self.evaluate(&presence.resolve(self.pod)).await? {
                        Answer::Vector(samples) if samples.is_empty() => {
                            Ok(self.no_data("has no series"))
                        }
                        Answer::Vector(_) => Ok(self.failed("returned no sample")),
                        Answer::Scalar(_) | Answer::Text | Answer::Matrix => {
                            Err(Unavailable::Unusable("something else than series"))
                        }
                    }
                }
            },
            Judgement::Fails(failing) => {
                let (left, right) = self.sides().await;
                Ok(match explain(&failing, &left, &right) {
                    Explained::False(why) => self.failed(&why),
                    Explained::NotANumber => self.no_data("compares with NaN"),
                })
            }
            Judgement::Differs(series) => {
                let (left, right) = self.sides().await;
                match differ_by_numbers(&series, &left, &right) {
                    Ok(true) => Ok(self.passed()),
                    Ok(false) => Ok(self.no_data("compares with NaN")),
                    Err(_) => Err(Unavailable::Unusable(
                        "whether it differs, but not by which values",
                    )),
                }
            }
        }
    }

    async fn sides(&self) -> (Side, Side) {
        match self.query.form() {
            Form::Comparison { left, right, .. } => (self.side(left).await, self.side(right).await),
            Form::SetOperation { .. } => (Side::Number, Side::Number),
        }
    }

    async fn side(&self, operand: &Operand) -> Side {
        match operand {
            Operand::Number => Side::Number,
            Operand::Query(template) => match self.evaluate(&template.resolve(self.pod)).await {
                Ok(answer) => Side::Measured(answer),
                Err(reason) => Side::Unknown(reason.to_string()),
            },
        }
    }

    async fn evaluate(&self, text: &str) -> Result<Answer, Unavailable> {
        if let Some(reason) = self.nobody_answers.get().or_else(|| self.unanswered.get()) {
            return Err(reason.clone());
        }
        match self.metrics.query(text, self.deadline).await {
            Ok(response) => Ok(response.answer),
            Err(reason) => {
                // Whichever of the questions in flight fails first tells the reason for all.
                if reason.concerns_all_queries() {
                    let _ = self.nobody_answers.set(reason.clone());
                } else if matches!(reason, Unavailable::TimedOut(_)) {
                    let _ = self.unanswered.set(reason.clone());
                }
                Err(reason)
            }
        }
    }

    fn passed(&self) -> Finding {
        Finding::Passed {
            pod: self.pod_name(),
            expression: self.query.text(),
        }
    }

    fn failed(&self, why: &str) -> Finding {
        Finding::Failed {
            pod: self.pod_name(),
            expression: self.query.text(),
            text: self.sentence(why),
        }
    }

    fn no_data(&self, why: &str) -> Finding {
        Finding::NoData {
            pod: self.pod_name(),
            expression: self.query.text(),
            text: self.sentence(why),
        }
    }

    fn sentence(&self, why: &str) -> String {
        format!("{} {why}", self.query.shown(self.pod))
    }

    fn pod_name(&self) -> Option<String> {
        self.pod.map(|pod| pod.as_str().to_owned())
    }
}

#[cfg(test)]
mod tests;
