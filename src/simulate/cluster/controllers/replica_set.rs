//! The ReplicaSet controller (`pkg/controller/replicaset/replica_set.go`): pods as many as `spec.replicas` says.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::super::clock::{Clock, seconds_of};
use super::super::object::{Key, Kind, Object, set, text_of};
use super::super::patch::Patch;
use super::super::refusal::Refusal;
use super::super::shared::Api;
use super::super::store::{Change, Deletion, Occurrence};
use super::cache::Caches;
use super::queue::Queue;

/// The most pods created or deleted in one pass.
const BURST: usize = 500;
/// The size of the first batch of creations; each further one is twice as large.
const FIRST_BATCH: usize = 1;
/// How long the controller waits to see what it did itself, before it acts on what it sees.
const EXPECTATIONS_TIMEOUT: Duration = Duration::from_secs(300);

/// What the controller has done and not seen yet.
struct Expectation {
    creations: usize,
    deletions: BTreeSet<Key>,
    since: Instant,
}

/// The newest revisions that the controller has written for one ReplicaSet (`StaleControllerConsistencyReplicaSet`,
/// on by default in 1.36): it does not act until its caches are as new.
#[derive(Default)]
struct Written {
    uid: String,
    replica_sets: u64,
    pods: u64,
}

#[derive(Default)]
struct Memory {
    expectations: BTreeMap<Key, Expectation>,
    written: BTreeMap<Key, Written>,
}

pub(super) struct ReplicaSetController {
    api: Api,
    caches: Arc<Caches>,
    clock: Clock,
    queue: Queue<Key>,
    memory: Mutex<Memory>,
}

/// A pass that did not get through and is to be tried again.
struct Again;

impl From<Refusal> for Again {
    fn from(_: Refusal) -> Self {
        Self
    }
}

impl ReplicaSetController {
    pub(super) fn new(api: Api, caches: Arc<Caches>, clock: Clock) -> Self {
        Self {
            api,
            caches,
            clock,
            queue: Queue::new(clock),
            memory: Mutex::default(),
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn on_change(&self, kind: Kind, change: &Change) {
        match kind {
            Kind::ReplicaSet => self.on_replica_set(change),
            Kind::Pod => self.on_pod(change),
            Kind::Deployment | Kind::PodTemplate | Kind::Event | Kind::Lease | Kind::Autoscaler => {
            }
        }
    }

    fn on_replica_set(&self, change: &Change) {
        let key = change.object.key();
        if change.occurrence == Occurrence::Deleted {
            let mut memory = self.memory();
            memory.expectations.remove(&key);
            memory.written.remove(&key);
        }
        self.queue.add(key);
    }

    fn on_pod(&self, change: &Change) {
        let pod = &change.object;
        match change.occurrence {
            Occurrence::Deleted => self.pod_deleted(pod),
            Occurrence::Added if pod.is_terminating() => self.pod_deleted(pod),
            Occurrence::Added => match self.owner_of(pod) {
                Ownership::Owned(Some(owner)) => {
                    if let Some(expectation) = self.memory().expectations.get_mut(&owner.key()) {
                        expectation.creations = expectation.creations.saturating_sub(1);
                    }
                    self.queue.add(owner.key());
                }
                Ownership::Owned(None) => {}
                Ownership::Orphan => self.wake_all_for(pod),
            },
            Occurrence::Modified if pod.is_terminating() => self.pod_deleted(pod),
            Occurrence::Modified => {
                let before = change.before.as_deref();
                let moved =
                    before.is_some_and(|before| before.controlled_by() != pod.controlled_by());
                if moved
                    && let Some(Ownership::Owned(Some(owner))) =
                        before.map(|before| self.owner_of(before))
                {
                    self.queue.add(owner.key());
                }
                match self.owner_of(pod) {
                    Ownership::Owned(Some(owner)) => {
                        self.queue.add(owner.key());
                        let patience = owner.number("/spec/minReadySeconds");
                        if pod.is_ready() && !before.is_some_and(Object::is_ready) && patience > 0 {
                            self.queue.add_after(owner.key(), seconds(patience));
                        }
                    }
                    Ownership::Owned(None) => {}
                    Ownership::Orphan
                        if moved
                            || before.is_some_and(|before| before.labels() != pod.labels()) =>
                    {
                        self.wake_all_for(pod);
                    }
                    Ownership::Orphan => {}
                }
            }
        }
    }

    fn pod_deleted(&self, pod: &Object) {
        if let Ownership::Owned(Some(owner)) = self.owner_of(pod) {
            if let Some(expectation) = self.memory().expectations.get_mut(&owner.key()) {
                expectation.deletions.remove(&pod.key());
            }
            self.queue.add(owner.key());
        }
    }

    fn wake_all_for(&self, pod: &Object) {
        let all = self.caches.replica_sets().within(pod.namespace());
        for replica_set in all {
            if replica_set.selects(pod) {
                self.queue.add(replica_set.key());
            }
        }
    }

    fn owner_of(&self, pod: &Object) -> Ownership {
        let Some(owner) = pod.controlled_by() else {
            return Ownership::Orphan;
        };
        let cache = self.caches.replica_sets();
        let known = cache.objects.get(&Key::new(pod.namespace(), &owner.name));
        Ownership::Owned(
            known
                .filter(|known| owner.kind == Kind::ReplicaSet.name() && known.uid() == owner.uid)
                .cloned(),
        )
    }

    pub(super) async fn work(self: Arc<Self>) {
        loop {
            let key = self.queue.next().await;
            match self.sync(&key).await {
                Ok(()) => self.queue.forget(&key),
                Err(Again) => self.queue.retry(key.clone()),
            }
            self.queue.done(&key);
        }
    }

    /// Whether the caches show everything that the controller wrote for this ReplicaSet.
    fn is_consistent(&self, key: &Key) -> bool {
        let (replica_sets, pods) = (
            self.caches.replica_sets().revision,
            self.caches.pods().revision,
        );
        let mut memory = self.memory();
        let Some(written) = memory.written.get(key) else {
            return true;
        };
        if written.replica_sets > replica_sets || written.pods > pods {
            return false;
        }
        memory.written.remove(key);
        true
    }

    fn wrote(&self, replica_set: &Object, kind: Kind, revision: u64) {
        let mut memory = self.memory();
        let written = memory.written.entry(replica_set.key()).or_default();
        if written.uid != replica_set.uid() {
            *written = Written {
                uid: replica_set.uid().to_owned(),
                ..Written::default()
            };
        }
        let newest = if kind == Kind::Pod {
            &mut written.pods
        } else {
            &mut written.replica_sets
        };
        *newest = revision.max(*newest);
    }

    fn expectations_met(&self, key: &Key) -> bool {
        self.memory()
            .expectations
            .get(key)
            .is_none_or(|expectation| {
                (expectation.creations == 0 && expectation.deletions.is_empty())
                    || self.clock.now().duration_since(expectation.since) > EXPECTATIONS_TIMEOUT
            })
    }

    async fn sync(&self, key: &Key) -> Result<(), Again> {
        if !self.is_consistent(key) {
            return Err(Again);
        }
        let Some(replica_set) = self.caches.replica_sets().objects.get(key).cloned() else {
            let mut memory = self.memory();
            memory.expectations.remove(key);
            memory.written.remove(key);
            return Ok(());
        };
        let may_manage = self.expectations_met(key);
        let uid = replica_set.uid();
        let related: Vec<Arc<Object>> = self
            .caches
            .pods()
            .iter_within(&key.namespace)
            .filter(|pod| pod.controller_uid().is_none_or(|owner| owner == uid))
            .cloned()
            .collect();
        let candidates: Vec<Arc<Object>> = related
            .iter()
            .filter(|pod| pod.is_active())
            .cloned()
            .collect();
        let active = self.claim(&replica_set, candidates).await?;
        let terminating = related
            .iter()
            .filter(|pod| {
                pod.is_terminating()
                    && !matches!(pod.text("/status/phase"), "Succeeded" | "Failed")
                    && pod.controller_uid() == Some(uid)
                    && replica_set.selects(pod)
            })
            .count();
        let managed = if may_manage && !replica_set.is_terminating() {
            self.manage(&active, &replica_set).await
        } else {
            Ok(())
        };
        let status = self.status(&replica_set, &active, terminating, managed.as_ref().err());
        let updated = self.update_status(&replica_set, &status).await?;
        self.wrote(&replica_set, Kind::ReplicaSet, updated.revision());
        managed?;
        let patience = updated.number("/spec/minReadySeconds");
        if patience > 0 && updated.status("readyReplicas") != updated.status("availableReplicas") {
            let next = self
                .next_availability(&active, patience)
                .unwrap_or_else(|| seconds(patience));
            self.queue.add_after(key.clone(), next);
        }
        Ok(())
    }

    /// Adopts pods that match and belong to nobody, lets go of owned ones that do not match.
    async fn claim(
        &self,
        owner: &Object,
        pods: Vec<Arc<Object>>,
    ) -> Result<Vec<Arc<Object>>, Refusal> {
        let mut claimed = Vec::new();
        let mut failure = None;
        for pod in pods {
            let matches = owner.selects(&pod);
            let outcome = match (pod.controlled_by(), matches) {
                (Some(_), true) => Ok(true),
                (Some(_), false) if owner.is_terminating() => Ok(false),
                (Some(_), false) => {
                    let patch = release_patch(&pod, owner);
                    self.api
                        .patch(Kind::Pod, &pod.key(), patch)
                        .await
                        .map(|_| false)
                }
                (None, true) if !owner.is_terminating() => {
                    match may_adopt(&self.api, Kind::ReplicaSet, owner).await {
                        Ok(()) => {
                            let patch = adoption_patch(&pod, owner, Kind::ReplicaSet);
                            self.api
                                .patch(Kind::Pod, &pod.key(), patch)
                                .await
                                .map(|_| true)
                        }
                        Err(refusal) => Err(refusal),
                    }
                }
                (None, _) => Ok(false),
            };
            match outcome {
                Ok(true) => claimed.push(pod),
                Ok(false) => {}
                Err(refusal) if refusal.is_not_found() => {}
                Err(refusal) => failure = Some(refusal),
            }
        }
        failure.map_or(Ok(claimed), Err)
    }

    async fn manage(&self, active: &[Arc<Object>], replica_set: &Object) -> Result<(), Refusal> {
        let wanted = usize::try_from(replica_set.replicas()).unwrap_or_default();
        let key = replica_set.key();
        if active.len() < wanted {
            let missing = (wanted - active.len()).min(BURST);
            self.expect(&key, missing, BTreeSet::new());
            let (created, outcome) = self.create_pods(replica_set, missing).await;
            if let Some(expectation) = self.memory().expectations.get_mut(&key) {
                expectation.creations = expectation.creations.saturating_sub(missing - created);
            }
            return outcome;
        }
        if active.len() > wanted {
            let doomed =
                self.pods_to_delete(active, replica_set, (active.len() - wanted).min(BURST));
            self.expect(&key, 0, doomed.iter().map(|pod| pod.key()).collect());
            let deletions = doomed.iter().map(|pod| async {
                let outcome = self
                    .api
                    .delete(Kind::Pod, &pod.key(), Deletion::default())
                    .await;
                match outcome {
                    Ok(deleted) => {
                        self.wrote(replica_set, Kind::Pod, deleted.revision());
                        Ok(())
                    }
                    Err(refusal) => {
                        if let Some(expectation) = self.memory().expectations.get_mut(&key) {
                            expectation.deletions.remove(&pod.key());
                        }
                        if refusal.is_not_found() {
                            Ok(())
                        } else {
                            Err(refusal)
                        }
                    }
                }
            });
            return join_all(deletions).await.into_iter().collect();
        }
        Ok(())
    }

    fn expect(&self, key: &Key, creations: usize, deletions: BTreeSet<Key>) {
        let expectation = Expectation {
            creations,
            deletions,
            since: self.clock.now(),
        };
        self.memory().expectations.insert(key.clone(), expectation);
    }

    /// Creates pods in growing batches, so that a refusal costs one request and not hundreds.
    async fn create_pods(
        &self,
        replica_set: &Object,
        count: usize,
    ) -> (usize, Result<(), Refusal>) {
        let (mut created, mut remaining, mut batch) = (0, count, FIRST_BATCH.min(count));
        while batch > 0 {
            let creations = (0..batch).map(|_| async {
                let pod = self
                    .api
                    .create(Kind::Pod, replica_set.namespace(), pod_of(replica_set))
                    .await?;
                self.wrote(replica_set, Kind::Pod, pod.revision());
                Ok(())
            });
            let outcomes: Vec<Result<(), Refusal>> = join_all(creations).await;
            created += outcomes.iter().filter(|outcome| outcome.is_ok()).count();
            if let Some(refusal) = outcomes.into_iter().find_map(Result::err) {
                return (created, Err(refusal));
            }
            remaining -= batch;
            batch = (batch * 2).min(remaining);
        }
        (created, Ok(()))
    }

    fn pods_to_delete(
        &self,
        active: &[Arc<Object>],
        replica_set: &Object,
        count: usize,
    ) -> Vec<Arc<Object>> {
        let mut pods = active.to_vec();
        if count < pods.len() {
            let neighbours = self.neighbours(replica_set);
            let now = self.clock.seconds();
            pods.sort_by_cached_key(|pod| {
                let rank = neighbours
                    .get(pod.text("/spec/nodeName"))
                    .copied()
                    .unwrap_or_default();
                deletion_order(pod, rank, now)
            });
        }
        pods.truncate(count);
        pods
    }

    /// Active pods per node, of all ReplicaSets with the same owner.
    fn neighbours(&self, replica_set: &Object) -> BTreeMap<String, usize> {
        let owner = replica_set.controller_uid();
        let siblings: Vec<Arc<Object>> = self
            .caches
            .replica_sets()
            .within(replica_set.namespace())
            .into_iter()
            .filter(|sibling| owner.is_some() && sibling.controller_uid() == owner)
            .collect();
        let mut per_node = BTreeMap::new();
        for pod in self.caches.pods().iter_within(replica_set.namespace()) {
            let related = siblings.iter().any(|sibling| sibling.selects(pod));
            if related && pod.is_active() {
                *per_node
                    .entry(pod.text("/spec/nodeName").to_owned())
                    .or_default() += 1;
            }
        }
        per_node
    }

    fn is_available(&self, pod: &Object, patience: i64) -> bool {
        pod.is_ready()
            && pod
                .ready_since()
                .is_some_and(|since| patience == 0 || since + patience <= self.clock.seconds())
    }

    fn next_availability(&self, pods: &[Arc<Object>], patience: i64) -> Option<Duration> {
        let now = self.clock.seconds();
        pods.iter()
            .filter_map(|pod| pod.ready_since())
            .map(|since| since + patience - now)
            .filter(|wait| *wait > 0)
            .min()
            .map(seconds)
    }

    fn status(
        &self,
        replica_set: &Object,
        active: &[Arc<Object>],
        terminating: usize,
        failure: Option<&Refusal>,
    ) -> Value {
        let patience = replica_set.number("/spec/minReadySeconds");
        let template = replica_set
            .at("/spec/template/metadata/labels")
            .and_then(Value::as_object);
        let labelled = active
            .iter()
            .filter(|pod| {
                template.into_iter().flatten().all(|(name, value)| {
                    pod.labels()
                        .is_some_and(|labels| labels.get(name) == Some(value))
                })
            })
            .count();
        let ready = active.iter().filter(|pod| pod.is_ready()).count();
        let available = active
            .iter()
            .filter(|pod| self.is_available(pod, patience))
            .count();
        let mut conditions: Vec<Value> = replica_set
            .at("/status/conditions")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let is_failure = |condition: &Value| text_of(condition, "type") == "ReplicaFailure";
        match failure {
            Some(refusal) if !conditions.iter().any(is_failure) => {
                let fewer = (active.len() as i64) < replica_set.replicas();
                conditions.push(json!({
                    "type": "ReplicaFailure",
                    "status": "True",
                    "lastTransitionTime": self.clock.timestamp(),
                    "reason": if fewer { "FailedCreate" } else { "FailedDelete" },
                    "message": refusal.message,
                }));
            }
            Some(_) => {}
            None => conditions.retain(|condition| !is_failure(condition)),
        }
        let mut status = Map::new();
        status.insert("replicas".to_owned(), json!(active.len()));
        for (name, count) in [
            ("fullyLabeledReplicas", labelled),
            ("readyReplicas", ready),
            ("availableReplicas", available),
        ] {
            if count > 0 {
                status.insert(name.to_owned(), json!(count));
            }
        }
        status.insert("terminatingReplicas".to_owned(), json!(terminating));
        if !conditions.is_empty() {
            status.insert("conditions".to_owned(), Value::Array(conditions));
        }
        Value::Object(status)
    }

    /// Writes the status, with one more try on the newest object.
    async fn update_status(
        &self,
        replica_set: &Arc<Object>,
        status: &Value,
    ) -> Result<Arc<Object>, Refusal> {
        let mut old = replica_set.at("/status").cloned().unwrap_or_default();
        if let Some(map) = old.as_object_mut() {
            map.remove("observedGeneration");
        }
        if old == *status && replica_set.generation() == replica_set.observed_generation() {
            return Ok(Arc::clone(replica_set));
        }
        let mut status = status.clone();
        set(
            &mut status,
            &["observedGeneration"],
            json!(replica_set.generation()),
        );
        let with_status = |object: &Object| {
            let mut object = object.clone();
            set(object.json_mut(), &["status"], status.clone());
            object
        };
        if let Ok(updated) = self
            .api
            .update_status(Kind::ReplicaSet, &with_status(replica_set))
            .await
        {
            return Ok(updated);
        }
        let fresh = self.api.get(Kind::ReplicaSet, &replica_set.key()).await?;
        self.api
            .update_status(Kind::ReplicaSet, &with_status(&fresh))
            .await
    }
}

/// Whose a pod is.
enum Ownership {
    /// somebody's: the ReplicaSet in the cache, if it is one and known
    Owned(Option<Arc<Object>>),
    Orphan,
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or_default())
}

fn owner_reference(owner: &Object, kind: Kind) -> Value {
    json!({
        "apiVersion": kind.api_version(),
        "kind": kind.name(),
        "name": owner.name(),
        "uid": owner.uid(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

fn pod_of(replica_set: &Object) -> Value {
    let template = |pointer: &str| replica_set.at(pointer).cloned().unwrap_or_default();
    json!({
        "metadata": {
            "generateName": format!("{}-", replica_set.name()),
            "labels": template("/spec/template/metadata/labels"),
            "annotations": template("/spec/template/metadata/annotations"),
            "ownerReferences": [owner_reference(replica_set, Kind::ReplicaSet)],
        },
        "spec": template("/spec/template/spec"),
    })
}

/// A live look at the owner before the first adoption.
pub(super) async fn may_adopt(api: &Api, kind: Kind, owner: &Object) -> Result<(), Refusal> {
    let fresh = api.get(kind, &owner.key()).await?;
    if fresh.uid() != owner.uid() || fresh.is_terminating() {
        return Err(Refusal::conflict(
            kind,
            owner.name(),
            "the owner is gone or has just been deleted",
        ));
    }
    Ok(())
}

/// The patch that takes an orphan.
pub(super) fn adoption_patch(object: &Object, owner: &Object, kind: Kind) -> Patch {
    Patch::Strategic(json!({
        "metadata": {"uid": object.uid(), "ownerReferences": [owner_reference(owner, kind)]},
    }))
}

/// The patch that lets an object go.
pub(super) fn release_patch(object: &Object, owner: &Object) -> Patch {
    Patch::Strategic(json!({
        "metadata": {"uid": object.uid(), "ownerReferences": [{"$patch": "delete", "uid": owner.uid()}]},
    }))
}

/// Which pods are deleted first (`ActivePodsWithRanks`), each with the number of its neighbours.
///
/// The real order is none: it compares ages by their order of magnitude, then by uid, but goes on to restarts where two
/// are equal to the second, which is not transitive. Go's sort puts up with that; Rust's panics. So equal orders of
/// magnitude are always told apart by restarts and age first, by uid last.
fn deletion_order(pod: &Object, neighbours: usize, now: i64) -> impl Ord + use<> {
    let is_assigned = !pod.text("/spec/nodeName").is_empty();
    let phase = match pod.text("/status/phase") {
        "Pending" => 0,
        "Running" => 2,
        _ => 1,
    };
    let cost = pod
        .annotation("controller.kubernetes.io/pod-deletion-cost")
        .and_then(|cost| cost.parse::<i32>().ok())
        .unwrap_or_default();
    let created = seconds_of(pod.text("/metadata/creationTimestamp")).unwrap_or_default();
    (
        (is_assigned, phase, pod.is_ready(), cost),
        Reverse(neighbours),
        pod.ready_since().map(|since| magnitude(now - since)),
        Reverse(restarts(pod)),
        magnitude(now - created),
        pod.uid().to_owned(),
    )
}

/// The order of magnitude of an age in seconds. The real controller takes the logarithm of nanoseconds; the difference
/// of two is the same in seconds but for rounding, so nanoseconds it is.
fn magnitude(age: i64) -> Option<u32> {
    u128::try_from(age)
        .unwrap_or_default()
        .saturating_mul(1_000_000_000)
        .checked_ilog2()
}

/// The most restarts of any container of a pod.
fn restarts(pod: &Object) -> i64 {
    pod.at("/status/containerStatuses")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|status| status.get("restartCount").and_then(Value::as_i64))
        .max()
        .unwrap_or_default()
}
