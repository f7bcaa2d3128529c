//! What `kubectl rollout status` says of a Deployment (`pkg/polymorphichelpers/rollout_status.go` of kubectl 0.36).

use super::object::{Object, text_of};

/// The answer of `kubectl rollout status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutStatus {
    /// it returns success
    Done,
    /// it goes on waiting
    Waiting,
    /// it returns failure: the progress deadline has passed
    Failed,
}

impl RolloutStatus {
    /// Judges a Deployment.
    #[must_use]
    pub fn of(deployment: &Object) -> Self {
        if !deployment.is_observed() {
            return Self::Waiting;
        }
        let progress = deployment.condition("Progressing");
        if progress
            .is_some_and(|progress| text_of(progress, "reason") == "ProgressDeadlineExceeded")
        {
            return Self::Failed;
        }
        let updated = deployment.status("updatedReplicas");
        if updated < deployment.replicas()
            || deployment.status("replicas") > updated
            || deployment.status("availableReplicas") < updated
        {
            return Self::Waiting;
        }
        Self::Done
    }
}
