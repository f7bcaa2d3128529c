//! What people and CI do to the cluster: each at once, noted in the journal as agent `user`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Cluster;
use super::object::{Key, Kind, Object, set, text_of};
use super::patch::{Patch, merge_key};
use super::refusal::Refusal;
use super::shared::{Api, Write};
use super::store::{Deletion, Part, Propagation};

/// The manifest of a worker: one container `worker`, selected by the label `app`.
#[must_use]
pub fn deployment(namespace: &str, name: &str, replicas: u32, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "worker", "image": image}]},
            },
        },
    })
}

/// The annotation in which `kubectl apply` keeps what it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The patch that brings an object to `now` and removes what only `last` says.
fn with_removals(last: &Value, now: &Value) -> Value {
    let (Some(before), Some(after)) = (last.as_object(), now.as_object()) else {
        return now.clone();
    };
    let mut patch = after.clone();
    for (name, old) in before {
        let change = match after.get(name) {
            None => Value::Null,
            Some(new) => match (merge_key(name), old.as_array(), new.as_array()) {
                (Some(key), Some(old), Some(new)) => list_with_removals(key, old, new),
                _ => with_removals(old, new),
            },
        };
        patch.insert(name.clone(), change);
    }
    Value::Object(patch)
}

fn list_with_removals(key: &str, last: &[Value], now: &[Value]) -> Value {
    let same = |one: &Value, other: &Value| one.get(key) == other.get(key);
    let kept = now.iter().map(|item| {
        let before = last.iter().find(|before| same(before, item));
        before.map_or_else(|| item.clone(), |before| with_removals(before, item))
    });
    let removed = last
        .iter()
        .filter(|before| !now.iter().any(|item| same(before, item)))
        .map(|before| {
            let mut removal = json!({"$patch": "delete"});
            set(
                &mut removal,
                &[key],
                before.get(key).cloned().unwrap_or_default(),
            );
            removal
        });
    removed.chain(kept).collect()
}

impl Cluster {
    fn as_user(&self) -> Api {
        Api::new(Arc::clone(&self.shared), "user")
    }

    /// Creates a Deployment from a manifest, or brings the one that exists to what the manifest says, as `kubectl apply`
    /// does: what the manifest said last time and no longer says is removed, what it never said is left alone.
    ///
    /// # Errors
    /// What the server refuses.
    pub fn apply(&self, manifest: &Value) -> Result<Object, Refusal> {
        let key = Object::new(manifest.clone()).key();
        let mut applied = manifest.clone();
        set(
            &mut applied,
            &["metadata", "annotations", LAST_APPLIED],
            json!(manifest.to_string()),
        );
        let last = self.look(|now| {
            now.get(Kind::Deployment, &key.namespace, &key.name)
                .map(|found| found.annotation(LAST_APPLIED).map(str::to_owned))
        });
        let write = match last {
            None => Write::Create(applied),
            Some(last) => {
                let last = last
                    .and_then(|last| serde_json::from_str(&last).ok())
                    .unwrap_or_default();
                Write::Patch(Patch::Strategic(with_removals(&last, &applied)))
            }
        };
        self.as_user()
            .write_now(Kind::Deployment, &key, Part::Main, write)
            .map(Arc::unwrap_or_clone)
    }

    /// Creates any object from its manifest, which names its kind and namespace.
    ///
    /// # Errors
    /// 404 for a kind that is not served, and what the server refuses.
    pub fn create(&self, manifest: &Value) -> Result<Object, Refusal> {
        let kind = Kind::of_reference(text_of(manifest, "apiVersion"), text_of(manifest, "kind"))
            .ok_or_else(Refusal::no_such_path)?;
        let key = Object::new(manifest.clone()).key();
        let write = Write::Create(manifest.clone());
        self.as_user()
            .write_now(kind, &key, Part::Main, write)
            .map(Arc::unwrap_or_clone)
    }

    /// Patches any object.
    ///
    /// # Errors
    /// What the server refuses.
    pub fn patch(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: Patch,
    ) -> Result<Object, Refusal> {
        let key = Key::new(namespace, name);
        self.as_user()
            .write_now(kind, &key, Part::Main, Write::Patch(patch))
            .map(Arc::unwrap_or_clone)
    }

    /// Sets the image of a Deployment's container `worker`, as `kubectl set image` does.
    ///
    /// # Errors
    /// What the server refuses.
    pub fn set_image(&self, namespace: &str, name: &str, image: &str) -> Result<Object, Refusal> {
        let containers = json!([{"name": "worker", "image": image}]);
        let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        self.patch(Kind::Deployment, namespace, name, Patch::Strategic(patch))
    }

    /// Pauses or resumes a Deployment, as `kubectl rollout pause` and `resume` do.
    ///
    /// # Errors
    /// What the server refuses.
    pub fn set_paused(&self, namespace: &str, name: &str, paused: bool) -> Result<Object, Refusal> {
        let patch = json!({"spec": {"paused": paused}});
        self.patch(Kind::Deployment, namespace, name, Patch::Merge(patch))
    }

    /// Scales a Deployment through its subresource, as `kubectl scale` and HPA do.
    ///
    /// # Errors
    /// What the server refuses.
    pub fn scale(&self, namespace: &str, name: &str, replicas: u32) -> Result<Object, Refusal> {
        let key = Key::new(namespace, name);
        let write = Write::Patch(Patch::Merge(json!({"spec": {"replicas": replicas}})));
        self.as_user()
            .write_now(Kind::Deployment, &key, Part::Scale, write)
            .map(Arc::unwrap_or_clone)
    }

    /// Deletes any object.
    ///
    /// # Errors
    /// What the server refuses.
    pub fn delete(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        propagation: Propagation,
    ) -> Result<(), Refusal> {
        let deletion = Deletion {
            propagation,
            ..Deletion::default()
        };
        let key = Key::new(namespace, name);
        self.as_user()
            .write_now(kind, &key, Part::Main, Write::Delete(deletion))
            .map(drop)
    }

    /// Moves a ReplicaSet to another owner in one JSON patch with a `test` on the old owner's uid (design, fact 2).
    ///
    /// # Errors
    /// What the server refuses: 422 when the ReplicaSet belongs to somebody else.
    pub fn move_replica_set(&self, replica_set: &Object, to: &Object) -> Result<Object, Refusal> {
        let owner = json!({
            "apiVersion": to.text("/apiVersion"),
            "kind": to.text("/kind"),
            "name": to.name(),
            "uid": to.uid(),
            "controller": true,
            "blockOwnerDeletion": false,
        });
        let old = replica_set.controller().map(|owner| owner.uid);
        let patch = Patch::Json(json!([
            {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": old},
            {"op": "replace", "path": "/metadata/ownerReferences/0", "value": owner},
        ]));
        self.patch(
            Kind::ReplicaSet,
            replica_set.namespace(),
            replica_set.name(),
            patch,
        )
    }

    /// Counts a restart of every container of a pod, which stays as ready as it was.
    ///
    /// # Errors
    /// 404 when there is no such pod.
    pub fn restart_containers(&self, namespace: &str, pod: &str) -> Result<(), Refusal> {
        let key = Key::new(namespace, pod);
        let mut now = self
            .shared
            .lock()
            .store
            .get(Kind::Pod, &key)?
            .json()
            .clone();
        let statuses = now
            .pointer_mut("/status/containerStatuses")
            .and_then(Value::as_array_mut);
        for status in statuses.into_iter().flatten() {
            let count = status
                .get("restartCount")
                .and_then(Value::as_u64)
                .unwrap_or_default();
            if let Some(status) = status.as_object_mut() {
                status.insert("restartCount".to_owned(), json!(count + 1));
                let exit = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
                status.insert("lastState".to_owned(), exit);
            }
        }
        let kubelet = Api::new(Arc::clone(&self.shared), "kubelet");
        kubelet
            .write_now(Kind::Pod, &key, Part::Status, Write::Replace(now))
            .map(drop)
    }
}
