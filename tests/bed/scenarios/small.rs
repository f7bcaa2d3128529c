//! Few replicas, odd shares, and a number or a template that changes in the middle.

use kube::ResourceExt as _;

use super::{
    base::{Base, Held, Since},
    promises::{
        all_told, at_rest, envelope, never_more_than, no_other_pods, started, stash, stopped,
    },
    promoted::STEPS,
};
use crate::{
    namespace::uid,
    scene::Trials,
    wait::{ensure, eventually, stays},
    worker::Worker,
};
use std::time::Duration;

const X: &str = "orders-worker";

/// Settings of one rollout, and the whole way of it, written `(C,P)`.
struct Way {
    replicas: i32,
    step: &'static str,
    breakpoint: &'static str,
    surge: usize,
    steps: &'static [(i32, i32)],
    /// How many of them are checked.
    checked: usize,
}

const WAYS: [Way; 5] = [
    Way {
        replicas: 1,
        step: "10%",
        breakpoint: "50%",
        surge: 1,
        steps: &[(0, 1), (1, 1), (1, 0)],
        checked: 1,
    },
    Way {
        replicas: 2,
        step: "10%",
        breakpoint: "50%",
        surge: 1,
        steps: &[(0, 2), (1, 2), (1, 1), (2, 1), (2, 0)],
        checked: 1,
    },
    Way {
        replicas: 3,
        step: "10%",
        breakpoint: "50%",
        surge: 1,
        steps: &[(0, 3), (1, 3), (1, 2), (2, 2), (2, 1), (3, 1), (3, 0)],
        checked: 2,
    },
    Way {
        replicas: 10,
        step: "40%",
        breakpoint: "50%",
        surge: 4,
        steps: &[
            (0, 10),
            (4, 10),
            (4, 6),
            (5, 6),
            (5, 5),
            (9, 5),
            (9, 1),
            (10, 1),
            (10, 0),
        ],
        checked: 2,
    },
    Way {
        replicas: 10,
        step: "60%",
        breakpoint: "50%",
        surge: 6,
        steps: &[(0, 10), (5, 10), (5, 5), (10, 5), (10, 0)],
        checked: 1,
    },
];

pub fn register(trials: &mut Trials) {
    for way in &WAYS {
        trials.add(
            format!(
                "small: {} replicas, step {}, breakpoint {}",
                way.replicas, way.step, way.breakpoint
            ),
            async |scene| {
                let namespace = scene.namespace().await;
                let url = namespace.bed.prometheus.url.clone();
                let more = format!("step: {}\nbreakpoint: {}", way.step, way.breakpoint);
                let worker = Worker::default().replicas(way.replicas);
                let base = Base::on(namespace, worker, &url, &more).await;
                let since = Since::now(&base.namespace, &base.daemon).await;
                base.namespace.apply(&base.worker.clone().tag("v2")).await;
                since.log(&base.daemon, "promoted: ").await;
                let replicas = usize::try_from(way.replicas).unwrap();
                at_rest(&base.namespace, X, "v2", way.replicas).await;
                started(&base.namespace, since.at, &[("v2", replicas)]).await;
                stopped(&base.namespace, since.at, &[("v1", replicas)]).await;
                envelope(&base.namespace, since.at, replicas, way.surge).await;
                assert_eq!(base.namespace.recorder.steps(X, since.at), way.steps);
                let checked = since
                    .lines(&base.daemon)
                    .iter()
                    .filter(|line| line.contains(", checking for"))
                    .count();
                assert_eq!(checked, way.checked, "checked steps");
            },
        );
    }

    trials.add_with_lags(
        "small: more replicas at (2,8) go to the accepted version",
        async |scene| {
            let (held, since, _) = Held::at(&scene, 2, 8).await;
            let (base, namespace) = (&held.base, &held.base.namespace);
            let raised = namespace.now().await;
            namespace.scale(X, 14).await;
            eventually("14 available pods", async || {
                let last = namespace
                    .recorder
                    .series(raised)
                    .pop()
                    .map(|(_, pods)| pods);
                ensure(
                    last.as_ref().is_some_and(|pods| pods.available == 14),
                    || format!("{last:?}"),
                )
            })
            .await;
            // What is recorded last of the step before may be seen after the moment that was taken.
            let steps_since = || {
                let mut steps = namespace.recorder.steps(X, raised);
                if steps.first() == Some(&(2, 8)) {
                    steps.remove(0);
                }
                steps
            };
            all_told(namespace).await;
            let writes = namespace.daemon_writes().await.len();
            // An autoscaler says the same again and again.
            stays("the peace", Duration::from_secs(4), async || {
                namespace.scale(X, 14).await;
                Ok(())
            })
            .await;
            // The state is written with each check, so that its timers survive a crash (promise 5).
            let mut more = namespace.daemon_writes().await.split_off(writes);
            more.retain(|write| write.resource() != "podtemplates");
            assert!(
                more.is_empty(),
                "written although nothing changed: {more:?}"
            );
            assert_eq!(steps_since(), [(2, 12)]);
            held.go_on();
            since
                .log(
                    &base.daemon,
                    "at rest: 14 replicas of registry.example/orders-worker:v2",
                )
                .await;
            at_rest(namespace, X, "v2", 14).await;
            assert_eq!(
                steps_since(),
                [
                    (2, 12),
                    (5, 12),
                    (5, 9),
                    (7, 9),
                    (7, 7),
                    (10, 7),
                    (10, 4),
                    (13, 4),
                    (13, 1),
                    (14, 1),
                    (14, 0)
                ]
            );
            started(namespace, since.at, &[("v1", 4), ("v2", 14)]).await;
            stopped(namespace, since.at, &[("v1", 14)]).await;
            envelope(namespace, since.at, 10, 7).await;
        },
    );

    trials.add_with_lags(
        "small: fewer replicas at (4,6) leave the candidate its share of them",
        async |scene| {
            let (held, since, _) = Held::at(&scene, 4, 6).await;
            let (base, namespace) = (&held.base, &held.base.namespace);
            let lowered = namespace.now().await;
            namespace.scale(X, 5).await;
            eventually("5 pods", async || {
                let last = namespace
                    .recorder
                    .series(lowered)
                    .pop()
                    .map(|(_, pods)| pods);
                ensure(last.as_ref().is_some_and(|pods| pods.alive == 5), || {
                    format!("{last:?}")
                })
            })
            .await;
            assert_eq!(namespace.recorder.steps(X, lowered).last(), Some(&(2, 3)));
            held.go_on();
            since
                .log(
                    &base.daemon,
                    "at rest: 5 replicas of registry.example/orders-worker:v2",
                )
                .await;
            at_rest(namespace, X, "v2", 5).await;
            let steps = namespace.recorder.steps(X, lowered);
            let after = steps
                .iter()
                .position(|step| *step == (2, 3))
                .unwrap_or_default();
            assert_eq!(
                steps[after..],
                [(2, 3), (3, 3), (3, 2), (4, 2), (4, 1), (5, 1), (5, 0)]
            );
            started(namespace, lowered, &[("v2", 3)]).await;
            stopped(namespace, lowered, &[("v1", 6), ("v2", 2)]).await;
            envelope(namespace, lowered, 5, 7).await;
        },
    );

    trials.add_with_lags(
        "small: to 0 at (4,6) and back: the same step goes on and the version is promoted",
        async |scene| {
            let (held, since, at) = Held::at(&scene, 4, 6).await;
            let (base, namespace) = (&held.base, &held.base.namespace);
            let slept = namespace.now().await;
            namespace.scale(X, 0).await;
            let asleep = at
                .log(
                    &base.daemon,
                    "step 2/3: no replicas wanted, going on when there are some",
                )
                .await;
            eventually("no pod", async || {
                let pods = namespace.recorder.series(slept).pop().map(|(_, pods)| pods);
                ensure(pods.as_ref().is_some_and(|pods| pods.alive == 0), || {
                    format!("{pods:?}")
                })
            })
            .await;
            assert_eq!(namespace.recorder.steps(X, slept).last(), Some(&(0, 0)));
            let woken = namespace.now().await;
            namespace.scale(X, 10).await;
            asleep
                .log(
                    &base.daemon,
                    "step 2/3: canary 4/4 available, primary 6, checking",
                )
                .await;
            assert_eq!(
                namespace.recorder.steps(X, woken).last(),
                Some(&(4, 6)),
                "the step it slept in"
            );
            started(namespace, woken, &[("v1", 6), ("v2", 4)]).await;
            held.go_on();
            since
                .log(
                    &base.daemon,
                    "at rest: 10 replicas of registry.example/orders-worker:v2",
                )
                .await;
            at_rest(namespace, X, "v2", 10).await;
            started(namespace, woken, &[("v1", 6), ("v2", 10)]).await;
            no_other_pods(namespace, X).await;
        },
    );

    trials.add_with_lags(
        "small: a third version at (4,6) takes over from the first step on, the second never runs alone",
        async |scene| {
            let (held, since, at) = Held::at(&scene, 4, 6).await;
            let (base, namespace) = (&held.base, &held.base.namespace);
            let superseded = namespace.now().await;
            namespace.apply(&base.worker.clone().tag("v3")).await;
            at.log(&base.daemon, "superseded: a newer template came").await;
            held.go_on();
            at.log(&base.daemon, "at rest: 10 replicas of registry.example/orders-worker:v3").await;
            at_rest(namespace, X, "v3", 10).await;
            started(namespace, superseded, &[("v1", 4), ("v3", 10)]).await;
            stopped(namespace, superseded, &[("v1", 10), ("v2", 4)]).await;
            let steps = namespace.recorder.steps(X, superseded);
            let again = steps.iter().rposition(|step| *step == (0, 10));
            assert_eq!(steps[again.unwrap_or_default()..], STEPS);
            // Closing gives up the lower bound only until the accepted pods are back (promise 3).
            never_more_than(namespace, since.at, 12).await;
            assert_eq!(stash(namespace, X).await, [("v1".to_owned(), 1)]);
            let log = at.lines(&base.daemon).join("\n");
            assert!(!log.contains("promoted: registry.example/orders-worker:v2"), "{log}");
        },
    );

    trials.add_with_lags(
        "small: back to the accepted version at (4,6) cancels; its six running pods live on",
        async |scene| {
            let (held, _, at) = Held::at(&scene, 4, 6).await;
            let (base, namespace) = (&held.base, &held.base.namespace);
            let primary = namespace.deployment("orders-worker-primary").await;
            let kept: Vec<String> = namespace.pods_of(&primary).await.iter().map(uid).collect();
            assert_eq!(kept.len(), 6);
            let cancelled = namespace.now().await;
            namespace.apply(&base.worker).await;
            at.log(
                &base.daemon,
                "cancelled: the accepted template is wanted again",
            )
            .await
            .log(
                &base.daemon,
                "at rest: 10 replicas of registry.example/orders-worker:v1",
            )
            .await;
            let pods = at_rest(namespace, X, "v1", 10).await;
            assert!(
                kept.iter().all(|uid| pods.contains(uid)),
                "{kept:?} not all in {pods:?}"
            );
            started(namespace, cancelled, &[("v1", 4)]).await;
            stopped(namespace, cancelled, &[("v2", 4)]).await;
            assert_eq!(stash(namespace, X).await, []);
            // It was not rejected: asked for again, it is tried again.
            held.go_on();
            namespace.apply(&base.worker.clone().tag("v2")).await;
            at.log(
                &base.daemon,
                "at rest: 10 replicas of registry.example/orders-worker:v2",
            )
            .await;
            let x = namespace.deployment(X).await;
            let names: Vec<_> = namespace
                .pods_of(&x)
                .await
                .iter()
                .map(|pod| pod.name_any())
                .collect();
            assert!(
                names.iter().all(|name| name.starts_with("orders-worker-")),
                "{names:?}"
            );
            at_rest(namespace, X, "v2", 10).await;
        },
    );
}
