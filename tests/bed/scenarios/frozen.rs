//! Forward only: what failed stands still, and the next version replaces the frozen canary in place (K29).

use std::{fmt::Write as _, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    base::{Base, Since},
    between::{Hold, at_every_write},
    leaving::nothing_of_ours,
    promises::{
        at_rest, envelope, never_more_of, never_more_than, quiet, started, stash, step, untouched,
    },
};
use crate::{
    kubelet::Behaviour,
    namespace::Namespace,
    prometheus::Answer,
    scene::{Scene, Trials},
    wait::{ensure, eventually},
    worker::Worker,
};

const X: &str = "orders-worker";

/// Long enough that a restless daemon would have done something.
const A_WHILE: Duration = Duration::from_secs(3);

/// By the second step a bad version is known; one failed check is enough.
const FREEZE: &str = "on_failure: freeze\ncheck_max_failures: 1\nmax_step_duration: 5s";

pub fn register(trials: &mut Trials) {
    trials.add_with_lags(
        "frozen: at (4,6), followed by R alone, replaced in place and promoted (K29)",
        replaced,
    );
    trials.add(
        "frozen: the accepted template on X takes it back to where it was",
        cancelled,
    );
    trials.add(
        "frozen: a fix that is never available is frozen in its turn, and the next one gets through",
        twice,
    );
    trials.add(
        "frozen: resumed with good metrics it is checked again and promoted (K29)",
        async |scene| {
            let (base, at) = frozen(&scene).await;
            base.namespace.set_metric("v2", "my_errors", 0.0);
            base.order("resume", "done: the same version is checked again")
                .await;
            at.log(&base.daemon, "promoted: ").await;
            at_rest(&base.namespace, X, "v2", 10).await;
            started(&base.namespace, at.at, &[("v2", 6)]).await;
        },
    );
    trials.add(
        "frozen: promoted by hand it goes on without checks (K29)",
        async |scene| {
            let (base, at) = frozen(&scene).await;
            base.order("promote", "done: the remaining checks are skipped")
                .await;
            at_rest(&base.namespace, X, "v2", 10).await;
            started(&base.namespace, at.at, &[("v2", 6)]).await;
        },
    );
    trials.add(
        "frozen: aborted it goes back to the accepted version (K29)",
        async |scene| {
            let (base, at) = frozen(&scene).await;
            base.order("abort", "done: back to the accepted version")
                .await;
            at.log(&base.daemon, "rejected: ").await;
            at_rest(&base.namespace, X, "v1", 10).await;
            started(&base.namespace, at.at, &[("v1", 4)]).await;
        },
    );
    trials.add(
        "frozen: released by order it is given back with the accepted version (K06)",
        async |scene| {
            let (base, at) = frozen(&scene).await;
            base.order(
                "release template=accepted",
                "done: the service is given back",
            )
            .await;
            at.log(&base.daemon, "released: un-paused").await;
            started(&base.namespace, at.at, &[("v1", 4)]).await;
            nothing_of_ours(&base.namespace).await;
        },
    );
    trials.add(
        "frozen: killed after every single write of a replacement in place",
        async |scene| {
            at_every_write(15, |nth| replacement(Arc::clone(&scene), nth)).await;
        },
    );
}

/// A worker whose v2 failed at (4,6) and stands there.
async fn frozen(scene: &Scene) -> (Base, Since) {
    let base = Base::registered(scene, FREEZE).await;
    let since = Since::now(&base.namespace, &base.daemon).await;
    base.namespace.apply(&base.worker.clone().tag("v2")).await;
    step(&base.namespace, X, since.at, (4, 6)).await;
    base.namespace.set_metric("v2", "my_errors", 7.0);
    let at = since.log(&base.daemon, "frozen at step 2/3: ").await;
    (base, at)
}

/// How many pods of each version were alive and available, whenever that changed.
fn transcript(namespace: &Namespace, since: Instant) -> String {
    let mut told = String::new();
    let mut last = String::new();
    for (at, pods) in namespace.recorder.series(since) {
        let versions: Vec<String> = pods
            .by_tag
            .iter()
            .filter(|(_, (alive, _))| *alive > 0)
            .map(|(tag, (alive, available))| format!("{tag} {available}/{alive}"))
            .collect();
        let now = versions.join(", ");
        if now != last {
            let _ = writeln!(told, "{:7.2} s  {now}", (at - since).as_secs_f64());
            last = now;
        }
    }
    told
}

async fn replaced(scene: Arc<Scene>) {
    let (mut base, at) = frozen(&scene).await;
    let namespace = Arc::clone(&base.namespace);
    let stands = namespace.now().await;
    quiet(&namespace, A_WHILE).await;

    // A daemon that is started again finds it frozen, and leaves it so.
    base.daemon.kill().await;
    base.daemon = namespace.daemon(&base.setup).await;
    base.daemon.log_contains("frozen at step 2/3: ").await;
    quiet(&namespace, A_WHILE).await;
    untouched(&namespace, stands).await;

    // R goes up and down on the primary alone.
    for (replicas, count) in [(12, (4, 8)), (10, (4, 6))] {
        let before = namespace.now().await;
        namespace.scale(X, replicas).await;
        step(&namespace, X, before, count).await;
        let wanted = usize::try_from(replicas).unwrap();
        eventually(&format!("{wanted} pods"), async || {
            let (_, pods) = namespace
                .recorder
                .series(before)
                .pop()
                .expect("the first is there");
            ensure(pods.available == wanted && pods.terminating == 0, || {
                format!("{pods:?}")
            })
        })
        .await;
    }
    quiet(&namespace, A_WHILE).await;
    never_more_of(&namespace, at.at, "v2", 4).await;
    started(&namespace, stands, &[("v1", 2)]).await;

    let before = namespace.now().await;
    namespace.apply(&base.worker.clone().tag("v3")).await;
    base.daemon.log_contains("promoted: ").await;
    at_rest(&namespace, X, "v3", 10).await;
    println!(
        "replaced in place and promoted, available/alive:\n{}",
        transcript(&namespace, before)
    );
    started(&namespace, before, &[("v3", 10)]).await;
    envelope(&namespace, before, 10, 2).await;
    never_more_of(&namespace, before, "v1", 6).await;
    never_more_of(&namespace, before, "v2", 4).await;
    let versions = stash(&namespace, X).await;
    assert!(
        versions.iter().all(|(tag, _)| tag != "v2"),
        "what failed is no history: {versions:?}"
    );
}

async fn cancelled(scene: Arc<Scene>) {
    let (base, at) = frozen(&scene).await;
    base.namespace.apply(&base.worker).await;
    at.log(&base.daemon, "cancelled: ").await;
    at_rest(&base.namespace, X, "v1", 10).await;
    started(&base.namespace, at.at, &[("v1", 4)]).await;
    never_more_than(&base.namespace, at.at, 12).await;
}

async fn twice(scene: Arc<Scene>) {
    let base = Base::registered(&scene, &format!("{FREEZE}\nabort: 20s")).await;
    let namespace = &base.namespace;
    let since = Since::now(namespace, &base.daemon).await;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    step(namespace, X, since.at, (4, 6)).await;
    namespace.set_metric("v2", "my_errors", 7.0);
    let at = since.log(&base.daemon, "frozen at step 2/3: ").await;

    let broken = base.worker.clone().tag("v3");
    namespace
        .apply(&broken.behaviour(Behaviour::NeverReady))
        .await;
    let at = at
        .log(
            &base.daemon,
            "v3 failed (canary pods not available in time: ",
        )
        .await;
    quiet(namespace, A_WHILE).await;
    namespace.set_metric("v4", "my_errors", 0.0);
    namespace.apply(&base.worker.clone().tag("v4")).await;
    at.log(&base.daemon, "promoted: ").await;
    at_rest(namespace, X, "v4", 10).await;
    started(namespace, since.at, &[("v2", 4), ("v3", 1), ("v4", 10)]).await;
    envelope(namespace, since.at, 10, 2).await;
}

/// Four replicas, v2 frozen at (2,2) and replaced by v3, killed after the `nth` write from then on, if any; how many writes that took.
async fn replacement(scene: Arc<Scene>, nth: Option<usize>) -> usize {
    let worker = Worker::default().replicas(4);
    let settings = "on_failure: freeze\nstep: 50%\nstart_delay: 0s\nmax_step_duration: 200ms\n\
                    check_success_step_duration: 1s\ncheck_max_failures: 1\n\
                    success: [{expr: 'my_errors{pod=\"<<pod>>\"} == 0'}]";
    let (mut base, stub) = Base::stubbed(&scene, worker, settings).await;
    let namespace = Arc::clone(&base.namespace);
    stub.answers(Answer::Value(0.0));
    namespace.apply(&base.worker.clone().tag("v2")).await;
    base.daemon.log_contains("frozen at step 1/1: ").await;
    stub.answers(Answer::Value(1.0));

    let before = base.now().await;
    let hold = Hold::after(&namespace, nth);
    namespace.apply(&base.worker.clone().tag("v3")).await;
    let came_to = async {
        base.daemon.log_contains("rollout 2: ").await;
        at_rest(&namespace, X, "v3", 4).await;
    };
    if let Some(write) = hold.reached_before(came_to).await {
        base.daemon.kill().await;
        namespace.daemon_proxy.pass_all();
        base.daemon = namespace.daemon(&base.setup).await;
        namespace.note(&format!("killed after {write}"));
    }
    at_rest(&namespace, X, "v3", 4).await;
    started(&namespace, before, &[("v3", 4)]).await;
    envelope(&namespace, before, 4, 2).await;
    never_more_of(&namespace, before, "v1", 2).await;
    base.daemon.kill().await;
    scene.done(&namespace).await;
    hold.writes()
}
