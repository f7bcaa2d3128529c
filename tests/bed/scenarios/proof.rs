//! What scenarios prove about a whole stretch of time, and about a service at rest.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::{ResourceExt as _, api::ListParams};
use tokio::time::Instant;

use super::base::{Base, config};
use crate::{
    daemon::Daemon,
    namespace::{Namespace, owned_by, uid},
    prometheus::{Answer, Stub},
    recorder::Pods,
    scene::Scene,
    wait::{ensure, eventually},
    worker::Worker,
};

/// A moment in a namespace: for questions to the recorder, and for log lines that come after it.
#[derive(Clone, Copy, Debug)]
pub struct Since {
    pub at: Instant,
    lines: usize,
}

impl Since {
    pub async fn now(namespace: &Namespace, daemon: &Daemon) -> Self {
        Self {
            at: namespace.now().await,
            lines: daemon.log().len(),
        }
    }

    /// Waits for a line with this text after this moment, and returns the moment after that line.
    pub async fn log(self, daemon: &Daemon, text: &str) -> Self {
        eventually(&format!("a new log line with {text:?}"), async || {
            let log = daemon.log();
            let found = log
                .iter()
                .skip(self.lines)
                .position(|line| line.text.contains(text));
            found
                .map(|index| Self {
                    at: Instant::now(),
                    lines: self.lines + index + 1,
                })
                .ok_or_else(|| {
                    let last = log.last().map_or("", |line| &line.text);
                    format!("the last of {} lines is {last:?}", log.len())
                })
        })
        .await
    }

    /// The lines after this moment.
    pub fn lines(self, daemon: &Daemon) -> Vec<String> {
        daemon
            .log()
            .into_iter()
            .skip(self.lines)
            .map(|line| line.text)
            .collect()
    }
}

/// Promise 3, at every single event: never more than `wanted + surge` pods alive, never fewer than `wanted` available.
pub async fn envelope(namespace: &Namespace, since: Instant, wanted: usize, surge: usize) {
    envelope_of(namespace, since, wanted, surge, &|pods| {
        (pods.alive, pods.available)
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
    envelope_of(namespace, since, wanted, surge, &|pods| {
        let of_tags = pods
            .by_tag
            .iter()
            .filter(|(tag, _)| tags.contains(&tag.as_str()));
        of_tags.fold((0, 0), |sum, (_, of)| (sum.0 + of.0, sum.1 + of.1))
    })
    .await;
}

async fn envelope_of(
    namespace: &Namespace,
    since: Instant,
    wanted: usize,
    surge: usize,
    of: &(dyn Fn(&Pods) -> (usize, usize) + Sync),
) {
    namespace.now().await;
    for (at, pods) in namespace.recorder.series(since) {
        let (alive, available) = of(&pods);
        assert!(
            alive <= wanted + surge && available >= wanted,
            "after {:?}: {alive} alive, {available} available, allowed are at most {} and at least {wanted}: {pods:?}",
            at - since,
            wanted + surge,
        );
    }
}

/// Exactly these pods were started since then, by tag.
pub async fn started(namespace: &Namespace, since: Instant, expected: &[(&str, usize)]) {
    namespace.now().await;
    assert_eq!(
        namespace.recorder.starts(since),
        counts(expected),
        "pods started"
    );
}

/// Exactly these pods were stopped since then, by tag.
pub async fn stopped(namespace: &Namespace, since: Instant, expected: &[(&str, usize)]) {
    namespace.now().await;
    assert_eq!(
        namespace.recorder.stops(since),
        counts(expected),
        "pods stopped"
    );
}

/// No pod was started or stopped since then.
pub async fn untouched(namespace: &Namespace, since: Instant) {
    started(namespace, since, &[]).await;
    stopped(namespace, since, &[]).await;
}

fn counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected
        .iter()
        .map(|(tag, count)| ((*tag).to_owned(), *count))
        .collect()
}

/// The tag of a ReplicaSet's first image.
pub fn set_tag(set: &ReplicaSet) -> String {
    let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    let image = template
        .and_then(|template| template.spec.as_ref())
        .and_then(|spec| spec.containers.first())
        .and_then(|container| container.image.clone())
        .unwrap_or_default();
    image.rsplit(':').next().unwrap_or_default().to_owned()
}

/// The ReplicaSet's revision, as Kubernetes counts it.
pub fn revision(set: &ReplicaSet) -> u64 {
    set.annotations()
        .get("deployment.kubernetes.io/revision")
        .and_then(|revision| revision.parse().ok())
        .unwrap_or(0)
}

/// Tag and revision of the ReplicaSets of an owner, oldest revision first.
pub async fn history_of(namespace: &Namespace, owner_uid: &str) -> Vec<(String, u64)> {
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

/// The service is at rest on this version: X is paused and owns one ReplicaSet and all pods, which are named after it; nothing is
/// left of the clones. Returns the uids of the pods.
pub async fn at_rest(namespace: &Namespace, name: &str, tag: &str, replicas: usize) -> Vec<String> {
    eventually(
        &format!("{name} to be at rest on {tag}, {replicas} replicas"),
        async || {
            let x = namespace.deployment(name).await;
            let spec = x.spec.clone().unwrap_or_default();
            ensure(spec.paused == Some(true), || "it is not paused".to_owned())?;
            let owned = history_of(namespace, &uid(&x)).await;
            ensure(
                matches!(owned.as_slice(), [(only, _)] if only == tag)
                    || (replicas == 0 && owned.is_empty()),
                || format!("it owns {owned:?}"),
            )?;
            let status = x.status.clone().unwrap_or_default();
            let available =
                usize::try_from(status.available_replicas.unwrap_or_default()).unwrap_or_default();
            ensure(available == replicas, || format!("{available} available"))?;
            for clone in ["primary", "canary"] {
                let found = namespace
                    .deployments()
                    .get_opt(&format!("{name}-{clone}"))
                    .await;
                ensure(matches!(found, Ok(None)), || {
                    format!("the {clone} is still there")
                })?;
            }
            let pods = namespace.pods_of(&x).await;
            let names: Vec<_> = pods.iter().map(|pod| pod.name_any()).collect();
            let named_after_it = names
                .iter()
                .all(|pod| pod.starts_with(&format!("{name}-")) && pod.matches('-').count() == 3);
            ensure(pods.len() == replicas && named_after_it, || {
                format!("its pods are {names:?}")
            })?;
            Ok(pods.iter().map(uid).collect())
        },
    )
    .await
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

/// A registered worker whose rollouts can be held at a step: checks that get no answer neither advance nor fail it (promise 4).
pub struct Held {
    pub base: Base,
    pub stub: Stub,
}

impl Held {
    pub async fn registered(scene: &Scene, worker: Worker, more: &str) -> Self {
        let namespace = scene.namespace().await;
        let stub = namespace.prometheus_stub().await;
        let more = format!("inconclusive_timeout: 120s\n{more}");
        let base = Base::on(Arc::clone(&namespace), worker, &stub.url(), &more).await;
        Self { base, stub }
    }

    /// Lets the open rollout come to the step with this canary and primary, as its log says, and holds it there.
    pub async fn hold_at(&self, since: Since, canary: usize, primary: usize) -> Since {
        let daemon = &self.base.daemon;
        since
            .log(daemon, &format!("to canary {canary}, primary {primary}"))
            .await;
        self.stub.answers(Answer::Never);
        since
            .log(
                daemon,
                &format!("canary {canary}/{canary} available, primary {primary}, checking"),
            )
            .await
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.stub.answers(Answer::Real);
    }
}

/// The configuration of a file in which BASE's entry is missing and another one, of no Deployment, is present.
pub fn config_without_it(namespace: &Namespace) -> String {
    config(namespace, &namespace.bed.prometheus.url, "")
        .replace("orders-worker:", "another-worker:")
        .replace("NS", &namespace.name)
}

/// The revisions that `kubectl rollout history` lists.
pub fn revisions(history: &str) -> Vec<u64> {
    history
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect()
}
