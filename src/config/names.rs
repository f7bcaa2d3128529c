//! Names of Kubernetes objects, checked against the API server's own rules before anything is asked of it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest name of a Deployment (RFC 1123 subdomain, as the API server checks it).
const LONGEST_SUBDOMAIN: usize = 253;

/// The longest name of a namespace (RFC 1123 label).
const LONGEST_LABEL: usize = 63;

/// What the clones' names add to the original's (design section 1).
pub(super) const CLONE_SUFFIXES: [&str; 2] = ["-primary", "-canary"];

/// Why a text is no name. Each message says what is expected instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// Not an RFC 1123 subdomain.
    #[error(
        "expected the name of a Deployment: lower-case letters, digits, '-' and '.', \
         beginning and ending each part with a letter or digit"
    )]
    Subdomain,
    /// Not an RFC 1123 label.
    #[error(
        "expected the name of a namespace: at most 63 lower-case letters, digits and '-', \
         beginning and ending with a letter or digit"
    )]
    Label,
    /// Not an RFC 1123 label either.
    #[error(
        "expected the name of a container: at most 63 lower-case letters, digits and '-', \
         beginning and ending with a letter or digit"
    )]
    Container,
    /// Too long by itself.
    #[error("expected at most 253 characters, this name has {0}")]
    TooLong(usize),
    /// Too long for its clones.
    #[error(
        "expected at most 245 characters, so that the clone's name with \"-primary\" \
         stays within 253; with it, this one has {0}"
    )]
    CloneTooLong(usize),
}

/// The name of one service: its key in the file. An RFC 1123 subdomain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceName(String);

impl ServiceName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ServiceName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        subdomain(text).map(Self)
    }
}

impl TryFrom<String> for ServiceName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ServiceName> for String {
    fn from(name: ServiceName) -> Self {
        name.0
    }
}

/// Reads the name of a Deployment that is to have clones.
pub(super) fn deployment(text: &str) -> Result<String, NameError> {
    let name = subdomain(text)?;
    let longest_clone = CLONE_SUFFIXES
        .iter()
        .map(|suffix| name.len() + suffix.len())
        .max()
        .unwrap_or(name.len());
    if longest_clone > LONGEST_SUBDOMAIN {
        return Err(NameError::CloneTooLong(longest_clone));
    }
    Ok(name)
}

/// Reads the name of a namespace.
pub(super) fn namespace(text: &str) -> Result<String, NameError> {
    if text.len() > LONGEST_LABEL || !is_label(text) {
        return Err(NameError::Label);
    }
    Ok(text.to_owned())
}

/// Reads the name of a container.
pub(super) fn container(text: &str) -> Result<String, NameError> {
    namespace(text).map_err(|_| NameError::Container)
}

/// Whether a text is a domain as the API server takes one before the '/' of a label's key.
pub(super) fn is_subdomain(text: &str) -> bool {
    subdomain(text).is_ok()
}

fn subdomain(text: &str) -> Result<String, NameError> {
    if !text.split('.').all(is_label) {
        return Err(NameError::Subdomain);
    }
    if text.len() > LONGEST_SUBDOMAIN {
        return Err(NameError::TooLong(text.len()));
    }
    Ok(text.to_owned())
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_api_server_takes_are_taken() {
        for name in ["a", "orders-consumer", "0", "orders.v2", "a--b"] {
            assert_eq!(name.parse::<ServiceName>().unwrap().as_str(), name);
        }
        assert_eq!(deployment(&"x".repeat(245)), Ok("x".repeat(245)));
        assert_eq!(namespace(&"n".repeat(63)), Ok("n".repeat(63)));
        assert_eq!(container("istio-proxy"), Ok("istio-proxy".to_owned()));
    }

    #[test]
    fn names_that_the_api_server_refuses_are_refused() {
        for name in [
            "", "Orders", "a_b", "-a", "a-", "a..b", ".a", "a.", "é", "a b",
        ] {
            assert_eq!(
                name.parse::<ServiceName>(),
                Err(NameError::Subdomain),
                "{name:?}"
            );
        }
        for name in ["", "a.b", "-", "N"] {
            assert_eq!(namespace(name), Err(NameError::Label), "{name:?}");
        }
        assert_eq!(namespace(&"n".repeat(64)), Err(NameError::Label));
        for name in ["", "a.b", "istio_proxy", &"n".repeat(64)] {
            assert_eq!(container(name), Err(NameError::Container), "{name:?}");
        }
        assert_eq!(
            "x".repeat(254).parse::<ServiceName>(),
            Err(NameError::TooLong(254))
        );
    }

    #[test]
    fn a_name_whose_clone_would_be_too_long_is_refused_with_the_number() {
        assert_eq!(
            deployment(&"x".repeat(246)),
            Err(NameError::CloneTooLong(254))
        );
    }

    #[test]
    fn a_service_name_from_elsewhere_is_checked_too() {
        assert!(serde_json::from_str::<ServiceName>("\"Orders\"").is_err());
        let name: ServiceName = serde_json::from_str("\"orders\"").unwrap();
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"orders\"");
    }
}
