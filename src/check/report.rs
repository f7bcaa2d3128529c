//! What was found in the files, how it is shown, and what it comes to.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::config::Position;

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It has to be changed.
    Error,
    /// It works, and hardly as meant.
    Warning,
}

impl Severity {
    /// Its word in a line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// How much it matters.
    pub severity: Severity,
    /// Where in the file it stands.
    pub at: Position,
    /// The keys that lead to it; empty for the file as a whole.
    pub key: String,
    /// What it is, and what is expected instead.
    pub message: String,
}

/// How far a file could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To its end.
    Read {
        /// How many services it names, those with errors included.
        services: usize,
    },
    /// It is no configuration file, so nothing of it would be used.
    Unusable,
    /// Not at all.
    Unreadable {
        /// What the operating system says.
        reason: String,
    },
}

/// What was found in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// The file, as it was named.
    pub file: PathBuf,
    /// How far it could be read.
    pub outcome: Outcome,
    /// Everything that was found in the file itself, in its order, and then what concerns all of its services.
    pub remarks: Vec<Remark>,
    /// What was found of each of its services, where a cluster was asked.
    pub services: Vec<ServiceReport>,
}

/// What a cluster and a Prometheus say of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceReport {
    /// The service's name.
    pub service: String,
    /// Its Deployment, with the namespace.
    pub deployment: String,
    /// What is good to know: how it stands, and what registering will change.
    pub facts: Vec<String>,
    /// What is to be changed.
    pub remarks: Vec<Remark>,
}

/// Whether warnings are let pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// They are.
    Lenient,
    /// They count as errors.
    Strict,
}

/// What all files come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All is well.
    Fine,
    /// Something has to be changed.
    Wrong,
    /// A file could not be read, so nothing is known of it.
    Unreadable,
}

/// What was found in all files. Its `Display` is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The files, in the order in which they were named.
    pub files: Vec<FileReport>,
}

impl ServiceReport {
    fn text(&self, file: &Path) -> String {
        let title = format!("{}: Deployment {}", self.service, self.deployment);
        let facts = self.facts.iter().map(|fact| format!("  {fact}"));
        let remarks = self.remarks.iter().map(|remark| remark.line(file));
        let lines: Vec<String> = [title].into_iter().chain(facts).chain(remarks).collect();
        lines.join("\n")
    }

    fn json(&self) -> Value {
        json!({"service": self.service, "deployment": self.deployment, "facts": self.facts})
    }
}

impl Remark {
    fn line(&self, file: &Path) -> String {
        let key = match self.key.as_str() {
            "" => String::new(),
            key => format!("{key}: "),
        };
        let (file, word) = (file.display(), self.severity.word());
        format!("{file}:{}: {word}: {key}{}", self.at, self.message)
    }
}

impl FileReport {
    /// Everything that is to be changed.
    fn all_remarks(&self) -> impl Iterator<Item = &Remark> {
        let of_services = self.services.iter().flat_map(|service| &service.remarks);
        self.remarks.iter().chain(of_services)
    }

    fn count(&self, severity: Severity) -> usize {
        self.all_remarks()
            .filter(|remark| remark.severity == severity)
            .count()
    }

    fn errors(&self) -> usize {
        let unread = match self.outcome {
            Outcome::Unreadable { .. } => 1,
            Outcome::Read { .. } | Outcome::Unusable => 0,
        };
        self.count(Severity::Error) + unread
    }

    fn json(&self) -> Value {
        let remarks = |severity: Severity| -> Vec<Value> {
            let remarks = self
                .all_remarks()
                .filter(|remark| remark.severity == severity);
            let remarks = remarks.map(|remark| {
                json!({
                    "line": remark.at.line,
                    "column": remark.at.column,
                    "key": remark.key,
                    "message": remark.message,
                })
            });
            remarks.collect()
        };
        let mut file = json!({
            "file": self.file.display().to_string(),
            "errors": remarks(Severity::Error),
            "warnings": remarks(Severity::Warning),
        });
        match &self.outcome {
            Outcome::Read { services } => file["services"] = json!(services),
            Outcome::Unusable => {}
            Outcome::Unreadable { reason } => file["unreadable"] = json!(reason),
        }
        if !self.services.is_empty() {
            let live: Vec<Value> = self.services.iter().map(ServiceReport::json).collect();
            file["live"] = json!(live);
        }
        file
    }
}

/// Its lines, without a line break at the end; a paragraph for each service that was asked about.
impl fmt::Display for FileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = &self.file;
        let own = match &self.outcome {
            Outcome::Unreadable { reason } => {
                format!("{}: error: cannot be read: {reason}", file.display())
            }
            Outcome::Read { services } if self.remarks.is_empty() => {
                format!("{}: fine, {}", file.display(), number(*services, "service"))
            }
            Outcome::Read { .. } | Outcome::Unusable => {
                let lines: Vec<String> = self
                    .remarks
                    .iter()
                    .map(|remark| remark.line(file))
                    .collect();
                lines.join("\n")
            }
        };
        f.write_str(&own)?;
        for service in &self.services {
            write!(f, "\n\n{}", service.text(file))?;
        }
        if !self.services.is_empty() {
            f.write_str("\n")?;
        }
        Ok(())
    }
}

impl Report {
    fn errors(&self) -> usize {
        self.files.iter().map(FileReport::errors).sum()
    }

    fn warnings(&self) -> usize {
        let files = self.files.iter();
        files.map(|file| file.count(Severity::Warning)).sum()
    }

    /// What they come to.
    pub fn verdict(&self, strictness: Strictness) -> Verdict {
        let is_unreadable = |file: &FileReport| matches!(file.outcome, Outcome::Unreadable { .. });
        if self.files.iter().any(is_unreadable) {
            return Verdict::Unreadable;
        }
        let counts = match strictness {
            Strictness::Lenient => self.errors(),
            Strictness::Strict => self.errors() + self.warnings(),
        };
        if counts == 0 {
            Verdict::Fine
        } else {
            Verdict::Wrong
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "files": self.files.iter().map(FileReport::json).collect::<Vec<_>>(),
            "errors": self.errors(),
            "warnings": self.warnings(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            writeln!(f, "{file}")?;
        }
        write!(
            f,
            "{}: {}, {}",
            number(self.files.len(), "file"),
            number(self.errors(), "error"),
            number(self.warnings(), "warning"),
        )
    }
}

fn number(count: usize, of: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {of}{plural}")
}
