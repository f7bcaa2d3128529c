//! Installing from `deploy/`, as README says it, and the binary in the image that the Dockerfile makes.

use std::{path::Path, process::Stdio, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

use super::base::config;
use crate::{
    namespace::Namespace,
    process,
    scene::Trials,
    wait::{ensure, eventually},
    worker::Worker,
};

pub fn register(trials: &mut Trials) {
    trials.add(
        "installed: the manifests are taken by the API server, under restricted pod security",
        async |scene| {
            let namespace = scene.namespace().await;
            restrict(&namespace).await;
            let folder = copy_of_deploy(&namespace);
            namespace.kubectl_ok(&["apply", "-k", &folder], None).await;
            // The pod is created, so admission found nothing to refuse; the bed's kubelet says that it runs.
            namespace.complete("volery").await;
            let map: ConfigMap = Api::namespaced(namespace.bed.client.clone(), &namespace.name)
                .get("volery")
                .await
                .expect("the configuration is there");
            let text = map
                .data
                .expect("it holds the file")
                .remove("volery.yaml")
                .expect("by its name");
            let loaded = volery::daemon::load(&written(&namespace, &text))
                .expect("the shipped file is usable");
            assert_eq!(loaded.problems, [], "the shipped file is valid");
        },
    );

    trials.add("installed: the binary works alone in an empty, read-only root, as nobody, with a pod's credentials", async |scene| {
        let namespace = scene.namespace().await;
        namespace.running(&Worker::default()).await;
        let binary = static_binary().await;
        let root = tempfile::tempdir().expect("a root");
        let inside = |path: &str| root.path().join(path);
        std::fs::create_dir(inside("etc")).expect("a folder");
        std::fs::copy(&binary, inside("volery")).expect("the binary is copied");
        let prometheus = namespace.bed.prometheus.url.clone();
        std::fs::write(inside("etc/volery.yaml"), config(&namespace, &prometheus, "success: []")).expect("a file");
        let server = &namespace.bed.control_plane.api_server;
        let (host, port) = server.url.trim_start_matches("https://").split_once(':').expect("an address");
        put_credentials(&namespace, &inside("var/run/secrets/kubernetes.io/serviceaccount"));
        // Everything readable by anybody, nothing writable by nobody.
        let readable = process::command("chmod").args(["-R", "a+rX,a-w"]).arg(root.path()).status().await;
        assert!(readable.is_ok_and(|status| status.success()));
        let [port_of_probes] = process::free_ports().expect("a free port");
        let probes = format!("127.0.0.1:{port_of_probes}");
        let mut command = process::command("chroot");
        command
            .arg("--userspec=65532:65532")
            .arg(root.path())
            .args(["/volery", "run", "--config", "/etc/volery.yaml", "--listen", &probes])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("KUBERNETES_SERVICE_HOST", host)
            .env("KUBERNETES_SERVICE_PORT", port)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = process::spawn(command).await.expect("the daemon starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut seen = Vec::new();
        let found = tokio::time::timeout(std::time::Duration::from_secs(60), async {
            while let Ok(Some(line)) = lines.next_line().await {
                let found = line.contains("orders-worker: at rest");
                seen.push(line);
                if found {
                    return true;
                }
            }
            false
        })
        .await;
        let ready = get(&probes, "/readyz").await;
        child.kill().await.expect("it can be stopped");
        assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
        assert_eq!(found, Ok(true), "{seen:#?}");
        eventually("X to be paused by it", async || {
            let paused = namespace.deployment("orders-worker").await.spec.and_then(|spec| spec.paused);
            ensure(paused == Some(true), || format!("paused is {paused:?}"))
        })
        .await;
    });
}

async fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address)
        .await
        .expect("probes are served");
    let request = format!("GET {path} HTTP/1.1\r\nhost: probes\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("is sent");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .expect("is answered");
    answer
}

/// What the kubelet mounts into a pod.
fn put_credentials(namespace: &Arc<Namespace>, folder: &Path) {
    std::fs::create_dir_all(folder).expect("a folder");
    let text =
        std::fs::read_to_string(namespace.daemon_setup("").kubeconfig).expect("a kubeconfig");
    let kubeconfig: serde_json::Value = serde_json::from_str(&text).expect("as the bed writes it");
    let token = kubeconfig
        .pointer("/users/0/user/token")
        .and_then(serde_json::Value::as_str)
        .expect("a token");
    let certificate = &namespace.bed.control_plane.api_server.certificate;
    std::fs::copy(certificate, folder.join("ca.crt")).expect("a certificate");
    std::fs::write(folder.join("token"), token).expect("a token");
    std::fs::write(folder.join("namespace"), &namespace.name).expect("a namespace");
}

/// `deploy/`, for this namespace; what README tells people to change.
fn copy_of_deploy(namespace: &Arc<Namespace>) -> String {
    let folder = namespace.folder().join("deploy");
    std::fs::create_dir(&folder).expect("a folder");
    for entry in Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .read_dir()
        .expect("deploy/ is there")
    {
        let file = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&file).expect("a manifest");
        let text = text.replace(
            "namespace: workers",
            &format!("namespace: {}", namespace.name),
        );
        std::fs::write(folder.join(file.file_name().expect("a name")), text).expect("a copy");
    }
    folder.display().to_string()
}

fn written(namespace: &Arc<Namespace>, text: &str) -> std::path::PathBuf {
    let file = namespace.folder().join("shipped.yaml");
    std::fs::write(&file, text).expect("a file");
    file
}

async fn restrict(namespace: &Arc<Namespace>) {
    let labels =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(namespace.bed.client.clone());
    api.patch(
        &namespace.name,
        &kube::api::PatchParams::default(),
        &kube::api::Patch::Merge(labels),
    )
    .await
    .expect("the namespace can be labelled");
}

/// The release binary without shared libraries, as the Dockerfile builds it; into its own folder under `target/`.
async fn static_binary() -> std::path::PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = root.join("target/static");
    // With a target named, the flag is for the binary alone and not for what the build itself runs.
    let triple = host().await;
    // Politely: other trials wait for their pods meanwhile.
    let output = process::command("nice")
        .args([
            "-n",
            "10",
            env!("CARGO"),
            "build",
            "--release",
            "--locked",
            "--bin",
            "volery",
            "--target",
            &triple,
            "--target-dir",
        ])
        .arg(&target)
        .current_dir(root)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .output()
        .await
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let binary = target.join(triple).join("release/volery");
    let size = std::fs::metadata(&binary).expect("it is built").len();
    assert!(
        size < 15_000_000,
        "the image would hold {size} bytes, more than 15 MB"
    );
    let linked = process::command("ldd")
        .arg(&binary)
        .output()
        .await
        .expect("ldd runs");
    let told = String::from_utf8_lossy(&linked.stdout).into_owned()
        + &String::from_utf8_lossy(&linked.stderr);
    assert!(
        told.contains("statically linked") || told.contains("not a dynamic executable"),
        "{told}"
    );
    binary
}

/// The triple of this machine.
async fn host() -> String {
    let output = process::command("rustc")
        .arg("-vV")
        .output()
        .await
        .expect("rustc runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc names its host").to_owned()
}
