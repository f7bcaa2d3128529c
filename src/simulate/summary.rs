//! What came of a simulation, in numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::config::display_duration;

/// How a simulation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The version that was asked for last is the accepted one.
    Promoted,
    /// It failed; the accepted one runs.
    RolledBack,
    /// It failed and stands still: it waits for the next version.
    Frozen,
    /// X was returned to the accepted version.
    Cancelled,
    /// The service was given back.
    Released,
    /// The candidate waits: no replicas are wanted.
    Waiting,
    /// Nothing moves any more, or it takes longer than anybody waits.
    Unfinished,
}

/// What came of a simulation. Times and numbers count from the moment the new version was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// How it ended.
    pub ending: Ending,
    /// The image that was asked for last.
    pub asked_for: String,
    /// The image that is accepted now.
    pub accepted: String,
    /// Until the last write of the daemon.
    pub took: Duration,
    /// The smallest and the largest R.
    pub wanted: (u64, u64),
    /// Pods started, by image.
    pub starts: BTreeMap<String, usize>,
    /// The most pods that were alive at any time.
    pub most_alive: usize,
    /// The fewest pods that were available at any time.
    pub least_available: usize,
    /// Queries that Prometheus was asked.
    pub queries: usize,
}

impl Summary {
    /// Pods started, of all images.
    pub fn pod_starts(&self) -> usize {
        self.starts.values().sum()
    }

    /// The numbers, for machines.
    pub fn json(&self) -> Value {
        json!({
            "result": self.ending.name(),
            "asked_for": self.asked_for,
            "accepted": self.accepted,
            "duration_seconds": self.took.as_secs(),
            "replicas_min": self.wanted.0,
            "replicas_max": self.wanted.1,
            "pod_starts": self.starts,
            "peak_pods": self.most_alive,
            "least_available": self.least_available,
            "queries": self.queries,
        })
    }
}

impl Ending {
    /// In one word, for machines.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Promoted => "promoted",
            Self::RolledBack => "rolled-back",
            Self::Frozen => "frozen",
            Self::Cancelled => "cancelled",
            Self::Released => "released",
            Self::Waiting => "waiting",
            Self::Unfinished => "unfinished",
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (asked_for, accepted) = (&self.asked_for, &self.accepted);
        let result = match self.ending {
            Ending::Promoted => format!("promoted: {asked_for} is the accepted version"),
            Ending::RolledBack => format!("rolled back: {asked_for} failed, {accepted} runs"),
            Ending::Frozen => format!(
                "frozen: {asked_for} failed and stays, {accepted} beside it; the next version replaces it"
            ),
            Ending::Cancelled => format!("cancelled: {accepted} runs as before"),
            Ending::Released => format!("released: Kubernetes rolls out again, {accepted} runs"),
            Ending::Waiting => format!("waiting: {asked_for} is tried when replicas are wanted"),
            Ending::Unfinished => {
                format!("not finished: nothing moves any more, {accepted} is the accepted version")
            }
        };
        let took = display_duration(Duration::from_secs(self.took.as_secs())).to_string();
        let versions: Vec<String> = self
            .starts
            .iter()
            .map(|(image, count)| format!("{count} of {image}"))
            .collect();
        let starts = if versions.is_empty() {
            "0".to_owned()
        } else {
            format!("{} ({})", self.pod_starts(), versions.join(", "))
        };
        let wanted = match self.wanted {
            (least, most) if least == most => format!("{most} wanted"),
            (least, most) => format!("{least} to {most} wanted"),
        };
        let (most, least) = (self.most_alive, self.least_available);
        writeln!(f, "result         {result}")?;
        writeln!(f, "duration       {took}")?;
        writeln!(f, "pod starts     {starts}")?;
        writeln!(f, "peak pods      {most} ({wanted})")?;
        writeln!(f, "min available  {least} ({wanted})")?;
        write!(f, "queries        {} to Prometheus", self.queries)
    }
}
