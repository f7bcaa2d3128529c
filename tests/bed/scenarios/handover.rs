//! The handover under lag and under disturbance: with either watch of the controller-manager delayed, and with a user who changes things
//! between any two of its writes.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::{
    base::Base,
    between::{End, Hold, SHORT, at_every_write},
    promises::{at_rest, never_beyond_the_step, never_more_than, quiet, started},
};
use crate::{
    namespace::{Namespace, uid},
    prometheus::Answer,
    proxy::Kind,
    scene::{Scene, Trials},
    wait::{ensure, eventually},
    worker::Worker,
};

const NAME: &str = "orders-worker";

/// What happens between two writes of a rollout from v1 to v2 with four replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    ANewerVersion,
    TwoNewerVersions,
    ANewerVersionOfMore,
    AnotherStrategy,
    BackToTheAccepted,
    ScaleUp,
    ScaleDown,
    ScaleToZeroAndBack,
    DeleteOriginal,
    DeletePrimary,
    DeleteCanary,
    DeleteAcceptedSet,
    DeleteCandidateSet,
}

impl Disturbance {
    const ALL: [Self; 13] = [
        Self::ANewerVersion,
        Self::TwoNewerVersions,
        Self::ANewerVersionOfMore,
        Self::AnotherStrategy,
        Self::BackToTheAccepted,
        Self::ScaleUp,
        Self::ScaleDown,
        Self::ScaleToZeroAndBack,
        Self::DeleteOriginal,
        Self::DeletePrimary,
        Self::DeleteCanary,
        Self::DeleteAcceptedSet,
        Self::DeleteCandidateSet,
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::ANewerVersion => "apply of a newer version",
            Self::TwoNewerVersions => "apply of two newer versions",
            Self::ANewerVersionOfMore => "apply of a newer version and another number",
            Self::AnotherStrategy => "apply of another strategy",
            Self::BackToTheAccepted => "apply of the accepted version",
            Self::ScaleUp => "kubectl scale up",
            Self::ScaleDown => "kubectl scale down",
            Self::ScaleToZeroAndBack => "kubectl scale to 0 and back",
            Self::DeleteOriginal => "kubectl delete of the Deployment",
            Self::DeletePrimary => "kubectl delete of the primary",
            Self::DeleteCanary => "kubectl delete of the canary",
            Self::DeleteAcceptedSet => "kubectl delete of the accepted ReplicaSet",
            Self::DeleteCandidateSet => "kubectl delete of the candidate's ReplicaSet",
        }
    }
}

pub fn register(trials: &mut Trials) {
    for (kind, text) in [
        (Kind::Deployments, "deployments"),
        (Kind::ReplicaSets, "replicasets"),
    ] {
        trials.add(
            format!("handover: promoted with the {text} watch delayed"),
            async move |scene| lagging(&scene, kind, End::Promoted).await,
        );
        trials.add(
            format!("handover: rolled back with the {text} watch delayed"),
            async move |scene| lagging(&scene, kind, End::RolledBack).await,
        );
    }
    for disturbance in Disturbance::ALL {
        trials.add(
            format!("handover: {} between any two writes", disturbance.text()),
            async move |scene| between_any_two(scene, disturbance).await,
        );
    }
}

async fn lagging(scene: &Scene, kind: Kind, end: End) {
    let more = end.settings().replace("50%", "20%");
    let (base, stub) = Base::stubbed(scene, Worker::default(), &more).await;
    stub.answers(Answer::Value(0.0));
    base.namespace.lag(kind, Duration::from_millis(500));
    let before = base.now().await;
    base.namespace.apply(&base.worker.clone().tag("v2")).await;
    let line = match end {
        End::Promoted => "promoted: ",
        End::RolledBack => "failed: ",
    };
    base.daemon.log_contains(line).await;
    end.reached(&base.namespace, before, 10).await;
    quiet(&base.namespace, Duration::from_secs(3)).await;
}

/// One rollout, disturbed after its `nth` write, if any; how many writes it made.
async fn rollout(scene: Arc<Scene>, disturbed: Option<(Disturbance, usize)>) -> usize {
    let namespace = scene.namespace().await;
    let worker = Worker::default().replicas(4);
    let base = Base::on(Arc::clone(&namespace), worker, "http://127.0.0.1:9", SHORT).await;
    let sets = namespace
        .replica_sets_of(&uid(&namespace.deployment(NAME).await))
        .await;
    let accepted = sets[0].metadata.name.clone().unwrap_or_default();
    let before = base.now().await;
    let hold = Hold::after(&namespace, disturbed.map(|(_, nth)| nth));
    namespace.apply(&base.worker.clone().tag("v2")).await;
    let came_to = async {
        base.daemon.log_contains("rollout 1: ").await;
        at_rest(&namespace, NAME, "v2", 4).await;
    };
    let held = hold.reached_before(came_to).await;
    match (disturbed, held) {
        (Some((disturbance, _)), Some(write)) => {
            namespace.note(&format!("{} after {write}", disturbance.text()));
            disturb(&base, disturbance, &accepted).await;
            hold.open();
            converges(&base, before, disturbance).await;
        }
        _ => started(&namespace, before, &[("v2", 4)]).await,
    }
    quiet(&namespace, Duration::from_secs(1)).await;
    base.daemon.kill().await;
    scene.done(&namespace).await;
    hold.writes()
}

async fn disturb(base: &Base, disturbance: Disturbance, accepted: &str) {
    let namespace = &base.namespace;
    let delete = async |kind: &str, name: &str| {
        // It may not exist yet, or any more: then this write has nothing to disturb.
        namespace
            .kubectl(&["delete", kind, name, "--wait=false"], None)
            .await;
    };
    match disturbance {
        Disturbance::ANewerVersion => namespace.apply(&base.worker.clone().tag("v3")).await,
        Disturbance::TwoNewerVersions => {
            namespace.apply(&base.worker.clone().tag("v4")).await;
            namespace.apply(&base.worker.clone().tag("v3")).await;
        }
        Disturbance::ANewerVersionOfMore => {
            namespace
                .apply(&base.worker.clone().tag("v3").replicas(6))
                .await;
        }
        Disturbance::AnotherStrategy => {
            let spec =
                json!({"strategy": {"rollingUpdate": {"maxSurge": 3}}, "minReadySeconds": 1});
            namespace
                .apply(&base.worker.clone().tag("v2").spec(spec))
                .await;
        }
        Disturbance::BackToTheAccepted => namespace.apply(&base.worker).await,
        Disturbance::ScaleUp => namespace.scale(NAME, 6).await,
        Disturbance::ScaleDown => namespace.scale(NAME, 2).await,
        Disturbance::ScaleToZeroAndBack => namespace.scale(NAME, 0).await,
        Disturbance::DeleteOriginal => delete("deployment", NAME).await,
        Disturbance::DeletePrimary => delete("deployment", "orders-worker-primary").await,
        Disturbance::DeleteCanary => delete("deployment", "orders-worker-canary").await,
        Disturbance::DeleteAcceptedSet => delete("replicaset", accepted).await,
        Disturbance::DeleteCandidateSet => {
            let candidate = candidate_set(namespace, accepted).await;
            if let Some(candidate) = candidate {
                delete("replicaset", &candidate).await;
            }
        }
    }
}

async fn candidate_set(namespace: &Namespace, accepted: &str) -> Option<String> {
    let sets = namespace
        .replica_sets()
        .list(&kube::api::ListParams::default())
        .await
        .expect("replicasets can be listed");
    sets.items
        .into_iter()
        .filter_map(|set| set.metadata.name)
        .find(|name| name != accepted)
}

/// Every run comes to the right end, by a way that breaks no promise.
async fn converges(base: &Base, before: tokio::time::Instant, disturbance: Disturbance) {
    let namespace = &base.namespace;
    let mut most = 6;
    let ended = async |version: &str, replicas: i32| {
        at_rest(namespace, NAME, version, replicas).await;
    };
    match disturbance {
        Disturbance::ANewerVersion | Disturbance::TwoNewerVersions => ended("v3", 4).await,
        Disturbance::ANewerVersionOfMore => {
            ended("v3", 6).await;
            // Six, and the step of half of them.
            most = 9;
        }
        Disturbance::AnotherStrategy => ended("v2", 4).await,
        Disturbance::BackToTheAccepted => ended("v1", 4).await,
        Disturbance::ScaleUp => {
            ended("v2", 6).await;
            // Six, and the step of half of them.
            most = 9;
        }
        Disturbance::ScaleDown => ended("v2", 2).await,
        Disturbance::ScaleToZeroAndBack => {
            eventually("no pod to run", async || {
                let pods = namespace
                    .pods()
                    .list(&kube::api::ListParams::default())
                    .await
                    .map_err(|e| e.to_string())?;
                let alive = pods
                    .items
                    .iter()
                    .filter(|pod| pod.metadata.deletion_timestamp.is_none())
                    .count();
                ensure(alive == 0, || format!("{alive} do"))
            })
            .await;
            namespace.scale(NAME, 4).await;
            ended("v2", 4).await;
        }
        Disturbance::DeleteOriginal => {
            eventually("all to be gone with the Deployment", async || {
                let all = [
                    "get",
                    "deployments,replicasets,pods,podtemplates",
                    "-o",
                    "name",
                ];
                let left = namespace.kubectl_ok(&all, None).await;
                ensure(left.trim().is_empty(), || format!("there is {left}"))
            })
            .await;
        }
        Disturbance::DeletePrimary
        | Disturbance::DeleteCanary
        | Disturbance::DeleteAcceptedSet
        | Disturbance::DeleteCandidateSet => ended("v2", 4).await,
    }
    never_more_than(namespace, before, most).await;
    never_beyond_the_step(namespace, NAME, before).await;
}

async fn between_any_two(scene: Arc<Scene>, disturbance: Disturbance) {
    at_every_write(11, |nth| {
        rollout(Arc::clone(&scene), nth.map(|nth| (disturbance, nth)))
    })
    .await;
}
