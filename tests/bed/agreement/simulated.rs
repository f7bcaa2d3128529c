//! A script on the simulated cluster, in virtual time, with the same daemon.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle, time::sleep};
use volery::{
    analysis::{Answer, Labels, Measure, Metrics, Query, Response, Sample, Unavailable},
    config::{Config, Loaded},
    daemon::{self, DaemonError, Ground, Lifetime},
    notify::Alerts,
    simulate::{
        clock,
        cluster::{self, Cluster, Kind, Options, Part, Patch, Turn, Verb},
    },
    telemetry::{health::Health, reloads::Reloads},
};

use super::{
    account::{Account, Write, normalised},
    gauge::Gauge,
    script::{Deed, Past, Script, When, X, version},
    sight::Sight,
};
use crate::{kubelet::Behaviour, prometheus::pods_named, wait::ensure, worker::Worker};

const NAMESPACE: &str = "workers";
const AGENT: &str = "volery";

/// How often is looked whether something has come to be.
const GLANCE: Duration = Duration::from_millis(20);

/// As many glances as anything takes.
const GLANCES: usize = 6000;

/// How long nothing is written before it is over.
const QUIET: Duration = Duration::from_secs(10);

pub fn play(script: &Script) -> Account {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    // The cluster's clock starts with it, so it is made inside.
    runtime.block_on(async {
        Stage::new(Gauge::held_at(script.held_at()))
            .play(script)
            .await
    })
}

struct Stage {
    cluster: Cluster,
    gauge: Gauge,
    seen: Arc<Mutex<Seen>>,
}

/// What is noted with every write.
#[derive(Default)]
struct Seen {
    steps: Vec<(i32, i32)>,
    writes: Vec<Write>,
    told: Vec<String>,
    /// Writes of any sort.
    all: usize,
}

struct Daemon {
    task: JoinHandle<Result<(), DaemonError>>,
    lifetime: watch::Sender<Lifetime>,
}

impl Stage {
    fn new(gauge: Gauge) -> Self {
        let cluster = Cluster::start(Options::default());
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let noting = Arc::clone(&seen);
        let mut versions = HashMap::new();
        cluster.after_each_write(move |now, write| {
            for set in now.list(Kind::ReplicaSet, NAMESPACE) {
                let tag = set.image().rsplit(':').next().unwrap_or_default();
                versions.insert(set.name().to_owned(), tag.to_owned());
            }
            let wanted = |role: &str| {
                let name = format!("{X}-{role}");
                let clone = now.get(Kind::Deployment, NAMESPACE, &name)?;
                i32::try_from(clone.replicas()).ok()
            };
            let mut seen = noting.lock().unwrap();
            if let (Some(canary), Some(primary)) = (wanted("canary"), wanted("primary"))
                && seen.steps.last() != Some(&(canary, primary))
            {
                seen.steps.push((canary, primary));
            }
            if write.agent == AGENT {
                seen.all += 1;
            }
            if write.agent == AGENT && write.only_tells() {
                if write.verb == Verb::Create
                    && let Some(event) = now.get(Kind::Event, NAMESPACE, &write.name)
                {
                    seen.told.push(event.text("/reason").to_owned());
                }
            } else if write.agent == AGENT {
                let part = match write.part {
                    Part::Main => "",
                    Part::Status => "/status",
                    Part::Scale => "/scale",
                };
                let version = versions.get(&write.name);
                seen.writes.push(Write {
                    verb: write.verb.name().to_owned(),
                    resource: format!("{}{part}", write.kind.plural()),
                    object: version.unwrap_or(&write.name).clone(),
                });
            }
            Ok(())
        });
        Self {
            gauge,
            cluster,
            seen,
        }
    }

    async fn play(self, script: &Script) -> Account {
        self.past(script.past).await;
        let [with, without] = script.configs(NAMESPACE, "http://prometheus");
        let mut daemon = self.daemon(&with);
        for (when, deed) in &script.deeds {
            self.until(&format!("{when:?}"), |sight| {
                ensure(when.holds(sight), || sight.lines().join("\n"))
            })
            .await;
            match *deed {
                Deed::Apply(tag, behaviour) => self.patch(version(tag, behaviour)),
                Deed::Scale(replicas) => self.patch(json!({"spec": {"replicas": replicas}})),
                Deed::Errors(value) => self.gauge.set(value),
                Deed::Turn(tag, behaviour) => {
                    let image = Script::worker().tag(tag).image();
                    self.cluster
                        .turn_pods(NAMESPACE, &image, simulated(behaviour));
                }
                Deed::Remove => {
                    daemon.lifetime.send_replace(Lifetime::Ending);
                    let ended = daemon.task.await;
                    assert!(matches!(ended, Ok(Ok(()))), "{ended:?}");
                    daemon = self.daemon(&without);
                }
            }
            if matches!(when, When::Step(..)) {
                self.until(&format!("an answer to {deed:?}"), |sight| {
                    ensure(!when.holds(sight), || "nothing moves".to_owned())
                })
                .await;
                self.gauge.release();
            }
        }
        self.until(&format!("the end, {:?}", script.end), |sight| {
            script.end.reached(sight)
        })
        .await;
        let writes = self.seen.lock().unwrap().all;
        sleep(QUIET).await;
        let sight = self.look();
        script.end.reached(&sight).expect("the end lasts");
        let seen = self.seen.lock().unwrap();
        assert_eq!(seen.all, writes, "the daemon goes on writing");
        assert!(!daemon.task.is_finished(), "the daemon ended");
        let mut starts = BTreeMap::new();
        self.cluster.read_journal(|journal| {
            for turn in journal.turns(NAMESPACE, Turn::Started) {
                let tag = turn.image.rsplit(':').next().unwrap_or_default();
                *starts.entry(tag.to_owned()).or_default() += 1;
            }
        });
        Account {
            starts,
            steps: seen.steps.clone(),
            writes: normalised(seen.writes.clone(), X),
            told: seen.told.clone(),
            left: sight.lines(),
        }
    }

    /// What `Namespace::history` does on the real cluster.
    async fn past(&self, past: Past) {
        let worker = Script::worker();
        if past == Past::TwoVersions {
            for tag in ["h1", "h2", "v1"] {
                self.run(&worker.clone().tag(tag).replicas(1)).await;
                sleep(Duration::from_millis(1100)).await;
            }
        }
        self.run(&worker).await;
    }

    async fn run(&self, worker: &Worker) {
        let mut manifest: Value = serde_json::from_str(&worker.manifest()).expect("JSON");
        manifest["metadata"]["namespace"] = json!(NAMESPACE);
        self.cluster.apply(&manifest).expect("it can be applied");
        assert!(self.cluster.settle(Duration::from_secs(60)).await);
    }

    fn daemon(&self, config: &str) -> Daemon {
        let loaded = load(config);
        let client = self.cluster.client(AGENT);
        let metrics: Arc<dyn Metrics> = Arc::new(Gauges(self.gauge.clone()));
        let (lifetime, living) = watch::channel(Lifetime::Running);
        let (_, readings) = watch::channel(Arc::new(Ok(loaded)));
        let task = tokio::spawn(async move {
            let ground = Ground {
                client,
                metrics: Box::new(move |_| Ok(metrics.clone())),
                alerts: Box::new(|_| Alerts::none()),
                clock: clock::start(),
                health: Health::default(),
                reloads: Reloads::default(),
                candidacy: None,
                pod: None,
                release_after: Duration::from_secs(1),
                lifetime: living,
            };
            daemon::run(readings, ground).await
        });
        Daemon { task, lifetime }
    }

    fn patch(&self, patch: Value) {
        self.cluster
            .patch(Kind::Deployment, NAMESPACE, X, Patch::Merge(patch))
            .expect("the deployment can be patched");
    }

    fn look(&self) -> Sight {
        fn all<K: DeserializeOwned>(now: &cluster::Snapshot<'_>, kind: Kind) -> Vec<K> {
            now.list(kind, NAMESPACE)
                .map(|object| serde_json::from_value(object.json().clone()).expect("of its kind"))
                .collect()
        }
        self.cluster.look(|now| Sight {
            deployments: all(now, Kind::Deployment),
            replica_sets: all(now, Kind::ReplicaSet),
            pods: all(now, Kind::Pod),
            templates: all(now, Kind::PodTemplate),
        })
    }

    async fn until(&self, what: &str, probe: impl Fn(&Sight) -> Result<(), String>) {
        let mut last = Ok(());
        for _ in 0..GLANCES {
            last = probe(&self.look());
            if last.is_ok() {
                return;
            }
            sleep(GLANCE).await;
        }
        panic!("the simulation does not come to {what}: {last:?}");
    }
}

fn load(text: &str) -> Loaded {
    let check = |text: &str| Query::parse(text).map(drop).map_err(|e| e.to_string());
    let loaded = Config::parse(Path::new("volery.yaml"), text, &check).expect("a config file");
    assert!(loaded.is_valid(), "{:?}", loaded.problems);
    loaded
}

/// The same behaviour in the words of the simulation.
const fn simulated(behaviour: Behaviour) -> cluster::Behaviour {
    match behaviour {
        Behaviour::Ready { after } => cluster::Behaviour::Ready { after },
        Behaviour::NeverReady => cluster::Behaviour::NeverReady,
        Behaviour::CrashLoop {
            up,
            down,
            exit_code,
        } => cluster::Behaviour::CrashLoop {
            up,
            down,
            exit_code: exit_code as i64,
        },
        Behaviour::ImagePull => cluster::Behaviour::ImagePull,
        Behaviour::Unschedulable => cluster::Behaviour::Unschedulable,
    }
}

/// The gauge as a Prometheus.
struct Gauges(Gauge);

impl Metrics for Gauges {
    fn query<'a>(
        &'a self,
        query: &'a str,
        _: Duration,
    ) -> BoxFuture<'a, Result<Response, Unavailable>> {
        async move {
            sleep(Duration::from_millis(5)).await;
            let value = self.0.answer(query);
            let samples = pods_named(query).into_iter().filter_map(|pod| {
                Some(Sample {
                    labels: Labels::new([("pod", pod.as_str())]),
                    measure: Measure::Number(value?),
                })
            });
            Ok(Response {
                answer: Answer::Vector(samples.collect()),
                warnings: Vec::new(),
            })
        }
        .boxed()
    }
}
