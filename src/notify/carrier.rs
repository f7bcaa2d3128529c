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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::extract::Request;
    use axum::http::HeaderMap;
    use axum::response::IntoResponse as _;
    use http::HeaderValue;

    use super::*;

    /// What a receiver on loopback got: path, headers, body.
    type Got = Arc<Mutex<Vec<(String, HeaderMap, String)>>>;

    /// A receiver that answers by the path it is asked for.
    async fn receiver() -> (String, Got) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let got = Got::default();
        let seen = Arc::clone(&got);
        let answer = move |request: Request| {
            let seen = Arc::clone(&seen);
            async move {
                let (head, body) = request.into_parts();
                let path = head.uri.path().to_owned();
                let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
                let body = String::from_utf8(body.to_vec()).unwrap();
                let answer = match path.as_str() {
                    "/busy" => {
                        (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "2")], "").into_response()
                    }
                    "/moved" => {
                        let to = [(http::header::LOCATION, "/elsewhere")];
                        (StatusCode::TEMPORARY_REDIRECT, to, "").into_response()
                    }
                    "/broken" => (StatusCode::INTERNAL_SERVER_ERROR, path.clone()).into_response(),
                    _ => "ok".into_response(),
                };
                seen.lock().unwrap().push((path, head.headers, body));
                answer
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, router).await });
        (format!("http://{address}"), got)
    }

    fn letter(url: &str) -> Letter {
        Letter {
            url: url.parse().unwrap(),
            header: Some((
                http::header::AUTHORIZATION,
                HeaderValue::from_static("Bearer hunter2"),
            )),
            body: r#"{"text":"ä"}"#.to_owned(),
        }
    }

    #[tokio::test]
    async fn a_letter_arrives_with_its_header_and_every_answer_is_told_apart() {
        let (url, got) = receiver().await;
        let http = Http::new();
        for (path, status, retry_after) in [
            ("/volery", 200, None),
            ("/busy", 429, Some("2")),
            ("/broken", 500, None),
            ("/moved", 307, None),
        ] {
            let reply = http.post(&letter(&format!("{url}{path}"))).await.unwrap();
            assert_eq!(reply.status.as_u16(), status, "{path}");
            assert_eq!(reply.retry_after.as_deref(), retry_after, "{path}");
        }
        let got = got.lock().unwrap();
        let paths: Vec<&str> = got.iter().map(|(path, _, _)| path.as_str()).collect();
        assert_eq!(paths, ["/volery", "/busy", "/broken", "/moved"]);
        let (_, headers, body) = &got[0];
        assert_eq!(headers["authorization"], "Bearer hunter2");
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(body, r#"{"text":"ä"}"#);
    }

    #[tokio::test]
    async fn a_closed_port_is_told_without_the_address() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let url = format!("http://me:hunter2@{address}/services/hunter2");
        let error = Http::new().post(&letter(&url)).await.unwrap_err();
        let told = crate::chain::chain(&error);
        assert!(told.starts_with("it cannot be reached: "), "{told}");
        for secret in ["hunter2", &address.port().to_string()] {
            assert!(!told.contains(secret), "{told}");
        }
    }
}
