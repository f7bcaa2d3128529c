//! Orders by annotation, as a person gives them who has only kubectl: abort and promote, retry, bypass, restart and undo, in the situations
//! that matter; and what the configuration takes as a bypass.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::json;

use super::{
    base::{Base, Held, Since},
    between::Hold,
    promises::{
        at_rest, deeds, envelope, never_more_of, never_more_than, no_other_pods, quiet, started,
        stash, stopped, untouched,
    },
    promoted::STEPS,
};
use crate::{
    kubelet::Behaviour,
    namespace::uid,
    scene::{Scene, Trials},
};

const X: &str = "orders-worker";
const NOTHING: &str = "refused: nothing in progress";
const V2: &str = "at rest: 10 replicas of registry.example/orders-worker:v2";
const ABORTED: &str = "orders-worker: rejected: registry.example/orders-worker:v2 ";

/// Long enough that a restless daemon would have done something.
const A_WHILE: Duration = Duration::from_secs(3);

pub fn register(trials: &mut Trials) {
    trials.add(
        "bypass: orders at rest write to no Deployment, and none is remembered (K11)",
        at_rest_nothing,
    );
    for (canary, primary) in [(2, 8), (4, 6), (5, 5)] {
        trials.add(
            format!("bypass: abort at ({canary},{primary}) leaves nothing (K26)"),
            async move |scene| abort_at(&scene, canary, primary).await,
        );
    }
    for canary in [7, 9] {
        trials.add(
            format!(
                "bypass: abort past the breakpoint, at {canary} canary pods, leaves nothing (K26)"
            ),
            async move |scene| {
                let write = format!("\"value\":{canary}");
                abort_after(&scene, "PATCH deployments/orders-worker-canary ", &write).await;
            },
        );
    }
    trials.add(
        "bypass: abort between the last scale-up and the handover (K27)",
        async |scene| abort_after(&scene, "PATCH podtemplates/", "handing-over").await,
    );
    trials.add(
        "bypass: abort after the handover is too late (K27)",
        too_late,
    );
    trials.add(
        "bypass: abort while pods never get ready (K27)",
        never_ready,
    );
    trials.add_with_lags("bypass: promote skips the checks that are left", promote);
    trials.add(
        "bypass: promote does not skip availability (K12)",
        unavailable,
    );
    trials.add(
        "bypass: retry tries a rejected version again, from its first step",
        retry,
    );
    trials.add_with_lags(
        "bypass: a rejected version is rolled out without checks, step by step",
        bypass,
    );
    trials.add(
        "bypass: one that fails is told and not tried again",
        failing,
    );
    trials.add(
        "bypass: a new version in the middle of one is not waved through",
        not_waved_through,
    );
    trials.add_with_lags("bypass: restart replaces every pod once (K35)", restart);
    trials.add(
        "bypass: restart and undo are refused while a rollout is open (K35)",
        refused_while_open,
    );
    trials.add_with_lags("bypass: undo, and undo to a revision", undo);
    trials.add(
        "bypass: undo of a version that failed touches no pod",
        undo_of_rejected,
    );
    trials.add("bypass: known_good", known_good);
    trials.add("bypass: canary_on: containers", containers);
}

async fn at_rest_nothing(scene: Arc<Scene>) {
    let base = Base::registered(&scene, "").await;
    let namespace = &base.namespace;
    let since = base.now().await;
    let before = deeds(namespace).await.len();
    for (order, answer) in [
        ("abort", NOTHING),
        ("resume", NOTHING),
        ("promote", NOTHING),
        ("retry", "refused: nothing to try again"),
        ("bypass", "refused: nothing to roll out"),
        (
            "undo",
            "refused: there is no earlier version in the history",
        ),
        ("explode", "refused: "),
    ] {
        for _ in 0..2 {
            base.order(order, answer).await;
        }
    }
    let writes = deeds(namespace).await.split_off(before);
    let to: BTreeSet<String> = writes.iter().map(|write| write.resource()).collect();
    assert_eq!(
        to,
        BTreeSet::from(["podtemplates".to_owned()]),
        "{writes:?}"
    );
    untouched(namespace, since).await;
    quiet(namespace, A_WHILE).await;
    let good = base.now().await;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    base.daemon
        .log_contains("rollout 1: new template, 3 checked steps")
        .await;
    base.daemon.log_contains(V2).await;
    at_rest(namespace, X, "v2", 10).await;
    started(namespace, good, &[("v2", 10)]).await;
    assert_eq!(namespace.recorder.steps(X, good), STEPS);
}

/// After an abort: the accepted version in full strength, nothing of the other, and nothing of it again.
async fn aborted(base: &Base, since: Since, canary: usize) {
    let namespace = &base.namespace;
    since.log(&base.daemon, ABORTED).await;
    at_rest(namespace, X, "v1", 10).await;
    no_other_pods(namespace, X).await;
    never_more_of(namespace, since.at, "v2", canary).await;
    // Both numbers are written at once (K04): R and C at most while the controllers follow.
    never_more_than(namespace, since.at, 10 + canary.max(2)).await;
    quiet(namespace, A_WHILE).await;
}

async fn abort_at(scene: &Scene, canary: usize, primary: usize) {
    let (held, since, _) = Held::at(scene, canary, primary).await;
    let base = &held.base;
    let namespace = &base.namespace;
    let kept = namespace.deployment("orders-worker-primary").await;
    let kept: Vec<String> = namespace.pods_of(&kept).await.iter().map(uid).collect();
    base.order("abort", "done: back to the accepted version")
        .await;
    aborted(base, since, canary).await;
    let pods = namespace.pods_of(&namespace.deployment(X).await).await;
    let pods: Vec<String> = pods.iter().map(uid).collect();
    assert!(
        kept.iter().all(|uid| pods.contains(uid)),
        "{kept:?} not all in {pods:?}"
    );
    started(namespace, since.at, &[("v1", canary), ("v2", canary)]).await;
}

async fn abort_after(scene: &Scene, begins: &'static str, contains: &str) {
    let base = Base::registered(scene, "").await;
    let namespace = &base.namespace;
    let since = Since::now(namespace, &base.daemon).await;
    let contains = contains.to_owned();
    let hold = Hold::after_first(namespace, move |write| {
        write.starts_with(begins) && write.contains(&contains)
    });
    namespace.apply(&base.worker.clone().tag("v2")).await;
    tokio::time::timeout(Duration::from_secs(60), hold.reached())
        .await
        .expect("such a write");
    base.annotate("abort").await;
    hold.open();
    since
        .log(&base.daemon, "abort done: back to the accepted version")
        .await;
    aborted(&base, since, 10).await;
}

async fn too_late(scene: Arc<Scene>) {
    let base = Base::registered(&scene, "").await;
    let namespace = &base.namespace;
    let since = Since::now(namespace, &base.daemon).await;
    let hold = Hold::after_first(namespace, |write| {
        write.starts_with("PATCH replicasets/") && write.contains("\"name\":\"orders-worker\"")
    });
    namespace.apply(&base.worker.clone().tag("v2")).await;
    tokio::time::timeout(Duration::from_secs(60), hold.reached())
        .await
        .expect("such a write");
    base.annotate("abort").await;
    hold.open();
    since
        .log(&base.daemon, "abort refused: too late: the new version is accepted; to go back: volery undo orders-worker")
        .await;
    at_rest(namespace, X, "v2", 10).await;
    started(namespace, since.at, &[("v2", 10)]).await;
}

async fn never_ready(scene: Arc<Scene>) {
    let base = Base::registered(&scene, "abort: 10m").await;
    let namespace = &base.namespace;
    let since = base.hung().await;
    base.order("abort", "done: back to the accepted version")
        .await;
    aborted(&base, since, 2).await;
    started(namespace, since.at, &[("v2", 2)]).await;
    stopped(namespace, since.at, &[("v2", 2)]).await;
}

async fn promote(scene: Arc<Scene>) {
    let (held, since, at) = Held::at(&scene, 2, 8).await;
    let (base, namespace) = (&held.base, &held.base.namespace);
    base.order("promote", "done: the remaining checks are skipped")
        .await;
    // Prometheus still says nothing.
    at.log(&base.daemon, V2).await;
    at_rest(namespace, X, "v2", 10).await;
    started(namespace, since.at, &[("v2", 10)]).await;
    envelope(namespace, since.at, 10, 2).await;
}

async fn unavailable(scene: Arc<Scene>) {
    let base = Base::registered(&scene, "abort: 6s").await;
    let namespace = &base.namespace;
    let since = base.hung().await;
    base.order("promote", "done: the remaining checks are skipped")
        .await;
    since
        .log(&base.daemon, "failed: canary pods not available in time")
        .await;
    aborted(&base, since, 2).await;
    stopped(namespace, since.at, &[("v2", 2)]).await;
}

async fn retry(scene: Arc<Scene>) {
    let base = Base::rejected(&scene).await;
    let namespace = &base.namespace;
    // Still bad: rejected a second time.
    base.order(
        "retry",
        "done: the rejected version is tried again from its first step",
    )
    .await
    .log(&base.daemon, "rollout 2: new template, 3 checked steps")
    .await
    .log(&base.daemon, ABORTED)
    .await;
    at_rest(namespace, X, "v1", 10).await;
    quiet(namespace, A_WHILE).await;
    // What was wrong was elsewhere, and is put right.
    namespace.set_metric("v2", "my_errors", 0.0);
    let again = base.now().await;
    base.order("retry", "done: ")
        .await
        .log(&base.daemon, V2)
        .await;
    at_rest(namespace, X, "v2", 10).await;
    started(namespace, again, &[("v2", 10)]).await;
    assert_eq!(namespace.recorder.steps(X, again), STEPS);
}

/// The numbers of a rollout of ten without checks: as far as there is something to be gained from the breakpoint, there is none.
const UNCHECKED: [(i32, i32); 11] = [
    (0, 10),
    (2, 10),
    (2, 8),
    (4, 8),
    (4, 6),
    (6, 6),
    (6, 4),
    (8, 4),
    (8, 2),
    (10, 2),
    (10, 0),
];

async fn bypass(scene: Arc<Scene>) {
    let base = Base::rejected(&scene).await;
    let namespace = &base.namespace;
    let since = base.now().await;
    base.order("bypass", "done: it is rolled out without checks")
        .await
        .log(
            &base.daemon,
            "rollout 2: new template, 5 steps to 10 without checks (as ordered)",
        )
        .await
        .log(&base.daemon, V2)
        .await;
    at_rest(namespace, X, "v2", 10).await;
    started(namespace, since, &[("v2", 10)]).await;
    stopped(namespace, since, &[("v1", 10)]).await;
    envelope(namespace, since, 10, 2).await;
    assert_eq!(namespace.recorder.steps(X, since), UNCHECKED);
    // It is the accepted version now, and the next one is checked as ever.
    namespace.apply(&base.worker.clone().tag("v3")).await;
    base.daemon
        .log_contains("rollout 3: new template, 3 checked steps")
        .await;
}

async fn failing(scene: Arc<Scene>) {
    let base = Base::registered(&scene, "abort: 4s").await;
    let namespace = &base.namespace;
    let since = Since::now(namespace, &base.daemon).await;
    let hung = base
        .worker
        .clone()
        .tag("v2")
        .behaviour(Behaviour::NeverReady);
    namespace.apply(&hung).await;
    since.log(&base.daemon, ABORTED).await;
    at_rest(namespace, X, "v1", 10).await;
    let again = Since::now(namespace, &base.daemon).await;
    base.order("bypass", "done: it is rolled out without checks")
        .await;
    again
        .log(
            &base.daemon,
            "failed: canary pods not available in time: 0 of 2 canary pods",
        )
        .await;
    aborted(&base, again, 2).await;
    started(namespace, again.at, &[("v2", 2)]).await;
    let log = again.lines(&base.daemon).join("\n");
    assert!(!log.contains("rollout 3"), "{log}");
}

async fn not_waved_through(scene: Arc<Scene>) {
    let base = Base::rejected(&scene).await;
    let namespace = &base.namespace;
    namespace.set_metric("v3", "my_errors", 1.0);
    let since = Since::now(namespace, &base.daemon).await;
    let hold = Hold::after_first(namespace, |write| {
        write.starts_with("PATCH deployments/orders-worker-canary ")
            && write.contains("\"value\":6")
    });
    base.annotate("bypass").await;
    tokio::time::timeout(Duration::from_secs(60), hold.reached())
        .await
        .expect("such a write");
    namespace.apply(&base.worker.clone().tag("v3")).await;
    hold.open();
    since
        .log(&base.daemon, "superseded: a newer template came")
        .await
        .log(&base.daemon, "rollout 3: new template, 3 checked steps")
        .await
        .log(
            &base.daemon,
            "orders-worker: rejected: registry.example/orders-worker:v3 (",
        )
        .await;
    at_rest(namespace, X, "v1", 10).await;
    never_more_of(namespace, since.at, "v3", 2).await;
    quiet(namespace, A_WHILE).await;
}

async fn restart(scene: Arc<Scene>) {
    let base = Base::with_history(&scene).await;
    let namespace = &base.namespace;
    let kubectl = namespace
        .kubectl(&["rollout", "restart", "deployment/orders-worker"], None)
        .await;
    assert!(
        !kubectl.status.success(),
        "kubectl refuses to restart what is paused"
    );
    let since = base.now().await;
    let history = stash(namespace, X).await;
    base.order(
        "restart",
        "done: every pod is replaced by one of the same version",
    )
    .await
    .log(
        &base.daemon,
        "5 steps to 10 without checks (a restart, as ordered)",
    )
    .await
    .log(
        &base.daemon,
        "at rest: 10 replicas of registry.example/orders-worker:v1",
    )
    .await;
    at_rest(namespace, X, "v1", 10).await;
    started(namespace, since, &[("v1", 10)]).await;
    stopped(namespace, since, &[("v1", 10)]).await;
    envelope(namespace, since, 10, 2).await;
    let x = namespace.deployment(X).await;
    let template = x
        .spec
        .and_then(|spec| spec.template.metadata)
        .and_then(|metadata| metadata.annotations);
    let restarted = template.and_then(|annotations| {
        annotations
            .get("kubectl.kubernetes.io/restartedAt")
            .cloned()
    });
    assert!(restarted.is_some(), "as kubectl would have written it");
    let after: Vec<String> = stash(namespace, X)
        .await
        .into_iter()
        .map(|(tag, _)| tag)
        .collect();
    assert_eq!(after, ["h1", "h2", "v1"], "{history:?}");
    quiet(namespace, A_WHILE).await;
    // The next version is checked as ever. Its manifest does not name restartedAt, and kubectl leaves it.
    let next = base.now().await;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    base.daemon
        .log_contains("rollout 2: new template, 3 checked steps")
        .await;
    base.daemon.log_contains(V2).await;
    at_rest(namespace, X, "v2", 10).await;
    started(namespace, next, &[("v2", 10)]).await;
}

async fn refused_while_open(scene: Arc<Scene>) {
    let (held, since, at) = Held::at(&scene, 4, 6).await;
    let (base, namespace) = (&held.base, &held.base.namespace);
    base.order(
        "restart",
        "refused: a rollout is open: a restart has to wait for its end",
    )
    .await;
    base.order(
        "undo",
        "refused: a rollout is open: an undo has to wait for its end",
    )
    .await;
    base.order("retry", "refused: nothing to try again").await;
    untouched(namespace, at.at).await;
    held.go_on();
    at.log(&base.daemon, V2).await;
    at_rest(namespace, X, "v2", 10).await;
    started(namespace, since.at, &[("v2", 10)]).await;
}

async fn undo(scene: Arc<Scene>) {
    let base = Base::with_history(&scene).await;
    let namespace = &base.namespace;
    let mut before = base.now().await;
    base.order("undo to=3", "refused: that revision is what runs")
        .await;
    base.order("undo to=7", "refused: the history has revisions 2, 1")
        .await;
    for (order, version, runs) in [("undo", "h2", "v1"), ("undo to=1", "h1", "h2")] {
        let image = format!("at rest: 10 replicas of registry.example/orders-worker:{version}");
        base.order(order, "done: back to revision ")
            .await
            .log(
                &base.daemon,
                "5 steps to 10 without checks (an undo, as ordered)",
            )
            .await
            .log(&base.daemon, &image)
            .await;
        at_rest(namespace, X, version, 10).await;
        started(namespace, before, &[(version, 10)]).await;
        stopped(namespace, before, &[(runs, 10)]).await;
        envelope(namespace, before, 10, 2).await;
        before = base.now().await;
    }
    // Each version once, as Kubernetes does it: what came back has the highest number.
    let kept: Vec<String> = stash(namespace, X)
        .await
        .into_iter()
        .map(|(tag, _)| tag)
        .collect();
    assert_eq!(kept, ["v1", "h2"]);
    quiet(namespace, A_WHILE).await;
}

async fn undo_of_rejected(scene: Arc<Scene>) {
    let base = Base::rejected(&scene).await;
    let namespace = &base.namespace;
    let since = base.now().await;
    base.order(
        "undo",
        "done: the Deployment gets the accepted template again; no pod is touched",
    )
    .await
    .log(
        &base.daemon,
        "at rest: 10 replicas of registry.example/orders-worker:v1",
    )
    .await;
    at_rest(namespace, X, "v1", 10).await;
    let x = namespace.deployment(X).await;
    let template = json!(x.spec.map(|spec| spec.template));
    assert_eq!(
        template["spec"]["containers"][0]["image"],
        base.worker.image()
    );
    untouched(namespace, since).await;
    quiet(namespace, A_WHILE).await;
}

async fn known_good(scene: Arc<Scene>) {
    let base = Base::registered(&scene, "known_good: bypass").await;
    let namespace = &base.namespace;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    base.daemon
        .log_contains("rollout 1: new template, 3 checked steps")
        .await;
    base.daemon.log_contains(V2).await;
    at_rest(namespace, X, "v2", 10).await;
    let since = base.now().await;
    namespace.apply(&base.worker).await;
    base.daemon
        .log_contains("rollout 2: new template, 5 steps to 10 without checks (it ran before, and known_good is bypass)")
        .await;
    base.daemon
        .log_contains_since(
            since,
            "at rest: 10 replicas of registry.example/orders-worker:v1",
        )
        .await;
    at_rest(namespace, X, "v1", 10).await;
    started(namespace, since, &[("v1", 10)]).await;
    envelope(namespace, since, 10, 2).await;
}

async fn containers(scene: Arc<Scene>) {
    let base = Base::registered(&scene, "canary_on: containers").await;
    let namespace = &base.namespace;
    let since = base.now().await;
    // A pod's grace period is no container's business.
    let other = base
        .worker
        .clone()
        .pod_spec(json!({"terminationGracePeriodSeconds": 20}));
    namespace.apply(&other).await;
    base.daemon
        .log_contains("rollout 1: new template, 5 steps to 10 without checks (its containers are the same, and canary_on is containers)")
        .await;
    base.daemon
        .log_contains_since(
            since,
            "at rest: 10 replicas of registry.example/orders-worker:v1",
        )
        .await;
    at_rest(namespace, X, "v1", 10).await;
    started(namespace, since, &[("v1", 10)]).await;
    envelope(namespace, since, 10, 2).await;
    namespace.apply(&other.tag("v2")).await;
    base.daemon
        .log_contains("rollout 2: new template, 3 checked steps")
        .await;
    base.daemon.log_contains(V2).await;
    at_rest(namespace, X, "v2", 10).await;
}
