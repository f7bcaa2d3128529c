//! Opening a rollout: the clones are made, the accepted ReplicaSet goes to the primary with its running pods, the
//! canary gets an empty ReplicaSet of the candidate.

use super::Replicas;
use super::action::{Action, CloneRole};
use super::decide::Pass;
use super::handover::{Handover, RECOGNITION, await_recognition, hand_over, scale};
use super::observation::{Deployment, ReplicaSet, Role};
use super::plan::{Blocked, Next, Plan, Status};
use super::replicas::Ladder;
use super::state::{Cause, Elapsed, Failure, Outcome, Phase, Step};
use super::template::TemplateHash;

pub(super) fn decide(pass: &Pass<'_>, candidate: &TemplateHash, elapsed: Elapsed) -> Plan {
    if let Some(plan) = pass
        .repause(Status::Opening)
        .or_else(|| pass.interruption(candidate))
    {
        return plan;
    }
    let Some(set) = pass.accepted_set() else {
        let what = "the accepted version's ReplicaSet is gone".to_owned();
        return pass
            .observation
            .live(pass.close(Outcome::Interrupted { what }));
    };
    if set.owner == pass.original.uid {
        let others = pass
            .observation
            .replica_sets_of(&pass.original.uid)
            .any(|other| other.uid != set.uid);
        if others {
            let what = "the Deployment started another version by itself".to_owned();
            return pass
                .observation
                .live(pass.close(Outcome::Interrupted { what }));
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
        actions.push(Action::CreateClone {
            clone: CloneRole::Canary,
            template: pass.original.template.clone(),
            replicas: Replicas::ZERO,
            rest: pass.original.rest.clone(),
        });
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
    let ladder = Ladder::new(&pass.service.step, &pass.service.breakpoint, pass.wanted());
    let step = Step::new(1, ladder.next_checked(Replicas::ZERO), pass.wanted());
    Plan::act(
        Status::Opening,
        vec![pass.enter(Phase::Stepping {
            candidate: candidate.clone(),
            step,
        })],
    )
}

/// Whether the canary came out of the API server with another template than X's: promoting it would look like a new
/// template for ever.
fn is_changed(pass: &Pass<'_>, canary: &Deployment, candidate: &TemplateHash) -> bool {
    pass.original.template.hash() == *candidate && canary.template != pass.original.template
}

/// Creates the primary with the accepted template.
pub(super) fn create_primary(pass: &Pass<'_>, replicas: Replicas) -> Action {
    Action::CreateClone {
        clone: CloneRole::Primary,
        template: pass.accepted().clone(),
        replicas,
        rest: pass.original.rest.clone(),
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
        return Prepared::Do(Box::new(pass.create_set(&canary.template, canary)));
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
