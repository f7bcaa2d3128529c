//! Taken on and given back: no pod is touched, and the Deployment stays the user's own.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use std::time::Duration;

use super::{
    base::{Base, Held, Since, config, undo},
    promises::{
        all_told, at_rest, envelope, history_of, no_other_pods, revisions, set_tag, started, stash,
        stopped, untouched,
    },
};
use crate::{
    namespace::{Namespace, uid},
    scene::Trials,
    wait::{ensure, stays},
    worker::Worker,
};

const X: &str = "orders-worker";

pub fn register(trials: &mut Trials) {
    trials.add_with_lags(
        "registered: a running Deployment with history: no pod touched, nothing changed but the pause and one condition",
        async |scene| {
            let namespace = scene.namespace().await;
            let worker = Worker::default();
            namespace.history(&worker).await;
            let before = namespace.now().await;
            let as_it_was = apart_from_ours(&namespace.deployment(X).await);
            let shown = columns(&namespace).await;
            let url = namespace.bed.prometheus.url.clone();
            let text = config(&namespace, &url, "");
            let daemon = namespace.daemon(&namespace.daemon_setup(&text)).await;
            daemon
                .log_contains("registered: 10 replicas of registry.example/orders-worker:v1, paused, older ReplicaSets kept in the stash: 2")
                .await;
            daemon
                .log_contains("at rest: 10 replicas of registry.example/orders-worker:v1")
                .await;
            at_rest(&namespace, X, "v1", 10).await;
            untouched(&namespace, before).await;
            let x = namespace.observed(X).await;
            assert_eq!(apart_from_ours(&x), as_it_was);
            assert_eq!(columns(&namespace).await, shown);
            assert_eq!(history_of(&namespace, &uid(&x)).await, [("v1".to_owned(), 3)]);
            assert_eq!(
                stash(&namespace, X).await,
                [("h1".to_owned(), 1), ("h2".to_owned(), 2)]
            );
            no_other_pods(&namespace, X).await;
        },
    );

    trials.add_with_lags(
        "registered: kubectl scale works as before, to 0 and back, with a daemon and without",
        async |scene| {
            let Base {
                namespace,
                daemon,
                setup,
                ..
            } = Base::registered(&scene, "").await;
            let before = Since::now(&namespace, &daemon).await;
            for replicas in [4, 0, 12] {
                namespace.scale(X, replicas).await;
                at_rest(&namespace, X, "v1", replicas).await;
            }
            // How many are wanted is an autoscaler's business: not a line for each change of its mind.
            let told = before.lines(&daemon);
            assert!(told.is_empty(), "{told:#?}");
            started(&namespace, before.at, &[("v1", 12)]).await;
            stopped(&namespace, before.at, &[("v1", 10)]).await;
            assert!(daemon.terminate().await.success());
            let alone = namespace.now().await;
            for replicas in [0, 3] {
                namespace.scale(X, replicas).await;
                at_rest(&namespace, X, "v1", replicas).await;
            }
            started(&namespace, alone, &[("v1", 3)]).await;
            stopped(&namespace, alone, &[("v1", 12)]).await;
            let daemon = namespace.daemon(&setup).await;
            let back = Since::now(&namespace, &daemon).await;
            daemon.log_contains("at rest: 3 replicas").await;
            untouched(&namespace, back.at).await;
        },
    );

    trials.add_with_lags(
        "registered: an older version applied at R = 0 waits; R back without a daemon runs the accepted version and no other",
        async |scene| {
            let Base { namespace, worker, setup, daemon } = Base::with_history(&scene).await;
            namespace.scale(X, 0).await;
            at_rest(&namespace, X, "v1", 0).await;
            namespace.apply(&worker.tag("h2").replicas(0)).await;
            daemon
                .log_contains("waiting: registry.example/orders-worker:h2 is rolled out when replicas are wanted again (now 0)")
                .await;
            assert!(daemon.terminate().await.success());
            let alone = namespace.now().await;
            namespace.scale(X, 10).await;
            at_rest(&namespace, X, "v1", 10).await;
            started(&namespace, alone, &[("v1", 10)]).await;
            stopped(&namespace, alone, &[]).await;

            let daemon = namespace.daemon(&setup).await;
            let open = Since::now(&namespace, &daemon).await;
            daemon.log_contains("at rest: 10 replicas of registry.example/orders-worker:h2").await;
            at_rest(&namespace, X, "h2", 10).await;
            started(&namespace, open.at, &[("h2", 10)]).await;
            stopped(&namespace, open.at, &[("v1", 10)]).await;
            envelope(&namespace, open.at, 10, 2).await;
        },
    );

    trials.add_with_lags(
        "registered: an older version applied and R changed while no daemon runs: the accepted version and no other",
        async |scene| {
            let Base { namespace, worker, setup, daemon } = Base::with_history(&scene).await;
            daemon.kill().await;
            let alone = namespace.now().await;
            namespace.apply(&worker.tag("h1")).await;
            for replicas in [0, 10] {
                namespace.scale(X, replicas).await;
                at_rest(&namespace, X, "v1", replicas).await;
            }
            started(&namespace, alone, &[("v1", 10)]).await;

            let daemon = namespace.daemon(&setup).await;
            let open = Since::now(&namespace, &daemon).await;
            daemon.log_contains("at rest: 10 replicas of registry.example/orders-worker:h1").await;
            at_rest(&namespace, X, "h1", 10).await;
            started(&namespace, open.at, &[("h1", 10)]).await;
            envelope(&namespace, open.at, 10, 2).await;
        },
    );

    trials.add_with_lags(
        "released: the history is back, the Deployment rolls natively again",
        async |scene| {
            let base = Base::with_history(&scene).await;
            let before = base.now().await;
            let Base { namespace, daemon, .. } = base.left_out().await;
            daemon
                .log_contains("orders-worker: released: un-paused, older ReplicaSets given back: 2; no pod touched by Volery")
                .await;
            let x = namespace.complete(X).await;
            untouched(&namespace, before).await;
            assert_eq!(x.spec.clone().and_then(|spec| spec.paused), None);
            let expected = [("h1", 1), ("h2", 2), ("v1", 3)].map(|(tag, n)| (tag.to_owned(), n));
            assert_eq!(history_of(&namespace, &uid(&x)).await, expected);
            let state = namespace.pod_templates().get_opt("orders-worker-volery").await;
            assert!(matches!(state, Ok(None)), "the state object is still there");
            let history = namespace
                .kubectl_ok(&["rollout", "history", "deployment/orders-worker"], None)
                .await;
            assert_eq!(revisions(&history), [1, 2, 3], "{history}");

            undo(&namespace).await;
            namespace
                .kubectl_ok(
                    &["rollout", "status", "deployment/orders-worker", "--timeout=60s"],
                    None,
                )
                .await;
            namespace.complete(X).await;
            started(&namespace, before, &[("h2", 10)]).await;
            no_other_pods(&namespace, X).await;
        },
    );

    trials.add(
        "released: with a version on it that failed it stays paused on the accepted one",
        async |scene| {
            let base = Base::rejected(&scene).await;
            let before = base.now().await;
            let Base { namespace, daemon, .. } = base.left_out().await;
            daemon
                .log_contains("orders-worker: blocked: to be released, but orders-worker's template is not the accepted version")
                .await;
            all_told(&namespace).await;
            let writes = namespace.daemon_writes().await.len();
            stays("the block", Duration::from_secs(5), async || {
                let x = namespace.deployment(X).await;
                ensure(x.spec.and_then(|spec| spec.paused) == Some(true), || "un-paused".to_owned())
            })
            .await;
            at_rest(&namespace, X, "v1", 10).await;
            untouched(&namespace, before).await;
            assert_eq!(namespace.daemon_writes().await.len(), writes, "writes while blocked");

            // The user puts the accepted template back: then nothing stands in the way.
            namespace.apply(&Worker::default()).await;
            daemon.log_contains("orders-worker: released: un-paused").await;
            let x = namespace.complete(X).await;
            assert_eq!(x.spec.clone().and_then(|spec| spec.paused), None);
            untouched(&namespace, before).await;
        },
    );

    trials.add(
        "released: with a version on it that failed, un-pausing it by hand is the decision to roll it out",
        async |scene| {
            let base = Base::rejected(&scene).await;
            let before = base.now().await;
            let Base { namespace, daemon, .. } = base.left_out().await;
            daemon.log_contains("orders-worker: blocked: to be released").await;
            namespace.kubectl_ok(&["rollout", "resume", "deployment/orders-worker"], None).await;
            daemon.log_contains("orders-worker: released: un-paused").await;
            let x = namespace.complete(X).await;
            started(&namespace, before, &[("v2", 10)]).await;
            let tags: Vec<String> = history_of(&namespace, &uid(&x))
                .await
                .into_iter()
                .map(|(tag, _)| tag)
                .collect();
            assert_eq!(tags, ["v1", "v2"]);
            let state = namespace.pod_templates().get_opt("orders-worker-volery").await;
            assert!(matches!(state, Ok(None)), "the state object is still there");
        },
    );

    trials.add_with_lags(
        "registered and released at R = 0: what is wanted later is the Deployment's own version",
        async |scene| {
            let namespace = scene.namespace().await;
            let worker = Worker::default();
            namespace.history(&worker).await;
            namespace.scale(X, 0).await;
            namespace.complete(X).await;
            let before = namespace.now().await;
            let url = namespace.bed.prometheus.url.clone();
            let base = Base::on(namespace, worker.replicas(0), &url, "").await;
            base.daemon
                .log_contains("at rest: 0 replicas of registry.example/orders-worker:v1")
                .await;
            at_rest(&base.namespace, X, "v1", 0).await;
            let Base {
                namespace, daemon, ..
            } = base.left_out().await;
            daemon
                .log_contains("orders-worker: released: un-paused, older ReplicaSets given back: 2")
                .await;
            untouched(&namespace, before).await;
            namespace.scale(X, 10).await;
            let x = namespace.complete(X).await;
            started(&namespace, before, &[("v1", 10)]).await;
            let expected = [("h1", 1), ("h2", 2), ("v1", 3)].map(|(tag, n)| (tag.to_owned(), n));
            assert_eq!(history_of(&namespace, &uid(&x)).await, expected);
        },
    );

    trials.add(
        "released: a version that failed before the accepted one is no part of the history",
        async |scene| {
            let base = Base::rejected(&scene).await;
            let namespace = &base.namespace;
            namespace.apply(&base.worker.clone().tag("v3")).await;
            base.daemon
                .log_contains("at rest: 10 replicas of registry.example/orders-worker:v3")
                .await;
            at_rest(namespace, X, "v3", 10).await;
            let before = base.now().await;
            let Base {
                namespace, daemon, ..
            } = base.left_out().await;
            daemon
                .log_contains("orders-worker: released: un-paused")
                .await;
            let x = namespace.complete(X).await;
            let tags: Vec<String> = history_of(&namespace, &uid(&x))
                .await
                .into_iter()
                .map(|(tag, _)| tag)
                .collect();
            assert_eq!(tags, ["v1", "v3"]);
            undo(&namespace).await;
            namespace.complete(X).await;
            started(&namespace, before, &[("v1", 10)]).await;
        },
    );

    trials.add_with_lags(
        "released: an entry removed at (4,6) cancels first, and what is not the accepted version is not let loose",
        async |scene| {
            let (Held { base, .. }, ..) = Held::at(&scene, 4, 6).await;
            let primary = base.namespace.deployment("orders-worker-primary").await;
            let kept: Vec<String> = base.namespace.pods_of(&primary).await.iter().map(uid).collect();
            assert_eq!(kept.len(), 6);
            let cancelled = base.now().await;
            let Base { namespace, daemon, .. } = base.left_out().await;
            daemon.log_contains("orders-worker: ended: the service leaves the configuration").await;
            daemon
                .log_contains("orders-worker: blocked: to be released, but orders-worker's template is not the accepted version")
                .await;
            let pods = at_rest(&namespace, X, "v1", 10).await;
            assert!(kept.iter().all(|uid| pods.contains(uid)), "{kept:?} not all in {pods:?}");
            started(&namespace, cancelled, &[("v1", 4)]).await;
            stopped(&namespace, cancelled, &[("v2", 4)]).await;
            no_other_pods(&namespace, X).await;
            let sets = namespace.replica_sets_of(&uid(&namespace.deployment(X).await)).await;
            assert_eq!(sets.iter().map(set_tag).collect::<Vec<_>>(), ["v1"]);
        },
    );
}

/// `kubectl get deploy` without the age.
async fn columns(namespace: &Namespace) -> String {
    let columns = "NAME:.metadata.name,DESIRED:.spec.replicas,READY:.status.readyReplicas,UP-TO-DATE:.status.updatedReplicas,\
                   AVAILABLE:.status.availableReplicas,REVISION:.metadata.annotations.deployment\\.kubernetes\\.io/revision";
    namespace
        .kubectl_ok(
            &[
                "get",
                "deployments",
                "-o",
                &format!("custom-columns={columns}"),
            ],
            None,
        )
        .await
}

/// A Deployment without what pausing changes, and without the condition that tells of rollouts.
fn apart_from_ours(x: &Deployment) -> Value {
    let mut x = json!(x);
    for pointer in [
        "/metadata/resourceVersion",
        "/metadata/generation",
        "/metadata/managedFields",
        "/spec/paused",
        "/status/observedGeneration",
    ] {
        if let Some(field) = x.pointer_mut(pointer) {
            *field = Value::Null;
        }
    }
    if let Some(conditions) = x
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut)
    {
        conditions.retain(|condition| {
            condition["type"] != "Progressing" && condition["type"] != "volery.dev/Rollout"
        });
    }
    x["spec"]["paused"] = Value::Null;
    x
}
