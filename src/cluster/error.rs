//! What can go wrong with a request, classified by what to do about it.

use std::time::Duration;

use thiserror::Error;

use super::fence::Closed;
use crate::chain::chain;

/// A request that failed.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// The object is not as it was decided on: look again, decide again (case K51).
    #[error("{what}: the object has changed meanwhile")]
    Stale {
        /// What was tried.
        what: String,
    },
    /// Not sent: another daemon may lead by now (case K54).
    #[error("{what}: not sent: this daemon does not lead")]
    NotLeading {
        /// What was tried.
        what: String,
    },
    /// The account may not do this (case K57).
    #[error("{what}: forbidden: {message}; grant the verb in Volery's Role")]
    Forbidden {
        /// What was tried.
        what: String,
        /// What the API server said.
        message: String,
    },
    /// The API server does not accept this, now or ever: quota, admission, validation.
    #[error("{what}: refused: {message}")]
    Refused {
        /// What was tried.
        what: String,
        /// What the API server said.
        message: String,
    },
    /// The API server is busy or out of reach; whether a write was applied is unknown.
    #[error("{what}: the API server does not answer as it should: {message}")]
    Unavailable {
        /// What was tried.
        what: String,
        /// What was seen instead.
        message: String,
    },
    /// No answer in time; whether a write was applied is unknown.
    #[error("{what}: no answer within {}", crate::config::display_duration(*.after))]
    Timeout {
        /// What was tried.
        what: String,
        /// The deadline.
        after: Duration,
    },
}

/// What kind of request an error belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// A read or a create: 422 means that the object itself is wrong.
    Plain,
    /// A patch with tests, or a delete with preconditions: 422 and 404 mean that the view was stale.
    Conditional,
}

impl ClusterError {
    pub(super) fn new(what: String, request: Request, error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            if let kube::Error::Service(source) = &error
                && source.is::<Closed>()
            {
                return Self::NotLeading { what };
            }
            return Self::Unavailable {
                what,
                message: chain(&error),
            };
        };
        let message = status.message.clone();
        match status.code {
            409 => Self::Stale { what },
            // The code of a ValidatingAdmissionPolicy, unless it names another.
            422 if message.contains("denied request") => Self::Refused { what, message },
            404 | 422 if request == Request::Conditional => Self::Stale { what },
            403 if status.reason == "Forbidden" && !message.contains("exceeded quota") => {
                Self::Forbidden { what, message }
            }
            400..=428 => Self::Refused { what, message },
            _ => Self::Unavailable {
                what,
                message: format!("{} {message}", status.code),
            },
        }
    }
}
