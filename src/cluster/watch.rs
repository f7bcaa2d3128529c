//! One watch per kind and namespace feeds the store.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::watcher::{self, DefaultBackoff, watcher};
use tracing::{info, warn};

use super::{Cluster, Kind, object, store};
use crate::chain::chain;

/// Fewer objects per page bound the memory of a list.
const PAGE: u32 = 500;

/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Watches one kind in one namespace for ever. Errors lead to a new list with growing pauses, never to an end (K50).
///
/// A new list, also where the watch could go on from where it was: only what comes says that something can be seen again,
/// and where nothing changes nothing else would come, so that no time would count for ever.
pub async fn watch(cluster: Cluster, kind: Kind, namespace: String) {
    let mut pauses = DefaultBackoff::default();
    let mut sight = Sight::Clear;
    loop {
        watch_until_it_fails(&cluster, kind, &namespace, &mut sight).await;
        tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
    }
}

/// Whether the watch sees what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    Clear,
    Blind,
}

async fn watch_until_it_fails(cluster: &Cluster, kind: Kind, namespace: &str, sight: &mut Sight) {
    let api = cluster.api(kind, namespace);
    let stream = watcher(api, watcher::Config::default().page_size(PAGE));
    let mut stream = std::pin::pin!(stream);
    let mut listing = BTreeSet::new();
    let mut known = 0;
    let mut newest = 0;
    while let Some(event) = stream.next().await {
        if *sight == Sight::Blind
            && matches!(
                event,
                Ok(watcher::Event::InitDone | watcher::Event::Apply(_) | watcher::Event::Delete(_))
            )
        {
            info!("watch of {} in {namespace} is back", kind.plural());
            *sight = Sight::Clear;
            cluster.store.sees(kind, namespace);
        }
        match event {
            Ok(watcher::Event::Init) => {
                listing.clear();
                // A list that begins now is newer than all that is known now, and may lack what is learnt meanwhile.
                newest = 0;
                known = cluster.store.newest_of(kind, namespace);
            }
            Ok(watcher::Event::InitApply(object)) => {
                listing.insert(store::key_of(&object));
                newest = newest.max(object::version(&object.metadata));
                cluster.store.listing(kind, &object);
            }
            Ok(watcher::Event::InitDone) => {
                cluster
                    .store
                    .listed(kind, namespace, &listing, known, newest);
                listing.clear();
            }
            Ok(watcher::Event::Apply(object)) => cluster.store.watched(kind, &object),
            Ok(watcher::Event::Delete(object)) => cluster.store.remove(kind, &object),
            Err(error) => {
                if *sight == Sight::Clear {
                    warn!(
                        "watch of {} in {namespace} failed, trying again: {}",
                        kind.plural(),
                        chain(&error)
                    );
                }
                *sight = Sight::Blind;
                cluster.store.goes_blind(kind, namespace);
                return;
            }
        }
    }
}
