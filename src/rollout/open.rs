//! Opening a rollout: the clones are made, the accepted ReplicaSet goes to the primary with its running pods, the
//! canary gets an empty ReplicaSet of the candidate.

use super::Replicas;
use super::action::{Action, CloneRole};
use super::decide::Pass;
use super::handover::{Handover, RECOGNITION, await_recognition, hand_over, scale};
use super::observation::{Deployment, ReplicaSet, Role};
use super::plan::{Blocked, Next, Plan, Status};
use super::state::{Cause, Elapsed, Failure, Outcome, Phase, Step};
use super::template::{Template, TemplateHash};

pub(super) fn decide(pass: &Pass<'_>, candidate: &TemplateHash, elapsed: Elapsed) -> Plan {
    if let Some(plan) = pass
        .repause(Status::Opening)
        .or_else(|| pass.interruption(candidate))
    {
        return plan;
    }
    let Some(set) = pass.accepted_set() else {
        let what = "the accepted version's ReplicaSet is gone".to_owned();
        return pass.interrupt(what);
    };
    if set.owner == pass.original.uid {
        let others = pass
            .observation
            .replica_sets_of(&pass.original.uid)
            .any(|other| other.uid != set.uid);
        if others {
            let what = "the Deployment started another version by itself".to_owned();
            return pass.interrupt(what);
        }
    } else if let Some(plan) = pass.clear_original(Status::Opening) {
        return plan;
    }
    let (primary, canary) = (
        pass.deployment(Role::Primary),
        pass.deployment(Role::Canary),
    );
    let mut actions = Vec::new();
    if primary.is_none() {
        actions.push(create_primary(pass, set.replicas));
    }
    if canary.is_none() {
        let template = pass.original.template.clone();
        actions.push(create_clone(
            pass,
            CloneRole::Canary,
            template,
            Replicas::ZERO,
        ));
    }
    if !actions.is_empty() {
        return Plan::act(Status::Opening, actions);
    }
    if let Some(canary) = canary.filter(|canary| is_changed(pass, canary, candidate)) {
        let evidence = "its template differs from the Deployment's although it was copied from it; an admission webhook \
                        or policy treats Deployments differently by name or label"
            .to_owned();
        return pass.reject(
            candidate,
            canary,
            None,
            Failure {
                cause: Cause::CanaryChanged,
                evidence,
            },
        );
    }
    let canary_ready = canary.is_some_and(|canary| {
        match prepare_canary(
            pass,
            canary,
            pass.observation.replica_sets_of(&canary.uid).next(),
        ) {
            Prepared::Do(action) => {
                actions.push(*action);
                false
            }
            Prepared::Wait => false,
            Prepared::Ready => true,
        }
    });
    let recognition = RECOGNITION.saturating_sub(elapsed.duration());
    let handed_over = match hand_over(pass, set, Role::Original, Role::Primary, &Status::Opening) {
        Handover::Go(plan) => match plan.next {
            Next::Act(moves) => {
                actions.extend(moves);
                false
            }
            Next::LookLive if actions.is_empty() => return plan,
            Next::LookLive | Next::Check(_) | Next::Wait(_) | Next::Done => false,
        },
        Handover::Unrecognised if recognition.is_zero() && actions.is_empty() => {
            let what = Blocked::NotRecognised { by: Role::Primary }.to_string();
            return pass.close(Outcome::Interrupted { what });
        }
        Handover::Unrecognised => false,
        Handover::Done => true,
    };
    // What R says holds from the first moment on, however long the canary takes to be recognised.
    if let Some(primary) =
        primary.filter(|primary| handed_over && primary.replicas != pass.wanted())
    {
        actions.push(scale(CloneRole::Primary, primary, pass.wanted()));
    }
    if !actions.is_empty() {
        return Plan::act(Status::Opening, actions);
    }
    if !(handed_over && canary_ready) {
        let by = if handed_over {
            Role::Canary
        } else {
            Role::Primary
        };
        return await_recognition(Status::Opening, by, elapsed);
    }
    let ladder = pass.ladder();
    let candidate = candidate.clone();
    let phase = match pass.state.bypass_of(&candidate) {
        None => Phase::Stepping {
            candidate,
            step: Step::new(1, ladder.next_checked(Replicas::ZERO), pass.wanted()),
        },
        Some(_) => Phase::Finishing {
            candidate,
            step: Step::new(1, ladder.next_unchecked(Replicas::ZERO), pass.wanted()),
        },
    };
    Plan::act(Status::Opening, vec![pass.enter(phase)])
}

/// Whether the canary came out of the API server with another template than X's: promoting it would look like a new
/// template for ever.
fn is_changed(pass: &Pass<'_>, canary: &Deployment, candidate: &TemplateHash) -> bool {
    pass.original.template.hash() == *candidate && canary.template != pass.original.template
}

/// Creates the primary with the accepted template.
pub(super) fn create_primary(pass: &Pass<'_>, replicas: Replicas) -> Action {
    create_clone(pass, CloneRole::Primary, pass.accepted().clone(), replicas)
}

/// A clone carries nothing of X by which another tool would claim, prune, pause or patch it: no annotation, and of its
/// labels only those that the service names (design section 6, case K37).
fn create_clone(
    pass: &Pass<'_>,
    clone: CloneRole,
    template: Template,
    replicas: Replicas,
) -> Action {
    let copied = |key: &String| {
        let value = pass.original.labels.get(key)?;
        Some((key.clone(), value.clone()))
    };
    Action::CreateClone {
        clone,
        template,
        replicas,
        rest: pass.original.rest.clone(),
        labels: pass.service.copy_labels.iter().filter_map(copied).collect(),
    }
}

/// How far the ReplicaSet of the canary's template is.
pub(super) enum Prepared {
    /// Do this.
    Do(Box<Action>),
    /// The controller has not recognised it yet.
    Wait,
    /// It is there, recognised and the newest.
    Ready,
}

/// The candidate's ReplicaSet is made by Volery, so that pods are called after X for ever; once the controller has
/// recognised it, its revision is raised above all others (design section 2, "Names").
pub(super) fn prepare_canary(
    pass: &Pass<'_>,
    canary: &Deployment,
    set: Option<&ReplicaSet>,
) -> Prepared {
    let Some(set) = set else {
        return Prepared::Do(Box::new(pass.create_set(
            &canary.template,
            canary,
            Replicas::ZERO,
        )));
    };
    let Some(revision) = set.revision else {
        return Prepared::Wait;
    };
    let highest = pass
        .observation
        .replica_sets
        .iter()
        .filter(|other| other.uid != set.uid)
        .filter_map(|other: &ReplicaSet| other.revision)
        .max()
        .unwrap_or(0);
    if revision > highest {
        return Prepared::Ready;
    }
    Prepared::Do(Box::new(Action::RaiseRevision {
        name: set.name.clone(),
        uid: set.uid.clone(),
        from: revision,
        to: highest.saturating_add(1),
    }))
}
