//! Looking at a Deployment before it is registered: what the core would see, and what its manifest says.

use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

use super::error::Request;
use super::live::selector_text;
use super::perform::within_deadline;
use super::{Cluster, ClusterError, Kind, MANAGER};
use crate::rollout::Observation;
use crate::rollout::observation::Freshness;

/// The annotation in which kubectl keeps the manifest as it was last applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The deadline with which Kubernetes reports no progress at all, so that a paused Deployment has no condition that
/// reads as in progress for ever (design section 3, fact 17).
const NO_DEADLINE: i64 = 2_147_483_647;

/// A Deployment, before anything is done to it.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// What the core sees, pods included.
    pub observation: Observation,
    /// What its manifest says; `None` where there is no Deployment.
    pub manifest: Option<Manifest>,
}

/// What concerns Volery in a Deployment's manifest and is no part of what the core decides on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Whether each apply un-pauses it (case K40).
    pub pause: PauseInManifest,
    /// The tool that waits for it by `kstatus` and would wait for ever (design section 3, fact 17).
    pub waits_for_ever: Option<&'static str>,
}

/// `spec.paused` in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseInManifest {
    /// It is not in it, as it should be, or says `true`.
    LeftAlone,
    /// It says `false`.
    SaysUnpaused,
}

/// Tools that read a paused Deployment with a deadline as in progress, and the labels by which they mark what is theirs.
const WAITING_TOOLS: [(&str, &str); 3] = [
    ("kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("helm.toolkit.fluxcd.io/name", "Flux"),
    ("app.kubernetes.io/managed-by", "Helm"),
];

impl Cluster {
    /// Looks at a Deployment, at whatever has its clones' names, and at its pods.
    ///
    /// # Errors
    ///
    /// When something of it cannot be read.
    pub async fn inspect(
        &self,
        namespace: &str,
        deployment: &str,
    ) -> Result<Inspection, ClusterError> {
        let seen = self.look_live(namespace, deployment).await?;
        let Some(original) = &seen.original else {
            return Ok(Inspection {
                observation: seen,
                manifest: None,
            });
        };
        let params = ListParams::default().labels(&selector_text(&original.rest.selector));
        let api = self.api(Kind::Pod, namespace);
        let what = format!("list pods in {namespace}");
        let pods = within_deadline(what, Request::Plain, api.list(&params)).await?;
        pods.iter()
            .for_each(|pod| self.store.answered(Kind::Pod, pod));
        let what = format!("get deployments {namespace}/{deployment}");
        let api = self.api(Kind::Deployment, namespace);
        let raw = within_deadline(what, Request::Plain, api.get_opt(deployment)).await?;
        Ok(Inspection {
            observation: self.observe(namespace, deployment, Freshness::Live),
            manifest: raw.as_ref().map(manifest),
        })
    }
}

fn manifest(object: &DynamicObject) -> Manifest {
    let labels = object.metadata.labels.as_ref();
    let tool = WAITING_TOOLS.iter().find_map(|(label, tool)| {
        let value = labels?.get(*label)?;
        (*tool == "Flux" || value == tool).then_some(*tool)
    });
    let deadline = object
        .data
        .pointer("/spec/progressDeadlineSeconds")
        .and_then(Value::as_i64);
    Manifest {
        pause: if says_unpaused(object) {
            PauseInManifest::SaysUnpaused
        } else {
            PauseInManifest::LeftAlone
        },
        waits_for_ever: tool.filter(|_| deadline != Some(NO_DEADLINE)),
    }
}

/// Whether `kubectl apply` wrote it so, or somebody who applies on the server's side owns the field and has it so.
fn says_unpaused(object: &DynamicObject) -> bool {
    let paused = |object: &Value| object.pointer("/spec/paused").and_then(Value::as_bool);
    let annotations = object.metadata.annotations.as_ref();
    let applied: Option<Value> = annotations
        .and_then(|annotations| annotations.get(LAST_APPLIED))
        .and_then(|text| serde_json::from_str(text).ok());
    let on_the_server = object
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .any(|entry| {
            entry.operation.as_deref() == Some("Apply")
                && entry.manager.as_deref() != Some(MANAGER)
                && entry
                    .fields_v1
                    .as_ref()
                    .is_some_and(|fields| fields.0.pointer("/f:spec/f:paused").is_some())
        });
    applied.as_ref().and_then(paused) == Some(false)
        || (on_the_server && paused(&object.data) != Some(true))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).expect("is an object")
    }

    #[test]
    fn a_manifest_that_unpauses_is_known_by_what_was_applied() {
        let applied =
            |manifest: &str| json!({"metadata": {"annotations": {LAST_APPLIED: manifest}}});
        let owned = |operation: &str, manager: &str, paused: Value| {
            let fields = json!({"f:spec": {"f:paused": {}}});
            json!({
                "metadata": {"managedFields": [
                    {"operation": operation, "manager": manager, "fieldsType": "FieldsV1", "fieldsV1": fields}
                ]},
                "spec": {"paused": paused},
            })
        };
        for (value, says) in [
            (applied(r#"{"spec":{"paused":false}}"#), true),
            (applied(r#"{"spec":{"paused":true}}"#), false),
            (applied(r#"{"spec":{"replicas":3}}"#), false),
            (applied("no JSON"), false),
            (owned("Apply", "argocd", json!(false)), true),
            (owned("Apply", "argocd", Value::Null), true),
            (owned("Apply", "argocd", json!(true)), false),
            (owned("Update", "kubectl-rollout", Value::Null), false),
            (owned("Apply", MANAGER, json!(false)), false),
            (json!({"metadata": {}}), false),
        ] {
            let expected = if says {
                PauseInManifest::SaysUnpaused
            } else {
                PauseInManifest::LeftAlone
            };
            assert_eq!(manifest(&object(value.clone())).pause, expected, "{value}");
        }
    }

    #[test]
    fn only_tools_that_wait_by_kstatus_wait_for_ever_and_only_with_a_deadline() {
        for (label, value, deadline, waits) in [
            ("app.kubernetes.io/managed-by", "Helm", 600, Some("Helm")),
            ("app.kubernetes.io/managed-by", "Helm", NO_DEADLINE, None),
            ("app.kubernetes.io/managed-by", "kustomize", 600, None),
            (
                "kustomize.toolkit.fluxcd.io/name",
                "workers",
                600,
                Some("Flux"),
            ),
            ("helm.toolkit.fluxcd.io/name", "workers", NO_DEADLINE, None),
            ("team", "Helm", 600, None),
        ] {
            let object = object(json!({
                "metadata": {"labels": {label: value}},
                "spec": {"progressDeadlineSeconds": deadline},
            }));
            assert_eq!(
                manifest(&object).waits_for_ever,
                waits,
                "{label}: {value}, {deadline}"
            );
        }
    }
}
