//! Killed anywhere and started again: same end, same pods, same starts as without (promise 5).

use std::{sync::Arc, time::Duration};

use super::{
    base::Base,
    between::{End, Hold, SHORT, at_every_write},
    promises::{at_rest, envelope, quiet, started, stash, step, untouched},
};
use crate::{
    prometheus::Answer,
    scene::{Scene, Trials},
    wait::{ensure, eventually},
    worker::Worker,
};

const NAME: &str = "orders-worker";

pub fn register(trials: &mut Trials) {
    trials.add("killed: in the middle of a step", in_a_step);
    trials.add(
        "killed: in the middle of the handover to the primary",
        async |scene| {
            killed_after(
                scene,
                "PATCH replicasets/",
                "orders-worker-primary",
                End::Promoted,
            )
            .await;
        },
    );
    trials.add("killed: in the middle of the promotion", async |scene| {
        killed_after(
            scene,
            "PATCH replicasets/",
            "\"name\":\"orders-worker\"",
            End::Promoted,
        )
        .await;
    });
    trials.add("killed: in the middle of a rollback", async |scene| {
        killed_after(
            scene,
            "PATCH deployments/orders-worker-canary ",
            "\"value\":0}]",
            End::RolledBack,
        )
        .await;
    });
    trials.add(
        "killed: after every single write of a promoted rollout",
        async |scene| {
            every_write(scene, End::Promoted).await;
        },
    );
    trials.add(
        "killed: after every single write of a rolled-back rollout",
        async |scene| {
            every_write(scene, End::RolledBack).await;
        },
    );
    trials.add(
        "killed: after every single write of a registration",
        every_write_of_registration,
    );
}

async fn in_a_step(scene: Arc<Scene>) {
    let mut base = Base::registered(&scene, "max_step_duration: 3s").await;
    let namespace = Arc::clone(&base.namespace);
    let before = base.now().await;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    for (at, count) in [
        ("step 1/3: ", (2, 8)),
        ("step 2/3: ", (4, 6)),
        ("finishing: ", (7, 3)),
    ] {
        step(&namespace, NAME, before, count).await;
        base.daemon.log_contains(at).await;
        base.daemon.kill().await;
        base.daemon = namespace.daemon(&base.setup).await;
    }
    at_rest(&namespace, NAME, "v2", 10).await;
    base.daemon.log_contains("promoted: ").await;
    assert_eq!(
        namespace
            .recorder
            .steps(NAME, before)
            .into_iter()
            .filter(|(c, p)| c + p == 10)
            .collect::<Vec<_>>(),
        [(0, 10), (2, 8), (4, 6), (5, 5), (7, 3), (9, 1), (10, 0)]
    );
    started(&namespace, before, &[("v2", 10)]).await;
    envelope(&namespace, before, 10, 2).await;
}

/// Ten replicas, killed once after the first write whose line begins like this and contains that.
async fn killed_after(scene: Arc<Scene>, begins: &'static str, contains: &'static str, end: End) {
    let mut base = Base::registered(&scene, "max_step_duration: 1s").await;
    let namespace = Arc::clone(&base.namespace);
    let before = base.now().await;
    if matches!(end, End::RolledBack) {
        namespace.set_metric("v2", "my_errors", 7.0);
    }
    let hold = Hold::after_first(&namespace, move |write| {
        write.starts_with(begins) && write.contains(contains)
    });
    namespace.apply(&base.worker.clone().tag("v2")).await;
    tokio::time::timeout(Duration::from_secs(60), hold.reached())
        .await
        .expect("such a write");
    base.daemon.kill().await;
    namespace.daemon_proxy.pass_all();
    base.daemon = namespace.daemon(&base.setup).await;
    end.reached(&namespace, before, 10).await;
}

/// One rollout, killed after its `nth` write, if any; how many writes it made.
async fn rollout(scene: Arc<Scene>, end: End, nth: Option<usize>) -> usize {
    let worker = Worker::default().replicas(4);
    let (mut base, stub) = Base::stubbed(&scene, worker, end.settings()).await;
    stub.answers(Answer::Value(0.0));
    let namespace = Arc::clone(&base.namespace);
    let before = base.now().await;
    let hold = Hold::after(&namespace, nth);
    namespace.apply(&base.worker.clone().tag("v2")).await;
    let came_to = async {
        base.daemon.log_contains("rollout 1: ").await;
        at_rest(&namespace, NAME, end.version(), 4).await;
    };
    let held = hold.reached_before(came_to).await;
    if let Some(write) = held {
        base.daemon.kill().await;
        namespace.daemon_proxy.pass_all();
        base.daemon = namespace.daemon(&base.setup).await;
        namespace.note(&format!("killed after {write}"));
    }
    end.reached(&namespace, before, 4).await;
    base.daemon.kill().await;
    scene.done(&namespace).await;
    hold.writes()
}

async fn every_write(scene: Arc<Scene>, end: End) {
    at_every_write(11, |nth| rollout(Arc::clone(&scene), end, nth)).await;
}

/// One registration of a worker with two older versions in its history, killed after its `nth` write, if any.
async fn registration(scene: Arc<Scene>, nth: Option<usize>) -> usize {
    let namespace = scene.namespace().await;
    let worker = Worker::default().replicas(2);
    namespace.history(&worker).await;
    let before = namespace.now().await;
    let text = super::base::config(&namespace, &namespace.bed.prometheus.url, SHORT);
    let setup = namespace.daemon_setup(&text);
    let hold = Hold::after(&namespace, nth);
    let mut daemon = namespace.daemon(&setup).await;
    if nth.is_some() {
        let write = hold.reached().await;
        daemon.kill().await;
        namespace.daemon_proxy.pass_all();
        namespace.note(&format!("killed after {write}"));
        daemon = namespace.daemon(&setup).await;
    }
    at_rest(&namespace, NAME, "v1", 2).await;
    daemon.log_contains("orders-worker: at rest").await;
    eventually("the history to be in the stash", async || {
        let stashed = stash(&namespace, NAME).await.len();
        ensure(stashed == 2, || format!("{stashed} are"))
    })
    .await;
    untouched(&namespace, before).await;
    let writes = hold.writes();
    if nth.is_none() {
        quiet(&namespace, Duration::from_secs(1)).await;
    }
    daemon.kill().await;
    scene.done(&namespace).await;
    writes
}

async fn every_write_of_registration(scene: Arc<Scene>) {
    at_every_write(4, |nth| registration(Arc::clone(&scene), nth)).await;
}
