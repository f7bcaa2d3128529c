//! API objects as the simulated server keeps them: JSON, so that fields nobody here knows survive.

use std::fmt;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::clock::seconds_of;
use super::selector::Requirements;

/// A kind of object that the simulated API server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// apps/v1 Deployment
    Deployment,
    /// apps/v1 ReplicaSet
    ReplicaSet,
    /// core/v1 Pod
    Pod,
    /// core/v1 PodTemplate
    PodTemplate,
    /// Event, one store behind core/v1 and events.k8s.io/v1
    Event,
    /// coordination.k8s.io/v1 Lease
    Lease,
    /// autoscaling/v2 HorizontalPodAutoscaler, which scales nothing here
    Autoscaler,
}

impl Kind {
    /// Every kind, in a fixed order.
    pub const ALL: [Self; 7] = [
        Self::Deployment,
        Self::ReplicaSet,
        Self::Pod,
        Self::PodTemplate,
        Self::Event,
        Self::Lease,
        Self::Autoscaler,
    ];

    /// The kind's name as in an object's `kind`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::Pod => "Pod",
            Self::PodTemplate => "PodTemplate",
            Self::Event => "Event",
            Self::Lease => "Lease",
            Self::Autoscaler => "HorizontalPodAutoscaler",
        }
    }

    /// The kind's plural as in a request's path.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::ReplicaSet => "replicasets",
            Self::Pod => "pods",
            Self::PodTemplate => "podtemplates",
            Self::Event => "events",
            Self::Lease => "leases",
            Self::Autoscaler => "horizontalpodautoscalers",
        }
    }

    /// The `apiVersion` under which objects of this kind are stored.
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::Deployment | Self::ReplicaSet => "apps/v1",
            Self::Pod | Self::PodTemplate => "v1",
            Self::Event => "events.k8s.io/v1",
            Self::Lease => "coordination.k8s.io/v1",
            Self::Autoscaler => "autoscaling/v2",
        }
    }

    /// The kind that a path's group, version and plural name.
    pub(super) fn served_at(api_version: &str, plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| {
            kind.plural() == plural
                && (kind.api_version() == api_version
                    || (*kind == Self::Event && api_version == "v1"))
        })
    }

    /// The kind that an owner reference names.
    pub(super) fn of_reference(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|candidate| candidate.api_version() == api_version && candidate.name() == kind)
    }

    /// The resource as the API server names it in messages, for example `deployments.apps`.
    pub(super) fn resource(self) -> String {
        match self.api_version().split_once('/') {
            Some((group, _)) => format!("{}.{group}", self.plural()),
            None => self.plural().to_owned(),
        }
    }

    /// Whether a write to the main resource leaves `status` alone.
    pub(super) const fn has_status(self) -> bool {
        matches!(self, Self::Deployment | Self::ReplicaSet | Self::Pod)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Where an object is: its namespace and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// namespace
    pub namespace: String,
    /// name, unique within namespace and kind
    pub name: String,
}

impl Key {
    /// The key of `name` in `namespace`.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// The owner reference that says `controller: true`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// the owner's kind, for example `Deployment`
    pub kind: String,
    /// the owner's name
    pub name: String,
    /// the owner's uid
    pub uid: String,
}

/// What the controllers ask of every object in every pass, read from the JSON once.
#[derive(Debug)]
struct Facts {
    is_terminating: bool,
    /// since when its Ready condition is true, in seconds since the Unix epoch
    ready_since: Option<i64>,
    is_ready: bool,
    is_active: bool,
    controller: Option<Controller>,
    selector: Requirements,
}

impl Facts {
    fn of(object: &Object) -> Self {
        let is_terminating = object.at("/metadata/deletionTimestamp").is_some();
        let is_controller = |owner: &&Value| owner.get("controller").and_then(Value::as_bool);
        let ready = object
            .condition("Ready")
            .filter(|condition| text_of(condition, "status") == "True");
        Self {
            is_terminating,
            ready_since: ready
                .and_then(|condition| seconds_of(text_of(condition, "lastTransitionTime"))),
            is_ready: ready.is_some(),
            is_active: !is_terminating
                && !matches!(object.text("/status/phase"), "Succeeded" | "Failed"),
            controller: object
                .owners()
                .iter()
                .find(|owner| is_controller(owner).unwrap_or_default())
                .map(|owner| Controller {
                    kind: text_of(owner, "kind").to_owned(),
                    name: text_of(owner, "name").to_owned(),
                    uid: text_of(owner, "uid").to_owned(),
                }),
            selector: Requirements::of_spec(object.at("/spec/selector")),
        }
    }
}

/// One API object.
#[derive(Debug)]
pub struct Object {
    json: Value,
    facts: OnceLock<Box<Facts>>,
}

impl Clone for Object {
    // A copy is made to be changed, so the facts stay behind.
    fn clone(&self) -> Self {
        Self::new(self.json.clone())
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Object {
    /// An object with the given JSON.
    #[must_use]
    pub const fn new(json: Value) -> Self {
        Self {
            json,
            facts: OnceLock::new(),
        }
    }

    /// The object's JSON.
    #[must_use]
    pub const fn json(&self) -> &Value {
        &self.json
    }

    /// The object's JSON, without the object.
    #[must_use]
    pub fn into_json(self) -> Value {
        self.json
    }

    /// The object's JSON, to be changed.
    pub fn json_mut(&mut self) -> &mut Value {
        self.facts.take();
        &mut self.json
    }

    fn facts(&self) -> &Facts {
        self.facts.get_or_init(|| Box::new(Facts::of(self)))
    }

    /// The value at a path such as `/spec/containers/0/image`: a JSON pointer without escapes.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<&Value> {
        path.split('/')
            .skip(1)
            .try_fold(&self.json, |at, step| match at.as_array() {
                Some(list) => list.get(step.parse::<usize>().ok()?),
                None => at.get(step),
            })
    }

    /// The text at a path; empty when there is none.
    #[must_use]
    pub fn text(&self, pointer: &str) -> &str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The number at a path; 0 when there is none, as Go reads an omitted number.
    #[must_use]
    pub fn number(&self, pointer: &str) -> i64 {
        self.at(pointer).and_then(Value::as_i64).unwrap_or_default()
    }

    /// Whether the value at a path is `true`.
    #[must_use]
    pub fn is_set(&self, pointer: &str) -> bool {
        self.at(pointer)
            .and_then(Value::as_bool)
            .unwrap_or_default()
    }

    /// `metadata.name`
    #[must_use]
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// `metadata.namespace`
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// namespace and name
    #[must_use]
    pub fn key(&self) -> Key {
        Key::new(self.namespace(), self.name())
    }

    /// `metadata.uid`
    #[must_use]
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// `metadata.resourceVersion` as the store counts it
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.text("/metadata/resourceVersion")
            .parse()
            .unwrap_or_default()
    }

    /// `metadata.generation`
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.number("/metadata/generation")
    }

    /// `status.observedGeneration`
    #[must_use]
    pub fn observed_generation(&self) -> i64 {
        self.number("/status/observedGeneration")
    }

    /// Whether the controller has seen the newest spec.
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.observed_generation() >= self.generation()
    }

    /// `spec.replicas`; defaulted on the server, so always there on Deployments and ReplicaSets.
    #[must_use]
    pub fn replicas(&self) -> i64 {
        self.number("/spec/replicas")
    }

    /// A number of the status, for example `availableReplicas`; 0 when omitted.
    #[must_use]
    pub fn status(&self, field: &str) -> i64 {
        self.json
            .get("status")
            .and_then(|status| status.get(field))
            .and_then(Value::as_i64)
            .unwrap_or_default()
    }

    /// `metadata.labels`
    #[must_use]
    pub fn labels(&self) -> Option<&Map<String, Value>> {
        self.json.get("metadata")?.get("labels")?.as_object()
    }

    /// One annotation.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.at("/metadata/annotations")
            .and_then(|all| all.get(name))
            .and_then(Value::as_str)
    }

    /// Whether the object is being deleted.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.facts().is_terminating
    }

    /// The owner with `controller: true`.
    #[must_use]
    pub fn controller(&self) -> Option<Controller> {
        self.controlled_by().cloned()
    }

    /// The owner with `controller: true`, not copied.
    pub(super) fn controlled_by(&self) -> Option<&Controller> {
        self.facts().controller.as_ref()
    }

    /// The uid of the owner that says `controller: true`.
    #[must_use]
    pub fn controller_uid(&self) -> Option<&str> {
        self.controlled_by().map(|owner| owner.uid.as_str())
    }

    /// Whether a workload's `spec.selector` selects an object. Like the controllers, an empty one selects nothing.
    pub(super) fn selects(&self, other: &Self) -> bool {
        self.facts().selector.select(other.labels())
    }

    /// Whether `owner` is this object's controller.
    #[must_use]
    pub fn is_controlled_by(&self, owner: &Self) -> bool {
        self.controller_uid() == Some(owner.uid())
    }

    /// `metadata.ownerReferences`
    #[must_use]
    pub fn owners(&self) -> &[Value] {
        self.at("/metadata/ownerReferences")
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    /// `metadata.finalizers`
    pub(super) fn has_finalizer(&self, name: &str) -> bool {
        self.at("/metadata/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|all| all.iter().any(|finalizer| finalizer.as_str() == Some(name)))
    }

    /// The image of the first container, of a pod or of a pod template within a workload.
    #[must_use]
    pub fn image(&self) -> &str {
        [
            "/spec/containers/0/image",
            "/spec/template/spec/containers/0/image",
            "/template/spec/containers/0/image",
        ]
        .into_iter()
        .map(|pointer| self.text(pointer))
        .find(|image| !image.is_empty())
        .unwrap_or_default()
    }

    /// The condition of a type in `status.conditions`.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Value> {
        self.at("/status/conditions")
            .and_then(Value::as_array)?
            .iter()
            .find(|condition| text_of(condition, "type") == kind)
    }

    /// Whether a pod's Ready condition is true.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.facts().is_ready
    }

    /// Since when a pod's Ready condition is true, in seconds since the Unix epoch; none while it is not.
    pub(super) fn ready_since(&self) -> Option<i64> {
        self.facts().ready_since
    }

    /// Whether a pod counts as existing for its ReplicaSet: not terminating, not finished.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.facts().is_active
    }
}

/// The text of a member of a JSON object; empty when there is none.
pub(super) fn text_of<'a>(value: &'a Value, member: &str) -> &'a str {
    value
        .get(member)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Sets the value at a path of members, making objects on the way.
pub(super) fn set(target: &mut Value, path: &[&str], value: Value) {
    if let Some(map) = map_at(
        target,
        path.split_last().map_or(&[], |(_, parents)| parents),
    ) && let Some(last) = path.last()
    {
        map.insert((*last).to_owned(), value);
    }
}

/// Removes the value at a path of members.
pub(super) fn remove(target: &mut Value, path: &[&str]) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let mut at = target;
    for member in parents {
        match at.get_mut(*member) {
            Some(next) => at = next,
            None => return,
        }
    }
    if let Some(map) = at.as_object_mut() {
        map.remove(*last);
    }
}

/// The object at a path of members, made where it is missing.
pub(super) fn map_at<'a>(
    target: &'a mut Value,
    path: &[&str],
) -> Option<&'a mut Map<String, Value>> {
    let mut at = target;
    for member in path {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = at
            .as_object_mut()?
            .entry((*member).to_owned())
            .or_insert(Value::Null);
    }
    if !at.is_object() {
        *at = Value::Object(Map::new());
    }
    at.as_object_mut()
}
