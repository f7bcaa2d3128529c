//! Everything seen of the cluster, fed by watches and by the answers to our own writes, so that a decision never rests on
//! a view from before the last write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::api::DynamicObject;
use tokio::sync::Notify;

use super::condition::Condition;
use super::{Kind, object};
use crate::rollout::Observation;
use crate::rollout::action::{CloneRole, state_name};
use crate::rollout::observation::{
    Deployment, Freshness, Life, Mark, Pod, ReplicaSet, StateObject, Uid, WallTime,
};
use crate::rollout::state::State;

/// What has been seen.
#[derive(Default)]
pub struct Store {
    shelves: Mutex<Shelves>,
    /// Rings when another watch has delivered its first full list; wakes in the order of waiting.
    listed: Notify,
}

/// Namespace and name.
type Key = (String, String);

#[derive(Default)]
struct Shelves {
    deployments: Shelf<Seen>,
    replica_sets: Shelf<ReplicaSet>,
    states: Shelf<StateObject>,
    pods: Shelf<Pod>,
    /// Which watches have delivered their first full list.
    synced: BTreeSet<(Kind, String)>,
    /// Watches that failed and are not back yet.
    blind: BTreeSet<(Kind, String)>,
    /// Up to which version each watch has told everything.
    told: BTreeMap<(Kind, String), u64>,
    /// Whom to wake, by namespace and name of X.
    listeners: BTreeMap<Key, Arc<Notify>>,
}

/// A Deployment, and what it shows of how its service stands.
#[derive(Clone)]
struct Seen {
    deployment: Deployment,
    condition: Option<Condition>,
}

struct Shelf<T> {
    objects: BTreeMap<Key, Arc<Kept<T>>>,
    /// The same, so that a look at one service's hundreds of pods finds each without a search.
    by_controller: BTreeMap<Uid, BTreeMap<Key, Arc<Kept<T>>>>,
}

#[derive(Clone)]
struct Kept<T> {
    version: u64,
    uid: Uid,
    controller: Option<Arc<object::Controller>>,
    value: T,
}

impl<T> Kept<T> {
    fn of(object: &DynamicObject, value: T) -> Self {
        Self {
            version: object::version(&object.metadata),
            uid: object::uid(&object.metadata),
            controller: object::controller(&object.metadata).map(Arc::new),
            value,
        }
    }
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            by_controller: BTreeMap::new(),
        }
    }
}

impl<T> Shelf<T> {
    fn get(&self, key: &Key) -> Option<&T> {
        self.objects.get(key).map(|kept| &kept.value)
    }

    /// Whether this version of an object is newer than what is known of its name.
    fn is_news(&self, key: &Key, uid: &Uid, version: u64) -> bool {
        let known = self.objects.get(key);
        known.is_none_or(|known| {
            known.version < version || (known.version == version && known.uid != *uid)
        })
    }

    fn knows(&self, key: &Key, uid: &Uid) -> bool {
        self.objects.get(key).is_some_and(|kept| kept.uid == *uid)
    }

    fn controlled_by<'a>(&'a self, uid: &Uid) -> impl Iterator<Item = &'a T> {
        self.by_controller
            .get(uid)
            .into_iter()
            .flat_map(BTreeMap::values)
            .map(|kept| &kept.value)
    }

    /// Keeps the newer of what is known and what is told: answers to writes overtake watches.
    fn put(&mut self, key: Key, kept: Kept<T>) {
        if !self.is_news(&key, &kept.uid, kept.version) {
            return;
        }
        self.keep(key, kept);
    }

    fn keep(&mut self, key: Key, kept: Kept<T>) {
        self.remove(&key);
        let kept = Arc::new(kept);
        if let Some(controller) = &kept.controller {
            self.by_controller
                .entry(controller.uid.clone())
                .or_default()
                .insert(key.clone(), Arc::clone(&kept));
        }
        self.objects.insert(key, kept);
    }

    fn remove(&mut self, key: &Key) {
        let Some(kept) = self.objects.remove(key) else {
            return;
        };
        let Some(controller) = &kept.controller else {
            return;
        };
        if let Some(keys) = self.by_controller.get_mut(&controller.uid) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_controller.remove(&controller.uid);
            }
        }
    }

    fn newest(&self, namespace: &str) -> u64 {
        let here = self
            .objects
            .iter()
            .filter(|((known, _), _)| known == namespace);
        here.map(|(_, kept)| kept.version).max().unwrap_or(0)
    }

    /// Forgets what a full list as of `version` does not contain. What was learnt after that list stays.
    fn retain(&mut self, listed: &BTreeSet<Key>, version: u64, within: impl Fn(&Key, &T) -> bool) {
        let gone: Vec<Key> = self
            .objects
            .iter()
            .filter(|(key, kept)| {
                kept.version <= version && within(key, &kept.value) && !listed.contains(key)
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            self.remove(&key);
        }
    }
}

/// A service that the cluster knows as registered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Registered {
    /// Its namespace.
    pub namespace: String,
    /// The name of X.
    pub deployment: String,
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever holds the returned handle when something of this service changes.
    pub fn listen(&self, namespace: &str, deployment: &str) -> Arc<Notify> {
        let key = (namespace.to_owned(), deployment.to_owned());
        self.lock().listeners.entry(key).or_default().clone()
    }

    /// Waits until every watch of these namespaces has delivered its first full list.
    pub async fn synced(&self, namespaces: &BTreeSet<String>) {
        loop {
            let mut ring = std::pin::pin!(self.listed.notified());
            ring.as_mut().enable();
            let all = {
                let shelves = self.lock();
                namespaces
                    .iter()
                    .all(|namespace| shelves.has_seen(namespace))
            };
            if all {
                return;
            }
            ring.await;
        }
    }

    /// Waits until every watch of one of these namespaces has delivered its first full list: of which one. For ever where
    /// there is none.
    pub async fn first_synced(&self, namespaces: &BTreeSet<String>) -> String {
        loop {
            let mut ring = std::pin::pin!(self.listed.notified());
            ring.as_mut().enable();
            let first = {
                let shelves = self.lock();
                let mut all = namespaces.iter();
                all.find(|namespace| shelves.has_seen(namespace)).cloned()
            };
            if let Some(first) = first {
                return first;
            }
            ring.await;
        }
    }

    /// The services that have a state object of ours.
    pub fn registered(&self) -> BTreeSet<Registered> {
        self.states_where(|_| true)
    }

    /// The services that have a rollout open.
    pub fn open(&self) -> BTreeSet<Registered> {
        self.states_where(|object| object.state.as_ref().is_ok_and(State::is_open))
    }

    fn states_where(&self, wanted: impl Fn(&StateObject) -> bool) -> BTreeSet<Registered> {
        let shelves = self.lock();
        let ours = shelves.states.objects.iter().filter(|(_, kept)| {
            kept.value.mark == Mark::Ours && kept.value.life == Life::Alive && wanted(&kept.value)
        });
        ours.filter_map(|((namespace, name), _)| {
            let deployment = name.strip_suffix("-volery")?.to_owned();
            Some(Registered {
                namespace: namespace.clone(),
                deployment,
            })
        })
        .collect()
    }

    /// What is seen of one service now.
    pub fn observe(
        &self,
        namespace: &str,
        deployment: &str,
        freshness: Freshness,
        at: WallTime,
    ) -> Observation {
        let shelves = self.lock();
        let key = |name: String| (namespace.to_owned(), name);
        let named = |name: String| {
            let seen = shelves.deployments.get(&key(name))?;
            Some(seen.deployment.clone())
        };
        let original = named(deployment.to_owned());
        let primary = named(CloneRole::Primary.name(deployment));
        let canary = named(CloneRole::Canary.name(deployment));
        let state = shelves.states.get(&key(state_name(deployment))).cloned();
        let owners = [&original, &primary, &canary]
            .into_iter()
            .flatten()
            .map(|deployment| &deployment.uid);
        let replica_sets: Vec<ReplicaSet> = owners
            .chain(state.as_ref().map(|state| &state.uid))
            .flat_map(|uid| shelves.replica_sets.controlled_by(uid))
            .cloned()
            .collect();
        let pods = replica_sets
            .iter()
            .flat_map(|set| shelves.pods.controlled_by(&set.uid))
            .cloned()
            .collect();
        Observation {
            freshness,
            at,
            original,
            primary,
            canary,
            state,
            replica_sets,
            pods,
        }
    }

    /// What a Deployment shows of how its service stands.
    pub(super) fn condition(&self, namespace: &str, deployment: &str) -> Option<Condition> {
        let shelves = self.lock();
        let key = (namespace.to_owned(), deployment.to_owned());
        shelves.deployments.get(&key)?.condition.clone()
    }

    /// Whether a watch of this namespace has failed and is not back yet.
    pub fn is_blind(&self, namespace: &str) -> bool {
        self.lock()
            .blind
            .iter()
            .any(|(_, blind)| blind == namespace)
    }

    /// Takes in that a watch has failed.
    pub(super) fn goes_blind(&self, kind: Kind, namespace: &str) {
        self.lock().blind.insert((kind, namespace.to_owned()));
    }

    /// Takes in that a watch is back.
    pub(super) fn sees(&self, kind: Kind, namespace: &str) {
        self.lock().blind.remove(&(kind, namespace.to_owned()));
    }

    /// Takes in an object from a watch.
    pub(super) fn watched(&self, kind: Kind, object: &DynamicObject) {
        let mut shelves = self.lock();
        shelves.tells(kind, &key_of(object).0, object::version(&object.metadata));
        self.put(shelves, kind, object);
    }

    /// Takes in an object from a list that is not complete yet, so it says nothing about what it lacks.
    pub(super) fn listing(&self, kind: Kind, object: &DynamicObject) {
        self.put(self.lock(), kind, object);
    }

    /// Takes in an object that was just read or written, unless it is known to be gone: the watch may have told of its end
    /// before the answer came, and would never tell of it again.
    pub(super) fn answered(&self, kind: Kind, object: &DynamicObject) {
        let shelves = self.lock();
        let (namespace, name) = key_of(object);
        let told = shelves.told.get(&(kind, namespace.clone()));
        let overtaken = told.is_some_and(|told| object::version(&object.metadata) <= *told);
        if overtaken && !shelves.knows(kind, &(namespace, name), &object::uid(&object.metadata)) {
            return;
        }
        self.put(shelves, kind, object);
    }

    fn put(&self, mut shelves: MutexGuard<'_, Shelves>, kind: Kind, object: &DynamicObject) {
        let key = key_of(object);
        let listeners = shelves.listeners_of(kind, &key, object);
        let (version, uid) = (
            object::version(&object.metadata),
            object::uid(&object.metadata),
        );
        if !shelves.is_news(kind, &key, &uid, version) {
            // A listener is woken by news only, or a live look would wake its own service again and again.
            return;
        }
        match kind {
            Kind::Deployment => {
                let value = Seen {
                    deployment: object::deployment(object),
                    condition: Condition::shown_by(object),
                };
                shelves.deployments.put(key, Kept::of(object, value));
            }
            Kind::PodTemplate => {
                let value = object::state_object(object);
                shelves.states.put(key, Kept::of(object, value));
            }
            Kind::ReplicaSet => match object::replica_set(object) {
                Some(value) => shelves.replica_sets.put(key, Kept::of(object, value)),
                None => shelves.replica_sets.remove(&key),
            },
            Kind::Pod => match object::pod(object) {
                Some(value) => shelves.pods.put(key, Kept::of(object, value)),
                None => shelves.pods.remove(&key),
            },
        }
        drop(shelves);
        listeners.iter().for_each(|listener| listener.notify_one());
    }

    /// Takes in from a watch that an object is gone.
    pub(super) fn remove(&self, kind: Kind, object: &DynamicObject) {
        let mut shelves = self.lock();
        shelves.tells(kind, &key_of(object).0, object::version(&object.metadata));
        let key = key_of(object);
        let listeners = shelves.listeners_of(kind, &key, object);
        let uid = object::uid(&object.metadata);
        // The name may have a new bearer by now.
        match kind {
            Kind::Deployment => remove_life(&mut shelves.deployments, &key, &uid),
            Kind::PodTemplate => remove_life(&mut shelves.states, &key, &uid),
            Kind::ReplicaSet => remove_life(&mut shelves.replica_sets, &key, &uid),
            Kind::Pod => remove_life(&mut shelves.pods, &key, &uid),
        }
        drop(shelves);
        listeners.iter().for_each(|listener| listener.notify_one());
    }

    /// Takes in that our delete was accepted: the object is on its way out, until the watch says it is gone.
    pub(super) fn deleting(&self, kind: Kind, namespace: &str, name: &str, uid: &Uid) {
        let mut shelves = self.lock();
        let key = (namespace.to_owned(), name.to_owned());
        match kind {
            Kind::Deployment => mark_going(&mut shelves.deployments, &key, uid, |value| {
                &mut value.deployment.life
            }),
            Kind::PodTemplate => {
                mark_going(&mut shelves.states, &key, uid, |value| &mut value.life)
            }
            Kind::ReplicaSet => mark_going(&mut shelves.replica_sets, &key, uid, |value| {
                &mut value.life
            }),
            Kind::Pod => mark_going(&mut shelves.pods, &key, uid, |value| &mut value.life),
        }
    }

    /// Takes in that nothing of this name exists, as of a read that began when `version` was the newest known.
    pub(super) fn absent(&self, kind: Kind, namespace: &str, name: &str, version: u64) {
        let mut shelves = self.lock();
        let only = BTreeSet::new();
        let wanted = (namespace.to_owned(), name.to_owned());
        match kind {
            Kind::Deployment => shelves
                .deployments
                .retain(&only, version, |key, _| *key == wanted),
            Kind::PodTemplate => shelves
                .states
                .retain(&only, version, |key, _| *key == wanted),
            Kind::ReplicaSet => shelves
                .replica_sets
                .retain(&only, version, |key, _| *key == wanted),
            Kind::Pod => shelves.pods.retain(&only, version, |key, _| *key == wanted),
        }
    }

    /// The newest version of any object of one service.
    pub(super) fn newest(&self, namespace: &str, names: &[String]) -> u64 {
        let shelves = self.lock();
        let keys: Vec<Key> = names
            .iter()
            .map(|name| (namespace.to_owned(), name.clone()))
            .collect();
        let deployments = keys
            .iter()
            .filter_map(|key| shelves.deployments.objects.get(key))
            .map(|kept| kept.version);
        let states = keys
            .iter()
            .filter_map(|key| shelves.states.objects.get(key))
            .map(|kept| kept.version);
        deployments.chain(states).max().unwrap_or(0)
    }

    /// The newest version of any object of one kind in one namespace.
    pub(super) fn newest_of(&self, kind: Kind, namespace: &str) -> u64 {
        let shelves = self.lock();
        match kind {
            Kind::Deployment => shelves.deployments.newest(namespace),
            Kind::PodTemplate => shelves.states.newest(namespace),
            Kind::ReplicaSet => shelves.replica_sets.newest(namespace),
            Kind::Pod => shelves.pods.newest(namespace),
        }
    }

    /// Takes in a full list of one kind in one namespace, already put object by object, that began when `version` was
    /// the newest known; the newest object in it has version `newest`.
    pub(super) fn listed(
        &self,
        kind: Kind,
        namespace: &str,
        listed: &BTreeSet<Key>,
        version: u64,
        newest: u64,
    ) {
        let mut shelves = self.lock();
        shelves.tells(kind, namespace, newest);
        let here = |key: &Key| key.0 == namespace;
        match kind {
            Kind::Deployment => shelves
                .deployments
                .retain(listed, version, |key, _| here(key)),
            Kind::PodTemplate => shelves.states.retain(listed, version, |key, _| here(key)),
            Kind::ReplicaSet => shelves
                .replica_sets
                .retain(listed, version, |key, _| here(key)),
            Kind::Pod => shelves.pods.retain(listed, version, |key, _| here(key)),
        }
        let listeners: Vec<Arc<Notify>> = shelves
            .listeners
            .iter()
            .filter(|((listening, _), _)| listening == namespace)
            .map(|(_, listener)| listener.clone())
            .collect();
        shelves.synced.insert((kind, namespace.to_owned()));
        drop(shelves);
        self.listed.notify_waiters();
        listeners.iter().for_each(|listener| listener.notify_one());
    }

    /// Takes in a list of the ReplicaSets that a selector matches, already put: those of `owners` not in it are gone.
    pub(super) fn listed_sets(&self, owners: &BTreeSet<Uid>, listed: &BTreeSet<Key>, version: u64) {
        self.lock()
            .replica_sets
            .retain(listed, version, |_, set| owners.contains(&set.owner));
    }
}

pub(super) fn key_of(object: &DynamicObject) -> Key {
    (
        object.metadata.namespace.clone().unwrap_or_default(),
        object.metadata.name.clone().unwrap_or_default(),
    )
}

fn remove_life<T>(shelf: &mut Shelf<T>, key: &Key, uid: &Uid) {
    if shelf.objects.get(key).is_some_and(|kept| kept.uid == *uid) {
        shelf.remove(key);
    }
}

fn mark_going<T: Clone>(
    shelf: &mut Shelf<T>,
    key: &Key,
    uid: &Uid,
    life: impl Fn(&mut T) -> &mut Life,
) {
    if let Some(kept) = shelf.objects.get(key).filter(|kept| kept.uid == *uid) {
        let mut going = Kept::clone(kept);
        *life(&mut going.value) = Life::Deleting;
        shelf.keep(key.clone(), going);
    }
}

impl Shelves {
    fn is_news(&self, kind: Kind, key: &Key, uid: &Uid, version: u64) -> bool {
        match kind {
            Kind::Deployment => self.deployments.is_news(key, uid, version),
            Kind::PodTemplate => self.states.is_news(key, uid, version),
            Kind::ReplicaSet => self.replica_sets.is_news(key, uid, version),
            Kind::Pod => self.pods.is_news(key, uid, version),
        }
    }

    /// Whether every watch of this namespace has delivered its first full list.
    fn has_seen(&self, namespace: &str) -> bool {
        let mut kinds = Kind::ALL.into_iter();
        kinds.all(|kind| self.synced.contains(&(kind, namespace.to_owned())))
    }

    /// A watch has told everything up to this version.
    fn tells(&mut self, kind: Kind, namespace: &str, version: u64) {
        let told = self.told.entry((kind, namespace.to_owned())).or_default();
        *told = (*told).max(version);
    }

    /// Whether this life of the object is known.
    fn knows(&self, kind: Kind, key: &Key, uid: &Uid) -> bool {
        match kind {
            Kind::Deployment => self.deployments.knows(key, uid),
            Kind::PodTemplate => self.states.knows(key, uid),
            Kind::ReplicaSet => self.replica_sets.knows(key, uid),
            Kind::Pod => self.pods.knows(key, uid),
        }
    }

    /// Whom a change of this object concerns, found along its chain of controllers.
    fn listeners_of(&self, kind: Kind, key: &Key, object: &DynamicObject) -> Vec<Arc<Notify>> {
        let (namespace, name) = key;
        let owner = object::controller(&object.metadata).map(|controller| controller.name);
        let top = match kind {
            Kind::Deployment | Kind::PodTemplate => Some(name.clone()),
            // The owner may have changed: the one known before listens too.
            Kind::ReplicaSet => owner.or_else(|| self.owner_name(key)),
            Kind::Pod => owner.and_then(|set| self.owner_name(&(namespace.clone(), set))),
        };
        let Some(top) = top else {
            return Vec::new();
        };
        let stripped = ["-primary", "-canary", "-volery"]
            .iter()
            .filter_map(|suffix| top.strip_suffix(suffix));
        std::iter::once(top.as_str())
            .chain(stripped)
            .filter_map(|name| {
                self.listeners
                    .get(&(namespace.clone(), name.to_owned()))
                    .cloned()
            })
            .collect()
    }

    fn owner_name(&self, set: &Key) -> Option<String> {
        self.replica_sets
            .objects
            .get(set)?
            .controller
            .as_ref()
            .map(|controller| controller.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn primary(uid: &str, version: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": "workers", "name": "orders-primary", "uid": uid, "resourceVersion": version},
            "spec": {"replicas": 4, "template": {}},
        }))
        .expect("a Deployment")
    }

    fn known(store: &Store) -> Option<Uid> {
        let seen = store.observe("workers", "orders", Freshness::Cached, WallTime(0));
        seen.primary.map(|primary| primary.uid)
    }

    #[test]
    fn an_answer_that_the_watch_has_overtaken_brings_nothing_back() {
        let store = Store::default();
        store.watched(Kind::Deployment, &primary("first", "5"));
        store.remove(Kind::Deployment, &primary("first", "7"));
        store.answered(Kind::Deployment, &primary("first", "5"));
        assert_eq!(known(&store), None);
        store.answered(Kind::Deployment, &primary("second", "9"));
        assert_eq!(known(&store), Some(Uid("second".to_owned())));
    }

    #[test]
    fn an_answer_of_an_object_that_is_known_is_taken_in() {
        let store = Store::default();
        store.watched(Kind::Deployment, &primary("first", "5"));
        store.watched(Kind::Deployment, &primary("first", "8"));
        store.answered(Kind::Deployment, &primary("first", "8"));
        assert_eq!(known(&store), Some(Uid("first".to_owned())));
    }
}
