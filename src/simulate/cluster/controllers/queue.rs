//! client-go's work queue: a key is worked on by one worker at a time, failures come back later and later.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::super::clock::Clock;

/// The first delay after a failure; doubles with each.
const FIRST_RETRY: Duration = Duration::from_millis(5);
/// The longest delay after a failure.
const LONGEST_RETRY: Duration = Duration::from_secs(1000);

struct State<K> {
    ready: VecDeque<K>,
    /// Waiting to be worked on (those in `ready`, and those asked for again while they are worked on).
    dirty: BTreeSet<K>,
    working: BTreeSet<K>,
    delayed: BTreeSet<(Instant, u64, K)>,
    delays: u64,
    failures: BTreeMap<K, u32>,
}

pub(super) struct Queue<K> {
    state: Mutex<State<K>>,
    bell: Notify,
    clock: Clock,
}

impl<K: Ord + Clone> Queue<K> {
    pub(super) fn new(clock: Clock) -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: BTreeSet::new(),
            working: BTreeSet::new(),
            delayed: BTreeSet::new(),
            delays: 0,
            failures: BTreeMap::new(),
        };
        Self {
            state: Mutex::new(state),
            bell: Notify::new(),
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, key: K) {
        self.lock().add(key);
        self.bell.notify_one();
    }

    pub(super) fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            self.add(key);
            return;
        }
        let due = self.clock.now() + delay;
        let mut state = self.lock();
        state.delays += 1;
        let number = state.delays;
        state.delayed.insert((due, number, key));
        drop(state);
        self.bell.notify_one();
    }

    /// Adds a key again after a failure.
    pub(super) fn retry(&self, key: K) {
        let failures = {
            let mut state = self.lock();
            let count = state.failures.entry(key.clone()).or_default();
            *count = count.saturating_add(1);
            *count
        };
        let factor = 1_u32
            .checked_shl(failures.saturating_sub(1))
            .unwrap_or(u32::MAX);
        self.add_after(key, FIRST_RETRY.saturating_mul(factor).min(LONGEST_RETRY));
    }

    /// How often a key has failed since it last succeeded.
    pub(super) fn failures(&self, key: &K) -> u32 {
        self.lock().failures.get(key).copied().unwrap_or_default()
    }

    /// Forgets a key's failures.
    pub(super) fn forget(&self, key: &K) {
        self.lock().failures.remove(key);
    }

    /// The next key to work on.
    pub(super) async fn next(&self) -> K {
        loop {
            let wake = {
                let mut state = self.lock();
                state.take_due(self.clock.now());
                if let Some(key) = state.ready.pop_front() {
                    state.dirty.remove(&key);
                    state.working.insert(key.clone());
                    if !state.ready.is_empty() {
                        self.bell.notify_one();
                    }
                    return key;
                }
                state.delayed.first().map(|(due, ..)| *due)
            };
            match wake {
                Some(due) => tokio::select! {
                    biased;
                    () = self.bell.notified() => {}
                    () = sleep_until(due) => {}
                },
                None => self.bell.notified().await,
            }
        }
    }

    /// Ends the work on a key.
    pub(super) fn done(&self, key: &K) {
        let mut state = self.lock();
        state.working.remove(key);
        if state.dirty.contains(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.bell.notify_one();
        }
    }
}

impl<K: Ord + Clone> State<K> {
    fn add(&mut self, key: K) {
        if self.dirty.insert(key.clone()) && !self.working.contains(&key) {
            self.ready.push_back(key);
        }
    }

    fn take_due(&mut self, now: Instant) {
        while self.delayed.first().is_some_and(|(due, ..)| *due <= now) {
            if let Some((_, _, key)) = self.delayed.pop_first() {
                self.add(key);
            }
        }
    }
}
