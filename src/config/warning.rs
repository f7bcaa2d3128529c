//! What is legal in a file and still foolish: told, and used as it stands.
//!
//! Everything here is derived from how the core judges a step (`rollout::judge`): checks come at once, then each
//! interval; a step ends on the first passed check after `max_step_duration`; time before an inconclusive check is not
//! time that was checked.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use thiserror::Error;

use super::choices::{AfterRollback, OnFailure};
use super::problem::Position;
use super::prometheus::PrometheusSettings;
use super::units::{Amount, Share, display_duration};
use super::{Expression, Service};

/// One thing in a file that works and hardly does what was meant.
///
/// Its `Display` is the line a person reads, without the file's name, as that of a [`Problem`](super::Problem).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where the key stands that would be changed first.
    pub at: Position,
    /// The keys that lead to it; those of `defaults` where the values come from there.
    pub path: String,
    /// What is doubtful.
    pub doubt: Doubt,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.at, self.path, self.doubt)
    }
}

/// The ways in which a file can be legal and foolish. Each says what will happen, and what may have been meant.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Doubt {
    /// The second check comes after the step should be over.
    #[error(
        "longer than max_step_duration ({}): a step has two checks, one at its beginning and one after {}, and lasts \
         that long",
        display_duration(*.step), display_duration(*.interval)
    )]
    IntervalBeyondStep {
        /// `check_success_step_duration`.
        interval: Duration,
        /// `max_step_duration`.
        step: Duration,
    },
    /// More failures than checks.
    #[error(
        "only {checks} check{} into a step (max_step_duration {}, one every {}): a version that fails now and then is \
         never rolled back, and one that fails always only after {}",
        if *.checks == 1 { " fits" } else { "s fit" },
        display_duration(*.step), display_duration(*.interval), display_duration(*.takes)
    )]
    FailuresBeyondStep {
        /// How many checks there are until `max_step_duration` is over.
        checks: u128,
        /// `max_step_duration`.
        step: Duration,
        /// `check_success_step_duration`.
        interval: Duration,
        /// How long it takes until `check_max_failures` checks have failed.
        takes: Duration,
    },
    /// The patience ends with the first interval.
    #[error(
        "not longer than the time between two checks ({}): the second check in a row without a conclusion fails the rollout, \
         however short the outage",
        display_duration(*.interval)
    )]
    PatienceWithinInterval {
        /// `check_success_step_duration`.
        interval: Duration,
    },
    /// The grace ends after the rollout.
    #[error(
        "longer than inconclusive_timeout ({}): a rollout whose pods have no series has failed before this is over",
        display_duration(*.timeout)
    )]
    GraceBeyondPatience {
        /// `inconclusive_timeout`.
        timeout: Duration,
    },
    /// The breakpoint cuts the first step.
    #[error(
        "more than the breakpoint ({breakpoint}), which cuts it: there is one checked step, to {breakpoint}; the size of \
         the steps past the breakpoint is finish_step"
    )]
    StepBeyondBreakpoint {
        /// `breakpoint`.
        breakpoint: Amount,
    },
    /// Nothing is left past the breakpoint.
    #[error("of no use with breakpoint: 100%: no step is left past the breakpoint")]
    NothingToFinish,
    /// An expression without a placeholder for the canary's pods.
    #[error(
        "\"{expression}\" names no pod of the canary, so it judges something else: write a matcher such as \
         pod=\"<<pod>>\", or pod=~\"<<canary>>\" for all of them"
    )]
    JudgesNoCanary {
        /// As written, shortened.
        expression: String,
    },
    /// What follows a rollback, where nothing is rolled back.
    #[error(
        "of no use with on_failure: freeze, which rolls nothing back: the template is restored only where somebody orders \
         volery abort"
    )]
    RestoreOfFrozen,
    /// A password or token that anybody on the way can read.
    #[error("secrets go to this host unencrypted: use https://, or send none")]
    SecretsInTheClear,
}

/// The names that an expression has for the canary's pods (design section 5).
const CANARY_PLACEHOLDERS: [&str; 2] = ["<<pod>>", "<<canary>>"];

/// How much of an expression a warning shows, in characters.
const LONGEST_SHOWN: usize = 80;

/// What is doubtful about a service, each with the keys it follows from. The one that would be changed first comes first:
/// where the file does not say it there is nothing to tell, as nobody meant anything by it.
pub(super) fn doubts(service: &Service) -> Vec<(&'static [&'static str], Doubt)> {
    let (interval, step) = (service.check_interval, service.max_step_duration);
    let mut doubts: Vec<(&[&str], Doubt)> = Vec::new();
    let checks = step.as_nanos() / interval.as_nanos().max(1) + 1;
    let failures = service.check_max_failures;
    if interval > step {
        doubts.push((
            &["check_success_step_duration", "max_step_duration"],
            Doubt::IntervalBeyondStep { interval, step },
        ));
    } else if u128::from(failures.get()) > checks {
        doubts.push((
            &[
                "check_max_failures",
                "max_step_duration",
                "check_success_step_duration",
            ],
            Doubt::FailuresBeyondStep {
                checks,
                step,
                interval,
                takes: time_to_fail(interval, failures),
            },
        ));
    }
    if service.inconclusive_timeout <= interval {
        doubts.push((
            &["inconclusive_timeout", "check_success_step_duration"],
            Doubt::PatienceWithinInterval { interval },
        ));
    }
    let timeout = service.inconclusive_timeout;
    if service.no_data_grace > timeout {
        doubts.push((
            &["no_data_grace", "inconclusive_timeout", "max_step_duration"],
            Doubt::GraceBeyondPatience { timeout },
        ));
    }
    let breakpoint = service.breakpoint;
    if is_more(service.step, breakpoint) {
        doubts.push((
            &["step", "breakpoint"],
            Doubt::StepBeyondBreakpoint { breakpoint },
        ));
    }
    if service.finish_step.is_some() && is_all(breakpoint) {
        doubts.push((&["finish_step", "breakpoint"], Doubt::NothingToFinish));
    }
    if service.on_failure == OnFailure::Freeze
        && service.restore_original == AfterRollback::RestoreTemplate
    {
        doubts.push((&["restore_original", "on_failure"], Doubt::RestoreOfFrozen));
    }
    doubts
}

/// What is doubtful about an expression.
pub(super) fn expression_doubt(expression: &Expression) -> Option<Doubt> {
    let text = expression.text();
    let names_canary = CANARY_PLACEHOLDERS
        .iter()
        .any(|placeholder| text.contains(placeholder));
    (!names_canary).then(|| Doubt::JudgesNoCanary {
        expression: shortened(text),
    })
}

/// What is doubtful about how Prometheus is asked.
pub(super) fn prometheus_doubt(settings: &PrometheusSettings) -> Option<Doubt> {
    let url = reqwest::Url::parse(settings.url.as_str()).ok()?;
    (settings.exposes_secrets() && !is_local(url.host_str()?)).then_some(Doubt::SecretsInTheClear)
}

fn is_local(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = address
        .parse::<IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    is_loopback || host == "localhost" || host.ends_with(".localhost")
}

/// Whether this is more, for every number of replicas.
fn is_more(amount: Amount, than: Amount) -> bool {
    match (amount, than) {
        (Amount::Share(amount), Amount::Share(than)) => amount > than,
        (Amount::Number(amount), Amount::Number(than)) => amount > than,
        (Amount::Share(_), Amount::Number(_)) | (Amount::Number(_), Amount::Share(_)) => false,
    }
}

fn is_all(amount: Amount) -> bool {
    matches!((amount, Share::from_percent(100)), (Amount::Share(share), Ok(all)) if share == all)
}

/// The first check comes at once.
fn time_to_fail(interval: Duration, failures: NonZeroU32) -> Duration {
    interval.saturating_mul(failures.get() - 1)
}

fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or_default()),
        None => line,
    }
}
