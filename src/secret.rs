//! Secrets that the configuration names and others keep: looked up here, and shown nowhere (case K55).

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::config::Secret;

/// Looks an environment variable up.
pub type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Why a secret cannot be had. Neither shows what was found.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The variable is not there, or empty.
    #[error("{secret} is not set; set it from a Secret")]
    Unset {
        /// Where it should be.
        secret: Secret,
    },
    /// The file cannot be read.
    #[error("{secret} cannot be read")]
    Unreadable {
        /// Where it should be.
        secret: Secret,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

impl SecretError {
    /// Where it should be.
    pub fn secret(&self) -> &Secret {
        match self {
            Self::Unset { secret } | Self::Unreadable { secret, .. } => secret,
        }
    }
}

/// A secret as far as it is known.
pub(crate) enum Sealed {
    /// The environment of a process never changes.
    Value { secret: Secret, value: String },
    /// The environment lacks it.
    Unset { secret: Secret },
    /// A Secret that is mounted may change.
    File { secret: Secret, path: PathBuf },
}

impl Sealed {
    pub fn new(secret: &Secret, environment: &Environment<'_>) -> Self {
        let (place, secret) = (secret, secret.clone());
        match place {
            Secret::Variable(name) => match environment(name) {
                Some(value) if !value.trim().is_empty() => Self::Value { secret, value },
                Some(_) | None => Self::Unset { secret },
            },
            Secret::File(path) => Self::File {
                path: path.clone(),
                secret,
            },
        }
    }

    /// Itself, unless it can never be read.
    pub fn settled(self) -> Result<Self, SecretError> {
        match self {
            Self::Unset { secret } => Err(SecretError::Unset { secret }),
            Self::Value { .. } | Self::File { .. } => Ok(self),
        }
    }

    pub fn secret(&self) -> &Secret {
        match self {
            Self::Value { secret, .. } | Self::Unset { secret } | Self::File { secret, .. } => {
                secret
            }
        }
    }

    /// What it is now, without white space around it.
    pub fn read(&self) -> Result<String, SecretError> {
        match self {
            Self::Value { value, .. } => Ok(value.trim().to_owned()),
            Self::Unset { secret } => Err(SecretError::Unset {
                secret: secret.clone(),
            }),
            Self::File { secret, path } => match std::fs::read_to_string(path) {
                Ok(text) => Ok(text.trim().to_owned()),
                Err(source) => Err(SecretError::Unreadable {
                    secret: secret.clone(),
                    source,
                }),
            },
        }
    }
}
