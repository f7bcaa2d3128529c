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

/// Measures the time since a service's state was written, or first read by this process.
#[derive(Default)]
pub(super) struct Stopwatch {
    running: Option<(State, Instant)>,
    /// When the decision was taken that is being written now.
    deciding: Option<Instant>,
}

impl Stopwatch {
    /// The time since the observed state was written. A state not seen before starts the watch anew: at the moment of the
    /// decision that led to it, when it was this process's, so that no time is lost in writing it.
    pub fn since(&mut self, observation: &Observation, now: Instant) -> Duration {
        let Some(state) = observation
            .state
            .as_ref()
            .and_then(|object| object.state.as_ref().ok())
        else {
            self.running = None;
            return Duration::ZERO;
        };
        match &self.running {
            Some((known, started)) if known == state => now.saturating_duration_since(*started),
            Some(_) | None => {
                let started = self.deciding.take().unwrap_or(now);
                self.running = Some((state.clone(), started));
                now.saturating_duration_since(started)
            }
        }
    }

    /// A decision taken at `moment` is about to be written.
    pub fn decided(&mut self, moment: Instant) {
        self.deciding = Some(moment);
    }
}
