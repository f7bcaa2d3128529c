//! Services that the file has no more: they are given back when it has been without them for long enough. A mistake in
//! the file must not cost anybody the checks of a worker (design section 5; case K49).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::clock::{self, Instant};
use crate::cluster::Registered;

/// Who leaves, and when.
pub(super) struct Departures {
    after: Duration,
    due: BTreeMap<Registered, Instant>,
}

/// What has changed about who leaves.
pub(super) struct News {
    /// They were present a moment ago.
    pub leaving: Vec<Registered>,
    /// They were to leave a moment ago.
    pub staying: Vec<Registered>,
}

impl Departures {
    /// Services leave when they have been absent for so long.
    pub fn after(after: Duration) -> Self {
        Self {
            after,
            due: BTreeMap::new(),
        }
    }

    /// How long a service must have been absent.
    pub fn patience(&self) -> Duration {
        self.after
    }

    /// These, and no others, are absent now.
    pub fn absent(&mut self, absent: &BTreeSet<Registered>) -> News {
        let at = clock::now() + self.after;
        let leaving = absent.iter().filter(|who| !self.due.contains_key(who));
        let leaving: Vec<Registered> = leaving.cloned().collect();
        let staying = self.due.keys().filter(|who| !absent.contains(who));
        let staying: Vec<Registered> = staying.cloned().collect();
        self.due.retain(|who, _| absent.contains(who));
        self.due.extend(leaving.iter().map(|who| (who.clone(), at)));
        News { leaving, staying }
    }

    /// Waits until somebody's time has come; for ever where nobody leaves.
    pub async fn next(&self) {
        clock::until(self.due.values().min().copied()).await;
    }

    /// Those whose time has come. They are not told again.
    pub fn take_due(&mut self) -> Vec<Registered> {
        let now = clock::now();
        let due = self.due.iter().filter(|(_, at)| **at <= now);
        let due = due.map(|(who, _)| who.clone()).collect();
        self.due.retain(|_, at| *at > now);
        due
    }
}
