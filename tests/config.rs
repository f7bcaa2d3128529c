//! The example files, what a person reads about a broken one, and that no text at all makes the loader panic.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use volery::config::{
    Audience, Bound, Config, ConfigError, Loaded, Service, ServiceName, display_duration,
};

/// The keys of Volery's own, by the names they have in the file.
fn own_keys(service: &Service) -> [(&'static str, String); 12] {
    let or_absent = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let list = |set: &BTreeSet<String>| {
        let items: Vec<&str> = set.iter().map(String::as_str).collect();
        format!("[{}]", items.join(", "))
    };
    [
        ("on_failure", service.on_failure.to_string()),
        ("restore_original", service.restore_original.to_string()),
        ("canary_on", service.canary_on.to_string()),
        (
            "max_surge",
            or_absent(service.max_surge.map(|bound| bound.to_string())),
        ),
        (
            "max_unavailable",
            or_absent(service.max_unavailable.map(|bound| bound.to_string())),
        ),
        (
            "finish_step",
            or_absent(service.finish_step.map(|amount| amount.to_string())),
        ),
        ("known_good", service.known_good.to_string()),
        ("max_restarts", service.max_restarts.to_string()),
        ("ignore_containers", list(&service.ignore_containers)),
        ("ignore_completed", service.ignore_completed.to_string()),
        ("copy_labels", list(&service.copy_labels)),
        (
            "notify",
            match &service.notify {
                Audience::Everyone => "-".to_owned(),
                Audience::Only(names) => list(&names.iter().map(ToString::to_string).collect()),
            },
        ),
    ]
}

fn any_expression(_: &str) -> Result<(), String> {
    Ok(())
}

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files
}

fn example(name: &str) -> Config {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("config")
        .join(name);
    Config::load(&file, &any_expression)
        .and_then(Loaded::into_valid)
        .unwrap()
}

fn describe(service: &Service) -> String {
    let success: Vec<String> = service
        .success
        .iter()
        .map(|expression| format!("\n  {expression} (no data: {})", expression.on_no_data))
        .collect();
    let own_keys = own_keys(service).map(|(key, value)| format!(" {key} {value}"));
    format!(
        "{}: {}/{} breakpoint {} step {} abort {} start_delay {} max_step_duration {} \
         check_interval {} check_max_failures {} inconclusive_timeout {} no_data_grace {}\n {}{}",
        service.name,
        service.namespace,
        service.deployment,
        service.breakpoint,
        service.step,
        display_duration(service.abort),
        display_duration(service.start_delay),
        display_duration(service.max_step_duration),
        display_duration(service.check_interval),
        service.check_max_failures,
        display_duration(service.inconclusive_timeout),
        display_duration(service.no_data_grace),
        own_keys.concat(),
        success.concat(),
    )
}

fn describe_all(config: &Config) -> String {
    let services: Vec<String> = config.services.values().map(describe).collect();
    format!(
        "prometheus: {}\npoll_interval: {}\nmax_concurrent_rollouts: {}\n{}",
        config
            .prometheus
            .as_ref()
            .map_or_else(|| "-".to_owned(), |settings| settings.url.to_string()),
        display_duration(config.poll_interval),
        config.max_concurrent_rollouts,
        services.join("\n")
    )
}

#[test]
fn every_example_file_loads() {
    let files = examples();
    assert!(files.len() >= 2, "{files:?}");
    for file in files {
        let loaded = Config::load(&file, &any_expression).unwrap();
        assert!(loaded.is_valid(), "{}", loaded.into_valid().unwrap_err());
        assert_eq!(loaded.warnings, [], "{}", file.display());
        assert!(!loaded.config.services.is_empty());
    }
}

#[test]
fn aviarys_own_example_means_what_it_meant_there() {
    insta::assert_snapshot!(describe_all(&example("aviary.yaml")));
}

#[test]
fn the_commented_example_means_what_its_comments_say() {
    insta::assert_snapshot!(describe_all(&example("orders.yaml")));
}

/// What a person is told about a text, and what stays usable of it.
fn told(text: &str) -> String {
    let check = |expression: &str| {
        if expression.contains(" > ") {
            Ok(())
        } else {
            Err("expected a comparison".to_owned())
        }
    };
    let names = |names: Vec<&ServiceName>| {
        let names: Vec<String> = names.into_iter().map(ToString::to_string).collect();
        names.join(", ")
    };
    match Config::parse(Path::new("config/orders.yaml"), text, &check) {
        Err(error) => error.to_string(),
        Ok(loaded) => {
            let usable = names(loaded.config.services.keys().collect());
            let refused = names(loaded.refused.iter().collect());
            match loaded.into_valid() {
                Ok(_) => format!("valid\nusable: {usable}"),
                Err(error) => format!("{error}\nusable: {usable}\nrefused: {refused}"),
            }
        }
    }
}

#[test]
fn all_mistakes_of_a_file_are_told_at_once_with_their_places() {
    let text = r#"prometheus-base-url: prometheus:9090
poll-intervall: 2s
namespace: workers
notify: https://hooks.slack.com/services/hunter2

orders-consumer:
  brekpoint: 50%
  step: 0%
  abort: 5 minutes
  max_step_duration: 600
  check_success_step_duration: 0s
  check_max_failures: none
  step: 10%
  success:
    - expr: rate(orders_done_total{pod="<<pod>>"}[1m])
    - rate(orders_done_total{pod="<<pod>>"}[1m]) > 500
    - {}

good:
  breakpoint: 50%
  step: 1
  abort: 2m
  max_step_duration: 10m
  check_success_step_duration: 2m
  success: []

good-again:
  deployment: good
  on_failure: freezing
  on_no_data: wait

Invoices:
  step: 10%

untouched:
  breakpoint: 1
  step: 1
  abort: 2m
  max_step_duration: 10m
  check_success_step_duration: 2m
  success: []

step: 10%
"#;
    insta::assert_snapshot!(told(text));
}

#[test]
fn what_no_config_file_has_use_for_hides_no_other_mistake() {
    let text = r#"defaults: &common
  step: !share 10%
  <<: 5
? [a, b]
: c
orders:
  <<: *common
  brekpoint: 50%
  abort: &loop [*loop]
  success: *nowhere
---
namespace: workers
"#;
    insta::assert_snapshot!(told(text));
}

#[test]
fn mistakes_by_anchors_and_merge_keys_are_told_where_they_stand() {
    let text = r#"namespace: workers
orders: &orders
  breakpoint: &half 50 %
  step: 1
  abort: 2m
  max_step_duration: 10m
  check_success_step_duration: 2m
  success: &success
    - expr: up
    - expr: up > 0
invoices:
  <<: *orders
  breakpoint: 1
  step: *half
refunds:
  <<: [{stpe: 2}, *orders]
  success: *success
  abort: 1m
  abort: 2m
"#;
    insta::assert_snapshot!(told(text));
}

/// What is doubtful about a text in which nothing is wrong.
fn doubts(text: &str) -> Vec<String> {
    let loaded = Config::parse(Path::new("orders.yaml"), text, &any_expression).unwrap();
    assert!(loaded.is_valid(), "{}", loaded.into_valid().unwrap_err());
    loaded.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_legal_and_foolish_is_told_with_its_place() {
    let told: Vec<String> = [
        "check_success_step_duration: 15m",
        "check_success_step_duration: 15m\n  check_max_failures: 3",
        "check_max_failures: 7",
        "check_max_failures: 2\n  max_step_duration: 1m\n  check_success_step_duration: 61s",
        "inconclusive_timeout: 2m",
        "no_data_grace: 11m",
        "no_data_grace: 3m\n  inconclusive_timeout: 150s",
        "step: 60%",
        "breakpoint: 2\n  step: 3",
        "breakpoint: 100%\n  finish_step: 1",
        "on_failure: freeze\n  restore_original: true",
        "success: [{expr: up > 0}, {expr: 'x{pod=~\"<<canary>>\"} > 0'}, {expr: 'x{pod=~\"<<primary>>\"} > 0'}]",
    ]
    .iter()
    .map(|lines| {
        let keys: Vec<&str> = lines
            .split("\n  ")
            .filter_map(|line| line.split(':').next())
            .collect();
        let rest = with("known_good", "checks");
        let rest = rest.lines().filter(|line| {
            let key = line.trim().split(':').next().unwrap_or_default();
            !keys.contains(&key)
        });
        let rest: String = rest.map(|line| format!("{line}\n")).collect();
        let text = format!("prometheus-base-url: http://prometheus:9090/\n{rest}  {lines}\n");
        format!("{lines}\n  {}", doubts(&text).join("\n  "))
    })
    .collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn what_makes_sense_is_not_doubted() {
    for (key, value) in [
        ("check_max_failures", "6"),
        ("inconclusive_timeout", "121s"),
        ("no_data_grace", "10m"),
        ("finish_step", "100%"),
        ("restore_original", "true"),
        ("on_failure", "freeze"),
        ("known_good", "checks"),
    ] {
        assert_eq!(doubts(&with(key, value)), [] as [&str; 0], "{key}: {value}");
    }
    // The grace of a minute is nobody's word, and so is what follows from the interval alone.
    let short = with("known_good", "checks")
        .replace(": 10m", ": 30s")
        .replace(": 2m\n  success", ": 30s\n  success");
    assert_eq!(doubts(&short), [] as [&str; 0], "{short}");
}

#[test]
fn a_doubt_that_follows_from_the_defaults_is_told_there_and_once() {
    let text = "namespace: workers\ndefaults:\n  breakpoint: 50%\n  step: 60%\n  abort: 2m\n  max_step_duration: 10m\n  \
                check_success_step_duration: 2m\n  check_max_failures: 9\n  success: []\na: {}\nb: {}\nc: {step: 1}\n\
                d: {max_step_duration: 5m}\n";
    assert_eq!(
        doubts(text)
            .iter()
            .map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>(),
        [
            "4:9 defaults.step",
            "8:23 defaults.check_max_failures",
            "13:24 d.max_step_duration",
        ]
    );
}

#[test]
fn credentials_on_their_way_to_another_host_are_doubted_and_not_shown() {
    for (url, doubted) in [
        ("http://volery:hunter2@prometheus:9090/", true),
        ("http://volery@10.0.0.1/", true),
        ("https://volery:hunter2@prometheus/", false),
        ("http://volery:hunter2@localhost:9090/", false),
        ("http://volery:hunter2@127.0.0.1:9090/", false),
        ("http://volery:hunter2@[::1]:9090/", false),
        ("http://prometheus:9090/", false),
    ] {
        let told = doubts(&format!("prometheus-base-url: {url}\nnamespace: workers\n"));
        assert_eq!(told.len(), usize::from(doubted), "{url}: {told:?}");
        assert!(!told.concat().contains("hunter2"), "{told:?}");
    }
}

/// Texts of at most a few hundred kilobytes that would come to billions of things to do, were they not bounded.
fn bombs() -> Vec<(&'static str, String)> {
    let many =
        |count: usize, line: &dyn Fn(usize) -> String| -> String { (0..count).map(line).collect() };
    let unknown = many(1_000, &|key| format!("  zzzzzzzz{key}: 1\n"));
    let expressions = many(5_000, &|number| format!("    - expr: up > {number}\n"));
    let long = "x".repeat(200_000);
    vec![
        (
            "aliases of a mapping",
            format!(
                "a: &a\n{unknown}{}",
                many(20_000, &|key| format!("b{key}: *a\n"))
            ),
        ),
        (
            "aliases of aliases",
            many(40, &|level| match level {
                0 => "a0: &a0 [x, x]\n".to_owned(),
                level => format!("a{level}: &a{level} [*a{0}, *a{0}]\n", level - 1),
            }),
        ),
        (
            "defaults of a long list",
            format!(
                "namespace: w\ndefaults:\n  success:\n{expressions}{}",
                many(20_000, &|key| format!("s{key}: {{}}\n"))
            ),
        ),
        (
            "one long value for many services",
            format!(
                "a: &a {long}\n{}",
                many(20_000, &|key| format!("s{key}: {{step: *a}}\n"))
            ),
        ),
        (
            "a long key, merged often",
            format!(
                "a: &a {{{}: 1}}\n{}",
                "k".repeat(10_000),
                many(20_000, &|key| format!("s{key}: {{<<: *a}}\n"))
            ),
        ),
        (
            "keys that stand twice",
            format!("{0}{0}", many(20_000, &|key| format!("s{key}: {{}}\n"))),
        ),
    ]
}

#[test]
fn a_text_that_would_come_to_too_much_is_refused_or_read_in_bounds() {
    for (what, text) in bombs() {
        let problems = match Config::parse(Path::new("bomb.yaml"), &text, &any_expression) {
            Err(ConfigError::Invalid { problems, .. }) => problems,
            Err(error) => panic!("{what}: {error}"),
            Ok(loaded) => loaded.problems,
        };
        assert!(!problems.is_empty(), "{what}");
        let longest = problems.iter().map(|problem| problem.path.len()).max();
        assert!(longest.unwrap() < 200, "{what}: {longest:?}");
    }
}

#[test]
fn a_file_that_never_ends_is_not_read_to_its_end() {
    let error = Config::load(Path::new("/dev/zero"), &any_expression).unwrap_err();
    let told = error.to_string();
    assert!(told.contains("at most 4194304 bytes"), "{told}");
}

/// A file in which every key stands somewhere.
const EVERY_KEY: &str = r#"prometheus-base-url: http://prometheus.monitoring:9090/
namespace: workers
poll-interval: 1s
max-concurrent-rollouts: 5
notify:
  - name: on-call
    slack: {url-from-env: SLACK_URL}
    events: [failed, frozen, promoted]
  - name: hook
    webhook: {url: http://alerts.ops/volery, header-from-file: /etc/volery/token}
defaults:
  breakpoint: 50%
  step: 10%
  abort: 2m
  start_delay: 60s
  max_step_duration: 10m
  check_success_step_duration: 2m
  check_max_failures: 4
  inconclusive_timeout: 5m
  no_data_grace: 30s
  success: [{expr: 'up{pod="<<pod>>"} > 0'}, {expr: 'a{pod="<<pod>>"} > 0', on_no_data: pass}]
  max_restarts: 1
  ignore_containers: [istio-proxy]
orders-consumer:
  namespace: billing
  deployment: orders
  on_failure: freeze
  restore_original: false
  canary_on: containers
  max_surge: 0
  max_unavailable: 25%
  finish_step: 100%
  known_good: bypass
  max_restarts: 0
  ignore_containers: []
  ignore_completed: true
  copy_labels:
    - team
    - example.com/tier
  notify: [on-call]
invoices: {}
"#;

#[test]
fn a_file_of_every_key_means_what_it_says() {
    let loaded = Config::parse(Path::new("every.yaml"), EVERY_KEY, &any_expression).unwrap();
    insta::assert_snapshot!(describe_all(&loaded.into_valid().unwrap()));
}

/// A valid service but for one key.
fn with(key: &str, value: &str) -> String {
    format!(
        "namespace: workers\norders:\n  breakpoint: 50%\n  step: 1\n  abort: 2m\n  max_step_duration: 10m\n  \
         check_success_step_duration: 2m\n  success: []\n  {key}: {value}\n"
    )
}

#[test]
fn each_of_volerys_own_keys_takes_what_it_is_for() {
    for (key, value, taken) in [
        ("on_failure", "rollback", "rollback"),
        ("on_failure", "freeze", "freeze"),
        ("on_failure", "'freeze'", "freeze"),
        ("restore_original", "true", "true"),
        ("restore_original", "false", "false"),
        ("canary_on", "template", "template"),
        ("canary_on", "containers", "containers"),
        ("max_surge", "0", "0"),
        ("max_surge", "0%", "0"),
        ("max_surge", "2", "2"),
        ("max_surge", "12.5%", "12.5%"),
        ("max_surge", "100%", "100%"),
        ("max_unavailable", "0", "0"),
        ("max_unavailable", "1", "1"),
        ("max_unavailable", "25%", "25%"),
        ("finish_step", "1", "1"),
        ("finish_step", "100%", "100%"),
        ("known_good", "checks", "checks"),
        ("known_good", "bypass", "bypass"),
        ("max_restarts", "0", "0"),
        ("max_restarts", "12", "12"),
        ("ignore_containers", "[]", "[]"),
        (
            "ignore_containers",
            "[proxy, agent, proxy]",
            "[agent, proxy]",
        ),
        ("ignore_containers", "\n  - 0", "[0]"),
        ("ignore_completed", "true", "true"),
        ("ignore_completed", "false", "false"),
        ("copy_labels", "[]", "[]"),
        (
            "copy_labels",
            "[team, app.kubernetes.io/name]",
            "[app.kubernetes.io/name, team]",
        ),
    ] {
        let loaded =
            Config::parse(Path::new("orders.yaml"), &with(key, value), &any_expression).unwrap();
        let config = loaded.into_valid().unwrap();
        let service = config.services.values().next().unwrap();
        let found = own_keys(service)
            .into_iter()
            .find(|(name, _)| *name == key)
            .unwrap();
        assert_eq!(found.1, taken, "{key}: {value}");
    }
}

#[test]
fn each_of_volerys_own_keys_tells_what_it_cannot_take() {
    let told: Vec<String> = [
        ("on_failure", "roll-back"),
        ("on_failure", "Freeze"),
        ("on_failure", ""),
        ("on_failure", "[freeze]"),
        ("restore_original", "yes"),
        ("restore_original", "FALSE"),
        ("restore_original", "1"),
        ("restore_original", ""),
        ("canary_on", "images"),
        ("max_surge", "much"),
        ("max_surge", "-1"),
        ("max_surge", "150%"),
        ("max_surge", "1.5"),
        ("max_surge", "0.00001%"),
        ("max_surge", "4294967296"),
        ("max_surge", "0\n  max_unavailable: 0%"),
        ("max_unavailable", ""),
        ("max_unavailable", "-10%"),
        ("max_unavailable", "010"),
        ("finish_step", "0"),
        ("finish_step", "101%"),
        ("finish_step", "all"),
        ("known_good", "true"),
        ("max_restarts", "-1"),
        ("max_restarts", "+1"),
        ("max_restarts", "010"),
        ("max_restarts", "4294967296"),
        ("max_restarts", "10%"),
        ("max_restarts", ""),
        ("ignore_containers", "proxy"),
        ("ignore_containers", ""),
        ("ignore_containers", "{proxy: true}"),
        ("ignore_containers", "[Istio_Proxy, fine, ~, [a]]"),
        ("ignore_completed", "off"),
        ("copy_labels", "team"),
        ("copy_labels", "[a b, team: x, /team]"),
        (
            "copy_labels",
            "[volery.dev/role, app.kubernetes.io/managed-by, helm.sh/chart, argocd.argoproj.io/instance, \
             kustomize.toolkit.fluxcd.io/name]",
        ),
        ("onFailure", "freeze"),
        ("restore-original", "true"),
        ("canary", "containers"),
        ("max_sruge", "1"),
        ("maxUnavailable", "1"),
        ("finish_steps", "1"),
        ("knowngood", "bypass"),
        ("max_restart", "1"),
        ("ignore_container", "[a]"),
        ("ignore_complete", "true"),
        ("copy_label", "[a]"),
        ("max_concurrent_rollouts", "1"),
    ]
    .iter()
    .map(|(key, value)| told_of_problems(&with(key, value)))
    .collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn each_global_setting_tells_what_it_cannot_take() {
    let told: Vec<String> = [
        "max-concurrent-rollouts: 0",
        "max-concurrent-rollouts: -1",
        "max-concurrent-rollouts: many",
        "max-concurrent-rollouts:",
        "max_concurrent_rollout: 3",
        "defaults: 10%",
        "defaults: {step: 0%, brekpoint: 50%, colour: red}",
        "default: {step: 10%}",
        "prometheus:",
        "prometheus: http://prometheus:9090/",
        "prometheus: {bearer-token-file: /etc/token}",
        "prometheus: {bearer-token-from-env: Bearer hunter2}",
        "prometheus: {bearer-token-from-file: token}",
        "prometheus: {bearer-token-from-env: A, bearer-token-from-file: /a}",
        "prometheus: {bearer-token-from-env: A, username: volery, password-from-env: B}",
        "prometheus: {username: volery}",
        "prometheus: {password-from-file: /a}",
        "prometheus: {username: 'me:hunter2', password-from-file: /a}",
        "prometheus: {username: volery, password: hunter2}",
        "prometheus: {ca-file: ca.crt, timeout: 0s}",
        "prometheus: {headers: [X-Scope-OrgID]}",
        "prometheus: {headers: {X-Scope-OrgID: , X Y: a, Content-Type: a, X-Key: {}, X-Other: {from-env: A, from-file: /a}}}",
        "prometheus: {headers: {Authorization: Bearer hunter2, X-Ke: {from-fil: /a}}}",
        "prometheus: {headers: {X-A: a, x-a: b, X-A: c}}",
        "prometheus: {bearer-token-from-env: A, headers: {authorization: {from-env: B}}}",
        "promethius: {ca-file: /etc/ca.crt}",
        "notify:",
        "notify: [https://hooks.slack.com/services/hunter2]",
        "notify: [{slack: https://hooks.slack.com/services/hunter2}]",
        "notify: [{name: On Call, slack: {url-from-env: https://hooks.slack.com/services/hunter2}}]",
        "notify: [{name: a, slack: {url: https://hooks.slack.com/services/hunter2}}]",
        "notify: [{name: a, slack: {url-from-env: A, url-from-file: /a}}]",
        "notify: [{name: a, slack: {}, webhook: {}}, {name: b, webhook: {}}]",
        "notify: [{name: a, webhook: {url: http://me:hunter2@alerts.ops/}}]",
        "notify: [{name: a, webhook: {url: alerts.ops, header-from-env: Bearer hunter2}}]",
        "notify: [{name: a, webhook: {url: http://a/, header-from-env: A, header-from-file: /a}}]",
        "notify: [{name: a, slck: {url-from-env: A}}]",
        "notify: [{name: a, slack: {url-from-env: A}, events: [fail, failed]}]",
        "notify: [{name: a, slack: {url-from-env: A}, events: []}]",
        "notify: [{name: a, slack: {url-from-env: A}}, {name: a, slack: {url-from-env: A}}]",
        "notify: [{name: a, slack: {url-from-env: A}}]\ndefaults: {notify: [b]}",
        "defaults: {notify: a}",
        "defaults: {notify: [a]}",
    ]
    .iter()
    .map(|line| {
        let url = if line.starts_with("prometheus") {
            "prometheus-base-url: http://prometheus:9090/"
        } else {
            "namespace: workers"
        };
        told_of_problems(&format!("{url}\n{line}\n"))
    })
    .collect();
    insta::assert_snapshot!(told.join("\n"));
}

/// What is wrong with a text, one line each.
fn told_of_problems(text: &str) -> String {
    Config::parse(Path::new("orders.yaml"), text, &any_expression)
        .and_then(Loaded::into_valid)
        .unwrap_err()
        .to_string()
}

#[test]
fn a_text_that_is_no_config_file_is_told_where_it_stops_making_sense() {
    let texts = [
        ("empty", ""),
        ("a comment alone", "# nothing yet\n"),
        ("a list", "- orders\n- invoices\n"),
        (
            "truncated",
            "namespace: workers\norders:\n  success: [{expr: \"up",
        ),
        ("tabs", "orders:\n\tstep: 10%\n"),
        (
            "bad indentation",
            "orders:\n  step: 10%\n breakpoint: 50%\n",
        ),
        ("an unquoted brace", "orders:\n  step: {10%\n  abort: 2m\n"),
        ("an anchor that is not there", "orders:\n  <<: *common\n"),
        (
            "two documents",
            "namespace: workers\n---\nnamespace: billing\n",
        ),
        (
            "a conflict marker",
            "<<<<<<< HEAD\nnamespace: workers\n=======\n",
        ),
    ];
    let told: Vec<String> = texts
        .iter()
        .map(|(what, text)| format!("{what}:\n{}", told(text)))
        .collect();
    insta::assert_snapshot!(told.join("\n\n"));
}

#[test]
fn a_file_that_is_not_there_or_not_text_is_told_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent.yaml");
    let error = Config::load(&absent, &any_expression).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{}: cannot be read", absent.display())
    );
    assert!(std::error::Error::source(&error).is_some());

    let binary = folder.path().join("binary.yaml");
    std::fs::write(&binary, b"a: b\n  \xff\xfe").unwrap();
    let error = Config::load(&binary, &any_expression).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{}:2:3: expected a text in UTF-8", binary.display())
    );
}

/// Whatever was read, its parts agree with each other and with the text.
fn assert_consistent(text: &str) {
    let lines = text.split(['\n', '\r']).count();
    let problems = match Config::parse(Path::new("any.yaml"), text, &any_expression) {
        Ok(loaded) => {
            let mut deployments = BTreeSet::new();
            for (name, service) in &loaded.config.services {
                assert_eq!(name, &service.name);
                assert!(!loaded.refused.contains(name), "usable and refused");
                assert!(
                    deployments.insert((&service.namespace, &service.deployment)),
                    "one Deployment twice"
                );
                assert!(
                    service.success.is_empty() || loaded.config.prometheus.is_some(),
                    "expressions without a Prometheus"
                );
                assert!(!service.check_interval.is_zero());
                assert!(
                    service.max_surge != Some(Bound::Zero)
                        || service.max_unavailable != Some(Bound::Zero),
                    "nothing could ever move"
                );
            }
            assert!(
                loaded.refused.is_empty() || !loaded.is_valid(),
                "refused without a reason"
            );
            loaded.problems
        }
        Err(ConfigError::Invalid { problems, .. }) => {
            assert!(!problems.is_empty(), "refused without a reason");
            problems
        }
        Err(ConfigError::Unreadable { .. }) => panic!("nothing was read from disk"),
    };
    for problem in problems {
        assert!(
            (1..=lines + 1).contains(&problem.at.line),
            "{problem} in a text of {lines} lines"
        );
        assert_eq!(problem.path.lines().count().max(1), 1, "{problem}");
    }
}

/// A slip of the hand at a place of a text, given in characters.
#[derive(Clone, Debug)]
enum Slip {
    Truncate,
    Delete(usize),
    Insert(String),
    RepeatLine,
    Indent(usize),
}

fn slip() -> impl Strategy<Value = Slip> {
    prop_oneof![
        Just(Slip::Truncate),
        (1..20usize).prop_map(Slip::Delete),
        "[-:{}\\[\\]&*!|>'\"%@`#,?<~ \t\n\ra-e0-9é]{1,6}".prop_map(Slip::Insert),
        any::<String>().prop_map(Slip::Insert),
        Just(Slip::RepeatLine),
        (1..5usize).prop_map(Slip::Indent),
    ]
}

fn apply(text: &str, at: prop::sample::Index, slip: &Slip) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = at.index(chars.len() + 1);
    let (before, after) = chars.split_at(at);
    let (before, after): (String, String) = (before.iter().collect(), after.iter().collect());
    match slip {
        Slip::Truncate => before,
        Slip::Delete(count) => before + &after.chars().skip(*count).collect::<String>(),
        Slip::Insert(inserted) => before + inserted + &after,
        Slip::RepeatLine => {
            let line = after.lines().next().unwrap_or_default();
            format!("{before}{line}\n{after}")
        }
        Slip::Indent(by) => format!("{before}{}{after}", " ".repeat(*by)),
    }
}

/// Texts that are valid before a hand slips.
fn texts() -> Vec<String> {
    examples()
        .into_iter()
        .map(|file| std::fs::read_to_string(file).unwrap())
        .chain([EVERY_KEY.to_owned()])
        .collect()
}

proptest! {
    #[test]
    fn no_text_at_all_makes_the_loader_panic(text in any::<String>(), near in "([a-c<]{1,3}: ?[&*!\\[{|>-]{0,2}[a-c%0-9]{0,3}\n? {0,3}){0,12}") {
        assert_consistent(&text);
        assert_consistent(&near);
    }

    #[test]
    fn no_slip_of_the_hand_makes_the_loader_panic(
        text in prop::sample::select(texts()),
        slips in prop::collection::vec((any::<prop::sample::Index>(), slip()), 1..4),
    ) {
        let mut text = text;
        for (at, slip) in slips {
            text = apply(&text, at, &slip);
        }
        assert_consistent(&text);
    }
}
