//! The whole life of a worker by hand (fact 3), every handover of it by the design's recipe, plain and with either watch late.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;
use serde_json::json;
use tokio::time::Instant;

use super::{
    hand::{
        self, create_clone, create_rs, hand_over, image_tag, move_rs, only_replica_set,
        owned_by_deployment, pause, reported, scale_clone, set_revision, template, template_of,
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
        "fact_03::a_promoted_rollout_starts_each_pod_once_and_loses_none",
        promoted,
    );
    under_each_lag(
        trials,
        "fact_03::a_rollout_rolled_back_leaves_the_accepted_version_and_nothing_else",
        rolled_back,
    );
    under_each_lag(
        trials,
        "fact_03::a_frozen_canary_is_replaced_in_place",
        replaced_in_place,
    );
}

const X: &str = "orders-worker";
const PRIMARY: &str = "orders-worker-primary";
const CANARY: &str = "orders-worker-canary";

struct Open {
    x: Deployment,
    primary: Deployment,
    canary: Deployment,
    accepted: ReplicaSet,
    candidate: ReplicaSet,
}

/// Opens a rollout of what the user has put on X.
async fn open(ns: &Namespace, x: &Deployment) -> Open {
    let accepted = only_replica_set(ns, x).await;
    let x = ns.observed(X).await;
    let number = accepted
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap();
    let primary = create_clone(ns, &x, "primary", &template_of(&accepted), number).await;
    hand_over(ns, X, PRIMARY, &accepted.name_any()).await;
    let canary = create_clone(ns, &x, "canary", &template(&x), 0).await;
    let candidate = create_rs(ns, &canary, "r1").await;
    set_revision(ns, &candidate, 4).await;
    Open {
        x,
        primary,
        canary,
        accepted,
        candidate,
    }
}

async fn step(ns: &Namespace, canary: i32, primary: i32) {
    scale_clone(ns, CANARY, canary).await;
    scale_clone(ns, PRIMARY, primary).await;
}

async fn nothing_happened(ns: &Namespace, since: Instant) {
    ns.now().await;
    assert_eq!(
        (ns.recorder.starts(since), ns.recorder.stops(since)),
        (BTreeMap::new(), BTreeMap::new())
    );
}

fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    counts
        .into_iter()
        .map(|(tag, number)| (tag.to_owned(), number))
        .collect()
}

async fn promoted(ns: Arc<Namespace>) {
    ns.history(&Worker::default()).await;
    let start = ns.now().await;
    let (x, state) = hand::register(&ns, X).await;
    ns.apply(&Worker::default().tag("v2")).await;
    let waiting = {
        let ns = Arc::clone(&ns);
        tokio::spawn(async move {
            ns.kubectl(
                &[
                    "rollout",
                    "status",
                    "deployment/orders-worker",
                    "--timeout=300s",
                ],
                None,
            )
            .await
        })
    };
    let open = open(&ns, &x).await;
    nothing_happened(&ns, start).await;

    for (canary, primary) in [(2, 8), (4, 6), (5, 5), (7, 3), (9, 1), (10, 0)] {
        step(&ns, canary, primary).await;
    }
    assert!(
        !waiting.is_finished(),
        "kubectl rollout status waits until promotion"
    );
    hand_over(&ns, CANARY, X, &open.candidate.name_any()).await;
    let status = waiting.await.unwrap();
    assert!(status.status.success(), "{status:?}");
    let stash = hand::owned("v1", "PodTemplate", &state.name_any(), &uid(&state));
    let empty = json!([{"op": "test", "path": "/spec/replicas", "value": 0}]);
    move_rs(&ns, &open.accepted, &uid(&open.primary), stash, empty)
        .await
        .unwrap();
    hand::delete(&ns, &open.canary).await;
    hand::delete(&ns, &open.primary).await;

    ns.now().await;
    assert_eq!(ns.recorder.starts(start), counts([("v2", 10)]));
    assert_eq!(ns.recorder.stops(start), counts([("v1", 10)]));
    assert_eq!(
        ns.recorder.range(start, |pods| pods.available).0,
        10,
        "{}",
        ns.recorder.story()
    );
    assert_eq!(
        ns.recorder.range(start, |pods| pods.alive).1,
        12,
        "{}",
        ns.recorder.story()
    );
    let steps = ns.recorder.steps(X, start);
    assert_eq!(
        steps
            .iter()
            .filter(|(c, p)| c + p == 10)
            .collect::<Vec<_>>(),
        [(0, 10), (2, 8), (4, 6), (5, 5), (7, 3), (9, 1), (10, 0)]
            .iter()
            .collect::<Vec<_>>()
    );

    // Release: the stash comes back, oldest first, and then X is on its own again.
    let promoted = ns.now().await;
    let mut stashed = ns.replica_sets_of(&uid(&state)).await;
    stashed.sort_by_key(ResourceExt::creation_timestamp);
    assert_eq!(
        stashed
            .iter()
            .map(|rs| image_tag(&template_of(rs)))
            .collect::<Vec<_>>(),
        ["h1", "h2", "v1"]
    );
    for rs in &stashed {
        move_rs(
            &ns,
            rs,
            &uid(&state),
            owned_by_deployment(&open.x),
            json!([]),
        )
        .await
        .unwrap();
    }
    eventually("the original to report its pods", async || {
        let x = ns.deployment(X).await;
        ensure(observed(&x) && reported(&x) == (10, 10), || {
            format!("it reports {:?}", reported(&x))
        })
    })
    .await;
    ns.patch(X, json!({"spec": {"paused": null}})).await;
    ns.complete(X).await;
    nothing_happened(&ns, promoted).await;
    let history = ns
        .kubectl_ok(&["rollout", "history", "deployment/orders-worker"], None)
        .await;
    let revisions: Vec<_> = history
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.parse::<u32>().ok())
        .collect();
    assert_eq!(revisions, [1, 2, 3, 4], "{history}");
    ns.scale(X, 2).await;
    ns.complete(X).await;
    ns.kubectl_ok(&["rollout", "undo", "deployment/orders-worker"], None)
        .await;
    assert_eq!(image_tag(&template(&ns.complete(X).await)), "v1");
}

async fn rolled_back(ns: Arc<Namespace>) {
    ns.running(&Worker::default()).await;
    let start = ns.now().await;
    let (x, _) = hand::register(&ns, X).await;
    ns.apply(&Worker::default().tag("v2")).await;
    let open = open(&ns, &x).await;
    step(&ns, 2, 8).await;
    step(&ns, 4, 6).await;
    ns.patch(PRIMARY, json!({"spec": {"replicas": 10}})).await;
    ns.patch(CANARY, json!({"spec": {"replicas": 0}})).await;
    step(&ns, 0, 10).await;
    hand_over(&ns, PRIMARY, X, &open.accepted.name_any()).await;
    hand::delete(&ns, &open.canary).await;
    hand::delete(&ns, &open.primary).await;
    hand::collected(&ns, &open.canary).await;
    assert_eq!(
        reported(&ns.deployment(X).await),
        (10, 0),
        "up to date are none: the template is still the user's"
    );
    ns.now().await;
    assert_eq!(ns.recorder.starts(start), counts([("v2", 4), ("v1", 4)]));
    assert_eq!(ns.recorder.stops(start), counts([("v2", 4), ("v1", 4)]));

    let start = ns.now().await;
    for number in [0, 3] {
        ns.scale(X, number).await;
        eventually(
            &format!("{number} pods of the accepted version"),
            async || {
                let x = ns.deployment(X).await;
                ensure(observed(&x) && reported(&x) == (number, 0), || {
                    format!("reported are {:?}", reported(&x))
                })
            },
        )
        .await;
    }
    ns.now().await;
    assert_eq!(ns.recorder.starts(start), counts([("v1", 3)]));
}

async fn replaced_in_place(ns: Arc<Namespace>) {
    ns.running(&Worker::default()).await;
    let start = ns.now().await;
    let (x, _) = hand::register(&ns, X).await;
    ns.apply(&Worker::default().tag("v2")).await;
    let open = open(&ns, &x).await;
    step(&ns, 2, 8).await;
    step(&ns, 4, 6).await;
    let frozen = ns.now().await;

    ns.apply(&Worker::default().tag("v3")).await;
    let x = ns.observed(X).await;
    ns.patch(CANARY, json!({"spec": {"template": template(&x)}}))
        .await;
    let canary = ns.observed(CANARY).await;
    create_rs(&ns, &canary, "r2").await;
    ns.patch(CANARY, json!({"spec": {"paused": false}})).await;
    ns.complete(CANARY).await;
    pause(&ns, CANARY).await;
    let rejected = ns
        .replica_sets()
        .get(&open.candidate.name_any())
        .await
        .unwrap();
    assert_eq!(rejected.spec.unwrap().replicas, Some(0));

    ns.now().await;
    assert_eq!(ns.recorder.starts(frozen), counts([("v3", 4)]));
    assert_eq!(ns.recorder.stops(frozen), counts([("v2", 4)]));
    assert_eq!(ns.recorder.starts(start), counts([("v2", 4), ("v3", 4)]));
    let (_, pods) = ns.recorder.series(frozen).pop().unwrap();
    assert_eq!(
        pods.by_tag
            .iter()
            .map(|(tag, (alive, _))| (tag.as_str(), *alive))
            .collect::<Vec<_>>(),
        [("v1", 6), ("v3", 4)]
    );
    assert!(
        ns.pods_of(&x).await.is_empty(),
        "the original owns none meanwhile"
    );
}
