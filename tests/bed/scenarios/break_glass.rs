//! README's break-glass: what a person does with kubectl alone while Volery is down, in README's own words, and that Volery takes it up
//! where the person left it.

use std::{sync::Arc, time::Duration};

use super::base::Base;
use crate::{
    agreement::{End, comes_to},
    daemon::Daemon,
    namespace::Namespace,
    prometheus::{Answer, Stub},
    scene::{Scene, Trials},
    wait::{ensure, within},
    worker::Worker,
};

const X: &str = "orders-worker";

/// No check of it is conclusive while Prometheus has nothing, and nobody gives up.
const WAITS: &str = "no_data_grace: 10m\ninconclusive_timeout: 10m";

/// How long anything may take on a busy machine.
const LONGEST: Duration = Duration::from_secs(180);

/// The commands of README that a trial here carries out, as they stand there.
const RESUME: &str = "kubectl rollout resume deploy/X";
const PRIMARY: &str = "kubectl scale deploy/X-primary --replicas=10";
const CANARY: &str = "kubectl scale deploy/X-canary --replicas=0";

pub fn register(trials: &mut Trials) {
    trials.add(
        "break-glass: at rest, a version rolled out without Volery is the accepted one",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            let Base {
                namespace,
                setup,
                daemon,
                ..
            } = base;
            daemon.kill().await;
            namespace.apply(&Worker::default().tag("v2")).await;
            readme(&namespace, RESUME).await;
            namespace.complete(X).await;
            let _daemon = namespace.daemon(&setup).await;
            comes_to(&namespace, End::Accepted("v2")).await;
        },
    );
    trials.add(
        "break-glass: a rollout is open, back by hand; Volery goes on, and the checks decide",
        async |scene| {
            let (base, stub) = open(&scene).await;
            let Base {
                namespace,
                setup,
                daemon,
                ..
            } = base;
            daemon.kill().await;
            readme(&namespace, PRIMARY).await;
            readme(&namespace, CANARY).await;
            runs(&namespace, ("v1", 10)).await;
            let _daemon = back(&namespace, &setup, &stub, 0.0).await;
            comes_to(&namespace, End::Rejected("v2")).await;
        },
    );
    trials.add(
        "break-glass: a rollout is open, forward by hand; Volery goes on, and the checks decide",
        async |scene| {
            let (base, stub) = open(&scene).await;
            let Base {
                namespace,
                setup,
                daemon,
                ..
            } = base;
            daemon.kill().await;
            // The other way round.
            readme(&namespace, &CANARY.replace("=0", "=10")).await;
            readme(&namespace, &PRIMARY.replace("=10", "=0")).await;
            runs(&namespace, ("v2", 10)).await;
            let _daemon = back(&namespace, &setup, &stub, 1.0).await;
            comes_to(&namespace, End::Accepted("v2")).await;
        },
    );
    trials.add(
        "break-glass: every kubectl command of README is one that kubectl and the API server take",
        async |scene| {
            let (base, _stub) = open(&scene).await;
            // Of the Deployment of the install section there is no need to run.
            base.namespace
                .apply(&Worker::named("volery").replicas(0))
                .await;
            let commands = commands();
            assert!(commands.len() >= 12, "{commands:?}");
            for done in [RESUME, PRIMARY, CANARY] {
                assert!(
                    commands.iter().any(|command| command == done),
                    "{done} is not in README"
                );
            }
            for command in commands {
                taken(&base.namespace, &command).await;
            }
        },
    );
}

/// A rollout of v2 that waits at its first step for Prometheus to say something.
async fn open(scene: &Scene) -> (Base, Stub) {
    let namespace = scene.namespace().await;
    let stub = namespace.prometheus_stub().await;
    stub.answers(Answer::Empty);
    let base = Base::on(namespace, Worker::default(), &stub.url(), WAITS).await;
    base.namespace.apply(&base.worker.clone().tag("v2")).await;
    base.daemon
        .log_contains("step 1/3: canary 2/2 available")
        .await;
    (base, stub)
}

/// The daemon again, with checks that say this: 1 is good, 0 is bad.
async fn back(
    namespace: &Arc<Namespace>,
    setup: &crate::daemon::Setup,
    stub: &Stub,
    value: f64,
) -> Daemon {
    stub.answers(Answer::Value(value));
    namespace.daemon(setup).await
}

async fn runs(namespace: &Namespace, (tag, count): (&str, usize)) {
    within(
        LONGEST,
        &format!("{count} pods of {tag} alone"),
        async || {
            let now = namespace.now().await;
            let pods = namespace.recorder.series(now).pop().map(|(_, pods)| pods);
            let pods = pods.unwrap_or_default();
            let of_tag = pods.by_tag.get(tag).copied().unwrap_or_default();
            ensure(of_tag == (count, count) && pods.alive == count, || {
                format!("{pods:?}")
            })
        },
    )
    .await;
}

/// A command of README, of this worker.
async fn readme(namespace: &Namespace, command: &str) {
    let words = words(command);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    namespace.kubectl_ok(&words, None).await;
}

/// The arguments of kubectl, with README's names replaced by this worker's, in the namespace that the user is in anyway.
fn words(command: &str) -> Vec<String> {
    let command = command
        .trim_start_matches("kubectl ")
        .replace("-n workers ", "")
        .replace("deploy/X", &format!("deploy/{X}"))
        .replace("deploy/orders-consumer", &format!("deploy/{X}"))
        .replace("X-volery", &format!("{X}-volery"))
        .replace("YOUR-LABEL", X)
        // What the shell would take away.
        .replace('\'', "");
    command.split_whitespace().map(str::to_owned).collect()
}

/// Every command of kubectl in README's code.
fn commands() -> Vec<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let text = std::fs::read_to_string(file).expect("README can be read");
    let parts: Vec<&str> = text.split("```").collect();
    let blocks = parts.iter().skip(1).step_by(2);
    // In a block a command stands at a prompt.
    let prompts = blocks.flat_map(|block| block.lines().filter_map(|line| line.strip_prefix("$ ")));
    let prose: String = parts.iter().step_by(2).copied().collect();
    let spans = prose.split('`').skip(1).step_by(2);
    prompts
        .chain(spans)
        // What is a plugin is tried by the scenarios of orders.
        .filter(|code| code.starts_with("kubectl ") && !code.starts_with("kubectl volery "))
        .map(|code| code.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// Tries a command without changing anything: reads as they are, writes as the server's dry run. What knows no dry run, what goes on for
/// ever, and what names no object must at least be spelled as kubectl wants it: with `--help` kubectl still refuses an unknown command.
async fn taken(namespace: &Namespace, command: &str) {
    let mut words = words(command);
    let spelled =
        ["exec", "logs", "rollout", "set"].contains(&words[0].as_str()) || words.len() == 1;
    if spelled {
        words.push("--help".to_owned());
    } else if words[0] == "apply" {
        // Its manifests name their namespace; the trial of the installation applies them.
        assert_eq!(words, ["apply", "-k", "deploy/"], "{command}");
        words = vec![
            "kustomize".to_owned(),
            concat!(env!("CARGO_MANIFEST_DIR"), "/deploy").to_owned(),
        ];
    } else if ["scale", "annotate"].contains(&words[0].as_str()) {
        words.push("--dry-run=server".to_owned());
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = namespace.kubectl_ok(&words, None).await;
    assert!(!output.trim().is_empty(), "{command} shows nothing");
    if spelled {
        let verb: Vec<&str> = words
            .iter()
            .copied()
            .take_while(|word| !word.contains('/') && !word.starts_with('-'))
            .collect();
        assert!(
            output.contains(&format!("kubectl {}", verb.join(" "))),
            "{command} is not what kubectl helps with: {output}"
        );
    }
}
