//! A hand on a clone's number while a rollout is open (case K37): it is set back by whatever the phase does about numbers
//! anyway, and told here.

use super::action::Action;
use super::decide::Pass;
use super::observation::Hand;
use super::plan::{Event, Next, Plan};
use super::state::Phase;

/// The plan, telling of every number in it that replaces one which Volery has not set.
pub(super) fn tell(pass: &Pass<'_>, mut plan: Plan) -> Plan {
    if !is_steered(&pass.state.phase) {
        return plan;
    }
    let Next::Act(actions) = &plan.next else {
        return plan;
    };
    for action in actions {
        let Action::Scale { clone, from, .. } = action else {
            continue;
        };
        let scaled = pass.deployment((*clone).into());
        if let Some((scaled, Hand::Another(by))) = scaled.map(|scaled| (scaled, &scaled.hand)) {
            plan.events.push(Event::SetBack {
                clone: scaled.name.clone(),
                deployment: pass.original.name.clone(),
                by: by.clone(),
                number: *from,
            });
        }
    }
    plan
}

/// Whether a person could still hold the rollout or end it, instead of setting numbers.
fn is_steered(phase: &Phase) -> bool {
    match phase {
        Phase::Opening { .. }
        | Phase::Stepping { .. }
        | Phase::Finishing { .. }
        | Phase::Frozen { .. }
        | Phase::Replacing { .. } => true,
        Phase::Registering
        | Phase::AtRest
        | Phase::HandingOver { .. }
        | Phase::Closing { .. }
        | Phase::Releasing => false,
    }
}
