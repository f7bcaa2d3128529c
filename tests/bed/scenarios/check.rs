//! `volery check --live`: what a cluster and its Prometheus say of a file before any daemon reads it.

use std::process::Output;

use k8s_openapi::api::rbac::v1::Role;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::base::{config, entry};
use crate::{
    namespace::Namespace,
    process,
    scene::Trials,
    wait::{ensure, eventually},
    worker::Worker,
};

const X: &str = "orders-worker";

pub fn register(trials: &mut Trials) {
    trials.add(
        "check: a good service is found fit, nothing is written, and registering does what was said",
        async |scene| {
            let namespace = scene.namespace().await;
            namespace.history(&Worker::default()).await;
            for tag in ["h1", "h2", "v1"] {
                namespace.set_metric(tag, "my_errors", 0.0);
            }
            let text = config(&namespace, &namespace.bed.prometheus.url, "");
            let setup = namespace.daemon_setup(&text);
            let before = namespace.deployment(X).await.resource_version();
            let account = namespace.daemon_user();
            let told = eventually("the metrics of its pods to be scraped", async || {
                let output = check(&namespace, "user", &["--strict", "--as", &account]).await;
                let told = String::from_utf8_lossy(&output.stdout).into_owned();
                ensure(output.status.code() == Some(0), || told.clone())?;
                Ok(told)
            })
            .await;
            for expected in [
                "10 of 10 pods of ",
                "it is settled, and can be registered",
                "2 older ReplicaSets go to the stash: ",
                "3 checked steps, of 2 pods at most, to 5 of 10",
                "== 0 holds (10 running pods)",
                "1 file: 0 errors, 0 warnings",
            ] {
                assert!(told.contains(expected), "{expected}: {told}");
            }
            let after = namespace.deployment(X).await.resource_version();
            assert_eq!(before, after, "nothing is written");
            assert_eq!(namespace.daemon_writes().await.len(), 0);
            let daemon = namespace.daemon(&setup).await;
            daemon
                .log_contains("older ReplicaSets kept in the stash: 2")
                .await;
            eventually("it to be told as registered", async || {
                let output = check(&namespace, "daemon", &[]).await;
                let told = String::from_utf8_lossy(&output.stdout).into_owned();
                let is_told = told.contains("registered: at rest: 10 replicas of ");
                ensure(is_told && output.status.success(), || told)
            })
            .await;
        },
    );

    trials.add(
        "check: a Deployment that is missing, a name that is taken and an expression without data are each told with their line",
        async |scene| {
            let namespace = scene.namespace().await;
            namespace.running(&Worker::default().replicas(2)).await;
            let other = Worker::named("invoices-worker").replicas(1);
            namespace.running(&other).await;
            let taken = Worker::named("invoices-worker-canary").replicas(0);
            namespace.apply(&taken).await;
            let globals = config(&namespace, &namespace.bed.prometheus.url, "");
            let globals = globals
                .split(&format!("{X}:"))
                .next()
                .expect("global settings");
            let text = format!(
                "{globals}{}{}{}",
                entry(&namespace, X, "success: [{expr: 'nowhere{pod=\"<<pod>>\"} > 0'}]"),
                entry(&namespace, "invoices-worker", "success: []"),
                entry(&namespace, "nobody", "success: []"),
            );
            namespace.daemon_setup(&text);
            let output = check(&namespace, "daemon", &[]).await;
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.code(), Some(1), "{told}");
            let line_of = |name: &str| {
                let line = text.lines().position(|line| line == format!("{name}:"));
                line.expect("it is in the file") + 1
            };
            for (name, expected) in [
                (X, "finds nothing for any of 2 running pods"),
                (
                    "invoices-worker",
                    "blocked: Deployment invoices-worker-canary exists and is not Volery's",
                ),
                ("nobody", "there is no Deployment nobody in namespace "),
            ] {
                let start = format!("volery.yaml:{}:1: error: {name}: ", line_of(name));
                let found = told
                    .lines()
                    .any(|line| line.starts_with(&start) && line.contains(expected));
                assert!(found, "{start}{expected}: {told}");
            }
            assert!(told.ends_with("1 file: 3 errors, 0 warnings\n"), "{told}");
        },
    );

    trials.add(
        "check: a right that is missing is named, and so is a Prometheus that is not there",
        async |scene| {
            let namespace = scene.namespace().await;
            namespace.running(&Worker::default().replicas(2)).await;
            let roles: Api<Role> = Api::namespaced(namespace.bed.client.clone(), &namespace.name);
            let mut role = roles.get("volery").await.expect("the daemon's Role");
            for rule in role.rules.iter_mut().flatten() {
                let of_sets = rule
                    .resources
                    .iter()
                    .flatten()
                    .any(|resource| resource == "replicasets");
                if of_sets {
                    rule.verbs.retain(|verb| verb != "delete" && verb != "create");
                }
            }
            let rules = json!({"rules": role.rules});
            roles
                .patch("volery", &PatchParams::default(), &Patch::Merge(rules))
                .await
                .expect("the Role is narrowed");
            let [port] = process::free_ports().expect("a free port");
            let text = config(&namespace, &format!("http://127.0.0.1:{port}/"), "");
            namespace.daemon_setup(&text);
            let missing = format!(
                "volery.yaml:1:1: error: in namespace {} this account may not create, delete replicasets.apps",
                namespace.name
            );
            eventually("the narrowed Role to count", async || {
                let output = check(&namespace, "daemon", &[]).await;
                let told = String::from_utf8_lossy(&output.stdout).into_owned();
                let is_told = told.contains(&missing) && told.contains("Prometheus cannot be reached");
                ensure(is_told && output.status.code() == Some(1), || told)
            })
            .await;
        },
    );
}

/// `volery check --live` of the namespace's file, with this kubeconfig of it, in its folder.
async fn check(namespace: &Namespace, kubeconfig: &str, arguments: &[&str]) -> Output {
    let mut command = process::command(env!("CARGO_BIN_EXE_volery"));
    let kubeconfig = namespace.folder().join(format!("{kubeconfig}.kubeconfig"));
    command
        .args(["check", "--live"])
        .args(arguments)
        .arg("volery.yaml")
        .current_dir(namespace.folder())
        .env("KUBECONFIG", kubeconfig)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let child = process::spawn(command).await.expect("it starts");
    child.wait_with_output().await.expect("it ends")
}
