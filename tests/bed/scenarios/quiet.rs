//! Nothing happens where nothing has to: no write, no request, no line.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use http::StatusCode;
use tokio::time::sleep;

use super::{
    base::{Base, Since},
    promises::{all_told, at_rest, untouched},
};
use crate::{audit, namespace::Namespace, proxy::Verdict, scene::Trials, worker::Worker};

const X: &str = "orders-worker";

/// Long enough for many polls, and for whatever a change of X would set off.
const WHILE: Duration = Duration::from_secs(3);

pub fn register(trials: &mut Trials) {
    trials.add(
        "quiet: labels, annotations, a manifest again and again, restarts and broken watches cause no write",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            at_rest(&base.namespace, X, "v1", 10).await;
            let Base { namespace, worker, setup, mut daemon } = base;
            all_told(&namespace).await;
            let since = Since::now(&namespace, &daemon).await;
            let writes = namespace.daemon_writes().await.len();

            let changed = worker
                .clone()
                .label("team", "orders")
                .annotation("kubernetes.io/change-cause", "a new team");
            for manifest in [&changed, &changed, &worker, &worker] {
                namespace.apply(manifest).await;
            }
            namespace
                .kubectl_ok(&["annotate", "deployment/orders-worker", "note=nothing to see"], None)
                .await;
            namespace
                .kubectl_ok(&["label", "deployment/orders-worker", "tier=batch"], None)
                .await;
            sleep(WHILE).await;

            for _ in 0..3 {
                assert!(daemon.terminate().await.success());
                daemon = namespace.daemon(&setup).await;
                daemon.log_contains("orders-worker: at rest: 10 replicas").await;
                sleep(WHILE / 3).await;
            }

            // Ended and opened again, and then refused as too old, which takes a new list.
            namespace.daemon_proxy.break_watches();
            sleep(WHILE / 3).await;
            let refused = AtomicUsize::new(0);
            namespace.daemon_proxy.on_request(move |request| {
                if request.is_watch() && refused.fetch_add(1, Ordering::SeqCst) < 4 {
                    return Verdict::Answer(StatusCode::GONE, "too old resource version".to_owned());
                }
                Verdict::Pass
            });
            namespace.daemon_proxy.break_watches();
            sleep(WHILE).await;

            let more = namespace.daemon_writes().await.split_off(writes);
            assert!(more.is_empty(), "writes: {}", told(&more));
            untouched(&namespace, since.at).await;
            at_rest(&namespace, X, "v1", 10).await;

            // And it is not blind: what comes next is seen.
            namespace.daemon_proxy.pass_all();
            namespace.apply(&worker.tag("v2")).await;
            since.log(&daemon, "orders-worker: rollout 1: ").await;
        },
    );

    trials.add(
        "quiet: at rest no request but watches, and no line",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            at_rest(&base.namespace, X, "v1", 10).await;
            requests_at_rest(&base, "v1").await;
        },
    );

    trials.add(
        "quiet: with a rejected version on the Deployment no request but watches, and no line",
        async |scene| {
            let base = Base::rejected(&scene).await;
            requests_at_rest(&base, "v1").await;
        },
    );

    trials.add(
        "quiet: a candidate that waits at R = 0 causes no request but watches, and no line",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            base.namespace.scale(X, 0).await;
            at_rest(&base.namespace, X, "v1", 0).await;
            base.namespace
                .apply(&Worker::default().tag("v2").replicas(0))
                .await;
            base.daemon
                .log_contains("is rolled out when replicas are wanted again")
                .await;
            requests_at_rest(&base, "").await;
        },
    );
}

/// For a while the daemon asks nothing and says nothing.
async fn requests_at_rest(base: &Base, tag: &str) {
    let namespace: &Namespace = &base.namespace;
    // What is in flight when the last line is written has ended by then.
    sleep(WHILE).await;
    all_told(namespace).await;
    let since = Since::now(namespace, &base.daemon).await;
    let before = requests(namespace).await.len();
    sleep(Duration::from_secs(15)).await;
    let mut asked = requests(namespace).await.split_off(before);
    asked.retain(|request| request.verb != "watch");
    assert!(asked.is_empty(), "requests at rest: {}", told(&asked));
    assert_eq!(since.lines(&base.daemon), Vec::<String>::new());
    untouched(namespace, since.at).await;
    if !tag.is_empty() {
        at_rest(namespace, X, tag, 10).await;
    }
}

async fn requests(namespace: &Namespace) -> Vec<audit::Request> {
    namespace
        .bed
        .audit
        .requests(&namespace.daemon_user(), &namespace.name)
        .await
}

fn told(requests: &[audit::Request]) -> String {
    let lines: Vec<_> = requests
        .iter()
        .map(|request| {
            format!(
                "{} {} {} ({})",
                request.verb,
                request.resource(),
                request.name(),
                request.code()
            )
        })
        .collect();
    lines.join(", ")
}
