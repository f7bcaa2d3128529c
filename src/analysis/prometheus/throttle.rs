//! Until when a Prometheus that has too much to do is not asked (case K58).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::Unavailable;
use crate::analysis::clock;

/// The pause after a first refusal that does not say how long; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause, whatever `Retry-After` says: who is not asked for as long as `inconclusive_timeout` has failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Shared by everyone who asks the same Prometheus.
#[derive(Default)]
pub(super) struct Throttle(Mutex<State>);

#[derive(Default)]
struct State {
    /// Without an answer between them. Questions that were under way together count once.
    refusals: u32,
    pause: Option<Pause>,
}

struct Pause {
    until: Instant,
    reason: Unavailable,
}

/// Leave to ask one question, by how many refusals there were when it was given.
#[derive(Clone, Copy)]
pub(super) struct Leave(u32);

impl Throttle {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leave to ask, or the reason why there is none yet.
    pub fn leave(&self) -> Result<Leave, Unavailable> {
        let state = self.lock();
        match &state.pause {
            Some(pause) if clock::now() < pause.until => Err(pause.reason.clone()),
            Some(_) | None => Ok(Leave(state.refusals)),
        }
    }

    /// There was an answer.
    pub fn answered(&self, leave: Leave) {
        let mut state = self.lock();
        if leave.0 == state.refusals {
            *state = State::default();
        }
    }

    /// There was none, and perhaps the wish not to be asked for so long.
    pub fn refused(
        &self,
        leave: Leave,
        status: StatusCode,
        message: String,
        wish: Option<Duration>,
    ) -> Unavailable {
        let mut state = self.lock();
        if leave.0 == state.refusals {
            state.refusals = state.refusals.saturating_add(1);
        }
        let doublings = state.refusals.saturating_sub(1);
        let own = FIRST_PAUSE
            .saturating_mul(2_u32.saturating_pow(doublings))
            .min(LONGEST_PAUSE);
        let pause = wish.unwrap_or(own).min(LONGEST_PAUSE);
        let reason = Unavailable::Throttled {
            status: status.as_u16(),
            message,
            pause,
        };
        let until = clock::now() + pause;
        if state.pause.as_ref().is_none_or(|known| known.until < until) {
            state.pause = Some(Pause {
                until,
                reason: reason.clone(),
            });
        }
        reason
    }
}
