//! Whether the daemon lives and is ready, for the kubelet's probes.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::exposition::Exposition;

/// Whether the daemon is ready. Clones share it.
#[derive(Clone, Debug)]
pub struct Health(watch::Sender<Readiness>);

/// How far the daemon has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Not ready, and why.
    Waiting(String),
    /// Every watch has delivered its first full list, and every service is looked after.
    Ready,
}

impl Default for Health {
    fn default() -> Self {
        Self(watch::Sender::new(Readiness::Waiting(
            "starting".to_owned(),
        )))
    }
}

impl Health {
    /// Not ready, for this reason.
    pub fn waiting(&self, reason: &str) {
        self.0.send_replace(Readiness::Waiting(reason.to_owned()));
    }

    /// Ready.
    pub fn ready(&self) {
        self.0.send_replace(Readiness::Ready);
    }

    /// How far the daemon has come.
    pub fn readiness(&self) -> Readiness {
        self.0.borrow().clone()
    }
}

/// Why nothing is served.
#[derive(Debug, Error)]
pub enum HealthError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for probes; choose another with --listen")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// Takes the address, so that a wrong one is known at start.
///
/// # Errors
///
/// When the address cannot be listened on.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, HealthError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| HealthError::Bind { address, source })
}

/// Serves `/livez`, `/readyz` and `/metrics` for ever.
///
/// # Errors
///
/// When the listener breaks.
pub async fn serve(
    listener: TcpListener,
    health: Health,
    exposition: Exposition,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(async move || exposition.answer()))
        .with_state(health);
    axum::serve(listener, router).await
}

async fn readyz(State(health): State<Health>) -> (StatusCode, String) {
    match health.readiness() {
        Readiness::Ready => (StatusCode::OK, "ready\n".to_owned()),
        Readiness::Waiting(reason) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready: {reason}\n"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::reloads::Reloads;

    async fn get(address: SocketAddr, path: &str) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(address)
            .await
            .expect("connects");
        let request = format!("GET {path} HTTP/1.1\r\nhost: probes\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("is sent");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .await
            .expect("is answered");
        answer
    }

    #[tokio::test]
    async fn it_is_alive_at_once_and_ready_when_told() {
        let health = Health::default();
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("has one");
        let exposition = Exposition::of(&Reloads::default());
        tokio::spawn(serve(listener, health.clone(), exposition));
        assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200"));
        health.waiting("the watches have not seen everything yet");
        let answer = get(address, "/readyz").await;
        assert!(
            answer.starts_with("HTTP/1.1 503") && answer.contains("the watches have not"),
            "{answer}"
        );
        health.ready();
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        let metrics = get(address, "/metrics").await;
        assert!(
            metrics.contains("application/openmetrics-text")
                && metrics.contains("volery_config_reloads_total"),
            "{metrics}"
        );
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_named() {
        let taken = bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .await
            .expect("a free port");
        let address = taken.local_addr().expect("has one");
        let error = bind(address).await.expect_err("is taken");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
