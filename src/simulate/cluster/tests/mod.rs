//! Tests of the simulated cluster: that it answers like an API server, and that its controllers show the facts of the
//! design's section 3, the dangerous ones under lag.

mod agreement;
mod facts;
mod faults;
mod pods;
mod rolling;
mod serving;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;

const NAMESPACE: &str = "workers";
const X: &str = "orders";
const V1: &str = "orders:v1";
const V2: &str = "orders:v2";

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

fn lagging(lags: Lags) -> Cluster {
    Cluster::start(Options {
        seed: 1,
        lags,
        ready_after: milliseconds(500),
        terminate_after: milliseconds(500),
        ..Options::default()
    })
}

fn cluster() -> Cluster {
    lagging(Lags::default())
}

/// No lag, and each of the two caches late by itself.
fn every_lag() -> [Lags; 3] {
    let late = Lag::of(milliseconds(500));
    [
        Lags::default(),
        Lags {
            deployments: late,
            ..Lags::default()
        },
        Lags {
            replica_sets: late,
            ..Lags::default()
        },
    ]
}

/// X with 10 pods of v1.
async fn with_x(lags: Lags) -> Cluster {
    let cluster = lagging(lags);
    cluster.apply(&deployment(NAMESPACE, X, 10, V1)).unwrap();
    settle(&cluster).await;
    assert_eq!(pods(&cluster, V1), 10);
    cluster
}

/// X paused, with 10 pods of v1.
async fn with_paused_x(lags: Lags) -> Cluster {
    let cluster = with_x(lags).await;
    cluster.set_paused(NAMESPACE, X, true).unwrap();
    observed(&cluster, X).await;
    cluster
}

async fn settle(cluster: &Cluster) {
    assert!(
        cluster.settle(minutes(5)).await,
        "the cluster does not come to rest"
    );
}

/// Waits until the controller has seen a Deployment's spec.
async fn observed(cluster: &Cluster, name: &str) {
    for _ in 0..6000 {
        if get(cluster, Kind::Deployment, name).is_observed() {
            return;
        }
        sleep(milliseconds(100)).await;
    }
    panic!("{name} is not observed");
}

fn find(cluster: &Cluster, kind: Kind, name: &str) -> Option<Object> {
    cluster.look(|now| now.get(kind, NAMESPACE, name).cloned())
}

fn get(cluster: &Cluster, kind: Kind, name: &str) -> Object {
    find(cluster, kind, name).unwrap()
}

/// Pods alive of an image.
fn pods(cluster: &Cluster, image: &str) -> usize {
    cluster.look(|now| {
        now.list(Kind::Pod, NAMESPACE)
            .filter(|pod| pod.is_active() && pod.image() == image)
            .count()
    })
}

fn starts(cluster: &Cluster) -> usize {
    cluster.journal().turns(NAMESPACE, Turn::Started).count()
}

fn ends(cluster: &Cluster) -> usize {
    cluster
        .journal()
        .turns(NAMESPACE, Turn::Terminating)
        .count()
}

/// The ReplicaSets that a Deployment owns.
fn owned(cluster: &Cluster, name: &str) -> Vec<Object> {
    let uid = get(cluster, Kind::Deployment, name).uid().to_owned();
    cluster.look(|now| {
        now.list(Kind::ReplicaSet, NAMESPACE)
            .filter(|replica_set| {
                replica_set
                    .controller()
                    .is_some_and(|owner| owner.uid == uid)
            })
            .cloned()
            .collect()
    })
}

/// The only ReplicaSet of an image.
fn replica_set(cluster: &Cluster, image: &str) -> Object {
    let mut all: Vec<Object> = cluster.look(|now| {
        now.list(Kind::ReplicaSet, NAMESPACE)
            .filter(|replica_set| replica_set.image() == image)
            .cloned()
            .collect()
    });
    assert_eq!(all.len(), 1, "ReplicaSets of {image}");
    all.remove(0)
}

/// A paused clone of X.
fn clone_of_x(name: &str, replicas: u32, image: &str) -> Value {
    let mut manifest = deployment(NAMESPACE, X, replicas, image);
    manifest["metadata"]["name"] = json!(name);
    manifest["spec"]["paused"] = json!(true);
    manifest
}

/// A ReplicaSet as Volery makes one: owned, without pods, with a hash of our own choice.
fn replica_set_for(owner: &Object, hash: &str, image: &str) -> Value {
    let labels = json!({"app": X, "pod-template-hash": hash});
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "namespace": NAMESPACE,
            "name": format!("{X}-{hash}"),
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": owner.name(),
                "uid": owner.uid(),
                "controller": true,
                "blockOwnerDeletion": false,
            }],
        },
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "worker", "image": image}]},
            },
        },
    })
}
