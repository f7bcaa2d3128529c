//! A Prometheus whose answers a test writes, on loopback.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Form, Request};
use axum::response::Response;
use axum::routing::any;

use super::prometheus::Prometheus;

/// One request as the stub saw it.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    /// The query string of the address.
    pub(super) address_query: Option<String>,
    pub(super) parameters: Vec<(String, String)>,
}

impl Asked {
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A running stub; it stops with the runtime of the test.
pub(super) struct Stub {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Stub {
    /// A stub that answers each query by `script`, given the text of the query.
    pub(super) async fn start<F, A>(script: F) -> Self
    where
        F: Fn(String) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response> + Send + 'static,
    {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let answer = move |request: Request| {
            let (script, seen) = (script.clone(), Arc::clone(&seen));
            async move {
                let method = request.method().to_string();
                let path = request.uri().path().to_owned();
                let address_query = request.uri().query().map(str::to_owned);
                let Form(parameters) =
                    <Form<Vec<(String, String)>> as axum::extract::FromRequest<()>>::from_request(
                        request,
                        &(),
                    )
                    .await
                    .unwrap_or_else(|_| Form(Vec::new()));
                let asked = Asked {
                    method,
                    path,
                    address_query,
                    parameters,
                };
                let query = asked.parameter("query").unwrap_or_default().to_owned();
                seen.lock().unwrap().push(asked);
                script(query).await
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(any(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, asked }
    }

    /// A client for this stub.
    pub(super) fn client(&self) -> Prometheus {
        client(&format!("http://{}/", self.address))
    }

    /// What has been asked so far.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The texts of the queries so far.
    pub(super) fn queries(&self) -> Vec<String> {
        let query = |asked: &Asked| asked.parameter("query").unwrap_or_default().to_owned();
        self.asked().iter().map(query).collect()
    }
}

/// A client, with what `main` does before it makes one.
pub(super) fn client(address: &str) -> Prometheus {
    // A second installation, by another test of this process, is refused and not needed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Prometheus::new(address).unwrap()
}

/// HTTP 200 with a vector of these labels and values.
pub(super) fn vector(samples: &[(&[(&str, &str)], &str)]) -> Response {
    let samples: Vec<serde_json::Value> = samples
        .iter()
        .map(|(labels, value)| {
            let labels: std::collections::BTreeMap<_, _> = labels.iter().copied().collect();
            serde_json::json!({"metric": labels, "value": [1.5, value]})
        })
        .collect();
    let data = serde_json::json!({"resultType": "vector", "result": samples});
    body(
        200,
        serde_json::json!({"status": "success", "data": data}).to_string(),
    )
}

/// An answer with this status and body.
pub(super) fn body(status: u16, body: impl Into<axum::body::Body>) -> Response {
    Response::builder()
        .status(status)
        .body(body.into())
        .unwrap()
}
