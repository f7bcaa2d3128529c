//! What people see with kubectl: Events and a condition on the Deployment, under the shipped Role.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::sleep;

use super::{
    base::{Base, Since},
    promises::{all_told, at_rest, quiet},
};
use crate::{
    namespace::Namespace,
    scene::{Scene, Trials},
    wait::{ensure, eventually},
};

const X: &str = "orders-worker";

const CONDITION: &str = "volery.dev/Rollout";

pub fn register(trials: &mut Trials) {
    trials.add(
        "events: a failed and a promoted rollout are told on the Deployment, a restart tells nothing, giving back leaves nothing",
        both,
    );
}

async fn both(scene: Arc<Scene>) {
    let mut base = Base::registered(&scene, "").await;
    let namespace = Arc::clone(&base.namespace);
    at_rest(&namespace, X, "v1", 10).await;
    shows(&namespace, "True", "AtRest").await;

    // A version that fails.
    namespace.set_metric("v2", "my_errors", 7.0);
    namespace.apply(&base.worker.clone().tag("v2")).await;
    shows(&namespace, "Unknown", "Checking").await;
    shows(&namespace, "False", "Rejected").await;
    at_rest(&namespace, X, "v1", 10).await;
    told(
        &namespace,
        &[
            ("Normal", "Registered", "registered: 10 replicas of "),
            (
                "Normal",
                "RolloutStarted",
                "rollout 1: new template, 3 checked steps to 5 of 10",
            ),
            ("Normal", "Checking", "step 1/3: canary 2/2 available"),
            (
                "Warning",
                "CheckFailed",
                "step 1/3: check failed (1 of 2): ",
            ),
            ("Warning", "RolloutFailed", "failed: checks failed: "),
            ("Warning", "Rejected", "rejected: "),
        ],
    )
    .await;
    let described = describe(&namespace).await;
    for part in ["volery.dev/Rollout", "Rejected", "RolloutFailed", "volery"] {
        assert!(described.contains(part), "no {part} in\n{described}");
    }

    // A restart where nothing happens writes nothing.
    all_told(&namespace).await;
    let writes = namespace.daemon_writes().await.len();
    assert!(base.daemon.terminate().await.success());
    base.daemon = namespace.daemon(&base.setup).await;
    base.daemon.log_contains("orders-worker: rejected: ").await;
    quiet(&namespace, Duration::from_secs(3)).await;
    assert_eq!(namespace.daemon_writes().await.len(), writes);

    // A fix: what was said before is said again, and counted.
    let since = Since::now(&namespace, &base.daemon).await;
    namespace.apply(&base.worker.clone().tag("v3")).await;
    since.log(&base.daemon, "promoted: ").await;
    at_rest(&namespace, X, "v3", 10).await;
    shows(&namespace, "True", "AtRest").await;
    told(
        &namespace,
        &[
            ("Normal", "BreakpointReached", "breakpoint reached: "),
            ("Normal", "Promoted", "promoted: "),
        ],
    )
    .await;
    let again = "step 1/3: canary 2/2 available";
    eventually("the first step to be counted twice", async || {
        let events = events(&namespace).await;
        let step = events.iter().find(|event| {
            event["message"]
                .as_str()
                .is_some_and(|message| message.starts_with(again))
        });
        let count = step.map(|event| &event["count"]);
        ensure(count == Some(&Value::from(2)), || format!("{count:?}"))
    })
    .await;
    all_told(&namespace).await;
    let writes = namespace.daemon_writes().await.len();
    assert!(base.daemon.terminate().await.success());
    base.daemon = namespace.daemon(&base.setup).await;
    base.daemon.log_contains("orders-worker: at rest: ").await;
    // How many replicas are wanted is no news, neither to the condition nor as an Event.
    namespace.scale(X, 12).await;
    at_rest(&namespace, X, "v3", 12).await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(namespace.daemon_writes().await.len(), writes);

    // Other conditions are as Kubernetes writes them.
    let x = namespace.deployment(X).await;
    let conditions = x.status.and_then(|status| status.conditions);
    let mut types: Vec<String> = conditions
        .unwrap_or_default()
        .into_iter()
        .map(|condition| condition.type_)
        .collect();
    types.sort();
    assert_eq!(types, ["Available", "Progressing", CONDITION]);

    // Given back: what happened is still told, and nothing is left on X.
    let base = base.left_out().await;
    base.daemon
        .log_contains("orders-worker: released: un-paused")
        .await;
    told(&namespace, &[("Normal", "Released", "released: ")]).await;
    let x = namespace.complete(X).await;
    let left = serde_json::to_string(&x).expect("it is JSON");
    assert!(!left.contains("volery.dev"), "{left}");
    let forbidden: Vec<_> = namespace
        .daemon_writes()
        .await
        .into_iter()
        .filter(|write| write.code() == 403)
        .collect();
    assert!(forbidden.is_empty(), "{forbidden:?}");
}

/// Waits until X shows this.
async fn shows(namespace: &Namespace, status: &str, reason: &str) {
    eventually(&format!("X to show {reason}"), async || {
        let x = namespace.deployment(X).await;
        let conditions = x.status.and_then(|status| status.conditions);
        let conditions = conditions.unwrap_or_default();
        let ours = conditions
            .iter()
            .find(|condition| condition.type_ == CONDITION);
        let shown = ours.map(|ours| (ours.status.as_str(), ours.reason.as_deref()));
        ensure(shown == Some((status, Some(reason))), || {
            format!("it shows {conditions:?}")
        })
    })
    .await;
}

/// Waits until `kubectl get events` shows these, in any order: type, reason, and the beginning of the message.
async fn told(namespace: &Namespace, expected: &[(&str, &str, &str)]) {
    for (tone, reason, begins) in expected {
        eventually(&format!("an Event {reason}: {begins}"), async || {
            let events = events(namespace).await;
            let found = events.iter().any(|event| {
                event["type"] == *tone
                    && event["reason"] == *reason
                    && event["message"]
                        .as_str()
                        .is_some_and(|message| message.starts_with(begins))
            });
            ensure(found, || format!("{events:#?}"))
        })
        .await;
    }
}

/// The Events on X.
async fn events(namespace: &Namespace) -> Vec<Value> {
    let text = namespace
        .kubectl_ok(
            &[
                "get",
                "events",
                "-o",
                "json",
                "--field-selector=involvedObject.name=orders-worker,reportingComponent=volery",
            ],
            None,
        )
        .await;
    let list: Value = serde_json::from_str(&text).expect("JSON");
    list["items"].as_array().cloned().unwrap_or_default()
}

async fn describe(namespace: &Namespace) -> String {
    namespace
        .kubectl_ok(&["describe", "deployment/orders-worker"], None)
        .await
}
