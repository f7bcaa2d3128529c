//! What people and CI do to the cluster: each at once, noted in the journal as agent `user`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Cluster;
use super::object::{Key, Kind, Object, text_of};
use super::patch::Patch;
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

impl Cluster {
    fn as_user(&self) -> Api {
        Api::new(Arc::clone(&self.shared), "user")
    }

    /// Creates a Deployment from a manifest, or brings the one that exists to what the manifest says, as
    /// `kubectl apply` does for everything that manifests say.
    ///
    /// # Errors
    /// What the server refuses.
    pub fn apply(&self, manifest: &Value) -> Result<Object, Refusal> {
        let object = Object::new(manifest.clone());
        let key = object.key();
        let exists = self.look(|now| {
            now.get(Kind::Deployment, &key.namespace, &key.name)
                .is_some()
        });
        let write = if exists {
            Write::Patch(Patch::Strategic(manifest.clone()))
        } else {
            Write::Create(manifest.clone())
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
