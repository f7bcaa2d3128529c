//! The only place that talks to Kubernetes.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `connect` | the client: from a kubeconfig or in-cluster credentials |
//! | `deadline` | a deadline on every request |
//! | `fence` | no write of a daemon that does not lead |
//! | `lease` | the Lease by which one of several daemons leads |
//! | `object` | API objects to the core's own, trimmed to what decisions need |
//! | `store` | everything seen, fed by watches and by the answers to our own writes |
//! | `watch` | one watch per kind and namespace |
//! | `perform` | [`Action`](crate::rollout::Action)s to requests, each with its precondition |
//! | `live` | looking at the API server itself |
//! | `order` | orders as they lie on the state object |
//! | `survey` | looking at services for a person |
//! | `inspect` | looking at a Deployment before it is registered |
//! | `access` | whether the rights suffice |
//! | `condition` | how a service stands, as a condition on X |
//! | `events` | what happened, as Events on X |
//! | `rights` | what the shipped Role must grant |

mod access;
mod autoscaler;
mod condition;
mod connect;
mod deadline;
mod error;
mod events;
mod fence;
mod inspect;
mod lease;
mod live;
mod object;
mod order;
mod perform;
mod rights;
mod store;
mod survey;
mod watch;

pub use condition::{CONDITION, Condition};
pub use connect::{ConnectError, connect, connect_as};
pub use error::ClusterError;
pub use events::{Events, Notice, OwnPod, Tone};
pub use fence::{Fence, NoFence};
pub use inspect::{Inspection, Manifest, PauseInManifest};
pub use lease::{Claim, LeaseName, LeaseRecord};
pub use order::OrderBook;
pub use rights::{Resource, Verb, rights, rights_to_lead};
pub use store::{Registered, Store};
pub use survey::{Depth, Scope, Sight};
pub use watch::watch;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};

use crate::rollout::Observation;
use crate::rollout::observation::{Freshness, WallTime};
use crate::telemetry::log::Clock;

/// The label that marks what Volery made: `primary`, `canary` or `state`. No Deployment's name goes into a label value:
/// names may be longer than a value may (case K56).
pub const ROLE_LABEL: &str = "volery.dev/role";

/// The annotation of the state object that holds the state.
pub const STATE_ANNOTATION: &str = "volery.dev/state";

/// The annotation of the state object by which a person gives an order, such as `abort`.
pub const COMMAND_ANNOTATION: &str = "volery.dev/command";

/// The annotation of the state object that holds the answer to the last order.
pub const ANSWER_ANNOTATION: &str = "volery.dev/answer";

/// The value of [`ROLE_LABEL`] on state objects.
pub const STATE_ROLE: &str = "state";

/// How long one request may take before it counts as failed; whether it was applied is seen in the next pass.
const DEADLINE: Duration = Duration::from_secs(10);

/// The field manager under which Volery's writes appear in `managedFields`.
const MANAGER: &str = "volery";

/// The cluster: the client, and what has been seen through it.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    clock: Clock,
    store: Arc<Store>,
}

impl Cluster {
    /// A cluster behind `client`, of which nothing has been seen yet, and to which nothing is written while the fence is
    /// closed.
    pub fn new(client: Client, clock: Clock, fence: Arc<dyn Fence>) -> Self {
        Self {
            client: deadline::with_deadlines(client, fence),
            clock,
            store: Arc::new(Store::default()),
        }
    }

    /// What has been seen.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// What the watches have shown of the service of this Deployment.
    pub fn look(&self, namespace: &str, deployment: &str) -> Observation {
        self.observe(namespace, deployment, Freshness::Cached)
    }

    /// The time of day, in whole seconds as the API shows times.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_second((self.clock)().as_second()).unwrap_or_default()
    }

    fn observe(&self, namespace: &str, deployment: &str, freshness: Freshness) -> Observation {
        let now = WallTime((self.clock)().as_second());
        self.store.observe(namespace, deployment, freshness, now)
    }

    fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        self.api_of(&kind.resource(), namespace)
    }

    fn api_of(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, resource)
    }
}

/// The kinds that Volery reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `apps/v1` Deployment.
    Deployment,
    /// `apps/v1` ReplicaSet.
    ReplicaSet,
    /// `v1` PodTemplate.
    PodTemplate,
    /// `v1` Pod.
    Pod,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Deployment,
        Self::ReplicaSet,
        Self::PodTemplate,
        Self::Pod,
    ];

    /// Group and version, as in `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Deployment | Self::ReplicaSet => "apps/v1",
            Self::PodTemplate | Self::Pod => "v1",
        }
    }

    /// The kind's name, as in `kind`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::PodTemplate => "PodTemplate",
            Self::Pod => "Pod",
        }
    }

    /// The API group, as in Roles; empty for the core group.
    pub fn group(self) -> &'static str {
        self.api_version()
            .split_once('/')
            .map_or("", |(group, _)| group)
    }

    /// The resource's name, as in paths and Roles.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::ReplicaSet => "replicasets",
            Self::PodTemplate => "podtemplates",
            Self::Pod => "pods",
        }
    }

    fn resource(self) -> ApiResource {
        let version = self.api_version().rsplit('/').next().unwrap_or_default();
        Resource::from(self).in_version(version, self.name())
    }
}
