//! The defaults that the real API server writes into Deployments, ReplicaSets and pod templates
//! (`pkg/apis/apps/v1/defaults.go`, `pkg/apis/core/v1/defaults.go` of Kubernetes 1.36), the same for every kind that
//! carries a template, so that equal templates compare equal.

use serde_json::{Map, Value, json};

use super::object::{Kind, map_at, remove, text_of};

/// Fills in what the server fills in, and drops what it does not store (nulls, empty lists).
pub(super) fn fill(kind: Kind, object: &mut Value) {
    drop_empty(object);
    match kind {
        Kind::Deployment => {
            if let Some(spec) = map_at(object, &["spec"]) {
                deployment(spec);
            }
        }
        Kind::ReplicaSet => {
            if let Some(spec) = map_at(object, &["spec"]) {
                or(spec, "replicas", || json!(1));
                template(spec);
            }
        }
        Kind::PodTemplate => {
            if let Some(root) = object.as_object_mut() {
                template(root);
            }
        }
        Kind::Pod => {
            if let Some(spec) = map_at(object, &["spec"]) {
                pod_spec(spec);
                or(spec, "enableServiceLinks", || json!(true));
            }
        }
        Kind::Event | Kind::Lease | Kind::Autoscaler => {}
    }
}

fn or(map: &mut Map<String, Value>, member: &str, default: impl FnOnce() -> Value) {
    if !map.contains_key(member) {
        map.insert(member.to_owned(), default());
    }
}

fn deployment(spec: &mut Map<String, Value>) {
    or(spec, "replicas", || json!(1));
    or(spec, "revisionHistoryLimit", || json!(10));
    or(spec, "progressDeadlineSeconds", || json!(600));
    // Omitted when false, as Go's omitempty does: un-pausing removes the field.
    if spec.get("paused") == Some(&Value::Bool(false)) {
        spec.remove("paused");
    }
    or(spec, "strategy", || json!({}));
    if let Some(strategy) = spec.get_mut("strategy").and_then(Value::as_object_mut) {
        or(strategy, "type", || json!("RollingUpdate"));
        if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
            or(strategy, "rollingUpdate", || json!({}));
            if let Some(rolling) = strategy
                .get_mut("rollingUpdate")
                .and_then(Value::as_object_mut)
            {
                or(rolling, "maxUnavailable", || json!("25%"));
                or(rolling, "maxSurge", || json!("25%"));
            }
        }
    }
    template(spec);
}

fn template(holder: &mut Map<String, Value>) {
    or(holder, "template", || json!({}));
    if let Some(template) = holder.get_mut("template").and_then(Value::as_object_mut) {
        or(template, "metadata", || json!({}));
        or(template, "spec", || json!({}));
        if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
            pod_spec(spec);
        }
    }
}

fn pod_spec(spec: &mut Map<String, Value>) {
    or(spec, "dnsPolicy", || json!("ClusterFirst"));
    or(spec, "restartPolicy", || json!("Always"));
    or(spec, "securityContext", || json!({}));
    or(spec, "terminationGracePeriodSeconds", || json!(30));
    or(spec, "schedulerName", || json!("default-scheduler"));
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        spec.insert("serviceAccount".to_owned(), account);
    }
    for list in ["containers", "initContainers"] {
        for container in members(spec, list) {
            self::container(container);
        }
    }
    for volume in members(spec, "volumes") {
        self::volume(volume);
    }
}

/// The objects of a list.
fn members<'a>(
    map: &'a mut Map<String, Value>,
    list: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(list)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

fn container(container: &mut Map<String, Value>) {
    let latest = is_latest(
        container
            .get("image")
            .and_then(Value::as_str)
            .unwrap_or_default(),
    );
    or(container, "imagePullPolicy", || {
        json!(if latest { "Always" } else { "IfNotPresent" })
    });
    or(container, "terminationMessagePath", || {
        json!("/dev/termination-log")
    });
    or(container, "terminationMessagePolicy", || json!("File"));
    or(container, "resources", || json!({}));
    for port in members(container, "ports") {
        or(port, "protocol", || json!("TCP"));
    }
    for variable in members(container, "env") {
        if variable.get("value").and_then(Value::as_str) == Some("") {
            variable.remove("value");
        }
        if let Some(field) = variable
            .get_mut("valueFrom")
            .and_then(|source| source.get_mut("fieldRef"))
            .and_then(Value::as_object_mut)
        {
            or(field, "apiVersion", || json!("v1"));
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name).and_then(Value::as_object_mut) {
            or(probe, "timeoutSeconds", || json!(1));
            or(probe, "periodSeconds", || json!(10));
            or(probe, "successThreshold", || json!(1));
            or(probe, "failureThreshold", || json!(3));
            if let Some(get) = probe.get_mut("httpGet").and_then(Value::as_object_mut) {
                or(get, "path", || json!("/"));
                or(get, "scheme", || json!("HTTP"));
            }
        }
    }
}

fn volume(volume: &mut Map<String, Value>) {
    if volume.len() == 1 {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source).and_then(Value::as_object_mut) {
            or(source, "defaultMode", || json!(420));
        }
    }
}

/// Whether an image has the tag `latest`, spelled out or by having neither tag nor digest.
fn is_latest(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    if name.contains('@') {
        return false;
    }
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

/// Members that are empty maps only by not having been set.
const OMITTED_WHEN_EMPTY: [&str; 8] = [
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "limits",
    "requests",
    "data",
    "status",
];

/// Drops nulls, empty lists and those empty maps that Go's `omitempty` drops.
fn drop_empty(value: &mut Value) {
    if let Some(list) = value.as_array_mut() {
        list.iter_mut().for_each(drop_empty);
    }
    if let Some(map) = value.as_object_mut() {
        map.retain(|name, member| {
            drop_empty(member);
            let empty_map = member.as_object().is_some_and(Map::is_empty);
            !(member.is_null()
                || member.as_array().is_some_and(Vec::is_empty)
                || (empty_map && OMITTED_WHEN_EMPTY.contains(&name.as_str())))
        });
    }
}

/// Whether two pod templates, both as the server stores them, are equal apart from the label `pod-template-hash`
/// (`EqualIgnoreHash`).
pub(super) fn same_template(one: Option<&Value>, other: Option<&Value>) -> bool {
    let metadata = |template: Option<&Value>| {
        let mut metadata = template
            .and_then(|template| template.get("metadata"))
            .cloned()
            .unwrap_or_default();
        remove(&mut metadata, &["labels", "pod-template-hash"]);
        remove(&mut metadata, &["creationTimestamp"]);
        drop_empty(&mut metadata);
        metadata
    };
    let same_spec =
        one.and_then(|one| one.get("spec")) == other.and_then(|other| other.get("spec"));
    same_spec && metadata(one) == metadata(other)
}

/// The members of an event that are named differently in core/v1 and in events.k8s.io/v1.
const EVENT_NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("count", "deprecatedCount"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
];

/// An event as it is stored (events.k8s.io/v1), from either of its two forms.
pub(super) fn event_to_stored(event: &mut Value) {
    if text_of(event, "apiVersion") == "v1" || event.get("involvedObject").is_some() {
        rename(event, |(core, stored)| (core, stored));
    }
    if let Some(map) = event.as_object_mut() {
        map.insert("apiVersion".to_owned(), json!(Kind::Event.api_version()));
    }
}

/// A stored event as core/v1 shows it.
pub(super) fn event_to_core(event: &mut Value) {
    rename(event, |(core, stored)| (stored, core));
    if let Some(map) = event.as_object_mut() {
        map.insert("apiVersion".to_owned(), json!("v1"));
    }
}

fn rename(
    event: &mut Value,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    if let Some(map) = event.as_object_mut() {
        for pair in EVENT_NAMES {
            let (from, to) = direction(pair);
            if let Some(member) = map.remove(from) {
                map.insert(to.to_owned(), member);
            }
        }
    }
}
