//! A scenario's own namespace: the account, files and proxy of its daemon, kubectl as its user, and helpers on its objects.

use std::{
    collections::HashMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Namespace as KubeNamespace, Pod, PodTemplate, ServiceAccount},
    rbac::v1::{PolicyRule, Role, RoleBinding},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, ObjectList, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt as _,
    time::{Instant, sleep},
};

use crate::{
    audit,
    bed::Bed,
    control_plane::{Who, kubeconfig},
    daemon::{Daemon, Line, Setup},
    kubelet::Behaviour,
    metrics::Of,
    process,
    prometheus::Stub,
    proxy::{Kind, Proxy},
    recorder::Recorder,
    wait::{ensure, eventually},
    worker::Worker,
};

/// The name of the daemon's service account in each namespace.
const ACCOUNT: &str = "volery";

/// The rights of the daemon while `deploy/` ships no Role: those of case K57.
const RIGHTS: &[(&str, &str, &[&str])] = &[
    (
        "apps",
        "deployments",
        &["get", "list", "watch", "create", "patch", "delete"],
    ),
    ("apps", "deployments/status", &["patch"]),
    (
        "apps",
        "replicasets",
        &["get", "list", "watch", "create", "patch", "delete"],
    ),
    ("", "pods", &["get", "list", "watch"]),
    (
        "",
        "podtemplates",
        &["get", "list", "watch", "create", "patch", "delete"],
    ),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        &["list", "watch"],
    ),
    ("", "events", &["create", "patch"]),
    ("events.k8s.io", "events", &["create", "patch"]),
    (
        "coordination.k8s.io",
        "leases",
        &["get", "create", "patch", "update"],
    ),
];

static NUMBER: AtomicU32 = AtomicU32::new(1);

/// The namespace and everything about it.
pub struct Namespace {
    pub name: String,
    pub bed: Arc<Bed>,
    pub recorder: Recorder,
    /// Between the daemon and the API server.
    pub daemon_proxy: Proxy,
    folder: PathBuf,
    daemon_log: Arc<Mutex<Vec<Line>>>,
}

impl Namespace {
    pub async fn create(bed: &Arc<Bed>, trial: &str) -> Self {
        let slug: String = trial
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_lowercase()
                } else {
                    '-'
                }
            })
            .take(40)
            .collect();
        let name = format!(
            "t{}-{}",
            NUMBER.fetch_add(1, Ordering::Relaxed),
            slug.trim_matches('-')
        );
        let folder = bed.data.path().join(&name);
        std::fs::create_dir(&folder).expect("a folder for the namespace");

        let post = PostParams::default();
        let object: KubeNamespace = from(json!({"metadata": {"name": name}}));
        Api::all(bed.client.clone())
            .create(&post, &object)
            .await
            .expect("the namespace is created");
        let recorder = Recorder::start(&bed.client, &name);
        let account: ServiceAccount = from(json!({"metadata": {"name": ACCOUNT}}));
        let accounts: Api<ServiceAccount> = Api::namespaced(bed.client.clone(), &name);
        accounts
            .create(&post, &account)
            .await
            .expect("the daemon's account is created");
        let role: Role = from(json!({"metadata": {"name": ACCOUNT}, "rules": rights()}));
        Api::namespaced(bed.client.clone(), &name)
            .create(&post, &role)
            .await
            .expect("the Role is created");
        let binding: RoleBinding = from(json!({
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": name}],
        }));
        Api::namespaced(bed.client.clone(), &name)
            .create(&post, &binding)
            .await
            .expect("the RoleBinding is created");
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(24 * 3600),
                ..Default::default()
            }),
            ..Default::default()
        };
        let token = accounts
            .create_token_request(ACCOUNT, &post, &request)
            .await
            .expect("a token for the daemon");
        let token = token
            .status
            .and_then(|status| status.token)
            .expect("an issued token");

        let upstream = bed
            .control_plane
            .api_server
            .upstream(None)
            .await
            .expect("a client for the daemon's proxy");
        let daemon_proxy = Proxy::start(upstream)
            .await
            .expect("the daemon's proxy starts");
        let write = |file: &str, text: String| {
            std::fs::write(folder.join(file), text).expect("a file of the namespace can be written")
        };
        write(
            "daemon.kubeconfig",
            kubeconfig(&daemon_proxy.url(), None, &token, &name),
        );
        write(
            "user.kubeconfig",
            bed.control_plane.api_server.kubeconfig(Who::User, &name),
        );

        let namespace = Self {
            name,
            bed: Arc::clone(bed),
            recorder,
            daemon_proxy,
            folder,
            daemon_log: Arc::default(),
        };
        eventually(
            "the controller-manager to create the default service account",
            async || {
                accounts
                    .get("default")
                    .await
                    .map(drop)
                    .map_err(|e| e.to_string())
            },
        )
        .await;
        namespace
    }

    /// Gives a user of this name these rights (rules of a Role) in the namespace.
    pub async fn grant(&self, user: &str, rules: Value) {
        let post = PostParams::default();
        let role: Role = from(json!({"metadata": {"name": user}, "rules": rules}));
        Api::namespaced(self.bed.client.clone(), &self.name)
            .create(&post, &role)
            .await
            .expect("the Role is created");
        let binding: RoleBinding = from(json!({
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }));
        Api::namespaced(self.bed.client.clone(), &self.name)
            .create(&post, &binding)
            .await
            .expect("the RoleBinding is created");
    }

    /// A client of such a user.
    pub async fn client_as(&self, user: &str) -> kube::Client {
        self.bed
            .control_plane
            .api_server
            .client_as(user)
            .await
            .expect("a client")
    }

    /// The daemon's user name in the audit log.
    pub fn daemon_user(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.name)
    }

    /// A folder of this namespace for the test's own files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Grants the daemon of another namespace the same rights in this one.
    pub async fn admit_daemon_of(&self, other: &Self) {
        let binding: RoleBinding = from(json!({
            "metadata": {"name": format!("{ACCOUNT}-of-{}", other.name)},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": other.name}],
        }));
        Api::namespaced(self.bed.client.clone(), &self.name)
            .create(&PostParams::default(), &binding)
            .await
            .expect("the RoleBinding is created");
    }

    // The user.

    /// Runs the real kubectl as the user, in this namespace.
    pub async fn kubectl(&self, args: &[&str], stdin: Option<&str>) -> Output {
        let mut command = process::command(&self.bed.programs.kubectl);
        command
            .args(args)
            .env("KUBECONFIG", self.folder.join("user.kubeconfig"))
            // Its discovery cache goes here, for all namespaces together.
            .env("HOME", self.bed.data.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = process::spawn(command).await.expect("kubectl starts");
        let mut input = child.stdin.take().expect("piped");
        input
            .write_all(stdin.unwrap_or_default().as_bytes())
            .await
            .expect("kubectl reads its input");
        drop(input);
        child.wait_with_output().await.expect("kubectl ends")
    }

    /// [`Self::kubectl`] that must succeed; returns its standard output.
    pub async fn kubectl_ok(&self, args: &[&str], stdin: Option<&str>) -> String {
        let output = self.kubectl(args, stdin).await;
        assert!(
            output.status.success(),
            "kubectl {} failed: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// `kubectl apply` of the worker's manifest.
    pub async fn apply(&self, worker: &Worker) {
        self.kubectl_ok(&["apply", "-f", "-"], Some(&worker.manifest()))
            .await;
    }

    /// `kubectl scale`.
    pub async fn scale(&self, deployment: &str, replicas: i32) {
        self.kubectl_ok(
            &[
                "scale",
                &format!("deployment/{deployment}"),
                &format!("--replicas={replicas}"),
            ],
            None,
        )
        .await;
    }

    // Objects, by the bed's own client.

    pub fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.bed.client.clone(), &self.name)
    }

    pub fn replica_sets(&self) -> Api<ReplicaSet> {
        Api::namespaced(self.bed.client.clone(), &self.name)
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.bed.client.clone(), &self.name)
    }

    pub fn pod_templates(&self) -> Api<PodTemplate> {
        Api::namespaced(self.bed.client.clone(), &self.name)
    }

    pub async fn deployment(&self, name: &str) -> Deployment {
        self.deployments()
            .get(name)
            .await
            .expect("the deployment is there")
    }

    /// The ReplicaSets of the namespace whose controller has this uid.
    pub async fn replica_sets_of(&self, owner_uid: &str) -> Vec<ReplicaSet> {
        let all = self
            .replica_sets()
            .list(&ListParams::default())
            .await
            .expect("replicasets can be listed");
        all.items
            .into_iter()
            .filter(|rs| owned_by(rs.owner_references(), owner_uid))
            .collect()
    }

    /// The alive pods whose owner chain leads to this Deployment.
    pub async fn pods_of(&self, deployment: &Deployment) -> Vec<Pod> {
        let owners = self.replica_sets_of(&uid(deployment)).await;
        let all = self
            .pods()
            .list(&ListParams::default())
            .await
            .expect("pods can be listed");
        let alive = all
            .items
            .into_iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none());
        alive
            .filter(|pod| {
                owners
                    .iter()
                    .any(|rs| owned_by(pod.owner_references(), &uid(rs)))
            })
            .collect()
    }

    /// A JSON merge patch of a Deployment by the bed's own client.
    pub async fn patch(&self, deployment: &str, patch: Value) -> Deployment {
        self.deployments()
            .patch(deployment, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .expect("the deployment can be patched")
    }

    /// Waits until the Deployment has rolled out: all its pods of its template, available, and no other.
    pub async fn complete(&self, name: &str) -> Deployment {
        eventually(&format!("deployment {name} to be complete"), async || {
            let deployment = self
                .deployments()
                .get(name)
                .await
                .map_err(|e| e.to_string())?;
            let wanted = deployment
                .spec
                .as_ref()
                .and_then(|spec| spec.replicas)
                .unwrap_or_default();
            let status = deployment.status.clone().unwrap_or_default();
            let numbers = [
                status.replicas,
                status.updated_replicas,
                status.available_replicas,
            ]
            .map(Option::unwrap_or_default);
            ensure(observed(&deployment) && numbers == [wanted; 3], || {
                format!("its status is {}", json!(status))
            })?;
            Ok(deployment)
        })
        .await
    }

    /// Waits until the Deployment's newest generation is observed.
    pub async fn observed(&self, name: &str) -> Deployment {
        eventually(&format!("deployment {name} to be observed"), async || {
            let deployment = self
                .deployments()
                .get(name)
                .await
                .map_err(|e| e.to_string())?;
            ensure(observed(&deployment), || "it is not".to_owned())?;
            Ok(deployment)
        })
        .await
    }

    /// Applies the worker and waits until it runs.
    pub async fn running(&self, worker: &Worker) -> Deployment {
        self.apply(worker).await;
        self.complete(&worker.name).await
    }

    /// Brings the worker up with two older versions, of tags `h1` and `h2`, in its history. These ran one pod each. Created more than a second
    /// apart: the controller orders ReplicaSets by their creation, which has whole seconds.
    pub async fn history(&self, worker: &Worker) -> Deployment {
        for tag in ["h1", "h2"] {
            let older = worker.clone().tag(tag).replicas(1).well_behaved();
            self.running(&older).await;
            sleep(Duration::from_millis(1100)).await;
        }
        self.running(&worker.clone().replicas(1)).await;
        self.running(worker).await
    }

    /// The present moment for questions to the recorder, once it has seen everything as it is now: what happened before the call is before
    /// this moment. Await it also before asserting what was recorded.
    pub async fn now(&self) -> Instant {
        let known_before = self.recorder.versions();
        let mut listed = HashMap::new();
        let all = ListParams::default();
        listed.extend(versions(
            self.pods().list(&all).await.expect("pods can be listed"),
        ));
        listed.extend(versions(
            self.replica_sets()
                .list(&all)
                .await
                .expect("replicasets can be listed"),
        ));
        listed.extend(versions(
            self.deployments()
                .list(&all)
                .await
                .expect("deployments can be listed"),
        ));
        eventually("the recorder to catch up", async || {
            let known = self.recorder.versions();
            let behind = listed
                .iter()
                .filter(|(uid, version)| known.get(*uid) < Some(*version))
                .count();
            let gone = known_before.keys().filter(|uid| !listed.contains_key(*uid));
            let undead = gone
                .filter(|uid| known.get(*uid) != Some(&u64::MAX))
                .count();
            ensure(behind + undead == 0, || {
                format!("it is behind on {behind} objects and has not seen the end of {undead}")
            })
        })
        .await;
        Instant::now()
    }

    // The surroundings.

    /// Delays the controller-manager's watch of one kind in this namespace; everything that happens later arrives late.
    pub fn lag(&self, kind: Kind, delay: Duration) {
        self.bed
            .control_plane
            .controller_manager_lag
            .set(kind, &self.name, delay);
    }

    /// Pods of this tag behave like this from now on, running ones too.
    pub fn turn(&self, tag: &str, behaviour: Behaviour) {
        self.bed.kubelet.turn(&self.name, tag, behaviour);
    }

    /// Sets a gauge of the pods (by tag, or of one pod), see [`crate::metrics::Metrics::set`].
    pub fn set_metric(&self, of: impl Into<Of>, name: &str, value: f64) {
        self.bed.metrics.set(&self.name, of, name, value);
    }

    /// A stub in front of the real Prometheus, for the daemon's config.
    pub async fn prometheus_stub(&self) -> Stub {
        Stub::start(&self.bed.prometheus).await
    }

    /// The daemon's writes in this namespace so far, from the audit log.
    pub async fn daemon_writes(&self) -> Vec<audit::Request> {
        self.bed.audit.writes(&self.daemon_user(), &self.name).await
    }

    /// How daemons of this namespace are started; writes `config` to the config file.
    pub fn daemon_setup(&self, config: &str) -> Setup {
        let setup = Setup {
            config: self.folder.join("volery.yaml"),
            kubeconfig: self.folder.join("daemon.kubeconfig"),
            extra_args: Vec::new(),
            env: Vec::new(),
        };
        setup.write_config(config);
        setup
    }

    /// Starts a daemon.
    pub async fn daemon(&self, setup: &Setup) -> Daemon {
        setup.start(Arc::clone(&self.daemon_log)).await
    }

    /// A line of the test's own between those of the daemon, for the account.
    pub fn note(&self, text: &str) {
        self.daemon_log.lock().unwrap().push(Line {
            at: Instant::now(),
            text: format!("--- the test: {text}"),
        });
    }

    // The end.

    /// Everything that helps to understand a failure.
    pub async fn account(&self) -> String {
        let mut account = format!("--- namespace {} ---\n", self.name);
        let objects = ["get", "deployments,replicasets,pods", "-o", "wide"];
        let _ = writeln!(
            account,
            "{}",
            String::from_utf8_lossy(&self.kubectl(&objects, None).await.stdout)
        );
        let _ = writeln!(account, "what happened:\n{}", self.recorder.story());
        let log = self.daemon_log.lock().unwrap().clone();
        if let Some(first) = log.first().map(|line| line.at) {
            account.push_str("the daemon's log:\n");
            for line in log {
                let _ = writeln!(
                    account,
                    "{:8.3} {}",
                    (line.at - first).as_secs_f64(),
                    line.text
                );
            }
        }
        account
    }

    /// Gives the cluster its room back; does not wait.
    pub async fn close(&self) {
        let api: Api<KubeNamespace> = Api::all(self.bed.client.clone());
        let _ = api.delete(&self.name, &DeleteParams::default()).await;
    }
}

fn rights() -> Vec<PolicyRule> {
    let shipped = shipped_rules();
    if !shipped.is_empty() {
        return shipped;
    }
    let rule = |(group, resource, verbs): &(&str, &str, &[&str])| {
        from::<PolicyRule>(json!({"apiGroups": [group], "resources": [resource], "verbs": verbs}))
    };
    RIGHTS.iter().map(rule).collect()
}

/// The rules of every Role in the manifests of `deploy/`.
fn shipped_rules() -> Vec<PolicyRule> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let files = folder
        .read_dir()
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let manifests = files.filter(|path| path.extension().is_some_and(|e| e == "yaml"));
    let texts = manifests
        .map(|path| std::fs::read_to_string(path).expect("a manifest of deploy/ can be read"));
    let mut rules = Vec::new();
    for text in texts {
        for document in serde_yaml::Deserializer::from_str(&text) {
            let document: Value =
                serde::Deserialize::deserialize(document).expect("a manifest of deploy/ is YAML");
            if document["kind"] == "Role" {
                rules.extend(from::<Vec<PolicyRule>>(document["rules"].clone()));
            }
        }
    }
    rules
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of this kind")
}

/// The uid of an object that exists.
pub fn uid(object: &impl kube::ResourceExt) -> String {
    object.uid().expect("an object from the API server")
}

/// Resource versions, which are numbers that rise, by uid.
fn versions<K: kube::ResourceExt + Clone>(
    list: ObjectList<K>,
) -> impl Iterator<Item = (String, u64)> {
    list.items.into_iter().map(|object| {
        let version = object
            .resource_version()
            .and_then(|version| version.parse().ok());
        (
            uid(&object),
            version.expect("an object from the API server"),
        )
    })
}

/// Whether the controller among these owners has this uid.
pub fn owned_by(
    owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference],
    owner_uid: &str,
) -> bool {
    owners
        .iter()
        .any(|owner| owner.uid == owner_uid && owner.controller == Some(true))
}

/// Whether the status is of the newest generation.
pub fn observed(deployment: &Deployment) -> bool {
    deployment
        .status
        .as_ref()
        .and_then(|status| status.observed_generation)
        >= deployment.metadata.generation
}
