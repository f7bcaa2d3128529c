//! The design's promises, asserted over the whole way of a scenario and about a service at rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::PodSpec,
};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    audit,
    kubelet::tag,
    namespace::{Namespace, observed, owned_by, uid},
    recorder::{Object, Pods},
    wait::{ensure, eventually},
    worker::app_label,
};

/// Where the daemon keeps what it must remember.
const STATE: &str = "volery.dev/state";

/// Waits until the worker is at rest: X, paused, owns so many available pods of this version by one ReplicaSet, and they are named after
/// it; no clone, no other pod and no pending work is left. Whatever version X's own template asks for. Returns the uids of the pods.
pub async fn at_rest(
    namespace: &Namespace,
    name: &str,
    version: &str,
    replicas: i32,
) -> Vec<String> {
    at_rest_but(namespace, name, version, replicas, replicas).await
}

/// [`at_rest`] of a worker of whose pods only so many are available.
pub async fn at_rest_but(
    namespace: &Namespace,
    name: &str,
    version: &str,
    replicas: i32,
    available: i32,
) -> Vec<String> {
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
        let pods = owns(namespace, original, version, replicas, available).await?;
        let phase = phase(namespace, name).await?;
        ensure(phase == "at-rest", || format!("its phase is {phase}"))?;
        Ok(pods)
    })
    .await
}

async fn owns(
    namespace: &Namespace,
    original: &Deployment,
    version: &str,
    replicas: i32,
    available: i32,
) -> Result<Vec<String>, String> {
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
    let name = original.name_any();
    let alive: Vec<&str> = pods
        .iter()
        .filter(|pod| pod.labels().get("app").map(String::as_str) == Some(app_label(&name)))
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .map(tag)
        .collect();
    let replicas = usize::try_from(replicas).unwrap_or_default();
    ensure(
        alive.len() == replicas && alive.iter().all(|pod| *pod == version),
        || format!("the pods are of {alive:?}"),
    )?;
    let own = namespace.pods_of(original).await;
    let names: Vec<String> = own.iter().map(kube::ResourceExt::name_any).collect();
    // `X-HASH-RANDOM`: no clone's name is in them. Kubernetes cuts a pod's name before the random part.
    let set = sets.first().map(kube::ResourceExt::name_any);
    let prefix = format!("{}-", set.unwrap_or_default());
    let prefix = prefix.get(..58).unwrap_or(&prefix);
    let of_set = !prefix.starts_with(&format!("{name}-primary-"))
        && !prefix.starts_with(&format!("{name}-canary-"));
    let named_after_it = of_set && names.iter().all(|pod| pod.starts_with(prefix));
    ensure(own.len() == replicas && named_after_it, || {
        format!("its own pods are {names:?}")
    })?;
    Ok(own.iter().map(uid).collect())
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

/// The tag of a ReplicaSet's first image.
pub fn set_tag(set: &ReplicaSet) -> String {
    let template = set.spec.as_ref().and_then(|spec| spec.template.clone());
    image_tag(template.and_then(|template| template.spec).as_ref())
}

fn image_tag(spec: Option<&PodSpec>) -> String {
    spec.and_then(|spec| spec.containers.first()?.image.clone())
        .and_then(|image| image.rsplit(':').next().map(str::to_owned))
        .unwrap_or_default()
}

/// Tag and revision, as Kubernetes counts it, of the ReplicaSets of an owner, oldest revision first.
pub async fn history_of(namespace: &Namespace, owner_uid: &str) -> Vec<(String, u64)> {
    let revision = |set: &ReplicaSet| {
        set.annotations()
            .get("deployment.kubernetes.io/revision")
            .and_then(|revision| revision.parse().ok())
            .unwrap_or(0)
    };
    let mut sets: Vec<_> = namespace
        .replica_sets_of(owner_uid)
        .await
        .iter()
        .map(|set| (set_tag(set), revision(set)))
        .collect();
    sets.sort_by_key(|(_, revision)| *revision);
    sets
}

/// Tag and revision of what the state object owns, oldest revision first.
pub async fn stash(namespace: &Namespace, name: &str) -> Vec<(String, u64)> {
    let state = namespace
        .pod_templates()
        .get(&format!("{name}-volery"))
        .await
        .expect("the state object is there");
    history_of(namespace, &uid(&state)).await
}

/// The revisions that `kubectl rollout history` lists.
pub fn revisions(history: &str) -> Vec<u64> {
    history
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect()
}

/// No pod of the namespace belongs to anything but the ReplicaSets of `name` (promise 2 at the end of a story).
pub async fn no_other_pods(namespace: &Namespace, name: &str) {
    let x = namespace.deployment(name).await;
    let sets = namespace.replica_sets_of(&uid(&x)).await;
    let all = namespace
        .pods()
        .list(&ListParams::default())
        .await
        .expect("pods can be listed");
    let strays: Vec<_> = all
        .items
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .filter(|pod| {
            !sets
                .iter()
                .any(|set| owned_by(pod.owner_references(), &uid(set)))
        })
        .map(|pod| pod.name_any())
        .collect();
    assert_eq!(strays, Vec::<String>::new(), "pods of nobody we know");
}

/// At every single event since `since` the pods were as they must be.
async fn always(
    namespace: &Namespace,
    since: Instant,
    must: &str,
    holds: impl Fn(&Pods) -> bool + Sync,
) {
    namespace.now().await;
    for (at, pods) in namespace.recorder.series(since) {
        assert!(
            holds(&pods),
            "{:?} into it there were not {must}: {pods:?}",
            at - since
        );
    }
}

/// Never more than `wanted + surge` pods alive, never fewer than `wanted` available (promise 3).
pub async fn envelope(namespace: &Namespace, since: Instant, wanted: usize, surge: usize) {
    let must = format!(
        "at most {} alive and at least {wanted} available",
        wanted + surge
    );
    always(namespace, since, &must, |pods| {
        pods.alive <= wanted + surge && pods.available >= wanted
    })
    .await;
}

/// [`envelope`] of the pods with these tags only.
pub async fn envelope_of_tags(
    namespace: &Namespace,
    since: Instant,
    wanted: usize,
    surge: usize,
    tags: &[&str],
) {
    let must = format!(
        "at most {} alive and at least {wanted} available of {tags:?}",
        wanted + surge
    );
    always(namespace, since, &must, |pods| {
        let of_tags = tags.iter().filter_map(|tag| pods.by_tag.get(*tag));
        let (alive, available) = of_tags.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        alive <= wanted + surge && available >= wanted
    })
    .await;
}

/// Never more pods alive than this: where the lower bound does not hold, such as after a failure (promise 3).
pub async fn never_more_than(namespace: &Namespace, since: Instant, most: usize) {
    always(namespace, since, &format!("at most {most} alive"), |pods| {
        pods.alive <= most
    })
    .await;
}

/// Never more pods there than `most`, terminating ones too, and never fewer than `least` available (promise 3).
pub async fn capped(namespace: &Namespace, since: Instant, most: usize, least: usize) {
    let must = format!("at most {most} there and at least {least} available");
    always(namespace, since, &must, |pods| {
        pods.alive + pods.terminating <= most && pods.available >= least
    })
    .await;
}

/// Never more pods of this version alive than this: outside the step that was reached there are none (promise 2).
pub async fn never_more_of(namespace: &Namespace, since: Instant, version: &str, most: usize) {
    let must = format!("at most {most} of {version} alive");
    always(namespace, since, &must, |pods| {
        pods.by_tag.get(version).map_or(0, |(alive, _)| *alive) <= most
    })
    .await;
}

/// Exactly so many pods of each version were started since `since` (promise 1).
pub async fn started(namespace: &Namespace, since: Instant, expected: &[(&str, usize)]) {
    namespace.now().await;
    assert_eq!(
        namespace.recorder.starts(since),
        counts(expected),
        "the pods started, by version"
    );
}

/// Exactly so many pods of each version were stopped since `since`.
pub async fn stopped(namespace: &Namespace, since: Instant, expected: &[(&str, usize)]) {
    namespace.now().await;
    assert_eq!(
        namespace.recorder.stops(since),
        counts(expected),
        "the pods stopped, by version"
    );
}

fn counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected
        .iter()
        .map(|(version, number)| ((*version).to_owned(), *number))
        .collect()
}

/// No pod was started or stopped since `since`.
pub async fn untouched(namespace: &Namespace, since: Instant) {
    started(namespace, since, &[]).await;
    stopped(namespace, since, &[]).await;
}

/// Waits until the daemon has told all that it has to tell: Events and conditions come after what they tell of.
pub async fn all_told(namespace: &Namespace) {
    eventually("the daemon to have told everything", async || {
        let words = async || {
            let writes = namespace.daemon_writes().await;
            writes.iter().filter(|write| write.only_tells()).count()
        };
        let before = words().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        ensure(words().await == before, || "it goes on".to_owned())
    })
    .await;
}

/// The daemon's writes so far that do more than tell.
pub async fn deeds(namespace: &Namespace) -> Vec<audit::Request> {
    let mut writes = namespace.daemon_writes().await;
    writes.retain(|write| !write.only_tells());
    writes
}

/// Nothing is started, stopped or written by the daemon while `span` lasts.
pub async fn quiet(namespace: &Arc<Namespace>, span: Duration) {
    all_told(namespace).await;
    let (since, writes) = (namespace.now().await, namespace.daemon_writes().await.len());
    tokio::time::sleep(span).await;
    untouched(namespace, since).await;
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
