//! etcd, kube-apiserver and kube-controller-manager as plain processes on loopback.

use std::{fs, path::PathBuf, sync::Arc};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api, Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    process::{self, Service},
    programs::Programs,
    proxy::{Lag, Proxy},
};

/// Who talks to the API server, told apart in the audit log by these names. All but daemons may do everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The tests' own client.
    Bed,
    /// Plays the person, CI or GitOps, through kubectl.
    User,
    Kubelet,
    ControllerManager,
}

impl Who {
    /// The user name in the audit log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bed => "bed",
            Self::User => "user",
            Self::Kubelet => "bed-kubelet",
            Self::ControllerManager => "system:kube-controller-manager",
        }
    }

    /// The bed lives on loopback for the length of one run, so its tokens need no secrecy.
    fn token(self) -> String {
        format!("token-of-{}", self.name().replace(':', "-"))
    }
}

const EVERYBODY: [Who; 4] = [Who::Bed, Who::User, Who::Kubelet, Who::ControllerManager];

/// The API server's address as processes see it, and what is needed to trust it.
#[derive(Clone)]
pub struct ApiServer {
    pub url: String,
    /// The self-signed certificate that the API server made for this run.
    pub certificate: PathBuf,
}

impl ApiServer {
    /// A kubeconfig for one of the bed's own users, straight to the API server.
    pub fn kubeconfig(&self, who: Who, namespace: &str) -> String {
        kubeconfig(&self.url, Some(&self.certificate), &who.token(), namespace)
    }

    /// For a proxy: a client that passes on whatever answer comes, and has no credentials unless it acts for one of the bed's own users.
    pub async fn upstream(&self, acting_for: Option<Who>) -> Result<Client, String> {
        let token = acting_for.map(Who::token).unwrap_or_default();
        let mut config = parse(&kubeconfig(
            &self.url,
            Some(&self.certificate),
            &token,
            "default",
        ))
        .await?;
        if acting_for.is_none() {
            config.auth_info = AuthInfo::default();
        }
        config.default_retry = false;
        Client::try_from(config).map_err(|e| e.to_string())
    }

    /// A client of a user who has only the rights that were granted by name.
    pub async fn client_as(&self, user: &str) -> Result<Client, String> {
        let mut config = parse(&self.kubeconfig(Who::Bed, "default")).await?;
        config.auth_info.impersonate = Some(user.to_owned());
        Client::try_from(config).map_err(|e| e.to_string())
    }

    /// A client of one of the bed's own users, with no namespace in particular.
    pub async fn client(&self, who: Who) -> Result<Client, String> {
        Client::try_from(parse(&self.kubeconfig(who, "default")).await?).map_err(|e| e.to_string())
    }
}

async fn parse(kubeconfig: &str) -> Result<Config, String> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(|e| e.to_string())?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|e| e.to_string())
}

/// A kubeconfig file's text (JSON is YAML).
pub fn kubeconfig(
    url: &str,
    certificate: Option<&PathBuf>,
    token: &str,
    namespace: &str,
) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bed",
        "clusters": [{"name": "bed", "cluster": {"server": url, "certificate-authority": certificate}}],
        "users": [{"name": "bed", "user": {"token": token}}],
        "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "bed", "namespace": namespace}}],
    })
    .to_string()
}

/// The running control plane; dropping it kills its processes.
pub struct ControlPlane {
    pub api_server: ApiServer,
    pub audit_log: PathBuf,
    /// Delays the controller-manager's watches.
    pub controller_manager_lag: Arc<Lag>,
    _controller_manager_proxy: Proxy,
    _services: [Service; 3],
}

impl ControlPlane {
    /// Starts everything and waits until it serves.
    ///
    /// # Errors
    /// With the end of the log of the program that did not come up.
    pub async fn start(programs: &Programs, data: &TempDir) -> Result<Self, String> {
        let folder = data.path();
        let [etcd_port, etcd_peer_port, api_port] =
            process::free_ports().map_err(|e| e.to_string())?;
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text)
                .map(|()| path)
                .map_err(|e| e.to_string())
        };

        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let etcd_peer_url = format!("http://127.0.0.1:{etcd_peer_port}");
        let mut etcd = process::command(&programs.etcd);
        etcd.arg("--data-dir")
            .arg(folder.join("etcd"))
            .args([
                "--listen-client-urls",
                &etcd_url,
                "--advertise-client-urls",
                &etcd_url,
            ])
            .args([
                "--listen-peer-urls",
                &etcd_peer_url,
                "--initial-advertise-peer-urls",
                &etcd_peer_url,
            ])
            .args(["--initial-cluster", &format!("default={etcd_peer_url}")])
            .args(["--unsafe-no-fsync", "--log-level", "warn"]);
        let mut etcd = Service::start("etcd", etcd, folder).await?;
        etcd.ready(async || {
            let connection = tokio::net::TcpStream::connect(("127.0.0.1", etcd_port)).await;
            connection.map(drop).map_err(|e| e.to_string())
        })
        .await?;

        let (private, public) = new_signing_key()?;
        let signing_key = write("service-accounts.key", &private)?;
        let public_key = write("service-accounts.pub", &public)?;
        let tokens = EVERYBODY
            .map(|who| {
                format!(
                    "{},{},{},\"system:masters\"\n",
                    who.token(),
                    who.name(),
                    who.name()
                )
            })
            .concat();
        let tokens = write("tokens.csv", &tokens)?;
        let audit_policy = write("audit-policy.yaml", &audit_policy())?;
        let audit_log = folder.join("audit.log");
        let certificates = folder.join("certificates");
        let mut api = process::command(&programs.kube_apiserver);
        api.arg(format!("--etcd-servers={etcd_url}"))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={api_port}"))
            // Nothing in the bed uses the `kubernetes` Service, and loopback may not be advertised.
            .args([
                "--advertise-address=192.0.2.1",
                "--endpoint-reconciler-type=none",
                "--service-cluster-ip-range=10.96.0.0/24",
            ])
            .arg(format!("--cert-dir={}", certificates.display()))
            .arg(format!("--token-auth-file={}", tokens.display()))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!(
                "--service-account-key-file={}",
                public_key.display()
            ))
            .arg(format!(
                "--service-account-signing-key-file={}",
                signing_key.display()
            ))
            .args([
                "--authorization-mode=RBAC",
                "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            ])
            // Many tests share this server: its own throttling is not under test.
            .args([
                "--enable-priority-and-fairness=false",
                "--max-requests-inflight=0",
                "--max-mutating-requests-inflight=0",
            ])
            .arg(format!("--audit-policy-file={}", audit_policy.display()))
            .arg(format!("--audit-log-path={}", audit_log.display()))
            .args(["--audit-log-mode=blocking", "--audit-log-maxsize=0"]);
        let mut api = Service::start("kube-apiserver", api, folder).await?;

        let api_server = ApiServer {
            url: format!("https://127.0.0.1:{api_port}"),
            certificate: certificates.join("apiserver.crt"),
        };
        api.ready(async || {
            if !api_server.certificate.is_file() {
                return Err("it has written no certificate".to_owned());
            }
            let client = api_server.client(Who::Bed).await?;
            let request = http::Request::get("/readyz").body(Vec::new());
            let answer = client
                .request_text(request.map_err(|e| e.to_string())?)
                .await;
            answer.map(drop).map_err(|e| e.to_string())
        })
        .await?;

        // Go clients send no token over plain HTTP, so the proxy carries it.
        let upstream = api_server.upstream(Some(Who::ControllerManager)).await?;
        let proxy = Proxy::start(upstream)
            .await
            .map_err(|e| format!("the fault proxy: {e}"))?;
        let manager_config = write(
            "controller-manager.kubeconfig",
            &kubeconfig(&proxy.url(), None, "", "default"),
        )?;
        let mut manager = process::command(&programs.kube_controller_manager);
        manager
            .arg(format!("--kubeconfig={}", manager_config.display()))
            .arg(format!("--controllers={}", CONTROLLERS.join(",")))
            // The proxy reads watches, so they must come as JSON.
            .args([
                "--kube-api-content-type=application/json",
                "--kube-api-qps=2000",
                "--kube-api-burst=4000",
            ])
            .args(["--leader-elect=false", "--secure-port=0"])
            .args([
                "--horizontal-pod-autoscaler-sync-period=2s",
                "--resource-quota-sync-period=10s",
            ]);
        let mut manager = Service::start("kube-controller-manager", manager, folder).await?;
        let accounts: Api<ServiceAccount> =
            Api::default_namespaced(api_server.client(Who::Bed).await?);
        manager
            .ready(async || {
                accounts
                    .get("default")
                    .await
                    .map(drop)
                    .map_err(|e| e.to_string())
            })
            .await?;

        Ok(Self {
            api_server,
            audit_log,
            controller_manager_lag: proxy.lag(),
            _controller_manager_proxy: proxy,
            _services: [manager, api, etcd],
        })
    }
}

const CONTROLLERS: [&str; 8] = [
    "deployment-controller",
    "replicaset-controller",
    "garbage-collector-controller",
    "serviceaccount-controller",
    "horizontal-pod-autoscaler-controller",
    "disruption-controller",
    "resourcequota-controller",
    "namespace-controller",
];

/// A fresh key pair for the tokens of service accounts, private and public part as PEM.
fn new_signing_key() -> Result<(String, String), String> {
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING as P256, EcdsaKeyPair, KeyPair as _};
    /// What stands before the 65 bytes of a P-256 point in a SubjectPublicKeyInfo.
    const PUBLIC_KEY_INFO: [u8; 26] = [
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
        0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ];
    let random = ring::rand::SystemRandom::new();
    let private = EcdsaKeyPair::generate_pkcs8(&P256, &random).map_err(|e| e.to_string())?;
    let pair =
        EcdsaKeyPair::from_pkcs8(&P256, private.as_ref(), &random).map_err(|e| e.to_string())?;
    let public = [&PUBLIC_KEY_INFO, pair.public_key().as_ref()].concat();
    let pem = |label: &str, bytes: &[u8]| pem::encode(&pem::Pem::new(label, bytes));
    Ok((
        pem("PRIVATE KEY", private.as_ref()),
        pem("PUBLIC KEY", &public),
    ))
}

/// Everything but the kubelet stand-in's own traffic; what daemons write, with its body.
fn audit_policy() -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": [Who::Kubelet.name()]},
            {"level": "Request", "userGroups": ["system:serviceaccounts"], "verbs": ["create", "patch", "update", "delete", "deletecollection"]},
            {"level": "Metadata"},
        ],
    })
    .to_string()
}
