//! What is wrong with a file: where, which key, what stands there and what was expected.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::names::{NameError, ServiceName};

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Counted from 1.
    pub line: usize,
    /// Counted in characters, from 1.
    pub column: usize,
}

impl Position {
    /// Where a file begins.
    pub const START: Self = Self { line: 1, column: 1 };
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// One thing that is wrong with a file.
///
/// Its `Display` is the line a person reads, without the file's name: [`ConfigError`] puts that before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands. What is missing stands where its mapping has its name.
    pub at: Position,
    /// The keys that lead to it, such as `orders-consumer.success[1].expr`; empty for the file as a whole.
    pub path: String,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.at)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        self.fault.fmt(f)
    }
}

/// The ways in which a file can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The text is not YAML, or not the YAML of a config file.
    #[error("{0}")]
    Malformed(String),
    /// A key that means nothing here, but resembles one that does.
    #[error("unknown key; did you mean \"{nearest}\"?")]
    Misspelt {
        /// The key that it resembles.
        nearest: &'static str,
    },
    /// A key that means nothing here.
    #[error("unknown key; expected one of {}", known.join(", "))]
    UnknownKey {
        /// The keys that mean something here.
        known: &'static [&'static str],
    },
    /// A key that has no default is not there.
    #[error("this key is required; expected {expected}")]
    Missing {
        /// What belongs under it.
        expected: &'static str,
    },
    /// A key stands twice in one mapping.
    #[error("this key stands twice; it is first given on line {}", first.line)]
    Repeated {
        /// Where it stood before.
        first: Position,
    },
    /// A value that cannot be used.
    #[error("{found}: {expected}")]
    Unexpected {
        /// What stands there.
        found: Found,
        /// What should, as a clause: "expected ...".
        expected: String,
    },
    /// An entry whose key cannot name a service, or not the Deployment that it stands for.
    #[error("this name cannot be used; {0}")]
    Name(NameError),
    /// Two entries for one Deployment.
    #[error(
        "{deployment} is also the Deployment of \"{other}\" on line {}; expected one entry for each Deployment",
        other_at.line
    )]
    SharedDeployment {
        /// Namespace and name.
        deployment: String,
        /// The entry that named it before.
        other: ServiceName,
        /// Where that entry stands.
        other_at: Position,
    },
    /// An entry for what another entry's rollouts create and delete.
    #[error(
        "{deployment} is the name of a clone of \"{other}\" on line {}; expected a Deployment of your own",
        other_at.line
    )]
    CloneOfAnother {
        /// Namespace and name.
        deployment: String,
        /// The entry whose clone has that name.
        other: ServiceName,
        /// Where that entry stands.
        other_at: Position,
    },
}

/// What stands where something else was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// No value at all.
    Nothing,
    /// A text, as written; its beginning where it is long.
    Text(String),
    /// A list.
    List,
    /// A mapping.
    Mapping,
}

impl Found {
    /// A line stays readable, whatever somebody pasted into the file.
    const LONGEST_SHOWN: usize = 80;

    /// This text, as much of it as is ever shown.
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.chars().take(Self::LONGEST_SHOWN + 1).collect())
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no value"),
            Self::List => f.write_str("a list"),
            Self::Mapping => f.write_str("a mapping"),
            Self::Text(text) => {
                f.write_str("\"")?;
                for (shown, c) in text.chars().enumerate() {
                    if shown == Self::LONGEST_SHOWN {
                        return f.write_str("...\"");
                    }
                    // Quotes are left as they are: expressions are full of them, and nobody reads escaped ones.
                    if c.is_control() {
                        write!(f, "{}", c.escape_debug())?;
                    } else {
                        write!(f, "{c}")?;
                    }
                }
                f.write_str("\"")
            }
        }
    }
}

/// Why a file cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read at all.
    #[error("{}: cannot be read", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file can be read but not used as it is.
    #[error("{}", each_on_its_line(file, problems))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// Everything that was found, in the order of the file.
        problems: Vec<Problem>,
    },
}

fn each_on_its_line(file: &std::path::Path, problems: &[Problem]) -> String {
    let lines: Vec<String> = problems
        .iter()
        .map(|problem| format!("{}:{problem}", file.display()))
        .collect();
    lines.join("\n")
}
