//! Killed anywhere and started again: same end, same pods, same starts as without (promise 5).

use std::{sync::Arc, time::Duration};

use super::{
    base::Base,
    between::{End, Hold, SHORT, SHORT_JUDGED, sweep},
    promises::{
        at_rest, never_fewer_available_than, never_more_of, never_more_than, quiet, started, step,
    },
};
use crate::{
    namespace::uid,
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
            "\"value\":0",
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
    never_more_than(&namespace, before, 12).await;
    never_fewer_available_than(&namespace, before, 10).await;
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
    match end {
        End::Promoted => {
            at_rest(&namespace, NAME, "v2", 10).await;
            started(&namespace, before, &[("v2", 10)]).await;
            never_fewer_available_than(&namespace, before, 10).await;
        }
        End::RolledBack => {
            at_rest(&namespace, NAME, "v1", 10).await;
            started(&namespace, before, &[("v1", 2), ("v2", 2)]).await;
            never_more_of(&namespace, before, "v2", 2).await;
        }
    }
    never_more_than(&namespace, before, 12).await;
}

/// One rollout, killed after its `nth` write, if any; how many writes it made.
async fn rollout(scene: Arc<Scene>, end: End, nth: Option<usize>) -> usize {
    let namespace = scene.namespace().await;
    let stub = namespace.prometheus_stub().await;
    stub.answers(Answer::Value(0.0));
    let more = match end {
        End::Promoted => SHORT,
        End::RolledBack => SHORT_JUDGED,
    };
    let mut base = Base::on(
        Arc::clone(&namespace),
        Worker::default().replicas(4),
        &stub.url(),
        more,
    )
    .await;
    let before = base.now().await;
    let hold = nth.map_or_else(
        || Hold::never(&namespace),
        |nth| Hold::after(&namespace, nth),
    );
    namespace.apply(&base.worker.clone().tag("v2")).await;
    let version = match end {
        End::Promoted => "v2",
        End::RolledBack => "v1",
    };
    let came_to = async {
        base.daemon.log_contains("rollout 1: ").await;
        at_rest(&namespace, NAME, version, 4).await;
    };
    let held = tokio::select! {
        biased;
        write = hold.reached() => Some(write),
        // A run may need fewer checks than the one that was counted.
        () = came_to => None,
    };
    if let Some(write) = held {
        base.daemon.kill().await;
        namespace.daemon_proxy.pass_all();
        base.daemon = namespace.daemon(&base.setup).await;
        namespace.note(&format!("killed after {write}"));
        at_rest(&namespace, NAME, version, 4).await;
    }
    match end {
        End::Promoted => {
            started(&namespace, before, &[("v2", 4)]).await;
            never_fewer_available_than(&namespace, before, 4).await;
        }
        End::RolledBack => {
            started(&namespace, before, &[("v1", 2), ("v2", 2)]).await;
            never_more_of(&namespace, before, "v2", 2).await;
        }
    }
    never_more_than(&namespace, before, 6).await;
    base.daemon.kill().await;
    scene.done(&namespace).await;
    hold.writes()
}

async fn every_write(scene: Arc<Scene>, end: End) {
    let writes = rollout(Arc::clone(&scene), end, None).await;
    assert!(writes > 10, "only {writes} writes");
    sweep(1..=writes, |nth| {
        let scene = Arc::clone(&scene);
        async move {
            rollout(scene, end, Some(nth)).await;
        }
    })
    .await;
}

/// One registration of a worker with two older versions in its history, killed after its `nth` write, if any.
async fn registration(scene: Arc<Scene>, nth: Option<usize>) -> usize {
    let namespace = scene.namespace().await;
    let worker = Worker::default().replicas(2);
    namespace.history(&worker).await;
    let before = namespace.now().await;
    let text = super::base::config(&namespace, &namespace.bed.prometheus.url, SHORT);
    let setup = namespace.daemon_setup(&text);
    let hold = nth.map_or_else(
        || Hold::never(&namespace),
        |nth| Hold::after(&namespace, nth),
    );
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
    let object = namespace
        .pod_templates()
        .get("orders-worker-volery")
        .await
        .expect("the state object");
    eventually("the history to be in the stash", async || {
        let stashed = namespace.replica_sets_of(&uid(&object)).await.len();
        ensure(stashed == 2, || format!("{stashed} are"))
    })
    .await;
    started(&namespace, before, &[]).await;
    assert!(namespace.recorder.stops(before).is_empty());
    let writes = hold.writes();
    if nth.is_none() {
        quiet(&namespace, Duration::from_secs(1)).await;
    }
    daemon.kill().await;
    scene.done(&namespace).await;
    writes
}

async fn every_write_of_registration(scene: Arc<Scene>) {
    let writes = registration(Arc::clone(&scene), None).await;
    assert!(writes >= 4, "only {writes} writes");
    sweep(1..=writes, |nth| {
        let scene = Arc::clone(&scene);
        async move {
            registration(scene, Some(nth)).await;
        }
    })
    .await;
}
