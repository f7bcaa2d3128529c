//! The controllers of the controller-manager, translated from Kubernetes 1.36, each reading through lagging caches.

mod cache;
mod deployment;
mod garbage;
mod queue;
mod replica_set;
mod rollout;

use std::sync::Arc;

use tokio::task::JoinSet;

use self::cache::Caches;
use self::deployment::DeploymentController;
use self::garbage::GarbageCollector;
use self::replica_set::ReplicaSetController;
use super::object::Kind;
use super::shared::{Api, Shared};

/// How many keys each controller works on at the same time, as the controller-manager does.
const WORKERS: usize = 5;

/// Starts the controller-manager.
pub(super) fn start(shared: &Arc<Shared>, tasks: &mut JoinSet<()>) {
    let caches = Arc::new(Caches::default());
    let deployments = Arc::new(DeploymentController::new(
        Api::new(Arc::clone(shared), "deployment-controller"),
        Arc::clone(&caches),
        shared.clock,
    ));
    let replica_sets = Arc::new(ReplicaSetController::new(
        Api::new(Arc::clone(shared), "replicaset-controller"),
        Arc::clone(&caches),
        shared.clock,
    ));
    for kind in [Kind::Deployment, Kind::ReplicaSet, Kind::Pod] {
        let (deployments, replica_sets) = (Arc::clone(&deployments), Arc::clone(&replica_sets));
        let handler = move |change: &_| {
            deployments.on_change(kind, change);
            replica_sets.on_change(kind, change);
        };
        tasks.spawn(cache::follow(
            Arc::clone(shared),
            kind,
            Arc::clone(&caches),
            handler,
        ));
    }
    for _ in 0..WORKERS {
        tasks.spawn(Arc::clone(&deployments).work());
        tasks.spawn(Arc::clone(&replica_sets).work());
    }
    let collector = Arc::new(GarbageCollector::new(Api::new(
        Arc::clone(shared),
        "generic-garbage-collector",
    )));
    for kind in Kind::ALL {
        tasks.spawn(garbage::follow(
            Arc::clone(shared),
            kind,
            Arc::clone(&collector),
        ));
    }
    tasks.spawn(Arc::clone(&collector).work());
}
