//! The metrics of the pods: one endpoint that speaks for all of them, with values that tests set.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex},
};

use axum::{extract::State, routing::get};
use kube::ResourceExt as _;
use tokio::task::JoinHandle;

use crate::kubelet::{Kubelet, tag};

/// The pods that a value is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// All whose first image has this tag.
    Tag(String),
    /// The pod of this name.
    Pod(String),
}

impl From<&str> for Of {
    fn from(tag: &str) -> Self {
        Self::Tag(tag.to_owned())
    }
}

/// What a series shows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shown {
    Gauge(f64),
    /// Rising by this much a second since the pod's start.
    Counter(f64),
}

struct Series {
    namespace: String,
    of: Of,
    name: String,
    shown: Shown,
}

/// The endpoint. Only running pods have series, with labels `namespace` and `pod`.
pub struct Metrics {
    kubelet: Arc<Kubelet>,
    series: Mutex<Vec<Series>>,
}

impl Metrics {
    /// Serves on a free port of loopback, which is returned too.
    pub async fn start(kubelet: Arc<Kubelet>) -> std::io::Result<(Arc<Self>, u16, JoinHandle<()>)> {
        let metrics = Arc::new(Self {
            kubelet,
            series: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let router = axum::Router::new()
            .route("/metrics", get(exposition))
            .with_state(Arc::clone(&metrics));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok((metrics, port, server))
    }

    /// Sets a gauge; `name` may carry labels: `lag{partition="3"}`. A value for a pod beats one for its tag.
    pub fn set(&self, namespace: &str, of: impl Into<Of>, name: &str, value: f64) {
        self.put(namespace, of.into(), name, Some(Shown::Gauge(value)));
    }

    /// Sets a counter that rises by so much a second since the start of each pod.
    pub fn count(&self, namespace: &str, of: impl Into<Of>, name: &str, per_second: f64) {
        self.put(namespace, of.into(), name, Some(Shown::Counter(per_second)));
    }

    /// The series is no longer there.
    pub fn remove(&self, namespace: &str, of: impl Into<Of>, name: &str) {
        self.put(namespace, of.into(), name, None);
    }

    fn put(&self, namespace: &str, of: Of, name: &str, shown: Option<Shown>) {
        let mut series = self.series.lock().unwrap();
        series.retain(|s| !(s.namespace == namespace && s.of == of && s.name == name));
        if let Some(shown) = shown {
            series.push(Series {
                namespace: namespace.to_owned(),
                of,
                name: name.to_owned(),
                shown,
            });
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let series = self.series.lock().unwrap();
        for (pod, age) in self.kubelet.running() {
            let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
            let own = Of::Pod(name.clone());
            let by_tag = Of::Tag(tag(&pod).to_owned());
            for s in series.iter().filter(|s| s.namespace == namespace) {
                let beaten = || {
                    series
                        .iter()
                        .any(|o| o.namespace == namespace && o.of == own && o.name == s.name)
                };
                if s.of != own && (s.of != by_tag || beaten()) {
                    continue;
                }
                let (metric, labels) = match s
                    .name
                    .strip_suffix('}')
                    .and_then(|rest| rest.split_once('{'))
                {
                    Some((metric, labels)) => (metric, format!("{labels},")),
                    None => (s.name.as_str(), String::new()),
                };
                let value = match s.shown {
                    Shown::Gauge(value) => value,
                    Shown::Counter(per_second) => per_second * age.as_secs_f64(),
                };
                let _ = writeln!(
                    text,
                    "{metric}{{{labels}namespace=\"{namespace}\",pod=\"{name}\"}} {value}"
                );
            }
        }
        text
    }
}

async fn exposition(
    State(metrics): State<Arc<Metrics>>,
) -> ([(&'static str, &'static str); 1], String) {
    (
        [("content-type", "text/plain; version=0.0.4")],
        metrics.text(),
    )
}
