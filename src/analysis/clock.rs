//! The time by which pauses are kept. It is tokio's, so that a test can own it.

use tokio::time::Instant;

/// Now, monotonic.
#[expect(
    clippy::disallowed_methods,
    reason = "the clock of whoever asks Prometheus"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}
