//! Leaving: by order and by the configuration, at rest, in the middle and after a failure, killed anywhere on the way. Afterwards the
//! Deployment is what its user wrote, and nothing of Volery's is left.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use kube::{ResourceExt as _, api::ListParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    base::{Base, Held},
    between::{Hold, SHORT, at_every_write},
    promises::{at_rest, deeds, history_of, never_more_of, no_other_pods, started, untouched},
};
use crate::{
    namespace::{Namespace, owned_by, uid},
    prometheus::Answer,
    scene::{Scene, Trials},
    wait::{ensure, eventually},
    worker::Worker,
};

const X: &str = "orders-worker";
const RELEASED: &str = "orders-worker: released: un-paused";
const ACCEPTED: &str = "release template=accepted";
const ORIGINAL: &str = "release template=original";

pub fn register(trials: &mut Trials) {
    for order in ["release", ACCEPTED, ORIGINAL] {
        trials.add_with_lags(
            &format!("leaving: {order} at rest (K06)"),
            async move |scene| at_rest_by_order(&scene, order).await,
        );
    }
    for (order, version) in [(ACCEPTED, "v1"), (ORIGINAL, "v2")] {
        trials.add_with_lags(
            &format!("leaving: {order} at (4,6) (K06, K07)"),
            async move |scene| open_by_order(&scene, order, version).await,
        );
        trials.add_with_lags(
            &format!("leaving: {order} after a failure (K06)"),
            async move |scene| failed_by_order(&scene, order, version).await,
        );
    }
    trials.add(
        "leaving: release without a decision is refused while the template is not the accepted one",
        refused,
    );
    trials.add(
        "leaving: what was released by order is registered again at the next start",
        registered_again,
    );
    for way in Way::ALL {
        trials.add(
            format!(
                "leaving: killed after every single write, {} (K07)",
                way.text()
            ),
            async move |scene| {
                at_every_write(way.fewest(), |nth| leave(Arc::clone(&scene), way, nth)).await;
            },
        );
    }
}

/// What the user wrote: spec, labels and annotations.
fn written(x: &Deployment) -> Value {
    let mut annotations = x.annotations().clone();
    // Kubernetes' own.
    annotations.remove("deployment.kubernetes.io/revision");
    let mut spec = json!(x.spec);
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|key, value| key != "paused" || *value != json!(false));
    }
    json!({"labels": x.labels(), "annotations": annotations, "spec": spec})
}

/// The same without the pause, which the user has not written.
fn but_for_the_pause(x: &Deployment) -> Value {
    let mut x = x.clone();
    if let Some(spec) = &mut x.spec {
        spec.paused = None;
    }
    written(&x)
}

/// What the user has written, with the template that runs: the one thing that an order changes.
async fn with_the_accepted(namespace: &Namespace, before: &Value) -> Value {
    let x = namespace.deployment(X).await;
    let sets = namespace.replica_sets_of(&uid(&x)).await;
    let runs = sets
        .iter()
        .find(|set| set.spec.as_ref().and_then(|spec| spec.replicas) > Some(0))
        .expect("one runs");
    let mut template = json!(runs.spec.as_ref().and_then(|spec| spec.template.clone()));
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove("pod-template-hash");
    }
    let mut expected = before.clone();
    expected["spec"]["template"] = template;
    expected
}

/// The Deployment has its own ReplicaSets, and nothing else is there.
pub(super) async fn nothing_of_ours(namespace: &Namespace) {
    let x = namespace.complete(X).await;
    eventually("no object of Volery's", async || {
        let all = ["get", "deployments,podtemplates", "-o", "name"];
        let left = namespace.kubectl_ok(&all, None).await;
        ensure(left.trim() == "deployment.apps/orders-worker", || {
            format!("there is {left}")
        })
    })
    .await;
    let sets = namespace
        .replica_sets()
        .list(&ListParams::default())
        .await
        .expect("replicasets can be listed");
    for set in &sets.items {
        assert!(
            owned_by(set.owner_references(), &uid(&x)),
            "{} has another owner",
            set.name_any()
        );
        let text = json!(set.metadata).to_string().replace(X, "");
        let marked = set
            .labels()
            .keys()
            .chain(set.annotations().keys())
            .any(|key| key.starts_with("volery.dev/"));
        assert!(!marked, "{text} carries a mark");
    }
    let marked = x
        .labels()
        .keys()
        .chain(x.annotations().keys())
        .any(|key| key.starts_with("volery.dev/"));
    assert!(!marked, "the Deployment carries a mark");
    no_other_pods(namespace, X).await;
}

async fn tags(namespace: &Namespace) -> Vec<String> {
    let x = namespace.deployment(X).await;
    let history = history_of(namespace, &uid(&x)).await;
    history.into_iter().map(|(tag, _)| tag).collect()
}

async fn at_rest_by_order(scene: &Scene, order: &str) {
    let namespace = scene.namespace().await;
    let worker = Worker::default()
        .label("team", "orders")
        .annotation("example.org/owner", "orders");
    namespace.history(&worker).await;
    let as_it_was = written(&namespace.deployment(X).await);
    let url = namespace.bed.prometheus.url.clone();
    let base = Base::on(namespace, worker, &url, "").await;
    let since = base.now().await;
    base.order(order, "done: the service is given back")
        .await
        .log(&base.daemon, RELEASED)
        .await;
    let namespace = &base.namespace;
    nothing_of_ours(namespace).await;
    untouched(namespace, since).await;
    assert_eq!(written(&namespace.deployment(X).await), as_it_was);
    assert_eq!(tags(namespace).await, ["h1", "h2", "v1"]);
}

/// The accepted pods that run live on through the cancelling, and what was decided about the template is done.
async fn open_by_order(scene: &Scene, order: &str, version: &str) {
    let (Held { base, stub: _stub }, ..) = Held::at(scene, 4, 6).await;
    let namespace = &base.namespace;
    let since = base.now().await;
    let primary = namespace.deployment("orders-worker-primary").await;
    let kept: Vec<String> = namespace.pods_of(&primary).await.iter().map(uid).collect();
    let before = but_for_the_pause(&namespace.deployment(X).await);
    base.order(order, "done: the service is given back")
        .await
        .log(&base.daemon, RELEASED)
        .await;
    let x = namespace.complete(X).await;
    nothing_of_ours(namespace).await;
    let (fewest, _) = namespace.recorder.range(since, |pods| pods.available);
    if version == "v1" {
        started(namespace, since, &[("v1", 4)]).await;
        let pods: Vec<String> = namespace.pods_of(&x).await.iter().map(uid).collect();
        assert!(
            kept.iter().all(|uid| pods.contains(uid)),
            "{kept:?} not all in {pods:?}"
        );
        assert!(fewest >= 6, "{fewest} available");
        let after = written(&x);
        assert_eq!(after, with_the_accepted(namespace, &before).await);
        assert_eq!(
            after["spec"]["template"]["spec"]["containers"][0]["image"],
            base.worker.image()
        );
    } else {
        // Only now, natively: first all went back to the accepted version.
        started(namespace, since, &[("v1", 4), ("v2", 10)]).await;
        assert_eq!(written(&x), before);
    }
}

async fn failed_by_order(scene: &Scene, order: &str, version: &str) {
    let base = Base::rejected(scene).await;
    let namespace = &base.namespace;
    let since = base.now().await;
    let before = but_for_the_pause(&namespace.deployment(X).await);
    base.order(order, "done: the service is given back")
        .await
        .log(&base.daemon, RELEASED)
        .await;
    let x = namespace.complete(X).await;
    nothing_of_ours(namespace).await;
    if version == "v1" {
        untouched(namespace, since).await;
        assert_eq!(tags(namespace).await, ["v1"]);
        let after = written(&x);
        assert_eq!(after, with_the_accepted(namespace, &before).await);
        assert_eq!(
            after["spec"]["template"]["spec"]["containers"][0]["image"],
            base.worker.image()
        );
        // Kubernetes rolls again natively.
        namespace.apply(&base.worker.clone().tag("v3")).await;
        namespace.complete(X).await;
        started(namespace, since, &[("v3", 10)]).await;
    } else {
        started(namespace, since, &[("v2", 10)]).await;
        assert_eq!(written(&x), before);
        assert_eq!(tags(namespace).await, ["v1", "v2"]);
    }
}

async fn refused(scene: Arc<Scene>) {
    let (held, ..) = Held::at(&scene, 2, 8).await;
    let base = &held.base;
    let decide = "refused: orders-worker's template is not the accepted version";
    base.order("release", decide).await;
    base.order("abort", "done: back to the accepted version")
        .await;
    base.daemon.log_contains("orders-worker: rejected: ").await;
    base.order("release", decide).await;
    at_rest(&base.namespace, X, "v1", 10).await;
}

async fn registered_again(scene: Arc<Scene>) {
    let base = Base::registered(&scene, "").await;
    let since = base.now().await;
    base.order("release", "done: ")
        .await
        .log(&base.daemon, RELEASED)
        .await;
    let Base {
        namespace,
        setup,
        daemon,
        ..
    } = base;
    let writes = deeds(&namespace).await.len();
    namespace
        .apply(&Worker::default().label("team", "orders"))
        .await;
    namespace.complete(X).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(
        deeds(&namespace).await.len(),
        writes,
        "it is nobody's business any more"
    );
    assert!(daemon.terminate().await.success());
    let daemon = namespace.daemon(&setup).await;
    daemon
        .log_contains("orders-worker: registered: 10 replicas")
        .await;
    at_rest(&namespace, X, "v1", 10).await;
    untouched(&namespace, since).await;
}

/// How and from where a service leaves that is killed on the way.
#[derive(Clone, Copy, Debug)]
enum Way {
    AtRest,
    Open,
    Failed,
    AtRestByConfig,
    OpenByConfig,
}

impl Way {
    const ALL: [Self; 5] = [
        Self::AtRest,
        Self::Open,
        Self::Failed,
        Self::AtRestByConfig,
        Self::OpenByConfig,
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::AtRest => "by order, at rest",
            Self::Open => "by order, in a step",
            Self::Failed => "by order, after a failure",
            Self::AtRestByConfig => "by the configuration, at rest",
            Self::OpenByConfig => "by the configuration, in a step",
        }
    }

    /// Phase, history, un-pause, end; in the middle of a rollout also both numbers, the handover and the clones.
    const fn fewest(self) -> usize {
        match self {
            Self::AtRest | Self::Failed | Self::AtRestByConfig => 4,
            Self::Open | Self::OpenByConfig => 8,
        }
    }
}

/// A service leaves; the daemon is killed after its `nth` write of that, if any, and started again. How many writes it made.
async fn leave(scene: Arc<Scene>, way: Way, nth: Option<usize>) -> usize {
    let namespace = scene.namespace().await;
    let stub = namespace.prometheus_stub().await;
    let worker = Worker::default().replicas(4);
    let history = matches!(way, Way::AtRest | Way::AtRestByConfig);
    if history {
        namespace.history(&worker).await;
    }
    let more = SHORT.replace(
        "success: []",
        "inconclusive_timeout: 10m\nno_data_grace: 10m\nabort: 60s",
    );
    let base = Base::on(Arc::clone(&namespace), worker.clone(), &stub.url(), &more).await;
    let as_it_was = but_for_the_pause(&namespace.deployment(X).await);
    match way {
        Way::AtRest | Way::AtRestByConfig => {}
        Way::Failed => {
            stub.answers(Answer::Value(0.0));
            namespace.apply(&worker.clone().tag("v2")).await;
            base.daemon.log_contains("orders-worker: rejected: ").await;
            at_rest(&namespace, X, "v1", 4).await;
        }
        Way::Open | Way::OpenByConfig => {
            stub.answers(Answer::Never);
            namespace.apply(&worker.clone().tag("v2")).await;
            base.daemon
                .log_contains("canary 2/2 available, primary 2, checking")
                .await;
        }
    }
    let by_config = matches!(way, Way::AtRestByConfig | Way::OpenByConfig);
    let since = namespace.now().await;
    let hold;
    let mut base = if by_config {
        let base = base.left_out().await;
        hold = Hold::after(&namespace, nth);
        base
    } else {
        hold = Hold::after(&namespace, nth);
        base.annotate(if matches!(way, Way::AtRest) {
            "release"
        } else {
            ACCEPTED
        })
        .await;
        base
    };
    let end = match way {
        // What is not the accepted version is not let loose.
        Way::OpenByConfig => "orders-worker: blocked: to be released, but",
        _ => RELEASED,
    };
    let held = hold
        .reached_before(async {
            base.daemon.log_contains(end).await;
        })
        .await;
    if let Some(write) = held {
        base.daemon.kill().await;
        namespace.daemon_proxy.pass_all();
        base.daemon = namespace.daemon(&base.setup).await;
        namespace.note(&format!("killed after {write}"));
    }
    if matches!(way, Way::OpenByConfig) {
        base.daemon.log_contains(end).await;
        at_rest(&namespace, X, "v1", 4).await;
        never_more_of(&namespace, since, "v2", 2).await;
        namespace.apply(&worker).await;
    }
    if by_config {
        // It is gone, or this daemon finds nothing to give back.
        eventually("it to be given back", async || {
            let x = namespace.deployment(X).await;
            let state = namespace
                .pod_templates()
                .get_opt("orders-worker-volery")
                .await;
            let gone = matches!(state, Ok(None));
            ensure(
                gone && x.spec.and_then(|spec| spec.paused) != Some(true),
                || "it is not".to_owned(),
            )
        })
        .await;
        nothing_of_ours(&namespace).await;
    } else {
        by_order_or_again(&namespace, &base, since).await;
    }
    if history {
        untouched(&namespace, since).await;
        if by_config {
            assert_eq!(tags(&namespace).await, ["h1", "h2", "v1"]);
        }
    }
    let x = namespace.deployment(X).await;
    if history {
        assert_eq!(but_for_the_pause(&x), as_it_was);
    }
    assert_eq!(
        but_for_the_pause(&x)["spec"]["template"]["spec"]["containers"][0]["image"],
        worker.image()
    );
    no_other_pods(&namespace, X).await;
    base.daemon.kill().await;
    scene.done(&namespace).await;
    hold.writes()
}

/// An order of which the last write was done is forgotten with the state object: a daemon that starts then takes the service on, as its
/// configuration says. Either way nothing is half done.
async fn by_order_or_again(namespace: &Namespace, base: &Base, since: Instant) {
    let told = |text: &str| {
        let log = base.daemon.log();
        log.iter()
            .any(|line| line.at >= since && line.text.contains(text))
    };
    let again = || told("orders-worker: registered: 4 replicas");
    eventually("it to be given back, or registered again", async || {
        ensure(told(RELEASED) || again(), || "it is neither".to_owned())
    })
    .await;
    if again() {
        at_rest(namespace, X, "v1", 4).await;
    } else {
        nothing_of_ours(namespace).await;
    }
}
