//! What the tree promises about itself.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_yaml::Value;
use volery::cluster::{Resource, Verb};

/// What the core must not reach for (design section 7): I/O, clocks, randomness, the cluster, the runtime.
const IMPURE: &[&str] = &[
    "kube::",
    "k8s_openapi::",
    "tokio",
    "reqwest",
    "tracing",
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "Instant",
    "SystemTime",
    "::now(",
    "rand",
    "HashMap",
    "HashSet",
    "println!",
    "crate::cluster",
    "crate::daemon",
    "async ",
];

#[test]
fn the_core_is_pure() {
    let mut found = Vec::new();
    for file in sources(&root().join("src/rollout")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for word in IMPURE.iter().filter(|word| code.contains(**word)) {
                found.push(format!("{}:{}: {word}", file.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_shipped_roles_grant_exactly_what_the_code_needs() {
    assert_eq!(granted("role.yaml"), needed(volery::cluster::rights()));
    assert_eq!(
        granted("leader.yaml"),
        needed(volery::cluster::rights_to_lead())
    );
}

/// Verbs by group and resource.
type Rules = BTreeMap<(String, String), BTreeSet<String>>;

/// What the Role in a manifest of `deploy/` grants.
fn granted(file: &str) -> Rules {
    let text = std::fs::read_to_string(root().join("deploy").join(file)).unwrap();
    let words = |value: &Value| -> Vec<String> {
        value
            .as_sequence()
            .unwrap()
            .iter()
            .map(|word| word.as_str().unwrap().to_owned())
            .collect()
    };
    let mut rules = Rules::new();
    for document in serde_yaml::Deserializer::from_str(&text) {
        let document = Value::deserialize(document).unwrap();
        if document["kind"] != "Role" {
            continue;
        }
        for rule in document["rules"].as_sequence().unwrap() {
            for group in words(&rule["apiGroups"]) {
                for resource in words(&rule["resources"]) {
                    rules
                        .entry((group.clone(), resource))
                        .or_default()
                        .extend(words(&rule["verbs"]));
                }
            }
        }
    }
    rules
}

fn needed(rights: BTreeMap<Resource, BTreeSet<Verb>>) -> Rules {
    rights
        .into_iter()
        .map(|(resource, verbs)| {
            let resource = (resource.group.to_owned(), resource.name.to_owned());
            let verbs = verbs.into_iter().map(|verb| verb.name().to_owned());
            (resource, verbs.collect())
        })
        .collect()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("snapshots") {
            continue;
        }
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    assert!(!files.is_empty(), "{} holds no source", folder.display());
    files
}
