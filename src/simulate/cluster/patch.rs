//! The three kinds of patch, with the real API server's answers to what cannot be applied.

use serde_json::{Map, Value};

use super::refusal::Refusal;

/// A patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch {
    /// RFC 6902
    Json(Value),
    /// RFC 7386
    Merge(Value),
    /// Kubernetes' own: lists merged by key
    Strategic(Value),
}

impl Patch {
    /// Reads a patch from a request.
    ///
    /// # Errors
    /// 415 for a type that is not served (server-side apply among them), 400 for a body that is not JSON.
    pub(super) fn read(content_type: &str, body: &[u8]) -> Result<Self, Refusal> {
        let content = || {
            serde_json::from_slice(body)
                .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))
        };
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Json(content()?)),
            "application/merge-patch+json" => Ok(Self::Merge(content()?)),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic(content()?)),
            other => Err(Refusal::unsupported_media_type(other)),
        }
    }

    /// Applies the patch.
    ///
    /// # Errors
    /// 422 for a JSON patch that does not apply, a failed `test` among them; 400 for one that is not a patch.
    pub(super) fn apply(&self, target: &Value) -> Result<Value, Refusal> {
        let mut patched = target.clone();
        match self {
            Self::Json(operations) => apply_operations(&mut patched, operations)?,
            Self::Merge(content) => json_patch::merge(&mut patched, content),
            Self::Strategic(content) => merge_strategically(&mut patched, content),
        }
        Ok(patched)
    }
}

fn apply_operations(target: &mut Value, operations: &Value) -> Result<(), Refusal> {
    let operations: Vec<json_patch::PatchOperation> = serde_json::from_value(operations.clone())
        .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))?;
    for operation in &operations {
        if !tests_absence(target, operation) {
            json_patch::patch(target, std::slice::from_ref(operation))
                .map_err(|_| Refusal::patch_failed())?;
        }
    }
    Ok(())
}

/// Whether an operation is a `test` for null on a member that is not there: the Go library that the real API server
/// uses (evanphx/json-patch v4) lets it pass, RFC 6902 does not. It is how to test that a Deployment is not paused.
fn tests_absence(target: &Value, operation: &json_patch::PatchOperation) -> bool {
    let json_patch::PatchOperation::Test(test) = operation else {
        return false;
    };
    if !test.value.is_null() {
        return false;
    }
    let path = test.path.as_str();
    let Some((parent, _)) = path.rsplit_once('/') else {
        return false;
    };
    target.pointer(path).is_none() && target.pointer(parent).is_some_and(Value::is_object)
}

/// The member by which a list's items are told apart in a strategic merge patch.
pub(super) fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "containers" | "initContainers" | "env" | "volumes" | "imagePullSecrets" => Some("name"),
        "volumeMounts" => Some("mountPath"),
        "ports" => Some("containerPort"),
        "conditions" => Some("type"),
        "ownerReferences" => Some("uid"),
        _ => None,
    }
}

fn merge_strategically(target: &mut Value, patch: &Value) {
    let Some(changes) = patch.as_object() else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else {
        return;
    };
    if changes.get("$patch").and_then(Value::as_str) == Some("replace") {
        map.clear();
    }
    for (name, change) in changes {
        if name.starts_with('$') {
            continue;
        }
        if change.is_null() {
            map.remove(name);
        } else if let (Some(key), Some(items)) = (merge_key(name), change.as_array()) {
            let list = map
                .entry(name.clone())
                .or_insert_with(|| Value::Array(Vec::new()));
            merge_list(list, key, items);
        } else {
            merge_strategically(map.entry(name.clone()).or_insert(Value::Null), change);
        }
    }
}

fn merge_list(list: &mut Value, key: &str, items: &[Value]) {
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    let Some(list) = list.as_array_mut() else {
        return;
    };
    for item in items {
        let place = list
            .iter()
            .position(|existing| existing.get(key) == item.get(key));
        let delete = item.get("$patch").and_then(Value::as_str) == Some("delete");
        match place.and_then(|place| list.get_mut(place).map(|existing| (place, existing))) {
            Some((place, _)) if delete => {
                list.remove(place);
            }
            Some((_, existing)) => merge_strategically(existing, item),
            None if delete => {}
            None => list.push(item.clone()),
        }
    }
}
