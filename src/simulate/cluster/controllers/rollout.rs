//! What the Deployment controller computes (`pkg/controller/deployment/util/deployment_util.go`): pure functions of a
//! Deployment and its ReplicaSets.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::clock::seconds_of;
use super::super::defaults::same_template;
use super::super::object::{Object, map_at, set, text_of};

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations that are not copied from a Deployment to its ReplicaSets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];
/// The longest revision history kept in an annotation, in characters.
const LONGEST_HISTORY: usize = 2000;
/// A `progressDeadlineSeconds` or `revisionHistoryLimit` that means none.
const UNLIMITED: i64 = i32::MAX as i64;

/// A ReplicaSet as a cache holds it.
pub(super) type ReplicaSet = Arc<Object>;

pub(super) fn is_rolling_update(deployment: &Object) -> bool {
    deployment.text("/spec/strategy/type") == "RollingUpdate"
}

pub(super) fn has_progress_deadline(deployment: &Object) -> bool {
    deployment
        .at("/spec/progressDeadlineSeconds")
        .and_then(Value::as_i64)
        .is_some_and(|limit| limit != UNLIMITED)
}

/// How many old ReplicaSets are kept; none for all.
pub(super) fn history_limit(deployment: &Object) -> Option<usize> {
    deployment
        .at("/spec/revisionHistoryLimit")
        .and_then(Value::as_i64)
        .filter(|limit| *limit != UNLIMITED)
        .map(|limit| usize::try_from(limit).unwrap_or_default())
}

/// Older first, then by name.
pub(super) fn by_creation(one: &Object, other: &Object) -> Ordering {
    let created = |object: &Object| seconds_of(object.text("/metadata/creationTimestamp"));
    created(one)
        .cmp(&created(other))
        .then_with(|| one.name().cmp(other.name()))
}

pub(super) fn by_revision(one: &Object, other: &Object) -> Ordering {
    match (revision_of(one), revision_of(other)) {
        (Some(first), Some(second)) if first != second => first.cmp(&second),
        _ => by_creation(one, other),
    }
}

/// A ReplicaSet's revision: 0 when it has none, nothing when it cannot be read.
fn revision_of(replica_set: &Object) -> Option<i64> {
    replica_set
        .annotation(REVISION)
        .map_or(Some(0), |revision| revision.parse().ok())
}

pub(super) fn max_revision(replica_sets: &[ReplicaSet]) -> i64 {
    replica_sets
        .iter()
        .filter_map(|replica_set| revision_of(replica_set))
        .max()
        .unwrap_or_default()
        .max(0)
}

/// The ReplicaSet whose template is the Deployment's: the oldest one, when there are several (design, fact 6).
pub(super) fn find_new(deployment: &Object, replica_sets: &[ReplicaSet]) -> Option<ReplicaSet> {
    let mut sorted = replica_sets.to_vec();
    sorted.sort_by(|one, other| by_creation(one, other));
    sorted
        .into_iter()
        .find(|replica_set| has_same_template(replica_set, deployment))
}

/// Whether a ReplicaSet has a Deployment's template.
pub(super) fn has_same_template(replica_set: &Object, deployment: &Object) -> bool {
    same_template(
        replica_set.at("/spec/template"),
        deployment.at("/spec/template"),
    )
}

/// All others.
pub(super) fn find_old(new: Option<&ReplicaSet>, replica_sets: &[ReplicaSet]) -> Vec<ReplicaSet> {
    replica_sets
        .iter()
        .filter(|replica_set| new.is_none_or(|new| new.uid() != replica_set.uid()))
        .cloned()
        .collect()
}

/// Those that want pods.
pub(super) fn active(replica_sets: &[ReplicaSet]) -> Vec<ReplicaSet> {
    replica_sets
        .iter()
        .filter(|replica_set| replica_set.replicas() > 0)
        .cloned()
        .collect()
}

/// The only ReplicaSet that wants pods; when none does, the current one or else the newest (design, facts 1 and 5);
/// nothing when several do.
pub(super) fn active_or_latest(new: Option<&ReplicaSet>, old: &[ReplicaSet]) -> Option<ReplicaSet> {
    let mut all: Vec<ReplicaSet> = old.to_vec();
    all.sort_by(|one, other| by_creation(other, one));
    let newest = all.first().cloned();
    all.extend(new.cloned());
    let mut active = active(&all);
    match active.len() {
        0 => new.cloned().or(newest),
        1 => active.pop(),
        _ => None,
    }
}

pub(super) fn wanted(replica_sets: &[ReplicaSet]) -> i64 {
    replica_sets
        .iter()
        .map(|replica_set| replica_set.replicas())
        .sum()
}

pub(super) fn reported(replica_sets: &[ReplicaSet], field: &str) -> i64 {
    replica_sets
        .iter()
        .map(|replica_set| replica_set.status(field))
        .sum()
}

/// `maxSurge` and `maxUnavailable` in pods (`ResolveFenceposts`).
fn fenceposts(deployment: &Object) -> (i64, i64) {
    let total = deployment.replicas();
    let scaled = |pointer: &str, up: bool| match deployment.at(pointer) {
        Some(Value::Number(number)) => number.as_i64().unwrap_or_default(),
        Some(Value::String(text)) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or_default();
            if up {
                (percent * total + 99) / 100
            } else {
                percent * total / 100
            }
        }
        _ => 0,
    };
    let surge = scaled("/spec/strategy/rollingUpdate/maxSurge", true);
    let unavailable = scaled("/spec/strategy/rollingUpdate/maxUnavailable", false);
    if surge == 0 && unavailable == 0 {
        (0, 1)
    } else {
        (surge, unavailable)
    }
}

pub(super) fn max_surge(deployment: &Object) -> i64 {
    if is_rolling_update(deployment) {
        fenceposts(deployment).0
    } else {
        0
    }
}

pub(super) fn max_unavailable(deployment: &Object) -> i64 {
    if !is_rolling_update(deployment) || deployment.replicas() == 0 {
        return 0;
    }
    fenceposts(deployment).1.min(deployment.replicas())
}

/// How many pods the new ReplicaSet may want now (`NewRSNewReplicas`).
pub(super) fn new_replicas(deployment: &Object, all: &[ReplicaSet], current: i64) -> i64 {
    if !is_rolling_update(deployment) {
        return deployment.replicas();
    }
    let most = deployment.replicas() + max_surge(deployment);
    let room = most - wanted(all);
    if room <= 0 {
        return current;
    }
    current + room.min(deployment.replicas() - current)
}

/// Whether the new ReplicaSet has everything the Deployment wants, and available (`IsSaturated`).
pub(super) fn is_saturated(deployment: &Object, new: Option<&ReplicaSet>) -> bool {
    let total = deployment.replicas();
    new.is_some_and(|new| {
        new.replicas() == total
            && new
                .annotation(DESIRED_REPLICAS)
                .and_then(|text| text.parse::<i64>().ok())
                == Some(total)
            && new.status("availableReplicas") == total
    })
}

/// A ReplicaSet's share of what is to be added or removed (`GetReplicaSetProportion`).
pub(super) fn proportion(
    replica_set: &Object,
    deployment: &Object,
    to_add: i64,
    added: i64,
) -> i64 {
    if replica_set.replicas() == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let fraction = fraction(replica_set, deployment);
    let allowed = to_add - added;
    if to_add > 0 {
        fraction.min(allowed)
    } else {
        fraction.max(allowed)
    }
}

fn fraction(replica_set: &Object, deployment: &Object) -> i64 {
    if deployment.replicas() == 0 {
        return -replica_set.replicas();
    }
    let most = deployment.replicas() + max_surge(deployment);
    let before = replica_set
        .annotation(MAX_REPLICAS)
        .and_then(|text| text.parse::<i64>().ok())
        .filter(|before| *before > 0)
        .unwrap_or_else(|| deployment.status("replicas"));
    if before == 0 {
        return 0;
    }
    // Rounded half away from zero; both numbers are positive here.
    let scaled = replica_set.replicas() * most;
    (2 * scaled + before) / (2 * before) - replica_set.replicas()
}

/// Whether the annotations about numbers differ from these numbers.
pub(super) fn sizes_differ(replica_set: &Object, desired: i64, most: i64) -> bool {
    replica_set.annotation(DESIRED_REPLICAS) != Some(desired.to_string().as_str())
        || replica_set.annotation(MAX_REPLICAS) != Some(most.to_string().as_str())
}

pub(super) fn set_sizes(replica_set: &mut Object, desired: i64, most: i64) {
    annotate(replica_set, DESIRED_REPLICAS, &desired.to_string());
    annotate(replica_set, MAX_REPLICAS, &most.to_string());
}

pub(super) fn annotate(object: &mut Object, name: &str, value: &str) {
    set(
        object.json_mut(),
        &["metadata", "annotations", name],
        json!(value),
    );
}

/// Copies the Deployment's annotations and writes the revision (`SetNewReplicaSetAnnotations`, design, fact 8).
///
/// Returns whether anything changed.
pub(super) fn annotate_new(deployment: &Object, new: &mut Object, revision: i64) -> bool {
    let mut changed = false;
    let annotations = deployment
        .at("/metadata/annotations")
        .and_then(Value::as_object);
    for (name, value) in annotations.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        if !NOT_COPIED.contains(&name.as_str()) && new.annotation(name) != Some(value) {
            annotate(new, name, value);
            changed = true;
        }
    }
    let before = new.annotation(REVISION).map(str::to_owned);
    let Ok(number) = before
        .as_deref()
        .filter(|text| !text.is_empty())
        .map_or(Ok(0), str::parse::<i64>)
    else {
        return false;
    };
    if number >= revision {
        return changed;
    }
    annotate(new, REVISION, &revision.to_string());
    if let Some(before) = before {
        let history = new.annotation(REVISION_HISTORY).unwrap_or_default();
        let mut all: Vec<&str> = history
            .split(',')
            .filter(|revision| !revision.is_empty())
            .collect();
        all.push(&before);
        while all.join(",").len() > LONGEST_HISTORY {
            all.remove(0);
        }
        let history = all.join(",");
        annotate(new, REVISION_HISTORY, &history);
    }
    true
}

/// Whether a status says that everything wanted is updated and available, and nothing else is left.
pub(super) fn is_complete(deployment: &Object, status: &Value) -> bool {
    let number = |field: &str| {
        status
            .get(field)
            .and_then(Value::as_i64)
            .unwrap_or_default()
    };
    let total = deployment.replicas();
    number("updatedReplicas") == total
        && number("replicas") == total
        && number("availableReplicas") == total
        && number("observedGeneration") >= deployment.generation()
}

/// Whether a new status shows progress.
pub(super) fn is_progressing(deployment: &Object, status: &Value) -> bool {
    let number = |field: &str| {
        status
            .get(field)
            .and_then(Value::as_i64)
            .unwrap_or_default()
    };
    let before = |field: &str| deployment.status(field);
    number("updatedReplicas") > before("updatedReplicas")
        || number("replicas") - number("updatedReplicas")
            < before("replicas") - before("updatedReplicas")
        || number("readyReplicas") > before("readyReplicas")
        || number("availableReplicas") > before("availableReplicas")
}

/// The condition of a type in a status.
pub(super) fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status
        .get("conditions")
        .and_then(Value::as_array)?
        .iter()
        .find(|condition| text_of(condition, "type") == kind)
}

/// A condition of now.
pub(super) fn new_condition(
    now: &str,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
) -> Map<String, Value> {
    [
        ("type", kind),
        ("status", status),
        ("lastUpdateTime", now),
        ("lastTransitionTime", now),
        ("reason", reason),
        ("message", message),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), json!(value)))
    .collect()
}

/// Puts a condition into a status, unless one with the same status and reason is there (`SetDeploymentCondition`).
pub(super) fn set_condition(status: &mut Value, mut new: Map<String, Value>) {
    let kind = new
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if let Some(current) = condition(status, &kind)
        && current.get("status") == new.get("status")
    {
        if current.get("reason") == new.get("reason") {
            return;
        }
        new.insert(
            "lastTransitionTime".to_owned(),
            json!(text_of(current, "lastTransitionTime")),
        );
    }
    remove_condition(status, &kind);
    if let Some(map) = map_at(status, &[])
        && let Some(list) = map
            .entry("conditions")
            .or_insert_with(|| json!([]))
            .as_array_mut()
    {
        list.push(Value::Object(new));
    }
}

/// Takes a condition out of a status.
pub(super) fn remove_condition(status: &mut Value, kind: &str) {
    let Some(map) = status.as_object_mut() else {
        return;
    };
    let Some(list) = map.get_mut("conditions").and_then(Value::as_array_mut) else {
        return;
    };
    list.retain(|condition| text_of(condition, "type") != kind);
    if list.is_empty() {
        map.remove("conditions");
    }
}
