//! The client.

use std::time::Duration;

use kube::config::{InferConfigError, KubeConfigOptions, KubeconfigError};
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
    /// There is no such context, or no kubeconfig that could have one.
    #[error(
        "context {context:?} cannot be used: see kubectl config get-contexts (KUBECONFIG, ~/.kube/config)"
    )]
    Context {
        /// Its name.
        context: String,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
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
    let config = Config::infer()
        .await
        .map_err(|error| ConnectError::Infer(Box::new(error)))?;
    client(config)
}

/// Connects with this context of the kubeconfig.
///
/// # Errors
///
/// When there is no such context, or no client can be made from it. Nothing is sent yet.
pub async fn connect_in(context: &str) -> Result<Client, ConnectError> {
    let options = KubeConfigOptions {
        context: Some(context.to_owned()),
        ..KubeConfigOptions::default()
    };
    let config =
        Config::from_kubeconfig(&options)
            .await
            .map_err(|error| ConnectError::Context {
                context: context.to_owned(),
                source: Box::new(error),
            })?;
    client(config)
}

fn client(mut config: Config) -> Result<Client, ConnectError> {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // The next pass is the retry: kube's own policy would hold a write back for minutes and then send it stale.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))
}
