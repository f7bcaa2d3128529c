//! The rights that Volery needs, derived from what it does: the shipped Role is held to them (design section 4,
//! promise 10; case K57).

use std::collections::{BTreeMap, BTreeSet};

use kube::api::ApiResource;

use super::Kind;
use super::autoscaler::AUTOSCALERS;
use super::condition::DEPLOYMENT_STATUS;
use super::events::EVENTS;
use super::lease::LEASES;
use crate::rollout::Action;
use crate::rollout::action::Orphan;

/// A verb of Kubernetes' access rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// `create`
    Create,
    /// `delete`; on ReplicaSets also needed to change their owner.
    Delete,
    /// `get`
    Get,
    /// `list`
    List,
    /// `patch`
    Patch,
    /// `watch`
    Watch,
}

impl Verb {
    /// As rules spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Watch => "watch",
        }
    }
}

/// What a live look reads by name.
pub(super) const READ_BY_NAME: [Kind; 2] = [Kind::Deployment, Kind::PodTemplate];

/// Every kind of write there is.
const WRITES: [(Kind, Verb); 9] = [
    (Kind::Deployment, Verb::Create),
    (Kind::Deployment, Verb::Patch),
    (Kind::Deployment, Verb::Delete),
    (Kind::ReplicaSet, Verb::Create),
    (Kind::ReplicaSet, Verb::Patch),
    (Kind::ReplicaSet, Verb::Delete),
    (Kind::PodTemplate, Verb::Create),
    (Kind::PodTemplate, Verb::Patch),
    (Kind::PodTemplate, Verb::Delete),
];

/// The right that an action takes; one of the table's, or the Role would lack it.
pub(super) fn right_for(action: &Action) -> (Kind, Verb) {
    let right = match action {
        Action::CreateState { .. } => (Kind::PodTemplate, Verb::Create),
        Action::WriteState { .. }
        | Action::Adopt {
            what: Orphan::State,
            ..
        } => (Kind::PodTemplate, Verb::Patch),
        Action::DeleteState { .. } => (Kind::PodTemplate, Verb::Delete),
        Action::CreateClone { .. } => (Kind::Deployment, Verb::Create),
        Action::Pause { .. }
        | Action::Unpause { .. }
        | Action::Rewrite { .. }
        | Action::Sync { .. }
        | Action::Adopt {
            what: Orphan::Clone,
            ..
        }
        | Action::Scale { .. }
        | Action::ReplaceTemplate { .. }
        | Action::LetRoll { .. }
        | Action::StopRolling { .. } => (Kind::Deployment, Verb::Patch),
        Action::DeleteClone { .. } => (Kind::Deployment, Verb::Delete),
        Action::CreateReplicaSet { .. } => (Kind::ReplicaSet, Verb::Create),
        Action::MoveReplicaSet { .. } | Action::RaiseRevision { .. } => {
            (Kind::ReplicaSet, Verb::Patch)
        }
        Action::DeleteReplicaSet { .. } => (Kind::ReplicaSet, Verb::Delete),
    };
    debug_assert!(
        WRITES.contains(&right),
        "{right:?} is not in the table of rights"
    );
    right
}

/// A resource as rules name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The plural, with the subresource where there is one: `deployments/status`.
    pub name: &'static str,
}

impl Resource {
    /// As requests name it.
    pub(super) fn in_version(self, version: &str, kind: &str) -> ApiResource {
        let api_version = match self.group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        };
        ApiResource {
            group: self.group.to_owned(),
            version: version.to_owned(),
            api_version,
            kind: kind.to_owned(),
            plural: self.name.to_owned(),
        }
    }
}

impl From<Kind> for Resource {
    fn from(kind: Kind) -> Self {
        Self {
            group: kind.group(),
            name: kind.plural(),
        }
    }
}

/// What telling takes: Events and a condition on X, and a look at autoscalers.
const TELLING: [(Resource, Verb); 4] = [
    (AUTOSCALERS, Verb::List),
    (EVENTS, Verb::Create),
    (EVENTS, Verb::Patch),
    (DEPLOYMENT_STATUS, Verb::Patch),
];

/// What leading takes, in the daemon's own namespace only.
const LEADING: [(Resource, Verb); 3] = [
    (LEASES, Verb::Create),
    (LEASES, Verb::Get),
    (LEASES, Verb::Patch),
];

/// The rights by resource that a daemon which shares its work with others has in its own namespace besides.
pub fn rights_to_lead() -> BTreeMap<Resource, BTreeSet<Verb>> {
    by_resource(LEADING)
}

/// The rights by resource in each namespace that has services.
pub fn rights() -> BTreeMap<Resource, BTreeSet<Verb>> {
    let watched = Kind::ALL
        .into_iter()
        .flat_map(|kind| [(kind, Verb::List), (kind, Verb::Watch)]);
    let read = READ_BY_NAME.into_iter().map(|kind| (kind, Verb::Get));
    let work = watched.chain(read).chain(WRITES);
    let work = work.map(|(kind, verb)| (Resource::from(kind), verb));
    by_resource(work.chain(TELLING))
}

fn by_resource(
    rights: impl IntoIterator<Item = (Resource, Verb)>,
) -> BTreeMap<Resource, BTreeSet<Verb>> {
    let mut verbs: BTreeMap<Resource, BTreeSet<Verb>> = BTreeMap::new();
    for (resource, verb) in rights {
        verbs.entry(resource).or_default().insert(verb);
    }
    verbs
}
