//! A simulated Prometheus: `my_errors{pod="X"}`, or of many pods at once, is what the test says of each pod's image.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use volery::analysis::{Answer, Labels, Measure, Metrics, Response, Sample, Unavailable};
use volery::simulate::cluster::{Cluster, Kind};

/// The expression of every service in these tests.
pub const EXPRESSION: &str = r#"my_errors{pod="<<pod>>"} == 0"#;

/// What is measured of an image's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gauge {
    /// No errors.
    Good,
    /// Errors.
    Bad,
    /// Nothing.
    Absent,
    /// HTTP 500.
    Erroring,
    /// No answer in time.
    Slow,
}

/// What was answered about one pod.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    pub at: Duration,
    pub gauge: Gauge,
}

#[derive(Default)]
pub struct Measured {
    by_image: BTreeMap<String, Gauge>,
    all: Option<Gauge>,
    /// The latest answer about each pod.
    pub answers: BTreeMap<String, Answered>,
}

/// What Prometheus has of the pods of one cluster.
pub struct Gauges {
    cluster: Cluster,
    pub measured: Arc<Mutex<Measured>>,
}

impl Gauges {
    pub fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            measured: Arc::default(),
        }
    }

    /// What is measured of an image from now on; [`Gauge::Good`] where nothing is said.
    pub fn set(&self, image: &str, gauge: Gauge) {
        self.measured
            .lock()
            .unwrap()
            .by_image
            .insert(image.to_owned(), gauge);
    }

    /// What is measured of everything from now on, whatever is said about single images.
    pub fn set_all(&self, gauge: Option<Gauge>) {
        self.measured.lock().unwrap().all = gauge;
    }

    /// What is measured of each pod that the query names.
    fn answer(&self, query: &str) -> Result<Vec<(String, Gauge)>, Unavailable> {
        let pods = query
            .split('"')
            .nth(1)
            .ok_or(Unavailable::Unusable("a query about no pod"))?;
        let pods = pods.split('|').map(|pod| pod.replace("[.]", "."));
        Ok(pods.map(|pod| (pod.clone(), self.measure(pod))).collect())
    }

    fn measure(&self, pod: String) -> Gauge {
        let image = self.cluster.look(|now| {
            let mut found = now.list(Kind::Pod, super::world::NAMESPACE);
            found
                .find(|found| found.name() == pod)
                .map(|found| found.image().to_owned())
        });
        let mut measured = self.measured.lock().unwrap();
        let gauge = match image {
            None => Gauge::Absent,
            Some(image) => measured
                .all
                .or_else(|| measured.by_image.get(&image).copied())
                .unwrap_or(Gauge::Good),
        };
        let at = self.cluster.elapsed();
        measured.answers.insert(pod, Answered { at, gauge });
        gauge
    }
}

impl Metrics for Gauges {
    fn query<'a>(
        &'a self,
        query: &'a str,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Response, Unavailable>> {
        async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let judged = query.contains("bool");
            let mut samples = Vec::new();
            for (pod, gauge) in self.answer(query)? {
                let number = match (gauge, judged) {
                    (Gauge::Good, true) => 1.0,
                    (Gauge::Good, false) | (Gauge::Bad, true) => 0.0,
                    (Gauge::Bad, false) => 5.0,
                    (Gauge::Absent, _) => continue,
                    (Gauge::Erroring, _) => {
                        return Err(Unavailable::Status {
                            status: 500,
                            message: "out of memory".to_owned(),
                        });
                    }
                    (Gauge::Slow, _) => {
                        tokio::time::sleep(deadline).await;
                        return Err(Unavailable::TimedOut(deadline));
                    }
                };
                samples.push(Sample {
                    labels: Labels::new([("pod", pod.as_str())]),
                    measure: Measure::Number(number),
                });
            }
            Ok(Response {
                answer: Answer::Vector(samples),
                warnings: Vec::new(),
            })
        }
        .boxed()
    }
}
