//! What runs: it takes each reading of the file, and has the roster, the watches and the settings follow.
//!
//! A reading is taken entry by entry: what is right applies, what is wrong stays as it was, and both are told once. At start
//! and later the same is done with it; only that at start there is nothing yet that could stay.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use super::departure::{Departures, News};
use super::election::{Election, Leadership, Term};
use super::roster::{Roster, Wish, target};
use super::service::{Settings, Shared};
use super::turns::Turns;
use super::{AlertsOf, DaemonError, Ground, Lifetime, MetricsOf, clock};
use crate::analysis::PrometheusError;
use crate::chain::chain;
use crate::cluster::{
    Cluster, Events, Kind, NoFence, Notice, OwnPod, Registered, Tone, watch as follow,
};
use crate::config::{
    Config, ConfigError, Kept, Loaded, Reading, Renewal, Service, ServiceName, display_duration,
};
use crate::notify::Alerts;
use crate::telemetry::health::Health;
use crate::telemetry::reloads::{Reload, Reloads};

/// How long the last Events and alerts may take when the daemon ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long until a reading is taken again that was refused for what is not in the file.
const NEXT_TRY: Duration = Duration::from_secs(30);

/// The reason of Events about a file.
const REJECTED: &str = "ConfigRejected";

/// The part of a daemon that outlives every configuration.
pub(super) struct Supervisor {
    readings: watch::Receiver<Arc<Reading>>,
    cluster: Cluster,
    events: Events,
    metrics: Box<MetricsOf>,
    alerts: Box<AlertsOf>,
    health: Health,
    reloads: Reloads,
    pod: Option<OwnPod>,
    lifetime: watch::Receiver<Lifetime>,
    election: Option<Election>,

    roster: Roster,
    departures: Departures,
    /// What applies, from the first usable reading on.
    standing: Option<Standing>,
    told: Told,
    /// When the present reading is taken again.
    retry: Option<clock::Instant>,

    watches: JoinSet<()>,
    /// Watched; a namespace is until the daemon ends, for what is still registered there.
    watched: BTreeSet<String>,
    /// Watched, and not fully seen yet.
    unseen: BTreeSet<String>,
    readiness: Readiness,
    alerting: JoinSet<()>,
}

/// What applies.
struct Standing {
    config: Config,
    /// Of the last reading. Whether what is absent in it is absent on purpose.
    soundness: Soundness,
    settings: watch::Sender<Settings>,
    shared: Shared,
}

/// Whether nothing at all is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Soundness {
    Valid,
    Doubtful,
}

/// Why a reading is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// It is another one.
    News,
    /// The last try failed for what is not in the file.
    Retry,
}

/// Whether the probes have been told that all is seen; later namespaces do not take that back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    Waiting,
    Ready,
}

/// What has been said of the file, so that nothing is said twice.
#[derive(Default)]
struct Told {
    /// Why it was refused as a whole.
    refusal: Option<String>,
    /// What is wrong with it.
    problems: BTreeSet<String>,
    /// What is doubtful in it.
    warnings: BTreeSet<String>,
    /// Which entries are not as it has them, and why.
    kept: BTreeMap<ServiceName, String>,
    /// How many services were absent in it and left registered.
    absent: usize,
}

/// Why a reading does not apply, not even in part.
#[derive(Debug, Error)]
enum Refusal<'a> {
    #[error(transparent)]
    File(&'a ConfigError),
    #[error(
        "{}: it names no service, while these are registered: {names}; to give all of them back, say volery release --all",
        file.display()
    )]
    NoService { file: &'a Path, names: String },
    #[error("{}: what it says of Prometheus cannot be used", file.display())]
    Prometheus {
        file: &'a Path,
        source: PrometheusError,
    },
}

impl Supervisor {
    pub fn new(readings: watch::Receiver<Arc<Reading>>, ground: Ground) -> Self {
        let Ground {
            client,
            metrics,
            alerts,
            clock,
            health,
            reloads,
            candidacy,
            pod,
            release_after,
            lifetime,
        } = ground;
        let (cluster, election) = match candidacy {
            Some(candidacy) => {
                let term = Arc::new(Term::default());
                let cluster = Cluster::new(client, clock, term.clone());
                let election = Election::new(cluster.clone(), candidacy, term);
                (cluster, Some(election))
            }
            None => (Cluster::new(client, clock, Arc::new(NoFence)), None),
        };
        Self {
            readings,
            events: Events::new(cluster.clone()),
            cluster,
            metrics,
            alerts,
            health,
            reloads,
            pod,
            lifetime,
            election,
            roster: Roster::new(),
            departures: Departures::after(release_after),
            standing: None,
            told: Told::default(),
            retry: None,
            watches: JoinSet::new(),
            watched: BTreeSet::new(),
            unseen: BTreeSet::new(),
            readiness: Readiness::Waiting,
            alerting: JoinSet::new(),
        }
    }

    /// Alone, or for as long as this daemon leads.
    pub async fn run(mut self) -> Result<(), DaemonError> {
        let Some(mut election) = self.election.take() else {
            return self.lead().await;
        };
        let leadership = election.leadership();
        let outcome = tokio::select! {
            biased;
            () = election.stand() => Err(DaemonError::Deposed),
            outcome = self.lead_when_elected(leadership) => outcome,
        };
        if outcome.is_ok() {
            // The next daemon need not wait until the Lease has run out; it does where this takes too long.
            let _ = tokio::time::timeout(LAST_WORDS, election.give_up()).await;
        }
        outcome
    }

    async fn lead_when_elected(
        &mut self,
        mut leadership: watch::Receiver<Leadership>,
    ) -> Result<(), DaemonError> {
        self.health
            .waiting("it is not known yet which daemon leads");
        loop {
            let standing = leadership.borrow_and_update().clone();
            match standing {
                Leadership::Leading => return self.lead().await,
                // Ready to take over.
                Leadership::StandingBy { .. } => self.health.ready(),
                Leadership::Unknown | Leadership::Deposed => {}
            }
            tokio::select! {
                biased;
                _ = self.lifetime.wait_for(|lifetime| *lifetime == Lifetime::Ending) => return Ok(()),
                Ok(()) = leadership.changed() => {}
            }
        }
    }

    async fn lead(&mut self) -> Result<(), DaemonError> {
        let mut writing = JoinSet::new();
        writing.spawn(self.events.clone().write());
        let outcome = self.work().await;
        self.health.waiting("stopping");
        outcome?;
        while let Some(ended) = self.roster.ended().await {
            ended.map_err(DaemonError::Task)?;
        }
        self.events.close();
        if let Some(standing) = &self.standing {
            standing.settings.borrow().alerts.close();
        }
        let last_words = async {
            while writing.join_next().await.is_some() || self.alerting.join_next().await.is_some() {
            }
        };
        // What is not written by then is in the log.
        let _ = tokio::time::timeout(LAST_WORDS, last_words).await;
        info!("stopped; every worker runs on, and the next start goes on where this one was");
        Ok(())
    }

    async fn work(&mut self) -> Result<(), DaemonError> {
        let store = self.cluster.store().clone();
        let mut ending = self.lifetime.clone();
        self.take(Occasion::News);
        loop {
            self.get_ready();
            tokio::select! {
                biased;
                _ = ending.wait_for(|lifetime| *lifetime == Lifetime::Ending) => return Ok(()),
                Some(ended) = self.roster.ended() => {
                    let (who, end) = ended.map_err(DaemonError::Task)?;
                    if let Some(standing) = &self.standing {
                        self.roster.parted(who, end, &standing.shared);
                    }
                }
                Some(ended) = self.watches.join_next() => {
                    ended.map_err(DaemonError::Task)?;
                    return Err(DaemonError::WatchEnded);
                }
                () = changed(&mut self.readings) => self.take(Occasion::News),
                () = clock::until(self.retry) => self.take(Occasion::Retry),
                namespace = store.first_synced(&self.unseen) => {
                    self.unseen.remove(&namespace);
                    self.look_who_is_absent();
                }
                () = self.departures.next() => self.let_go(),
            }
        }
    }

    /// Takes what the file says now.
    fn take(&mut self, occasion: Occasion) {
        self.retry = None;
        let reading = self.readings.borrow_and_update().clone();
        let outcome = match reading.as_ref() {
            Ok(loaded) => self.apply(loaded),
            Err(error) => Err(Refusal::File(error)),
        };
        let reload = match outcome {
            Ok(Soundness::Valid) => Reload::Applied,
            Ok(Soundness::Doubtful) => Reload::InPart,
            Err(refusal) => {
                self.refuse(&refusal);
                Reload::Refused
            }
        };
        if occasion == Occasion::News || reload != Reload::Refused {
            self.reloads.count(reload);
        }
    }

    /// Nothing changes, and each reason is told once.
    fn refuse(&mut self, refusal: &Refusal<'_>) {
        if matches!(refusal, Refusal::Prometheus { .. }) {
            self.retry = Some(clock::now() + NEXT_TRY);
        }
        if let Some(standing) = &mut self.standing {
            standing.soundness = Soundness::Doubtful;
        }
        self.look_who_is_absent();
        let text = chain(refusal);
        if self.told.refusal.as_ref() == Some(&text) {
            return;
        }
        if self.standing.is_some() {
            error!("{text}; everything stays as it was until the file is right");
        } else {
            error!("{text}; nothing is done until the file is right");
            self.health.waiting("the configuration file cannot be used");
        }
        self.tell_on_pod(&text);
        self.told.refusal = Some(text);
    }

    fn apply<'a>(&mut self, loaded: &'a Loaded) -> Result<Soundness, Refusal<'a>> {
        self.refuse_without_service(loaded)?;
        let base = self.base(loaded);
        let Renewal { config, kept } = match &base {
            Some(base) => base.renewed(loaded),
            None => Renewal {
                config: loaded.config.clone(),
                kept: BTreeMap::new(),
            },
        };
        let soundness = if loaded.is_valid() {
            Soundness::Valid
        } else {
            Soundness::Doubtful
        };
        self.set(&config, &loaded.file)?;
        if self.told.refusal.take().is_some() {
            info!("configuration: the file can be used again");
        }
        let kept_before = std::mem::take(&mut self.told.kept);
        self.tell_problems(loaded);
        self.tell_kept(loaded, &config, &kept, &kept_before);
        match &base {
            Some(base) => tell_changes(base, &config, &kept_before, &kept),
            None => self.tell_start(&config),
        }
        if let Some(standing) = &mut self.standing {
            standing.config = config;
            standing.soundness = soundness;
            let services = standing.config.services.values();
            self.roster.keep(services, &standing.shared);
        }
        self.watch_namespaces();
        self.look_who_is_absent();
        Ok(soundness)
    }

    /// A file without any service is more likely a mistake than a wish (case K49). At start nothing is known to be
    /// registered yet, and nothing is given back then either.
    fn refuse_without_service<'a>(&self, loaded: &'a Loaded) -> Result<(), Refusal<'a>> {
        if self.standing.is_none() || !loaded.names_no_service() {
            return Ok(());
        }
        let registered = self.cluster.store().registered();
        if registered.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = registered
            .iter()
            .map(|who| who.deployment.as_str())
            .collect();
        Err(Refusal::NoService {
            file: &loaded.file,
            names: shortened(&names),
        })
    }

    /// What a reading is compared with: what applies, and what the file has had and is not given back yet. What is being
    /// given back counts when the file has it again, right or wrong: a bad entry is not an absent entry.
    fn base(&self, loaded: &Loaded) -> Option<Config> {
        let mut base = self.standing.as_ref()?.config.clone();
        for (_, told) in self.roster.assignments() {
            let name = &told.service.name;
            if told.wish == Wish::Keep || loaded.refused.contains(name) {
                base.services
                    .entry(name.clone())
                    .or_insert_with(|| told.service.clone());
            }
        }
        Some(base)
    }

    /// Has the global settings follow a configuration.
    fn set<'a>(&mut self, config: &Config, file: &'a Path) -> Result<(), Refusal<'a>> {
        let make =
            |config| (self.metrics)(config).map_err(|source| Refusal::Prometheus { file, source });
        let Some(standing) = &self.standing else {
            let settings = Settings {
                metrics: make(config)?,
                alerts: (self.alerts)(config),
                poll_interval: config.poll_interval,
            };
            self.deliver(&settings.alerts.clone());
            let (settings, setting) = watch::channel(settings);
            let shared = Shared {
                cluster: self.cluster.clone(),
                events: self.events.clone(),
                turns: Arc::new(Turns::new(
                    config.max_concurrent_rollouts,
                    self.cluster.store().clone(),
                )),
                settings: setting,
                lifetime: self.lifetime.clone(),
            };
            self.standing = Some(Standing {
                config: config.clone(),
                soundness: Soundness::Doubtful,
                settings,
                shared,
            });
            return Ok(());
        };
        let old = &standing.config;
        let before = standing.settings.borrow().clone();
        let metrics = if config.prometheus == old.prometheus {
            before.metrics
        } else {
            make(config)?
        };
        let alerts = if config.channels == old.channels {
            before.alerts.clone()
        } else {
            (self.alerts)(config)
        };
        standing
            .shared
            .turns
            .set_limit(config.max_concurrent_rollouts);
        let new = Settings {
            metrics,
            alerts: alerts.clone(),
            poll_interval: config.poll_interval,
        };
        standing.settings.send_replace(new);
        if config.channels != old.channels {
            // What waits is tried once more. Nobody tells it anything by now.
            before.alerts.close();
            self.deliver(&alerts);
        }
        Ok(())
    }

    fn deliver(&mut self, alerts: &Alerts) {
        while self.alerting.try_join_next().is_some() {}
        let mut channels = alerts.deliver();
        self.alerting
            .spawn(async move { while channels.join_next().await.is_some() {} });
    }

    fn watch_namespaces(&mut self) {
        let Some(standing) = &self.standing else {
            return;
        };
        // The file's own namespace is watched also when no entry is in it: what is registered there must be given back.
        let namespaces = needed(&standing.config).chain(standing.config.namespace.clone());
        for namespace in namespaces.collect::<BTreeSet<String>>() {
            if !self.watched.insert(namespace.clone()) {
                continue;
            }
            for kind in Kind::ALL {
                let cluster = self.cluster.clone();
                self.watches.spawn(follow(cluster, kind, namespace.clone()));
            }
            self.unseen.insert(namespace);
        }
    }

    fn get_ready(&mut self) {
        let Some(standing) = &self.standing else {
            return;
        };
        if standing.config.services.is_empty() && standing.soundness == Soundness::Doubtful {
            // Whatever runs is looked after by nobody (design section 4, promise 8).
            if self.readiness == Readiness::Waiting {
                self.health
                    .waiting("no entry of the configuration file can be used");
            }
            return;
        }
        let is_seen = needed(&standing.config).all(|namespace| !self.unseen.contains(&namespace));
        if self.readiness == Readiness::Waiting && is_seen {
            self.readiness = Readiness::Ready;
            self.health.ready();
        }
    }

    /// Who is registered, or on the way there, and not in the file: their time begins to run, or begins anew.
    fn look_who_is_absent(&mut self) {
        let Some(standing) = &self.standing else {
            return;
        };
        let known: BTreeSet<Registered> = standing.config.services.values().map(target).collect();
        let registered = self.cluster.store().registered();
        let kept = self.roster.assignments().map(|(who, _)| who.clone());
        let is_leaving = |who: &Registered| {
            let told = self.roster.assignment(who);
            told.is_some_and(|told| told.wish == Wish::Release)
        };
        let mut absent: BTreeSet<Registered> = registered
            .into_iter()
            .chain(kept)
            .filter(|who| !known.contains(who) && !is_leaving(who))
            .collect();
        let is_sound = standing.soundness == Soundness::Valid && !known.is_empty();
        let left = if is_sound { 0 } else { absent.len() };
        if left > 0 && self.told.absent != left {
            let why = match standing.soundness {
                Soundness::Doubtful => "which is not completely valid",
                Soundness::Valid => {
                    "which names no service (to give them back, say volery release --all)"
                }
            };
            warn!(
                "{left} registered services are not in the configuration, {why}: they stay registered"
            );
        }
        self.told.absent = left;
        if !is_sound {
            absent.clear();
        }
        let News { leaving, staying } = self.departures.absent(&absent);
        for who in leaving {
            let name = self.name_of(&who);
            // Its entry may be another Deployment's by now.
            let is_taken = |other: &Service| other.name.as_str() == name;
            let about = if standing.config.services.values().any(is_taken) {
                format!("Deployment {}/{} is ", who.namespace, who.deployment)
            } else {
                String::new()
            };
            info!(
                service = name,
                "{about}no longer in the configuration: given back in {}, unless it is there again by then",
                display_duration(self.departures.patience())
            );
        }
        for who in staying.iter().filter(|who| known.contains(who)) {
            let name = self.name_of(who);
            if !self.told.kept.keys().any(|kept| kept.as_str() == name) {
                info!(
                    service = name,
                    "in the configuration again: it is not given back"
                );
            }
        }
    }

    fn name_of(&self, who: &Registered) -> String {
        match self.roster.assignment(who) {
            Some(told) => told.service.name.to_string(),
            None => who.deployment.clone(),
        }
    }

    /// The time of some services has come.
    fn let_go(&mut self) {
        let Some(standing) = &self.standing else {
            return;
        };
        for who in self.departures.take_due() {
            let service = match self.roster.assignment(&who) {
                Some(told) => Some(told.service.clone()),
                None => Service::leaving(&who.namespace, &who.deployment),
            };
            if let Some(service) = service {
                self.roster.release(&service, &standing.shared);
            }
        }
    }

    fn tell_start(&self, config: &Config) {
        let namespaces: BTreeSet<String> = needed(config).chain(config.namespace.clone()).collect();
        let count = config.services.len();
        let plural = if count == 1 { "" } else { "s" };
        info!("watching {count} service{plural} in {}", list(&namespaces));
        self.health
            .waiting("the watches have not seen everything yet");
    }

    /// What is wrong with the file is told once for as long as it is: in the log, and the first of it on the daemon's own
    /// pod, for a file as a whole is no single Deployment's business.
    fn tell_problems(&mut self, loaded: &Loaded) {
        let file = loaded.file.display();
        // On another line it is the same problem.
        let problems = loaded.problems.iter();
        let problems =
            problems.map(|it| (format!("{}: {}", it.path, it.fault), format!("{file}:{it}")));
        let news = untold(&mut self.told.problems, problems);
        let warnings = loaded.warnings.iter();
        let warnings =
            warnings.map(|it| (format!("{}: {}", it.path, it.doubt), format!("{file}:{it}")));
        let doubts = untold(&mut self.told.warnings, warnings);
        for line in news.iter().chain(&doubts) {
            warn!("{line}");
        }
        if let Some(first) = news.first() {
            let more = match news.len().saturating_sub(1) {
                0 => String::new(),
                more => format!(" (and {more} more, see the log)"),
            };
            self.tell_on_pod(&format!("{first}{more}"));
        }
    }

    /// Which entries are not as the file has them; the Deployments of bad ones show it.
    fn tell_kept(
        &mut self,
        loaded: &Loaded,
        config: &Config,
        kept: &BTreeMap<ServiceName, Kept>,
        before: &BTreeMap<ServiceName, String>,
    ) {
        for (name, why) in kept {
            let text = why_kept(loaded, name, why);
            if before.get(name) != Some(&text) {
                warn!(service = name.as_str(), "{text}");
                if *why == Kept::Wrong
                    && let Some(service) = config.services.get(name)
                {
                    self.tell_on_deployment(service, &text);
                }
            }
            self.told.kept.insert(name.clone(), text);
        }
    }

    fn tell_on_deployment(&self, service: &Service, text: &str) {
        let namespace = &service.namespace;
        if let Some(original) = self.cluster.look(namespace, &service.deployment).original {
            self.events.tell(Notice::new(
                namespace,
                &original,
                REJECTED,
                text,
                Tone::Warning,
            ));
        }
    }

    fn tell_on_pod(&self, text: &str) {
        if let Some(pod) = &self.pod {
            self.events
                .tell(Notice::about_us(pod, REJECTED, text, Tone::Warning));
        }
    }
}

/// The lines about what has not been told yet, each with what it is about. From now on just that has been told.
fn untold(
    told: &mut BTreeSet<String>,
    lines: impl Iterator<Item = (String, String)>,
) -> Vec<String> {
    let before = std::mem::take(told);
    let mut news = Vec::new();
    for (about, line) in lines {
        if !before.contains(&about) {
            news.push(line);
        }
        told.insert(about);
    }
    news
}

fn why_kept(loaded: &Loaded, name: &ServiceName, why: &Kept) -> String {
    match why {
        Kept::Wrong => {
            let problem = loaded.problem_of(name).map_or(String::new(), |problem| {
                format!(": {}: {}", problem.path, problem.fault)
            });
            format!("configuration: the entry cannot be used, it stays as it was{problem}")
        }
        Kept::Missed => "configuration: the entry is missing in a file that is not completely valid, it stays as it was"
            .to_owned(),
        Kept::HeldBackBy(other) => format!(
            "configuration: the entry waits until that of {other} is right, which has had its Deployment or a clone of it"
        ),
    }
}

/// One line for each entry that says something else than before, and one for the global settings.
fn tell_changes(
    base: &Config,
    config: &Config,
    kept_before: &BTreeMap<ServiceName, String>,
    kept: &BTreeMap<ServiceName, Kept>,
) {
    let changes = base.setting_changes_to(config);
    if !changes.is_empty() {
        info!("configuration: {}", changes.join(", "));
    }
    let before: BTreeMap<Registered, &Service> = base
        .services
        .values()
        .map(|service| (target(service), service))
        .collect();
    for service in config.services.values() {
        let name = service.name.as_str();
        let old = before
            .get(&target(service))
            .copied()
            .or_else(|| base.services.get(&service.name));
        let Some(old) = old else {
            info!(service = name, "configuration: added");
            continue;
        };
        let changes = old.changes_to(service);
        let is_righted =
            kept_before.contains_key(&service.name) && !kept.contains_key(&service.name);
        if !changes.is_empty() {
            info!(service = name, "configuration: {}", changes.join(", "));
        } else if is_righted {
            info!(
                service = name,
                "configuration: the entry can be used again, nothing changes"
            );
        }
    }
}

/// Waits for another reading; for ever when there will be none.
async fn changed(readings: &mut watch::Receiver<Arc<Reading>>) {
    if readings.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The namespaces that services live in.
fn needed(config: &Config) -> impl Iterator<Item = String> {
    let services = config.services.values();
    services.map(|service| service.namespace.clone())
}

fn list(namespaces: &BTreeSet<String>) -> String {
    match namespaces.len() {
        0 => "no namespace".to_owned(),
        _ => namespaces
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// A few of many names.
fn shortened(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown = names
        .iter()
        .take(SHOWN)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > SHOWN {
        format!("{shown}, ...")
    } else {
        shown
    }
}
