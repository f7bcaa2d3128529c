//! A good version: rolled out by steps, checked, promoted; nothing restarts that need not.

use std::sync::Arc;

use serde_json::json;

use super::{
    base::{Base, Held, Since, undo},
    promises::{
        at_rest, envelope, history_of, no_other_pods, revisions, started, stash, stopped, untouched,
    },
};
use crate::{
    namespace::{Namespace, uid},
    scene::Trials,
    worker::Worker,
};

const X: &str = "orders-worker";

/// What BASE goes through, written `(C,P)`: canary up, then primary down.
pub const STEPS: [(i32, i32); 13] = [
    (0, 10),
    (2, 10),
    (2, 8),
    (4, 8),
    (4, 6),
    (5, 6),
    (5, 5),
    (7, 5),
    (7, 3),
    (9, 3),
    (9, 1),
    (10, 1),
    (10, 0),
];

pub fn register(trials: &mut Trials) {
    trials.add(
        "promoted: a new image applied with its replicas starts exactly ten pods",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            let since = Since::now(&base.namespace, &base.daemon).await;
            base.namespace.apply(&base.worker.clone().tag("v2")).await;
            promoted(&base, since, ("v1", "v2")).await;
        },
    );

    trials.add("promoted: kubectl set image does the same", async |scene| {
        let base = Base::registered(&scene, "").await;
        let since = Since::now(&base.namespace, &base.daemon).await;
        let image = format!("worker={}", base.worker.clone().tag("v2").image());
        base.namespace
            .kubectl_ok(&["set", "image", "deployment/orders-worker", &image], None)
            .await;
        promoted(&base, since, ("v1", "v2")).await;
    });

    trials.add(
        "promoted: an added environment variable is a change, and its value is nobody's business",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            let since = Since::now(&base.namespace, &base.daemon).await;
            let container =
                json!({"name": "worker", "env": [{"name": "TOKEN", "value": "s3cret"}]});
            let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
            base.namespace
                .kubectl_ok(
                    &[
                        "patch",
                        "deployment/orders-worker",
                        "-p",
                        &patch.to_string(),
                    ],
                    None,
                )
                .await;
            since.log(&base.daemon, "promoted: ").await;
            since
                .log(&base.daemon, "orders-worker: at rest: 10 replicas")
                .await;
            at_rest(&base.namespace, X, "v1", 10).await;
            started(&base.namespace, since.at, &[("v1", 10)]).await;
            stopped(&base.namespace, since.at, &[("v1", 10)]).await;
            envelope(&base.namespace, since.at, 10, 2).await;
            assert_eq!(base.namespace.recorder.steps(X, since.at), STEPS);
            let log = since.lines(&base.daemon).join("\n");
            assert!(
                log.contains("+ spec.containers[worker].env[TOKEN].name: \"TOKEN\""),
                "{log}"
            );
            assert!(!log.contains("s3cret"), "{log}");
        },
    );

    trials.add(
        "promoted: kubectl rollout status waits for the promotion and not less",
        async |scene| {
            let held = Held::registered(&scene).await;
            let (base, namespace) = (&held.base, &held.base.namespace);
            let since = Since::now(namespace, &base.daemon).await;
            namespace.apply(&base.worker.clone().tag("v2")).await;
            let watching = Arc::clone(namespace);
            let status = tokio::spawn(async move {
                let told = watching
                    .kubectl_ok(
                        &[
                            "rollout",
                            "status",
                            "deployment/orders-worker",
                            "--timeout=100s",
                        ],
                        None,
                    )
                    .await;
                (told, watching.deployment(X).await)
            });
            held.hold_at(since, 2, 8).await;
            assert!(!status.is_finished(), "it returned at (2,8)");
            held.go_on();
            since
                .log(&base.daemon, "finishing: to canary 10, primary 0")
                .await;
            let at_the_end = namespace.deployment(X).await;
            if at_the_end
                .status
                .and_then(|status| status.replicas)
                .unwrap_or_default()
                == 0
            {
                assert!(
                    !status.is_finished(),
                    "it returned before the handover to X"
                );
            }
            let (told, x) = status.await.expect("kubectl is waited for");
            assert!(told.contains("successfully rolled out"), "{told}");
            let owned = history_of(namespace, &uid(&x)).await;
            assert_eq!(owned, [("v2".to_owned(), 2)], "when kubectl returned");
            assert_eq!(
                x.status.and_then(|status| status.updated_replicas),
                Some(10)
            );
            since
                .log(&base.daemon, "orders-worker: at rest: 10 replicas")
                .await;
        },
    );

    trials.add(
        "promoted: a manifest that is applied again and again in the middle starts nothing",
        async |scene| {
            let (held, since, at) = Held::at(&scene, 4, 6).await;
            let (base, namespace) = (&held.base, &held.base.namespace);
            let next = base.worker.clone().tag("v2");
            let again = namespace.now().await;
            for team in ["a", "b", "c", "d", "e", "f"] {
                namespace.apply(&next.clone().label("team", team)).await;
            }
            untouched(namespace, again).await;
            let x = namespace.observed(X).await;
            assert_eq!(history_of(namespace, &uid(&x)).await, []);
            let mut lines = at.lines(&base.daemon);
            lines.retain(|line| !line.contains("step 2/3: check inconclusive: "));
            assert_eq!(lines, Vec::<String>::new());
            held.go_on();
            promoted(base, since, ("v1", "v2")).await;
        },
    );

    trials.add_with_lags(
        "promoted: there and back again and there again, ten starts each and a history as Kubernetes would have it",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            let namespace = Arc::clone(&base.namespace);
            let first = Since::now(&namespace, &base.daemon).await;
            for (before, after) in [("v1", "v2"), ("v2", "v1"), ("v1", "v2")] {
                let since = Since::now(&namespace, &base.daemon).await;
                namespace.apply(&base.worker.clone().tag(after)).await;
                promoted(&base, since, (before, after)).await;
            }
            started(&namespace, first.at, &[("v1", 10), ("v2", 20)]).await;
            let x = namespace.deployment(X).await;
            assert_eq!(history_of(&namespace, &uid(&x)).await, [("v2".to_owned(), 4)]);
            assert_eq!(stash(&namespace, X).await, [("v1".to_owned(), 3)]);

            let before = namespace.now().await;
            assert_eq!(released_history(base).await, [3, 4]);
            started(&namespace, before, &[]).await;
            undo(&namespace).await;
            namespace.complete(X).await;
            started(&namespace, before, &[("v1", 10)]).await;
            no_other_pods(&namespace, X).await;
        },
    );

    trials.add(
        "promoted: the stash keeps as much history as the Deployment asks for",
        async |scene| {
            let namespace = scene.namespace().await;
            let worker = Worker::default()
                .replicas(2)
                .spec(json!({"revisionHistoryLimit": 1}));
            let url = namespace.bed.prometheus.url.clone();
            let base = Base::on(namespace, worker, &url, "max_step_duration: 1s").await;
            let namespace = Arc::clone(&base.namespace);
            for tag in ["v2", "v3"] {
                let since = Since::now(&namespace, &base.daemon).await;
                namespace.apply(&base.worker.clone().tag(tag)).await;
                since
                    .log(
                        &base.daemon,
                        &format!("at rest: 2 replicas of registry.example/orders-worker:{tag}"),
                    )
                    .await;
                at_rest(&namespace, X, tag, 2).await;
            }
            assert_eq!(stash(&namespace, X).await, [("v2".to_owned(), 2)]);
            assert_eq!(released_history(base).await, [2, 3]);
        },
    );
}

/// BASE was promoted from one version to another, and nothing happened on the way that the design does not promise.
async fn promoted(base: &Base, since: Since, (before, after): (&str, &str)) {
    let namespace: &Namespace = &base.namespace;
    since
        .log(
            &base.daemon,
            &format!("promoted: registry.example/orders-worker:{after} is the accepted version, 10 replicas"),
        )
        .await
        .log(
            &base.daemon,
            &format!("at rest: 10 replicas of registry.example/orders-worker:{after}"),
        )
        .await;
    at_rest(namespace, X, after, 10).await;
    no_other_pods(namespace, X).await;
    started(namespace, since.at, &[(after, 10)]).await;
    stopped(namespace, since.at, &[(before, 10)]).await;
    envelope(namespace, since.at, 10, 2).await;
    assert_eq!(namespace.recorder.steps(X, since.at), STEPS);
    // Promise 7: replicas and template are the user's; what the daemon writes on X is the pause, and that was done at registering.
    let states = namespace.recorder.deployment_states(X, since.at);
    assert!(
        states.iter().all(|x| x
            .spec
            .as_ref()
            .is_some_and(|spec| spec.replicas == Some(10) && spec.paused == Some(true))),
        "X was not left alone"
    );
}

/// Gives the service back and returns the revisions that kubectl lists then.
async fn released_history(base: Base) -> Vec<u64> {
    let Base {
        namespace, daemon, ..
    } = base.left_out().await;
    daemon
        .log_contains("orders-worker: released: un-paused")
        .await;
    namespace.complete(X).await;
    let history = namespace
        .kubectl_ok(&["rollout", "history", "deployment/orders-worker"], None)
        .await;
    revisions(&history)
}
