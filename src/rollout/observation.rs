//! What is seen of one service in one pass: the only thing, beside configuration and elapsed time, that decisions rest on.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Replicas;
use super::command::{Command, CommandError};
use super::state::State;
use super::template::Template;

/// The identity of one life of one object, given by the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(pub String);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The version of an object, given by the API server; a write that carries it fails when the object has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceVersion(pub String);

/// Which of the service's Deployments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The user's own Deployment, X.
    Original,
    /// `X-primary`: runs the accepted version while a rollout is open.
    Primary,
    /// `X-canary`: runs the candidate while a rollout is open.
    Canary,
}

/// Whether something is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It stays.
    Alive,
    /// It has a deletion timestamp.
    Deleting,
}

/// Whether the Deployment controller may roll a new template out by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rolling {
    /// `spec.paused: true`: it follows `spec.replicas` only.
    Paused,
    /// It rolls natively.
    Unpaused,
}

/// Where an observation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// From the store that watches feed: may be behind.
    Cached,
    /// Deployments, ReplicaSets and the state object were read from the API server just now (design section 3, fact 4).
    Live,
}

/// The time of day of whoever looks, in seconds since 1970. Only what people read is made of it, and what is told apart by
/// minutes: clocks of two nodes differ (case K54).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(pub i64);

impl WallTime {
    /// The time from `earlier` to this one; none if it was later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// As RFC 3339 has it, in UTC.
impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_second(self.0) {
            Ok(time) => write!(f, "{time}"),
            Err(_) => write!(f, "{} seconds", self.0),
        }
    }
}

/// Everything seen of one service.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Where it comes from.
    pub freshness: Freshness,
    /// The clock on the wall when it was made.
    pub at: WallTime,
    /// X, if it exists.
    pub original: Option<Deployment>,
    /// Whatever is called `X-primary`.
    pub primary: Option<Deployment>,
    /// Whatever is called `X-canary`.
    pub canary: Option<Deployment>,
    /// Whatever PodTemplate is called `X-volery`.
    pub state: Option<StateObject>,
    /// ReplicaSets whose controller is one of the above.
    pub replica_sets: Vec<ReplicaSet>,
    /// Pods whose controller is one of the ReplicaSets.
    pub pods: Vec<Pod>,
}

/// A Deployment, as far as decisions need it.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// `metadata.deletionTimestamp`, as a fact.
    pub life: Life,
    /// The controlling owner, if any.
    pub owner: Option<Uid>,
    /// Whether it carries Volery's mark (label `volery.dev/role`).
    pub mark: Mark,
    /// Whether `status` speaks of the present `spec` (`observedGeneration >= generation`).
    pub observed: Observed,
    /// `spec.paused`.
    pub rolling: Rolling,
    /// `spec.replicas`.
    pub replicas: Replicas,
    /// Who set that number.
    pub hand: Hand,
    /// `spec.template`.
    pub template: Template,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// The rest of `spec` (selector, strategy, deadlines), for the clones.
    pub rest: DeploymentRest,
    /// `status`.
    pub status: DeploymentStatus,
}

/// Whether an object says that Volery made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Volery's.
    Ours,
    /// Somebody else's: never touched (case K43).
    Foreign,
}

/// Who set `spec.replicas`, as `metadata.managedFields` tell: what the API server itself keeps needs no memory of ours, and
/// says who it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hand {
    /// Volery.
    Ours,
    /// Somebody else: the manager's name, such as `kubectl` or `kube-controller-manager`, which is how autoscalers write.
    Another(String),
    /// Nothing tells.
    Unknown,
}

/// Whether a status can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// The controller has seen the present spec.
    Yes,
    /// It has not yet.
    NotYet,
}

/// The part of a Deployment's spec that is neither template, number nor pause.
#[derive(Clone, Debug, PartialEq)]
pub struct DeploymentRest {
    /// `spec.selector`.
    pub selector: Value,
    /// `spec.strategy`.
    pub strategy: Value,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: u32,
    /// `spec.revisionHistoryLimit`; the API server's default is 10.
    pub history_limit: usize,
}

impl DeploymentRest {
    /// Whether what can change in a Deployment's life is the same as in another one.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.strategy == other.strategy && self.min_ready_seconds == other.min_ready_seconds
    }

    /// How many pods more than `replicas` the Deployment's own strategy lets exist: Kubernetes rounds a share up.
    pub fn max_surge(&self, replicas: Replicas) -> Replicas {
        let amount = self.strategy.pointer("/rollingUpdate/maxSurge");
        Replicas(resolve(amount, replicas.0, Round::Up))
    }

    /// Whether pods of this template could be the Deployment's: a ReplicaSet whose template is not selected is refused by
    /// the API server.
    pub fn selects(&self, template: &Template) -> bool {
        let value_of = |key: &str| {
            let mut labels = template.labels();
            labels.find_map(|(label, value)| (label == key).then_some(value))
        };
        let labels = self
            .selector
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .all(|(key, value)| value_of(key) == value.as_str());
        let expression = |expression: &Value| {
            let text = |field: &str| expression.get(field).and_then(Value::as_str);
            let value = value_of(text("key").unwrap_or_default());
            let named = expression
                .get("values")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .any(|named| value.is_some() && named.as_str() == value);
            match text("operator") {
                Some("In") => named,
                Some("NotIn") => !named,
                Some("Exists") => value.is_some(),
                Some("DoesNotExist") => value.is_none(),
                _ => false,
            }
        };
        let mut expressions = self
            .selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        labels && expressions.all(expression)
    }

    /// Whether all pods of a version end before the first of the next starts.
    pub fn recreates(&self) -> bool {
        self.strategy.pointer("/type").and_then(Value::as_str) == Some("Recreate")
    }

    /// How many of `replicas` the Deployment's own strategy lets go missing: Kubernetes rounds a share down, and a
    /// Deployment whose surge and unavailability are both zero may lose one.
    pub fn max_unavailable(&self, replicas: Replicas) -> Replicas {
        let amount = |field: &str| self.strategy.pointer(&format!("/rollingUpdate/{field}"));
        let unavailable = resolve(amount("maxUnavailable"), replicas.0, Round::Down);
        let surge = resolve(amount("maxSurge"), replicas.0, Round::Up);
        Replicas(if unavailable == 0 && surge == 0 {
            1
        } else {
            unavailable.min(replicas.0)
        })
    }
}

enum Round {
    Up,
    Down,
}

/// Resolves an `IntOrString`; absent is the API server's default of 25%.
fn resolve(amount: Option<&Value>, total: u32, round: Round) -> u32 {
    let share = |percent: u64| {
        let product = u64::from(total).saturating_mul(percent);
        let resolved = match round {
            Round::Up => product.div_ceil(100),
            Round::Down => product / 100,
        };
        u32::try_from(resolved).unwrap_or(u32::MAX)
    };
    match amount {
        Some(Value::Number(number)) => number
            .as_u64()
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(0),
        Some(Value::String(text)) => text.trim_end_matches('%').parse().map_or(0, share),
        _ => share(25),
    }
}

/// A Deployment's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeploymentStatus {
    /// `status.replicas`.
    pub replicas: Replicas,
    /// `status.updatedReplicas`.
    pub updated: Replicas,
    /// `status.availableReplicas`.
    pub available: Replicas,
}

/// A ReplicaSet, as far as decisions need it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaSet {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: Uid,
    /// The controlling owner.
    pub owner: Uid,
    /// `metadata.deletionTimestamp`, as a fact.
    pub life: Life,
    /// `spec.replicas`.
    pub replicas: Replicas,
    /// `spec.template` without `pod-template-hash`.
    pub template: Template,
    /// `status.replicas`: pods that exist and are not terminating.
    pub existing: Replicas,
    /// `status.terminatingReplicas`: pods that are terminating; 0 where Kubernetes does not say (before 1.35).
    pub terminating: Replicas,
    /// `status.availableReplicas`.
    pub available: Replicas,
    /// Whether `status` speaks of the present `spec`.
    pub observed: Observed,
    /// Annotation `deployment.kubernetes.io/revision`: the Deployment controller has recognised it.
    pub revision: Option<u64>,
    /// The message of condition `ReplicaFailure`: why pods cannot be created.
    pub failure: Option<String>,
}

impl ReplicaSet {
    /// Whether it neither has nor wants pods.
    pub fn is_empty(&self) -> bool {
        self.replicas == Replicas::ZERO && self.existing == Replicas::ZERO
    }
}

/// The state object `X-volery`.
#[derive(Clone, Debug)]
pub struct StateObject {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// The controlling owner.
    pub owner: Option<Uid>,
    /// Whether it carries Volery's mark.
    pub mark: Mark,
    /// `metadata.deletionTimestamp`, as a fact.
    pub life: Life,
    /// The accepted template.
    pub accepted: Template,
    /// The rollout's state, or why it cannot be read.
    pub state: Result<State, String>,
    /// What a person orders, if it waits to be carried out.
    pub command: Option<Result<Command, CommandError>>,
}

/// A pod, as far as decisions need it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: Uid,
    /// The controlling ReplicaSet.
    pub owner: Uid,
    /// `metadata.deletionTimestamp`, as a fact.
    pub life: Life,
    /// `metadata.deletionTimestamp`: when its grace period is over.
    pub ends_by: Option<WallTime>,
    /// `status.phase`.
    pub phase: PodPhase,
    /// Condition `Ready`.
    pub ready: Ready,
    /// Containers whose restarts or waiting reasons matter, native sidecars and init containers included (case K20).
    pub containers: Vec<Container>,
    /// Whether it was driven out.
    pub disruption: Disruption,
    /// Why the scheduler finds no node, if it said so.
    pub unschedulable: Option<String>,
}

impl Pod {
    /// Neither on its way out nor over (design section 3, fact 11).
    pub fn is_alive(&self) -> bool {
        self.life == Life::Alive && matches!(self.phase, PodPhase::Pending | PodPhase::Running)
    }

    /// Whether something of it still runs, or may: an evicted pod stays as a record only.
    pub fn is_there(&self) -> bool {
        self.life == Life::Deleting || self.is_alive()
    }
}

/// `status.phase` of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers have started, or the API server said nothing yet.
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended well.
    Succeeded,
    /// A container ended badly, or the pod was evicted.
    Failed,
}

/// Condition `DisruptionTarget` of a pod: drained, evicted or preempted, which says nothing of its version (case K22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// It was not.
    None,
    /// It was.
    Target,
}

/// Condition `Ready` of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// True.
    Yes,
    /// False, unknown or absent.
    No,
}

/// One container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// `restartCount`; a missing status list means 0 (case K20).
    pub restarts: u32,
    /// Why it waits (`ImagePullBackOff`, `CrashLoopBackOff`), with the kubelet's message.
    pub waiting: Option<String>,
    /// How it last ended.
    pub last_end: Option<End>,
    /// How it had ended when it was last restarted. An init container that did its work at last has ended otherwise since.
    pub restarted_after: Option<End>,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The kubelet's word for it: `Completed`, `Error`, `OOMKilled`.
    pub reason: Option<String>,
    /// Its exit code; `None` where the kubelet lost sight of it.
    pub exit_code: Option<i64>,
    /// Its termination message, in one line.
    pub message: Option<String>,
}

impl End {
    /// Whether it had done its work (case K21). What ran out of memory had not, whatever its main process said.
    pub fn is_completion(&self) -> bool {
        self.exit_code == Some(0) && self.reason.as_deref() != Some("OOMKilled")
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, self.exit_code) {
            (Some(reason), Some(code)) => write!(f, "{reason}, exit code {code}")?,
            (Some(reason), None) => f.write_str(reason)?,
            (None, Some(code)) => write!(f, "exit code {code}")?,
            (None, None) => f.write_str("for a reason unknown")?,
        }
        match &self.message {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}

impl Observation {
    /// The Deployment of a role.
    pub fn deployment(&self, role: Role) -> Option<&Deployment> {
        match role {
            Role::Original => self.original.as_ref(),
            Role::Primary => self.primary.as_ref(),
            Role::Canary => self.canary.as_ref(),
        }
    }

    /// The living ReplicaSets controlled by `owner`.
    pub fn replica_sets_of<'a>(&'a self, owner: &'a Uid) -> impl Iterator<Item = &'a ReplicaSet> {
        self.replica_sets
            .iter()
            .filter(move |set| set.owner == *owner && set.life == Life::Alive)
    }

    /// All pods that `owner`'s ReplicaSets still have, terminating ones included.
    pub fn pods_of<'a>(&'a self, owner: &'a Uid) -> impl Iterator<Item = &'a Pod> {
        let sets: BTreeMap<&Uid, ()> = self
            .replica_sets
            .iter()
            .filter(|set| set.owner == *owner)
            .map(|set| (&set.uid, ()))
            .collect();
        self.pods
            .iter()
            .filter(move |pod| sets.contains_key(&pod.owner))
    }
}
