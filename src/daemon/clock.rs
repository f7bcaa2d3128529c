//! The one place that reads the time. It is tokio's, so a simulation can own it.

use std::time::Duration;

pub(super) use tokio::time::Instant;

use crate::rollout::Observation;
use crate::rollout::state::State;

/// Now, monotonic.
#[expect(clippy::disallowed_methods, reason = "the clock of the whole daemon")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Waits for a moment; for ever where there is none.
pub(super) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Whether the watches of a service's namespace see what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// They do.
    Clear,
    /// At least one of them failed and is not back yet: nothing can be held against a candidate meanwhile.
    Blind,
}

/// Measures the time since a service's state was written, or first read by this process; only time in which something
/// could be seen counts (design section 4, promise 5; case K52).
#[derive(Default)]
pub(super) struct Stopwatch {
    running: Option<Running>,
    /// When the decision was taken that is being written now.
    deciding: Option<Instant>,
}

struct Running {
    state: State,
    counted: Duration,
    looked: Instant,
}

impl Stopwatch {
    /// The time since the observed state was written. A state not seen before starts the watch anew: at the moment of the
    /// decision that led to it, when it was this process's, so that no time is lost in writing it.
    pub fn since(&mut self, observation: &Observation, sight: Sight, now: Instant) -> Duration {
        let Some(state) = observation
            .state
            .as_ref()
            .and_then(|object| object.state.as_ref().ok())
        else {
            self.running = None;
            return Duration::ZERO;
        };
        if self
            .running
            .as_ref()
            .is_none_or(|running| running.state != *state)
        {
            let looked = self.deciding.take().unwrap_or(now);
            self.running = Some(Running {
                state: state.clone(),
                counted: Duration::ZERO,
                looked,
            });
        }
        let Some(running) = &mut self.running else {
            return Duration::ZERO;
        };
        if sight == Sight::Clear {
            running.counted += now.saturating_duration_since(running.looked);
        }
        running.looked = now;
        running.counted
    }

    /// A decision taken at `moment` is about to be written.
    pub fn decided(&mut self, moment: Instant) {
        self.deciding = Some(moment);
    }

    /// The write failed: the state stays the one it was, or is found to be another.
    pub fn not_written(&mut self) {
        self.deciding = None;
    }
}
