//! What a paused Deployment does and does not do.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::{
    A_WHILE,
    hand::{self, pause, replica_set, reported},
    under_each_lag,
};
use crate::{
    kubelet::Behaviour,
    namespace::{Namespace, observed, uid},
    scene::Trials,
    wait::{ensure, eventually, stays},
    worker::Worker,
};

pub fn register(trials: &mut Trials) {
    under_each_lag(
        trials,
        "fact_01::paused_with_one_active_replicaset_it_follows_replicas_also_with_a_newer_template",
        one_active,
    );
    under_each_lag(
        trials,
        "fact_01::paused_with_only_empty_replicasets_it_scales_up_the_current_one_else_the_newest",
        only_empty,
    );
    under_each_lag(
        trials,
        "fact_01::paused_with_two_active_replicasets_it_scales_them_in_proportion",
        two_active,
    );
    under_each_lag(
        trials,
        "fact_01::paused_with_a_saturated_current_replicaset_it_scales_the_others_to_zero",
        saturated,
    );
    under_each_lag(
        trials,
        "fact_01::paused_without_replicasets_it_creates_none_and_starts_nothing",
        none,
    );
    trials.add(
        "fact_12::kubectl_rollout_restart_and_undo_refuse_a_paused_deployment",
        async |scene| {
            let ns = scene.namespace().await;
            ns.history(&Worker::default().replicas(1)).await;
            pause(&ns, "orders-worker").await;
            for verb in ["restart", "undo"] {
                let output = ns
                    .kubectl(&["rollout", verb, "deployment/orders-worker"], None)
                    .await;
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(
                    !output.status.success() && said.contains("paused") && said.contains("resume"),
                    "{verb}: {said}"
                );
            }
        },
    );
    trials.add(
        "fact_12::kubectl_rollout_status_waits_for_a_held_back_template_but_not_at_zero_replicas",
        async |scene| {
            let ns = scene.namespace().await;
            ns.running(&Worker::default().replicas(1)).await;
            pause(&ns, "orders-worker").await;
            ns.apply(&Worker::default().replicas(1).tag("v2")).await;
            ns.observed("orders-worker").await;
            let status = ns
                .kubectl(
                    &[
                        "rollout",
                        "status",
                        "deployment/orders-worker",
                        "--timeout=3s",
                    ],
                    None,
                )
                .await;
            assert!(!status.status.success(), "{status:?}");
            ns.scale("orders-worker", 0).await;
            ns.observed("orders-worker").await;
            ns.kubectl_ok(
                &[
                    "rollout",
                    "status",
                    "deployment/orders-worker",
                    "--timeout=30s",
                ],
                None,
            )
            .await;
        },
    );
    trials.add(
        "fact_13::conditions_of_other_types_survive_the_controller",
        async |scene| {
            let ns = scene.namespace().await;
            ns.running(&Worker::default().replicas(1)).await;
            let ours =
                json!({"type": "Volery", "status": "True", "reason": "AtRest", "message": "hello"});
            // By strategic merge, conditions are a list keyed by type: nobody else's is touched.
            let patch = Patch::Strategic(json!({"status": {"conditions": [ours]}}));
            ns.deployments()
                .patch_status("orders-worker", &PatchParams::default(), &patch)
                .await
                .unwrap();
            ns.scale("orders-worker", 3).await;
            ns.complete("orders-worker").await;
            ns.running(&Worker::default().replicas(2).tag("v2")).await;
            let conditions = ns
                .deployment("orders-worker")
                .await
                .status
                .unwrap()
                .conditions
                .unwrap_or_default();
            assert!(
                conditions
                    .iter()
                    .any(|c| c.type_ == "Volery" && c.message.as_deref() == Some("hello")),
                "{conditions:?}"
            );
            assert!(
                conditions.iter().any(|c| c.type_ == "Available"),
                "{conditions:?}"
            );
            assert!(
                ns.kubectl_ok(&["describe", "deployment", "orders-worker"], None)
                    .await
                    .contains("AtRest")
            );
        },
    );
    trials.add(
        "fact_17::a_paused_deployment_is_progressing_unknown_unless_it_has_no_progress_deadline",
        async |scene| {
            let ns = scene.namespace().await;
            let cases = [
                ("plain", json!({})),
                ("endless", json!({"progressDeadlineSeconds": i32::MAX})),
            ];
            for (name, spec) in cases {
                ns.running(&Worker::named(name).replicas(1).spec(spec))
                    .await;
                pause(&ns, name).await;
            }
            let progressing = async |name: &str| {
                let conditions = ns
                    .deployment(name)
                    .await
                    .status
                    .unwrap()
                    .conditions
                    .unwrap_or_default();
                conditions
                    .into_iter()
                    .find(|c| c.type_ == "Progressing")
                    .map(|c| (c.status, c.reason.unwrap_or_default()))
            };
            assert_eq!(
                progressing("plain").await,
                Some(("Unknown".into(), "DeploymentPaused".into()))
            );
            assert_eq!(progressing("endless").await, None);
        },
    );
    trials.add("fact_18::without_history_the_accepted_replicaset_is_deleted_at_zero_when_a_candidate_waits", async |scene| {
        let ns = scene.namespace().await;
        let worker = Worker::default().replicas(1).spec(json!({"revisionHistoryLimit": 0}));
        let x = ns.running(&worker).await;
        pause(&ns, "orders-worker").await;
        ns.scale("orders-worker", 0).await;
        eventually("no pod", async || ensure(reported(&ns.deployment("orders-worker").await).0 == 0, || "there is one".into())).await;
        assert_eq!(ns.replica_sets_of(&uid(&x)).await.len(), 1);
        ns.apply(&worker.tag("v2").replicas(0)).await;
        eventually("the accepted ReplicaSet to be deleted", async || {
            let left = ns.replica_sets_of(&uid(&x)).await.len();
            ensure(left == 0, || format!("{left} are left"))
        })
        .await;
    });
}

async fn one_active(ns: Arc<Namespace>) {
    ns.running(&Worker::default().replicas(3)).await;
    pause(&ns, "orders-worker").await;
    let start = ns.now().await;
    ns.apply(&Worker::default().replicas(3).tag("v2")).await;
    for number in [5, 2, 0, 3] {
        ns.scale("orders-worker", number).await;
        eventually(&format!("{number} pods of v1"), async || {
            let x = ns.deployment("orders-worker").await;
            ensure(observed(&x) && reported(&x) == (number, 0), || {
                format!("reported are {:?}", reported(&x))
            })
        })
        .await;
    }
    ns.now().await;
    assert_eq!(
        ns.recorder.starts(start),
        BTreeMap::from([("v1".into(), 2 + 3)])
    );
}

/// The newest is by creation, not by revision.
async fn only_empty(ns: Arc<Namespace>) {
    let x = ns.history(&Worker::default().replicas(1)).await;
    pause(&ns, "orders-worker").await;
    for (template, starts) in [
        ("v1", "v1"),
        ("h1", "h1"),
        ("h2", "h2"),
        ("never-seen", "v1"),
    ] {
        ns.scale("orders-worker", 0).await;
        eventually("no active ReplicaSet", async || {
            let all = ns.replica_sets_of(&uid(&x)).await;
            let pods = all
                .iter()
                .filter_map(|rs| rs.status.as_ref())
                .map(|status| status.replicas)
                .sum::<i32>();
            let x = ns.deployment("orders-worker").await;
            ensure(pods == 0 && observed(&x) && reported(&x).0 == 0, || {
                format!("{pods} pods are left")
            })
        })
        .await;
        ns.apply(&Worker::default().replicas(0).tag(template)).await;
        let start = ns.now().await;
        ns.scale("orders-worker", 2).await;
        eventually(&format!("two pods with template {template}"), async || {
            let x = ns.deployment("orders-worker").await;
            let started = ns.recorder.starts(start);
            ensure(
                reported(&x).0 == 2 && started == BTreeMap::from([(starts.into(), 2)]),
                || format!("reported are {:?}, started {started:?}", reported(&x)),
            )
        })
        .await;
    }
}

/// Six pods of v1 and v2 together, v2 never ready so that it is not saturated.
async fn two_active(ns: Arc<Namespace>) {
    let spec = json!({"strategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}});
    let worker = Worker::default().replicas(4).spec(spec);
    ns.running(&worker).await;
    ns.apply(&worker.clone().tag("v2").behaviour(Behaviour::NeverReady))
        .await;
    let x = eventually("two pods of v2 beside four of v1", async || {
        let x = ns.deployment("orders-worker").await;
        ensure(observed(&x) && reported(&x) == (6, 2), || {
            format!("reported are {:?}", reported(&x))
        })?;
        Ok(x)
    })
    .await;
    pause(&ns, "orders-worker").await;
    ns.scale("orders-worker", 10).await;
    let wanted = async |tag: &str| {
        replica_set(&ns, &x, tag)
            .await
            .spec
            .unwrap()
            .replicas
            .unwrap()
    };
    eventually("both to grow to twelve together", async || {
        let (v1, v2) = (wanted("v1").await, wanted("v2").await);
        ensure(v1 + v2 == 12 && v1 > 4 && v2 > 2, || {
            format!("they are {v1} and {v2}")
        })
    })
    .await;
}

/// Not in the list of facts, and a danger: being paused does not save the old pods from a new ReplicaSet that is complete already.
async fn saturated(ns: Arc<Namespace>) {
    let spec = json!({"strategy": {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}});
    let worker = Worker::default().replicas(3).spec(spec);
    ns.running(&worker).await;
    ns.apply(&worker.clone().tag("v2").behaviour(Behaviour::NeverReady))
        .await;
    let x = eventually("both versions whole", async || {
        let x = ns.deployment("orders-worker").await;
        ensure(observed(&x) && reported(&x) == (6, 3), || {
            format!("reported are {:?}", reported(&x))
        })?;
        Ok(x)
    })
    .await;
    pause(&ns, "orders-worker").await;
    ns.turn("v2", Behaviour::default());
    eventually("v1 to be scaled to zero", async || {
        let number = replica_set(&ns, &x, "v1").await.spec.unwrap().replicas;
        ensure(number == Some(0), || format!("it is {number:?}"))
    })
    .await;
}

async fn none(ns: Arc<Namespace>) {
    let start = Instant::now();
    ns.apply(&Worker::default().replicas(3).spec(json!({"paused": true})))
        .await;
    let x = timeout(Duration::from_secs(60), ns.observed("orders-worker"))
        .await
        .unwrap();
    ns.scale("orders-worker", 4).await;
    ns.observed("orders-worker").await;
    stays("a Deployment without ReplicaSets", A_WHILE, async || {
        let owned = ns.replica_sets_of(&uid(&x)).await.len();
        let reported = hand::reported(&ns.deployment("orders-worker").await);
        ensure(owned == 0 && reported == (0, 0), || {
            format!("it owns {owned} and reports {reported:?}")
        })
    })
    .await;
    ns.now().await;
    assert_eq!(ns.recorder.starts(start), BTreeMap::new());
}
