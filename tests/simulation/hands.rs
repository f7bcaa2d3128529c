//! People and autoscalers that set the clones' numbers (cases K19, K36, K37).

use std::time::Duration;

use serde_json::json;
use volery::simulate::cluster::{Fault, Kind, Refusal};

use super::stories::{V1, V2, weathers};
use super::world::{AGENT, Deaths, NAMESPACE, Told, World, X, in_virtual_time};

/// What was told for this reason.
fn told(world: &World, reason: &str) -> Vec<Told> {
    let mut events = world.events();
    events.retain(|event| event.reason == reason);
    events
}

fn lines(world: &World, text: &str) -> usize {
    let lines = world.log.lines();
    lines.iter().filter(|(_, line)| line.contains(text)).count()
}

#[test]
fn a_number_set_by_hand_is_set_back_and_told_once_in_a_rollout() {
    for (name, weather) in weathers() {
        in_virtual_time(|| async {
            let world = World::new(&weather, Deaths::new());
            world.with_x(10, V1).await;
            world.start_daemon();
            world.until_registered(X).await;
            // One who insists, as an autoscaler would.
            world.apply(X, 10, V2);
            world.until_step(X, 4).await;
            for replicas in [9, 7, 9] {
                world.hands_in_it(Duration::from_secs(60));
                world.scale("orders-primary", replicas);
                world.until_step(X, 4).await;
            }
            world.until_accepted(X, V2).await;
            world.until_stable(Duration::from_secs(600)).await;
            let events = told(&world, "NumberSetBack");
            assert_eq!(events.len(), 1, "{name}: {events:?}");
            assert_eq!(
                (events[0].tone.as_str(), events[0].about.as_str()),
                ("Warning", X)
            );
            for word in [
                "orders-primary was set to 9 by user",
                "volery hold orders",
                "volery abort orders",
            ] {
                assert!(events[0].message.contains(word), "{name}: {events:?}");
            }
            assert_eq!(lines(&world, "is set back"), 1, "{name}");
        });
    }
}

#[test]
fn what_follows_r_is_nobodys_hand_also_after_a_crash() {
    in_virtual_time(|| async {
        let world = World::new(&weathers()[0].1, Deaths::new());
        world.with_x(10, V1).await;
        world.start_daemon();
        world.until_registered(X).await;
        world.apply(X, 10, V2);
        world.until_step(X, 2).await;
        world.scale(X, 14);
        world.kill_daemon(Duration::from_secs(5));
        world.until_step(X, 5).await;
        world.scale(X, 6);
        world.until_accepted(X, V2).await;
        world.until_stable(Duration::from_secs(600)).await;
        assert_eq!(told(&world, "NumberSetBack"), Vec::new());
    });
}

/// Has an autoscaler target something.
fn autoscaler(world: &World, name: &str, target: &str) {
    let manifest = json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "maxReplicas": 10,
        },
    });
    world.cluster.create(&manifest).unwrap();
}

/// How often autoscalers were asked for.
fn looks(world: &World) -> usize {
    world.cluster.read_journal(|journal| {
        let requests = journal.requests.iter();
        requests
            .filter(|request| request.agent == AGENT && request.kind == Kind::Autoscaler)
            .count()
    })
}

#[test]
fn autoscalers_in_the_way_are_told_at_registering_and_when_a_rollout_opens() {
    in_virtual_time(|| async {
        let world = World::new(&weathers()[0].1, Deaths::new());
        world.with_x(10, V1).await;
        autoscaler(&world, "one", X);
        autoscaler(&world, "other", "invoices");
        world.start_daemon();
        world.until_registered(X).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(looks(&world), 1);
        autoscaler(&world, "two", "orders-canary");
        world.apply(X, 10, V2);
        world.until_accepted(X, V2).await;
        world.until_stable(Duration::from_secs(600)).await;
        assert_eq!(looks(&world), 2);
        for (reason, text) in [
            (
                "AutoscalerOfClone",
                "HorizontalPodAutoscaler two targets orders-canary",
            ),
            (
                "AutoscalersOfSamePods",
                "HorizontalPodAutoscalers one and two count the same pods",
            ),
        ] {
            let events = told(&world, reason);
            assert_eq!(events.len(), 1, "{events:?}");
            assert_eq!(events[0].tone, "Warning");
            assert!(events[0].message.contains(text), "{events:?}");
            assert_eq!(lines(&world, text), 1);
        }
    });
}

#[test]
fn who_may_not_look_at_autoscalers_rolls_out_all_the_same() {
    in_virtual_time(|| async {
        let world = World::new(&weathers()[0].1, Deaths::new());
        world.with_x(10, V1).await;
        autoscaler(&world, "one", "orders-canary");
        world.cluster.intercept(|request| {
            if request.agent == AGENT && request.kind == Kind::Autoscaler {
                return Fault::Refuse(Refusal::forbidden(request.kind, &request.name));
            }
            Fault::None
        });
        world.start_daemon();
        world.until_registered(X).await;
        world.apply(X, 10, V2);
        world.until_accepted(X, V2).await;
        world.until_stable(Duration::from_secs(600)).await;
        assert_eq!(looks(&world), 2);
        assert_eq!(lines(&world, "autoscaler"), 0, "a line of debugging only");
    });
}
