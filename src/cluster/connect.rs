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

/// Connects with this context of the kubeconfig; where none is named with its current one or, inside a cluster, with the
/// pod's own credentials.
///
/// # Errors
///
/// When there are no credentials, no such context, or no client can be made from them. Nothing is sent yet.
pub async fn connect(context: Option<&str>) -> Result<Client, ConnectError> {
    client(config(context).await?)
}

/// Connects on behalf of another account, such as `system:serviceaccount:workers:volery`: its rights count, and the
/// account that asks needs the right to `impersonate` it.
///
/// # Errors
///
/// Those of [`connect`].
pub async fn connect_as(context: Option<&str>, account: &str) -> Result<Client, ConnectError> {
    let mut config = config(context).await?;
    config.auth_info.impersonate = Some(account.to_owned());
    client(config)
}

async fn config(context: Option<&str>) -> Result<Config, ConnectError> {
    let Some(context) = context else {
        return Config::infer()
            .await
            .map_err(|error| ConnectError::Infer(Box::new(error)));
    };
    let options = KubeConfigOptions {
        context: Some(context.to_owned()),
        ..KubeConfigOptions::default()
    };
    Config::from_kubeconfig(&options)
        .await
        .map_err(|error| ConnectError::Context {
            context: context.to_owned(),
            source: Box::new(error),
        })
}

fn client(mut config: Config) -> Result<Client, ConnectError> {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // The next pass is the retry: kube's own policy would hold a write back for minutes and then send it stale.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))
}
