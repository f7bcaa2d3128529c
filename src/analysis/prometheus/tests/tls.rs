//! A Prometheus behind TLS, with certificates of a company's own.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;

use super::super::super::stub::{Stub, client_of, install_crypto, vector};
use super::*;
use crate::config::Authorities;

/// A certificate authority.
struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    /// What a server of this name shows.
    fn vouches_for(&self, name: &str) -> rustls::ServerConfig {
        install_crypto();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap()
    }

    fn write(&self, file: &Path) {
        std::fs::write(file, self.certificate.pem()).unwrap();
    }
}

async fn stub(authority: &Authority, name: &str) -> Stub {
    Stub::secure(authority.vouches_for(name), |_| async { vector(&[]) }).await
}

fn client_with(stub: &Stub, authorities: Authorities) -> Prometheus {
    let mut settings =
        PrometheusSettings::new(format!("https://{}/", stub.address).parse().unwrap());
    settings.authorities = authorities;
    client_of(&settings)
}

fn in_file(file: &Path) -> Authorities {
    Authorities::File(PathBuf::from(file))
}

#[tokio::test]
async fn whom_the_file_trusts_is_believed_by_one_connection() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    let authority = Authority::new("ours");
    let bundle = format!(
        "# Two of them.\n{}{}",
        Authority::new("another").certificate.pem(),
        authority.certificate.pem()
    );
    std::fs::write(&file, bundle).unwrap();
    let stub = stub(&authority, "127.0.0.1").await;
    let client = client_with(&stub, in_file(&file));
    for _ in 0..5 {
        client.query("up", GENEROUS).await.unwrap();
    }
    assert_eq!(stub.connections(), 1);
}

#[tokio::test]
async fn nobody_else_is_believed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    let authority = Authority::new("ours");
    authority.write(&file);
    let strange = stub(&Authority::new("another"), "127.0.0.1").await;
    let misnamed = stub(&authority, "prometheus.example").await;
    let unknown = stub(&authority, "127.0.0.1").await;
    for (client, expected) in [
        (client_with(&strange, in_file(&file)), "UnknownIssuer"),
        (client_with(&misnamed, in_file(&file)), "not valid for name"),
        (client_with(&unknown, Authorities::System), "UnknownIssuer"),
    ] {
        let reason = client.query("up", GENEROUS).await.unwrap_err();
        assert!(matches!(reason, Unavailable::Unreachable(_)), "{reason}");
        assert!(reason.to_string().contains(expected), "{reason}");
    }
    for stub in [strange, misnamed, unknown] {
        assert!(stub.asked().is_empty());
    }
}

#[tokio::test]
async fn a_file_that_changes_is_read_anew() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    let authority = Authority::new("ours");
    let stub = stub(&authority, "127.0.0.1").await;
    let client = client_with(&stub, in_file(&file));
    let reason = async || {
        let reason = client.query("up", GENEROUS).await.unwrap_err().to_string();
        reason.replace(&file.display().to_string(), "/ca.crt")
    };
    assert_eq!(
        reason().await,
        "Prometheus cannot be asked: ca-file /ca.crt cannot be read: No such file or directory (os error 2)"
    );
    for text in ["", "not PEM", "-----BEGIN CERTIFICATE-----\n!\n"] {
        std::fs::write(&file, text).unwrap();
        assert_eq!(
            reason().await,
            "Prometheus cannot be asked: ca-file /ca.crt holds no certificates: expected PEM",
            "{text:?}"
        );
    }
    Authority::new("another").write(&file);
    assert!(reason().await.contains("UnknownIssuer"));
    authority.write(&file);
    client.query("up", GENEROUS).await.unwrap();
    assert_eq!(stub.asked().len(), 1);
}
