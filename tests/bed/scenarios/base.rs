//! What most scenarios start from: the BASE of the cases, with a daemon that watches over it.

use std::sync::Arc;

use tokio::time::Instant;

use crate::{
    daemon::{Daemon, Setup},
    namespace::Namespace,
    scene::Scene,
    worker::Worker,
};

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
        entry("orders-worker", more)
    )
}

/// One entry of BASE. A key in `more` takes the place of BASE's.
pub fn entry(name: &str, more: &str) -> String {
    let defaults = [
        ("breakpoint", "50%"),
        ("step", "20%"),
        ("abort", "30s"),
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
    text
}

impl Base {
    /// Registers a running worker of ten replicas, judged by the bed's real Prometheus.
    pub async fn registered(scene: &Scene, more: &str) -> Self {
        let namespace = scene.namespace().await;
        let url = namespace.bed.prometheus.url.clone();
        Self::on(namespace, Worker::default(), &url, more).await
    }

    /// Registers this worker in this namespace.
    pub async fn on(
        namespace: Arc<Namespace>,
        worker: Worker,
        prometheus: &str,
        more: &str,
    ) -> Self {
        for tag in ["v1", "v2", "v3"] {
            namespace.set_metric(tag, "my_errors", 0.0);
        }
        namespace.running(&worker).await;
        let text = config(&namespace, prometheus, more).replace("NS", &namespace.name);
        let setup = namespace.daemon_setup(&text);
        let daemon = namespace.daemon(&setup).await;
        daemon.log_contains("orders-worker: at rest").await;
        Self {
            namespace,
            worker,
            setup,
            daemon,
        }
    }

    /// Now, for questions to the recorder.
    pub async fn now(&self) -> Instant {
        self.namespace.now().await
    }
}
