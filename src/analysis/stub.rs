//! A Prometheus whose answers a test writes, on loopback.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Form, Request};
use axum::response::Response;
use axum::routing::any;
use axum::serve::{Listener, ListenerExt as _};
use http::HeaderMap;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::prometheus::Prometheus;
use crate::config::PrometheusSettings;

/// One request as the stub saw it.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    /// The query string of the address.
    pub(super) address_query: Option<String>,
    pub(super) headers: HeaderMap,
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
    connections: Arc<AtomicUsize>,
}

impl Stub {
    /// A stub that answers each query by `script`, given the text of the query.
    pub(super) async fn start<F, A>(script: F) -> Self
    where
        F: Fn(String) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response> + Send + 'static,
    {
        Self::listening(script, |listener| listener).await
    }

    /// The same, behind TLS.
    pub(super) async fn secure<F, A>(tls: rustls::ServerConfig, script: F) -> Self
    where
        F: Fn(String) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response> + Send + 'static,
    {
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        Self::listening(script, |tcp| Tls { tcp, acceptor }).await
    }

    async fn listening<F, A, L>(script: F, wrap: impl FnOnce(TcpListener) -> L) -> Self
    where
        F: Fn(String) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response> + Send + 'static,
        L: Listener<Addr = SocketAddr>,
    {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let answer = move |request: Request| {
            let (script, seen) = (script.clone(), Arc::clone(&seen));
            async move {
                let method = request.method().to_string();
                let path = request.uri().path().to_owned();
                let address_query = request.uri().query().map(str::to_owned);
                let headers = request.headers().clone();
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
                    headers,
                    parameters,
                };
                let query = asked.parameter("query").unwrap_or_default().to_owned();
                seen.lock().unwrap().push(asked);
                script(query).await
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(any(answer));
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        let listener = wrap(listener).tap_io(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            address,
            asked,
            connections,
        }
    }

    /// A client for this stub.
    pub(super) fn client(&self) -> Prometheus {
        client(&format!("http://{}/", self.address))
    }

    /// How many connections have been accepted so far.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
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

/// Connections whose other side does not like our certificate are dropped.
struct Tls {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((stream, address)) = self.tcp.accept().await else {
                continue;
            };
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

/// A client, with what `main` does before it makes one.
pub(super) fn client(address: &str) -> Prometheus {
    client_of(&PrometheusSettings::new(address.parse().unwrap()))
}

/// The same, in an environment of its own.
pub(super) fn client_of(settings: &PrometheusSettings) -> Prometheus {
    let environment = |name: &str| (name == "SECRET").then(|| "s3cret\n".to_owned());
    install_crypto();
    Prometheus::new(settings, &environment).unwrap()
}

/// A second installation, by another test of this process, is refused and not needed.
pub(super) fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
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
