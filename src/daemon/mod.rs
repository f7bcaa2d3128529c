//! Supervision: watches, one task per service, the configuration and its changes, start and shutdown.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `supervisor` | what runs: it takes each reading of the file, and has the roster, the watches and the settings follow |
//! | `election` | which of several daemons acts |
//! | `roster` | one task per Deployment, and what each is told to do |
//! | `departure` | services that the file has no more, and when they are given back |
//! | `service` | the task of one service |
//! | `told`, `sign` | what is said of it, in the log and on X |
//! | `turns` | who may open a rollout |
//! | `clock` | the time |

mod clock;
mod departure;
mod election;
mod roster;
mod service;
mod sign;
mod supervisor;
mod told;
mod turns;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinError;

use crate::analysis::{Metrics, PrometheusError, Query};
use crate::chain::chain;
use crate::cluster::OwnPod;
use crate::config::{Config, Content, Reading};
use crate::notify::Alerts;
use crate::telemetry::health::Health;
use crate::telemetry::log::Clock;
use crate::telemetry::reloads::Reloads;
pub use election::{Candidacy, Timing};
use supervisor::Supervisor;

/// Whether the daemon goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// It does.
    Running,
    /// It ends: every task finishes the write in hand and returns.
    Ending,
}

/// Why the daemon ends by itself.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// One of its tasks broke: better no daemon than a blind one.
    #[error("a task ended that never should")]
    Task(#[source] JoinError),
    /// A watch ended.
    #[error("a watch ended that never should")]
    WatchEnded,
    /// Another daemon may lead by now. What was going on is left as it is: the next leader goes on from there.
    #[error("no longer leading: ended, to be started again and stand by")]
    Deposed,
}

/// Makes what checks ask, as a configuration says.
pub type MetricsOf = dyn Fn(&Config) -> Result<Arc<dyn Metrics>, PrometheusError> + Send + Sync;

/// Makes the way to those who are told of what happens, as a configuration says.
pub type AlertsOf = dyn Fn(&Config) -> Alerts + Send + Sync;

/// What a daemon stands on.
pub struct Ground {
    /// The cluster's API server.
    pub client: Client,
    /// Makes what checks ask: at start, and whenever what the file says of Prometheus changes.
    pub metrics: Box<MetricsOf>,
    /// Makes the way to those who are told of what happens: at start, and whenever the file's channels change. A daemon
    /// closes what it has made, when it makes another and when it ends.
    pub alerts: Box<AlertsOf>,
    /// The clock on the wall.
    pub clock: Clock,
    /// Is told when every watch has delivered its first full list.
    pub health: Health,
    /// Is told what came of each reading of the file.
    pub reloads: Reloads,
    /// Where several daemons share their work: which of them acts. None: this one is alone.
    pub candidacy: Option<Candidacy>,
    /// The daemon's own pod, where it runs in one: what is wrong with the file is told there too.
    pub pod: Option<OwnPod>,
    /// Services that are registered in the cluster and missing from a completely valid file are given back after this
    /// (design section 5).
    pub release_after: Duration,
    /// Whether it goes on.
    pub lifetime: watch::Receiver<Lifetime>,
}

/// Looks after every service that a file names, and goes along with its changes, until its lifetime ends.
///
/// `readings` holds what the file says now, and is told whenever that changes. Until something in it can be used the
/// daemon stays up, is not ready and writes nothing (design section 4, promise 8).
///
/// # Errors
///
/// When a task breaks.
pub async fn run(
    readings: watch::Receiver<Arc<Reading>>,
    ground: Ground,
) -> Result<(), DaemonError> {
    Supervisor::new(readings, ground).run().await
}

/// Reads a file with every expression checked.
///
/// # Errors
///
/// When nothing in the file can be used.
pub fn load(file: &Path) -> Reading {
    read(file, &Content::of(file))
}

/// Reads what was found where a file should be, with every expression checked.
///
/// # Errors
///
/// Those of [`load`].
pub fn read(file: &Path, content: &Content) -> Reading {
    Config::read(file, content, &|text| {
        Query::parse(text).map(drop).map_err(|error| chain(&error))
    })
}
