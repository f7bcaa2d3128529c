//! The tools around a Deployment: at rest everything native stays native and costs no write, and in a rollout nobody fights.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::{apps::v1::Deployment, policy::v1::PodDisruptionBudget};
use kube::{
    Api, ResourceExt as _,
    api::EvictParams,
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    base::{Base, Held, Since},
    promises::{
        all_told, at_rest, envelope, never_beyond_the_step, no_other_pods, quiet, started, stash,
        step, stopped, untouched,
    },
};
use crate::{
    audit,
    control_plane::Who,
    namespace::{Namespace, uid},
    scene::{Scene, Trials},
    wait::{ensure, eventually, within},
    worker::Worker,
};

const X: &str = "orders-worker";

/// Long enough for many polls, and for whatever a restless daemon would do.
const WHILE: Duration = Duration::from_secs(4);

/// So often a GitOps tool applies the same manifest (case K08).
const AGAIN: usize = 6;

pub fn register(trials: &mut Trials) {
    trials.add(
        "neighbours: KEDA writes the scale subresource at rest, to zero and back: no write of ours",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            let namespace = &base.namespace;
            at_rest(namespace, X, "v1", 10).await;
            let since = Since::now(namespace, &base.daemon).await;
            let writes = acts(namespace).await.len();
            for replicas in [4, 0, 1, 12] {
                scale_subresource(namespace, replicas).await;
                at_rest(namespace, X, "v1", replicas).await;
            }
            started(namespace, since.at, &[("v1", 12)]).await;
            stopped(namespace, since.at, &[("v1", 10)]).await;
            let more = acts(namespace).await.split_off(writes);
            assert!(more.is_empty(), "written at rest: {}", told(&more));
            assert_eq!(since.lines(&base.daemon), Vec::<String>::new());
        },
    );
    trials.add_with_lags(
        "neighbours: a real HorizontalPodAutoscaler, at rest and at (2,8): its number once, extra capacity to the accepted version (K36)",
        autoscaled,
    );
    trials.add(
        "neighbours: a hand and an autoscaler on a clone, and two autoscalers over the same pods: set back, and told once (K19, K36, K37)",
        hands_on_clones,
    );
    for manager in ["helm", "kustomize-controller", "argocd-controller"] {
        for (with, replicas) in [("with", true), ("without", false)] {
            trials.add(
                format!("neighbours: server-side apply by {manager} {with} replicas: no conflict before, during or after a rollout (K08, K42)"),
                async move |scene| applied(&scene, manager, replicas).await,
            );
        }
    }
    trials.add_with_lags(
        "neighbours: R = 0 with history younger than the accepted ReplicaSet: that one comes back, whatever waits",
        younger_history,
    );
    trials.add_with_lags(
        "neighbours: R = 0 without history, the accepted ReplicaSet collected: the accepted version comes back first (fact 18)",
        no_history,
    );
    trials.add(
        "neighbours: which changes start a rollout (K34)",
        which_changes,
    );
    trials.add(
        "neighbours: clones carry nothing of the Deployment's metadata, and follow its strategy at once (K34, K37)",
        clones,
    );
    trials.add(
        "neighbours: a PodDisruptionBudget counts both versions throughout, and lets one pod go (K38)",
        budget,
    );
    for replicas in [10, 200] {
        trials.add(
            format!("neighbours: the writes of a rollout of {replicas} replicas"),
            async move |scene| audited(&scene, replicas).await,
        );
    }
}

async fn scale_subresource(namespace: &Namespace, replicas: i32) {
    let patch = json!({"spec": {"replicas": replicas}}).to_string();
    let target = format!("deployment/{X}");
    let args = [
        "patch",
        &target,
        "--subresource=scale",
        "--type=merge",
        "-p",
        &patch,
    ];
    namespace.kubectl_ok(&args, None).await;
}

/// What the daemon has done, beside telling of it.
async fn acts(namespace: &Namespace) -> Vec<audit::Request> {
    let mut writes = namespace.daemon_writes().await;
    writes.retain(|write| !write.only_tells());
    writes
}

fn told(requests: &[audit::Request]) -> String {
    let lines: Vec<_> = requests
        .iter()
        .map(|request| {
            let (verb, resource, name) = (&request.verb, request.resource(), request.name());
            format!(
                "{verb} {resource} {name} ({}) {}",
                request.code(),
                request.request_object
            )
        })
        .collect();
    lines.join("\n")
}

/// Without a metrics server the autoscaler still holds its target between its bounds, by the same write.
async fn autoscale(namespace: &Namespace, bounds: (i32, i32)) {
    autoscale_target(namespace, ("orders", X), bounds).await;
}

async fn autoscale_target(
    namespace: &Namespace,
    (name, target): (&str, &str),
    (least, most): (i32, i32),
) {
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": least, "maxReplicas": most,
        },
    });
    namespace
        .kubectl_ok(&["apply", "-f", "-"], Some(&autoscaler.to_string()))
        .await;
}

async fn autoscaled(scene: Arc<Scene>) {
    let held = Held::registered(&scene).await;
    let (base, namespace) = (&held.base, &held.base.namespace);
    at_rest(namespace, X, "v1", 10).await;
    let rest = Since::now(namespace, &base.daemon).await;
    let writes = acts(namespace).await.len();
    autoscale(namespace, (12, 20)).await;
    at_rest(namespace, X, "v1", 12).await;
    autoscale(namespace, (3, 10)).await;
    at_rest(namespace, X, "v1", 10).await;
    let more = acts(namespace).await.split_off(writes);
    assert!(more.is_empty(), "written at rest: {}", told(&more));
    assert_eq!(rest.lines(&base.daemon), Vec::<String>::new());

    let since = Since::now(namespace, &base.daemon).await;
    namespace
        .kubectl_ok(
            &[
                "set",
                "image",
                "deployment/orders-worker",
                &format!("worker={}", base.worker.clone().tag("v2").image()),
            ],
            None,
        )
        .await;
    held.hold_at(since, 2, 8).await;
    autoscale(namespace, (14, 20)).await;
    step(namespace, X, since.at, (2, 12)).await;
    eventually("14 available pods", async || {
        let last = namespace
            .recorder
            .series(since.at)
            .pop()
            .map(|(_, pods)| pods);
        ensure(
            last.as_ref().is_some_and(|pods| pods.available == 14),
            || format!("{last:?}"),
        )
    })
    .await;
    // The autoscaler looks again every two seconds.
    let settled = acts(namespace).await.len();
    sleep(WHILE * 2).await;
    let mut more = acts(namespace).await.split_off(settled);
    more.retain(|write| write.resource() != "podtemplates");
    assert!(
        more.is_empty(),
        "written although nothing changed: {}",
        told(&more)
    );
    let autoscaler = namespace
        .bed
        .audit
        .writes(Who::ControllerManager.name(), &namespace.name)
        .await;
    let scaled = autoscaler
        .iter()
        .filter(|write| write.resource() == "deployments/scale")
        .count();
    assert_eq!(scaled, 3, "the autoscaler's own writes");
    held.go_on();
    since
        .log(
            &base.daemon,
            "at rest: 14 replicas of registry.example/orders-worker:v2",
        )
        .await;
    at_rest(namespace, X, "v2", 14).await;
    started(namespace, since.at, &[("v1", 4), ("v2", 14)]).await;
    never_beyond_the_step(namespace, X, since.at).await;
    no_other_pods(namespace, X).await;
    quiet(namespace, WHILE).await;
}

async fn hands_on_clones(scene: Arc<Scene>) {
    let held = Held::registered(&scene).await;
    let (base, namespace) = (&held.base, &held.base.namespace);
    at_rest(namespace, X, "v1", 10).await;
    let (canary, primary) = ("orders-worker-canary", "orders-worker-primary");
    autoscale(namespace, (10, 20)).await;
    autoscale_target(namespace, ("second", canary), (1, 20)).await;
    let since = Since::now(namespace, &base.daemon).await;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    for text in [
        "HorizontalPodAutoscaler second targets orders-worker-canary",
        "HorizontalPodAutoscalers orders and second count the same pods",
    ] {
        since.log(&base.daemon, text).await;
    }
    held.hold_at(since, 2, 8).await;
    namespace.scale(primary, 9).await;
    let told = "orders-worker-primary was set to 9 by kubectl and is set back";
    let back = since.log(&base.daemon, told).await;
    step(namespace, X, back.at, (2, 8)).await;
    // The autoscaler looks again every two seconds, and insists.
    autoscale_target(namespace, ("second", canary), (4, 20)).await;
    let told = "orders-worker-canary was set to 4 by kube-controller-manager and is set back";
    since.log(&base.daemon, told).await;
    sleep(WHILE * 2).await;
    let lines = since.lines(&base.daemon);
    let told = lines.iter().filter(|line| line.contains("is set back"));
    assert_eq!(told.count(), 2, "{lines:?}");
    namespace
        .kubectl_ok(&["delete", "hpa", "second"], None)
        .await;
    step(namespace, X, back.at, (2, 8)).await;
    held.go_on();
    since
        .log(
            &base.daemon,
            "at rest: 10 replicas of registry.example/orders-worker:v2",
        )
        .await;
    at_rest(namespace, X, "v2", 10).await;
}

/// `kubectl apply --server-side`, as this manager and without force; returns what was refused.
async fn apply_as(namespace: &Namespace, manager: &str, manifest: &str) -> Result<(), String> {
    let manager = format!("--field-manager={manager}");
    let output = namespace
        .kubectl(
            &["apply", "--server-side", &manager, "-f", "-"],
            Some(manifest),
        )
        .await;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

async fn applied(scene: &Scene, manager: &str, with_replicas: bool) {
    let namespace = scene.namespace().await;
    let worker = Worker::default().replicas(4);
    let manifest = |tag: &str| {
        let mut manifest = json!(worker.clone().tag(tag).deployment());
        manifest["apiVersion"] = json!("apps/v1");
        manifest["kind"] = json!("Deployment");
        if let Some(spec) = manifest["spec"].as_object_mut().filter(|_| !with_replicas) {
            spec.remove("replicas");
        }
        manifest.to_string()
    };
    apply_as(&namespace, manager, &manifest("v1"))
        .await
        .unwrap();
    if !with_replicas {
        namespace.scale(X, 4).await;
    }
    namespace.complete(X).await;
    let before = namespace.now().await;
    let held = Held::watched(namespace, worker.clone(), "step: 50%").await;
    let (base, namespace) = (&held.base, &held.base.namespace);
    at_rest(namespace, X, "v1", 4).await;

    let writes = acts(namespace).await.len();
    for _ in 0..AGAIN {
        apply_as(namespace, manager, &manifest("v1")).await.unwrap();
    }
    quiet(namespace, WHILE).await;
    assert_eq!(acts(namespace).await.len(), writes, "written at rest");
    untouched(namespace, before).await;

    let since = Since::now(namespace, &base.daemon).await;
    apply_as(namespace, manager, &manifest("v2")).await.unwrap();
    held.hold_at(since, 2, 2).await;
    let open = namespace.now().await;
    let writes = acts(namespace).await.len();
    for _ in 0..AGAIN {
        apply_as(namespace, manager, &manifest("v2")).await.unwrap();
    }
    sleep(WHILE).await;
    untouched(namespace, open).await;
    let mut more = acts(namespace).await.split_off(writes);
    more.retain(|write| write.resource() != "podtemplates");
    assert!(
        more.is_empty(),
        "written in answer to an apply: {}",
        told(&more)
    );
    held.go_on();
    since
        .log(
            &base.daemon,
            "at rest: 4 replicas of registry.example/orders-worker:v2",
        )
        .await;
    at_rest(namespace, X, "v2", 4).await;
    started(namespace, since.at, &[("v2", 4)]).await;
    stopped(namespace, since.at, &[("v1", 4)]).await;
    for _ in 0..AGAIN {
        apply_as(namespace, manager, &manifest("v2")).await.unwrap();
    }
    quiet(namespace, WHILE).await;

    // Another number by another hand: that conflicts where both name it, as it would without Volery.
    namespace.scale(X, 6).await;
    at_rest(namespace, X, "v2", 6).await;
    let refused = apply_as(namespace, manager, &manifest("v2")).await.err();
    if with_replicas {
        let conflict = refused.expect("two hands are on one number");
        assert!(conflict.contains(".spec.replicas"), "{conflict}");
        assert!(!conflict.contains("volery"), "{conflict}");
    } else {
        assert_eq!(refused, None);
    }
    at_rest(namespace, X, "v2", 6).await;
    only_the_pause_is_ours(namespace).await;
}

/// Of X's fields Volery owns one, and has never written another (promise 7).
async fn only_the_pause_is_ours(namespace: &Namespace) {
    let x = namespace.deployment(X).await;
    let ours: Vec<Value> = x
        .managed_fields()
        .iter()
        .filter(|entry| entry.manager.as_deref() == Some("volery") && entry.subresource.is_none())
        .map(|entry| json!(entry.fields_v1))
        .collect();
    assert_eq!(ours, [json!({"f:spec": {"f:paused": {}}})]);
    let writes = acts(namespace).await;
    let on_x: Vec<String> = writes
        .iter()
        .filter(|write| write.resource() == "deployments" && write.name() == X)
        .map(|write| write.request_object.to_string())
        .collect();
    assert!(!on_x.is_empty());
    for write in on_x {
        for field in [
            "/spec/template",
            "/spec/replicas",
            "/metadata/annotations",
            "/metadata/labels",
        ] {
            assert!(!write.contains(field), "{write}");
        }
    }
}

async fn younger_history(scene: Arc<Scene>) {
    let namespace = scene.namespace().await;
    let worker = Worker::default();
    namespace.history(&worker).await;
    namespace
        .kubectl_ok(&["rollout", "undo", "deployment/orders-worker"], None)
        .await;
    namespace.complete(X).await;
    // Now it runs the ReplicaSet of h2, and the one of v1 is younger.
    let url = namespace.bed.prometheus.url.clone();
    let Base {
        namespace,
        setup,
        daemon,
        ..
    } = Base::watched(namespace, worker.clone(), &url, "").await;
    at_rest(&namespace, X, "h2", 10).await;
    assert_eq!(
        stash(&namespace, X).await,
        [("h1".to_owned(), 1), ("v1".to_owned(), 3)]
    );
    namespace.scale(X, 0).await;
    at_rest(&namespace, X, "h2", 0).await;
    namespace.apply(&worker.clone().replicas(0)).await;
    daemon.log_contains("waiting: registry.example/orders-worker:v1 is rolled out when replicas are wanted again").await;
    assert!(daemon.terminate().await.success());
    let alone = namespace.now().await;
    for replicas in [3, 0, 10] {
        namespace.scale(X, replicas).await;
        at_rest(&namespace, X, "h2", replicas).await;
    }
    started(&namespace, alone, &[("h2", 13)]).await;

    let daemon = namespace.daemon(&setup).await;
    let open = Since::now(&namespace, &daemon).await;
    daemon
        .log_contains("at rest: 10 replicas of registry.example/orders-worker:v1")
        .await;
    at_rest(&namespace, X, "v1", 10).await;
    started(&namespace, open.at, &[("v1", 10)]).await;
    stopped(&namespace, open.at, &[("h2", 10)]).await;
    envelope(&namespace, open.at, 10, 2).await;
}

async fn no_history(scene: Arc<Scene>) {
    let namespace = scene.namespace().await;
    let worker = Worker::default().spec(json!({"revisionHistoryLimit": 0}));
    let url = namespace.bed.prometheus.url.clone();
    let Base {
        namespace,
        worker,
        setup,
        daemon,
    } = Base::on(namespace, worker, &url, "").await;
    namespace.scale(X, 0).await;
    at_rest(&namespace, X, "v1", 0).await;
    namespace.apply(&worker.clone().tag("v2").replicas(0)).await;
    daemon.log_contains("waiting: registry.example/orders-worker:v2 is rolled out when replicas are wanted again").await;
    eventually("the accepted ReplicaSet to be collected", async || {
        let x = namespace.deployment(X).await;
        let sets = namespace.replica_sets_of(&uid(&x)).await;
        ensure(sets.is_empty(), || format!("it has {}", sets.len()))
    })
    .await;
    // Nobody brings anything back while no daemon runs: no version at all is better than one that was not vetted.
    assert!(daemon.terminate().await.success());
    let back = namespace.now().await;
    namespace.scale(X, 10).await;
    sleep(WHILE).await;
    untouched(&namespace, back).await;
    let daemon = namespace.daemon(&setup).await;
    daemon
        .log_contains("at rest: 10 replicas of registry.example/orders-worker:v2")
        .await;
    at_rest(&namespace, X, "v2", 10).await;
    started(&namespace, back, &[("v1", 10), ("v2", 10)]).await;
    stopped(&namespace, back, &[("v1", 10)]).await;
    never_beyond_the_step(&namespace, X, back).await;
    // Under the eyes of a daemon the same.
    namespace.scale(X, 0).await;
    at_rest(&namespace, X, "v2", 0).await;
    let seen = Since::now(&namespace, &daemon).await;
    namespace.apply(&worker.clone().tag("v3").replicas(0)).await;
    seen.log(&daemon, "waiting: registry.example/orders-worker:v3")
        .await;
    namespace.scale(X, 10).await;
    seen.log(
        &daemon,
        "at rest: 10 replicas of registry.example/orders-worker:v3",
    )
    .await;
    at_rest(&namespace, X, "v3", 10).await;
    started(&namespace, seen.at, &[("v2", 10), ("v3", 10)]).await;
    never_beyond_the_step(&namespace, X, back).await;
}

/// A change of X by a JSON patch, and whether it is a new version.
struct Change {
    what: &'static str,
    operations: Value,
    is_rollout: bool,
}

fn changes() -> Vec<Change> {
    let pod = |path: &str| format!("/spec/template/spec/{path}");
    let rollout = |what, operations| Change {
        what,
        operations,
        is_rollout: true,
    };
    let nothing = |what, operations| Change {
        what,
        operations,
        is_rollout: false,
    };
    let (env, containers) = (pod("containers/0/env"), pod("containers"));
    let variable = |name: &str| json!({"name": name, "value": "1"});
    vec![
        rollout(
            "an added variable",
            json!([{"op": "add", "path": env, "value": [variable("A"), variable("B")]}]),
        ),
        rollout(
            "variables in another order",
            json!([{"op": "replace", "path": env, "value": [variable("B"), variable("A")]}]),
        ),
        rollout(
            "a removed variable",
            json!([{"op": "remove", "path": format!("{env}/0")}]),
        ),
        rollout(
            "an added container",
            json!([{"op": "add", "path": format!("{containers}/-"), "value": {"name": "proxy", "image": "registry.example/proxy:p1"}}]),
        ),
        rollout(
            "an added volume",
            json!([{"op": "add", "path": pod("volumes"), "value": [{"name": "scratch", "emptyDir": {}}]}]),
        ),
        rollout(
            "a pod's label",
            json!([{"op": "add", "path": "/spec/template/metadata/labels/tier", "value": "batch"}]),
        ),
        rollout(
            "resources",
            json!([{"op": "add", "path": pod("containers/0/resources"), "value": {"requests": {"cpu": "100m"}}}]),
        ),
        rollout(
            "a removed container",
            json!([{"op": "remove", "path": format!("{containers}/1")}]),
        ),
        nothing(
            "the strategy",
            json!([{"op": "add", "path": "/spec/strategy", "value": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}]),
        ),
        nothing(
            "a label of the Deployment",
            json!([{"op": "add", "path": "/metadata/labels/team", "value": "orders"}]),
        ),
        nothing(
            "an annotation of the Deployment",
            json!([{"op": "add", "path": "/metadata/annotations/note", "value": "x"}]),
        ),
        nothing(
            "minReadySeconds",
            json!([{"op": "add", "path": "/spec/minReadySeconds", "value": 1}]),
        ),
        nothing(
            "revisionHistoryLimit",
            json!([{"op": "add", "path": "/spec/revisionHistoryLimit", "value": 7}]),
        ),
        nothing(
            "progressDeadlineSeconds",
            json!([{"op": "add", "path": "/spec/progressDeadlineSeconds", "value": 2_147_483_647}]),
        ),
    ]
}

async fn which_changes(scene: Arc<Scene>) {
    let namespace = scene.namespace().await;
    let url = namespace.bed.prometheus.url.clone();
    let worker = Worker::default().replicas(2);
    let more = "step: 100%\nbreakpoint: 100%\nmax_step_duration: 500ms\nsuccess: []";
    let base = Base::on(namespace, worker, &url, more).await;
    let namespace = &base.namespace;
    for Change {
        what,
        operations,
        is_rollout,
    } in changes()
    {
        namespace.note(what);
        let since = Since::now(namespace, &base.daemon).await;
        let writes = acts(namespace).await.len();
        let patch = operations.to_string();
        namespace
            .kubectl_ok(
                &[
                    "patch",
                    "deployment/orders-worker",
                    "--type=json",
                    "-p",
                    &patch,
                ],
                None,
            )
            .await;
        if is_rollout {
            since
                .log(&base.daemon, "promoted: ")
                .await
                .log(&base.daemon, "orders-worker: at rest: 2 replicas")
                .await;
            at_rest(namespace, X, "v1", 2).await;
            started(namespace, since.at, &[("v1", 2)]).await;
            stopped(namespace, since.at, &[("v1", 2)]).await;
        } else {
            sleep(WHILE / 2).await;
            untouched(namespace, since.at).await;
            let more = acts(namespace).await.split_off(writes);
            // How much history is kept is of interest to the stash only.
            let about_x = |write: &audit::Request| write.resource() != "replicasets";
            assert!(!more.iter().any(about_x), "{what}: {}", told(&more));
            assert_eq!(since.lines(&base.daemon), Vec::<String>::new(), "{what}");
        }
    }
}

/// Nothing by which another tool would claim, prune, pause or patch a clone.
fn is_clean(clone: &Deployment, role: &str) {
    let annotations: Vec<&String> = clone
        .annotations()
        .keys()
        .filter(|key| *key != "deployment.kubernetes.io/revision")
        .collect();
    assert!(annotations.is_empty(), "{annotations:?}");
    let labels: BTreeMap<_, _> = clone
        .labels()
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    let ours: BTreeSet<_> = labels
        .keys()
        .filter(|key| key.starts_with("volery.dev/"))
        .collect();
    assert!(
        !ours.is_empty() && labels["volery.dev/role"] == role,
        "{labels:?}"
    );
    let others: Vec<_> = labels
        .iter()
        .filter(|(key, _)| !key.starts_with("volery.dev/"))
        .collect();
    assert_eq!(
        others,
        [(&"team", &"orders")],
        "the one that copy_labels names"
    );
    assert_eq!(clone.owner_references().len(), 1);
    assert!(clone.finalizers().is_empty());
}

async fn clones(scene: Arc<Scene>) {
    let worker = Worker::default()
        .label("team", "orders")
        .label("app.kubernetes.io/managed-by", "Helm")
        .label("kustomize.toolkit.fluxcd.io/name", "workers")
        .annotation("autoscaling.keda.sh/paused-replicas", "0")
        .annotation("meta.helm.sh/release-name", "orders")
        .annotation(
            "argocd.argoproj.io/tracking-id",
            "workers:apps/Deployment:workers/orders-worker",
        )
        .annotation("kubernetes.io/change-cause", "v1");
    let held = Held::on(&scene, worker, "copy_labels: [team, absent]").await;
    let (base, namespace) = (&held.base, &held.base.namespace);
    let since = Since::now(namespace, &base.daemon).await;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    held.hold_at(since, 2, 8).await;
    let clones = [
        ("orders-worker-primary", "primary"),
        ("orders-worker-canary", "canary"),
    ];
    for (name, role) in clones {
        is_clean(&namespace.deployment(name).await, role);
    }

    // What is no part of the template holds for the clones at once, and starts nothing.
    let changed = namespace.now().await;
    let strategy =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 0}});
    let again = base
        .worker
        .clone()
        .tag("v2")
        .spec(json!({"strategy": strategy, "minReadySeconds": 1, "progressDeadlineSeconds": 900}))
        .label("tier", "batch")
        .annotation("kubernetes.io/change-cause", "v2");
    namespace.apply(&again).await;
    for (name, role) in clones {
        eventually(&format!("{name} to follow"), async || {
            let clone = namespace.deployment(name).await;
            let spec = clone.spec.clone().unwrap_or_default();
            let now = (json!(spec.strategy), spec.min_ready_seconds);
            ensure(now == (strategy.clone(), Some(1)), || format!("{now:?}"))
        })
        .await;
        is_clean(&namespace.deployment(name).await, role);
    }
    sleep(WHILE).await;
    untouched(namespace, changed).await;
    held.go_on();
    since
        .log(
            &base.daemon,
            "at rest: 10 replicas of registry.example/orders-worker:v2",
        )
        .await;
    at_rest(namespace, X, "v2", 10).await;
    started(namespace, since.at, &[("v2", 10)]).await;
    envelope(namespace, since.at, 10, 2).await;
}

async fn budget(scene: Arc<Scene>) {
    let held = Held::registered(&scene).await;
    let (base, namespace) = (&held.base, &held.base.namespace);
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "orders"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": X}}},
    });
    namespace
        .kubectl_ok(&["apply", "-f", "-"], Some(&budget.to_string()))
        .await;
    let budgets: Api<PodDisruptionBudget> =
        Api::namespaced(namespace.bed.client.clone(), &namespace.name);
    let allowed = async |number: i32| {
        eventually(&format!("{number} disruptions to be allowed"), async || {
            let budget = budgets.get("orders").await.map_err(|e| e.to_string())?;
            let status = budget.status.unwrap_or_default();
            ensure(status.disruptions_allowed == Some(number), || {
                format!("{}", json!(status))
            })
        })
        .await;
    };
    allowed(1).await;
    // Every number that the budget has ever expected.
    let expected: Arc<std::sync::Mutex<Vec<i32>>> = Arc::default();
    let (seen, watched) = (Arc::clone(&expected), budgets.clone());
    let watch = tokio::spawn(async move {
        let stream = watcher(watched, watcher::Config::default())
            .default_backoff()
            .applied_objects();
        pin_mut!(stream);
        while let Some(Ok(budget)) = stream.next().await {
            seen.lock()
                .unwrap()
                .extend(budget.status.and_then(|status| status.expected_pods));
        }
    });
    let since = Since::now(namespace, &base.daemon).await;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    held.hold_at(since, 4, 6).await;
    allowed(1).await;
    let primary = namespace.deployment("orders-worker-primary").await;
    let pod = namespace.pods_of(&primary).await[0].name_any();
    namespace
        .pods()
        .evict(&pod, &EvictParams::default())
        .await
        .expect("the budget lets one go");
    eventually("the evicted pod to be replaced", async || {
        let last = namespace
            .recorder
            .series(since.at)
            .pop()
            .map(|(_, pods)| pods);
        let whole = last.as_ref().is_some_and(|pods| {
            pods.available == 10 && pods.terminating == 0 && pods.by_tag.get("v1") == Some(&(6, 6))
        });
        ensure(whole, || format!("{last:?}"))
    })
    .await;
    allowed(1).await;
    held.go_on();
    since
        .log(
            &base.daemon,
            "at rest: 10 replicas of registry.example/orders-worker:v2",
        )
        .await;
    at_rest(namespace, X, "v2", 10).await;
    allowed(1).await;
    started(namespace, since.at, &[("v1", 1), ("v2", 10)]).await;
    watch.abort();
    let expected = expected.lock().unwrap().clone();
    assert!(
        expected.contains(&12),
        "it was seen with a step's surge: {expected:?}"
    );
    assert!(
        expected.iter().all(|pods| (10..=12).contains(pods)),
        "P+C throughout: {expected:?}"
    );
}

/// Where a write of a rollout went, and how often: `verb resource`.
fn by_kind(writes: &[audit::Request]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for write in writes {
        *kinds
            .entry(format!("{} {}", write.verb, write.resource()))
            .or_default() += 1;
    }
    kinds
}

async fn audited(scene: &Scene, replicas: i32) {
    let namespace = scene.namespace().await;
    let url = namespace.bed.prometheus.url.clone();
    let worker = Worker::default().replicas(replicas);
    let base = Base::on(
        namespace,
        worker,
        &url,
        "abort: 300s\nmax_step_duration: 5s\ncheck_success_step_duration: 1s",
    )
    .await;
    let namespace = &base.namespace;
    at_rest(namespace, X, "v1", replicas).await;
    all_told(namespace).await;
    let registering = namespace.daemon_writes().await;
    let since = Since::now(namespace, &base.daemon).await;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    within(Duration::from_secs(600), "the promotion", async || {
        let lines = since.lines(&base.daemon);
        let promoted = lines.iter().any(|line| line.contains("promoted: "));
        ensure(promoted, || format!("the last line is {:?}", lines.last()))
    })
    .await;
    at_rest(namespace, X, "v2", replicas).await;
    let pods = usize::try_from(replicas).unwrap();
    started(namespace, since.at, &[("v2", pods)]).await;
    stopped(namespace, since.at, &[("v1", pods)]).await;
    envelope(namespace, since.at, pods, pods / 5).await;
    all_told(namespace).await;
    let writes = namespace.daemon_writes().await.split_off(registering.len());
    let steps = namespace.recorder.steps(X, since.at);
    println!(
        "writes of registering {replicas} replicas: {:?}",
        by_kind(&registering)
    );
    println!(
        "writes of a rollout of {replicas} replicas in {} moves: {:?}",
        steps.len() - 1,
        by_kind(&writes)
    );
    let refused: Vec<_> = writes
        .iter()
        .filter(|write| write.code() >= 300)
        .cloned()
        .collect();
    assert!(refused.len() <= 2, "refused: {}", told(&refused));
    let accepted: Vec<_> = writes
        .iter()
        .filter(|write| write.code() < 300)
        .cloned()
        .collect();
    let kinds = by_kind(&accepted);
    // One write for each number that changes; the clones made and deleted; the candidate's ReplicaSet made, recognised and moved,
    // the accepted one moved twice.
    assert_eq!(
        kinds.get("patch deployments"),
        Some(&(steps.len() - 1)),
        "{}",
        told(&accepted)
    );
    assert_eq!(kinds.get("create deployments"), Some(&2));
    assert_eq!(kinds.get("delete deployments"), Some(&2));
    assert_eq!(kinds.get("create replicasets"), Some(&1));
    assert!(kinds["patch replicasets"] <= 4, "{}", told(&accepted));
    // The state: twice a stage, and once a check (promise 5). None for each pod.
    assert!(kinds["patch podtemplates"] <= 60, "{kinds:?}");
}
