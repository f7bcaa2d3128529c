//! The deployment controller reads Deployments and ReplicaSets through two caches; what happens when one of them is behind.
//!
//! The lag is long, so that the order of things is certain; half a second does the same with a little luck.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::{ResourceExt as _, api::DeleteParams};
use serde_json::json;
use tokio::time::Instant;

use super::{
    A_WHILE,
    hand::{
        self, create_clone, create_rs, hand_over, move_rs, only_replica_set, owned_by_deployment,
        pause, replica_set, reported, template, template_of,
    },
};
use crate::{
    kubelet::Behaviour,
    namespace::{Namespace, uid},
    proxy::Kind,
    scene::{Scene, Trials},
    wait::{ensure, eventually, stays},
    worker::Worker,
};

const LONG: Duration = Duration::from_secs(3);
/// Long enough for a whole rolling update of a few pods, on a busy machine too.
const LONGER: Duration = Duration::from_secs(8);

pub fn register(trials: &mut Trials) {
    // A Deployment that has yet to note the ReplicaSet's revision is saved by accident: that write conflicts while its cache is behind.
    trials.add(
        "fact_04::moved_before_its_new_owners_number_is_observed_a_replicaset_loses_all_pods",
        async |scene| {
            let ns = scene.namespace().await;
            ns.running(&Worker::default().replicas(4)).await;
            let x = pause(&ns, "orders-worker").await;
            let rs = only_replica_set(&ns, &x).await;
            let clone = create_clone(&ns, &x, "primary", &template_of(&rs), 4).await;
            hand_over(&ns, "orders-worker", &clone.name_any(), &rs.name_any()).await;
            ns.patch("orders-worker", json!({"spec": {"replicas": 0}}))
                .await;
            ns.observed("orders-worker").await;
            let start = ns.now().await;
            ns.lag(Kind::Deployments, LONG);
            ns.patch("orders-worker", json!({"spec": {"replicas": 4}}))
                .await;
            move_rs(&ns, &rs, &uid(&clone), owned_by_deployment(&x), json!([]))
                .await
                .unwrap();
            eventually("all four pods to be stopped", async || {
                let stopped = ns.recorder.stops(start);
                ensure(stopped == BTreeMap::from([("v1".into(), 4)]), || {
                    format!("stopped are {stopped:?}")
                })
            })
            .await;
        },
    );

    trials.add("fact_04::un_paused_before_it_reports_the_moved_replicaset_a_deployment_starts_all_pods_again", async |scene| {
        let ns = scene.namespace().await;
        ns.running(&Worker::default().replicas(4)).await;
        let x = pause(&ns, "orders-worker").await;
        // The pods run under a ReplicaSet of our own naming, as after any promotion.
        let canary = create_clone(&ns, &x, "canary", &template(&x), 0).await;
        let ours = create_rs(&ns, &canary, "candidate").await;
        hand::scale_clone(&ns, &canary.name_any(), 4).await;
        let old = only_replica_set(&ns, &x).await;
        ns.patch("orders-worker", json!({"spec": {"replicas": 0}})).await;
        eventually("the old pods to be gone", async || ensure(ns.pods_of(&x).await.is_empty(), || "some are left".into())).await;
        ns.replica_sets().delete(&old.name_any(), &Default::default()).await.unwrap();
        hand::collected(&ns, &x).await;
        ns.patch("orders-worker", json!({"spec": {"replicas": 4}})).await;
        ns.observed("orders-worker").await;
        let start = ns.now().await;
        ns.lag(Kind::ReplicaSets, LONG);
        move_rs(&ns, &ours, &uid(&canary), owned_by_deployment(&x), json!([])).await.unwrap();
        ns.patch("orders-worker", json!({"spec": {"paused": false}})).await;
        eventually("extra pods", async || {
            let started = ns.recorder.starts(start);
            ensure(started.get("v1").is_some_and(|n| *n >= 4), || format!("started are {started:?}"))
        })
        .await;
    });

    trials.add(
        "fact_04::with_the_gates_of_the_handover_the_same_moves_are_harmless",
        async |scene| {
            let ns = scene.namespace().await;
            ns.running(&Worker::default().replicas(4)).await;
            let x = pause(&ns, "orders-worker").await;
            let rs = only_replica_set(&ns, &x).await;
            let clone = create_clone(&ns, &x, "primary", &template_of(&rs), 0).await;
            let start = ns.now().await;
            ns.lag(Kind::Deployments, LONG);
            ns.lag(Kind::ReplicaSets, LONG);
            hand_over(&ns, "orders-worker", &clone.name_any(), &rs.name_any()).await;
            hand_over(&ns, &clone.name_any(), "orders-worker", &rs.name_any()).await;
            ns.patch("orders-worker", json!({"spec": {"paused": false}}))
                .await;
            ns.complete("orders-worker").await;
            ns.now().await;
            assert_eq!(
                (ns.recorder.starts(start), ns.recorder.stops(start)),
                (BTreeMap::new(), BTreeMap::new())
            );
        },
    );

    for (name, waits, survivors) in [
        (
            "fact_15::pausing_again_and_deleting_the_new_replicaset_at_once_kills_the_accepted_pods",
            false,
            0,
        ),
        (
            "fact_15::pausing_again_and_deleting_it_once_that_is_observed_saves_the_accepted_pods",
            true,
            3,
        ),
    ] {
        trials.add(name, async move |scene: Arc<Scene>| {
            let ns = scene.namespace().await;
            ns.running(&Worker::default().replicas(4)).await;
            let x = pause(&ns, "orders-worker").await;
            let start = ns.now().await;
            ns.lag(Kind::Deployments, LONGER);
            // Un-paused by somebody's manifest. As long as no pod of v2 is ready, three of v1 stay.
            ns.turn("v2", Behaviour::NeverReady);
            ns.apply(
                &Worker::default()
                    .replicas(4)
                    .tag("v2")
                    .spec(json!({"paused": false})),
            )
            .await;
            eventually("two pods of v2 beside three of v1", async || {
                let x = ns.deployment("orders-worker").await;
                ensure(reported(&x) == (5, 2), || {
                    format!("reported are {:?}", reported(&x))
                })
            })
            .await;
            let new = replica_set(&ns, &x, "v2").await;
            ns.patch("orders-worker", json!({"spec": {"paused": true}}))
                .await;
            if waits {
                ns.observed("orders-worker").await;
            }
            ns.turn("v2", Behaviour::default());
            ns.replica_sets()
                .delete(&new.name_any(), &DeleteParams::background())
                .await
                .unwrap();
            ns.observed("orders-worker").await;
            stays_at(&ns, start, survivors).await;
        });
    }
}

/// Waits until the first pods of v1 are down to so many, and they stay at it.
async fn stays_at(ns: &Namespace, start: Instant, survivors: usize) {
    let left = async || {
        let stopped = ns
            .recorder
            .stops(start)
            .get("v1")
            .copied()
            .unwrap_or_default();
        ensure(stopped + survivors == 4, || {
            format!("{stopped} of 4 accepted pods were stopped")
        })
    };
    eventually(&format!("{survivors} accepted pods to be left"), left).await;
    stays("their number", A_WHILE, left).await;
}
