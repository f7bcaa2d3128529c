//! A scenario, played from a service at rest until all is quiet again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::clock;
use super::cluster::{
    Behaviour, ClientOptions, Cluster, Journal, Kind, Lag, Lags, Lifeline, Object, Options,
    Refusal, Turn, deployment,
};
use super::prometheus::Prometheus;
use super::scenario::{Deed, Scenario, Trouble, Version, What, When, Which};
use super::summary::{Ending, Summary};
use crate::analysis::Query;
use crate::cluster::STATE_ANNOTATION;
use crate::config::{Loaded, Reading, Service, ServiceName, display_duration};
use crate::daemon::{self, DaemonError, Ground, Lifetime};
use crate::notify::Alerts;
use crate::rollout::action::state_name;
use crate::rollout::state::{Phase, State};
use crate::telemetry::health::Health;
use crate::telemetry::log;
use crate::telemetry::reloads::Reloads;

/// The daemon's name in the journal.
pub const AGENT: &str = "volery";

/// When the new version is applied: after so long at rest, on the full hour that a log is easy to read by.
pub const APPLIED_AFTER: Duration = Duration::from_secs(3600);

/// How long before that the daemon starts.
const REGISTERED_BEFORE: Duration = Duration::from_secs(60);

/// How often is looked at what goes on.
const GLANCE: Duration = Duration::from_secs(1);

/// How long the daemon writes nothing before a service at rest is taken to stay so.
const QUIET: Duration = Duration::from_secs(10);

/// How much longer than its configuration says anything may take before nothing is expected any more.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The longest simulation.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long a crashed container of a bad version stays down.
const BACK_OFF: Duration = Duration::from_secs(40);

/// How long a removed service is awaited in the file.
const RELEASE_AFTER: Duration = Duration::from_secs(60);

/// Why a scenario cannot be played.
#[derive(Debug, Error)]
pub enum PlayError {
    /// The file has no such service.
    #[error("there is no service {name}; the file has {known}")]
    UnknownService {
        /// As asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Nothing to play.
    #[error("the file has no service")]
    NoService,
    /// A version's expressions are to be false, and there are none, or not so many.
    #[error("{name} has {known} success expressions in the file, so none of them can be {asked}")]
    NoExpression {
        /// The service.
        name: ServiceName,
        /// How many there are.
        known: usize,
        /// What is to go wrong.
        asked: &'static str,
    },
    /// A service cannot leave a file that is then empty.
    #[error(
        "{name} cannot be removed: the simulated file must keep another service in its namespace, and this one has none"
    )]
    OnlyService {
        /// The one.
        name: ServiceName,
    },
    /// The service is not registered after a while.
    #[error("{name} does not get registered")]
    NotRegistered {
        /// The service.
        name: ServiceName,
    },
    /// The simulated API server refused what a user does.
    #[error("the simulated cluster refused it: {0}")]
    Refused(String),
    /// The daemon ended by itself.
    #[error("the daemon ended")]
    Daemon(#[source] DaemonError),
    /// The daemon broke.
    #[error("the daemon broke off")]
    Broke(#[source] tokio::task::JoinError),
}

impl From<Refusal> for PlayError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(format!("{} ({})", refusal.message, refusal.reason))
    }
}

/// What was played.
pub struct Played {
    /// What came of it.
    pub summary: Summary,
    /// All that happened in the cluster.
    pub journal: Journal,
}

/// Finds a service by its name in the file, or the file's first.
///
/// # Errors
///
/// When there is none.
pub fn choose<'a>(loaded: &'a Loaded, name: Option<&str>) -> Result<&'a Service, PlayError> {
    let services = &loaded.config.services;
    let known = || {
        let names: Vec<&str> = services.keys().map(ServiceName::as_str).collect();
        names.join(", ")
    };
    match name {
        Some(name) => services
            .values()
            .find(|service| service.name.as_str() == name)
            .ok_or_else(|| PlayError::UnknownService {
                name: name.to_owned(),
                known: known(),
            }),
        None => {
            let text = std::fs::read_to_string(&loaded.file).unwrap_or_default();
            let place = |service: &&Service| place_of(&text, service.name.as_str());
            services
                .values()
                .min_by_key(place)
                .ok_or(PlayError::NoService)
        }
    }
}

/// The line of a top-level key; the parsed file has no order.
fn place_of(text: &str, key: &str) -> usize {
    let is_key = |line: &str| {
        let line = line.trim_start_matches(['"', '\'']);
        line.strip_prefix(key).is_some_and(|rest| {
            rest.trim_start_matches(['"', '\''])
                .trim_start()
                .starts_with(':')
        })
    };
    text.lines().position(is_key).unwrap_or(usize::MAX)
}

/// The moments that never came and at which something was to begin; an end of what never began is nobody's loss.
fn unreached(deeds: &[Deed]) -> BTreeSet<When> {
    deeds
        .iter()
        .filter(|deed| !matches!(deed.what, What::Heal(..) | What::PrometheusUp))
        .map(|deed| deed.when)
        .collect()
}

/// Plays a scenario with one service of a file. `tell` hears what is done to the cluster, in between the log.
///
/// Needs a current-thread runtime with a paused clock.
///
/// # Errors
///
/// See [`PlayError`].
pub async fn play(
    loaded: &Loaded,
    service: &Service,
    scenario: &Scenario,
    tell: &mut dyn FnMut(&str),
) -> Result<Played, PlayError> {
    let mut play = Play::begin(loaded, service, scenario)?;
    play.register().await?;
    play.run(scenario.deeds.clone(), tell).await?;
    Ok(play.end())
}

/// One life of the daemon.
struct Daemon {
    task: JoinHandle<Result<(), DaemonError>>,
    lifeline: Lifeline,
    /// It lives for as long as this does.
    _lifetime: watch::Sender<Lifetime>,
}

struct Play<'a> {
    loaded: Loaded,
    /// What the daemon reads.
    file: watch::Sender<Arc<Reading>>,
    service: &'a Service,
    cluster: Cluster,
    clock: log::Clock,
    prometheus: Prometheus,
    daemon: Option<Daemon>,
    /// When the daemon, killed before, is started again.
    start_at: Option<Duration>,
    /// What was accepted, one after the other.
    accepted: Vec<String>,
    /// When something was done to the cluster last.
    disturbed: Duration,
    /// The smallest and the largest R so far.
    wanted: (u64, u64),
}

impl<'a> Play<'a> {
    fn begin(
        loaded: &Loaded,
        service: &'a Service,
        scenario: &Scenario,
    ) -> Result<Self, PlayError> {
        has_expressions(service, scenario)?;
        let leaves = scenario.deeds.iter().any(|deed| deed.what == What::Remove);
        let mut loaded = loaded.clone();
        loaded.config.services.retain(|_, other| {
            other.name == service.name || (leaves && other.namespace == service.namespace)
        });
        if leaves && loaded.config.services.len() < 2 {
            return Err(PlayError::OnlyService {
                name: service.name.clone(),
            });
        }
        let ms = Duration::from_millis;
        let cluster = Cluster::start(Options {
            seed: scenario.seed,
            lags: Lags::all(Lag {
                fixed: ms(5),
                jitter: ms(20),
            }),
            start_time: scenario.start_time(),
            ready_after: Duration::ZERO,
            terminate_after: scenario.pod_stop,
            nodes: 3,
            ..Options::default()
        });
        for service in loaded.config.services.values() {
            let (namespace, name) = (&service.namespace, &service.deployment);
            let image = Version::first().image(name);
            cluster.apply(&deployment(namespace, name, scenario.replicas, &image))?;
        }
        let prometheus = Prometheus::new(
            cluster.clone(),
            &service.namespace,
            &service.deployment,
            Query::of(service),
        );
        Ok(Self {
            file: watch::Sender::new(Arc::new(Ok(loaded.clone()))),
            loaded,
            service,
            cluster,
            clock: clock::start(),
            prometheus,
            daemon: None,
            start_at: None,
            accepted: Vec::new(),
            disturbed: Duration::ZERO,
            wanted: (scenario.replicas.into(), scenario.replicas.into()),
        })
    }

    fn start_daemon(&mut self) {
        let (client, lifeline) = self.cluster.client_with(ClientOptions {
            lags: Lags::all(Lag {
                fixed: Duration::from_millis(5),
                jitter: Duration::from_millis(20),
            }),
            ..ClientOptions::of(AGENT)
        });
        let metrics = self.prometheus.for_life(lifeline.clone());
        let (lifetime, living) = watch::channel(Lifetime::Running);
        let ground = Ground {
            client,
            metrics: Box::new(move |_| Ok(metrics.clone())),
            alerts: Box::new(|_| Alerts::none()),
            clock: self.clock.clone(),
            health: Health::default(),
            reloads: Reloads::default(),
            candidacy: None,
            pod: None,
            release_after: RELEASE_AFTER,
            lifetime: living,
        };
        self.daemon = Some(Daemon {
            task: tokio::spawn(daemon::run(self.file.subscribe(), ground)),
            lifeline,
            _lifetime: lifetime,
        });
        self.start_at = None;
    }

    /// The daemon starts a minute before the new version is applied, when all pods have been ready for long.
    async fn register(&mut self) -> Result<(), PlayError> {
        sleep(APPLIED_AFTER - REGISTERED_BEFORE).await;
        self.start_daemon();
        sleep(APPLIED_AFTER.saturating_sub(self.cluster.elapsed())).await;
        match self.state() {
            Some(state) if state.phase == Phase::AtRest => Ok(()),
            Some(_) | None => Err(PlayError::NotRegistered {
                name: self.service.name.clone(),
            }),
        }
    }

    async fn run(
        &mut self,
        mut deeds: Vec<Deed>,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), PlayError> {
        loop {
            let now = self.now();
            let (due, later): (Vec<Deed>, Vec<Deed>) =
                deeds.into_iter().partition(|deed| self.is_due(deed.when));
            deeds = later;
            for deed in due {
                self.do_it(deed.what, tell).await?;
                self.disturbed = self.now();
            }
            if self.start_at.is_some_and(|at| at <= now) {
                tell("the daemon is started again");
                self.start_daemon();
                self.disturbed = now;
            }
            self.note_accepted();
            if let Some(daemon) = self.daemon.take_if(|daemon| daemon.task.is_finished()) {
                match daemon.task.await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return Err(PlayError::Daemon(error)),
                    Err(error) => return Err(PlayError::Broke(error)),
                }
            }
            let timed = deeds.iter().any(|deed| matches!(deed.when, When::After(_)));
            if (!timed && self.start_at.is_none() && self.is_over()) || now > LONGEST {
                for when in unreached(&deeds) {
                    tell(&format!(
                        "{when} was never reached: nothing that was to happen then has happened"
                    ));
                }
                return Ok(());
            }
            let next = deeds
                .iter()
                .filter_map(|deed| match deed.when {
                    When::After(time) => Some(time),
                    When::Step(_) => None,
                })
                .chain(self.start_at)
                .map(|time| time.saturating_sub(now))
                .fold(GLANCE, Duration::min);
            sleep(next.max(Duration::from_millis(1))).await;
        }
    }

    /// Since the new version was applied.
    fn now(&self) -> Duration {
        self.cluster.elapsed().saturating_sub(APPLIED_AFTER)
    }

    fn is_due(&self, when: When) -> bool {
        match when {
            When::After(time) => time <= self.now(),
            When::Step(number) => self.state().is_some_and(|state| match state.phase {
                Phase::Stepping { step, .. }
                | Phase::Finishing { step, .. }
                | Phase::Frozen { step, .. }
                | Phase::Replacing { step, .. } => step.number >= number,
                Phase::Registering
                | Phase::AtRest
                | Phase::Opening { .. }
                | Phase::HandingOver { .. }
                | Phase::Closing { .. }
                | Phase::Releasing => false,
            }),
        }
    }

    async fn do_it(&mut self, what: What, tell: &mut dyn FnMut(&str)) -> Result<(), PlayError> {
        let (namespace, worker) = (&self.service.namespace, &self.service.deployment);
        match what {
            What::Apply(version) => {
                let image = version.image(worker);
                tell(&format!(
                    "kubectl -n {namespace} set image deploy/{worker} worker={image}"
                ));
                self.cluster.set_image(namespace, worker, &image)?;
            }
            What::Scale(replicas) => {
                tell(&format!(
                    "kubectl -n {namespace} scale deploy/{worker} --replicas={replicas}"
                ));
                self.cluster.scale(namespace, worker, replicas)?;
                let (least, most) = self.wanted;
                self.wanted = (least.min(replicas.into()), most.max(replicas.into()));
            }
            What::Resume => {
                tell(&format!(
                    "kubectl -n {namespace} rollout resume deploy/{worker}"
                ));
                self.cluster.set_paused(namespace, worker, false)?;
            }
            What::Kill { away } => {
                tell(&format!(
                    "the daemon is killed, for {}",
                    display_duration(away)
                ));
                self.kill();
                self.start_at = Some(self.now() + away);
            }
            What::Remove => {
                let name = &self.service.name;
                tell(&format!("{name} is removed from the file"));
                self.loaded.config.services.remove(name);
                self.file.send_replace(Arc::new(Ok(self.loaded.clone())));
            }
            What::Spoil(version, trouble) => {
                tell(&format!("from now on {version} is bad: {trouble}"));
                let image = version.image(worker);
                self.prometheus.spoil(&image, trouble);
                if let Some(behaviour) = behaviour(trouble) {
                    self.cluster.turn_pods(namespace, &image, behaviour);
                }
            }
            What::Heal(version, trouble) => {
                tell(&format!("{version} is good again"));
                let image = version.image(worker);
                self.prometheus.heal(&image, trouble);
                if behaviour(trouble).is_some() {
                    let good = Behaviour::Ready {
                        after: Duration::ZERO,
                    };
                    self.cluster.turn_pods(namespace, &image, good);
                }
            }
            What::PrometheusDown => {
                tell("Prometheus goes down");
                self.prometheus.go_down();
            }
            What::PrometheusUp => {
                tell("Prometheus is back");
                self.prometheus.come_up();
            }
        }
        Ok(())
    }

    fn kill(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.lifeline.cut();
            daemon.task.abort();
        }
    }

    fn object<R>(&self, kind: Kind, name: &str, read: impl FnOnce(&Object) -> R) -> Option<R> {
        self.cluster
            .look(|now| now.get(kind, &self.service.namespace, name).map(read))
    }

    fn state(&self) -> Option<State> {
        let name = state_name(&self.service.deployment);
        let text = self.object(Kind::PodTemplate, &name, |object| {
            object.annotation(STATE_ANNOTATION).map(str::to_owned)
        })??;
        serde_json::from_str(&text).ok()
    }

    fn accepted_now(&self) -> Option<String> {
        let name = state_name(&self.service.deployment);
        self.object(Kind::PodTemplate, &name, |object| {
            object.text("/template/spec/containers/0/image").to_owned()
        })
    }

    fn asked_for(&self) -> String {
        self.object(Kind::Deployment, &self.service.deployment, |object| {
            object
                .text("/spec/template/spec/containers/0/image")
                .to_owned()
        })
        .unwrap_or_default()
    }

    fn note_accepted(&mut self) {
        if let Some(now) = self.accepted_now()
            && self.accepted.last() != Some(&now)
        {
            self.accepted.push(now);
        }
    }

    /// Since the new version was applied, until the daemon did something last; telling about it is not doing.
    fn last_write(&self) -> Duration {
        self.cluster.read_journal(|journal| {
            let last = journal
                .writes
                .iter()
                .rev()
                .find(|write| write.agent == AGENT && !write.only_tells());
            last.map_or(Duration::ZERO, |write| {
                write.at.saturating_sub(APPLIED_AFTER)
            })
        })
    }

    fn is_over(&self) -> bool {
        let last = self.last_write().max(self.disturbed);
        let quiet = self.now().saturating_sub(last);
        if quiet < QUIET {
            return false;
        }
        match self.state() {
            // Not until it was waited for the service to come back into the file.
            None => true,
            Some(_) if self.leaves() && quiet < RELEASE_AFTER + QUIET => false,
            Some(state) if matches!(state.phase, Phase::AtRest | Phase::Frozen { .. }) => true,
            Some(_) => {
                let service = self.service;
                let expected = [
                    service.abort,
                    service.start_delay,
                    service.check_interval,
                    service.max_step_duration,
                    service.inconclusive_timeout,
                ];
                quiet
                    > expected
                        .iter()
                        .copied()
                        .fold(PATIENCE, Duration::saturating_add)
            }
        }
    }

    /// Whether the service is no longer in the file.
    fn leaves(&self) -> bool {
        !self.loaded.config.services.contains_key(&self.service.name)
    }

    fn ending(&self) -> Ending {
        let Some(state) = self.state() else {
            return Ending::Released;
        };
        let asked_for_is_accepted = self.accepted_now() == Some(self.asked_for());
        if matches!(state.phase, Phase::Frozen { .. }) {
            Ending::Frozen
        } else if state.phase != Phase::AtRest {
            Ending::Unfinished
        } else if asked_for_is_accepted && self.accepted.len() > 1 {
            Ending::Promoted
        } else if asked_for_is_accepted {
            Ending::Cancelled
        } else if state.rejected.is_some() {
            Ending::RolledBack
        } else {
            Ending::Waiting
        }
    }

    fn end(mut self) -> Played {
        let worker = format!("{}:", self.service.deployment);
        let namespace = &self.service.namespace;
        let journal = self.cluster.journal();
        let mut starts = BTreeMap::new();
        let started = journal
            .turns(namespace, Turn::Started)
            .filter(|turn| turn.at >= APPLIED_AFTER && turn.image.starts_with(&worker));
        for turn in started {
            *starts.entry(turn.image.clone()).or_insert(0) += 1;
        }
        let counts = || {
            journal.censuses(namespace, APPLIED_AFTER).map(|census| {
                let ours = census
                    .images
                    .iter()
                    .filter(|(image, _)| image.starts_with(&worker));
                ours.fold((0, 0), |(alive, ready), (_, count)| {
                    (alive + count.alive, ready + count.ready)
                })
            })
        };
        let summary = Summary {
            ending: self.ending(),
            asked_for: self.asked_for(),
            accepted: self.accepted.last().cloned().unwrap_or_default(),
            took: self.last_write(),
            wanted: self.wanted,
            starts,
            most_alive: counts().map(|(alive, _)| alive).max().unwrap_or_default(),
            least_available: counts().map(|(_, ready)| ready).min().unwrap_or_default(),
            queries: self.prometheus.asked(),
        };
        self.kill();
        Played { summary, journal }
    }
}

/// Trouble with expressions needs expressions.
fn has_expressions(service: &Service, scenario: &Scenario) -> Result<(), PlayError> {
    let known = service.success.len();
    for deed in &scenario.deeds {
        let What::Spoil(_, trouble) = &deed.what else {
            continue;
        };
        let (needed, asked) = match trouble {
            Trouble::Metrics(Which::All) => (1, "false"),
            Trouble::Metrics(Which::Only(number)) => (*number, "false at that place"),
            Trouble::NoData => (1, "without data"),
            Trouble::Crash | Trouble::NeverReady | Trouble::ImagePull | Trouble::Unschedulable => {
                continue;
            }
        };
        if needed > known {
            return Err(PlayError::NoExpression {
                name: service.name.clone(),
                known,
                asked,
            });
        }
    }
    Ok(())
}

/// What pods of a version with this trouble do, where it is theirs.
fn behaviour(trouble: Trouble) -> Option<Behaviour> {
    match trouble {
        Trouble::Metrics(_) | Trouble::NoData => None,
        Trouble::Crash => Some(Behaviour::CrashLoop {
            up: Duration::ZERO,
            down: BACK_OFF,
            exit_code: 1,
        }),
        Trouble::NeverReady => Some(Behaviour::NeverReady),
        Trouble::ImagePull => Some(Behaviour::ImagePull),
        Trouble::Unschedulable => Some(Behaviour::Unschedulable),
    }
}
