//! `volery simulate`, and with it the log as people read it: whole rollouts, each from the command line.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use volery::daemon;
use volery::simulate::cluster::{Journal, Turn};
use volery::simulate::play::{APPLIED_AFTER, choose};
use volery::simulate::scenario::{Bad, Deed, Outage};
use volery::simulate::{Ending, Played, Scenario, play};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("config")
        .join(name)
}

fn simulate_file(file: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_volery"))
        .arg("simulate")
        .arg(file)
        .args(arguments)
        .env_remove("VOLERY_LOG")
        .env_remove("VOLERY_LOG_FORMAT")
        .output()
        .unwrap()
}

fn simulate(arguments: &[&str]) -> Output {
    simulate_file(&example("orders.yaml"), arguments)
}

/// What a person reads, and the exit code.
fn read(output: &Output) -> String {
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(complaints.is_empty(), "{complaints}");
    format!(
        "{}\nexit code {}\n",
        String::from_utf8_lossy(&output.stdout),
        output.status.code().unwrap()
    )
}

/// One test per whole rollout: its log is its snapshot.
macro_rules! logs {
    ($($name:ident: $arguments:expr;)*) => {
        $(
            #[test]
            fn $name() {
                insta::assert_snapshot!(read(&simulate(&$arguments)));
            }
        )*
    };
}

logs! {
    promoted: [];
    rolled_back_because_checks_failed: ["--bad", "metrics@step3"];
    a_bad_spell_is_survived: ["--bad", "metrics=2@15m..20m"];
    no_data_fails: ["--bad", "no-data"];
    crashing_from_the_start: ["--bad", "crash"];
    crashing_while_checked: ["--bad", "crash@step2", "--pod-start", "1s"];
    never_ready: ["--bad", "never-ready"];
    image_not_pulled: ["--bad", "image-pull"];
    no_room_on_any_node: ["--bad", "unschedulable"];
    superseded_by_a_fix: ["--bad", "metrics", "--at", "6m", "image v3"];
    a_fix_after_a_rollback: ["--bad", "never-ready", "--at", "12m", "image v3"];
    cancelled: ["--at", "12m", "image v1"];
    metrics_outage_survived: ["--prometheus-down", "4m..9m"];
    metrics_outage_failed: ["--prometheus-down", "4m"];
    scaled_in_the_middle: ["--at", "20m", "scale 14", "--at", "40m", "scale 4"];
    asleep_in_the_middle: ["--at", "5m", "scale 0", "--at", "2h", "scale 4"];
    killed_in_mid_step: ["--at", "13m", "kill for 2m"];
    killed_while_canary_pods_start: ["--at", "step2", "kill for 2m"];
    un_paused_by_hand: ["--at", "12m", "resume"];
    without_expressions: ["--service", "invoices", "--replicas", "6"];
}

/// The first service of the example with `on_failure: freeze`.
fn forward_only(arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("orders.yaml");
    let text = std::fs::read_to_string(example("orders.yaml")).unwrap();
    let freezing = text.replace("# on_failure: freeze", "on_failure: freeze");
    assert_ne!(text, freezing);
    std::fs::write(&file, freezing).unwrap();
    read(&simulate_file(&file, arguments))
}

#[test]
fn frozen() {
    insta::assert_snapshot!(forward_only(&["--bad", "metrics@step3"]));
}

#[test]
fn frozen_and_replaced_in_place_by_a_fix() {
    insta::assert_snapshot!(forward_only(&[
        "--bad",
        "metrics@step3",
        "--at",
        "1h",
        "image v3"
    ]));
}

#[test]
fn registered_and_released() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("two.yaml");
    let service = "breakpoint: 50%\n  step: 1\n  abort: 2m\n  max_step_duration: 1m\n  \
                   check_success_step_duration: 30s\n  success: []\n";
    let text = format!("namespace: workers\norders:\n  {service}invoices:\n  {service}");
    std::fs::write(&file, text).unwrap();
    let released = simulate_file(&file, &["--replicas", "2", "--at", "1h", "remove"]);
    insta::assert_snapshot!(read(&released));
}

/// Whatever pods an expression names, in whatever label, and whether they are asked about together or one by one.
#[test]
fn expressions_of_every_form_are_answered() {
    let expressions = [
        r#"sum by (kubernetes_pod) (rate(done{kubernetes_pod="<<pod>>"}[1m])) > 500"#,
        r#"rate(done{pod="<<pod>>"}[1m]) >= on () group_left () 0.9 * avg(rate(done{pod=~"<<primary>>"}[1m]))"#,
        r#"sum(done{pod=~"<<canary>>"}) / 5 >= 0.9 * sum(done{pod=~"<<primary>>"}) / 5"#,
        r#"sum(lag{pod="<<pod>>"}) < 1000"#,
        r#"lag{pod="<<pod>>"} < 1000 and on () up == 1"#,
        r#"failed{pod="<<pod>>"} != 1"#,
    ];
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("every.yaml");
    let mut text = "prometheus-base-url: http://prometheus:9090\nnamespace: workers\norders:\n  breakpoint: 50%\n  step: 30%\n  \
                    abort: 2m\n  max_step_duration: 2m\n  check_success_step_duration: 30s\n  success:\n"
        .to_owned();
    for expression in expressions {
        text.push_str(&format!("    - expr: {expression}\n"));
    }
    std::fs::write(&file, text).unwrap();
    let ends = |bad: &[&str]| {
        let told = read(&simulate_file(&file, bad));
        let ending = |line: &&str| line.contains("promoted: ") || line.contains("failed: ");
        let line = told.lines().rfind(ending);
        line.unwrap_or_else(|| panic!("{told}")).to_owned()
    };
    assert!(ends(&[]).contains("promoted: "), "{}", ends(&[]));
    for (number, expression) in (1..).zip(expressions) {
        let ending = ends(&["--bad", &format!("metrics={number}")]);
        let told = expression.split(['"', '<']).next().unwrap();
        assert!(ending.contains("checks failed: "), "{ending}");
        assert!(ending.contains(told), "{expression}: {ending}");
    }
    let ending = ends(&["--bad", "no-data"]);
    assert!(ending.contains("has no series"), "{ending}");
}

#[test]
fn the_same_seed_gives_the_same_output_and_another_one_another() {
    let scenario = [
        "--replicas",
        "20",
        "--bad",
        "metrics=1@15m..18m",
        "--at",
        "20m",
        "scale 14",
        "--at",
        "step4",
        "kill for 90s",
        "--prometheus-down",
        "30m..33m",
    ];
    let seeded = |seed: &str| {
        let mut arguments = scenario.to_vec();
        arguments.extend(["--seed", seed]);
        read(&simulate(&arguments))
    };
    let first = seeded("7");
    assert!(first.contains("promoted: "), "{first}");
    for _ in 0..2 {
        assert_eq!(first, seeded("7"));
    }
    assert_ne!(first, seeded("8"));
}

#[test]
fn json_is_one_object_per_line_and_the_summary_the_last() {
    let output = simulate(&["--bad", "metrics", "--log-format", "json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (summary, log) = lines.split_last().unwrap();
    assert_eq!(summary["summary"]["result"], "rolled-back");
    assert!(log.iter().all(|line| line["message"].is_string()));
    let warned: Vec<_> = log.iter().filter(|line| line["level"] == "WARN").collect();
    assert!(
        warned
            .iter()
            .all(|line| line["service"] == "orders-consumer")
    );
    assert_eq!(
        warned.len(),
        5,
        "three checks, the failure and where it leaves us: {text}"
    );
}

/// A scenario that did not happen proves nothing, so it does not pass for one that did.
#[test]
fn what_was_to_happen_at_a_step_that_never_came_is_told() {
    let never = |arguments: &[&str]| {
        let told = read(&simulate(arguments));
        let never: Vec<String> = told
            .lines()
            .filter(|line| line.contains("was never reached"))
            .map(str::to_owned)
            .collect();
        assert!(never.iter().all(|line| line.starts_with("# ")), "{told}");
        never.len()
    };
    assert_eq!(never(&["--bad", "metrics@step99"]), 1);
    assert_eq!(
        never(&["--at", "step99", "kill", "--at", "step99", "resume"]),
        1
    );
    assert_eq!(never(&["--bad", "metrics@step2..step99"]), 0);
    assert_eq!(never(&["--at", "step5", "kill"]), 0);
}

#[test]
fn what_cannot_be_played_is_refused_with_exit_code_2() {
    let directory = tempfile::tempdir().unwrap();
    let bad = directory.path().join("bad.yaml");
    std::fs::write(&bad, "orders:\n  breakpoint: 500%\n").unwrap();
    let orders = example("orders.yaml");
    let cases: [(&Path, &[&str], &[&str]); 9] = [
        (
            &orders,
            &["--bad", "metrics=3"],
            &["orders-consumer has 2 success expressions"],
        ),
        (
            &orders,
            &["--service", "invoices", "--bad", "no-data"],
            &["invoices has 0 success expressions"],
        ),
        (&bad, &[], &["bad.yaml:2", "orders.breakpoint", "500%"]),
        (Path::new("none.yaml"), &[], &["none.yaml"]),
        (
            &orders,
            &["--service", "order-consumer"],
            &["no service order-consumer", "invoices, orders-consumer"],
        ),
        (&orders, &["--bad", "crsh"], &["crsh", "never-ready"]),
        (&orders, &["--at", "noon", "kill"], &["noon", "step3"]),
        (
            &orders,
            &["--at", "5m", "dance"],
            &["dance", "image VERSION"],
        ),
        (
            &orders,
            &["--at", "5m", "remove"],
            &["another service in its namespace"],
        ),
    ];
    for (file, arguments, told) in cases {
        let output = simulate_file(file, arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        for part in told {
            assert!(
                text.contains(part),
                "{arguments:?}: {part:?} is not in: {text}"
            );
        }
        assert!(output.stdout.is_empty());
    }
}

/// Every scenario's summary, counted again from the turns of the pods' lives.
#[test]
fn the_summary_agrees_with_the_journal() {
    let nothing: Vec<Deed> = Vec::new();
    let at = |when: &str, what: &str| Deed {
        when: when.parse().unwrap(),
        what: what.parse().unwrap(),
    };
    let bad = |text: &str| text.parse::<Bad>().unwrap().deeds().collect::<Vec<_>>();
    let down = |text: &str| text.parse::<Outage>().unwrap().deeds().collect::<Vec<_>>();
    let cases = [
        (nothing, Ending::Promoted),
        (bad("metrics@step2"), Ending::RolledBack),
        (bad("crash"), Ending::RolledBack),
        (
            vec![at("20m", "scale 14"), at("40m", "scale 4")],
            Ending::Promoted,
        ),
        (vec![at("step3", "kill for 1m")], Ending::Promoted),
        (vec![at("12m", "image v1")], Ending::Cancelled),
        (vec![at("30s", "scale 0")], Ending::Unfinished),
        (down("2m"), Ending::RolledBack),
    ];
    for (deeds, ending) in cases {
        let named = format!("{deeds:?}");
        let Played { summary, journal } = played(deeds);
        assert_eq!(summary.ending, ending, "{named}");
        let counted = Counted::from(&journal);
        assert_eq!(summary.starts, counted.starts, "{named}");
        assert_eq!(summary.most_alive, counted.most_alive, "{named}");
        assert_eq!(summary.least_available, counted.least_ready, "{named}");
        let deeds = journal.writes_by("volery");
        let last = deeds.filter(|write| !write.only_tells()).last().unwrap();
        assert_eq!(summary.took, last.at - APPLIED_AFTER, "{named}");
    }
}

/// Promise 1, from the summary: a promoted rollout of N replicas starts exactly N pods.
#[test]
fn a_promoted_rollout_starts_each_pod_once() {
    let summary = played(Vec::new()).summary;
    assert_eq!(summary.pod_starts(), 10);
    assert_eq!((summary.most_alive, summary.least_available), (11, 10));
}

#[test]
fn so_does_one_of_many_replicas_whose_pods_became_ready_at_once() {
    let summary = played_with(60, Vec::new()).summary;
    assert_eq!(summary.ending, Ending::Promoted);
    assert_eq!(summary.pod_starts(), 60);
    assert_eq!((summary.most_alive, summary.least_available), (66, 60));
}

#[test]
fn two_hundred_replicas_are_promoted_with_a_start_each() {
    let Played { summary, journal } = played_with(200, Vec::new());
    assert_eq!(summary.ending, Ending::Promoted);
    assert_eq!(summary.pod_starts(), 200);
    assert_eq!((summary.most_alive, summary.least_available), (220, 200));
    let counted = Counted::from(&journal);
    assert_eq!(summary.starts, counted.starts);
    assert_eq!(summary.most_alive, counted.most_alive);
    assert_eq!(summary.least_available, counted.least_ready);
}

fn played(deeds: Vec<Deed>) -> Played {
    played_with(10, deeds)
}

fn played_with(replicas: u32, deeds: Vec<Deed>) -> Played {
    let loaded = daemon::load(&example("orders.yaml")).unwrap();
    let service = choose(&loaded, None).unwrap();
    assert_eq!(
        service.name.as_str(),
        "orders-consumer",
        "the first of the file"
    );
    let mut scenario = Scenario::good(replicas);
    scenario.deeds.extend(deeds);
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(play(&loaded, service, &scenario, &mut |_| {}))
        .unwrap()
}

/// Pods by their turns alone; those of one worker are all there are.
struct Counted {
    starts: BTreeMap<String, usize>,
    most_alive: usize,
    least_ready: usize,
}

impl Counted {
    fn from(journal: &Journal) -> Self {
        let mut starts = BTreeMap::new();
        // Whether each living pod is ready.
        let mut living: BTreeMap<&str, bool> = BTreeMap::new();
        let mut counts = Vec::new();
        let mut count = |living: &BTreeMap<&str, bool>| {
            counts.push((
                living.len(),
                living.values().filter(|ready| **ready).count(),
            ));
        };
        let (before, after): (Vec<_>, Vec<_>) = journal
            .pods
            .iter()
            .partition(|turn| turn.at < APPLIED_AFTER);
        for turn in &before {
            follow(&mut living, turn);
        }
        count(&living);
        for turn in &after {
            if turn.turn == Turn::Started {
                *starts.entry(turn.image.clone()).or_insert(0) += 1;
            }
            follow(&mut living, turn);
            count(&living);
        }
        Self {
            starts,
            most_alive: counts.iter().map(|(alive, _)| *alive).max().unwrap(),
            least_ready: counts.iter().map(|(_, ready)| *ready).min().unwrap(),
        }
    }
}

fn follow<'a>(living: &mut BTreeMap<&'a str, bool>, turn: &'a volery::simulate::cluster::PodTurn) {
    match turn.turn {
        Turn::Started => drop(living.insert(&turn.pod, false)),
        Turn::Ready => drop(living.insert(&turn.pod, true)),
        Turn::Unready => {
            if let Some(ready) = living.get_mut(turn.pod.as_str()) {
                *ready = false;
            }
        }
        Turn::Terminating | Turn::Ended => drop(living.remove(turn.pod.as_str())),
    }
}
