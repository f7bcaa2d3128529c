//! What decisions ask for: the complete list of writes that Volery makes. `deploy/`'s Role is held to it (promise 10).
//!
//! Every action carries its precondition, so that one decided on a stale view, or by a deposed daemon, fails instead of
//! doing harm, and each is safe to repeat after a crash.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Replicas;
use super::command::Answer;
use super::observation::{DeploymentRest, ResourceVersion, Uid};
use super::state::State;
use super::template::{Template, TemplateHash};

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Creates the state object of X.
    CreateState {
        /// The template that runs.
        accepted: Template,
        /// Where the service is.
        state: Box<State>,
    },
    /// Writes the state, and the accepted template where it changes; refused when the object has changed.
    WriteState {
        /// The version decided on.
        resource_version: ResourceVersion,
        /// Where the service is now.
        state: Box<State>,
        /// The new accepted template, if it changes.
        accepted: Option<Template>,
        /// The answer to the command that waited: it is taken off the object in the same write.
        answer: Option<Answer>,
    },
    /// Deletes the state object, and with it whatever the stash still holds.
    DeleteState {
        /// Whose.
        uid: Uid,
    },
    /// Sets `spec.paused: true`.
    Pause {
        /// The Deployment.
        name: String,
        /// Its life.
        uid: Uid,
        /// The version that was judged settled; none where any version must be paused.
        resource_version: Option<ResourceVersion>,
    },
    /// Sets `spec.paused: false` on X.
    Unpause {
        /// The Deployment.
        name: String,
        /// Its life.
        uid: Uid,
        /// The version whose template is the accepted one.
        resource_version: ResourceVersion,
    },
    /// Gives X another template, on a person's order (design section 4, promise 7).
    Rewrite {
        /// X's name.
        name: String,
        /// Its life.
        uid: Uid,
        /// The version whose template is replaced.
        resource_version: ResourceVersion,
        /// The template it gets.
        template: Template,
    },
    /// Creates a clone: paused, owned by X.
    CreateClone {
        /// Which.
        clone: CloneRole,
        /// Its template.
        template: Template,
        /// Its number.
        replicas: Replicas,
        /// Selector, strategy and so on, as X has them.
        rest: DeploymentRest,
        /// The labels that it has from X, by `copy_labels`.
        labels: BTreeMap<String, String>,
    },
    /// Sets a clone's number.
    Scale {
        /// Which.
        clone: CloneRole,
        /// Its life.
        uid: Uid,
        /// The number it must have now.
        from: Replicas,
        /// The number it gets.
        to: Replicas,
    },
    /// Gives the paused canary another template; refused when it has changed or is not paused.
    ReplaceTemplate {
        /// Its life.
        uid: Uid,
        /// The version decided on.
        resource_version: ResourceVersion,
        /// Its next template.
        template: Template,
    },
    /// Takes the canary's pause off, so that the controller rolls its template out natively, within this strategy.
    LetRoll {
        /// Its life.
        uid: Uid,
        /// The version whose template is to be rolled out.
        resource_version: ResourceVersion,
        /// `spec.strategy`.
        strategy: Value,
    },
    /// Pauses the canary amid a native rollout, with a strategy by which a paused Deployment starts nothing.
    StopRolling {
        /// Its life.
        uid: Uid,
        /// `spec.strategy`.
        strategy: Value,
    },
    /// Deletes a clone.
    DeleteClone {
        /// Which.
        clone: CloneRole,
        /// Its life.
        uid: Uid,
    },
    /// Gives a clone what X says beside template and number (case K34).
    Sync {
        /// Which.
        clone: CloneRole,
        /// Its life.
        uid: Uid,
        /// X's strategy and so on.
        rest: DeploymentRest,
    },
    /// Makes X the owner of what has lost its owner.
    Adopt {
        /// What.
        what: Orphan,
        /// Its name.
        name: String,
        /// Its life.
        uid: Uid,
        /// The version that has no owner.
        resource_version: ResourceVersion,
    },
    /// Creates a ReplicaSet.
    CreateReplicaSet {
        /// Its name.
        name: String,
        /// Its `pod-template-hash`.
        hash: TemplateHash,
        /// Its template.
        template: Template,
        /// Its number.
        replicas: Replicas,
        /// X's selector.
        rest: DeploymentRest,
        /// Its owner.
        owner: Owner,
    },
    /// Gives a ReplicaSet another owner in one patch (design section 3, fact 2).
    MoveReplicaSet {
        /// Its name.
        name: String,
        /// Its life.
        uid: Uid,
        /// The owner it must have now.
        from: Uid,
        /// The owner it gets.
        to: Owner,
        /// The number it must have.
        guard: Guard,
    },
    /// Deletes a ReplicaSet, and with it its pods.
    DeleteReplicaSet {
        /// Its name.
        name: String,
        /// Its life.
        uid: Uid,
    },
    /// Raises the revision of a ReplicaSet above its siblings'.
    RaiseRevision {
        /// Its name.
        name: String,
        /// Its life.
        uid: Uid,
        /// The revision it must have now.
        from: u64,
        /// The revision it gets.
        to: u64,
    },
}

/// What can lose its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphan {
    /// A clone.
    Clone,
    /// The state object.
    State,
}

/// One of the two clones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloneRole {
    /// `X-primary`.
    Primary,
    /// `X-canary`.
    Canary,
}

impl CloneRole {
    /// The name of the clone of `original`.
    pub fn name(self, original: &str) -> String {
        format!("{original}-{}", self.role())
    }

    /// The value of label `volery.dev/role`.
    pub fn role(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Canary => "canary",
        }
    }
}

/// The name of the state object of `original`.
pub fn state_name(original: &str) -> String {
    format!("{original}-volery")
}

/// The longest name of a ReplicaSet.
const LONGEST_NAME: usize = 253;

/// The name of the ReplicaSet of `original` with this hash; cut where Kubernetes cuts too, before the hash.
pub fn replica_set_name(original: &str, hash: &TemplateHash) -> String {
    let room = LONGEST_NAME.saturating_sub(1 + hash.as_str().len());
    let base = original.get(..room.min(original.len())).unwrap_or(original);
    format!("{base}-{hash}")
}

/// The owner of a ReplicaSet.
#[derive(Clone, Debug, PartialEq)]
pub enum Owner {
    /// A Deployment.
    Deployment {
        /// Its name.
        name: String,
        /// Its life.
        uid: Uid,
    },
    /// The state object: the stash.
    Stash {
        /// Its name.
        name: String,
        /// Its life.
        uid: Uid,
    },
}

/// What must hold of a ReplicaSet's `spec.replicas` when it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Exactly this number.
    Replicas(Replicas),
    /// Any number: X scales it as the user wants.
    AnyNumber,
}
