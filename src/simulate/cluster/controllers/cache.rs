//! The controllers' view of the cluster: one cache per kind, each a delayed replay of the store's history.
//!
//! Deployments and ReplicaSets lag separately: a stale Deployment with a fresh ReplicaSet is what the design's gates
//! are for (design, fact 4).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::sleep_until;

use super::super::object::{Key, Kind, Object};
use super::super::shared::Shared;
use super::super::store::{Change, Occurrence};

/// What is known of one kind.
#[derive(Default)]
pub(super) struct Cache {
    pub(super) objects: BTreeMap<Key, Arc<Object>>,
    /// The revision of the last change seen.
    pub(super) revision: u64,
}

impl Cache {
    /// The objects of a namespace, in order of name.
    pub(super) fn within(&self, namespace: &str) -> Vec<Arc<Object>> {
        self.iter_within(namespace).cloned().collect()
    }

    /// The same, without a copy of the list.
    pub(super) fn iter_within<'a>(
        &'a self,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        self.objects
            .range(Key::new(namespace, "")..)
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(_, object)| object)
    }
}

/// The caches that the controllers share, as they do in one controller-manager.
#[derive(Default)]
pub(super) struct Caches {
    deployments: Mutex<Cache>,
    replica_sets: Mutex<Cache>,
    pods: Mutex<Cache>,
}

impl Caches {
    pub(super) fn deployments(&self) -> MutexGuard<'_, Cache> {
        self.deployments
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn replica_sets(&self) -> MutexGuard<'_, Cache> {
        self.replica_sets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pods(&self) -> MutexGuard<'_, Cache> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, kind: Kind) -> Option<MutexGuard<'_, Cache>> {
        match kind {
            Kind::Deployment => Some(self.deployments()),
            Kind::ReplicaSet => Some(self.replica_sets()),
            Kind::Pod => Some(self.pods()),
            Kind::PodTemplate | Kind::Event | Kind::Lease | Kind::Autoscaler => None,
        }
    }

    fn see(&self, kind: Kind, change: &Change) {
        if let Some(mut cache) = self.of(kind) {
            let key = change.object.key();
            match change.occurrence {
                Occurrence::Added | Occurrence::Modified => {
                    cache.objects.insert(key, Arc::clone(&change.object))
                }
                Occurrence::Deleted => cache.objects.remove(&key),
            };
            cache.revision = change.revision;
        }
    }
}

/// Replays one kind's history into its cache, late as the lag says, and tells the controllers.
pub(super) async fn follow(
    shared: Arc<Shared>,
    kind: Kind,
    caches: Arc<Caches>,
    mut tell: impl FnMut(&Change) + Send,
) {
    replay(shared, kind, |change| {
        caches.see(kind, change);
        tell(change);
    })
    .await;
}

/// Calls `see` with each change of a kind, in order, late as the lag says, and not while the kind is held.
pub(super) async fn replay(shared: Arc<Shared>, kind: Kind, mut see: impl FnMut(&Change) + Send) {
    let mut seen = 0;
    loop {
        let rung = shared.rung();
        let next = {
            let state = shared.lock();
            let lag = state.lags.get(&kind).copied().unwrap_or_default();
            let held = state.held.contains(&kind);
            state
                .store
                .change(kind, seen)
                .filter(|_| !held)
                .cloned()
                .map(|change| (change, lag))
        };
        let Some((change, lag)) = next else {
            rung.await;
            continue;
        };
        let due = shared.shown_at(kind, lag, &change);
        if due > shared.clock.now() {
            sleep_until(due).await;
            if shared.lock().held.contains(&kind) {
                continue;
            }
        }
        see(&change);
        seen += 1;
    }
}
