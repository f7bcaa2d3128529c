//! No verdict without evidence: whatever Prometheus does, it neither promotes nor fails a version by it (promise 4).

use std::{sync::Arc, time::Duration};

use http::StatusCode;

use super::{
    base::{Base, config},
    promises::{at_rest, never_more_of, never_more_than, started, step},
};
use crate::{
    guarded::{Guarded, PASSWORD, USER},
    metrics::Of,
    prometheus::{Answer, Stub},
    scene::{Scene, Trials},
    wait::{ensure, eventually},
    worker::Worker,
};

const NAME: &str = "orders-worker";

/// Four replicas by two, judged twice a second.
const QUICK: &str = "step: 50%\nstart_delay: 0s\nmax_step_duration: 1s";

/// What a Prometheus does that is of no use, and what the log says about it.
fn useless() -> [(&'static str, Answer, &'static str); 7] {
    let status = |code, text: &str| Answer::Status(code, text.to_owned());
    [
        (
            "500",
            status(StatusCode::INTERNAL_SERVER_ERROR, "out of memory"),
            "HTTP 500",
        ),
        (
            "400",
            status(StatusCode::BAD_REQUEST, "parse error"),
            "HTTP 400",
        ),
        (
            "503",
            status(StatusCode::SERVICE_UNAVAILABLE, "starting"),
            "HTTP 503",
        ),
        (
            "an error in the body",
            Answer::ErrorInBody,
            "query timed out",
        ),
        ("nonsense", Answer::Nonsense, "Prometheus"),
        ("nothing", Answer::Never, "did not answer within 500ms"),
        (
            "too slowly",
            Answer::Slow(Duration::from_secs(3), Box::new(Answer::Real)),
            "did not answer within 500ms",
        ),
    ]
}

pub fn register(trials: &mut Trials) {
    for (name, answer, reason) in useless() {
        trials.add(
            format!("metrics: a Prometheus that answers {name} promotes nothing, and fails it no sooner than it may"),
            async move |scene| no_verdict(&scene, |stub| stub.answers(answer), reason).await,
        );
    }
    trials.add(
        "metrics: a Prometheus that refuses connections promotes nothing, and fails it no sooner than it may",
        async |scene| no_verdict(&scene, Stub::refuse, "cannot be reached").await,
    );
    trials.add(
        "metrics: an outage shorter than the timeout only lengthens the step (K17)",
        outage,
    );
    trials.add(
        "metrics: an answer that takes long, but not too long, counts",
        slow_enough,
    );
    trials.add(
        "metrics: a Prometheus under a path that shows a certificate and wants a password is asked as it wants",
        guarded,
    );
    trials.add(
        "metrics: a pod that is gone is neither asked about nor judged, and no time is sent (K59)",
        gone,
    );
}

/// The real thing behind TLS, a login and a path: promoted through it, also where the password changes meanwhile.
async fn guarded(scene: Arc<Scene>) {
    let namespace = scene.namespace().await;
    let guarded = Guarded::start(
        &namespace.bed.programs,
        namespace.folder(),
        namespace.bed.metrics_port,
    )
    .await
    .expect("a Prometheus of the trial's own");
    let password = namespace.folder().join("password");
    std::fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    let access = format!(
        "prometheus:\n  username: {USER}\n  password-from-file: {}\n  ca-file: {}\n  headers: {{X-Scope-OrgID: team-a}}\n",
        password.display(),
        guarded.authority.display()
    );
    let worker = Worker::default().replicas(4);
    namespace.running(&worker).await;
    for tag in ["v1", "v2", "v3"] {
        namespace.set_metric(tag, "my_errors", 0.0);
    }
    let more = format!("{QUICK}\ninconclusive_timeout: 60s");
    let setup = namespace.daemon_setup(&(access + &config(&namespace, &guarded.url, &more)));
    let daemon = namespace.daemon(&setup).await;
    daemon.log_contains("orders-worker: at rest").await;
    let before = namespace.now().await;
    namespace.apply(&worker.clone().tag("v2")).await;
    daemon.log_contains("promoted: ").await;
    at_rest(&namespace, NAME, "v2", 4).await;
    started(&namespace, before, &[("v2", 4)]).await;

    std::fs::write(&password, "yesterday's").unwrap();
    let changed = tokio::time::Instant::now();
    namespace.apply(&worker.clone().tag("v3")).await;
    let doubt = daemon
        .log_contains_since(changed, "check inconclusive: ")
        .await;
    assert!(doubt.text.contains("HTTP 401"), "{}", doubt.text);
    std::fs::write(&password, PASSWORD).unwrap();
    daemon.log_contains_since(changed, "promoted: ").await;
    at_rest(&namespace, NAME, "v3", 4).await;
    for line in daemon.log() {
        for secret in [PASSWORD, "yesterday's"] {
            assert!(!line.text.contains(secret), "{}", line.text);
        }
    }
}

/// A registered worker of four replicas, judged by a stub.
async fn stubbed(scene: &Scene, more: &str) -> (Base, Stub) {
    let worker = Worker::default().replicas(4);
    Base::stubbed(scene, worker, &format!("{QUICK}\n{more}")).await
}

async fn no_verdict(scene: &Scene, go_bad: impl FnOnce(&Stub), reason: &str) {
    let (base, stub) = stubbed(scene, "inconclusive_timeout: 5s").await;
    go_bad(&stub);
    let before = base.now().await;
    base.namespace.apply(&base.worker.clone().tag("v2")).await;
    let began = base
        .daemon
        .log_contains("step 1/1: canary 2/2 available, primary 2, checking")
        .await
        .at;
    let failed = base.daemon.log_contains("failed: ").await;
    // A second for lines that were read late.
    assert!(
        failed.at - began >= Duration::from_secs(4),
        "rolled back after {:?}",
        failed.at - began
    );
    assert!(
        failed
            .text
            .contains("failed: no conclusive check in time: none for 5s: "),
        "{}",
        failed.text
    );
    assert!(
        failed.text.contains(reason),
        "the line says what was seen: {}",
        failed.text
    );
    let doubt = base
        .daemon
        .log_contains("step 1/1: check inconclusive: ")
        .await
        .text;
    assert!(doubt.contains(reason), "{doubt}");
    at_rest(&base.namespace, NAME, "v1", 4).await;
    started(&base.namespace, before, &[("v1", 2), ("v2", 2)]).await;
    never_more_than(&base.namespace, before, 6).await;
    never_more_of(&base.namespace, before, "v2", 2).await;
    let log = base.daemon.log();
    assert!(
        !log.iter()
            .any(|line| line.text.contains("check failed") || line.text.contains("promoted: ")),
        "no verdict was found"
    );
}

async fn outage(scene: Arc<Scene>) {
    let (base, stub) = stubbed(&scene, "inconclusive_timeout: 60s").await;
    stub.answers(Answer::Status(
        StatusCode::SERVICE_UNAVAILABLE,
        "restarting".to_owned(),
    ));
    let before = base.now().await;
    base.namespace.apply(&base.worker.clone().tag("v2")).await;
    base.daemon.log_contains("check inconclusive: ").await;
    // Longer than the step lasts: it does not end without a passed check.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(
        base.namespace.recorder.steps(NAME, before).last(),
        Some(&(2, 2))
    );
    stub.answers(Answer::Real);
    base.daemon
        .log_contains("step 1/1: checks pass again")
        .await;
    base.daemon.log_contains("promoted: ").await;
    at_rest(&base.namespace, NAME, "v2", 4).await;
    started(&base.namespace, before, &[("v2", 4)]).await;
    never_more_than(&base.namespace, before, 6).await;
}

async fn slow_enough(scene: Arc<Scene>) {
    let (base, stub) = stubbed(&scene, "check_success_step_duration: 5s").await;
    stub.answers(Answer::Slow(
        Duration::from_millis(700),
        Box::new(Answer::Real),
    ));
    let before = base.now().await;
    base.namespace.apply(&base.worker.clone().tag("v2")).await;
    base.daemon.log_contains("promoted: ").await;
    at_rest(&base.namespace, NAME, "v2", 4).await;
    started(&base.namespace, before, &[("v2", 4)]).await;
    // No round begins before the one before has ended: one query about both pods.
    let queries = stub.queries();
    assert!(!queries.is_empty());
    for (nth, query) in queries.iter().enumerate() {
        let within = queries[nth..]
            .iter()
            .take_while(|later| later.at - query.at < Duration::from_millis(600));
        assert!(within.count() <= 1, "rounds overlap");
    }
}

async fn gone(scene: Arc<Scene>) {
    // A deleted pod goes on serving its metrics for a while.
    let worker = Worker::default()
        .replicas(4)
        .terminate_after(Duration::from_secs(8));
    let more = "step: 50%\nstart_delay: 0s\ncheck_success_step_duration: 4s\nmax_step_duration: 15s\ncheck_max_failures: 1";
    let (base, stub) = Base::stubbed(&scene, worker, more).await;
    let namespace = &base.namespace;
    stub.answers(Answer::Slow(Duration::from_secs(2), Box::new(Answer::Real)));
    let before = base.now().await;
    namespace.apply(&base.worker.clone().tag("v2")).await;
    step(namespace, NAME, before, (2, 2)).await;
    let asked = eventually("the first question", async || {
        let queries = stub.queries();
        ensure(!queries.is_empty(), || "nothing was asked".to_owned())?;
        Ok(queries[0].expression.clone())
    })
    .await;
    // Between question and answer a pod is deleted and its series turns bad.
    let canary = namespace.deployment("orders-worker-canary").await;
    let pods = namespace.pods_of(&canary).await;
    let name = pods
        .iter()
        .filter_map(|pod| pod.metadata.name.clone())
        .find(|name| asked.contains(name.as_str()))
        .expect("a question about a canary pod");
    namespace.set_metric(Of::Pod(name.clone()), "my_errors", 9.0);
    namespace
        .kubectl_ok(&["delete", "pod", &name, "--wait=false"], None)
        .await;
    // The round that had begun with it may end with it; no later one begins with it.
    base.daemon.log_contains("went away during the check").await;
    let seen = stub.queries().len();
    base.daemon.log_contains("promoted: ").await;
    at_rest(namespace, NAME, "v2", 4).await;
    let queries = stub.queries();
    assert!(queries.len() > seen, "the step went on with questions");
    for query in &queries[seen..] {
        assert!(
            !query.expression.contains(&name),
            "a pod that was gone was asked about: {query:?}"
        );
    }
    for query in &queries {
        assert!(
            query.path == "/api/v1/query" && !query.parameters.iter().any(|p| p == "time"),
            "{query:?}"
        );
    }
    let log = base.daemon.log();
    assert!(
        !log.iter().any(|line| line.text.contains("check failed")),
        "a pod that was gone was judged"
    );
    // One more than replicas: the one that was deleted.
    started(namespace, before, &[("v2", 5)]).await;
    never_more_than(namespace, before, 6).await;
}
