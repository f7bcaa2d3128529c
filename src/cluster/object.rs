//! API objects to the core's own, trimmed to what decisions need before anything is kept.

use kube::api::{DynamicObject, ObjectMeta};
use serde_json::Value;

use super::{COMMAND_ANNOTATION, MANAGER, ROLE_LABEL, STATE_ANNOTATION};
use crate::rollout::Replicas;
use crate::rollout::observation::{
    Container, Deployment, DeploymentRest, DeploymentStatus, Disruption, End, Hand, Life, Mark,
    Observed, Pod, PodPhase, Ready, ReplicaSet, ResourceVersion, Rolling, StateObject, Uid,
    WallTime,
};
use crate::rollout::state::{STATE_VERSION, State};
use crate::rollout::template::Template;

const REVISION_ANNOTATION: &str = "deployment.kubernetes.io/revision";

/// The controlling owner of an object.
pub(super) struct Controller {
    pub uid: Uid,
    pub name: String,
}

pub(super) fn controller(meta: &ObjectMeta) -> Option<Controller> {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    Some(Controller {
        uid: Uid(owner.uid.clone()),
        name: owner.name.clone(),
    })
}

pub(super) fn uid(meta: &ObjectMeta) -> Uid {
    Uid(meta.uid.clone().unwrap_or_default())
}

/// Resource versions of one API server can be compared as numbers; documented as such since Kubernetes 1.35.
pub(super) fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

fn life(meta: &ObjectMeta) -> Life {
    if meta.deletion_timestamp.is_some() {
        Life::Deleting
    } else {
        Life::Alive
    }
}

fn mark(meta: &ObjectMeta) -> Mark {
    let marked = meta
        .labels
        .as_ref()
        .is_some_and(|labels| labels.contains_key(ROLE_LABEL));
    if marked { Mark::Ours } else { Mark::Foreign }
}

fn resource_version(meta: &ObjectMeta) -> ResourceVersion {
    ResourceVersion(meta.resource_version.clone().unwrap_or_default())
}

fn number(data: &Value, pointer: &str) -> Option<u32> {
    data.pointer(pointer)
        .and_then(Value::as_u64)
        .and_then(|number| u32::try_from(number).ok())
}

fn replicas(data: &Value, pointer: &str) -> Replicas {
    Replicas(number(data, pointer).unwrap_or(0))
}

fn observed(meta: &ObjectMeta, data: &Value) -> Observed {
    let seen = data
        .pointer("/status/observedGeneration")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    if seen >= meta.generation.unwrap_or(0) {
        Observed::Yes
    } else {
        Observed::NotYet
    }
}

/// Who set `spec.replicas`: with server-side apply it may be several, and then it is ours as well.
fn hand(meta: &ObjectMeta) -> Hand {
    let mut managers = meta
        .managed_fields
        .iter()
        .flatten()
        .filter(|entry| {
            let fields = entry.fields_v1.as_ref();
            fields.is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
        })
        .filter_map(|entry| entry.manager.as_deref())
        .peekable();
    match managers.peek() {
        None => Hand::Unknown,
        Some(first) => {
            let first = (*first).to_owned();
            if managers.any(|manager| manager == MANAGER) {
                Hand::Ours
            } else {
                Hand::Another(first)
            }
        }
    }
}

fn template(data: &Value, pointer: &str) -> Template {
    Template::new(data.pointer(pointer).cloned().unwrap_or(Value::Null))
}

pub(super) fn deployment(object: &DynamicObject) -> Deployment {
    let (meta, data) = (&object.metadata, &object.data);
    let paused = data
        .pointer("/spec/paused")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    Deployment {
        name: meta.name.clone().unwrap_or_default(),
        uid: uid(meta),
        resource_version: resource_version(meta),
        life: life(meta),
        owner: controller(meta).map(|owner| owner.uid),
        mark: mark(meta),
        observed: observed(meta, data),
        rolling: if paused {
            Rolling::Paused
        } else {
            Rolling::Unpaused
        },
        // The API server's default is one replica.
        replicas: Replicas(number(data, "/spec/replicas").unwrap_or(1)),
        hand: hand(meta),
        template: template(data, "/spec/template"),
        labels: meta.labels.clone().unwrap_or_default(),
        rest: DeploymentRest {
            selector: data
                .pointer("/spec/selector")
                .cloned()
                .unwrap_or(Value::Null),
            strategy: data
                .pointer("/spec/strategy")
                .cloned()
                .unwrap_or(Value::Null),
            min_ready_seconds: number(data, "/spec/minReadySeconds").unwrap_or(0),
            history_limit: number(data, "/spec/revisionHistoryLimit")
                .and_then(|limit| usize::try_from(limit).ok())
                .unwrap_or(10),
        },
        status: DeploymentStatus {
            replicas: replicas(data, "/status/replicas"),
            updated: replicas(data, "/status/updatedReplicas"),
            available: replicas(data, "/status/availableReplicas"),
        },
    }
}

pub(super) fn replica_set(object: &DynamicObject) -> Option<ReplicaSet> {
    let (meta, data) = (&object.metadata, &object.data);
    let owner = controller(meta)?;
    let annotations = meta.annotations.as_ref();
    Some(ReplicaSet {
        name: meta.name.clone().unwrap_or_default(),
        uid: uid(meta),
        owner: owner.uid,
        life: life(meta),
        replicas: Replicas(number(data, "/spec/replicas").unwrap_or(1)),
        template: template(data, "/spec/template"),
        existing: replicas(data, "/status/replicas"),
        terminating: replicas(data, "/status/terminatingReplicas"),
        available: replicas(data, "/status/availableReplicas"),
        observed: observed(meta, data),
        revision: annotations
            .and_then(|all| all.get(REVISION_ANNOTATION))
            .and_then(|text| text.parse().ok()),
        failure: condition(data, "ReplicaFailure", "True")
            .and_then(|failure| text(failure, "/message")),
    })
}

pub(super) fn state_object(object: &DynamicObject) -> StateObject {
    let meta = &object.metadata;
    let annotation = |key: &str| meta.annotations.as_ref()?.get(key);
    let written = annotation(STATE_ANNOTATION);
    StateObject {
        uid: uid(meta),
        resource_version: resource_version(meta),
        owner: controller(meta).map(|owner| owner.uid),
        mark: mark(meta),
        life: life(meta),
        accepted: template(&object.data, "/template"),
        state: written.map_or_else(
            || Err(format!("annotation {STATE_ANNOTATION} is missing")),
            |text| read_state(text),
        ),
        command: annotation(COMMAND_ANNOTATION).map(|text| text.parse()),
    }
}

/// A state of another version is not guessed at: nothing moves until a daemon that knows it runs (case K32).
fn read_state(text: &str) -> Result<State, String> {
    #[derive(serde::Deserialize)]
    struct Version {
        version: u32,
    }
    let annotation = |error: serde_json::Error| format!("annotation {STATE_ANNOTATION}: {error}");
    let Version { version } = serde_json::from_str(text).map_err(annotation)?;
    if version != STATE_VERSION {
        return Err(format!(
            "its format is version {version}, this daemon knows version {STATE_VERSION}"
        ));
    }
    serde_json::from_str(text).map_err(annotation)
}

pub(super) fn pod(object: &DynamicObject) -> Option<Pod> {
    let (meta, data) = (&object.metadata, &object.data);
    let owner = controller(meta)?;
    let phase = match data.pointer("/status/phase").and_then(Value::as_str) {
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        _ => PodPhase::Pending,
    };
    // Missing or null status lists mean no restarts (case K20).
    let containers = ["/status/initContainerStatuses", "/status/containerStatuses"]
        .iter()
        .filter_map(|list| data.pointer(list).and_then(Value::as_array))
        .flatten()
        .map(container)
        .collect();
    Some(Pod {
        name: meta.name.clone().unwrap_or_default(),
        uid: uid(meta),
        owner: owner.uid,
        life: life(meta),
        ends_by: meta
            .deletion_timestamp
            .as_ref()
            .map(|time| WallTime(time.0.as_second())),
        phase,
        ready: if condition(data, "Ready", "True").is_some() {
            Ready::Yes
        } else {
            Ready::No
        },
        containers,
        disruption: if condition(data, "DisruptionTarget", "True").is_some() {
            Disruption::Target
        } else {
            Disruption::None
        },
        unschedulable: condition(data, "PodScheduled", "False")
            .and_then(|reason| text(reason, "/message")),
    })
}

fn container(status: &Value) -> Container {
    let waiting = status.pointer("/state/waiting").map(|waiting| {
        let reason = text(waiting, "/reason").unwrap_or_else(|| "waiting".to_owned());
        match text(waiting, "/message").and_then(|message| one_line(&message)) {
            Some(message) => format!("{reason}: {message}"),
            None => reason,
        }
    });
    let ended = status
        .pointer("/state/terminated")
        .or_else(|| status.pointer("/lastState/terminated"));
    let restarted_after = status.pointer("/lastState/terminated").map(end);
    Container {
        name: text(status, "/name").unwrap_or_default(),
        restarts: number(status, "/restartCount").unwrap_or(0),
        waiting,
        last_end: ended.map(end),
        restarted_after,
    }
}

fn end(terminated: &Value) -> End {
    End {
        reason: text(terminated, "/reason"),
        exit_code: terminated.pointer("/exitCode").and_then(Value::as_i64),
        message: text(terminated, "/message").and_then(|message| one_line(&message)),
    }
}

/// The longest message of a kubelet or container that is quoted, in characters.
const LONGEST_MESSAGE: usize = 200;

/// A message as part of a line: a termination message may be the end of a log.
fn one_line(message: &str) -> Option<String> {
    let words: Vec<&str> = message.split_whitespace().collect();
    let line = words.join(" ");
    let cut = line.char_indices().nth(LONGEST_MESSAGE).map(|(end, _)| end);
    let line = match cut {
        Some(end) => format!("{}...", line.get(..end).unwrap_or_default().trim_end()),
        None => line,
    };
    (!line.is_empty()).then_some(line)
}

fn condition<'a>(data: &'a Value, kind: &str, status: &str) -> Option<&'a Value> {
    data.pointer("/status/conditions")?
        .as_array()?
        .iter()
        .find(|condition| {
            condition.get("type").and_then(Value::as_str) == Some(kind)
                && condition.get("status").and_then(Value::as_str) == Some(status)
        })
}

fn text(value: &Value, pointer: &str) -> Option<String> {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}
