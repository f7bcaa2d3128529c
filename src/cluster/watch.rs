//! One watch per kind and namespace feeds the store.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use tracing::{info, warn};

use super::{Cluster, Kind, object, store};
use crate::chain::chain;

/// Fewer objects per page bound the memory of a list.
const PAGE: u32 = 500;

/// Watches one kind in one namespace for ever. Errors lead to a new list with growing pauses, never to an end (K50).
pub async fn watch(cluster: Cluster, kind: Kind, namespace: String) {
    let api = cluster.api(kind, &namespace);
    let stream = watcher(api, watcher::Config::default().page_size(PAGE)).default_backoff();
    let mut stream = std::pin::pin!(stream);
    let mut listing = BTreeSet::new();
    let mut known = 0;
    let mut newest = 0;
    let mut troubled = false;
    while let Some(event) = stream.next().await {
        if troubled
            && matches!(
                event,
                Ok(watcher::Event::InitDone | watcher::Event::Apply(_) | watcher::Event::Delete(_))
            )
        {
            info!("watch of {} in {namespace} is back", kind.plural());
            troubled = false;
            cluster.store.sees(kind, &namespace);
        }
        match event {
            Ok(watcher::Event::Init) => {
                listing.clear();
                // A list that begins now is newer than all that is known now, and may lack what is learnt meanwhile.
                newest = 0;
                known = cluster.store.newest_of(kind, &namespace);
            }
            Ok(watcher::Event::InitApply(object)) => {
                listing.insert(store::key_of(&object));
                newest = newest.max(object::version(&object.metadata));
                cluster.store.listing(kind, &object);
            }
            Ok(watcher::Event::InitDone) => {
                cluster
                    .store
                    .listed(kind, &namespace, &listing, known, newest);
                listing.clear();
            }
            Ok(watcher::Event::Apply(object)) => cluster.store.watched(kind, &object),
            Ok(watcher::Event::Delete(object)) => cluster.store.remove(kind, &object),
            Err(error) => {
                if !troubled {
                    warn!(
                        "watch of {} in {namespace} failed, trying again: {}",
                        kind.plural(),
                        chain(&error)
                    );
                }
                troubled = true;
                cluster.store.goes_blind(kind, &namespace);
            }
        }
    }
    // The stream never ends; should it, waiting keeps the caller's meaning of an end: a failure.
    tokio::time::sleep(Duration::MAX).await;
}
