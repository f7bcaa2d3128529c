//! [`Action`]s to requests.

use std::future::Future;

use json_patch::{Patch as Operations, PatchOperation, RemoveOperation};
use kube::api::{
    Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions,
    PropagationPolicy,
};
use serde_json::{Value, json};

use super::error::Request;
use super::rights::right_for;
use super::{
    ANSWER_ANNOTATION, COMMAND_ANNOTATION, Cluster, ClusterError, DEADLINE, Kind, MANAGER,
    ROLE_LABEL, STATE_ANNOTATION, STATE_ROLE,
};
use crate::rollout::Action;
use crate::rollout::Replicas;
use crate::rollout::action::{CloneRole, Guard, Owner, state_name};
use crate::rollout::observation::{Deployment, DeploymentRest, ResourceVersion, Uid};
use crate::rollout::state::State;
use crate::rollout::template::{HASH_LABEL, Template};

const REVISION_PATH: &str = "/metadata/annotations/deployment.kubernetes.io~1revision";

pub(super) async fn within_deadline<T>(
    what: String,
    request: Request,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ClusterError> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(ClusterError::new(what, request, error)),
        Err(_) => Err(ClusterError::Timeout {
            what,
            after: DEADLINE,
        }),
    }
}

/// Creates what `body` says, under our name.
pub(super) async fn create(
    api: &Api<DynamicObject>,
    what: String,
    body: Value,
) -> Result<DynamicObject, ClusterError> {
    let object: DynamicObject =
        serde_json::from_value(body).map_err(|error| ClusterError::Refused {
            what: what.clone(),
            message: error.to_string(),
        })?;
    let params = PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    };
    within_deadline(what, Request::Plain, api.create(&params, &object)).await
}

/// Patches an object that is as the patch expects it, under our name.
pub(super) async fn patch(
    api: &Api<DynamicObject>,
    what: String,
    name: &str,
    patch: &Patch<Value>,
) -> Result<DynamicObject, ClusterError> {
    let params = patch_params();
    within_deadline(what, Request::Conditional, api.patch(name, &params, patch)).await
}

/// Under our name.
pub(super) fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

impl Cluster {
    /// Carries out one action for the service whose Deployment is `original`, in `namespace`. The answer goes into the
    /// store, so the next observation contains it.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Stale`] where the precondition does not hold; others as the API server says.
    pub async fn perform(
        &self,
        namespace: &str,
        original: &Deployment,
        action: &Action,
    ) -> Result<(), ClusterError> {
        let (kind, _) = right_for(action);
        match action {
            Action::CreateState { accepted, state } => {
                let body = json!({
                    "metadata": self.owned(&state_name(&original.name), STATE_ROLE, original, Some(state)),
                    "template": accepted.json(),
                });
                self.create(kind, namespace, body).await
            }
            Action::WriteState {
                resource_version,
                state,
                accepted,
                answer,
            } => {
                // The version first: all else is decided on it. A merge patch would mix two templates.
                let mut operations = vec![
                    test("/metadata/resourceVersion", json!(resource_version.0)),
                    put(&annotation(STATE_ANNOTATION), json!(encode(state))),
                ];
                if let Some(accepted) = accepted {
                    operations.push(put("/template", accepted.json().clone()));
                }
                if let Some(answer) = answer {
                    operations.push(remove(&annotation(COMMAND_ANNOTATION)));
                    operations.push(put(&annotation(ANSWER_ANNOTATION), json!(encode(answer))));
                }
                self.patch_json(kind, namespace, &state_name(&original.name), operations)
                    .await
            }
            Action::DeleteState { uid } => {
                self.delete(kind, namespace, &state_name(&original.name), uid)
                    .await
            }
            Action::Pause {
                name,
                uid,
                resource_version,
            } => {
                let mut operations = match resource_version {
                    Some(version) => unchanged(uid, version),
                    None => vec![test("/metadata/uid", json!(uid))],
                };
                operations.push(put("/spec/paused", json!(true)));
                self.patch_json(kind, namespace, name, operations).await
            }
            Action::Unpause {
                name,
                uid,
                resource_version,
            } => {
                let mut operations = unchanged(uid, resource_version);
                operations.extend([test("/spec/paused", json!(true)), remove("/spec/paused")]);
                self.patch_json(kind, namespace, name, operations).await
            }
            Action::Rewrite {
                name,
                uid,
                resource_version,
                template,
            } => {
                let mut operations = unchanged(uid, resource_version);
                operations.push(put("/spec/template", template.json().clone()));
                self.patch_json(kind, namespace, name, operations).await
            }
            Action::CreateClone {
                clone,
                template,
                replicas,
                rest,
                labels,
            } => {
                let mut metadata =
                    self.owned(&clone.name(&original.name), clone.role(), original, None);
                for (key, value) in labels {
                    metadata["labels"][key] = json!(value);
                }
                let body = json!({
                    "metadata": metadata,
                    "spec": {
                        "paused": true,
                        "replicas": replicas,
                        "selector": rest.selector,
                        "strategy": rest.strategy,
                        "minReadySeconds": rest.min_ready_seconds,
                        "template": template.json(),
                    },
                });
                self.create(kind, namespace, body).await
            }
            Action::Scale {
                clone,
                uid,
                from,
                to,
            } => {
                let operations = vec![
                    test("/metadata/uid", json!(uid)),
                    test("/spec/replicas", json!(from)),
                    put("/spec/replicas", json!(to)),
                ];
                self.patch_json(kind, namespace, &clone.name(&original.name), operations)
                    .await
            }
            Action::Sync { clone, uid, rest } => {
                let operations = vec![
                    test("/metadata/uid", json!(uid)),
                    put("/spec/strategy", rest.strategy.clone()),
                    put("/spec/minReadySeconds", json!(rest.min_ready_seconds)),
                ];
                self.patch_json(kind, namespace, &clone.name(&original.name), operations)
                    .await
            }
            Action::Adopt {
                what: _,
                name,
                uid,
                resource_version,
            } => {
                let owner = owner_reference(&owner(original));
                let mut operations = unchanged(uid, resource_version);
                operations.push(put("/metadata/ownerReferences", json!([owner])));
                self.patch_json(kind, namespace, name, operations).await
            }
            Action::ReplaceTemplate {
                uid,
                resource_version,
                template,
            } => {
                let mut operations = unchanged(uid, resource_version);
                operations.extend([
                    test("/spec/paused", json!(true)),
                    put("/spec/template", template.json().clone()),
                ]);
                let name = CloneRole::Canary.name(&original.name);
                self.patch_json(kind, namespace, &name, operations).await
            }
            Action::LetRoll {
                uid,
                resource_version,
                strategy,
            } => {
                let mut operations = unchanged(uid, resource_version);
                operations.extend([
                    test("/spec/paused", json!(true)),
                    put("/spec/strategy", strategy.clone()),
                    remove("/spec/paused"),
                ]);
                let name = CloneRole::Canary.name(&original.name);
                self.patch_json(kind, namespace, &name, operations).await
            }
            Action::StopRolling { uid, strategy } => {
                let operations = vec![
                    test("/metadata/uid", json!(uid)),
                    put("/spec/strategy", strategy.clone()),
                    put("/spec/paused", json!(true)),
                ];
                let name = CloneRole::Canary.name(&original.name);
                self.patch_json(kind, namespace, &name, operations).await
            }
            Action::DeleteClone { clone, uid } => {
                self.delete(kind, namespace, &clone.name(&original.name), uid)
                    .await
            }
            Action::CreateReplicaSet {
                name,
                hash,
                template,
                replicas,
                rest,
                owner,
            } => {
                let body = replica_set(name, hash.as_str(), template, *replicas, rest, owner);
                self.create(kind, namespace, body).await
            }
            Action::MoveReplicaSet {
                name,
                uid,
                from,
                to,
                guard,
            } => {
                let mut operations = vec![
                    test("/metadata/uid", json!(uid)),
                    test("/metadata/ownerReferences/0/uid", json!(from)),
                ];
                if let Guard::Replicas(replicas) = guard {
                    operations.push(test("/spec/replicas", json!(replicas)));
                }
                operations.push(put("/metadata/ownerReferences/0", owner_reference(to)));
                self.patch_json(kind, namespace, name, operations).await
            }
            Action::DeleteReplicaSet { name, uid } => self.delete(kind, namespace, name, uid).await,
            Action::RaiseRevision {
                name,
                uid,
                from,
                to,
            } => {
                let operations = vec![
                    test("/metadata/uid", json!(uid)),
                    test(REVISION_PATH, json!(from.to_string())),
                    put(REVISION_PATH, json!(to.to_string())),
                ];
                self.patch_json(kind, namespace, name, operations).await
            }
        }
    }

    /// Metadata of an object that X owns: it goes when X goes, and blocks nothing (design section 3, fact 10).
    fn owned(&self, name: &str, role: &str, original: &Deployment, state: Option<&State>) -> Value {
        let mut metadata = json!({
            "name": name,
            "labels": {ROLE_LABEL: role},
            "ownerReferences": [owner_reference(&owner(original))],
        });
        if let Some(state) = state {
            metadata["annotations"] = json!({STATE_ANNOTATION: encode(state)});
        }
        metadata
    }

    async fn create(
        &self,
        kind: Kind,
        namespace: &str,
        mut body: Value,
    ) -> Result<(), ClusterError> {
        body["apiVersion"] = json!(kind.api_version());
        body["kind"] = json!(kind.name());
        let name = body
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let what = format!("create {} {namespace}/{name}", kind.plural());
        let created = create(&self.api(kind, namespace), what, body).await?;
        self.store.answered(kind, &created);
        Ok(())
    }

    async fn patch_json(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        operations: Vec<PatchOperation>,
    ) -> Result<(), ClusterError> {
        self.patch(kind, namespace, name, &patch_of(operations))
            .await
    }

    pub(super) async fn patch(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Patch<Value>,
    ) -> Result<(), ClusterError> {
        let what = format!("patch {} {namespace}/{name}", kind.plural());
        let patched = self::patch(&self.api(kind, namespace), what, name, patch).await?;
        self.store.answered(kind, &patched);
        Ok(())
    }

    async fn delete(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        uid: &Uid,
    ) -> Result<(), ClusterError> {
        let what = format!("delete {} {namespace}/{name}", kind.plural());
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(uid.0.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let api = self.api(kind, namespace);
        within_deadline(what, Request::Conditional, api.delete(name, &params)).await?;
        self.store.deleting(kind, namespace, name, uid);
        Ok(())
    }
}

fn replica_set(
    name: &str,
    hash: &str,
    template: &Template,
    replicas: Replicas,
    rest: &DeploymentRest,
    owner: &Owner,
) -> Value {
    let mut labels: serde_json::Map<String, Value> = template
        .labels()
        .map(|(key, value)| (key.to_owned(), json!(value)))
        .collect();
    labels.insert(HASH_LABEL.to_owned(), json!(hash));
    let mut selector = rest.selector.clone();
    selector["matchLabels"][HASH_LABEL] = json!(hash);
    let mut template = template.json().clone();
    template["metadata"]["labels"][HASH_LABEL] = json!(hash);
    json!({
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner_reference(owner)]},
        "spec": {
            "replicas": replicas,
            "minReadySeconds": rest.min_ready_seconds,
            "selector": selector,
            "template": template,
        },
    })
}

fn owner(original: &Deployment) -> Owner {
    Owner::Deployment {
        name: original.name.clone(),
        uid: original.uid.clone(),
    }
}

fn owner_reference(owner: &Owner) -> Value {
    let (kind, name, uid) = match owner {
        Owner::Deployment { name, uid } => (Kind::Deployment, name, uid),
        Owner::Stash { name, uid } => (Kind::PodTemplate, name, uid),
    };
    json!({
        "apiVersion": kind.api_version(),
        "kind": kind.name(),
        "name": name,
        "uid": uid,
        "controller": true,
        "blockOwnerDeletion": false,
    })
}

fn encode(value: &impl serde::Serialize) -> String {
    // States and answers are made of strings, numbers and maps with string keys: they always serialize.
    serde_json::to_string(value).unwrap_or_default()
}

/// The path of an annotation.
pub(super) fn annotation(key: &str) -> String {
    format!("/metadata/annotations/{}", key.replace('/', "~1"))
}

fn pointer(path: &str) -> json_patch::jsonptr::PointerBuf {
    // Every path is a constant of this file.
    json_patch::jsonptr::PointerBuf::parse(path).unwrap_or_default()
}

pub(super) fn test(path: &str, value: Value) -> PatchOperation {
    PatchOperation::Test(json_patch::TestOperation {
        path: pointer(path),
        value,
    })
}

/// Tests that an object is the one, and as it was, when the write was decided on.
pub(super) fn unchanged(uid: &Uid, version: &ResourceVersion) -> Vec<PatchOperation> {
    vec![
        test("/metadata/uid", json!(uid)),
        test("/metadata/resourceVersion", json!(version.0)),
    ]
}

pub(super) fn remove(path: &str) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation {
        path: pointer(path),
    })
}

pub(super) fn patch_of(operations: Vec<PatchOperation>) -> Patch<Value> {
    Patch::Json(Operations(operations))
}

/// Adds or replaces: JSON patch's `add` does both for members of objects; list items are replaced.
pub(super) fn put(path: &str, value: Value) -> PatchOperation {
    if path.ends_with("/0") {
        PatchOperation::Replace(json_patch::ReplaceOperation {
            path: pointer(path),
            value,
        })
    } else {
        PatchOperation::Add(json_patch::AddOperation {
            path: pointer(path),
            value,
        })
    }
}
