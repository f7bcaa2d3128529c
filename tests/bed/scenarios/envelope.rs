//! How far the pods of a rollout stray from R: canary first, and with the hard cap of N consumers on N partitions.

use std::time::Duration;

use super::{
    base::{Base, Since},
    promises::{at_rest, capped, envelope, never_more_than, started, stopped},
};
use crate::{
    scene::{Scene, Trials},
    worker::Worker,
};

const X: &str = "orders-worker";

/// A registered worker of so many pods that take this long to end.
async fn registered(scene: &Scene, replicas: i32, end: Duration, more: &str) -> Base {
    let namespace = scene.namespace().await;
    let url = namespace.bed.prometheus.url.clone();
    let worker = Worker::default().replicas(replicas).terminate_after(end);
    Base::on(namespace, worker, &url, more).await
}

/// v2 is promoted; every pod is replaced once.
async fn promoted(base: &Base) -> Since {
    let since = Since::now(&base.namespace, &base.daemon).await;
    base.namespace.apply(&base.worker.clone().tag("v2")).await;
    since.log(&base.daemon, "promoted: ").await;
    at_rest(&base.namespace, X, "v2", base.worker.replicas).await;
    let replicas = usize::try_from(base.worker.replicas).unwrap();
    started(&base.namespace, since.at, &[("v2", replicas)]).await;
    stopped(&base.namespace, since.at, &[("v1", replicas)]).await;
    since
}

pub fn register(trials: &mut Trials) {
    let short = Duration::from_secs(1);

    trials.add_with_lags(
        "envelope: canary first, six replicas and one step more",
        async move |scene| {
            let base = registered(&scene, 6, short, "").await;
            let since = promoted(&base).await;
            envelope(&base.namespace, since.at, 6, 2).await;
        },
    );

    trials.add_with_lags(
        "envelope: canary first, a failure in the first step",
        async move |scene| {
            let base = registered(&scene, 6, short, "").await;
            base.namespace.set_metric("v2", "my_errors", 1.0);
            let since = Since::now(&base.namespace, &base.daemon).await;
            base.namespace.apply(&base.worker.clone().tag("v2")).await;
            since.log(&base.daemon, "rejected: ").await;
            at_rest(&base.namespace, X, "v1", 6).await;
            never_more_than(&base.namespace, since.at, 8).await;
        },
    );

    trials.add_with_lags(
        "envelope: capped, never more than six pods exist",
        async move |scene| {
            let base = registered(&scene, 6, short, "max_surge: 0").await;
            let since = promoted(&base).await;
            capped(&base.namespace, since.at, 6, 4).await;
        },
    );

    trials.add_with_lags(
        "envelope: capped, a failure in the second step takes the canary away first",
        async move |scene| {
            let base = registered(&scene, 6, short, "max_surge: 0").await;
            let since = Since::now(&base.namespace, &base.daemon).await;
            base.namespace.apply(&base.worker.clone().tag("v2")).await;
            since
                .log(&base.daemon, "step 2/2: canary 3/3 available")
                .await;
            base.namespace.set_metric("v2", "my_errors", 1.0);
            since.log(&base.daemon, "rejected: ").await;
            at_rest(&base.namespace, X, "v1", 6).await;
            started(&base.namespace, since.at, &[("v1", 3), ("v2", 3)]).await;
            capped(&base.namespace, since.at, 6, 0).await;
        },
    );

    trials.add_with_lags(
        "envelope: capped, the only pod is gone before the next exists",
        async move |scene| {
            let base = registered(&scene, 1, short, "max_surge: 0").await;
            let since = promoted(&base).await;
            capped(&base.namespace, since.at, 1, 0).await;
            let steps = base.namespace.recorder.steps(X, since.at);
            assert_eq!(steps, [(0, 1), (0, 0), (1, 0)]);
        },
    );

    trials.add(
        "envelope: capped, pods that take longer to end than abort fail nothing",
        async |scene| {
            let end = Duration::from_secs(14);
            let base = registered(&scene, 2, end, "max_surge: 0\nabort: 8s").await;
            let since = promoted(&base).await;
            capped(&base.namespace, since.at, 2, 1).await;
            let told = since.lines(&base.daemon).iter().any(|line| {
                line.contains("1 pod of the primary must end first, there may be 2 at most")
            });
            assert!(told, "nobody was told what was waited for");
        },
    );
}
