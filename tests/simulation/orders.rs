//! What a person orders, given as the command line gives it: each verb in several phases, with the unchanged daemon.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use volery::cluster::{Cluster, NoFence, Scope};
use volery::config::OnFailure;
use volery::operator::{OrderError, Service, TakenBack, give, give_all};
use volery::rollout::command::{Answer, Answered, Leave, Verb};
use volery::rollout::state::{Cause, Motion, Phase};
use volery::simulate::clock;
use volery::simulate::cluster::{Behaviour, Fault, Kind, Object, Request, Verb as ApiVerb};

use super::gauges::Gauge;
use super::stories::{V1, V2, V3, starts};
use super::world::{AGENT, Deaths, NAMESPACE, Weather, World, X, Y, in_virtual_time};

/// Longer than any daemon here is away.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn operator(world: &World) -> Cluster {
    Cluster::new(
        world.cluster.client("operator"),
        clock::start(),
        Arc::new(NoFence),
    )
}

pub fn service(deployment: &str) -> Service {
    Service {
        namespace: NAMESPACE.to_owned(),
        deployment: deployment.to_owned(),
    }
}

async fn order(world: &World, verb: Verb) -> Result<Answer, OrderError> {
    world.note(&format!("orders {verb}"));
    let outcome = give(&operator(world), &service(X), verb, PATIENCE).await;
    world.log.add(format!("USER hears {outcome:?}"));
    outcome
}

/// An order that must be carried out.
pub async fn done(world: &World, verb: Verb) -> String {
    match order(world, verb).await {
        Ok(answer) if answer.outcome == Answered::Done => answer.message,
        other => world.fail(&format!("{verb} came to {other:?}")),
    }
}

/// An order that must be refused.
async fn refused(world: &World, verb: Verb) -> String {
    match order(world, verb).await {
        Ok(answer) if answer.outcome == Answered::Refused => answer.message,
        other => world.fail(&format!("{verb} came to {other:?}")),
    }
}

fn waiting(world: &World) -> Option<String> {
    let object = world.object(Kind::PodTemplate, "orders-volery")?;
    object.annotation("volery.dev/command").map(str::to_owned)
}

fn count(world: &World, image: &str) -> usize {
    starts(world).get(image).copied().unwrap_or_default()
}

fn original(world: &World) -> Object {
    world
        .object(Kind::Deployment, X)
        .unwrap_or_else(|| world.fail("X is gone"))
}

/// Ten pods of v1 with two older versions in the history, registered.
pub async fn registered() -> World {
    let world = World::new(&Weather::default(), Deaths::new());
    for (replicas, image) in [(1, "orders:v-1"), (1, "orders:v0"), (10, V1)] {
        world.with_x(replicas, image).await;
    }
    world.start_daemon();
    world.until_registered(X).await;
    world
}

pub async fn at_step(canary: u32) -> World {
    let world = registered().await;
    world.apply(X, 10, V2);
    world.until_step(X, canary).await;
    world
}

pub async fn rejected() -> World {
    let world = registered().await;
    world.gauges.set(V2, Gauge::Bad);
    world.apply(X, 10, V2);
    world.until_rejected(X, V2).await;
    world
}

/// v2 stands still at (4,6).
pub async fn frozen() -> World {
    let world = World::new(&Weather::default(), Deaths::new());
    world.with_x(10, V1).await;
    world.on_failure(OnFailure::Freeze);
    world.start_daemon();
    world.until_frozen_at_the_second_step().await;
    world
}

async fn ends_at_rest(world: &World, image: &str) {
    world.until_stable(Duration::from_secs(3600)).await;
    world.check_at_rest(X, image);
    assert_eq!(waiting(world), None);
}

pub fn told(test: impl AsyncFnOnce()) {
    in_virtual_time(async || test().await);
}

/// Case K11.
#[test]
fn with_nothing_in_progress_orders_say_so_and_leave_nothing_behind() {
    told(async || {
        let world = registered().await;
        let deployments = |world: &World| {
            world.cluster.read_journal(|journal| {
                let writes = journal.writes_by(AGENT);
                writes
                    .filter(|write| write.kind == Kind::Deployment)
                    .count()
            })
        };
        let before = deployments(&world);
        for verb in [Verb::Abort, Verb::Resume, Verb::Promote] {
            for _ in 0..2 {
                let why = refused(&world, verb).await;
                assert!(why.starts_with("nothing in progress"), "{verb}: {why}");
            }
        }
        assert!(
            refused(&world, Verb::Retry)
                .await
                .contains("nothing to try again")
        );
        assert!(
            refused(&world, Verb::Bypass)
                .await
                .contains("nothing to roll out")
        );
        assert_eq!(deployments(&world), before);
        world.apply(X, 10, V2);
        world.until_accepted(X, V2).await;
        ends_at_rest(&world, V2).await;
        assert_eq!(count(&world, V2), 10);
    });
}

/// Case K27, in the second step.
#[test]
fn abort_in_a_step_goes_back_to_the_accepted_version() {
    told(async || {
        let world = at_step(4).await;
        assert_eq!(
            done(&world, Verb::Abort).await,
            "back to the accepted version"
        );
        world.until_rejected(X, V2).await;
        ends_at_rest(&world, V1).await;
        let rejection = world.state(X).unwrap().rejected.unwrap();
        assert_eq!(rejection.failure.cause, Cause::Aborted);
        assert_eq!(
            starts(&world),
            BTreeMap::from([(V1.to_owned(), 14), (V2.to_owned(), 4)])
        );
        // The rejected template is not the next one.
        world.apply(X, 10, V3);
        world.until_accepted(X, V3).await;
    });
}

/// Case K27, first run.
#[test]
fn abort_while_pods_never_get_ready_works_at_once() {
    told(async || {
        let world = registered().await;
        world
            .cluster
            .turn_pods(NAMESPACE, V2, Behaviour::NeverReady);
        world.apply(X, 10, V2);
        world
            .until("canary pods wait", |world| count(world, V2) == 2)
            .await;
        sleep(Duration::from_secs(5)).await;
        let begun = world.cluster.elapsed();
        done(&world, Verb::Abort).await;
        let scaled = world.cluster.read_journal(|journal| {
            let canary = |name: &str| name == "orders-canary";
            let mut writes = journal.writes_by(AGENT);
            writes
                .find(|write| write.at >= begun && canary(&write.name))
                .map(|write| write.at)
        });
        assert!(
            scaled.is_some_and(|at| at - begun < Duration::from_secs(2)),
            "{scaled:?}"
        );
        world.until_rejected(X, V2).await;
        ends_at_rest(&world, V1).await;
        assert_eq!(count(&world, V1), 10);
    });
}

/// Case K27, second run: all pods are replaced, and the write before the handover is on its way for long.
#[test]
fn abort_past_the_breakpoint_works_until_the_point_of_no_return() {
    told(async || {
        let world = registered().await;
        world.apply(X, 10, V2);
        world
            .until("the last step", |world| {
                let state = world.state(X);
                state.is_some_and(|state| {
                    matches!(state.phase, Phase::Finishing { step, .. } if step.canary.0 == 10)
                })
            })
            .await;
        delay_one(&world, |request| {
            request.kind == Kind::Deployment && request.name == "orders-primary"
        });
        done(&world, Verb::Abort).await;
        world.until_rejected(X, V2).await;
        ends_at_rest(&world, V1).await;
        assert_eq!(count(&world, V2), 10);
    });
}

/// One write of the daemon arrives five seconds late.
fn delay_one(world: &World, which: impl Fn(&Request) -> bool + Send + 'static) {
    let mut armed = true;
    world.cluster.intercept(move |request| {
        let late = request.agent == AGENT && request.verb == ApiVerb::Patch && which(request);
        if late && std::mem::take(&mut armed) {
            Fault::Delay(Duration::from_secs(5))
        } else {
            Fault::None
        }
    });
}

/// Case K27, third run.
#[test]
fn abort_after_the_point_of_no_return_names_undo() {
    told(async || {
        let world = registered().await;
        world.apply(X, 10, V2);
        world.until_step(X, 5).await;
        delay_one(&world, |request| request.kind == Kind::ReplicaSet);
        world
            .until("handing over", |world| {
                let state = world.state(X);
                state.is_some_and(|state| matches!(state.phase, Phase::HandingOver { .. }))
            })
            .await;
        let why = refused(&world, Verb::Abort).await;
        assert!(
            why.contains("too late") && why.contains("volery undo orders"),
            "{why}"
        );
        world.until_accepted(X, V2).await;
        ends_at_rest(&world, V2).await;
    });
}

#[test]
fn promote_skips_the_checks_that_are_left() {
    told(async || {
        let world = at_step(2).await;
        world.gauges.set(V2, Gauge::Bad);
        done(&world, Verb::Promote).await;
        world.until_accepted(X, V2).await;
        ends_at_rest(&world, V2).await;
        assert_eq!(count(&world, V2), 10);
        let why = refused(&world, Verb::Promote).await;
        assert!(why.starts_with("nothing in progress"), "{why}");
    });
}

/// Case K12: availability is never skipped.
#[test]
fn a_promoted_version_whose_pods_never_get_ready_is_rolled_back() {
    told(async || {
        let world = at_step(2).await;
        world
            .cluster
            .turn_pods(NAMESPACE, V2, Behaviour::NeverReady);
        done(&world, Verb::Promote).await;
        world.until_rejected(X, V2).await;
        ends_at_rest(&world, V1).await;
    });
}

/// Case K30.
#[test]
fn promote_accepts_what_waits_for_replicas() {
    told(async || {
        let world = registered().await;
        world.scale(X, 0);
        sleep(Duration::from_secs(60)).await;
        world.set_image(X, V2);
        sleep(Duration::from_secs(60)).await;
        done(&world, Verb::Promote).await;
        world.until_accepted(X, V2).await;
        world.scale(X, 3);
        ends_at_rest(&world, V2).await;
        assert_eq!(
            starts(&world),
            BTreeMap::from([(V1.to_owned(), 10), (V2.to_owned(), 3)])
        );
    });
}

#[test]
fn on_hold_nothing_opens_until_resumed() {
    told(async || {
        let world = registered().await;
        done(&world, Verb::Hold).await;
        assert!(
            refused(&world, Verb::Hold)
                .await
                .contains("on hold already")
        );
        world.apply(X, 10, V2);
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(count(&world, V2), 0);
        // What R asks for is followed.
        world.scale(X, 12);
        sleep(Duration::from_secs(120)).await;
        assert_eq!(count(&world, V1), 12);
        for verb in [
            Verb::Promote,
            Verb::Retry,
            Verb::Bypass,
            Verb::Restart,
            Verb::Undo { to: None },
        ] {
            let why = refused(&world, verb).await;
            assert!(why.contains("on hold"), "{verb}: {why}");
        }
        done(&world, Verb::Resume).await;
        world.until_accepted(X, V2).await;
        ends_at_rest(&world, V2).await;
    });
}

#[test]
fn hold_and_resume_of_all_concern_those_that_stand_otherwise() {
    told(async || {
        let world = World::new(&Weather::default(), Deaths::new());
        world.apply(Y, 4, "invoices:v1");
        world.with_x(10, V1).await;
        world.start_daemon();
        world.until_registered(X).await;
        world.until_registered(Y).await;
        let all = async |scope: &Scope, verb: Verb| -> Vec<String> {
            let cluster = operator(&world);
            let given = give_all(&cluster, scope, verb, PATIENCE).await.unwrap();
            let outcomes = given.into_iter().map(|(service, outcome)| {
                assert_eq!(outcome.unwrap().outcome, Answered::Done, "{service}");
                service.to_string()
            });
            outcomes.collect()
        };
        let here = Scope::Namespace(NAMESPACE.to_owned());
        done(&world, Verb::Hold).await;
        assert_eq!(all(&here, Verb::Hold).await, ["workers/invoices"]);
        assert_eq!(all(&here, Verb::Hold).await, [""; 0]);
        assert_eq!(
            all(&Scope::Namespace("elsewhere".to_owned()), Verb::Resume).await,
            [""; 0]
        );
        assert_eq!(
            all(&Scope::Cluster, Verb::Resume).await,
            ["workers/invoices", "workers/orders"]
        );
        for name in [X, Y] {
            assert_eq!(world.state(name).unwrap().motion, Motion::Free, "{name}");
        }
    });
}

#[test]
fn retry_tries_the_rejected_version_again_from_its_first_step() {
    told(async || {
        let world = rejected().await;
        world.gauges.set(V2, Gauge::Good);
        sleep(Duration::from_secs(600)).await;
        assert_eq!(count(&world, V2), 2);
        done(&world, Verb::Retry).await;
        world.until_accepted(X, V2).await;
        ends_at_rest(&world, V2).await;
        assert_eq!(count(&world, V2), 12);
    });
}

/// Case K29: the three ways out of a freeze that are orders.
#[test]
fn what_is_frozen_is_left_by_an_order() {
    told(async || {
        let world = frozen().await;
        world.gauges.set(V2, Gauge::Good);
        done(&world, Verb::Resume).await;
        world.until_accepted(X, V2).await;
        ends_at_rest(&world, V2).await;
        assert_eq!(count(&world, V2), 10);
    });
    told(async || {
        let world = frozen().await;
        done(&world, Verb::Promote).await;
        world.until_accepted(X, V2).await;
        ends_at_rest(&world, V2).await;
    });
    told(async || {
        let world = frozen().await;
        done(&world, Verb::Abort).await;
        world.until_rejected(X, V2).await;
        ends_at_rest(&world, V1).await;
        assert_eq!(count(&world, V1), 14);
    });
}

/// In the middle of a step.
#[test]
fn on_hold_a_step_stands_still_until_resumed() {
    told(async || {
        let world = at_step(4).await;
        done(&world, Verb::Hold).await;
        world.gauges.set(V2, Gauge::Bad);
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(count(&world, V2), 4);
        assert!(!world.is_at_rest(X));
        world.gauges.set(V2, Gauge::Good);
        done(&world, Verb::Resume).await;
        world.until_accepted(X, V2).await;
        ends_at_rest(&world, V2).await;
        assert_eq!(count(&world, V2), 10);
    });
}

#[test]
fn bypass_rolls_the_rejected_version_out_without_checks() {
    told(async || {
        let world = rejected().await;
        done(&world, Verb::Bypass).await;
        world.until_accepted(X, V2).await;
        ends_at_rest(&world, V2).await;
        assert_eq!(count(&world, V2), 12);
    });
}

#[test]
fn a_bypass_that_fails_is_reported_and_not_tried_again() {
    told(async || {
        let world = rejected().await;
        world
            .cluster
            .turn_pods(NAMESPACE, V2, Behaviour::NeverReady);
        done(&world, Verb::Bypass).await;
        world
            .until("failed", |world| {
                let failed = world.state(X).and_then(|state| state.rejected);
                failed.is_some_and(|failed| failed.failure.cause == Cause::NotAvailable)
            })
            .await;
        ends_at_rest(&world, V1).await;
        assert_eq!(count(&world, V2), 4);
    });
}

#[test]
fn a_version_that_lands_in_a_bypass_is_checked_like_any_other() {
    told(async || {
        let world = rejected().await;
        world.gauges.set(V3, Gauge::Bad);
        done(&world, Verb::Bypass).await;
        world
            .until("the bypass is on its way", |world| count(world, V2) > 4)
            .await;
        world.apply(X, 10, V3);
        world.until_rejected(X, V3).await;
        ends_at_rest(&world, V1).await;
        assert_eq!(count(&world, V3), 2);
    });
}

/// Case K35.
#[test]
fn restart_replaces_every_pod_once_and_is_refused_while_a_rollout_is_open() {
    told(async || {
        let world = registered().await;
        world.gauges.set(V1, Gauge::Bad);
        done(&world, Verb::Restart).await;
        world
            .until("restarted", |world| {
                count(world, V1) == 20 && world.is_at_rest(X)
            })
            .await;
        ends_at_rest(&world, V1).await;
        assert_eq!(count(&world, V1), 20);
        let restarted = original(&world);
        let template = restarted.at("/spec/template/metadata/annotations");
        let at = template.and_then(|all| all.get("kubectl.kubernetes.io/restartedAt"));
        assert!(at.is_some(), "{restarted:?}");
        world.gauges.set(V1, Gauge::Good);
        world.apply(X, 10, V2);
        world.until_step(X, 4).await;
        let why = refused(&world, Verb::Restart).await;
        assert!(why.contains("a rollout is open"), "{why}");
        world.until_accepted(X, V2).await;
        ends_at_rest(&world, V2).await;
    });
}

#[test]
fn undo_goes_back_without_checks_within_the_envelope() {
    told(async || {
        let world = registered().await;
        world.gauges.set("orders:v0", Gauge::Bad);
        let said = done(&world, Verb::Undo { to: None }).await;
        assert!(said.contains("orders:v0"), "{said}");
        world.until_accepted(X, "orders:v0").await;
        let said = refused(&world, Verb::Undo { to: Some(77) }).await;
        assert!(said.contains("the history has revisions"), "{said}");
        done(&world, Verb::Undo { to: Some(1) }).await;
        world.until_accepted(X, "orders:v-1").await;
        ends_at_rest(&world, "orders:v-1").await;
        assert_eq!(original(&world).image(), "orders:v-1");
    });
}

#[test]
fn undo_of_what_is_not_accepted_touches_no_pod() {
    told(async || {
        let world = rejected().await;
        let before = world.starts();
        done(&world, Verb::Undo { to: None }).await;
        world
            .until("the accepted template is back", |world| {
                original(world).image() == V1
            })
            .await;
        ends_at_rest(&world, V1).await;
        assert_eq!(world.starts(), before);
    });
}

#[test]
fn release_gives_back_and_touches_no_pod() {
    told(async || {
        let world = registered().await;
        done(&world, Verb::Release(Leave::AsItIs)).await;
        given_back(&world, V1).await;
        assert_eq!(count(&world, V1), 10);
    });
}

/// Case K06.
#[test]
fn release_after_a_failure_needs_a_decision() {
    told(async || {
        let world = rejected().await;
        let why = refused(&world, Verb::Release(Leave::AsItIs)).await;
        assert!(why.contains("--accepted"), "{why}");
        done(&world, Verb::Release(Leave::Accepted)).await;
        given_back(&world, V1).await;
        assert_eq!(count(&world, V1), 12);
    });
    told(async || {
        let world = rejected().await;
        world.hands_in_it(Duration::from_secs(600));
        done(&world, Verb::Release(Leave::Original)).await;
        given_back(&world, V2).await;
    });
}

#[test]
fn release_in_a_step_ends_the_rollout_first() {
    told(async || {
        let world = at_step(4).await;
        done(&world, Verb::Release(Leave::Accepted)).await;
        given_back(&world, V1).await;
        assert_eq!(count(&world, V2), 4);
    });
}

async fn given_back(world: &World, image: &str) {
    world
        .until("given back", |world| {
            let object = world.object(Kind::PodTemplate, "orders-volery");
            object.is_none() && !original(world).is_set("/spec/paused")
        })
        .await;
    world.cluster.settle(Duration::from_secs(120)).await;
    assert_eq!(original(world).image(), image);
    for clone in ["orders-primary", "orders-canary"] {
        assert!(world.object(Kind::Deployment, clone).is_none(), "{clone}");
    }
    world.check_promises();
}

#[test]
fn an_order_that_nobody_answers_is_taken_off_again() {
    told(async || {
        let world = at_step(4).await;
        world.kill_daemon(Duration::from_secs(600));
        sleep(Duration::from_secs(1)).await;
        match order(&world, Verb::Abort).await {
            Err(
                error @ OrderError::Unanswered {
                    taken_back: TakenBack::Yes,
                    ..
                },
            ) => {
                assert!(error.is_open());
                assert_eq!(
                    error.to_string(),
                    "no answer within 30s: it seems that Volery does not run; the order is taken off again, nothing is left of it"
                );
            }
            other => world.fail(&format!("{other:?}")),
        }
        assert_eq!(waiting(&world), None);
        world.until_accepted(X, V2).await;
        ends_at_rest(&world, V2).await;
    });
}

/// The daemon dies with the write that takes the order, before it hears of it.
#[test]
fn an_order_is_carried_out_exactly_once_though_the_daemon_dies_with_it() {
    told(async || {
        let world = registered().await;
        let armed = Arc::new(AtomicBool::new(true));
        let lost = armed.clone();
        world.cluster.intercept(move |request| {
            let takes = request.agent == AGENT
                && request.kind == Kind::PodTemplate
                && request.verb == ApiVerb::Patch;
            if takes && lost.swap(false, Ordering::Relaxed) {
                Fault::ApplyThenHang
            } else {
                Fault::None
            }
        });
        let killed = async {
            world
                .until("taken", |_| !armed.load(Ordering::Relaxed))
                .await;
            world.kill_daemon(Duration::from_secs(3));
        };
        let (_, ()) = tokio::join!(done(&world, Verb::Restart), killed);
        world
            .until("restarted", |world| {
                count(world, V1) == 20 && world.is_at_rest(X)
            })
            .await;
        ends_at_rest(&world, V1).await;
        assert_eq!(count(&world, V1), 20);
    });
}

#[test]
fn of_two_orders_at_once_each_is_answered_or_told_of_the_other() {
    told(async || {
        let world = at_step(4).await;
        let (abort, promote) =
            tokio::join!(order(&world, Verb::Abort), order(&world, Verb::Promote));
        let carried_out = |outcome: &Result<Answer, OrderError>| match outcome {
            Ok(answer) => answer.outcome == Answered::Done,
            Err(OrderError::Occupied { .. }) => false,
            Err(error) => world.fail(&error.to_string()),
        };
        let done = [&abort, &promote].map(carried_out);
        match done {
            // Whatever came after the abort came too late.
            [true, false] => world.until_rejected(X, V2).await,
            [false, true] => world.until_accepted(X, V2).await,
            // Promoted first, and then thought better of it.
            [true, true] => world.until_rejected(X, V2).await,
            [false, false] => world.fail("neither order was carried out"),
        }
        world.until_stable(Duration::from_secs(3600)).await;
        assert_eq!(waiting(&world), None);
    });
}

#[test]
fn while_an_order_waits_no_other_is_put_in_its_place() {
    told(async || {
        let world = at_step(4).await;
        world.kill_daemon(Duration::from_secs(60));
        sleep(Duration::from_secs(1)).await;
        let second = async {
            sleep(Duration::from_secs(2)).await;
            order(&world, Verb::Promote).await
        };
        let (first, second) = tokio::join!(order(&world, Verb::Abort), second);
        assert!(
            matches!(first, Err(OrderError::Unanswered { .. })),
            "{first:?}"
        );
        match second {
            Err(OrderError::Occupied { waiting, .. }) => {
                assert!(waiting.starts_with("abort rollout=1 id="), "{waiting}");
            }
            other => world.fail(&format!("{other:?}")),
        }
    });
}

/// What is meant is what was seen: the rollout of a newer version is not aborted in place of the one before.
#[test]
fn an_order_meant_for_another_rollout_is_refused() {
    told(async || {
        let world = at_step(4).await;
        world.kill_daemon(Duration::from_secs(5));
        sleep(Duration::from_secs(1)).await;
        let annotated = world.cluster.patch(
            Kind::PodTemplate,
            NAMESPACE,
            "orders-volery",
            volery::simulate::cluster::Patch::Merge(serde_json::json!({
                "metadata": {"annotations": {"volery.dev/command": "abort rollout=7"}}
            })),
        );
        annotated.unwrap();
        world.until("taken", |world| waiting(world).is_none()).await;
        world.until_accepted(X, V2).await;
    });
}

#[test]
fn what_is_not_registered_takes_no_orders_and_says_what_to_check() {
    told(async || {
        let world = World::new(&Weather::default(), Deaths::new());
        world.with_x(1, V1).await;
        let cluster = operator(&world);
        let mut page = String::new();
        for name in [X, "nowhere"] {
            let error = give(&cluster, &service(name), Verb::Abort, PATIENCE)
                .await
                .unwrap_err();
            page += &format!("{error}\n");
        }
        insta::assert_snapshot!(page, @"
        orders is not registered: there is no PodTemplate orders-volery in namespace workers; is there an entry for it in Volery's configuration file, does Volery run, and what does its log say of it?
        there is no Deployment nowhere in namespace workers: is it the right namespace (-n) and context?
        ");
    });
}
