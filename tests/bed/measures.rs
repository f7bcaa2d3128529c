//! The budgets of design section 9, measured on the bed: `cargo test --release --test bed -- --bench`. Timings are here and nowhere else.

use std::time::Duration;

use kube::ResourceExt as _;
use tokio::time::{Instant, sleep};

use crate::{
    namespace::Namespace,
    proxy::Kind,
    recorder::Object,
    scenarios::base::Base,
    scene::{Scene, Trials},
};

/// How many rollouts the medians are of.
const ROLLOUTS: usize = 20;

/// How long a daemon with nothing to do is watched.
const IDLE: Duration = Duration::from_secs(300);

pub fn register(trials: &mut Trials) {
    trials.add("measure: twenty rollouts", async |scene| {
        rollouts(&scene, None, ROLLOUTS).await
    });
    for kind in [Kind::Deployments, Kind::ReplicaSets] {
        trials.add(
            format!("measure: rollouts while the controller-manager sees {kind:?} late"),
            async move |scene| {
                rollouts(&scene, Some(kind), 3).await;
            },
        );
    }
    trials.add("measure: at rest", async |scene| at_rest(&scene).await);
}

/// Times of one rollout, from the recorder.
struct Times {
    /// From the new template to the canary Deployment.
    canary_created: Duration,
    /// From the primary's creation until it reports the pods it was given.
    opening_handover: Duration,
    /// From the last of the primary's pods being let go until X reports the pods it was given.
    closing_handover: Duration,
}

async fn rollouts(scene: &Scene, late: Option<Kind>, count: usize) {
    let short = "step: 50%\nbreakpoint: 50%\nstart_delay: 0s\nmax_step_duration: 100ms\n\
                 check_success_step_duration: 100ms\nsuccess: []";
    let base = Base::registered(scene, short).await;
    if let Some(kind) = late {
        base.namespace.lag(kind, Duration::from_millis(500));
    }
    let (mut created, mut opening, mut closing, mut starts) = (vec![], vec![], vec![], vec![]);
    for number in 0..count {
        let tag = format!("m{number}");
        let before = base.now().await;
        base.namespace
            .kubectl_ok(
                &[
                    "set",
                    "image",
                    "deployment/orders-worker",
                    &format!("worker=m:{tag}"),
                ],
                None,
            )
            .await;
        base.daemon
            .log_contains(&format!("at rest: 10 replicas of m:{tag}"))
            .await;
        base.now().await;
        starts.push(
            base.namespace
                .recorder
                .starts(before)
                .values()
                .sum::<usize>(),
        );
        let times = times(&base.namespace, before);
        created.push(times.canary_created);
        opening.push(times.opening_handover);
        closing.push(times.closing_handover);
    }
    let label = late.map_or("no lag".to_owned(), |kind| {
        format!("{kind:?} watch 0.5 s late")
    });
    println!("measured, {label}, {count} rollouts of 10:");
    println!("  pod starts per rollout             {starts:?}");
    println!("  change applied to canary created   {}", spread(created));
    println!("  handover when opening              {}", spread(opening));
    println!("  handover when promoting            {}", spread(closing));
}

fn times(namespace: &Namespace, since: Instant) -> Times {
    let events: Vec<_> = namespace
        .recorder
        .events()
        .into_iter()
        .filter(|event| event.at >= since)
        .collect();
    let mut changed = None;
    let (mut canary, mut primary, mut opened, mut lowered, mut promoted) =
        (None, None, None, None, None);
    for event in &events {
        let Object::Deployment(deployment) = &event.object else {
            continue;
        };
        let status = deployment.status.clone().unwrap_or_default();
        let (has, updated) = (
            status.replicas.unwrap_or(0),
            status.updated_replicas.unwrap_or(0),
        );
        match deployment.name_any().as_str() {
            "orders-worker" => {
                changed.get_or_insert(event.at);
                if canary.is_some() && has == 10 && updated == 10 {
                    promoted.get_or_insert(event.at);
                }
            }
            "orders-worker-canary" => {
                canary.get_or_insert(event.at);
            }
            "orders-worker-primary" => {
                primary.get_or_insert(event.at);
                if has == 10 {
                    opened.get_or_insert(event.at);
                }
                if opened.is_some()
                    && has == 0
                    && status.observed_generation == deployment.metadata.generation
                {
                    lowered.get_or_insert(event.at);
                }
            }
            _ => {}
        }
    }
    let between = |from: Option<Instant>, to: Option<Instant>| {
        to.expect("the rollout reached this")
            .saturating_duration_since(from.expect("the rollout began"))
    };
    Times {
        canary_created: between(changed, canary),
        opening_handover: between(primary, opened),
        closing_handover: between(lowered, promoted),
    }
}

async fn at_rest(scene: &Scene) {
    let base = Base::registered(scene, "").await;
    let process = base.daemon.id();
    sleep(Duration::from_secs(5)).await;
    let user = base.namespace.daemon_user();
    let requests = base
        .namespace
        .bed
        .audit
        .requests(&user, &base.namespace.name)
        .await
        .len();
    let used = processor_time(process);
    sleep(IDLE).await;
    let used = processor_time(process) - used;
    let asked = base
        .namespace
        .bed
        .audit
        .requests(&user, &base.namespace.name)
        .await;
    let asked: Vec<_> = asked
        .iter()
        .skip(requests)
        .filter(|request| request.verb != "watch")
        .collect();
    println!("measured, one service at rest for {IDLE:?}:");
    println!(
        "  resident memory                    {} kB",
        resident(process)
    );
    println!(
        "  processor                          {:.3} % of a core",
        100.0 * used.as_secs_f64() / IDLE.as_secs_f64()
    );
    println!("  API requests but watches           {}", asked.len());
    let size = std::fs::metadata(env!("CARGO_BIN_EXE_volery")).map_or(0, |file| file.len());
    println!("  size of the binary                 {} kB", size / 1000);
}

fn resident(process: u32) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{process}/status")).expect("the daemon runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("the kernel tells");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
}

/// User and system time so far; the kernel counts in hundredths of a second.
fn processor_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("the daemon runs");
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .expect("a name in brackets")
        .1
        .split_whitespace()
        .collect();
    let ticks = |field: usize| fields[field].parse::<u64>().expect("a number");
    // After the name come the state and ten more fields, then utime and stime.
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    let middle = times[times.len() / 2];
    let (first, last) = (times[0], times[times.len() - 1]);
    format!(
        "median {} ms, from {} to {} ms",
        middle.as_millis(),
        first.as_millis(),
        last.as_millis()
    )
}
