//! Where the file says that a secret is: never in the file itself (case K55).

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// Why a text does not say where a secret is. Each message says what is expected instead, and none repeats what may be
/// the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SecretPlaceError {
    /// Not the name of an environment variable.
    #[error("expected the name of an environment variable, such as API_TOKEN")]
    Variable,
    /// Not the path of a file.
    #[error("expected the absolute path of a file, such as /etc/volery-secrets/token")]
    Path,
}

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// In an environment variable of this name.
    Variable(String),
    /// In this file, which is read anew each time it is needed: a Secret that is mounted may change.
    File(PathBuf),
}

impl Secret {
    pub(super) fn variable(text: &str) -> Result<Self, SecretPlaceError> {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let begins_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if begins_well && text.bytes().all(inner) {
            Ok(Self::Variable(text.to_owned()))
        } else {
            Err(SecretPlaceError::Variable)
        }
    }

    pub(super) fn file(text: &str) -> Result<Self, SecretPlaceError> {
        absolute_path(text).map(Self::File)
    }
}

/// A path that means the same wherever the daemon is started.
pub(super) fn absolute_path(text: &str) -> Result<PathBuf, SecretPlaceError> {
    let path = PathBuf::from(text);
    if path.is_absolute() && !text.contains(char::is_control) {
        Ok(path)
    } else {
        Err(SecretPlaceError::Path)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_named_and_never_given() {
        assert!(Secret::variable("SLACK_URL").is_ok());
        for text in ["", "1A", "https://hooks.slack.com/x", "A-B", "Bearer x"] {
            assert_eq!(
                Secret::variable(text),
                Err(SecretPlaceError::Variable),
                "{text:?}"
            );
        }
        assert!(Secret::file("/etc/volery/slack").is_ok());
        for text in ["", "slack", "https://hooks.slack.com/x", "/a\nb"] {
            assert_eq!(Secret::file(text), Err(SecretPlaceError::Path), "{text:?}");
        }
    }
}
