//! How often the configuration was read, and what came of it: for a scrape of the daemon's own metrics.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// What came of one change of the file, the first reading included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reload {
    /// All of it applies.
    Applied,
    /// Something in it is wrong and stays as it was; the rest applies.
    InPart,
    /// It cannot be used: everything stays as it was.
    Refused,
}

/// The tally of reloads. Clones share it.
#[derive(Clone, Debug)]
pub struct Reloads(watch::Sender<Tally>);

#[derive(Debug, Default)]
struct Tally {
    counts: BTreeMap<Reload, u64>,
    last: Option<Reload>,
}

impl Default for Reloads {
    fn default() -> Self {
        Self(watch::Sender::new(Tally::default()))
    }
}

impl Reloads {
    /// One more.
    pub fn count(&self, reload: Reload) {
        self.0.send_modify(|tally| {
            let count = tally.counts.entry(reload).or_default();
            *count = count.saturating_add(1);
            tally.last = Some(reload);
        });
    }

    /// How many came out so.
    pub fn of(&self, reload: Reload) -> u64 {
        self.0.borrow().counts.get(&reload).copied().unwrap_or(0)
    }

    /// What came of the last one: anything but [`Reload::Applied`] asks for a person. `None` before the first.
    pub fn last(&self) -> Option<Reload> {
        self.0.borrow().last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_its_own_count_and_the_last_one_is_known() {
        let reloads = Reloads::default();
        assert_eq!(reloads.last(), None);
        for reload in [
            Reload::Applied,
            Reload::Refused,
            Reload::Refused,
            Reload::InPart,
        ] {
            reloads.clone().count(reload);
        }
        let counts =
            [Reload::Applied, Reload::InPart, Reload::Refused].map(|reload| reloads.of(reload));
        assert_eq!(counts, [1, 1, 2]);
        assert_eq!(reloads.last(), Some(Reload::InPart));
    }
}
