//! The manifest of a worker: the BASE of the cases unless told otherwise.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

use crate::kubelet::{self, Behaviour};

/// Builds a Deployment `orders-worker` with one container `worker`, ten replicas, tag `v1`, label and selector `app: orders-worker`,
/// RollingUpdate 25%/25%.
#[derive(Clone, Debug)]
pub struct Worker {
    pub name: String,
    pub replicas: i32,
    pub tag: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    pod_annotations: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
    spec: Value,
    pod_spec: Value,
}

impl Default for Worker {
    fn default() -> Self {
        Self::named("orders-worker")
    }
}

impl Worker {
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            replicas: 10,
            tag: "v1".to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            pod_annotations: BTreeMap::new(),
            env: BTreeMap::new(),
            spec: json!({}),
            pod_spec: json!({}),
        }
    }

    pub fn replicas(mut self, replicas: i32) -> Self {
        self.replicas = replicas;
        self
    }

    pub fn tag(mut self, tag: &str) -> Self {
        self.tag = tag.to_owned();
        self
    }

    /// What its pods do. Part of the template, so it changes the version.
    pub fn behaviour(self, behaviour: Behaviour) -> Self {
        let mut worker = self.well_behaved();
        worker.pod_annotations.extend(behaviour.annotations());
        worker
    }

    /// Its pods just become ready again.
    pub fn well_behaved(mut self) -> Self {
        let other = |key: &str| {
            !key.starts_with("bed.volery.dev/")
                || key.ends_with("terminate-after")
                || key.ends_with("nodes")
        };
        self.pod_annotations.retain(|key, _| other(key));
        self
    }

    /// How long its pods stay Terminating.
    pub fn terminate_after(mut self, time: std::time::Duration) -> Self {
        self.pod_annotations
            .extend([kubelet::terminate_after(time)]);
        self
    }

    /// Its containers, init containers and sidecars have restarted before anybody looks: name, restarts, last exit code.
    pub fn restarted(mut self, containers: &[(&str, i32, i32)]) -> Self {
        self.pod_annotations
            .extend([kubelet::restarted(containers)]);
        self
    }

    /// One pod to a node, by required anti-affinity, on so many nodes.
    pub fn one_to_a_node(mut self, nodes: usize) -> Self {
        self.pod_annotations.extend([kubelet::nodes(nodes)]);
        let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": self.name}}});
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        self.pod_spec(json!({"affinity": {"podAntiAffinity": required}}))
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// A label of the Deployment, not of its pods.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// An annotation of the Deployment, not of its pods.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Any fields of the Deployment's spec, in place of the default ones: `json!({"strategy": {"type": "Recreate"}})`.
    pub fn spec(mut self, fields: Value) -> Self {
        json_patch::merge(&mut self.spec, &fields);
        self
    }

    /// Any fields of the pod's spec.
    pub fn pod_spec(mut self, fields: Value) -> Self {
        json_patch::merge(&mut self.pod_spec, &fields);
        self
    }

    pub fn image(&self) -> String {
        format!("registry.example/{}:{}", self.name, self.tag)
    }

    /// The manifest, for `kubectl apply`.
    pub fn manifest(&self) -> String {
        self.value().to_string()
    }

    pub fn deployment(&self) -> Deployment {
        serde_json::from_value(self.value()).expect("the builder writes Deployments")
    }

    fn value(&self) -> Value {
        let app = json!({"app": app_label(&self.name)});
        let env: Vec<_> = self
            .env
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        let mut pod_spec =
            json!({"containers": [{"name": "worker", "image": self.image(), "env": env}]});
        json_patch::merge(&mut pod_spec, &self.pod_spec);
        let mut labels = self.labels.clone();
        labels
            .entry("app".to_owned())
            .or_insert_with(|| app_label(&self.name).to_owned());
        let mut spec = json!({
            "replicas": self.replicas,
            "selector": {"matchLabels": app},
            "template": {"metadata": {"labels": app, "annotations": self.pod_annotations}, "spec": pod_spec},
        });
        json_patch::merge(&mut spec, &self.spec);
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": self.name, "labels": labels, "annotations": self.annotations},
            "spec": spec,
        })
    }
}

/// The value of label `app` of a worker's pods: its name, or as much of it as a label's value may have.
pub fn app_label(name: &str) -> &str {
    name.get(..63).unwrap_or(name)
}
