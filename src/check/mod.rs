//! `volery check`: everything that can be said about a file before a daemon reads it.
//!
//! What is wrong with a file and what is doubtful about it is found by [`crate::config`], all of it at once; here it is
//! put together for people, for their editors (`FILE:LINE:COLUMN:`) and for programs.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `report` | what was found, how it is shown, and what it comes to |
//! | `file` | a file by itself |
//! | `live` | a file against a cluster and its Prometheus |
//! | `service` | what is told of one service that was looked at |

mod file;
mod live;
mod report;
mod service;
#[cfg(test)]
mod tests;

pub use file::check;
pub use live::ask;
pub use report::{
    FileReport, Outcome, Remark, Report, ServiceReport, Severity, Strictness, Verdict,
};
