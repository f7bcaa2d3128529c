//! What a service's log says: each thing once.

use std::collections::BTreeSet;
use std::time::Duration;

use tracing::{debug, info, warn};

use super::clock::Instant;
use crate::rollout::observation::Observed;
use crate::rollout::plan::Attention;
use crate::rollout::{Event, Observation, Status};

/// A passing moment that lasts this long is worth a line.
const LINGERING: Duration = Duration::from_secs(10);

/// What the log of one service has said last.
pub(super) struct Told {
    service: String,
    /// What the service is doing, since when.
    current: Option<(Status, Instant)>,
    /// The last status that was said.
    said: Option<Status>,
    /// What is told once in each rollout, and has been in this one.
    once: BTreeSet<String>,
    trouble: String,
}

/// How firm the ground is on which a status stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Kubernetes has seen what X says.
    Firm,
    /// It has not yet, so that the next moment may tell another story.
    Provisional,
}

impl Standing {
    pub fn of(observation: &Observation) -> Self {
        match &observation.original {
            Some(original) if original.observed == Observed::NotYet => Self::Provisional,
            Some(_) | None => Self::Firm,
        }
    }
}

impl Told {
    pub fn new(service: String) -> Self {
        Self {
            service,
            current: None,
            said: None,
            once: BTreeSet::new(),
            trouble: String::new(),
        }
    }

    /// The service is called so from now on.
    pub fn rename(&mut self, service: String) {
        self.service = service;
    }

    /// One line per thing that happened. Returns how much it wants to be read.
    pub fn event(&mut self, event: &Event) -> Attention {
        self.trouble.clear();
        if matches!(event, Event::Candidate { .. }) {
            // Another story begins: where it ends is told also when that is where it began.
            self.said = None;
            self.once.clear();
        }
        let again = event.once().is_some_and(|about| !self.once.insert(about));
        let attention = if again {
            Attention::Detail
        } else {
            event.attention()
        };
        self.say(attention, &event.to_string());
        attention
    }

    /// One line per change of what the service is doing. Returns how much it wants to be read, if it was said.
    pub fn status(
        &mut self,
        status: &Status,
        standing: Standing,
        now: Instant,
    ) -> Option<Attention> {
        self.trouble.clear();
        let since = match &self.current {
            Some((current, since)) if current == status => *since,
            Some(_) | None => {
                self.current = Some((status.clone(), now));
                now
            }
        };
        if self.said.as_ref().is_some_and(|said| status.repeats(said)) {
            return None;
        }
        let lasts = now.saturating_duration_since(since) >= LINGERING;
        let attention = match (status.attention(), standing) {
            (Attention::Passing, _) if lasts => Attention::Routine,
            (Attention::Routine, Standing::Provisional) if !lasts => Attention::Passing,
            (attention, Standing::Firm | Standing::Provisional) => attention,
        };
        if attention == Attention::Passing {
            return None;
        }
        self.say(attention, &status.to_string());
        self.said = Some(status.clone());
        Some(attention)
    }

    /// The last status that was said, if it is of the present story.
    pub fn said(&self) -> Option<&Status> {
        self.said.as_ref()
    }

    /// One line per new trouble, however often it is met.
    pub fn trouble(&mut self, text: &str) {
        if text != self.trouble {
            warn!(service = self.service, "{text}; trying again");
            text.clone_into(&mut self.trouble);
        }
    }

    fn say(&self, attention: Attention, text: &str) {
        match attention {
            Attention::Wanted => warn!(service = self.service, "{text}"),
            Attention::Routine => info!(service = self.service, "{text}"),
            Attention::Passing | Attention::Detail => debug!(service = self.service, "{text}"),
        }
    }
}
