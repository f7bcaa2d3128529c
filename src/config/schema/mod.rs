//! The keys of the file, what may stand under them, and what they mean when they are absent.
//!
//! Reading goes on after a mistake, so that a person sees all of them at once.

mod notify;
mod prometheus;
mod secret;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use thiserror::Error;

use super::bound::{Bound, BoundError};
use super::channels::ChannelName;
use super::choices::{
    AfterRollback, CanaryOn, CompletedContainers, KnownGood, OnFailure, OnNoData,
};
use super::document::{Content, Entry, Malformed, Mapping, Node};
use super::labels::copied_label;
use super::load::{ExpressionCheck, Setting};
use super::names::{self, CLONE_SUFFIXES, ServiceName};
use super::problem::{Fault, Found, Position, Problem};
use super::prometheus::PrometheusSettings;
use super::prometheus_url::without_credentials;
use super::reader::{Absent, Defaults, Fields, Reader, found, nearest, printable};
use super::units::{Amount, DurationError, is_decimal, parse_duration};
use super::warning::{Warning, doubts, expression_doubt, prometheus_doubt};
use super::{Config, Expression, Service};

const PROMETHEUS_BASE_URL: &str = "prometheus-base-url";
const NAMESPACE: &str = "namespace";
const POLL_INTERVAL: &str = "poll-interval";

const MAX_CONCURRENT_ROLLOUTS: &str = "max-concurrent-rollouts";
const DEFAULTS: &str = "defaults";

/// How Prometheus is asked, a mapping.
const PROMETHEUS: &str = "prometheus";

/// Globally the channels, in a service the names of those that are told of it.
const NOTIFY: &str = "notify";

const GLOBAL_KEYS: &[&str] = &[
    PROMETHEUS_BASE_URL,
    PROMETHEUS,
    NAMESPACE,
    POLL_INTERVAL,
    MAX_CONCURRENT_ROLLOUTS,
    DEFAULTS,
    NOTIFY,
];

/// What an entry under an unknown name may have been meant as that is no mapping.
const GLOBAL_KEYS_BUT_PROMETHEUS: &[&str] = &[
    PROMETHEUS_BASE_URL,
    NAMESPACE,
    POLL_INTERVAL,
    MAX_CONCURRENT_ROLLOUTS,
    DEFAULTS,
    NOTIFY,
];

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
    NOTIFY,
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

const EXPRESSION_KEYS: &[&str] = &["expr", "on_no_data"];

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
    pub wrong: BTreeSet<Setting>,
    pub places: BTreeMap<ServiceName, Position>,
    pub problems: Vec<Problem>,
    pub warnings: Vec<Warning>,
}

/// Reads the tree of a whole file.
pub(super) fn read(root: &Node, check: &ExpressionCheck<'_>) -> Result<Reading, Malformed> {
    let mapping = match &root.content {
        Content::Mapping(mapping) => mapping,
        Content::Nothing | Content::Faulty => {
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
        warnings: Vec::new(),
        listed: 0,
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

impl<T> Global<T> {
    fn is_wrong(&self) -> bool {
        matches!(self, Self::Wrong)
    }
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
        Content::Nothing | Content::List(_) | Content::Mapping(_) | Content::Faulty => found(node),
    }
}

/// Whether a mapping under an unknown name is the defaults, and not a service: a service is complete without them.
fn is_misspelt_defaults(name: &str, entry: &Mapping) -> bool {
    nearest(name, &[DEFAULTS]).is_some() && REQUIRED_KEYS.iter().any(|key| entry.get(key).is_none())
}

/// Whether a mapping under an unknown name says how Prometheus is asked, and not how a service is rolled out.
fn is_misspelt_prometheus(name: &str, entry: &Mapping) -> bool {
    nearest(name, &[PROMETHEUS]).is_some()
        && !SERVICE_KEYS.iter().any(|key| entry.get(key).is_some())
}

impl Reader<'_> {
    fn file(&mut self, mapping: &Mapping) -> Reading {
        let mut misspelt = Vec::new();
        let mut entries = Vec::new();
        let has_no_defaults = mapping.get(DEFAULTS).is_none();
        let has_no_prometheus = mapping.get(PROMETHEUS).is_none();
        for entry in &mapping.entries {
            if GLOBAL_KEYS.contains(&entry.key.as_str()) {
                continue;
            }
            let meant = nearest(&entry.key, GLOBAL_KEYS_BUT_PROMETHEUS);
            match (&entry.value.content, meant) {
                (Content::Text(_) | Content::Nothing | Content::List(_), Some(nearest)) => {
                    misspelt.push(nearest);
                    self.problem(entry.at, printable(&entry.key), Fault::Misspelt { nearest });
                }
                (Content::Mapping(keys), _)
                    if has_no_defaults && is_misspelt_defaults(&entry.key, keys) =>
                {
                    misspelt.push(DEFAULTS);
                    let fault = Fault::Misspelt { nearest: DEFAULTS };
                    self.problem(entry.at, printable(&entry.key), fault);
                }
                (Content::Mapping(keys), _)
                    if has_no_prometheus && is_misspelt_prometheus(&entry.key, keys) =>
                {
                    misspelt.push(PROMETHEUS);
                    let nearest = PROMETHEUS;
                    self.problem(entry.at, printable(&entry.key), Fault::Misspelt { nearest });
                }
                (Content::Mapping(_) | Content::Faulty, _) | (_, None) => entries.push(entry),
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
        let prometheus = self.prometheus(&globals);
        if let (Global::Given(settings), Some(node)) =
            (&prometheus, mapping.get(PROMETHEUS_BASE_URL))
            && let Some(doubt) = prometheus_doubt(settings)
        {
            self.warn(node.at, globals.path_to(PROMETHEUS_BASE_URL), doubt);
        }
        let namespace = self.global(&globals, NAMESPACE, found, names::namespace);
        let poll_interval = self.global(&globals, POLL_INTERVAL, found, duration_above_zero);
        let max_concurrent_rollouts =
            self.global(&globals, MAX_CONCURRENT_ROLLOUTS, found, rollouts);
        let notify = self.notify(&globals);
        let channels = notify.known.as_ref();
        let defaults = self.defaults(&globals, channels);
        let absent = defaults.as_ref().map_or(Absent::Builtin, Absent::FallBack);

        let mut drafts: Vec<Draft> = entries
            .into_iter()
            .filter_map(|entry| self.entry(entry, absent, &namespace, channels))
            .collect();
        let repeated: BTreeSet<&str> = mapping
            .repeated
            .iter()
            .map(|repeated| repeated.key.as_str())
            .collect();
        for draft in &mut drafts {
            if repeated.contains(draft.name.as_str()) {
                draft.service = None;
            }
        }
        self.refuse_shared_deployments(&mut drafts);
        self.refuse_without_prometheus(&globals, &prometheus, &mut drafts);

        let mut refused = BTreeSet::new();
        let mut services = BTreeMap::new();
        let mut places = BTreeMap::new();
        for draft in drafts {
            places.insert(draft.name.clone(), draft.at);
            match draft.service {
                Some(service) => {
                    services.insert(draft.name, service);
                }
                None => {
                    refused.insert(draft.name);
                }
            }
        }
        let wrong = [
            (Setting::Prometheus, prometheus.is_wrong()),
            (Setting::Namespace, namespace.is_wrong()),
            (Setting::PollInterval, poll_interval.is_wrong()),
            (
                Setting::MaxConcurrentRollouts,
                max_concurrent_rollouts.is_wrong(),
            ),
            (Setting::Notify, notify.is_wrong()),
        ];
        Reading {
            wrong: wrong
                .into_iter()
                .filter_map(|(setting, is_wrong)| is_wrong.then_some(setting))
                .collect(),
            config: Config {
                prometheus: match prometheus {
                    Global::Given(settings) => Some(settings),
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
                channels: notify.channels,
                services,
            },
            refused,
            places,
            problems: std::mem::take(&mut self.problems),
            warnings: std::mem::take(&mut self.warnings),
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
    fn defaults<'n>(
        &mut self,
        globals: &Fields<'n>,
        channels: Option<&BTreeSet<ChannelName>>,
    ) -> Option<Defaults<'n>> {
        let path = globals.path_to(DEFAULTS);
        let all_wrong = || Defaults {
            path: path.clone(),
            mapping: None,
            wrong: SERVICE_KEYS.iter().copied().collect(),
        };
        let Some(node) = globals.mapping.get(DEFAULTS) else {
            return globals.misspelt.contains(&DEFAULTS).then(all_wrong);
        };
        let mapping = match &node.content {
            Content::Mapping(mapping) => mapping,
            Content::Nothing => return globals.mapping.repeats(DEFAULTS).then(all_wrong),
            Content::Text(_) | Content::List(_) | Content::Faulty => {
                self.unexpected(node, path.clone(), THE_DEFAULTS);
                return Some(all_wrong());
            }
        };
        let fields = self.fields(
            path.clone(),
            node.at,
            mapping,
            SERVICE_KEYS,
            Absent::LeftOpen,
        );
        self.service(&fields, None, &Global::Absent, channels);
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
            path,
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
        channels: Option<&BTreeSet<ChannelName>>,
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
            let expected = format!(
                "expected {A_SERVICE}, or one of the global settings {}",
                GLOBAL_KEYS.join(", ")
            );
            self.unexpected(&entry.value, printable(&entry.key), &expected);
            return name.map(|name| Draft {
                name,
                at: entry.at,
                target: None,
                service: None,
            });
        };
        let path = printable(&entry.key);
        let fields = self.fields(path, entry.at, mapping, SERVICE_KEYS, absent);
        let (target, service) = self.service(&fields, name.as_ref(), namespace, channels);
        let name = name?;
        let is_right = self.problems.len() == problems_before;
        for (keys, doubt) in service.iter().flat_map(doubts) {
            if let Some((at, path)) = fields.place_of(keys) {
                self.warn(at, path, doubt);
            }
        }
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
        channels: Option<&BTreeSet<ChannelName>>,
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
        let notify = self.audience(fields, channels);

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
                notify: notify?,
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
        let key = "expr";
        let expression = self.required(&fields, key, AN_EXPRESSION, |text| {
            let text = text.trim();
            if text.is_empty() {
                return Err(format!("expected {AN_EXPRESSION}"));
            }
            check(text).map(|()| Expression::new(text))
        });
        let on_no_data = self.optional(&fields, "on_no_data", OnNoData::default(), str::parse);
        if let (Some(expression), Some(node)) = (&expression, mapping.get(key))
            && let Some(doubt) = expression_doubt(expression)
        {
            self.warn(node.at, fields.path_to(key), doubt);
        }
        Some(Expression {
            on_no_data: on_no_data?,
            ..expression?
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
        prometheus: &Global<PrometheusSettings>,
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
            self.missing(globals, PROMETHEUS_BASE_URL, A_URL);
        }
    }
}
