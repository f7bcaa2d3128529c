//! A cluster, the daemon in it, and the person who does things to both.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tracing::subscriber::DefaultGuard;
use volery::analysis::Metrics;
use volery::cluster::{COMMAND_ANNOTATION, CONDITION};
use volery::config::{
    AfterRollback, Channel, Config, Content, Loaded, OnFailure, Reading, Service,
};
use volery::daemon::{self, Ground, Lifetime};
use volery::notify::{Alerts, Carrier};
use volery::rollout::state::{Phase, State};
use volery::rollout::template::Template;
use volery::simulate::clock;
use volery::simulate::cluster::{
    ClientOptions, Cluster, Conduct, Kind, Lags, Lifeline, Object, Options, Patch, Propagation,
    Turn, deployment,
};
use volery::telemetry::health::Health;
use volery::telemetry::log::Clock;
use volery::telemetry::reloads::Reloads;

use super::gauges::{EXPRESSION, Gauge, Gauges};
use super::limits::Limits;
use super::log::Log;
use super::promises::{Excuses, Promises, Times};
use super::timeline::timeline;

pub const NAMESPACE: &str = "workers";
pub const AGENT: &str = "volery";
pub const X: &str = "orders";
/// X's state object.
pub const STATE: &str = "orders-volery";
/// The second service.
pub const Y: &str = "invoices";

const START_DELAY: u64 = 5;
const STEP_DURATION: u64 = 30;
const INCONCLUSIVE: u64 = 60;

/// How late everything is.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    pub seed: u64,
    /// The controllers' caches.
    pub controllers: Lags,
    /// The daemon's watches.
    pub daemon: Lags,
}

/// After how many of its writes each life of the daemon ends; the lives after them do not.
pub type Deaths = Vec<u64>;

/// One Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub name: String,
    pub about: String,
    pub tone: String,
    pub reason: String,
    pub message: String,
    pub count: i64,
    /// Its place in the order of all that was written.
    pub revision: u64,
}

impl Told {
    fn of(event: &Object) -> Self {
        Self {
            name: event.name().to_owned(),
            about: event.text("/regarding/name").to_owned(),
            tone: event.text("/type").to_owned(),
            reason: event.text("/reason").to_owned(),
            message: event.text("/note").to_owned(),
            count: event.number("/deprecatedCount"),
            revision: event.revision(),
        }
    }
}

/// One world.
pub struct World {
    pub cluster: Cluster,
    pub gauges: Arc<Gauges>,
    pub log: Log,
    pub excuses: Arc<Mutex<Excuses>>,
    keeping: Arc<Keeping>,
    limits: Limits,
    _guard: DefaultGuard,
}

/// What the one who keeps the daemon running needs.
struct Keeping {
    cluster: Cluster,
    clock: Clock,
    gauges: Arc<Gauges>,
    log: Log,
    lags: Lags,
    deaths: Mutex<VecDeque<u64>>,
    /// What the daemon reads.
    file: watch::Sender<Arc<Reading>>,
    /// What the file said last that could be used.
    loaded: Mutex<Loaded>,
    reloads: Reloads,
    /// Ends the present daemon in good order and starts one with the present configuration.
    restart: Notify,
    present: Mutex<Option<Lifeline>>,
    /// How long a dead daemon stays dead.
    downtime: Mutex<Duration>,
    ended: Mutex<Option<String>>,
    /// What takes alerts to their channels.
    carrier: Mutex<Option<Arc<dyn Carrier>>>,
}

/// Runs a test in virtual time.
pub fn in_virtual_time<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(test());
}

/// The file's text with these services.
pub fn text_of(services: &[&str], limits: Limits) -> String {
    let mut text =
        "prometheus-base-url: http://prometheus/\nnamespace: workers\npoll-interval: 20s\n"
            .to_owned();
    for service in services {
        text += &format!(
            "{service}:\n  breakpoint: 50%\n  step: 20%\n  abort: {}\n  start_delay: {START_DELAY}s\n  \
             max_step_duration: {STEP_DURATION}s\n  check_success_step_duration: 10s\n  \
             inconclusive_timeout: {INCONCLUSIVE}s\n  no_data_grace: 10s\n{}  success:\n    - expr: {EXPRESSION}\n",
            limits.abort(),
            limits.lines()
        );
    }
    text
}

fn read(text: &str) -> Reading {
    let content = Content::Bytes(text.as_bytes().to_vec());
    daemon::read(Path::new("volery.yaml"), &content)
}

fn configuration(services: &[&str], limits: Limits) -> Loaded {
    let loaded = read(&text_of(services, limits)).unwrap();
    assert!(loaded.is_valid(), "{:?}", loaded.problems);
    loaded
}

impl World {
    /// A cluster without the daemon, its services with the envelope that they have by default.
    pub fn new(weather: &Weather, deaths: Deaths) -> Self {
        Self::within(Limits::OneStepMore, weather, deaths)
    }

    /// A cluster without the daemon, whose services have these limits.
    pub fn within(limits: Limits, weather: &Weather, deaths: Deaths) -> Self {
        let cluster = Cluster::start(Options {
            seed: weather.seed,
            lags: weather.controllers,
            ..Options::default()
        });
        let (log, guard) = Log::catch(&cluster);
        let gauges = Arc::new(Gauges::new(cluster.clone()));
        let excuses: Arc<Mutex<Excuses>> = Arc::default();
        let times = Times {
            start_delay: Duration::from_secs(START_DELAY),
            step_duration: Duration::from_secs(STEP_DURATION),
            inconclusive_timeout: Duration::from_secs(INCONCLUSIVE),
        };
        for service in [X, Y] {
            let measured = gauges.measured.clone();
            let mut promises = Promises::new(service, times, measured, excuses.clone(), limits);
            cluster.after_each_write(move |now, write| promises.check(now, write));
        }
        let loaded = configuration(&[X, Y], limits);
        let keeping = Arc::new(Keeping {
            cluster: cluster.clone(),
            clock: clock::start(),
            gauges: gauges.clone(),
            log: log.clone(),
            lags: weather.daemon,
            deaths: Mutex::new(deaths.into()),
            file: watch::Sender::new(Arc::new(Ok(loaded.clone()))),
            loaded: Mutex::new(loaded),
            reloads: Reloads::default(),
            restart: Notify::new(),
            present: Mutex::default(),
            downtime: Mutex::new(Duration::from_secs(1)),
            ended: Mutex::default(),
            carrier: Mutex::default(),
        });
        Self {
            cluster,
            gauges,
            log,
            excuses,
            keeping,
            limits,
            _guard: guard,
        }
    }

    /// Starts the daemon, and starts it again whenever it dies.
    pub fn start_daemon(&self) {
        tokio::spawn(keep(self.keeping.clone()));
    }

    /// Kills the daemon now; a new one starts after `downtime`.
    pub fn kill_daemon(&self, downtime: Duration) {
        *self.keeping.downtime.lock().unwrap() = downtime;
        if let Some(lifeline) = &*self.keeping.present.lock().unwrap() {
            lifeline.cut();
        }
    }

    /// Changes the configuration: the daemon is stopped in good order and started again.
    pub fn configure(&self, services: &[&str]) {
        self.edit(|loaded| *loaded = configuration(services, self.limits));
        self.keeping.restart.notify_one();
    }

    /// What becomes of a version that fails.
    pub fn on_failure(&self, on_failure: OnFailure) {
        self.edit_services(|service| service.on_failure = on_failure);
    }

    /// X gets the accepted template again after a rollback.
    pub fn restore_original(&self) {
        self.edit_services(|service| service.restore_original = AfterRollback::RestoreTemplate);
    }

    fn edit_services(&self, edit: impl Fn(&mut Service)) {
        self.edit(|loaded| loaded.config.services.values_mut().for_each(edit));
    }

    /// Edits the file, in which the last text that could be used stands: the daemon reads it anew.
    pub fn edit(&self, edit: impl FnOnce(&mut Loaded)) {
        let mut loaded = self.keeping.loaded.lock().unwrap();
        edit(&mut loaded);
        self.keeping.file.send_replace(Arc::new(Ok(loaded.clone())));
    }

    /// Writes the file: the daemon reads it anew, whatever it says.
    pub fn write(&self, text: &str) {
        let reading = read(text);
        self.note(&match &reading {
            Ok(loaded) => format!("writes a file, problems {:?}", loaded.problems),
            Err(error) => format!("writes a file of no use: {error}"),
        });
        if let Ok(loaded) = &reading {
            *self.keeping.loaded.lock().unwrap() = loaded.clone();
        }
        self.keeping.file.send_replace(Arc::new(reading));
    }

    /// What came of it each time.
    pub fn reloads(&self) -> &Reloads {
        &self.keeping.reloads
    }

    /// The lines of the log with this text, as people read them: `INFO orders: released: ...`.
    pub fn lines_with(&self, text: &str) -> Vec<String> {
        let lines = self
            .log
            .lines()
            .into_iter()
            .map(|(_, line)| readable(&line));
        lines.filter(|line| line.contains(text)).collect()
    }

    /// Waits for a line of the log with this text.
    pub async fn until_line(&self, text: &str) {
        for _ in 0..60_000 {
            if !self.lines_with(text).is_empty() {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        self.fail(&format!("no line has {text:?}"));
    }

    /// X as it is at the start of most stories: `replicas` pods of `image`.
    pub async fn with_x(&self, replicas: u32, image: &str) {
        self.apply(X, replicas, image);
        self.cluster.settle(Duration::from_secs(120)).await;
    }

    pub fn apply(&self, name: &str, replicas: u32, image: &str) {
        self.note(&format!("apply {name} {image} x{replicas}"));
        self.cluster
            .apply(&deployment(NAMESPACE, name, replicas, image))
            .unwrap();
    }

    pub fn set_image(&self, name: &str, image: &str) {
        self.note(&format!("set image of {name} to {image}"));
        self.cluster.set_image(NAMESPACE, name, image).unwrap();
    }

    pub fn scale(&self, name: &str, replicas: u32) {
        self.note(&format!("scale {name} to {replicas}"));
        self.cluster.scale(NAMESPACE, name, replicas).unwrap();
    }

    /// Un-pauses X, as `kubectl rollout resume` does.
    pub fn resume(&self, name: &str) {
        self.note(&format!("resume {name}"));
        self.hands_in_it(Duration::from_secs(120));
        self.cluster.set_paused(NAMESPACE, name, false).unwrap();
    }

    /// Gives an order, as `kubectl annotate` does.
    pub fn command(&self, order: &str) {
        self.note(&format!("orders {order}"));
        let annotations = serde_json::json!({COMMAND_ANNOTATION: order});
        let patch = Patch::Merge(serde_json::json!({"metadata": {"annotations": annotations}}));
        self.cluster
            .patch(Kind::PodTemplate, NAMESPACE, STATE, patch)
            .unwrap();
    }

    /// Patches the status of X strategically, as somebody else's tool may do.
    pub async fn patch_status(&self, name: &str, patch: serde_json::Value) {
        let client = self.cluster.client("tool");
        let api: kube::Api<k8s_openapi::api::apps::v1::Deployment> =
            kube::Api::namespaced(client, NAMESPACE);
        let params = kube::api::PatchParams::default();
        api.patch_status(name, &params, &kube::api::Patch::Strategic(patch))
            .await
            .unwrap();
    }

    /// Lets every pod of this version take its time to end.
    pub fn slow_to_end(&self, image: &'static str, time: Duration) {
        self.note(&format!("pods of {image} take {time:?} to end"));
        self.cluster.direct_pods(move |pod, conduct| Conduct {
            terminate_after: if pod.image() == image {
                time
            } else {
                conduct.terminate_after
            },
            ..conduct
        });
    }

    /// Deletes something, if it exists.
    pub fn delete(&self, kind: Kind, name: &str) {
        self.note(&format!("delete {} {name}", kind.plural()));
        self.hands_in_it(Duration::from_secs(120));
        let _ = self
            .cluster
            .delete(kind, NAMESPACE, name, Propagation::Background);
    }

    /// Alerts go to this channel by this carrier, from the next start of the daemon on.
    pub fn alert(&self, channel: Channel, carrier: Arc<dyn Carrier>) {
        *self.keeping.carrier.lock().unwrap() = Some(carrier);
        self.edit(|loaded| {
            loaded.config.channels.insert(channel.name.clone(), channel);
        });
    }

    pub fn note(&self, what: &str) {
        self.log.add(format!("USER {what}"));
    }

    /// The numbers of pods are somebody else's doing for a while.
    pub fn hands_in_it(&self, time: Duration) {
        let until = self.cluster.elapsed() + time;
        let mut excuses = self.excuses.lock().unwrap();
        excuses.by_hand_until = excuses.by_hand_until.max(until);
    }

    pub fn object(&self, kind: Kind, name: &str) -> Option<Object> {
        self.cluster
            .look(|now| now.get(kind, NAMESPACE, name).cloned())
    }

    pub fn state(&self, name: &str) -> Option<State> {
        let object = self.object(Kind::PodTemplate, &format!("{name}-volery"))?;
        serde_json::from_str(object.annotation("volery.dev/state")?).ok()
    }

    pub fn accepted(&self, name: &str) -> Option<String> {
        self.object(Kind::PodTemplate, &format!("{name}-volery"))
            .map(|object| object.image().to_owned())
    }

    /// Pods started so far, by image.
    pub fn starts(&self) -> BTreeMap<String, usize> {
        self.cluster.read_journal(|journal| {
            let mut starts = BTreeMap::new();
            for turn in journal.turns(NAMESPACE, Turn::Started) {
                *starts.entry(turn.image.clone()).or_default() += 1;
            }
            starts
        })
    }

    /// What `kubectl get events` shows, by name: the names follow from what is said.
    pub fn events(&self) -> Vec<Told> {
        self.cluster.look(|now| {
            let events = now.list(Kind::Event, NAMESPACE);
            events.map(Told::of).collect()
        })
    }

    /// How many different things were told, by reason.
    pub fn told(&self) -> BTreeMap<String, usize> {
        self.sum_of_events(|_| 1)
    }

    /// How often something was told, by reason: the same thing counts each time.
    pub fn tellings(&self) -> BTreeMap<String, usize> {
        self.sum_of_events(|event| usize::try_from(event.count).unwrap())
    }

    fn sum_of_events(&self, of: impl Fn(&Told) -> usize) -> BTreeMap<String, usize> {
        let mut sums = BTreeMap::new();
        for event in self.events() {
            let number = of(&event);
            *sums.entry(event.reason).or_default() += number;
        }
        sums
    }

    /// Waits until something holds.
    pub async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut seen = usize::MAX;
        for _ in 0..60_000 {
            let writes = self.cluster.read_journal(|journal| journal.writes.len());
            if std::mem::replace(&mut seen, writes) != writes && holds(self) {
                return;
            }
            if let Some(ended) = &*self.keeping.ended.lock().unwrap() {
                self.fail(ended);
            }
            sleep(Duration::from_millis(50)).await;
        }
        self.fail(&format!("it never came to: {what}"));
    }

    pub async fn until_registered(&self, name: &str) {
        self.until("registered", |world| {
            world
                .state(name)
                .is_some_and(|state| state.phase == Phase::AtRest)
        })
        .await;
    }

    /// Waits until the rollout checks its step with so many canary pods.
    pub async fn until_step(&self, name: &str, canary: u32) {
        self.until(&format!("step with {canary} canary pods"), |world| {
            let state = world.state(name);
            let at = state.is_some_and(|state| match state.phase {
                Phase::Stepping { step, .. } | Phase::Finishing { step, .. } => {
                    step.canary.0 == canary
                }
                _ => false,
            });
            let has = |role: &str, count: i64| {
                let clone = world.object(Kind::Deployment, &format!("{name}{role}"));
                clone.is_some_and(|clone| {
                    clone.replicas() == count && clone.status("availableReplicas") == count
                })
            };
            let wanted = world
                .object(Kind::Deployment, name)
                .map_or(0, |x| x.replicas());
            let canary = i64::from(canary);
            at && has("-canary", canary) && has("-primary", wanted - canary)
        })
        .await;
    }

    /// v2 is tried, fails at (4,6) and stands there.
    pub async fn until_frozen_at_the_second_step(&self) {
        self.until_registered(X).await;
        self.apply(X, 10, "orders:v2");
        self.until_step(X, 4).await;
        self.gauges.set("orders:v2", Gauge::Bad);
        self.until_frozen(X, "orders:v2").await;
        self.check_numbers(X, 4, 6);
    }

    /// Waits until the rollout stands still with this version on the canary.
    pub async fn until_frozen(&self, name: &str, image: &str) {
        self.until(&format!("frozen with {image}"), |world| {
            let frozen = world
                .state(name)
                .is_some_and(|state| matches!(state.phase, Phase::Frozen { .. }));
            let canary = world.object(Kind::Deployment, &format!("{name}-canary"));
            frozen && canary.is_some_and(|canary| canary.image() == image)
        })
        .await;
    }

    /// Waits until the clones have so many pods each, all available.
    pub async fn until_numbers(&self, name: &str, canary: u32, primary: u32) {
        let wanted = [i64::from(canary), i64::from(primary)];
        self.until(&format!("the numbers ({canary},{primary})"), |world| {
            let available = ["canary", "primary"].map(|clone| {
                world
                    .object(Kind::Deployment, &format!("{name}-{clone}"))
                    .map_or(-1, |clone| clone.status("availableReplicas"))
            });
            world.numbers(name) == wanted && available == wanted
        })
        .await;
    }

    pub fn check_numbers(&self, name: &str, canary: i64, primary: i64) {
        let numbers = self.numbers(name);
        if numbers != [canary, primary] {
            self.fail(&format!(
                "the numbers are {numbers:?}, not ({canary},{primary})"
            ));
        }
    }

    /// The numbers of canary and primary.
    fn numbers(&self, name: &str) -> [i64; 2] {
        ["canary", "primary"].map(|clone| {
            self.object(Kind::Deployment, &format!("{name}-{clone}"))
                .map_or(-1, |clone| clone.replicas())
        })
    }

    /// Waits until this version is the accepted one and nothing is open.
    pub async fn until_accepted(&self, name: &str, image: &str) {
        self.until(&format!("{image} accepted"), |world| {
            world.accepted(name).as_deref() == Some(image) && world.is_at_rest(name)
        })
        .await;
    }

    pub async fn until_rejected(&self, name: &str, image: &str) {
        self.until(&format!("{image} rejected"), |world| {
            let rejected = world.state(name).and_then(|state| state.rejected);
            world.is_at_rest(name)
                && rejected.is_some_and(|rejection| rejection.images == [image.to_owned()])
        })
        .await;
    }

    pub fn is_at_rest(&self, name: &str) -> bool {
        self.state(name)
            .is_some_and(|state| state.phase == Phase::AtRest)
    }

    /// How many writes the daemon has made, and when the last was.
    pub fn writes(&self) -> (usize, Duration) {
        self.cluster.read_journal(|journal| {
            let count = journal.writes_by(AGENT).count();
            let last = journal
                .writes
                .iter()
                .rev()
                .find(|write| write.agent == AGENT);
            (count, last.map_or(Duration::ZERO, |write| write.at))
        })
    }

    /// Nothing writes any more: the daemon comes to rest within `bound`, and stays there for hours (promise 6).
    pub async fn until_stable(&self, bound: Duration) {
        let begun = self.cluster.elapsed();
        let quiet = Duration::from_secs(300);
        loop {
            let (_, last) = self.writes();
            let since = self.cluster.elapsed().saturating_sub(last.max(begun));
            if since >= quiet {
                break;
            }
            if self.cluster.elapsed() > begun + bound {
                self.fail("it does not come to rest");
            }
            sleep(quiet.saturating_sub(since).max(Duration::from_millis(1))).await;
        }
        let (before, _) = self.writes();
        sleep(Duration::from_secs(2 * 3600)).await;
        if self.writes().0 != before {
            self.fail("the daemon went on writing");
        }
        if let Some(ended) = &*self.keeping.ended.lock().unwrap() {
            self.fail(ended);
        }
        self.check_promises();
    }

    pub fn check_promises(&self) {
        let violations = self.cluster.violations();
        if !violations.is_empty() {
            self.fail(&format!("promises broken:\n{}", violations.join("\n")));
        }
    }

    /// At rest as it should be: X owns exactly one ReplicaSet, the accepted one, with all its pods; no clone is left.
    pub fn check_at_rest(&self, name: &str, image: &str) {
        let Some(original) = self.object(Kind::Deployment, name) else {
            self.fail("X is gone")
        };
        let wanted = original.replicas();
        let mut wrong = Vec::new();
        if !self.is_at_rest(name) {
            wrong.push(format!("it is in {:?}", self.state(name)));
        }
        if self.accepted(name).as_deref() != Some(image) {
            wrong.push(format!("{:?} is accepted", self.accepted(name)));
        }
        if !original.is_set("/spec/paused") {
            wrong.push("X is not paused".to_owned());
        }
        for clone in ["primary", "canary"] {
            if self
                .object(Kind::Deployment, &format!("{name}-{clone}"))
                .is_some()
            {
                wrong.push(format!("the {clone} is left"));
            }
        }
        let (owned, pods) = self.cluster.look(|now| {
            let owned: Vec<Object> = now
                .list(Kind::ReplicaSet, NAMESPACE)
                .filter(|set| set.is_controlled_by(&original))
                .cloned()
                .collect();
            let pods: Vec<(String, bool)> = now
                .list(Kind::Pod, NAMESPACE)
                .filter(|pod| pod.text("/metadata/labels/app") == name)
                .map(|pod| (pod.image().to_owned(), pod.is_ready()))
                .collect();
            (owned, pods)
        });
        if owned.len() > 1 || (owned.is_empty() && wanted > 0) {
            wrong.push(format!("X owns {} ReplicaSets", owned.len()));
        }
        if owned.iter().any(|set| set.image() != image) {
            wrong.push(format!("X owns a ReplicaSet of {}", owned[0].image()));
        }
        let right = i64::try_from(
            pods.iter()
                .filter(|pod| **pod == (image.to_owned(), true))
                .count(),
        )
        .unwrap();
        if let Err(why) = self.shows_how_it_stands(&original) {
            wrong.push(why);
        }
        if right != wanted || pods.len() != usize::try_from(wanted).unwrap() {
            wrong.push(format!(
                "{right} of {} pods are ready ones of {image}, R = {wanted}",
                pods.len()
            ));
        }
        if !wrong.is_empty() {
            self.fail(&format!(
                "{name} is not at rest as it should be: {}",
                wrong.join("; ")
            ));
        }
    }

    /// The condition on X says so.
    fn shows_how_it_stands(&self, original: &Object) -> Result<(), String> {
        let rejected = self
            .state(original.name())
            .and_then(|state| state.rejected)
            .is_some_and(|rejection| rejection.images == [original.image().to_owned()]);
        // A restart that failed has the accepted version's image.
        let template = |object: Option<Object>, place: &str| {
            let raw = object?.at(place)?.clone();
            Some(Template::new(raw).hash())
        };
        let object = self.object(Kind::PodTemplate, &format!("{}-volery", original.name()));
        let same =
            template(object, "/template") == template(Some(original.clone()), "/spec/template");
        let expected = if same {
            ("True", "AtRest")
        } else if original.replicas() == 0 && !rejected {
            ("Unknown", "WaitingForReplicas")
        } else {
            ("False", "Rejected")
        };
        let shown = original
            .condition(CONDITION)
            .ok_or("X shows no condition")?;
        if expected == (text(shown, "status"), text(shown, "reason")) {
            Ok(())
        } else {
            Err(format!("X shows {shown}"))
        }
    }

    /// Ends the test with everything that happened.
    pub fn fail(&self, why: &str) -> ! {
        panic!("{}\n{why}", timeline(&self.cluster, &self.log));
    }
}

fn readable(line: &str) -> String {
    let line = line.trim_start();
    let told = line.split_once(' ').zip(line.rsplit_once(" service="));
    match told {
        Some(((level, _), (text, service))) => {
            let text = text.split_at(level.len()).1.trim_start();
            format!("{level} {}: {text}", service.trim_matches('"'))
        }
        None => line.to_owned(),
    }
}

fn text<'a>(value: &'a serde_json::Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

async fn keep(keeping: Arc<Keeping>) {
    loop {
        let options = ClientOptions {
            lags: keeping.lags,
            dies_with_write: keeping.deaths.lock().unwrap().pop_front(),
            ..ClientOptions::of(AGENT)
        };
        let (client, lifeline) = keeping.cluster.client_with(options);
        *keeping.present.lock().unwrap() = Some(lifeline.clone());
        let readings = keeping.file.subscribe();
        let (end, lifetime) = watch::channel(Lifetime::Running);
        let metrics: Arc<dyn Metrics> = keeping.gauges.clone();
        let clock = keeping.clock.clone();
        let carrier = keeping.carrier.lock().unwrap().clone();
        let alerts = {
            let clock = clock.clone();
            move |config: &Config| match &carrier {
                Some(carrier) => {
                    let channels = config.channels.values();
                    Alerts::new(channels, &|_| None, carrier, &clock)
                }
                None => Alerts::none(),
            }
        };
        let ground = Ground {
            client,
            metrics: Box::new(move |_| Ok(metrics.clone())),
            alerts: Box::new(alerts),
            clock,
            health: Health::default(),
            reloads: keeping.reloads.clone(),
            candidacy: None,
            pod: None,
            release_after: Duration::from_secs(60),
            lifetime,
        };
        let mut daemon = tokio::spawn(daemon::run(readings, ground));
        tokio::select! {
            biased;
            () = lifeline.cut_off() => {
                daemon.abort();
                let _ = daemon.await;
                keeping.log.add("KILLED");
            }
            () = keeping.restart.notified() => {
                end.send_replace(Lifetime::Ending);
                let ended = daemon.await;
                keeping.log.add(format!("STOPPED {ended:?}"));
            }
            ended = &mut daemon => {
                *keeping.ended.lock().unwrap() = Some(format!("the daemon ended by itself: {ended:?}"));
                return;
            }
        }
        let downtime = *keeping.downtime.lock().unwrap();
        sleep(downtime).await;
    }
}
