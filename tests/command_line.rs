//! The command line without a cluster: what it takes, what it refuses, and under which names it goes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::{Command, Output};

fn run(program: &Path, arguments: &[&str]) -> Output {
    let nowhere = tempfile::tempdir().unwrap();
    Command::new(program)
        .args(arguments)
        // Neither a kubeconfig nor a pod's account.
        .env("KUBECONFIG", nowhere.path().join("none"))
        .env("HOME", nowhere.path())
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .unwrap()
}

fn volery(arguments: &[&str]) -> Output {
    run(Path::new(env!("CARGO_BIN_EXE_volery")), arguments)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn as_a_plugin_of_kubectl_it_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-volery");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_volery"), &plugin).unwrap();
    for arguments in [
        &["--version"][..],
        &["undo", "orders", "--to", "3", "--help"],
        &["status", "-A", "--help"],
    ] {
        let output = run(&plugin, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let told = text(&output.stdout).replace("kubectl-volery", "volery");
        assert_eq!(told, text(&volery(arguments).stdout));
    }
}

#[test]
fn without_a_way_to_a_cluster_it_says_what_was_looked_for() {
    for arguments in [
        &["abort", "orders"][..],
        &["hold", "--all"],
        &["status"],
        &["history", "orders"],
        &["wait", "orders"],
    ] {
        let output = volery(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        let told = text(&output.stderr);
        assert!(
            told.starts_with("error: no way to the cluster: neither a usable kubeconfig"),
            "{arguments:?}: {told}"
        );
        assert!(output.stdout.is_empty());
    }
    let told = text(&volery(&["abort", "orders", "--context", "production"]).stderr);
    assert!(
        told.starts_with("error: context \"production\" cannot be used"),
        "{told}"
    );
}

#[test]
fn an_order_names_one_service_or_all() {
    for (arguments, expected) in [
        (&["abort"][..], "<SERVICE>"),
        (&["hold"], "<SERVICE>"),
        (&["hold", "orders", "--all"], "cannot be used with"),
        (&["abort", "orders", "--all"], "unexpected argument '--all'"),
        (&["hold", "-A", "-n", "workers"], "cannot be used with"),
        (
            &["release", "orders", "--accepted", "--original"],
            "cannot be used with",
        ),
        (&["undo", "orders", "--to", "last"], "invalid value 'last'"),
        (
            &["abort", "orders", "--timeout", "30"],
            "invalid value '30'",
        ),
        (
            &["status", "orders", "-o", "yaml"],
            "possible values: table, json",
        ),
    ] {
        let output = volery(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let told = text(&output.stderr);
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
}

#[test]
fn what_cannot_be_queried_is_told_before_anybody_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("volery.yaml");
    let service = "{breakpoint: 50%, step: 10%, abort: 2m, max_step_duration: 10m, \
                    check_success_step_duration: 2m, success: SUCCESS}";
    let with = |success: &str| service.replace("SUCCESS", success);
    let text = format!(
        "prometheus-base-url: http://127.0.0.1:9/\nnamespace: workers\norders: {}\nsilent: {}\nbad: {{step: 0%}}\n\
         twice: {}\ntwice-as-well: {}\n",
        with("[{expr: up > 0}]"),
        with("[]"),
        with("[{expr: up > 0}], namespace: a, deployment: two"),
        with("[{expr: up > 0}], namespace: b, deployment: two"),
    );
    std::fs::write(&file, text).unwrap();
    let nowhere = folder.path().join("nowhere.yaml");
    std::fs::write(
        &nowhere,
        format!("namespace: workers\nsilent: {}\n", with("[]")),
    )
    .unwrap();
    let (file, nowhere) = (file.to_str().unwrap(), nowhere.to_str().unwrap());
    for (arguments, expected) in [
        (&["query", "orders"][..], "--config <FILE>"),
        (
            &["query", "orders", "--prometheus", "http://127.0.0.1:9/"],
            "--config <FILE>",
        ),
        (&["query", "orders", "--expr", "up > 0"], "--config <FILE>"),
        (
            &[
                "query",
                "orders",
                "--prometheus",
                "prometheus:9090",
                "--expr",
                "up > 0",
            ],
            "expected a URL that begins with http:// or https://",
        ),
        (
            &[
                "query",
                "orders",
                "--prometheus",
                "http://127.0.0.1:9/",
                "--expr",
                "up",
            ],
            "error: --expr: `up` compares nothing",
        ),
        (
            &["query", "orders", "--config", "missing.yaml"],
            "missing.yaml",
        ),
        (
            &["query", "ordres", "--config", file],
            "has no entry for ordres; its entries: orders, ",
        ),
        (
            &["query", "orders", "-n", "other", "--config", file],
            "has no entry for orders in namespace other",
        ),
        (
            &["query", "bad", "--config", file],
            "cannot be used as it is",
        ),
        (
            &["query", "silent", "--config", file],
            "silent has no success expressions",
        ),
        (
            &["query", "two", "--config", file],
            "two may be a/two or b/two: say which namespace with -n",
        ),
        (
            &["query", "silent", "--config", nowhere, "--expr", "up > 0"],
            "the file does not say where Prometheus is",
        ),
        (
            &["query", "orders", "--config", file],
            "error: no way to the cluster",
        ),
        (
            &["query", "two", "-n", "b", "--config", file],
            "error: no way to the cluster",
        ),
        (
            &[
                "query",
                "any",
                "--prometheus",
                "http://127.0.0.1:9/",
                "--expr",
                "up > 0",
            ],
            "error: no way to the cluster",
        ),
    ] {
        let output = volery(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let told = self::text(&output.stderr);
        assert!(told.contains(expected), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

/// A folder with these files in it.
fn files(contents: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in contents {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

const GOOD: &str = "namespace: workers\norders:\n  breakpoint: 50%\n  step: 10%\n  abort: 2m\n  max_step_duration: 10m\n  \
                    check_success_step_duration: 2m\n  success: []\n";

fn doubtful() -> String {
    format!("{GOOD}  check_max_failures: 9\n")
}

fn bad() -> String {
    format!("{}  brekpoint: 1\n  on_failure: freez\n", doubtful())
}

fn check(folder: &tempfile::TempDir, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_volery"))
        .arg("check")
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    (output.status.code(), text(&output.stdout))
}

#[test]
fn check_tells_everything_in_lines_that_an_editor_jumps_to() {
    let (doubtful, bad) = (doubtful(), bad());
    let folder = files(&[
        ("good.yaml", GOOD),
        ("doubtful.yaml", &doubtful),
        ("bad.yaml", &bad),
        ("broken.yaml", "orders: {step: [}\n"),
    ]);
    let (code, told) = check(
        &folder,
        &[
            "good.yaml",
            "doubtful.yaml",
            "bad.yaml",
            "broken.yaml",
            "absent.yaml",
        ],
    );
    assert_eq!(code, Some(2));
    insta::assert_snapshot!(told);
}

#[test]
fn the_exit_code_of_check_is_fit_for_ci() {
    let (doubtful, bad) = (doubtful(), bad());
    let folder = files(&[
        ("good.yaml", GOOD),
        ("doubtful.yaml", &doubtful),
        ("bad.yaml", &bad),
    ]);
    for (arguments, expected) in [
        (&["good.yaml"][..], 0),
        (&["doubtful.yaml"], 0),
        (&["--strict", "good.yaml"], 0),
        (&["--strict", "doubtful.yaml"], 1),
        (&["bad.yaml"], 1),
        (&["good.yaml", "bad.yaml"], 1),
        (&["bad.yaml", "absent.yaml"], 2),
        (&["."], 2),
    ] {
        assert_eq!(check(&folder, arguments).0, Some(expected), "{arguments:?}");
    }
    let place = folder.path().join("good.yaml");
    let place = place.to_str().unwrap();
    let nowhere = volery(&["check", "--live", place]);
    assert_eq!(nowhere.status.code(), Some(2));
    let told = text(&nowhere.stderr);
    assert!(told.starts_with("error: no way to the cluster"), "{told}");
    assert!(nowhere.stdout.is_empty());
    for alone in ["--namespace", "--context", "--as"] {
        let refused = volery(&["check", alone, "workers", place]);
        assert_eq!(refused.status.code(), Some(2), "{alone}");
        assert!(text(&refused.stderr).contains("--live"), "{alone}");
    }
    let nothing = volery(&["check"]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(text(&nothing.stderr).contains("<FILE>"));
}

#[test]
fn check_writes_json_for_programs() {
    let bad = bad();
    let folder = files(&[("good.yaml", GOOD), ("bad.yaml", &bad)]);
    let (code, told) = check(&folder, &["-o", "json", "good.yaml", "bad.yaml"]);
    assert_eq!(code, Some(1));
    let _: serde_json::Value = serde_json::from_str(&told).unwrap();
    insta::assert_snapshot!(told);
}
