//! Looking at services for a person: what the daemon sees of them, and what only people read.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::{Api, DynamicObject, ListParams};
use serde_json::Value;

use super::condition::CONDITION;
use super::error::Request;
use super::live::selector_text;
use super::order::OrderBook;
use super::perform::within_deadline;
use super::store::{Store, key_of};
use super::{Cluster, ClusterError, Kind, ROLE_LABEL, STATE_ROLE, object};
use crate::rollout::Observation;
use crate::rollout::action::{CloneRole, state_name};
use crate::rollout::command::Answer;
use crate::rollout::observation::{Deployment, Freshness, Uid, WallTime};

/// Where services are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In one namespace.
    Namespace(String),
    /// In all of them.
    Cluster,
}

/// How much of a service is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The Deployments and the state object.
    Surface,
    /// Their ReplicaSets too: its history.
    History,
    /// Their ReplicaSets and pods.
    Pods,
}

/// What a person sees of one service.
#[derive(Clone, Debug)]
pub struct Sight {
    /// Its namespace.
    pub namespace: String,
    /// X's name.
    pub deployment: String,
    /// What the daemon decides on; pods only where they were looked at.
    pub observation: Observation,
    /// The order that waits to be taken, word for word.
    pub waiting: Option<String>,
    /// What the last order was answered.
    pub answered: Option<Answer>,
    /// How the daemon says that the service stands: the message of condition `volery.dev/Rollout` of X.
    pub told: Option<String>,
    /// When each ReplicaSet was made.
    pub made: BTreeMap<Uid, WallTime>,
}

/// Raw objects, as they were read.
#[derive(Default)]
struct Read {
    store: Store,
    books: BTreeMap<(String, String), OrderBook>,
    told: BTreeMap<(String, String), String>,
    made: BTreeMap<Uid, WallTime>,
}

impl Read {
    fn take(&mut self, kind: Kind, raw: &DynamicObject) {
        self.store.answered(kind, raw);
        match kind {
            Kind::Deployment => {
                if let Some(message) = condition(&raw.data) {
                    self.told.insert(key_of(raw), message);
                }
            }
            Kind::PodTemplate => {
                self.books.insert(key_of(raw), OrderBook::read(raw));
            }
            Kind::ReplicaSet => {
                if let (Some(uid), Some(time)) =
                    (&raw.metadata.uid, &raw.metadata.creation_timestamp)
                {
                    self.made
                        .insert(Uid(uid.clone()), WallTime(time.0.as_second()));
                }
            }
            Kind::Pod => {}
        }
    }

    fn sight(&self, namespace: &str, deployment: &str, now: WallTime) -> Sight {
        let key = |name: String| (namespace.to_owned(), name);
        let book = self.books.get(&key(state_name(deployment)));
        Sight {
            namespace: namespace.to_owned(),
            deployment: deployment.to_owned(),
            observation: self
                .store
                .observe(namespace, deployment, Freshness::Live, now),
            waiting: book.and_then(|book| book.waiting.clone()),
            answered: book.and_then(|book| book.answered.clone()),
            told: self.told.get(&key(deployment.to_owned())).cloned(),
            made: self.made.clone(),
        }
    }
}

fn condition(data: &Value) -> Option<String> {
    let conditions = data.pointer("/status/conditions")?.as_array()?;
    let ours = conditions
        .iter()
        .find(|condition| condition.get("type").and_then(Value::as_str) == Some(CONDITION))?;
    let message = ours.get("message").and_then(Value::as_str)?;
    (!message.is_empty()).then(|| message.to_owned())
}

impl Cluster {
    /// Looks at one service. What does not exist is missing in the observation.
    ///
    /// # Errors
    ///
    /// When something of it cannot be read.
    pub async fn sight(
        &self,
        namespace: &str,
        deployment: &str,
        depth: Depth,
    ) -> Result<Sight, ClusterError> {
        let names = [
            (Kind::Deployment, deployment.to_owned()),
            (Kind::Deployment, CloneRole::Primary.name(deployment)),
            (Kind::Deployment, CloneRole::Canary.name(deployment)),
            (Kind::PodTemplate, state_name(deployment)),
        ];
        let reads = names.iter().map(|(kind, name)| async move {
            let what = format!("get {} {namespace}/{name}", kind.plural());
            let api = self.api(*kind, namespace);
            let raw = within_deadline(what, Request::Plain, api.get_opt(name)).await?;
            Ok::<_, ClusterError>((*kind, raw))
        });
        let mut read = Read::default();
        for (kind, raw) in futures::future::try_join_all(reads).await? {
            raw.iter().for_each(|raw| read.take(kind, raw));
        }
        let now = WallTime((self.clock)().as_second());
        let seen = read.sight(namespace, deployment, now);
        let below: &[Kind] = match depth {
            Depth::Surface => &[],
            Depth::History => &[Kind::ReplicaSet],
            // In this order: a pod that is listed has a ReplicaSet that is, unless it was made between the two.
            Depth::Pods => &[Kind::ReplicaSet, Kind::Pod],
        };
        let Some(original) = &seen.observation.original else {
            return Ok(seen);
        };
        let params = ListParams::default().labels(&selector_text(&original.rest.selector));
        for kind in below {
            let what = format!("list {} in {namespace}", kind.plural());
            let api = self.api(*kind, namespace);
            let objects = within_deadline(what, Request::Plain, api.list(&params)).await?;
            objects.iter().for_each(|object| read.take(*kind, object));
        }
        Ok(read.sight(namespace, deployment, now))
    }

    /// X itself, if it exists.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub async fn original(
        &self,
        namespace: &str,
        deployment: &str,
    ) -> Result<Option<Deployment>, ClusterError> {
        let kind = Kind::Deployment;
        let what = format!("get {} {namespace}/{deployment}", kind.plural());
        let api = self.api(kind, namespace);
        let raw = within_deadline(what, Request::Plain, api.get_opt(deployment)).await?;
        Ok(raw.as_ref().map(object::deployment))
    }

    /// Looks at every service that is registered, or of which something of Volery's is left, in the order of their names.
    ///
    /// # Errors
    ///
    /// When a list cannot be had.
    pub async fn sights(&self, scope: &Scope) -> Result<Vec<Sight>, ClusterError> {
        let mut read = Read::default();
        let mut services = BTreeSet::new();
        let ours = ListParams::default().labels(&format!("{ROLE_LABEL}={STATE_ROLE}"));
        for (kind, params) in [
            (Kind::PodTemplate, ours),
            (Kind::Deployment, ListParams::default()),
        ] {
            let (api, place): (Api<DynamicObject>, &str) = match scope {
                Scope::Namespace(namespace) => (self.api(kind, namespace), namespace),
                Scope::Cluster => (
                    Api::all_with(self.client.clone(), &kind.resource()),
                    "all namespaces",
                ),
            };
            let what = format!("list {} in {place}", kind.plural());
            for raw in &within_deadline(what, Request::Plain, api.list(&params)).await? {
                read.take(kind, raw);
                services.extend(service_of(raw));
            }
        }
        let now = WallTime((self.clock)().as_second());
        let sights = services
            .iter()
            .map(|(namespace, deployment)| read.sight(namespace, deployment, now));
        Ok(sights.collect())
    }
}

/// The service that an object of ours belongs to, by its name.
fn service_of(raw: &DynamicObject) -> Option<(String, String)> {
    let (namespace, name) = key_of(raw);
    let suffix = match raw.metadata.labels.as_ref()?.get(ROLE_LABEL)?.as_str() {
        STATE_ROLE => "volery",
        role => role,
    };
    let deployment = name.strip_suffix(suffix)?.strip_suffix('-')?;
    Some((namespace, deployment.to_owned()))
}
