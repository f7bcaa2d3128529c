//! How often the configuration was read, and what came of it: for a scrape of the daemon's own metrics.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

/// What came of one change of the file, the first reading included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// All of it applies.
    Applied,
    /// Something in it is wrong and stays as it was; the rest applies.
    InPart,
    /// It cannot be used: everything stays as it was.
    Refused,
}

impl Reload {
    const ALL: [Self; 3] = [Self::Applied, Self::InPart, Self::Refused];

    fn labels(self) -> [(&'static str, &'static str); 1] {
        let outcome = match self {
            Self::Applied => "applied",
            Self::InPart => "in_part",
            Self::Refused => "refused",
        };
        [("outcome", outcome)]
    }
}

/// The tally of reloads. Clones share it.
#[derive(Clone, Debug)]
pub struct Reloads {
    counts: Family<[(&'static str, &'static str); 1], Counter>,
    is_successful: Gauge,
    last: Arc<watch::Sender<Option<Reload>>>,
}

impl Default for Reloads {
    fn default() -> Self {
        let counts = Family::default();
        for reload in Reload::ALL {
            // Each is there from the start, so that an increase of it is seen.
            drop(counts.get_or_create(&reload.labels()));
        }
        Self {
            counts,
            is_successful: Gauge::default(),
            last: Arc::new(watch::Sender::new(None)),
        }
    }
}

impl Reloads {
    /// One more.
    pub fn count(&self, reload: Reload) {
        self.counts.get_or_create(&reload.labels()).inc();
        self.is_successful.set(i64::from(reload == Reload::Applied));
        self.last.send_replace(Some(reload));
    }

    /// How many came out so.
    pub fn of(&self, reload: Reload) -> u64 {
        self.counts.get_or_create(&reload.labels()).get()
    }

    /// What came of the last one: anything but [`Reload::Applied`] asks for a person. `None` before the first.
    pub fn last(&self) -> Option<Reload> {
        *self.last.borrow()
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "volery_config_reloads",
            "Times the configuration file was read after a change, by what came of it",
            self.counts.clone(),
        );
        registry.register(
            "volery_config_last_reload_successful",
            "Whether all of the configuration file applies as it is now",
            self.is_successful.clone(),
        );
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
        assert_eq!(Reload::ALL.map(|reload| reloads.of(reload)), [1, 1, 2]);
        assert_eq!(reloads.last(), Some(Reload::InPart));
    }
}
