//! Replica arithmetic: how far each step goes, and which numbers to write next.

use super::Replicas;
use crate::config::Amount;

/// How a service's steps are laid out for a given R.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ladder {
    wanted: Replicas,
    step: Replicas,
    breakpoint: Replicas,
}

impl Ladder {
    /// The ladder for `wanted` replicas. Shares are rounded up, a step is at least one replica (case K23).
    pub fn new(step: &Amount, breakpoint: &Amount, wanted: Replicas) -> Self {
        let at_least_one = |amount: Replicas| {
            if wanted == Replicas::ZERO {
                amount
            } else {
                amount.max(Replicas(1))
            }
        };
        Self {
            wanted,
            step: at_least_one(step.of(wanted)),
            breakpoint: at_least_one(breakpoint.of(wanted)),
        }
    }

    /// R.
    pub fn wanted(&self) -> Replicas {
        self.wanted
    }

    /// One step.
    pub fn step(&self) -> Replicas {
        self.step
    }

    /// The number of canary pods at which the candidate is trusted.
    pub fn breakpoint(&self) -> Replicas {
        self.breakpoint
    }

    /// How many checked steps there are: the last is cut at the breakpoint, and there is always one (case K24).
    pub fn checked_steps(&self) -> u32 {
        if self.step == Replicas::ZERO {
            1
        } else {
            self.breakpoint.0.div_ceil(self.step.0).max(1)
        }
    }

    /// How many steps lead to R without any checks.
    pub fn unchecked_steps(&self) -> u32 {
        match self.step {
            Replicas::ZERO => 0,
            step => self.wanted.0.div_ceil(step.0),
        }
    }

    /// How many steps lead to R altogether.
    pub fn all_steps(&self) -> u32 {
        let rest = self.wanted.0.saturating_sub(self.breakpoint.0);
        self.checked_steps()
            + if self.step == Replicas::ZERO {
                0
            } else {
                rest.div_ceil(self.step.0)
            }
    }

    /// The canary's number in the checked step after one with `canary` pods.
    pub fn next_checked(&self, canary: Replicas) -> Replicas {
        Replicas(canary.0.saturating_add(self.step.0).min(self.breakpoint.0))
    }

    /// The canary's number in the unchecked step after one with `canary` pods.
    pub fn next_unchecked(&self, canary: Replicas) -> Replicas {
        Replicas(canary.0.saturating_add(self.step.0).min(self.wanted.0))
    }

    /// The largest number of canary pods that step `number` may have: more than it had before R shrank would be more
    /// than the step's share (design section 2, "R changes while open").
    pub fn share_of_checked(&self, number: u32) -> Replicas {
        Replicas(self.step.0.saturating_mul(number).min(self.breakpoint.0))
    }
}

/// The numbers of both clones: a step is written (C,P).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// C.
    pub canary: Replicas,
    /// P.
    pub primary: Replicas,
}

/// What to do about the numbers of an open rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Write these.
    Write(Counts),
    /// The canary's pods must become available first.
    AwaitCanary,
    /// The step's numbers are reached and its canary pods are available.
    Reached,
}

/// Brings the clones' numbers towards `target` canary pods of `wanted` in total, one safe write at a time:
///
/// * never more than `wanted + surge` in total (promise 3, case K02),
/// * the primary is lowered only by as many pods as the canary has available,
/// * what R gains goes to the accepted version at once (case K36),
/// * where nothing runs there is nothing to keep: both get their numbers at once (R back from 0, case K30).
pub fn balance(
    wanted: Replicas,
    target: Replicas,
    surge: Replicas,
    now: Counts,
    canary_available: Replicas,
) -> Balance {
    let cap = wanted.0.saturating_add(surge.0);
    let target = target.0.min(wanted.0);
    let (canary, primary) = (now.canary.0, now.primary.0);
    let write = |canary: u32, primary: u32| {
        Balance::Write(Counts {
            canary: Replicas(canary),
            primary: Replicas(primary),
        })
    };
    if canary > target {
        let settled = wanted.0 - target;
        let primary = if canary_available.0 >= target || primary < settled {
            settled
        } else {
            primary.min(cap.saturating_sub(target)).max(settled)
        };
        return write(target, primary);
    }
    // From here on canary <= target <= wanted.
    if canary == 0 && primary == 0 && wanted.0 > 0 {
        return write(target, wanted.0 - target);
    }
    if primary < wanted.0 - canary {
        return write(canary, wanted.0 - canary);
    }
    if canary.saturating_add(primary) > cap {
        return write(canary, cap - canary);
    }
    if canary < target {
        let raised = target.min(cap.saturating_sub(primary));
        if raised > canary {
            return write(raised, primary);
        }
    }
    if canary_available.0 < canary {
        return Balance::AwaitCanary;
    }
    if primary > wanted.0 - canary {
        return write(canary, wanted.0 - canary);
    }
    Balance::Reached
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;

    fn share(percent: u32) -> Amount {
        format!("{percent}%").parse().expect("a share")
    }

    /// Follows the ladder as a good rollout does, every pod available at once; returns each step's numbers.
    fn path(step: &Amount, breakpoint: &Amount, wanted: u32) -> Vec<(u32, u32)> {
        let wanted = Replicas(wanted);
        let ladder = Ladder::new(step, breakpoint, wanted);
        let mut counts = Counts {
            canary: Replicas::ZERO,
            primary: wanted,
        };
        let mut steps = Vec::new();
        while counts.canary < wanted {
            let target = if counts.canary < ladder.breakpoint() {
                ladder.next_checked(counts.canary)
            } else {
                ladder.next_unchecked(counts.canary)
            };
            counts = follow(wanted, target, ladder.step(), counts);
            steps.push((counts.canary.0, counts.primary.0));
            assert!(steps.len() <= 200, "no end: {steps:?}");
        }
        steps
    }

    fn follow(wanted: Replicas, target: Replicas, surge: Replicas, mut counts: Counts) -> Counts {
        for _ in 0..10 {
            match balance(wanted, target, surge, counts, counts.canary) {
                Balance::Write(next) => {
                    assert!(
                        next.canary.0 + next.primary.0 <= wanted.0 + surge.0,
                        "{counts:?} to {next:?}"
                    );
                    assert!(
                        next.canary.min(counts.canary).0 + next.primary.0 >= wanted.0,
                        "{counts:?} to {next:?}"
                    );
                    counts = next;
                }
                Balance::AwaitCanary => panic!("all pods are available"),
                Balance::Reached => return counts,
            }
        }
        panic!("no end at {counts:?}")
    }

    #[test]
    fn the_expected_paths_of_cases_k23_and_k24() {
        for (wanted, step, breakpoint, expected) in [
            (
                10,
                20,
                50,
                vec![(2, 8), (4, 6), (5, 5), (7, 3), (9, 1), (10, 0)],
            ),
            (1, 10, 50, vec![(1, 0)]),
            (2, 10, 50, vec![(1, 1), (2, 0)]),
            (3, 10, 50, vec![(1, 2), (2, 1), (3, 0)]),
            (3, 10, 33, vec![(1, 2), (2, 1), (3, 0)]),
            (10, 40, 50, vec![(4, 6), (5, 5), (9, 1), (10, 0)]),
            (10, 60, 50, vec![(5, 5), (10, 0)]),
            (5, 30, 100, vec![(2, 3), (4, 1), (5, 0)]),
            (0, 10, 50, vec![]),
        ] {
            assert_eq!(
                path(&share(step), &share(breakpoint), wanted),
                expected,
                "R={wanted} {step}%/{breakpoint}%"
            );
        }
        let three = Amount::Number(NonZeroU32::new(3).expect("not zero"));
        assert_eq!(
            path(&three, &share(50), 10),
            [(3, 7), (5, 5), (8, 2), (10, 0)]
        );
    }

    #[test]
    fn checked_steps_are_counted_as_they_are_walked() {
        for wanted in 1..=200 {
            for (step, breakpoint) in [(1, 100), (7, 50), (10, 50), (33, 34), (60, 50), (100, 1)] {
                let ladder = Ladder::new(&share(step), &share(breakpoint), Replicas(wanted));
                let walked = path(&share(step), &share(breakpoint), wanted);
                let checked = walked
                    .iter()
                    .take_while(|(canary, _)| *canary <= ladder.breakpoint().0)
                    .count();
                assert_eq!(
                    u32::try_from(checked).expect("small"),
                    ladder.checked_steps(),
                    "R={wanted} {step}/{breakpoint}"
                );
                assert_eq!(
                    u32::try_from(walked.len()).expect("small"),
                    ladder.all_steps(),
                    "R={wanted} {step}/{breakpoint}"
                );
            }
        }
    }

    #[test]
    fn every_ladder_stays_in_the_envelope_for_every_whole_percentage() {
        for wanted in 0..=200 {
            for percent in 1..=100 {
                let steps = path(&share(percent), &share(50), wanted);
                assert_eq!(
                    steps.last().map(|(canary, primary)| (*canary, *primary)),
                    (wanted > 0).then_some((wanted, 0))
                );
                let steps = path(&share(10), &share(percent), wanted);
                assert!(
                    steps.windows(2).all(|pair| pair[0].0 < pair[1].0),
                    "{steps:?}"
                );
            }
        }
    }

    #[test]
    fn what_r_gains_goes_to_the_accepted_version() {
        let now = Counts {
            canary: Replicas(2),
            primary: Replicas(8),
        };
        let next = balance(Replicas(14), Replicas(2), Replicas(3), now, Replicas(2));
        assert_eq!(
            next,
            Balance::Write(Counts {
                canary: Replicas(2),
                primary: Replicas(12)
            })
        );
    }

    #[test]
    fn r_going_to_zero_takes_both_to_zero() {
        let now = Counts {
            canary: Replicas(4),
            primary: Replicas(6),
        };
        let next = balance(
            Replicas::ZERO,
            Replicas::ZERO,
            Replicas::ZERO,
            now,
            Replicas(4),
        );
        assert_eq!(
            next,
            Balance::Write(Counts {
                canary: Replicas::ZERO,
                primary: Replicas::ZERO
            })
        );
    }

    #[test]
    fn r_coming_back_from_zero_starts_the_step_it_slept_in_and_nothing_else() {
        let nothing = Counts {
            canary: Replicas::ZERO,
            primary: Replicas::ZERO,
        };
        for (wanted, target) in [(10, 4), (1, 1), (3, 3), (14, 2)] {
            let next = balance(
                Replicas(wanted),
                Replicas(target),
                Replicas(1),
                nothing,
                Replicas::ZERO,
            );
            let expected = Counts {
                canary: Replicas(target),
                primary: Replicas(wanted - target),
            };
            assert_eq!(next, Balance::Write(expected), "{target} of {wanted}");
        }
    }

    proptest! {
        #[test]
        fn any_numbers_come_to_rest_inside_the_envelope(
            wanted in 0u32..60, target in 0u32..60, surge in 1u32..10, canary in 0u32..80, primary in 0u32..80,
        ) {
            let mut counts = Counts { canary: Replicas(canary), primary: Replicas(primary) };
            let mut available = counts.canary;
            for _ in 0..200 {
                match balance(Replicas(wanted), Replicas(target), Replicas(surge), counts, available) {
                    Balance::Write(next) => {
                        prop_assert_ne!(next, counts);
                        // A primary is lowered in exchange for available canary pods only, or because the cap demands it.
                        if next.primary < counts.primary {
                            let kept = next.canary.min(available).0 + next.primary.0;
                            prop_assert!(kept >= wanted || next.canary.0 + next.primary.0 <= wanted + surge);
                        }
                        counts = next;
                        available = available.min(counts.canary);
                    }
                    Balance::AwaitCanary => available = Replicas(available.0 + 1),
                    Balance::Reached => break,
                }
            }
            let target = target.min(wanted);
            prop_assert_eq!(counts, Counts { canary: Replicas(target), primary: Replicas(wanted - target) });
        }
    }
}
