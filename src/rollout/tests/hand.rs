//! A hand on a clone's number (case K37).

use super::*;
use crate::rollout::plan::Event;

/// What is told of numbers that were set back.
fn set_back(plan: &Plan) -> Vec<String> {
    let told = plan.events.iter().filter_map(|event| match event {
        Event::SetBack {
            clone, by, number, ..
        } => Some(format!("{clone} to {number} by {by}")),
        _ => None,
    });
    told.collect()
}

fn by_kubectl(deployment: &mut Option<Deployment>) {
    if let Some(deployment) = deployment {
        deployment.hand = Hand::Another("kubectl".to_owned());
    }
}

#[test]
fn a_number_set_by_hand_is_set_back_and_told() {
    let checking = || in_step(4, Stage::Checking, 4, 6);
    let mut seen = in_step(4, Stage::Checking, 4, 8);
    by_kubectl(&mut seen.primary);
    assert_eq!(
        set_back(&decided(&seen, 1)),
        ["orders-primary to 8 by kubectl"]
    );
    let mut seen = in_step(4, Stage::Checking, 7, 6);
    by_kubectl(&mut seen.canary);
    assert_eq!(
        set_back(&decided(&seen, 1)),
        ["orders-canary to 7 by kubectl"]
    );
    // Set by hand to what it is anyway.
    let mut seen = checking();
    by_kubectl(&mut seen.primary);
    by_kubectl(&mut seen.canary);
    assert_eq!(set_back(&decided(&seen, 1)), Vec::<String>::new());
}

#[test]
fn numbers_that_follow_r_or_a_step_are_nobodys_hand() {
    let mut grown = in_step(4, Stage::Checking, 4, 6);
    grown.original = Some(deployment("orders", V2, 14));
    let mut unknown = in_step(4, Stage::Checking, 4, 8);
    if let Some(primary) = &mut unknown.primary {
        primary.hand = Hand::Unknown;
    }
    for seen in [grown, unknown, in_step(4, raising(), 2, 8)] {
        let plan = decided(&seen, 1);
        assert!(!scales(&plan).is_empty());
        assert_eq!(set_back(&plan), Vec::<String>::new());
    }
}
