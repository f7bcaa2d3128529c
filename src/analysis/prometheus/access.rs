//! What is sent along with each query so that Prometheus answers: who asks, and headers. Looked up for each query.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::RequestBuilder;
use thiserror::Error;

use crate::config::{HeaderText, Login, PrometheusSettings, Secret};
use crate::secret::{Environment, Sealed, SecretError};

/// Why Prometheus cannot be asked. None of them shows what it found.
#[derive(Debug, Error)]
pub(super) enum AccessError {
    /// The secret cannot be had.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// It is empty, or no header can hold it.
    #[error("{secret} does not hold {expected}")]
    Unusable {
        secret: Secret,
        expected: &'static str,
    },
}

const A_TOKEN: &str = "a token: expected one line of visible ASCII";
const A_PASSWORD: &str = "a password: expected one line";
const A_HEADER: &str = "the value of a header: expected one line of visible ASCII";

/// Who asks, and what else is sent along.
pub(super) struct Access {
    login: SealedLogin,
    headers: Vec<(HeaderName, Text)>,
}

enum SealedLogin {
    None,
    Bearer(Sealed),
    Basic { username: String, password: Sealed },
}

enum Text {
    Open(HeaderValue),
    Sealed(Sealed),
}

impl Access {
    pub fn new(settings: &PrometheusSettings, environment: &Environment<'_>) -> Self {
        let seal = |secret: &Secret| Sealed::new(secret, environment);
        let login = match &settings.login {
            Login::None => SealedLogin::None,
            Login::Bearer(token) => SealedLogin::Bearer(seal(token)),
            Login::Basic { username, password } => SealedLogin::Basic {
                username: username.clone(),
                password: seal(password),
            },
        };
        let headers = settings.headers.iter().map(|header| {
            let text = match &header.text {
                HeaderText::Open(value) => Text::Open(value.clone()),
                HeaderText::Secret(secret) => Text::Sealed(seal(secret)),
            };
            (header.name.clone(), text)
        });
        Self {
            login,
            headers: headers.collect(),
        }
    }

    /// The request with all that has to go along, as it is at this moment.
    pub fn grant(&self, request: RequestBuilder) -> Result<RequestBuilder, AccessError> {
        let mut headers = HeaderMap::new();
        for (name, text) in &self.headers {
            let value = match text {
                Text::Open(value) => value.clone(),
                Text::Sealed(sealed) => value(sealed, "", A_HEADER)?,
            };
            headers.insert(name.clone(), value);
        }
        let request = match &self.login {
            SealedLogin::None => request,
            SealedLogin::Bearer(token) => {
                headers.insert(AUTHORIZATION, value(token, "Bearer ", A_TOKEN)?);
                request
            }
            SealedLogin::Basic { username, password } => {
                request.basic_auth(username, Some(line(password, A_PASSWORD)?))
            }
        };
        Ok(request.headers(headers))
    }
}

fn value(
    sealed: &Sealed,
    before: &str,
    expected: &'static str,
) -> Result<HeaderValue, AccessError> {
    let text = format!("{before}{}", line(sealed, expected)?);
    let is_visible = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let value = HeaderValue::from_str(&text).ok().filter(|_| is_visible);
    let mut value = value.ok_or_else(|| unusable(sealed, expected))?;
    value.set_sensitive(true);
    Ok(value)
}

fn line(sealed: &Sealed, expected: &'static str) -> Result<String, AccessError> {
    let line = sealed.read()?;
    if line.is_empty() || line.contains(char::is_control) {
        return Err(unusable(sealed, expected));
    }
    Ok(line)
}

fn unusable(sealed: &Sealed, expected: &'static str) -> AccessError {
    AccessError::Unusable {
        secret: sealed.secret().clone(),
        expected,
    }
}
