//! What most scenarios start from: the BASE of the cases, with a daemon that watches over it, and where it has come to.

use std::sync::Arc;

use tokio::time::Instant;

use super::promises::at_rest;
use crate::{
    daemon::{Daemon, Setup},
    kubelet::Behaviour,
    namespace::Namespace,
    prometheus::{Answer, Stub},
    scene::{LAG, Scene},
    wait::eventually,
    worker::Worker,
};

/// BASE's Deployment.
const NAME: &str = "orders-worker";

/// A moment in a namespace: for questions to the recorder, and for log lines that come after it.
#[derive(Clone, Copy, Debug)]
pub struct Since {
    pub at: Instant,
    lines: usize,
}

impl Since {
    pub async fn now(namespace: &Namespace, daemon: &Daemon) -> Self {
        Self {
            at: namespace.now().await,
            lines: daemon.log().len(),
        }
    }

    /// Waits for a line with this text after this moment, and returns the moment after that line.
    pub async fn log(self, daemon: &Daemon, text: &str) -> Self {
        eventually(&format!("a new log line with {text:?}"), async || {
            let log = daemon.log();
            let found = log
                .iter()
                .skip(self.lines)
                .position(|line| line.text.contains(text));
            found
                .map(|index| Self {
                    at: Instant::now(),
                    lines: self.lines + index + 1,
                })
                .ok_or_else(|| {
                    let last = log.last().map_or("", |line| &line.text);
                    format!("the last of {} lines is {last:?}", log.len())
                })
        })
        .await
    }

    /// The lines after this moment.
    pub fn lines(self, daemon: &Daemon) -> Vec<String> {
        daemon
            .log()
            .into_iter()
            .skip(self.lines)
            .map(|line| line.text)
            .collect()
    }
}

/// Whether a daemon runs while people work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Kept,
    /// Killed before, started again afterwards.
    Down,
}

impl Watch {
    pub const BOTH: [Self; 2] = [Self::Kept, Self::Down];

    /// What a trial's name says of it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Kept => "",
            Self::Down => ", while no daemon runs",
        }
    }
}

/// A registered worker, at rest.
pub struct Base {
    pub namespace: Arc<Namespace>,
    pub worker: Worker,
    pub setup: Setup,
    pub daemon: Daemon,
}

/// The configuration of BASE with short durations, against this Prometheus; `more` is added to the entry.
pub fn config(namespace: &Namespace, prometheus: &str, more: &str) -> String {
    format!(
        "prometheus-base-url: {prometheus}\nnamespace: {}\npoll-interval: 1s\n{}",
        namespace.name,
        entry(namespace, NAME, more)
    )
}

/// The configuration of a file in which BASE's entry is missing and another one, of no Deployment, is present.
fn config_without_it(namespace: &Namespace) -> String {
    config(namespace, &namespace.bed.prometheus.url, "")
        .replace("orders-worker:", "another-worker:")
}

/// One entry of BASE, for a worker of this namespace. A key in `more` takes the place of BASE's.
pub fn entry(namespace: &Namespace, name: &str, more: &str) -> String {
    let defaults = [
        ("breakpoint", "50%"),
        ("step", "20%"),
        ("abort", "120s"),
        ("start_delay", "500ms"),
        ("max_step_duration", "2s"),
        ("check_success_step_duration", "500ms"),
        ("check_max_failures", "2"),
        ("no_data_grace", "20s"),
        ("inconclusive_timeout", "30s"),
    ];
    let given: Vec<&str> = more
        .lines()
        .filter_map(|line| line.split(':').next())
        .collect();
    let mut text = format!("{name}:\n");
    for (key, value) in defaults {
        if !given.contains(&key) {
            text.push_str(&format!("  {key}: {value}\n"));
        }
    }
    for line in more.lines() {
        text.push_str(&format!("  {line}\n"));
    }
    if !given.contains(&"success") {
        text.push_str(
            "  success:\n    - expr: my_errors{namespace=\"NS\", pod=\"<<pod>>\"} == 0\n",
        );
    }
    text.replace("NS", &namespace.name)
}

impl Base {
    /// Registers a running worker of ten replicas, judged by the bed's real Prometheus.
    pub async fn registered(scene: &Scene, more: &str) -> Self {
        let namespace = scene.namespace().await;
        let url = namespace.bed.prometheus.url.clone();
        Self::on(namespace, Worker::default(), &url, more).await
    }

    /// The same, with two older versions in its history, of tags `h1` and `h2`.
    pub async fn with_history(scene: &Scene) -> Self {
        let namespace = scene.namespace().await;
        namespace.history(&Worker::default()).await;
        let url = namespace.bed.prometheus.url.clone();
        Self::on(namespace, Worker::default(), &url, "").await
    }

    /// Registers this worker, judged by a stub.
    pub async fn stubbed(scene: &Scene, worker: Worker, more: &str) -> (Self, Stub) {
        let namespace = scene.namespace().await;
        let stub = namespace.prometheus_stub().await;
        let base = Self::on(namespace, worker, &stub.url(), more).await;
        (base, stub)
    }

    /// Registered, with a version v2 on it that failed: at rest on v1.
    pub async fn rejected(scene: &Scene) -> Self {
        let base = Self::registered(scene, "").await;
        base.namespace.set_metric("v2", "my_errors", 1.0);
        base.namespace.apply(&base.worker.clone().tag("v2")).await;
        base.daemon.log_contains("orders-worker: rejected: ").await;
        at_rest(&base.namespace, NAME, "v1", 10).await;
        base
    }

    /// Registers this worker in this namespace.
    pub async fn on(
        namespace: Arc<Namespace>,
        worker: Worker,
        prometheus: &str,
        more: &str,
    ) -> Self {
        namespace.running(&worker).await;
        Self::watched(namespace, worker, prometheus, more).await
    }

    /// Registers this worker, which runs already.
    pub async fn watched(
        namespace: Arc<Namespace>,
        worker: Worker,
        prometheus: &str,
        more: &str,
    ) -> Self {
        for tag in ["h1", "h2", "v1", "v2", "v3"] {
            namespace.set_metric(tag, "my_errors", 0.0);
        }
        let setup = namespace.daemon_setup(&config(&namespace, prometheus, more));
        let daemon = namespace.daemon(&setup).await;
        daemon.log_contains("orders-worker: at rest").await;
        Self {
            namespace,
            worker,
            setup,
            daemon,
        }
    }

    /// Takes the entry out of the configuration while no daemon runs, and starts one that gives the service back a second later.
    pub async fn left_out(self) -> Self {
        let Self {
            namespace,
            worker,
            mut setup,
            daemon,
        } = self;
        assert!(daemon.terminate().await.success());
        setup.write_config(&config_without_it(&namespace));
        setup.extra_args = vec!["--release-after".to_owned(), "1s".to_owned()];
        let daemon = namespace.daemon(&setup).await;
        Self {
            namespace,
            worker,
            setup,
            daemon,
        }
    }

    /// Lets people work. Whatever they do must be done when `work` ends.
    pub async fn meanwhile<F: Future<Output = ()>>(
        self,
        watch: Watch,
        work: impl FnOnce(Arc<Namespace>, Worker) -> F,
    ) -> Self {
        let Self {
            namespace,
            worker,
            setup,
            mut daemon,
        } = self;
        let work = work(Arc::clone(&namespace), worker.clone());
        match watch {
            Watch::Kept => work.await,
            Watch::Down => {
                daemon.kill().await;
                work.await;
                daemon = namespace.daemon(&setup).await;
            }
        }
        Self {
            namespace,
            worker,
            setup,
            daemon,
        }
    }

    /// The text of an order, by annotation, as a person gives it who has only kubectl.
    pub async fn annotate(&self, order: &str) {
        let object = format!("{NAME}-volery");
        let command = format!("volery.dev/command={order}");
        let words = ["annotate", "podtemplate", &object, &command];
        self.namespace.kubectl_ok(&words, None).await;
    }

    /// v2 is applied, whose pods never become ready, and has been given its first two. Returns the moment before.
    pub async fn hung(&self) -> Since {
        let since = Since::now(&self.namespace, &self.daemon).await;
        let hung = self
            .worker
            .clone()
            .tag("v2")
            .behaviour(Behaviour::NeverReady);
        self.namespace.apply(&hung).await;
        since
            .log(&self.daemon, "step 1/3: to canary 2, primary 8")
            .await;
        since
    }

    /// [`Self::annotate`], and waits until the log answers with this.
    pub async fn order(&self, order: &str, answer: &str) -> Since {
        let since = Since::now(&self.namespace, &self.daemon).await;
        self.annotate(order).await;
        since
            .log(&self.daemon, &format!("{NAME}: {order} {answer}"))
            .await
    }

    /// Now, for questions to the recorder.
    pub async fn now(&self) -> Instant {
        self.namespace.now().await
    }
}

/// `kubectl rollout undo` of a service that was just given back. Not before the controller-manager has seen the older ReplicaSets come
/// back to X, also where its watch is late: it would make another of the same version beside them.
pub async fn undo(namespace: &Namespace) {
    tokio::time::sleep(LAG * 4).await;
    namespace
        .kubectl_ok(&["rollout", "undo", "deployment/orders-worker"], None)
        .await;
}

/// A registered worker whose rollouts can be held at a step: checks that get no answer neither advance nor fail it (promise 4).
pub struct Held {
    pub base: Base,
    pub stub: Stub,
}

impl Held {
    pub async fn registered(scene: &Scene) -> Self {
        Self::on(scene, Worker::default(), "").await
    }

    /// Registers this worker; `more` is added to the entry.
    pub async fn on(scene: &Scene, worker: Worker, more: &str) -> Self {
        let namespace = scene.namespace().await;
        namespace.running(&worker).await;
        Self::watched(namespace, worker, more).await
    }

    /// Registers this worker, which runs already.
    pub async fn watched(namespace: Arc<Namespace>, worker: Worker, more: &str) -> Self {
        let stub = namespace.prometheus_stub().await;
        let more = format!("inconclusive_timeout: 120s\n{more}");
        let base = Base::watched(namespace, worker, &stub.url(), &more).await;
        Self { base, stub }
    }

    /// [`Base::meanwhile`].
    pub async fn meanwhile<F: Future<Output = ()>>(
        self,
        watch: Watch,
        work: impl FnOnce(Arc<Namespace>, Worker) -> F,
    ) -> Self {
        let Self { base, stub } = self;
        let base = base.meanwhile(watch, work).await;
        Self { base, stub }
    }

    /// The rollout of v2 is held at the step with this canary and primary. Returns with it the moments before v2 was applied, and when it
    /// was held.
    pub async fn at(scene: &Scene, canary: usize, primary: usize) -> (Self, Since, Since) {
        let held = Self::registered(scene).await;
        let base = &held.base;
        let since = Since::now(&base.namespace, &base.daemon).await;
        base.namespace.apply(&base.worker.clone().tag("v2")).await;
        let at = held.hold_at(since, canary, primary).await;
        (held, since, at)
    }

    /// Lets the open rollout come to the step with this canary and primary, as its log says, and holds it there.
    pub async fn hold_at(&self, since: Since, canary: usize, primary: usize) -> Since {
        let daemon = &self.base.daemon;
        since
            .log(daemon, &format!("to canary {canary}, primary {primary}"))
            .await;
        self.stub.answers(Answer::Never);
        since
            .log(
                daemon,
                &format!("canary {canary}/{canary} available, primary {primary}, checking"),
            )
            .await
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.stub.answers(Answer::Real);
    }
}
