//! A real Prometheus that shows a certificate of a company's own, wants to know who asks, and lives under a path.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::json;

use crate::{
    process::{self, Service},
    programs::Programs,
    prometheus::scraping,
};

/// Who may ask.
pub const USER: &str = "volery";

/// What they know.
pub const PASSWORD: &str = "s3cret";

/// The same, as bcrypt keeps it.
const HASH: &str = "$2b$04$abcdefghijklmnopqrstuuLZYjhNQAOdpbzt4WxWlUHjv1wsyH5DG";

/// Running; dropping it kills it.
pub struct Guarded {
    pub url: String,
    /// The certificate of the authority that vouches for it.
    pub authority: PathBuf,
    _service: Service,
}

impl Guarded {
    /// Starts it in this folder, scraping `metrics_port` twice a second, and waits until it is ready.
    ///
    /// # Errors
    /// With the end of its log.
    pub async fn start(
        programs: &Programs,
        folder: &Path,
        metrics_port: u16,
    ) -> Result<Self, String> {
        let [port] = process::free_ports().map_err(|e| e.to_string())?;
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text)
                .map(|()| path)
                .map_err(|e| e.to_string())
        };
        let pki = Pki::new().map_err(|e| e.to_string())?;
        let authority = write("authority.crt", &pki.authority)?;
        let certificate = write("prometheus.crt", &pki.certificate)?;
        let key = write("prometheus.key", &pki.key)?;
        let guard = json!({
            "tls_server_config": {"cert_file": certificate, "key_file": key},
            "basic_auth_users": {USER: HASH},
        });
        let guard = write("guard.json", &guard.to_string())?;
        let config = write("prometheus.json", &scraping(metrics_port))?;
        let url = format!("https://127.0.0.1:{port}/metrics/of/pods");
        let mut command = process::command(&programs.prometheus);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--web.config.file={}", guard.display()))
            .arg(format!("--web.external-url={url}"))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("guarded").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let mut service = Service::start("guarded-prometheus", command, folder).await?;
        let client = reqwest::Certificate::from_pem(pki.authority.as_bytes())
            .and_then(|authority| {
                let builder = reqwest::Client::builder().tls_certs_only([authority]);
                builder.build()
            })
            .map_err(|e| e.to_string())?;
        let ready = format!("{url}/-/ready");
        service
            .ready(async || {
                let request = client.get(&ready).basic_auth(USER, Some(PASSWORD));
                let answer = request.send().await;
                let answer = answer.and_then(reqwest::Response::error_for_status);
                answer.map(drop).map_err(|e| e.to_string())
            })
            .await?;
        Ok(Self {
            url,
            authority,
            _service: service,
        })
    }
}

/// In PEM.
struct Pki {
    authority: String,
    certificate: String,
    key: String,
}

impl Pki {
    fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "the company's own");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key)?;
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(["127.0.0.1".to_owned()])?;
        Ok(Self {
            authority: authority.pem(),
            certificate: params.signed_by(&key, &issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}
