//! One round of questions about a set of pods.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::Semaphore;

use super::answer::Answer;
use super::batch::{MAX_PODS, Request};
use super::expression::{Form, Operand, Query};
use super::metrics::Metrics;
use super::pod::{PodName, Pods, Role};
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

    /// One round: every expression about every canary pod of `pods`, which must be the live ones at this moment (case
    /// K59). Taking `&mut self` keeps the rounds of a rollout from overlapping.
    ///
    /// After a sign that Prometheus as a whole does not answer, nothing more is asked in this round; after a time-out
    /// nothing more about that expression. So a round takes at most about as many deadlines as there are expressions,
    /// not as there are pods. Dropping the future ends the round; nothing is left behind.
    pub async fn check(&mut self, queries: &[Query], pods: &Pods) -> CheckReport {
        if pods.canary.is_empty() {
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
        let round = Round {
            metrics: self.metrics.as_ref(),
            deadline: self.deadline,
            pods,
            places: Semaphore::new(MAX_IN_FLIGHT),
            nobody_answers: OnceLock::new(),
        };
        let questions = queries.iter().map(|query| {
            let question = Question {
                round: &round,
                query,
                unanswered: OnceLock::new(),
            };
            async move { question.ask().await }
        });
        let mut findings: Vec<Finding> = Vec::new();
        for finding in join_all(questions).await.into_iter().flatten() {
            let repeated =
                matches!(finding, Finding::Unavailable { .. }) && findings.contains(&finding);
            if !repeated {
                findings.push(finding);
            }
        }
        CheckReport { findings }
    }
}

/// What the questions of one round share.
struct Round<'a> {
    metrics: &'a dyn Metrics,
    deadline: Duration,
    pods: &'a Pods,
    /// One for each query in flight.
    places: Semaphore,
    /// Set when Prometheus does not answer at all in this round.
    nobody_answers: OnceLock<Unavailable>,
}

/// What a question is about: a pod, or nothing in particular.
type Subject<'a> = Option<&'a PodName>;

/// One expression in one round.
struct Question<'a> {
    round: &'a Round<'a>,
    query: &'a Query,
    /// Set when this expression was not answered in time in this round.
    unanswered: OnceLock<Unavailable>,
}

impl Question<'_> {
    /// What is found about each canary pod, in their order; or once, where the expression names no pod.
    async fn ask(&self) -> Vec<Finding> {
        let subjects = self.query.subjects(self.round.pods);
        let answers = self.answers(self.query.request(), &subjects).await;
        let judgements: Vec<Result<Judgement, Unavailable>> = answers
            .into_iter()
            .map(|answer| answer.map(|answer| judge(self.query.rule(), &answer)))
            .collect();
        let among = |wanted: fn(&Judgement) -> bool| -> Vec<Subject<'_>> {
            let judged = subjects.iter().zip(&judgements);
            judged
                .filter(|(_, judgement)| judgement.as_ref().is_ok_and(wanted))
                .map(|(subject, _)| *subject)
                .collect()
        };
        let silent = among(|judgement| matches!(judgement, Judgement::Empty));
        let doubtful =
            among(|judgement| matches!(judgement, Judgement::Fails(_) | Judgement::Differs(_)));
        let mut presences = self.presences(&silent).await.into_iter();
        let mut sides = self.sides(&doubtful).await.into_iter();
        let mut findings = Vec::with_capacity(subjects.len());
        for (subject, judgement) in subjects.iter().zip(judgements) {
            let about = About {
                query: self.query,
                pods: self.round.pods,
                pod: *subject,
            };
            let finding = match judgement {
                Err(reason) => Err(reason),
                Ok(Judgement::Holds) => Ok(about.passed()),
                Ok(Judgement::Unusable(reason)) => Err(Unavailable::Unusable(reason)),
                Ok(Judgement::NotANumber) => Ok(about.no_data("is NaN")),
                Ok(Judgement::Empty) => presences.next().map_or_else(
                    || Ok(about.no_data("has no series")),
                    |presence| about.empty(presence),
                ),
                Ok(Judgement::Fails(failing)) => {
                    let (left, right) = sides.next().unwrap_or((Side::Number, Side::Number));
                    Ok(match explain(&failing, &left, &right) {
                        Explained::False(why) => about.failed(&why),
                        Explained::NotANumber => about.no_data("compares with NaN"),
                    })
                }
                Ok(Judgement::Differs(series)) => {
                    let (left, right) = sides.next().unwrap_or((Side::Number, Side::Number));
                    match differ_by_numbers(&series, &left, &right) {
                        Ok(true) => Ok(about.passed()),
                        Ok(false) => Ok(about.no_data("compares with NaN")),
                        Err(_) => Err(Unavailable::Unusable(
                            "whether it differs, but not by which values",
                        )),
                    }
                }
            };
            findings.push(finding.unwrap_or_else(|reason| about.unavailable(&reason)));
        }
        findings
    }

    /// Whether the operands of a set operation have data for each of `subjects`; nothing for a comparison, which answers
    /// wherever there is data.
    async fn presences(&self, subjects: &[Subject<'_>]) -> Vec<Result<Answer, Unavailable>> {
        match self.query.form() {
            Form::SetOperation { presence } => self.answers(presence, subjects).await,
            Form::Comparison { .. } => Vec::new(),
        }
    }

    /// The values of both sides of a comparison for each of `subjects`.
    async fn sides(&self, subjects: &[Subject<'_>]) -> Vec<(Side, Side)> {
        match self.query.form() {
            Form::Comparison { left, right, .. } => {
                let left = self.side(left, subjects).await;
                let right = self.side(right, subjects).await;
                left.into_iter().zip(right).collect()
            }
            Form::SetOperation { .. } => Vec::new(),
        }
    }

    async fn side(&self, operand: &Operand, subjects: &[Subject<'_>]) -> Vec<Side> {
        match operand {
            Operand::Number => vec![Side::Number; subjects.len()],
            Operand::Query(request) => {
                let answers = self.answers(request, subjects).await;
                let side = |answer: Result<Answer, Unavailable>| match answer {
                    Ok(answer) => Side::Measured(answer),
                    Err(reason) => Side::Unknown(reason.to_string()),
                };
                answers.into_iter().map(side).collect()
            }
        }
    }

    /// The answer for each of `subjects`, in their order, with as few queries as it takes.
    async fn answers(
        &self,
        request: &Request,
        subjects: &[Subject<'_>],
    ) -> Vec<Result<Answer, Unavailable>> {
        if subjects.len() > 1 && !request.each.mentions_pod() {
            let answer = self
                .evaluate(&request.each.resolve(None, self.round.pods))
                .await;
            return vec![answer; subjects.len()];
        }
        let mut answers = Vec::with_capacity(subjects.len());
        for subjects in subjects.chunks(MAX_PODS) {
            let answered = match self.at_once(request, subjects).await {
                AtOnce::Answered(answered) => answered,
                AtOnce::OneByOne => self.one_by_one(request, subjects).await,
                AtOnce::FirstOne => self.first_and_others(request, subjects).await,
            };
            answers.extend(answered);
        }
        answers
    }

    /// The answer for each of `subjects` from a single query, if there is such a query, and the answer can be told apart.
    async fn at_once(&self, request: &Request, subjects: &[Subject<'_>]) -> AtOnce {
        let Some(batch) = request.batch.as_ref().filter(|_| subjects.len() > 1) else {
            return AtOnce::OneByOne;
        };
        let pods: Vec<&PodName> = subjects.iter().copied().flatten().collect();
        match self.evaluate(&batch.resolve(&pods, self.round.pods)).await {
            Ok(answer) => match batch.split(answer, &pods) {
                Some(split) => AtOnce::Answered(split.into_iter().map(Ok).collect()),
                None => AtOnce::OneByOne,
            },
            Err(reason) => match blame(&reason) {
                Blame::Query => AtOnce::OneByOne,
                Blame::QueryOrPrometheus => AtOnce::FirstOne,
                Blame::Prometheus => AtOnce::Answered(vec![Err(reason); subjects.len()]),
            },
        }
    }

    /// Asks about the others only if the first one is answered.
    async fn first_and_others(
        &self,
        request: &Request,
        subjects: &[Subject<'_>],
    ) -> Vec<Result<Answer, Unavailable>> {
        let Some((first, others)) = subjects.split_first() else {
            return Vec::new();
        };
        let mut answers = self.one_by_one(request, &[*first]).await;
        match answers.first() {
            Some(Err(reason)) => answers.extend(vec![Err(reason.clone()); others.len()]),
            Some(Ok(_)) | None => answers.extend(self.one_by_one(request, others).await),
        }
        answers
    }

    async fn one_by_one(
        &self,
        request: &Request,
        subjects: &[Subject<'_>],
    ) -> Vec<Result<Answer, Unavailable>> {
        let each = subjects.iter().map(|subject| async {
            let text = request.each.resolve(*subject, self.round.pods);
            let answer = self.evaluate(&text).await;
            if let Err(reason @ Unavailable::TimedOut(_)) = &answer {
                let _ = self.unanswered.set(reason.clone());
            }
            answer
        });
        join_all(each).await
    }

    async fn evaluate(&self, text: &str) -> Result<Answer, Unavailable> {
        // Nobody closes it.
        let _place = self.round.places.acquire().await;
        let nobody_answers = &self.round.nobody_answers;
        if let Some(reason) = nobody_answers.get().or_else(|| self.unanswered.get()) {
            return Err(reason.clone());
        }
        match self.round.metrics.query(text, self.round.deadline).await {
            Ok(response) => Ok(response.answer),
            Err(reason) => {
                // Whichever of the questions in flight fails first tells the reason for all.
                if reason.concerns_all_queries() {
                    let _ = nobody_answers.set(reason.clone());
                }
                Err(reason)
            }
        }
    }
}

/// What came of a question about many pods at once.
enum AtOnce {
    /// The answer for each.
    Answered(Vec<Result<Answer, Unavailable>>),
    /// They must be asked about one by one.
    OneByOne,
    /// Likewise, if the first one is answered.
    FirstOne,
}

/// What may be the cause when a question about many pods has no answer.
enum Blame {
    /// It was too large, or Prometheus could not evaluate it, as when two series match the same one (400 and 422 by its
    /// API; 413 and 414 by proxies): about fewer pods it may.
    Query,
    /// It took too long, or something in the data of a pod is broken; or Prometheus is in trouble (503 is its answer to a
    /// time-out, 500 to broken storage).
    QueryOrPrometheus,
    /// Prometheus, whatever the question.
    Prometheus,
}

fn blame(reason: &Unavailable) -> Blame {
    match reason {
        Unavailable::TooLarge
        | Unavailable::Status {
            status: 400 | 413 | 414 | 422,
            ..
        } => Blame::Query,
        Unavailable::TimedOut(_)
        | Unavailable::Answer(_)
        | Unavailable::Status {
            status: 500 | 502..=504,
            ..
        } => Blame::QueryOrPrometheus,
        Unavailable::Status { .. }
        | Unavailable::Unreachable(_)
        | Unavailable::Redirected(_)
        | Unavailable::Throttled { .. }
        | Unavailable::NoAccess(_)
        | Unavailable::Unusable(_) => Blame::Prometheus,
    }
}

/// What a finding is about.
struct About<'a> {
    query: &'a Query,
    pods: &'a Pods,
    pod: Subject<'a>,
}

impl About<'_> {
    /// A set operation returned nothing, and `presence` is what there is of its operands.
    fn empty(&self, presence: Result<Answer, Unavailable>) -> Result<Finding, Unavailable> {
        match presence? {
            Answer::Vector(samples) if samples.is_empty() => Ok(self.no_data("has no series")),
            Answer::Vector(_) => Ok(self.failed("returned no sample")),
            Answer::Scalar(_) | Answer::Text | Answer::Matrix => {
                Err(Unavailable::Unusable("something else than series"))
            }
        }
    }

    fn unavailable(&self, reason: &Unavailable) -> Finding {
        let text = if reason.concerns_all_queries() {
            reason.to_string()
        } else {
            format!("{}: {reason}", self.query.text())
        };
        Finding::Unavailable { text }
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
            text: format!("{}{}", self.sentence(why), self.missing()),
            then: self.query.on_no_data(),
        }
    }

    /// What may be why there is no data: a role that the expression names and that has no pod.
    fn missing(&self) -> &'static str {
        let is_missing = |role| self.query.mentions(role) && self.pods.of(role).is_empty();
        if is_missing(Role::Primary) {
            " (the primary has no pod)"
        } else {
            ""
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
