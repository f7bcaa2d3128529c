//! Changes in the middle of a rollout: newer versions, the accepted one again, another number, another strategy, in every phase of it.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::{
    base::{Base, Held, Since},
    between::Hold,
    promises::{
        at_rest, deeds, envelope, never_beyond_the_step, never_more_of, never_more_than,
        no_other_pods, quiet, started, step, stopped,
    },
    promoted::STEPS,
};
use crate::{
    kubelet::Behaviour,
    namespace::uid,
    scene::{Scene, Trials},
    wait::{ensure, eventually},
    worker::Worker,
};

const X: &str = "orders-worker";
const SUPERSEDED: &str = "superseded: a newer template came";

/// Where a rollout of v2 is when something changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its first pods are not available yet.
    Raising,
    /// They wait `start_delay`.
    WarmingUp,
    /// Past the breakpoint.
    Finishing,
    /// All are its own; X has not got them yet.
    HandingOver,
}

impl Phase {
    const ALL: [Self; 4] = [
        Self::Raising,
        Self::WarmingUp,
        Self::Finishing,
        Self::HandingOver,
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::Raising => "while the first pods start",
            Self::WarmingUp => "while the first pods warm up",
            Self::Finishing => "past the breakpoint",
            Self::HandingOver => "before the handover",
        }
    }

    /// How many pods of v2 there are then.
    const fn canary(self) -> usize {
        match self {
            Self::Raising | Self::WarmingUp => 2,
            Self::Finishing => 7,
            Self::HandingOver => 10,
        }
    }

    const fn settings(self) -> &'static str {
        match self {
            Self::Raising => "abort: 60s",
            Self::WarmingUp => "start_delay: 8s",
            Self::Finishing | Self::HandingOver => "start_delay: 0s\nmax_step_duration: 1s",
        }
    }
}

pub fn register(trials: &mut Trials) {
    trials.add_with_lags(
        "changes: of several versions in quick succession the last alone is rolled out",
        async |scene| in_quick_succession(&scene).await,
    );
    for phase in Phase::ALL {
        trials.add(
            format!("changes: a newer version {}", phase.text()),
            async move |scene| changed(&scene, phase, "v3").await,
        );
        trials.add(
            format!("changes: the accepted version again {} (K05)", phase.text()),
            async move |scene| changed(&scene, phase, "v1").await,
        );
        trials.add(
            format!("changes: another number, 0, and back {}", phase.text()),
            async move |scene| scaled(&scene, phase).await,
        );
    }
    trials.add(
        "changes: the newer version's pods have all of abort's time",
        timers,
    );
    trials.add(
        "changes: failed checks are not held against the newer version",
        counters,
    );
    trials.add_with_lags(
        "changes: image and number in one apply, at rest and at (4,6)",
        async |scene| in_one_apply(&scene).await,
    );
    trials.add(
        "changes: the number changes while it is rolled back",
        while_rolled_back,
    );
    trials.add(
        "changes: strategy and minReadySeconds at rest and at (4,6) (K34)",
        strategy,
    );
}

async fn in_quick_succession(scene: &Scene) {
    let (held, since, at) = Held::at(scene, 4, 6).await;
    let (base, namespace) = (&held.base, &held.base.namespace);
    for tag in ["v3", "v4", "v5"] {
        namespace.set_metric(tag, "my_errors", 0.0);
        namespace.apply(&base.worker.clone().tag(tag)).await;
    }
    held.go_on();
    at.log(
        &base.daemon,
        "at rest: 10 replicas of registry.example/orders-worker:v5",
    )
    .await;
    at_rest(namespace, X, "v5", 10).await;
    no_other_pods(namespace, X).await;
    let promoted: Vec<String> = since
        .lines(&base.daemon)
        .into_iter()
        .filter(|line| line.contains("promoted: registry"))
        .collect();
    assert!(
        promoted.len() == 1 && promoted[0].contains(":v5 "),
        "{promoted:?}"
    );
    for tag in ["v3", "v4"] {
        never_more_of(namespace, since.at, tag, 2).await;
    }
    assert_eq!(namespace.recorder.starts(since.at).get("v5"), Some(&10));
    never_beyond_the_step(namespace, X, since.at).await;
    never_more_than(namespace, since.at, 12).await;
}

/// A rollout of v2 in this phase.
async fn open(scene: &Scene, phase: Phase) -> (Base, Option<Hold>, Since) {
    let base = Base::registered(scene, phase.settings()).await;
    let namespace = &base.namespace;
    let since = Since::now(namespace, &base.daemon).await;
    let mut worker = base.worker.clone().tag("v2");
    if phase == Phase::Raising {
        worker = worker.behaviour(Behaviour::NeverReady);
    }
    let hold = match phase {
        Phase::Raising | Phase::WarmingUp => None,
        Phase::Finishing => Some(Hold::after_first(namespace, |write| {
            write.starts_with("PATCH deployments/orders-worker-canary ")
                && write.contains("\"value\":7")
        })),
        Phase::HandingOver => Some(Hold::after_first(namespace, |write| {
            write.starts_with("PATCH podtemplates/") && write.contains("handing-over")
        })),
    };
    namespace.apply(&worker).await;
    match &hold {
        None if phase == Phase::Raising => {
            since
                .log(&base.daemon, "step 1/3: to canary 2, primary 8")
                .await;
        }
        None => {
            since
                .log(
                    &base.daemon,
                    "step 1/3: canary 2/2 available, primary 8, first check in 8s",
                )
                .await;
        }
        Some(hold) => {
            tokio::time::timeout(Duration::from_secs(90), hold.reached())
                .await
                .expect("such a write");
            if phase == Phase::Finishing {
                step(namespace, X, since.at, (7, 5)).await;
            }
        }
    }
    (base, hold, since)
}

async fn changed(scene: &Scene, phase: Phase, to: &str) {
    let (base, hold, since) = open(scene, phase).await;
    let namespace = &base.namespace;
    let primary = namespace.deployment("orders-worker-primary").await;
    let kept: Vec<String> = namespace.pods_of(&primary).await.iter().map(uid).collect();
    let at = base.now().await;
    namespace
        .apply(&base.worker.clone().well_behaved().tag(to))
        .await;
    if let Some(hold) = &hold {
        hold.open();
    }
    let told = if to == "v1" {
        "cancelled: the accepted template is wanted again"
    } else {
        SUPERSEDED
    };
    since
        .log(&base.daemon, told)
        .await
        .log(
            &base.daemon,
            &format!("at rest: 10 replicas of registry.example/orders-worker:{to}"),
        )
        .await;
    let pods = at_rest(namespace, X, to, 10).await;
    no_other_pods(namespace, X).await;
    never_more_of(namespace, since.at, "v2", phase.canary()).await;
    never_more_than(namespace, since.at, 12).await;
    if to == "v1" {
        assert!(
            kept.iter().all(|uid| pods.contains(uid)),
            "{kept:?} not all in {pods:?}"
        );
        let log = since.lines(&base.daemon).join("\n");
        assert!(!log.contains("failed"), "{log}");
    } else {
        let steps = namespace.recorder.steps(X, at);
        let again = steps.iter().rposition(|step| *step == (0, 10));
        assert_eq!(steps[again.unwrap_or_default()..], STEPS);
    }
    let log = since.lines(&base.daemon).join("\n");
    assert!(
        !log.contains("promoted: registry.example/orders-worker:v2"),
        "{log}"
    );
    quiet(namespace, Duration::from_secs(2)).await;
}

/// Up, down, to 0 and back; what R gains is the accepted version's.
async fn scaled(scene: &Scene, phase: Phase) {
    let (base, hold, since) = open(scene, phase).await;
    let namespace = &base.namespace;
    for replicas in [14, 6, 0, 10] {
        namespace.scale(X, replicas).await;
        if let Some(hold) = &hold {
            hold.open();
        }
        if replicas == 0 {
            eventually("no pod", async || {
                let now = namespace.now().await;
                let pods = namespace
                    .recorder
                    .series(now)
                    .pop()
                    .map(|(_, pods)| pods.alive);
                ensure(pods == Some(0), || format!("{pods:?}"))
            })
            .await;
        }
    }
    if phase == Phase::Raising {
        // Its pods are never ready: that is found out at the number that there is.
        namespace.turn(
            "v2",
            Behaviour::Ready {
                after: Duration::ZERO,
            },
        );
    }
    since
        .log(&base.daemon, "promoted: registry.example/orders-worker:v2")
        .await;
    at_rest(namespace, X, "v2", 10).await;
    no_other_pods(namespace, X).await;
    never_beyond_the_step(namespace, X, since.at).await;
    quiet(namespace, Duration::from_secs(2)).await;
}

async fn timers(scene: Arc<Scene>) {
    let base = Base::registered(&scene, "abort: 10s").await;
    let namespace = &base.namespace;
    let since = base.hung().await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    // Its own time is short enough, both together are not.
    let slow = Behaviour::Ready {
        after: Duration::from_secs(5),
    };
    namespace
        .apply(&base.worker.clone().tag("v3").behaviour(slow))
        .await;
    since
        .log(&base.daemon, SUPERSEDED)
        .await
        .log(
            &base.daemon,
            "at rest: 10 replicas of registry.example/orders-worker:v3",
        )
        .await;
    at_rest(namespace, X, "v3", 10).await;
    started(namespace, since.at, &[("v2", 2), ("v3", 10)]).await;
    envelope(namespace, since.at, 10, 2).await;
}

async fn counters(scene: Arc<Scene>) {
    // Every version fails one check and passes all others.
    let (base, stub) = Base::stubbed(
        &scene,
        Worker::default(),
        "max_step_duration: 4s\nbreakpoint: 20%",
    )
    .await;
    let namespace = &base.namespace;
    for (version, then) in [("v2", "v3"), ("v3", "")] {
        let since = Since::now(namespace, &base.daemon).await;
        if version == "v2" {
            namespace.apply(&base.worker.clone().tag(version)).await;
        }
        since
            .log(
                &base.daemon,
                "step 1/1: canary 2/2 available, primary 8, checking",
            )
            .await;
        stub.answers(crate::prometheus::Answer::Value(0.0));
        since
            .log(&base.daemon, "step 1/1: check failed (1 of 2)")
            .await;
        stub.answers(crate::prometheus::Answer::Value(1.0));
        if then.is_empty() {
            since
                .log(
                    &base.daemon,
                    "at rest: 10 replicas of registry.example/orders-worker:v3",
                )
                .await;
        } else {
            namespace.apply(&base.worker.clone().tag(then)).await;
            since.log(&base.daemon, SUPERSEDED).await;
        }
    }
    at_rest(namespace, X, "v3", 10).await;
}

async fn in_one_apply(scene: &Scene) {
    let (held, since, at) = Held::at(scene, 4, 6).await;
    let (base, namespace) = (&held.base, &held.base.namespace);
    namespace
        .apply(&base.worker.clone().tag("v3").replicas(14))
        .await;
    at.log(&base.daemon, SUPERSEDED).await;
    held.go_on();
    let after = at
        .log(
            &base.daemon,
            "at rest: 14 replicas of registry.example/orders-worker:v3",
        )
        .await;
    at_rest(namespace, X, "v3", 14).await;
    assert_eq!(namespace.recorder.starts(since.at).get("v3"), Some(&14));
    never_more_of(namespace, since.at, "v2", 4).await;
    never_beyond_the_step(namespace, X, since.at).await;

    // At rest: fewer, and another version.
    let before = namespace.now().await;
    namespace
        .apply(&base.worker.clone().tag("v2").replicas(6))
        .await;
    after
        .log(
            &base.daemon,
            "at rest: 6 replicas of registry.example/orders-worker:v2",
        )
        .await;
    at_rest(namespace, X, "v2", 6).await;
    started(namespace, before, &[("v2", 6)]).await;
    stopped(namespace, before, &[("v3", 14)]).await;
}

async fn while_rolled_back(scene: Arc<Scene>) {
    for replicas in [13, 4, 0] {
        let base = Base::registered(&scene, "").await;
        let namespace = &base.namespace;
        let since = Since::now(namespace, &base.daemon).await;
        namespace.set_metric("v2", "my_errors", 1.0);
        let hold = Hold::after_first(namespace, |write| {
            write.starts_with("PATCH deployments/orders-worker-canary ")
                && write.ends_with("\"value\":0}]")
        });
        namespace.apply(&base.worker.clone().tag("v2")).await;
        tokio::time::timeout(Duration::from_secs(60), hold.reached())
            .await
            .expect("such a write");
        namespace.scale(X, replicas).await;
        hold.open();
        at_rest(namespace, X, "v1", replicas).await;
        never_more_of(namespace, since.at, "v2", 2).await;
        quiet(namespace, Duration::from_secs(2)).await;
    }
}

async fn strategy(scene: Arc<Scene>) {
    let held = Held::registered(&scene).await;
    let (base, namespace) = (&held.base, &held.base.namespace);
    let spec = |surge: u32| json!({"strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1}}, "minReadySeconds": 1, "revisionHistoryLimit": 5});
    let writes = deeds(namespace).await.len();
    let since = Since::now(namespace, &base.daemon).await;
    namespace.apply(&base.worker.clone().spec(spec(2))).await;
    namespace.observed(X).await;
    quiet(namespace, Duration::from_secs(2)).await;
    assert_eq!(
        deeds(namespace).await.len(),
        writes,
        "at rest it is Kubernetes' business"
    );

    namespace
        .apply(&base.worker.clone().tag("v2").spec(spec(2)))
        .await;
    let at = held.hold_at(since, 4, 6).await;
    namespace
        .apply(&base.worker.clone().tag("v2").spec(spec(3)))
        .await;
    for clone in ["orders-worker-primary", "orders-worker-canary"] {
        eventually(&format!("{clone} to follow"), async || {
            let spec = json!(namespace.deployment(clone).await.spec);
            let now = (
                &spec["strategy"]["rollingUpdate"]["maxSurge"],
                &spec["minReadySeconds"],
            );
            ensure(now == (&json!(3), &json!(1)), || format!("{now:?}"))
        })
        .await;
    }
    step(namespace, X, at.at, (4, 6)).await;
    held.go_on();
    at.log(
        &base.daemon,
        "at rest: 10 replicas of registry.example/orders-worker:v2",
    )
    .await;
    at_rest(namespace, X, "v2", 10).await;
    started(namespace, since.at, &[("v2", 10)]).await;
    let x = json!(namespace.deployment(X).await.spec);
    assert_eq!(
        x["strategy"]["rollingUpdate"]["maxSurge"], 3,
        "the user's own"
    );
}
