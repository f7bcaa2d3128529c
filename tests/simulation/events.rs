//! What people see with kubectl: Events and a condition on X.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use volery::cluster::CONDITION;
use volery::simulate::cluster::{Fault, Kind, Refusal, Request};

use super::stories::{Story, V2, weathers};
use super::world::{AGENT, Deaths, World, X, Y, in_virtual_time};

/// What a story came to, for people.
fn shown(world: &World) -> String {
    let mut text = String::new();
    let x = world.object(Kind::Deployment, X).unwrap();
    match x.condition(CONDITION) {
        Some(condition) => {
            let of = |member: &str| condition[member].as_str().unwrap_or_default().to_owned();
            let (status, reason, message) = (of("status"), of("reason"), of("message"));
            let _ = writeln!(text, "{CONDITION}={status} {reason}: {message}\n");
        }
        None => text.push_str("no condition\n\n"),
    }
    let mut events = world.events();
    events.sort_by_key(|event| event.revision);
    for event in events {
        let count = match event.count {
            1 => String::new(),
            count => format!(" (x{count})"),
        };
        let _ = writeln!(
            text,
            "{} {} {}{count}: {}",
            event.about, event.tone, event.reason, event.message
        );
    }
    text
}

/// What a story came to.
fn told(name: &str) -> String {
    let found: Arc<Mutex<String>> = Arc::default();
    in_virtual_time(|| async {
        let story = Story::by_name(name);
        let world = story.tell(&weathers()[0].1, Deaths::new()).await;
        *found.lock().unwrap() = shown(&world);
    });
    let found = found.lock().unwrap();
    found.clone()
}

#[test]
fn a_promoted_rollout() {
    insta::assert_snapshot!(told("promoted"));
}

#[test]
fn a_rollout_that_fails() {
    insta::assert_snapshot!(told("fails at the second step"));
}

#[test]
fn a_version_that_comes_again_is_counted() {
    insta::assert_snapshot!(told("forward, back and forward again"));
}

#[test]
fn given_back() {
    insta::assert_snapshot!(told("leaves the configuration in the second step"));
}

/// What the daemon did, one after the other, and when it was done.
fn deeds(world: &World) -> (Vec<String>, Duration) {
    world.cluster.read_journal(|journal| {
        let deeds: Vec<_> = journal
            .writes_by(AGENT)
            .filter(|write| !write.only_tells())
            .collect();
        let line = |write: &&Request| {
            format!(
                "{} {} {}",
                write.verb.name(),
                write.kind.plural(),
                write.name
            )
        };
        let last = deeds.last().map_or(Duration::ZERO, |write| write.at);
        (deeds.iter().map(line).collect(), last)
    })
}

#[test]
fn who_cannot_tell_does_the_same_in_the_same_time() {
    for name in ["promoted", "fails at the second step"] {
        let found = Arc::new(Mutex::new(Vec::<(Vec<String>, Duration)>::new()));
        for fault in [None, Some(Fault::Hang), Some(Fault::Break)] {
            in_virtual_time(|| async {
                let story = Story::by_name(name);
                let world = story.begin(&weathers()[0].1, Deaths::new()).await;
                if let Some(fault) = fault {
                    world.cluster.intercept(move |request| {
                        if request.agent == AGENT && request.only_tells() {
                            fault.clone()
                        } else {
                            Fault::None
                        }
                    });
                }
                world.start_daemon();
                (story.act)(&world).await;
                world.cluster.settle(Duration::from_secs(3600)).await;
                world.check_promises();
                found.lock().unwrap().push(deeds(&world));
            });
        }
        let found = found.lock().unwrap();
        for other in &found[1..] {
            assert_eq!(found[0].0, other.0, "{name}");
            let apart = found[0].1.abs_diff(other.1);
            assert!(
                apart < Duration::from_millis(100),
                "{name}: {apart:?} apart"
            );
        }
    }
}

#[test]
fn a_restart_at_rest_writes_nothing_and_neither_does_an_autoscaler() {
    for name in ["promoted", "fails at the second step"] {
        in_virtual_time(|| async {
            let story = Story::by_name(name);
            let world = story.tell(&weathers()[0].1, Deaths::new()).await;
            let writes = world.writes().0;
            for replicas in [12, 7, 10] {
                world.kill_daemon(Duration::from_secs(5));
                world.scale(X, replicas);
                tokio::time::sleep(Duration::from_secs(600)).await;
            }
            if world.writes().0 != writes {
                world.fail("the daemon wrote although nothing happened");
            }
        });
    }
}

#[test]
fn who_may_not_write_conditions_asks_seldom_and_gives_back_all_the_same() {
    in_virtual_time(|| async {
        let story = Story::by_name("released at rest");
        let world = story.begin(&weathers()[0].1, Deaths::new()).await;
        let refused: Arc<Mutex<u32>> = Arc::default();
        let counting = refused.clone();
        world.cluster.intercept(move |request| {
            if request.agent == AGENT && request.only_tells() && request.kind == Kind::Deployment {
                *counting.lock().unwrap() += 1;
                return Fault::Refuse(Refusal::forbidden(request.kind, &request.name));
            }
            Fault::None
        });
        world.start_daemon();
        world.until_registered(X).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let asked = *refused.lock().unwrap();
        assert!((1..40).contains(&asked), "asked {asked} times in an hour");
        world.configure(&[Y]);
        world
            .until("released", |world| world.state(X).is_none())
            .await;
    });
}

#[test]
fn a_condition_that_somebody_takes_away_comes_back_without_a_fight() {
    in_virtual_time(|| async {
        let story = Story::by_name("promoted");
        let world = story.tell(&weathers()[0].1, Deaths::new()).await;
        let writes = world.writes().0;
        for _ in 0..30 {
            let patch = serde_json::json!({"status": {"conditions": [{"type": CONDITION, "$patch": "delete"}]}});
            world.patch_status(X, patch).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(Duration::from_secs(120)).await;
        world.check_at_rest(X, V2);
        let written = world.writes().0 - writes;
        assert!((1..=3).contains(&written), "written {written} times");
    });
}
