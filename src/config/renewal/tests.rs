use std::path::Path;
use std::time::Duration;

use super::*;

fn read(text: &str) -> Loaded {
    Config::parse(Path::new("volery.yaml"), text, &|_| Ok(())).expect("something can be read")
}

fn entry(name: &str, step: &str, more: &str) -> String {
    format!(
        "{name}:\n  breakpoint: 50%\n  step: {step}\n  abort: 120s\n  max_step_duration: 10m\n  \
         check_success_step_duration: 2m\n  success: []\n{more}"
    )
}

fn file(entries: &[String]) -> String {
    format!("namespace: workers\n{}", entries.concat())
}

/// What applies after these texts were in the file one after the other: each entry's step and Deployment.
fn after(texts: &[String]) -> (Vec<String>, BTreeMap<ServiceName, Kept>) {
    let mut texts = texts.iter();
    let first = read(texts.next().expect("a first one"));
    let mut renewal = Renewal {
        config: first.config,
        kept: BTreeMap::new(),
    };
    for text in texts {
        renewal = renewal.config.renewed(&read(text));
    }
    let services = renewal.config.services.values();
    let services = services
        .map(|service| format!("{} {} {}", service.name, service.step, service.deployment))
        .collect();
    (services, renewal.kept)
}

fn name(text: &str) -> ServiceName {
    text.parse().expect("a name")
}

#[test]
fn one_bad_entry_among_a_hundred_keeps_its_old_values_and_the_others_get_their_new_ones() {
    let hundred = |step: &str, of_the_seventh: &str| {
        let entries: Vec<String> = (0..100)
            .map(|number| {
                let step = if number == 7 { of_the_seventh } else { step };
                entry(&format!("worker-{number:02}"), step, "")
            })
            .collect();
        file(&entries)
    };
    let (services, kept) = after(&[hundred("10%", "10%"), hundred("20%", "lots")]);
    assert_eq!(services.len(), 100);
    for (number, service) in services.iter().enumerate() {
        let step = if number == 7 { "10%" } else { "20%" };
        assert_eq!(
            *service,
            format!("worker-{number:02} {step} worker-{number:02}")
        );
    }
    assert_eq!(kept, BTreeMap::from([(name("worker-07"), Kept::Wrong)]));
}

#[test]
fn what_is_absent_goes_only_where_the_file_is_valid() {
    let [a, b] = ["a", "b"].map(|name| entry(name, "10%", ""));
    let both = file(&[a.clone(), b]);
    let (services, kept) = after(&[both.clone(), file(std::slice::from_ref(&a))]);
    assert_eq!(
        (services, kept),
        (vec!["a 10% a".to_owned()], BTreeMap::new())
    );

    let (services, kept) = after(&[both, file(&[a, entry("c", "lots", "")])]);
    assert_eq!(services, ["a 10% a", "b 10% b"]);
    assert_eq!(kept, BTreeMap::from([(name("b"), Kept::Missed)]));
}

#[test]
fn an_entry_with_another_name_takes_its_deployment_along() {
    let renamed = entry("b", "20%", "  deployment: a\n");
    let (services, kept) = after(&[
        file(&[entry("a", "10%", "")]),
        file(&[renamed, entry("c", "lots", "")]),
    ]);
    assert_eq!(
        (services, kept),
        (vec!["b 20% a".to_owned()], BTreeMap::new())
    );
}

#[test]
fn nothing_new_takes_a_deployment_from_an_entry_that_is_wrong() {
    for deployment in ["a", "a-canary"] {
        let other = entry("b", "20%", &format!("  deployment: {deployment}\n"));
        // Which Deployment the wrong entry means is part of what cannot be read.
        let wrong = "a: {deployment: c, breakpoint: 50%}\n".to_owned();
        let (services, kept) = after(&[file(&[entry("a", "10%", "")]), file(&[wrong, other])]);
        assert_eq!(services, ["a 10% a"], "{deployment}");
        let expected = [
            (name("a"), Kept::Wrong),
            (name("b"), Kept::HeldBackBy(name("a"))),
        ];
        assert_eq!(kept, BTreeMap::from(expected));
    }
}

#[test]
fn a_wrong_setting_stays_as_it_was_and_the_others_change() {
    let old = "prometheus-base-url: http://old\nnamespace: workers\npoll-interval: 7s\n\
               max-concurrent-rollouts: 7\nnotify: [{name: a, slack: {url-from-env: A}}]\n"
        .to_owned();
    let service = entry("a", "10%", "");
    for (from, to) in [
        ("http://old", "prometheus"),
        ("namespace: workers", "namespace: Workers!"),
        ("7s", "seven"),
        ("rollouts: 7", "rollouts: none"),
        ("{url-from-env: A}", "{}"),
        ("poll-interval", "poll-intervall"),
        ("notify:", "notifi:"),
    ] {
        let renewed = read(&(old.clone() + &service)).config;
        let wrong = read(&(old.replace(from, to) + &service));
        assert!(
            !wrong.is_valid() && wrong.wrong.len() == 1,
            "{to}: {:?}",
            wrong.wrong
        );
        assert_eq!(renewed.renewed(&wrong).config, renewed, "{to}");
    }
    let old = read(&(old + &service)).config;
    let new =
        read(&(file(&[]) + "prometheus-base-url: http://new\npoll-interval: seven\n" + &service));
    let renewed = old.renewed(&new).config;
    assert_eq!(
        renewed.prometheus.map(|settings| settings.url),
        "http://new".parse().ok()
    );
    assert_eq!(renewed.poll_interval, Duration::from_secs(7));
    assert!(
        renewed.channels.is_empty(),
        "they were taken out on purpose"
    );
}

#[test]
fn what_kept_entries_need_is_kept_with_them() {
    let asking = |more: &str| {
        entry("orders", "10%", more).replace("success: []", "success: [{expr: my_errors == 0}]")
    };
    let channels =
        "notify: [{name: a, slack: {url-from-env: A}}, {name: b, slack: {url-from-env: B}}]\n";
    let settings = format!("prometheus-base-url: http://prometheus:9090/\n{channels}");
    let old = read(&(file(&[asking("  notify: [a]\n"), entry("quiet", "10%", "")]) + &settings));
    assert!(old.is_valid(), "{:?}", old.problems);
    let old = old.config;
    // Both are gone from the file, and the entry that names them is wrong for it.
    let new = read(&file(&[
        asking("  notify: [a]\n"),
        entry("quiet", "20%", ""),
    ]));
    let Renewal { config, kept } = old.renewed(&new);
    assert_eq!(kept, BTreeMap::from([(name("orders"), Kept::Wrong)]));
    assert_eq!(config.prometheus, old.prometheus);
    let left: Vec<String> = config.channels.keys().map(ToString::to_string).collect();
    assert_eq!(left, ["a"], "of b nothing is told any more");
    // Missed in a file with a mistake: the same.
    let new = read(&file(&[entry("quiet", "lots", "")]));
    let Renewal { config, .. } = old.renewed(&new);
    assert_eq!(config.services.len(), 2);
    assert_eq!(config.prometheus, old.prometheus);
    // Nobody who is kept asks: it goes.
    let new = read(&file(&[
        entry("orders", "10%", ""),
        entry("quiet", "lots", ""),
    ]));
    assert_eq!(old.renewed(&new).config.prometheus, None);
}
