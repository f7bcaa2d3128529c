//! That the bed does what scenarios rely on.

use std::{collections::BTreeMap, time::Duration};

use http::StatusCode;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ContainerStatus, Pod, Secret},
};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::{
    control_plane::Who,
    kubelet::Behaviour,
    namespace::Namespace,
    prometheus::Answer,
    proxy::{Kind, Verdict},
    scene::Trials,
    wait::{ensure, eventually},
    worker::Worker,
};

pub fn register(trials: &mut Trials) {
    trials.add(
        "bed::a_worker_runs_and_the_recorder_counts_its_pods",
        async |scene| {
            let ns = scene.namespace().await;
            let start = Instant::now();
            ns.history(&Worker::default().replicas(3)).await;
            let end = ns.now().await;
            assert_eq!(ns.recorder.starts(end), BTreeMap::new());
            assert_eq!(
                ns.recorder.starts(start),
                BTreeMap::from([("h1".into(), 1), ("h2".into(), 1), ("v1".into(), 3)])
            );
            assert_eq!(
                ns.recorder.stops(start),
                BTreeMap::from([("h1".into(), 1), ("h2".into(), 1)])
            );
            assert_eq!(
                ns.replica_sets()
                    .list(&ListParams::default())
                    .await
                    .unwrap()
                    .items
                    .len(),
                3
            );
            let (_, most) = ns.recorder.range(start, |pods| pods.available);
            assert_eq!(most, 3, "{}", ns.recorder.story());
        },
    );

    trials.add("bed::pods_misbehave_as_told", async |scene| {
        let ns = scene.namespace().await;
        let crashing = Behaviour::CrashLoop {
            up: Duration::from_millis(300),
            down: Duration::from_millis(300),
            exit_code: 3,
        };
        let troubles = [
            ("crash", crashing),
            ("pull", Behaviour::ImagePull),
            ("never", Behaviour::NeverReady),
            ("pending", Behaviour::Unschedulable),
        ];
        for (name, behaviour) in troubles {
            ns.apply(&Worker::named(name).replicas(1).behaviour(behaviour))
                .await;
        }
        let crashed = container(&ns, "crash", |status| status.restart_count >= 2).await;
        let code = crashed
            .last_state
            .and_then(|state| state.terminated)
            .map(|terminated| terminated.exit_code);
        assert_eq!(code, Some(3));
        let pulling = container(&ns, "pull", |status| {
            status
                .state
                .as_ref()
                .is_some_and(|state| state.waiting.is_some())
        })
        .await;
        let waiting = pulling
            .state
            .and_then(|state| state.waiting)
            .unwrap_or_default();
        assert_eq!(waiting.reason.as_deref(), Some("ImagePullBackOff"));
        assert!(
            waiting
                .message
                .unwrap_or_default()
                .contains("registry.example/pull:v1")
        );
        let never = container(&ns, "never", |_| true).await;
        assert!(!never.ready);
        eventually("the pod without a node to say so", async || {
            let pod = pod(&ns, "pending").await?;
            let conditions = pod
                .status
                .and_then(|status| status.conditions)
                .unwrap_or_default();
            let scheduled = conditions
                .iter()
                .find(|c| c.type_ == "PodScheduled")
                .and_then(|c| c.reason.clone());
            ensure(scheduled.as_deref() == Some("Unschedulable"), || {
                format!("{scheduled:?}")
            })
        })
        .await;
    });

    trials.add("bed::running_pods_can_turn_bad", async |scene| {
        let ns = scene.namespace().await;
        ns.running(&Worker::default().replicas(2)).await;
        ns.turn("v1", Behaviour::NeverReady);
        eventually("no pod to be available", async || {
            let (_, pods) = ns.recorder.series(Instant::now()).pop().unwrap();
            ensure(pods.available == 0 && pods.alive == 2, || {
                format!("{pods:?}")
            })
        })
        .await;
    });

    trials.add("bed::prometheus_sees_the_values_that_a_test_sets", async |scene| {
        let ns = scene.namespace().await;
        ns.set_metric("v1", "my_errors", 0.5);
        ns.set_metric("v1", "lag{partition=\"3\"}", 7.0);
        ns.running(&Worker::default().replicas(2)).await;
        let stub = ns.prometheus_stub().await;
        let query = format!("sum(my_errors{{namespace=\"{0}\"}}) + sum(lag{{partition=\"3\",namespace=\"{0}\"}})", ns.name);
        let http = reqwest::Client::new();
        let url = format!("{}/api/v1/query", stub.url());
        eventually("the sum over both pods", async || {
            let result = ns.bed.prometheus.query(&query).await?;
            ensure(result[0]["value"][1] == "15", || result.to_string())
        })
        .await;
        let real = http.get(&url).query(&[("query", &query)]).send().await.unwrap().text().await.unwrap();
        assert!(real.contains("\"15\""), "{real}");
        assert_eq!(stub.queries().last().map(|q| q.expression.clone()), Some(query));
        stub.answers(Answer::Status(StatusCode::BAD_REQUEST, "{}".into()));
        assert_eq!(http.get(&url).send().await.unwrap().status(), StatusCode::BAD_REQUEST);
        stub.refuse();
        eventually("connections to be refused", async || match http.get(&url).send().await {
            Ok(answer) => Err(format!("{answer:?}")),
            Err(_) => Ok(()),
        })
        .await;
    });

    trials.add(
        "bed::a_delayed_watch_delays_only_its_namespace",
        async |scene| {
            let (slow, quick) = (scene.namespace().await, scene.namespace().await);
            slow.lag(Kind::Deployments, Duration::from_secs(3));
            let worker = Worker::default().replicas(1);
            let start = Instant::now();
            let first_pod = async |ns: &Namespace| {
                eventually("a pod", async || pod(ns, "orders-worker").await).await;
                start.elapsed()
            };
            slow.apply(&worker).await;
            quick.apply(&worker).await;
            let (slow, quick) = tokio::join!(first_pod(&slow), first_pod(&quick));
            assert!(slow >= Duration::from_secs(3), "{slow:?}");
            assert!(quick < slow, "{quick:?} {slow:?}");
        },
    );

    trials.add(
        "bed::the_daemon_acts_under_its_role_through_its_proxy_and_the_audit_log_tells",
        async |scene| {
            let ns = scene.namespace().await;
            ns.running(&Worker::default().replicas(1)).await;
            let config = Kubeconfig::read_from(ns.folder().join("daemon.kubeconfig")).unwrap();
            let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
                .await
                .unwrap();
            let client = Client::try_from(config).unwrap();
            let deployments: Api<Deployment> = Api::namespaced(client.clone(), &ns.name);
            let secrets: Api<Secret> = Api::namespaced(client, &ns.name);
            assert_eq!(
                deployments
                    .list(&ListParams::default())
                    .await
                    .unwrap()
                    .items
                    .len(),
                1
            );
            assert!(secrets.list(&ListParams::default()).await.is_err());
            let pause = Patch::Merge(json!({"spec": {"paused": true}}));
            let scale = Patch::Merge(json!({"spec": {"replicas": 2}}));
            let parameters = PatchParams::default();
            assert!(
                deployments
                    .patch_scale("orders-worker", &parameters, &scale)
                    .await
                    .is_err(),
                "it has no right to the subresource"
            );
            ns.daemon_proxy.record();
            ns.daemon_proxy.on_request(|request| {
                if request.is_write() {
                    Verdict::Answer(StatusCode::CONFLICT, "try again".into())
                } else {
                    Verdict::Pass
                }
            });
            let refused = deployments
                .patch("orders-worker", &parameters, &pause)
                .await
                .unwrap_err();
            assert!(
                matches!(&refused, kube::Error::Api(status) if status.code == 409),
                "{refused}"
            );
            ns.daemon_proxy.pass_all();
            deployments
                .patch("orders-worker", &parameters, &pause)
                .await
                .unwrap();
            assert_eq!(
                ns.daemon_proxy
                    .requests()
                    .iter()
                    .filter(|request| request.is_write())
                    .count(),
                2
            );
            ns.daemon_proxy.cut_after(1);
            let resume = Patch::Merge(json!({"spec": {"paused": false}}));
            let cut = timeout(
                Duration::from_secs(2),
                deployments.patch("orders-worker", &parameters, &resume),
            )
            .await;
            assert!(cut.is_err(), "{cut:?}");
            assert!(
                timeout(Duration::from_secs(1), deployments.get("orders-worker"))
                    .await
                    .is_err()
            );
            eventually("it to be carried out all the same", async || {
                let paused = ns.deployment("orders-worker").await.spec.unwrap().paused;
                ensure(paused.is_none(), || "it is still paused".to_owned())
            })
            .await;
            ns.daemon_proxy.pass_all();
            let writes = ns.daemon_writes().await;
            let told: Vec<_> = writes
                .iter()
                .map(|w| (w.verb.as_str(), w.resource(), w.name(), w.code()))
                .collect();
            let patched = |code| ("patch", "deployments".into(), "orders-worker", code);
            let forbidden = ("patch", "deployments/scale".into(), "orders-worker", 403);
            assert_eq!(told, [forbidden, patched(200), patched(200)]);
            assert_eq!(writes[1].request_object["spec"]["paused"], true);
        },
    );

    trials.add("bed::each_user_has_its_own_name", async |scene| {
        let ns = scene.namespace().await;
        ns.apply(&Worker::default().replicas(0)).await;
        let by_user = ns.bed.audit.writes(Who::User.name(), &ns.name).await;
        assert_eq!(
            by_user.iter().map(|w| w.verb.as_str()).collect::<Vec<_>>(),
            ["create"]
        );
    });
}

async fn pod(ns: &Namespace, worker: &str) -> Result<Pod, String> {
    let api: Api<Pod> = ns.pods();
    let pods = api
        .list(&ListParams::default().labels(&format!("app={worker}")))
        .await
        .map_err(|e| e.to_string())?;
    pods.items
        .into_iter()
        .next()
        .ok_or_else(|| "there is no pod".to_owned())
}

async fn container(
    ns: &Namespace,
    worker: &str,
    wanted: impl Fn(&ContainerStatus) -> bool,
) -> ContainerStatus {
    eventually(&format!("the container of {worker}"), async || {
        let pod = pod(ns, worker).await?;
        let name = pod.name_any();
        let status = pod
            .status
            .and_then(|status| status.container_statuses)
            .and_then(|all| all.into_iter().next());
        status
            .filter(|status| wanted(status))
            .ok_or_else(|| format!("{name} is not there yet"))
    })
    .await
}
