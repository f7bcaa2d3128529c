//! What must hold after every write (design section 4).
//!
//! Only what the world itself shows is believed: pods, numbers, and what the simulated Prometheus answered. The state
//! object is read for what it is, the daemon's claim of where it stands, and each step of it needs its evidence.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use volery::cluster::{COMMAND_ANNOTATION, CONDITION};
use volery::rollout::command::{Answer, Answered};
use volery::rollout::state::{Cause, Order, Outcome, Phase, Stage, State, Step};
use volery::rollout::template::Template;
use volery::simulate::cluster::{Kind, Object, Part, Request, Snapshot, Verb};

use super::gauges::{Gauge, Measured};
use super::limits::Limits;
use super::world::{AGENT, NAMESPACE};

/// How long after a change of R the numbers of before and after are both right: the controllers' lags, the daemon's,
/// and the time that a pod takes.
const ADJUSTING: Duration = Duration::from_secs(60);

/// What the tests tell the promises about themselves.
#[derive(Default)]
pub struct Excuses {
    /// Until then somebody's hands are in it: pods or objects were deleted, or something un-paused.
    pub by_hand_until: Duration,
    /// Adjusting takes longer while the daemon is dead or hears nothing.
    pub slack: Duration,
}

/// The watch over one service.
pub struct Promises {
    name: String,
    measured: Arc<Mutex<Measured>>,
    excuses: Arc<Mutex<Excuses>>,
    start_delay: Duration,
    step_duration: Duration,
    inconclusive_timeout: Duration,
    limits: Limits,
    /// The version that runs, as the state object says; each change of it needs its reason.
    accepted: Option<String>,
    /// Images by the hash of their template.
    images: BTreeMap<String, String>,
    original: Option<Value>,
    /// X's status, without the daemon's condition.
    status: Option<Value>,
    state: Option<State>,
    /// What the last order was answered.
    answer: Option<Answer>,
    /// The order that waits.
    command: Option<String>,
    /// Orders by their ids that were answered.
    answered: BTreeSet<String>,
    /// When the present step began.
    step_began: Duration,
    /// How many pods of the candidate may be started.
    allowed: Option<(String, i64)>,
    /// R over time.
    wanted: VecDeque<(Duration, i64)>,
    /// Pods that have been ready, by uid.
    once_ready: BTreeSet<String>,
    /// As many accepted or checked pods as wanted have been available since the last excuse.
    complete: bool,
    /// How many pods there were at the last look.
    counted: i64,
}

/// The times of the service that matter to the promises.
#[derive(Clone, Copy)]
pub struct Times {
    pub start_delay: Duration,
    pub step_duration: Duration,
    pub inconclusive_timeout: Duration,
}

impl Promises {
    pub fn new(
        name: &str,
        times: Times,
        measured: Arc<Mutex<Measured>>,
        excuses: Arc<Mutex<Excuses>>,
        limits: Limits,
    ) -> Self {
        Self {
            limits,
            name: name.to_owned(),
            measured,
            excuses,
            start_delay: times.start_delay,
            step_duration: times.step_duration,
            inconclusive_timeout: times.inconclusive_timeout,
            accepted: None,
            images: BTreeMap::new(),
            original: None,
            status: None,
            state: None,
            answer: None,
            command: None,
            answered: BTreeSet::new(),
            step_began: Duration::ZERO,
            allowed: None,
            wanted: VecDeque::new(),
            once_ready: BTreeSet::new(),
            complete: false,
            counted: 0,
        }
    }

    /// Holds the world to its promises after one write.
    pub fn check(&mut self, now: &Snapshot<'_>, write: &Request) -> Result<(), String> {
        if write.namespace != NAMESPACE {
            return Ok(());
        }
        let mut broken = Vec::new();
        let state_name = format!("{}-volery", self.name);
        if write.kind == Kind::Deployment && write.name == self.name {
            self.original_changed(now, write, &mut broken);
        }
        if write.kind == Kind::PodTemplate && write.name == state_name {
            let object = now.get(Kind::PodTemplate, NAMESPACE, &state_name);
            self.state_changed(now, object, write, &mut broken);
        }
        if matches!(write.kind, Kind::Pod | Kind::Deployment | Kind::PodTemplate) {
            self.pods(now, write, &mut broken);
        }
        if write.agent == AGENT && write.kind == Kind::Deployment {
            self.own_write(now, write, &mut broken);
        }
        if broken.is_empty() {
            Ok(())
        } else {
            Err(broken.join("; "))
        }
    }

    fn by_hand(&self, at: Duration) -> bool {
        at < self.excuses.lock().unwrap().by_hand_until
    }

    /// Promise 7: of X the daemon writes `paused` and its condition, and nothing else; the template on a person's order.
    fn original_changed(&mut self, now: &Snapshot<'_>, write: &Request, broken: &mut Vec<String>) {
        let original = now.get(Kind::Deployment, NAMESPACE, &self.name);
        let Some(original) = original else {
            self.original = None;
            self.status = None;
            return;
        };
        if let Some(raw) = original.at("/spec/template") {
            let hash = Template::new(raw.clone()).hash();
            self.images
                .insert(hash.as_str().to_owned(), original.image().to_owned());
        }
        let ordered = self.state.as_ref().and_then(|state| state.order.as_ref());
        let rewrites = matches!(ordered, Some(Order::Rewrite { .. }));
        let bare = bare(original);
        let untouched = |last: &Value| {
            let mut last = last.clone();
            if rewrites && let Some(template) = last.pointer_mut("/spec/template") {
                *template = bare["spec"]["template"].clone();
            }
            last == bare
        };
        if write.agent == AGENT && self.original.as_ref().is_some_and(|last| !untouched(last)) {
            broken.push(format!("the daemon changed more of X than paused: {bare}"));
        }
        let status = status_of_others(original);
        let only_its_own = write.part == Part::Main
            || (write.part == Part::Status && self.status.as_ref() == Some(&status));
        if write.agent == AGENT && !only_its_own {
            broken.push(format!(
                "the daemon changed more of X's status than its condition: {status}"
            ));
        }
        self.status = Some(status);
        self.original = Some(bare);
        let wanted = original.replicas();
        if self.wanted.back().is_none_or(|(_, last)| *last != wanted) {
            self.wanted.push_back((write.at, wanted));
        }
    }

    /// The smallest and the largest R that may still be in force.
    fn wanted(&self, at: Duration) -> (i64, i64) {
        let since = at.saturating_sub(ADJUSTING + self.excuses.lock().unwrap().slack);
        let mut range = None;
        for (index, (_, wanted)) in self.wanted.iter().enumerate() {
            let until = self.wanted.get(index + 1).map_or(at, |(until, _)| *until);
            if until >= since {
                let (least, most) = range.unwrap_or((*wanted, *wanted));
                range = Some((least.min(*wanted), most.max(*wanted)));
            }
        }
        range.unwrap_or((0, 0))
    }

    fn candidate_pods<'a>(
        now: &'a Snapshot<'a>,
        image: &'a str,
    ) -> impl Iterator<Item = &'a Object> {
        now.list(Kind::Pod, NAMESPACE)
            .filter(move |pod| pod.is_active() && pod.image() == image)
    }

    fn state_changed(
        &mut self,
        now: &Snapshot<'_>,
        object: Option<&Object>,
        write: &Request,
        broken: &mut Vec<String>,
    ) {
        let read = |object: &Object| {
            let text = object.annotation("volery.dev/state")?;
            serde_json::from_str::<State>(text).ok()
        };
        let Some((object, next)) = object.and_then(|object| Some((object, read(object)?))) else {
            self.state = None;
            self.accepted = None;
            self.allowed = None;
            self.complete = false;
            return;
        };
        let answer: Option<Answer> = object
            .annotation("volery.dev/answer")
            .and_then(|text| serde_json::from_str(text).ok());
        let is_new = answer != self.answer;
        let command = object.annotation(COMMAND_ANNOTATION).map(str::to_owned);
        let taken = std::mem::replace(&mut self.command, command.clone());
        if write.agent == AGENT && taken != command {
            self.taken(taken, answer.as_ref().filter(|_| is_new), &next, broken);
        }
        // This very write carries a person's order out.
        let ordered = answer
            .as_ref()
            .filter(|answer| answer.outcome == Answered::Done && is_new)
            .map(|answer| answer.command.clone());
        self.answer = answer;
        let ordered = ordered.as_deref();
        let last = self.state.replace(next.clone());
        let accepted = object.image().to_owned();
        let by_hand = self.by_hand(write.at);
        if let Some(last) = &last {
            if !legal(&last.phase, &next.phase) {
                broken.push(format!("from {:?} to {:?}", last.phase, next.phase));
            }
            if let Some(before) = self.accepted.clone().filter(|before| *before != accepted) {
                let promoted = match &last.phase {
                    Phase::HandingOver { candidate, .. } => {
                        self.images.get(candidate.as_str()) == Some(&accepted)
                    }
                    Phase::Registering => true,
                    Phase::AtRest => by_hand || ordered == Some("promote"),
                    Phase::Opening { .. }
                    | Phase::Stepping { .. }
                    | Phase::Finishing { .. }
                    | Phase::Frozen { .. }
                    | Phase::Replacing { .. }
                    | Phase::Closing { .. }
                    | Phase::Releasing => false,
                };
                if !promoted {
                    broken.push(format!(
                        "accepted was {before}, is {accepted} for no reason"
                    ));
                }
            }
            if let Phase::Stepping { candidate, step } = &last.phase {
                let ended = match &next.phase {
                    Phase::Stepping { step: new, .. } => new.number != step.number,
                    Phase::Finishing { .. } | Phase::HandingOver { .. } => true,
                    _ => false,
                };
                if ended && !matches!(ordered, Some("promote" | "bypass")) {
                    let image = self.images.get(candidate.as_str()).cloned();
                    let image = image.unwrap_or_default();
                    self.step_ended(now, write, step, &image, broken);
                }
            }
            let failed = next
                .rejected
                .as_ref()
                .filter(|_| last.rejected != next.rejected);
            if let Some(rejection) = failed {
                let aborted = rejection.failure.cause == Cause::Aborted;
                if aborted != (ordered == Some("abort")) {
                    broken.push(format!("{:?} by order {ordered:?}", rejection.failure));
                }
                if !aborted {
                    self.rejected(write, &rejection.failure.cause, &last.phase, broken);
                }
            }
        }
        self.accepted = Some(accepted);
        let began = match (&next.phase, last.as_ref().map(|last| &last.phase)) {
            (Phase::Stepping { step, .. }, Some(Phase::Stepping { step: last, .. })) => {
                step.number != last.number
            }
            (Phase::Stepping { .. }, _) => true,
            _ => false,
        };
        if began {
            self.step_began = write.at;
        }
        match &next.phase {
            Phase::Stepping { candidate, step }
            | Phase::Finishing { candidate, step }
            | Phase::Replacing {
                candidate, step, ..
            } => {
                let image = self.images.get(candidate.as_str()).cloned();
                let image = image.unwrap_or_default();
                let before = match &self.allowed {
                    Some((of, count)) if *of == image => *count,
                    _ => 0,
                };
                self.allowed = Some((image, before.max(i64::from(step.canary.0))));
            }
            Phase::Frozen { .. } | Phase::HandingOver { .. } | Phase::Closing { .. } => {}
            Phase::Registering | Phase::AtRest | Phase::Opening { .. } | Phase::Releasing => {
                self.allowed = None;
            }
        }
    }

    /// An order is taken off the state object with its answer, once, and one that is refused changes nothing.
    fn taken(
        &mut self,
        order: Option<String>,
        answer: Option<&Answer>,
        next: &State,
        broken: &mut Vec<String>,
    ) {
        let order = order.unwrap_or_default();
        let Some(answer) = answer else {
            broken.push(format!("{order:?} was taken and not answered"));
            return;
        };
        if let Some(id) = &answer.id
            && !(order.contains(&format!("id={id}")) && self.answered.insert(id.clone()))
        {
            broken.push(format!("{order:?} was answered {answer:?}"));
        }
        let kept = |state: &State| {
            let phase = std::mem::discriminant(&state.phase);
            let State {
                rollout,
                accepted,
                rejected,
                motion,
                order,
                leaving,
                ..
            } = state.clone();
            (phase, rollout, accepted, rejected, motion, order, leaving)
        };
        if answer.outcome == Answered::Refused
            && self
                .state
                .as_ref()
                .is_some_and(|last| kept(last) != kept(next))
        {
            broken.push(format!("{answer:?} changed the state to {next:?}"));
        }
    }

    /// Promise 4: a step ends only on a passed check, after its full time.
    fn step_ended(
        &self,
        now: &Snapshot<'_>,
        write: &Request,
        step: &Step,
        image: &str,
        broken: &mut Vec<String>,
    ) {
        let at = write.at;
        if at.saturating_sub(self.step_began) < self.start_delay + self.step_duration {
            broken.push(format!("step {} ended before its time", step.number));
        }
        if step.stage != Stage::Checking {
            broken.push(format!(
                "step {} ended in stage {:?}",
                step.number, step.stage
            ));
        }
        let measured = self.measured.lock().unwrap();
        let mut passed = 0;
        for pod in Self::candidate_pods(now, image) {
            match measured.answers.get(pod.name()) {
                Some(answered) if answered.at < self.step_began => {}
                Some(answered) if answered.gauge == Gauge::Good => passed += 1,
                Some(answered) => broken.push(format!(
                    "step {} ended although {} is {:?}",
                    step.number,
                    pod.name(),
                    answered.gauge
                )),
                None => {}
            }
        }
        let (least, _) = self.wanted(at);
        let needed = i64::from(step.canary.0).min(least).max(1);
        let needed = if self.by_hand(at) { 1 } else { needed };
        if passed < needed {
            broken.push(format!(
                "step {} ended with {passed} of {needed} pods of {image} found good",
                step.number
            ));
        }
    }

    /// Promise 4: no failure without evidence either.
    fn rejected(&self, write: &Request, cause: &Cause, phase: &Phase, broken: &mut Vec<String>) {
        if *cause == Cause::MetricsUnavailable
            && write.at.saturating_sub(self.step_began) < self.inconclusive_timeout
        {
            broken.push("rejected for want of metrics before the time-out".to_owned());
        }
        if !matches!(
            phase,
            Phase::Stepping { .. } | Phase::Finishing { .. } | Phase::Opening { .. }
        ) {
            broken.push(format!("rejected in {phase:?}"));
        }
    }

    /// Promises 2 and 3, for the pods as they are.
    fn pods(&mut self, now: &Snapshot<'_>, write: &Request, broken: &mut Vec<String>) {
        let at = write.at;
        let mine = |pod: &&Object| pod.is_active() && pod.text("/metadata/labels/app") == self.name;
        let pods: Vec<&Object> = now.list(Kind::Pod, NAMESPACE).filter(mine).collect();
        for pod in pods.iter().filter(|pod| pod.is_ready()) {
            self.once_ready.insert(pod.uid().to_owned());
        }
        let (Some(accepted), Some(state)) = (self.accepted.clone(), self.state.clone()) else {
            return;
        };
        if self.by_hand(at) {
            self.complete = false;
            return;
        }
        if write.kind == Kind::Pod
            && write.verb == Verb::Create
            && let Some(pod) = pods.iter().find(|pod| pod.name() == write.name)
            && pod.image() != accepted
        {
            let count = pods
                .iter()
                .filter(|other| other.image() == pod.image())
                .count();
            let count = i64::try_from(count).unwrap();
            let allowed = match &self.allowed {
                Some((image, allowed)) if image == pod.image() => *allowed,
                _ => 0,
            };
            if count > allowed {
                broken.push(format!(
                    "{count} pods of {}, which is not accepted ({accepted} is); {allowed} may be started in {:?}",
                    pod.image(),
                    state.phase
                ));
            }
        }
        let (least, most) = self.wanted(at);
        self.frozen(now, write, &state.phase, broken);
        let counted = now
            .list(Kind::Pod, NAMESPACE)
            .filter(|pod| pod.text("/metadata/labels/app") == self.name)
            .filter(|pod| {
                pod.is_active() || (self.limits.counts_terminating() && pod.is_terminating())
            })
            .count();
        let counted = i64::try_from(counted).unwrap();
        let failed = matches!(
            &state.phase,
            Phase::Closing {
                outcome: Outcome::RolledBack,
                ..
            }
        );
        let open = matches!(
            state.phase,
            Phase::Opening { .. }
                | Phase::Stepping { .. }
                | Phase::Finishing { .. }
                | Phase::Frozen { .. }
                | Phase::Replacing { .. }
                | Phase::HandingOver { .. }
                | Phase::Closing { .. }
        ) && (!failed || self.limits.counts_terminating());
        let checked = matches!(
            state.phase,
            Phase::Opening { .. } | Phase::Stepping { .. } | Phase::Frozen { .. }
        );
        let cap = self.limits.most(most, !checked);
        if open && counted > cap && counted > self.counted {
            broken.push(format!("{counted} pods, {cap} are the most for R = {most}"));
        }
        self.counted = counted;
        // What is frozen keeps its pods, available or not, and where none may exist beyond R nothing stands in for them: the
        // accepted version shrinks first (design section 2, "R changes while open").
        let stand_still = match &state.phase {
            Phase::Frozen { step, .. } | Phase::Replacing { step, .. }
                if self.limits.counts_terminating() =>
            {
                i64::from(step.canary.0)
            }
            _ => 0,
        };
        let least = self.limits.fewest(least).min(least - stand_still);
        let fit = pods
            .iter()
            .filter(|pod| self.once_ready.contains(pod.uid()))
            .count();
        let fit = i64::try_from(fit).unwrap();
        if failed {
            self.complete = false;
        } else if fit >= most {
            self.complete = true;
        } else if self.complete && fit < least {
            broken.push(format!("{fit} pods available, {least} are wanted"));
            self.complete = false;
        }
    }

    /// What is frozen shrinks only with R, and the accepted version takes over nothing of it.
    fn frozen(&self, now: &Snapshot<'_>, write: &Request, phase: &Phase, broken: &mut Vec<String>) {
        let (Phase::Frozen { step, .. } | Phase::Replacing { step, .. }) = phase else {
            return;
        };
        let kept = i64::from(step.canary.0);
        let (least, most) = self.wanted(write.at);
        if write.kind == Kind::Deployment && write.agent == AGENT {
            let name = format!("{}-canary", self.name);
            let canary = now
                .get(Kind::Deployment, NAMESPACE, &write.name)
                .filter(|canary| canary.name() == name);
            let number = canary.map_or(kept, Object::replicas);
            if number < kept.min(least) {
                broken.push(format!("the frozen canary has {number} of its {kept} pods"));
            }
            if number > kept {
                broken.push(format!("the frozen canary grew from {kept} to {number}"));
            }
        }
        let started = write.kind == Kind::Pod && write.verb == Verb::Create;
        if let Some(accepted) = self.accepted.as_ref().filter(|_| started)
            && now
                .get(Kind::Pod, NAMESPACE, &write.name)
                .is_some_and(|pod| pod.image() == accepted)
        {
            let count = Self::candidate_pods(now, accepted).count();
            if i64::try_from(count).unwrap() > most - kept.min(most) {
                broken.push(format!(
                    "{count} pods of {accepted} beside {kept} frozen ones, R = {most}"
                ));
            }
        }
    }

    /// What the daemon writes is of its own making, or X's `paused`.
    fn own_write(&self, now: &Snapshot<'_>, write: &Request, broken: &mut Vec<String>) {
        if write.name.starts_with(&self.name) && write.verb == Verb::Create {
            let made = now.get(Kind::Deployment, NAMESPACE, &write.name);
            if made.is_some_and(|made| !made.is_set("/spec/paused")) {
                broken.push(format!("{} was made un-paused", write.name));
            }
        }
    }
}

/// X's status without the daemon's condition.
fn status_of_others(original: &Object) -> Value {
    let mut status = original.at("/status").cloned().unwrap_or_default();
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|condition| condition["type"] != CONDITION);
    }
    status
}

/// X without what the daemon may write and what the server counts.
fn bare(original: &Object) -> Value {
    let mut bare = original.json().clone();
    if let Some(spec) = bare.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("paused");
    }
    if let Some(all) = bare.as_object_mut() {
        all.remove("status");
    }
    if let Some(metadata) = bare.get_mut("metadata").and_then(Value::as_object_mut) {
        for counted in ["resourceVersion", "generation", "managedFields"] {
            metadata.remove(counted);
        }
        if let Some(annotations) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            annotations.remove("deployment.kubernetes.io/revision");
        }
    }
    bare
}

fn legal(from: &Phase, to: &Phase) -> bool {
    use Phase::{
        AtRest, Closing, Finishing, Frozen, HandingOver, Opening, Registering, Releasing,
        Replacing, Stepping,
    };
    match from {
        Registering => matches!(to, Registering | AtRest | Releasing),
        AtRest => matches!(to, AtRest | Opening { .. } | Releasing),
        Opening { .. } => matches!(
            to,
            Opening { .. } | Stepping { .. } | Finishing { .. } | Closing { .. }
        ),
        Stepping { .. } => matches!(
            to,
            Stepping { .. }
                | Finishing { .. }
                | Frozen { .. }
                | HandingOver { .. }
                | Closing { .. }
        ),
        Finishing { .. } => matches!(
            to,
            Finishing { .. } | Frozen { .. } | HandingOver { .. } | Closing { .. }
        ),
        Frozen { .. } | Replacing { .. } => matches!(
            to,
            Frozen { .. } | Replacing { .. } | Stepping { .. } | Finishing { .. } | Closing { .. }
        ),
        HandingOver { .. } => matches!(to, HandingOver { .. } | Closing { .. }),
        Closing { .. } => matches!(to, Closing { .. } | AtRest),
        Releasing => matches!(to, Releasing | AtRest),
    }
}
