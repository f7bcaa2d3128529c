//! The objects of a namespace at one moment, and what can be read from them: the same for both clusters.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::{Pod, PodTemplate},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt as _;
use volery::rollout::state::{Phase as StatePhase, State};

use super::script::X;
use crate::{kubelet::tag, namespace::observed, wait::ensure};

/// All that is there.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    pub deployments: Vec<Deployment>,
    pub replica_sets: Vec<ReplicaSet>,
    pub pods: Vec<Pod>,
    pub templates: Vec<PodTemplate>,
}

/// What the state object says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There is none.
    NotRegistered,
    AtRest,
    /// Anything between.
    Busy,
}

impl Sight {
    fn deployment(&self, name: &str) -> Option<&Deployment> {
        self.deployments.iter().find(|d| d.name_any() == name)
    }

    fn state_object(&self) -> Option<&PodTemplate> {
        let name = format!("{X}-volery");
        self.templates.iter().find(|t| t.name_any() == name)
    }

    fn state(&self) -> Option<State> {
        let text = self.state_object()?.annotations().get("volery.dev/state")?;
        Some(serde_json::from_str(text).expect("a state of this version"))
    }

    pub fn phase(&self) -> Phase {
        match self.state() {
            None => Phase::NotRegistered,
            Some(state) if state.phase == StatePhase::AtRest => Phase::AtRest,
            Some(_) => Phase::Busy,
        }
    }

    /// The tag of the accepted version.
    pub fn accepted(&self) -> Option<&str> {
        let template = self.state_object()?.template.as_ref()?;
        image_tag(&template.spec.as_ref()?.containers.first()?.image)
    }

    /// The tag of the version that failed last.
    pub fn rejected(&self) -> Option<String> {
        let rejected = self.state()?.rejected?;
        Some(image_tag(&rejected.images.first().cloned())?.to_owned())
    }

    /// (C,P), while both clones exist.
    pub fn step(&self) -> Option<(i32, i32)> {
        let wanted = |name: &str| {
            let deployment = self.deployment(name)?;
            deployment.spec.as_ref()?.replicas
        };
        Some((
            wanted(&format!("{X}-canary"))?,
            wanted(&format!("{X}-primary"))?,
        ))
    }

    /// How many pods a Deployment has, if all of them are available, else -1.
    pub fn available(&self, name: &str) -> i32 {
        let status = self.deployment(name).and_then(|d| d.status.as_ref());
        status.map_or(-1, |status| {
            let [replicas, available] =
                [status.replicas, status.available_replicas].map(Option::unwrap_or_default);
            if replicas == available { replicas } else { -1 }
        })
    }

    /// Whether a Deployment has its number of pods, all available, nothing else runs or ends, and everything is observed.
    ///
    /// # Errors
    /// What is not so.
    pub fn settled(&self, name: &str) -> Result<(), String> {
        let names: Vec<String> = self
            .deployments
            .iter()
            .map(kube::ResourceExt::name_any)
            .collect();
        ensure(names == [name], || format!("there are {names:?}"))?;
        let deployment = self.deployment(name).expect("it is the only one");
        let wanted = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or_default();
        let (pods, available) = (self.pods.len(), self.available(name));
        ensure(
            observed(deployment)
                && available == wanted
                && usize::try_from(wanted).is_ok_and(|wanted| wanted == pods),
            || format!("{pods} pods, {available} of {wanted} available"),
        )
    }

    /// Everything that is left, one line each, without the names that chance gives.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for deployment in &self.deployments {
            let spec = deployment.spec.clone().unwrap_or_default();
            let status = deployment.status.clone().unwrap_or_default();
            let numbers = [
                spec.replicas,
                status.replicas,
                status.updated_replicas,
                status.available_replicas,
            ]
            .map(Option::unwrap_or_default);
            let [wanted, all, updated, available] = numbers;
            lines.push(format!(
                "deployment {} wants {wanted} of {}, has {all}, {updated} up to date, {available} available, paused: {}",
                deployment.name_any(),
                template_tag(&spec.template.spec),
                spec.paused.unwrap_or_default(),
            ));
        }
        let mut pods: BTreeMap<String, usize> = BTreeMap::new();
        for pod in &self.pods {
            let owner = owner(&pod.metadata).map_or("nobody".to_owned(), |(_, name)| {
                self.class_of_set(&name).unwrap_or(name)
            });
            *pods
                .entry(format!("pods of {} of {owner}", tag(pod)))
                .or_default() += 1;
        }
        lines.extend(
            pods.into_iter()
                .map(|(pods, count)| format!("{count} {pods}")),
        );
        let mut sets: Vec<String> = self.replica_sets.iter().map(set_line).collect();
        sets.sort();
        lines.extend(sets);
        for template in &self.templates {
            lines.push(format!(
                "podtemplate {} of {}",
                template.name_any(),
                template
                    .template
                    .as_ref()
                    .map_or_else(String::new, |t| template_tag(&t.spec))
            ));
        }
        lines
    }

    fn class_of_set(&self, name: &str) -> Option<String> {
        let set = self.replica_sets.iter().find(|rs| rs.name_any() == name)?;
        Some(format!("the replicaset of {}", set_tag(set)))
    }
}

fn set_line(set: &ReplicaSet) -> String {
    let (kind, owner) = owner(&set.metadata).unwrap_or_default();
    let revision = set.annotations().get("deployment.kubernetes.io/revision");
    format!(
        "replicaset of {} of {kind} {owner}, wants {}, revision {}",
        set_tag(set),
        set.spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or_default(),
        revision.map_or("none", String::as_str),
    )
}

/// The tag of a ReplicaSet's version.
pub fn set_tag(set: &ReplicaSet) -> String {
    let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    template.map_or_else(String::new, |template| template_tag(&template.spec))
}

fn template_tag(spec: &Option<k8s_openapi::api::core::v1::PodSpec>) -> String {
    let container = spec.as_ref().and_then(|spec| spec.containers.first());
    container
        .and_then(|container| image_tag(&container.image))
        .unwrap_or_default()
        .to_owned()
}

fn image_tag(image: &Option<String>) -> Option<&str> {
    image.as_deref()?.rsplit(':').next()
}

/// Kind and name of the controller.
fn owner(metadata: &ObjectMeta) -> Option<(String, String)> {
    let owners = metadata.owner_references.as_ref()?;
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    Some((owner.kind.clone(), owner.name.clone()))
}
