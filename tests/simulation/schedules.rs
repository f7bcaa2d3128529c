//! Seeded schedules of everything at once: users, pods, metrics, faults of the API, lags and deaths of the daemon. The
//! promises hold throughout; once the faults stop everything comes to rest, and a sound version still gets through.
//!
//! `VOLERY_SEEDS=from..to` chooses the seeds. A failure prints the seed, the command that repeats it, and all that
//! happened. The same seed gives the same timeline.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;
use volery::cluster::COMMAND_ANNOTATION;
use volery::config::OnFailure;
use volery::rollout::state::{Motion, Phase, Stage};
use volery::simulate::cluster::{Behaviour, Fault, Kind, Lag, Lags, Refusal, Request};

use super::gauges::Gauge;
use super::limits::Limits;
use super::timeline::decisions;
use super::world::{AGENT, Deaths, NAMESPACE, STATE, Weather, World, X, in_virtual_time};

/// Seeds tried when nothing is said.
const SEEDS: std::ops::Range<u64> = 0..120;

/// How many tests share the seeds, so that they run side by side.
const SHARES: u64 = 4;

const IMAGES: [&str; 4] = ["orders:v1", "orders:v2", "orders:v3", "orders:v4"];

/// The version that is tried when all trouble is over.
const LAST: &str = "orders:last";

/// A splitmix64 generator.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let index = usize::try_from(self.below(from.len() as u64)).unwrap();
        from[index]
    }

    fn milliseconds(&mut self, bound: u64) -> Duration {
        Duration::from_millis(self.below(bound))
    }

    fn lag(&mut self, bound: u64) -> Lag {
        Lag {
            fixed: self.milliseconds(bound),
            jitter: self.milliseconds(bound),
        }
    }

    fn lags(&mut self, bound: u64) -> Lags {
        if self.one_in(3) {
            return Lags::default();
        }
        Lags {
            deployments: self.lag(bound),
            replica_sets: self.lag(bound),
            pods: self.lag(bound),
            others: self.lag(bound),
        }
    }

    fn behaviour(&mut self) -> Behaviour {
        match self.below(8) {
            0 => Behaviour::NeverReady,
            1 => Behaviour::CrashLoop {
                up: Duration::from_secs(1 + self.below(19)),
                down: Duration::from_secs(1 + self.below(10)),
                exit_code: 1,
            },
            2 => Behaviour::ImagePull,
            3 => Behaviour::Unschedulable,
            _ => Behaviour::Ready {
                after: self.milliseconds(8000),
            },
        }
    }

    fn gauge(&mut self) -> Gauge {
        match self.below(10) {
            0 => Gauge::Bad,
            1 => Gauge::Absent,
            2 => Gauge::Erroring,
            3 => Gauge::Slow,
            _ => Gauge::Good,
        }
    }

    fn fault(&mut self, request: &Request) -> Fault {
        match self.below(6) {
            0 if request.verb.writes() => Fault::ApplyThenHang,
            1 if request.verb.writes() => Fault::ApplyThenBreak,
            0 => Fault::Hang,
            1 | 2 => Fault::Break,
            3 => Fault::Refuse(Refusal::too_many_requests()),
            4 if request.verb.writes() => {
                Fault::Refuse(Refusal::modified(request.kind, &request.name))
            }
            _ => Fault::Refuse(Refusal::internal_error()),
        }
    }
}

/// What a person or fate does next.
fn strike(world: &World, dice: &mut Dice, hands: bool) {
    match dice.below(if hands { 13 } else { 9 }) {
        0..=2 => {
            let image = dice.pick(&IMAGES);
            let replicas = world
                .object(Kind::Deployment, X)
                .map_or(1, |x| u32::try_from(x.replicas()).unwrap());
            world.apply(X, replicas, image);
        }
        3 | 4 => {
            let replicas = u32::try_from(dice.below(14)).unwrap();
            world.scale(X, replicas);
        }
        5 => {
            let (image, gauge) = (dice.pick(&IMAGES), dice.gauge());
            world.note(&format!("{image} is {gauge:?}"));
            world.gauges.set(image, gauge);
        }
        6 => {
            let gauge = Some(dice.gauge()).filter(|gauge| *gauge != Gauge::Good);
            world.note(&format!("everything is {gauge:?}"));
            world.gauges.set_all(gauge);
        }
        7 => {
            let downtime = dice.milliseconds(30_000);
            world.note("kill the daemon");
            world.kill_daemon(downtime);
        }
        8 => {
            world.note("every watch expires");
            world.cluster.expire_watches();
        }
        9 => world.resume(X),
        10 => {
            let clone = dice.pick(&["orders-primary", "orders-canary"]);
            world.delete(Kind::Deployment, clone);
        }
        kind => {
            let kind = if kind == 11 {
                Kind::ReplicaSet
            } else {
                Kind::Pod
            };
            let names: Vec<String> = world.cluster.look(|now| {
                now.list(kind, NAMESPACE)
                    .map(|object| object.name().to_owned())
                    .collect()
            });
            if !names.is_empty() {
                let index = usize::try_from(dice.below(names.len() as u64)).unwrap();
                world.delete(kind, &names[index]);
            }
        }
    }
}

/// What people order, each as likely.
const ORDERS: [&str; 12] = [
    "hold",
    "resume",
    "resume",
    "abort",
    "promote",
    "retry",
    "retry",
    "bypass",
    "restart",
    "undo",
    "undo to=1",
    "nonsense",
];

/// Gives an order as `kubectl annotate` does, unless one waits.
fn order(world: &World, dice: &mut Dice, number: &mut u32) {
    let is_free = world
        .object(Kind::PodTemplate, STATE)
        .is_some_and(|object| object.annotation(COMMAND_ANNOTATION).is_none());
    if is_free {
        *number += 1;
        world.command(&format!("{} id={number}", dice.pick(&ORDERS)));
    }
}

/// Nothing is left of the orders: each was answered, and with the promises' watch over it once.
fn no_order_waits(world: &World) {
    let waits = world
        .object(Kind::PodTemplate, STATE)
        .is_some_and(|object| object.annotation(COMMAND_ANNOTATION).is_some());
    if waits {
        world.fail("an order was never answered");
    }
}

/// One schedule; returns the decisions and writes of the daemon.
async fn schedule(seed: u64) -> Vec<String> {
    // The pauses of kube's watches are drawn from it.
    fastrand::seed(seed);
    let mut dice = Dice(seed);
    let weather = Weather {
        seed,
        controllers: dice.lags(500),
        daemon: dice.lags(1000),
    };
    let hands = dice.one_in(3);
    let deaths: Deaths = if dice.one_in(2) {
        (0..3).map(|_| 1 + dice.below(12)).collect()
    } else {
        Deaths::new()
    };
    let limits = dice.pick(&Limits::ALL);
    let world = World::within(limits, &weather, deaths);
    // By dice of its own: the other schedules stay what they are.
    if Dice(!seed).one_in(3) {
        world.on_failure(OnFailure::Freeze);
        world.note("what fails is frozen");
    }
    world.excuses.lock().unwrap().slack = Duration::from_secs(200);
    world.note(&format!("seed {seed}: {weather:?}, {limits:?}"));
    for image in &IMAGES[1..] {
        let (behaviour, gauge) = (dice.behaviour(), dice.gauge());
        world.note(&format!("{image} is {behaviour:?}, {gauge:?}"));
        world.cluster.turn_pods(NAMESPACE, image, behaviour);
        world.gauges.set(image, gauge);
    }
    let replicas = u32::try_from(1 + dice.below(12)).unwrap();
    world.with_x(replicas, IMAGES[0]).await;
    let odds = dice.pick(&[u64::MAX, 40, 15]);
    let faults = Arc::new(Mutex::new(dice.clone()));
    world.cluster.intercept(move |request| {
        let mut faults = faults.lock().unwrap();
        if request.agent == AGENT && faults.one_in(odds) {
            return faults.fault(request);
        }
        Fault::None
    });
    world.start_daemon();
    world.until_registered(X).await;
    // Of its own, too.
    let mut boss = Dice(seed.rotate_left(17));
    let gives_orders = boss.one_in(2);
    let mut given = 0;
    for _ in 0..3 + dice.below(8) {
        strike(&world, &mut dice, hands);
        if gives_orders {
            for _ in 0..boss.below(4) {
                sleep(boss.milliseconds(20_000)).await;
                order(&world, &mut boss, &mut given);
            }
        }
        let pause = if dice.one_in(3) { 3000 } else { 90_000 };
        sleep(dice.milliseconds(pause)).await;
    }
    world.note("all faults end");
    world.cluster.stop_intercepting();
    world.gauges.set_all(None);
    world.until_stable(Duration::from_secs(2 * 3600)).await;
    no_order_waits(&world);
    let is_held = |world: &World| {
        let state = world.state(X);
        state.is_some_and(|state| state.motion == Motion::Held)
    };
    if is_held(&world) {
        world.command("resume");
        world
            .until("no longer on hold", |world| !is_held(world))
            .await;
        world.until_stable(Duration::from_secs(2 * 3600)).await;
    }
    converged(&world);

    world.apply(X, 5, LAST);
    world.until_accepted(X, LAST).await;
    world.until_stable(Duration::from_secs(3600)).await;
    world.check_at_rest(X, LAST);
    let mut told = decisions(&world.cluster, &world.log);
    told.extend(world.events().iter().map(|event| format!("{event:?}")));
    told
}

/// At rest with what is accepted; X asks for nothing else, or for what was rejected, or for no pods at all: then an open
/// rollout sleeps. Or frozen.
fn converged(world: &World) {
    let Some(accepted) = world.accepted(X) else {
        world.fail("not registered at the end")
    };
    let x = world.object(Kind::Deployment, X).unwrap();
    let state = world.state(X).unwrap();
    let sleeps = matches!(
        &state.phase,
        Phase::Stepping { step, .. } | Phase::Finishing { step, .. } if step.stage == Stage::Sleeping
    );
    if sleeps && x.replicas() == 0 {
        return;
    }
    if let Phase::Frozen { step, .. } = &state.phase {
        stands_still(world, i64::from(step.canary.0));
        return;
    }
    world.check_at_rest(X, &accepted);
    let rejected = state
        .rejected
        .is_some_and(|rejection| rejection.images == [x.image().to_owned()]);
    if x.image() != accepted && x.replicas() > 0 && !rejected {
        world.fail(&format!(
            "{} waits for nothing in {:?}",
            x.image(),
            state.phase
        ));
    }
}

/// Frozen with this many canary pods at most, of the version that X asks for; the rest of R is of the accepted version.
fn stands_still(world: &World, kept: i64) {
    let clone = |name: &str| match world.object(Kind::Deployment, name) {
        Some(clone) => clone,
        None => world.fail(&format!("{name} is gone in a frozen rollout")),
    };
    let (x, canary, primary) = (clone(X), clone("orders-canary"), clone("orders-primary"));
    let (wanted, frozen) = (x.replicas(), canary.replicas());
    let [most, least] = [wanted + (wanted + 4) / 5 - frozen, wanted - frozen];
    if !canary.is_set("/spec/paused") || canary.image() != x.image() {
        world.fail("the frozen canary is not what was asked for last");
    }
    if frozen > kept.min(wanted) || primary.replicas() > most || primary.replicas() < least {
        world.fail(&format!(
            "frozen at ({frozen},{}) of {wanted}, {kept} are kept",
            primary.replicas()
        ));
    }
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("VOLERY_SEEDS") else {
        return SEEDS;
    };
    let bounds = text
        .split_once("..")
        .map(|(from, to)| (from.parse(), to.parse()));
    match bounds {
        Some((Ok(from), Ok(to))) => from..to,
        _ => panic!("VOLERY_SEEDS={text}: expected from..to, such as 0..1000"),
    }
}

fn run(seed: u64) -> Vec<String> {
    let told = Mutex::new(Vec::new());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        in_virtual_time(|| async {
            *told.lock().unwrap() = schedule(seed).await;
        });
    }));
    if let Err(panic) = outcome {
        println!(
            "seed {seed} failed; again: VOLERY_SEEDS={seed}..{} cargo test --test simulation schedules -- --nocapture",
            seed + 1
        );
        resume_unwind(panic);
    }
    told.into_inner().unwrap()
}

fn share(share: u64) {
    for seed in seeds().filter(|seed| seed % SHARES == share) {
        run(seed);
    }
}

#[test]
fn whatever_happens_promises_hold_and_all_comes_to_rest_1() {
    share(0);
}

#[test]
fn whatever_happens_promises_hold_and_all_comes_to_rest_2() {
    share(1);
}

#[test]
fn whatever_happens_promises_hold_and_all_comes_to_rest_3() {
    share(2);
}

#[test]
fn whatever_happens_promises_hold_and_all_comes_to_rest_4() {
    share(3);
}

#[test]
fn the_same_seed_gives_the_same_timeline() {
    for seed in [3, 4, 5, 6] {
        let (first, second) = (run(seed), run(seed));
        let differ = first.iter().zip(&second).find(|(one, other)| one != other);
        assert!(differ.is_none(), "seed {seed}: {differ:#?}");
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}
