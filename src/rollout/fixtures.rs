//! Observations for the core's own tests.

use serde_json::json;

use super::Replicas;
use super::observation::{
    Deployment, DeploymentRest, DeploymentStatus, Freshness, Life, Mark, Observation, Observed,
    ReplicaSet, ResourceVersion, Rolling, StateObject, Uid,
};
use super::state::{Cause, Failure, Phase, Rejection, State, Step};
use super::template::Template;
use crate::config::Service;

/// A service of ten steps' worth of settings: step 20%, breakpoint 50%, and what is seen of it.
pub struct Scene {
    pub service: Service,
    pub observation: Observation,
}

/// The template of a worker of this tag.
pub fn template(tag: &str) -> Template {
    let container = json!({"name": "worker", "image": format!("registry.example/worker:{tag}")});
    Template::new(
        json!({"metadata": {"labels": {"app": "worker"}}, "spec": {"containers": [container]}}),
    )
}

impl Scene {
    /// At rest, all pods available; the accepted ReplicaSet has this revision.
    pub fn at_rest(tag: &str, revision: u64, replicas: u32) -> Self {
        let x = deployment("worker", tag, replicas);
        let set = replica_set(tag, revision, &x.uid, replicas);
        Self {
            service: service(),
            observation: Observation {
                freshness: Freshness::Live,
                state: Some(state_object(
                    &x.uid,
                    tag,
                    State::registering().in_phase(Phase::AtRest),
                )),
                original: Some(x),
                primary: None,
                canary: None,
                replica_sets: vec![set],
                pods: Vec::new(),
            },
        }
    }

    /// `v1` is accepted, and the candidate is at this step, with so many of R pods.
    pub fn stepping(candidate: &str, number: u32, canary: u32, wanted: u32) -> Self {
        let mut scene = Self::at_rest("v1", 1, wanted);
        scene.asks_for(candidate);
        let phase = Phase::Stepping {
            candidate: template(candidate).hash(),
            step: Step::new(number, Replicas(canary), Replicas(wanted)),
        };
        let primary = clone("worker-primary", "v1", wanted - canary);
        let seen = &mut scene.observation;
        if let Some(Ok(state)) = seen.state.as_mut().map(|object| object.state.as_mut()) {
            state.phase = phase;
        }
        seen.replica_sets = vec![
            replica_set("v1", 1, &primary.uid, wanted - canary),
            replica_set(candidate, 2, &Uid("worker-canary".into()), canary),
        ];
        seen.primary = Some(primary);
        seen.canary = Some(clone("worker-canary", candidate, canary));
        scene
    }

    /// X asks for this version.
    pub fn asks_for(&mut self, tag: &str) {
        if let Some(x) = &mut self.observation.original {
            x.template = template(tag);
        }
    }

    /// X asks for so many replicas.
    pub fn wants(&mut self, replicas: u32) {
        if let Some(x) = &mut self.observation.original {
            x.replicas = Replicas(replicas);
        }
    }

    /// The controller has not seen X's latest spec yet.
    pub fn unobserved(&mut self) {
        if let Some(x) = &mut self.observation.original {
            x.observed = Observed::NotYet;
        }
    }

    /// Somebody un-paused X.
    pub fn unpaused(&mut self) {
        if let Some(x) = &mut self.observation.original {
            x.rolling = Rolling::Unpaused;
        }
    }

    /// Where the service is in its life.
    pub fn phase(&mut self, phase: Phase) {
        if let Some(object) = &mut self.observation.state
            && let Ok(state) = &mut object.state
        {
            state.phase = phase;
        }
    }

    /// X's `revisionHistoryLimit`.
    pub fn keeps(&mut self, history_limit: usize) {
        if let Some(x) = &mut self.observation.original {
            x.rest.history_limit = history_limit;
        }
    }

    /// The stash holds an empty ReplicaSet `TAG-REVISION`.
    pub fn stashed(&mut self, tag: &str, revision: u64) {
        let set = replica_set(tag, revision, &Uid("state".into()), 0);
        self.observation.replica_sets.push(set);
    }

    /// This version failed; this ReplicaSet holds it.
    pub fn rejected(&mut self, tag: &str, replica_set: &str) {
        if let Some(Ok(state)) = self
            .observation
            .state
            .as_mut()
            .map(|object| object.state.as_mut())
        {
            state.rejected = Some(Rejection {
                candidate: template(tag).hash(),
                replica_set: Some(replica_set.to_owned()),
                images: vec![format!("registry.example/worker:{tag}")],
                failure: Failure {
                    cause: Cause::ChecksFailed,
                    evidence: "my_errors is 1".to_owned(),
                },
            });
        }
    }
}

fn service() -> Service {
    let share = |percent: &str| percent.parse().expect("a share");
    Service {
        step: share("20%"),
        breakpoint: share("50%"),
        ..Service::leaving("workers", "worker").expect("a name")
    }
}

fn deployment(name: &str, tag: &str, replicas: u32) -> Deployment {
    let replicas = Replicas(replicas);
    Deployment {
        name: name.to_owned(),
        uid: Uid(name.to_owned()),
        resource_version: ResourceVersion("1".to_owned()),
        life: Life::Alive,
        owner: None,
        mark: Mark::Foreign,
        observed: Observed::Yes,
        rolling: Rolling::Paused,
        replicas,
        template: template(tag),
        rest: DeploymentRest {
            selector: json!({"matchLabels": {"app": "worker"}}),
            strategy: json!({"type": "RollingUpdate"}),
            min_ready_seconds: 0,
            history_limit: 10,
        },
        status: DeploymentStatus {
            replicas,
            updated: replicas,
            available: replicas,
        },
    }
}

fn clone(name: &str, tag: &str, replicas: u32) -> Deployment {
    Deployment {
        owner: Some(Uid("worker".to_owned())),
        mark: Mark::Ours,
        ..deployment(name, tag, replicas)
    }
}

fn state_object(owner: &Uid, accepted: &str, state: State) -> StateObject {
    StateObject {
        uid: Uid("state".to_owned()),
        resource_version: ResourceVersion("1".to_owned()),
        owner: Some(owner.clone()),
        mark: Mark::Ours,
        life: Life::Alive,
        accepted: template(accepted),
        state: Ok(state),
    }
}

fn replica_set(tag: &str, revision: u64, owner: &Uid, replicas: u32) -> ReplicaSet {
    let name = format!("{tag}-{revision}");
    ReplicaSet {
        uid: Uid(name.clone()),
        name,
        owner: owner.clone(),
        life: Life::Alive,
        replicas: Replicas(replicas),
        template: template(tag),
        existing: Replicas(replicas),
        available: Replicas(replicas),
        observed: Observed::Yes,
        revision: Some(revision),
        failure: None,
    }
}
