//! What a person sees: status in every phase, the history, and what `volery wait` says of each course of events.

use std::time::Duration;

use tokio::time::sleep;
use volery::cluster::{Depth, Scope, Sight};
use volery::operator::{Report, Waited, history, table, wait};
use volery::rollout::command::Verb;
use volery::rollout::state::Motion;
use volery::simulate::cluster::{Fault, Kind, Patch, deployment};

use super::gauges::Gauge;
use super::orders::{at_step, done, frozen, operator, registered, rejected, service, told};
use super::stories::{V1, V2, V3};
use super::world::{AGENT, Deaths, NAMESPACE, Weather, World, X, Y};

async fn sight(world: &World, name: &str, depth: Depth) -> Sight {
    let seen = operator(world).sight(NAMESPACE, name, depth).await;
    seen.unwrap_or_else(|error| world.fail(&error.to_string()))
}

/// Reports of X, the first one of each kind.
#[derive(Default)]
struct Album {
    reports: Vec<Report>,
}

impl Album {
    /// Looks five times a second until something holds.
    async fn fill(&mut self, world: &World, over: impl Fn(&Report) -> bool) {
        for _ in 0..10_000 {
            let report = Report::of(&sight(world, X, Depth::Surface).await);
            let kind = |report: &Report| {
                let step = report
                    .rollout
                    .as_ref()
                    .and_then(|rollout| rollout.step.clone());
                (report.phase, report.motion, step.map(|step| step.stage))
            };
            let over = over(&report);
            if self
                .reports
                .iter()
                .all(|known| kind(known) != kind(&report))
            {
                self.reports.push(report);
            }
            if over {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
        world.fail("it never came to that");
    }
}

/// Each write of the daemon takes a second, so that every phase is seen.
fn slowly(world: &World) {
    world.cluster.intercept(|request| {
        if request.agent == AGENT && request.verb.writes() {
            Fault::Delay(Duration::from_secs(1))
        } else {
            Fault::None
        }
    });
}

#[test]
fn status_in_every_phase() {
    told(async || {
        let world = World::new(&Weather::default(), Deaths::new());
        world.with_x(10, V1).await;
        slowly(&world);
        world.start_daemon();
        let mut album = Album::default();
        let word = |report: &Report| report.phase.to_string();
        album.fill(&world, |report| word(report) == "at rest").await;
        world.apply(X, 10, V2);
        album
            .fill(&world, |report| {
                let step = report
                    .rollout
                    .as_ref()
                    .and_then(|rollout| rollout.step.clone());
                step.is_some_and(|step| step.checks_passed > 0)
            })
            .await;
        done(&world, Verb::Hold).await;
        album
            .fill(&world, |report| report.motion == Motion::Held)
            .await;
        done(&world, Verb::Resume).await;
        album.fill(&world, |report| word(report) == "at rest").await;
        world.gauges.set(V3, Gauge::Bad);
        world.apply(X, 10, V3);
        album
            .fill(&world, |report| word(report) == "rejected")
            .await;
        world.apply(X, 10, V1);
        album.fill(&world, |report| word(report) == "step").await;
        world.apply(X, 10, V2);
        album.fill(&world, |report| word(report) == "at rest").await;
        world.scale(X, 0);
        world.set_image(X, V1);
        album
            .fill(&world, |report| word(report) == "waiting for replicas")
            .await;
        for report in &mut album.reports {
            // What depends on how long each of the daemon's requests took.
            report.message = None;
            if let Some(rollout) = &mut report.rollout {
                rollout.open_for_seconds = rollout.open_for_seconds.map(|_| 60);
                if let Some(step) = &mut rollout.step {
                    step.checked_for_seconds = step.checked_for_seconds.min(1) * 30;
                }
            }
            // The random part of each order.
            if let Some(answer) = &mut report.last_order {
                answer.id = Some("an id".to_owned());
            }
        }
        let reports = &album.reports;
        insta::assert_snapshot!("status_table", table(reports));
        let full: Vec<String> = reports.iter().map(Report::to_string).collect();
        insta::assert_snapshot!("status_in_full", full.join("\n\n"));
        insta::assert_snapshot!(
            "status_json",
            serde_json::to_string_pretty(reports).unwrap()
        );
    });
}

#[test]
fn what_is_frozen_says_why_and_ends_a_wait() {
    told(async || {
        let world = frozen().await;
        let mut report = Report::of(&sight(&world, X, Depth::Surface).await);
        report.message = None;
        let (_, waited) = waits(&world, None, async {}).await;
        insta::assert_snapshot!(format!("{report}\n\n{waited}"));
    });
}

#[test]
fn status_of_all_tells_of_each_service() {
    told(async || {
        let world = World::new(&Weather::default(), Deaths::new());
        world.apply(Y, 4, "invoices:v1");
        world.with_x(10, V1).await;
        // Not Volery's business.
        world.apply("web", 1, "web:v1");
        world.start_daemon();
        world.until_registered(X).await;
        world.until_registered(Y).await;
        world.gauges.set("invoices:v2", Gauge::Bad);
        world.apply(Y, 4, "invoices:v2");
        world.until_rejected(Y, "invoices:v2").await;
        world.cluster.settle(Duration::from_secs(120)).await;
        for scope in [Scope::Cluster, Scope::Namespace(NAMESPACE.to_owned())] {
            let sights = operator(&world).sights(&scope).await.unwrap();
            let reports: Vec<Report> = sights.iter().map(Report::of).collect();
            insta::allow_duplicates! {
                insta::assert_snapshot!("status_of_all", table(&reports));
            }
        }
    });
}

#[test]
fn what_is_not_in_order_says_why() {
    told(async || {
        let mut page = Vec::new();
        let world = World::new(&Weather::default(), Deaths::new());
        world.with_x(10, V1).await;
        for name in [X, "nowhere"] {
            page.push(Report::of(&sight(&world, name, Depth::Surface).await).to_string());
        }
        let theirs = serde_json::json!({
            "apiVersion": "v1", "kind": "PodTemplate",
            "metadata": {"namespace": NAMESPACE, "name": "web-volery"},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:v1"}]}},
        });
        world.cluster.create(&theirs).unwrap();
        world
            .cluster
            .apply(&deployment(NAMESPACE, "web", 1, "web:v1"))
            .unwrap();
        page.push(Report::of(&sight(&world, "web", Depth::Surface).await).to_string());
        world.start_daemon();
        world.until_registered(X).await;
        world.apply(X, 10, V2);
        world.until_step(X, 2).await;
        world.hands_in_it(Duration::from_secs(3600));
        let state = |text: Option<&str>| {
            let patch =
                serde_json::json!({"metadata": {"annotations": {"volery.dev/state": text}}});
            let patched = world.cluster.patch(
                Kind::PodTemplate,
                NAMESPACE,
                "orders-volery",
                Patch::Merge(patch),
            );
            patched.unwrap();
        };
        // Long enough for the daemon to say so too.
        let noticed = Duration::from_secs(5);
        state(Some("{\"version\": 77}"));
        sleep(noticed).await;
        let report = Report::of(&sight(&world, X, Depth::Surface).await);
        let says = report.message.clone().unwrap_or_default();
        assert!(
            says.starts_with("blocked: the state object cannot be read"),
            "{says}"
        );
        page.push(report.to_string());
        world.delete(Kind::PodTemplate, "orders-volery");
        sleep(noticed).await;
        page.push(Report::of(&sight(&world, X, Depth::Surface).await).to_string());
        insta::assert_snapshot!(page.join("\n\n"));
    });
}

#[test]
fn history_tells_what_ran_what_is_on_trial_and_what_failed() {
    told(async || {
        let world = at_step(4).await;
        let open = history(&sight(&world, X, Depth::History).await).unwrap();
        world.gauges.set(V2, Gauge::Bad);
        world.until_rejected(X, V2).await;
        let failed = history(&sight(&world, X, Depth::History).await).unwrap();
        insta::assert_snapshot!(format!("{open}\n\n{failed}"));
        let unknown = history(&sight(&world, "web", Depth::History).await);
        assert!(
            unknown
                .unwrap_err()
                .to_string()
                .contains("no Deployment web")
        );
    });
}

/// Runs `volery wait` beside what happens; its lines and its end.
async fn waits(
    world: &World,
    patience: Option<Duration>,
    happens: impl Future<Output = ()>,
) -> (Vec<String>, Waited) {
    let mut lines = Vec::new();
    let cluster = operator(world);
    let x = service(X);
    let waiting = wait(&cluster, &x, patience, |line| lines.push(line.to_owned()));
    let (waited, ()) = tokio::join!(waiting, happens);
    world.log.add(format!("USER waited: {lines:?} {waited:?}"));
    (lines, waited)
}

/// Case K45: started right after the patch, before the daemon has seen it.
#[test]
fn wait_returns_at_promotion() {
    told(async || {
        let world = registered().await;
        world.apply(X, 10, V2);
        let (lines, waited) = waits(&world, None, async {}).await;
        assert_eq!(
            waited,
            Waited::Promoted("orders:v2 is the accepted version".to_owned())
        );
        world.cluster.settle(Duration::from_secs(120)).await;
        world.check_at_rest(X, V2);
        assert_eq!(lines[0], "pending: no rollout of it is open yet");
        // What lasts is told, each once; a moment between two looks may be missed.
        for line in [
            "step 1/3, checking: canary 2, primary 8",
            "step 2/3, checking: canary 4, primary 6",
            "step 3/3, checking: canary 5, primary 5",
        ] {
            assert_eq!(
                lines.iter().filter(|told| *told == line).count(),
                1,
                "{lines:?}"
            );
        }
    });
}

#[test]
fn wait_tells_of_a_rollback_with_its_evidence() {
    told(async || {
        let world = registered().await;
        world.gauges.set(V2, Gauge::Bad);
        world.apply(X, 10, V2);
        let (lines, waited) = waits(&world, None, async {}).await;
        assert!(
            lines.iter().any(|line| line.starts_with("step 1/3, ")),
            "{lines:?}"
        );
        match waited {
            Waited::Failed(why) => {
                assert!(
                    why.starts_with("orders:v2 was rolled back: checks failed: "),
                    "{why}"
                );
                assert!(why.contains("== 0 is false: value 5"), "{why}");
            }
            other => world.fail(&format!("{other:?}")),
        }
        // Started after all that, it does not wait for what nobody tries.
        let (_, waited) = waits(&world, None, async {}).await;
        assert!(matches!(waited, Waited::Failed(_)), "{waited:?}");
    });
}

#[test]
fn wait_ends_when_another_template_comes() {
    told(async || {
        for (next, begins) in [(V3, "superseded: "), (V1, "cancelled: ")] {
            let world = registered().await;
            world.apply(X, 10, V2);
            let happens = async {
                world.until_step(X, 4).await;
                world.apply(X, 10, next);
            };
            match waits(&world, None, happens).await {
                (_, Waited::Failed(why)) if why.starts_with(begins) => {}
                other => world.fail(&format!("{other:?}")),
            }
        }
    });
}

#[test]
fn wait_returns_at_once_when_there_is_nothing_to_roll_out() {
    told(async || {
        let world = registered().await;
        let begun = world.cluster.elapsed();
        let (lines, waited) = waits(&world, None, async {}).await;
        assert_eq!(
            waited,
            Waited::Promoted("orders:v1 is the accepted version".to_owned())
        );
        assert_eq!(lines, [""; 0]);
        assert!(world.cluster.elapsed() - begun < Duration::from_millis(200));
    });
}

/// Case K30.
#[test]
fn wait_says_that_a_version_waits_for_replicas() {
    told(async || {
        let world = registered().await;
        world.scale(X, 0);
        sleep(Duration::from_secs(60)).await;
        world.set_image(X, V2);
        let patience = Duration::from_secs(600);
        let (lines, waited) = waits(&world, Some(patience), async {}).await;
        assert_eq!(waited, Waited::TimedOut(patience));
        assert_eq!(
            lines,
            ["waiting for replicas: it is rolled out when replicas are wanted again (now 0)"]
        );
        let happens = async {
            sleep(Duration::from_secs(5)).await;
            world.scale(X, 5);
        };
        let (_, waited) = waits(&world, None, happens).await;
        assert_eq!(
            waited,
            Waited::Promoted("orders:v2 is the accepted version".to_owned())
        );
    });
}

#[test]
fn wait_after_restart_retry_and_bypass_waits_for_what_was_ordered() {
    told(async || {
        let world = registered().await;
        slowly(&world);
        done(&world, Verb::Restart).await;
        let (_, waited) = waits(&world, None, async {}).await;
        assert!(matches!(waited, Waited::Promoted(_)), "{waited:?}");
        assert_eq!(world.starts()[V1], 20);
        let world = rejected().await;
        slowly(&world);
        world.gauges.set(V2, Gauge::Good);
        done(&world, Verb::Retry).await;
        let (_, waited) = waits(&world, None, async {}).await;
        assert!(matches!(waited, Waited::Promoted(_)), "{waited:?}");
        let world = rejected().await;
        done(&world, Verb::Bypass).await;
        let (_, waited) = waits(&world, None, async {}).await;
        assert!(matches!(waited, Waited::Promoted(_)), "{waited:?}");
    });
}

#[test]
fn wait_ends_with_an_abort_and_with_a_service_that_is_not_registered() {
    told(async || {
        let world = registered().await;
        world.apply(X, 10, V2);
        let happens = async {
            world.until_step(X, 4).await;
            done(&world, Verb::Abort).await;
        };
        let (_, waited) = waits(&world, None, happens).await;
        assert_eq!(
            waited,
            Waited::Failed("orders:v2 was rolled back: aborted by hand: volery abort".to_owned())
        );
        let web = service("web");
        let waited = wait(&operator(&world), &web, None, |line| panic!("{line}")).await;
        assert!(matches!(waited, Waited::Failed(_)), "{waited:?}");
    });
}
