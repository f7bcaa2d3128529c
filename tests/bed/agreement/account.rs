//! What is compared: how it ended, and the way there.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
};

/// The account of one play. Its text is what is compared, and what is shown when it differs.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Pods started, by tag.
    pub starts: BTreeMap<String, usize>,
    /// (C,P), at every change.
    pub steps: Vec<(i32, i32)>,
    /// The daemon's successful writes that do more than tell, in order.
    pub writes: Vec<Write>,
    /// The reasons of the Events on X, in the order in which they were first told.
    pub told: Vec<String>,
    /// All that is left at the end.
    pub left: Vec<String>,
}

/// A write, without the names that chance gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub verb: String,
    /// Plural, with the subresource: `deployments/status`.
    pub resource: String,
    /// The name; of a ReplicaSet the tag of its version.
    pub object: String,
}

impl Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.verb, self.resource, self.object)
    }
}

/// Without what depends on seconds or on names that chance gives:
///
/// * How often the state is written in a row depends on the number of checks: such repeats are one write.
/// * At registration older ReplicaSets go to the stash in the order of their names, which are hashes.
/// * At opening the revision of the candidate's ReplicaSet is raised as soon as the controller has recognised that, and the accepted one
///   is moved as soon as the primary is observed: two objects, two conditions, whichever comes first.
///
/// Both of the latter are a run of patches of ReplicaSets, after the pause of X or the creation of a ReplicaSet; no other run is sorted.
pub fn normalised(mut writes: Vec<Write>, original: &str) -> Vec<Write> {
    let is_patch =
        |write: &Write, resource: &str| write.verb == "patch" && write.resource == resource;
    writes.dedup_by(|next, last| is_patch(next, "podtemplates") && next == last);
    let mut run_begins = None;
    for at in 0..=writes.len() {
        let write = writes.get(at);
        if write.is_some_and(|write| is_patch(write, "replicasets")) {
            continue;
        }
        if let Some(begin) = run_begins {
            writes[begin..at].sort_by(|one, other| one.object.cmp(&other.object));
        }
        let write = writes.get(at);
        let starts_one = write.is_some_and(|write| {
            (is_patch(write, "deployments") && write.object == original)
                || (write.verb == "create" && write.resource == "replicasets")
        });
        run_begins = starts_one.then_some(at + 1);
    }
    writes
}

impl Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "pod starts: {:?}", self.starts)?;
        writeln!(f, "steps: {:?}", self.steps)?;
        writeln!(f, "writes:")?;
        for write in &self.writes {
            writeln!(f, "  {write}")?;
        }
        writeln!(f, "told: {:?}", self.told)?;
        writeln!(f, "left:")?;
        for line in &self.left {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}
