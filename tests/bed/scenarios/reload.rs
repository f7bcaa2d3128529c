//! The configuration changes while the daemon runs: entries, numbers, mistakes, and a ConfigMap as the kubelet lays it.

use std::{path::Path, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::sleep;

use super::{
    base::{Base, Held, Since, Watch, config, entry},
    leaving::nothing_of_ours,
    promises::{at_rest, never_beyond_the_step, no_other_pods, started, untouched},
};
use crate::{
    namespace::Namespace,
    scene::{Scene, Trials},
    wait::{ensure, eventually},
    worker::Worker,
};

const X: &str = "orders-worker";

/// What the file says of it in a file that it is missing in.
const ANOTHER: &str = "another-worker";

pub fn register(trials: &mut Trials) {
    trials.add(
        "reload: an entry removed at (4,6): cancelled, then given back (K46)",
        removed,
    );
    trials.add(
        "reload: a breakpoint lowered to what the canary has: promoted (K46)",
        lowered,
    );
    trials.add(
        "reload: ten swaps of a ConfigMap, and two within 50 ms (K47)",
        swapped,
    );
    trials.add(
        "reload: files that are bad in every way, during a rollout, cause no write of a Deployment (K49)",
        bad,
    );
    trials.add("reload: an entry that is added is registered", added);
    trials.add(
        "reload: a daemon that starts with a bad file writes nothing and goes on when it is right (K49)",
        righted,
    );
}

/// The file of BASE, as `held` was registered with it, with something else in it.
fn edited(held: &Held, from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(&held.base.setup.config).expect("the file is there");
    let edited = text.replacen(from, to, 1);
    assert_ne!(edited, text, "{from:?} is not in\n{text}");
    edited
}

/// With another daemon, as its setup says by now.
async fn started_again(held: Held) -> Held {
    let held = held.meanwhile(Watch::Down, async |_, _| {}).await;
    held.base
        .daemon
        .log_contains("orders-worker: at rest")
        .await;
    held
}

async fn removed(scene: Arc<Scene>) {
    let mut held = Held::registered(&scene).await;
    held.base
        .setup
        .extra_args
        .extend(["--release-after".to_owned(), "3s".to_owned()]);
    let held = started_again(held).await;
    let base = &held.base;
    let (namespace, daemon) = (&base.namespace, &base.daemon);
    let since = Since::now(namespace, daemon).await;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    held.hold_at(since, 4, 6).await;

    base.setup.write_config(&edited(&held, X, ANOTHER));
    since
        .log(
            daemon,
            "orders-worker: no longer in the configuration: given back in 3s",
        )
        .await
        .log(daemon, "orders-worker: blocked: to be released, but")
        .await;
    at_rest(namespace, X, "v1", 10).await;
    started(namespace, since.at, &[("v1", 4), ("v2", 4)]).await;

    namespace.apply(&base.worker).await;
    since
        .log(daemon, "orders-worker: released: un-paused")
        .await;
    nothing_of_ours(namespace).await;
}

async fn lowered(scene: Arc<Scene>) {
    let (held, since, _) = Held::at(&scene, 2, 8).await;
    let Held { base, .. } = &held;
    let (namespace, daemon) = (&base.namespace, &base.daemon);
    base.setup
        .write_config(&edited(&held, "breakpoint: 50%", "breakpoint: 20%"));
    let told = since
        .log(
            daemon,
            "orders-worker: configuration: breakpoint 50% -> 20%",
        )
        .await;
    held.go_on();
    told.log(
        daemon,
        "orders-worker: breakpoint reached: canary 2/2 trusted",
    )
    .await
    .log(daemon, "orders-worker: promoted: ")
    .await;
    at_rest(namespace, X, "v2", 10).await;
    started(namespace, since.at, &[("v2", 10)]).await;
    no_other_pods(namespace, X).await;
    let more = since.lines(daemon);
    assert!(
        !more.iter().any(|line| line.contains("step 2/")),
        "{more:#?}"
    );
}

/// A ConfigMap's volume in which the file has this text; the directory of the text before is removed.
fn swap(volume: &Path, generation: usize, text: &str) {
    let dated = format!("..2026_01_05_09_00_00.{generation}");
    let inside = |name: &str| volume.join(name);
    std::fs::create_dir_all(inside(&dated))
        .and_then(|()| std::fs::write(inside(&dated).join("volery.yaml"), text))
        .and_then(|()| std::os::unix::fs::symlink(&dated, inside("..data_tmp")))
        .expect("it can be laid");
    let before = std::fs::read_link(inside("..data"));
    std::fs::rename(inside("..data_tmp"), inside("..data")).expect("it can be swapped");
    if let Ok(before) = before {
        std::fs::remove_dir_all(volume.join(before)).expect("it can be removed");
    }
}

async fn swapped(scene: Arc<Scene>) {
    let namespace = scene.namespace().await;
    namespace.running(&Worker::default()).await;
    let url = namespace.bed.prometheus.url.clone();
    let text = |delay: usize| config(&namespace, &url, &format!("start_delay: {delay}s"));
    let volume = namespace.folder().join("config");
    swap(&volume, 0, &text(100));
    std::os::unix::fs::symlink("..data/volery.yaml", volume.join("volery.yaml")).expect("a link");
    let mut setup = namespace.daemon_setup("");
    setup.config = volume.join("volery.yaml");
    let daemon = namespace.daemon(&setup).await;
    daemon.log_contains("orders-worker: at rest").await;
    let since = Since::now(&namespace, &daemon).await;

    let change = |from: usize, to: usize| {
        let [from, to] = [from, to].map(|delay| {
            let delay = Duration::from_secs(u64::try_from(delay).expect("small"));
            volery::config::display_duration(delay).to_string()
        });
        format!("orders-worker: configuration: start_delay {from} -> {to}")
    };
    for generation in 1..=10 {
        swap(&volume, generation, &text(100 + generation));
        since
            .log(&daemon, &change(99 + generation, 100 + generation))
            .await;
    }
    // The same again is no change.
    swap(&volume, 11, &text(110));
    let lines = since.lines(&daemon);
    assert_eq!(lines.len(), 10, "one line for each swap: {lines:#?}");

    swap(&volume, 12, &text(112));
    sleep(Duration::from_millis(40)).await;
    swap(&volume, 13, &text(113));
    eventually("the last one to apply", async || {
        let lines = since.lines(&daemon);
        let last = lines.last().cloned().unwrap_or_default();
        ensure(last.contains("-> 1m53s"), || last)
    })
    .await;
    assert!(since.lines(&daemon).len() <= 12);
    untouched(&namespace, since.at).await;
}

async fn bad(scene: Arc<Scene>) {
    let mut held = Held::registered(&scene).await;
    let Base {
        namespace, setup, ..
    } = &mut held.base;
    let pod = [
        ("POD_NAME", "volery-0"),
        ("POD_NAMESPACE", namespace.name.as_str()),
        ("POD_UID", "0e5f"),
    ];
    setup
        .env
        .extend(pod.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let held = started_again(held).await;
    let base = &held.base;
    let (namespace, daemon) = (&base.namespace, &base.daemon);
    let since = Since::now(namespace, daemon).await;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    let at = held.hold_at(since, 4, 6).await;
    let writes = deployment_writes(namespace).await;

    let good = std::fs::read_to_string(&base.setup.config).expect("the file is there");
    let cut = |at: &str| good.split_once(at).expect("it is in it").0.to_owned();
    let twice = edited(&held, "  step:", "  step: 20%\n  step:");
    let wrong_abort = edited(&held, "abort: 120s", "abort: 5 minutes");
    for (text, line) in [
        (
            cut("ep: 20%"),
            "everything stays as it was until the file is right",
        ),
        (cut("  abort"), "orders-worker.abort: this key is required"),
        (
            edited(&held, "breakpoint", "brekpoint"),
            "orders-worker.brekpoint: unknown key; did you mean \"breakpoint\"?",
        ),
        (
            wrong_abort,
            "orders-worker.abort: \"5 minutes\": expected a duration",
        ),
        (twice, "orders-worker.step: this key stands twice"),
        (String::new(), "the file is empty"),
        (
            cut("orders-worker:"),
            "it names no service, while these are registered: orders-worker; to give all of them back, say volery release \
             --all",
        ),
    ] {
        base.setup.write_config(&text);
        at.log(daemon, line).await;
    }
    std::fs::remove_file(&base.setup.config).expect("it can be removed");
    at.log(daemon, "cannot be read: No such file or directory")
        .await;
    assert_eq!(deployment_writes(namespace).await, writes);

    base.setup.write_config(&good);
    at.log(daemon, "configuration: the file can be used again")
        .await;
    held.go_on();
    since.log(daemon, "orders-worker: promoted: ").await;
    at_rest(namespace, X, "v2", 10).await;
    started(namespace, since.at, &[("v2", 10)]).await;
    never_beyond_the_step(namespace, X, since.at).await;
    for about in ["Deployment orders-worker", "Pod volery-0"] {
        rejected(namespace, about).await;
    }
}

/// How many times the daemon has written Deployments, beside conditions on X.
async fn deployment_writes(namespace: &Namespace) -> usize {
    let writes = namespace.daemon_writes().await;
    let of_deployments = |write: &&crate::audit::Request| write.resource() == "deployments";
    writes.iter().filter(of_deployments).count()
}

/// Waits for a Warning about this object that says why a configuration was rejected.
async fn rejected(namespace: &Namespace, about: &str) {
    eventually(&format!("a ConfigRejected about {about}"), async || {
        let events = namespace
            .kubectl_ok(&["get", "events", "-o", "json"], None)
            .await;
        let events: Value = serde_json::from_str(&events).map_err(|error| error.to_string())?;
        let told = events["items"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|event| {
                let object = &event["involvedObject"];
                let [kind, name] =
                    ["kind", "name"].map(|key| object[key].as_str().unwrap_or_default());
                event["reason"] == "ConfigRejected"
                    && event["type"] == "Warning"
                    && format!("{kind} {name}") == about
            });
        ensure(told, || format!("there is {events}"))
    })
    .await;
}

async fn added(scene: Arc<Scene>) {
    let base = Base::registered(&scene, "").await;
    let namespace = &base.namespace;
    let worker = Worker::named(ANOTHER).replicas(3);
    namespace.running(&worker).await;
    let since = Since::now(namespace, &base.daemon).await;
    let url = namespace.bed.prometheus.url.clone();
    base.setup.write_config(&format!(
        "{}{}",
        config(namespace, &url, ""),
        entry(namespace, ANOTHER, "")
    ));
    since
        .log(&base.daemon, "another-worker: configuration: added")
        .await
        .log(&base.daemon, "another-worker: registered: 3 replicas")
        .await;
    at_rest(namespace, ANOTHER, "v1", 3).await;
    at_rest(namespace, X, "v1", 10).await;
    untouched(namespace, since.at).await;
}

async fn righted(scene: Arc<Scene>) {
    let namespace = scene.namespace().await;
    namespace.running(&Worker::default()).await;
    let before = namespace.now().await;
    let setup = namespace.daemon_setup("orders-worker: [");
    let daemon = namespace.daemon(&setup).await;
    daemon
        .log_contains("nothing is done until the file is right")
        .await;
    sleep(Duration::from_secs(2)).await;
    assert!(namespace.daemon_writes().await.is_empty());
    let url = namespace.bed.prometheus.url.clone();
    setup.write_config(&config(&namespace, &url, ""));
    daemon
        .log_contains("orders-worker: registered: 10 replicas")
        .await;
    at_rest(&namespace, X, "v1", 10).await;
    untouched(&namespace, before).await;
}
