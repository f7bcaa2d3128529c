//! A file by itself: neither a cluster nor a Prometheus is asked.

use std::path::Path;

use super::report::{FileReport, Outcome, Remark, Severity};
use crate::chain::chain;
use crate::config::{ConfigError, Loaded, Problem, Warning};
use crate::daemon;

/// Checks a file. What could be read of it comes along, for whoever has more to ask.
pub fn check(file: &Path) -> (FileReport, Option<Loaded>) {
    let (outcome, remarks, loaded) = match daemon::load(file) {
        Ok(loaded) => {
            let mut remarks: Vec<Remark> = loaded.problems.iter().map(Remark::from).collect();
            remarks.extend(loaded.warnings.iter().map(Remark::from));
            remarks.sort_by_key(|remark| remark.at);
            let services = loaded.config.services.len() + loaded.refused.len();
            (Outcome::Read { services }, remarks, Some(loaded))
        }
        Err(ConfigError::Invalid { problems, .. }) => {
            let remarks = problems.iter().map(Remark::from).collect();
            (Outcome::Unusable, remarks, None)
        }
        Err(ConfigError::Unreadable { source, .. }) => {
            let reason = chain(&source);
            (Outcome::Unreadable { reason }, Vec::new(), None)
        }
    };
    let report = FileReport {
        file: file.to_owned(),
        outcome,
        remarks,
        services: Vec::new(),
    };
    (report, loaded)
}

impl From<&Problem> for Remark {
    fn from(problem: &Problem) -> Self {
        Self {
            severity: Severity::Error,
            at: problem.at,
            key: problem.path.clone(),
            message: problem.fault.to_string(),
        }
    }
}

impl From<&Warning> for Remark {
    fn from(warning: &Warning) -> Self {
        Self {
            severity: Severity::Warning,
            at: warning.at,
            key: warning.path.clone(),
            message: warning.doubt.to_string(),
        }
    }
}
