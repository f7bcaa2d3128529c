//! Forward only (`on_failure: freeze`): what failed stands still until a person decides or the next template comes.

use super::Replicas;
use super::decide::Pass;
use super::plan::{Plan, Position, Status};
use super::replicas::Counts;
use super::state::{Failure, Step};
use super::template::TemplateHash;

/// A frozen rollout: both clones keep their numbers.
pub(super) fn decide(
    pass: &Pass<'_>,
    _candidate: &TemplateHash,
    step: &Step,
    failure: &Failure,
) -> Plan {
    let counts = Counts {
        canary: step.canary.min(pass.wanted()),
        primary: pass.wanted().saturating_sub(step.canary),
    };
    Plan::wait(Status::Frozen {
        at: Position::Finishing,
        counts,
        failure: Box::new(failure.clone()),
        deployment: pass.original.name.clone(),
    })
}

/// A frozen canary that gets its next template in place: as many pods as before, natively rolled.
pub(super) fn replace(pass: &Pass<'_>, _candidate: &TemplateHash, step: &Step) -> Plan {
    Plan::wait(Status::Replacing {
        at: Position::Finishing,
        canary: step.canary.max(Replicas::ZERO).min(pass.wanted()),
    })
}
