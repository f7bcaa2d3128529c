//! The Prometheus client: instant queries, each of which ends in an answer or a reason within its deadline.

use std::fmt::{self, Write as _};
use std::time::Duration;

use http::StatusCode;
use http::header::{CONTENT_TYPE, LOCATION};
use reqwest::Url;

use super::answer::{AnswerError, Response};

/// The largest answer that is read, in bytes. An instant query over the pods of a canary has a few kilobytes.
pub const MAX_BODY: usize = 4 * 1024 * 1024;

/// How much of a foreign text goes into a log line, in characters.
const MAX_EXCERPT: usize = 200;

/// Asks one Prometheus. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Prometheus {
    client: reqwest::Client,
    endpoint: Url,
}

/// Why no client can be made.
#[derive(Debug, thiserror::Error)]
pub enum PrometheusError {
    /// The address cannot be used.
    #[error(
        "{address:?} is not an address of Prometheus: {reason}; write for example http://prometheus:9090/"
    )]
    Address {
        /// As configured, less a user's name and password.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
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
    /// Too many requests (HTTP 429).
    #[error("Prometheus is asked too often (HTTP 429): {0}")]
    Throttled(String),
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
            Self::Unreachable(_) | Self::Redirected(_) | Self::Throttled(_) => true,
            Self::TimedOut(_)
            | Self::Status { .. }
            | Self::TooLarge
            | Self::Answer(_)
            | Self::Unusable(_) => false,
        }
    }
}

/// Without the address's password.
impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = without_user(self.endpoint.as_str());
        f.debug_tuple("Prometheus").field(&address).finish()
    }
}

impl Prometheus {
    /// A client for the Prometheus at `address`, whose path, if any, is kept as a prefix.
    ///
    /// # Errors
    /// When `address` is not an `http` or `https` URL without query and fragment, or TLS cannot be set up.
    pub fn new(address: &str) -> Result<Self, PrometheusError> {
        let endpoint = endpoint(address).map_err(|reason| PrometheusError::Address {
            address: without_user(address),
            reason,
        })?;
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(PrometheusError::NoCryptoProvider);
        }
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("volery/", env!("CARGO_PKG_VERSION")));
        if endpoint.scheme() == "http" {
            // Without redirects TLS is never spoken: no need to load, or even to have, root certificates.
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(PrometheusError::Client)?;
        Ok(Self { client, endpoint })
    }

    /// Evaluates `query` now, by the clock of Prometheus (no `time` is sent: cases K54, K59), and gives up after
    /// `deadline`, body included. Prometheus is told to give up then as well.
    ///
    /// # Errors
    /// Whatever keeps an answer from being read whole, as a reason for people.
    pub async fn query(&self, query: &str, deadline: Duration) -> Result<Response, Unavailable> {
        match tokio::time::timeout(deadline, self.exchange(query, deadline)).await {
            Ok(result) => result,
            Err(_) => Err(Unavailable::TimedOut(deadline)),
        }
    }

    async fn exchange(&self, query: &str, deadline: Duration) -> Result<Response, Unavailable> {
        let response = self
            .client
            .post(self.endpoint.clone())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form(&[
                ("query", query),
                ("timeout", &format!("{}ms", deadline.as_millis().max(1))),
            ]))
            .send()
            .await
            .map_err(unreachable)?;
        let status = response.status();
        if status.is_redirection() {
            let location = response.headers().get(LOCATION);
            let location = location.map(|l| String::from_utf8_lossy(l.as_bytes()).into_owned());
            return Err(Unavailable::Redirected(excerpt(
                &location.unwrap_or_default(),
            )));
        }
        let body = read(response).await?;
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
        if status == StatusCode::TOO_MANY_REQUESTS {
            Err(Unavailable::Throttled(message))
        } else {
            Err(Unavailable::Status {
                status: status.as_u16(),
                message,
            })
        }
    }
}

fn endpoint(address: &str) -> Result<Url, String> {
    let mut url = Url::parse(address).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "it starts with {:?}, expected http:// or https://",
            url.scheme()
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it has a query or a fragment".to_owned());
    }
    let path = format!("{}/api/v1/query", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

/// The address less `user:password@`, for people and logs.
fn without_user(address: &str) -> String {
    match (address.split_once("://"), address.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        (None, Some((_, rest))) => rest.to_owned(),
        (_, None) => address.to_owned(),
    }
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
