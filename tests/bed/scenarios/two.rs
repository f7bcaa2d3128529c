//! Two services under one daemon: what happens to one is nothing to the other.

use std::sync::Arc;

use super::{
    base::{Since, config, entry},
    promises::{at_rest, envelope, envelope_of_tags, never_more_than, started, stopped},
    promoted::STEPS,
};
use crate::{
    daemon::Daemon,
    namespace::Namespace,
    scene::{Scene, Trials},
    worker::Worker,
};

const BAD: &str = "orders-worker";
const GOOD: &str = "billing-worker";

pub fn register(trials: &mut Trials) {
    trials.add(
        "two: rollouts in two namespaces, one good, one bad, do not touch each other",
        async |scene| {
            let (bad, good) = (scene.namespace().await, scene.namespace().await);
            good.admit_daemon_of(&bad).await;
            let daemon = both_registered(&bad, &good).await;
            let since = Since::now(&bad, &daemon).await;
            let since_good = good.now().await;
            good.apply(&billing().tag("b2")).await;
            bad.apply(&Worker::default().tag("v2")).await;
            ended(&bad, &good, &daemon, since).await;

            started(&good, since_good, &[("b2", 10)]).await;
            stopped(&good, since_good, &[("b1", 10)]).await;
            envelope(&good, since_good, 10, 2).await;
            assert_eq!(good.recorder.steps(GOOD, since_good), STEPS);

            started(&bad, since.at, &[("v1", 2), ("v2", 2)]).await;
            stopped(&bad, since.at, &[("v1", 2), ("v2", 2)]).await;
            never_more_than(&bad, since.at, 12).await;
        },
    );

    trials.add(
        "two: rollouts of two services in one namespace, one good, one bad, do not touch each other",
        async |scene| {
            let namespace = scene.namespace().await;
            let daemon = both_registered(&namespace, &namespace).await;
            let since = Since::now(&namespace, &daemon).await;
            namespace.apply(&billing().tag("b2")).await;
            namespace.apply(&Worker::default().tag("v2")).await;
            ended(&namespace, &namespace, &daemon, since).await;
            started(&namespace, since.at, &[("b2", 10), ("v1", 2), ("v2", 2)]).await;
            stopped(&namespace, since.at, &[("b1", 10), ("v1", 2), ("v2", 2)]).await;
            envelope_of_tags(&namespace, since.at, 10, 2, &["b1", "b2"]).await;
            assert_eq!(namespace.recorder.steps(GOOD, since.at), STEPS);
        },
    );

    trials.add(
        "two: where one rollout may be open the other waits its turn, and is then rolled out",
        async |scene| {
            let namespace = scene.namespace().await;
            let first = "max-concurrent-rollouts: 1\n";
            let daemon = both_registered_with(&namespace, &namespace, first).await;
            namespace.set_metric("v2", "my_errors", 0.0);
            let since = Since::now(&namespace, &daemon).await;
            namespace.apply(&billing().tag("b2")).await;
            since.log(&daemon, "billing-worker: rollout 1: ").await;
            namespace.apply(&Worker::default().tag("v2")).await;
            since
                .log(&daemon, "orders-worker: waiting for its turn: ")
                .await
                .log(&daemon, "billing-worker: promoted: ")
                .await
                .log(&daemon, "orders-worker: rollout 1: ")
                .await
                .log(&daemon, "orders-worker: promoted: ")
                .await;
            at_rest(&namespace, GOOD, "b2", 10).await;
            at_rest(&namespace, BAD, "v2", 10).await;
            started(&namespace, since.at, &[("b2", 10), ("v2", 10)]).await;
            envelope_of_tags(&namespace, since.at, 10, 2, &["b1", "b2"]).await;
        },
    );

    trials.add(
        "two: one service that cannot be registered does not keep the other from its rollout",
        async |scene: Arc<Scene>| {
            let namespace = scene.namespace().await;
            let text = text(&namespace, &namespace);
            namespace.running(&billing()).await;
            namespace.set_metric("b1", "my_errors", 0.0);
            namespace.set_metric("b2", "my_errors", 0.0);
            let daemon = namespace.daemon(&namespace.daemon_setup(&text)).await;
            daemon
                .log_contains("orders-worker: waiting: there is no Deployment orders-worker")
                .await;
            daemon.log_contains("billing-worker: at rest").await;
            let since = Since::now(&namespace, &daemon).await;
            namespace.apply(&billing().tag("b2")).await;
            since
                .log(
                    &daemon,
                    "billing-worker: at rest: 10 replicas of registry.example/billing-worker:b2",
                )
                .await;
            at_rest(&namespace, GOOD, "b2", 10).await;
            started(&namespace, since.at, &[("b2", 10)]).await;
            // It is taken on when it comes.
            namespace.apply(&Worker::default()).await;
            since
                .log(&daemon, "orders-worker: registered: 10 replicas")
                .await;
            at_rest(&namespace, BAD, "v1", 10).await;
        },
    );
}

fn billing() -> Worker {
    Worker::named(GOOD).tag("b1")
}

/// A file with both services, each in its namespace.
fn text(bad: &Namespace, good: &Namespace) -> String {
    let first = config(bad, &bad.bed.prometheus.url, "");
    first + &entry(good, GOOD, &format!("namespace: {}", good.name))
}

async fn both_registered(bad: &Namespace, good: &Namespace) -> Daemon {
    both_registered_with(bad, good, "").await
}

/// `first` is what the file begins with.
async fn both_registered_with(bad: &Namespace, good: &Namespace, first: &str) -> Daemon {
    let (orders, billing) = (Worker::default(), billing());
    tokio::join!(bad.running(&orders), good.running(&billing));
    for (tag, errors) in [("b1", 0.0), ("b2", 0.0)] {
        good.set_metric(tag, "my_errors", errors);
    }
    for (tag, errors) in [("v1", 0.0), ("v2", 1.0)] {
        bad.set_metric(tag, "my_errors", errors);
    }
    let text = first.to_owned() + &text(bad, good);
    let daemon = bad.daemon(&bad.daemon_setup(&text)).await;
    daemon.log_contains("orders-worker: at rest").await;
    daemon.log_contains("billing-worker: at rest").await;
    daemon
}

/// One was rejected while the other was on its way, and that one was promoted.
async fn ended(bad: &Namespace, good: &Namespace, daemon: &Daemon, since: Since) {
    since
        .log(daemon, "orders-worker: failed: checks failed")
        .await
        .log(daemon, "billing-worker: promoted: ")
        .await;
    since
        .log(
            daemon,
            "orders-worker: rejected: registry.example/orders-worker:v2 (",
        )
        .await;
    since
        .log(
            daemon,
            "billing-worker: at rest: 10 replicas of registry.example/billing-worker:b2",
        )
        .await;
    at_rest(bad, BAD, "v1", 10).await;
    at_rest(good, GOOD, "b2", 10).await;
    let mixed: Vec<String> = since
        .lines(daemon)
        .into_iter()
        .filter(|line| line.contains(BAD) && line.contains(GOOD))
        .collect();
    assert!(mixed.is_empty(), "{mixed:?}");
}
