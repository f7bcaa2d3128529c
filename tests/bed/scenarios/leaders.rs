//! Two daemons for the same services: one acts, the other stands by (K10, K54).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    base::{Base, Since},
    promises::{self, at_rest, envelope, started, step},
    promoted::STEPS,
};
use crate::{
    daemon::{Daemon, Setup},
    namespace::Namespace,
    scene::{Scene, Trials},
    worker::Worker,
};

const NAME: &str = "orders-worker";

/// Longer than a leader's term and than the Lease lasts.
const ASLEEP: Duration = Duration::from_secs(20);

pub fn register(trials: &mut Trials) {
    trials.add(
        "leaders: two daemons write what one writes, and each step once (K10)",
        both,
    );
    trials.add(
        "leaders: the leader is killed at (4,6), the other goes on from there (K10)",
        killed,
    );
    trials.add(
        "leaders: a leader that was stopped for longer than its term writes nothing more (K54)",
        stopped,
    );
    trials.add(
        "leaders: a leader that is told to end gives the Lease up, one that is started again has it still",
        given_up,
    );
}

/// A registered worker, and the daemons that share it: `a` leads, `b` stands by.
struct Pair {
    namespace: Arc<Namespace>,
    worker: Worker,
    setup: Setup,
    a: Daemon,
    b: Daemon,
}

impl Pair {
    async fn registered(scene: &Scene, more: &str) -> Self {
        Self::of(Base::registered(scene, more).await).await
    }

    /// In place of a daemon that was alone.
    async fn of(base: Base) -> Self {
        let Base {
            namespace,
            worker,
            setup,
            daemon,
        } = base;
        assert!(daemon.terminate().await.success());
        let a = called(&namespace, &setup, "a").await;
        a.log_contains("leading: a has Lease ").await;
        a.log_contains("orders-worker: at rest").await;
        let b = called(&namespace, &setup, "b").await;
        b.log_contains("standing by: a leads").await;
        Self {
            namespace,
            worker,
            setup,
            a,
            b,
        }
    }

    /// Applies v2 and waits for the step (C,P); returns the moment before.
    async fn applied(&self, at: (i32, i32)) -> Since {
        let since = Since::now(&self.namespace, &self.a).await;
        self.namespace.apply(&self.worker.clone().tag("v2")).await;
        step(&self.namespace, NAME, since.at, at).await;
        since
    }

    /// v2 is promoted, each step taken once, each pod started once.
    async fn promoted(&self, since: Since) {
        at_rest(&self.namespace, NAME, "v2", 10).await;
        assert_eq!(self.namespace.recorder.steps(NAME, since.at), STEPS);
        started(&self.namespace, since.at, &[("v2", 10)]).await;
        envelope(&self.namespace, since.at, 10, 2).await;
    }
}

/// Starts a daemon under this name.
async fn called(namespace: &Namespace, setup: &Setup, identity: &str) -> Daemon {
    let mut setup = setup.clone();
    let words = ["--lease", "volery", "--identity", identity];
    setup.extra_args.extend(words.map(str::to_owned));
    namespace.daemon(&setup).await
}

/// The daemons' writes so far that do something to a Deployment, by object.
async fn deeds(namespace: &Namespace) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for write in promises::deeds(namespace).await {
        if write.resource() == "deployments" {
            *counts
                .entry(format!("{} {}", write.verb, write.name()))
                .or_default() += 1;
        }
    }
    counts
}

async fn both(scene: Arc<Scene>) {
    let base = Base::registered(&scene, "").await;
    let before = deeds(&base.namespace).await;
    let since = base.now().await;
    base.namespace.apply(&base.worker.clone().tag("h2")).await;
    at_rest(&base.namespace, NAME, "h2", 10).await;
    started(&base.namespace, since, &[("h2", 10)]).await;
    let after_one = deeds(&base.namespace).await;

    let pair = Pair::of(base).await;
    let since = pair.applied((2, 8)).await;
    pair.promoted(since).await;
    let after_two = deeds(&pair.namespace).await;
    for (what, two) in &after_two {
        let count =
            |counts: &BTreeMap<String, usize>| counts.get(what).copied().unwrap_or_default();
        assert_eq!(
            two - count(&after_one),
            count(&after_one) - count(&before),
            "{what}: {after_one:?}, {after_two:?}"
        );
    }
}

async fn killed(scene: Arc<Scene>) {
    let mut pair = Pair::registered(&scene, "max_step_duration: 4s").await;
    let since = pair.applied((4, 6)).await;
    pair.a.kill().await;
    pair.b.log_contains("leading: b has Lease ").await;
    pair.a = called(&pair.namespace, &pair.setup, "a").await;
    pair.a.log_contains("standing by: b leads").await;
    pair.promoted(since).await;
}

async fn stopped(scene: Arc<Scene>) {
    let mut pair = Pair::registered(&scene, "max_step_duration: 4s").await;
    let since = pair.applied((2, 8)).await;
    pair.a.signal("STOP").await;
    let slept = tokio::time::sleep(ASLEEP);
    pair.b.log_contains("leading: b has Lease ").await;
    slept.await;
    pair.a.signal("CONT").await;
    let status = pair.a.ended().await;
    assert!(!status.success(), "it ends, to be started again: {status}");
    pair.a.log_contains("no longer leading: ").await;
    pair.promoted(since).await;
}

async fn given_up(scene: Arc<Scene>) {
    let mut pair = Pair::registered(&scene, "").await;
    assert!(pair.a.terminate().await.success());
    pair.b.log_contains("leading: b has Lease ").await;
    pair.b.log_contains("orders-worker: at rest").await;
    // The same name again is the same pod, whose container was started again.
    pair.b.kill().await;
    let since = pair.namespace.now().await;
    pair.b = called(&pair.namespace, &pair.setup, "b").await;
    pair.b
        .log_contains_since(since, "leading: b has Lease ")
        .await;
    pair.a = called(&pair.namespace, &pair.setup, "a").await;
    pair.a.log_contains("standing by: b leads").await;
    let since = pair.applied((2, 8)).await;
    pair.promoted(since).await;
}
