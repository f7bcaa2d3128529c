//! The versions that ran, and those that did not make it.

use std::fmt;
use std::time::Duration;

use super::service::Unusable;
use super::status::registered;
use super::table::Table;
use crate::cluster::Sight;
use crate::config::display_duration;
use crate::rollout::observation::ReplicaSet;
use crate::rollout::plan::Images;
use crate::rollout::state::{Phase, State};
use crate::rollout::template::{Template, TemplateHash};

/// One version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its revision; none for one that the Deployment controller has not recognised yet.
    pub revision: Option<u64>,
    /// What it is to the service.
    pub mark: Mark,
    /// How many pods of it there are.
    pub pods: u32,
    /// How long ago its ReplicaSet was made.
    pub age: Option<Duration>,
    /// Its images.
    pub images: Vec<String>,
}

/// What a version is to its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The one that runs.
    Accepted,
    /// The one on trial.
    Canary,
    /// The one that failed last.
    Rejected,
    /// It ran before: `volery undo --to` goes back to it.
    Past,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::Canary => "canary",
            Self::Rejected => "rejected",
            Self::Past => "",
        })
    }
}

/// Every version of a service of which there is a ReplicaSet, the newest first.
///
/// # Errors
///
/// When it is no service of Volery's.
pub fn versions(sight: &Sight) -> Result<Vec<Version>, Unusable> {
    let (_, accepted, state) = registered(sight)?;
    let mut sets: Vec<&ReplicaSet> = sight.observation.replica_sets.iter().collect();
    sets.sort_by_key(|set| {
        let made = sight.made.get(&set.uid);
        std::cmp::Reverse((set.revision.unwrap_or(u64::MAX), made))
    });
    let version = |set: &ReplicaSet| Version {
        revision: set.revision,
        mark: mark(set, accepted, state),
        pods: set.existing.0,
        age: sight
            .made
            .get(&set.uid)
            .map(|made| sight.observation.at.since(*made)),
        images: set
            .template
            .images()
            .into_iter()
            .map(str::to_owned)
            .collect(),
    };
    Ok(sets.into_iter().map(version).collect())
}

/// The history as people read it.
///
/// # Errors
///
/// When it is no service of Volery's.
pub fn history(sight: &Sight) -> Result<String, Unusable> {
    let mut table = Table::new(["REVISION", "MARK", "PODS", "AGE", "IMAGES"]);
    for version in versions(sight)? {
        table.row([
            version
                .revision
                .map_or_else(|| "-".to_owned(), |revision| revision.to_string()),
            version.mark.to_string(),
            version.pods.to_string(),
            version.age.map_or_else(|| "-".to_owned(), age),
            Images(version.images).to_string(),
        ]);
    }
    Ok(table.to_string())
}

fn mark(set: &ReplicaSet, accepted: &Template, state: &State) -> Mark {
    let rejected = state
        .rejected
        .as_ref()
        .and_then(|rejected| rejected.replica_set.as_ref());
    if state.accepted.as_ref() == Some(&set.uid)
        || (state.accepted.is_none() && set.template == *accepted)
    {
        Mark::Accepted
    } else if candidate(state).is_some_and(|candidate| *candidate == set.template.hash()) {
        Mark::Canary
    } else if rejected == Some(&set.name) {
        Mark::Rejected
    } else {
        Mark::Past
    }
}

fn candidate(state: &State) -> Option<&TemplateHash> {
    match &state.phase {
        Phase::Opening { candidate, .. }
        | Phase::Stepping { candidate, .. }
        | Phase::Finishing { candidate, .. }
        | Phase::Frozen { candidate, .. }
        | Phase::Replacing { candidate, .. }
        | Phase::HandingOver { candidate, .. } => Some(candidate),
        Phase::Registering | Phase::AtRest | Phase::Closing { .. } | Phase::Releasing => None,
    }
}

/// As kubectl tells ages: the two largest units at most.
fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let whole = match seconds {
        0..600 => seconds,
        600..36_000 => seconds - seconds % 60,
        _ => seconds - seconds % 3600,
    };
    if whole >= 2 * 86_400 {
        return format!("{}d", whole / 86_400);
    }
    display_duration(Duration::from_secs(whole)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_as_coarse_as_they_are_long() {
        let told = [
            0, 59, 61, 599, 601, 3661, 36_001, 90_000, 180_000, 9_000_000,
        ]
        .map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(
            told,
            [
                "0s", "59s", "1m1s", "9m59s", "10m", "1h1m", "10h", "25h", "2d", "104d"
            ]
        );
    }
}
