//! Whose turn it is to open a rollout: `max-concurrent-rollouts`.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::cluster::{Registered, Store};
use crate::rollout::{Turn, Urgency};

/// The queue of all services that want to open a rollout. Whoever has one open keeps its place until it is at rest again,
/// so a version that supersedes another does not wait anew, and nothing that is under way ever waits.
pub(super) struct Turns {
    store: Arc<Store>,
    queue: Mutex<Queue>,
}

struct Queue {
    limit: NonZeroU32,
    taken: BTreeSet<Registered>,
    /// In order of arrival.
    waiting: Vec<Waiting>,
}

struct Waiting {
    who: Registered,
    urgency: Urgency,
    wake: Arc<Notify>,
}

impl Turns {
    pub fn new(limit: NonZeroU32, store: Arc<Store>) -> Self {
        Self {
            store,
            queue: Mutex::new(Queue {
                limit,
                taken: BTreeSet::new(),
                waiting: Vec::new(),
            }),
        }
    }

    /// Another limit from now on: what is open beyond it stays open, and whoever waits asks again.
    pub fn set_limit(&self, limit: NonZeroU32) {
        let mut queue = self.lock();
        if std::mem::replace(&mut queue.limit, limit) != limit {
            queue
                .waiting
                .iter()
                .for_each(|waiting| waiting.wake.notify_one());
        }
    }

    /// Takes a turn if one is free for `who`; else its place in the queue is kept, and `wake` rings when that may have
    /// changed.
    pub fn ask(&self, who: &Registered, urgency: Urgency, wake: &Arc<Notify>) -> Turn {
        let mut queue = self.lock();
        if queue.taken.contains(who) {
            return Turn::Taken;
        }
        match queue.waiting.iter_mut().find(|other| other.who == *who) {
            Some(waiting) => waiting.urgency = urgency,
            None => queue.waiting.push(Waiting {
                who: who.clone(),
                urgency,
                wake: wake.clone(),
            }),
        }
        // Fixes first, then by arrival: the sort is stable.
        let mut order: Vec<&Waiting> = queue.waiting.iter().collect();
        order.sort_by_key(|waiting| waiting.urgency);
        let ahead = order
            .iter()
            .position(|waiting| waiting.who == *who)
            .unwrap_or(order.len());
        // What an earlier life of the daemon has opened counts before its task has had its first pass.
        let open = self.store.open().union(&queue.taken).count();
        let limit = usize::try_from(queue.limit.get()).unwrap_or(usize::MAX);
        if ahead >= limit.saturating_sub(open) {
            return Turn::Waits { ahead, open };
        }
        queue.waiting.retain(|waiting| waiting.who != *who);
        queue.taken.insert(who.clone());
        Turn::Taken
    }

    /// `who` has a rollout open.
    pub fn take(&self, who: &Registered) {
        let mut queue = self.lock();
        if !queue.taken.contains(who) {
            queue.taken.insert(who.clone());
        }
    }

    /// `who` neither has a rollout open nor wants to open one.
    pub fn give_up(&self, who: &Registered) {
        let mut queue = self.lock();
        let had_a_turn = queue.taken.remove(who);
        queue.waiting.retain(|waiting| waiting.who != *who);
        if had_a_turn {
            for waiting in &queue.waiting {
                waiting.wake.notify_one();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Row {
        turns: Turns,
        bell: Arc<Notify>,
    }

    impl Row {
        fn of(limit: u32) -> Self {
            let limit = NonZeroU32::new(limit).expect("above zero");
            Self {
                turns: Turns::new(limit, Arc::default()),
                bell: Arc::default(),
            }
        }

        fn ask(&self, name: &str, urgency: Urgency) -> Turn {
            self.turns.ask(&who(name), urgency, &self.bell)
        }
    }

    fn who(name: &str) -> Registered {
        Registered {
            namespace: "workers".to_owned(),
            deployment: name.to_owned(),
        }
    }

    #[test]
    fn further_rollouts_wait_in_order_of_arrival_and_fixes_go_first() {
        let row = Row::of(2);
        assert_eq!(row.ask("a", Urgency::Ordinary), Turn::Taken);
        assert_eq!(row.ask("b", Urgency::Ordinary), Turn::Taken);
        let waits = |ahead| Turn::Waits { ahead, open: 2 };
        assert_eq!(row.ask("c", Urgency::Ordinary), waits(0));
        assert_eq!(row.ask("d", Urgency::Ordinary), waits(1));
        assert_eq!(row.ask("fix", Urgency::Fix), waits(0));
        assert_eq!(row.ask("c", Urgency::Ordinary), waits(1));
        row.turns.give_up(&who("a"));
        assert!(matches!(
            row.ask("d", Urgency::Ordinary),
            Turn::Waits { .. }
        ));
        assert_eq!(row.ask("fix", Urgency::Fix), Turn::Taken);
        row.turns.give_up(&who("b"));
        assert_eq!(row.ask("c", Urgency::Ordinary), Turn::Taken);
    }

    #[test]
    fn a_higher_limit_wakes_who_waits_and_a_lower_one_takes_nothing_away() {
        let row = Row::of(1);
        assert_eq!(row.ask("a", Urgency::Ordinary), Turn::Taken);
        let waits = |open| Turn::Waits { ahead: 0, open };
        assert_eq!(row.ask("b", Urgency::Ordinary), waits(1));
        row.turns.set_limit(NonZeroU32::MIN.saturating_add(1));
        assert!(
            futures::FutureExt::now_or_never(row.bell.notified()).is_some(),
            "nobody is woken"
        );
        assert_eq!(row.ask("b", Urgency::Ordinary), Turn::Taken);
        row.turns.set_limit(NonZeroU32::MIN);
        assert_eq!(row.ask("b", Urgency::Ordinary), Turn::Taken);
        row.turns.give_up(&who("a"));
        assert_eq!(row.ask("c", Urgency::Ordinary), waits(1));
    }

    #[test]
    fn who_has_a_rollout_open_keeps_its_turn_and_who_gives_up_leaves_no_trace() {
        let row = Row::of(1);
        row.turns.take(&who("a"));
        assert!(matches!(row.ask("b", Urgency::Fix), Turn::Waits { .. }));
        assert_eq!(row.ask("a", Urgency::Ordinary), Turn::Taken);
        row.turns.give_up(&who("b"));
        row.turns.give_up(&who("a"));
        assert_eq!(row.ask("c", Urgency::Ordinary), Turn::Taken);
    }
}
