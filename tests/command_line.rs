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
