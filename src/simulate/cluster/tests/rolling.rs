//! What the controllers do by themselves: rolling updates, recreations, scaling, history, deadlines.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_plain_rolling_update_of_ten_pods_ends_right_and_within_its_bounds() {
    for lags in every_lag() {
        let cluster = with_x(lags).await;
        let begun = cluster.elapsed();
        cluster.set_image(NAMESPACE, X, V2).unwrap();
        settle(&cluster).await;
        let journal = cluster.journal();
        assert_eq!((pods(&cluster, V1), pods(&cluster, V2)), (0, 10));
        assert_eq!(journal.starts(NAMESPACE, V2), 10);
        // maxSurge 25 % rounded up, maxUnavailable 25 % rounded down.
        assert!(journal.most_alive(NAMESPACE, begun) <= 13);
        assert!(journal.least_ready(NAMESPACE, begun) >= 8);
        let x = get(&cluster, Kind::Deployment, X);
        for (field, count) in [
            ("replicas", 10),
            ("updatedReplicas", 10),
            ("readyReplicas", 10),
            ("availableReplicas", 10),
        ] {
            assert_eq!(x.status(field), count, "{field}");
        }
        assert_eq!(
            x.condition("Progressing").unwrap()["reason"],
            "NewReplicaSetAvailable"
        );
        assert_eq!(x.annotation("deployment.kubernetes.io/revision"), Some("2"));
        assert_eq!(owned(&cluster, X).len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn going_back_takes_the_old_replica_set_again_with_the_next_revision() {
    let cluster = with_x(Lags::default()).await;
    for image in [V2, V1] {
        cluster.set_image(NAMESPACE, X, image).unwrap();
        settle(&cluster).await;
    }
    assert_eq!(owned(&cluster, X).len(), 2);
    let current = replica_set(&cluster, V1);
    assert_eq!(
        current.annotation("deployment.kubernetes.io/revision"),
        Some("3")
    );
    assert_eq!(
        current.annotation("deployment.kubernetes.io/revision-history"),
        Some("1")
    );
    assert_eq!(cluster.journal().starts(NAMESPACE, V1), 20);
}

#[tokio::test(start_paused = true)]
async fn a_recreating_deployment_never_runs_two_versions() {
    let cluster = lagging(Lags::default());
    let mut manifest = deployment(NAMESPACE, X, 4, V1);
    manifest["spec"]["strategy"] = json!({"type": "Recreate"});
    cluster.apply(&manifest).unwrap();
    settle(&cluster).await;
    cluster.set_image(NAMESPACE, X, V2).unwrap();
    settle(&cluster).await;
    assert_eq!((pods(&cluster, V1), pods(&cluster, V2)), (0, 4));
    for census in cluster.journal().censuses(NAMESPACE, Duration::ZERO) {
        let old = census.of(V1);
        assert!(
            census.of(V2).alive == 0 || old.alive + old.terminating == 0,
            "{census:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn old_replica_sets_are_kept_up_to_the_history_limit() {
    let cluster = lagging(Lags::default());
    let mut manifest = deployment(NAMESPACE, X, 2, V1);
    manifest["spec"]["revisionHistoryLimit"] = json!(2);
    cluster.apply(&manifest).unwrap();
    for version in 2..=6 {
        settle(&cluster).await;
        cluster
            .set_image(NAMESPACE, X, &format!("orders:v{version}"))
            .unwrap();
    }
    settle(&cluster).await;
    let mut images: Vec<String> = owned(&cluster, X)
        .iter()
        .map(|set| set.image().to_owned())
        .collect();
    images.sort();
    assert_eq!(images, ["orders:v4", "orders:v5", "orders:v6"]);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_hangs_is_reported_after_its_deadline() {
    let cluster = with_x(Lags::default()).await;
    cluster.direct_pods(|pod, conduct| {
        if pod.image() == V2 {
            Conduct {
                behaviour: Behaviour::NeverReady,
                ..conduct
            }
        } else {
            conduct
        }
    });
    cluster.set_image(NAMESPACE, X, V2).unwrap();
    sleep(minutes(9)).await;
    let reason = |cluster: &Cluster| {
        get(cluster, Kind::Deployment, X)
            .condition("Progressing")
            .unwrap()["reason"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(reason(&cluster), "ReplicaSetUpdated");
    sleep(minutes(2)).await;
    assert_eq!(reason(&cluster), "ProgressDeadlineExceeded");
    // maxSurge 3 and maxUnavailable 2: five of the new version, eight of the old.
    assert_eq!((pods(&cluster, V1), pods(&cluster, V2)), (8, 5));
}

#[tokio::test(start_paused = true)]
async fn pods_count_as_available_after_min_ready_seconds() {
    let cluster = lagging(Lags::default());
    let mut manifest = deployment(NAMESPACE, X, 3, V1);
    manifest["spec"]["minReadySeconds"] = json!(30);
    cluster.apply(&manifest).unwrap();
    sleep(Duration::from_secs(20)).await;
    let x = get(&cluster, Kind::Deployment, X);
    assert_eq!(
        (x.status("readyReplicas"), x.status("availableReplicas")),
        (3, 0)
    );
    sleep(Duration::from_secs(20)).await;
    assert_eq!(
        get(&cluster, Kind::Deployment, X).status("availableReplicas"),
        3
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_timeline_and_another_one_another() {
    async fn timeline(seed: u64) -> Vec<String> {
        let jitter = Lag {
            fixed: Duration::ZERO,
            jitter: milliseconds(300),
        };
        let options = Options {
            seed,
            lags: Lags::all(jitter),
            ..Options::default()
        };
        let cluster = Cluster::start(options);
        cluster.apply(&deployment(NAMESPACE, X, 10, V1)).unwrap();
        sleep(milliseconds(700)).await;
        cluster.set_image(NAMESPACE, X, V2).unwrap();
        settle(&cluster).await;
        assert_eq!((pods(&cluster, V1), pods(&cluster, V2)), (0, 10));
        cluster
            .journal()
            .writes
            .iter()
            .map(ToString::to_string)
            .collect()
    }
    let first = timeline(3).await;
    assert_eq!(timeline(3).await, first);
    assert_ne!(timeline(4).await, first);
}

#[tokio::test(start_paused = true)]
async fn a_settled_cluster_makes_no_more_writes_for_hours() {
    let cluster = with_paused_x(Lags::default()).await;
    settle(&cluster).await;
    let writes = cluster.journal().writes.len();
    sleep(minutes(600)).await;
    assert_eq!(cluster.journal().writes.len(), writes);
}

#[tokio::test(start_paused = true)]
async fn the_controllers_get_through_conflicts_and_faults() {
    let cluster = lagging(Lags::default());
    let mut count = 0;
    cluster.intercept(move |request| {
        count += 1;
        match count % 5 {
            0 if request.verb.writes() => Fault::Refuse(Refusal::internal_error()),
            1 if request.verb == Verb::Create => Fault::ApplyThenBreak,
            2 => Fault::Delay(Duration::from_secs(3)),
            _ => Fault::None,
        }
    });
    cluster.apply(&deployment(NAMESPACE, X, 10, V1)).unwrap();
    sleep(minutes(10)).await;
    assert_eq!(pods(&cluster, V1), 10);
    cluster.set_image(NAMESPACE, X, V2).unwrap();
    sleep(minutes(30)).await;
    assert_eq!((pods(&cluster, V1), pods(&cluster, V2)), (0, 10));
}

#[tokio::test(start_paused = true)]
async fn whatever_people_do_under_whatever_lag_the_deployment_ends_where_they_left_it() {
    for seed in 0..25 {
        let mut dice = random::Random::seeded(seed);
        let jitter = milliseconds(1 + dice.below(1500));
        let lag = |dice: &mut random::Random| Lag {
            fixed: milliseconds(dice.below(1000)),
            jitter,
        };
        let lags = Lags {
            deployments: lag(&mut dice),
            replica_sets: lag(&mut dice),
            pods: lag(&mut dice),
            others: Lag::default(),
        };
        let cluster = Cluster::start(Options {
            seed,
            lags,
            ..Options::default()
        });
        cluster.apply(&deployment(NAMESPACE, X, 3, V1)).unwrap();
        for _ in 0..12 {
            sleep(milliseconds(dice.below(4000))).await;
            match dice.below(5) {
                0 => cluster
                    .scale(NAMESPACE, X, u32::try_from(dice.below(8)).unwrap())
                    .unwrap(),
                1 => cluster.set_paused(NAMESPACE, X, true).unwrap(),
                2 => cluster.set_paused(NAMESPACE, X, false).unwrap(),
                _ => {
                    let image = format!("orders:v{}", 1 + dice.below(4));
                    cluster.set_image(NAMESPACE, X, &image).unwrap()
                }
            };
        }
        cluster.scale(NAMESPACE, X, 5).unwrap();
        cluster.set_paused(NAMESPACE, X, false).unwrap();
        assert!(
            cluster.settle(minutes(30)).await,
            "seed {seed} does not settle"
        );
        let x = get(&cluster, Kind::Deployment, X);
        assert_eq!(
            (pods(&cluster, x.image()), RolloutStatus::of(&x)),
            (5, RolloutStatus::Done),
            "seed {seed}"
        );
        let all = cluster.read_journal(|journal| journal.census.last().unwrap().total());
        assert_eq!(
            (all.alive, all.ready, all.terminating),
            (5, 5, 0),
            "seed {seed}"
        );
    }
}
