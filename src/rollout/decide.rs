//! The decision of one pass: who decides what, by phase.

use std::time::Duration;

use super::action::{Action, CloneRole, Orphan, Owner, replica_set_name, state_name};
use super::observation::{
    Deployment, Freshness, Life, Mark, Observation, Observed, Ready, ReplicaSet, Role, Rolling,
    StateObject, WallTime,
};
use super::plan::{Blocked, Event, Images, Next, Plan, Status, Stuck};
use super::replicas::{Envelope, Ladder, Side};
use super::state::{Elapsed, Failure, Motion, Order, Outcome, Phase, Rejection, Rewrite, State};
use super::template::{Template, TemplateHash};
use super::{Replicas, close, command, freeze, hand, open, promote, register, release, rest, step};
use crate::config::Service;

/// What the configuration wants of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Desired {
    /// It is registered, and may open a rollout when it is its turn.
    Managed(Turn),
    /// It has left the configuration.
    Released,
}

/// Whether a service may open a rollout now (`max-concurrent-rollouts`). What is open goes on without asking, and a
/// rollback never waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It may.
    Taken,
    /// It has not asked yet.
    Unasked,
    /// It waits.
    Waits {
        /// So many go first.
        ahead: usize,
        /// So many rollouts are open.
        open: usize,
    },
}

/// How much the opening of a rollout is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// It follows a version that failed, or a person has ordered it: it goes first.
    Fix,
    /// Any other.
    Ordinary,
}

/// Decides what to do about one service.
///
/// `since` is the time since the state in the observation was written, or first read by this process: timers go on from
/// what was persisted, so that time counts only while a daemon watches.
pub fn decide(
    service: &Service,
    desired: Desired,
    observation: &Observation,
    since: Duration,
) -> Plan {
    let Some(original) = &observation.original else {
        return Plan::wait(Status::Missing {
            deployment: service.deployment.clone(),
        });
    };
    if let Some(plan) = stand_back(original, observation).or_else(|| take_up(original, observation))
    {
        return plan;
    }
    let Some(object) = &observation.state else {
        if observation.primary.is_some() || observation.canary.is_some() {
            return observation.live(Plan::wait(Status::Blocked(Blocked::StateLost)));
        }
        return match desired {
            Desired::Managed(_) => register::begin(original, observation),
            Desired::Released => Plan {
                status: Status::Released,
                events: Vec::new(),
                next: Next::Done,
            },
        };
    };
    let state = match &object.state {
        Ok(state) => state.advanced(since),
        Err(problem) => {
            return Plan::wait(Status::Blocked(Blocked::StateUnreadable {
                problem: problem.clone(),
            }));
        }
    };
    Pass {
        service,
        desired: if state.leaving.is_some() {
            Desired::Released
        } else {
            desired
        },
        observation,
        original,
        object,
        state,
    }
    .decide()
}

/// Objects that are not ours to touch, or that belong to an earlier X and are still going.
fn stand_back(original: &Deployment, observation: &Observation) -> Option<Plan> {
    if original.life == Life::Deleting {
        return Some(Plan::wait(Status::Going));
    }
    let clones = [CloneRole::Primary, CloneRole::Canary].map(|clone| {
        let deployment = observation.deployment(clone.into())?;
        Some((
            clone.name(&original.name),
            "Deployment",
            deployment.mark,
            deployment.life,
            &deployment.owner,
        ))
    });
    let state = observation.state.as_ref().map(|state| {
        (
            state_name(&original.name),
            "PodTemplate",
            state.mark,
            state.life,
            &state.owner,
        )
    });
    let ours = clones
        .into_iter()
        .chain([state])
        .flatten()
        .collect::<Vec<_>>();
    if let Some((name, kind, ..)) = ours.iter().find(|(_, _, mark, ..)| *mark == Mark::Foreign) {
        return Some(Plan::wait(Status::Blocked(Blocked::NameTaken {
            kind,
            name: name.clone(),
        })));
    }
    let of_another_life = ours
        .iter()
        .any(|(.., owner)| owner.as_ref().is_some_and(|owner| *owner != original.uid));
    of_another_life.then(|| Plan::wait(Status::Going))
}

/// What has lost its owner, because X was deleted with `--cascade=orphan` and made again, or came back from a backup: it
/// belongs to the X of its name, if it can (case K44). X is paused first, or it starts pods beside those that run.
fn take_up(original: &Deployment, observation: &Observation) -> Option<Plan> {
    let clones = [CloneRole::Primary, CloneRole::Canary]
        .into_iter()
        .filter_map(|clone| observation.deployment(clone.into()))
        .filter(|clone| clone.owner.is_none());
    let clones: Vec<&Deployment> = clones.collect();
    let object = observation
        .state
        .as_ref()
        .filter(|object| object.owner.is_none());
    if clones.is_empty() && object.is_none() {
        return None;
    }
    let fits = |clone: &&Deployment| clone.rest.selector == original.rest.selector;
    let state_fits = observation
        .state
        .as_ref()
        .is_some_and(|object| original.rest.selects(&object.accepted));
    if !state_fits || !clones.iter().all(fits) {
        let name = clones.first().map(|clone| clone.name.clone());
        return Some(Plan::wait(Status::Blocked(Blocked::Orphaned {
            name: name.unwrap_or_else(|| state_name(&original.name)),
        })));
    }
    let pause = (original.rolling == Rolling::Unpaused).then(|| Action::Pause {
        name: original.name.clone(),
        uid: original.uid.clone(),
        resource_version: None,
    });
    let adopt = clones
        .iter()
        .map(|clone| Action::Adopt {
            what: Orphan::Clone,
            name: clone.name.clone(),
            uid: clone.uid.clone(),
            resource_version: clone.resource_version.clone(),
        })
        .chain(object.map(|object| Action::Adopt {
            what: Orphan::State,
            name: state_name(&original.name),
            uid: object.uid.clone(),
            resource_version: object.resource_version.clone(),
        }));
    let actions: Vec<Action> = pause.into_iter().chain(adopt).collect();
    let names = clones
        .iter()
        .map(|clone| clone.name.clone())
        .chain(object.map(|_| state_name(&original.name)))
        .collect();
    let plan = Plan::act(Status::Registering, actions).telling(Event::TakenUp { names });
    Some(observation.live(plan))
}

/// So many times X is found un-paused...
const FIGHT: usize = 3;

/// ...within so long before it is called a fight (design section 2, "X found un-paused").
const FIGHT_WITHIN: Duration = Duration::from_secs(600);

/// What is wanted of an open rollout from outside.
pub(super) enum Wish {
    /// The candidate that is being tried.
    Candidate,
    /// Another candidate.
    Other,
    /// None: the rollout ends like this.
    None(Outcome),
}

/// All that one pass over a registered service knows.
pub(super) struct Pass<'a> {
    pub service: &'a Service,
    pub desired: Desired,
    pub observation: &'a Observation,
    pub original: &'a Deployment,
    pub object: &'a StateObject,
    /// The state with its timers moved to this moment.
    pub state: State,
}

impl<'a> Pass<'a> {
    fn decide(&self) -> Plan {
        hand::tell(self, self.decide_by_phase())
    }

    fn decide_by_phase(&self) -> Plan {
        if let Some(plan) = self.await_deletions() {
            return plan;
        }
        if let Some(plan) = command::decide(self) {
            return plan;
        }
        match &self.state.phase {
            Phase::Registering => register::go_on(self),
            Phase::AtRest => rest::decide(self),
            Phase::Opening { candidate, elapsed } => open::decide(self, candidate, *elapsed),
            Phase::Stepping { candidate, step } => {
                step::decide(self, candidate, step, step::Kind::Checked)
            }
            Phase::Finishing { candidate, step } => {
                step::decide(self, candidate, step, step::Kind::Finishing)
            }
            Phase::Frozen {
                candidate,
                step,
                failure,
            } => freeze::decide(self, candidate, step, failure),
            Phase::Replacing {
                candidate,
                step,
                elapsed,
            } => freeze::replace(self, candidate, step, *elapsed),
            Phase::HandingOver { candidate, elapsed } => promote::decide(self, candidate, *elapsed),
            Phase::Closing { outcome, elapsed } => close::decide(self, outcome, *elapsed),
            Phase::Releasing => release::go_on(self),
        }
    }

    /// What is being deleted is waited for: its name will be free, and what it owned is judged then.
    fn await_deletions(&self) -> Option<Plan> {
        let clones = [Role::Primary, Role::Canary]
            .into_iter()
            .filter_map(|role| self.deployment(role));
        let going = clones
            .map(|clone| clone.life)
            .chain([self.object.life])
            .any(|life| life == Life::Deleting);
        going.then(|| {
            Plan::wait(match &self.state.phase {
                Phase::Closing { outcome, .. } => Status::Closing {
                    outcome: outcome.clone(),
                },
                Phase::Registering
                | Phase::AtRest
                | Phase::Opening { .. }
                | Phase::Stepping { .. }
                | Phase::Finishing { .. }
                | Phase::Frozen { .. }
                | Phase::Replacing { .. }
                | Phase::HandingOver { .. }
                | Phase::Releasing => Status::Going,
            })
        })
    }

    /// R.
    pub fn wanted(&self) -> Replicas {
        self.original.replicas
    }

    /// The steps for R.
    pub fn ladder(&self) -> Ladder {
        Ladder::of(self.service, self.wanted())
    }

    /// How far the clones' pods may stray from R.
    pub fn envelope(&self) -> Envelope {
        Envelope::of(self.service, &self.ladder())
    }

    pub fn accepted(&self) -> &'a Template {
        &self.object.accepted
    }

    pub fn deployment(&self, role: Role) -> Option<&'a Deployment> {
        self.observation.deployment(role)
    }

    /// Makes an empty ReplicaSet of a template for a Deployment; always the same one again in the same rollout.
    pub fn create_set(
        &self,
        template: &Template,
        owner: &Deployment,
        replicas: Replicas,
    ) -> Action {
        let hash = template.hash_in_rollout(self.state.rollout);
        Action::CreateReplicaSet {
            name: replica_set_name(&self.original.name, &hash),
            hash,
            template: template.clone(),
            replicas,
            rest: self.original.rest.clone(),
            owner: Owner::Deployment {
                name: owner.name.clone(),
                uid: owner.uid.clone(),
            },
        }
    }

    /// Goes to another phase.
    pub fn enter(&self, phase: Phase) -> Action {
        self.write(self.state.in_phase(phase), None)
    }

    /// Writes the state, and the accepted template where it changes.
    pub fn write(&self, state: State, accepted: Option<Template>) -> Action {
        Action::WriteState {
            resource_version: self.object.resource_version.clone(),
            state: Box::new(self.noting_ahead(state)),
            accepted,
            answer: None,
        }
    }

    /// The state with what lies ahead of it, for people to read.
    pub fn noting_ahead(&self, state: State) -> State {
        let ahead = match &state.phase {
            Phase::Opening { candidate, .. } if state.bypass_of(candidate).is_none() => {
                Some(step::ahead(self.service, self.wanted(), None))
            }
            Phase::Stepping { step, .. } => {
                Some(step::ahead(self.service, self.wanted(), Some(step)))
            }
            Phase::Opening { .. }
            | Phase::Registering
            | Phase::AtRest
            | Phase::Finishing { .. }
            | Phase::Frozen { .. }
            | Phase::Replacing { .. }
            | Phase::HandingOver { .. }
            | Phase::Closing { .. }
            | Phase::Releasing => None,
        };
        State { ahead, ..state }
    }

    /// The state with the order that X gets another template than it has now.
    pub fn rewriting(&self, with: Rewrite) -> State {
        State {
            order: Some(Order::Rewrite {
                with,
                instead_of: self.original.template.hash(),
            }),
            ..self.state.clone()
        }
    }

    /// The state in which nothing is ordered any more: what was ordered of the open rollout ends with it.
    fn without_bypass(&self) -> State {
        let mut state = self.state.clone();
        state.order = state
            .order
            .filter(|order| matches!(order, Order::Rewrite { .. }));
        state
    }

    /// Ends the open rollout. One that begins again is still what a person has ordered.
    pub fn close(&self, outcome: Outcome) -> Plan {
        let order = self.state.order.as_ref();
        let begins_again = matches!(outcome, Outcome::Interrupted { .. });
        let state = if begins_again && order.is_some_and(Order::is_a_persons) {
            self.state.clone()
        } else {
            self.without_bypass()
        };
        let state = state.in_phase(Phase::Closing {
            outcome: outcome.clone(),
            elapsed: Elapsed::ZERO,
        });
        Plan {
            status: Status::Closing {
                outcome: outcome.clone(),
            },
            events: vec![Event::Ended {
                outcome: outcome.clone(),
            }],
            next: Next::Act(vec![self.write(state, None)]),
        }
    }

    /// Ends the open rollout because something it needs is gone, if a live look says so too: it begins again.
    pub fn interrupt(&self, what: String) -> Plan {
        self.observation
            .live(self.close(Outcome::Interrupted { what }))
    }

    /// Ends the open rollout because the candidate failed, and remembers it.
    pub fn reject(
        &self,
        candidate: &TemplateHash,
        canary: &Deployment,
        set: Option<&ReplicaSet>,
        failure: Failure,
    ) -> Plan {
        let (state, event) = self.rejected(candidate, &canary.template, set, failure);
        Plan {
            status: Status::Closing {
                outcome: Outcome::RolledBack,
            },
            events: vec![event],
            next: Next::Act(vec![self.write(state, None)]),
        }
    }

    /// The state in which this candidate is rejected and rolled back, and what is told of it.
    pub fn rejected(
        &self,
        candidate: &TemplateHash,
        template: &Template,
        set: Option<&ReplicaSet>,
        failure: Failure,
    ) -> (State, Event) {
        let mut state = self.without_bypass().in_phase(Phase::Closing {
            outcome: Outcome::RolledBack,
            elapsed: Elapsed::ZERO,
        });
        state.rejected = Some(Rejection {
            candidate: candidate.clone(),
            replica_set: set.map(|set| set.name.clone()),
            images: images(template).0,
            failure: failure.clone(),
        });
        let available = self
            .accepted_set()
            .map_or(Replicas::ZERO, |set| set.available);
        let event = Event::Failed {
            failure,
            replicas: self.wanted(),
            available,
        };
        (state, event)
    }

    /// Whether X still asks for the candidate that is being tried. Hashes first: they hold even where a webhook changed
    /// the canary (design section 3, fact 14); templates next: they hold where an upgrade of Kubernetes added defaults.
    pub fn asks_for(&self, candidate: &TemplateHash) -> bool {
        self.original.template.hash() == *candidate
            || self
                .observation
                .canary
                .as_ref()
                .is_some_and(|canary| canary.template == self.original.template)
    }

    /// What ends an open rollout from outside: the entry is gone, or X asks for another template.
    pub fn interruption(&self, candidate: &TemplateHash) -> Option<Plan> {
        match self.wish(candidate) {
            Wish::Candidate => None,
            Wish::None(outcome) => Some(self.close(outcome)),
            Wish::Other => Some(self.close(Outcome::Superseded)),
        }
    }

    /// What is wanted of the open rollout from outside.
    pub fn wish(&self, candidate: &TemplateHash) -> Wish {
        let opening = matches!(self.state.phase, Phase::Opening { .. });
        let stands_still = self.state.motion == Motion::Held && !opening;
        if self.desired == Desired::Released {
            Wish::None(Outcome::Released)
        } else if stands_still || self.asks_for(candidate) {
            Wish::Candidate
        } else if self.original.template == *self.accepted() {
            Wish::None(Outcome::Cancelled)
        } else {
            Wish::Other
        }
    }

    /// Pauses whatever was found un-paused: first of all things, in every phase but release.
    pub fn repause(&self, status: Status) -> Option<Plan> {
        self.repause_any(&[Role::Original, Role::Primary, Role::Canary], status)
    }

    /// Pauses those of these that were found un-paused.
    pub fn repause_any(&self, roles: &[Role], status: Status) -> Option<Plan> {
        let unpaused: Vec<&Deployment> = roles
            .iter()
            .copied()
            .filter_map(|role| self.deployment(role))
            .filter(|deployment| deployment.rolling == Rolling::Unpaused)
            .collect();
        if unpaused.is_empty() {
            return None;
        }
        let event = |deployment: &&Deployment| Event::Repaused {
            deployment: deployment.name.clone(),
        };
        // A canary of two versions was un-paused by Volery itself, to replace what was frozen.
        let is_mixed = |deployment: &Deployment| {
            self.deployment(Role::Canary)
                .is_some_and(|canary| canary.uid == deployment.uid)
                && self.observation.replica_sets_of(&deployment.uid).count() > 1
        };
        let pause = |deployment: &&Deployment| {
            if is_mixed(deployment) {
                return freeze::stop_rolling(deployment);
            }
            Action::Pause {
                name: deployment.name.clone(),
                uid: deployment.uid.clone(),
                resource_version: None,
            }
        };
        let mut actions: Vec<Action> = unpaused.iter().map(pause).collect();
        if self.original.rolling == Rolling::Unpaused {
            let mut state = self.state.clone();
            state.repaused.push(self.observation.at);
            let surplus = state.repaused.len().saturating_sub(FIGHT);
            state.repaused.drain(..surplus);
            actions.push(self.write(state, None));
        }
        Some(Plan {
            status,
            events: unpaused
                .iter()
                .filter(|deployment| !is_mixed(deployment))
                .map(event)
                .collect(),
            next: Next::Act(actions),
        })
    }

    /// How much longer X must stay paused before a rollout opens again, if something un-pauses it time and again: a
    /// manifest does not give in (case K40).
    pub fn fight(&self) -> Option<Duration> {
        let [first, .., last] = self.state.repaused.as_slice() else {
            return None;
        };
        let fought = self.state.repaused.len() >= FIGHT && last.since(*first) <= FIGHT_WITHIN;
        let quiet = self.observation.at.since(*last);
        (fought && quiet < FIGHT_WITHIN).then(|| FIGHT_WITHIN - quiet)
    }

    /// Removes ReplicaSets that X must not own while a rollout is open: all of them (design section 2, "X found
    /// un-paused"). Only after the pause has been observed, and on a live look (facts 4 and 15).
    pub fn clear_original(&self, status: Status) -> Option<Plan> {
        let strays: Vec<&ReplicaSet> = self
            .observation
            .replica_sets_of(&self.original.uid)
            .collect();
        if strays.is_empty() {
            return None;
        }
        if self.original.observed == Observed::NotYet {
            return Some(Plan::wait(status));
        }
        Some(self.observation.live(Plan {
            status,
            events: vec![Event::Removed {
                replica_sets: strays.iter().map(|set| set.name.clone()).collect(),
            }],
            next: Next::Act(strays.iter().map(|set| delete(set)).collect()),
        }))
    }

    /// Pods of a clone that are not terminating, by the more cautious of two witnesses. While a controller has not seen the
    /// last number written it may still start pods for the one before: any number is possible.
    pub fn alive(&self, clone: &Deployment) -> Replicas {
        let mut sets = self.observation.replica_sets_of(&clone.uid);
        if clone.observed == Observed::NotYet || sets.any(|set| set.observed == Observed::NotYet) {
            return Side::UNKNOWN;
        }
        let pods = self
            .observation
            .pods_of(&clone.uid)
            .filter(|pod| pod.is_alive())
            .count();
        let existing: u32 = self
            .observation
            .replica_sets_of(&clone.uid)
            .map(|set| set.existing.0)
            .sum();
        Replicas(u32::try_from(pods).unwrap_or(u32::MAX).max(existing))
    }

    /// A pod of these clones that should have ended a minute ago: nothing fails for it, but somebody should look.
    pub fn stuck(&self, clones: &[&Deployment]) -> Option<Stuck> {
        const LONG: i64 = 60;
        let now = self.observation.at.0;
        let mut pods = clones
            .iter()
            .flat_map(|clone| self.observation.pods_of(&clone.uid));
        let is_late = |ends_by: WallTime| now.saturating_sub(ends_by.0) > LONG;
        let pod = pods.find(|pod| pod.ends_by.is_some_and(is_late))?;
        Some(Stuck {
            namespace: self.service.namespace.clone(),
            pod: pod.name.clone(),
        })
    }

    /// A clone in numbers. Each is taken from the more cautious of two witnesses.
    pub fn side(&self, clone: &Deployment) -> Side {
        let count = |number: usize| Replicas(u32::try_from(number).unwrap_or(u32::MAX));
        let sum = |of: fn(&ReplicaSet) -> Replicas| {
            self.observation
                .replica_sets
                .iter()
                .filter(|set| set.owner == clone.uid)
                .map(of)
                .fold(Replicas::ZERO, Replicas::saturating_add)
        };
        let pods = || self.observation.pods_of(&clone.uid);
        let going = pods().filter(|pod| pod.life == Life::Deleting).count();
        let ready = pods()
            .filter(|pod| pod.is_alive() && pod.ready == Ready::Yes)
            .count();
        Side {
            number: clone.replicas,
            alive: self.alive(clone),
            going: count(going).max(sum(|set| set.terminating)),
            available: count(ready).min(sum(|set| set.available)),
        }
    }

    /// The ReplicaSet of the accepted version, wherever it is: the one that the state names, whatever was done to its
    /// template; else one of the accepted template, the one with most available pods, should there be twins.
    pub fn accepted_set(&self) -> Option<&'a ReplicaSet> {
        let is_named = |set: &ReplicaSet| self.state.accepted.as_ref() == Some(&set.uid);
        let owners = [Role::Primary, Role::Original];
        owners
            .into_iter()
            .filter_map(|role| self.deployment(role))
            .flat_map(|deployment| self.observation.replica_sets_of(&deployment.uid))
            .filter(|set| is_named(set) || set.template == *self.accepted())
            .first_max_by_key(|set| (is_named(set), set.available, set.existing, set.replicas))
    }
}

/// `max_by_key` that keeps the first of equals: the primary's ReplicaSet wins over a twin of X.
trait FirstMax: Iterator + Sized {
    fn first_max_by_key<K: Ord>(self, key: impl Fn(&Self::Item) -> K) -> Option<Self::Item> {
        self.fold(None, |best, item| match best {
            Some(best) if key(&best) >= key(&item) => Some(best),
            _ => Some(item),
        })
    }
}

impl<I: Iterator> FirstMax for I {}

/// Deletes a ReplicaSet.
pub(super) fn delete(set: &ReplicaSet) -> Action {
    Action::DeleteReplicaSet {
        name: set.name.clone(),
        uid: set.uid.clone(),
    }
}

/// The images of a template, for people.
pub(super) fn images(template: &Template) -> Images {
    Images(template.images().into_iter().map(str::to_owned).collect())
}

impl From<CloneRole> for Role {
    fn from(clone: CloneRole) -> Self {
        match clone {
            CloneRole::Primary => Self::Primary,
            CloneRole::Canary => Self::Canary,
        }
    }
}

impl Observation {
    /// The plan, if this observation is a live one; else the demand for one. To wait needs no proof.
    pub(super) fn live(&self, plan: Plan) -> Plan {
        if matches!(plan.next, Next::Wait(_)) {
            return plan;
        }
        match self.freshness {
            Freshness::Live => plan,
            Freshness::Cached => Plan {
                status: plan.status,
                events: Vec::new(),
                next: Next::LookLive,
            },
        }
    }
}

impl Plan {
    /// Wait until something changes.
    pub(super) fn wait(status: Status) -> Self {
        Self {
            status,
            events: Vec::new(),
            next: Next::Wait(None),
        }
    }

    /// Wait until something changes, at most this long.
    pub(super) fn wait_for(status: Status, at_most: Duration) -> Self {
        Self {
            status,
            events: Vec::new(),
            next: Next::Wait(Some(at_most)),
        }
    }

    /// Carry out these.
    pub(super) fn act(status: Status, actions: Vec<Action>) -> Self {
        Self {
            status,
            events: Vec::new(),
            next: Next::Act(actions),
        }
    }

    /// The same plan, with something that is done before all else of it.
    pub(super) fn after(mut self, first: Action) -> Self {
        if let Next::Act(actions) = &mut self.next {
            actions.insert(0, first);
        }
        self
    }

    /// The same plan, with something to tell.
    pub(super) fn telling(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }
}
