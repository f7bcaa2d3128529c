//! Judging a candidate: `PromQL` templating, the Prometheus client, verdicts.
//!
//! # How a check is judged
//!
//! 1. **At load** each success expression becomes a [`Query`]: parsed, its placeholders checked, its outermost
//!    operation found. It must be a comparison or a set operation; anything else is refused with a suggestion. A
//!    comparison gets the `bool` modifier, so that every series it compares answers 1 or 0: a false one is not
//!    confused with a missing one, and one good partition of twelve does not pass.
//! 2. **A round** ([`Checker::check`]) starts from the rollout's live pods. Every expression is asked about every canary
//!    pod, as an instant query without `time`: all pods in one query where the answer can be told apart ([`batch`] proves
//!    it), else pod by pod; one that names no pod is asked once. At most [`check::MAX_IN_FLIGHT`] queries are open at
//!    once. A false comparison is asked for the values of its sides too, for the log line.
//! 3. **Each answer** becomes a [`Finding`] by the table in [`verdict`]: passed, failed, no data, or unavailable.
//!    Whatever goes wrong between here and Prometheus is unavailable: never passed and never failed.
//! 4. **The findings** become one [`Verdict`]: failed wins over inconclusive, inconclusive over passed. What no data
//!    means depends on time, so the caller says it. A round without pods is inconclusive.
//!
//! Steps 1, 3 and 4 are pure. The core needs [`verdict`] only. For people who look for a threshold [`values()`] tells what
//! passing expressions are judged by, too.

mod answer;
mod batch;
pub mod check;
mod clock;
mod expression;
mod metrics;
mod pod;
mod prometheus;
mod source;
#[cfg(test)]
mod stub;
mod values;
pub mod verdict;

pub use answer::{Answer, AnswerError, Labels, Measure, Response, Sample};
pub use check::Checker;
pub use expression::{ExpressionError, Query};
pub use metrics::{Metrics, NoMetrics, metrics};
pub use pod::{NO_POD, PodName, PodNameError, Pods, Role};
pub use prometheus::{MAX_BODY, Prometheus, PrometheusError, Unavailable};
pub use source::SourceError;
pub use values::{Value, Values, values};
pub use verdict::{CheckReport, Finding, Grace, Rule, Verdict};
