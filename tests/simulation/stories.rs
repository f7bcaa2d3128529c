//! What happens to a worker, one story each, told without lag and under every lag.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use volery::cluster::CONDITION;
use volery::config::OnFailure;
use volery::rollout::state::Phase;
use volery::simulate::cluster::{Behaviour, Kind, Lag, Lags};

use super::gauges::Gauge;
use super::limits::Limits;
use super::world::{Deaths, NAMESPACE, Weather, World, X, Y, in_virtual_time};

pub const V1: &str = "orders:v1";
pub const V2: &str = "orders:v2";
pub const V3: &str = "orders:v3";
pub const V4: &str = "orders:v4";

/// The stories of a worker whose service says `on_failure: freeze`.
const FORWARD_ONLY: [&str; 8] = [
    "a fix that hangs is aborted",
    "frozen at the second step and fixed",
    "frozen, scaled and fixed",
    "frozen and cancelled",
    "a fix that is fixed in its turn",
    "a fix overtaken by another",
    "frozen before the first pod is ready",
    "frozen pods deleted by hand",
];

/// The stories of a worker whose service says `restore_original: true`.
const RESTORING: [&str; 1] = ["restored, and put back every ten seconds"];

/// The stories of a worker whose pods may stray less, or farther, from R.
const WITHIN_LIMITS: [(&str, Limits); 11] = [
    ("capped: promoted", Limits::Capped),
    ("capped: fails at the second step", Limits::Capped),
    ("capped: superseded in the second step", Limits::Capped),
    ("capped: scaled to zero and back", Limits::Capped),
    (
        "capped: pods that take longer to end than abort",
        Limits::CappedImpatient,
    ),
    ("capped: scaled up and down on the way", Limits::Capped),
    ("one at a time", Limits::CappedOneFewer),
    ("two more and one fewer", Limits::TwoMoreOneFewer),
    ("two more and one fewer: cancelled", Limits::TwoMoreOneFewer),
    ("one more at a time: superseded", Limits::OneMore),
    (
        "the rest at once: superseded on the way",
        Limits::RestAtOnce,
    ),
];

/// How a story ends.
#[derive(Clone, Copy)]
pub enum End {
    /// X is at rest with this version.
    AtRest(&'static str),
    /// X is not registered any more; its pods are of this version.
    Released(&'static str),
}

/// One story.
pub struct Story {
    pub name: &'static str,
    /// What happens after ten pods of v1 are registered.
    pub act: for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>,
    pub end: End,
    /// Pods started in all, by image, where no lag and no crash changes that.
    pub starts: &'static [(&'static str, usize)],
}

/// Every story.
pub const STORIES: &[Story] = &[
    Story {
        name: "registered with history",
        act: |world| {
            async move {
                world.until_registered(X).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V1),
        starts: &[(V1, 10)],
    },
    Story {
        name: "promoted",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_accepted(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V2),
        starts: &[(V1, 10), (V2, 10)],
    },
    Story {
        name: "fails at the second step",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 4).await;
                world.gauges.set(V2, Gauge::Bad);
                world.until_rejected(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V1),
        starts: &[(V1, 14), (V2, 4)],
    },
    Story {
        name: "crash loop",
        act: |world| {
            async move {
                world.until_registered(X).await;
                let behaviour = Behaviour::CrashLoop {
                    up: Duration::from_secs(3),
                    down: Duration::from_secs(10),
                    exit_code: 1,
                };
                world.cluster.turn_pods(NAMESPACE, V2, behaviour);
                world.apply(X, 10, V2);
                world.until_rejected(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V1),
        starts: &[],
    },
    Story {
        name: "never ready",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world
                    .cluster
                    .turn_pods(NAMESPACE, V2, Behaviour::NeverReady);
                world.apply(X, 10, V2);
                world.until_rejected(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V1),
        starts: &[(V1, 10), (V2, 2)],
    },
    Story {
        name: "superseded in the second step",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 4).await;
                world.apply(X, 10, V3);
                world.until_accepted(X, V3).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V3),
        starts: &[(V1, 14), (V2, 4), (V3, 10)],
    },
    Story {
        name: "cancelled in the second step",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 4).await;
                world.apply(X, 10, V1);
                world.until("closed", |world| world.is_at_rest(X)).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V1),
        starts: &[(V1, 14), (V2, 4)],
    },
    Story {
        name: "scaled up in the second step",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 4).await;
                world.scale(X, 15);
                world.until_accepted(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V2),
        starts: &[(V1, 15), (V2, 15)],
    },
    Story {
        name: "scaled down in the second step",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 4).await;
                world.scale(X, 5);
                world.until_accepted(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V2),
        starts: &[(V1, 10), (V2, 7)],
    },
    Story {
        name: "scaled to zero and back in the second step",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 4).await;
                world.scale(X, 0);
                tokio::time::sleep(Duration::from_secs(60)).await;
                world.scale(X, 10);
                world.until_accepted(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V2),
        starts: &[],
    },
    Story {
        name: "released at rest",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.configure(&[Y]);
                world
                    .until("released", |world| world.state(X).is_none())
                    .await;
            }
            .boxed_local()
        },
        end: End::Released(V1),
        starts: &[(V1, 10)],
    },
    Story {
        name: "leaves the configuration in the second step",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 4).await;
                world.configure(&[Y]);
                world.until("closed", |world| world.is_at_rest(X)).await;
                world.apply(X, 10, V1);
                world
                    .until("released", |world| world.state(X).is_none())
                    .await;
            }
            .boxed_local()
        },
        end: End::Released(V1),
        starts: &[(V1, 14), (V2, 4)],
    },
    Story {
        name: "a candidate waits for replicas",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.scale(X, 0);
                tokio::time::sleep(Duration::from_secs(60)).await;
                world.set_image(X, V2);
                tokio::time::sleep(Duration::from_secs(60)).await;
                world.scale(X, 10);
                world.until_accepted(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V2),
        starts: &[(V1, 20), (V2, 10)],
    },
    Story {
        name: "forward, back and forward again",
        act: |world| {
            async move {
                world.until_registered(X).await;
                for image in [V2, V1, V2] {
                    world.apply(X, 10, image);
                    world.until_accepted(X, image).await;
                }
            }
            .boxed_local()
        },
        end: End::AtRest(V2),
        starts: &[(V1, 20), (V2, 20)],
    },
    Story {
        name: "two services",
        act: |world| {
            async move {
                world.apply(Y, 4, "invoices:v1");
                world.until_registered(X).await;
                world.until_registered(Y).await;
                world.gauges.set("invoices:v2", Gauge::Bad);
                world.apply(X, 10, V2);
                world.apply(Y, 4, "invoices:v2");
                world.until_rejected(Y, "invoices:v2").await;
                world.until_accepted(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V2),
        starts: &[(V1, 10), (V2, 10), ("invoices:v1", 5), ("invoices:v2", 1)],
    },
    Story {
        name: "resumed at rest",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.resume(X);
                world
                    .until("paused again", |world| {
                        world
                            .object(Kind::Deployment, X)
                            .is_some_and(|x| x.is_set("/spec/paused"))
                    })
                    .await;
            }
            .boxed_local()
        },
        end: End::AtRest(V1),
        starts: &[(V1, 10)],
    },
    Story {
        name: "resumed in the second step",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 4).await;
                world.resume(X);
                world.until_accepted(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V2),
        starts: &[],
    },
    Story {
        name: "canary deleted by hand",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 4).await;
                world.delete(Kind::Deployment, "orders-canary");
                world.until_accepted(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V2),
        starts: &[],
    },
    Story {
        name: "primary deleted by hand",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 4).await;
                world.delete(Kind::Deployment, "orders-primary");
                world.until_accepted(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V2),
        starts: &[],
    },
    Story {
        name: "state object deleted at rest",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.delete(Kind::PodTemplate, "orders-volery");
                tokio::time::sleep(Duration::from_secs(60)).await;
                world.until_registered(X).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V1),
        starts: &[(V1, 10)],
    },
    Story {
        name: "frozen at the second step and fixed",
        act: |world| {
            async move {
                world.until_frozen_at_the_second_step().await;
                tokio::time::sleep(Duration::from_secs(600)).await;
                world.apply(X, 10, V3);
                world.until_accepted(X, V3).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V3),
        starts: &[(V1, 10), (V2, 4), (V3, 10)],
    },
    Story {
        name: "frozen, scaled and fixed",
        act: |world| {
            async move {
                world.until_frozen_at_the_second_step().await;
                for (replicas, canary) in [(12, 4), (8, 4), (0, 0), (10, 4), (3, 3), (10, 3)] {
                    world.scale(X, replicas);
                    world.until_numbers(X, canary, replicas - canary).await;
                }
                world.apply(X, 10, V3);
                world.until_accepted(X, V3).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V3),
        starts: &[(V1, 25), (V2, 8), (V3, 10)],
    },
    Story {
        name: "frozen and cancelled",
        act: |world| {
            async move {
                world.until_frozen_at_the_second_step().await;
                world.apply(X, 10, V1);
                world.until("closed", |world| world.is_at_rest(X)).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V1),
        starts: &[(V1, 14), (V2, 4)],
    },
    Story {
        name: "a fix that is fixed in its turn",
        act: |world| {
            async move {
                world
                    .cluster
                    .turn_pods(NAMESPACE, V3, Behaviour::NeverReady);
                world.until_frozen_at_the_second_step().await;
                world.apply(X, 10, V3);
                world.until_frozen(X, V3).await;
                world.scale(X, 12);
                world.until_numbers(X, 4, 8).await;
                world.apply(X, 12, V4);
                world.until_accepted(X, V4).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V4),
        starts: &[(V1, 12), (V2, 4), (V3, 1), (V4, 12)],
    },
    Story {
        name: "a fix overtaken by another",
        act: |world| {
            async move {
                world.until_frozen_at_the_second_step().await;
                world.apply(X, 10, V3);
                world
                    .until("a pod of the fix", |world| world.starts().contains_key(V3))
                    .await;
                world.apply(X, 10, V4);
                world.until_accepted(X, V4).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V4),
        starts: &[],
    },
    Story {
        name: "frozen before the first pod is ready",
        act: |world| {
            async move {
                world
                    .cluster
                    .turn_pods(NAMESPACE, V2, Behaviour::NeverReady);
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_frozen(X, V2).await;
                // The primary goes on standing in for pods that are not available.
                world.until_stable(Duration::from_secs(600)).await;
                world.check_numbers(X, 2, 10);
                world.apply(X, 10, V3);
                world.until_accepted(X, V3).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V3),
        starts: &[(V1, 10), (V2, 2), (V3, 10)],
    },
    Story {
        name: "frozen pods deleted by hand",
        act: |world| {
            async move {
                world.until_frozen_at_the_second_step().await;
                let pods: Vec<String> = world.cluster.look(|now| {
                    now.list(Kind::Pod, NAMESPACE)
                        .filter(|pod| pod.image() == V2)
                        .map(|pod| pod.name().to_owned())
                        .collect()
                });
                for pod in pods {
                    world.delete(Kind::Pod, &pod);
                }
                world.until_numbers(X, 4, 6).await;
                world.apply(X, 10, V3);
                world.until_accepted(X, V3).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V3),
        starts: &[(V1, 10), (V2, 8), (V3, 10)],
    },
    Story {
        name: "a fix that hangs is aborted",
        act: |world| {
            async move {
                world.until_frozen_at_the_second_step().await;
                world
                    .cluster
                    .turn_pods(NAMESPACE, V3, Behaviour::NeverReady);
                world.apply(X, 10, V3);
                world
                    .until("both versions on the canary", |world| {
                        starts(world).contains_key(V3)
                    })
                    .await;
                tokio::time::sleep(Duration::from_secs(5)).await;
                world.command("abort");
                world.until("aborted", |world| world.is_at_rest(X)).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V1),
        starts: &[],
    },
    Story {
        name: "restored, and put back every ten seconds",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.gauges.set(V2, Gauge::Bad);
                world.apply(X, 10, V2);
                world.until_rejected(X, V2).await;
                world
                    .until("restored", |world| {
                        let x = world.object(Kind::Deployment, X);
                        x.is_some_and(|x| x.image() == V1)
                    })
                    .await;
                for _ in 0..30 {
                    world.apply(X, 10, V2);
                    tokio::time::sleep(Duration::from_secs(10)).await;
                    if world.object(Kind::Deployment, X).unwrap().image() != V2 {
                        world.fail("X was restored more than once");
                    }
                }
            }
            .boxed_local()
        },
        end: End::AtRest(V1),
        starts: &[(V1, 12), (V2, 2)],
    },
    Story {
        name: "capped: promoted",
        act: roll_out,
        end: End::AtRest(V2),
        starts: &[(V1, 10), (V2, 10)],
    },
    Story {
        name: "capped: fails at the second step",
        act: |world| {
            async move {
                world.slow_to_end(V2, Duration::from_secs(20));
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 4).await;
                world.gauges.set(V2, Gauge::Bad);
                world.until_rejected(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V1),
        starts: &[(V1, 14), (V2, 4)],
    },
    Story {
        name: "capped: superseded in the second step",
        act: overtake,
        end: End::AtRest(V3),
        starts: &[(V1, 14), (V2, 4), (V3, 10)],
    },
    Story {
        name: "capped: scaled to zero and back",
        act: |world| {
            async move {
                world.slow_to_end(V1, Duration::from_secs(25));
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 4).await;
                world.scale(X, 0);
                tokio::time::sleep(Duration::from_secs(5)).await;
                world.scale(X, 10);
                world.until_accepted(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V2),
        starts: &[],
    },
    Story {
        name: "capped: pods that take longer to end than abort",
        act: |world| {
            async move {
                world.slow_to_end(V1, Duration::from_secs(30));
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_accepted(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V2),
        starts: &[(V1, 10), (V2, 10)],
    },
    Story {
        name: "capped: scaled up and down on the way",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 2).await;
                world.scale(X, 14);
                tokio::time::sleep(Duration::from_secs(90)).await;
                world.scale(X, 7);
                world.until_accepted(X, V2).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V2),
        starts: &[],
    },
    Story {
        name: "one at a time",
        act: roll_out,
        end: End::AtRest(V2),
        starts: &[(V1, 10), (V2, 10)],
    },
    Story {
        name: "two more and one fewer",
        act: roll_out,
        end: End::AtRest(V2),
        starts: &[(V1, 10), (V2, 10)],
    },
    Story {
        name: "two more and one fewer: cancelled",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 4).await;
                world.apply(X, 10, V1);
                world.until("closed", |world| world.is_at_rest(X)).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V1),
        starts: &[(V1, 14), (V2, 4)],
    },
    Story {
        name: "one more at a time: superseded",
        act: overtake,
        end: End::AtRest(V3),
        starts: &[(V1, 14), (V2, 4), (V3, 10)],
    },
    Story {
        name: "the rest at once: superseded on the way",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world
                    .until("the last step", |world| {
                        world.state(X).is_some_and(
                            |state| matches!(state.phase, Phase::Finishing { step, .. } if step.canary.0 == 10),
                        )
                    })
                    .await;
                tokio::time::sleep(Duration::from_millis(500)).await;
                world.apply(X, 10, V3);
                world.until_accepted(X, V3).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V3),
        starts: &[],
    },
    Story {
        name: "deleted and made again in the second step",
        act: |world| {
            async move {
                world.until_registered(X).await;
                world.apply(X, 10, V2);
                world.until_step(X, 4).await;
                world.delete(Kind::Deployment, X);
                tokio::time::sleep(Duration::from_secs(1)).await;
                world.apply(X, 10, V3);
                world.until_registered(X).await;
            }
            .boxed_local()
        },
        end: End::AtRest(V3),
        starts: &[],
    },
];

fn roll_out(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        world.until_registered(X).await;
        world.apply(X, 10, V2);
        world.until_accepted(X, V2).await;
    }
    .boxed_local()
}

fn overtake(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        world.until_registered(X).await;
        world.apply(X, 10, V2);
        world.until_step(X, 4).await;
        world.apply(X, 10, V3);
        world.until_accepted(X, V3).await;
    }
    .boxed_local()
}

/// The weathers of every story: none, and each lag by itself.
pub fn weathers() -> Vec<(&'static str, Weather)> {
    let late = Lag::of(Duration::from_millis(500));
    let daemon = Lag {
        fixed: Duration::from_secs(1),
        jitter: Duration::from_secs(1),
    };
    let of = |controllers: Lags, daemon: Lags| Weather {
        seed: 1,
        controllers,
        daemon,
    };
    let none = Lags::default();
    vec![
        ("no lag", of(none, none)),
        (
            "Deployments late",
            of(
                Lags {
                    deployments: late,
                    ..none
                },
                none,
            ),
        ),
        (
            "ReplicaSets late",
            of(
                Lags {
                    replica_sets: late,
                    ..none
                },
                none,
            ),
        ),
        ("the daemon's watches late", of(none, Lags::all(daemon))),
    ]
}

impl Story {
    /// Tells the story from its beginning; returns the world after it.
    pub async fn tell(&self, weather: &Weather, deaths: Deaths) -> World {
        let world = self.begin(weather, deaths).await;
        self.go_on(&world).await;
        world
    }

    /// X with its history, before the daemon is started.
    pub async fn begin(&self, weather: &Weather, deaths: Deaths) -> World {
        let limits = WITHIN_LIMITS.iter().find(|(name, _)| *name == self.name);
        let limits = limits.map_or(Limits::default(), |(_, limits)| *limits);
        let world = World::within(limits, weather, deaths);
        world.note(self.name);
        if RESTORING.contains(&self.name) {
            world.restore_original();
        }
        if FORWARD_ONLY.contains(&self.name) {
            world.on_failure(OnFailure::Freeze);
        }
        // Two older versions: X has a history.
        for (replicas, image) in [(1, "orders:v-1"), (1, "orders:v0"), (10, V1)] {
            world.with_x(replicas, image).await;
        }
        world
    }

    /// Starts the daemon and lets the story happen; checks its end.
    pub async fn go_on(&self, world: &World) {
        world.start_daemon();
        (self.act)(world).await;
        world.until_stable(Duration::from_secs(3600)).await;
        match self.end {
            End::AtRest(image) => world.check_at_rest(X, image),
            End::Released(image) => {
                let x = world.object(Kind::Deployment, X).unwrap();
                if x.is_set("/spec/paused") || world.state(X).is_some() {
                    world.fail("X was not given back");
                }
                if x.condition(CONDITION).is_some() {
                    world.fail("a condition is left on X");
                }
                if x.image() != image || x.status("updatedReplicas") != 10 {
                    world.fail("X does not run what it should");
                }
            }
        }
    }

    pub fn by_name(name: &str) -> &'static Self {
        STORIES.iter().find(|story| story.name == name).unwrap()
    }
}

/// Pods started of the versions of the story, the older ones of X's history left out.
pub fn starts(world: &World) -> BTreeMap<String, usize> {
    let mut starts = world.starts();
    starts.retain(|image, _| !matches!(image.as_str(), "orders:v-1" | "orders:v0"));
    starts
}

fn told_in_every_weather(name: &str) {
    let story = Story::by_name(name);
    for (weather_name, weather) in weathers() {
        in_virtual_time(|| async {
            println!("{name}, {weather_name}");
            let world = story.tell(&weather, Deaths::new()).await;
            let expected: BTreeMap<String, usize> = story
                .starts
                .iter()
                .map(|(image, count)| ((*image).to_owned(), *count))
                .collect();
            if !expected.is_empty() && starts(&world) != expected {
                world.fail(&format!(
                    "pods started: {:?}, expected {expected:?}",
                    starts(&world)
                ));
            }
        });
    }
}

/// Calls a macro with every story: a name for its tests, and its own.
macro_rules! for_every_story {
    ($then:ident) => {
        $then! {
            registered_with_history: "registered with history",
            promoted: "promoted",
            fails_at_the_second_step: "fails at the second step",
            crash_loop: "crash loop",
            never_ready: "never ready",
            superseded_in_the_second_step: "superseded in the second step",
            cancelled_in_the_second_step: "cancelled in the second step",
            scaled_up_in_the_second_step: "scaled up in the second step",
            scaled_down_in_the_second_step: "scaled down in the second step",
            scaled_to_zero_and_back_in_the_second_step: "scaled to zero and back in the second step",
            released_at_rest: "released at rest",
            leaves_the_configuration_in_the_second_step: "leaves the configuration in the second step",
            a_candidate_waits_for_replicas: "a candidate waits for replicas",
            forward_back_and_forward_again: "forward, back and forward again",
            two_services: "two services",
            resumed_at_rest: "resumed at rest",
            resumed_in_the_second_step: "resumed in the second step",
            canary_deleted_by_hand: "canary deleted by hand",
            primary_deleted_by_hand: "primary deleted by hand",
            state_object_deleted_at_rest: "state object deleted at rest",
            frozen_at_the_second_step_and_fixed: "frozen at the second step and fixed",
            frozen_scaled_and_fixed: "frozen, scaled and fixed",
            frozen_and_cancelled: "frozen and cancelled",
            a_fix_that_is_fixed_in_its_turn: "a fix that is fixed in its turn",
            a_fix_overtaken_by_another: "a fix overtaken by another",
            frozen_before_the_first_pod_is_ready: "frozen before the first pod is ready",
            frozen_pods_deleted_by_hand: "frozen pods deleted by hand",
            a_fix_that_hangs_is_aborted: "a fix that hangs is aborted",
            restored_and_put_back_every_ten_seconds: "restored, and put back every ten seconds",
            capped_promoted: "capped: promoted",
            capped_fails_at_the_second_step: "capped: fails at the second step",
            capped_superseded_in_the_second_step: "capped: superseded in the second step",
            capped_scaled_to_zero_and_back: "capped: scaled to zero and back",
            capped_pods_that_take_longer_to_end_than_abort: "capped: pods that take longer to end than abort",
            capped_scaled_up_and_down_on_the_way: "capped: scaled up and down on the way",
            one_at_a_time: "one at a time",
            two_more_and_one_fewer: "two more and one fewer",
            two_more_and_one_fewer_cancelled: "two more and one fewer: cancelled",
            one_more_at_a_time_superseded: "one more at a time: superseded",
            the_rest_at_once_superseded_on_the_way: "the rest at once: superseded on the way",
            deleted_and_made_again_in_the_second_step: "deleted and made again in the second step",
        }
    };
}
pub(crate) use for_every_story;

macro_rules! stories {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                told_in_every_weather($name);
            }
        )*

        #[test]
        fn every_story_has_a_test() {
            let tested = [$($name),*];
            for story in STORIES {
                assert!(tested.contains(&story.name), "{}", story.name);
            }
        }
    };
}

for_every_story!(stories);
