//! A simulated Kubernetes cluster: an API server behind `kube::Client`'s transport, with the controllers of Deployments
//! and ReplicaSets, the garbage collector and a stand-in for scheduler and kubelet, all under tokio's clock.
//!
//! Made for a current-thread runtime with a paused clock: hours pass in no time, and the same seed gives the same
//! timeline. The controllers are translated from Kubernetes 1.36 and read **through caches that lag separately by
//! kind**, as in production (design, facts 4 and 15).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use volery::simulate::cluster::{Cluster, Options};
//!
//! # tokio::time::pause();
//! let cluster = Cluster::start(Options { seed: 7, ..Options::default() });
//! cluster.apply(&volery::simulate::cluster::deployment("workers", "orders", 10, "orders:v1"))?;
//! cluster.settle(Duration::from_secs(60)).await;
//! assert_eq!(cluster.journal().starts("workers", "orders:v1"), 10);
//! # Ok(())
//! # }
//! ```

mod clock;
mod controllers;
mod defaults;
mod fault;
mod journal;
mod kubelet;
mod object;
mod patch;
mod random;
mod refusal;
mod rollout_status;
mod selector;
mod server;
mod shared;
mod store;
mod user;
mod watching;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

pub use self::fault::{Fault, Intercept};
pub use self::journal::{Census, Count, Journal, Moment, PodTurn, Request, Turn, Verb};
pub use self::kubelet::{
    BEHAVIOUR, Behaviour, Conduct, DOWN, Direct, EXIT_CODE, READY_AFTER, TERMINATE_AFTER, UP,
};
pub use self::object::{Controller, Key, Kind, Object};
pub use self::patch::Patch;
pub use self::refusal::Refusal;
pub use self::rollout_status::RolloutStatus;
pub use self::shared::Invariant;
pub use self::store::{Deletion, Part, Propagation};
pub use self::user::deployment;

use self::server::{Life, Service};
use self::shared::{Shared, State};
use self::store::Store;

/// How late a cache or a watch shows a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// at least this late
    pub fixed: Duration,
    /// and up to this much later, by the seed, in whole milliseconds; the order of changes is kept
    pub jitter: Duration,
}

impl Lag {
    /// Always this late.
    #[must_use]
    pub const fn of(fixed: Duration) -> Self {
        Self {
            fixed,
            jitter: Duration::ZERO,
        }
    }
}

/// How late each kind is shown; the kinds lag by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lags {
    /// Deployments
    pub deployments: Lag,
    /// ReplicaSets
    pub replica_sets: Lag,
    /// Pods
    pub pods: Lag,
    /// PodTemplates, Events and Leases
    pub others: Lag,
}

impl Lags {
    /// Every kind as late.
    #[must_use]
    pub const fn all(lag: Lag) -> Self {
        Self {
            deployments: lag,
            replica_sets: lag,
            pods: lag,
            others: lag,
        }
    }

    const fn of(&self, kind: Kind) -> Lag {
        match kind {
            Kind::Deployment => self.deployments,
            Kind::ReplicaSet => self.replica_sets,
            Kind::Pod => self.pods,
            Kind::PodTemplate | Kind::Event | Kind::Lease | Kind::Autoscaler => self.others,
        }
    }

    fn by_kind(&self) -> BTreeMap<Kind, Lag> {
        Kind::ALL
            .into_iter()
            .map(|kind| (kind, self.of(kind)))
            .collect()
    }
}

/// What a cluster is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Everything that is left to chance follows from it.
    pub seed: u64,
    /// How late the controllers' caches are.
    pub lags: Lags,
    /// How long a request takes each way, in whole milliseconds.
    pub request_time: Range<Duration>,
    /// How long a pod takes from its creation to its container's start, in whole milliseconds.
    pub start_time: Range<Duration>,
    /// How long a pod takes from its container's start to readiness, unless its template says.
    pub ready_after: Duration,
    /// How long a pod takes to end, unless its template says.
    pub terminate_after: Duration,
    /// How many nodes pods are placed on.
    pub nodes: u64,
}

impl Default for Options {
    fn default() -> Self {
        let milliseconds = Duration::from_millis;
        Self {
            seed: 0,
            lags: Lags::default(),
            request_time: milliseconds(1)..milliseconds(4),
            start_time: milliseconds(20)..milliseconds(120),
            ready_after: milliseconds(100),
            terminate_after: milliseconds(100),
            nodes: 1,
        }
    }
}

/// What a client is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Its name in the journal.
    pub agent: String,
    /// Its default namespace.
    pub namespace: String,
    /// How late its watches are.
    pub lags: Lags,
    /// It dies with the n-th write: that one is carried out and, like everything after it, never answered. 0: dead from
    /// the start; none: it lives.
    pub dies_with_write: Option<u64>,
}

impl ClientOptions {
    /// A client that lives, with watches that are not late.
    #[must_use]
    pub fn of(agent: &str) -> Self {
        Self {
            agent: agent.to_owned(),
            namespace: "default".to_owned(),
            lags: Lags::default(),
            dies_with_write: None,
        }
    }
}

/// A client's life, to be ended from outside, or waited for.
#[derive(Clone)]
pub struct Lifeline {
    life: Arc<Life>,
}

impl Lifeline {
    /// Kills the client: nothing is answered any more.
    pub fn cut(&self) {
        self.life.end();
    }

    /// Whether the client is dead.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.life.has_ended()
    }

    /// Waits until the client is dead; then its owner can be dropped and another one started.
    pub async fn cut_off(&self) {
        let ended = self.life.ended();
        if !self.life.has_ended() {
            ended.await;
        }
    }
}

/// The objects as they are at one moment.
pub struct Snapshot<'a> {
    store: &'a Store,
}

impl<'a> Snapshot<'a> {
    const fn new(store: &'a Store) -> Self {
        Self { store }
    }

    /// All objects of a kind in a namespace, in order of name.
    pub fn list(&self, kind: Kind, namespace: &'a str) -> impl Iterator<Item = &'a Object> {
        self.store.within(kind, namespace).map(Arc::as_ref)
    }

    /// One object.
    #[must_use]
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&'a Object> {
        self.store
            .find(kind, &Key::new(namespace, name))
            .map(Arc::as_ref)
    }
}

/// The parts of the cluster that run; they stop when the last handle is dropped.
struct Running {
    _tasks: JoinSet<()>,
}

/// A simulated cluster. Cheap to clone; it stops when the last clone is dropped.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
    _running: Arc<Running>,
}

impl Cluster {
    /// Starts a cluster with all its controllers. Needs a tokio runtime: current-thread with a paused clock, if the
    /// timeline is to be the same each time.
    #[must_use]
    pub fn start(options: Options) -> Self {
        let shared = Arc::new(Shared::new(options));
        let mut tasks = JoinSet::new();
        controllers::start(&shared, &mut tasks);
        tasks.spawn(kubelet::run(Arc::clone(&shared)));
        Self {
            shared,
            _running: Arc::new(Running { _tasks: tasks }),
        }
    }

    /// A client named `agent`.
    #[must_use]
    pub fn client(&self, agent: &str) -> kube::Client {
        self.client_with(ClientOptions::of(agent)).0
    }

    /// A client, and its life.
    #[must_use]
    pub fn client_with(&self, options: ClientOptions) -> (kube::Client, Lifeline) {
        let life = Arc::new(Life::of(options.dies_with_write));
        let namespace = options.namespace.clone();
        let service = Service {
            shared: Arc::clone(&self.shared),
            options: Arc::new(options),
            life: Arc::clone(&life),
        };
        (kube::Client::new(service, namespace), Lifeline { life })
    }

    /// How long the cluster has been running.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.shared.clock.elapsed()
    }

    /// Everything that happened so far.
    #[must_use]
    pub fn journal(&self) -> Journal {
        self.shared.lock().journal.clone()
    }

    /// Reads everything that happened so far without copying it.
    pub fn read_journal<R>(&self, read: impl FnOnce(&Journal) -> R) -> R {
        read(&self.shared.lock().journal)
    }

    /// Looks at the objects as they are, which takes no time and leaves no trace.
    pub fn look<R>(&self, look: impl FnOnce(&Snapshot<'_>) -> R) -> R {
        look(&Snapshot::new(&self.shared.lock().store))
    }

    /// Decides from now on what happens to each request of clients and controllers.
    pub fn intercept(&self, intercept: impl FnMut(&Request) -> Fault + Send + 'static) {
        self.shared.lock().intercept = Some(Box::new(intercept));
    }

    /// Ends the interception.
    pub fn stop_intercepting(&self) {
        self.shared.lock().intercept = None;
    }

    /// Checks something after each write from now on; what it finds is kept in [`Cluster::violations`].
    pub fn after_each_write(
        &self,
        invariant: impl FnMut(&Snapshot<'_>, &Request) -> Result<(), String> + Send + 'static,
    ) {
        self.shared.lock().invariants.push(Box::new(invariant));
    }

    /// What the invariants found, each with the write after which they found it.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.shared.lock().violations.clone()
    }

    /// From now on pods in `namespace` with this image behave like this, running ones too.
    pub fn turn_pods(&self, namespace: &str, image: &str, behaviour: Behaviour) {
        let of = (namespace.to_owned(), image.to_owned());
        self.shared.lock().orders.turned.insert(of, behaviour);
        self.shared.ring_for_pods();
    }

    /// Decides from now on what pods do, running ones too, given what their annotations and [`Cluster::turn_pods`] say.
    pub fn direct_pods(&self, direct: impl FnMut(&Object, Conduct) -> Conduct + Send + 'static) {
        self.shared.lock().orders.direct = Some(Box::new(direct));
        self.shared.ring_for_pods();
    }

    /// Changes how late the controllers see a kind, from the next change on.
    pub fn set_lag(&self, kind: Kind, lag: Lag) {
        self.change(|state| {
            state.lags.insert(kind, lag);
        });
    }

    /// Keeps the controllers from seeing any further change of a kind.
    pub fn hold(&self, kind: Kind) {
        self.change(|state| {
            state.held.insert(kind);
        });
    }

    /// Lets the controllers see a held kind again.
    pub fn let_go(&self, kind: Kind) {
        self.change(|state| {
            state.held.remove(&kind);
        });
    }

    /// Ends every watch of every client, as a restart of the server does; each can go on from where it was.
    pub fn break_watches(&self) {
        self.change(|state| state.store.break_watches());
    }

    /// Ends every watch of every client with 410, and forgets the history before now.
    pub fn expire_watches(&self) {
        self.change(|state| state.store.compact());
    }

    /// Waits until nothing has changed for two seconds and as long as the controllers' caches are late (leases and
    /// events apart), at most for `longest`.
    ///
    /// Returns whether it came to that.
    pub async fn settle(&self, longest: Duration) -> bool {
        let late = self
            .shared
            .lock()
            .lags
            .values()
            .map(|lag| lag.fixed + lag.jitter)
            .max()
            .unwrap_or_default();
        let quiet = Duration::from_secs(2) + late;
        let end = self.elapsed() + longest;
        let last = || {
            let state = self.shared.lock();
            let changes = |write: &&Request| {
                !matches!(write.kind, Kind::Lease | Kind::Event | Kind::Autoscaler)
            };
            state
                .journal
                .writes
                .iter()
                .rev()
                .find(changes)
                .map_or(Duration::ZERO, |write| write.at)
        };
        let begun = self.elapsed();
        loop {
            let quiet_at = last().max(begun) + quiet;
            if self.elapsed() >= quiet_at {
                return true;
            }
            if quiet_at > end {
                return false;
            }
            sleep(quiet_at.saturating_sub(self.elapsed())).await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.lock());
        self.shared.ring();
    }
}
