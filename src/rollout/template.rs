//! Pod templates and their identity.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::observation::WallTime;

/// The label by which a ReplicaSet tells its pods from those of its siblings. Never part of a template's identity.
pub const HASH_LABEL: &str = "pod-template-hash";

/// What `kubectl rollout restart` writes on a template.
const RESTARTED_ANNOTATION: &str = "kubectl.kubernetes.io/restartedAt";

/// A pod template as the API server returned it, unknown fields included, without `pod-template-hash`.
///
/// Two templates are the same when the server's own words for them are (design section 2, "Classify"; case K32): no
/// struct of a client library takes part in the comparison, so no upgrade of Volery or Kubernetes starts a rollout.
#[derive(Clone, PartialEq, Eq)]
pub struct Template(Arc<Value>);

impl Template {
    /// Takes the template of a Deployment, ReplicaSet or PodTemplate.
    pub fn new(mut raw: Value) -> Self {
        if let Some(metadata) = raw.get_mut("metadata").and_then(Value::as_object_mut) {
            if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
                labels.remove(HASH_LABEL);
            }
            if metadata
                .get("creationTimestamp")
                .is_some_and(Value::is_null)
            {
                metadata.remove("creationTimestamp");
            }
        }
        Self(Arc::new(raw))
    }

    /// The template as JSON.
    pub fn json(&self) -> &Value {
        &self.0
    }

    /// The labels its pods carry.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .pointer("/metadata/labels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }

    /// The images of its containers, init containers first, in the template's order.
    pub fn images(&self) -> Vec<&str> {
        ["/spec/initContainers", "/spec/containers"]
            .iter()
            .filter_map(|list| self.0.pointer(list).and_then(Value::as_array))
            .flatten()
            .filter_map(|container| container.get("image").and_then(Value::as_str))
            .collect()
    }

    /// The same template as `kubectl rollout restart` would write it at this time: nothing else differs, and every pod is
    /// replaced (case K35).
    pub fn restarted(&self, at: WallTime) -> Self {
        let mut restarted = Value::clone(&self.0);
        restarted["metadata"]["annotations"][RESTARTED_ANNOTATION] = Value::from(at.to_string());
        Self(Arc::new(restarted))
    }

    /// Whether it has the same containers and init containers as another one.
    pub fn has_containers_of(&self, other: &Self) -> bool {
        ["/spec/initContainers", "/spec/containers"]
            .iter()
            .all(|list| self.0.pointer(list) == other.0.pointer(list))
    }

    /// What names this template in the state object.
    pub fn hash(&self) -> TemplateHash {
        self.digest(None)
    }

    /// What names the ReplicaSet that a rollout makes of this template: the same name again after a crash, another name
    /// when the same template is rolled out a second time (design section 2, "Names").
    pub fn hash_in_rollout(&self, rollout: RolloutNumber) -> TemplateHash {
        self.digest(Some(rollout))
    }

    fn digest(&self, rollout: Option<RolloutNumber>) -> TemplateHash {
        let mut digest = Sha256::new();
        digest.update(self.0.to_string().as_bytes());
        if let Some(RolloutNumber(number)) = rollout {
            digest.update(number.to_be_bytes());
        }
        TemplateHash(encode_safely(&digest.finalize()))
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Environment values live in templates and must never reach a log (design section 7).
        write!(f, "Template({})", self.hash())
    }
}

/// The alphabet of Kubernetes' own name suffixes: no vowels, no digits that read as letters.
const SAFE_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Letters of a hash: 27^10 keeps two templates of one worker apart for ever, and names stay short.
const HASH_LENGTH: usize = 10;

fn encode_safely(digest: &[u8]) -> String {
    digest
        .iter()
        .take(HASH_LENGTH)
        .map(|byte| char::from(SAFE_ALPHABET[usize::from(*byte) % SAFE_ALPHABET.len()]))
        .collect()
}

/// Names a template: ten characters that are legal in names and label values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TemplateHash(String);

impl TemplateHash {
    /// The ten characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TemplateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Counts the rollouts of one service, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RolloutNumber(pub u64);

impl RolloutNumber {
    /// The number of the rollout after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for RolloutNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_hash_label_and_a_null_timestamp_are_no_part_of_a_template() {
        let plain = Template::new(json!({"metadata": {"labels": {"app": "a"}}, "spec": {}}));
        let labelled = Template::new(
            json!({"metadata": {"creationTimestamp": null, "labels": {"app": "a", HASH_LABEL: "x"}}, "spec": {}}),
        );
        assert_eq!(plain, labelled);
        assert_eq!(plain.hash(), labelled.hash());
    }

    #[test]
    fn a_field_no_library_knows_makes_another_template() {
        let plain = Template::new(json!({"spec": {"containers": [{"image": "a:v1"}]}}));
        let unknown = Template::new(json!({"spec": {"containers": [{"image": "a:v1"}], "new": 1}}));
        assert_ne!(plain, unknown);
    }

    #[test]
    fn the_same_template_has_another_name_in_another_rollout() {
        let template = Template::new(json!({"spec": {"containers": [{"image": "a:v1"}]}}));
        let first = template.hash_in_rollout(RolloutNumber(1));
        assert_eq!(first, template.hash_in_rollout(RolloutNumber(1)));
        assert_ne!(first, template.hash_in_rollout(RolloutNumber(2)));
        assert_eq!(first.as_str().len(), HASH_LENGTH);
        assert!(
            first
                .as_str()
                .bytes()
                .all(|byte| SAFE_ALPHABET.contains(&byte))
        );
    }

    #[test]
    fn debug_output_never_shows_environment_values() {
        let template = Template::new(
            json!({"spec": {"containers": [{"env": [{"name": "A", "value": "s3cret"}]}]}}),
        );
        assert!(!format!("{template:?}").contains("s3cret"));
    }
}
