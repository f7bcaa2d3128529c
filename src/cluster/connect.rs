//! The client.

use std::time::Duration;

use kube::config::InferConfigError;
use kube::{Client, Config};
use thiserror::Error;

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// Neither a kubeconfig nor in-cluster credentials.
    #[error(
        "no way to the cluster: neither a usable kubeconfig (KUBECONFIG, ~/.kube/config) nor in-cluster credentials"
    )]
    Infer(#[source] Box<InferConfigError>),
    /// The client cannot be built, for example from a broken certificate.
    #[error("the Kubernetes client cannot be set up from these credentials")]
    Client(#[source] Box<kube::Error>),
}

/// How long the connection itself may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects with a kubeconfig or, inside a cluster, with the pod's own credentials.
///
/// # Errors
///
/// When there are no credentials, or no client can be made from them. Nothing is sent yet.
pub async fn connect() -> Result<Client, ConnectError> {
    let mut config = Config::infer()
        .await
        .map_err(|error| ConnectError::Infer(Box::new(error)))?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // The next pass is the retry: kube's own policy would hold a write back for minutes and then send it stale.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))
}
