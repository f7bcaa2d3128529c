//! The Lease by which one of several daemons acts: `coordination.k8s.io/v1`.

use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

use super::error::Request;
use super::perform::{create, patch, patch_of, put, test, within_deadline};
use super::rights::Resource;
use super::{Cluster, ClusterError};

/// Leases, as Roles name them.
pub(super) const LEASES: Resource = Resource {
    group: "coordination.k8s.io",
    name: "leases",
};

/// Which Lease it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// Where it lies: the daemon's own namespace.
    pub namespace: String,
    /// Its name: the same for all daemons of one configuration.
    pub name: String,
}

impl std::fmt::Display for LeaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease {}/{}", self.namespace, self.name)
    }
}

/// A Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Who has it; nobody after it was given up.
    pub holder: Option<String>,
    /// For how long after its last change it may not be taken from its holder.
    pub lasts: Duration,
    /// How often it has gone to another holder.
    pub transitions: u64,
    /// Its version: another one after each change.
    pub version: String,
}

/// What a Lease is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim<'a> {
    /// This daemon has it from now on.
    Take {
        /// The daemon.
        holder: &'a str,
        /// For how long after each renewal.
        lasts: Duration,
    },
    /// Its holder goes on.
    Renew,
    /// Nobody has it.
    GiveUp,
}

impl Cluster {
    /// Reads a Lease; none where there is no such object.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub async fn lease(&self, lease: &LeaseName) -> Result<Option<LeaseRecord>, ClusterError> {
        let what = format!("get leases {}/{}", lease.namespace, lease.name);
        let read = self.leases(&lease.namespace);
        let raw = within_deadline(what, Request::Plain, read.get_opt(&lease.name)).await?;
        Ok(raw.as_ref().map(record))
    }

    /// Makes a Lease that did not exist, held by this daemon.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Stale`] when it exists by now; others as the API server says.
    pub async fn create_lease(
        &self,
        lease: &LeaseName,
        holder: &str,
        lasts: Duration,
    ) -> Result<LeaseRecord, ClusterError> {
        let what = format!("create leases {}/{}", lease.namespace, lease.name);
        let now = micro_time((self.clock)());
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": lease.name},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": lasts.as_secs(),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        });
        let created = create(&self.leases(&lease.namespace), what, body).await?;
        Ok(record(&created))
    }

    /// Writes a Lease that is still as it was read.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Stale`] when it has changed since, or is gone; others as the API server says.
    pub async fn claim_lease(
        &self,
        lease: &LeaseName,
        seen: &LeaseRecord,
        claim: &Claim<'_>,
    ) -> Result<LeaseRecord, ClusterError> {
        let what = format!("patch leases {}/{}", lease.namespace, lease.name);
        let now = json!(micro_time((self.clock)()));
        let mut operations = vec![test("/metadata/resourceVersion", json!(seen.version))];
        match claim {
            Claim::Take { holder, lasts } => operations.push(put(
                "/spec",
                json!({
                    "holderIdentity": holder,
                    "leaseDurationSeconds": lasts.as_secs(),
                    "acquireTime": now,
                    "renewTime": now,
                    "leaseTransitions": seen.transitions.saturating_add(1),
                }),
            )),
            Claim::Renew => operations.push(put("/spec/renewTime", now)),
            Claim::GiveUp => {
                operations.push(put("/spec/holderIdentity", json!("")));
                operations.push(put("/spec/renewTime", now));
            }
        }
        let api = self.leases(&lease.namespace);
        let patched = patch(&api, what, &lease.name, &patch_of(operations)).await?;
        Ok(record(&patched))
    }

    fn leases(&self, namespace: &str) -> Api<DynamicObject> {
        self.api_of(&LEASES.in_version("v1", "Lease"), namespace)
    }
}

fn record(raw: &DynamicObject) -> LeaseRecord {
    let spec = raw.data.get("spec").unwrap_or(&Value::Null);
    let number = |key: &str| spec.get(key).and_then(Value::as_u64);
    let holder = spec.get("holderIdentity").and_then(Value::as_str);
    LeaseRecord {
        holder: holder
            .filter(|holder| !holder.is_empty())
            .map(str::to_owned),
        lasts: Duration::from_secs(number("leaseDurationSeconds").unwrap_or_default()),
        transitions: number("leaseTransitions").unwrap_or_default(),
        version: raw.metadata.resource_version.clone().unwrap_or_default(),
    }
}

/// As the API spells times in Leases: with microseconds.
fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}
