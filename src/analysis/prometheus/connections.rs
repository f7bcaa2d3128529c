//! The connections to Prometheus, and whose word is taken that it is Prometheus.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use reqwest::{Certificate, Client};
use thiserror::Error;

use super::PrometheusError;
use crate::config::{Authorities, PrometheusSettings};

/// Why there can be no connection.
#[derive(Debug, Error)]
pub(super) enum ConnectionsError {
    #[error("ca-file {} cannot be read", file.display())]
    Unreadable {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("ca-file {} holds no certificates: expected PEM", file.display())]
    NoCertificates { file: PathBuf },
    #[error("with the certificates in ca-file {} no client can be made", file.display())]
    Client {
        file: PathBuf,
        #[source]
        source: reqwest::Error,
    },
}

/// Where connections are kept for further queries.
pub(super) enum Connections {
    /// By plain HTTP, or to whom the system trusts.
    Ready(Client),
    /// To whom those trust that stand in a file. A certificate authority changes its certificates every few years, and a
    /// mounted ConfigMap brings the new ones while the daemon runs.
    Vouched {
        file: PathBuf,
        made: Mutex<Option<Made>>,
    },
}

/// A client, and the content of the file that it was made of.
pub(super) struct Made {
    bundle: Vec<u8>,
    client: Client,
}

impl Connections {
    pub fn new(settings: &PrometheusSettings) -> Result<Self, PrometheusError> {
        let ready = |client: Result<Client, reqwest::Error>| {
            client.map(Self::Ready).map_err(PrometheusError::Client)
        };
        match &settings.authorities {
            // Without redirects TLS is never spoken: no need to load, or even to have, root certificates.
            _ if !settings.url.is_encrypted() => ready(client_of(Some(Vec::new()))),
            Authorities::System => ready(client_of(None)),
            Authorities::File(file) => Ok(Self::Vouched {
                file: file.clone(),
                made: Mutex::new(None),
            }),
        }
    }

    /// The client, made anew when the file has changed.
    pub fn client(&self) -> Result<Client, ConnectionsError> {
        let (file, made) = match self {
            Self::Ready(client) => return Ok(client.clone()),
            Self::Vouched { file, made } => (file, made),
        };
        let bundle = std::fs::read(file).map_err(|source| ConnectionsError::Unreadable {
            file: file.clone(),
            source,
        })?;
        let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = made.as_ref().filter(|made| made.bundle == bundle) {
            return Ok(made.client.clone());
        }
        let certificates = Certificate::from_pem_bundle(&bundle)
            .ok()
            .filter(|certificates| !certificates.is_empty())
            .ok_or_else(|| ConnectionsError::NoCertificates { file: file.clone() })?;
        let client = client_of(Some(certificates)).map_err(|source| ConnectionsError::Client {
            file: file.clone(),
            source,
        })?;
        *made = Some(Made {
            bundle,
            client: client.clone(),
        });
        Ok(client)
    }
}

/// A client that believes these, or whom the system trusts.
fn client_of(authorities: Option<Vec<Certificate>>) -> Result<Client, reqwest::Error> {
    let builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("volery/", env!("CARGO_PKG_VERSION")));
    match authorities {
        Some(certificates) => builder.tls_certs_only(certificates),
        None => builder,
    }
    .build()
}
