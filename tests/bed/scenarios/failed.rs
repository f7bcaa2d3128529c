//! A bad version: rolled back with the reason in the log, and remembered.

use std::time::Duration;

use serde_json::json;

use super::{
    base::{Base, Since},
    promises::{
        at_rest, at_rest_but, deeds, envelope, never_more_of, never_more_than, quiet, started,
        step, untouched,
    },
};
use crate::{
    kubelet::Behaviour,
    namespace::{Namespace, uid},
    scene::{Scene, Trials},
    wait::{ensure, eventually},
    worker::Worker,
};

const NAME: &str = "orders-worker";

/// Long enough that a restless daemon would have done something.
const A_WHILE: Duration = Duration::from_secs(3);

pub fn register(trials: &mut Trials) {
    trials.add(
        "failed: an expression that fails from the second step on rolls back, once, and the next version is promoted",
        second_step,
    );
    trials.add(
        "failed: rollback writes both numbers together, though the accepted pods are slow (K04)",
        together,
    );
    trials.add(
        "failed: canary pods that crash again and again (K14)",
        async |scene| {
            let behaviour = Behaviour::CrashLoop {
                up: Duration::from_secs(2),
                down: Duration::from_millis(500),
                exit_code: 137,
            };
            let base = broken(&scene, "max_step_duration: 60s", |worker| {
                worker.behaviour(behaviour)
            })
            .await;
            base.daemon
                .log_contains("restarted 1 time, container worker ended: ")
                .await;
            base.daemon.log_contains("failed: checks failed: ").await;
        },
    );
    trials.add(
        "failed: canary pods that never become ready",
        async |scene| {
            not_available(
                &scene,
                |worker| worker.behaviour(Behaviour::NeverReady),
                &["failed: canary pods not available in time: 0 of 2 canary pods available after 3s"],
            )
            .await;
        },
    );
    trials.add(
        "failed: an image that cannot be pulled (K13)",
        async |scene| {
            not_available(
                &scene,
                |worker| worker.behaviour(Behaviour::ImagePull),
                &["ImagePullBackOff", "registry.example/orders-worker:v2"],
            )
            .await;
        },
    );
    trials.add("failed: pods that no node takes (K13)", async |scene| {
        not_available(
            &scene,
            |worker| worker.behaviour(Behaviour::Unschedulable),
            &["cannot be scheduled: 0/3 nodes are available: 3 Insufficient cpu"],
        )
        .await;
    });
    trials.add("failed: pods that cannot be created (K12)", async |scene| {
        let account = json!({"serviceAccountName": "nobody"});
        not_available(
            &scene,
            |worker| worker.pod_spec(account),
            &["serviceaccount \"nobody\" not found"],
        )
        .await;
    });
    trials.add(
        "failed: canary pods vanish in a step and cannot be created again (K12)",
        vanished,
    );
    trials.add(
        "failed: a broken running version does not block the fix, nor its failure (K15)",
        broken_running,
    );
    trials.add(
        "failed: restore_original sets X's template back, once, and fights nobody who puts it there again (K28)",
        restored,
    );
}

/// Registers, applies a version that is broken in this way, and sees it rolled back.
async fn broken(scene: &Scene, more: &str, how: impl FnOnce(Worker) -> Worker) -> Base {
    let base = Base::registered(scene, more).await;
    let before = base.now().await;
    let accepted = uid(&base
        .namespace
        .replica_sets_of(&uid(&base.namespace.deployment(NAME).await))
        .await[0]);
    let candidate = how(base.worker.clone().tag("v2"));
    base.namespace.apply(&candidate).await;
    base.daemon.log_contains("failed: ").await;
    at_rest(&base.namespace, NAME, "v1", 10).await;
    let original = base.namespace.deployment(NAME).await;
    assert_eq!(
        uid(&base.namespace.replica_sets_of(&uid(&original)).await[0]),
        accepted
    );
    never_more_than(&base.namespace, before, 12).await;
    never_more_of(&base.namespace, before, "v2", 2).await;
    base.daemon
        .log_contains("rejected: registry.example/orders-worker:v2 (")
        .await;
    quiet(&base.namespace, A_WHILE).await;
    base
}

/// [`broken`] in a way that keeps its pods from being available: the line says this about why, and the accepted pods never notice.
async fn not_available(scene: &Scene, how: impl FnOnce(Worker) -> Worker, why: &[&str]) {
    let base = broken(scene, "abort: 3s", how).await;
    let failed = "failed: canary pods not available in time";
    let line = base.daemon.log_contains(failed).await.text;
    for part in why {
        assert!(line.contains(part), "{line}");
    }
    never_lowered(&base).await;
}

/// The accepted version was never touched: no pod of it stopped, no number of it lowered.
async fn never_lowered(base: &Base) {
    let first = base.namespace.recorder.events()[0].at;
    let primary = base
        .namespace
        .recorder
        .deployment_states(&format!("{NAME}-primary"), first);
    // At the very end, when it owns nothing any more, it may be set to 0.
    let stops = base.namespace.recorder.stops(first);
    assert_eq!(stops.get("v1"), None, "pods of v1 were stopped");
    assert!(
        primary
            .iter()
            .any(|primary| primary.spec.as_ref().and_then(|spec| spec.replicas) == Some(10))
    );
    assert_eq!(
        base.namespace.recorder.starts(first).get("v1"),
        Some(&10),
        "pods of v1 were started again"
    );
}

async fn second_step(scene: std::sync::Arc<Scene>) {
    let base = Base::registered(&scene, "max_step_duration: 5s").await;
    let namespace = &base.namespace;
    let before = base.now().await;
    let bad = base.worker.clone().tag("v2");
    namespace.apply(&bad).await;
    step(namespace, NAME, before, (4, 6)).await;
    namespace.set_metric("v2", "my_errors", 7.0);
    let line = base
        .daemon
        .log_contains("failed: checks failed: 2 of 2 in step 2/3: ")
        .await
        .text;
    assert!(
        line.contains("my_errors") && line.contains('7'),
        "the line names expression and value: {line}"
    );
    at_rest(namespace, NAME, "v1", 10).await;
    base.daemon
        .log_contains("orders-worker runs 10 replicas of registry.example/orders-worker:v1")
        .await;
    started(namespace, before, &[("v1", 4), ("v2", 4)]).await;
    // Going up at most R and a step; going back both numbers are written at once (K04), R and C at most.
    never_more_than(namespace, before, 14).await;
    never_more_of(namespace, before, "v2", 4).await;

    // The user's template stays; nothing of it runs.
    let original = namespace.deployment(NAME).await;
    let template = serde_json::to_value(&original.spec.as_ref().unwrap().template).unwrap();
    assert_eq!(template["spec"]["containers"][0]["image"], bad.image());
    let shown = namespace
        .kubectl_ok(&["get", "deployment", NAME, "--no-headers"], None)
        .await;
    let columns: Vec<&str> = shown.split_whitespace().collect();
    assert_eq!(columns[..4], [NAME, "10/10", "0", "10"], "{shown}");

    // No second attempt.
    namespace.apply(&bad).await;
    quiet(namespace, A_WHILE).await;

    // K25: more replicas are more of the accepted version, natively.
    let scaled = base.now().await;
    namespace.scale(NAME, 14).await;
    at_rest(namespace, NAME, "v1", 14).await;
    started(namespace, scaled, &[("v1", 4)]).await;

    // K33: back to the accepted version is no rollout at all.
    let deeds = async || {
        let writes = namespace.daemon_writes().await;
        writes.iter().filter(|write| !write.only_tells()).count()
    };
    let done = deeds().await;
    let back = base.now().await;
    namespace.apply(&base.worker.clone().replicas(14)).await;
    namespace.observed(NAME).await;
    quiet(namespace, A_WHILE).await;
    started(namespace, back, &[]).await;
    assert_eq!(deeds().await, done);

    let fixed = base.now().await;
    namespace
        .apply(&base.worker.clone().replicas(14).tag("v3"))
        .await;
    at_rest(namespace, NAME, "v3", 14).await;
    base.daemon
        .log_contains("promoted: registry.example/orders-worker:v3")
        .await;
    started(namespace, fixed, &[("v3", 14)]).await;
    envelope(namespace, fixed, 14, 3).await;
}

async fn together(scene: std::sync::Arc<Scene>) {
    let base = Base::registered(&scene, "max_step_duration: 5s").await;
    let namespace = &base.namespace;
    let before = base.now().await;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    step(namespace, NAME, before, (5, 5)).await;
    namespace.turn(
        "v1",
        Behaviour::Ready {
            after: Duration::from_secs(6),
        },
    );
    namespace.set_metric("v2", "my_errors", 7.0);
    namespace.daemon_proxy.record();
    let line = base
        .daemon
        .log_contains("failed: checks failed: ")
        .await
        .text;
    assert!(
        line.contains("rolling back to 10 pods of the accepted version (5 available now)"),
        "{line}"
    );
    at_rest(namespace, NAME, "v1", 10).await;
    let requests = namespace.daemon_proxy.requests();
    let writes: Vec<String> = requests
        .iter()
        .filter(|request| request.is_write() && !request.only_tells())
        .map(|request| {
            let name = request.path.rsplit('/').next().unwrap_or_default();
            format!("{name} {}", String::from_utf8_lossy(&request.body))
        })
        .collect();
    let canary = writes
        .iter()
        .position(|write| {
            write.starts_with("orders-worker-canary ") && write.contains("/spec/replicas")
        })
        .expect("a write of the canary's number");
    assert!(writes[canary].contains("\"value\":0"), "{writes:#?}");
    assert!(
        writes[canary + 1].starts_with("orders-worker-primary ")
            && writes[canary + 1].contains("\"value\":10"),
        "nothing stands between the two: {writes:#?}"
    );
    let slow: Vec<usize> = namespace
        .recorder
        .series(before)
        .iter()
        .map(|(_, pods)| pods.available)
        .collect();
    assert_eq!(
        slow.iter().min(),
        Some(&5),
        "the canary did not wait for the accepted pods: {slow:?}"
    );
    started(namespace, before, &[("v1", 5), ("v2", 5)]).await;
    never_more_of(namespace, before, "v2", 5).await;
    // Both numbers are written at once (K04): R and C at most while the controllers follow.
    never_more_than(namespace, before, 15).await;
}

async fn vanished(scene: std::sync::Arc<Scene>) {
    let base = Base::registered(&scene, "abort: 4s\nmax_step_duration: 60s").await;
    let namespace = &base.namespace;
    let before = base.now().await;
    namespace
        .kubectl_ok(&["create", "serviceaccount", "second"], None)
        .await;
    let account = json!({"serviceAccountName": "second"});
    namespace
        .apply(&base.worker.clone().tag("v2").pod_spec(account))
        .await;
    base.daemon
        .log_contains("step 1/3: canary 2/2 available, primary 8, checking")
        .await;
    namespace
        .kubectl_ok(&["delete", "serviceaccount", "second"], None)
        .await;
    let canary = namespace.deployment("orders-worker-canary").await;
    for pod in namespace.pods_of(&canary).await {
        let name = pod.metadata.name.unwrap_or_default();
        namespace
            .kubectl_ok(&["delete", "pod", &name, "--wait=false"], None)
            .await;
    }
    let line = base.daemon.log_contains("failed: ").await.text;
    assert!(line.contains("0 of 2 canary pods"), "{line}");
    assert!(
        line.contains("serviceaccount \"second\" not found"),
        "the reason is told: {line}"
    );
    at_rest(namespace, NAME, "v1", 10).await;
    started(namespace, before, &[("v1", 2), ("v2", 2)]).await;
    never_more_than(namespace, before, 12).await;
    never_more_of(namespace, before, "v2", 2).await;
}

async fn broken_running(scene: std::sync::Arc<Scene>) {
    let base = Base::registered(&scene, "abort: 4s").await;
    let namespace = &base.namespace;
    namespace.turn("v1", Behaviour::NeverReady);
    eventually("every pod of v1 to be broken", async || {
        let status = namespace.deployment(NAME).await.status.unwrap_or_default();
        ensure(status.available_replicas.unwrap_or_default() == 0, || {
            format!("{status:?}")
        })
    })
    .await;

    // A bad fix: back to the accepted version, without waiting for it to become what it is not.
    let before = base.now().await;
    namespace
        .apply(
            &base
                .worker
                .clone()
                .tag("v2")
                .behaviour(Behaviour::NeverReady),
        )
        .await;
    let line = base
        .daemon
        .log_contains("failed: canary pods not available in time")
        .await
        .text;
    assert!(
        line.contains("(0 available now)"),
        "the accepted version is not healthy either: {line}"
    );
    at_rest_but(namespace, NAME, "v1", 10, 0).await;
    started(namespace, before, &[("v2", 2)]).await;
    never_more_than(namespace, before, 12).await;

    // A good fix.
    let before = base.now().await;
    namespace.apply(&base.worker.clone().tag("v3")).await;
    at_rest(namespace, NAME, "v3", 10).await;
    started(namespace, before, &[("v3", 10)]).await;
    never_more_than(namespace, before, 12).await;
}

/// The image that X's own template asks for.
async fn asked_for(namespace: &Namespace) -> String {
    let original = namespace.deployment(NAME).await;
    let template = serde_json::to_value(&original.spec.unwrap_or_default().template).unwrap();
    let image = template["spec"]["containers"][0]["image"].as_str();
    image.unwrap_or_default().to_owned()
}

async fn restored(scene: std::sync::Arc<Scene>) {
    let base = Base::registered(&scene, "restore_original: true").await;
    let namespace = &base.namespace;
    namespace.set_metric("v2", "my_errors", 1.0);
    let bad = base.worker.clone().tag("v2");
    let before = base.now().await;
    namespace.apply(&bad).await;
    base.daemon.log_contains("failed: checks failed: ").await;
    eventually("X to ask for the accepted version again", async || {
        let asked_for = asked_for(namespace).await;
        ensure(asked_for == base.worker.image(), || asked_for.clone())
    })
    .await;
    at_rest(namespace, NAME, "v1", 10).await;
    started(namespace, before, &[("v1", 2), ("v2", 2)]).await;

    // A GitOps tool that knows better is not fought: the version stays rejected, and is left where it was put.
    for _ in 0..3 {
        let since = Since::now(namespace, &base.daemon).await;
        let again = base.now().await;
        namespace.apply(&bad).await;
        since
            .log(
                &base.daemon,
                "rejected: registry.example/orders-worker:v2 (",
            )
            .await;
        // The condition may follow later, several in a row are never hurried; nothing else does.
        let done = deeds(namespace).await.len();
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(deeds(namespace).await.len(), done);
        untouched(namespace, again).await;
        assert_eq!(asked_for(namespace).await, bad.image());
        let since = Since::now(namespace, &base.daemon).await;
        namespace.apply(&base.worker).await;
        since.log(&base.daemon, "at rest: ").await;
        untouched(namespace, again).await;
    }

    let before = base.now().await;
    namespace.apply(&base.worker.clone().tag("v3")).await;
    at_rest(namespace, NAME, "v3", 10).await;
    started(namespace, before, &[("v3", 10)]).await;
}
