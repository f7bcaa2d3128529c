//! The design's moves, made by hand with nothing but API calls: what Volery will do by itself.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{PodTemplate, PodTemplateSpec},
};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

use crate::{
    namespace::{Namespace, observed, owned_by, uid},
    wait::{ensure, eventually},
};

/// The label by which the controller tells ReplicaSets of one Deployment apart.
const HASH: &str = "pod-template-hash";
/// The annotation that `kubectl rollout history` goes by.
pub const REVISION: &str = "deployment.kubernetes.io/revision";

/// Sets `spec.paused` and waits until the controller has seen it.
pub async fn pause(ns: &Namespace, deployment: &str) -> Deployment {
    ns.patch(deployment, json!({"spec": {"paused": true}}))
        .await;
    ns.observed(deployment).await
}

pub fn replicas(deployment: &Deployment) -> i32 {
    deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or_default()
}

/// Total and up-to-date pods, as the status says.
pub fn reported(deployment: &Deployment) -> (i32, i32) {
    let status = deployment.status.clone().unwrap_or_default();
    (
        status.replicas.unwrap_or_default(),
        status.updated_replicas.unwrap_or_default(),
    )
}

/// The template of a Deployment that would have made this ReplicaSet.
pub fn template_of(rs: &ReplicaSet) -> PodTemplateSpec {
    let mut template = rs
        .spec
        .as_ref()
        .and_then(|spec| spec.template.clone())
        .unwrap_or_default();
    if let Some(labels) = template
        .metadata
        .as_mut()
        .and_then(|metadata| metadata.labels.as_mut())
    {
        labels.remove(HASH);
    }
    template
}

pub fn template(deployment: &Deployment) -> PodTemplateSpec {
    deployment
        .spec
        .as_ref()
        .map(|spec| spec.template.clone())
        .unwrap_or_default()
}

/// The only ReplicaSet of a Deployment.
pub async fn only_replica_set(ns: &Namespace, deployment: &Deployment) -> ReplicaSet {
    let mut owned = ns.replica_sets_of(&uid(deployment)).await;
    assert_eq!(
        owned.len(),
        1,
        "{} owns one ReplicaSet: {:?}",
        deployment.name_any(),
        owned.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    );
    owned.remove(0)
}

/// The ReplicaSet of a Deployment whose first image has this tag.
pub async fn replica_set(ns: &Namespace, deployment: &Deployment, tag: &str) -> ReplicaSet {
    let owned = ns.replica_sets_of(&uid(deployment)).await;
    owned
        .into_iter()
        .find(|rs| image_tag(&template_of(rs)) == tag)
        .unwrap_or_else(|| panic!("no ReplicaSet of {tag}"))
}

pub fn image_tag(template: &PodTemplateSpec) -> String {
    let image = template
        .spec
        .as_ref()
        .and_then(|spec| spec.containers.first())
        .and_then(|container| container.image.clone());
    image
        .and_then(|image| image.rsplit(':').next().map(str::to_owned))
        .unwrap_or_default()
}

/// Owner references that make `owner` the controller, as all of Volery's objects have them.
pub fn owned(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": false}])
}

/// Owner references to a Deployment.
pub fn owned_by_deployment(owner: &Deployment) -> Value {
    owned("apps/v1", "Deployment", &owner.name_any(), &uid(owner))
}

/// Creates `X-ROLE`, paused, with X's selector and strategy, and waits until the controller has seen it.
pub async fn create_clone(
    ns: &Namespace,
    x: &Deployment,
    role: &str,
    template: &PodTemplateSpec,
    replicas: i32,
) -> Deployment {
    let spec = x.spec.clone().unwrap_or_default();
    let name = format!("{}-{role}", x.name_any());
    let clone: Deployment = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"volery.dev/role": role}, "ownerReferences": owned_by_deployment(x)},
        "spec": {"paused": true, "replicas": replicas, "selector": spec.selector, "strategy": spec.strategy, "template": template},
    }))
    .unwrap();
    ns.deployments()
        .create(&PostParams::default(), &clone)
        .await
        .unwrap();
    ns.observed(&name).await
}

/// The JSON patch that replaces a ReplicaSet's owner, if that is still `from_uid`.
pub async fn move_rs(
    ns: &Namespace,
    rs: &ReplicaSet,
    from_uid: &str,
    to: Value,
    more_tests: Value,
) -> kube::Result<ReplicaSet> {
    let mut patch =
        vec![json!({"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": from_uid})];
    patch.extend(more_tests.as_array().cloned().unwrap_or_default());
    patch.push(json!({"op": "replace", "path": "/metadata/ownerReferences", "value": to}));
    let patch = Patch::Json::<()>(serde_json::from_value(json!(patch)).unwrap());
    ns.replica_sets()
        .patch(&rs.name_any(), &PatchParams::default(), &patch)
        .await
}

/// Creates the state object and moves all ReplicaSets of X but the running one to it.
pub async fn stash(ns: &Namespace, x: &Deployment, accepted: &ReplicaSet) -> PodTemplate {
    let state: PodTemplate = serde_json::from_value(json!({
        "metadata": {"name": format!("{}-volery", x.name_any()), "ownerReferences": owned_by_deployment(x)},
        "template": template_of(accepted),
    }))
    .unwrap();
    let state = ns
        .pod_templates()
        .create(&PostParams::default(), &state)
        .await
        .unwrap();
    let to = owned("v1", "PodTemplate", &state.name_any(), &uid(&state));
    for rs in ns.replica_sets_of(&uid(x)).await {
        if uid(&rs) != uid(accepted) {
            let empty = json!([{"op": "test", "path": "/spec/replicas", "value": 0}]);
            move_rs(ns, &rs, &uid(x), to.clone(), empty).await.unwrap();
        }
    }
    state
}

/// Registers a settled X: paused under the resource version that was judged settled, its history stashed.
pub async fn register(ns: &Namespace, x: &str) -> (Deployment, PodTemplate) {
    let active = eventually("the original to stay as it was judged settled", async || {
        let settled = ns.complete(x).await;
        let wanted = |rs: &ReplicaSet| rs.spec.as_ref().and_then(|spec| spec.replicas);
        let all = ns.replica_sets_of(&uid(&settled)).await;
        let active: Vec<_> = all.into_iter().filter(|rs| wanted(rs) > Some(0)).collect();
        ensure(active.len() == 1, || format!("{} ReplicaSets are active", active.len()))?;
        let patch = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": settled.resource_version()},
            {"op": "add", "path": "/spec/paused", "value": true},
        ]);
        let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
        let paused = ns.deployments().patch(x, &PatchParams::default(), &patch).await;
        paused.map_err(|e| e.to_string())?;
        Ok(active.into_iter().next().unwrap())
    })
    .await;
    let x = ns.observed(x).await;
    let state = stash(ns, &x, &active).await;
    (x, state)
}

/// The handover, steps 2 to 6 of the design.
pub async fn hand_over(ns: &Namespace, from: &str, to: &str, rs: &str) {
    let from = ns.observed(from).await;
    let mut to = ns.observed(to).await;
    assert!(
        [&from, &to]
            .iter()
            .all(|d| d.spec.as_ref().and_then(|spec| spec.paused) == Some(true))
    );
    let rs = ns.replica_sets().get(rs).await.unwrap();
    for other in ns.replica_sets_of(&uid(&from)).await {
        assert_eq!(
            uid(&other),
            uid(&rs),
            "{} owns nothing else",
            from.name_any()
        );
    }
    assert_eq!(
        ns.replica_sets_of(&uid(&to)).await.len(),
        0,
        "{} owns nothing",
        to.name_any()
    );
    let number = rs
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or_default();
    let is_clone = !to.owner_references().is_empty();
    if is_clone && (template(&to) != template_of(&rs) || replicas(&to) != number) {
        ns.patch(&to.name_any(), json!({"spec": {"replicas": number}}))
            .await;
        to = ns.observed(&to.name_any()).await;
        assert_eq!(template(&to), template_of(&rs));
    }
    let unmoved = if is_clone {
        json!([{"op": "test", "path": "/spec/replicas", "value": number}])
    } else {
        json!([])
    };
    move_rs(ns, &rs, &uid(&from), owned_by_deployment(&to), unmoved)
        .await
        .unwrap();
    let recognised = format!("{} to report {}", to.name_any(), rs.name_any());
    eventually(&recognised, async || {
        let to = ns.deployment(&to.name_any()).await;
        let rs = ns
            .replica_sets()
            .get(&rs.name_any())
            .await
            .map_err(|e| e.to_string())?;
        let number = rs.status.as_ref().map_or(0, |status| status.replicas);
        let expected = (
            number,
            if template(&to) == template_of(&rs) {
                number
            } else {
                0
            },
        );
        ensure(observed(&to) && reported(&to) == expected, || {
            format!("it reports {:?} and not {expected:?}", reported(&to))
        })
    })
    .await;
}

/// Creates a candidate's ReplicaSet, empty, under a Deployment, and waits until the controller takes it for the current one.
pub async fn create_rs(ns: &Namespace, owner: &Deployment, hash: &str) -> ReplicaSet {
    let spec = owner.spec.clone().unwrap_or_default();
    let labelled = |labels: Option<BTreeMap<String, String>>| {
        let mut labels = labels.unwrap_or_default();
        labels.insert(HASH.to_owned(), hash.to_owned());
        labels
    };
    let mut template = spec.template.clone();
    let metadata = template.metadata.get_or_insert_default();
    metadata.labels = Some(labelled(metadata.labels.take()));
    let labels = metadata.labels.clone();
    let x = owner
        .name_any()
        .trim_end_matches("-canary")
        .trim_end_matches("-primary")
        .to_owned();
    let rs: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": format!("{x}-{hash}"), "labels": labels, "ownerReferences": owned_by_deployment(owner)},
        "spec": {"replicas": 0, "selector": {"matchLabels": labelled(spec.selector.match_labels)}, "template": template},
    }))
    .unwrap();
    ns.replica_sets()
        .create(&PostParams::default(), &rs)
        .await
        .unwrap();
    eventually(&format!("{} to be recognised", rs.name_any()), async || {
        let rs = ns
            .replica_sets()
            .get(&rs.name_any())
            .await
            .map_err(|e| e.to_string())?;
        ensure(rs.annotations().contains_key(REVISION), || {
            "it has no revision".to_owned()
        })?;
        Ok(rs)
    })
    .await
}

/// Raises the revision of a recognised ReplicaSet.
pub async fn set_revision(ns: &Namespace, rs: &ReplicaSet, revision: u32) {
    let patch =
        Patch::Merge(json!({"metadata": {"annotations": {REVISION: revision.to_string()}}}));
    ns.replica_sets()
        .patch(&rs.name_any(), &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Sets a clone's number and waits until all its pods are available.
pub async fn scale_clone(ns: &Namespace, clone: &str, number: i32) {
    ns.patch(clone, json!({"spec": {"replicas": number}})).await;
    eventually(
        &format!("{clone} to have {number} available pods"),
        async || {
            let clone = ns.deployment(clone).await;
            let status = clone.status.clone().unwrap_or_default();
            let numbers =
                [status.replicas, status.available_replicas].map(Option::unwrap_or_default);
            ensure(observed(&clone) && numbers == [number; 2], || {
                format!("replicas and available are {numbers:?}")
            })
        },
    )
    .await;
}

/// Deletes a Deployment that owns nothing any more, or whose pods are to go.
pub async fn delete(ns: &Namespace, deployment: &Deployment) {
    let this = DeleteParams {
        preconditions: Some(Preconditions {
            uid: deployment.uid(),
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    ns.deployments()
        .delete(&deployment.name_any(), &this)
        .await
        .unwrap();
}

/// Waits until everything that a Deployment owned is gone.
pub async fn collected(ns: &Namespace, deployment: &Deployment) {
    eventually(
        &format!("what {} owned to be collected", deployment.name_any()),
        async || {
            let left = ns.replica_sets_of(&uid(deployment)).await.len();
            ensure(left == 0, || format!("{left} ReplicaSets are left"))
        },
    )
    .await;
}

/// Whether the ReplicaSet is owned by the Deployment.
pub fn is_of(rs: &ReplicaSet, deployment: &Deployment) -> bool {
    owned_by(rs.owner_references(), &uid(deployment))
}
