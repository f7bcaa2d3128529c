use std::path::Path;

use super::super::{Audience, Authorities, HeaderText, Loaded, Login, Secret};
use super::*;

const GLOBALS: &str = "prometheus-base-url: http://prometheus:9090\nnamespace: workers\n";

const SERVICE: [(&str, &str); 6] = [
    ("breakpoint", "50%"),
    ("step", "10%"),
    ("abort", "2m"),
    ("max_step_duration", "10m"),
    ("check_success_step_duration", "2m"),
    ("success", "[{expr: up > 0}]"),
];

fn load(text: &str) -> Loaded {
    let check = |expression: &str| {
        if expression.contains('>') {
            Ok(())
        } else {
            Err("expected a comparison".to_owned())
        }
    };
    Config::parse(Path::new("volery.yaml"), text, &check)
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn entry(name: &str, changes: &[(&str, &str)]) -> String {
    let mut keys: Vec<(&str, &str)> = SERVICE.to_vec();
    for (key, value) in changes {
        match keys.iter_mut().find(|(known, _)| known == key) {
            Some(known) => known.1 = value,
            None => keys.push((key, value)),
        }
    }
    let lines: Vec<String> = keys
        .iter()
        .filter(|(_, value)| *value != "ABSENT")
        .map(|(key, value)| format!("  {key}: {value}\n"))
        .collect();
    format!("{name}:\n{}", lines.concat())
}

fn one(changes: &[(&str, &str)]) -> Loaded {
    load(&format!("{GLOBALS}{}", entry("orders", changes)))
}

fn problems(loaded: &Loaded) -> Vec<String> {
    loaded
        .problems
        .iter()
        .map(|problem| format!("{}: {}", problem.path, problem.fault))
        .collect()
}

fn service(loaded: &Loaded) -> &Service {
    assert_eq!(problems(loaded), Vec::<String>::new());
    loaded
        .config
        .services
        .values()
        .next()
        .unwrap_or_else(|| panic!("no service"))
}

#[test]
fn absent_keys_with_a_natural_default_take_it() {
    let loaded = one(&[]);
    let service = service(&loaded);
    assert_eq!(service.start_delay, Duration::ZERO);
    assert_eq!(service.check_max_failures.get(), 1);
    assert_eq!(service.inconclusive_timeout, Duration::from_secs(600));
    assert_eq!(service.no_data_grace, Duration::from_secs(60));
    assert_eq!(service.deployment, "orders");
    assert_eq!(service.namespace, "workers");
    assert_eq!(service.on_failure, OnFailure::RollBack);
    assert_eq!(service.restore_original, AfterRollback::KeepTemplate);
    assert_eq!(service.canary_on, CanaryOn::Template);
    assert_eq!(service.max_surge, None);
    assert_eq!(service.max_unavailable, None);
    assert_eq!(service.finish_step, None);
    assert_eq!(service.known_good, KnownGood::Checks);
    assert_eq!(service.max_restarts, 0);
    assert_eq!(service.ignore_containers, BTreeSet::new());
    assert_eq!(service.ignore_completed, CompletedContainers::Count);
    assert_eq!(service.copy_labels, BTreeSet::new());
    assert_eq!(service.notify, Audience::Everyone);
    assert_eq!(loaded.config.poll_interval, Duration::from_secs(2));
    assert_eq!(loaded.config.max_concurrent_rollouts.get(), 20);
}

#[test]
fn every_key_that_is_given_is_taken() {
    let loaded = load(&format!(
        "{GLOBALS}poll-interval: 500ms\nmax-concurrent-rollouts: 3\n{}",
        entry(
            "orders",
            &[
                ("breakpoint", "3"),
                ("step", "2.5%"),
                ("abort", "1s"),
                ("start_delay", "2s"),
                ("max_step_duration", "3s"),
                ("check_success_step_duration", "4s"),
                ("check_max_failures", "5"),
                ("inconclusive_timeout", "6s"),
                ("no_data_grace", "0s"),
                ("namespace", "billing"),
                ("deployment", "orders-v2"),
                (
                    "success",
                    "[{expr: ' a > 1 '}, {expr: b > 2, on_no_data: wait}]",
                ),
                ("on_failure", "freeze"),
                ("restore_original", "true"),
                ("canary_on", "containers"),
                ("max_surge", "0"),
                ("max_unavailable", "25%"),
                ("finish_step", "50%"),
                ("known_good", "bypass"),
                ("max_restarts", "7"),
                ("ignore_containers", "[proxy, agent]"),
                ("ignore_completed", "true"),
                ("copy_labels", "[team, example.com/tier]"),
                ("notify", "[]"),
            ]
        )
    ));
    assert_eq!(
        service(&loaded),
        &Service {
            name: "orders".parse().unwrap(),
            namespace: "billing".to_owned(),
            deployment: "orders-v2".to_owned(),
            breakpoint: "3".parse().unwrap(),
            step: "2.5%".parse().unwrap(),
            abort: Duration::from_secs(1),
            start_delay: Duration::from_secs(2),
            max_step_duration: Duration::from_secs(3),
            check_interval: Duration::from_secs(4),
            check_max_failures: NonZeroU32::new(5).unwrap(),
            inconclusive_timeout: Duration::from_secs(6),
            no_data_grace: Duration::ZERO,
            success: vec![
                Expression::new("a > 1"),
                Expression {
                    on_no_data: OnNoData::Wait,
                    ..Expression::new("b > 2")
                },
            ],
            on_failure: OnFailure::Freeze,
            restore_original: AfterRollback::RestoreTemplate,
            canary_on: CanaryOn::Containers,
            max_surge: Some(Bound::Zero),
            max_unavailable: Some("25%".parse().unwrap()),
            finish_step: Some("50%".parse().unwrap()),
            known_good: KnownGood::Bypass,
            max_restarts: 7,
            ignore_containers: ["agent", "proxy"].map(str::to_owned).into(),
            ignore_completed: CompletedContainers::Ignore,
            copy_labels: ["example.com/tier", "team"].map(str::to_owned).into(),
            notify: Audience::Only(BTreeSet::new()),
        }
    );
    assert_eq!(loaded.config.max_concurrent_rollouts.get(), 3);
    assert_eq!(loaded.config.poll_interval, Duration::from_millis(500));
}

#[test]
fn each_mistake_in_an_entry_is_told_once_and_refuses_the_entry() {
    let long = "x".repeat(246);
    for (key, value, expected) in [
        (
            "breakpoint",
            "ABSENT",
            "orders.breakpoint: this key is required",
        ),
        ("step", "ABSENT", "orders.step: this key is required"),
        ("abort", "ABSENT", "orders.abort: this key is required"),
        (
            "max_step_duration",
            "ABSENT",
            "orders.max_step_duration: this key is required",
        ),
        ("success", "ABSENT", "orders.success: this key is required"),
        (
            "breakpoint",
            "0%",
            "orders.breakpoint: \"0%\": expected more than zero",
        ),
        ("step", "0", "orders.step: \"0\": expected more than zero"),
        (
            "step",
            "-10%",
            "orders.step: \"-10%\": expected a positive amount",
        ),
        (
            "step",
            "101%",
            "orders.step: \"101%\": expected a share of at most 100%",
        ),
        ("step", "", "orders.step: no value: expected a share"),
        ("step", "[10%]", "orders.step: a list: expected a share"),
        ("step", "{a: b}", "orders.step: a mapping: expected a share"),
        (
            "abort",
            "5 minutes",
            "orders.abort: \"5 minutes\": expected a duration such as",
        ),
        ("abort", "120", "orders.abort: \"120\": expected a unit"),
        (
            "abort",
            "0s",
            "orders.abort: \"0s\": expected a duration above zero",
        ),
        (
            "check_success_step_duration",
            "0s",
            "orders.check_success_step_duration: \"0s\": expected a duration above zero",
        ),
        (
            "check_max_failures",
            "0",
            "orders.check_max_failures: \"0\": expected a whole number",
        ),
        (
            "check_max_failures",
            "+4",
            "orders.check_max_failures: \"+4\": expected a whole number",
        ),
        (
            "inconclusive_timeout",
            "0s",
            "orders.inconclusive_timeout: \"0s\": expected a duration above",
        ),
        (
            "namespace",
            "a.b",
            "orders.namespace: \"a.b\": expected the name of a namespace",
        ),
        (
            "deployment",
            "A",
            "orders.deployment: \"A\": expected the name of a Deployment",
        ),
        ("deployment", &long, "orders.deployment: \"xxx"),
        ("success", "", "orders.success: no value: expected a list"),
        (
            "success",
            "up > 0",
            "orders.success: \"up > 0\": expected a list",
        ),
        (
            "success",
            "[up > 0]",
            "orders.success[0]: \"up > 0\": expected \"expr:\"",
        ),
        (
            "success",
            "[{expr: up > 0, on_no_data: never}]",
            "orders.success[0].on_no_data: \"never\": expected fail, wait or pass",
        ),
        (
            "success",
            "[{expr: up > 0, on-no-data: wait}]",
            "orders.success[0].on-no-data: unknown key; did you mean \"on_no_data\"?",
        ),
        (
            "success",
            "[{expr: up > 0}, {}]",
            "orders.success[1].expr: this key is required",
        ),
        (
            "success",
            "[{expr: }]",
            "orders.success[0].expr: no value: expected a PromQL",
        ),
        (
            "success",
            "[{expr: ' '}]",
            "orders.success[0].expr: \" \": expected a PromQL",
        ),
        (
            "success",
            "[{expr: up}]",
            "orders.success[0].expr: \"up\": expected a comparison",
        ),
        (
            "success",
            "[{exp: up > 0}]",
            "orders.success[0].exp: unknown key; did you mean \"expr\"?",
        ),
        (
            "on_no_data",
            "wait",
            "orders.on_no_data: unknown key; expected one of breakpoint, step,",
        ),
        (
            "step_",
            "1",
            "orders.step_: unknown key; did you mean \"step\"?",
        ),
        (
            "\"a\\nb\"",
            "1",
            "orders.\"a\\nb\": unknown key; expected one of",
        ),
    ] {
        let loaded = one(&[(key, value)]);
        let told = problems(&loaded);
        assert_eq!(told.len(), 1, "{key}: {value}: {told:?}");
        assert!(told[0].starts_with(expected), "{key}: {value}: {told:?}");
        assert!(loaded.config.services.is_empty());
        assert_eq!(loaded.refused.len(), 1);
    }
}

#[test]
fn a_misspelt_key_is_not_told_as_missing_too() {
    for (wrote, meant) in [
        ("brekpoint", "breakpoint"),
        ("breakpiont", "breakpoint"),
        ("maxStepDuration", "max_step_duration"),
        ("max-step-duration", "max_step_duration"),
        ("steps", "step"),
        ("sucess", "success"),
    ] {
        let value = SERVICE.iter().find(|(key, _)| *key == meant).unwrap().1;
        let loaded = one(&[(meant, "ABSENT"), (wrote, value)]);
        assert_eq!(
            problems(&loaded),
            [format!(
                "orders.{wrote}: unknown key; did you mean \"{meant}\"?"
            )]
        );
    }
}

#[test]
fn one_bad_entry_does_not_stop_the_others() {
    let good = entry("a-good", &[]);
    let bad = entry("bad", &[("step", "much")]);
    let loaded = load(&format!("{GLOBALS}{good}{bad}{}", entry("z-good", &[])));
    let names: Vec<&str> = loaded
        .config
        .services
        .keys()
        .map(ServiceName::as_str)
        .collect();
    assert_eq!(names, ["a-good", "z-good"]);
    let refused: Vec<&str> = loaded.refused.iter().map(ServiceName::as_str).collect();
    assert_eq!(refused, ["bad"]);
    assert!(!loaded.is_valid());
}

#[test]
fn a_wrong_global_setting_refuses_exactly_the_services_that_need_it() {
    let own = entry("own", &[("namespace", "billing"), ("success", "[]")]);
    let all = entry("all", &[]);
    for (globals, expected, usable) in [
        (
            "namespace: A\nprometheus-base-url: http://p",
            "namespace: \"A\": expected the name",
            vec!["own"],
        ),
        (
            "namespce: a\nprometheus-base-url: http://p",
            "namespce: unknown key; did you mean \"namespace\"?",
            vec!["own"],
        ),
        (
            "namespace: a\nnamespace: b\nprometheus-base-url: http://p",
            "namespace: this key stands twice; it is first given on line 1",
            vec!["own"],
        ),
        (
            "prometheus-base-url: http://p",
            "all.namespace: this key is required",
            vec!["own"],
        ),
        (
            "namespace: a",
            "prometheus-base-url: this key is required",
            vec!["own"],
        ),
        (
            "namespace: a\nprometheus-base-url: p:9090",
            "prometheus-base-url: \"p:9090\": expected a URL that begins",
            vec!["own"],
        ),
        (
            "namespace: a\nprometheus-base-url: volery:s3cret@p",
            "prometheus-base-url: \"***@p\": expected a URL that begins",
            vec!["own"],
        ),
        (
            "namespace: a\nprometheus-base-url: http://p\npoll-interval: 0s",
            "poll-interval: \"0s\": expected a duration above zero",
            vec!["all", "own"],
        ),
    ] {
        let loaded = load(&format!("{globals}\n{own}{all}"));
        let told = problems(&loaded);
        assert_eq!(told.len(), 1, "{globals}: {told:?}");
        assert!(told[0].starts_with(expected), "{globals}: {told:?}");
        let names: Vec<&str> = loaded
            .config
            .services
            .keys()
            .map(ServiceName::as_str)
            .collect();
        assert_eq!(names, usable, "{globals}");
    }
}

#[test]
fn the_word_of_a_setting_is_no_service() {
    let loaded = load(&format!("{GLOBALS}{}", entry("notify", &[])));
    assert_eq!(
        problems(&loaded),
        [
            "notify: a mapping: expected a list of channels, each with a name and either slack or webhook"
        ]
    );
    assert!(loaded.config.services.is_empty());
    assert!(loaded.refused.is_empty());
}

#[test]
fn where_prometheus_is_and_how_it_is_asked_belong_together() {
    let needs_it = entry("orders", &[]);
    for (globals, expected) in [
        (
            "prometheus: {ca-file: /ca.crt}",
            "prometheus-base-url: this key is required",
        ),
        (
            "prometheus-base-url: http://me:hunter2@p/\nprometheus: {bearer-token-from-env: A}",
            "prometheus.bearer-token-from-env: \"***\": expected either this login or a user",
        ),
        (
            "prometheus-base-url: http://p/\nprometheus: {timeout: soon}",
            "prometheus.timeout: \"soon\": expected",
        ),
        (
            "prometheus-base-url: http://p/\nprometheus: {}\nprometheus: {}",
            "prometheus: this key stands twice",
        ),
        (
            "prometheus-base-url: http://p/\npromethues: {ca-file: /ca.crt}",
            "promethues: unknown key; did you mean \"prometheus\"?",
        ),
        (
            "prometheus-url: http://p/",
            "prometheus-url: unknown key; did you mean \"prometheus-base-url\"?",
        ),
    ] {
        let loaded = load(&format!("{globals}\nnamespace: a\n{needs_it}"));
        let told = problems(&loaded);
        assert_eq!(told.len(), 1, "{globals}: {told:?}");
        assert!(told[0].starts_with(expected), "{globals}: {told:?}");
        assert!(loaded.config.services.is_empty(), "{globals}");
        assert_eq!(loaded.config.prometheus, None, "{globals}");
    }
}

#[test]
fn all_that_is_said_of_prometheus_is_read() {
    let loaded = load(
        "prometheus-base-url: https://p/prom\n\
         prometheus:\n  \
           username: volery\n  password-from-file: /etc/password\n  ca-file: /etc/ca.crt\n  timeout: 1m\n  \
           headers: {X-Scope-OrgID: team-a, X-Api-Key: {from-env: API_KEY}}\n",
    );
    assert_eq!(problems(&loaded), [""; 0]);
    let settings = loaded.config.prometheus.unwrap();
    assert_eq!(settings.url.as_str(), "https://p/prom");
    assert_eq!(
        settings.login,
        Login::Basic {
            username: "volery".to_owned(),
            password: Secret::File("/etc/password".into()),
        }
    );
    assert_eq!(
        settings.authorities,
        Authorities::File("/etc/ca.crt".into())
    );
    assert_eq!(settings.timeout, Duration::from_secs(60));
    let headers: Vec<(&str, &HeaderText)> = settings
        .headers
        .iter()
        .map(|header| (header.name.as_str(), &header.text))
        .collect();
    assert_eq!(
        headers,
        [
            (
                "x-api-key",
                &HeaderText::Secret(Secret::Variable("API_KEY".to_owned()))
            ),
            (
                "x-scope-orgid",
                &HeaderText::Open(http::HeaderValue::from_static("team-a"))
            ),
        ]
    );
}

#[test]
fn an_entry_that_stands_twice_is_refused_whichever_was_meant() {
    let loaded = load(&format!(
        "{GLOBALS}{}{}",
        entry("orders", &[]),
        entry("orders", &[("step", "20%")])
    ));
    assert_eq!(
        problems(&loaded),
        ["orders: this key stands twice; it is first given on line 3"]
    );
    assert!(loaded.config.services.is_empty());
    assert_eq!(loaded.refused.len(), 1);
}

#[test]
fn two_entries_for_one_deployment_are_both_refused_and_both_named() {
    let loaded = load(&format!(
        "{GLOBALS}{}{}{}",
        entry("a", &[("deployment", "orders")]),
        entry("orders", &[("step", "much")]),
        entry(
            "elsewhere",
            &[("deployment", "orders"), ("namespace", "billing")]
        ),
    ));
    assert_eq!(
        problems(&loaded),
        [
            "orders: workers/orders is also the Deployment of \"a\" on line 3; \
             expected one entry for each Deployment",
            "orders.step: \"much\": expected a share such as 10% or 2.5%, \
             or a number of replicas such as 3",
        ]
    );
    let names: Vec<&str> = loaded
        .config
        .services
        .keys()
        .map(ServiceName::as_str)
        .collect();
    assert_eq!(names, ["elsewhere"]);
    assert_eq!(loaded.refused.len(), 2);
}

#[test]
fn an_entry_for_the_clone_of_another_is_refused() {
    let loaded = load(&format!(
        "{GLOBALS}{}{}",
        entry("orders-canary", &[]),
        entry("orders", &[])
    ));
    assert_eq!(
        problems(&loaded),
        [
            "orders-canary: workers/orders-canary is the name of a clone of \"orders\" on line 10; \
          expected a Deployment of your own"
        ]
    );
    let names: Vec<&str> = loaded
        .config
        .services
        .keys()
        .map(ServiceName::as_str)
        .collect();
    assert_eq!(names, ["orders"]);
}

#[test]
fn the_name_of_an_entry_must_suit_its_deployment_and_its_clones() {
    let long = "x".repeat(246);
    for (name, expected) in [
        (
            "Orders",
            "Orders: this name cannot be used; expected the name of a Deployment",
        ),
        (long.as_str(), "with it, this one has 254"),
    ] {
        let loaded = load(&format!("{GLOBALS}{}", entry(name, &[])));
        let told = problems(&loaded);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains(expected), "{told:?}");
        assert!(loaded.config.services.is_empty());
    }
    let short = load(&format!(
        "{GLOBALS}{}",
        entry(&long, &[("deployment", "orders")])
    ));
    assert_eq!(service(&short).deployment, "orders");
}

#[test]
fn entries_share_keys_by_merging_and_a_mistake_there_refuses_each() {
    let text = format!(
        "{GLOBALS}{}b:\n  <<: *a\n  step: 20%\n",
        entry("a", &[]).replacen("a:", "a: &a", 1)
    );
    let loaded = load(&text);
    assert_eq!(problems(&loaded), Vec::<String>::new());
    let steps: Vec<String> = loaded
        .config
        .services
        .values()
        .map(|service| format!("{} {}", service.deployment, service.step))
        .collect();
    assert_eq!(steps, ["a 10%", "b 20%"]);

    let loaded = load(&text.replace("50%", "500%"));
    let paths: Vec<&str> = loaded
        .problems
        .iter()
        .map(|problem| problem.path.as_str())
        .collect();
    assert_eq!(paths, ["a.breakpoint", "b.breakpoint"]);
    assert_eq!(loaded.refused.len(), 2);
}

#[test]
fn a_file_of_global_settings_alone_is_valid() {
    let loaded = load(GLOBALS);
    assert!(loaded.is_valid());
    assert!(loaded.config.services.is_empty());
}

/// The services of a file in the order of their names, each as its name, step and checks.
fn steps(loaded: &Loaded) -> Vec<String> {
    loaded
        .config
        .services
        .values()
        .map(|service| {
            format!(
                "{} {} {}",
                service.name,
                service.step,
                service.success.len()
            )
        })
        .collect()
}

#[test]
fn a_service_takes_from_the_defaults_what_it_does_not_say_itself() {
    let defaults = entry(
        "defaults",
        &[
            ("namespace", "billing"),
            ("max_restarts", "2"),
            ("ignore_containers", "[proxy]"),
            ("inconclusive_timeout", "7m"),
        ],
    );
    let loaded = load(&format!(
        "{GLOBALS}a: {{step: 3, ignore_containers: [], namespace: workers}}\n{defaults}b: {{success: []}}\n"
    ));
    assert_eq!(problems(&loaded), Vec::<String>::new());
    assert_eq!(steps(&loaded), ["a 3 1", "b 10% 0"]);
    let [a, b] = ["a", "b"].map(|name| &loaded.config.services[&name.parse().unwrap()]);
    assert_eq!(
        (a.namespace.as_str(), b.namespace.as_str()),
        ("workers", "billing")
    );
    assert_eq!((a.max_restarts, b.max_restarts), (2, 2));
    assert_eq!(
        (a.ignore_containers.len(), b.ignore_containers.len()),
        (0, 1)
    );
    assert_eq!(a.inconclusive_timeout, Duration::from_secs(420));
}

#[test]
fn defaults_of_nothing_change_nothing() {
    for defaults in ["defaults: {}", "defaults:"] {
        let loaded = load(&format!("{GLOBALS}{defaults}\n{}", entry("a", &[])));
        assert_eq!(problems(&loaded), Vec::<String>::new(), "{defaults}");
        assert_eq!(steps(&loaded), ["a 10% 1"], "{defaults}");
    }
}

#[test]
fn a_mistake_in_the_defaults_is_told_once_and_refuses_exactly_the_services_that_take_it() {
    let own = entry("own", &[("max_restarts", "1")]);
    let takes = ["takes", "takes-too"].map(|name| {
        entry(
            name,
            &[
                ("step", "ABSENT"),
                ("success", "ABSENT"),
                ("max_restarts", "1"),
            ],
        )
    });
    for (defaults, expected, usable) in [
        (
            "{step: 0%, success: []}",
            "defaults.step: \"0%\": expected more than zero",
            vec!["own"],
        ),
        (
            "{step: 1, success: [{expr: up}]}",
            "defaults.success[0].expr: \"up\": expected a comparison",
            vec!["own"],
        ),
        (
            "{step: 1, success: [{}]}",
            "defaults.success[0].expr: this key is required",
            vec!["own"],
        ),
        (
            "{step: 1, success: [], max_restarts: some}",
            "defaults.max_restarts: \"some\": expected a whole number",
            vec!["own", "takes", "takes-too"],
        ),
        (
            "{step: 1, success: [], restore_original: yes}",
            "defaults.restore_original: \"yes\": expected true",
            vec![],
        ),
        (
            "{stepp: 1, success: []}",
            "defaults.stepp: unknown key; did you mean \"step\"?",
            vec!["own"],
        ),
        (
            "{step: 1, success: [], max_restart: 3}",
            "defaults.max_restart: unknown key; did you mean \"max_restarts\"?",
            vec!["own", "takes", "takes-too"],
        ),
        (
            "{step: 1, step: 2, success: []}",
            "defaults.step: this key stands twice; it is first given on line 3",
            vec!["own"],
        ),
        (
            "{step: 1, success: [], colour: red}",
            "defaults.colour: unknown key; expected one of breakpoint",
            vec![],
        ),
        (
            "{step: 1, success: [], max_surge: 0, max_unavailable: 0%}",
            "defaults.max_unavailable: \"0%\": expected max_surge or max_unavailable above zero",
            vec![],
        ),
        (
            "10%",
            "defaults: \"10%\": expected keys of services",
            vec![],
        ),
        (
            "[{step: 1}]",
            "defaults: a list: expected keys of services",
            vec![],
        ),
        (
            "{step: 1, success: []}\ndefaults: {step: 2}",
            "defaults: this key stands twice; it is first given on line 3",
            vec![],
        ),
    ] {
        let loaded = load(&format!(
            "{GLOBALS}defaults: {defaults}\n{own}{}",
            takes.concat()
        ));
        let told = problems(&loaded);
        assert_eq!(told.len(), 1, "{defaults}: {told:?}");
        assert!(told[0].starts_with(expected), "{defaults}: {told:?}");
        let names: Vec<&str> = loaded
            .config
            .services
            .keys()
            .map(ServiceName::as_str)
            .collect();
        assert_eq!(names, usable, "{defaults}");
        assert_eq!(loaded.refused.len(), 3 - usable.len(), "{defaults}");
    }
}

#[test]
fn misspelt_defaults_are_no_service_and_every_service_that_needs_them_waits() {
    for name in ["default", "Defaults", "defualts"] {
        let loaded = load(&format!(
            "{GLOBALS}{name}:\n  step: 5%\n{}",
            entry("orders", &[("step", "ABSENT")])
        ));
        assert_eq!(
            problems(&loaded),
            [format!("{name}: unknown key; did you mean \"defaults\"?")]
        );
        let refused: Vec<&str> = loaded.refused.iter().map(ServiceName::as_str).collect();
        assert_eq!(refused, ["orders"], "{name}");
    }
}

#[test]
fn a_service_may_have_a_name_that_resembles_the_defaults() {
    let complete = load(&format!("{GLOBALS}{}", entry("default", &[])));
    assert_eq!(service(&complete).deployment, "default");

    let falls_back = load(&format!(
        "{GLOBALS}defaults:\n  step: 5%\n{}",
        entry("default", &[("step", "ABSENT")])
    ));
    assert_eq!(service(&falls_back).step, "5%".parse().unwrap());
}

#[test]
fn an_envelope_in_which_nothing_could_move_is_refused_wherever_its_halves_stand() {
    for (defaults, own, expected) in [
        (
            "{}",
            "max_surge: 0, max_unavailable: 0",
            Some("max_unavailable: \"0\""),
        ),
        (
            "{max_surge: 0}",
            "max_unavailable: 0%",
            Some("max_unavailable: \"0%\""),
        ),
        (
            "{max_unavailable: 0}",
            "max_surge: 0%",
            Some("max_surge: \"0%\""),
        ),
        ("{max_surge: 0}", "max_unavailable: 1", None),
        ("{}", "max_surge: 0", None),
        ("{}", "max_unavailable: 0", None),
    ] {
        let loaded = load(&format!(
            "{GLOBALS}defaults: {defaults}\norders: {{breakpoint: 1, step: 1, abort: 1m, \
             max_step_duration: 1m, check_success_step_duration: 1m, success: [], {own}}}\n"
        ));
        let expected: Vec<String> = expected
            .into_iter()
            .map(|told| {
                format!(
                    "orders.{told}: expected max_surge or max_unavailable above zero: \
                     with both at 0 no pod could ever be replaced"
                )
            })
            .collect();
        assert_eq!(problems(&loaded), expected, "{defaults} {own}");
    }
}
