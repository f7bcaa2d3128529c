//! The design's promises, asserted over the whole way of a scenario.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::PodSpec,
};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    kubelet::tag,
    namespace::{Namespace, observed, uid},
    recorder::Object,
    wait::{ensure, eventually},
};

/// Where the daemon keeps what it must remember.
const STATE: &str = "volery.dev/state";

/// Waits until the worker is at rest: X, paused, owns so many available pods of this version by one ReplicaSet; no clone, no other pod and
/// no pending work is left. Whatever version X's own template asks for.
pub async fn at_rest(namespace: &Namespace, name: &str, version: &str, replicas: i32) {
    at_rest_but(namespace, name, version, replicas, replicas).await;
}

/// [`at_rest`] of a worker of whose pods only so many are available.
pub async fn at_rest_but(
    namespace: &Namespace,
    name: &str,
    version: &str,
    replicas: i32,
    available: i32,
) {
    let what = format!("{name} to be at rest with {replicas} pods of {version}");
    eventually(&what, async || {
        let deployments = namespace
            .deployments()
            .list(&ListParams::default())
            .await
            .map_err(|e| e.to_string())?
            .items;
        let clones: Vec<String> = deployments
            .iter()
            .map(kube::ResourceExt::name_any)
            .filter(|other| {
                *other == format!("{name}-primary") || *other == format!("{name}-canary")
            })
            .collect();
        ensure(clones.is_empty(), || format!("there is {clones:?}"))?;
        let original = deployments
            .iter()
            .find(|deployment| deployment.name_any() == name)
            .ok_or("it does not exist")?;
        owns(namespace, original, version, replicas, available).await?;
        let phase = phase(namespace, name).await?;
        ensure(phase == "at-rest", || format!("its phase is {phase}"))
    })
    .await;
}

async fn owns(
    namespace: &Namespace,
    original: &Deployment,
    version: &str,
    replicas: i32,
    available: i32,
) -> Result<(), String> {
    let spec = original.spec.clone().unwrap_or_default();
    let status = original.status.clone().unwrap_or_default();
    let numbers = [status.replicas, status.available_replicas].map(Option::unwrap_or_default);
    ensure(
        observed(original)
            && spec.paused == Some(true)
            && spec.replicas == Some(replicas)
            && numbers == [replicas, available],
        || {
            format!(
                "its pods and available ones are {numbers:?} of {:?}, paused {:?}",
                spec.replicas, spec.paused
            )
        },
    )?;
    let sets = namespace.replica_sets_of(&uid(original)).await;
    let tags: Vec<String> = sets.iter().map(set_tag).collect();
    ensure(
        tags == [version] || (replicas == 0 && tags.is_empty()),
        || format!("its ReplicaSets are of {tags:?}"),
    )?;
    let pods = namespace
        .pods()
        .list(&ListParams::default())
        .await
        .map_err(|e| e.to_string())?
        .items;
    let app = Some(&original.name_any()).cloned();
    let alive: Vec<&str> = pods
        .iter()
        .filter(|pod| pod.labels().get("app").cloned() == app)
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .map(tag)
        .collect();
    ensure(
        alive.len() == usize::try_from(replicas).unwrap_or_default()
            && alive.iter().all(|pod| *pod == version),
        || format!("the pods are of {alive:?}"),
    )
}

/// The phase that the state object tells.
async fn phase(namespace: &Namespace, name: &str) -> Result<String, String> {
    let object = namespace
        .pod_templates()
        .get(&format!("{name}-volery"))
        .await
        .map_err(|e| e.to_string())?;
    let text = object
        .annotations()
        .get(STATE)
        .cloned()
        .ok_or("the state object holds no state")?;
    let state: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    Ok(match &state["phase"] {
        Value::String(phase) => phase.clone(),
        other => other.to_string(),
    })
}

fn set_tag(set: &ReplicaSet) -> String {
    let template = set.spec.as_ref().and_then(|spec| spec.template.clone());
    image_tag(template.and_then(|template| template.spec).as_ref())
}

fn image_tag(spec: Option<&PodSpec>) -> String {
    spec.and_then(|spec| spec.containers.first()?.image.clone())
        .and_then(|image| image.rsplit(':').next().map(str::to_owned))
        .unwrap_or_default()
}

/// No moment since `since` had more pods alive than this (promise 3).
pub async fn never_more_than(namespace: &Namespace, since: Instant, most: usize) {
    namespace.now().await;
    for (at, pods) in namespace.recorder.series(since) {
        assert!(
            pods.alive <= most,
            "{} pods were alive {:?} into it, at most {most} may be: {pods:?}",
            pods.alive,
            at - since
        );
    }
}

/// No moment since `since` had more pods of this version alive than this: outside the step that was reached there are none (promise 2).
pub async fn never_more_of(namespace: &Namespace, since: Instant, version: &str, most: usize) {
    namespace.now().await;
    for (at, pods) in namespace.recorder.series(since) {
        let alive = pods.by_tag.get(version).map_or(0, |(alive, _)| *alive);
        assert!(
            alive <= most,
            "{alive} pods of {version} were alive {:?} into it, at most {most} may be: {pods:?}",
            at - since
        );
    }
}

/// No moment since `since` had fewer pods available than this (promise 3).
pub async fn never_fewer_available_than(namespace: &Namespace, since: Instant, fewest: usize) {
    namespace.now().await;
    for (at, pods) in namespace.recorder.series(since) {
        assert!(
            pods.available >= fewest,
            "{} pods were available {:?} into it, at least {fewest} must be: {pods:?}",
            pods.available,
            at - since
        );
    }
}

/// Exactly so many pods of each version were started since `since` (promise 1).
pub async fn started(namespace: &Namespace, since: Instant, expected: &[(&str, usize)]) {
    namespace.now().await;
    let starts: Vec<(String, usize)> = namespace.recorder.starts(since).into_iter().collect();
    let expected: Vec<(String, usize)> = expected
        .iter()
        .map(|(version, number)| ((*version).to_owned(), *number))
        .collect();
    assert_eq!(starts, expected, "the pods started, by version");
}

/// Nothing is started, stopped or written by the daemon while `span` lasts.
pub async fn quiet(namespace: &Arc<Namespace>, span: Duration) {
    let (since, writes) = (namespace.now().await, namespace.daemon_writes().await.len());
    tokio::time::sleep(span).await;
    namespace.now().await;
    let (starts, stops) = (
        namespace.recorder.starts(since),
        namespace.recorder.stops(since),
    );
    assert!(
        starts.is_empty() && stops.is_empty(),
        "pods were started {starts:?} and stopped {stops:?} where nothing should happen"
    );
    let made = namespace.daemon_writes().await.split_off(writes);
    let made: Vec<String> = made
        .iter()
        .map(|write| format!("{} {} {}", write.verb, write.resource(), write.name()))
        .collect();
    assert!(
        made.is_empty(),
        "writes where nothing should happen: {made:?}"
    );
}

/// Waits until the numbers of the clones are these: the step (C,P).
pub async fn step(namespace: &Namespace, name: &str, since: Instant, step: (i32, i32)) {
    eventually(&format!("the step {step:?}"), async || {
        let steps = namespace.recorder.steps(name, since);
        ensure(steps.last() == Some(&step), || {
            format!("the steps were {steps:?}")
        })
    })
    .await;
}

/// The recorder's kinds may be so much apart from each other.
const APART: Duration = Duration::from_millis(300);

/// At no moment since `since`, when v1 was the accepted version, did more pods of another version run than its canary had been told to
/// have by then; once that version's ReplicaSet has come from the canary to X it is accepted, and may have any number (promise 2).
pub async fn never_beyond_the_step(namespace: &Namespace, name: &str, since: Instant) {
    namespace.now().await;
    let canary = format!("{name}-canary");
    // By version: the highest number its canary was told, and `None` once it is accepted.
    let mut limits: Vec<(Instant, String, Option<usize>)> = Vec::new();
    let mut of_canary = BTreeSet::new();
    for event in namespace.recorder.events() {
        match &event.object {
            Object::Deployment(deployment) if deployment.name_any() == canary => {
                let spec = deployment.spec.clone().unwrap_or_default();
                let told = usize::try_from(spec.replicas.unwrap_or_default()).unwrap_or_default();
                limits.push((event.at, image_tag(spec.template.spec.as_ref()), Some(told)));
            }
            Object::ReplicaSet(set) => {
                let owner = set
                    .owner_references()
                    .first()
                    .map(|owner| owner.name.clone());
                if owner.as_ref() == Some(&canary) {
                    of_canary.insert(uid(&**set));
                } else if owner.as_deref() == Some(name) && of_canary.contains(&uid(&**set)) {
                    limits.push((event.at, set_tag(set), None));
                }
            }
            _ => {}
        }
    }
    for (at, pods) in namespace.recorder.series(since) {
        for (version, (alive, _)) in pods.by_tag.iter().filter(|(version, _)| *version != "v1") {
            let mut by_then = limits
                .iter()
                .filter(|(told_at, of, _)| of == version && *told_at <= at + APART)
                .map(|(_, _, limit)| *limit);
            let accepted = by_then.clone().any(|limit| limit.is_none());
            let most = by_then.by_ref().flatten().max().unwrap_or(0);
            assert!(
                accepted || *alive <= most,
                "{alive} pods of {version} were alive {:?} into it, its canary had at most {most} by then: {pods:?}",
                at - since
            );
        }
    }
}
