//! Trials of the test bed, with the numbers that the real control plane (Kubernetes 1.36) gave: the simulated
//! controllers are held to them.

use super::*;

const LONG: Lag = Lag::of(Duration::from_secs(3));

/// X with 4 pods of v1 and this strategy.
async fn with_four(rolling: Value) -> Cluster {
    let cluster = cluster();
    let mut manifest = deployment(NAMESPACE, X, 4, V1);
    manifest["spec"]["strategy"] = json!({"rollingUpdate": rolling});
    cluster.apply(&manifest).unwrap();
    settle(&cluster).await;
    cluster
}

/// Total and up-to-date pods, as the status says.
fn reported(cluster: &Cluster, name: &str) -> (i64, i64) {
    let deployment = get(cluster, Kind::Deployment, name);
    (
        deployment.status("replicas"),
        deployment.status("updatedReplicas"),
    )
}

/// Pods told to end.
fn stops(cluster: &Cluster, image: &str) -> usize {
    cluster.read_journal(|journal| {
        journal
            .turns(NAMESPACE, Turn::Terminating)
            .filter(|turn| turn.image == image)
            .count()
    })
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        sleep(milliseconds(10)).await;
    }
    panic!("never: {what}");
}

fn move_to(cluster: &Cluster, replica_set: &str, owner: &str) {
    let (replica_set, owner) = (
        get(cluster, Kind::ReplicaSet, replica_set),
        get(cluster, Kind::Deployment, owner),
    );
    cluster.move_replica_set(&replica_set, &owner).unwrap();
}

#[tokio::test(start_paused = true)]
async fn paused_with_two_active_replica_sets_it_scales_them_in_proportion() {
    let cluster = with_four(json!({"maxSurge": 2, "maxUnavailable": 0})).await;
    cluster.turn_pods(NAMESPACE, V2, Behaviour::NeverReady);
    cluster.set_image(NAMESPACE, X, V2).unwrap();
    until("two pods of v2 beside four of v1", || {
        reported(&cluster, X) == (6, 2)
    })
    .await;
    cluster.set_paused(NAMESPACE, X, true).unwrap();
    observed(&cluster, X).await;
    cluster.scale(NAMESPACE, X, 10).unwrap();
    settle(&cluster).await;
    let (old, new) = (pods(&cluster, V1), pods(&cluster, V2));
    assert!(old + new == 12 && old > 4 && new > 2, "{old} and {new}");
}

#[tokio::test(start_paused = true)]
async fn paused_with_a_saturated_current_replica_set_it_scales_the_others_to_zero() {
    let cluster = with_four(json!({"maxSurge": "100%", "maxUnavailable": 0})).await;
    cluster.turn_pods(NAMESPACE, V2, Behaviour::NeverReady);
    cluster.set_image(NAMESPACE, X, V2).unwrap();
    until("both versions whole", || reported(&cluster, X) == (8, 4)).await;
    cluster.set_paused(NAMESPACE, X, true).unwrap();
    observed(&cluster, X).await;
    cluster.turn_pods(
        NAMESPACE,
        V2,
        Behaviour::Ready {
            after: Duration::ZERO,
        },
    );
    settle(&cluster).await;
    assert_eq!((pods(&cluster, V1), pods(&cluster, V2)), (0, 4));
}

#[tokio::test(start_paused = true)]
async fn paused_with_only_empty_replica_sets_the_newest_is_by_creation_and_not_by_revision() {
    let cluster = with_x(Lags::default()).await;
    // v1, v2, and v1 again: v1 has the highest revision, v2 is the youngest.
    for image in [V2, V1] {
        sleep(Duration::from_secs(2)).await;
        cluster.set_image(NAMESPACE, X, image).unwrap();
        settle(&cluster).await;
    }
    cluster.set_paused(NAMESPACE, X, true).unwrap();
    cluster.scale(NAMESPACE, X, 0).unwrap();
    settle(&cluster).await;
    cluster
        .set_image(NAMESPACE, X, "orders:never-seen")
        .unwrap();
    cluster.scale(NAMESPACE, X, 2).unwrap();
    settle(&cluster).await;
    assert_eq!((pods(&cluster, V1), pods(&cluster, V2)), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn moved_before_its_new_owners_number_is_observed_a_replica_set_loses_all_pods() {
    // A Deployment that has noted the ReplicaSet's revision; one that has yet to is saved by accident, because that write
    // conflicts while its cache is behind.
    for (noted, stopped) in [(true, 10), (false, 0)] {
        let cluster = with_paused_x(Lags::default()).await;
        let replica_set = replica_set(&cluster, V1);
        let name = if noted { X } else { "orders-new" };
        cluster
            .apply(&clone_of_x("orders-primary", 10, V1))
            .unwrap();
        observed(&cluster, "orders-primary").await;
        move_to(&cluster, replica_set.name(), "orders-primary");
        settle(&cluster).await;
        if noted {
            cluster.scale(NAMESPACE, X, 0).unwrap();
        } else {
            cluster.apply(&clone_of_x(name, 0, V1)).unwrap();
        }
        settle(&cluster).await;
        cluster.set_lag(Kind::Deployment, LONG);
        cluster.scale(NAMESPACE, name, 10).unwrap();
        move_to(&cluster, replica_set.name(), name);
        settle(&cluster).await;
        assert_eq!(stops(&cluster, V1), stopped, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn un_paused_before_it_reports_the_moved_replica_set_a_deployment_starts_all_pods_again() {
    let cluster = with_paused_x(Lags::default()).await;
    let canary = cluster.apply(&clone_of_x("orders-canary", 0, V1)).unwrap();
    let ours = cluster
        .create(&replica_set_for(&canary, "ours", V1))
        .unwrap();
    cluster.scale(NAMESPACE, "orders-canary", 10).unwrap();
    let old = owned(&cluster, X).remove(0);
    cluster.scale(NAMESPACE, X, 0).unwrap();
    settle(&cluster).await;
    cluster
        .delete(
            Kind::ReplicaSet,
            NAMESPACE,
            old.name(),
            Propagation::Background,
        )
        .unwrap();
    cluster.scale(NAMESPACE, X, 10).unwrap();
    settle(&cluster).await;
    let started = starts(&cluster);
    cluster.set_lag(Kind::ReplicaSet, LONG);
    move_to(&cluster, ours.name(), X);
    cluster.set_paused(NAMESPACE, X, false).unwrap();
    sleep(minutes(2)).await;
    assert!(
        starts(&cluster) - started >= 10,
        "{}",
        starts(&cluster) - started
    );
}

#[tokio::test(start_paused = true)]
async fn pausing_again_and_deleting_the_new_replica_set_kills_or_saves_the_accepted_pods() {
    for (waits, survivors) in [(false, 0), (true, 3)] {
        let cluster = with_four(json!({"maxSurge": "25%", "maxUnavailable": "25%"})).await;
        cluster.set_paused(NAMESPACE, X, true).unwrap();
        observed(&cluster, X).await;
        cluster.set_lag(Kind::Deployment, LONG);
        cluster.turn_pods(NAMESPACE, V2, Behaviour::NeverReady);
        cluster.set_image(NAMESPACE, X, V2).unwrap();
        cluster.set_paused(NAMESPACE, X, false).unwrap();
        until("two pods of v2 beside three of v1", || {
            reported(&cluster, X) == (5, 2)
        })
        .await;
        let new = replica_set(&cluster, V2);
        cluster.set_paused(NAMESPACE, X, true).unwrap();
        if waits {
            observed(&cluster, X).await;
        }
        cluster.turn_pods(
            NAMESPACE,
            V2,
            Behaviour::Ready {
                after: milliseconds(100),
            },
        );
        cluster
            .delete(
                Kind::ReplicaSet,
                NAMESPACE,
                new.name(),
                Propagation::Background,
            )
            .unwrap();
        settle(&cluster).await;
        assert_eq!(stops(&cluster, V1) + survivors, 4, "waiting: {waits}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_raised_revision_stays_and_pods_are_called_after_the_replica_set() {
    let cluster = cluster();
    let canary = cluster.apply(&clone_of_x("orders-canary", 0, V2)).unwrap();
    cluster
        .create(&replica_set_for(&canary, "any-name-at-all", V2))
        .unwrap();
    settle(&cluster).await;
    let raise = json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "7"}}});
    cluster
        .patch(
            Kind::ReplicaSet,
            NAMESPACE,
            "orders-any-name-at-all",
            Patch::Merge(raise),
        )
        .unwrap();
    cluster.scale(NAMESPACE, "orders-canary", 2).unwrap();
    settle(&cluster).await;
    assert_eq!(reported(&cluster, "orders-canary"), (2, 2));
    let ours = get(&cluster, Kind::ReplicaSet, "orders-any-name-at-all");
    assert_eq!(
        ours.annotation("deployment.kubernetes.io/revision"),
        Some("7")
    );
    let prefix = "orders-any-name-at-all-";
    assert!(cluster.look(|now| {
        now.list(Kind::Pod, NAMESPACE)
            .all(|pod| pod.name().starts_with(prefix))
    }));
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_admission_changed_does_not_report_the_moved_pods_as_up_to_date() {
    let cluster = with_paused_x(Lags::default()).await;
    let mut changed = clone_of_x("orders-primary", 10, V1);
    changed["spec"]["template"]["metadata"]["labels"]["injected"] = json!("yes");
    cluster.apply(&changed).unwrap();
    observed(&cluster, "orders-primary").await;
    let replica_set = replica_set(&cluster, V1);
    move_to(&cluster, replica_set.name(), "orders-primary");
    settle(&cluster).await;
    assert_eq!(reported(&cluster, "orders-primary"), (10, 0));
    move_to(&cluster, replica_set.name(), X);
    settle(&cluster).await;
    assert_eq!(
        (reported(&cluster, X), starts(&cluster), ends(&cluster)),
        ((10, 10), 10, 0)
    );
}
