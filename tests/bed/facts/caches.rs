//! The deployment controller reads Deployments and ReplicaSets through two caches; what happens when one of them is behind.
//!
//! The lag is long, so that the order of things is certain; half a second does the same with a little luck.

use std::{collections::BTreeMap, time::Duration};

use kube::ResourceExt as _;
use serde_json::json;

use super::hand::{
    self, create_clone, create_rs, hand_over, move_rs, only_replica_set, owned_by_deployment,
    pause, replica_set, template, template_of,
};
use crate::{
    namespace::uid,
    proxy::Kind,
    scene::Trials,
    wait::{ensure, eventually},
    worker::Worker,
};

const LONG: Duration = Duration::from_secs(3);

pub fn register(trials: &mut Trials) {
    trials.add(
        "fact_04::moved_before_its_new_owners_number_is_observed_a_replicaset_loses_all_pods",
        async |scene| {
            let ns = scene.namespace().await;
            ns.running(&Worker::default().replicas(4)).await;
            let x = pause(&ns, "orders-worker").await;
            let rs = only_replica_set(&ns, &x).await;
            let clone = create_clone(&ns, &x, "primary", &template_of(&rs), 0).await;
            let start = ns.now().await;
            ns.lag(Kind::Deployments, LONG);
            ns.patch(&clone.name_any(), json!({"spec": {"replicas": 4}}))
                .await;
            move_rs(&ns, &rs, &uid(&x), owned_by_deployment(&clone), json!([]))
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

    trials.add("fact_15::pausing_again_and_deleting_the_new_replicaset_at_once_kills_the_accepted_pods", async |scene| {
        let ns = scene.namespace().await;
        ns.running(&Worker::default().replicas(4)).await;
        let x = pause(&ns, "orders-worker").await;
        ns.lag(Kind::Deployments, LONG);
        ns.apply(&Worker::default().replicas(4).tag("v2").spec(json!({"paused": false}))).await;
        let new = eventually("the new version's ReplicaSet", async || {
            let all = ns.replica_sets_of(&uid(&x)).await;
            all.into_iter().find(|rs| hand::image_tag(&template_of(rs)) == "v2").ok_or_else(|| "there is none".to_owned())
        })
        .await;
        ns.patch("orders-worker", json!({"spec": {"paused": true}})).await;
        let accepted = replica_set(&ns, &x, "v1").await.status.unwrap_or_default().available_replicas.unwrap_or_default();
        assert!(accepted >= 3, "at this moment {accepted} accepted pods are available, as many as the strategy asks for");
        ns.replica_sets().delete(&new.name_any(), &Default::default()).await.unwrap();
        eventually("all accepted pods to be stopped", async || {
            let stopped = ns.recorder.stops(tokio::time::Instant::now() - Duration::from_secs(120));
            ensure(stopped.get("v1") == Some(&4), || format!("stopped are {stopped:?}"))
        })
        .await;
    });
}
