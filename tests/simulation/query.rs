//! What `volery query` says: which pods it asks about, what it finds, by which values.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use volery::analysis::{
    Answer, Labels, Measure, Metrics, PodName, Query, Response, Sample, Unavailable,
};
use volery::cluster::Depth;
use volery::operator::{Cast, cast, summary, try_out};

use super::orders::{at_step, frozen, operator, registered, told};
use super::stories::V1;
use super::world::{Deaths, NAMESPACE, Weather, World, X};

const INTERVAL: Duration = Duration::from_secs(60);

/// What is measured of the first pod, the second, and so on: series by their partition. Where nothing is measured there
/// is no series.
type Measured = &'static [&'static [(&'static str, f64)]];

/// Evaluates just what is asked here: a metric of pods, alone or compared with a number.
struct Bench {
    pods: Vec<PodName>,
}

impl Bench {
    fn measured(metric: &str) -> Measured {
        match metric {
            "done" => &[&[("", 612.5)], &[("", 12.0)], &[]],
            "lag" => &[
                &[("0", 5.0), ("1", 7.0)],
                &[
                    ("0", 3.0),
                    ("1", 4.0),
                    ("2", 900.0),
                    ("3", 6.0),
                    ("4", 7.0),
                    ("5", 8.0),
                    ("6", 9.0),
                ],
                &[("0", f64::NAN)],
            ],
            "healthy" => &[&[("", 1.0)], &[], &[("", 1.0)]],
            _ => &[],
        }
    }

    fn samples(&self, query: &str) -> Vec<Sample> {
        let (metric, _) = query.split_once('{').unwrap_or((query, ""));
        let asked = self.pods.iter().enumerate();
        let asked = asked.filter(|(_, pod)| query.contains(pod.as_str()));
        let mut samples = Vec::new();
        for (index, pod) in asked {
            for (partition, value) in Self::measured(metric).get(index).copied().unwrap_or(&[]) {
                let labels = if partition.is_empty() {
                    Labels::new([("pod", pod.as_str())])
                } else {
                    Labels::new([("partition", *partition), ("pod", pod.as_str())])
                };
                let number = match query.split_once(" bool ") {
                    Some((left, right)) if left.ends_with('>') => {
                        f64::from(*value > right.parse().unwrap())
                    }
                    Some((_, right)) => f64::from(*value < right.parse().unwrap()),
                    None => *value,
                };
                let measure = Measure::Number(number);
                samples.push(Sample { labels, measure });
            }
        }
        samples
    }
}

impl Metrics for Bench {
    fn query<'a>(
        &'a self,
        query: &'a str,
        _: Duration,
    ) -> BoxFuture<'a, Result<Response, Unavailable>> {
        let answer = if query.starts_with("down") {
            Err(Unavailable::Status {
                status: 422,
                message: "execution: out of memory".to_owned(),
            })
        } else {
            let warnings = match query {
                _ if query.starts_with("lag") => vec!["lag might be a counter".to_owned()],
                _ => Vec::new(),
            };
            Ok(Response {
                answer: Answer::Vector(self.samples(query)),
                warnings,
            })
        };
        Box::pin(std::future::ready(answer))
    }
}

async fn cast_of(world: &World, name: &str) -> Cast {
    let sight = operator(world).sight(NAMESPACE, name, Depth::Pods).await;
    cast(&sight.unwrap()).unwrap()
}

/// The whole of what is printed, with short names of pods.
async fn tried(world: &World, expressions: &[&str]) -> String {
    let cast = cast_of(world, X).await;
    let queries: Vec<Query> = expressions
        .iter()
        .map(|text| Query::parse(text).unwrap())
        .collect();
    let pods = cast.pods.canary.clone();
    let metrics: Arc<dyn Metrics> = Arc::new(Bench { pods });
    let tried = try_out(&metrics, INTERVAL, &queries, &cast.pods).await;
    let mut told = vec![cast.to_string()];
    told.extend(tried.iter().map(ToString::to_string));
    told.push(match summary(&tried) {
        Ok(summary) => format!("ends well: {summary}"),
        Err(summary) => format!("ends badly: {summary}"),
    });
    let mut told = told.join("\n\n");
    for (index, pod) in cast.pods.canary.iter().enumerate() {
        // As long as the name itself, so that columns stay columns.
        let length = pod.as_str().len();
        told = told.replace(pod.as_str(), &format!("pod-{index:-<length$}")[..length]);
    }
    told
}

#[test]
fn each_pod_is_shown_with_its_verdict_and_values() {
    told(async || {
        let world = World::new(&Weather::default(), Deaths::new());
        world.with_x(3, V1).await;
        insta::assert_snapshot!(
            tried(
                &world,
                &[
                    "done{pod=\"<<pod>>\"} > 500",
                    "lag{pod=\"<<pod>>\"} < 100",
                    "healthy{pod=\"<<pod>>\"} and up",
                    "down{pod=\"<<pod>>\"} < 1",
                    "nothing < 1",
                ]
            )
            .await
        );
    });
}

#[test]
fn all_passed_is_what_it_takes_to_end_well() {
    told(async || {
        let world = World::new(&Weather::default(), Deaths::new());
        world.with_x(1, V1).await;
        insta::assert_snapshot!(tried(&world, &["done{pod=\"<<pod>>\"} > 500"]).await);
    });
}

#[test]
fn the_pods_that_play_the_canary_are_those_that_run_now() {
    told(async || {
        let whose = async |world: &World| {
            let cast = cast_of(world, X).await;
            (cast.to_string(), cast.pods)
        };
        let world = registered().await;
        let (text, at_rest) = whose(&world).await;
        assert_eq!(
            text,
            format!("{NAMESPACE}/{X}: no rollout is open, 10 pods play the canary")
        );
        let world = at_step(2).await;
        let (text, canary) = whose(&world).await;
        assert_eq!(
            text,
            format!("{NAMESPACE}/{X}: a rollout is open, 2 canary pods")
        );
        assert_eq!(at_rest.primary, at_rest.canary, "they play both");
        assert_eq!((canary.canary.len(), canary.primary.len()), (2, 8));
        assert!(
            !canary
                .canary
                .iter()
                .any(|pod| at_rest.canary.contains(pod) || canary.primary.contains(pod))
        );
        let (text, _) = whose(&frozen().await).await;
        assert_eq!(
            text,
            format!("{NAMESPACE}/{X}: a rollout is open, 4 canary pods")
        );
    });
}

#[test]
fn a_worker_without_pods_has_none_to_ask_about() {
    told(async || {
        let world = World::new(&Weather::default(), Deaths::new());
        world.with_x(0, V1).await;
        assert!(cast_of(&world, X).await.pods.canary.is_empty());
        let sight = operator(&world)
            .sight(NAMESPACE, "nobody", Depth::Pods)
            .await;
        let error = cast(&sight.unwrap()).unwrap_err().to_string();
        assert!(
            error.starts_with("there is no Deployment nobody"),
            "{error}"
        );
    });
}
