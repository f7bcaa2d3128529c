//! The condition on X: how the service stands, for `kubectl describe`, `kubectl wait` and whatever reads conditions.
//!
//! Its type is [`CONDITION`]. Kubernetes' Deployment controller copies conditions that it does not know from status to
//! status (`calculateStatus`), `kubectl rollout status` looks at `Progressing` alone, and kstatus (Flux, Helm 4) at
//! `Progressing`, `Available`, `Reconciling` and `Stalled`: another type disturbs nobody.
//!
//! | status | when |
//! | --- | --- |
//! | `True` | at rest: what X asks for is the accepted version, and it runs |
//! | `False` | a person should look: rejected, frozen, blocked; nothing gets better by waiting |
//! | `Unknown` | on the way: a rollout is open or waits; waiting tells |
//!
//! So `kubectl wait --for=condition=volery.dev/Rollout deploy/X` waits for a rollout that is open to be promoted, and
//! `False` is worth an alert. The reason is one word, the message the line of the log, without numbers of replicas where
//! the service is at rest, so that no autoscaler makes it change.
//!
//! Only X's `status` is written, by a strategic merge patch of this one condition. Its preconditions are X's uid and the
//! version on which it was decided: a write that comes late, from a deposed replica or after X was given back, fails.

use kube::api::{DynamicObject, Patch};
use serde_json::{Value, json};

use super::error::Request;
use super::events::one_line;
use super::perform::{patch_params, within_deadline};
use super::rights::Resource;
use super::{Cluster, ClusterError, Kind};
use crate::rollout::Status;
use crate::rollout::observation::Deployment;
use crate::rollout::plan::Attention;

/// The condition's type.
pub const CONDITION: &str = "volery.dev/Rollout";

/// Where it is written.
pub(super) const DEPLOYMENT_STATUS: Resource = Resource {
    group: "apps",
    name: "deployments/status",
};

/// What X shows, or should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    status: String,
    reason: String,
    message: String,
}

impl Condition {
    /// What X should show of a service with this status. Nothing of one that is not registered, or is being given back:
    /// nothing of ours stays on X.
    pub fn of(status: &Status) -> Option<Self> {
        if matches!(
            status,
            Status::Missing { .. } | Status::Going | Status::Releasing | Status::Released
        ) {
            return None;
        }
        let truth = if matches!(status, Status::AtRest { .. }) {
            "True"
        } else if status.attention() == Attention::Wanted {
            "False"
        } else {
            "Unknown"
        };
        Some(Self {
            status: truth.to_owned(),
            reason: status.reason().to_owned(),
            message: one_line(&status.lasting()),
        })
    }

    /// What a Deployment shows.
    pub(super) fn shown_by(object: &DynamicObject) -> Option<Self> {
        let conditions = object.data.pointer("/status/conditions")?.as_array()?;
        let text = |condition: &Value, member: &str| {
            let text = condition.get(member).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let ours = conditions
            .iter()
            .find(|condition| text(condition, "type") == CONDITION)?;
        Some(Self {
            status: text(ours, "status"),
            reason: text(ours, "reason"),
            message: text(ours, "message"),
        })
    }
}

impl Cluster {
    /// What X shows, as far as it is seen.
    pub fn condition(&self, namespace: &str, deployment: &str) -> Option<Condition> {
        self.store.condition(namespace, deployment)
    }

    /// Has X show a condition. The answer goes into the store.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Stale`] when X has changed since it was observed; others as the API server says.
    pub async fn show(
        &self,
        namespace: &str,
        original: &Deployment,
        condition: &Condition,
    ) -> Result<(), ClusterError> {
        let shown = self.condition(namespace, &original.name);
        let now = self.now().to_string();
        let mut written = json!({
            "type": CONDITION,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastUpdateTime": now,
        });
        if shown.is_none_or(|shown| shown.status != condition.status) {
            written["lastTransitionTime"] = json!(now);
        }
        self.patch_conditions(namespace, original, written).await
    }

    /// Takes the condition off X. The answer goes into the store.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Stale`] when X has changed since it was observed; others as the API server says.
    pub async fn take_down(
        &self,
        namespace: &str,
        original: &Deployment,
    ) -> Result<(), ClusterError> {
        let gone = json!({"type": CONDITION, "$patch": "delete"});
        self.patch_conditions(namespace, original, gone).await
    }

    async fn patch_conditions(
        &self,
        namespace: &str,
        original: &Deployment,
        condition: Value,
    ) -> Result<(), ClusterError> {
        let name = &original.name;
        let what = format!("patch {} {namespace}/{name}", DEPLOYMENT_STATUS.name);
        let patch = Patch::Strategic(json!({
            "metadata": {"uid": original.uid, "resourceVersion": original.resource_version.0},
            "status": {"conditions": [condition]},
        }));
        let params = patch_params();
        let api = self.api(Kind::Deployment, namespace);
        let patched = within_deadline(
            what,
            Request::Conditional,
            api.patch_status(name, &params, &patch),
        )
        .await?;
        self.store.answered(Kind::Deployment, &patched);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollout::Replicas;
    use crate::rollout::plan::Images;

    fn at_rest(replicas: u32) -> Status {
        Status::AtRest {
            replicas: Replicas(replicas),
            images: Images(vec!["orders:v1".to_owned()]),
        }
    }

    #[test]
    fn an_autoscaler_changes_no_condition() {
        assert_eq!(Condition::of(&at_rest(3)), Condition::of(&at_rest(30)));
    }

    #[test]
    fn what_is_shown_is_what_was_written() {
        let condition = Condition::of(&at_rest(3)).expect("it is registered");
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "orders"},
            "status": {"conditions": [
                {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
                {
                    "type": CONDITION, "status": condition.status, "reason": condition.reason,
                    "message": condition.message, "lastUpdateTime": "2026-01-05T08:00:00Z",
                },
            ]},
        }))
        .expect("a Deployment");
        assert_eq!(Condition::shown_by(&object), Some(condition));
    }

    #[test]
    fn nothing_is_shown_of_what_is_given_back() {
        for status in [Status::Releasing, Status::Released, Status::Going] {
            assert_eq!(Condition::of(&status), None);
        }
    }
}
