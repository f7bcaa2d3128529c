//! An alert as its receiver reads it, and where it goes: secrets are looked up here, and shown nowhere.

use http::{HeaderName, HeaderValue};
use reqwest::Url;
use serde_json::json;
use thiserror::Error;

use super::alert::{Alert, Severity};
use crate::config::{Address, Medium, Secret, post_url};
use crate::secret::{Environment, Sealed, SecretError};

/// What is posted.
pub struct Letter {
    /// Where; a secret.
    pub url: Url,
    /// What is sent along; a secret.
    pub header: Option<(HeaderName, HeaderValue)>,
    /// JSON.
    pub body: String,
}

/// Why a letter cannot be addressed. None of them shows what it found.
#[derive(Debug, Error)]
pub enum LetterError {
    /// The secret cannot be had.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The secret is no URL.
    #[error("{secret} holds no URL; expected one line that begins with http:// or https://")]
    NoUrl {
        /// Where it is.
        secret: Secret,
    },
    /// The secret is no header.
    #[error("{secret} holds no header; expected one line such as Authorization: Bearer TOKEN")]
    NoHeader {
        /// Where it is.
        secret: Secret,
    },
}

impl LetterError {
    fn secret(&self) -> &Secret {
        match self {
            Self::Secret(error) => error.secret(),
            Self::NoUrl { secret } | Self::NoHeader { secret } => secret,
        }
    }
}

enum To {
    Open(Url),
    Sealed(Sealed),
}

enum Form {
    Slack,
    Json,
}

/// Where a channel's letters go.
pub(super) struct Envelope {
    to: To,
    header: Option<Sealed>,
    form: Form,
}

/// An address and what is sent along.
pub(super) type Destination = (Url, Option<(HeaderName, HeaderValue)>);

impl Envelope {
    /// Takes from the environment what is there. What is wrong with a file may be right with the next alert.
    ///
    /// # Errors
    ///
    /// When the environment lacks something, or has nonsense: that does not change as long as the process lives.
    pub fn new(medium: &Medium, environment: &Environment<'_>) -> Result<Self, LetterError> {
        let sealed = |secret: &Secret| Sealed::new(secret, environment).settled();
        let envelope = match medium {
            Medium::Slack { url } => Self {
                to: To::Sealed(sealed(url)?),
                header: None,
                form: Form::Slack,
            },
            Medium::Webhook { url, header } => Self {
                to: match url {
                    Address::Open(url) => To::Open(url.clone()),
                    Address::Secret(secret) => To::Sealed(sealed(secret)?),
                },
                header: header.as_ref().map(sealed).transpose()?,
                form: Form::Json,
            },
        };
        match envelope.address() {
            Err(error) if matches!(error.secret(), Secret::Variable(_)) => Err(error),
            Ok(_) | Err(_) => Ok(envelope),
        }
    }

    /// Where letters go now: files are read anew.
    pub fn address(&self) -> Result<Destination, LetterError> {
        let url = match &self.to {
            To::Open(url) => url.clone(),
            To::Sealed(sealed) => post_url(&sealed.read()?).ok_or_else(|| LetterError::NoUrl {
                secret: sealed.secret().clone(),
            })?,
        };
        let header = self.header.as_ref().map(header).transpose()?;
        Ok((url, header))
    }

    /// An alert on its way.
    pub fn letter(&self, alert: &Alert) -> Result<Letter, LetterError> {
        let (url, header) = self.address()?;
        Ok(Letter {
            url,
            header,
            body: match self.form {
                Form::Slack => slack(alert),
                // Strings, a number and a list always serialize.
                Form::Json => serde_json::to_string(alert).unwrap_or_default(),
            },
        })
    }
}

fn header(sealed: &Sealed) -> Result<(HeaderName, HeaderValue), LetterError> {
    let refused = || LetterError::NoHeader {
        secret: sealed.secret().clone(),
    };
    let text = sealed.read()?;
    let (name, value) = text.split_once(':').ok_or_else(refused)?;
    let name = name.trim().parse::<HeaderName>().map_err(|_| refused())?;
    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| refused())?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// As Slack's incoming webhooks take it: three characters mean something to it.
fn slack(alert: &Alert) -> String {
    let sign = match alert.severity {
        Severity::Info => ":information_source:",
        Severity::Warning => ":warning:",
    };
    let escaped = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
    };
    let service = format!("{}/{}", alert.namespace, alert.deployment);
    let text = format!("{sign} *{service}* {}", escaped(&alert.message));
    json!({ "text": text }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::channel::tests::alert;

    #[test]
    fn a_generic_webhook_gets_every_field() {
        let text = serde_json::to_string_pretty(&alert("failed: 5 > 3 & more")).unwrap();
        insta::assert_snapshot!(text, @r#"
        {
          "id": "0123456789abcdef0123456789abcdef",
          "service": "orders",
          "namespace": "workers",
          "deployment": "orders-worker",
          "event": "failed",
          "severity": "warning",
          "message": "failed: 5 > 3 & more",
          "images": [
            "orders:v2"
          ],
          "rollout": 3,
          "time": "2026-01-05T09:00:00Z"
        }
        "#);
    }

    #[test]
    fn slack_gets_what_it_can_show() {
        insta::assert_snapshot!(
            slack(&alert("failed: <x> 5 > 3 & more")),
            @r#"{"text":":warning: *workers/orders-worker* failed: &lt;x&gt; 5 &gt; 3 &amp; more"}"#
        );
    }

    #[test]
    fn a_file_is_read_for_each_letter_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let (url, token) = (folder.path().join("url"), folder.path().join("token"));
        let medium = Medium::Webhook {
            url: Address::Secret(Secret::File(url.clone())),
            header: Some(Secret::File(token.clone())),
        };
        let envelope = Envelope::new(&medium, &|_| None).unwrap();
        let told = |envelope: &Envelope| match envelope.address() {
            Ok((url, header)) => format!("{url} {header:?}"),
            Err(error) => error.to_string(),
        };
        let at = |text: String| text.replace(&folder.path().display().to_string(), "");
        assert_eq!(at(told(&envelope)), "file /url cannot be read");
        std::fs::write(&url, "hunter2\n").unwrap();
        assert_eq!(
            at(told(&envelope)),
            "file /url holds no URL; expected one line that begins with http:// or https://"
        );
        std::fs::write(&url, "http://alerts.ops/volery\n").unwrap();
        std::fs::write(&token, "hunter2\n").unwrap();
        assert_eq!(
            at(told(&envelope)),
            "file /token holds no header; expected one line such as Authorization: Bearer TOKEN"
        );
        std::fs::write(&token, "Authorization: Bearer hunter2\n").unwrap();
        assert_eq!(
            told(&envelope),
            "http://alerts.ops/volery Some((\"authorization\", Sensitive))"
        );
    }

    #[test]
    fn what_the_environment_lacks_is_named() {
        let medium = Medium::Slack {
            url: Secret::Variable("SLACK_URL".to_owned()),
        };
        for value in [None, Some(" ".to_owned())] {
            let error = Envelope::new(&medium, &|_| value.clone()).err().unwrap();
            assert_eq!(
                error.to_string(),
                "environment variable SLACK_URL is not set; set it from a Secret"
            );
        }
        let envelope = Envelope::new(&medium, &|name| {
            (name == "SLACK_URL").then(|| "https://hooks.slack.com/a\n".to_owned())
        })
        .unwrap();
        assert_eq!(
            envelope.address().unwrap().0.as_str(),
            "https://hooks.slack.com/a"
        );
    }
}
