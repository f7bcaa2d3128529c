//! Break-glass: what a person does with kubectl alone while Volery is down, in the words of README and of `docs/break-glass.md`, and that
//! Volery takes it up where the person left it.

use std::{sync::Arc, time::Duration};

use kube::ResourceExt as _;

use super::{
    base::{Base, Since},
    promises::untouched,
};
use crate::{
    agreement::{End, comes_to},
    daemon::Daemon,
    namespace::{Namespace, uid},
    prometheus::{Answer, Stub},
    scene::{Scene, Trials},
    wait::{ensure, eventually, within},
    worker::Worker,
};

const X: &str = "orders-worker";

/// No check of it is conclusive while Prometheus has nothing, and nobody gives up.
const WAITS: &str = "no_data_grace: 10m\ninconclusive_timeout: 10m";

/// Long enough for whatever a controller would do.
const WHILE: Duration = Duration::from_secs(4);

/// How long anything may take on a busy machine.
const LONGEST: Duration = Duration::from_secs(180);

/// The pages that say what to do.
const PAGES: [&str; 2] = ["README.md", "docs/break-glass.md"];

/// The commands of these pages that a trial here carries out, as they stand there.
const RESUME: &str = "kubectl rollout resume deploy/X";
const PRIMARY: &str = "kubectl scale deploy/X-primary --replicas=10";
const CANARY: &str = "kubectl scale deploy/X-canary --replicas=0";
const UNDO: &str = "kubectl rollout undo deploy/X";
const HOLD: &str = "kubectl annotate podtemplate X-volery volery.dev/command=hold --overwrite";
const FORGET: &str = "kubectl delete podtemplate X-volery";
const UNCLONE: &str = "kubectl delete deploy X-primary X-canary";
const GIVE: &str = r#"kubectl patch rs RS --type=json -p='[{"op":"replace","path":"/metadata/ownerReferences/0/name","value":"X"},{"op":"replace","path":"/metadata/ownerReferences/0/uid","value":"UID"}]'"#;

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
        "break-glass: at rest, rolled out and back again without Volery: the accepted version stays",
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
            readme(&namespace, UNDO).await;
            namespace.complete(X).await;
            runs(&namespace, ("v1", 10)).await;
            let back = namespace.now().await;
            let _daemon = namespace.daemon(&setup).await;
            comes_to(&namespace, End::Accepted("v1")).await;
            untouched(&namespace, back).await;
        },
    );
    trials.add(
        "break-glass: at rest, given back by hand: no pod is touched, and it rolls natively from then on",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            let Base {
                namespace, daemon, ..
            } = base;
            daemon.kill().await;
            let since = namespace.now().await;
            readme(&namespace, RESUME).await;
            readme(&namespace, FORGET).await;
            namespace.complete(X).await;
            untouched(&namespace, since).await;
            is_free(&namespace).await;
            namespace.apply(&Worker::default().tag("v2")).await;
            namespace.complete(X).await;
            runs(&namespace, ("v2", 10)).await;
            readme(&namespace, UNDO).await;
            runs(&namespace, ("v1", 10)).await;
        },
    );
    for (way, tag) in [("back", "v1"), ("forward", "v2")] {
        trials.add(
            format!("break-glass: a rollout is open, {way} by hand and given back: X gets the running pods, none is touched"),
            async move |scene| given_back(&scene, tag).await,
        );
    }
    trials.add(
        "break-glass: a rollout is open, held by hand while Volery is down: it holds, until it may go on",
        async |scene| {
            let (base, stub) = open(&scene).await;
            let Base {
                namespace,
                setup,
                daemon,
                ..
            } = base;
            daemon.kill().await;
            let since = namespace.now().await;
            readme(&namespace, HOLD).await;
            let daemon = back(&namespace, &setup, &stub, 1.0).await;
            daemon.log_contains("on hold").await;
            tokio::time::sleep(WHILE).await;
            untouched(&namespace, since).await;
            let held = Since::now(&namespace, &daemon).await;
            readme(&namespace, &HOLD.replace("=hold", "=resume")).await;
            held.log(&daemon, "promoted: ").await;
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
        "break-glass: every kubectl command of README and of its page is one that kubectl and the API server take",
        async |scene| {
            let (base, _stub) = open(&scene).await;
            // Of the Deployment of the install section there is no need to run.
            base.namespace
                .apply(&Worker::named("volery").replicas(0))
                .await;
            let commands = commands();
            assert!(commands.len() >= 12, "{commands:?}");
            for done in [
                RESUME, PRIMARY, CANARY, UNDO, HOLD, FORGET, UNCLONE, GIVE,
            ] {
                assert!(
                    commands.iter().any(|command| command == done),
                    "{done} is in none of {PAGES:?}"
                );
            }
            for command in commands {
                taken(&base.namespace, &command).await;
            }
        },
    );
}

/// Leaves Volery amid a rollout, with this version.
async fn given_back(scene: &Scene, tag: &str) {
    let (base, _stub) = open(scene).await;
    let Base {
        namespace, daemon, ..
    } = base;
    daemon.kill().await;
    if tag == "v1" {
        readme(&namespace, PRIMARY).await;
        readme(&namespace, CANARY).await;
    } else {
        readme(&namespace, &CANARY.replace("=0", "=10")).await;
        readme(&namespace, &PRIMARY.replace("=10", "=0")).await;
    }
    runs(&namespace, (tag, 10)).await;
    namespace.apply(&Worker::default().tag(tag)).await;
    let since = namespace.now().await;
    readme(&namespace, GIVE).await;
    eventually("10 of 10 up to date", async || {
        let status = namespace.deployment(X).await.status.unwrap_or_default();
        let numbers = (status.ready_replicas, status.updated_replicas);
        ensure(numbers == (Some(10), Some(10)), || format!("{numbers:?}"))
    })
    .await;
    readme(&namespace, UNCLONE).await;
    readme(&namespace, RESUME).await;
    readme(&namespace, FORGET).await;
    namespace.complete(X).await;
    tokio::time::sleep(WHILE).await;
    untouched(&namespace, since).await;
    is_free(&namespace).await;
}

/// Nothing of Volery is left but a condition that says how it stood last.
async fn is_free(namespace: &Namespace) {
    let x = namespace.deployment(X).await;
    assert_eq!(x.spec.and_then(|spec| spec.paused), None);
    let list = kube::api::ListParams::default();
    let templates = namespace.pod_templates().list(&list).await.unwrap();
    assert_eq!(templates.items.len(), 0);
    let deployments = namespace.deployments().list(&list).await.unwrap();
    assert_eq!(deployments.items.len(), 1);
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

/// A command of a page, of this worker.
async fn readme(namespace: &Namespace, command: &str) {
    let words = words(namespace, command).await;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    namespace.kubectl_ok(&words, None).await;
}

/// The arguments of kubectl, with a page's names replaced by this worker's, in the namespace that the user is in anyway.
async fn words(namespace: &Namespace, command: &str) -> Vec<String> {
    let mut command = command
        .trim_start_matches("kubectl ")
        .replace("-n workers ", "")
        .replace("deploy/X", &format!("deploy/{X}"))
        .replace("\"X\"", &format!("\"{X}\""))
        .replace("orders-consumer", X)
        .replace("YOUR-LABEL", X)
        // What the shell would take away.
        .replace('\'', "");
    if command.contains(" RS ") {
        let (set, uid) = largest_set(namespace).await;
        command = command.replace(" RS ", &format!(" {set} "));
        command = command.replace("UID", &uid);
    }
    let named = |word: &str| {
        if word == "X" || word.starts_with("X-") {
            word.replacen('X', X, 1)
        } else {
            word.to_owned()
        }
    };
    command.split_whitespace().map(named).collect()
}

/// The name of the ReplicaSet with the most pods, and X's uid.
async fn largest_set(namespace: &Namespace) -> (String, String) {
    let list = kube::api::ListParams::default();
    let sets = namespace.replica_sets().list(&list).await.unwrap();
    let largest = sets.items.iter().max_by_key(|set| {
        let status = set.status.as_ref();
        status.map_or(0, |status| status.replicas)
    });
    let x = namespace.deployment(X).await;
    (largest.unwrap().name_any(), uid(&x))
}

/// Every command of kubectl in the pages' code.
fn commands() -> Vec<String> {
    PAGES.into_iter().flat_map(commands_of).collect()
}

fn commands_of(page: &str) -> Vec<String> {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = std::fs::read_to_string(file).expect("the page can be read");
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
    let mut words = words(namespace, command).await;
    let spelled =
        ["exec", "logs", "rollout", "set"].contains(&words[0].as_str()) || words.len() == 1;
    if spelled {
        // What follows is for the program in the pod.
        words = words.into_iter().take_while(|word| word != "--").collect();
        words.push("--help".to_owned());
    } else if words[0] == "apply" {
        // Its manifests name their namespace; the trial of the installation applies them.
        assert_eq!(words, ["apply", "-k", "deploy/"], "{command}");
        words = vec![
            "kustomize".to_owned(),
            concat!(env!("CARGO_MANIFEST_DIR"), "/deploy").to_owned(),
        ];
    } else if ["scale", "annotate", "patch", "delete"].contains(&words[0].as_str()) {
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
