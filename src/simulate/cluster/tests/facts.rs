//! The facts of the design's section 3, each as a test; the numbers are the design's.

use super::*;

#[tokio::test(start_paused = true)]
async fn fact_1_a_paused_deployment_sets_its_one_active_replica_set_also_while_its_template_is_newer()
 {
    for lags in every_lag() {
        let cluster = with_paused_x(lags).await;
        cluster.set_image(NAMESPACE, X, V2).unwrap();
        settle(&cluster).await;
        assert_eq!(
            (pods(&cluster, V1), pods(&cluster, V2), starts(&cluster)),
            (10, 0, 10)
        );
        for size in [13, 0, 4] {
            cluster.scale(NAMESPACE, X, size).unwrap();
            settle(&cluster).await;
            assert_eq!((pods(&cluster, V1), pods(&cluster, V2)), (size as usize, 0));
        }
        let x = get(&cluster, Kind::Deployment, X);
        assert_eq!((x.status("replicas"), x.status("updatedReplicas")), (4, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn fact_1_a_paused_deployment_with_only_empty_replica_sets_scales_up_its_current_one_or_else_the_newest()
 {
    for (template, grows) in [(V1, V1), (V2, V2), ("orders:v3", V2)] {
        let cluster = with_paused_x(Lags::default()).await;
        cluster.scale(NAMESPACE, X, 0).unwrap();
        settle(&cluster).await;
        // A second later, because creation times, by which the newest is told, are in whole seconds.
        sleep(Duration::from_secs(2)).await;
        let x = get(&cluster, Kind::Deployment, X);
        cluster.create(&replica_set_for(&x, "newest", V2)).unwrap();
        cluster.set_image(NAMESPACE, X, template).unwrap();
        settle(&cluster).await;
        cluster.scale(NAMESPACE, X, 10).unwrap();
        settle(&cluster).await;
        assert_eq!(pods(&cluster, grows), 10, "template {template}");
        assert_eq!(cluster.journal().census.last().unwrap().total().alive, 10);
    }
}

#[tokio::test(start_paused = true)]
async fn fact_1_a_paused_deployment_scales_two_active_replica_sets_in_proportion() {
    let cluster = with_paused_x(Lags::default()).await;
    cluster.set_image(NAMESPACE, X, V2).unwrap();
    let x = get(&cluster, Kind::Deployment, X);
    cluster.create(&replica_set_for(&x, "second", V2)).unwrap();
    settle(&cluster).await;
    let six = Patch::Merge(json!({"spec": {"replicas": 5}}));
    cluster
        .patch(Kind::ReplicaSet, NAMESPACE, "orders-second", six.clone())
        .unwrap();
    let first = replica_set(&cluster, V1);
    cluster
        .patch(Kind::ReplicaSet, NAMESPACE, first.name(), six)
        .unwrap();
    settle(&cluster).await;
    cluster.scale(NAMESPACE, X, 20).unwrap();
    settle(&cluster).await;
    // First 10 and a surge of 25 %, with what was missing given to the younger: 5 and 8. Then 20 and its surge, shared
    // in proportion.
    assert_eq!((pods(&cluster, V1), pods(&cluster, V2)), (10, 15));
}

#[tokio::test(start_paused = true)]
async fn fact_1_a_paused_deployment_that_owns_nothing_creates_nothing() {
    for lags in every_lag() {
        let cluster = lagging(lags);
        cluster.apply(&clone_of_x(X, 10, V1)).unwrap();
        settle(&cluster).await;
        assert_eq!(owned(&cluster, X).len(), 0);
        assert_eq!(starts(&cluster), 0);
        assert!(get(&cluster, Kind::Deployment, X).is_observed());
    }
}

#[tokio::test(start_paused = true)]
async fn fact_2_a_replica_set_moves_in_one_patch_and_counts_as_current_for_its_new_owner() {
    for lags in every_lag() {
        let cluster = with_paused_x(lags).await;
        cluster
            .apply(&clone_of_x("orders-primary", 10, V1))
            .unwrap();
        observed(&cluster, "orders-primary").await;
        let moved = replica_set(&cluster, V1);
        let primary = get(&cluster, Kind::Deployment, "orders-primary");
        cluster.move_replica_set(&moved, &primary).unwrap();
        settle(&cluster).await;
        assert_eq!((starts(&cluster), ends(&cluster)), (10, 0));
        let (x, primary) = (
            get(&cluster, Kind::Deployment, X),
            get(&cluster, Kind::Deployment, "orders-primary"),
        );
        assert_eq!(
            (
                x.status("replicas"),
                primary.status("replicas"),
                primary.status("updatedReplicas")
            ),
            (0, 10, 10)
        );
        // Moved once, it cannot be moved again by somebody who has not seen that.
        let refusal = cluster.move_replica_set(&moved, &x).unwrap_err();
        assert_eq!((refusal.code, refusal.reason), (422, "Invalid"));
    }
}

#[tokio::test(start_paused = true)]
async fn fact_2_a_paused_deployment_recognises_a_replica_set_that_we_made() {
    for lags in every_lag() {
        let cluster = lagging(lags);
        let canary = cluster.apply(&clone_of_x("orders-canary", 0, V2)).unwrap();
        cluster
            .create(&replica_set_for(&canary, "ours", V2))
            .unwrap();
        settle(&cluster).await;
        let ours = get(&cluster, Kind::ReplicaSet, "orders-ours");
        assert_eq!(
            ours.annotation("deployment.kubernetes.io/revision"),
            Some("1")
        );
        cluster.scale(NAMESPACE, "orders-canary", 2).unwrap();
        settle(&cluster).await;
        assert_eq!(pods(&cluster, V2), 2);
        assert_eq!(
            get(&cluster, Kind::Deployment, "orders-canary").status("updatedReplicas"),
            2
        );
    }
}

/// A clone with another template (as X has in a rollback) is made with 0 replicas, set to 10, and given the ReplicaSet
/// with 10 pods, with or without waiting between.
async fn give_to_a_resized_clone(lags: Lags, waits: bool) -> usize {
    let cluster = with_paused_x(lags).await;
    cluster.apply(&clone_of_x("orders-primary", 0, V2)).unwrap();
    settle(&cluster).await;
    cluster.scale(NAMESPACE, "orders-primary", 10).unwrap();
    if waits {
        observed(&cluster, "orders-primary").await;
    }
    let primary = get(&cluster, Kind::Deployment, "orders-primary");
    cluster
        .move_replica_set(&replica_set(&cluster, V1), &primary)
        .unwrap();
    settle(&cluster).await;
    assert_eq!(pods(&cluster, V1), 10);
    ends(&cluster)
}

#[tokio::test(start_paused = true)]
async fn fact_4_a_stale_deployment_with_a_fresh_replica_set_kills_all_pods() {
    let [none, stale_deployments, stale_replica_sets] = every_lag();
    assert_eq!(
        give_to_a_resized_clone(none, false).await,
        0,
        "without lag it looks harmless"
    );
    assert_eq!(give_to_a_resized_clone(stale_replica_sets, false).await, 0);
    assert_eq!(give_to_a_resized_clone(stale_deployments, false).await, 10);
}

#[tokio::test(start_paused = true)]
async fn fact_4_waiting_for_the_observation_protects() {
    for lags in every_lag() {
        assert_eq!(give_to_a_resized_clone(lags, true).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn fact_5_an_empty_replica_set_is_scaled_up_when_the_active_one_leaves() {
    let cluster = with_x(Lags::default()).await;
    cluster.set_image(NAMESPACE, X, V2).unwrap();
    settle(&cluster).await;
    cluster.set_paused(NAMESPACE, X, true).unwrap();
    observed(&cluster, X).await;
    let started = starts(&cluster);
    cluster
        .apply(&clone_of_x("orders-primary", 10, V2))
        .unwrap();
    observed(&cluster, "orders-primary").await;
    let primary = get(&cluster, Kind::Deployment, "orders-primary");
    cluster
        .move_replica_set(&replica_set(&cluster, V2), &primary)
        .unwrap();
    settle(&cluster).await;
    assert_eq!(
        (pods(&cluster, V1), pods(&cluster, V2)),
        (10, 10),
        "the version before is back"
    );
    assert_eq!(starts(&cluster) - started, 10);
}

#[tokio::test(start_paused = true)]
async fn fact_6_an_older_replica_set_with_the_same_template_makes_all_pods_roll_again() {
    let cluster = with_paused_x(Lags::default()).await;
    let old = replica_set(&cluster, V1);
    // v1 goes to a stash, an equal one, younger, runs in its place.
    let stash = cluster
        .create(&json!({
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"namespace": NAMESPACE, "name": "orders-volery"},
            "template": get(&cluster, Kind::Deployment, X).at("/spec/template").unwrap(),
        }))
        .unwrap();
    cluster.scale(NAMESPACE, X, 0).unwrap();
    settle(&cluster).await;
    cluster.move_replica_set(&old, &stash).unwrap();
    sleep(Duration::from_secs(2)).await;
    let x = get(&cluster, Kind::Deployment, X);
    cluster.create(&replica_set_for(&x, "younger", V1)).unwrap();
    settle(&cluster).await;
    cluster.scale(NAMESPACE, X, 10).unwrap();
    settle(&cluster).await;
    assert_eq!(
        get(&cluster, Kind::ReplicaSet, "orders-younger").status("replicas"),
        10
    );
    let (started, old) = (
        starts(&cluster),
        get(&cluster, Kind::ReplicaSet, old.name()),
    );
    cluster.move_replica_set(&old, &x).unwrap();
    settle(&cluster).await;
    assert_eq!(starts(&cluster), started, "paused, it looks harmless");
    cluster.set_paused(NAMESPACE, X, false).unwrap();
    settle(&cluster).await;
    assert_eq!(
        starts(&cluster) - started,
        10,
        "the same version, rolled a second time"
    );
    assert_eq!(
        get(&cluster, Kind::ReplicaSet, old.name()).status("replicas"),
        10
    );
}

#[tokio::test(start_paused = true)]
async fn fact_7_a_replica_set_moved_to_a_deployment_that_was_just_deleted_is_collected_with_its_pods()
 {
    for lags in every_lag() {
        let cluster = with_paused_x(lags).await;
        let primary = cluster
            .apply(&clone_of_x("orders-primary", 10, V1))
            .unwrap();
        observed(&cluster, "orders-primary").await;
        cluster
            .delete(
                Kind::Deployment,
                NAMESPACE,
                "orders-primary",
                Propagation::Background,
            )
            .unwrap();
        cluster
            .move_replica_set(&replica_set(&cluster, V1), &primary)
            .unwrap();
        settle(&cluster).await;
        assert_eq!(pods(&cluster, V1), 0);
        assert_eq!(
            cluster.look(|now| now.list(Kind::ReplicaSet, NAMESPACE).count()),
            0
        );
    }
}

#[tokio::test(start_paused = true)]
async fn fact_8_annotations_of_a_deployment_are_copied_to_its_current_replica_set() {
    let cluster = with_paused_x(Lags::default()).await;
    let annotate = json!({"metadata": {"annotations": {"volery.dev/state": "here", "kubectl.kubernetes.io/last-applied-configuration": "{}"}}});
    cluster
        .patch(Kind::Deployment, NAMESPACE, X, Patch::Merge(annotate))
        .unwrap();
    settle(&cluster).await;
    let current = replica_set(&cluster, V1);
    assert_eq!(current.annotation("volery.dev/state"), Some("here"));
    assert_eq!(
        current.annotation("kubectl.kubernetes.io/last-applied-configuration"),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn fact_10_a_moved_replica_set_survives_its_old_owner() {
    let late = Lag::of(Duration::from_secs(2));
    for lags in every_lag().into_iter().chain([Lags::all(late)]) {
        let cluster = with_paused_x(lags).await;
        cluster
            .apply(&clone_of_x("orders-primary", 10, V1))
            .unwrap();
        observed(&cluster, "orders-primary").await;
        let primary = get(&cluster, Kind::Deployment, "orders-primary");
        cluster
            .move_replica_set(&replica_set(&cluster, V1), &primary)
            .unwrap();
        cluster
            .delete(Kind::Deployment, NAMESPACE, X, Propagation::Background)
            .unwrap();
        settle(&cluster).await;
        assert_eq!((pods(&cluster, V1), ends(&cluster)), (10, 0));
        assert!(find(&cluster, Kind::Deployment, X).is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn fact_10_everything_goes_when_x_is_deleted() {
    for propagation in [Propagation::Background, Propagation::Foreground] {
        let cluster = with_paused_x(Lags::default()).await;
        let x = get(&cluster, Kind::Deployment, X);
        let mut state = json!({
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"namespace": NAMESPACE, "name": "orders-volery"},
            "template": x.at("/spec/template").unwrap(),
        });
        state["metadata"]["ownerReferences"] =
            replica_set_for(&x, "any", V1)["metadata"]["ownerReferences"].clone();
        let state = cluster.create(&state).unwrap();
        let mut stashed = replica_set_for(&x, "stashed", V2);
        stashed["metadata"]["ownerReferences"][0]["kind"] = json!("PodTemplate");
        stashed["metadata"]["ownerReferences"][0]["apiVersion"] = json!("v1");
        stashed["metadata"]["ownerReferences"][0]["name"] = json!(state.name());
        stashed["metadata"]["ownerReferences"][0]["uid"] = json!(state.uid());
        cluster.create(&stashed).unwrap();
        settle(&cluster).await;
        assert!(find(&cluster, Kind::ReplicaSet, "orders-stashed").is_some());
        cluster
            .delete(Kind::Deployment, NAMESPACE, X, propagation)
            .unwrap();
        settle(&cluster).await;
        for kind in [
            Kind::Deployment,
            Kind::ReplicaSet,
            Kind::Pod,
            Kind::PodTemplate,
        ] {
            assert_eq!(
                cluster.look(|now| now.list(kind, NAMESPACE).count()),
                0,
                "{kind} with {propagation:?}"
            );
        }
    }
}

/// X is un-paused by hand with v2 on it, and its first pods of v2 have been started.
async fn with_x_unpaused_by_hand(lags: Lags) -> Cluster {
    let cluster = with_paused_x(lags).await;
    cluster.set_image(NAMESPACE, X, V2).unwrap();
    settle(&cluster).await;
    cluster.set_paused(NAMESPACE, X, false).unwrap();
    while get(&cluster, Kind::Deployment, X).annotation("deployment.kubernetes.io/revision")
        != Some("2")
    {
        sleep(milliseconds(10)).await;
    }
    cluster
}

fn delete_v2(cluster: &Cluster) {
    let new = replica_set(cluster, V2);
    cluster
        .delete(
            Kind::ReplicaSet,
            NAMESPACE,
            new.name(),
            Propagation::Background,
        )
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn fact_15_pausing_again_and_deleting_without_waiting_kills_all_accepted_pods_under_lag() {
    let cluster = with_x_unpaused_by_hand(Lags::default()).await;
    sleep(milliseconds(50)).await;
    // The controller does not see the pause for as long as it takes.
    cluster.hold(Kind::Deployment);
    cluster.set_paused(NAMESPACE, X, true).unwrap();
    delete_v2(&cluster);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(
        (pods(&cluster, V1), pods(&cluster, V2)),
        (0, 10),
        "it went all the way, although paused"
    );
}

#[tokio::test(start_paused = true)]
async fn fact_15_waiting_for_the_observation_brings_the_accepted_pods_back() {
    for lags in every_lag() {
        let cluster = with_x_unpaused_by_hand(lags).await;
        cluster.set_paused(NAMESPACE, X, true).unwrap();
        observed(&cluster, X).await;
        assert!(pods(&cluster, V1) >= 8, "at most maxUnavailable were lost");
        delete_v2(&cluster);
        settle(&cluster).await;
        assert_eq!((pods(&cluster, V1), pods(&cluster, V2)), (10, 0));
        assert_eq!(owned(&cluster, X).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn fact_16_an_orphaned_replica_set_is_adopted_by_any_deployment_with_the_selector_and_scaled()
{
    for lags in every_lag() {
        let cluster = with_paused_x(lags).await;
        cluster
            .delete(Kind::Deployment, NAMESPACE, X, Propagation::Orphan)
            .unwrap();
        settle(&cluster).await;
        assert_eq!(
            (find(&cluster, Kind::Deployment, X), pods(&cluster, V1)),
            (None, 10)
        );
        assert_eq!(replica_set(&cluster, V1).controller(), None);
        cluster.apply(&clone_of_x("orders-canary", 2, V2)).unwrap();
        settle(&cluster).await;
        assert_eq!(
            replica_set(&cluster, V1).controller().unwrap().name,
            "orders-canary"
        );
        assert_eq!(pods(&cluster, V1), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn fact_17_a_paused_deployment_carries_an_unknown_progress_unless_it_has_no_deadline() {
    let cluster = with_paused_x(Lags::default()).await;
    let progress = get(&cluster, Kind::Deployment, X)
        .condition("Progressing")
        .cloned()
        .unwrap();
    assert_eq!(
        (&progress["status"], &progress["reason"]),
        (&json!("Unknown"), &json!("DeploymentPaused"))
    );

    let cluster = lagging(Lags::default());
    let mut manifest = deployment(NAMESPACE, X, 1, V1);
    manifest["spec"]["progressDeadlineSeconds"] = json!(i32::MAX);
    cluster.apply(&manifest).unwrap();
    settle(&cluster).await;
    cluster.set_paused(NAMESPACE, X, true).unwrap();
    settle(&cluster).await;
    assert_eq!(
        get(&cluster, Kind::Deployment, X).condition("Progressing"),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn fact_18_without_history_the_accepted_empty_replica_set_is_deleted_while_a_candidate_waits()
{
    let cluster = lagging(Lags::default());
    let mut manifest = deployment(NAMESPACE, X, 10, V1);
    manifest["spec"]["revisionHistoryLimit"] = json!(0);
    cluster.apply(&manifest).unwrap();
    settle(&cluster).await;
    cluster.set_paused(NAMESPACE, X, true).unwrap();
    cluster.scale(NAMESPACE, X, 0).unwrap();
    settle(&cluster).await;
    assert_eq!(owned(&cluster, X).len(), 1);
    cluster.set_image(NAMESPACE, X, V2).unwrap();
    settle(&cluster).await;
    assert_eq!(owned(&cluster, X).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn fact_13_conditions_of_others_survive_the_controller() {
    let cluster = with_paused_x(Lags::default()).await;
    let client = cluster.client("volery");
    let api: kube::Api<k8s_openapi::api::apps::v1::Deployment> =
        kube::Api::namespaced(client, NAMESPACE);
    let mut conditions = get(&cluster, Kind::Deployment, X)
        .at("/status/conditions")
        .unwrap()
        .clone();
    conditions
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "VoleryRollout", "status": "True", "reason": "AtRest"}));
    let patch = kube::api::Patch::Merge(json!({"status": {"conditions": conditions}}));
    api.patch_status(X, &kube::api::PatchParams::default(), &patch)
        .await
        .unwrap();
    cluster.scale(NAMESPACE, X, 3).unwrap();
    settle(&cluster).await;
    assert!(
        get(&cluster, Kind::Deployment, X)
            .condition("VoleryRollout")
            .is_some()
    );
    assert_eq!(pods(&cluster, V1), 3);
}
