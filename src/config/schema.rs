//! The keys of the file, what may stand under them, and what they mean when they are absent.
//!
//! Reading goes on after a mistake, so that a person sees all of them at once.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use thiserror::Error;

use super::bound::{Bound, BoundError};
use super::choices::{AfterRollback, CanaryOn, CompletedContainers, KnownGood, OnFailure};
use super::document::{Content, Entry, Malformed, Mapping, Node};
use super::labels::copied_label;
use super::load::ExpressionCheck;
use super::names::{self, CLONE_SUFFIXES, ServiceName};
use super::problem::{Fault, Found, Position, Problem};
use super::prometheus_url::{PrometheusUrl, without_credentials};
use super::reader::{Absent, Defaults, Fields, Reader, found, nearest, printable};
use super::units::{Amount, DurationError, is_decimal, parse_duration};
use super::{Config, Expression, Service};

const PROMETHEUS: &str = "prometheus-base-url";
const NAMESPACE: &str = "namespace";
const POLL_INTERVAL: &str = "poll-interval";

const MAX_CONCURRENT_ROLLOUTS: &str = "max-concurrent-rollouts";
const DEFAULTS: &str = "defaults";

const GLOBAL_KEYS: &[&str] = &[
    PROMETHEUS,
    NAMESPACE,
    POLL_INTERVAL,
    MAX_CONCURRENT_ROLLOUTS,
    DEFAULTS,
];

/// A word that means a global setting in the format (design section 5), so that no service may take it: it would
/// turn into a setting one day, and until then into a service that nobody meant.
const RESERVED_KEYS: [&str; 1] = ["notify"];

const MAX_SURGE: &str = "max_surge";
const MAX_UNAVAILABLE: &str = "max_unavailable";

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
    "on_failure",
    "restore_original",
    "canary_on",
    MAX_SURGE,
    MAX_UNAVAILABLE,
    "finish_step",
    "known_good",
    "max_restarts",
    "ignore_containers",
    "ignore_completed",
    "copy_labels",
    NAMESPACE,
    "deployment",
];

/// What every service has to say, itself or by the defaults of the file.
const REQUIRED_KEYS: [&str; 6] = [
    "breakpoint",
    "step",
    "abort",
    "max_step_duration",
    "check_success_step_duration",
    "success",
];

const EXPRESSION_KEYS: &[&str] = &["expr"];

const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(2);
const DEFAULT_MAX_CONCURRENT_ROLLOUTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(19);
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
const CONTAINERS: &str = "a list of names of containers, such as [istio-proxy]";
const LABELS: &str = "a list of keys of labels, such as [team]";
const A_WAY_TO_MOVE: &str = "expected max_surge or max_unavailable above zero: with both at 0 no pod could ever be replaced";
const THE_DEFAULTS: &str =
    "expected keys of services, each with the value for services that do not have it";
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

/// How far the number of pods may stray from the wanted one, as far as the file says.
#[derive(PartialEq, Eq)]
struct Envelope {
    max_surge: Option<Bound>,
    max_unavailable: Option<Bound>,
}

impl Envelope {
    const IMMOVABLE: Self = Self {
        max_surge: Some(Bound::Zero),
        max_unavailable: Some(Bound::Zero),
    };
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
    #[error("expected a whole number of restarts, such as 0 or 3")]
    Restarts,
    #[error("expected a whole number of rollouts, at least 1")]
    Rollouts,
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

fn restarts(text: &str) -> Result<u32, ValueError> {
    whole_number(text).ok_or(ValueError::Restarts)
}

fn rollouts(text: &str) -> Result<NonZeroU32, ValueError> {
    whole_number(text)
        .and_then(NonZeroU32::new)
        .ok_or(ValueError::Rollouts)
}

fn whole_number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| is_decimal(text))
}

fn bound(text: &str) -> Result<Option<Bound>, BoundError> {
    text.parse().map(Some)
}

/// A URL as a line may show it.
fn found_url(node: &Node) -> Found {
    match &node.content {
        Content::Text(text) => Found::Text(without_credentials(text)),
        Content::Nothing | Content::List(_) | Content::Mapping(_) => found(node),
    }
}

/// Whether a mapping under an unknown name is the defaults, and not a service: a service is complete without them.
fn is_misspelt_defaults(file: &Mapping, name: &str, entry: &Mapping) -> bool {
    nearest(name, &[DEFAULTS]).is_some()
        && file.get(DEFAULTS).is_none()
        && REQUIRED_KEYS.iter().any(|key| entry.get(key).is_none())
}

impl Reader<'_> {
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
                (Content::Mapping(keys), _) if is_misspelt_defaults(mapping, &entry.key, keys) => {
                    misspelt.push(DEFAULTS);
                    let fault = Fault::Misspelt { nearest: DEFAULTS };
                    self.problem(entry.at, printable(&entry.key), fault);
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
            absent: Absent::Builtin,
        };
        let prometheus = self.global(&globals, PROMETHEUS, found_url, str::parse::<PrometheusUrl>);
        let namespace = self.global(&globals, NAMESPACE, found, names::namespace);
        let poll_interval = self.global(&globals, POLL_INTERVAL, found, duration_above_zero);
        let max_concurrent_rollouts =
            self.global(&globals, MAX_CONCURRENT_ROLLOUTS, found, rollouts);
        let defaults = self.defaults(&globals);
        let absent = defaults.as_ref().map_or(Absent::Builtin, Absent::FallBack);

        let mut drafts: Vec<Draft> = entries
            .into_iter()
            .filter_map(|entry| self.entry(entry, absent, &namespace))
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
                max_concurrent_rollouts: match max_concurrent_rollouts {
                    Global::Given(most) => most,
                    Global::Absent | Global::Wrong => DEFAULT_MAX_CONCURRENT_ROLLOUTS,
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
        shown: impl Fn(&Node) -> Found,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Global<T> {
        match globals.mapping.get(key) {
            None if globals.misspelt.contains(&key) => Global::Wrong,
            None => Global::Absent,
            Some(node) => match self.value_shown(globals.path_to(key), node, shown, parse) {
                Some(value) if !globals.mapping.repeats(key) => Global::Given(value),
                Some(_) | None => Global::Wrong,
            },
        }
    }

    /// Reads what every service falls back on, and tells what is wrong with it once, where it stands.
    ///
    /// A service that would take from it what is wrong, or what a key that means nothing may have been meant as, is
    /// refused: it keeps its old values.
    fn defaults<'n>(&mut self, globals: &Fields<'n>) -> Option<Defaults<'n>> {
        let all_wrong = || Defaults {
            mapping: None,
            wrong: SERVICE_KEYS.iter().copied().collect(),
        };
        let Some(node) = globals.mapping.get(DEFAULTS) else {
            return globals.misspelt.contains(&DEFAULTS).then(all_wrong);
        };
        let mapping = match &node.content {
            Content::Mapping(mapping) => mapping,
            Content::Nothing => return globals.mapping.repeats(DEFAULTS).then(all_wrong),
            Content::Text(_) | Content::List(_) => {
                self.unexpected(node, globals.path_to(DEFAULTS), THE_DEFAULTS);
                return Some(all_wrong());
            }
        };
        let path = globals.path_to(DEFAULTS);
        let fields = self.fields(path, node.at, mapping, SERVICE_KEYS, Absent::LeftOpen);
        self.service(&fields, None, &Global::Absent);
        if globals.mapping.repeats(DEFAULTS) {
            return Some(all_wrong());
        }
        let is_known = |key: &str| SERVICE_KEYS.contains(&key);
        let means_nothing = |key: &str| !is_known(key) && nearest(key, SERVICE_KEYS).is_none();
        let could_be_any = mapping
            .entries
            .iter()
            .any(|entry| means_nothing(&entry.key));
        let wrong = SERVICE_KEYS
            .iter()
            .copied()
            .filter(|key| {
                mapping.repeats(key)
                    || fields.misspelt.contains(key)
                    || (could_be_any && mapping.get(key).is_none())
            })
            .collect();
        Some(Defaults {
            mapping: Some(mapping),
            wrong,
        })
    }

    /// Reads an entry that is no global setting; `None` if it does not even have a service's name.
    fn entry(
        &mut self,
        entry: &Entry,
        absent: Absent<'_>,
        namespace: &Global<String>,
    ) -> Option<Draft> {
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
        let path = printable(&entry.key);
        let fields = self.fields(path, entry.at, mapping, SERVICE_KEYS, absent);
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
        let inconclusive_timeout = self.take(
            fields,
            "inconclusive_timeout",
            |reader, path, node| reader.value(path, node, duration_above_zero),
            |_| max_step_duration,
        );
        let no_data_grace = self.optional(
            fields,
            "no_data_grace",
            DEFAULT_NO_DATA_GRACE,
            parse_duration,
        );
        let success = self.success(fields);
        let on_failure = self.optional(fields, "on_failure", OnFailure::default(), str::parse);
        let restore_original = self.optional(
            fields,
            "restore_original",
            AfterRollback::default(),
            str::parse,
        );
        let canary_on = self.optional(fields, "canary_on", CanaryOn::default(), str::parse);
        let envelope = self.envelope(fields);
        let finish_step = self.optional(fields, "finish_step", None, |text| {
            text.parse::<Amount>().map(Some)
        });
        let known_good = self.optional(fields, "known_good", KnownGood::default(), str::parse);
        let max_restarts = self.optional(fields, "max_restarts", 0, restarts);
        let ignore_containers = self.set(fields, "ignore_containers", CONTAINERS, names::container);
        let ignore_completed = self.optional(
            fields,
            "ignore_completed",
            CompletedContainers::default(),
            str::parse,
        );
        let copy_labels = self.set(fields, "copy_labels", LABELS, copied_label);

        let namespace = self.take(
            fields,
            NAMESPACE,
            |reader, path, node| reader.value(path, node, names::namespace),
            |reader| match global_namespace {
                Global::Given(namespace) => Some(namespace.clone()),
                Global::Wrong => None,
                Global::Absent => {
                    reader.missing(fields, NAMESPACE, A_NAMESPACE);
                    None
                }
            },
        );
        let deployment = self.take(
            fields,
            "deployment",
            |reader, path, node| reader.value(path, node, names::deployment),
            |reader| match names::deployment(name?.as_str()) {
                Ok(deployment) => Some(deployment),
                Err(error) => {
                    reader.problem(fields.at, fields.path.clone(), Fault::Name(error));
                    None
                }
            },
        );
        let target = namespace
            .zip(deployment)
            .map(|(namespace, deployment)| Target {
                namespace,
                deployment,
            });
        let service = || {
            let target = target.clone()?;
            let envelope = envelope?;
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
                on_failure: on_failure?,
                restore_original: restore_original?,
                canary_on: canary_on?,
                max_surge: envelope.max_surge,
                max_unavailable: envelope.max_unavailable,
                finish_step: finish_step?,
                known_good: known_good?,
                max_restarts: max_restarts?,
                ignore_containers: ignore_containers?,
                ignore_completed: ignore_completed?,
                copy_labels: copy_labels?,
            })
        };
        let service = service();
        (target, service)
    }

    /// Between a surge of none and an availability of all no pod could ever be replaced.
    fn envelope(&mut self, fields: &Fields<'_>) -> Option<Envelope> {
        let max_surge = self.optional(fields, MAX_SURGE, None, bound);
        let max_unavailable = self.optional(fields, MAX_UNAVAILABLE, None, bound);
        let envelope = Envelope {
            max_surge: max_surge?,
            max_unavailable: max_unavailable?,
        };
        if envelope != Envelope::IMMOVABLE {
            return Some(envelope);
        }
        // Whoever falls back on both has heard of it where they stand.
        let here = [MAX_UNAVAILABLE, MAX_SURGE]
            .into_iter()
            .find_map(|key| fields.mapping.get(key).map(|node| (key, node)));
        if let Some((key, node)) = here {
            self.unexpected(node, fields.path_to(key), A_WAY_TO_MOVE);
        }
        None
    }

    /// A service without checks is nearly always one whose checks were forgotten, so it has to say so.
    fn success(&mut self, fields: &Fields<'_>) -> Option<Vec<Expression>> {
        let key = "success";
        self.take(
            fields,
            key,
            |reader, path, node| reader.list(path, node, EXPRESSIONS, Self::success_item),
            |reader| {
                reader.missing(fields, key, EXPRESSIONS);
                None
            },
        )
    }

    fn success_item(&mut self, path: String, item: &Node) -> Option<Expression> {
        let Content::Mapping(mapping) = &item.content else {
            self.unexpected(item, path, "expected \"expr:\" and a PromQL expression");
            return None;
        };
        let fields = self.fields(path, item.at, mapping, EXPRESSION_KEYS, Absent::Builtin);
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
                    ("success", "[{expr: ' a > 1 '}, {expr: b > 2}]"),
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
    fn a_word_reserved_for_a_setting_is_no_service() {
        let loaded = load(&format!("{GLOBALS}{}", entry("notify", &[])));
        assert_eq!(
            problems(&loaded),
            [
                "notify: unknown key; expected one of prometheus-base-url, namespace, poll-interval, \
                 max-concurrent-rollouts, defaults"
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
}
