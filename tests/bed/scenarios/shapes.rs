//! Workers of every shape: other strategies and selectors, sidecars, names, nodes, quotas and admission.

use std::{sync::Arc, time::Duration};

use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{
    base::{Base, Since, config, entry},
    promises::{
        at_rest, capped, envelope, never_more_of, never_more_than, no_other_pods, started, stopped,
        untouched,
    },
};
use crate::{
    kubelet::Behaviour,
    namespace::{Namespace, uid},
    scene::{Scene, Trials},
    wait::{ensure, eventually},
    worker::Worker,
};

const X: &str = "orders-worker";

pub fn register(trials: &mut Trials) {
    trials.add(
        "shapes: Recreate: two versions side by side, which is said; its strategy stays (K41)",
        recreate,
    );
    trials.add(
        "shapes: minReadySeconds: no pod goes before its successor has lasted",
        min_ready,
    );
    trials.add("shapes: a selector of expressions", async |scene| {
        let selector = json!({"matchLabels": null, "matchExpressions": [
            {"key": "app", "operator": "In", "values": [X, "other"]},
            {"key": "retired", "operator": "DoesNotExist"},
        ]});
        let worker = Worker::default()
            .replicas(4)
            .spec(json!({"selector": selector}));
        promoted(&scene, worker, "").await;
    });
    trials.add(
        "shapes: sidecars, init containers and restarts by design (K20, K21)",
        restarts,
    );
    trials.add("shapes: a worker that ends with code 0 again and again is rolled out where that is by design (K21)", ends_by_design);
    for length in [60, 240] {
        trials.add(
            format!("shapes: a name of {length} characters, and one of 250 that is refused (K56)"),
            async move |scene| long_name(&scene, length).await,
        );
    }
    trials.add("shapes: one pod to a node: no room to go up first, which is said; with max_surge: 0 it is promoted (K39)", one_to_a_node);
    trials.add(
        "shapes: a quota that refuses part of a step ends it with the quota's words",
        async |scene| {
            let (base, since) = under_quota(&scene, "abort: 8s").await;
            let line = base
                .daemon
                .log_contains("failed: canary pods not available in time: 1 of 2")
                .await
                .text;
            assert!(line.contains("exceeded quota: room"), "{line}");
            at_rest(&base.namespace, X, "v1", 10).await;
            started(&base.namespace, since.at, &[("v2", 1)]).await;
            stopped(&base.namespace, since.at, &[("v2", 1)]).await;
            never_more_than(&base.namespace, since.at, 11).await;
        },
    );
    trials.add(
        "shapes: a quota that is lifted in time only delays the step",
        async |scene| {
            let (base, since) = under_quota(&scene, "abort: 60s").await;
            eventually("one of two canary pods", async || {
                let pods = base
                    .namespace
                    .recorder
                    .series(since.at)
                    .pop()
                    .map(|(_, pods)| pods);
                let one = pods
                    .as_ref()
                    .is_some_and(|pods| pods.by_tag.get("v2") == Some(&(1, 1)));
                ensure(one, || format!("{pods:?}"))
            })
            .await;
            base.namespace
                .kubectl_ok(&["delete", "resourcequota", "room"], None)
                .await;
            since
                .log(
                    &base.daemon,
                    "at rest: 10 replicas of registry.example/orders-worker:v2",
                )
                .await;
            at_rest(&base.namespace, X, "v2", 10).await;
            started(&base.namespace, since.at, &[("v2", 10)]).await;
            envelope(&base.namespace, since.at, 10, 2).await;
        },
    );
    trials.add("shapes: admission that changes the canary ends the rollout before a pod of it runs (fact 14)", changed_canary);
    trials.add("shapes: admission that refuses the clones leaves the worker as it is, until copy_labels gives what it asks for", refused_clones);
    trials.add("shapes: a worker that is broken when its entry appears waits, and is taken on once it is well (K15)", broken_at_first);
    trials.add("shapes: a worker that rolls when its entry appears is taken on with what it has rolled to (K15)", rolling_at_first);
}

/// Registered, rolled out, and each pod replaced once.
async fn promoted(scene: &Scene, worker: Worker, more: &str) -> Base {
    let namespace = scene.namespace().await;
    let url = namespace.bed.prometheus.url.clone();
    let base = Base::on(namespace, worker, &url, more).await;
    let (namespace, replicas) = (&base.namespace, base.worker.replicas);
    let since = Since::now(namespace, &base.daemon).await;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    since.log(&base.daemon, "promoted: ").await;
    at_rest(namespace, X, "v2", replicas).await;
    let pods = usize::try_from(replicas).unwrap();
    started(namespace, since.at, &[("v2", pods)]).await;
    stopped(namespace, since.at, &[("v1", pods)]).await;
    envelope(namespace, since.at, pods, pods.div_ceil(5)).await;
    no_other_pods(namespace, X).await;
    base
}

async fn recreate(scene: Arc<Scene>) {
    let worker = Worker::default()
        .replicas(4)
        .spec(json!({"strategy": {"type": "Recreate"}}));
    let base = promoted(&scene, worker, "").await;
    base.daemon
        .log_contains("mind: its strategy is Recreate")
        .await;
    let strategy =
        async |namespace: &Namespace| json!(namespace.deployment(X).await.spec.unwrap().strategy);
    assert_eq!(strategy(&base.namespace).await, json!({"type": "Recreate"}));
    let Base {
        namespace, daemon, ..
    } = base.left_out().await;
    daemon
        .log_contains("orders-worker: released: un-paused")
        .await;
    namespace.complete(X).await;
    assert_eq!(strategy(&namespace).await, json!({"type": "Recreate"}));
}

async fn min_ready(scene: Arc<Scene>) {
    let worker = Worker::default()
        .replicas(4)
        .spec(json!({"minReadySeconds": 3}));
    let base = promoted(&scene, worker, "").await;
    // From the first ready pod of v2 to the first stopped one of v1.
    let first = |what: &dyn Fn(&crate::recorder::Pods) -> bool| {
        let series = base
            .namespace
            .recorder
            .series(base.namespace.recorder.events()[0].at);
        series
            .iter()
            .find(|(_, pods)| what(pods))
            .map(|(at, _)| *at)
    };
    let ready = first(&|pods| pods.by_tag.get("v2").is_some_and(|of| of.1 > 0)).expect("v2 ran");
    let gone = first(&|pods| {
        pods.by_tag.contains_key("v2") && pods.by_tag.get("v1").is_none_or(|of| of.0 < 4)
    });
    // The kubelet tells transitions in whole seconds.
    assert!(
        gone.expect("v1 went") - ready >= Duration::from_secs(2),
        "it had not lasted"
    );
}

/// Registers a worker with a sidecar, a native one and an init container, and applies v2 of which these have restarted.
async fn with_sidecars(scene: &Scene, more: &str, restarted: &[(&str, i32, i32)]) -> (Base, Since) {
    let namespace = scene.namespace().await;
    let url = namespace.bed.prometheus.url.clone();
    let image = |tag: &str| format!("registry.example/orders-worker:{tag}");
    let pod = |tag: &str| {
        json!({
            "initContainers": [
                {"name": "setup", "image": "registry.example/setup:s1"},
                {"name": "mesh", "image": "registry.example/mesh:m1", "restartPolicy": "Always"},
            ],
            "containers": [
                {"name": "worker", "image": image(tag)},
                {"name": "proxy", "image": "registry.example/proxy:p1"},
            ],
        })
    };
    let worker = Worker::default().replicas(2).pod_spec(pod("v1"));
    let more = format!("step: 50%\ncheck_max_failures: 1\n{more}");
    let base = Base::on(namespace, worker, &url, &more).await;
    let since = Since::now(&base.namespace, &base.daemon).await;
    let next = base
        .worker
        .clone()
        .tag("v2")
        .pod_spec(pod("v2"))
        .restarted(restarted);
    base.namespace.apply(&next).await;
    (base, since)
}

async fn restarts(scene: Arc<Scene>) {
    let good = [
        ("ignore_containers: [proxy]", ("proxy", 2, 137)),
        ("ignore_completed: true", ("worker", 3, 0)),
        ("max_restarts: 2", ("setup", 2, 1)),
    ];
    let bad = [
        ("ignore_containers: [proxy]", ("worker", 1, 1)),
        ("ignore_containers: [proxy]", ("mesh", 1, 137)),
        ("ignore_containers: [proxy]", ("setup", 2, 1)),
        ("ignore_completed: true", ("worker", 3, 137)),
        ("max_restarts: 2", ("worker", 3, 1)),
    ];
    for (more, container) in good {
        let (base, since) = with_sidecars(&scene, more, &[container]).await;
        since.log(&base.daemon, "promoted: ").await;
        at_rest(&base.namespace, X, "v2", 2).await;
        scene.done(&base.namespace).await;
    }
    for (more, container) in bad {
        let (base, since) = with_sidecars(&scene, more, &[container]).await;
        since.log(&base.daemon, "failed: checks failed: ").await;
        let failed = base
            .daemon
            .log_contains("failed: checks failed: ")
            .await
            .text;
        let (name, times, code) = container;
        for part in [
            format!("restarted {times} time"),
            format!("container {name} ended: "),
            format!("exit code {code}"),
        ] {
            assert!(failed.contains(&part), "{failed}");
        }
        at_rest(&base.namespace, X, "v1", 2).await;
        never_more_of(&base.namespace, since.at, "v2", 1).await;
        scene.done(&base.namespace).await;
    }
}

async fn ends_by_design(scene: Arc<Scene>) {
    let namespace = scene.namespace().await;
    let url = namespace.bed.prometheus.url.clone();
    let worker = Worker::default().replicas(3);
    let base = Base::on(
        namespace,
        worker,
        &url,
        "step: 1\nignore_completed: true\nsuccess: []",
    )
    .await;
    let namespace = &base.namespace;
    let since = Since::now(namespace, &base.daemon).await;
    let ends = Behaviour::CrashLoop {
        up: Duration::from_secs(3),
        down: Duration::from_millis(300),
        exit_code: 0,
    };
    namespace
        .apply(&base.worker.clone().tag("v2").behaviour(ends))
        .await;
    since.log(&base.daemon, "promoted: ").await;
    at_rest(namespace, X, "v2", 3).await;
    started(namespace, since.at, &[("v2", 3)]).await;
    stopped(namespace, since.at, &[("v1", 3)]).await;
}

async fn long_name(scene: &Scene, length: usize) {
    let namespace = scene.namespace().await;
    for tag in ["v1", "v2"] {
        namespace.set_metric(tag, "my_errors", 0.0);
    }
    let name = format!("orders-{}", "w".repeat(length - 7));
    let worker = Worker::named(&name).replicas(4);
    namespace.running(&worker).await;
    let text = config(&namespace, &namespace.bed.prometheus.url, "");
    let (globals, _) = text.split_once("orders-worker:").unwrap();
    let setup = namespace.daemon_setup(&format!(
        "{globals}{}",
        entry(&namespace, &name, "step: 50%")
    ));
    let daemon = namespace.daemon(&setup).await;
    daemon.log_contains(&format!("{name}: at rest")).await;
    at_rest(&namespace, &name, "v1", 4).await;
    let since = Since::now(&namespace, &daemon).await;
    namespace.apply(&worker.clone().tag("v2")).await;
    since.log(&daemon, "promoted: ").await;
    at_rest(&namespace, &name, "v2", 4).await;
    started(&namespace, since.at, &[("v2", 4)]).await;
    envelope(&namespace, since.at, 4, 2).await;
    no_other_pods(&namespace, &name).await;
    // One that its clones cannot be named after is refused with the numbers; the other one goes on.
    let refused = format!("orders-{}", "w".repeat(243));
    setup.write_config(&format!(
        "{globals}{}{}",
        entry(&namespace, &name, "step: 50%"),
        entry(&namespace, &refused, "")
    ));
    assert!(daemon.terminate().await.success());
    let daemon = namespace.daemon(&setup).await;
    let line = daemon
        .log_contains("expected at most 245 characters")
        .await
        .text;
    assert!(line.contains("258"), "{line}");
    daemon.log_contains(&format!("{name}: at rest")).await;
    untouched(&namespace, namespace.now().await).await;
}

async fn one_to_a_node(scene: Arc<Scene>) {
    let namespace = scene.namespace().await;
    let url = namespace.bed.prometheus.url.clone();
    let worker = Worker::default().replicas(4).one_to_a_node(4);
    let base = Base::on(namespace, worker, &url, "step: 50%\nabort: 4s").await;
    let Base {
        namespace,
        worker,
        mut daemon,
        setup,
    } = base;
    let since = Since::now(&namespace, &daemon).await;
    namespace.apply(&worker.clone().tag("v2")).await;
    let line = daemon
        .log_contains("failed: canary pods not available in time")
        .await
        .text;
    assert!(
        line.contains("didn't match pod anti-affinity rules"),
        "{line}"
    );
    assert!(line.contains("max_surge: 0"), "{line}");
    at_rest(&namespace, X, "v1", 4).await;
    stopped(&namespace, since.at, &[("v2", 2)]).await;

    assert!(daemon.terminate().await.success());
    setup.write_config(&config(&namespace, &url, "step: 50%\nmax_surge: 0"));
    daemon = namespace.daemon(&setup).await;
    daemon.log_contains("orders-worker: rejected").await;
    let capped_since = Since::now(&namespace, &daemon).await;
    namespace.apply(&worker.clone().tag("v3")).await;
    capped_since.log(&daemon, "promoted: ").await;
    at_rest(&namespace, X, "v3", 4).await;
    started(&namespace, capped_since.at, &[("v3", 4)]).await;
    capped(&namespace, capped_since.at, 4, 2).await;
}

/// At rest with room for one pod more, v2 applied.
async fn under_quota(scene: &Scene, more: &str) -> (Base, Since) {
    let base = Base::registered(scene, more).await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "room"}, "spec": {"hard": {"pods": "11"}},
    });
    base.namespace
        .kubectl_ok(&["apply", "-f", "-"], Some(&quota.to_string()))
        .await;
    let counted = [
        "get",
        "resourcequota",
        "room",
        "-o",
        "jsonpath={.status.used.pods}",
    ];
    eventually("the quota to count the pods", async || {
        let used = base.namespace.kubectl_ok(&counted, None).await;
        ensure(used == "10", || format!("it counts {used:?}"))
    })
    .await;
    let since = Since::now(&base.namespace, &base.daemon).await;
    base.namespace.apply(&base.worker.clone().tag("v2")).await;
    (base, since)
}

/// A policy about new Deployments of this namespace, of this kind with this spec.
async fn policy(namespace: &Namespace, kind: &str, more: Value) {
    let name = format!("shapes-in-{}", namespace.name);
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]});
    let mut spec = json!({"matchConstraints": {"resourceRules": [rule]}, "failurePolicy": "Fail"});
    json_patch::merge(&mut spec, &more);
    let mut binding = json!({
        "policyName": name,
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}},
    });
    if kind == "ValidatingAdmissionPolicy" {
        binding["validationActions"] = json!(["Deny"]);
    }
    let version = "admissionregistration.k8s.io/v1";
    let manifest = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec},
        {"apiVersion": version, "kind": format!("{kind}Binding"), "metadata": {"name": name}, "spec": binding},
    ]});
    namespace
        .kubectl_ok(&["apply", "-f", "-"], Some(&manifest.to_string()))
        .await;
}

/// Waits until a new Deployment of this name, made for a trial only, is treated as this says.
async fn in_force(
    namespace: &Namespace,
    name: &str,
    treated: impl Fn(Result<Value, String>) -> bool,
) {
    let probe = Worker::named(name).replicas(0).manifest();
    eventually("the policy to be in force", async || {
        let output = namespace
            .kubectl(
                &["create", "--dry-run=server", "-o", "json", "-f", "-"],
                Some(&probe),
            )
            .await;
        let answer = if output.status.success() {
            serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        };
        ensure(treated(answer), || "it is not".to_owned())
    })
    .await;
}

async fn changed_canary(scene: Arc<Scene>) {
    let base = Base::registered(&scene, "").await;
    let namespace = &base.namespace;
    let add = "[JSONPatch{op: \"add\", path: \"/spec/template/metadata/labels/injected\", value: \"yes\"}]";
    let spec = json!({
        "reinvocationPolicy": "Never",
        "matchConditions": [{"name": "canaries", "expression": "object.metadata.name.endsWith('-canary')"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": add}}],
    });
    policy(namespace, "MutatingAdmissionPolicy", spec).await;
    in_force(namespace, "probe-canary", |answer| {
        answer.is_ok_and(|made| made["spec"]["template"]["metadata"]["labels"]["injected"] == "yes")
    })
    .await;
    let since = Since::now(namespace, &base.daemon).await;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    let line = base.daemon.log_contains("failed: ").await.text;
    assert!(line.contains("an admission webhook or policy"), "{line}");
    at_rest(namespace, X, "v1", 10).await;
    untouched(namespace, since.at).await;
}

async fn refused_clones(scene: Arc<Scene>) {
    let namespace = scene.namespace().await;
    let url = namespace.bed.prometheus.url.clone();
    let worker = Worker::default().replicas(2).label("team", "orders");
    let Base {
        namespace,
        worker,
        setup,
        daemon,
    } = Base::on(namespace, worker, &url, "step: 50%").await;
    let rule = json!({"expression": "has(object.metadata.labels) && 'team' in object.metadata.labels", "message": "every Deployment has a team"});
    policy(
        &namespace,
        "ValidatingAdmissionPolicy",
        json!({"validations": [rule]}),
    )
    .await;
    in_force(&namespace, "probe", |answer| {
        answer.is_err_and(|why| why.contains("every Deployment has a team"))
    })
    .await;
    let since = Since::now(&namespace, &daemon).await;
    namespace.apply(&worker.clone().tag("v2")).await;
    since.log(&daemon, "every Deployment has a team").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    untouched(&namespace, since.at).await;
    let x = namespace.deployment(X).await;
    assert_eq!(namespace.pods_of(&x).await.len(), 2, "its pods are its own");
    assert!(daemon.terminate().await.success());
    setup.write_config(&config(&namespace, &url, "step: 50%\ncopy_labels: [team]"));
    let daemon = namespace.daemon(&setup).await;
    daemon.log_contains("promoted: ").await;
    at_rest(&namespace, X, "v2", 2).await;
    started(&namespace, since.at, &[("v2", 2)]).await;
    envelope(&namespace, since.at, 2, 1).await;
}

async fn broken_at_first(scene: Arc<Scene>) {
    let namespace = scene.namespace().await;
    let worker = Worker::default()
        .replicas(3)
        .behaviour(Behaviour::NeverReady);
    namespace.apply(&worker).await;
    let text = config(&namespace, &namespace.bed.prometheus.url, "");
    let daemon = namespace.daemon(&namespace.daemon_setup(&text)).await;
    daemon
        .log_contains("waiting to be registered: only 0 of 3 pods are available")
        .await;
    let broken = namespace.deployment(X).await;
    assert_eq!(
        broken.spec.as_ref().and_then(|spec| spec.paused),
        None,
        "it is not touched"
    );
    assert_eq!(
        namespace
            .pod_templates()
            .get_opt("orders-worker-volery")
            .await
            .unwrap(),
        None
    );
    // The fix rolls out natively, and then it is taken on.
    namespace
        .apply(&Worker::default().replicas(3).tag("v2"))
        .await;
    daemon
        .log_contains("registered: 3 replicas of registry.example/orders-worker:v2")
        .await;
    at_rest(&namespace, X, "v2", 3).await;
    no_other_pods(&namespace, X).await;
}

async fn rolling_at_first(scene: Arc<Scene>) {
    let namespace = scene.namespace().await;
    let slow = Behaviour::Ready {
        after: Duration::from_secs(4),
    };
    let worker = Worker::default().replicas(4).behaviour(slow);
    namespace.running(&worker).await;
    let since = namespace.now().await;
    namespace.apply(&worker.clone().tag("v2")).await;
    let text = config(&namespace, &namespace.bed.prometheus.url, "");
    let daemon = namespace.daemon(&namespace.daemon_setup(&text)).await;
    daemon
        .log_contains("waiting to be registered: it is still rolling")
        .await;
    daemon
        .log_contains("registered: 4 replicas of registry.example/orders-worker:v2")
        .await;
    at_rest(&namespace, X, "v2", 4).await;
    started(&namespace, since, &[("v2", 4)]).await;
    let x = namespace.deployment(X).await;
    assert_eq!(
        namespace.replica_sets_of(&uid(&x)).await.len(),
        1,
        "{}",
        x.name_any()
    );
}
