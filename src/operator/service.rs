//! Which service is meant, and why it cannot be steered.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::cluster::{Cluster, ClusterError};
use crate::rollout::action::state_name;
use crate::rollout::observation::{Life, Mark, StateObject};
use crate::rollout::state::State;

/// A service, as a person names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// X's name.
    pub deployment: String,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.deployment)
    }
}

/// The name of a Deployment, as kubectl takes it: `orders`, `deploy/orders`, `deployment.apps/orders`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentName(pub String);

impl FromStr for DeploymentName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let name = match text.split_once('/') {
            Some(("deploy" | "deployment" | "deployments" | "deployment.apps", name)) => name,
            Some(_) | None => text,
        };
        Ok(Self(name.to_owned()))
    }
}

/// Why a service cannot be steered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unusable {
    /// There is no X.
    #[error(
        "there is no Deployment {} in namespace {}: is it the right namespace (-n) and context?",
        .0.deployment, .0.namespace
    )]
    NoDeployment(Service),
    /// X is on its way out.
    #[error("Deployment {} is being deleted", .0.deployment)]
    DeploymentGoing(Service),
    /// X is there, and nothing of Volery's.
    #[error(
        "{} is not registered: there is no PodTemplate {} in namespace {}; is there an entry for it in Volery's \
         configuration file, does Volery run, and what does its log say of it?",
        .0.deployment, state_name(&.0.deployment), .0.namespace
    )]
    NotRegistered(Service),
    /// Clones without a state object (case K09).
    #[error(
        "PodTemplate {} is gone while clones of {} exist, so the accepted version is unknown: Volery changes nothing; \
         scale the clones by hand to what should run",
        state_name(&.0.deployment), .0.deployment
    )]
    StateLost(Service),
    /// An object under a name that Volery needs is somebody else's (case K43).
    #[error(
        "{kind} {name} exists and is not Volery's (it has no label volery.dev/role): it is not touched; rename or \
         delete it to have this service registered"
    )]
    Foreign {
        /// `Deployment` or `PodTemplate`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The state object is on its way out.
    #[error(
        "PodTemplate {name} is being deleted: the service is being given back, or somebody deleted it"
    )]
    Going {
        /// Its name.
        name: String,
    },
    /// The state object has lost its owner.
    #[error(
        "PodTemplate {name} has lost its owner, so it belonged to an earlier Deployment of this name: Volery takes no \
         order of it until it has taken it up again"
    )]
    Orphaned {
        /// Its name.
        name: String,
    },
    /// The state cannot be read.
    #[error(
        "the state in PodTemplate {name} cannot be read: {problem}; run the version of Volery that wrote it"
    )]
    Unreadable {
        /// The object's name.
        name: String,
        /// What is wrong.
        problem: String,
    },
}

/// The state of a service that takes orders.
///
/// # Errors
///
/// When it takes none.
pub(super) fn steerable<'a>(
    service: &Service,
    object: &'a StateObject,
) -> Result<&'a State, Unusable> {
    let name = state_name(&service.deployment);
    if object.mark == Mark::Foreign {
        return Err(Unusable::Foreign {
            kind: "PodTemplate",
            name,
        });
    }
    if object.life == Life::Deleting {
        return Err(Unusable::Going { name });
    }
    if object.owner.is_none() {
        return Err(Unusable::Orphaned { name });
    }
    object
        .state
        .as_ref()
        .map_err(|problem| Unusable::Unreadable {
            name,
            problem: problem.clone(),
        })
}

/// Why there is no state object: whether X is there at all, as far as this person may see that.
pub(super) async fn why_absent(cluster: &Cluster, service: &Service) -> Unusable {
    match cluster
        .original(&service.namespace, &service.deployment)
        .await
    {
        Ok(None) => Unusable::NoDeployment(service.clone()),
        Ok(Some(_)) | Err(_) => Unusable::NotRegistered(service.clone()),
    }
}

/// A failed request, for the person whose rights it was made with.
pub fn problem(error: &ClusterError) -> String {
    match error {
        ClusterError::Forbidden { what, message } => format!(
            "{what}: forbidden: {message}; to steer, a Role in that namespace must grant you get, list and patch on \
             podtemplates; to look, get and list on podtemplates, deployments and replicasets, for volery query also on pods"
        ),
        ClusterError::Stale { .. }
        | ClusterError::NotLeading { .. }
        | ClusterError::Refused { .. }
        | ClusterError::Unavailable { .. }
        | ClusterError::Timeout { .. } => crate::chain::chain(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_is_named_as_kubectl_names_it() {
        for text in [
            "orders",
            "deploy/orders",
            "deployment/orders",
            "deployment.apps/orders",
        ] {
            assert_eq!(
                text.parse(),
                Ok(DeploymentName("orders".to_owned())),
                "{text}"
            );
        }
        assert_eq!(
            "pod/orders".parse(),
            Ok(DeploymentName("pod/orders".to_owned()))
        );
    }
}
