//! The file changes while the daemon runs (cases K46, K49).

use std::time::Duration;

use tokio::time::sleep;
use volery::rollout::command::{Leave, Verb};
use volery::rollout::state::{Phase, Step};
use volery::simulate::cluster::Kind;
use volery::telemetry::reloads::Reload;

use super::gauges::{EXPRESSION, Gauge};
use super::limits::Limits;
use super::orders::{at_step, done, registered, told};
use super::stories::{V1, V2, V3, starts};
use super::world::{AGENT, Deaths, Weather, World, X, Y, text_of};

/// More than it takes to do anything about what was read.
const A_MOMENT: Duration = Duration::from_secs(3);

const ABSENT: &str =
    "orders: no longer in the configuration: given back in 1m, unless it is there again by then";
const STAYS: &str = "orders: in the configuration again: it is not given back";

/// The file with both services.
fn text() -> String {
    text_of(&[X, Y], Limits::default())
}

/// The same with something else in the entry of X, which is the first.
fn with_x_saying(from: &str, to: &str) -> String {
    let edited = text().replacen(from, to, 1);
    assert_ne!(edited, text(), "{from:?} is not in it");
    edited
}

fn without_x() -> String {
    text_of(&[Y], Limits::default())
}

fn step(world: &World) -> Step {
    match world.state(X).map(|state| state.phase) {
        Some(Phase::Stepping { step, .. }) => step,
        other => world.fail(&format!("it is in {other:?}")),
    }
}

/// How often the daemon has written Deployments.
fn deployment_writes(world: &World) -> usize {
    world.cluster.read_journal(|journal| {
        let writes = journal.writes.iter();
        let deployments = writes.filter(|write| {
            write.agent == AGENT && write.kind == Kind::Deployment && !write.only_tells()
        });
        deployments.count()
    })
}

async fn is_promoted(world: &World) {
    world.until_accepted(X, V2).await;
    world.until_stable(Duration::from_secs(3600)).await;
    world.check_at_rest(X, V2);
}

/// Case K46: the other run.
#[test]
fn a_breakpoint_now_below_the_canary_counts_as_reached() {
    told(async || {
        let world = at_step(2).await;
        world.write(&with_x_saying("breakpoint: 50%", "breakpoint: 20%"));
        world.until_accepted(X, V2).await;
        assert_eq!(
            world.lines_with("orders: configuration: "),
            ["INFO orders: configuration: breakpoint 50% -> 20%"]
        );
        assert!(
            world.lines_with("step 2/").is_empty(),
            "one checked step was enough"
        );
        assert_eq!(starts(&world).get(V2), Some(&10));
    });
}

#[test]
fn numbers_change_from_the_next_decision_on_and_the_open_step_keeps_its_place() {
    told(async || {
        let world = at_step(4).await;
        world
            .until("one check", |world| {
                step(world).checks.elapsed.duration() > Duration::ZERO
            })
            .await;
        let (before, writes) = (step(&world), deployment_writes(&world));
        world.write(&with_x_saying("step: 20%", "step: 10%"));
        sleep(A_MOMENT).await;
        let after = step(&world);
        assert_eq!((after.number, after.canary), (before.number, before.canary));
        assert!(
            after.checks.elapsed >= before.checks.elapsed,
            "{before:?}, {after:?}"
        );
        assert_eq!(deployment_writes(&world), writes);
        // At the breakpoint of five there was one pod to go in either case; past it the steps are smaller now.
        world
            .until_line("orders: finishing: to canary 6, primary 4")
            .await;
        is_promoted(&world).await;
        assert_eq!(starts(&world).get(V2), Some(&10));
    });
}

#[test]
fn expressions_change_from_the_next_check_on() {
    told(async || {
        let world = registered().await;
        world.gauges.set(V2, Gauge::Erroring);
        world.apply(X, 10, V2);
        world
            .until_line("orders: step 1/3: check inconclusive")
            .await;
        world.write(&with_x_saying(
            &format!("success:\n    - expr: {EXPRESSION}\n"),
            "success: []\n",
        ));
        world.until_accepted(X, V2).await;
        assert_eq!(
            world.lines_with("orders: configuration: "),
            ["INFO orders: configuration: expression 1 removed"]
        );
    });
}

/// Case K46.
#[test]
fn an_entry_removed_for_a_minute_is_given_back_and_its_rollout_cancelled_first() {
    told(async || {
        let world = at_step(4).await;
        world.gauges.set(V2, Gauge::Erroring);
        let writes = deployment_writes(&world);
        world.write(&without_x());
        sleep(Duration::from_secs(55)).await;
        assert_eq!(
            deployment_writes(&world),
            writes,
            "it was not absent for long enough"
        );
        assert_eq!(world.lines_with(ABSENT).len(), 1);
        world
            .until_line("orders: blocked: to be released, but orders's template is not the accepted version")
            .await;
        assert_eq!(world.accepted(X).as_deref(), Some(V1));
        world.apply(X, 10, V1);
        world.until_line("orders: released: un-paused").await;
        world.cluster.settle(Duration::from_secs(120)).await;
        assert!(world.object(Kind::PodTemplate, "orders-volery").is_none());
        assert_eq!(starts(&world).get(V2), Some(&4));
        world.check_promises();

        // As soon as it is in the file again it is a service like any other.
        world.write(&text());
        world.until_registered(X).await;
        assert_eq!(world.lines_with("orders: configuration: added").len(), 1);
    });
}

#[test]
fn an_entry_that_is_back_within_a_minute_was_never_gone() {
    told(async || {
        let world = at_step(4).await;
        world.write(&without_x());
        sleep(Duration::from_secs(50)).await;
        world.write(&with_x_saying("abort: 60s", "abort: 90s"));
        sleep(A_MOMENT).await;
        assert_eq!(world.lines_with(ABSENT).len(), 1);
        assert_eq!(world.lines_with(STAYS).len(), 1);
        assert_eq!(
            world.lines_with("orders: configuration: "),
            ["INFO orders: configuration: abort 1m -> 1m30s"]
        );
        is_promoted(&world).await;
        assert_eq!(starts(&world).get(V2), Some(&10));
    });
}

/// Its time begins anew: only a file that is right says that something is absent.
#[test]
fn a_file_that_is_not_completely_valid_gives_nothing_back() {
    told(async || {
        let world = registered().await;
        world.write(&without_x());
        sleep(Duration::from_secs(30)).await;
        for doubtful in [without_x() + "more: {}\n", String::new()] {
            world.write(&doubtful);
            sleep(Duration::from_secs(600)).await;
            assert!(world.is_at_rest(X), "{doubtful:?}");
        }
        world.write(&without_x());
        sleep(Duration::from_secs(50)).await;
        assert!(world.is_at_rest(X));
        world.until_line("orders: released: un-paused").await;
        assert!(
            world.lines_with(STAYS).is_empty(),
            "it never was there again"
        );
    });
}

/// What is being given back when its entry returns is taken on again, before the end and after it.
#[test]
fn an_entry_that_is_back_at_any_moment_of_being_given_back_is_registered() {
    for late in (0..1000).step_by(40) {
        told(async || {
            let world = registered().await;
            world.write(&without_x());
            sleep(Duration::from_mins(1) + Duration::from_millis(late)).await;
            world.write(&text());
            sleep(Duration::from_mins(1)).await;
            world.until_stable(Duration::from_secs(3600)).await;
            world.check_at_rest(X, V1);
        });
    }
}

#[test]
fn what_an_order_has_given_back_stays_so_until_the_file_has_been_without_it() {
    told(async || {
        let world = registered().await;
        done(&world, Verb::Release(Leave::Accepted)).await;
        world.until_line("orders: released: un-paused").await;
        let is_registered = || world.object(Kind::PodTemplate, "orders-volery").is_some();
        world.write(&with_x_saying("step: 20%", "step: 10%"));
        sleep(Duration::from_mins(5)).await;
        assert!(
            !is_registered(),
            "an edit of something else takes nothing on again"
        );
        world.write(&without_x());
        sleep(A_MOMENT).await;
        assert!(
            world.lines_with(ABSENT).is_empty(),
            "it is nobody's any more"
        );
        world.write(&text());
        world.until_registered(X).await;
    });
}

/// Case K49, with the rollout of one service open.
#[test]
fn one_bad_entry_among_a_hundred_keeps_its_old_values_and_the_others_follow() {
    told(async || {
        let world = at_step(4).await;
        let crowd: Vec<String> = (0..98).map(|number| format!("worker-{number}")).collect();
        let mut services = vec![X, Y];
        services.extend(crowd.iter().map(String::as_str));
        let hundred = text_of(&services, Limits::default());
        world.write(&hundred);
        sleep(A_MOMENT).await;
        let writes = deployment_writes(&world);
        let bad = hundred
            .replace("start_delay: 5s", "start_delay: 6s")
            .replacen("step: 20%", "stepp: 10%", 1);
        world.write(&bad);
        sleep(A_MOMENT).await;
        world.write(&format!(
            "# The same is wrong, one line further down.\n{bad}"
        ));
        sleep(A_MOMENT).await;
        assert_eq!(deployment_writes(&world), writes);
        assert_eq!(
            world
                .lines_with("configuration: start_delay 5s -> 6s")
                .len(),
            99,
            "all but X have their new value"
        );
        assert_eq!(
            world.lines_with("orders: configuration: "),
            [
                "WARN orders: configuration: the entry cannot be used, it stays as it was: orders.stepp: unknown key; did \
              you mean \"step\"?"
            ]
        );
        let events: Vec<_> = world
            .events()
            .into_iter()
            .filter(|event| event.reason == "ConfigRejected")
            .map(|event| (event.about, event.tone, event.count))
            .collect();
        assert_eq!(events, [(X.to_owned(), "Warning".to_owned(), 1)]);
        assert_eq!(world.reloads().last(), Some(Reload::InPart));
        is_promoted(&world).await;
        assert_eq!(starts(&world).get(V2), Some(&10));

        world.write(&hundred);
        sleep(A_MOMENT).await;
        assert_eq!(
            world
                .lines_with("orders: configuration: the entry can be used again, nothing changes")
                .len(),
            1
        );
        assert_eq!(world.reloads().last(), Some(Reload::Applied));
    });
}

/// Case K49: its list, during a rollout.
#[test]
fn a_file_that_is_bad_changes_nothing_and_says_why_once() {
    told(async || {
        let world = at_step(4).await;
        let (at, writes) = (step(&world).number, deployment_writes(&world));
        let cut = |at: &str| text().split_once(at).unwrap().0.to_owned();
        let no_service = "namespace: workers\n".to_owned();
        let twice = text() + &text_of(&[X], Limits::default()).replace("namespace: workers\n", "");
        for (bad, line, outcome) in [
            (
                cut("ep: 20%"),
                "everything stays as it was",
                Reload::Refused,
            ),
            (
                cut("  abort"),
                "orders.abort: this key is required",
                Reload::InPart,
            ),
            (
                with_x_saying("breakpoint", "brekpoint"),
                "orders.brekpoint: unknown key; did you mean \"breakpoint\"?",
                Reload::InPart,
            ),
            (
                with_x_saying("abort: 60s", "abort: 5 minutes"),
                "orders.abort: \"5 minutes\": expected a duration",
                Reload::InPart,
            ),
            (twice, "orders: this key stands twice", Reload::InPart),
            (
                String::new(),
                "volery.yaml:1:1: the file is empty",
                Reload::Refused,
            ),
            (
                no_service,
                "volery.yaml: it names no service, while these are registered: orders; to give all of them back, say \
                 volery release --all",
                Reload::Refused,
            ),
        ] {
            let (before, count) = (world.lines_with(line).len(), world.reloads().of(outcome));
            world.write(&bad);
            sleep(Duration::from_secs(1)).await;
            assert!(
                world.lines_with(line).len() > before,
                "{line}: {:#?}",
                world.lines_with("volery.yaml")
            );
            assert_eq!(world.reloads().of(outcome), count + 1, "{line}");
            assert_eq!(world.reloads().last(), Some(outcome), "{line}");
        }
        assert_eq!(
            (step(&world).number, deployment_writes(&world)),
            (at, writes)
        );
        is_promoted(&world).await;
        assert_eq!(starts(&world).get(V2), Some(&10));
        // It is still said only once, and the file that is right is one line.
        assert_eq!(world.lines_with("it names no service").len(), 1);
        world.write(&text());
        sleep(A_MOMENT).await;
        assert_eq!(
            world
                .lines_with("configuration: the file can be used again")
                .len(),
            2
        );
    });
}

#[test]
fn a_daemon_that_starts_with_a_bad_file_writes_nothing_and_goes_on_when_it_is_right() {
    told(async || {
        let world = World::new(&Weather::default(), Deaths::new());
        world.with_x(10, V1).await;
        world.write("orders: [");
        world.start_daemon();
        sleep(Duration::from_mins(10)).await;
        assert_eq!(
            world
                .lines_with("nothing is done until the file is right")
                .len(),
            1
        );
        let requests = world.cluster.read_journal(|journal| {
            journal
                .writes
                .iter()
                .filter(|write| write.agent == AGENT)
                .count()
        });
        assert_eq!(requests, 0);
        world.write(&text());
        world.until_registered(X).await;
        assert_eq!(world.lines_with("watching 2 services in workers").len(), 1);
        world.check_at_rest(X, V1);
    });
}

#[test]
fn an_entry_that_is_added_is_registered_and_one_of_another_deployment_is_another_service() {
    told(async || {
        let world = World::new(&Weather::default(), Deaths::new());
        world.with_x(3, V1).await;
        world.apply(Y, 3, "invoices:v1");
        world.cluster.settle(Duration::from_secs(120)).await;
        world.write(&text_of(&[X], Limits::default()));
        world.start_daemon();
        world.until_registered(X).await;
        world.write(&text());
        world.until_registered(Y).await;
        assert_eq!(world.lines_with("invoices: configuration: added").len(), 1);

        let other = "deployment: receipts\n  breakpoint";
        world.apply("receipts", 3, "receipts:v1");
        world.write(&with_x_saying("breakpoint", other));
        world.until_registered("receipts").await;
        for line in [
            "orders: configuration: deployment orders -> receipts",
            "orders: Deployment workers/orders is no longer in the configuration: given back in 1m",
            "orders: released: un-paused",
        ] {
            world.until_line(line).await;
        }
        assert!(world.object(Kind::PodTemplate, "orders-volery").is_none());
    });
}

/// What is registered there is looked after, in a namespace of which nothing was known at start.
#[test]
fn a_namespace_that_is_new_in_the_file_is_watched() {
    told(async || {
        let world = registered().await;
        let elsewhere = volery::simulate::cluster::deployment("jobs", "nightly", 2, "nightly:v1");
        world.cluster.apply(&elsewhere).unwrap();
        let entry = text_of(&["nightly"], Limits::default());
        let (_, entry) = entry.split_once("nightly:").unwrap();
        world.write(&format!("{}nightly:\n  namespace: jobs{entry}", text()));
        world.until_line("nightly: at rest: 2 replicas").await;
        let state = world.cluster.look(|now| {
            now.get(Kind::PodTemplate, "jobs", "nightly-volery")
                .cloned()
        });
        assert!(state.is_some());
        // And given back from there, though no entry is left in it.
        world.write(&text());
        world.until_line("nightly: released: un-paused").await;
    });
}

#[test]
fn global_settings_follow_the_file() {
    told(async || {
        let world = registered().await;
        world.apply(Y, 3, "invoices:v1");
        world.until_registered(Y).await;
        world.write(&format!("max-concurrent-rollouts: 1\n{}", text()));
        world.apply(X, 10, V2);
        world.until_step(X, 2).await;
        world.apply(Y, 3, "invoices:v2");
        world.until_line("invoices: waiting for its turn").await;
        world.gauges.set(V2, Gauge::Erroring);
        world.write(&format!(
            "max-concurrent-rollouts: 2\n{}",
            text().replace("poll-interval: 20s", "poll-interval: 10s")
        ));
        world.until_line("invoices: rollout 1: ").await;
        let is_open = world.state(X).is_some_and(|state| state.is_open());
        assert!(is_open, "nothing had to end for it");
        world.until_accepted(Y, "invoices:v2").await;
        assert_eq!(
            world.lines_with(" configuration: "),
            [
                "INFO configuration: max-concurrent-rollouts 20 -> 1",
                "INFO configuration: poll-interval 20s -> 10s, max-concurrent-rollouts 1 -> 2",
            ]
        );
    });
}

/// Every moment of a rollout: the file is bad, lacks the service, and is right again, each for a while.
#[test]
fn whatever_becomes_of_the_file_for_less_than_a_minute_a_rollout_is_promoted_as_ever() {
    for seed in 0..12_u64 {
        told(async || {
            let world = registered().await;
            world.apply(X, 10, V2);
            let mut wait = 1 + seed * 700;
            while world.accepted(X).as_deref() != Some(V2) {
                for file in [
                    without_x(),
                    "orders: {".to_owned(),
                    text() + "x: {}\n",
                    text(),
                ] {
                    world.write(&file);
                    wait = (wait * 7 + 1300) % 14_000;
                    sleep(Duration::from_millis(wait)).await;
                }
            }
            world.until_stable(Duration::from_secs(3600)).await;
            world.check_at_rest(X, V2);
            assert_eq!(starts(&world).get(V2), Some(&10), "seed {seed}");
            assert_eq!(starts(&world).get(V3), None);
        });
    }
}
