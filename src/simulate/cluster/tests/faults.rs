//! Faults between a client and the server, and clients that die.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch as KubePatch, PatchParams};
use tokio::time::timeout;

use super::*;

async fn set_replicas(client: kube::Client, replicas: u32) -> Result<Deployment, kube::Error> {
    let api: Api<Deployment> = Api::namespaced(client, NAMESPACE);
    api.patch(
        X,
        &PatchParams::default(),
        &KubePatch::Merge(json!({"spec": {"replicas": replicas}})),
    )
    .await
}

#[tokio::test(start_paused = true)]
async fn each_fault_does_what_it_says() {
    for (fault, replicas) in [
        (Fault::None, 3),
        (Fault::Delay(Duration::from_secs(30)), 3),
        (Fault::Refuse(Refusal::too_many_requests()), 10),
        (Fault::Hang, 10),
        (Fault::ApplyThenHang, 3),
        (Fault::ApplyThenBreak, 3),
        (Fault::Break, 10),
    ] {
        let cluster = with_x(Lags::default()).await;
        let injected = fault.clone();
        cluster.intercept(move |request| {
            if request.agent == "volery" {
                injected.clone()
            } else {
                Fault::None
            }
        });
        let answer = timeout(minutes(1), set_replicas(cluster.client("volery"), 3)).await;
        let seen = match &answer {
            Err(_) => "hangs",
            Ok(Ok(_)) => "answered",
            Ok(Err(kube::Error::Api(_))) => "refused",
            Ok(Err(_)) => "broken",
        };
        let expected = match fault {
            Fault::None | Fault::Delay(_) => "answered",
            Fault::Refuse(_) => "refused",
            Fault::Hang | Fault::ApplyThenHang => "hangs",
            Fault::ApplyThenBreak | Fault::Break => "broken",
        };
        assert_eq!(seen, expected, "{fault:?}");
        assert_eq!(
            get(&cluster, Kind::Deployment, X).replicas(),
            replicas,
            "{fault:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_dies_with_its_nth_write_which_is_carried_out() {
    let cluster = with_x(Lags::default()).await;
    let options = ClientOptions {
        dies_with_write: Some(2),
        ..ClientOptions::of("volery")
    };
    let (client, lifeline) = cluster.client_with(options);
    let daemon = tokio::spawn(async move {
        for replicas in 1..=5 {
            set_replicas(client.clone(), replicas).await.unwrap();
        }
    });
    timeout(minutes(1), lifeline.cut_off()).await.unwrap();
    daemon.abort();
    assert!(lifeline.is_cut());
    assert_eq!(get(&cluster, Kind::Deployment, X).replicas(), 2);
    assert_eq!(cluster.journal().writes_by("volery").count(), 2);
    set_replicas(cluster.client("volery"), 7).await.unwrap();
    settle(&cluster).await;
    assert_eq!(pods(&cluster, V1), 7);
}

#[tokio::test(start_paused = true)]
async fn an_invariant_that_breaks_is_reported_with_its_write() {
    let cluster = with_x(Lags::default()).await;
    cluster.after_each_write(|now, _| {
        let alive = now
            .list(Kind::Pod, NAMESPACE)
            .filter(|pod| pod.is_active())
            .count();
        if alive < 10 {
            Err(format!("{alive} pods alive"))
        } else {
            Ok(())
        }
    });
    cluster.scale(NAMESPACE, X, 12).unwrap();
    settle(&cluster).await;
    assert_eq!(cluster.violations(), Vec::<String>::new());
    cluster.scale(NAMESPACE, X, 9).unwrap();
    settle(&cluster).await;
    let violations = cluster.violations();
    assert!(
        violations[0].contains("replicaset-controller delete pods"),
        "{violations:?}"
    );
    assert!(violations[0].ends_with("9 pods alive"), "{violations:?}");
}

#[tokio::test(start_paused = true)]
async fn a_held_kind_is_not_seen_until_it_is_let_go() {
    let cluster = with_x(Lags::default()).await;
    cluster.hold(Kind::Deployment);
    cluster.scale(NAMESPACE, X, 3).unwrap();
    sleep(minutes(5)).await;
    assert_eq!(pods(&cluster, V1), 10);
    cluster.let_go(Kind::Deployment);
    settle(&cluster).await;
    assert_eq!(pods(&cluster, V1), 3);
}
