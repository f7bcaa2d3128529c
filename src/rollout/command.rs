//! What people order, beyond what the Deployment and the configuration say, and what they are answered.
//!
//! An order is an annotation of the service's state object, so that RBAC decides who may give one and `kubectl annotate`
//! does the same without the binary. It is taken off the object, answered and made part of the state in *one* conditional
//! write: it is carried out exactly once, whatever crashes and whoever leads.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Replicas;
use super::action::Action;
use super::decide::{Pass, images};
use super::observation::Role;
use super::plan::{Event, Next, Plan, Status};
use super::promote::is_moved;
use super::rest::{forget_failed, is_rejected, past};
use super::state::{
    Bypass, Cause, Failure, Motion, Order, Outcome, Phase, Rewrite, Stage, State, Step,
};
use super::step::candidate_set;
use super::template::{RolloutNumber, Template, TemplateHash};

/// An order as a person gives it: `VERB [KEY=VALUE ...]`, such as `undo to=3` or `abort rollout=7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What to do.
    pub verb: Verb,
    /// `id=`: by which whoever gave it finds the answer.
    pub id: Option<String>,
    /// `rollout=`: the rollout that it is meant for; any other is left alone.
    pub rollout: Option<RolloutNumber>,
}

/// What can be ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// End the open rollout, back to the accepted version.
    Abort,
    /// Skip the checks that are left, not availability.
    Promote,
    /// Nothing moves.
    Hold,
    /// What is on hold or frozen goes on.
    Resume,
    /// Try the rejected template again.
    Retry,
    /// Roll the waiting or rejected template out without checks.
    Bypass,
    /// Replace every pod by one of the same version.
    Restart,
    /// Go back to a version of the history.
    Undo {
        /// Its revision; none for the one before.
        to: Option<u64>,
    },
    /// Give the service back.
    Release(Leave),
}

/// Which template a service keeps that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leave {
    /// X's own, which must be the accepted one: un-pausing rolls nothing out.
    AsItIs,
    /// The accepted one is put on X first.
    Accepted,
    /// X's own, whatever it is: un-pausing rolls it out, natively and unchecked.
    Original,
}

/// What a command was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Answer {
    /// The command's `id=`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<String>,
    /// The command, in words.
    pub command: String,
    /// Whether it is carried out.
    pub outcome: Answered,
    /// What is done about it, or why nothing is and what can be ordered instead.
    pub message: String,
}

/// Whether a command is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answered {
    /// It is.
    Done,
    /// There is nothing to do, or it must not be: nothing is remembered of it.
    Refused,
}

/// Why a text is no command.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is no command: {problem}; expected {VERBS}")]
pub struct CommandError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

impl CommandError {
    /// By which whoever gave it finds the answer.
    fn id(&self) -> Option<String> {
        let mut words = self.text.split_whitespace();
        words.find_map(|word| word.strip_prefix("id=").map(str::to_owned))
    }
}

const VERBS: &str = "abort, promote, hold, resume, retry, bypass, restart, undo [to=REVISION] or \
                     release [template=accepted|original]";

impl FromStr for Command {
    type Err = CommandError;

    fn from_str(text: &str) -> Result<Self, CommandError> {
        let wrong = |problem: String| CommandError {
            text: text.to_owned(),
            problem,
        };
        let mut words = text.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let (mut id, mut rollout, mut to, mut template) = (None, None, None, None);
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| wrong(format!("{word:?} is not KEY=VALUE")))?;
            let number = || {
                let parsed = value.parse::<u64>();
                parsed.map_err(|_| wrong(format!("{value:?} is no number")))
            };
            match (key, verb) {
                ("id", _) => id = Some(value.to_owned()),
                ("rollout", _) => rollout = Some(RolloutNumber(number()?)),
                ("to", "undo") => to = Some(number()?),
                ("template", "release") => {
                    template = Some(match value {
                        "accepted" => Leave::Accepted,
                        "original" => Leave::Original,
                        _ => {
                            return Err(wrong(format!(
                                "{value:?} is neither accepted nor original"
                            )));
                        }
                    });
                }
                _ => return Err(wrong(format!("{key:?} means nothing to it"))),
            }
        }
        let verb = match verb {
            "abort" => Verb::Abort,
            "promote" => Verb::Promote,
            "hold" => Verb::Hold,
            "resume" => Verb::Resume,
            "retry" => Verb::Retry,
            "bypass" => Verb::Bypass,
            "restart" => Verb::Restart,
            "undo" => Verb::Undo { to },
            "release" => Verb::Release(template.unwrap_or(Leave::AsItIs)),
            "" => return Err(wrong("it is empty".to_owned())),
            other => return Err(wrong(format!("there is no verb {other:?}"))),
        };
        Ok(Self { verb, id, rollout })
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Abort => f.write_str("abort"),
            Self::Promote => f.write_str("promote"),
            Self::Hold => f.write_str("hold"),
            Self::Resume => f.write_str("resume"),
            Self::Retry => f.write_str("retry"),
            Self::Bypass => f.write_str("bypass"),
            Self::Restart => f.write_str("restart"),
            Self::Undo { to: None } => f.write_str("undo"),
            Self::Undo { to: Some(revision) } => write!(f, "undo to={revision}"),
            Self::Release(Leave::AsItIs) => f.write_str("release"),
            Self::Release(Leave::Accepted) => f.write_str("release template=accepted"),
            Self::Release(Leave::Original) => f.write_str("release template=original"),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verb)?;
        if let Some(RolloutNumber(number)) = self.rollout {
            write!(f, " rollout={number}")?;
        }
        if let Some(id) = &self.id {
            write!(f, " id={id}")?;
        }
        Ok(())
    }
}

/// Carries a waiting command out, before anything else: it changes the state, and everything follows from that.
pub(super) fn decide(pass: &Pass<'_>) -> Option<Plan> {
    let waiting = pass.object.command.as_ref()?;
    let (id, command, verdict) = match waiting {
        Ok(command) => (
            command.id.clone(),
            command.verb.to_string(),
            obey(pass, command),
        ),
        Err(error) => (error.id(), error.text.clone(), Err(error.to_string())),
    };
    let (change, outcome, message) = match verdict {
        Ok((change, message)) => (change, Answered::Done, message),
        Err(message) => (Change::of(pass.state.clone()), Answered::Refused, message),
    };
    let answer = Answer {
        id,
        command,
        outcome,
        message,
    };
    let mut events = vec![Event::Answered(answer.clone())];
    events.extend(change.event);
    let mut actions = change.first;
    actions.push(Action::WriteState {
        resource_version: pass.object.resource_version.clone(),
        state: Box::new(pass.noting_ahead(change.state)),
        accepted: change.accepted,
        answer: Some(answer),
    });
    // What is answered must be true of the cluster, not of a cache.
    Some(pass.observation.live(Plan {
        status: Status::Obeying,
        events,
        next: Next::Act(actions),
    }))
}

/// What an order changes.
struct Change {
    /// What must be done before it is written.
    first: Vec<Action>,
    state: State,
    accepted: Option<Template>,
    event: Option<Event>,
}

impl Change {
    fn of(state: State) -> Self {
        Self {
            first: Vec::new(),
            state,
            accepted: None,
            event: None,
        }
    }
}

/// What an order changes and the answer to it; or why it changes nothing.
type Verdict = Result<(Change, String), String>;

fn obey(pass: &Pass<'_>, command: &Command) -> Verdict {
    if let Some(meant) = command.rollout.filter(|meant| *meant != pass.state.rollout) {
        return Err(format!(
            "it is meant for rollout {meant}, and rollout {} is the latest now: look again with volery status {}",
            pass.state.rollout, pass.original.name
        ));
    }
    if pass.state.phase == Phase::Releasing {
        return Err("the service is being released".to_owned());
    }
    match command.verb {
        Verb::Abort => abort(pass),
        Verb::Promote => promote(pass),
        Verb::Hold => hold(pass),
        Verb::Resume => resume(pass),
        Verb::Retry => retry(pass),
        Verb::Bypass => bypass(pass),
        Verb::Restart => restart(pass),
        Verb::Undo { to } => undo(pass, to),
        Verb::Release(how) => release(pass, how),
    }
}

fn changed(state: State, message: String) -> Verdict {
    Ok((Change::of(state), message))
}

/// Where a service is, as far as orders are concerned.
enum Stand<'a> {
    /// X owns its pods.
    Rest,
    /// A candidate is being tried.
    Open(&'a TemplateHash),
    /// The candidate's pods are X's already, or are about to be: it is accepted.
    Accepted,
    /// A rollout ends without its candidate having been accepted.
    Ending,
    /// Not at rest yet.
    Registering,
}

fn stand<'a>(pass: &'a Pass<'_>) -> Stand<'a> {
    match &pass.state.phase {
        Phase::AtRest => Stand::Rest,
        Phase::Opening { candidate, .. }
        | Phase::Stepping { candidate, .. }
        | Phase::Finishing { candidate, .. }
        | Phase::Frozen { candidate, .. }
        | Phase::Replacing { candidate, .. } => Stand::Open(candidate),
        Phase::HandingOver { candidate, .. } if !is_moved(pass, candidate) => {
            Stand::Open(candidate)
        }
        Phase::HandingOver { .. }
        | Phase::Closing {
            outcome: Outcome::Promoted,
            ..
        } => Stand::Accepted,
        Phase::Closing { .. } => Stand::Ending,
        Phase::Registering | Phase::Releasing => Stand::Registering,
    }
}

const NOTHING: &str = "nothing in progress: no rollout is open";
const ENDING: &str = "the rollout is ending already, back to the accepted version";
const REGISTERING: &str = "the service is still being registered";

fn accepted_already(pass: &Pass<'_>) -> String {
    format!(
        "too late: the new version is accepted; to go back: volery undo {}",
        pass.original.name
    )
}

/// Works in every phase up to the point of no return (cases K11, K27).
fn abort(pass: &Pass<'_>) -> Verdict {
    match stand(pass) {
        Stand::Rest => Err(NOTHING.to_owned()),
        Stand::Registering => Err(REGISTERING.to_owned()),
        Stand::Ending => Err(ENDING.to_owned()),
        Stand::Accepted => Err(accepted_already(pass)),
        Stand::Open(candidate) => {
            let evidence = if let Phase::Frozen { failure, .. } = &pass.state.phase {
                format!("it was frozen ({failure})")
            } else {
                "volery abort".to_owned()
            };
            let failure = Failure {
                cause: Cause::Aborted,
                evidence,
            };
            let canary = pass.deployment(Role::Canary);
            let template = canary.map_or(&pass.original.template, |canary| &canary.template);
            let set = canary.and_then(|canary| candidate_set(pass, canary));
            let (state, event) = pass.rejected(candidate, template, set, failure);
            let change = Change {
                event: Some(event),
                ..Change::of(state)
            };
            Ok((change, "back to the accepted version".to_owned()))
        }
    }
}

/// Skips the checks that are left, never availability (case K12).
fn promote(pass: &Pass<'_>) -> Verdict {
    free(pass)?;
    match stand(pass) {
        Stand::Registering => Err(REGISTERING.to_owned()),
        Stand::Ending => Err(ENDING.to_owned()),
        Stand::Accepted => Err("it is promoted already".to_owned()),
        Stand::Open(candidate) => unchecked(pass, candidate),
        Stand::Rest => accept_at_zero(pass),
    }
}

/// R = 0: the candidate waits for its checks for ever, unless a person accepts it (case K30).
fn accept_at_zero(pass: &Pass<'_>) -> Verdict {
    let name = &pass.original.name;
    let template = &pass.original.template;
    if *template == *pass.accepted() {
        return Err(NOTHING.to_owned());
    }
    if pass.wanted() > Replicas::ZERO {
        return Err(format!(
            "no rollout is open: volery retry {name} tries the rejected version again, volery bypass {name} rolls it \
             out without checks"
        ));
    }
    let state = State {
        rollout: pass.state.rollout.next(),
        accepted: None,
        rejected: None,
        order: None,
        ..pass.state.clone()
    };
    let change = Change {
        first: forget_failed(pass),
        state,
        accepted: Some(template.clone()),
        event: Some(Event::AcceptedByOrder {
            images: images(template),
        }),
    };
    Ok((change, "accepted unchecked; no pod runs".to_owned()))
}

/// The open rollout goes on without checks.
fn unchecked(pass: &Pass<'_>, candidate: &TemplateHash) -> Verdict {
    let finishing = |step: &Step| {
        pass.state.in_phase(Phase::Finishing {
            candidate: candidate.clone(),
            step: Step {
                stage: Stage::RAISING,
                ..step.clone()
            },
        })
    };
    let message =
        "the remaining checks are skipped; each step still waits until its pods are available";
    let not_yet_ordered = pass.state.bypass_of(candidate).is_none();
    match &pass.state.phase {
        Phase::Stepping { step, .. } => changed(finishing(step), message.to_owned()),
        Phase::Frozen { step, .. } => {
            changed(finishing(&step.again(pass.wanted())), message.to_owned())
        }
        Phase::Opening { .. } | Phase::Replacing { .. } if not_yet_ordered => {
            changed(bypassing(pass, candidate), message.to_owned())
        }
        Phase::Registering
        | Phase::AtRest
        | Phase::Opening { .. }
        | Phase::Finishing { .. }
        | Phase::Replacing { .. }
        | Phase::HandingOver { .. }
        | Phase::Closing { .. }
        | Phase::Releasing => {
            Err("no checks are left: the rest follows as its pods become available".to_owned())
        }
    }
}

/// The state in which this template is rolled out without checks.
fn bypassing(pass: &Pass<'_>, candidate: &TemplateHash) -> State {
    State {
        order: Some(Order::Bypass {
            candidate: candidate.clone(),
            why: Bypass::Asked,
        }),
        ..pass.state.clone()
    }
}

fn hold(pass: &Pass<'_>) -> Verdict {
    if pass.state.motion == Motion::Held {
        return Err("it is on hold already".to_owned());
    }
    let state = State {
        motion: Motion::Held,
        ..pass.state.clone()
    };
    let message = format!(
        "nothing is rolled out or checked until volery resume {}; the number of replicas is still followed",
        pass.original.name
    );
    changed(state, message)
}

/// What is on hold goes on; what is frozen has its step checked again (case K29).
fn resume(pass: &Pass<'_>) -> Verdict {
    if pass.state.motion == Motion::Held {
        let state = State {
            motion: Motion::Free,
            ..pass.state.clone()
        };
        let message = if matches!(pass.state.phase, Phase::Frozen { .. }) {
            "no longer on hold, still frozen: resume once more to check it again"
        } else {
            "no longer on hold: it goes on where it was"
        };
        return changed(state, message.to_owned());
    }
    let Phase::Frozen {
        candidate, step, ..
    } = &pass.state.phase
    else {
        return Err("nothing in progress: it is neither on hold nor frozen".to_owned());
    };
    let state = pass.state.in_phase(Phase::Stepping {
        candidate: candidate.clone(),
        step: step.again(pass.wanted()),
    });
    changed(
        state,
        "the same version is checked again in this step".to_owned(),
    )
}

fn retry(pass: &Pass<'_>) -> Verdict {
    free(pass)?;
    let rejected = matches!(stand(pass), Stand::Rest) && is_rejected(pass);
    if !rejected {
        return Err(
            "nothing to try again: what the Deployment asks for is not a rejected version"
                .to_owned(),
        );
    }
    let state = State {
        order: Some(Order::Retry {
            candidate: pass.original.template.hash(),
        }),
        ..pass.state.clone()
    };
    changed(
        state,
        when_wanted(
            pass,
            "the rejected version is tried again from its first step",
        ),
    )
}

fn bypass(pass: &Pass<'_>) -> Verdict {
    free(pass)?;
    match stand(pass) {
        Stand::Registering => Err(REGISTERING.to_owned()),
        Stand::Ending => Err(ENDING.to_owned()),
        Stand::Accepted => Err("it is promoted already".to_owned()),
        Stand::Open(candidate) => unchecked(pass, candidate),
        Stand::Rest if pass.original.template == *pass.accepted() => {
            Err("nothing to roll out: the Deployment asks for the accepted version".to_owned())
        }
        Stand::Rest => {
            let state = bypassing(pass, &pass.original.template.hash());
            changed(state, when_wanted(pass, "it is rolled out without checks"))
        }
    }
}

fn when_wanted(pass: &Pass<'_>, what: &str) -> String {
    if pass.wanted() == Replicas::ZERO {
        format!("{what}, when replicas are wanted")
    } else {
        what.to_owned()
    }
}

fn restart(pass: &Pass<'_>) -> Verdict {
    resting(pass, "a restart")?;
    if pass.original.template != *pass.accepted() {
        return Err(
            "the Deployment asks for another version than the accepted one, and a restart would roll that out; \
             put the accepted template on it first, or deploy a fix"
                .to_owned(),
        );
    }
    let state = pass.rewriting(Rewrite::Restart {
        at: pass.observation.at,
    });
    let message = "every pod is replaced by one of the same version, without checks, by the steps of a rollout";
    changed(state, when_wanted(pass, message))
}

/// Back to a version of the history; of what is not accepted, back to the accepted one.
fn undo(pass: &Pass<'_>, to: Option<u64>) -> Verdict {
    resting(pass, "an undo")?;
    let on_trial = pass.original.template != *pass.accepted();
    let runs = pass.accepted_set().and_then(|set| set.revision);
    if on_trial && (to.is_none() || to == runs) {
        let message = "the Deployment gets the accepted template again; no pod is touched";
        return changed(pass.rewriting(Rewrite::Restore), message.to_owned());
    }
    if to.is_some() && to == runs {
        return Err("that revision is what runs".to_owned());
    }
    let history = past(pass);
    let set = match to {
        Some(revision) => history.iter().find(|set| set.revision == Some(revision)),
        None => history.first(),
    };
    let Some((set, revision)) = set.and_then(|set| Some((set, set.revision?))) else {
        let known: Vec<String> = history
            .iter()
            .filter_map(|set| set.revision)
            .map(|revision| revision.to_string())
            .collect();
        return Err(match known.as_slice() {
            [] => "there is no earlier version in the history".to_owned(),
            known => format!("the history has revisions {}", known.join(", ")),
        });
    };
    let message = format!(
        "back to revision {revision} ({}), without checks, by the steps of a rollout",
        images(&set.template)
    );
    let state = pass.rewriting(Rewrite::Undo { revision });
    changed(state, when_wanted(pass, &message))
}

/// Leaves are given whatever the phase: an open rollout is ended first (case K06).
fn release(pass: &Pass<'_>, how: Leave) -> Verdict {
    let name = &pass.original.name;
    let other = pass.original.template != *pass.accepted();
    if how == Leave::AsItIs && other {
        return Err(format!(
            "{name}'s template is not the accepted version, and un-pausing would roll it out unchecked: decide with \
             volery release {name} --accepted, which puts the accepted template on it first, or --original, which lets it roll"
        ));
    }
    let state = State {
        leaving: Some(how),
        motion: Motion::Free,
        ..if how == Leave::Accepted && other {
            pass.rewriting(Rewrite::Release)
        } else {
            State {
                order: None,
                ..pass.state.clone()
            }
        }
    };
    let message = "the service is given back; take it out of the configuration too, or it is registered again at the next \
                   start of Volery";
    changed(state, message.to_owned())
}

fn free(pass: &Pass<'_>) -> Result<(), String> {
    match pass.state.motion {
        Motion::Free => Ok(()),
        Motion::Held => Err(format!(
            "it is on hold: volery resume {} first",
            pass.original.name
        )),
    }
}

/// Whether X may get another template now.
fn resting(pass: &Pass<'_>, what: &str) -> Result<(), String> {
    free(pass)?;
    let name = &pass.original.name;
    match stand(pass) {
        Stand::Rest => Ok(()),
        Stand::Registering => Err(REGISTERING.to_owned()),
        Stand::Ending => Err(ENDING.to_owned()),
        Stand::Open(_) | Stand::Accepted => Err(format!(
            "a rollout is open: {what} has to wait for its end; volery abort {name} ends it"
        )),
    }
}
