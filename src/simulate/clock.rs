//! The virtual time of day, for logs.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::telemetry::log;

/// The first moment of a simulated cluster: 2026-01-05T08:00:00Z.
const FIRST_MOMENT: Timestamp = Timestamp::constant(1_767_600_000, 0);

/// A clock that shows a simulated cluster's first moment now and goes with tokio's.
#[expect(
    clippy::disallowed_methods,
    reason = "the clock of the simulation, which is tokio's too"
)]
pub fn start() -> log::Clock {
    let start = Instant::now();
    Arc::new(move || at(Instant::now().duration_since(start)))
}

/// The time of day so long after the first moment.
pub fn at(elapsed: Duration) -> Timestamp {
    SignedDuration::try_from(elapsed)
        .ok()
        .and_then(|elapsed| FIRST_MOMENT.checked_add(elapsed).ok())
        .unwrap_or(FIRST_MOMENT)
}
