//! The garbage collector (`pkg/controller/garbagecollector`): what nobody owns any more is deleted.
//!
//! It learns of things through watches, but looks at the object and its owners live before it deletes, so that an
//! object that moved to another owner survives the old one (design, fact 10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::super::object::{Key, Kind, Object, text_of};
use super::super::patch::Patch;
use super::super::refusal::Refusal;
use super::super::shared::{Api, Shared};
use super::super::store::{Change, Deletion, FOREGROUND, ORPHAN, Occurrence, Propagation};
use super::cache::replay;
use super::queue::Queue;

/// An object in the collector's graph.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    kind: Kind,
    key: Key,
    uid: String,
}

/// What the collector has seen.
#[derive(Default)]
struct Graph {
    nodes: BTreeMap<String, Node>,
    /// Dependents by the uid of an owner, that exists or not.
    dependents: BTreeMap<String, BTreeSet<Node>>,
}

impl Graph {
    fn dependents_of(&self, uid: &str) -> Vec<Node> {
        self.dependents
            .get(uid)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    fn unlink(&mut self, node: &Node) {
        for dependents in self.dependents.values_mut() {
            dependents.remove(node);
        }
        self.dependents
            .retain(|_, dependents| !dependents.is_empty());
    }
}

pub(super) struct GarbageCollector {
    api: Api,
    graph: Mutex<Graph>,
    queue: Queue<Node>,
}

/// Feeds one kind's changes to the collector.
pub(super) async fn follow(shared: Arc<Shared>, kind: Kind, collector: Arc<GarbageCollector>) {
    replay(shared, kind, |change| collector.see(kind, change)).await;
}

impl GarbageCollector {
    pub(super) fn new(api: Api) -> Self {
        let queue = Queue::new(api.clock());
        Self {
            api,
            graph: Mutex::default(),
            queue,
        }
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self, kind: Kind, change: &Change) {
        let object = &change.object;
        let node = Node {
            kind,
            key: object.key(),
            uid: object.uid().to_owned(),
        };
        let mut graph = self.graph();
        graph.unlink(&node);
        if change.occurrence == Occurrence::Deleted {
            graph.nodes.remove(&node.uid);
            let orphans = graph.dependents_of(&node.uid);
            drop(graph);
            // Owners that wait for this one to go look again, and so do those that it owned.
            for owner in object.owners() {
                self.look_at_owner(text_of(owner, "uid"));
            }
            orphans
                .into_iter()
                .for_each(|orphan| self.queue.add(orphan));
            return;
        }
        graph.nodes.insert(node.uid.clone(), node.clone());
        let mut has_unknown_owner = false;
        for owner in object.owners() {
            let uid = text_of(owner, "uid").to_owned();
            has_unknown_owner |= !graph.nodes.contains_key(&uid);
            graph
                .dependents
                .entry(uid)
                .or_default()
                .insert(node.clone());
        }
        drop(graph);
        let in_deletion = object.is_terminating()
            && (object.has_finalizer(FOREGROUND) || object.has_finalizer(ORPHAN));
        if has_unknown_owner || in_deletion {
            self.queue.add(node);
        }
    }

    fn look_at_owner(&self, uid: &str) {
        let owner = self.graph().nodes.get(uid).cloned();
        if let Some(owner) = owner {
            self.queue.add(owner);
        }
    }

    pub(super) async fn work(self: Arc<Self>) {
        loop {
            let node = self.queue.next().await;
            match self.attend(&node).await {
                Ok(()) => self.queue.forget(&node),
                Err(_) => self.queue.retry(node.clone()),
            }
            self.queue.done(&node);
        }
    }

    async fn attend(&self, node: &Node) -> Result<(), Refusal> {
        let latest = match self.api.get(node.kind, &node.key).await {
            Ok(latest) if latest.uid() == node.uid => latest,
            Ok(_) => return Ok(()),
            Err(refusal) if refusal.is_not_found() => return Ok(()),
            Err(refusal) => return Err(refusal),
        };
        if latest.is_terminating() {
            if latest.has_finalizer(ORPHAN) {
                return self.let_dependents_go(node, &latest).await;
            }
            if latest.has_finalizer(FOREGROUND) {
                return self.delete_dependents(node, &latest).await;
            }
            return Ok(());
        }
        self.collect(node, &latest).await
    }

    /// `attemptToDeleteItem`
    async fn collect(&self, node: &Node, latest: &Object) -> Result<(), Refusal> {
        if latest.owners().is_empty() {
            return Ok(());
        }
        let (mut solid, mut dangling, mut waiting) = (0, Vec::new(), Vec::new());
        for owner in latest.owners() {
            match self.live_owner(node, owner).await? {
                None => dangling.push(owner.clone()),
                Some(found) if found.is_terminating() && found.has_finalizer(FOREGROUND) => {
                    waiting.push(owner.clone())
                }
                Some(_) => solid += 1,
            }
        }
        if solid > 0 {
            let gone: Vec<Value> = dangling.into_iter().chain(waiting).collect();
            if gone.is_empty() {
                return Ok(());
            }
            return self
                .api
                .patch(node.kind, &node.key, without_owners(&node.uid, &gone))
                .await
                .map(drop);
        }
        let has_dependents = !self.graph().dependents_of(&node.uid).is_empty();
        let propagation = if !waiting.is_empty() && has_dependents {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        self.delete(node, latest, propagation).await
    }

    /// `deleteObject`: not one that changed since, unless its owners are the same.
    async fn delete(
        &self,
        node: &Node,
        latest: &Object,
        propagation: Propagation,
    ) -> Result<(), Refusal> {
        let deletion = Deletion {
            uid: Some(node.uid.clone()),
            resource_version: Some(latest.text("/metadata/resourceVersion").to_owned()),
            propagation,
            grace: None,
        };
        let refusal = match self
            .api
            .delete(node.kind, &node.key, deletion.clone())
            .await
        {
            Ok(_) => return Ok(()),
            Err(refusal) => refusal,
        };
        if refusal.is_not_found() {
            return Ok(());
        }
        if !refusal.is_conflict() {
            return Err(refusal);
        }
        let live = match self.api.get(node.kind, &node.key).await {
            Ok(live) => live,
            Err(refusal) if refusal.is_not_found() => return Ok(()),
            Err(refusal) => return Err(refusal),
        };
        if live.uid() == node.uid && live.owners() == latest.owners() {
            let deletion = Deletion {
                resource_version: None,
                ..deletion
            };
            return self
                .api
                .delete(node.kind, &node.key, deletion)
                .await
                .map(drop);
        }
        Err(refusal)
    }

    /// The owner that a reference names, if it is there.
    async fn live_owner(&self, node: &Node, owner: &Value) -> Result<Option<Arc<Object>>, Refusal> {
        let Some(kind) = Kind::of_reference(text_of(owner, "apiVersion"), text_of(owner, "kind"))
        else {
            return Err(Refusal::no_such_path());
        };
        match self
            .api
            .get(kind, &Key::new(&node.key.namespace, text_of(owner, "name")))
            .await
        {
            Ok(found) if found.uid() == text_of(owner, "uid") => Ok(Some(found)),
            Ok(_) => Ok(None),
            Err(refusal) if refusal.is_not_found() => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    async fn let_dependents_go(&self, node: &Node, latest: &Object) -> Result<(), Refusal> {
        let reference = [json!({"uid": node.uid})];
        let dependents = self.graph().dependents_of(&node.uid);
        for dependent in dependents {
            let patch = without_owners(&dependent.uid, &reference);
            match self.api.patch(dependent.kind, &dependent.key, patch).await {
                Ok(_) => {}
                Err(refusal) if refusal.is_not_found() => {}
                Err(refusal) => return Err(refusal),
            }
        }
        self.remove_finalizer(node, latest, ORPHAN).await
    }

    async fn delete_dependents(&self, node: &Node, latest: &Object) -> Result<(), Refusal> {
        let dependents = self.graph().dependents_of(&node.uid);
        let mut blocking = false;
        for dependent in dependents {
            if let Ok(found) = self.api.get(dependent.kind, &dependent.key).await {
                blocking |= found.owners().iter().any(|owner| {
                    text_of(owner, "uid") == node.uid
                        && owner.get("blockOwnerDeletion") == Some(&Value::Bool(true))
                });
            }
            self.queue.add(dependent);
        }
        if blocking {
            // Woken again when a dependent goes.
            return Ok(());
        }
        self.remove_finalizer(node, latest, FOREGROUND).await
    }

    async fn remove_finalizer(
        &self,
        node: &Node,
        latest: &Object,
        finalizer: &str,
    ) -> Result<(), Refusal> {
        let left: Vec<Value> = latest
            .at("/metadata/finalizers")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter(|name| name.as_str() != Some(finalizer))
            .cloned()
            .collect();
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": latest.text("/metadata/resourceVersion"), "finalizers": left},
        }));
        match self.api.patch(node.kind, &node.key, patch).await {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.is_not_found() => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }
}

fn without_owners(uid: &str, owners: &[Value]) -> Patch {
    let deletions: Vec<Value> = owners
        .iter()
        .map(|owner| json!({"$patch": "delete", "uid": text_of(owner, "uid")}))
        .collect();
    Patch::Strategic(json!({"metadata": {"uid": uid, "ownerReferences": deletions}}))
}
