//! Somebody un-pauses what Volery paused: what was started past it goes, unless it carries the load already.

use super::{
    base::{Base, Held, Since},
    promises::{at_rest, no_other_pods, started, stash, stopped, untouched},
};
use crate::scene::Trials;

const X: &str = "orders-worker";
const RESUME: [&str; 3] = ["rollout", "resume", "deployment/orders-worker"];
const AGAIN: &str = "orders-worker: orders-worker was un-paused; paused again";

pub fn register(trials: &mut Trials) {
    trials.add_with_lags(
        "unpaused: at rest on the accepted version it is paused again and no pod is touched",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            let namespace = &base.namespace;
            at_rest(namespace, X, "v1", 10).await;
            let since = Since::now(namespace, &base.daemon).await;
            namespace.kubectl_ok(&RESUME, None).await;
            since.log(&base.daemon, AGAIN).await;
            at_rest(namespace, X, "v1", 10).await;
            untouched(namespace, since.at).await;
        },
    );

    trials.add_with_lags(
        "unpaused: with a version on it that failed, what was started of that is removed",
        async |scene| {
            let base = Base::rejected(&scene).await;
            let namespace = &base.namespace;
            let since = Since::now(namespace, &base.daemon).await;
            namespace.kubectl_ok(&RESUME, None).await;
            since.log(&base.daemon, AGAIN).await;
            at_rest(namespace, X, "v1", 10).await;
            no_other_pods(namespace, X).await;
            // Kubernetes' own maxUnavailable of a quarter holds until the pause is observed.
            let (fewest, _) = namespace.recorder.range(since.at, |pods| {
                pods.by_tag.get("v1").map_or(0, |(_, available)| *available)
            });
            assert!(fewest >= 8, "{fewest} accepted pods were available");
            // Under lag it is paused again before anything is started.
            if !namespace.recorder.starts(since.at).is_empty() {
                since
                    .log(
                        &base.daemon,
                        "removed what was started past Volery: orders-worker-",
                    )
                    .await;
            }
            let rejections = |line: &String| line.contains("orders-worker: rejected: ");
            let lines = since.lines(&base.daemon);
            assert_eq!(
                lines.iter().filter(|line| rejections(line)).count(),
                0,
                "told again: {lines:?}"
            );
            let log = since.lines(&base.daemon).join("\n");
            assert!(!log.contains("rollout 2"), "tried a second time: {log}");
        },
    );

    trials.add_with_lags(
        "unpaused: a version rolled out by hand while no daemon runs is the accepted one",
        async |scene| {
            let base = Base::rejected(&scene).await;
            let Base { namespace, setup, daemon, .. } = base;
            daemon.kill().await;
            namespace.kubectl_ok(&RESUME, None).await;
            namespace.complete(X).await;
            let by_hand = namespace.now().await;
            let daemon = namespace.daemon(&setup).await;
            daemon
                .log_contains("registry.example/orders-worker:v2 was rolled out by hand and carries the load: taken as the accepted version, unchecked")
                .await;
            daemon
                .log_contains("at rest: 10 replicas of registry.example/orders-worker:v2")
                .await;
            at_rest(&namespace, X, "v2", 10).await;
            untouched(&namespace, by_hand).await;
            let kept: Vec<String> = stash(&namespace, X)
                .await
                .into_iter()
                .map(|(tag, _)| tag)
                .collect();
            assert_eq!(kept, ["v1"]);
        },
    );

    trials.add_with_lags(
        "unpaused: in the middle of a rollout, what the Deployment starts by itself is removed and the rollout goes on",
        async |scene| {
            let (held, since, at) = Held::at(&scene, 4, 6).await;
            let (base, namespace) = (&held.base, &held.base.namespace);
            let resumed = namespace.now().await;
            namespace.kubectl_ok(&RESUME, None).await;
            at.log(&base.daemon, AGAIN).await;
            // Nothing of the clones was lost by it.
            held.go_on();
            at.log(&base.daemon, "at rest: 10 replicas of registry.example/orders-worker:v2").await;
            let pods = at_rest(namespace, X, "v2", 10).await;
            assert_eq!(pods.len(), 10);
            no_other_pods(namespace, X).await;
            let (fewest, _) = namespace.recorder.range(resumed, |pods| pods.available);
            assert!(fewest >= 10, "{fewest} available");
            assert_eq!(
                namespace.recorder.stops(since.at).get("v1"),
                Some(&10),
                "accepted pods stopped"
            );
            assert_eq!(namespace.recorder.starts(since.at).get("v1"), None);
        },
    );

    trials.add_with_lags(
        "unpaused: a clone that somebody resumes is paused again and no pod restarts",
        async |scene| {
            let (held, since, at) = Held::at(&scene, 4, 6).await;
            let (base, namespace) = (&held.base, &held.base.namespace);
            let resumed = namespace.now().await;
            for clone in ["primary", "canary"] {
                namespace
                    .kubectl_ok(
                        &["rollout", "resume", &format!("deployment/{X}-{clone}")],
                        None,
                    )
                    .await;
                at.log(
                    &base.daemon,
                    &format!("{X}-{clone} was un-paused; paused again"),
                )
                .await;
            }
            untouched(namespace, resumed).await;
            held.go_on();
            at.log(
                &base.daemon,
                "at rest: 10 replicas of registry.example/orders-worker:v2",
            )
            .await;
            at_rest(namespace, X, "v2", 10).await;
            started(namespace, since.at, &[("v2", 10)]).await;
            stopped(namespace, since.at, &[("v1", 10)]).await;
        },
    );
}
