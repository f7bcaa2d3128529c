//! Alerts: what happens to services, told to people by Slack and other webhooks (case K55).
//!
//! An alert never delays what it tells of: it is put into the bounded queue of each channel that wants it, and each
//! channel has a task of its own. It is tried until it is delivered, so each arrives at least once as long as the daemon
//! lives; each has an id by which a receiver can drop repeats. When the daemon is killed, what a channel has not taken
//! yet is lost, but for what the next daemon still finds under way: that is told again, under the same id.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `alert` | what is told: from what happened to the words and their id |
//! | `channel` | one receiver: its queue, its tries |
//! | `queue` | what waits for a channel |
//! | `letter` | an alert as its receiver reads it, and where it goes: secrets are looked up here |
//! | `carrier` | HTTP |

mod alert;
mod carrier;
mod channel;
mod letter;
mod queue;

use std::sync::Arc;

use tokio::task::JoinSet;
use tracing::warn;

pub use alert::{Alert, Severity};
pub use carrier::{Carrier, CarrierError, Http, Reply};
pub use letter::{Letter, LetterError};

use crate::chain::chain;
use crate::config::{self, Audience};
use crate::secret::Environment;
use crate::telemetry::log::Clock;
use channel::Channel;
use letter::Envelope;

/// The way to all channels. Cheap to clone.
#[derive(Clone)]
pub struct Alerts {
    channels: Arc<[Arc<Channel>]>,
}

impl Alerts {
    /// Nobody is told anything.
    pub fn none() -> Self {
        Self {
            channels: Arc::from([]),
        }
    }

    /// The channels of a configuration. One whose secrets are not there is told in the log and does not keep the others:
    /// it is left out for what the environment lacks; what a file lacks is looked for again with each alert.
    pub fn new<'a>(
        channels: impl IntoIterator<Item = &'a config::Channel>,
        environment: &Environment<'_>,
        carrier: &Arc<dyn Carrier>,
        clock: &Clock,
    ) -> Self {
        let mut usable = Vec::new();
        for channel in channels {
            let name = &channel.name;
            match Envelope::new(&channel.medium, environment) {
                Ok(envelope) => {
                    if let Err(error) = envelope.address() {
                        warn!(
                            "channel {name}: {}; tried again with each alert",
                            chain(&error)
                        );
                    }
                    let channel =
                        Channel::new(channel, envelope, Arc::clone(carrier), clock.clone());
                    usable.push(Arc::new(channel));
                }
                Err(error) => warn!("channel {name}: {}; nothing is sent there", chain(&error)),
            }
        }
        Self {
            channels: usable.into(),
        }
    }

    /// Whether nobody is told anything.
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Has the channels told that want to hear it. Never waits.
    pub fn tell(&self, audience: &Audience, alert: Alert) {
        let alert = Arc::new(alert);
        for channel in self.channels.iter() {
            if audience.includes(channel.name()) && channel.wants(alert.event) {
                channel.put(Arc::clone(&alert));
            }
        }
    }

    /// Starts to deliver, a task for each channel; they end when all is delivered after [`Self::close`].
    pub fn deliver(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for channel in self.channels.iter() {
            tasks.spawn(Arc::clone(channel).deliver());
        }
        tasks
    }

    /// No more will be told: what waits is tried once more.
    pub fn close(&self) {
        for channel in self.channels.iter() {
            channel.close();
        }
    }
}
