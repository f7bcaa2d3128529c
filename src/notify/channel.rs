//! One receiver: its queue, its tries.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use thiserror::Error;
use tracing::{debug, info, warn};

use super::alert::Alert;
use super::carrier::{Carrier, CarrierError, Reply};
use super::letter::{Envelope, LetterError};
use super::queue::{Queue, ROOM, Room};
use crate::chain::chain;
use crate::config::{self, ChannelName, Occasion, display_duration};
use crate::retry_after::retry_after;
use crate::telemetry::log::Clock;

/// How long one try may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// After how many failed tries in a row a channel is called dead.
const TRIES: u32 = 5;

/// The pause after a first failed try; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The pause between two tries of a channel that is dead.
const DEAD_PAUSE: Duration = Duration::from_secs(60);

/// The longest that a receiver can ask for: nothing it says switches a channel off for good.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// One of the configuration's channels.
pub(super) struct Channel {
    name: ChannelName,
    events: BTreeSet<Occasion>,
    envelope: Envelope,
    carrier: Arc<dyn Carrier>,
    clock: Clock,
    queue: Queue,
}

/// Why a try failed.
#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Letter(#[from] LetterError),
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    #[error("no answer within {}", display_duration(DEADLINE))]
    TimedOut,
    #[error("it answered HTTP {status}")]
    Status {
        status: StatusCode,
        retry_after: Option<Duration>,
    },
}

/// What a failed try says of the next one.
enum Hope {
    /// It may go better.
    Later { at_least: Duration },
    /// The receiver will never take this alert.
    None,
}

impl Failure {
    fn hope(&self) -> Hope {
        match self {
            Self::Status {
                status:
                    StatusCode::BAD_REQUEST
                    | StatusCode::PAYLOAD_TOO_LARGE
                    | StatusCode::UNPROCESSABLE_ENTITY,
                ..
            } => Hope::None,
            Self::Status { retry_after, .. } => Hope::Later {
                at_least: retry_after.unwrap_or_default(),
            },
            Self::Letter(_) | Self::Carrier(_) | Self::TimedOut => Hope::Later {
                at_least: Duration::ZERO,
            },
        }
    }
}

impl Channel {
    pub fn new(
        channel: &config::Channel,
        envelope: Envelope,
        carrier: Arc<dyn Carrier>,
        clock: Clock,
    ) -> Self {
        Self {
            name: channel.name.clone(),
            events: channel.events.clone(),
            envelope,
            carrier,
            clock,
            queue: Queue::new(),
        }
    }

    pub fn name(&self) -> &ChannelName {
        &self.name
    }

    pub fn wants(&self, event: Occasion) -> bool {
        self.events.contains(&event)
    }

    /// Never waits: when there is no room, the oldest alert is dropped.
    pub fn put(&self, alert: Arc<Alert>) {
        match self.queue.put(alert) {
            Room::Enough | Room::StillNone => {}
            Room::NoneLeft => warn!(
                "channel {}: more than {ROOM} alerts wait for it, the oldest are dropped",
                self.name
            ),
        }
    }

    pub fn close(&self) {
        self.queue.close();
    }

    /// Delivers what is told, in order, until it is closed.
    pub async fn deliver(self: Arc<Self>) {
        let mut failures = 0_u32;
        while let Some(alert) = self.queue.next().await {
            while let Err(failure) = self.send(&alert).await {
                let Hope::Later { at_least } = failure.hope() else {
                    warn!(
                        "channel {}: it does not take the alert {} ({}): {}; it is given up",
                        self.name,
                        alert.id,
                        alert.event.word(),
                        chain(&failure)
                    );
                    break;
                };
                failures = failures.saturating_add(1);
                if self.queue.is_closed() {
                    self.give_up(&failure);
                    return;
                }
                self.failed(failures, &failure);
                let pause = pause_after(failures).max(at_least).min(LONGEST_PAUSE);
                tokio::select! {
                    biased;
                    () = self.queue.closed() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
            self.works(&mut failures);
        }
    }

    async fn send(&self, alert: &Alert) -> Result<(), Failure> {
        let letter = self.envelope.letter(alert)?;
        let reply = tokio::time::timeout(DEADLINE, self.carrier.post(&letter))
            .await
            .map_err(|_| Failure::TimedOut)??;
        if reply.status.is_success() {
            return Ok(());
        }
        let retry_after = self.retry_after(&reply);
        let status = reply.status;
        Err(Failure::Status {
            status,
            retry_after,
        })
    }

    fn retry_after(&self, reply: &Reply) -> Option<Duration> {
        retry_after(reply.retry_after.as_deref()?, Some((self.clock)()))
    }

    /// A failure makes one line, never another alert.
    fn failed(&self, failures: u32, failure: &Failure) {
        if failures == TRIES {
            warn!(
                "channel {}: not delivered in {TRIES} tries: {}; alerts wait, and it is tried again every {}",
                self.name,
                chain(failure),
                display_duration(DEAD_PAUSE)
            );
        } else {
            debug!("channel {}: {}", self.name, chain(failure));
        }
    }

    fn works(&self, failures: &mut u32) {
        let was_dead = std::mem::take(failures) >= TRIES;
        let dropped = self.queue.take_dropped();
        match (was_dead, dropped) {
            (false, 0) => {}
            (_, 0) => info!("channel {}: it takes alerts again", self.name),
            (_, dropped) => info!(
                "channel {}: it takes alerts again; dropped meanwhile: {dropped}",
                self.name
            ),
        }
    }

    fn give_up(&self, failure: &Failure) {
        warn!(
            "channel {}: alerts not delivered before the end: {}: {}",
            self.name,
            self.queue.len().saturating_add(1),
            chain(failure)
        );
    }
}

fn pause_after(failures: u32) -> Duration {
    if failures >= TRIES {
        return DEAD_PAUSE;
    }
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)))
}

#[cfg(test)]
pub(crate) mod tests;
