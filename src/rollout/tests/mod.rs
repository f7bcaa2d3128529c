//! Tests of decisions: an observation, built to measure, and what is decided on it.
#![allow(clippy::wildcard_enum_match_arm)]

mod close;
mod command;
mod freeze;
mod hand;
mod handover;
mod judge;
mod orphans;
mod release;
mod rest;
mod step;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::observation::{
    Deployment, DeploymentRest, DeploymentStatus, Disruption, Freshness, Hand, Life, Mark,
    Observation, Observed, Pod, PodPhase, Ready, ReplicaSet, ResourceVersion, Rolling, StateObject,
    Uid, WallTime,
};
use super::state::{Cause, Elapsed, Failure, Phase, Rejection, Stage, State, Step};
use super::template::{Template, TemplateHash};
use super::{Action, Desired, Next, Plan, Replicas, Turn, decide};
use crate::config::{Config, Service};

pub(super) const V1: &str = "orders:v1";
pub(super) const V2: &str = "orders:v2";
pub(super) const V3: &str = "orders:v3";

/// 20% steps to 50%, 60 s to become available, 5 s warm-up, 30 s of checks every 10 s, one failure is enough.
pub(super) fn service() -> Service {
    let text = "namespace: workers\norders:\n  breakpoint: 50%\n  step: 20%\n  abort: 60s\n  start_delay: 5s\n  \
                max_step_duration: 30s\n  check_success_step_duration: 10s\n  no_data_grace: 10s\n  success: []\n";
    let loaded = Config::parse(Path::new("orders.yaml"), text, &|_| Ok(())).expect("is YAML");
    let config = loaded.into_valid().expect("is valid");
    config.services.into_values().next().expect("has a service")
}

pub(super) fn template(image: &str) -> Template {
    Template::new(json!({
        "metadata": {"labels": {"app": "orders"}},
        "spec": {"containers": [{"name": "worker", "image": image}]},
    }))
}

pub(super) fn uid(name: &str) -> Uid {
    Uid(format!("uid of {name}"))
}

pub(super) fn deployment(name: &str, image: &str, replicas: u32) -> Deployment {
    let is_clone = name != "orders";
    Deployment {
        name: name.to_owned(),
        uid: uid(name),
        resource_version: ResourceVersion("7".to_owned()),
        life: Life::Alive,
        owner: is_clone.then(|| uid("orders")),
        mark: if is_clone { Mark::Ours } else { Mark::Foreign },
        observed: Observed::Yes,
        rolling: Rolling::Paused,
        replicas: Replicas(replicas),
        hand: Hand::Ours,
        template: template(image),
        labels: BTreeMap::from([("team".to_owned(), "shop".to_owned())]),
        rest: DeploymentRest {
            selector: json!({"matchLabels": {"app": "orders"}}),
            strategy: json!({"rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}),
            min_ready_seconds: 0,
            history_limit: 10,
        },
        status: DeploymentStatus {
            replicas: Replicas(replicas),
            updated: Replicas(replicas),
            available: Replicas(replicas),
        },
    }
}

/// A ReplicaSet with all its pods available.
pub(super) fn set(name: &str, owner: &str, image: &str, replicas: u32) -> ReplicaSet {
    ReplicaSet {
        name: name.to_owned(),
        uid: uid(name),
        owner: uid(owner),
        life: Life::Alive,
        replicas: Replicas(replicas),
        template: template(image),
        existing: Replicas(replicas),
        terminating: Replicas::ZERO,
        available: Replicas(replicas),
        observed: Observed::Yes,
        revision: Some(1),
        failure: None,
    }
}

pub(super) fn pods(set: &ReplicaSet) -> impl Iterator<Item = Pod> {
    let (name, owner) = (set.name.clone(), set.uid.clone());
    (0..set.replicas.0).map(move |number| Pod {
        name: format!("{name}-{number}"),
        uid: uid(&format!("{name}-{number}")),
        owner: owner.clone(),
        life: Life::Alive,
        ends_by: None,
        phase: PodPhase::Running,
        ready: Ready::Yes,
        containers: Vec::new(),
        disruption: Disruption::None,
        unschedulable: None,
    })
}

fn observation(state: State, image: &str, replicas: u32) -> Observation {
    Observation {
        freshness: Freshness::Live,
        at: WallTime(1_767_600_000),
        original: Some(deployment("orders", image, replicas)),
        primary: None,
        canary: None,
        state: Some(StateObject {
            uid: uid("orders-volery"),
            resource_version: ResourceVersion("3".to_owned()),
            owner: Some(uid("orders")),
            mark: Mark::Ours,
            life: Life::Alive,
            accepted: template(V1),
            state: Ok(state),
            command: None,
        }),
        replica_sets: Vec::new(),
        pods: Vec::new(),
    }
}

/// X asks for `image`; it runs `replicas` pods of v1, the accepted version.
pub(super) fn at_rest(image: &str, replicas: u32) -> Observation {
    let state = State {
        accepted: Some(uid("orders-1")),
        ..State::registering().in_phase(Phase::AtRest)
    };
    let mut seen = observation(state, image, replicas);
    give(&mut seen, set("orders-1", "orders", V1, replicas));
    seen
}

/// The candidate v2 in the step with `target` canary pods of R = 10; the clones have these numbers, all available.
pub(super) fn in_step(target: u32, stage: Stage, canary: u32, primary: u32) -> Observation {
    let mut step = Step::new(target.div_ceil(2), Replicas(target), Replicas(10));
    step.stage = stage;
    let state = State {
        accepted: Some(uid("orders-1")),
        ..State::registering().in_phase(Phase::Stepping {
            candidate: candidate(),
            step,
        })
    };
    let mut seen = observation(state, V2, 10);
    seen.primary = Some(deployment("orders-primary", V1, primary));
    seen.canary = Some(deployment("orders-canary", V2, canary));
    give(&mut seen, set("orders-1", "orders-primary", V1, primary));
    give(&mut seen, set("orders-2", "orders-canary", V2, canary));
    seen
}

pub(super) fn candidate() -> TemplateHash {
    template(V2).hash()
}

/// The stash holds an empty ReplicaSet `TAG-REVISION` of this version.
pub(super) fn stash(seen: &mut Observation, tag: &str, revision: u64) {
    let name = format!("{tag}-{revision}");
    let mut stashed = set(&name, "orders-volery", &format!("orders:{tag}"), 0);
    stashed.revision = Some(revision);
    give(seen, stashed);
}

/// The version v2 failed: it had a template of this hash, and this ReplicaSet holds it.
pub(super) fn reject(seen: &mut Observation, hash: TemplateHash, replica_set: Option<&str>) {
    state(seen).rejected = Some(Rejection {
        candidate: hash,
        replica_set: replica_set.map(str::to_owned),
        images: vec![V2.to_owned()],
        failure: Failure {
            cause: Cause::ChecksFailed,
            evidence: "my_errors is 1".to_owned(),
        },
    });
}

/// Adds a ReplicaSet with its pods.
pub(super) fn give(seen: &mut Observation, set: ReplicaSet) {
    seen.pods.extend(pods(&set));
    seen.replica_sets.push(set);
}

pub(super) fn x(seen: &mut Observation) -> &mut Deployment {
    seen.original.as_mut().expect("X exists")
}

pub(super) fn state(seen: &mut Observation) -> &mut State {
    let object = seen.state.as_mut().expect("is registered");
    object.state.as_mut().expect("is readable")
}

pub(super) fn decided(seen: &Observation, since: u64) -> Plan {
    decide(
        &service(),
        Desired::Managed(Turn::Taken),
        seen,
        Duration::from_secs(since),
    )
}

pub(super) fn actions(plan: &Plan) -> &[Action] {
    match &plan.next {
        Next::Act(actions) => actions,
        other => panic!("{}: {other:?}", plan.status),
    }
}

/// The state that a plan writes.
pub(super) fn written(plan: &Plan) -> &State {
    let write = actions(plan).iter().find_map(|action| match action {
        Action::WriteState { state, .. } => Some(state.as_ref()),
        _ => None,
    });
    write.unwrap_or_else(|| panic!("{}: no state is written", plan.status))
}

/// The numbers that a plan writes, in its order, such as `canary 2`.
pub(super) fn scales(plan: &Plan) -> Vec<String> {
    actions(plan)
        .iter()
        .filter_map(|action| match action {
            Action::Scale { clone, to, .. } => Some(format!("{} {to}", clone.role())),
            _ => None,
        })
        .collect()
}

pub(super) fn raising() -> Stage {
    Stage::Raising {
        elapsed: Elapsed::ZERO,
    }
}
