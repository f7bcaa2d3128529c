//! The keys of the file, what may stand under them, and what they mean when they are absent.
//!
//! Reading goes on after a mistake, so that a person sees all of them at once.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use thiserror::Error;

use super::document::{Content, Entry, Malformed, Mapping, Node};
use super::load::ExpressionCheck;
use super::names::{self, CLONE_SUFFIXES, ServiceName};
use super::problem::{Fault, Found, Position, Problem};
use super::prometheus_url::{PrometheusUrl, without_credentials};
use super::units::{Amount, DurationError, parse_duration};
use super::{Config, Expression, Service};

const PROMETHEUS: &str = "prometheus-base-url";
const NAMESPACE: &str = "namespace";
const POLL_INTERVAL: &str = "poll-interval";

const GLOBAL_KEYS: &[&str] = &[PROMETHEUS, NAMESPACE, POLL_INTERVAL];

/// Words that mean global settings in the format (design section 5), so that no service may take them: it would
/// turn into a setting one day, and until then into a service that nobody meant.
const RESERVED_KEYS: [&str; 3] = ["defaults", "max-concurrent-rollouts", "notify"];

const SERVICE_KEYS: &[&str] = &[
    "breakpoint",
    "step",
    "abort",
    "start_delay",
    "max_step_duration",
    "check_success_step_duration",
    "check_max_failures",
    "inconclusive_timeout",
    "no_data_grace",
    "success",
    NAMESPACE,
    "deployment",
];

const EXPRESSION_KEYS: &[&str] = &["expr"];

const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(2);
const DEFAULT_START_DELAY: Duration = Duration::ZERO;
const DEFAULT_CHECK_MAX_FAILURES: NonZeroU32 = NonZeroU32::MIN;
const DEFAULT_NO_DATA_GRACE: Duration = Duration::from_secs(60);

const A_URL: &str = "a URL such as http://prometheus.monitoring:9090/";
const AN_AMOUNT: &str = "a share or a number of replicas, such as 10% or 3";
const A_DURATION: &str = "a duration such as 90s or 10m";
const A_NAMESPACE: &str = "the name of a namespace, here or once for all services";
const EXPRESSIONS: &str =
    "a list of expressions (\"- expr: ...\"), or [] for rollouts that only pod restarts can fail";
const AN_EXPRESSION: &str = "a PromQL expression";
const A_SERVICE: &str = "the keys of a service under its name (breakpoint, step, success, ...)";

/// What a tree says, and what is wrong with it.
pub(super) struct Reading {
    pub config: Config,
    pub refused: BTreeSet<ServiceName>,
    pub problems: Vec<Problem>,
}

/// Reads the tree of a whole file.
pub(super) fn read(root: &Node, check: &ExpressionCheck<'_>) -> Result<Reading, Malformed> {
    let mapping = match &root.content {
        Content::Mapping(mapping) => mapping,
        Content::Nothing => {
            return Err(malformed(
                root,
                "the file is empty; expected services, and the global settings that they need",
            ));
        }
        Content::Text(_) | Content::List(_) => {
            return Err(malformed(
                root,
                "expected a mapping of global settings and services, such as \"orders-consumer:\" \
                 and its keys below it",
            ));
        }
    };
    let mut reader = Reader {
        check,
        problems: Vec::new(),
    };
    Ok(reader.file(mapping))
}

fn malformed(node: &Node, message: &str) -> Malformed {
    Malformed {
        at: node.at,
        message: message.to_owned(),
    }
}

/// A global setting that may be there, and may be wrong: then the problem is told once, not for each service.
enum Global<T> {
    Absent,
    Given(T),
    Wrong,
}

/// What was read of an entry that is meant as a service.
struct Draft {
    name: ServiceName,
    at: Position,
    target: Option<Target>,
    /// `None` if anything in the entry, or in a global setting that it needs, is wrong.
    service: Option<Service>,
}

/// A Deployment by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    namespace: String,
    deployment: String,
}

impl Target {
    fn with_suffix(&self, suffix: &str) -> Self {
        Self {
            namespace: self.namespace.clone(),
            deployment: format!("{}{suffix}", self.deployment),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.deployment)
    }
}

/// A value that is written as it should be and still makes no sense under its key.
#[derive(Debug, Error)]
enum ValueError {
    #[error(transparent)]
    Duration(#[from] DurationError),
    #[error("expected a duration above zero, such as 90s or 10m")]
    ZeroDuration,
    #[error("expected a whole number of failed checks, at least 1")]
    Failures,
}

fn duration_above_zero(text: &str) -> Result<Duration, ValueError> {
    let duration = parse_duration(text)?;
    if duration.is_zero() {
        return Err(ValueError::ZeroDuration);
    }
    Ok(duration)
}

fn failures(text: &str) -> Result<NonZeroU32, ValueError> {
    // The standard reader would take "+4" as well.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ValueError::Failures);
    }
    text.parse().map_err(|_| ValueError::Failures)
}

/// One mapping of the file under a fixed set of keys, those that mean nothing already told.
struct Fields<'n> {
    path: String,
    at: Position,
    mapping: &'n Mapping,
    /// Keys that are most likely there under a misspelt name: not missing as well.
    misspelt: Vec<&'static str>,
}

impl Fields<'_> {
    fn path_to(&self, key: &str) -> String {
        let key = printable(key);
        if self.path.is_empty() {
            key
        } else {
            format!("{}.{key}", self.path)
        }
    }
}

/// A key as part of a path: whatever was typed, on one line.
fn printable(key: &str) -> String {
    if key.contains(char::is_control) {
        format!("{key:?}")
    } else {
        key.to_owned()
    }
}

struct Reader<'c> {
    check: &'c ExpressionCheck<'c>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn problem(&mut self, at: Position, path: impl Into<String>, fault: Fault) {
        self.problems.push(Problem {
            at,
            path: path.into(),
            fault,
        });
    }

    fn file(&mut self, mapping: &Mapping) -> Reading {
        let mut misspelt = Vec::new();
        let mut entries = Vec::new();
        for entry in &mapping.entries {
            if GLOBAL_KEYS.contains(&entry.key.as_str()) {
                continue;
            }
            if RESERVED_KEYS.contains(&entry.key.as_str()) {
                self.problem(
                    entry.at,
                    printable(&entry.key),
                    Fault::UnknownKey { known: GLOBAL_KEYS },
                );
                continue;
            }
            match (&entry.value.content, nearest(&entry.key, GLOBAL_KEYS)) {
                (Content::Text(_) | Content::Nothing | Content::List(_), Some(nearest)) => {
                    misspelt.push(nearest);
                    self.problem(entry.at, printable(&entry.key), Fault::Misspelt { nearest });
                }
                (Content::Mapping(_), _) | (_, None) => entries.push(entry),
            }
        }
        for repeated in &mapping.repeated {
            self.problem(
                repeated.at,
                printable(&repeated.key),
                Fault::Repeated {
                    first: repeated.first,
                },
            );
        }
        let globals = Fields {
            path: String::new(),
            at: Position::START,
            mapping,
            misspelt,
        };
        let prometheus = self.global(&globals, PROMETHEUS, str::parse::<PrometheusUrl>);
        let namespace = self.global(&globals, NAMESPACE, names::namespace);
        let poll_interval = self.global(&globals, POLL_INTERVAL, duration_above_zero);

        let mut drafts: Vec<Draft> = entries
            .into_iter()
            .filter_map(|entry| self.entry(entry, &namespace))
            .collect();
        for draft in &mut drafts {
            if mapping.repeats(draft.name.as_str()) {
                draft.service = None;
            }
        }
        self.refuse_shared_deployments(&mut drafts);
        self.refuse_without_prometheus(&globals, &prometheus, &mut drafts);

        let mut refused = BTreeSet::new();
        let mut services = BTreeMap::new();
        for draft in drafts {
            match draft.service {
                Some(service) => {
                    services.insert(draft.name, service);
                }
                None => {
                    refused.insert(draft.name);
                }
            }
        }
        Reading {
            config: Config {
                prometheus: match prometheus {
                    Global::Given(url) => Some(url),
                    Global::Absent | Global::Wrong => None,
                },
                namespace: match namespace {
                    Global::Given(namespace) => Some(namespace),
                    Global::Absent | Global::Wrong => None,
                },
                poll_interval: match poll_interval {
                    Global::Given(interval) => interval,
                    Global::Absent | Global::Wrong => DEFAULT_POLL_INTERVAL,
                },
                services,
            },
            refused,
            problems: std::mem::take(&mut self.problems),
        }
    }

    fn global<T, E: fmt::Display>(
        &mut self,
        globals: &Fields<'_>,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Global<T> {
        match globals.mapping.get(key) {
            None if globals.misspelt.contains(&key) => Global::Wrong,
            None => Global::Absent,
            Some(node) => match self.value(globals, key, node, parse) {
                Some(value) if !globals.mapping.repeats(key) => Global::Given(value),
                Some(_) | None => Global::Wrong,
            },
        }
    }

    /// Reads an entry that is no global setting; `None` if it does not even have a service's name.
    fn entry(&mut self, entry: &Entry, namespace: &Global<String>) -> Option<Draft> {
        let problems_before = self.problems.len();
        let name = match entry.key.parse::<ServiceName>() {
            Ok(name) => Some(name),
            Err(error) => {
                self.problem(entry.at, printable(&entry.key), Fault::Name(error));
                None
            }
        };
        let Content::Mapping(mapping) = &entry.value.content else {
            let fault = Fault::Unexpected {
                found: found(&entry.value),
                expected: format!(
                    "expected {A_SERVICE}, or one of the global settings {}",
                    GLOBAL_KEYS.join(", ")
                ),
            };
            self.problem(entry.value.at, printable(&entry.key), fault);
            return name.map(|name| Draft {
                name,
                at: entry.at,
                target: None,
                service: None,
            });
        };
        let fields = self.fields(printable(&entry.key), entry.at, mapping, SERVICE_KEYS);
        let (target, service) = self.service(&fields, name.as_ref(), namespace);
        let name = name?;
        let is_right = self.problems.len() == problems_before;
        Some(Draft {
            name,
            at: entry.at,
            target,
            service: service.filter(|_| is_right),
        })
    }

    fn service(
        &mut self,
        fields: &Fields<'_>,
        name: Option<&ServiceName>,
        global_namespace: &Global<String>,
    ) -> (Option<Target>, Option<Service>) {
        let breakpoint = self.required(fields, "breakpoint", AN_AMOUNT, str::parse::<Amount>);
        let step = self.required(fields, "step", AN_AMOUNT, str::parse::<Amount>);
        let abort = self.required(fields, "abort", A_DURATION, duration_above_zero);
        let start_delay = self.optional(fields, "start_delay", DEFAULT_START_DELAY, parse_duration);
        let max_step_duration =
            self.required(fields, "max_step_duration", A_DURATION, duration_above_zero);
        let check_interval = self.required(
            fields,
            "check_success_step_duration",
            A_DURATION,
            duration_above_zero,
        );
        let check_max_failures = self.optional(
            fields,
            "check_max_failures",
            DEFAULT_CHECK_MAX_FAILURES,
            failures,
        );
        let inconclusive_timeout = match fields.mapping.get("inconclusive_timeout") {
            Some(node) => self.value(fields, "inconclusive_timeout", node, duration_above_zero),
            None => max_step_duration,
        };
        let no_data_grace = self.optional(
            fields,
            "no_data_grace",
            DEFAULT_NO_DATA_GRACE,
            parse_duration,
        );
        let success = self.success(fields);

        let namespace = match (fields.mapping.get(NAMESPACE), global_namespace) {
            (Some(node), _) => self.value(fields, NAMESPACE, node, names::namespace),
            (None, Global::Given(namespace)) => Some(namespace.clone()),
            (None, Global::Wrong) => None,
            (None, Global::Absent) => {
                self.required(fields, NAMESPACE, A_NAMESPACE, names::namespace)
            }
        };
        let deployment = match (fields.mapping.get("deployment"), name) {
            (Some(node), _) => self.value(fields, "deployment", node, names::deployment),
            (None, None) => None,
            (None, Some(name)) => match names::deployment(name.as_str()) {
                Ok(deployment) => Some(deployment),
                Err(error) => {
                    self.problem(fields.at, fields.path.clone(), Fault::Name(error));
                    None
                }
            },
        };
        let target = namespace
            .zip(deployment)
            .map(|(namespace, deployment)| Target {
                namespace,
                deployment,
            });
        let service = || {
            let target = target.clone()?;
            Some(Service {
                name: name?.clone(),
                namespace: target.namespace,
                deployment: target.deployment,
                breakpoint: breakpoint?,
                step: step?,
                abort: abort?,
                start_delay: start_delay?,
                max_step_duration: max_step_duration?,
                check_interval: check_interval?,
                check_max_failures: check_max_failures?,
                inconclusive_timeout: inconclusive_timeout?,
                no_data_grace: no_data_grace?,
                success: success?,
            })
        };
        let service = service();
        (target, service)
    }

    /// A service without checks is nearly always one whose checks were forgotten, so it has to say so.
    fn success(&mut self, fields: &Fields<'_>) -> Option<Vec<Expression>> {
        let key = "success";
        let Some(node) = fields.mapping.get(key) else {
            self.missing(fields, key, EXPRESSIONS);
            return None;
        };
        let Content::List(items) = &node.content else {
            self.unexpected(
                node,
                fields.path_to(key),
                &format!("expected {EXPRESSIONS}"),
            );
            return None;
        };
        let read: Vec<Option<Expression>> = items
            .iter()
            .enumerate()
            .map(|(index, item)| {
                self.success_item(format!("{}[{index}]", fields.path_to(key)), item)
            })
            .collect();
        read.into_iter().collect()
    }

    fn success_item(&mut self, path: String, item: &Node) -> Option<Expression> {
        let Content::Mapping(mapping) = &item.content else {
            self.unexpected(item, path, "expected \"expr:\" and a PromQL expression");
            return None;
        };
        let fields = self.fields(path, item.at, mapping, EXPRESSION_KEYS);
        let check = self.check;
        self.required(&fields, "expr", AN_EXPRESSION, |text| {
            let text = text.trim();
            if text.is_empty() {
                return Err(format!("expected {AN_EXPRESSION}"));
            }
            check(text).map(|()| Expression::new(text))
        })
    }

    /// Two entries for one Deployment would each undo what the other does; so would an entry for a clone.
    fn refuse_shared_deployments(&mut self, drafts: &mut [Draft]) {
        let mut owners: BTreeMap<Target, (ServiceName, Position)> = BTreeMap::new();
        let mut refused = BTreeSet::new();
        for draft in drafts.iter() {
            let Some(target) = draft.target.clone() else {
                continue;
            };
            let deployment = target.to_string();
            match owners.entry(target) {
                btree_map::Entry::Vacant(free) => {
                    free.insert((draft.name.clone(), draft.at));
                }
                btree_map::Entry::Occupied(taken) => {
                    let (other, other_at) = taken.get().clone();
                    refused.extend([draft.name.clone(), other.clone()]);
                    let fault = Fault::SharedDeployment {
                        deployment,
                        other,
                        other_at,
                    };
                    self.problem(draft.at, draft.name.to_string(), fault);
                }
            }
        }
        for (target, (owner, owner_at)) in &owners {
            for clone in CLONE_SUFFIXES.map(|suffix| target.with_suffix(suffix)) {
                let Some((name, at)) = owners.get(&clone) else {
                    continue;
                };
                refused.insert(name.clone());
                let fault = Fault::CloneOfAnother {
                    deployment: clone.to_string(),
                    other: owner.clone(),
                    other_at: *owner_at,
                };
                self.problem(*at, name.to_string(), fault);
            }
        }
        for draft in drafts {
            if refused.contains(&draft.name) {
                draft.service = None;
            }
        }
    }

    /// A service whose expressions can never be evaluated could never be promoted.
    fn refuse_without_prometheus(
        &mut self,
        globals: &Fields<'_>,
        prometheus: &Global<PrometheusUrl>,
        drafts: &mut [Draft],
    ) {
        let is_absent = match prometheus {
            Global::Given(_) => return,
            Global::Absent => true,
            Global::Wrong => false,
        };
        let mut needed = false;
        for draft in drafts {
            let asks = |service: &Service| !service.success.is_empty();
            if draft.service.as_ref().is_some_and(asks) {
                draft.service = None;
                needed = true;
            }
        }
        if is_absent && needed {
            self.missing(globals, PROMETHEUS, A_URL);
        }
    }

    fn fields<'n>(
        &mut self,
        path: String,
        at: Position,
        mapping: &'n Mapping,
        known: &'static [&'static str],
    ) -> Fields<'n> {
        let mut fields = Fields {
            path,
            at,
            mapping,
            misspelt: Vec::new(),
        };
        for repeated in &mapping.repeated {
            let first = repeated.first;
            self.problem(
                repeated.at,
                fields.path_to(&repeated.key),
                Fault::Repeated { first },
            );
        }
        for entry in &mapping.entries {
            if known.contains(&entry.key.as_str()) {
                continue;
            }
            let fault = match nearest(&entry.key, known) {
                Some(nearest) => {
                    fields.misspelt.push(nearest);
                    Fault::Misspelt { nearest }
                }
                None => Fault::UnknownKey { known },
            };
            self.problem(entry.at, fields.path_to(&entry.key), fault);
        }
        fields
    }

    fn required<T, E: fmt::Display>(
        &mut self,
        fields: &Fields<'_>,
        key: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        match fields.mapping.get(key) {
            Some(node) => self.value(fields, key, node, parse),
            None => {
                self.missing(fields, key, expected);
                None
            }
        }
    }

    fn optional<T, E: fmt::Display>(
        &mut self,
        fields: &Fields<'_>,
        key: &'static str,
        default: T,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        match fields.mapping.get(key) {
            Some(node) => self.value(fields, key, node, parse),
            None => Some(default),
        }
    }

    fn value<T, E: fmt::Display>(
        &mut self,
        fields: &Fields<'_>,
        key: &'static str,
        node: &Node,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let parsed = match &node.content {
            Content::Text(text) => parse(text),
            // What every reader says of an empty text is what it expects.
            Content::Nothing | Content::List(_) | Content::Mapping(_) => parse(""),
        };
        match parsed {
            Ok(value) => Some(value),
            Err(error) => {
                let found = match &node.content {
                    Content::Text(text) if key == PROMETHEUS => {
                        Found::Text(without_credentials(text))
                    }
                    Content::Text(_)
                    | Content::Nothing
                    | Content::List(_)
                    | Content::Mapping(_) => found(node),
                };
                let expected = error.to_string();
                let fault = Fault::Unexpected { found, expected };
                self.problem(node.at, fields.path_to(key), fault);
                None
            }
        }
    }

    fn missing(&mut self, fields: &Fields<'_>, key: &'static str, expected: &'static str) {
        if !fields.misspelt.contains(&key) {
            self.problem(fields.at, fields.path_to(key), Fault::Missing { expected });
        }
    }

    fn unexpected(&mut self, node: &Node, path: String, expected: &str) {
        let fault = Fault::Unexpected {
            found: found(node),
            expected: expected.to_owned(),
        };
        self.problem(node.at, path, fault);
    }
}

fn found(node: &Node) -> Found {
    match &node.content {
        Content::Nothing => Found::Nothing,
        Content::Text(text) => Found::Text(text.clone()),
        Content::List(_) => Found::List,
        Content::Mapping(_) => Found::Mapping,
    }
}

/// The known key that somebody who wrote `key` most likely meant: at most a third of it is different.
fn nearest(key: &str, known: &'static [&'static str]) -> Option<&'static str> {
    // `maxStepDuration` and `max-step-duration` are habits of other tools, not different words.
    let plain = |key: &str| key.replace(['-', '_'], "").to_lowercase();
    let key = plain(key);
    known
        .iter()
        .map(|known| (strsim::osa_distance(&key, &plain(known)), *known))
        .filter(|(distance, known)| distance * 3 <= known.len().max(key.len()))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Loaded;
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
        assert_eq!(loaded.config.poll_interval, Duration::from_secs(2));
    }

    #[test]
    fn every_key_that_is_given_is_taken() {
        let loaded = load(&format!(
            "{GLOBALS}poll-interval: 500ms\n{}",
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
                    ("success", "[{expr: ' a > 1 '}, {expr: b > 2}]"),
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
                success: vec![Expression::new("a > 1"), Expression::new("b > 2")],
            }
        );
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
                "on_failure",
                "freeze",
                "orders.on_failure: unknown key; expected one of breakpoint, step,",
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
    fn a_word_reserved_for_a_setting_is_no_service() {
        let loaded = load(&format!("{GLOBALS}{}", entry("defaults", &[])));
        assert_eq!(
            problems(&loaded),
            [
                "defaults: unknown key; expected one of prometheus-base-url, namespace, poll-interval"
            ]
        );
        assert!(loaded.config.services.is_empty());
        assert!(loaded.refused.is_empty());
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
}
