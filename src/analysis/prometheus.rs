//! The Prometheus client: instant queries, each of which ends in an answer or a reason within its deadline.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `access` | who asks, and further headers: secrets are looked up here |
//! | `connections` | the HTTP client, and whose certificates it believes |
//! | `throttle` | until when it is not asked |

mod access;
mod connections;
mod throttle;

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, DATE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, StatusCode};
use reqwest::Url;

use super::answer::{AnswerError, Response};
use crate::chain::chain;
use crate::config::{PrometheusSettings, PrometheusUrl, display_duration};
use crate::retry_after;
use crate::secret::Environment;
use access::Access;
use connections::Connections;
use throttle::Throttle;

/// The largest answer that is read, in bytes. An instant query over the pods of a canary has a few kilobytes.
pub const MAX_BODY: usize = 4 * 1024 * 1024;

/// How much of a foreign text goes into a log line, in characters.
const MAX_EXCERPT: usize = 200;

/// Asks one Prometheus. Cheap to clone; clones share connections, and when it is asked less all of them do.
#[derive(Clone)]
pub struct Prometheus(Arc<Inner>);

struct Inner {
    url: PrometheusUrl,
    endpoint: Url,
    access: Access,
    connections: Connections,
    throttle: Throttle,
    /// The longest that one query may take.
    timeout: Duration,
}

/// Why no client can be made.
#[derive(Debug, thiserror::Error)]
pub enum PrometheusError {
    /// No crypto provider has been installed in this process.
    #[error("no rustls crypto provider is installed; install one before making a client")]
    NoCryptoProvider,
    /// TLS cannot be set up, most often because there are no root certificates.
    #[error(
        "the HTTP client cannot be made; for https:// the system's root certificates must be installed"
    )]
    Client(#[source] reqwest::Error),
}

/// Why a query has no usable answer. Never a pass and never a failure (promise 4).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// No connection, or it broke.
    #[error("Prometheus cannot be reached: {0}")]
    Unreachable(String),
    /// No complete answer in time.
    #[error("Prometheus did not answer within {0:?}")]
    TimedOut(Duration),
    /// Some other address wants to be asked. Redirects of a POST lose the query or the method, so none is followed.
    #[error("Prometheus redirects to {0:?}; put the right address into prometheus-base-url")]
    Redirected(String),
    /// It has too much to do (HTTP 429, or 503 with `Retry-After`), and is not asked again so soon (case K58). Who asks
    /// meanwhile is told the same.
    #[error(
        "Prometheus has too much to do (HTTP {status}): {message}; it is left alone for {}",
        display_duration(*pause)
    )]
    Throttled {
        /// The status code.
        status: u16,
        /// What the body says, shortened.
        message: String,
        /// For how long, counted from that answer.
        pause: Duration,
    },
    /// It was not asked, for lack of what has to go along. Says where that should be, never what it is.
    #[error("Prometheus cannot be asked: {0}")]
    NoAccess(String),
    /// A status other than 200.
    #[error("Prometheus answered HTTP {status}: {message}")]
    Status {
        /// The status code.
        status: u16,
        /// What the body says, shortened.
        message: String,
    },
    /// Larger than [`MAX_BODY`].
    #[error("the answer of Prometheus has more than {MAX_BODY} bytes; select fewer series")]
    TooLarge,
    /// HTTP 200, but no answer.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// An answer, but not to this kind of question.
    #[error("Prometheus answered {0}")]
    Unusable(&'static str),
}

impl Unavailable {
    /// Whether another question would fare no better right now, so that the rest of a round should not be asked.
    #[must_use]
    pub fn concerns_all_queries(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::Redirected(_)
            | Self::Throttled { .. }
            | Self::NoAccess(_) => true,
            Self::TimedOut(_)
            | Self::Status { .. }
            | Self::TooLarge
            | Self::Answer(_)
            | Self::Unusable(_) => false,
        }
    }
}

/// The address alone, without user and password.
impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Prometheus").field(&self.0.url).finish()
    }
}

impl Prometheus {
    /// A client for the Prometheus of a configuration; a path in its address is kept as a prefix. Secrets in the
    /// environment are looked up now, those in files for each query, as are the certificates of `ca-file`: what is wrong
    /// with them makes queries [`Unavailable::NoAccess`] for as long as it is wrong.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(
        settings: &PrometheusSettings,
        environment: &Environment<'_>,
    ) -> Result<Self, PrometheusError> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(PrometheusError::NoCryptoProvider);
        }
        Ok(Self(Arc::new(Inner {
            url: settings.url.clone(),
            endpoint: settings.url.endpoint("/api/v1/query"),
            access: Access::new(settings, environment),
            connections: Connections::new(settings)?,
            throttle: Throttle::default(),
            timeout: settings.timeout,
        })))
    }

    /// Evaluates `query` now, by the clock of Prometheus (no `time` is sent: cases K54, K59), and gives up after
    /// `deadline`, or after the `timeout` of the configuration where that is shorter, body included. Prometheus is told
    /// to give up then as well.
    ///
    /// # Errors
    /// Whatever keeps an answer from being read whole, as a reason for people.
    pub async fn query(&self, query: &str, deadline: Duration) -> Result<Response, Unavailable> {
        let deadline = deadline.min(self.0.timeout);
        let leave = self.0.throttle.leave()?;
        match tokio::time::timeout(deadline, self.exchange(query, deadline, leave)).await {
            Ok(result) => result,
            Err(_) => Err(Unavailable::TimedOut(deadline)),
        }
    }

    async fn exchange(
        &self,
        query: &str,
        deadline: Duration,
        leave: throttle::Leave,
    ) -> Result<Response, Unavailable> {
        let client = self.0.connections.client().map_err(no_access)?;
        let request = client
            .post(self.0.endpoint.clone())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form(&[
                ("query", query),
                ("timeout", &format!("{}ms", deadline.as_millis().max(1))),
            ]));
        let request = self.0.access.grant(request).map_err(no_access)?;
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        if status.is_redirection() {
            let location = response.headers().get(LOCATION);
            let location = location.map(|l| String::from_utf8_lossy(l.as_bytes()).into_owned());
            return Err(Unavailable::Redirected(excerpt(
                &location.unwrap_or_default(),
            )));
        }
        let wish = wish(response.headers());
        let too_much = match status {
            StatusCode::TOO_MANY_REQUESTS => true,
            StatusCode::SERVICE_UNAVAILABLE => wish.is_some(),
            _ => false,
        };
        let body = match read(response).await {
            Ok(body) => body,
            // It is no less busy for what it says about it.
            Err(reason) if too_much => reason.to_string().into_bytes(),
            Err(reason) => return Err(reason),
        };
        if !too_much {
            self.0.throttle.answered(leave);
        }
        if status == StatusCode::OK {
            let answer = Response::read(&body).map_err(shortened)?;
            for warning in &answer.warnings {
                tracing::warn!(
                    query,
                    warning = excerpt(warning),
                    "Prometheus answered with a warning"
                );
            }
            return Ok(answer);
        }
        let message = match Response::read(&body) {
            Err(AnswerError::Error { kind, message }) => excerpt(&format!("{kind}: {message}")),
            Ok(_) | Err(AnswerError::Nonsense(_)) => excerpt(&String::from_utf8_lossy(&body)),
        };
        if too_much {
            Err(self.0.throttle.refused(leave, status, message, wish))
        } else {
            Err(Unavailable::Status {
                status: status.as_u16(),
                message,
            })
        }
    }
}

/// For how long the server wants to be left alone. A date is taken by the server's own clock (case K54).
fn wish(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    let now = text(DATE).and_then(retry_after::date);
    retry_after::retry_after(text(RETRY_AFTER)?, now)
}

fn no_access(error: impl std::error::Error + 'static) -> Unavailable {
    Unavailable::NoAccess(chain(&error))
}

/// The body of a form. Everything but unreserved characters is escaped.
fn form(pairs: &[(&str, &str)]) -> String {
    let mut body = String::new();
    for (name, value) in pairs {
        if !body.is_empty() {
            body.push('&');
        }
        body.push_str(name);
        body.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                body.push(char::from(byte));
            } else {
                // Writing to a String cannot fail.
                let _ = write!(body, "%{byte:02X}");
            }
        }
    }
    body
}

async fn read(mut response: reqwest::Response) -> Result<Vec<u8>, Unavailable> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > MAX_BODY {
            return Err(Unavailable::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The innermost cause says what a person can act on; the address, which may hold a password, is left out.
fn unreachable(error: reqwest::Error) -> Unavailable {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    Unavailable::Unreachable(excerpt(&cause.to_string()))
}

fn shortened(error: AnswerError) -> Unavailable {
    Unavailable::Answer(match error {
        AnswerError::Error { kind, message } => AnswerError::Error {
            kind: excerpt(&kind),
            message: excerpt(&message),
        },
        AnswerError::Nonsense(what) => AnswerError::Nonsense(excerpt(&what)),
    })
}

/// The beginning of a foreign text, on one line, without control characters.
fn excerpt(text: &str) -> String {
    let printable = text.replace(|c: char| c.is_control(), " ");
    let words = printable.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.is_empty() {
        return "no reason given".to_owned();
    }
    match words.char_indices().nth(MAX_EXCERPT) {
        Some((end, _)) => format!("{}...", words.get(..end).unwrap_or_default()),
        None => words,
    }
}

#[cfg(test)]
mod tests;
