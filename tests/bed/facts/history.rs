//! Old ReplicaSets, and what Kubernetes writes into and out of them.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, Deployment},
    core::v1::PodTemplate,
};
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::json;

use super::{
    hand::{
        self, create_clone, create_rs, hand_over, move_rs, owned_by_deployment, pause, replica_set,
        reported, template, template_of,
    },
    under_each_lag,
};
use crate::{
    namespace::{Namespace, observed, uid},
    scene::Trials,
    wait::{ensure, eventually},
    worker::Worker,
};

pub fn register(trials: &mut Trials) {
    under_each_lag(
        trials,
        "fact_05::when_the_active_replicaset_leaves_an_empty_one_of_the_original_is_scaled_up",
        leaves,
    );
    trials.add(
        "fact_05::from_zero_an_empty_replicaset_of_the_waiting_template_is_scaled_up",
        async |scene| {
            let ns = scene.namespace().await;
            ns.history(&Worker::default().replicas(2)).await;
            pause(&ns, "orders-worker").await;
            ns.scale("orders-worker", 0).await;
            eventually("no pod", async || {
                ensure(
                    reported(&ns.deployment("orders-worker").await).0 == 0,
                    || "there is one".into(),
                )
            })
            .await;
            let start = ns.now().await;
            // A revert to h1 that nobody has vetted.
            ns.apply(&Worker::default().tag("h1").replicas(2)).await;
            eventually("two pods of the unvetted version", async || {
                let started = ns.recorder.starts(start);
                ensure(started == BTreeMap::from([("h1".into(), 2)]), || {
                    format!("started are {started:?}")
                })
            })
            .await;
        },
    );
    under_each_lag(
        trials,
        "fact_06::a_returned_replicaset_of_the_promoted_template_is_older_and_makes_all_pods_roll_again",
        twin,
    );
    trials.add(
        "fact_08::annotations_are_copied_to_replicasets_and_undo_writes_them_back",
        async |scene| {
            let ns = scene.namespace().await;
            let worker = Worker::default().replicas(1);
            let x = ns
                .running(&worker.clone().annotation("volery.dev/state", "one"))
                .await;
            let old = hand::only_replica_set(&ns, &x).await;
            assert_eq!(
                old.annotations()
                    .get("volery.dev/state")
                    .map(String::as_str),
                Some("one")
            );
            ns.running(&worker.tag("v2").annotation("volery.dev/state", "two"))
                .await;
            ns.kubectl_ok(&["rollout", "undo", "deployment/orders-worker"], None)
                .await;
            let x = ns.complete("orders-worker").await;
            assert_eq!(
                x.annotations().get("volery.dev/state").map(String::as_str),
                Some("one")
            );
        },
    );
    trials.add("fact_09::a_template_comes_back_the_same_from_a_podtemplate_but_bare_from_a_controllerrevision", async |scene| {
        let ns = scene.namespace().await;
        let post = PostParams::default();
        let bare: Deployment = Worker::default().replicas(0).deployment();
        let x = ns.deployments().create(&post, &bare).await.unwrap();
        let state: PodTemplate = serde_json::from_value(json!({"metadata": {"name": "state"}, "template": template(&bare)})).unwrap();
        let state = ns.pod_templates().create(&post, &state).await.unwrap();
        assert_ne!(template(&x), template(&bare), "the server adds defaults");
        assert_eq!(state.template, Some(template(&x)), "the same ones");
        let again: PodTemplate = serde_json::from_value(json!({"metadata": {"name": "again"}, "template": template(&x)})).unwrap();
        assert_eq!(ns.pod_templates().create(&post, &again).await.unwrap().template, Some(template(&x)));
        let revision: ControllerRevision =
            serde_json::from_value(json!({"metadata": {"name": "state"}, "revision": 1, "data": {"template": template(&bare)}})).unwrap();
        let revisions: Api<ControllerRevision> = Api::namespaced(ns.bed.client.clone(), &ns.name);
        let data = json!(revisions.create(&post, &revision).await.unwrap().data);
        assert_eq!(data["template"], json!(template(&bare)), "no defaults here");
    });
}

async fn leaves(ns: Arc<Namespace>) {
    ns.history(&Worker::default().replicas(2)).await;
    pause(&ns, "orders-worker").await;
    ns.apply(&Worker::default().replicas(2).tag("v2")).await;
    let x = ns.observed("orders-worker").await;
    let active = replica_set(&ns, &x, "v1").await;
    let clone = create_clone(&ns, &x, "primary", &template_of(&active), 2).await;
    let start = ns.now().await;
    move_rs(
        &ns,
        &active,
        &uid(&x),
        owned_by_deployment(&clone),
        json!([]),
    )
    .await
    .unwrap();
    eventually("two pods of the version before", async || {
        let started = ns.recorder.starts(start);
        ensure(started == BTreeMap::from([("h2".into(), 2)]), || {
            format!("started are {started:?}")
        })
    })
    .await;
}

/// git revert: v1, v2, and v1 again, whose pods run under a newer ReplicaSet than the first v1's.
async fn twin(ns: Arc<Namespace>) {
    let worker = Worker::default().replicas(2);
    ns.history(&worker).await;
    ns.running(&worker.clone().tag("v2")).await;
    let (x, state) = hand::register(&ns, "orders-worker").await;
    let v2 = replica_set(&ns, &x, "v2").await;
    ns.apply(&worker).await;
    let x = ns.observed(&x.name_any()).await;
    let primary = create_clone(&ns, &x, "primary", &template_of(&v2), 2).await;
    hand_over(&ns, "orders-worker", &primary.name_any(), &v2.name_any()).await;
    let canary = create_clone(&ns, &x, "canary", &template(&x), 0).await;
    let v1_again = create_rs(&ns, &canary, "again").await;
    hand::scale_clone(&ns, &canary.name_any(), 2).await;
    hand::scale_clone(&ns, &primary.name_any(), 0).await;
    hand_over(
        &ns,
        &canary.name_any(),
        "orders-worker",
        &v1_again.name_any(),
    )
    .await;
    let start = ns.now().await;

    let all = ns.replica_sets_of(&uid(&state)).await;
    let first_v1 = all
        .iter()
        .find(|rs| hand::image_tag(&template_of(rs)) == "v1")
        .unwrap();
    move_rs(
        &ns,
        first_v1,
        &uid(&state),
        owned_by_deployment(&x),
        json!([]),
    )
    .await
    .unwrap();
    eventually(
        "the original to count none of its pods as up to date",
        async || {
            let x = ns.deployment("orders-worker").await;
            ensure(observed(&x) && reported(&x) == (2, 0), || {
                format!("it reports {:?}", reported(&x))
            })
        },
    )
    .await;
    ns.patch("orders-worker", json!({"spec": {"paused": false}}))
        .await;
    eventually("all pods to be replaced by the same version", async || {
        let (started, stopped) = (ns.recorder.starts(start), ns.recorder.stops(start));
        let both = BTreeMap::from([("v1".into(), 2)]);
        ensure(started == both && stopped == both, || {
            format!("started are {started:?}, stopped {stopped:?}")
        })
    })
    .await;
}
