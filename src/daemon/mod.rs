//! Supervision: watches, one task per service, start and shutdown.

mod clock;
mod service;
mod sign;
mod told;
mod turns;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tracing::{info, warn};

use crate::analysis::{Metrics, Query};
use crate::chain::chain;
use crate::cluster::{Cluster, Events, Kind, NoFence, Registered};
use crate::config::{Config, Loaded, Service, display_duration};
use crate::notify::Alerts;
use crate::rollout::{Desired, Turn};
use crate::telemetry::health::Health;
use crate::telemetry::log::Clock;
use service::{ServiceTask, Shared};
use turns::Turns;

/// How long the last Events and alerts may take when the daemon ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

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
}

/// What a daemon stands on.
pub struct Ground {
    /// The cluster's API server.
    pub client: Client,
    /// Where checks ask.
    pub metrics: Arc<dyn Metrics>,
    /// Who is told of what happens. A daemon closes it when it ends.
    pub alerts: Alerts,
    /// The clock on the wall.
    pub clock: Clock,
    /// Is told when every watch has delivered its first full list.
    pub health: Health,
    /// Services that are registered in the cluster and missing from a completely valid file are given back after this
    /// (design section 5).
    pub release_after: Duration,
    /// Whether it goes on.
    pub lifetime: watch::Receiver<Lifetime>,
}

/// Runs every service of a configuration until its lifetime ends.
///
/// # Errors
///
/// When a task breaks.
pub async fn run(loaded: &Loaded, ground: Ground) -> Result<(), DaemonError> {
    let Ground {
        client,
        metrics,
        alerts,
        clock,
        health,
        release_after,
        lifetime,
    } = ground;
    let config = &loaded.config;
    let cluster = Cluster::new(client, clock, Arc::new(NoFence));
    // The file's own namespace is watched also when no entry is left in it: what is registered there must be given back.
    let namespaces: BTreeSet<String> = config
        .services
        .values()
        .map(|service| service.namespace.clone())
        .chain(config.namespace.clone())
        .collect();
    let plural = if config.services.len() == 1 { "" } else { "s" };
    info!(
        "watching {} service{plural} in {}",
        config.services.len(),
        list(&namespaces)
    );

    health.waiting("the watches have not seen everything yet");
    let mut watches = JoinSet::new();
    for namespace in &namespaces {
        for kind in Kind::ALL {
            watches.spawn(crate::cluster::watch(
                cluster.clone(),
                kind,
                namespace.clone(),
            ));
        }
    }
    let events = Events::new(cluster.clone());
    let shared = Shared {
        cluster: cluster.clone(),
        events: events.clone(),
        alerts: alerts.clone(),
        turns: Arc::new(Turns::new(
            config.max_concurrent_rollouts,
            cluster.store().clone(),
        )),
        metrics,
        poll_interval: config.poll_interval,
        lifetime: lifetime.clone(),
    };
    let mut writing = JoinSet::new();
    writing.spawn(events.clone().write());
    let mut alerting = alerts.deliver();
    let mut services = JoinSet::new();
    let mut ending = lifetime.clone();
    let work = async {
        for service in config.services.values() {
            let desired = Desired::Managed(Turn::Unasked);
            let task = ServiceTask::new(service.clone(), desired, shared.clone());
            services.spawn(task.run());
        }
        let needed = config
            .services
            .values()
            .map(|service| service.namespace.clone())
            .collect();
        cluster.store().synced(&needed).await;
        health.ready();
        cluster.store().synced(&namespaces).await;
        let leaving = leaving(loaded, &cluster.store().registered());
        if !leaving.is_empty() {
            for service in &leaving {
                info!(
                    service = service.name.as_str(),
                    "no longer in the configuration: given back in {}, unless it is there again at the next start",
                    display_duration(release_after)
                );
            }
            tokio::time::sleep(release_after).await;
        }
        for service in leaving {
            let task = ServiceTask::new(service, Desired::Released, shared.clone());
            services.spawn(task.run());
        }
        loop {
            match services.join_next().await {
                Some(Ok(())) => {}
                Some(Err(error)) => return Err(DaemonError::Task(error)),
                None => std::future::pending().await,
            }
        }
    };
    let outcome = tokio::select! {
        biased;
        outcome = work => outcome,
        ended = watches.join_next(), if !watches.is_empty() => match ended {
            Some(Err(error)) => Err(DaemonError::Task(error)),
            Some(Ok(())) | None => Err(DaemonError::WatchEnded),
        },
        _ = ending.wait_for(|lifetime| *lifetime == Lifetime::Ending) => Ok(()),
    };
    health.waiting("stopping");
    outcome?;
    while let Some(ended) = services.join_next().await {
        ended.map_err(DaemonError::Task)?;
    }
    events.close();
    alerts.close();
    let last_words = async {
        while writing.join_next().await.is_some() || alerting.join_next().await.is_some() {}
    };
    // What is not written by then is in the log.
    let _ = tokio::time::timeout(LAST_WORDS, last_words).await;
    info!("stopped; every worker runs on, and the next start goes on where this one was");
    Ok(())
}

/// The services to give back: registered, and absent from a completely valid file. A bad entry is not an absent one, and
/// a file without any service is more likely a mistake than a wish (case K49).
fn leaving(loaded: &Loaded, registered: &BTreeSet<Registered>) -> Vec<Service> {
    let config = &loaded.config;
    let known: BTreeSet<Registered> = config
        .services
        .values()
        .map(|service| Registered {
            namespace: service.namespace.clone(),
            deployment: service.deployment.clone(),
        })
        .collect();
    let leaving: Vec<&Registered> = registered.difference(&known).collect();
    if leaving.is_empty() {
        return Vec::new();
    }
    if !loaded.is_valid() || config.services.is_empty() {
        warn!(
            "{} registered services are not in {}, which is not completely valid: they stay registered",
            leaving.len(),
            loaded.file.display()
        );
        return Vec::new();
    }
    leaving
        .into_iter()
        .filter_map(|gone| Service::leaving(&gone.namespace, &gone.deployment))
        .collect()
}

fn list(namespaces: &BTreeSet<String>) -> String {
    match namespaces.len() {
        0 => "no namespace".to_owned(),
        _ => namespaces
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// Loads a file with every expression checked.
///
/// # Errors
///
/// When nothing in the file can be used.
pub fn load(path: &std::path::Path) -> Result<Loaded, crate::config::ConfigError> {
    Config::load(path, &|text| {
        Query::parse(text).map(drop).map_err(|error| chain(&error))
    })
}
