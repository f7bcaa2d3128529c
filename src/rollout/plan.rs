//! What a decision comes to: one status, and what to do next.

use std::fmt;
use std::time::Duration;

use super::Replicas;
use super::action::Action;
use super::command::{Answer, Answered};
use super::decide::{Turn, Urgency};
use super::diff::TemplateDiff;
use super::observation::Role;
use super::replicas::Counts;
use super::state::{Bypass, Cause, Failure, Outcome, Rejection, Rewrite};
use super::template::RolloutNumber;
use crate::analysis::Pods;
use crate::config::{OnFailure, display_duration};

/// The outcome of one pass.
#[derive(Clone, Debug)]
#[must_use = "a plan that nobody carries out is no plan"]
pub struct Plan {
    /// What the service is doing; exactly one per pass.
    pub status: Status,
    /// What happened, to be told once `next` has been carried out.
    pub events: Vec<Event>,
    /// What to do.
    pub next: Next,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Carry these out in order, stop at the first that fails, then look again.
    Act(Vec<Action>),
    /// Look again, at the API server itself: the decision must not rest on a cache (design section 3, fact 4).
    LookLive,
    /// Ask Prometheus about these pods, then judge.
    Check(Pods),
    /// Wait until something changes, at most this long.
    Wait(Option<Duration>),
    /// The service is given back: there is nothing more to do, ever.
    Done,
}

/// What a service is doing. Its `Display` is the log line, so it changes only when a person should read a new line.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// X does not exist.
    Missing {
        /// Its name.
        deployment: String,
    },
    /// X is being deleted, or an earlier life of it still is.
    Going,
    /// X is not yet fit to be registered.
    Unsettled {
        /// Why.
        reason: Unsettled,
    },
    /// X is being taken on.
    Registering,
    /// X owns its pods.
    AtRest {
        /// R.
        replicas: Replicas,
        /// The accepted version.
        images: Images,
    },
    /// X's template is the one that failed.
    Rejected {
        /// What failed, and why.
        rejection: Box<Rejection>,
        /// R.
        replicas: Replicas,
        /// The accepted version.
        images: Images,
        /// X's namespace.
        namespace: String,
        /// X's name.
        deployment: String,
    },
    /// R = 0: the candidate waits (case K30).
    CandidateWaits {
        /// The candidate.
        images: Images,
    },
    /// Other rollouts go first (`max-concurrent-rollouts`).
    Queued {
        /// The candidate.
        images: Images,
        /// Its place.
        turn: Turn,
        /// How much it is wanted.
        urgency: Urgency,
    },
    /// The clones are being made and the accepted pods handed over.
    Opening,
    /// A step waits for its canary pods.
    Raising {
        /// Where the rollout is.
        at: Position,
        /// The numbers wanted.
        counts: Counts,
        /// How long the canary's pods may take.
        abort: Duration,
    },
    /// A step waits for pods to end before its canary gets more.
    MakingRoom {
        /// Where the rollout is.
        at: Position,
        /// The numbers wanted.
        counts: Counts,
        /// How many pods have to end.
        going: Replicas,
        /// How many may be there at most.
        most: Replicas,
        /// One that does not end.
        stuck: Option<Stuck>,
    },
    /// A step waits for the primary's removed pods to end.
    Settling {
        /// Where the rollout is.
        at: Position,
        /// The numbers reached.
        counts: Counts,
        /// One that does not end.
        stuck: Option<Stuck>,
    },
    /// A step waits `start_delay`.
    WarmingUp {
        /// Where the rollout is.
        at: Position,
        /// The numbers reached.
        counts: Counts,
        /// `start_delay`.
        delay: Duration,
    },
    /// A step is being checked.
    Checking {
        /// Where the rollout is.
        at: Position,
        /// The numbers reached.
        counts: Counts,
        /// `max_step_duration`.
        duration: Duration,
        /// Time between checks.
        interval: Duration,
    },
    /// R went to 0 while the rollout is open.
    Sleeping {
        /// Where the rollout is.
        at: Position,
    },
    /// The candidate failed and everything stands still.
    Frozen {
        /// Where the rollout is.
        at: Position,
        /// The numbers that stay.
        counts: Counts,
        /// The version that failed.
        images: Images,
        /// Why.
        failure: Box<Failure>,
        /// X's name.
        deployment: String,
    },
    /// A frozen canary gets its next template in place.
    Replacing {
        /// Where the rollout is.
        at: Position,
        /// How many pods it has.
        canary: Replicas,
    },
    /// A person has ordered that nothing moves.
    Held {
        /// Where the rollout is; none at rest.
        at: Option<(Position, Counts)>,
        /// X's name.
        deployment: String,
    },
    /// The candidate's pods are being handed over to X.
    HandingOver,
    /// The rollout is being taken back, and pods have to end before more of the accepted version start.
    TakingBack {
        /// How it ended.
        outcome: Outcome,
        /// How many canary pods there still are.
        going: Replicas,
        /// How many pods may be there at most.
        most: Replicas,
        /// One that does not end.
        stuck: Option<Stuck>,
    },
    /// The rollout is being closed.
    Closing {
        /// How it ended.
        outcome: Outcome,
    },
    /// A person's order is being taken.
    Obeying,
    /// X is being given back.
    Releasing,
    /// X was given back.
    Released,
    /// Nothing moves until a person does something.
    Blocked(Blocked),
}

/// A pod that is still there long after its grace period, as where its node is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
}

/// Which step of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// One of the checked steps.
    Checked {
        /// From 1.
        number: u32,
        /// How many there are.
        of: u32,
    },
    /// Past the breakpoint.
    Finishing,
}

/// Why X cannot be registered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsettled {
    /// The Deployment controller has not seen its spec yet.
    NotObserved,
    /// It rolls, or a version before runs.
    Rolling,
    /// It is paused, and what it says is not what runs: whether that was ever accepted is not known any more (case K09).
    Paused {
        /// X's name.
        deployment: String,
    },
    /// Not all of its pods are available.
    Unavailable {
        /// How many are.
        available: Replicas,
        /// How many should be.
        wanted: Replicas,
    },
}

/// What a person must do something about.
#[derive(Clone, Debug, PartialEq)]
pub enum Blocked {
    /// An object under a name that Volery needs is somebody else's (case K43).
    NameTaken {
        /// `Deployment` or `PodTemplate`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A clone of ours exists, with ReplicaSets, while no rollout is open.
    CloneLeft {
        /// Its name.
        name: String,
    },
    /// An object of ours has lost its owner (deleted with `--cascade=orphan`, restored from a backup).
    Orphaned {
        /// Its name.
        name: String,
    },
    /// The state object is there but unreadable.
    StateUnreadable {
        /// What is wrong.
        problem: String,
    },
    /// Clones without a state object: which template is accepted cannot be known (case K09).
    StateLost,
    /// Released while X's template is not the accepted one (case K06).
    ReleaseNeedsDecision {
        /// X's name.
        deployment: String,
    },
    /// X is un-paused again and again (case K40).
    Unpaused {
        /// X's name.
        deployment: String,
    },
    /// A Deployment does not report the ReplicaSet it was given.
    NotRecognised {
        /// Who.
        by: Role,
    },
}

/// How much a line wants to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// A person should look at it.
    Wanted,
    /// The ordinary course of things.
    Routine,
    /// A moment between two others, worth a line only when it lasts.
    Passing,
    /// Of interest only to who looks into it.
    Detail,
}

/// The images of a template, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images(pub Vec<String>);

/// What a Deployment's strategy says about two versions at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// They may run side by side.
    Rolling,
    /// They may not, which no rollout in steps can honour (case K41).
    Recreate,
}

/// How a candidate is vetted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vetting {
    /// Step by step to the breakpoint.
    Checks {
        /// How many checked steps there will be.
        steps: u32,
        /// How many canary pods the last checked step has.
        breakpoint: Replicas,
        /// How many steps there will be with those that are not checked: as often pods are stopped (case K31).
        all_steps: u32,
        /// The revision in the history that has the same template, if there is one: it was accepted before.
        known: Option<u64>,
    },
    /// Not at all: only that its pods become available.
    Bypass {
        /// How many steps there will be.
        steps: u32,
        /// Why.
        why: Bypass,
    },
}

/// Something that happened, told once.
#[derive(Clone, Debug)]
pub enum Event {
    /// X was taken on.
    Registered {
        /// R.
        replicas: Replicas,
        /// The accepted version.
        images: Images,
        /// How many older ReplicaSets wait in the stash.
        stashed: usize,
        /// What X's own strategy says about two versions at once.
        strategy: Strategy,
    },
    /// A new template was found and a rollout opens.
    Candidate {
        /// Its number.
        rollout: RolloutNumber,
        /// What changed.
        diff: TemplateDiff,
        /// R.
        replicas: Replicas,
        /// X's name.
        deployment: String,
        /// How it is vetted.
        vetting: Vetting,
    },
    /// A check failed.
    CheckFailed {
        /// Where the rollout is.
        at: Position,
        /// How many have failed in this step.
        failed: u32,
        /// How many may.
        allowed: u32,
        /// What was seen.
        evidence: String,
        /// What too many of them lead to.
        then: OnFailure,
    },
    /// A check said neither yes nor no.
    CheckInconclusive {
        /// Where the rollout is.
        at: Position,
        /// How long it may be so.
        limit: Duration,
        /// What was seen.
        evidence: String,
        /// What that leads to.
        then: OnFailure,
    },
    /// A check said yes again after some that said neither yes nor no.
    CheckConclusive {
        /// Where the rollout is.
        at: Position,
    },
    /// The breakpoint is reached and passed.
    Trusted {
        /// How many canary pods were checked.
        canary: Replicas,
    },
    /// The rollout failed.
    Failed {
        /// Why.
        failure: Failure,
        /// R.
        replicas: Replicas,
        /// How many pods of the accepted version are available now.
        available: Replicas,
    },
    /// The rollout ends without a verdict.
    Ended {
        /// How.
        outcome: Outcome,
    },
    /// The candidate is the accepted version.
    Promoted {
        /// The new version.
        images: Images,
        /// R.
        replicas: Replicas,
        /// How long the rollout was open.
        after: Duration,
    },
    /// The rollout is closed and X owns its pods again.
    Closed {
        /// The accepted version.
        images: Images,
        /// R.
        replicas: Replicas,
    },
    /// A Deployment was found un-paused.
    Repaused {
        /// Its name.
        deployment: String,
    },
    /// ReplicaSets of a version that nobody accepted were removed.
    Removed {
        /// Their names.
        replica_sets: Vec<String>,
    },
    /// A version that a person rolled out by hand has taken over.
    AcceptedByHand {
        /// The version.
        images: Images,
    },
    /// The accepted version's ReplicaSet was gone and is made again.
    Restored {
        /// The version.
        images: Images,
    },
    /// X was given back.
    Released {
        /// How many older ReplicaSets it got back.
        history: usize,
    },
    /// The candidate failed and is not rolled back.
    Froze {
        /// Where the rollout is.
        at: Position,
        /// Why.
        failure: Failure,
        /// The numbers that stay.
        counts: Counts,
    },
    /// A new template replaces a frozen canary in place.
    Replacing {
        /// The rollout's number from now on.
        rollout: RolloutNumber,
        /// What changes.
        diff: TemplateDiff,
        /// Where the rollout is.
        at: Position,
        /// How many pods are replaced.
        canary: Replicas,
    },
    /// A person's command was carried out, or was not.
    Answered(Answer),
    /// A version was accepted by a person's order, while no replicas are wanted.
    AcceptedByOrder {
        /// The version.
        images: Images,
    },
    /// What had lost its owner belongs to X again.
    TakenUp {
        /// The names.
        names: Vec<String>,
    },
    /// Somebody has set a clone's number while a rollout is open, and it is set back (case K37).
    SetBack {
        /// The clone's name.
        clone: String,
        /// X's name.
        deployment: String,
        /// Who: the name under which the API server knows the hand.
        by: String,
        /// The number that was set.
        number: Replicas,
    },
    /// An autoscaler targets a clone (case K36).
    AutoscalerOfClone {
        /// Its name.
        autoscaler: String,
        /// The clone's name.
        clone: String,
        /// X's name.
        deployment: String,
    },
    /// Several autoscalers count the pods of one service (case K19).
    AutoscalersOfSamePods {
        /// Their names.
        autoscalers: Vec<String>,
        /// X's name.
        deployment: String,
    },
    /// What was ordered cannot be done any more.
    OrderVoid {
        /// X's name.
        deployment: String,
    },
    /// X got another template by a person's order.
    Rewritten {
        /// Why.
        with: Rewrite,
        /// X's name.
        deployment: String,
    },
}

impl Status {
    /// How much its line wants to be read.
    pub fn attention(&self) -> Attention {
        match self {
            Self::Unsettled {
                reason: Unsettled::Paused { .. },
            }
            | Self::MakingRoom { stuck: Some(_), .. }
            | Self::Settling { stuck: Some(_), .. }
            | Self::TakingBack { stuck: Some(_), .. }
            | Self::Rejected { .. }
            | Self::Frozen { .. }
            | Self::Held { .. }
            | Self::Blocked(_) => Attention::Wanted,
            Self::Missing { .. }
            | Self::Unsettled { .. }
            | Self::AtRest { .. }
            | Self::CandidateWaits { .. }
            | Self::Queued { .. }
            | Self::Raising { .. }
            | Self::WarmingUp { .. }
            | Self::Checking { .. }
            | Self::Sleeping { .. }
            | Self::Released => Attention::Routine,
            Self::Going
            | Self::Registering
            | Self::Opening
            | Self::Replacing { .. }
            | Self::MakingRoom { .. }
            | Self::Settling { .. }
            | Self::HandingOver
            | Self::TakingBack { .. }
            | Self::Closing { .. }
            | Self::Obeying
            | Self::Releasing => Attention::Passing,
        }
    }

    /// In one word, as Kubernetes writes reasons: for the condition on X and for Events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "Missing",
            Self::Going => "BeingDeleted",
            Self::Unsettled { .. } => "WaitingToRegister",
            Self::Registering => "Registering",
            Self::AtRest { .. } => "AtRest",
            Self::Rejected { .. } => "Rejected",
            Self::CandidateWaits { .. } => "WaitingForReplicas",
            Self::Queued { .. } => "WaitingForTurn",
            Self::Opening => "Opening",
            Self::Raising { .. } => "RaisingCanary",
            Self::MakingRoom { .. } => "MakingRoom",
            Self::Settling { .. } => "LoweringPrimary",
            Self::WarmingUp { .. } => "WarmingUp",
            Self::Checking { .. } => "Checking",
            Self::Sleeping { .. } => "Sleeping",
            Self::Frozen { .. } => "Frozen",
            Self::Replacing { .. } => "ReplacingCanary",
            Self::Held { .. } => "OnHold",
            Self::HandingOver => "HandingOver",
            Self::TakingBack { .. } => "TakingBack",
            Self::Closing { .. } => "Closing",
            Self::Obeying => "Obeying",
            Self::Releasing => "Releasing",
            Self::Released => "Released",
            Self::Blocked(_) => "Blocked",
        }
    }

    /// Whether coming to it is a transition that people look for among X's Events. What is on the way to the next of
    /// these is not; neither is what an [`Event`] has told already.
    pub fn is_milestone(&self) -> bool {
        !matches!(
            self,
            Self::Missing { .. }
                | Self::Going
                | Self::Registering
                | Self::AtRest { .. }
                | Self::Opening
                | Self::Raising { .. }
                | Self::MakingRoom { .. }
                | Self::Settling { .. }
                | Self::WarmingUp { .. }
                | Self::Replacing { .. }
                | Self::HandingOver
                | Self::TakingBack { .. }
                | Self::Closing { .. }
                | Self::Obeying
                | Self::Releasing
                | Self::Released
        )
    }

    /// What it says for as long as it lasts: its line, without how many replicas are wanted, which is an autoscaler's
    /// business and changes while nothing else does.
    pub fn lasting(&self) -> String {
        if let Self::AtRest { images, .. } = self {
            format!("at rest: {images}")
        } else if let Self::Rejected {
            rejection,
            images,
            deployment,
            ..
        } = self
        {
            format!(
                "rejected: {} ({}); {images} runs on; next: {}",
                Images(rejection.images.clone()),
                rejection.failure,
                what_next(rejection.failure.cause, deployment),
            )
        } else if let Self::Frozen {
            at,
            failure,
            deployment,
            ..
        } = self
        {
            // How many steps there are depends on how many replicas are wanted.
            let at = match at {
                Position::Checked { number, .. } => format!("step {number}"),
                Position::Finishing => at.to_string(),
            };
            format!(
                "frozen at {at} ({failure}); next: deploy a fix, it replaces the canary in place; or volery resume \
                 {deployment} to check again, promote to trust it, abort to go back"
            )
        } else if let Self::Held { deployment, .. } = self {
            format!(
                "on hold: nothing is rolled out, rolled back or checked until: volery resume {deployment}"
            )
        } else {
            self.to_string()
        }
    }

    /// Whether a person who has read the line of `told` learns nothing from this one.
    pub fn repeats(&self, told: &Self) -> bool {
        let starting = |status: &Self| {
            matches!(
                status,
                Self::Unsettled {
                    reason: Unsettled::Unavailable { .. }
                }
            )
        };
        // How many replicas are wanted is an autoscaler's business: not a line for each change of its mind.
        let same_but_replicas = match (self, told) {
            (Self::AtRest { images, .. }, Self::AtRest { images: before, .. }) => images == before,
            (
                Self::Rejected { rejection, .. },
                Self::Rejected {
                    rejection: before, ..
                },
            ) => rejection == before,
            // Nor is its place in the queue, each time that changes.
            (Self::Queued { images, .. }, Self::Queued { images: before, .. }) => images == before,
            // Of pods that end one after the other one line says enough.
            (
                Self::MakingRoom {
                    at, counts, stuck, ..
                },
                Self::MakingRoom {
                    at: place,
                    counts: goal,
                    stuck: before,
                    ..
                },
            ) => (at, counts, stuck) == (place, goal, before),
            (
                Self::TakingBack { outcome, stuck, .. },
                Self::TakingBack {
                    outcome: told,
                    stuck: before,
                    ..
                },
            ) => (outcome, stuck) == (told, before),
            (
                Self::Frozen { failure, .. },
                Self::Frozen {
                    failure: before, ..
                },
            ) => failure == before,
            (_, _) => false,
        };
        self == told || same_but_replicas || (starting(self) && starting(told))
    }
}

impl Event {
    /// How much its line wants to be read.
    pub fn attention(&self) -> Attention {
        match self {
            // The line of the failure that follows says it all.
            Self::CheckFailed {
                failed, allowed, ..
            } if failed >= allowed => Attention::Detail,
            Self::CheckFailed { .. }
            | Self::CheckInconclusive { .. }
            | Self::Failed { .. }
            | Self::Repaused { .. }
            | Self::Removed { .. }
            | Self::AcceptedByHand { .. }
            | Self::Restored { .. }
            | Self::OrderVoid { .. }
            | Self::Ended {
                outcome: Outcome::Interrupted { .. },
            } => Attention::Wanted,
            Self::Answered(answer) => match answer.outcome {
                Answered::Done => Attention::Routine,
                Answered::Refused => Attention::Wanted,
            },
            Self::Registered {
                strategy: Strategy::Recreate,
                ..
            }
            | Self::SetBack { .. }
            | Self::AutoscalerOfClone { .. }
            | Self::AutoscalersOfSamePods { .. }
            | Self::TakenUp { .. } => Attention::Wanted,
            Self::Registered { .. }
            | Self::Rewritten { .. }
            | Self::AcceptedByOrder { .. }
            | Self::Replacing { .. }
            | Self::Candidate { .. }
            | Self::CheckConclusive { .. }
            | Self::Trusted { .. }
            | Self::Ended { .. }
            | Self::Promoted { .. }
            | Self::Released { .. } => Attention::Routine,
            // The status that follows says so with its reason.
            Self::Closed { .. } | Self::Froze { .. } => Attention::Detail,
        }
    }
}

impl Event {
    /// What it is about, where that is worth one line in each rollout however often it happens: somebody who insists, an
    /// autoscaler say, is not told of every time.
    pub fn once(&self) -> Option<String> {
        if let Self::SetBack { clone, by, .. } = self {
            Some(format!("{clone} by {by}"))
        } else if matches!(
            self,
            Self::AutoscalerOfClone { .. } | Self::AutoscalersOfSamePods { .. }
        ) {
            Some(self.to_string())
        } else {
            None
        }
    }

    /// In one word, as Kubernetes writes reasons.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Registered { .. } => "Registered",
            Self::Candidate { .. } => "RolloutStarted",
            Self::CheckFailed { .. } => "CheckFailed",
            Self::CheckInconclusive { .. } => "CheckInconclusive",
            Self::CheckConclusive { .. } => "CheckConclusive",
            Self::Trusted { .. } => "BreakpointReached",
            Self::Failed { .. } => "RolloutFailed",
            Self::Ended { outcome } => match outcome {
                Outcome::Promoted => "Promoted",
                Outcome::RolledBack => "RolledBack",
                Outcome::Cancelled => "RolloutCancelled",
                Outcome::Superseded => "RolloutSuperseded",
                Outcome::Released => "RolloutEnded",
                Outcome::Interrupted { .. } => "RolloutInterrupted",
            },
            Self::Promoted { .. } => "Promoted",
            Self::Closed { .. } => "RolloutClosed",
            Self::Repaused { .. } => "PausedAgain",
            Self::Removed { .. } => "RemovedUnvetted",
            Self::AcceptedByHand { .. } => "AcceptedByHand",
            Self::Restored { .. } => "Restored",
            Self::TakenUp { .. } => "TakenUp",
            Self::SetBack { .. } => "NumberSetBack",
            Self::AutoscalerOfClone { .. } => "AutoscalerOfClone",
            Self::AutoscalersOfSamePods { .. } => "AutoscalersOfSamePods",
            Self::Froze { .. } => "RolloutFrozen",
            Self::Replacing { .. } => "ReplacingCanary",
            Self::Answered(answer) => match answer.outcome {
                Answered::Done => "OrderDone",
                Answered::Refused => "OrderRefused",
            },
            Self::AcceptedByOrder { .. } => "AcceptedByOrder",
            Self::OrderVoid { .. } => "OrderVoid",
            Self::Rewritten { .. } => "TemplateRewritten",
            Self::Released { .. } => "Released",
        }
    }
}

impl fmt::Display for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

impl fmt::Display for Bypass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "as ordered",
            Self::Restart => "a restart, as ordered",
            Self::Undo => "an undo, as ordered",
            Self::KnownGood => "it ran before, and known_good is bypass",
            Self::NotContainers => "its containers are the same, and canary_on is containers",
        })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checked { number, of } => write!(f, "step {number}/{of}"),
            Self::Finishing => f.write_str("finishing"),
        }
    }
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotObserved => {
                f.write_str("the Deployment controller has not seen its latest change yet")
            }
            Self::Rolling => f.write_str("it is still rolling, or more than one version runs"),
            Self::Paused { deployment } => write!(
                f,
                "it is paused and does not run what its template says, and nothing tells which version is the accepted \
                 one; nothing is changed; put the template on it that should run, then kubectl rollout resume deploy/{deployment}"
            ),
            Self::Unavailable { available, wanted } => {
                write!(f, "only {available} of {wanted} pods are available")
            }
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { deployment } => {
                write!(
                    f,
                    "waiting: there is no Deployment {deployment}; it is registered as soon as there is"
                )
            }
            Self::Going => f.write_str(
                "waiting: it, or what belonged to an earlier Deployment of this name, is being deleted",
            ),
            Self::Unsettled { reason } => write!(f, "waiting to be registered: {reason}"),
            Self::Registering => {
                f.write_str("registering: being paused, no pod is touched")
            }
            Self::AtRest { replicas, images } => {
                write!(f, "at rest: {replicas} replicas of {images}")
            }
            Self::Rejected {
                rejection,
                replicas,
                images,
                namespace,
                deployment,
            } => write!(
                f,
                "rejected: {} ({}); {deployment} runs {replicas} replicas of {images}, and what was rejected is not tried \
                 again by itself; next: {}; to look: kubectl -n {namespace} get deploy {deployment}",
                Images(rejection.images.clone()),
                rejection.failure,
                what_next(rejection.failure.cause, deployment),
            ),
            Self::CandidateWaits { images } => {
                write!(
                    f,
                    "waiting: {images} is rolled out when replicas are wanted again (now 0)"
                )
            }
            Self::Queued { images, turn, .. } => {
                write!(f, "waiting for its turn: {images} is rolled out")?;
                match turn {
                    Turn::Waits { ahead, open } => write!(
                        f,
                        " after {ahead} others; {open} rollouts are open, as many as max-concurrent-rollouts allows"
                    ),
                    Turn::Unasked | Turn::Taken => f.write_str(" next"),
                }
            }
            Self::Opening => {
                f.write_str("opening: handing the running pods over to the primary; none restarts")
            }
            Self::Raising { at, counts, abort } => write!(
                f,
                "{at}: to canary {}, primary {}; canary pods have {} to become available",
                counts.canary,
                counts.primary,
                display_duration(*abort)
            ),
            Self::MakingRoom {
                at,
                counts,
                going,
                most,
                stuck,
            } => {
                let plural = if *going == Replicas(1) { "" } else { "s" };
                write!(
                    f,
                    "{at}: to canary {}, primary {}; {going} pod{plural} of the primary must end first, there may be {most} at most; \
                     however long that takes, no time counts",
                    counts.canary, counts.primary
                )?;
                stuck_pod(f, stuck.as_ref())
            }
            Self::Settling { at, counts, stuck } => {
                write!(
                    f,
                    "{at}: canary {0}/{0} available, primary {1}, waiting for the primary's removed pods to end",
                    counts.canary, counts.primary
                )?;
                stuck_pod(f, stuck.as_ref())
            }
            Self::WarmingUp { at, counts, delay } => write!(
                f,
                "{at}: canary {0}/{0} available, primary {1}, first check in {2}",
                counts.canary,
                counts.primary,
                display_duration(*delay)
            ),
            Self::Checking {
                at,
                counts,
                duration,
                interval,
            } => write!(
                f,
                "{at}: canary {0}/{0} available, primary {1}, checking for {2}, every {3}",
                counts.canary,
                counts.primary,
                display_duration(*duration),
                display_duration(*interval)
            ),
            Self::Sleeping { at } => write!(
                f,
                "{at}: no replicas wanted, going on when there are some; nothing runs and no time counts"
            ),
            Self::Frozen {
                at,
                counts,
                images,
                failure,
                deployment,
            } => write!(
                f,
                "frozen at {at}: {images} failed ({failure}); canary {} and primary {} stay as they are; next: deploy a fix, it \
                 replaces the canary in place; or volery resume {deployment} to check again, promote to trust it, abort to go \
                 back",
                counts.canary, counts.primary
            ),
            Self::Replacing { at, canary } => write!(
                f,
                "{at}: the frozen canary's {canary} pods get the new template in place, then they are checked anew"
            ),
            Self::Held { at, deployment } => {
                f.write_str("on hold")?;
                if let Some((at, counts)) = at {
                    write!(
                        f,
                        " at {at}: canary {}, primary {}",
                        counts.canary, counts.primary
                    )?;
                }
                write!(
                    f,
                    "; nothing is rolled out, rolled back or checked until: volery resume {deployment}"
                )
            }
            Self::HandingOver => {
                f.write_str("promoting: handing the new version's pods over; none restarts")
            }
            Self::TakingBack {
                outcome,
                going,
                most,
                stuck,
            } => {
                let plural = if *going == Replicas(1) { "" } else { "s" };
                write!(
                    f,
                    "{}: {going} canary pod{plural} must end before more of the accepted version start, there may be {most} at most",
                    if *outcome == Outcome::RolledBack { "rolling back" } else { "closing" }
                )?;
                stuck_pod(f, stuck.as_ref())
            }
            Self::Closing { outcome } => match outcome {
                Outcome::Promoted => f.write_str("promoted: removing the clones"),
                Outcome::RolledBack => {
                    f.write_str("rolling back: canary to 0, accepted version to full strength")
                }
                Outcome::Cancelled
                | Outcome::Superseded
                | Outcome::Released
                | Outcome::Interrupted { .. } => {
                    f.write_str("closing: canary to 0, accepted version to full strength")
                }
            },
            Self::Obeying => f.write_str("carrying an order out"),
            Self::Releasing => f.write_str("releasing: giving the history back, no pod is touched"),
            Self::Released => f.write_str("released"),
            Self::Blocked(blocked) => write!(f, "blocked: {blocked}"),
        }
    }
}

/// What a person does about a version that was rejected.
fn what_next(cause: Cause, deployment: &str) -> String {
    let retry = format!("volery retry {deployment}");
    match cause {
        Cause::ChecksFailed | Cause::NotAvailable => {
            format!("deploy a fix, it is rolled out as usual; the same again: {retry}")
        }
        Cause::MetricsUnavailable => format!("once Prometheus answers: {retry}"),
        Cause::Aborted => format!("deploy another version, or {retry}"),
        Cause::CanaryChanged => {
            format!("exempt the canary from what changes it, then {retry}")
        }
    }
}

fn led_to(then: OnFailure) -> &'static str {
    match then {
        OnFailure::RollBack => "rolled back",
        OnFailure::Freeze => "frozen",
    }
}

/// Names the pod that does not end, and what helps.
fn stuck_pod(f: &mut fmt::Formatter<'_>, stuck: Option<&Stuck>) -> fmt::Result {
    let Some(Stuck { namespace, pod }) = stuck else {
        return Ok(());
    };
    write!(
        f,
        "; {pod} is still there long after its grace period, if its node is lost: kubectl -n {namespace} delete pod {pod} --force"
    )
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameTaken { kind, name } => write!(
                f,
                "{kind} {name} exists and is not Volery's; it is not touched; rename or delete it to have this service registered"
            ),
            Self::CloneLeft { name } => write!(
                f,
                "Deployment {name} exists although no rollout is open, and owns ReplicaSets; nothing is rolled out beside it; \
                 scale it to 0 and delete it"
            ),
            Self::Orphaned { name } => write!(
                f,
                "{name} has lost its owner and cannot be taken up again: the state object is gone, or its selector is not \
                 the Deployment's; nothing is changed; scale it by hand to what should run, or delete it"
            ),
            Self::StateUnreadable { problem } => write!(
                f,
                "the state object cannot be read ({problem}); nothing is changed; run the version of Volery that wrote it"
            ),
            Self::StateLost => f.write_str(
                "the state object is gone while clones exist, so the accepted version is unknown; nothing is changed; \
                 scale the clones by hand to what should run",
            ),
            Self::ReleaseNeedsDecision { deployment } => write!(
                f,
                "to be released, but {deployment}'s template is not the accepted version: un-pausing it would roll it out \
                 unchecked; decide: volery release {deployment} --accepted puts the accepted template on it first, \
                 --original lets it roll"
            ),
            Self::Unpaused { deployment } => write!(
                f,
                "{deployment} is un-paused again and again, so a manifest says paused: false; it is paused each time and \
                 nothing is rolled out; take paused: false out of the manifest"
            ),
            Self::NotRecognised { by } => write!(
                f,
                "{} does not report the ReplicaSet it was given; is kube-controller-manager running?",
                match by {
                    Role::Original => "the Deployment",
                    Role::Primary => "the primary",
                    Role::Canary => "the canary",
                }
            ),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registered {
                replicas,
                images,
                stashed,
                strategy,
            } => {
                write!(
                    f,
                    "registered: {replicas} replicas of {images}, paused, older ReplicaSets kept in the stash: {stashed}; no pod touched"
                )?;
                match strategy {
                    Strategy::Rolling => Ok(()),
                    Strategy::Recreate => f.write_str(
                        "; mind: its strategy is Recreate, and a rollout in steps runs two versions side by side",
                    ),
                }
            }
            Self::Candidate {
                rollout,
                diff,
                replicas,
                vetting,
                deployment,
            } => {
                write!(f, "rollout {rollout}: new template, ")?;
                match vetting {
                    Vetting::Checks {
                        steps,
                        breakpoint,
                        all_steps,
                        known,
                    } => {
                        let plural = if *steps == 1 { "" } else { "s" };
                        write!(f, "{steps} checked step{plural} to {breakpoint} of {replicas}")?;
                        let rest = replicas.saturating_sub(*breakpoint);
                        if rest > Replicas::ZERO {
                            write!(f, ", then the other {rest} without checks")?;
                        }
                        let pods = if *replicas == Replicas(1) {
                            "pod is"
                        } else {
                            "pods are"
                        };
                        let plural = if *all_steps == 1 { "" } else { "s" };
                        write!(
                            f,
                            "; {replicas} {pods} stopped in {all_steps} step{plural}, each replaced once"
                        )?;
                        if let Some(revision) = known {
                            write!(
                                f,
                                "; it ran before as revision {revision}: volery bypass {deployment} skips the checks"
                            )?;
                        }
                    }
                    Vetting::Bypass { steps, why } => {
                        let plural = if *steps == 1 { "" } else { "s" };
                        write!(
                            f,
                            "{steps} step{plural} to {replicas} without checks ({why}); each pod is replaced once, \
                             the next step waits until they are available"
                        )?;
                    }
                }
                write!(f, "\n{diff}")
            }
            Self::CheckFailed {
                at,
                failed,
                allowed,
                evidence,
                then,
            } => {
                write!(f, "{at}: check failed ({failed} of {allowed}): {evidence}")?;
                let left = allowed.saturating_sub(*failed);
                match left {
                    0 => Ok(()),
                    left => write!(f, "; {left} more in this step and it is {}", led_to(*then)),
                }
            }
            Self::CheckInconclusive {
                at,
                limit,
                evidence,
                then,
            } => write!(
                f,
                "{at}: check inconclusive: {evidence}; neither good nor bad, asking again; {} after {} without a conclusive check",
                led_to(*then),
                display_duration(*limit)
            ),
            Self::CheckConclusive { at } => write!(f, "{at}: checks pass again"),
            Self::Trusted { canary } => {
                write!(
                    f,
                    "breakpoint reached: canary {canary}/{canary} trusted, the rest follows without checks"
                )
            }
            Self::Failed {
                failure,
                replicas,
                available,
            } => {
                if failure.cause != Cause::Aborted {
                    f.write_str("failed: ")?;
                }
                write!(
                    f,
                    "{failure}; rolling back to {replicas} pods of the accepted version ({available} available now)"
                )
            }
            Self::Ended { outcome } => match outcome {
                Outcome::Promoted => f.write_str("promoted"),
                Outcome::RolledBack => f.write_str("rolled back"),
                Outcome::Cancelled => {
                    f.write_str("cancelled: the accepted template is wanted again; canary to 0, accepted version to full strength")
                }
                Outcome::Superseded => {
                    f.write_str("superseded: a newer template came; canary to 0, accepted version to full strength, then the newer one from step 1")
                }
                Outcome::Released => f.write_str(
                    "ended: the service leaves the configuration; canary to 0, accepted version to full strength",
                ),
                Outcome::Interrupted { what } => write!(f, "interrupted: {what}; starting again"),
            },
            Self::Promoted {
                images,
                replicas,
                after,
            } => write!(
                f,
                "promoted: {images} is the accepted version, {replicas} replicas, after {}",
                display_duration(Duration::from_secs(after.as_secs()))
            ),
            Self::Closed { images, replicas } => {
                write!(
                    f,
                    "closed: the Deployment owns its pods again, {replicas} replicas of {images}"
                )
            }
            Self::Repaused { deployment } => write!(
                f,
                "{deployment} was un-paused; paused again, nothing is rolled out past Volery; if a manifest did it, \
                 take `paused: false` out of the manifest; to roll out without Volery, remove the service from its configuration first"
            ),
            Self::Removed { replica_sets } => {
                write!(
                    f,
                    "removed what was started past Volery: {}, with its pods",
                    replica_sets.join(", ")
                )
            }
            Self::AcceptedByHand { images } => {
                write!(
                    f,
                    "{images} was rolled out by hand and carries the load: taken as the accepted version, unchecked"
                )
            }
            Self::Restored { images } => write!(
                f,
                "the accepted version's ReplicaSet was gone: {images} is started again"
            ),
            Self::Froze {
                at,
                failure,
                counts,
            } => write!(
                f,
                "frozen: {failure}; {at} stays as it is, canary {}, primary {}",
                counts.canary, counts.primary
            ),
            Self::AcceptedByOrder { images } => write!(
                f,
                "{images} is the accepted version, as ordered and unchecked; it starts when replicas are wanted"
            ),
            Self::TakenUp { names } => write!(
                f,
                "taken up again: {} had lost the Deployment that owned them; paused, and going on where it was",
                names.join(", ")
            ),
            Self::SetBack {
                clone,
                deployment,
                by,
                number,
            } => write!(
                f,
                "{clone} was set to {number} by {by} and is set back: while a rollout is open its steps say the clones' numbers; \
                 to stop it where it is: volery hold {deployment}; to go back: volery abort {deployment}; for more or fewer pods: \
                 kubectl scale deploy/{deployment}"
            ),
            Self::AutoscalerOfClone {
                autoscaler,
                clone,
                deployment,
            } => write!(
                f,
                "HorizontalPodAutoscaler {autoscaler} targets {clone}, which exists only while a rollout is open, with the number that \
                 its steps say; let it target deploy/{deployment}, whose number both clones follow"
            ),
            Self::AutoscalersOfSamePods {
                autoscalers,
                deployment,
            } => write!(
                f,
                "HorizontalPodAutoscalers {} count the same pods, those of {deployment}, and Kubernetes follows none of them \
                 (AmbiguousSelector); keep one, on deploy/{deployment}",
                autoscalers.join(" and ")
            ),
            Self::OrderVoid { deployment } => write!(
                f,
                "{deployment} got another template meanwhile: what was ordered before is void"
            ),
            Self::Replacing {
                rollout,
                diff,
                at,
                canary,
            } => write!(
                f,
                "rollout {rollout}: new template for the frozen canary: its {canary} pods are replaced in place, then {at} is \
                 checked anew\n{diff}"
            ),
            Self::Answered(answer) => {
                let outcome = match answer.outcome {
                    Answered::Done => "done",
                    Answered::Refused => "refused",
                };
                write!(f, "{} {outcome}: {}", answer.command, answer.message)
            }
            Self::Rewritten { with, deployment } => match with {
                Rewrite::Restart { .. } => write!(
                    f,
                    "restart: {deployment}'s template gets a new restartedAt; its pods are replaced without checks"
                ),
                Rewrite::Undo { revision } => write!(
                    f,
                    "undo: {deployment} gets the template of revision {revision} again; it is rolled out without checks"
                ),
                Rewrite::Restore | Rewrite::Release => write!(
                    f,
                    "{deployment} gets the accepted template again; no pod is touched"
                ),
            },
            Self::Released { history } => {
                write!(
                    f,
                    "released: un-paused, older ReplicaSets given back: {history}; no pod touched by Volery"
                )
            }
        }
    }
}
