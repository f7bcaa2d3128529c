//! What is remembered of a service between two passes, and between two lives of the daemon: the contents of the
//! state object's annotation. Everything else is derived anew from the cluster (design section 4, promise 5).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Replicas;
use super::command::Leave;
use super::observation::{Uid, WallTime};
use super::template::{RolloutNumber, TemplateHash};

/// The format of [`State`]. A state of another format is not guessed at (case K32).
pub const STATE_VERSION: u32 = 1;

/// The state of one service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Always [`STATE_VERSION`].
    pub version: u32,
    /// The number of the open or the last rollout; 0 before the first.
    pub rollout: RolloutNumber,
    /// Where the service is in its life.
    pub phase: Phase,
    /// How long the open rollout has been watched.
    pub open_for: Elapsed,
    /// What the open rollout has before it, when this was written. Only for people: nothing is decided by it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ahead: Option<Ahead>,
    /// The ReplicaSet that runs the accepted version: known by its uid, whatever is done to its template.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub accepted: Option<Uid>,
    /// The template that failed last.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rejected: Option<Rejection>,
    /// Whether a person has ordered that nothing moves.
    #[serde(skip_serializing_if = "Motion::is_free", default)]
    pub motion: Motion,
    /// What a person has ordered about a template, until it is carried out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub order: Option<Order>,
    /// A person has ordered that the service be given back.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leaving: Option<Leave>,
    /// When X was last found un-paused, the latest times only, oldest first (case K40).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub repaused: Vec<WallTime>,
}

/// The checked part of a rollout, as the configuration has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Ahead {
    /// How many checked steps there are in all.
    pub of: u32,
    /// How long warming up and checking take from here, if every check passes. Pods need time to start and to stop
    /// besides.
    pub at_least: Elapsed,
}

/// Whether a service may move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Motion {
    /// It may.
    #[default]
    Free,
    /// On hold: only what R asks for is followed, no step is taken, no check is made, no time counts.
    Held,
}

impl Motion {
    fn is_free(&self) -> bool {
        *self == Self::Free
    }
}

impl Order {
    /// Whether somebody gave it, rather than the configuration.
    pub fn is_a_persons(&self) -> bool {
        match self {
            Self::Bypass { why, .. } => match why {
                Bypass::Asked | Bypass::Restart | Bypass::Undo => true,
                Bypass::KnownGood | Bypass::NotContainers => false,
            },
            Self::Retry { .. } | Self::Rewrite { .. } => true,
        }
    }
}

/// What a person has ordered about a template, beyond what X says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case",
    deny_unknown_fields
)]
pub enum Order {
    /// X gets another template (design section 4, promise 7: on a person's order only).
    Rewrite {
        /// Which.
        with: Rewrite,
        /// The template that X had when this was ordered: should it have another by now, the order is void.
        instead_of: TemplateHash,
    },
    /// This template, which was rejected, is tried again.
    Retry {
        /// Which template.
        candidate: TemplateHash,
    },
    /// This template is rolled out without checks.
    Bypass {
        /// Which template.
        candidate: TemplateHash,
        /// Why.
        why: Bypass,
    },
}

/// The template that X gets by an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case",
    deny_unknown_fields
)]
pub enum Rewrite {
    /// The accepted one with `kubectl.kubernetes.io/restartedAt`, as `kubectl rollout restart` would write it (case K35).
    Restart {
        /// When it was ordered.
        at: WallTime,
    },
    /// That of a ReplicaSet in the stash.
    Undo {
        /// Its revision.
        revision: u64,
    },
    /// The accepted one: `undo` of what is not accepted, or `restore_original`.
    Restore,
    /// The accepted one, before the service is given back (case K06).
    Release,
}

/// Why a template is rolled out without checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bypass {
    /// `volery bypass` or `volery promote`.
    Asked,
    /// `volery restart`.
    Restart,
    /// `volery undo`.
    Undo,
    /// It was the accepted one before, and the service says `known_good: bypass`.
    KnownGood,
    /// Nothing of its containers changed, and the service says `canary_on: containers`.
    NotContainers,
}

/// Where a service is in its life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case",
    deny_unknown_fields
)]
pub enum Phase {
    /// The accepted template is noted; X is being paused and its history stashed.
    Registering,
    /// X owns its pods.
    AtRest,
    /// The clones are being made, and the accepted ReplicaSet is handed over to the primary.
    Opening {
        /// The template being tried.
        candidate: TemplateHash,
        /// How long this has lasted.
        elapsed: Elapsed,
    },
    /// On the way to the breakpoint, each step checked.
    Stepping {
        /// The template being tried.
        candidate: TemplateHash,
        /// The step reached.
        step: Step,
    },
    /// Past the breakpoint: the rest follows step by step, gated on availability only.
    Finishing {
        /// The template being tried.
        candidate: TemplateHash,
        /// The step reached.
        step: Step,
    },
    /// The candidate failed and everything stands still (`on_failure: freeze`): the next template replaces the canary in
    /// place.
    Frozen {
        /// The template that failed.
        candidate: TemplateHash,
        /// The step it failed in.
        step: Step,
        /// Why.
        failure: Failure,
    },
    /// A frozen canary gets a new template in place.
    Replacing {
        /// The new template.
        candidate: TemplateHash,
        /// The step that is checked anew afterwards.
        step: Step,
        /// How long this has lasted.
        elapsed: Elapsed,
    },
    /// The canary's ReplicaSet is handed over to X: the point of no return lies in here.
    HandingOver {
        /// The template being tried.
        candidate: TemplateHash,
        /// How long this has lasted.
        elapsed: Elapsed,
    },
    /// X gets the accepted ReplicaSet, the clones go.
    Closing {
        /// How the rollout ended.
        outcome: Outcome,
        /// How long this has lasted.
        elapsed: Elapsed,
    },
    /// X gets its history back and is un-paused.
    Releasing,
}

/// One step of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Step {
    /// From 1.
    pub number: u32,
    /// How many canary pods this step has.
    pub canary: Replicas,
    /// The smallest R above 0 that this step has seen: when R falls below it, `canary` is cut to the step's share.
    pub wanted: Replicas,
    /// How far it has come.
    pub stage: Stage,
    /// What its checks have found.
    pub checks: Checks,
}

/// What one check said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Passed.
    Yes,
    /// Failed.
    No,
    /// Inconclusive.
    Neither,
}

impl Checks {
    /// Counts a check. The time before one that said neither yes nor no is not time that was checked: an outage lengthens
    /// the step (case K17).
    pub fn count(&mut self, said: Said) {
        match said {
            Said::Yes => self.passed = self.passed.saturating_add(1),
            Said::No => self.failed = self.failed.saturating_add(1),
            Said::Neither => self.elapsed = self.before(),
        }
        if said == Said::Neither {
            self.doubt_for.get_or_insert(Elapsed::ZERO);
        } else {
            self.doubt_for = None;
        }
        self.since_last = Some(Elapsed::ZERO);
    }

    /// How long the step had been checked when its last check was counted.
    fn before(&self) -> Elapsed {
        let since = self.since_last.unwrap_or(self.elapsed);
        Elapsed(self.elapsed.0.saturating_sub(since.0))
    }

    /// How long this pod has been asked about in this step.
    pub fn asked_about(&self, pod: &Uid) -> Duration {
        let since = self.pods.get(pod).map_or(self.asked, |known| known.since);
        self.asked.duration().saturating_sub(since.duration())
    }

    /// Whether this pod has had data for this expression in this step, as far as that is remembered.
    pub fn has_had_data(&self, pod: &Uid, expression: &str) -> bool {
        self.pods
            .get(pod)
            .is_some_and(|known| known.data.contains(&fingerprint(expression)))
    }

    /// This pod has data for this expression.
    pub fn had_data(&mut self, pod: &Uid, expression: &str) {
        if let Some(known) = self.pods.get_mut(pod) {
            known.data.insert(fingerprint(expression));
        }
    }

    /// Its grace is over, so that it is all the same what it has had.
    pub fn forget_data(&mut self, pod: &Uid) {
        if let Some(known) = self.pods.get_mut(pod) {
            known.data.clear();
        }
    }

    /// Whether the last check said neither yes nor no.
    pub fn in_doubt(&self) -> bool {
        self.doubt_for.is_some()
    }

    /// What the next step's checks begin with: what was held against a pod is not held against it again (case K22).
    pub fn of_next_step(&self) -> Self {
        let known = |(pod, known): (&Uid, &KnownPod)| {
            let known = KnownPod {
                since: Elapsed::ZERO,
                data: BTreeSet::new(),
                ..known.clone()
            };
            (known != KnownPod::default()).then(|| (pod.clone(), known))
        };
        Self {
            pods: self.pods.iter().filter_map(known).collect(),
            ..Self::default()
        }
    }
}

impl Step {
    /// A step at its beginning.
    pub fn new(number: u32, canary: Replicas, wanted: Replicas) -> Self {
        Self {
            number,
            canary,
            wanted,
            stage: Stage::RAISING,
            checks: Checks::default(),
        }
    }

    /// The same step from its beginning, with as many canary pods: what was held against a pod is not held against it
    /// again. The canary keeps its number although R may have fallen since.
    pub fn again(&self, wanted: Replicas) -> Self {
        let (canary, wanted) = match wanted {
            Replicas::ZERO => (self.canary, self.wanted),
            wanted => (self.canary.min(wanted), wanted),
        };
        Self {
            checks: self.checks.of_next_step(),
            ..Self::new(self.number, canary, wanted)
        }
    }
}

/// How far a step has come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Stage {
    /// R = 0: nothing runs, no time counts (case K30).
    Sleeping,
    /// Canary up, primary down. The time until the canary's pods are available counts against `abort`, and is not reset
    /// by partial progress (case K14).
    Raising {
        /// How long this has lasted.
        elapsed: Elapsed,
    },
    /// The primary's pods must end before the canary gets its next ones (`max_surge`): however long that takes, it does not
    /// count against `abort` (case K31).
    MakingRoom,
    /// Waiting until the primary's removed pods no longer exist (case K18); does not count against `abort` (case K31).
    Settling,
    /// `start_delay`.
    WarmingUp {
        /// How long this has lasted.
        elapsed: Elapsed,
    },
    /// Checks run.
    Checking,
}

impl Stage {
    /// The beginning of a step.
    pub const RAISING: Self = Self::Raising {
        elapsed: Elapsed::ZERO,
    };
}

/// What the checks of one step have found so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Checks {
    /// How long the step has been checked; time in doubt does not count.
    pub elapsed: Elapsed,
    /// Time since the last check; none before the first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since_last: Option<Elapsed>,
    /// Checks passed.
    pub passed: u32,
    /// Checks failed.
    pub failed: u32,
    /// How long the canary has been asked about in this step, time in doubt included.
    pub asked: Elapsed,
    /// Time since the first of the latest checks in a row that said neither yes nor no, if the last one did (promise 4).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub doubt_for: Option<Elapsed>,
    /// Time since the first of the latest checks in a row that found canary pods missing, if the last one did; counts
    /// against `abort` (case K12).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub short_for: Option<Elapsed>,
    /// The canary's pods that checks have seen.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub pods: BTreeMap<Uid, KnownPod>,
}

/// A canary pod that checks have seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KnownPod {
    /// [`Checks::asked`] when it was first seen: its own grace begins then (case K16).
    pub since: Elapsed,
    /// The restarts of its containers that checks have seen, whatever became of them (case K22). What has restarted
    /// never is not in it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub restarts: BTreeMap<String, u32>,
    /// The restarts among them that say something about the version: `max_restarts` of them are allowed (case K21).
    #[serde(skip_serializing_if = "is_zero", default)]
    pub counted: u32,
    /// Whether it was seen to be over.
    #[serde(skip_serializing_if = "Over::is_not_seen", default)]
    pub over: Over,
    /// The expressions, by [`fingerprint`], for which it has had data in this step, until its grace is over: so long they
    /// tell whether it has any *yet* (case K16).
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    pub data: BTreeSet<u32>,
}

/// A short name for an expression, which need not be told from all others, but from those of the same service: FNV-1a.
fn fingerprint(expression: &str) -> u32 {
    expression.bytes().fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// Whether checks have seen that a pod was over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// They have not.
    #[default]
    NotSeen,
    /// One has, and it was held against the candidate.
    Seen,
}

impl Over {
    fn is_not_seen(&self) -> bool {
        *self == Self::NotSeen
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How a rollout ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Outcome {
    /// The candidate is the accepted version now.
    Promoted,
    /// The candidate failed.
    RolledBack,
    /// X was returned to the accepted template (case K05).
    Cancelled,
    /// A newer template came.
    Superseded,
    /// The service is to be given back (case K46).
    Released,
    /// Something the rollout needs was taken away; it starts again.
    Interrupted {
        /// What.
        what: String,
    },
}

/// The template that failed last, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rejection {
    /// The template, as it was named when it was tried.
    pub candidate: TemplateHash,
    /// The ReplicaSet in the stash that still holds it, if there was one: comparing templates outlives an upgrade of
    /// Kubernetes' defaults, comparing hashes does not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replica_set: Option<String>,
    /// The images, for people.
    pub images: Vec<String>,
    /// Why.
    pub failure: Failure,
}

/// Why a candidate was rejected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Failure {
    /// The kind.
    pub cause: Cause,
    /// What was seen: expression, value, pod, waiting reason.
    pub evidence: String,
}

/// The kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// `check_max_failures` checks of one step failed.
    ChecksFailed,
    /// A step's canary pods were not available within `abort`.
    NotAvailable,
    /// No check said yes or no for `inconclusive_timeout`.
    MetricsUnavailable,
    /// The canary's template is not the one that was written: something changes Deployments on their way in (design
    /// section 3, fact 14).
    CanaryChanged,
    /// A person ended the rollout: `volery abort`.
    Aborted,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self.cause {
            Cause::ChecksFailed => "checks failed",
            Cause::NotAvailable => "canary pods not available in time",
            Cause::MetricsUnavailable => "no conclusive check in time",
            Cause::CanaryChanged => "the canary is not what was written",
            Cause::Aborted => "aborted by hand",
        };
        write!(f, "{cause}: {}", self.evidence)
    }
}

/// Time that counted: while a daemon watched. In milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Elapsed(u64);

impl Elapsed {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// As a duration.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    fn add(&mut self, more: Duration) {
        self.0 = self.0.saturating_add(Self::from(more).0);
    }
}

impl From<Duration> for Elapsed {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl State {
    /// A service that is being registered.
    pub fn registering() -> Self {
        Self {
            version: STATE_VERSION,
            rollout: RolloutNumber::default(),
            phase: Phase::Registering,
            open_for: Elapsed::ZERO,
            ahead: None,
            accepted: None,
            rejected: None,
            motion: Motion::Free,
            order: None,
            leaving: None,
            repaused: Vec::new(),
        }
    }

    /// The same state, with its running timers moved forward by `since`: the time since it was written or first read.
    pub fn advanced(&self, since: Duration) -> Self {
        let mut state = self.clone();
        if self.motion == Motion::Held && !matches!(self.phase, Phase::Closing { .. }) {
            return state;
        }
        match &mut state.phase {
            Phase::Registering | Phase::AtRest | Phase::Releasing => return state,
            Phase::Frozen { .. } => {}
            Phase::Opening { elapsed, .. }
            | Phase::Replacing { elapsed, .. }
            | Phase::HandingOver { elapsed, .. }
            | Phase::Closing { elapsed, .. } => {
                elapsed.add(since);
            }
            Phase::Stepping { step, .. } | Phase::Finishing { step, .. } => match &mut step.stage {
                Stage::Sleeping | Stage::MakingRoom | Stage::Settling => {}
                Stage::Raising { elapsed } | Stage::WarmingUp { elapsed } => elapsed.add(since),
                Stage::Checking => {
                    step.checks.elapsed.add(since);
                    step.checks.asked.add(since);
                    if let Some(doubt_for) = &mut step.checks.doubt_for {
                        doubt_for.add(since);
                    }
                    if let Some(short_for) = &mut step.checks.short_for {
                        short_for.add(since);
                    }
                    if let Some(since_last) = &mut step.checks.since_last {
                        since_last.add(since);
                    }
                }
            },
        }
        state.open_for.add(since);
        state
    }

    /// Why this template is rolled out without checks, if it is.
    pub fn bypass_of(&self, template: &TemplateHash) -> Option<Bypass> {
        match &self.order {
            Some(Order::Bypass { candidate, why }) if candidate == template => Some(*why),
            Some(Order::Bypass { .. } | Order::Retry { .. } | Order::Rewrite { .. }) | None => None,
        }
    }

    /// The name of the ReplicaSet of the version that failed last, if there was one.
    pub fn rejected_set(&self) -> Option<&str> {
        self.rejected.as_ref()?.replica_set.as_deref()
    }

    /// Whether a rollout is open: X owns none of its pods, or will not in a moment.
    pub fn is_open(&self) -> bool {
        !matches!(
            self.phase,
            Phase::Registering | Phase::AtRest | Phase::Releasing
        )
    }

    /// The same state in another phase.
    pub fn in_phase(&self, phase: Phase) -> Self {
        Self {
            phase,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_only_for_the_running_timers() {
        let mut step = Step::new(1, Replicas(2), Replicas(10));
        step.stage = Stage::Checking;
        let state = State::registering().in_phase(Phase::Stepping {
            candidate: hash(),
            step,
        });
        let later = state.advanced(Duration::from_secs(3));
        let Phase::Stepping { step, .. } = later.phase else {
            panic!("phase changed")
        };
        assert_eq!(step.checks.elapsed.duration(), Duration::from_secs(3));
        assert_eq!(step.checks.asked.duration(), Duration::from_secs(3));
        assert_eq!(step.checks.since_last, None);
        assert_eq!(later.open_for.duration(), Duration::from_secs(3));

        let mut step = Step::new(1, Replicas(2), Replicas(10));
        step.stage = Stage::Sleeping;
        let state = State::registering().in_phase(Phase::Stepping {
            candidate: hash(),
            step: step.clone(),
        });
        let Phase::Stepping { step: later, .. } = state.advanced(Duration::from_secs(3)).phase
        else {
            panic!("phase changed")
        };
        assert_eq!(later, step);
    }

    #[test]
    fn an_outage_only_lengthens_the_step() {
        let second = Duration::from_secs(1);
        let mut step = Step::new(1, Replicas(2), Replicas(10));
        step.stage = Stage::Checking;
        let mut state = State::registering().in_phase(Phase::Stepping {
            candidate: hash(),
            step,
        });
        let mut after = |said: Said| {
            state = state.advanced(second);
            let Phase::Stepping { step, .. } = &mut state.phase else {
                panic!("phase changed")
            };
            let asked = step.checks.asked.duration();
            step.checks.count(said);
            let checks = &step.checks;
            (
                asked.as_secs(),
                checks.elapsed.duration().as_secs(),
                checks.doubt_for.map(|time| time.duration().as_secs()),
            )
        };
        // Asked for, checked for, in doubt for.
        assert_eq!(after(Said::Neither), (1, 0, Some(0)));
        assert_eq!(after(Said::Neither), (2, 0, Some(1)));
        assert_eq!(after(Said::Yes), (3, 1, None));
        assert_eq!(after(Said::No), (4, 2, None));
        assert_eq!(after(Said::Neither), (5, 2, Some(0)));
        assert_eq!(after(Said::Yes), (6, 3, None));
    }

    #[test]
    fn a_state_reads_back_as_it_was_written() {
        let mut step = Step::new(2, Replicas(4), Replicas(10));
        step.checks.pods.insert(
            Uid("u".into()),
            KnownPod {
                since: Elapsed(7),
                restarts: BTreeMap::from([("worker".to_owned(), 3)]),
                counted: 2,
                over: Over::Seen,
                data: BTreeSet::from([fingerprint("a > 5")]),
            },
        );
        for phase in [
            Phase::Registering,
            Phase::AtRest,
            Phase::Opening {
                candidate: hash(),
                elapsed: Elapsed(5),
            },
            Phase::Stepping {
                candidate: hash(),
                step,
            },
            Phase::HandingOver {
                candidate: hash(),
                elapsed: Elapsed(1),
            },
            Phase::Closing {
                outcome: Outcome::Interrupted { what: "x".into() },
                elapsed: Elapsed(1),
            },
            Phase::Releasing,
        ] {
            let state = State::registering().in_phase(phase);
            let text = serde_json::to_string(&state).expect("serializes");
            assert_eq!(
                serde_json::from_str::<State>(&text).expect("parses"),
                state,
                "{text}"
            );
        }
    }

    fn hash() -> TemplateHash {
        crate::rollout::template::Template::new(serde_json::json!({})).hash()
    }
}
