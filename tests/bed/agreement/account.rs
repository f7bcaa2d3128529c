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
    /// The daemon's successful writes, in order.
    pub writes: Vec<Write>,
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

/// How often the state is written in a row depends on the number of checks, and that on seconds: such repeats are one write.
pub fn without_repeats(mut writes: Vec<Write>) -> Vec<Write> {
    writes.dedup_by(|next, last| {
        next.resource == "podtemplates" && next.verb == "patch" && next == last
    });
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
        writeln!(f, "left:")?;
        for line in &self.left {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}
