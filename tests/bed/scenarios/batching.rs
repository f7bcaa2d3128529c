//! A query about many pods says of each what a query about that pod alone says (case K58), tried with generated expressions
//! on generated series in a real Prometheus.
//!
//! Every selector is pinned to one moment with `@`, so that it does not matter when it is evaluated. `VOLERY_SEEDS=from..to`
//! chooses the seeds; a failure prints the seed and the expression.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::routing::get;
use futures::future::BoxFuture;
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use volery::{
    analysis::{
        Checker, Finding, Metrics, PodName, Pods, Prometheus as Client, Query, Response,
        Unavailable,
    },
    config::PrometheusSettings,
};

use crate::{
    prometheus::Prometheus,
    scene::{Scene, Trials},
    wait::{ensure, within},
};

/// How many expressions are tried with each seed.
const EXPRESSIONS: usize = 300;

/// Each series has so many samples, one every [`EVERY`] seconds, the last one at the moment of all queries.
const SAMPLES: u64 = 20;
const EVERY: u64 = 15;

/// The pods that are judged. One has no series at all.
const CANARY: [&str; 6] = ["c-0", "c-1", "c-2", "c.x-3", "c-4", "silent"];

/// Pods with the same series that nobody asks about.
const PRIMARY: [&str; 3] = ["p-0", "p-1", "c-1-not-this"];

/// Where `@` and the moment go.
const PIN: char = '§';

pub fn register(trials: &mut Trials) {
    trials.add(
        "batching: one query about all pods finds what one query for each finds (K58)",
        both_ways,
    );
}

/// What is served of one series: a value for each sample.
type Series = (String, Vec<Option<f64>>);

async fn both_ways(scene: Arc<Scene>) {
    let seeds = std::env::var("VOLERY_SEEDS").ok();
    let seeds = seeds.and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    for seed in seeds.unwrap_or(1..2_u64) {
        with_seed(&scene, seed).await;
    }
}

async fn with_seed(scene: &Scene, seed: u64) {
    println!("batching: seed {seed}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let moment = now.as_secs() - 60;
    let (series, queries, mut tally) = generated(seed, moment);

    let data = tempfile::tempdir().unwrap();
    let port = serve(series, moment).await;
    let prometheus = Prometheus::start(&scene.bed.programs, &data, port)
        .await
        .unwrap();
    within(
        Duration::from_secs(120),
        "all samples to be there",
        async || {
            let last = format!("timestamp(last_sample @ {moment}) == {moment}");
            let found = prometheus.query(&last).await?;
            ensure(found.as_array().is_some_and(|it| it.len() == 1), || {
                found.to_string()
            })
        },
    )
    .await;

    // What `main` does before it makes a client.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = PrometheusSettings::new(prometheus.url.parse().unwrap());
    let counting = Arc::new(Counting {
        client: Client::new(&settings, &|_| None).unwrap(),
        asked: AtomicUsize::new(0),
    });
    let asked = || counting.asked.swap(0, Ordering::SeqCst);
    let mut checker = Checker::new(counting.clone(), Duration::from_secs(30));
    let names = |names: &[&str]| -> Vec<PodName> {
        names
            .iter()
            .map(|name| PodName::new(name).unwrap())
            .collect()
    };
    let pods = Pods {
        canary: names(&CANARY),
        primary: names(&PRIMARY),
    };

    for query in queries {
        let text = query.text();
        let queries = [query];
        let at_once = checker.check(&queries, &pods).await.findings;
        let together = asked();
        let mut one_by_one = Vec::new();
        for pod in &pods.canary {
            let alone = Pods {
                canary: vec![pod.clone()],
                primary: pods.primary.clone(),
            };
            for finding in checker.check(&queries, &alone).await.findings {
                // As in a round about all of them.
                let repeated =
                    matches!(finding, Finding::Unavailable { .. }) && one_by_one.contains(&finding);
                if !repeated {
                    one_by_one.push(finding);
                }
            }
        }
        for (together, alone) in at_once.iter().zip(&one_by_one) {
            assert_eq!(together, alone, "seed {seed}: {text}");
        }
        assert_eq!(
            at_once.len(),
            one_by_one.len(),
            "seed {seed}: {text}: {at_once:#?} {one_by_one:#?}"
        );
        let [query] = queries;
        tally.count(&query, &at_once, together, asked());
    }
    println!("batching: seed {seed}: {tally:?}");
    tally.is_worth_something();
}

/// Series, and expressions that name a pod.
fn generated(seed: u64, moment: u64) -> (Vec<Series>, Vec<Query>, Tally) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let series = series().new_tree(&mut runner).unwrap().current();
    let texts = expression();
    let mut tally = Tally::default();
    let mut queries = Vec::new();
    while queries.len() < EXPRESSIONS {
        let text = texts.new_tree(&mut runner).unwrap().current();
        match Query::parse(&text.replace(PIN, &format!(" @ {moment}"))) {
            Ok(query) if query.mentions_pod() => queries.push(query),
            Ok(_) => {}
            // What the grammar makes of things that do not go together.
            Err(_) => tally.refused += 1,
        }
    }
    (series, queries, tally)
}

/// What has been tried, so that a grammar that tries nothing is seen.
#[derive(Debug, Default)]
struct Tally {
    tried: usize,
    refused: usize,
    batched: usize,
    /// Of the batched ones: those of which something was passed, failed, without data, unavailable.
    passed: usize,
    failed: usize,
    no_data: usize,
    unavailable: usize,
    /// Of the batched ones: those that found different things about different pods.
    mixed: usize,
    /// Batched ones that were asked pod by pod all the same, since Prometheus refused the batch.
    fell_back: usize,
    queries_together: usize,
    queries_one_by_one: usize,
}

impl Tally {
    fn count(&mut self, query: &Query, findings: &[Finding], together: usize, one_by_one: usize) {
        self.tried += 1;
        if !query.is_asked_once() {
            return;
        }
        self.batched += 1;
        let kind = |finding: &Finding| match finding {
            Finding::Passed { .. } => 0,
            Finding::Failed { .. } => 1,
            Finding::NoData { .. } => 2,
            Finding::Unavailable { .. } => 3,
        };
        let mut counts = [0; 4];
        for finding in findings {
            counts[kind(finding)] += 1;
        }
        self.passed += usize::from(counts[0] > 0);
        self.failed += usize::from(counts[1] > 0);
        self.no_data += usize::from(counts[2] > 0);
        self.unavailable += usize::from(counts[3] > 0);
        self.mixed += usize::from(counts.iter().filter(|count| **count > 0).count() > 1);
        if together > 4 {
            self.fell_back += 1;
        } else {
            self.queries_together += together;
            self.queries_one_by_one += one_by_one;
        }
    }

    fn is_worth_something(&self) {
        let many = self.tried / 8;
        let some = self.tried / 30;
        assert!(self.batched > many, "{self:?}");
        assert!(self.tried - self.batched > many, "{self:?}");
        for count in [self.passed, self.failed, self.no_data, self.mixed] {
            assert!(count > some, "{self:?}");
        }
        assert!(
            self.queries_together * 3 < self.queries_one_by_one,
            "{self:?}"
        );
    }
}

/// A Prometheus that counts what it is asked.
struct Counting {
    client: Client,
    asked: AtomicUsize,
}

impl Metrics for Counting {
    fn query<'a>(
        &'a self,
        query: &'a str,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Response, Unavailable>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(self.client.query(query, deadline))
    }
}

/// Serves the samples one after the other, a scrape each, with their times.
async fn serve(series: Vec<Series>, moment: u64) -> u16 {
    let scrapes = Arc::new(AtomicUsize::new(0));
    let exposition = move || {
        let scrape = scrapes.fetch_add(1, Ordering::SeqCst);
        let nth = scrape.min(usize::try_from(SAMPLES).unwrap() - 1);
        let back = (SAMPLES - 1 - u64::try_from(nth).unwrap()) * EVERY;
        let at = (moment - back) * 1000;
        let mut text = format!("last_sample 1 {at}\n");
        for (name, values) in &series {
            if let Some(value) = values[nth] {
                let _ = writeln!(text, "{name} {value} {at}");
            }
        }
        std::future::ready(([("content-type", "text/plain; version=0.0.4")], text))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = axum::Router::new().route("/metrics", get(exposition));
    tokio::spawn(async move { axum::serve(listener, router).await });
    port
}

/// How a series goes.
#[derive(Clone, Copy, Debug)]
enum Course {
    Missing,
    Constant(u8),
    Rising(u8),
    NotANumber,
    /// Its last sample is too old to be seen.
    Ended(u8),
}

fn course() -> impl Strategy<Value = Course> {
    prop_oneof![
        2 => Just(Course::Missing),
        6 => (0..5_u8).prop_map(Course::Constant),
        4 => (0..5_u8).prop_map(Course::Rising),
        1 => Just(Course::NotANumber),
        1 => (0..5_u8).prop_map(Course::Ended),
    ]
}

/// Series of every pod but the silent one, and some of no pod.
fn series() -> impl Strategy<Value = Vec<Series>> {
    let mut names = Vec::new();
    let talking = CANARY.iter().filter(|pod| **pod != "silent");
    for pod in talking.chain(&PRIMARY) {
        for metric in ["a", "b", "c"] {
            for topic in ["x", "y"] {
                let app = if pod.ends_with(['0', '2']) {
                    "one"
                } else {
                    "two"
                };
                names.push(format!(
                    "{metric}{{pod=\"{pod}\",instance=\"{pod}\",topic=\"{topic}\",app=\"{app}\"}}"
                ));
            }
        }
        names.push(format!("limit{{pod=\"{pod}\"}}"));
        for le in ["1", "2", "+Inf"] {
            names.push(format!("h_bucket{{pod=\"{pod}\",le=\"{le}\"}}"));
        }
    }
    for app in ["one", "two"] {
        names.push(format!("goal{{app=\"{app}\"}}"));
    }
    prop::collection::vec(course(), names.len()).prop_map(move |courses| {
        let values = |course: Course| -> Vec<Option<f64>> {
            (0..SAMPLES)
                .map(|nth| match course {
                    Course::Missing => None,
                    Course::Constant(value) => Some(f64::from(value)),
                    Course::Rising(by) => Some(f64::from(by) * nth as f64),
                    Course::NotANumber => Some(f64::NAN),
                    // Five minutes are seen, so that it is seen in ranges and not at the moment.
                    Course::Ended(value) => (nth == 0).then(|| f64::from(value)),
                })
                .collect()
        };
        names
            .iter()
            .cloned()
            .zip(courses.into_iter().map(values))
            .collect()
    })
}

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    prop::sample::select(words).prop_map(str::to_owned)
}

fn selector() -> impl Strategy<Value = String> + Clone {
    let matchers = prop_oneof![
        12 => one_of(&[r#"pod="<<pod>>""#]),
        2 => one_of(&[
            r#"pod=~"<<pod>>""#,
            r#"pod="<<pod>>",topic="x""#,
            r#"app!="one",pod='<<pod>>'"#,
        ]),
        2 => one_of(&["", r#"topic="x""#, r#"pod=~"<<primary>>""#, r#"pod!~"<<primary>>|c-0""#]),
        1 => one_of(&[r#"pod!="<<pod>>""#, r#"instance="<<pod>>""#, r#"pod=~"<<pod>>.*""#]),
    ];
    let metric = prop_oneof![
        8 => one_of(&["a", "b", "c"]),
        2 => one_of(&["limit"]),
        1 => one_of(&["goal", "h_bucket"]),
    ];
    (metric, matchers).prop_map(|(metric, matchers)| format!("{metric}{{{matchers}}}"))
}

fn modifiers() -> impl Strategy<Value = String> + Clone {
    one_of(&[
        "",
        "",
        "",
        "on (pod)",
        "on (pod, topic)",
        "on (topic)",
        "on (app)",
        "on ()",
        "ignoring (topic)",
        "ignoring (pod, instance)",
        "on (pod) group_left ()",
        "on (app) group_left ()",
        "on () group_left ()",
        "on () group_right ()",
        "on (pod) group_right (app)",
        "on (app) group_left (pod)",
        "ignoring (topic, instance, app) group_left ()",
    ])
}

fn comparison() -> impl Strategy<Value = String> + Clone {
    one_of(&["==", "!=", "<", "<=", ">", ">="])
}

fn number() -> impl Strategy<Value = String> + Clone {
    one_of(&["0", "1", "2", "3.5", "-1", "10"])
}

fn vector() -> impl Strategy<Value = String> + Clone {
    let ranged = one_of(&[
        "rate",
        "increase",
        "delta",
        "changes",
        "resets",
        "deriv",
        "max_over_time",
        "min_over_time",
        "avg_over_time",
        "sum_over_time",
        "count_over_time",
        "last_over_time",
        "present_over_time",
        "stddev_over_time",
        "absent_over_time",
    ]);
    let leaf = prop_oneof![
        3 => selector().prop_map(|selector| format!("{selector}{PIN}")),
        2 => (ranged.clone(), selector())
            .prop_map(|(function, selector)| format!("{function}({selector}[2m]{PIN})")),
        1 => (selector(), one_of(&["5m", "1m"]))
            .prop_map(|(selector, by)| format!("{selector}{PIN} offset {by}")),
        // Of anything else it is the time of the query, which differs.
        1 => selector().prop_map(|selector| format!("timestamp({selector}{PIN})")),
        1 => Just(format!(r#"histogram_quantile(0.5, sum by (pod, le) (h_bucket{{pod="<<pod>>"}}{PIN}))"#)),
    ];
    leaf.prop_recursive(3, 12, 2, move |inner| {
        let function = one_of(&[
            "abs", "-", "ceil", "sqrt", "sgn", "sort", "hour", "absent",
        ]);
        let with_label = one_of(&[
            r#""copy", "$1", "topic", "(.*)""#,
            r#""topic", "", "topic", ".*""#,
            r#""pod", "z", "topic", "(.*)""#,
            r#""app", "<<pod>>", "topic", "(.*)""#,
        ]);
        let aggregation = one_of(&[
            "sum", "avg", "min", "max", "count", "group", "stddev", "quantile", "topk", "bottomk",
            "count_values",
        ]);
        let grouping = one_of(&[
            "by (pod)", "by (pod)", "by (pod, topic)", "without (topic)", "without (topic, instance)",
            "by (topic)", "without (pod)", "without (pod, instance)", "",
        ]);
        let arithmetic = one_of(&["+", "-", "*", "/", "%", "^", "atan2"]);
        prop_oneof![
            3 => (function, inner.clone()).prop_map(|(function, inner)| format!("{function}({inner})")),
            1 => inner.clone().prop_map(|inner| format!("clamp_max({inner}, 2)")),
            1 => (inner.clone(), selector()).prop_map(|(inner, selector)| {
                format!("clamp_min({inner}, scalar({selector}{PIN}))")
            }),
            1 => inner.clone().prop_map(|inner| format!("vector(scalar({inner}))")),
            1 => (inner.clone(), with_label)
                .prop_map(|(inner, label)| format!("label_replace({inner}, {label})")),
            1 => (inner.clone(), one_of(&["copy", "pod"])).prop_map(|(inner, label)| {
                format!(r#"label_join({inner}, "{label}", "-", "topic", "app")"#)
            }),
            // What is in it is evaluated at many moments, which are pinned as a whole.
            2 => (ranged.clone(), inner.clone()).prop_map(|(function, inner)| {
                format!("{function}(({})[1m:20s]{PIN})", inner.replace(PIN, ""))
            }),
            4 => (aggregation, grouping, inner.clone()).prop_map(|(aggregation, grouping, inner)| {
                let parameter = match aggregation.as_str() {
                    "quantile" => "0.5, ",
                    "topk" | "bottomk" => "1, ",
                    "count_values" => "\"value\", ",
                    _ => "",
                };
                format!("{aggregation} {grouping} ({parameter}{inner})")
            }),
            2 => (inner.clone(), arithmetic.clone(), number())
                .prop_map(|(inner, operator, number)| format!("({inner}) {operator} {number}")),
            1 => (inner.clone(), comparison(), number())
                .prop_map(|(inner, operator, number)| format!("({inner}) {operator} bool {number}")),
            1 => (inner.clone(), comparison(), number())
                .prop_map(|(inner, operator, number)| format!("{number} {operator} ({inner})")),
            3 => (inner.clone(), arithmetic, modifiers(), inner.clone()).prop_map(
                |(left, operator, modifiers, right)| format!("({left}) {operator} {modifiers} ({right})")
            ),
            1 => (inner.clone(), comparison(), modifiers(), inner.clone()).prop_map(
                |(left, operator, modifiers, right)| format!("({left}) {operator} {modifiers} ({right})")
            ),
            2 => (inner.clone(), set_operation(), inner).prop_map(
                |(left, operation, right)| format!("({left}) {operation} ({right})")
            ),
        ]
    })
}

fn set_operation() -> impl Strategy<Value = String> + Clone {
    let matching = one_of(&[
        "",
        "",
        "on (pod)",
        "on (pod, topic)",
        "on (topic)",
        "on ()",
        "ignoring (topic)",
        "ignoring (pod, instance)",
    ]);
    (one_of(&["and", "or", "unless"]), matching)
        .prop_map(|(operation, matching)| format!("{operation} {matching}"))
}

/// What may stand in a configuration.
fn expression() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (vector(), comparison(), number())
            .prop_map(|(left, operator, right)| format!("{left} {operator} {right}")),
        1 => (number(), comparison(), vector())
            .prop_map(|(left, operator, right)| format!("{left} {operator} {right}")),
        1 => (vector(), comparison(), vector()).prop_map(|(left, operator, right)| {
            format!("{left} {operator} scalar({right})")
        }),
        3 => (vector(), comparison(), modifiers(), vector()).prop_map(
            |(left, operator, modifiers, right)| format!("({left}) {operator} {modifiers} ({right})")
        ),
        3 => (vector(), comparison(), number(), set_operation(), vector()).prop_map(
            |(left, operator, number, operation, right)| {
                format!("({left}) {operator} {number} {operation} ({right})")
            }
        ),
    ]
}
