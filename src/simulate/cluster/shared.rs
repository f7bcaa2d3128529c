//! The state that the server, the controllers, the kubelet and the tests share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep};

use super::Options;
use super::clock::Clock;
use super::fault::{Fault, Intercept};
use super::journal::{Journal, Request, Tally, Verb};
use super::kubelet::Orders;
use super::object::{Key, Kind, Object};
use super::patch::Patch;
use super::random::scramble;
use super::refusal::Refusal;
use super::store::{Change, Deleted, Deletion, Occurrence, Part, Sort, Store};
use super::{Lag, Snapshot};

/// Checks an invariant after each write; called with the store locked, so it must not call the cluster.
pub type Invariant = Box<dyn FnMut(&Snapshot<'_>, &Request) -> Result<(), String> + Send>;

/// A write.
#[derive(Clone, Debug)]
pub(super) enum Write {
    Create(Value),
    Replace(Value),
    Patch(Patch),
    /// Of an event, as core/v1 shows it.
    PatchCoreEvent(Patch),
    Delete(Deletion),
}

impl Write {
    pub(super) const fn verb(&self) -> Verb {
        match self {
            Self::Create(_) => Verb::Create,
            Self::Replace(_) => Verb::Replace,
            Self::Patch(_) | Self::PatchCoreEvent(_) => Verb::Patch,
            Self::Delete(_) => Verb::Delete,
        }
    }
}

/// What a write that was carried out came to.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Written(Arc<Object>),
    Deleted(Deleted),
}

impl Outcome {
    pub(super) fn into_object(self) -> Arc<Object> {
        match self {
            Self::Written(object)
            | Self::Deleted(Deleted::Gone(object) | Deleted::Terminating(object)) => object,
        }
    }
}

pub(super) struct State {
    pub(super) store: Store,
    pub(super) journal: Journal,
    /// The pods of each namespace as they are now.
    tallies: BTreeMap<String, Tally>,
    pub(super) intercept: Option<Intercept>,
    pub(super) invariants: Vec<Invariant>,
    pub(super) violations: Vec<String>,
    pub(super) lags: BTreeMap<Kind, Lag>,
    pub(super) held: BTreeSet<Kind>,
    pub(super) orders: Orders,
}

pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) options: Options,
    pub(super) clock: Clock,
    /// Rings whenever something changed for which somebody may be waiting. Not a watch channel: that one wakes in an
    /// order left to chance, and the same seed is to give the same timeline.
    bell: Notify,
    /// Rings when somebody says anew what pods do.
    pods_bell: Notify,
}

impl Shared {
    pub(super) fn new(options: Options) -> Self {
        let clock = Clock::start();
        let state = State {
            store: Store::new(clock, options.seed),
            journal: Journal::default(),
            tallies: BTreeMap::new(),
            intercept: None,
            invariants: Vec::new(),
            violations: Vec::new(),
            lags: options.lags.by_kind(),
            held: BTreeSet::new(),
            orders: Orders::default(),
        };
        Self {
            state: Mutex::new(state),
            options,
            clock,
            bell: Notify::new(),
            pods_bell: Notify::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panicking invariant or hook must not hide what it found behind a poisoned lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes everybody who waits for a change.
    pub(super) fn ring(&self) {
        self.bell.notify_waiters();
    }

    /// Ends with the next change after this call, waited for or not.
    pub(super) fn rung(&self) -> Notified<'_> {
        self.bell.notified()
    }

    /// Makes every running pod look at its orders.
    pub(super) fn ring_for_pods(&self) {
        self.pods_bell.notify_waiters();
    }

    /// Ends when pods are told anew what to do, after this call.
    pub(super) fn rung_for_pods(&self) -> Notified<'_> {
        self.pods_bell.notified()
    }

    /// Waits as long as a request takes one way.
    pub(super) async fn travel(&self) {
        self.travel_with(Sort::Deed).await;
    }

    /// [`Self::travel`] of a request of this sort.
    pub(super) async fn travel_with(&self, sort: Sort) {
        let way = {
            let store = &mut self.lock().store;
            let random = match sort {
                Sort::Deed => &mut store.random,
                Sort::Word => &mut store.random_of_words,
            };
            random.duration(&self.options.request_time)
        };
        if !way.is_zero() {
            sleep(way).await;
        }
    }

    /// When a cache under this lag shows a change.
    pub(super) fn shown_at(&self, kind: Kind, lag: Lag, change: &Change) -> Instant {
        let jitter = u64::try_from(lag.jitter.as_millis()).unwrap_or(u64::MAX);
        if change.sort == Sort::Word {
            return change.at + lag.fixed;
        }
        let dice = scramble(self.options.seed ^ scramble(change.turn) ^ scramble(kind as u64));
        let extra = dice
            .checked_rem(jitter.saturating_add(1))
            .unwrap_or_default();
        change.at + lag.fixed + Duration::from_millis(extra)
    }

    /// Notes a request and says what happens to it.
    pub(super) fn receive(&self, request: &Request) -> Fault {
        let mut state = self.lock();
        state.journal.requests.push(request.clone());
        state
            .intercept
            .as_mut()
            .map_or(Fault::None, |intercept| intercept(request))
    }

    /// Carries a write out.
    pub(super) fn carry_out(&self, request: &Request, write: Write) -> Result<Outcome, Refusal> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let (kind, key) = (request.kind, Key::new(&request.namespace, &request.name));
        let before = state.store.revision();
        state.store.written_by(&request.agent);
        let outcome = match write {
            Write::Create(object) => state
                .store
                .create(kind, &request.namespace, object)
                .map(Outcome::Written),
            Write::Replace(object) => state
                .store
                .replace(kind, &key, request.part, object)
                .map(Outcome::Written),
            Write::Patch(patch) => state
                .store
                .patch(kind, &key, request.part, &patch)
                .map(Outcome::Written),
            Write::PatchCoreEvent(patch) => state
                .store
                .patch_core_event(&key, &patch)
                .map(Outcome::Written),
            Write::Delete(deletion) => state
                .store
                .delete(kind, &key, &deletion)
                .map(Outcome::Deleted),
        }?;
        if state.store.revision() == before {
            return Ok(outcome);
        }
        let mut written = request.clone();
        if written.name.is_empty() {
            outcome
                .clone()
                .into_object()
                .name()
                .clone_into(&mut written.name);
        }
        state.journal.writes.push(written.clone());
        let index = state.store.changes_after(kind, before);
        if let Some(change) = state
            .store
            .change(kind, index)
            .filter(|_| kind == Kind::Pod)
            .cloned()
        {
            let at = self.clock.elapsed();
            state.journal.note_pod(at, &change);
            let tally = state.tallies.entry(request.namespace.clone()).or_default();
            tally.note(&change);
            let counted = change.occurrence != Occurrence::Modified
                || change.before.as_ref().is_none_or(|before| {
                    (
                        before.is_active(),
                        before.is_ready(),
                        before.is_terminating(),
                    ) != (
                        change.object.is_active(),
                        change.object.is_ready(),
                        change.object.is_terminating(),
                    )
                });
            if counted {
                state
                    .journal
                    .note_census(tally.census(at, &request.namespace));
            }
        }
        let snapshot = Snapshot::new(&state.store);
        for invariant in &mut state.invariants {
            if let Err(violation) = invariant(&snapshot, &written) {
                state.violations.push(format!("{written}: {violation}"));
            }
        }
        drop(guard);
        self.ring();
        Ok(outcome)
    }
}

/// A component's own way to the server: the same faults, journal and travel times as over HTTP, without the text.
#[derive(Clone)]
pub(super) struct Api {
    shared: Arc<Shared>,
    agent: &'static str,
}

impl Api {
    pub(super) const fn new(shared: Arc<Shared>, agent: &'static str) -> Self {
        Self { shared, agent }
    }

    pub(super) fn clock(&self) -> Clock {
        self.shared.clock
    }

    fn request(&self, verb: Verb, kind: Kind, key: &Key, part: Part) -> Request {
        Request {
            at: self.shared.clock.elapsed(),
            agent: self.agent.to_owned(),
            verb,
            kind,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            part,
        }
    }

    pub(super) async fn get(&self, kind: Kind, key: &Key) -> Result<Arc<Object>, Refusal> {
        self.shared.travel().await;
        let fault = self
            .shared
            .receive(&self.request(Verb::Get, kind, key, Part::Main));
        if let Fault::Delay(delay) = fault {
            sleep(delay).await;
        }
        let found = match fault {
            Fault::None | Fault::Delay(_) => self.shared.lock().store.get(kind, key),
            Fault::Refuse(refusal) => Err(refusal),
            Fault::Hang | Fault::ApplyThenHang | Fault::ApplyThenBreak | Fault::Break => {
                Err(Refusal::timeout())
            }
        };
        self.shared.travel().await;
        found
    }

    async fn write(
        &self,
        kind: Kind,
        key: &Key,
        part: Part,
        write: Write,
    ) -> Result<Arc<Object>, Refusal> {
        self.shared.travel().await;
        let request = self.request(write.verb(), kind, key, part);
        let fault = self.shared.receive(&request);
        if let Fault::Delay(delay) = fault {
            sleep(delay).await;
        }
        let outcome = match fault {
            Fault::None | Fault::Delay(_) => self
                .shared
                .carry_out(&request, write)
                .map(Outcome::into_object),
            Fault::Refuse(refusal) => Err(refusal),
            Fault::ApplyThenHang | Fault::ApplyThenBreak => self
                .shared
                .carry_out(&request, write)
                .and_then(|_| Err(Refusal::timeout())),
            Fault::Hang | Fault::Break => Err(Refusal::timeout()),
        };
        self.shared.travel().await;
        outcome
    }

    /// A write of the kubelet or of a person: it takes no time and meets no faults.
    pub(super) fn write_now(
        &self,
        kind: Kind,
        key: &Key,
        part: Part,
        write: Write,
    ) -> Result<Arc<Object>, Refusal> {
        let request = self.request(write.verb(), kind, key, part);
        self.shared.lock().journal.requests.push(request.clone());
        self.shared
            .carry_out(&request, write)
            .map(Outcome::into_object)
    }

    pub(super) async fn create(
        &self,
        kind: Kind,
        namespace: &str,
        object: Value,
    ) -> Result<Arc<Object>, Refusal> {
        let name = Object::new(object.clone()).name().to_owned();
        self.write(
            kind,
            &Key::new(namespace, &name),
            Part::Main,
            Write::Create(object),
        )
        .await
    }

    pub(super) async fn update(&self, kind: Kind, object: &Object) -> Result<Arc<Object>, Refusal> {
        self.replace(kind, object, Part::Main).await
    }

    pub(super) async fn update_status(
        &self,
        kind: Kind,
        object: &Object,
    ) -> Result<Arc<Object>, Refusal> {
        self.replace(kind, object, Part::Status).await
    }

    async fn replace(
        &self,
        kind: Kind,
        object: &Object,
        part: Part,
    ) -> Result<Arc<Object>, Refusal> {
        let replacement = Write::Replace(object.json().clone());
        self.write(kind, &object.key(), part, replacement).await
    }

    pub(super) async fn patch(
        &self,
        kind: Kind,
        key: &Key,
        patch: Patch,
    ) -> Result<Arc<Object>, Refusal> {
        self.write(kind, key, Part::Main, Write::Patch(patch)).await
    }

    pub(super) async fn delete(
        &self,
        kind: Kind,
        key: &Key,
        deletion: Deletion,
    ) -> Result<Arc<Object>, Refusal> {
        self.write(kind, key, Part::Main, Write::Delete(deletion))
            .await
    }
}
