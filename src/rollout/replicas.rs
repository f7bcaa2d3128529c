//! Replica arithmetic: how far each step goes, and which numbers to write next.

use super::Replicas;
use crate::config::{Amount, Bound, Service};

/// How a service's steps are laid out for a given R.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ladder {
    wanted: Replicas,
    step: Replicas,
    breakpoint: Replicas,
    finish_step: Replicas,
}

impl Ladder {
    /// A service's ladder for `wanted` replicas.
    pub fn of(service: &Service, wanted: Replicas) -> Self {
        let ladder = Self::new(&service.step, &service.breakpoint, wanted);
        match &service.finish_step {
            Some(finish_step) => ladder.finishing_by(finish_step),
            None => ladder,
        }
    }

    /// The ladder for `wanted` replicas, as steep past the breakpoint as before it. Shares are rounded up, a step is at
    /// least one replica (case K23).
    pub fn new(step: &Amount, breakpoint: &Amount, wanted: Replicas) -> Self {
        let step = at_least_one(step, wanted);
        Self {
            wanted,
            step,
            breakpoint: at_least_one(breakpoint, wanted),
            finish_step: step,
        }
    }

    /// The same ladder with steps of another size past the breakpoint (`finish_step`).
    pub fn finishing_by(self, finish_step: &Amount) -> Self {
        Self {
            finish_step: at_least_one(finish_step, self.wanted),
            ..self
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

    /// The largest step there is, before the breakpoint or past it.
    fn widest_step(&self) -> Replicas {
        self.step.max(self.finish_step)
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
        match self.finish_step {
            Replicas::ZERO => 0,
            step => self.wanted.0.div_ceil(step.0),
        }
    }

    /// How many steps lead to R altogether.
    pub fn all_steps(&self) -> u32 {
        let rest = self.wanted.0.saturating_sub(self.breakpoint.0);
        self.checked_steps()
            + if self.finish_step == Replicas::ZERO {
                0
            } else {
                rest.div_ceil(self.finish_step.0)
            }
    }

    /// The canary's number in the checked step after one with `canary` pods.
    pub fn next_checked(&self, canary: Replicas) -> Replicas {
        Replicas(canary.0.saturating_add(self.step.0).min(self.breakpoint.0))
    }

    /// The canary's number in the unchecked step after one with `canary` pods.
    pub fn next_unchecked(&self, canary: Replicas) -> Replicas {
        let raised = canary.0.saturating_add(self.finish_step.0);
        Replicas(raised.min(self.wanted.0))
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

/// Which pods count against the most that may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Those that are not terminating.
    Alive,
    /// All that exist, terminating ones too: N consumers for N partitions (case K02).
    Existing,
}

/// How far the pods of an open rollout may stray from R (design section 4, promise 3). At least one of the two numbers is
/// above zero, or nothing could ever be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    surge: Replicas,
    unavailable: Replicas,
    counting: Counting,
}

impl Envelope {
    /// A service's envelope on this ladder.
    pub fn of(service: &Service, ladder: &Ladder) -> Self {
        let wanted = ladder.wanted();
        let surge = service.max_surge.map(|bound| match bound {
            Bound::Zero => Replicas::ZERO,
            // At R = 0 a share comes to nothing, and still is no cap.
            bound @ Bound::AtMost(_) => bound.rounded_up(wanted).max(Replicas(1)),
        });
        let unavailable = service
            .max_unavailable
            .map(|bound| bound.rounded_down(wanted));
        Self::new(surge, unavailable, ladder)
    }

    /// The envelope on this ladder of `max_surge` and `max_unavailable`, as many replicas as they come to there.
    ///
    /// By default there may be one step more than R, and none fewer. Where there may be none more, every existing pod
    /// counts, and one step may be missing: something has to go first.
    pub fn new(surge: Option<Replicas>, unavailable: Option<Replicas>, ladder: &Ladder) -> Self {
        let step = ladder.widest_step();
        if surge == Some(Replicas::ZERO) {
            // As a Deployment whose two bounds both come to zero: one may be missing.
            let unavailable = unavailable.unwrap_or(step).max(Replicas(1));
            return Self {
                surge: Replicas::ZERO,
                unavailable,
                counting: Counting::Existing,
            };
        }
        Self {
            surge: surge.unwrap_or(step),
            unavailable: unavailable.unwrap_or(Replicas::ZERO),
            counting: Counting::Alive,
        }
    }

    /// Which pods count.
    pub fn counting(&self) -> Counting {
        self.counting
    }

    /// The most pods that may be there for `wanted` replicas.
    pub fn most(&self, wanted: Replicas) -> Replicas {
        wanted.saturating_add(self.surge)
    }

    /// The fewest pods that must be available for `wanted` replicas.
    pub fn fewest(&self, wanted: Replicas) -> Replicas {
        wanted.saturating_sub(self.unavailable)
    }

    /// The highest number that `own` may be given beside `other` in a rollout that stands still, where `other` may have more
    /// pods than its number says for as long as it does.
    pub fn room(&self, wanted: Replicas, own: &Side, other: &Side) -> Replicas {
        match self.counting {
            Counting::Alive if other.alive == Side::UNKNOWN => own.number,
            Counting::Alive => self
                .most(wanted)
                .saturating_sub(other.alive.max(other.number)),
            Counting::Existing => self.highest(wanted, own, other),
        }
    }

    /// The highest number that `own` may be given beside `other`: what was lowered must be gone first, or the envelope
    /// breaks while the controllers lag behind.
    fn highest(&self, wanted: Replicas, own: &Side, other: &Side) -> Replicas {
        let most = self.most(wanted);
        match self.counting {
            Counting::Alive if other.alive > other.number => own.number,
            Counting::Alive => most.saturating_sub(other.number),
            Counting::Existing if own.alive == Side::UNKNOWN => own.number,
            Counting::Existing => {
                let others = other.alive.max(other.number).saturating_add(other.going);
                most.saturating_sub(others).saturating_sub(own.going)
            }
        }
    }
}

/// One of the two clones, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Its `spec.replicas`.
    pub number: Replicas,
    /// Its pods that are not terminating; [`Side::UNKNOWN`] until its controllers have seen its number.
    pub alive: Replicas,
    /// Its pods that are terminating.
    pub going: Replicas,
    /// Its pods that are available.
    pub available: Replicas,
}

impl Side {
    /// Any number of pods is possible.
    pub const UNKNOWN: Replicas = Replicas(u32::MAX);

    /// A clone that is not there.
    pub const NONE: Self = Self {
        number: Replicas::ZERO,
        alive: Replicas::ZERO,
        going: Replicas::ZERO,
        available: Replicas::ZERO,
    };

    /// Its available pods that stay when its controllers have followed its number. Until they have seen it they may still
    /// follow a lower one that was written before.
    fn in_place(&self) -> Replicas {
        if self.alive == Self::UNKNOWN {
            Replicas::ZERO
        } else {
            self.available.min(self.number)
        }
    }

    /// Whether pods that its number asks for are not available, as far as is known.
    pub fn is_short(&self) -> bool {
        self.in_place() < self.number
    }
}

/// Both clones, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sides {
    /// The canary.
    pub canary: Side,
    /// The primary.
    pub primary: Side,
}

impl Sides {
    /// C and P.
    pub fn numbers(&self) -> Counts {
        Counts {
            canary: self.canary.number,
            primary: self.primary.number,
        }
    }

    fn write(&self, canary: Replicas, primary: Replicas) -> Option<Counts> {
        let counts = Counts { canary, primary };
        (counts != self.numbers()).then_some(counts)
    }
}

/// What to do about the numbers of an open rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Write these.
    Write(Counts),
    /// The canary's pods must become available first.
    AwaitCanary,
    /// Pods must end first, before others may start.
    AwaitRoom,
    /// The step's numbers are reached and its canary pods are available.
    Reached,
}

/// Brings the clones' numbers towards `target` canary pods of `wanted` in total, one safe write at a time:
///
/// * never more pods than the envelope has room for (promise 3, case K02),
/// * the primary is lowered only by as many pods as the canary has available, and as may be missing,
/// * what R gains goes to the accepted version at once (case K36),
/// * where nothing runs there is nothing to keep: both get their numbers at once (R back from 0, case K30).
pub fn balance(envelope: &Envelope, wanted: Replicas, target: Replicas, sides: &Sides) -> Balance {
    let target = target.min(wanted);
    let settled = wanted.saturating_sub(target);
    let Counts { canary, primary } = sides.numbers();
    let most = envelope.most(wanted);
    let highest_primary = envelope.highest(wanted, &sides.primary, &sides.canary);
    let highest_canary = envelope.highest(wanted, &sides.canary, &sides.primary);
    let write = |canary: Replicas, primary: Replicas| {
        sides
            .write(canary, primary)
            .map_or(Balance::AwaitRoom, Balance::Write)
    };
    if canary > target {
        let primary = if primary < settled {
            settled.min(highest_primary).max(primary)
        } else if sides.canary.in_place() >= target {
            settled
        } else {
            primary.min(most.saturating_sub(target)).max(settled)
        };
        return write(target, primary);
    }
    if canary == Replicas::ZERO && primary == Replicas::ZERO && wanted > Replicas::ZERO {
        let first = settled.min(highest_primary);
        let then = target.min(highest_canary.saturating_sub(first));
        let complete = first == settled && then == target;
        return match envelope.counting {
            Counting::Alive if complete => write(target, settled),
            Counting::Alive => Balance::AwaitRoom,
            Counting::Existing => write(then, first),
        };
    }
    let needed = envelope.fewest(wanted).saturating_sub(canary).max(settled);
    if primary < needed {
        return write(canary, needed.min(highest_primary).max(primary));
    }
    if canary.saturating_add(primary) > most {
        return write(canary, most.saturating_sub(canary));
    }
    let raised = target.min(highest_canary).max(canary);
    // Where none may be missing all of a step's pods are awaited: fewer writes than to follow each.
    let whole = envelope.unavailable == Replicas::ZERO;
    let lowered = if whole && (raised > canary || sides.canary.is_short()) {
        primary
    } else {
        let in_place = sides.canary.in_place();
        let kept = envelope.fewest(wanted).saturating_sub(in_place);
        primary.min(kept.max(settled))
    };
    if let Some(next) = sides.write(raised, lowered) {
        Balance::Write(next)
    } else if sides.canary.is_short() {
        Balance::AwaitCanary
    } else if canary < target {
        Balance::AwaitRoom
    } else {
        Balance::Reached
    }
}

/// How fast the canary goes when a rollout ends without promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    /// At once: a bad consumer harms data (case K04).
    AtOnce,
    /// As the accepted version's pods become available.
    InStep,
}

/// What to do about the numbers of a rollout that is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retreat {
    /// Write these.
    Write(Counts),
    /// The accepted version's pods must become available first.
    AwaitPrimary,
    /// Pods must end first, before others may start.
    AwaitRoom,
    /// The accepted version has all its pods by number, the canary none.
    Done,
}

/// Takes a rollout back, one write at a time: the primary to `wanted`, the canary to 0.
///
/// In step both bounds of the envelope hold. In haste only the upper one, and that only where every existing pod counts:
/// elsewhere both numbers are written together (case K04).
pub fn retreat(envelope: &Envelope, wanted: Replicas, haste: Haste, sides: &Sides) -> Retreat {
    let Counts { canary, primary } = sides.numbers();
    let highest = envelope.highest(wanted, &sides.primary, &sides.canary);
    let raised =
        if primary >= wanted || (haste, envelope.counting) == (Haste::AtOnce, Counting::Alive) {
            wanted
        } else {
            wanted.min(highest).max(primary)
        };
    let left = match haste {
        Haste::AtOnce => Replicas::ZERO,
        Haste::InStep => {
            let needed = envelope
                .fewest(wanted)
                .saturating_sub(sides.primary.in_place());
            let whole = envelope.unavailable == Replicas::ZERO;
            if whole && needed > Replicas::ZERO && sides.primary.is_short() {
                canary
            } else {
                canary.min(needed)
            }
        }
    };
    if let Some(next) = sides.write(left, raised) {
        Retreat::Write(next)
    } else if canary == Replicas::ZERO && primary == wanted {
        Retreat::Done
    } else if canary > Replicas::ZERO && sides.primary.is_short() {
        Retreat::AwaitPrimary
    } else {
        Retreat::AwaitRoom
    }
}

/// Of no replicas nothing, else at least one.
fn at_least_one(amount: &Amount, wanted: Replicas) -> Replicas {
    let of_wanted = amount.of(wanted);
    if wanted == Replicas::ZERO {
        of_wanted
    } else {
        of_wanted.max(Replicas(1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
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

    /// Both clones as their numbers say, all pods available but of the canary's only so many.
    fn quiet(now: Counts, canary_available: Replicas) -> Sides {
        let side = |number: Replicas, available: Replicas| Side {
            number,
            alive: number,
            going: Replicas::ZERO,
            available: available.min(number),
        };
        Sides {
            canary: side(now.canary, canary_available),
            primary: side(now.primary, now.primary),
        }
    }

    fn up_first(surge: u32) -> Envelope {
        Envelope {
            surge: Replicas(surge),
            unavailable: Replicas::ZERO,
            counting: Counting::Alive,
        }
    }

    fn follow(wanted: Replicas, target: Replicas, surge: Replicas, mut counts: Counts) -> Counts {
        for _ in 0..10 {
            let sides = quiet(counts, counts.canary);
            match balance(&up_first(surge.0), wanted, target, &sides) {
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
                Balance::AwaitRoom => panic!("no pod is going"),
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
        let sides = quiet(now, Replicas(2));
        let next = balance(&up_first(3), Replicas(14), Replicas(2), &sides);
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
        let sides = quiet(now, Replicas(4));
        let next = balance(&up_first(1), Replicas::ZERO, Replicas::ZERO, &sides);
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
            let sides = quiet(nothing, Replicas::ZERO);
            let next = balance(&up_first(1), Replicas(wanted), Replicas(target), &sides);
            let expected = Counts {
                canary: Replicas(target),
                primary: Replicas(wanted - target),
            };
            assert_eq!(next, Balance::Write(expected), "{target} of {wanted}");
        }
    }

    #[test]
    fn finish_step_sets_the_steps_past_the_breakpoint() {
        let wanted = Replicas(10);
        let ladder = Ladder::new(&share(20), &share(50), wanted).finishing_by(&share(100));
        assert_eq!(ladder.next_checked(Replicas(2)), Replicas(4));
        assert_eq!(ladder.next_unchecked(Replicas(5)), Replicas(10));
        assert_eq!((ladder.checked_steps(), ladder.all_steps()), (3, 4));
        let ladder = Ladder::new(&share(50), &share(50), wanted).finishing_by(&share(1));
        assert_eq!(ladder.next_unchecked(Replicas(5)), Replicas(6));
        assert_eq!(ladder.all_steps(), 6);
    }

    #[test]
    fn the_bounds_a_service_does_not_name_follow_from_its_steps() {
        let ladder = Ladder::new(&share(20), &share(50), Replicas(6));
        let all_at_once = ladder.finishing_by(&share(100));
        for (why, ladder, surge, unavailable, expected) in [
            (
                "one step more, none fewer",
                &ladder,
                None,
                None,
                (8, 6, Counting::Alive),
            ),
            (
                "the wider step",
                &all_at_once,
                None,
                None,
                (12, 6, Counting::Alive),
            ),
            (
                "the cap: a step fewer",
                &ladder,
                Some(0),
                None,
                (6, 4, Counting::Existing),
            ),
            (
                "both named",
                &ladder,
                Some(0),
                Some(1),
                (6, 5, Counting::Existing),
            ),
            (
                "both come to nothing",
                &ladder,
                Some(0),
                Some(0),
                (6, 5, Counting::Existing),
            ),
            (
                "fewer as well as more",
                &ladder,
                Some(2),
                Some(1),
                (8, 5, Counting::Alive),
            ),
        ] {
            let envelope = Envelope::new(surge.map(Replicas), unavailable.map(Replicas), ladder);
            let found = (
                envelope.most(Replicas(6)).0,
                envelope.fewest(Replicas(6)).0,
                envelope.counting(),
            );
            assert_eq!(found, expected, "{why}");
        }
    }

    /// One clone as its controllers and kubelets have it.
    #[derive(Clone, Debug, Default)]
    struct Crew {
        /// The last number, and after it those before that the controllers have not followed yet.
        number: u32,
        unseen: VecDeque<u32>,
        starting: u32,
        ready: u32,
        going: u32,
    }

    impl Crew {
        fn alive(&self) -> u32 {
            self.starting + self.ready
        }

        fn side(&self) -> Side {
            Side {
                number: Replicas(self.number),
                alive: if self.unseen.is_empty() {
                    Replicas(self.alive())
                } else {
                    Side::UNKNOWN
                },
                going: Replicas(self.going),
                available: Replicas(self.ready),
            }
        }

        fn write(&mut self, number: Replicas) {
            if self.number != number.0 {
                self.number = number.0;
                self.unseen.push_back(number.0);
            }
        }

        /// The controllers follow the next number; of pods that have to go those that are not ready go first.
        fn follow(&mut self) {
            let Some(number) = self.unseen.pop_front() else {
                return;
            };
            let surplus = self.alive().saturating_sub(number);
            let unready = surplus.min(self.starting);
            self.starting -= unready;
            self.ready -= surplus - unready;
            self.going += surplus;
            self.starting += number.saturating_sub(self.alive());
        }
    }

    /// Both clones, and what happens to them in any order.
    #[derive(Clone, Debug)]
    struct Pair {
        canary: Crew,
        primary: Crew,
    }

    impl Pair {
        fn sides(&self) -> Sides {
            Sides {
                canary: self.canary.side(),
                primary: self.primary.side(),
            }
        }

        fn write(&mut self, next: Counts) {
            self.canary.write(next.canary);
            self.primary.write(next.primary);
        }

        fn counted(&self, counting: Counting) -> u32 {
            let alive = self.canary.alive() + self.primary.alive();
            match counting {
                Counting::Alive => alive,
                Counting::Existing => alive + self.canary.going + self.primary.going,
            }
        }

        fn ready(&self) -> u32 {
            self.canary.ready + self.primary.ready
        }

        /// One of the things that happen by themselves; whether it was one.
        fn happens(&mut self, what: u8) -> bool {
            let clone = if what.is_multiple_of(2) {
                &mut self.canary
            } else {
                &mut self.primary
            };
            match what / 2 % 3 {
                0 if !clone.unseen.is_empty() => clone.follow(),
                1 if clone.starting > 0 => {
                    clone.starting -= 1;
                    clone.ready += 1;
                }
                2 if clone.going > 0 => clone.going -= 1,
                _ => return false,
            }
            true
        }
    }

    fn an_envelope() -> impl Strategy<Value = Envelope> {
        (0u32..5, 0u32..5).prop_map(|(surge, unavailable)| {
            let ladder = Ladder::new(&share(10), &share(50), Replicas(10));
            Envelope::new(Some(Replicas(surge)), Some(Replicas(unavailable)), &ladder)
        })
    }

    /// Clones whose controllers have followed, with some pods still ending and some not available.
    fn a_clone() -> impl Strategy<Value = Crew> {
        (0u32..12, 0u32..12, 0u32..4).prop_map(|(number, starting, going)| Crew {
            number,
            unseen: VecDeque::new(),
            starting: starting.min(number),
            ready: number.saturating_sub(starting),
            going,
        })
    }

    /// Lets `decide` and chance act by turns until nothing is left to do; every moment is held to the envelope. Returns
    /// how many writes that took.
    fn live(
        envelope: &Envelope,
        wanted: u32,
        pair: &mut Pair,
        chance: &[u8],
        decide: impl Fn(&Sides) -> Option<Counts>,
        held_below: bool,
    ) -> Result<u32, TestCaseError> {
        let most = envelope.most(Replicas(wanted)).0;
        let fewest = envelope.fewest(Replicas(wanted)).0;
        let mut writes = 0;
        let (mut there, mut ready) = (pair.counted(envelope.counting), pair.ready());
        let in_order = (0u8..6).cycle().take(4000);
        let mut idle = 0;
        let happenings = chance.iter().copied().chain(in_order).enumerate();
        for (number, what) in happenings {
            let happened = pair.happens(what);
            let decided = (what % 5 < 3 || idle > 6)
                .then(|| decide(&pair.sides()))
                .flatten();
            if let Some(next) = decided {
                pair.write(next);
                writes += 1;
            }
            idle = if happened || decided.is_some() {
                0
            } else {
                idle + 1
            };
            let now = (pair.counted(envelope.counting), pair.ready());
            prop_assert!(
                now.0 <= most.max(there),
                "{} pods of {most}: {pair:?}",
                now.0
            );
            if held_below {
                prop_assert!(
                    now.1 >= fewest.min(ready),
                    "{} available of {fewest}: {pair:?}",
                    now.1
                );
            }
            (there, ready) = now;
            if idle > 20 && number > chance.len() + 20 {
                break;
            }
        }
        Ok(writes)
    }

    proptest! {
        #[test]
        fn any_numbers_come_to_rest_inside_the_envelope(
            envelope in an_envelope(), wanted in 0u32..14, target in 0u32..14,
            canary in a_clone(), primary in a_clone(), chance in proptest::collection::vec(0u8..60, 0..200),
        ) {
            let target = target.min(wanted);
            let beyond = canary.number > target
                || canary.number + primary.number > envelope.most(Replicas(wanted)).0;
            let mut pair = Pair { canary, primary };
            let decide = |sides: &Sides| match balance(&envelope, Replicas(wanted), Replicas(target), sides) {
                Balance::Write(next) => Some(next),
                Balance::AwaitCanary | Balance::AwaitRoom | Balance::Reached => None,
            };
            let writes = live(&envelope, wanted, &mut pair, &chance, decide, !beyond)?;
            prop_assert_eq!((pair.canary.number, pair.primary.number), (target, wanted - target), "{:?}", pair);
            prop_assert!(writes <= 4 * (wanted + 12), "{} writes", writes);
            let at_rest = balance(&envelope, Replicas(wanted), Replicas(target), &pair.sides());
            prop_assert_eq!(at_rest, Balance::Reached);
        }

        #[test]
        fn any_rollout_is_taken_back_inside_the_envelope(
            envelope in an_envelope(), wanted in 0u32..14, haste in prop_oneof![Just(Haste::InStep), Just(Haste::AtOnce)],
            canary in a_clone(), primary in a_clone(), chance in proptest::collection::vec(0u8..60, 0..200),
        ) {
            let mut pair = Pair { canary, primary };
            let hasty = haste == Haste::AtOnce;
            let decide = |sides: &Sides| match retreat(&envelope, Replicas(wanted), haste, sides) {
                Retreat::Write(next) => Some(next),
                Retreat::AwaitPrimary | Retreat::AwaitRoom | Retreat::Done => None,
            };
            // Both numbers are written together where only living pods count (case K04).
            if hasty && envelope.counting == Counting::Alive {
                let first = decide(&pair.sides());
                let back = Counts { canary: Replicas::ZERO, primary: Replicas(wanted) };
                prop_assert!(first.is_none_or(|first| first == back));
                return Ok(());
            }
            live(&envelope, wanted, &mut pair, &chance, decide, !hasty)?;
            let at_rest = retreat(&envelope, Replicas(wanted), haste, &pair.sides());
            prop_assert_eq!(at_rest, Retreat::Done, "{:?}", pair);
        }
    }
}
