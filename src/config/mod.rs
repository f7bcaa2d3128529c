//! The file: its schema, its units, and what is wrong with it (design section 5).
//!
//! [`Config::load`] reads a file and tells every mistake in it with its place; what is right stays usable, so that
//! one bad entry never stops the others (design section 4, promise 8).
//!
//! | module | what it holds |
//! | --- | --- |
//! | `document` | YAML text to a tree with positions, anchors and merge keys resolved |
//! | `schema` | the keys, their meanings, their defaults; the tree to a [`Config`] |
//! | `reader` | one mapping key by key, and the mistakes in it |
//! | `load` | the file on disk, and the outcome of reading it |
//! | `watch` | the file as it changes |
//! | `renewal` | what becomes of a configuration when its file is read anew |
//! | `change` | what differs between two configurations, for people |
//! | `units`, `bound`, `choices`, `names`, `labels`, `channels`, `secret`, `prometheus`, `prometheus_url` | the values |
//! | `problem` | what can be wrong, and how a person reads it |
//! | `warning` | what is not wrong and still foolish |

mod bound;
mod change;
mod channels;
mod choices;
mod document;
mod labels;
mod load;
mod names;
mod problem;
mod prometheus;
mod prometheus_url;
mod reader;
mod renewal;
mod schema;
mod secret;
mod units;
mod warning;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

pub use bound::{Bound, BoundError};
pub(crate) use channels::post_url;
pub use channels::{Address, Audience, Channel, ChannelError, ChannelName, Medium, Occasion};
pub use choices::{
    AfterRollback, CanaryOn, ChoiceError, CompletedContainers, KnownGood, OnFailure, OnNoData,
};
pub use labels::LabelError;
pub use load::{Content, ExpressionCheck, Loaded, Reading, Setting};
pub use names::{NameError, ServiceName};
pub use problem::{ConfigError, Fault, Found, Position, Problem};
pub use prometheus::{
    Authorities, DEFAULT_QUERY_TIMEOUT, Header, HeaderText, Login, PrometheusSettingError,
    PrometheusSettings,
};
pub use prometheus_url::{PrometheusUrl, PrometheusUrlError};
pub use renewal::{Kept, Renewal};
pub use secret::{Secret, SecretPlaceError};
pub use units::{
    Amount, AmountError, DurationError, LONGEST_DURATION, Replicas, Share, display_duration,
    parse_duration,
};
pub use warning::{Doubt, Warning};
pub use watch::{FileWatch, Pace};

/// What a file says: the global settings, and every service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `prometheus-base-url` and `prometheus`. There whenever a service has success expressions.
    pub prometheus: Option<PrometheusSettings>,
    /// `namespace`: that of services which do not name their own.
    pub namespace: Option<String>,
    /// `poll-interval`: how often every registered Deployment is looked at without being told of a change.
    /// Above zero.
    pub poll_interval: Duration,
    /// `max-concurrent-rollouts`: how many rollouts may be open at once; further ones wait their turn.
    pub max_concurrent_rollouts: NonZeroU32,
    /// `notify`: where alerts go. A channel that is wrong in the file is not in it.
    pub channels: BTreeMap<ChannelName, Channel>,
    /// The services by their keys in the file.
    pub services: BTreeMap<ServiceName, Service>,
}

/// One registered Deployment and how its new versions are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The entry's key in the file.
    pub name: ServiceName,
    /// `namespace`: where the Deployment lives; the entry's own or the global one.
    pub namespace: String,
    /// `deployment`: the Deployment's name, by default the entry's. At most 245 characters, so that its clones
    /// can be named after it.
    pub deployment: String,
    /// `breakpoint`: how much of the wanted replicas the canary must reach before it is trusted.
    pub breakpoint: Amount,
    /// `step`: how much the canary grows at a time. May be more than the breakpoint, which then cuts it
    /// (case K24).
    pub step: Amount,
    /// `abort`: within this time a step's canary pods must be available. Above zero.
    pub abort: Duration,
    /// `start_delay`: the warm-up before a step's first check.
    pub start_delay: Duration,
    /// `max_step_duration`: how long each step is checked. Above zero.
    pub max_step_duration: Duration,
    /// `check_success_step_duration`: the time between two checks. Above zero.
    pub check_interval: Duration,
    /// `check_max_failures`: the failed checks in one step that end the rollout.
    pub check_max_failures: NonZeroU32,
    /// `inconclusive_timeout`: without a conclusive check for this long, a rollout has failed. Above zero.
    pub inconclusive_timeout: Duration,
    /// `no_data_grace`: how long a pod may have had no series in a step before that counts.
    pub no_data_grace: Duration,
    /// `success`: what must hold for every canary pod. Empty only where the file says so explicitly.
    pub success: Vec<Expression>,
    /// `on_failure`: what happens when the candidate is bad.
    pub on_failure: OnFailure,
    /// `restore_original`: what becomes of X's template after a rollback.
    pub restore_original: AfterRollback,
    /// `canary_on`: which differences of the template are tried as a canary.
    pub canary_on: CanaryOn,
    /// `max_surge`: how many pods more than wanted may exist, shares rounded up. `None`: not in the file, which
    /// means one step (design promise 3).
    pub max_surge: Option<Bound>,
    /// `max_unavailable`: how many pods fewer than wanted may be available, shares rounded down. `None`: not in the
    /// file, which means 0, or one step where [`max_surge`](Self::max_surge) is 0. Never zero together with it
    /// where the file names both; a share can still come to 0 replicas.
    pub max_unavailable: Option<Bound>,
    /// `finish_step`: how much moves at a time past the breakpoint. `None`: not in the file, which means
    /// [`step`](Self::step).
    pub finish_step: Option<Amount>,
    /// `known_good`: how a candidate is tried that equals a formerly accepted template.
    pub known_good: KnownGood,
    /// `max_restarts`: the restarts of one canary pod that are not yet a failure (case K21).
    pub max_restarts: u32,
    /// `ignore_containers`: the containers whose restarts say nothing about the version (case K20).
    pub ignore_containers: BTreeSet<String>,
    /// `ignore_completed`: whether restarts after exit code 0 count (case K21).
    pub ignore_completed: CompletedContainers,
    /// `copy_labels`: the keys of those labels of X that its clones carry too. None by which Volery or another tool
    /// would tell an object for its own.
    pub copy_labels: BTreeSet<String>,
    /// `notify`: which channels are told of what happens to it.
    pub notify: Audience,
}

impl Service {
    /// A service that is registered in the cluster and no longer in the file: as much of one as giving it back
    /// takes. No rollout is ever opened with it, so its steps are the largest there are.
    ///
    /// `None` where `deployment` is no name that a registered service can have.
    pub fn leaving(namespace: &str, deployment: &str) -> Option<Self> {
        let all = Amount::Share(Share::from_percent(100).ok()?);
        Some(Self {
            name: deployment.parse().ok()?,
            namespace: namespace.to_owned(),
            deployment: deployment.to_owned(),
            breakpoint: all,
            step: Amount::Number(NonZeroU32::MIN),
            abort: LONGEST_DURATION,
            start_delay: Duration::ZERO,
            max_step_duration: LONGEST_DURATION,
            check_interval: LONGEST_DURATION,
            check_max_failures: NonZeroU32::MIN,
            inconclusive_timeout: LONGEST_DURATION,
            no_data_grace: LONGEST_DURATION,
            success: Vec::new(),
            on_failure: OnFailure::RollBack,
            restore_original: AfterRollback::KeepTemplate,
            canary_on: CanaryOn::Template,
            max_surge: None,
            max_unavailable: None,
            finish_step: None,
            known_good: KnownGood::Checks,
            max_restarts: 0,
            ignore_containers: BTreeSet::new(),
            ignore_completed: CompletedContainers::Count,
            copy_labels: BTreeSet::new(),
            notify: Audience::Everyone,
        })
    }
}

/// A success expression as written, placeholders such as `<<pod>>` included; never empty.
///
/// Whether it is PromQL has been asked of the [`ExpressionCheck`] that the file was loaded with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expression {
    text: String,
    /// `on_no_data`: what it means that a pod still has no series after `no_data_grace`.
    pub on_no_data: OnNoData,
}

impl Expression {
    /// Takes an expression as it is.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            on_no_data: OnNoData::default(),
        }
    }

    /// The expression as written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Display for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}
