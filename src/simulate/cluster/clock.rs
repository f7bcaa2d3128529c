//! Virtual time: tokio's (paused) clock, told as the time of day that a simulated cluster shows.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The cluster's first moment as its objects tell it: 2026-01-05T08:00:00Z, in seconds.
const FIRST_MOMENT: i64 = 1_767_600_000;

/// The cluster's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock of the simulated cluster, which is tokio's too"
    )]
    pub(super) fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// The present moment.
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock of the simulated cluster, which is tokio's too"
    )]
    pub(super) fn now(self) -> Instant {
        Instant::now()
    }

    /// How long the cluster has been running.
    pub(super) fn elapsed(self) -> Duration {
        self.now().duration_since(self.start)
    }

    /// Seconds since the Unix epoch, as the API shows times.
    pub(super) fn seconds(self) -> i64 {
        FIRST_MOMENT.saturating_add(i64::try_from(self.elapsed().as_secs()).unwrap_or(i64::MAX))
    }

    /// The present moment as an API timestamp: like the real one, whole seconds only.
    pub(super) fn timestamp(self) -> String {
        self.timestamp_in(Duration::ZERO)
    }

    /// The moment `later` from now as an API timestamp.
    pub(super) fn timestamp_in(self, later: Duration) -> String {
        let seconds = self
            .seconds()
            .saturating_add(i64::try_from(later.as_secs()).unwrap_or(i64::MAX));
        let moment = Timestamp::UNIX_EPOCH.saturating_add(SignedDuration::from_secs(seconds));
        moment.map_or_else(|_| String::new(), |moment| moment.to_string())
    }
}

/// Seconds since the Unix epoch of an API timestamp.
pub(super) fn seconds_of(timestamp: &str) -> Option<i64> {
    timestamp
        .parse::<Timestamp>()
        .ok()
        .map(Timestamp::as_second)
}
