use std::path::Path;

use super::super::Config;
use super::super::load::Loaded;

const GLOBALS: &str = "prometheus-base-url: http://prometheus:9090\nnamespace: workers\n";

const ENTRY: &str = "  breakpoint: 50%\n  step: 10%\n  abort: 120s\n  max_step_duration: 10m\n  \
                     check_success_step_duration: 2m\n";

fn load(globals: &str, entry: &str) -> Config {
    let text = format!("{globals}orders-consumer:\n{entry}");
    let loaded: Loaded =
        Config::parse(Path::new("volery.yaml"), &text, &|_| Ok(())).expect("it can be read");
    assert!(loaded.is_valid(), "{text}\n{:?}", loaded.problems);
    loaded.config
}

/// The entry as it is by default, with some lines in place of those of the same key.
fn entry(lines: &str) -> String {
    let key = |line: &str| line.split(':').next().map(str::trim).map(str::to_owned);
    let given: Vec<_> = lines.lines().map(key).collect();
    let mut text: String = ENTRY
        .lines()
        .filter(|line| !given.contains(&key(line)))
        .map(|line| format!("{line}\n"))
        .collect();
    if !lines.contains("success:") {
        text += "  success: [{expr: a > 1}, {expr: b > 1}]\n";
    }
    text + lines
}

#[test]
fn each_key_of_an_entry_is_told_as_the_file_spells_it() {
    let before = load(GLOBALS, &entry(""));
    let before = before.services.values().next().expect("one");
    for (lines, expected) in [
        ("", ""),
        ("  step: 20%\n", "step 10% -> 20%"),
        ("  breakpoint: 3\n", "breakpoint 50% -> 3"),
        ("  abort: 90s\n", "abort 2m -> 1m30s"),
        ("  start_delay: 5s\n", "start_delay 0s -> 5s"),
        (
            "  max_step_duration: 20m\n",
            "max_step_duration 10m -> 20m, inconclusive_timeout 10m -> 20m",
        ),
        (
            "  check_success_step_duration: 1m\n",
            "check_success_step_duration 2m -> 1m",
        ),
        ("  check_max_failures: 4\n", "check_max_failures 1 -> 4"),
        (
            "  inconclusive_timeout: 1h\n",
            "inconclusive_timeout 10m -> 1h",
        ),
        ("  no_data_grace: 0s\n", "no_data_grace 1m -> 0s"),
        (
            "  success: [{expr: a > 1}, {expr: b > 2}]\n",
            "expression 2 changed",
        ),
        (
            "  success: [{expr: c > 1}]\n",
            "expression 1 changed, expression 2 removed",
        ),
        (
            "  success: [{expr: a > 1}, {expr: b > 1}, {expr: c > 1}]\n",
            "expression 3 added",
        ),
        (
            "  success: []\n",
            "expression 1 removed, expression 2 removed",
        ),
        ("  on_failure: freeze\n", "on_failure rollback -> freeze"),
        (
            "  restore_original: true\n",
            "restore_original false -> true",
        ),
        (
            "  canary_on: containers\n",
            "canary_on template -> containers",
        ),
        ("  max_surge: 0\n", "max_surge default -> 0"),
        ("  max_unavailable: 20%\n", "max_unavailable default -> 20%"),
        ("  finish_step: 50%\n", "finish_step default -> 50%"),
        ("  known_good: bypass\n", "known_good checks -> bypass"),
        ("  max_restarts: 2\n", "max_restarts 0 -> 2"),
        (
            "  ignore_containers: [b, a]\n",
            "ignore_containers [] -> [a, b]",
        ),
        (
            "  ignore_completed: true\n",
            "ignore_completed false -> true",
        ),
        ("  copy_labels: [team]\n", "copy_labels [] -> [team]"),
        ("  notify: []\n", "notify all channels -> []"),
        ("  namespace: jobs\n", "namespace workers -> jobs"),
        (
            "  deployment: orders\n",
            "deployment orders-consumer -> orders",
        ),
    ] {
        let after = load(GLOBALS, &entry(lines));
        let after = after.services.values().next().expect("one");
        assert_eq!(before.changes_to(after).join(", "), expected, "{lines}");
    }
}

#[test]
fn global_settings_are_told_without_their_secrets() {
    let before = load(
        "prometheus-base-url: http://me:first@prometheus:9090\nnamespace: workers\n\
         notify: [{name: a, slack: {url-from-env: A}}, {name: b, slack: {url-from-env: B}}]\n",
        &entry(""),
    );
    let after = |url: &str, rest: &str| {
        let globals = format!("prometheus-base-url: {url}\nnamespace: workers\n{rest}");
        before
            .setting_changes_to(&load(&globals, &entry("")))
            .join(", ")
    };
    let notify =
        "notify: [{name: a, slack: {url-from-env: A}}, {name: b, slack: {url-from-env: B}}]\n";
    assert_eq!(after("http://me:first@prometheus:9090", notify), "");
    assert_eq!(
        after("http://me:second@prometheus:9090", notify),
        "prometheus-base-url changed"
    );
    let tenant = format!("{notify}prometheus: {{headers: {{X-Scope-OrgID: shop}}}}\n");
    assert_eq!(
        after("http://me:first@prometheus:9090", &tenant),
        "prometheus changed"
    );
    assert_eq!(
        after("http://mimir/prometheus", notify),
        "prometheus-base-url http://***@prometheus:9090 -> http://mimir/prometheus"
    );
    assert_eq!(
        after(
            "http://me:first@prometheus:9090",
            "poll-interval: 5s\nmax-concurrent-rollouts: 3\n\
             notify: [{name: b, slack: {url-from-env: OTHER}}, {name: c, slack: {url-from-env: C}}]\n"
        ),
        "poll-interval 2s -> 5s, max-concurrent-rollouts 20 -> 3, channel a removed, channel b changed, channel c added"
    );
}
