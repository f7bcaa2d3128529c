//! What pods do, as their templates say.

use super::*;

async fn with_pods(annotations: Value) -> Cluster {
    let cluster = cluster();
    let mut manifest = deployment(NAMESPACE, X, 1, V1);
    manifest["spec"]["template"]["metadata"]["annotations"] = annotations;
    cluster.apply(&manifest).unwrap();
    cluster
}

fn only_pod(cluster: &Cluster) -> Object {
    cluster
        .look(|now| now.list(Kind::Pod, NAMESPACE).next().cloned())
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_pod_becomes_ready_when_its_template_says() {
    let cluster = with_pods(json!({READY_AFTER: "90s"})).await;
    sleep(Duration::from_secs(80)).await;
    let pod = only_pod(&cluster);
    assert_eq!(
        (pod.text("/status/phase"), pod.is_ready()),
        ("Running", false)
    );
    sleep(Duration::from_secs(20)).await;
    assert!(only_pod(&cluster).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_crash_looping_pod_restarts_again_and_again_and_comes_and_goes() {
    let cluster = with_pods(json!({BEHAVIOUR: "crash-loop"})).await;
    let mut counts = Vec::new();
    let mut ready = Vec::new();
    for _ in 0..4 {
        sleep(milliseconds(2500)).await;
        let pod = only_pod(&cluster);
        ready.push(pod.is_ready());
        counts.push(pod.number("/status/containerStatuses/0/restartCount"));
    }
    assert!(
        counts.windows(2).all(|pair| pair[0] < pair[1]),
        "{counts:?}"
    );
    assert!(ready.contains(&true) && ready.contains(&false), "{ready:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_image_or_node_waits_with_the_reason() {
    let cluster = with_pods(json!({BEHAVIOUR: "image-pull"})).await;
    sleep(minutes(1)).await;
    let pod = only_pod(&cluster);
    assert_eq!(pod.text("/status/phase"), "Pending");
    assert_eq!(
        pod.text("/status/containerStatuses/0/state/waiting/reason"),
        "ImagePullBackOff"
    );

    let cluster = with_pods(json!({BEHAVIOUR: "unschedulable"})).await;
    sleep(minutes(1)).await;
    let pod = only_pod(&cluster);
    assert_eq!(
        pod.condition("PodScheduled").unwrap()["reason"],
        "Unschedulable"
    );
    assert_eq!(pod.text("/spec/nodeName"), "");
}

#[tokio::test(start_paused = true)]
async fn a_pod_ends_when_its_template_says_and_is_replaced_at_once() {
    let cluster = with_pods(json!({TERMINATE_AFTER: "20s"})).await;
    settle(&cluster).await;
    let pod = only_pod(&cluster);
    cluster
        .delete(Kind::Pod, NAMESPACE, pod.name(), Propagation::Background)
        .unwrap();
    sleep(Duration::from_secs(10)).await;
    assert!(get(&cluster, Kind::Pod, pod.name()).is_terminating());
    let x = get(&cluster, Kind::Deployment, X);
    assert_eq!(
        (
            x.status("availableReplicas"),
            x.status("terminatingReplicas")
        ),
        (1, 1)
    );
    sleep(Duration::from_secs(15)).await;
    assert!(find(&cluster, Kind::Pod, pod.name()).is_none());
    assert_eq!(starts(&cluster), 2);
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_not_ready_are_the_first_to_go() {
    let cluster = with_x(Lags::default()).await;
    let old: Vec<String> = cluster.look(|now| {
        now.list(Kind::Pod, NAMESPACE)
            .map(|pod| pod.uid().to_owned())
            .collect()
    });
    cluster.direct_pods(
        move |pod, conduct| match old.iter().any(|uid| uid == pod.uid()) {
            true => conduct,
            false => Conduct {
                behaviour: Behaviour::NeverReady,
                ..conduct
            },
        },
    );
    cluster.scale(NAMESPACE, X, 14).unwrap();
    sleep(minutes(1)).await;
    cluster.scale(NAMESPACE, X, 10).unwrap();
    settle(&cluster).await;
    assert_eq!(cluster.journal().census.last().unwrap().total().ready, 10);
}

#[tokio::test(start_paused = true)]
async fn running_pods_turn_when_told() {
    let cluster = with_x(Lags::default()).await;
    cluster.turn_pods(NAMESPACE, V1, Behaviour::NeverReady);
    settle(&cluster).await;
    assert_eq!(
        get(&cluster, Kind::Deployment, X).status("readyReplicas"),
        0
    );
    let crash = Behaviour::CrashLoop {
        up: Duration::from_secs(1),
        down: Duration::from_secs(1),
        exit_code: 3,
    };
    cluster.turn_pods(NAMESPACE, V1, crash);
    sleep(Duration::from_secs(20)).await;
    let pod = only_pod(&cluster);
    assert!(pod.number("/status/containerStatuses/0/restartCount") > 5);
    assert_eq!(
        pod.number("/status/containerStatuses/0/lastState/terminated/exitCode"),
        3
    );
    let after = Duration::ZERO;
    cluster.turn_pods(NAMESPACE, V1, Behaviour::Ready { after });
    settle(&cluster).await;
    assert_eq!(
        get(&cluster, Kind::Deployment, X).status("readyReplicas"),
        10
    );
    assert_eq!(starts(&cluster), 10);
}
