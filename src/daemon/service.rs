//! The task of one service: observe, decide, do, tell; for as long as it is registered.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tracing::debug;

use super::Lifetime;
use super::clock::{self, Sight, Stopwatch};
use super::roster::{Assignment, By, End, Wish};
use super::sign::{Left, Sign};
use super::told::{Standing, Told};
use super::turns::Turns;
use crate::analysis::{CheckReport, Checker, Finding, Metrics, Pods, Query};
use crate::cluster::{Cluster, ClusterError, Condition, Events, Notice, Registered, Tone};
use crate::config::{Service, display_duration};
use crate::notify::{Alert, Alerts};
use crate::rollout::autoscaler::{self, Autoscaler};
use crate::rollout::plan::Attention;
use crate::rollout::state::State;
use crate::rollout::{
    Action, Desired, Event, Next, Observation, Plan, Status, Turn, decide, judge,
};

/// The pause after a first failed request; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// So many failures in a row may be a moment's trouble; more cost the turn to open a rollout.
const PATIENT_FAILURES: u32 = 3;

/// So many views in a row that were behind may be other writers' doing (case K51); more are worth a line.
const STUBBORN_FAILURES: u32 = 8;

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What all services share.
#[derive(Clone)]
pub(super) struct Shared {
    pub cluster: Cluster,
    pub events: Events,
    pub turns: Arc<Turns>,
    pub settings: watch::Receiver<Settings>,
    pub lifetime: watch::Receiver<Lifetime>,
}

/// What the file's global settings come to. A change applies from the next decision or check on.
#[derive(Clone)]
pub(super) struct Settings {
    pub alerts: Alerts,
    pub metrics: Arc<dyn Metrics>,
    pub poll_interval: Duration,
}

/// What one service needs.
pub(super) struct ServiceTask {
    /// What the file says of it now.
    assignments: watch::Receiver<Arc<Assignment>>,
    /// What is gone by.
    assignment: Arc<Assignment>,
    /// Whether it has been given back, and by what.
    given_back: Option<By>,
    shared: Shared,
    queries: Vec<Query>,
    changed: Arc<Notify>,
    stopwatch: Stopwatch,
    told: Told,
    sign: Sign,
    acquaintance: Acquaintance,
    /// The id of the last alert about how a rollout began or ended.
    alerted: Option<String>,
    check: Option<JoinHandle<CheckReport>>,
    report: Option<CheckReport>,
    /// Looks at the namespace's autoscalers, which nothing waits for.
    autoscalers: JoinSet<Result<Vec<Autoscaler>, ClusterError>>,
    failures: u32,
}

/// Whether what is found of the service has been told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Acquaintance {
    /// Perhaps not: an earlier daemon wrote it, or a write was never answered.
    New,
    /// It has.
    Made,
}

/// Whether a rollout is open.
fn is_open(observation: &Observation) -> bool {
    let state = observation.state.as_ref();
    state.is_some_and(|object| object.state.as_ref().is_ok_and(State::is_open))
}

enum Rest {
    /// Look again at once.
    None,
    /// Look again when something changes, at the latest after this.
    AtMost(Duration),
    /// Look again after this, whatever changes: a request failed.
    Pause(Duration),
    /// Never.
    Over,
}

impl ServiceTask {
    pub fn new(mut assignments: watch::Receiver<Arc<Assignment>>, shared: Shared) -> Self {
        let assignment = assignments.borrow_and_update().clone();
        let service = &assignment.service;
        let changed = shared
            .cluster
            .store()
            .listen(&service.namespace, &service.deployment);
        let told = Told::new(service.name.to_string());
        let sign = Sign::new(
            service.name.to_string(),
            service.namespace.clone(),
            shared.cluster.clone(),
        );
        Self {
            queries: Query::of(service),
            assignments,
            assignment,
            given_back: None,
            shared,
            changed,
            stopwatch: Stopwatch::default(),
            told,
            sign,
            acquaintance: Acquaintance::New,
            alerted: None,
            check: None,
            report: None,
            autoscalers: JoinSet::new(),
            failures: 0,
        }
    }

    /// Runs until the service is given back or the daemon stops; a write in hand is finished first.
    pub async fn run(mut self) -> End {
        let namespaces = std::collections::BTreeSet::from([self.service().namespace.clone()]);
        let store = self.shared.cluster.store().clone();
        // A namespace that cannot be seen holds up its own services only (case K57).
        tokio::select! {
            biased;
            () = store.synced(&namespaces) => {}
            _ = self.shared.lifetime.wait_for(|lifetime| *lifetime == Lifetime::Ending) => return End::Stopped,
        }
        while *self.shared.lifetime.borrow() == Lifetime::Running {
            self.take_assignment();
            match self.pass().await {
                Rest::None => {}
                Rest::AtMost(time) => {
                    let poll_interval = self.shared.settings.borrow().poll_interval;
                    self.rest(time.min(poll_interval)).await;
                }
                Rest::Pause(time) => tokio::select! {
                    biased;
                    _ = self.shared.lifetime.changed() => {}
                    () = tokio::time::sleep(time) => {}
                },
                // Nothing is over but what was given back: by the file, unless an order was quicker.
                Rest::Over => return End::GivenBack(self.given_back.unwrap_or(By::File)),
            }
        }
        self.drop_check();
        self.sign.finish().await;
        End::Stopped
    }

    fn service(&self) -> &Service {
        &self.assignment.service
    }

    /// What is wished of the core. What was given back is not taken on again by this task, whatever the file says.
    fn desired(&self) -> Desired {
        match (self.given_back, self.assignment.wish) {
            (None, Wish::Keep) => Desired::Managed(Turn::Unasked),
            (Some(_), _) | (None, Wish::Release) => Desired::Released,
        }
    }

    /// What the file says anew applies from the next decision on; a check under way is finished as it began.
    fn take_assignment(&mut self) {
        let assignment = self.assignments.borrow_and_update().clone();
        if Arc::ptr_eq(&assignment, &self.assignment) {
            return;
        }
        let service = &assignment.service;
        if service.success != self.service().success {
            self.queries = Query::of(service);
        }
        if service.name != self.service().name {
            self.told.rename(service.name.to_string());
            self.sign.rename(service.name.to_string());
        }
        self.assignment = assignment;
    }

    async fn rest(&mut self, time: Duration) {
        let check = async {
            match self.check.as_mut() {
                Some(check) => check.await,
                None => std::future::pending().await,
            }
        };
        // In this order: the same seed is to give the same simulation, and a finished check is judged first.
        tokio::select! {
            biased;
            report = check => {
                self.check = None;
                // A check that panicked has said nothing.
                self.report = Some(report.unwrap_or_else(|error| {
                    let text = format!("the check broke off: {error}");
                    CheckReport { findings: vec![Finding::Unavailable { text }] }
                }));
            }
            _ = self.shared.lifetime.changed() => {}
            () = self.changed.notified() => {}
            Ok(()) = self.assignments.changed() => {}
            Ok(()) = self.shared.settings.changed() => {}
            Some(found) = self.autoscalers.join_next() => self.heard(found),
            () = tokio::time::sleep(time) => {}
        }
    }

    /// Begins to look for autoscalers that will stand in a rollout's way.
    fn look_for_autoscalers(&mut self) {
        let (cluster, namespace) = (
            self.shared.cluster.clone(),
            self.service().namespace.clone(),
        );
        self.autoscalers
            .spawn(async move { cluster.autoscalers(&namespace).await });
    }

    fn heard(&mut self, found: Result<Result<Vec<Autoscaler>, ClusterError>, JoinError>) {
        let autoscalers = match found {
            Ok(Ok(autoscalers)) => autoscalers,
            // Who may not look is not warned.
            Ok(Err(error)) => return debug!(service = %self.service().name, "{error}"),
            Err(error) => return debug!(service = %self.service().name, "{error}"),
        };
        let (namespace, deployment) = (&self.service().namespace, &self.service().deployment);
        let observation = self.shared.cluster.look(namespace, deployment);
        for conflict in autoscaler::conflicts(deployment, &autoscalers) {
            self.happened(&observation, &conflict);
        }
    }

    /// One pass: one decision, and what it asks for.
    async fn pass(&mut self) -> Rest {
        let report = self.report.take();
        let (namespace, deployment) = (
            self.service().namespace.clone(),
            self.service().deployment.clone(),
        );
        let mut moment = clock::now();
        let mut observation = self.shared.cluster.look(&namespace, &deployment);
        let mut plan = self.plan(&observation, moment, report.as_ref());
        if plan.next == Next::LookLive {
            observation = match self.shared.cluster.look_live(&namespace, &deployment).await {
                Ok(observation) => observation,
                Err(error) => return self.failed(&error),
            };
            moment = clock::now();
            plan = self.plan(&observation, moment, report.as_ref());
        }
        let Plan {
            status,
            events,
            next,
        } = plan;
        if std::mem::replace(&mut self.acquaintance, Acquaintance::Made) == Acquaintance::New {
            self.alert_once(|service, time| Alert::of_find(service, &observation, time));
        }
        let standing = Standing::of(&observation);
        if !matches!(next, Next::Check(_)) {
            self.drop_check();
        }
        if matches!(status, Status::Releasing | Status::Released)
            && let Some(rest) = self.take_down(&observation).await
        {
            return rest;
        }
        match next {
            Next::Act(actions) => {
                if let Err(error) = self.act(&observation, &actions, moment).await {
                    self.stopwatch.not_written();
                    self.acquaintance = Acquaintance::New;
                    if self.failures >= PATIENT_FAILURES && !is_open(&observation) {
                        // Who cannot begin does not keep others from it.
                        self.shared.turns.give_up(&self.me());
                    }
                    if matches!(error, ClusterError::Stale { .. }) {
                        return self.stale(&error).await;
                    }
                    return self.failed(&error);
                }
                self.failures = 0;
                // What follows from it is told by the pass that finds nothing left to do.
                for event in &events {
                    self.happened(&observation, event);
                }
                Rest::None
            }
            Next::Check(pods) => {
                let time = self.is(&observation, &status, standing, moment);
                if self.check.is_none() {
                    self.begin_check(pods);
                }
                self.failures = 0;
                Rest::AtMost(time)
            }
            // A live look that asks for a live look again has seen something change under it.
            Next::LookLive => Rest::Pause(FIRST_PAUSE),
            Next::Wait(time) => {
                let reminder = self.is(&observation, &status, standing, moment);
                self.failures = 0;
                Rest::AtMost(time.unwrap_or(Duration::MAX).min(reminder))
            }
            Next::Done => Rest::Over,
        }
    }

    /// Tells what happened, in the log, on X, and to whom it may concern.
    fn happened(&mut self, observation: &Observation, event: &Event) {
        if matches!(event, Event::Registered { .. } | Event::Candidate { .. }) {
            self.look_for_autoscalers();
        }
        let attention = self.told.event(event);
        let text = event.to_string();
        self.tell(observation, event.reason(), &text, &text, attention);
        self.alert_once(|service, time| Alert::of_event(service, observation, event, time));
    }

    /// Tells how a rollout began or ended, unless that was the last such thing told.
    fn alert_once(&mut self, words: impl FnOnce(&Service, Timestamp) -> Option<Alert>) {
        if let Some(alert) = self.words(words)
            && self.alerted.as_ref() != Some(&alert.id)
        {
            self.alerted = Some(alert.id.clone());
            self.send(alert);
        }
    }

    fn alert(&self, words: impl FnOnce(&Service, Timestamp) -> Option<Alert>) {
        if let Some(alert) = self.words(words) {
            self.send(alert);
        }
    }

    fn send(&self, alert: Alert) {
        let settings = self.shared.settings.borrow();
        settings.alerts.tell(&self.service().notify, alert);
    }

    fn words(&self, words: impl FnOnce(&Service, Timestamp) -> Option<Alert>) -> Option<Alert> {
        if self.shared.settings.borrow().alerts.is_empty() {
            return None;
        }
        words(self.service(), self.shared.cluster.now())
    }

    /// Tells what the service is doing, once: in the log and as a condition on X, and as an Event when people look for
    /// it there. Returns how soon to ask again for the sake of the condition.
    fn is(
        &mut self,
        observation: &Observation,
        status: &Status,
        standing: Standing,
        moment: clock::Instant,
    ) -> Duration {
        let said = self.told.status(status, standing, moment);
        if let Some(attention) = said.filter(|_| status.is_milestone()) {
            // After a restart the log says where the service stands; what X shows already is no news there.
            let original = observation.original.as_ref();
            let shown = original.and_then(|original| self.sign.shown(original));
            if shown.is_none() || shown != Condition::of(status) {
                let about = status.lasting();
                self.tell(
                    observation,
                    status.reason(),
                    &status.to_string(),
                    &about,
                    attention,
                );
                self.alert(|service, time| Alert::of_status(service, observation, status, time));
            }
        }
        let wanted = self.told.said().and_then(Condition::of);
        let reminder = self.sign.show(observation, wanted, moment);
        reminder.unwrap_or(Duration::MAX)
    }

    /// Takes the condition off X before it is given back, so that nothing of ours is left on it: while the state object
    /// is there, whoever goes on after a crash comes by here too.
    async fn take_down(&mut self, observation: &Observation) -> Option<Rest> {
        let original = observation.original.as_ref()?;
        match self.sign.take_down(original).await {
            Ok(Left::AsItWas) => None,
            Ok(Left::Changed) => Some(Rest::None),
            Err(error @ ClusterError::Stale { .. }) => Some(self.stale(&error).await),
            // Who may not write conditions any more is not kept from giving back.
            Err(error @ (ClusterError::Forbidden { .. } | ClusterError::Refused { .. })) => {
                self.told.trouble(&error.to_string());
                None
            }
            Err(error) => Some(self.failed(&error)),
        }
    }

    fn tell(
        &self,
        observation: &Observation,
        reason: &'static str,
        text: &str,
        about: &str,
        attention: Attention,
    ) {
        let tone = match attention {
            Attention::Wanted => Tone::Warning,
            Attention::Routine => Tone::Normal,
            Attention::Passing | Attention::Detail => return,
        };
        if let Some(original) = &observation.original {
            let namespace = &self.service().namespace;
            self.shared
                .events
                .tell(Notice::new(namespace, original, reason, text, tone).about(about));
        }
    }

    fn plan(
        &mut self,
        observation: &Observation,
        moment: clock::Instant,
        report: Option<&CheckReport>,
    ) -> Plan {
        let sight = if self
            .shared
            .cluster
            .store()
            .is_blind(&self.service().namespace)
        {
            Sight::Blind
        } else {
            Sight::Clear
        };
        let since = self.stopwatch.since(observation, sight, moment);
        let plan = match report {
            Some(report) => judge(self.service(), self.desired(), observation, since, report),
            None => decide(self.service(), self.desired(), observation, since),
        };
        self.keep_turn(observation, &plan);
        let Status::Queued { urgency, .. } = plan.status else {
            return plan;
        };
        let turn = self.shared.turns.ask(&self.me(), urgency, &self.changed);
        decide(self.service(), Desired::Managed(turn), observation, since)
    }

    /// A turn lasts until there is nothing to do at rest: a version that supersedes another does not wait anew.
    fn keep_turn(&self, observation: &Observation, plan: &Plan) {
        if is_open(observation) {
            self.shared.turns.take(&self.me());
        } else if matches!(plan.next, Next::Wait(_) | Next::Done)
            && !matches!(plan.status, Status::Queued { .. })
        {
            self.shared.turns.give_up(&self.me());
        }
    }

    fn me(&self) -> Registered {
        Registered {
            namespace: self.service().namespace.clone(),
            deployment: self.service().deployment.clone(),
        }
    }

    async fn act(
        &mut self,
        observation: &Observation,
        actions: &[Action],
        moment: clock::Instant,
    ) -> Result<(), ClusterError> {
        let Some(original) = &observation.original else {
            return Ok(());
        };
        for action in actions {
            if matches!(action, Action::WriteState { .. }) {
                self.stopwatch.decided(moment);
            }
            debug!(service = %self.service().name, "{action:?}");
            if matches!(action, Action::DeleteState { .. }) {
                // Noted before, for it may be done and never answered. The entry may have come back since it was begun; an
                // order lies in the state until the end.
                let state = observation.state.as_ref();
                let by_order = state.and_then(|object| object.state.as_ref().ok()?.leaving);
                self.given_back = Some(by_order.map_or(By::File, |_| By::Order));
            }
            self.shared
                .cluster
                .perform(&self.service().namespace, original, action)
                .await?;
        }
        Ok(())
    }

    /// The view was behind: see anew before deciding again (case K51: a conflict is no failure).
    async fn stale(&mut self, error: &ClusterError) -> Rest {
        if self.failures >= STUBBORN_FAILURES {
            self.told.trouble(&error.to_string());
        }
        debug!(service = %self.service().name, "{error}");
        let (namespace, deployment) = (&self.service().namespace, &self.service().deployment);
        if let Err(error) = self.shared.cluster.look_live(namespace, deployment).await {
            return self.failed(&error);
        }
        Rest::Pause(self.pause())
    }

    fn failed(&mut self, error: &ClusterError) -> Rest {
        let pause = self.pause();
        // Whoever leads now says what there is to say.
        if !matches!(error, ClusterError::NotLeading { .. }) {
            self.told.trouble(&error.to_string());
        }
        debug!(
            service = %self.service().name,
            "trying again in {}",
            display_duration(pause)
        );
        Rest::Pause(pause)
    }

    fn pause(&mut self) -> Duration {
        let pause = FIRST_PAUSE
            .saturating_mul(2u32.saturating_pow(self.failures))
            .min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    fn begin_check(&mut self, pods: Pods) {
        let queries = self.queries.clone();
        let interval = self.service().check_interval;
        let metrics = self.shared.settings.borrow().metrics.clone();
        self.check = Some(tokio::spawn(async move {
            Checker::new(metrics, interval).check(&queries, &pods).await
        }));
    }

    fn drop_check(&mut self) {
        if let Some(check) = self.check.take() {
            check.abort();
        }
    }
}
