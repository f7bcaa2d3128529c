//! HTTP: one letter, one answer.

use std::sync::OnceLock;

use futures::future::BoxFuture;
use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use thiserror::Error;

use super::letter::Letter;

/// Something that posts letters: HTTP, or what a test puts in its place.
pub trait Carrier: Send + Sync {
    /// Posts a letter. Whoever asks says how long it may take.
    fn post<'a>(&'a self, letter: &'a Letter) -> BoxFuture<'a, Result<Reply, CarrierError>>;
}

/// What a receiver answered. Its body is not read: some repeat the secret address in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The header `Retry-After`, as sent.
    pub retry_after: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum CarrierError {
    /// No connection, or it broke.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// TLS cannot be set up, most often because there are no root certificates.
    #[error(
        "the HTTP client cannot be made; for https:// the system's root certificates must be installed"
    )]
    Client(#[source] reqwest::Error),
}

/// Letters by HTTP and HTTPS. Redirects are not followed: they would carry the secrets elsewhere.
#[derive(Default)]
pub struct Http {
    plain: OnceLock<reqwest::Client>,
    secure: OnceLock<reqwest::Client>,
}

impl Http {
    /// Nothing is set up before the first letter.
    pub fn new() -> Self {
        Self::default()
    }

    fn client(&self, scheme: &str) -> Result<&reqwest::Client, CarrierError> {
        // Without TLS there need not even be root certificates.
        let is_plain = scheme == "http";
        let place = if is_plain { &self.plain } else { &self.secure };
        if let Some(client) = place.get() {
            return Ok(client);
        }
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("volery/", env!("CARGO_PKG_VERSION")));
        if is_plain {
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(CarrierError::Client)?;
        Ok(place.get_or_init(|| client))
    }

    async fn exchange(&self, letter: &Letter) -> Result<Reply, CarrierError> {
        let client = self.client(letter.url.scheme())?;
        let mut request = client
            .post(letter.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(letter.body.clone());
        if let Some((name, value)) = &letter.header {
            request = request.header(name, value);
        }
        let response = request.send().await.map_err(unreachable)?;
        let retry_after = response.headers().get(RETRY_AFTER);
        Ok(Reply {
            status: response.status(),
            retry_after: retry_after
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned),
        })
    }
}

impl Carrier for Http {
    fn post<'a>(&'a self, letter: &'a Letter) -> BoxFuture<'a, Result<Reply, CarrierError>> {
        Box::pin(self.exchange(letter))
    }
}

/// The innermost cause says what a person can act on; the address is left out.
fn unreachable(error: reqwest::Error) -> CarrierError {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    CarrierError::Unreachable(cause.to_string())
}
