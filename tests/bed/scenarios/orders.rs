//! A person steers: with the real binary, with kubectl alone, and as a plugin of kubectl (design section 2; cases K11, K27, K35, K45).

use std::{process::Output, sync::Arc};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{
    base::{Base, Held, Since},
    promises::{at_rest, envelope, started, step, stopped},
};
use crate::{
    namespace::Namespace,
    process,
    scene::{Scene, Trials},
    wait::{ensure, eventually},
};

const X: &str = "orders-worker";

pub fn register(trials: &mut Trials) {
    trials.add(
        "orders: with nothing in progress each is refused, nothing is written to a Deployment, and the next version is promoted",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            let namespace = &base.namespace;
            let deployments = async || {
                let writes = namespace.daemon_writes().await;
                writes
                    .iter()
                    .filter(|write| write.resource().ends_with("deployments"))
                    .count()
            };
            let before = deployments().await;
            for verb in ["abort", "resume", "promote"] {
                for _ in 0..2 {
                    refused(namespace, &[verb, X], "nothing in progress").await;
                }
                let answer = annotated(namespace, verb).await;
                assert_eq!(answer["outcome"], "refused", "{answer}");
            }
            refused(namespace, &["retry", X], "nothing to try again").await;
            refused(namespace, &["bypass", X], "nothing to roll out").await;
            assert_eq!(deployments().await, before);
            let since = Since::now(namespace, &base.daemon).await;
            namespace.apply(&base.worker.clone().tag("v2")).await;
            at_rest(namespace, X, "v2", 10).await;
            started(namespace, since.at, &[("v2", 10)]).await;
        },
    );

    trials.add(
        "orders: abort at (4,6) goes back, and wait says so",
        async |scene| {
            let (held, since, _) = Held::at(&scene, 4, 6).await;
            let namespace = &held.base.namespace;
            let waiting = begin(namespace, &["wait", X]);
            done(namespace, &["abort", X], "back to the accepted version").await;
            at_rest(namespace, X, "v1", 10).await;
            started(namespace, since.at, &[("v1", 4), ("v2", 4)]).await;
            ends(waiting, 1, "aborted by hand").await;
            refused(namespace, &["abort", X], "nothing in progress").await;
        },
    );

    trials.add(
        "orders: abort works while canary pods never become ready",
        async |scene| {
            let base = Base::registered(&scene, "abort: 10m").await;
            let namespace = &base.namespace;
            let since = base.hung().await;
            done(namespace, &["abort", X], "back to the accepted version").await;
            at_rest(namespace, X, "v1", 10).await;
            started(namespace, since.at, &[("v2", 2)]).await;
        },
    );

    trials.add(
        "orders: kubectl annotate alone promotes, and is answered",
        async |scene| {
            let (held, since, _) = Held::at(&scene, 2, 8).await;
            let namespace = &held.base.namespace;
            let answer = annotated(namespace, "promote id=by-hand").await;
            assert_eq!(answer["outcome"], "done", "{answer}");
            assert_eq!(answer["id"], "by-hand", "{answer}");
            at_rest(namespace, X, "v2", 10).await;
            started(namespace, since.at, &[("v2", 10)]).await;
            let answer = annotated(namespace, "explode").await;
            let message = answer["message"].as_str().unwrap_or_default();
            assert!(message.contains("there is no verb \"explode\""), "{answer}");
        },
    );

    trials.add(
        "orders: on hold nothing opens, and resume lets it",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            let namespace = &base.namespace;
            done(namespace, &["hold", "--all"], "nothing is rolled out").await;
            refused(namespace, &["hold", X], "on hold already").await;
            namespace.apply(&base.worker.clone().tag("v2")).await;
            let status = told(namespace, &["status", X]).await;
            assert!(status.contains("on hold"), "{status}");
            refused(namespace, &["bypass", X], "on hold").await;
            done(namespace, &["resume", "--all"], "no longer on hold").await;
            at_rest(namespace, X, "v2", 10).await;
        },
    );

    trials.add(
        "orders: on hold at (2,8) only R is followed, and resume goes on from there (K40)",
        async |scene| {
            let (held, since, _) = Held::at(&scene, 2, 8).await;
            let base = &held.base;
            let namespace = &base.namespace;
            done(namespace, &["hold", X], "nothing is rolled out").await;
            since
                .log(&base.daemon, "on hold at step 1/3: canary 2, primary 8")
                .await;
            held.go_on();
            let before = namespace.now().await;
            namespace.scale(X, 12).await;
            step(namespace, X, before, (2, 10)).await;
            namespace.scale(X, 10).await;
            step(namespace, X, before, (2, 8)).await;
            started(namespace, since.at, &[("v1", 2), ("v2", 2)]).await;
            done(namespace, &["resume", X], "no longer on hold").await;
            at_rest(namespace, X, "v2", 10).await;
            started(namespace, since.at, &[("v1", 2), ("v2", 10)]).await;
        },
    );

    trials.add(
        "orders: restart replaces every pod once, where kubectl refuses, and not while a rollout is open",
        async |scene| {
            let held = Held::registered(&scene).await;
            let base = &held.base;
            let namespace = &base.namespace;
            let restart = ["rollout", "restart", "deployment/orders-worker"];
            let refusal = namespace.kubectl(&restart, None).await;
            assert!(!refusal.status.success());
            let since = Since::now(namespace, &base.daemon).await;
            done(namespace, &["restart", X], "every pod is replaced").await;
            ends(begin(namespace, &["wait", X]), 0, "is the accepted version").await;
            at_rest(namespace, X, "v1", 10).await;
            started(namespace, since.at, &[("v1", 10)]).await;
            stopped(namespace, since.at, &[("v1", 10)]).await;
            envelope(namespace, since.at, 10, 2).await;
            let since = Since::now(namespace, &base.daemon).await;
            namespace.apply(&base.worker.clone().tag("v2")).await;
            held.hold_at(since, 4, 6).await;
            refused(namespace, &["restart", X], "a rollout is open").await;
            held.go_on();
            at_rest(namespace, X, "v2", 10).await;
        },
    );

    trials.add(
        "orders: query tries expressions at rest and on canary pods, with their values",
        async |scene| {
            let (held, _, _) = Held::at(&scene, 2, 8).await;
            let namespace = &held.base.namespace;
            let file = held.base.setup.config.display().to_string();
            // Not the stub that holds the rollout.
            let url = namespace.bed.prometheus.url.clone();
            // While the rollout is open: the canary's two pods and no other, as soon as both are scraped.
            let of_file = ["query", X, "--config", &file, "--prometheus", &url];
            let said = eventually("both canary pods to pass", async || {
                let output = volery(namespace, &of_file).await;
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                ensure(output.status.success(), || format!("{said}{output:?}")).map(|()| said)
            })
            .await;
            assert!(said.contains("a rollout is open, 2 canary pods"), "{said}");
            assert!(said.contains("== bool 0"), "{said}");
            assert_eq!(said.matches(" passed   0 == 0").count(), 2, "{said}");
            assert!(said.ends_with("2 of 2 passed\n"), "{said}");
            held.go_on();
            at_rest(namespace, X, "v2", 10).await;
            // An expression of one's own, on a forwarded port, with nothing but the namespace of the kubeconfig.
            let expression = format!(
                "my_errors{{namespace=\"{}\", pod=\"<<pod>>\"}} > 3",
                namespace.name
            );
            let own = ["query", X, "--prometheus", &url, "--expr", &expression];
            let said = eventually("all pods to fail", async || {
                let output = volery(namespace, &own).await;
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                assert_eq!(output.status.code(), Some(1), "{output:?}");
                ensure(said.ends_with("0 of 10 passed: 10 failed\n"), || {
                    said.clone()
                })
                .map(|()| said)
            })
            .await;
            assert!(
                said.contains("no rollout is open, 10 pods play the canary"),
                "{said}"
            );
            assert_eq!(said.matches(" failed   0 > 3").count(), 10, "{said}");
            // Nobody there: each pod says so.
            let nowhere = [
                "query",
                X,
                "--prometheus",
                "http://127.0.0.1:9",
                "--expr",
                "a{pod=\"<<pod>>\"} > 0",
            ];
            let output = volery(namespace, &nowhere).await;
            let said = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let unavailable = said
                .matches(" unavailable  Prometheus cannot be reached")
                .count();
            assert_eq!(unavailable, 10, "{said}");
            let nobody = ["query", "nobody", "--prometheus", &url, "--expr", "a > 0"];
            let output = volery(namespace, &nobody).await;
            assert_eq!(output.status.code(), Some(2), "{output:?}");
        },
    );

    trials.add(
        "orders: undo goes back to a revision of the history, and history tells them",
        async |scene| {
            let base = Base::with_history(&scene).await;
            let namespace = &base.namespace;
            let history = told(namespace, &["history", X]).await;
            let rows: Vec<Vec<&str>> = history
                .lines()
                .map(|line| line.split_whitespace().collect())
                .collect();
            assert_eq!(rows.len(), 4, "{history}");
            assert_eq!(rows[1][..3], ["3", "accepted", "10"], "{history}");
            let since = Since::now(namespace, &base.daemon).await;
            done(namespace, &["undo", X, "--to", "1"], "back to revision 1").await;
            ends(begin(namespace, &["wait", X]), 0, "is the accepted version").await;
            at_rest(namespace, X, "h1", 10).await;
            started(namespace, since.at, &[("h1", 10)]).await;
        },
    );

    trials.add(
        "orders: a rejected version is tried again by retry, rolled out by bypass",
        async |scene| {
            let base = Base::rejected(&scene).await;
            let namespace = &base.namespace;
            done(namespace, &["retry", X], "tried again").await;
            ends(begin(namespace, &["wait", X]), 1, "my_errors").await;
            done(namespace, &["bypass", X], "without checks").await;
            ends(begin(namespace, &["wait", X]), 0, "is the accepted version").await;
            at_rest(namespace, X, "v2", 10).await;
        },
    );

    trials.add(
        "orders: release gives back, and needs a decision after a failure",
        async |scene| {
            let base = Base::rejected(&scene).await;
            let namespace = &base.namespace;
            let since = Since::now(namespace, &base.daemon).await;
            refused(namespace, &["release", X], "--accepted").await;
            done(namespace, &["release", X, "--accepted"], "given back").await;
            eventually("X to be given back", async || {
                let x = namespace.deployment(X).await;
                let paused = x.spec.as_ref().and_then(|spec| spec.paused) == Some(true);
                let state = namespace
                    .pod_templates()
                    .get_opt("orders-worker-volery")
                    .await;
                let state = state.map_err(|e| e.to_string())?;
                ensure(!paused && state.is_none(), || {
                    format!("paused {paused}, state object {}", state.is_some())
                })
            })
            .await;
            namespace.complete(X).await;
            started(namespace, since.at, &[]).await;
            refused(namespace, &["abort", X], "not registered").await;
        },
    );

    trials.add(
        "orders: what nobody takes is taken off again",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            let Base {
                namespace, daemon, ..
            } = base;
            daemon.kill().await;
            let output = volery(&namespace, &["hold", X, "--timeout", "1s"]).await;
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(told.contains("Volery does not run"), "{told}");
            assert!(told.contains("taken off again"), "{told}");
            let object = namespace.pod_templates().get("orders-worker-volery").await;
            let annotations = object.expect("it is there").metadata.annotations;
            assert!(
                !annotations
                    .unwrap_or_default()
                    .contains_key("volery.dev/command")
            );
        },
    );

    trials.add(
        "orders: wait, started right after the patch, says what became of that template",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            let namespace = &base.namespace;
            // No change.
            ends(begin(namespace, &["wait", X]), 0, "is the accepted version").await;
            // Good.
            namespace.apply(&base.worker.clone().tag("v2")).await;
            ends(
                begin(namespace, &["wait", X]),
                0,
                "v2 is the accepted version",
            )
            .await;
            // Bad.
            namespace.set_metric("v3", "my_errors", 1.0);
            namespace.apply(&base.worker.clone().tag("v3")).await;
            ends(
                begin(namespace, &["wait", X]),
                1,
                "was rolled back: checks failed",
            )
            .await;
            // Superseded.
            let since = Since::now(namespace, &base.daemon).await;
            namespace.apply(&base.worker.clone().tag("v1")).await;
            let waiting = begin(namespace, &["wait", X]);
            since.log(&base.daemon, "to canary 2, primary 8").await;
            namespace.apply(&base.worker.clone().tag("h1")).await;
            ends(waiting, 1, "superseded").await;
            ends(
                begin(namespace, &["wait", X, "--timeout", "100ms"]),
                2,
                "not over",
            )
            .await;
            at_rest(namespace, X, "h1", 10).await;
        },
    );

    trials.add(
        "orders: as a plugin of kubectl, status tells of the step in a table and in JSON",
        async |scene| {
            let (held, ..) = Held::at(&scene, 2, 8).await;
            let namespace = &held.base.namespace;
            plugin(&scene, namespace).await;
        },
    );
}

async fn plugin(_: &Scene, namespace: &Namespace) {
    let folder = namespace.folder().join("plugins");
    std::fs::create_dir(&folder).expect("a folder");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_volery"), folder.join("kubectl-volery"))
        .expect("a link");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", folder.display());
    let kubectl = async |arguments: &[&str]| {
        let mut command = process::command(&namespace.bed.programs.kubectl);
        command
            .args(arguments)
            .env("PATH", &path)
            .env("KUBECONFIG", namespace.folder().join("user.kubeconfig"))
            .env("HOME", namespace.bed.data.path());
        let output = output(command).await;
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let table = kubectl(&["volery", "status"]).await;
    let row: Vec<&str> = table
        .lines()
        .nth(1)
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    assert_eq!(
        row[..8],
        [
            namespace.name.as_str(),
            X,
            "step",
            "1/3,",
            "checking",
            "2/2",
            "8/8",
            "-"
        ],
        "{table}"
    );
    let json = kubectl(&["volery", "status", X, "-o", "json"]).await;
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(report["phase"], "step", "{json}");
    assert_eq!(
        report["pods"]["canary"],
        json!({"available": 2, "wanted": 2})
    );
    assert_eq!(report["rollout"]["step"]["number"], 1, "{json}");
}

/// The binary, as the user runs it.
async fn volery(namespace: &Namespace, arguments: &[&str]) -> Output {
    let mut command = process::command(env!("CARGO_BIN_EXE_volery"));
    command
        .args(arguments)
        .env("KUBECONFIG", namespace.folder().join("user.kubeconfig"));
    output(command).await
}

async fn output(mut command: tokio::process::Command) -> Output {
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let child = process::spawn(command).await.expect("it starts");
    child.wait_with_output().await.expect("it ends")
}

/// A command that must succeed; what it says.
async fn told(namespace: &Namespace, arguments: &[&str]) -> String {
    let output = volery(namespace, arguments).await;
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

async fn done(namespace: &Namespace, arguments: &[&str], expected: &str) {
    let told = told(namespace, arguments).await;
    assert!(told.contains(expected), "{arguments:?}: {told}");
}

async fn refused(namespace: &Namespace, arguments: &[&str], expected: &str) {
    let output = volery(namespace, arguments).await;
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains(expected), "{arguments:?}: {told}");
}

/// A command that takes its time.
fn begin(namespace: &Arc<Namespace>, arguments: &[&str]) -> JoinHandle<Output> {
    let namespace = Arc::clone(namespace);
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    tokio::spawn(async move {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        volery(&namespace, &arguments).await
    })
}

async fn ends(command: JoinHandle<Output>, code: i32, expected: &str) {
    let output = command.await.expect("it ends");
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let told = if code == 0 {
        &output.stdout
    } else {
        &output.stderr
    };
    let told = String::from_utf8_lossy(told);
    assert!(told.contains(expected), "{told}");
}

/// An order by kubectl alone; its answer.
async fn annotated(namespace: &Namespace, order: &str) -> Value {
    let answer = async || {
        let object = namespace.pod_templates().get("orders-worker-volery").await;
        let annotations = object.expect("it is there").metadata.annotations;
        let mut annotations = annotations.unwrap_or_default();
        let waits = annotations.contains_key("volery.dev/command");
        (waits, annotations.remove("volery.dev/answer"))
    };
    namespace
        .kubectl_ok(
            &[
                "annotate",
                "podtemplate",
                "orders-worker-volery",
                &format!("volery.dev/command={order}"),
            ],
            None,
        )
        .await;
    let answer = eventually("the answer", async || {
        let (waits, answer) = answer().await;
        ensure(!waits, || "the order waits".to_owned())?;
        answer.ok_or_else(|| "there is none".to_owned())
    })
    .await;
    serde_json::from_str(&answer).expect("an answer is JSON")
}
