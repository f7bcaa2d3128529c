//! One step of an open rollout: canary up, primary down, settle, warm up, check; past the breakpoint without checks.

use std::time::Duration;

use super::Replicas;
use super::action::{Action, CloneRole};
use super::decide::{Pass, images};
use super::freeze::let_shrink;
use super::handover::scale;
use super::judge;
use super::observation::{Deployment, Life, Observed, Pod, Ready, ReplicaSet, Role, Rolling};
use super::open::create_primary;
use super::plan::{Event, Next, Plan, Position, Status};
use super::replicas::{Balance, Counting, Counts, Envelope, Ladder, Side, Sides, balance};
use super::state::{Ahead, Cause, Checks, Elapsed, Failure, Motion, Phase, Stage, Step};
use super::template::TemplateHash;
use crate::analysis::{PodName, Pods};
use crate::config::{Bound, OnFailure, Service, display_duration};

/// Whether a step is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Up to the breakpoint.
    Checked,
    /// Past it.
    Finishing,
}

/// An open rollout in one of its steps, with everything in its place.
pub(super) struct Stand<'a> {
    pub pass: &'a Pass<'a>,
    pub candidate: &'a TemplateHash,
    pub step: &'a Step,
    pub kind: Kind,
    pub ladder: Ladder,
    pub envelope: Envelope,
    pub primary: &'a Deployment,
    pub canary: &'a Deployment,
    /// The candidate's ReplicaSet.
    pub set: &'a ReplicaSet,
}

pub(super) fn decide(pass: &Pass<'_>, candidate: &TemplateHash, step: &Step, kind: Kind) -> Plan {
    match stand(pass, candidate, step, kind) {
        Ok(stand) => stand.decide(),
        Err(plan) => *plan,
    }
}

/// Puts everything in its place that an open rollout needs, or says how it is put there.
pub(super) fn stand<'a>(
    pass: &'a Pass<'a>,
    candidate: &'a TemplateHash,
    step: &'a Step,
    kind: Kind,
) -> Result<Stand<'a>, Box<Plan>> {
    let status = Status::Raising {
        at: position(pass, step, kind),
        counts: Counts {
            canary: step.canary,
            primary: pass.wanted().saturating_sub(step.canary),
        },
        abort: pass.service.abort,
    };
    if let Some(plan) = pass
        .repause(status.clone())
        .or_else(|| pass.interruption(candidate))
    {
        return Err(Box::new(plan));
    }
    in_place(pass, candidate, step, kind, &status)
}

/// The same where X's template and the pauses have been dealt with.
pub(super) fn in_place<'a>(
    pass: &'a Pass<'a>,
    candidate: &'a TemplateHash,
    step: &'a Step,
    kind: Kind,
    status: &Status,
) -> Result<Stand<'a>, Box<Plan>> {
    let Clones { primary, canary } = clones(pass, status)?;
    let set = candidate_set(pass, canary).ok_or_else(|| without_canary(pass))?;
    let ladder = pass.ladder();
    Ok(Stand {
        pass,
        candidate,
        step,
        kind,
        ladder,
        envelope: Envelope::of(pass.service, &ladder),
        primary,
        canary,
        set,
    })
}

/// Both clones of an open rollout, the accepted version on the primary.
#[derive(Clone, Copy)]
pub(super) struct Clones<'a> {
    pub primary: &'a Deployment,
    pub canary: &'a Deployment,
}

/// Finds both clones, with X owning nothing and the primary owning the accepted version, or says how that is brought
/// about.
pub(super) fn clones<'a>(pass: &Pass<'a>, status: &Status) -> Result<Clones<'a>, Box<Plan>> {
    let accepted = pass.accepted_set();
    if accepted.is_some_and(|set| set.owner == pass.original.uid) {
        // Orphaned by the primary's deletion, X has adopted it (design section 3, fact 16): it is no stray.
        let what = format!(
            "{} has taken the accepted version's pods back",
            pass.original.name
        );
        return Err(Box::new(pass.interrupt(what)));
    }
    if let Some(plan) = pass.clear_original(status.clone()) {
        return Err(Box::new(plan));
    }
    let canary = pass
        .deployment(Role::Canary)
        .filter(|canary| {
            pass.observation
                .replica_sets_of(&canary.uid)
                .next()
                .is_some()
        })
        .ok_or_else(|| without_canary(pass))?;
    // The accepted version's pods are gone with their Deployment: bring them back at once, never from X (case K09).
    let restored = |action: Action| {
        let event = Event::Restored {
            images: images(pass.accepted()),
        };
        Box::new(
            pass.observation
                .live(Plan::act(status.clone(), vec![action]).telling(event)),
        )
    };
    let Some(primary) = pass.deployment(Role::Primary) else {
        return Err(restored(create_primary(
            pass,
            pass.wanted().saturating_sub(canary.replicas),
        )));
    };
    if pass
        .observation
        .replica_sets_of(&primary.uid)
        .next()
        .is_none()
    {
        return Err(restored(pass.create_set(
            pass.accepted(),
            primary,
            Replicas::ZERO,
        )));
    }
    Ok(Clones { primary, canary })
}

fn without_canary(pass: &Pass<'_>) -> Box<Plan> {
    let what = "the canary was deleted".to_owned();
    Box::new(pass.interrupt(what))
}

/// The ReplicaSet that the canary runs.
pub(super) fn candidate_set<'a>(pass: &Pass<'a>, canary: &Deployment) -> Option<&'a ReplicaSet> {
    pass.observation
        .replica_sets
        .iter()
        .filter(|set| {
            set.owner == canary.uid && set.life == Life::Alive && set.template == canary.template
        })
        .max_by_key(|set| (set.existing, set.replicas))
}

/// How many checked steps there are. At R = 0 the step is still one of those that R had (case K30).
fn checked_steps(service: &Service, wanted: Replicas, step: &Step) -> u32 {
    let wanted = match wanted {
        Replicas::ZERO => step.wanted,
        wanted => wanted,
    };
    let ladder = Ladder::of(service, wanted);
    ladder.checked_steps().max(step.number)
}

fn position(pass: &Pass<'_>, step: &Step, kind: Kind) -> Position {
    match kind {
        Kind::Checked => Position::Checked {
            number: step.number,
            of: checked_steps(pass.service, pass.wanted(), step),
        },
        Kind::Finishing => Position::Finishing,
    }
}

/// What lies ahead of a rollout that is in this step, or in none yet.
pub(super) fn ahead(service: &Service, wanted: Replicas, step: Option<&Step>) -> Ahead {
    let each = service
        .start_delay
        .saturating_add(service.max_step_duration);
    let Some(step) = step else {
        let of = Ladder::of(service, wanted).checked_steps();
        return Ahead {
            of,
            at_least: each.saturating_mul(of).into(),
        };
    };
    let of = checked_steps(service, wanted, step);
    let done = match step.stage {
        Stage::Sleeping | Stage::MakingRoom | Stage::Raising { .. } | Stage::Settling => {
            step.checks.elapsed.duration()
        }
        Stage::WarmingUp { elapsed } => elapsed.duration() + step.checks.elapsed.duration(),
        Stage::Checking => service.start_delay + step.checks.elapsed.duration(),
    };
    let after = each.saturating_mul(of - step.number);
    Ahead {
        of,
        at_least: each.saturating_sub(done).saturating_add(after).into(),
    }
}

impl<'a> Stand<'a> {
    pub fn at(&self) -> Position {
        position(self.pass, self.step, self.kind)
    }

    fn wanted(&self) -> Replicas {
        self.ladder.wanted()
    }

    /// The canary's number in this step for the present R.
    pub fn target(&self) -> Replicas {
        self.step.canary.min(self.wanted())
    }

    fn goal(&self) -> Counts {
        Counts {
            canary: self.target(),
            primary: self.wanted().saturating_sub(self.target()),
        }
    }

    /// The canary's pods that are neither on their way out nor over.
    pub fn canary_pods(&self) -> impl Iterator<Item = &'a Pod> + use<'a> {
        let uid = self.set.uid.clone();
        self.pass
            .observation
            .pods
            .iter()
            .filter(move |pod| pod.owner == uid && pod.is_alive())
    }

    /// The live pods that a check begins with, by role (case K59).
    fn asked_about(&self) -> Pods {
        // The API server's names always are names.
        let names = |pods: &mut dyn Iterator<Item = &Pod>| {
            pods.filter_map(|pod| PodName::new(&pod.name).ok())
                .collect()
        };
        let observation = self.pass.observation;
        let of_primary = |pod: &&Pod| {
            observation
                .replica_sets
                .iter()
                .any(|set| set.uid == pod.owner && set.owner == self.primary.uid)
        };
        Pods {
            canary: names(&mut self.canary_pods()),
            primary: names(
                &mut observation
                    .pods
                    .iter()
                    .filter(|pod| pod.is_alive())
                    .filter(of_primary),
            ),
        }
    }

    /// Available canary pods, by the more cautious of two witnesses that may both be behind.
    pub fn available(&self) -> Replicas {
        let ready = self
            .canary_pods()
            .filter(|pod| pod.ready == Ready::Yes)
            .count();
        self.set
            .available
            .min(Replicas(u32::try_from(ready).unwrap_or(u32::MAX)))
    }

    /// What X says beside template and number holds for the clones at once, and starts no rollout (case K34).
    fn sync(&self) -> Option<Plan> {
        let rest = &self.pass.original.rest;
        let actions: Vec<Action> = [
            (CloneRole::Primary, self.primary),
            (CloneRole::Canary, self.canary),
        ]
        .into_iter()
        .filter(|(_, deployment)| !deployment.rest.agrees_with(rest))
        .map(|(clone, deployment)| Action::Sync {
            clone,
            uid: deployment.uid.clone(),
            rest: rest.clone(),
        })
        .collect();
        (!actions.is_empty()).then(|| Plan::act(self.raising(), actions))
    }

    fn decide(&self) -> Plan {
        if let Some(plan) = self.sync() {
            return plan;
        }
        if self.wanted() == Replicas::ZERO {
            return self.sleep();
        }
        if self.pass.state.motion == Motion::Held {
            return self.stand_still();
        }
        if self.step.wanted == Replicas::ZERO {
            return self.begin();
        }
        if self.step.stage == Stage::Sleeping {
            return self.write(Stage::RAISING);
        }
        if self.wanted() < self.step.wanted {
            return self.shrink();
        }
        let sides = self.sides();
        match balance(&self.envelope, self.wanted(), self.target(), &sides) {
            Balance::Write(next) => self.write_numbers(&sides, next),
            Balance::AwaitCanary => self.without_canary(&sides),
            Balance::AwaitRoom => self.without_room(&sides),
            Balance::Reached => self.go_on(),
        }
    }

    /// On hold: only R is followed.
    fn stand_still(&self) -> Plan {
        // Where R was 0 the step's number comes back with R; a canary that was still waiting for room waits on.
        let canary = match self.step.stage {
            Stage::Sleeping => self.step.canary,
            Stage::Raising { .. }
            | Stage::MakingRoom
            | Stage::Settling
            | Stage::WarmingUp { .. }
            | Stage::Checking => self.step.canary.min(self.canary.replicas),
        };
        let status = Status::Held {
            at: Some((self.at(), self.standing(canary))),
            deployment: self.pass.original.name.clone(),
        };
        self.keep(canary, status)
    }

    fn sides(&self) -> Sides {
        Sides {
            canary: Side {
                available: self.available(),
                ..self.pass.side(self.canary)
            },
            primary: self.pass.side(self.primary),
        }
    }

    /// Canary pods are missing.
    fn without_canary(&self, sides: &Sides) -> Plan {
        match self.step.stage {
            Stage::Raising { elapsed } => self.await_canary(elapsed),
            // Room is on its way, and with it the time for pods that are missing begins anew.
            Stage::MakingRoom if self.going(sides) > Replicas::ZERO => {
                Plan::wait(self.status(Stage::MakingRoom))
            }
            Stage::MakingRoom => self.write(Stage::RAISING),
            Stage::Sleeping | Stage::Settling | Stage::WarmingUp { .. } | Stage::Checking => {
                self.go_on()
            }
        }
    }

    /// Pods must end before others may start.
    fn without_room(&self, sides: &Sides) -> Plan {
        if self.step.stage == Stage::MakingRoom {
            return Plan::wait(self.status(Stage::MakingRoom));
        }
        match self.envelope.counting() {
            // Pods that are not terminating are gone in a moment: no stage of its own.
            Counting::Alive => Plan::wait(self.raising()),
            Counting::Existing if sides.canary.is_short() => self.without_canary(sides),
            // Only pods of the accepted version are missing: they follow as soon as there is room.
            Counting::Existing if sides.canary.number >= self.target() => self.go_on(),
            Counting::Existing
                if [sides.canary, sides.primary]
                    .map(|side| side.alive)
                    .contains(&Side::UNKNOWN) =>
            {
                Plan::wait(self.status(self.step.stage))
            }
            Counting::Existing => self.write(Stage::MakingRoom),
        }
    }

    /// How many pods have to end before the canary has room.
    fn going(&self, sides: &Sides) -> Replicas {
        let there = self
            .pass
            .observation
            .pods_of(&self.primary.uid)
            .filter(|pod| pod.is_there())
            .count();
        let there = Replicas(u32::try_from(there).unwrap_or(u32::MAX));
        there
            .saturating_sub(sides.primary.number)
            .saturating_add(sides.canary.going)
    }

    /// R = 0: nothing runs and no time counts; the step and what it has found are kept (case K30).
    fn sleep(&self) -> Plan {
        let status = Status::Sleeping { at: self.at() };
        let mut actions = Vec::new();
        if self.step.stage != Stage::Sleeping {
            actions.push(self.enter(Step {
                stage: Stage::Sleeping,
                ..self.step.clone()
            }));
        }
        let now = Counts {
            canary: self.canary.replicas,
            primary: self.primary.replicas,
        };
        actions.extend(self.scales(
            now,
            Counts {
                canary: Replicas::ZERO,
                primary: Replicas::ZERO,
            },
        ));
        if actions.is_empty() {
            Plan::wait(status)
        } else {
            Plan::act(status, actions)
        }
    }

    /// R was 0 when the rollout opened, so the step has no number yet: it gets its share of the first R that there is.
    fn begin(&self) -> Plan {
        let canary = match self.kind {
            Kind::Checked => self.ladder.share_of_checked(self.step.number),
            Kind::Finishing => self.wanted(),
        };
        let step = Step::new(self.step.number, canary, self.wanted());
        Plan::act(self.raising(), vec![self.enter(step)])
    }

    /// R fell: the canary gets the step's share of the new R at most, and never gets the difference back in this step.
    fn shrink(&self) -> Plan {
        let share = match self.kind {
            Kind::Checked => self.ladder.share_of_checked(self.step.number),
            Kind::Finishing => self.wanted(),
        };
        let canary = self.step.canary.min(share).max(Replicas(1));
        let step = Step {
            canary,
            wanted: self.wanted(),
            ..self.step.clone()
        };
        Plan::act(self.raising(), vec![self.enter(step)])
    }

    fn raising(&self) -> Status {
        Status::Raising {
            at: self.at(),
            counts: self.goal(),
            abort: self.pass.service.abort,
        }
    }

    fn enter(&self, step: Step) -> Action {
        self.pass.enter(match self.kind {
            Kind::Checked => Phase::Stepping {
                candidate: self.candidate.clone(),
                step,
            },
            Kind::Finishing => Phase::Finishing {
                candidate: self.candidate.clone(),
                step,
            },
        })
    }

    /// Goes to another stage of the same step.
    fn write(&self, stage: Stage) -> Plan {
        let step = Step {
            stage,
            ..self.step.clone()
        };
        let status = self.status(stage);
        Plan::act(status, vec![self.enter(step)])
    }

    fn status(&self, stage: Stage) -> Status {
        let (at, counts, service) = (self.at(), self.goal(), self.pass.service);
        match stage {
            Stage::Sleeping => Status::Sleeping { at },
            Stage::Raising { .. } => self.raising(),
            Stage::MakingRoom => Status::MakingRoom {
                at,
                counts,
                going: self.going(&self.sides()),
                most: self.envelope.most(self.wanted()),
                stuck: self.pass.stuck(&[self.primary, self.canary]),
            },
            Stage::Settling => Status::Settling {
                at,
                counts,
                stuck: self.pass.stuck(&[self.primary]),
            },
            Stage::WarmingUp { .. } => Status::WarmingUp {
                at,
                counts,
                delay: service.start_delay,
            },
            Stage::Checking => Status::Checking {
                at,
                counts,
                duration: service.max_step_duration,
                interval: service.check_interval,
            },
        }
    }

    fn scales(&self, now: Counts, next: Counts) -> Vec<Action> {
        self.clones().scales(now, next)
    }

    fn write_numbers(&self, sides: &Sides, next: Counts) -> Plan {
        let now = sides.numbers();
        let is_short = sides.canary.is_short();
        let raises = next.canary > now.canary;
        let stage = if raises && (is_short || !matches!(self.step.stage, Stage::Raising { .. })) {
            // Pods that are asked for later than others have their own time.
            Stage::RAISING
        } else if !raises && !is_short && next.primary < now.primary && next.canary < self.target()
        {
            Stage::MakingRoom
        } else {
            self.step.stage
        };
        let mut actions = Vec::new();
        if stage != self.step.stage {
            actions.push(self.enter(Step {
                stage,
                ..self.step.clone()
            }));
        }
        actions.extend(self.scales(now, next));
        let status = if stage == Stage::MakingRoom {
            self.status(stage)
        } else {
            self.raising()
        };
        Plan::act(status, actions)
    }

    fn await_canary(&self, elapsed: Elapsed) -> Plan {
        let abort = self.pass.service.abort;
        if elapsed.duration() < abort {
            return Plan::wait_for(self.raising(), abort - elapsed.duration());
        }
        self.fail_unavailable()
    }

    /// The canary's pods were not available for as long as `abort` allows.
    pub fn fail_unavailable(&self) -> Plan {
        self.fail(self.unavailable())
    }

    /// Why that is a failure.
    pub fn unavailable(&self) -> Failure {
        let evidence = format!(
            "{} of {} canary pods available after {}{}",
            self.available(),
            self.canary.replicas,
            display_duration(self.pass.service.abort),
            self.why_not_available()
        );
        Failure {
            cause: Cause::NotAvailable,
            evidence,
        }
    }

    /// What the first canary pod that is not ready says of itself.
    fn why_not_available(&self) -> String {
        if let Some(failure) = &self.set.failure {
            return format!("; ReplicaSet {}: {failure}", self.set.name);
        }
        // Where each node takes one, no pod can come before another goes (case K39).
        let hint = if self.pass.service.max_surge == Some(Bound::Zero) {
            ""
        } else {
            "; max_surge: 0 lets pods of the running version go first"
        };
        let reason = |pod: &Pod| {
            let container = pod.containers.iter().find_map(|container| {
                let waiting = container
                    .waiting
                    .as_ref()
                    .map(|waiting| format!("{} waits: {waiting}", container.name));
                let ended = container
                    .last_end
                    .as_ref()
                    .map(|end| format!("{} ended: {end}", container.name));
                match (waiting, ended) {
                    (Some(waiting), Some(ended)) => Some(format!("{waiting} ({ended})")),
                    (waiting, ended) => waiting.or(ended),
                }
            });
            let scheduler = pod.unschedulable.as_ref().map(|message| {
                format!(
                    "cannot be scheduled: {}{hint}",
                    message.trim_end_matches('.')
                )
            });
            container.or(scheduler)
        };
        let waiting: Vec<&Pod> = self
            .canary_pods()
            .filter(|pod| pod.ready == Ready::No)
            .collect();
        let told = waiting
            .iter()
            .find_map(|pod| Some(format!("; {}: {}", pod.name, reason(pod)?)));
        told.or_else(|| {
            waiting
                .first()
                .map(|pod| format!("; {}: running but not ready", pod.name))
        })
        .unwrap_or_default()
    }

    /// The numbers stand: go on to the next stage that is not yet over.
    fn go_on(&self) -> Plan {
        if self.kind == Kind::Finishing {
            return self.finish();
        }
        let service = self.pass.service;
        let stage = match self.step.stage {
            Stage::Sleeping | Stage::Raising { .. } | Stage::MakingRoom | Stage::Settling
                if !self.settled() =>
            {
                Stage::Settling
            }
            Stage::Sleeping | Stage::Raising { .. } | Stage::MakingRoom | Stage::Settling
                if service.start_delay.is_zero() =>
            {
                Stage::Checking
            }
            Stage::Sleeping | Stage::Raising { .. } | Stage::MakingRoom | Stage::Settling => {
                Stage::WarmingUp {
                    elapsed: Elapsed::ZERO,
                }
            }
            Stage::WarmingUp { elapsed } if elapsed.duration() >= service.start_delay => {
                Stage::Checking
            }
            Stage::WarmingUp { elapsed } => {
                let status = self.status(self.step.stage);
                return Plan::wait_for(status, service.start_delay - elapsed.duration());
            }
            Stage::Checking => {
                let status = self.status(Stage::Checking);
                if let Some(plan) = judge::at_once(self, &status) {
                    return plan;
                }
                let rest = match self.step.checks.since_last {
                    Some(since) => service.check_interval.saturating_sub(since.duration()),
                    None => Duration::ZERO,
                };
                if rest > Duration::ZERO {
                    return Plan::wait_for(status, rest);
                }
                return Plan {
                    status,
                    events: Vec::new(),
                    next: Next::Check(self.asked_about()),
                };
            }
        };
        if stage == self.step.stage {
            Plan::wait(self.status(stage))
        } else {
            self.write(stage)
        }
    }

    /// Whether the primary's removed pods no longer exist, terminating ones included (case K18).
    fn settled(&self) -> bool {
        // An evicted pod stays as a record for ever and is not waited for.
        let existing = self
            .pass
            .observation
            .pods_of(&self.primary.uid)
            .filter(|pod| pod.is_there())
            .count();
        self.primary.observed == Observed::Yes
            && self.pass.alive(self.primary) <= self.primary.replicas
            && u32::try_from(existing).unwrap_or(u32::MAX) <= self.primary.replicas.0
    }

    /// A step without checks is over when its numbers are reached.
    fn finish(&self) -> Plan {
        if self.pass.alive(self.primary) > self.primary.replicas
            || self.primary.observed == Observed::NotYet
        {
            return Plan::wait(self.raising());
        }
        self.next_step(Vec::new())
    }

    /// The step has done its work: the next one, or the promotion.
    pub fn next_step(&self, mut events: Vec<Event>) -> Plan {
        let canary = self.target();
        let next = |canary: Replicas| Step {
            checks: self.step.checks.of_next_step(),
            ..Step::new(self.step.number.saturating_add(1), canary, self.wanted())
        };
        let candidate = self.candidate.clone();
        let phase = if self.kind == Kind::Checked && canary < self.ladder.breakpoint() {
            Phase::Stepping {
                candidate,
                step: next(self.ladder.next_checked(canary)),
            }
        } else {
            if self.kind == Kind::Checked {
                events.push(Event::Trusted { canary });
            }
            if canary < self.wanted() {
                Phase::Finishing {
                    candidate,
                    step: next(self.ladder.next_unchecked(canary)),
                }
            } else {
                Phase::HandingOver {
                    candidate,
                    elapsed: Elapsed::ZERO,
                }
            }
        };
        Plan {
            status: self.status(self.step.stage),
            events,
            next: Next::Act(vec![self.pass.enter(phase)]),
        }
    }

    /// The same stage with other findings.
    pub fn with_checks(&self, checks: Checks) -> Action {
        self.enter(Step {
            checks,
            ..self.step.clone()
        })
    }

    /// The candidate failed.
    pub fn fail(&self, failure: Failure) -> Plan {
        match self.pass.service.on_failure {
            OnFailure::RollBack => {
                self.pass
                    .reject(self.candidate, self.canary, Some(self.set), failure)
            }
            OnFailure::Freeze => self.freeze(failure),
        }
    }

    /// Keeps the clones where they are, whatever is done to them, with `canary` pods of the candidate: only R is followed
    /// (design section 2, "R changes while open").
    pub fn keep(&self, canary: Replicas, status: Status) -> Plan {
        self.clones()
            .follow(self.pass, self.standing(canary), &status)
            .unwrap_or_else(|| Plan::wait(status))
    }

    /// The numbers of a rollout that does not move.
    pub fn standing(&self, canary: Replicas) -> Counts {
        self.clones().standing(self.pass, canary)
    }

    fn clones(&self) -> Clones<'a> {
        Clones {
            primary: self.primary,
            canary: self.canary,
        }
    }
}

impl Clones<'_> {
    fn counts(&self) -> Counts {
        Counts {
            canary: self.canary.replicas,
            primary: self.primary.replicas,
        }
    }

    /// The numbers of a rollout that does not move: what R gains goes to the accepted version, what it loses is taken
    /// from it first. A primary that stands in for canary pods which are not available goes on doing so, within the
    /// envelope (promise 3).
    pub fn standing(&self, pass: &Pass<'_>, canary: Replicas) -> Counts {
        let available = self.available(pass);
        let wanted = pass.wanted();
        let canary = canary.min(wanted);
        let settled = wanted.saturating_sub(canary);
        let most = pass.envelope().most(wanted).saturating_sub(canary);
        let stands_in = wanted.saturating_sub(available.min(canary)).min(most);
        Counts {
            canary,
            primary: self.primary.replicas.min(stands_in).max(settled),
        }
    }

    /// Available canary pods of whatever version, by the more cautious of two witnesses.
    fn available(&self, pass: &Pass<'_>) -> Replicas {
        let seen = &pass.observation;
        let told = seen
            .replica_sets_of(&self.canary.uid)
            .map(|set| set.available.0)
            .fold(0, u32::saturating_add);
        let ready = seen
            .pods_of(&self.canary.uid)
            .filter(|pod| pod.is_alive() && pod.ready == Ready::Yes)
            .count();
        Replicas(u32::try_from(ready).unwrap_or(u32::MAX).min(told))
    }

    /// Writes the numbers that differ.
    pub fn follow(&self, pass: &Pass<'_>, mut next: Counts, status: &Status) -> Option<Plan> {
        let now = self.counts();
        let is_mixed = self.is_mixed(pass);
        if next.canary > now.canary && is_mixed {
            // Two active ReplicaSets of a paused Deployment grow in proportion (design section 3, fact 1), and never is a
            // pod of the version that failed started again.
            next.canary = now.canary;
        }
        if next == now {
            return None;
        }
        // What was lowered may not be gone yet: the other side is raised as far as there is room (promise 3).
        let wanted = pass.wanted();
        let envelope = pass.envelope();
        let (canary, mut primary) = (pass.side(self.canary), pass.side(self.primary));
        if next.primary > now.primary {
            let room = envelope.room(wanted, &primary, &canary);
            next.primary = next.primary.min(room).max(now.primary);
            primary.number = next.primary;
        }
        if next.canary > now.canary {
            let room = envelope.room(wanted, &canary, &primary);
            next.canary = next.canary.min(room).max(now.canary);
        }
        if next == now {
            return Some(Plan::wait(status.clone()));
        }
        let mut actions = self.scales(now, next);
        let stays = self.canary.rolling == Rolling::Paused && self.canary.rest.recreates();
        if next.canary < now.canary && is_mixed && stays {
            actions.insert(0, let_shrink(self.canary));
        }
        Some(Plan::act(status.clone(), actions))
    }

    /// Whether the canary still has pods, or may get pods, of another version than its own.
    fn is_mixed(&self, pass: &Pass<'_>) -> bool {
        let mut others = pass
            .observation
            .replica_sets_of(&self.canary.uid)
            .filter(|set| set.template != self.canary.template)
            .peekable();
        others.peek().is_some()
            && (self.canary.observed == Observed::NotYet || others.any(|set| !set.is_empty()))
    }

    fn scales(&self, now: Counts, next: Counts) -> Vec<Action> {
        let mut actions = Vec::new();
        if next.primary < now.primary {
            actions.push(scale(CloneRole::Primary, self.primary, next.primary));
        }
        if next.canary != now.canary {
            actions.push(scale(CloneRole::Canary, self.canary, next.canary));
        }
        if next.primary > now.primary {
            actions.push(scale(CloneRole::Primary, self.primary, next.primary));
        }
        actions
    }
}
