//! Forward only (`on_failure: freeze`): what failed stands still until a person decides or the next template comes, which
//! replaces the canary in place: as many pods, never back to the accepted version.
//!
//! A frozen canary is the one Deployment that Kubernetes rolls by itself (design section 2, "Pausing"). When it is paused
//! amid that, its strategy becomes `Recreate`: by `RollingUpdate` a paused Deployment with two active ReplicaSets grows
//! both until its surge is used up (design section 3, fact 1), and no pod of the version that failed is started again.

use serde_json::{Value, json};

use super::Replicas;
use super::action::Action;
use super::decide::{Pass, Wish, delete, images};
use super::diff::TemplateDiff;
use super::observation::{Deployment, Observed, ReplicaSet, Role, Rolling};
use super::open::{Prepared, prepare_canary};
use super::plan::{Event, Images, Next, Plan, Position, Status};
use super::replicas::{Counting, Counts, Ladder};
use super::state::{Cause, Elapsed, Failure, Motion, Phase, State, Step};
use super::step::{Clones, Kind, Stand, candidate_set, clones, in_place};
use super::template::TemplateHash;

/// A frozen rollout: both clones keep their numbers.
pub(super) fn decide(
    pass: &Pass<'_>,
    candidate: &TemplateHash,
    step: &Step,
    failure: &Failure,
) -> Plan {
    let status = |counts| frozen(pass, step, counts, failure);
    let settled = settled(pass, step);
    if let Some(plan) = pass.repause(status(settled)) {
        return plan;
    }
    match pass.wish(candidate) {
        Wish::Candidate => {}
        Wish::Other => return take_on(pass, step, status(settled)),
        Wish::None(outcome) => return pass.close(outcome),
    }
    let stand = match in_place(pass, candidate, step, kind(pass, step), &status(settled)) {
        Ok(stand) => stand,
        Err(plan) => return *plan,
    };
    if let Some(step) = cut(pass, step) {
        let phase = Phase::Frozen {
            candidate: candidate.clone(),
            step,
            failure: failure.clone(),
        };
        return Plan::act(status(settled), vec![pass.enter(phase)]);
    }
    let counts = stand.standing(step.canary);
    stand.keep(step.canary, status(counts))
}

/// The numbers that stay where every canary pod is available.
fn settled(pass: &Pass<'_>, step: &Step) -> Counts {
    Counts {
        canary: step.canary.min(pass.wanted()),
        primary: pass.wanted().saturating_sub(step.canary),
    }
}

fn frozen(pass: &Pass<'_>, step: &Step, counts: Counts, failure: &Failure) -> Status {
    if pass.state.motion == Motion::Held {
        return held(pass, step, counts);
    }
    Status::Frozen {
        at: at(pass, step),
        counts,
        images: pass
            .deployment(Role::Canary)
            .map_or(Images(Vec::new()), |canary| images(&canary.template)),
        failure: Box::new(failure.clone()),
        deployment: pass.original.name.clone(),
    }
}

fn held(pass: &Pass<'_>, step: &Step, counts: Counts) -> Status {
    Status::Held {
        at: Some((at(pass, step), counts)),
        deployment: pass.original.name.clone(),
    }
}

/// R fell below the canary's number: it shrinks, and does not grow back.
fn cut(pass: &Pass<'_>, step: &Step) -> Option<Step> {
    let wanted = pass.wanted();
    (wanted > Replicas::ZERO && wanted < step.canary).then(|| Step {
        canary: wanted,
        wanted,
        ..step.clone()
    })
}

/// Whether a step is one of those that are checked.
fn kind(pass: &Pass<'_>, step: &Step) -> Kind {
    let ladder = Ladder::of(pass.service, step.wanted);
    if step.number <= ladder.checked_steps() {
        Kind::Checked
    } else {
        Kind::Finishing
    }
}

/// The place at which it stands is that at which it froze, whatever becomes of R: it is one thing to tell.
fn at(pass: &Pass<'_>, step: &Step) -> Position {
    let ladder = Ladder::of(pass.service, step.wanted);
    match kind(pass, step) {
        Kind::Checked => Position::Checked {
            number: step.number,
            of: ladder.checked_steps().max(step.number),
        },
        Kind::Finishing => Position::Finishing,
    }
}

impl Stand<'_> {
    /// The candidate failed: everything stays as it is.
    pub fn freeze(&self, failure: Failure) -> Plan {
        // A canary that was not yet raised to the step's number does not grow any more.
        let canary = match self.canary.replicas {
            Replicas::ZERO => self.step.canary,
            replicas => self.step.canary.min(replicas),
        };
        let step = Step {
            canary,
            ..self.step.clone()
        };
        let counts = self.standing(canary);
        let event = Event::Froze {
            at: self.at(),
            failure: failure.clone(),
            counts,
        };
        let status = frozen(self.pass, &step, counts, &failure);
        let phase = Phase::Frozen {
            candidate: self.candidate.clone(),
            step,
            failure,
        };
        Plan::act(status, vec![self.pass.enter(phase)]).telling(event)
    }
}

/// The next template for a frozen canary: the intent is written first. Its ReplicaSet is named by a rollout of its own.
fn take_on(pass: &Pass<'_>, step: &Step, status: Status) -> Plan {
    let rollout = pass.state.rollout.next();
    let state = State {
        rollout,
        ..pass.state.in_phase(Phase::Replacing {
            candidate: pass.original.template.hash(),
            step: step.again(pass.wanted()),
            elapsed: Elapsed::ZERO,
        })
    };
    let event = pass
        .deployment(Role::Canary)
        .map(|canary| Event::Replacing {
            rollout,
            diff: TemplateDiff::new(&canary.template, &pass.original.template),
            at: at(pass, step),
            canary: step.canary.min(pass.wanted()),
        });
    Plan {
        status,
        events: event.into_iter().collect(),
        next: Next::Act(vec![pass.write(state, None)]),
    }
}

/// A frozen canary that gets its next template in place: as many pods as before, natively rolled.
pub(super) fn replace(
    pass: &Pass<'_>,
    candidate: &TemplateHash,
    step: &Step,
    elapsed: Elapsed,
) -> Plan {
    let status = if pass.state.motion == Motion::Held {
        held(pass, step, settled(pass, step))
    } else {
        Status::Replacing {
            at: at(pass, step),
            canary: step.canary.min(pass.wanted()),
        }
    };
    if let Some(plan) = pass.repause_any(&[Role::Original, Role::Primary], status.clone()) {
        return plan;
    }
    let clones = match clones(pass, &status) {
        Ok(clones) => clones,
        Err(plan) => return *plan,
    };
    if let Some(step) = cut(pass, step) {
        let phase = Phase::Replacing {
            candidate: candidate.clone(),
            step,
            elapsed,
        };
        return Plan::act(status, vec![pass.enter(phase)]);
    }
    let replacement = Replacement {
        pass,
        candidate,
        step,
        elapsed,
        clones,
        status,
    };
    let counts = clones.standing(pass, step.canary);
    if let Some(plan) = clones.follow(pass, counts, &replacement.status) {
        return plan;
    }
    match clones.canary.rolling {
        Rolling::Paused => replacement.paused(),
        Rolling::Unpaused => replacement.rolling(),
    }
}

/// A canary that is being replaced, with its numbers as they should be.
struct Replacement<'a> {
    pass: &'a Pass<'a>,
    candidate: &'a TemplateHash,
    step: &'a Step,
    elapsed: Elapsed,
    clones: Clones<'a>,
    status: Status,
}

impl<'a> Replacement<'a> {
    fn canary(&self) -> &'a Deployment {
        self.clones.canary
    }

    fn wait(&self) -> Plan {
        Plan::wait(self.status.clone())
    }

    fn act(&self, action: Action) -> Plan {
        Plan::act(self.status.clone(), vec![action])
    }

    fn sets(&self) -> impl Iterator<Item = &'a ReplicaSet> + use<'a> {
        let uid = &self.clones.canary.uid;
        self.pass.observation.replica_sets_of(uid)
    }

    /// The ReplicaSet of the canary's present template.
    fn set(&self) -> Option<&'a ReplicaSet> {
        candidate_set(self.pass, self.canary())
    }

    /// Those of the versions before.
    fn old(&self) -> impl Iterator<Item = &'a ReplicaSet> + use<'a> {
        let template = &self.clones.canary.template;
        self.sets().filter(move |set| set.template != *template)
    }

    fn is_asked_for(&self) -> bool {
        self.pass.original.template.hash() == *self.candidate
    }

    fn has_candidate(&self) -> bool {
        self.canary().template == self.pass.original.template
    }

    fn is_over_time(&self) -> bool {
        self.elapsed.duration() >= self.pass.service.abort
    }

    /// All of the canary's pods are of its present template, and available.
    fn is_complete(&self) -> bool {
        let number = self.canary().replicas;
        self.canary().observed == Observed::Yes
            && self.old().all(ReplicaSet::is_empty)
            && self.set().is_some_and(|set| {
                set.observed == Observed::Yes
                    && [set.replicas, set.existing, set.available] == [number; 3]
            })
    }

    /// Un-paused: the controller replaces pods. Whatever is to be done next takes the pause first.
    fn rolling(&self) -> Plan {
        let is_wanted = matches!(self.pass.wish(self.candidate), Wish::Candidate)
            && self.pass.state.motion == Motion::Free
            && self.is_asked_for()
            && self.has_candidate()
            && !self.surges_too_far();
        if is_wanted && !self.is_complete() {
            let left = self
                .pass
                .service
                .abort
                .saturating_sub(self.elapsed.duration());
            if !left.is_zero() {
                return Plan::wait_for(self.status.clone(), left);
            }
        }
        if !self.is_complete() && !self.can_stop() {
            return self.wait();
        }
        self.act(stop_rolling(self.canary()))
    }

    /// Whether a pause would start nothing: a paused Deployment fills its one active ReplicaSet up.
    fn can_stop(&self) -> bool {
        let wanted = self.sets().map(|set| set.replicas.0);
        wanted.fold(0, u32::saturating_add) >= self.canary().replicas.0
    }

    /// R fell, and what may exist beyond it.
    fn surges_too_far(&self) -> bool {
        let rest = &self.canary().rest;
        !rest.recreates() && rest.max_surge(self.canary().replicas) > self.surge()
    }

    /// How many pods more than the canary's number may exist: a primary may still stand in for some (promise 3).
    fn surge(&self) -> Replicas {
        let Clones { primary, canary } = self.clones;
        let most = self.pass.envelope().most(self.pass.wanted());
        most.saturating_sub(canary.replicas)
            .saturating_sub(primary.replicas)
    }

    /// X's own strategy within the envelope. Where it may surge it loses no pod meanwhile (promise 3), so that there are
    /// never fewer than C and a pause in the midst of it fills nothing up.
    fn strategy(&self) -> Value {
        let own = &self.pass.original.rest;
        let number = self.canary().replicas;
        if own.recreates() {
            return own.strategy.clone();
        }
        if self.pass.envelope().counting() == Counting::Existing {
            // The only native way on which no pod starts before another has ended: N consumers for N partitions.
            return json!({"type": "Recreate"});
        }
        let surge = own.max_surge(number).min(self.surge());
        let unavailable = if surge == Replicas::ZERO {
            own.max_unavailable(number).max(Replicas(1))
        } else {
            Replicas::ZERO
        };
        json!({
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
        })
    }

    /// Paused: the new template is put on it, its ReplicaSet is made and recognised, then it rolls; when all is done,
    /// what failed is removed and the step begins anew.
    fn paused(&self) -> Plan {
        let pass = self.pass;
        match pass.wish(self.candidate) {
            Wish::Candidate | Wish::Other => {}
            Wish::None(outcome) => return pass.close(outcome),
        }
        if pass.state.motion == Motion::Held {
            return self.wait();
        }
        if self.canary().observed == Observed::NotYet {
            return self.wait();
        }
        let set = self.set();
        if !self.is_asked_for() {
            // Every template that was put on the canary gets its ReplicaSet: one without was changed on its way in.
            return match set {
                Some(_) => take_on(pass, self.step, self.status.clone()),
                None => self.act(pass.create_set(
                    &self.canary().template,
                    self.canary(),
                    Replicas::ZERO,
                )),
            };
        }
        if !self.has_candidate() {
            return match set {
                Some(_) => self.act(Action::ReplaceTemplate {
                    uid: self.canary().uid.clone(),
                    resource_version: self.canary().resource_version.clone(),
                    template: pass.original.template.clone(),
                }),
                None => self.changed(),
            };
        }
        match prepare_canary(pass, self.canary(), set) {
            Prepared::Do(action) => return self.act(*action),
            Prepared::Wait => return self.wait(),
            Prepared::Ready => {}
        }
        if self.is_complete() {
            return pass.observation.live(self.go_on());
        }
        if let Some(set) = set.filter(|_| self.is_over_time()) {
            return self.freeze_again(set);
        }
        let roll = self.act(Action::LetRoll {
            uid: self.canary().uid.clone(),
            resource_version: self.canary().resource_version.clone(),
            strategy: self.strategy(),
        });
        pass.observation.live(roll)
    }

    /// Removes what is left of the versions before; then the step is checked from its beginning.
    fn go_on(&self) -> Plan {
        let old: Vec<Action> = self.old().map(delete).collect();
        if !old.is_empty() {
            return Plan::act(self.status.clone(), old);
        }
        let candidate = self.candidate.clone();
        let step = self.step.again(self.pass.wanted());
        let phase = match self.pass.state.bypass_of(&candidate) {
            None => Phase::Stepping { candidate, step },
            Some(_) => Phase::Finishing { candidate, step },
        };
        self.act(self.pass.enter(phase))
    }

    /// The new version's pods were not available within `abort`.
    fn freeze_again(&self, set: &'a ReplicaSet) -> Plan {
        let stand = Stand {
            pass: self.pass,
            candidate: self.candidate,
            step: self.step,
            kind: kind(self.pass, self.step),
            ladder: self.pass.ladder(),
            envelope: self.pass.envelope(),
            primary: self.clones.primary,
            canary: self.clones.canary,
            set,
        };
        stand.freeze(stand.unavailable())
    }

    /// The canary came out of the API server with another template than X's: promoting it would look like a new template
    /// for ever (design section 3, fact 14).
    fn changed(&self) -> Plan {
        let evidence = "the canary's template differs from the Deployment's although it was copied from it; an admission \
                        webhook or policy treats Deployments differently by name or label"
            .to_owned();
        self.pass.reject(
            self.candidate,
            self.canary(),
            None,
            Failure {
                cause: Cause::CanaryChanged,
                evidence,
            },
        )
    }
}

/// Pauses a canary of two versions: from then on both stay as they are.
pub(super) fn stop_rolling(canary: &Deployment) -> Action {
    Action::StopRolling {
        uid: canary.uid.clone(),
        strategy: json!({"type": "Recreate"}),
    }
}

/// Lets a paused canary of two versions shrink, both in proportion, and grow by nothing.
pub(super) fn let_shrink(canary: &Deployment) -> Action {
    Action::StopRolling {
        uid: canary.uid.clone(),
        strategy: json!({
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
        }),
    }
}
