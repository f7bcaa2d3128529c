//! The way back from a rollout.

use super::*;
use crate::rollout::state::Outcome;

/// The numbers written first when a rollout at (5,5) of 10 ends like this.
fn first_numbers(outcome: Outcome) -> Vec<String> {
    let mut seen = in_step(5, raising(), 5, 5);
    let state = state(&mut seen);
    *state = state.in_phase(Phase::Closing {
        outcome,
        elapsed: Elapsed::ZERO,
    });
    scales(&decided(&seen, 0))
}

#[test]
fn after_a_failure_both_numbers_are_written_at_once() {
    assert_eq!(
        first_numbers(Outcome::RolledBack),
        ["canary 0", "primary 10"]
    );
}

#[test]
fn where_nothing_failed_the_accepted_pods_return_as_the_others_go() {
    for outcome in [Outcome::Cancelled, Outcome::Superseded] {
        assert_eq!(first_numbers(outcome), ["canary 0", "primary 7"]);
    }
}

#[test]
fn the_accepted_pods_wait_for_a_canary_whose_number_was_not_yet_seen() {
    // Raised a moment ago, and superseded: the controllers may still start pods for the number before.
    let mut seen = in_step(5, raising(), 5, 5);
    let before = state(&mut seen);
    *before = before.in_phase(Phase::Closing {
        outcome: Outcome::Superseded,
        elapsed: Elapsed::ZERO,
    });
    seen.canary.as_mut().expect("is open").observed = Observed::NotYet;
    assert_eq!(scales(&decided(&seen, 0)), ["canary 0"]);
}
