//! From a file on disk to a configuration, or to everything that is wrong with it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::document::{self, Malformed};
use super::names::ServiceName;
use super::problem::{ConfigError, Fault, Position, Problem};
use super::warning::Warning;
use super::{Config, schema};

/// Says whether a success expression can be evaluated; an error completes the sentence that begins with the
/// expression, such as `expected a comparison`.
pub type ExpressionCheck<'a> = dyn Fn(&str) -> Result<(), String> + 'a;

/// What is found where a file should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The file's bytes.
    Bytes(Vec<u8>),
    /// None: the file is not there, or may not be read.
    Unreadable {
        /// In the operating system's terms.
        kind: io::ErrorKind,
        /// What it said.
        message: String,
    },
}

impl Content {
    /// Reads a file as it is now.
    pub fn of(file: &Path) -> Self {
        match read(file) {
            Ok(bytes) => Self::Bytes(bytes),
            Err(error) => Self::Unreadable {
                kind: error.kind(),
                message: error.to_string(),
            },
        }
    }
}

/// What came of reading a file once: what it says, or why nothing in it can be used.
pub type Reading = Result<Loaded, ConfigError>;

/// A global setting, apart from `defaults`, which are their services' business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// What is said of Prometheus.
    Prometheus,
    /// `namespace`.
    Namespace,
    /// `poll-interval`.
    PollInterval,
    /// `max-concurrent-rollouts`.
    MaxConcurrentRollouts,
    /// `notify`.
    Notify,
}

/// What could be read from a file: all of it, or what is right and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The file.
    pub file: PathBuf,
    /// Every usable entry. A global setting that is wrong stands here at its default, and no service that needs
    /// it stands here at all.
    pub config: Config,
    /// Entries that are in the file but cannot be used: a bad entry is not an absent entry (case K49).
    pub refused: BTreeSet<ServiceName>,
    /// Global settings that are in the file but cannot be used, of `notify` some part at least.
    pub wrong: BTreeSet<Setting>,
    /// Where each entry has its name.
    pub places: BTreeMap<ServiceName, Position>,
    /// Everything that is wrong, in the order of the file.
    pub problems: Vec<Problem>,
    /// What is not wrong and still foolish, in the order of the file.
    pub warnings: Vec<Warning>,
}

impl Loaded {
    /// Whether nothing at all is wrong with the file.
    pub fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }

    /// Whether the file has no entry at all, not even a bad one.
    pub fn names_no_service(&self) -> bool {
        self.config.services.is_empty() && self.refused.is_empty()
    }

    /// Why an entry is refused: the first thing that is wrong with it; or, where it would be right by itself, with the
    /// file.
    pub fn problem_of(&self, name: &ServiceName) -> Option<&Problem> {
        let is_about = |problem: &&Problem| {
            let rest = problem.path.strip_prefix(name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let mut problems = self.problems.iter();
        problems.find(is_about).or_else(|| self.problems.first())
    }

    /// The configuration of a file with which nothing is wrong.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Invalid`] with all problems, if there are any.
    pub fn into_valid(self) -> Result<Config, ConfigError> {
        if self.is_valid() {
            return Ok(self.config);
        }
        Err(ConfigError::Invalid {
            file: self.file,
            problems: self.problems,
        })
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// When nothing can be said about any entry: the file is unreadable, empty, or not YAML. Whatever is wrong
    /// with single entries is in [`Loaded::problems`].
    pub fn load(file: &Path, check: &ExpressionCheck<'_>) -> Reading {
        Self::read(file, &Content::of(file), check)
    }

    /// Reads what was found where the file should be.
    ///
    /// # Errors
    ///
    /// Those of [`Config::load`].
    pub fn read(file: &Path, content: &Content, check: &ExpressionCheck<'_>) -> Reading {
        let bytes = match content {
            Content::Bytes(bytes) => bytes,
            Content::Unreadable { kind, message } => {
                return Err(ConfigError::Unreadable {
                    file: file.to_owned(),
                    source: io::Error::new(*kind, message.clone()),
                });
            }
        };
        if bytes.len() > MOST_BYTES {
            let message = format!("expected a file of at most {MOST_BYTES} bytes");
            return Err(unusable(file, Position::START, message));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(file, text, check),
            Err(error) => {
                let (good, _) = bytes.split_at(error.valid_up_to());
                Err(unusable(
                    file,
                    end_of(&String::from_utf8_lossy(good)),
                    "expected a text in UTF-8".to_owned(),
                ))
            }
        }
    }

    /// Reads a text as if it were the content of a file.
    ///
    /// # Errors
    ///
    /// Those of [`Config::load`], but for an unreadable file.
    pub fn parse(file: &Path, text: &str, check: &ExpressionCheck<'_>) -> Reading {
        let document = document::read(text).map_err(|malformed| invalid(file, [malformed]))?;
        // The same expression is often that of many services.
        let known: RefCell<HashMap<String, Result<(), String>>> = RefCell::default();
        let check = |text: &str| {
            if let Some(known) = known.borrow().get(text) {
                return known.clone();
            }
            let result = check(text);
            known.borrow_mut().insert(text.to_owned(), result.clone());
            result
        };
        let reading = schema::read(&document.root, &check);
        if !document.faults.is_empty() {
            // Nothing is used of it, and everything is told.
            let mut problems: Vec<Problem> = document.faults.into_iter().map(problem).collect();
            problems.extend(reading.map_or_else(|_| Vec::new(), |reading| reading.problems));
            problems.sort_by_key(|problem| problem.at);
            return Err(ConfigError::Invalid {
                file: file.to_owned(),
                problems,
            });
        }
        let schema::Reading {
            config,
            refused,
            wrong,
            places,
            mut problems,
            mut warnings,
        } = reading.map_err(|malformed| invalid(file, [malformed]))?;
        problems.sort_by_key(|problem| problem.at);
        warnings.sort_by_key(|warning| warning.at);
        // Services that fall back on the same values have the same warning there.
        let mut told = BTreeSet::new();
        warnings.retain(|warning| told.insert(warning.to_string()));
        Ok(Loaded {
            file: file.to_owned(),
            config,
            refused,
            wrong,
            places,
            problems,
            warnings,
        })
    }
}

/// The largest file that is read. A ConfigMap holds at most 1 MiB.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// The content of a file, or a little more of it than [`MOST_BYTES`].
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(MOST_BYTES).unwrap_or(u64::MAX);
    let mut start = File::open(file)?.take(most.saturating_add(1));
    start.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unusable(file: &Path, at: Position, message: String) -> ConfigError {
    invalid(file, [Malformed { at, message }])
}

fn invalid(file: &Path, malformed: impl IntoIterator<Item = Malformed>) -> ConfigError {
    ConfigError::Invalid {
        file: file.to_owned(),
        problems: malformed.into_iter().map(problem).collect(),
    }
}

fn problem(Malformed { at, message }: Malformed) -> Problem {
    Problem {
        at,
        path: String::new(),
        fault: Fault::Malformed(message),
    }
}

fn end_of(text: &str) -> Position {
    let last_line = text.rsplit('\n').next().unwrap_or_default();
    Position {
        line: text.matches('\n').count() + 1,
        column: last_line.chars().count() + 1,
    }
}
