//! What is played: a worker, and what its user does when.

use serde_json::{Value, json};

use super::sight::{Phase, Sight};
use crate::{kubelet::Behaviour, worker::Worker};

/// The worker of every script.
pub const X: &str = "orders-worker";

/// Nobody gives up on a step that waits for its deed.
const PATIENT: &str = "no_data_grace: 10m\n  inconclusive_timeout: 10m\n";

/// Ten replicas of `v1` are registered, the deeds are done one after the other, and it ends.
#[derive(Clone, Debug)]
pub struct Script {
    pub name: &'static str,
    pub past: Past,
    /// A line of the entry in the config file, in addition.
    pub config: &'static str,
    pub deeds: Vec<(When, Deed)>,
    pub end: End,
}

/// What the Deployment has run before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    Nothing,
    /// `h1` and `h2`, one pod each, and `v1` with one.
    TwoVersions,
}

/// When a deed is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This tag is accepted, and no rollout is open.
    AtRest(&'static str),
    /// The step (C,P) is reached: both numbers are wanted, there, and available.
    Step(i32, i32),
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Deed {
    /// A new version of this tag, whose pods behave like this.
    Apply(&'static str, Behaviour),
    Scale(i32),
    /// The value of `my_errors` of all pods, 0 before.
    Errors(f64),
    /// The pods of this tag, running ones too, behave like this from now on.
    Turn(&'static str, Behaviour),
    /// The entry leaves the config file, and the daemon is started again.
    Remove,
}

/// How it ends: with nothing left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Accepted(&'static str),
    Rejected(&'static str),
    Released,
}

impl Script {
    pub const fn new(name: &'static str, end: End) -> Self {
        Self {
            name,
            past: Past::Nothing,
            config: "",
            deeds: Vec::new(),
            end,
        }
    }

    pub const fn past(mut self, past: Past) -> Self {
        self.past = past;
        self
    }

    pub const fn config(mut self, lines: &'static str) -> Self {
        self.config = lines;
        self
    }

    pub fn then(mut self, when: When, deed: Deed) -> Self {
        self.deeds.push((when, deed));
        self
    }

    /// The config file before the entry leaves it, and after.
    pub fn configs(&self, namespace: &str, prometheus: &str) -> [String; 2] {
        let own = self.config;
        let abort = if own.contains("abort:") {
            ""
        } else {
            "  abort: 60s\n"
        };
        [X, "another-worker"].map(|name| {
            format!(
                "prometheus-base-url: {prometheus}\nnamespace: {namespace}\npoll-interval: 1s\n{name}:\n\
                 \x20 breakpoint: 50%\n  step: 20%\n{abort}  start_delay: 500ms\n  max_step_duration: 2s\n\
                 \x20 check_success_step_duration: 500ms\n  check_max_failures: 2\n  {PATIENT}  {own}\n\
                 \x20 success:\n    - expr: my_errors{{namespace=\"{namespace}\", pod=\"<<pod>>\"}} == 0\n"
            )
        })
    }

    /// The number of canary pods of the first step that a deed waits for.
    pub fn held_at(&self) -> Option<usize> {
        self.deeds.iter().find_map(|(when, _)| match when {
            When::Step(canary, _) => usize::try_from(*canary).ok(),
            When::AtRest(_) => None,
        })
    }

    /// The worker as it is registered.
    pub fn worker() -> Worker {
        Worker::named(X)
    }
}

/// The merge patch of a Deployment that asks for this version.
pub fn version(tag: &str, behaviour: Behaviour) -> Value {
    let worker = Script::worker().tag(tag);
    let annotations = match behaviour {
        // What a template without annotations means, so that the same version is the same template.
        behaviour if behaviour == Behaviour::default() => json!({}),
        behaviour => json!(behaviour.annotations()),
    };
    json!({"spec": {"template": {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "worker", "image": worker.image(), "env": []}]},
    }}})
}

impl When {
    pub fn holds(self, sight: &Sight) -> bool {
        match self {
            Self::AtRest(tag) => sight.phase() == Phase::AtRest && sight.accepted() == Some(tag),
            Self::Step(canary, primary) => {
                sight.step() == Some((canary, primary))
                    && sight.available("orders-worker-canary") == canary
                    && sight.available("orders-worker-primary") == primary
            }
        }
    }
}

impl End {
    /// # Errors
    /// What is missing.
    pub fn reached(self, sight: &Sight) -> Result<(), String> {
        let wanted = match self {
            Self::Accepted(_) | Self::Rejected(_) => Phase::AtRest,
            Self::Released => Phase::NotRegistered,
        };
        let phase = sight.phase();
        if phase != wanted {
            return Err(format!("it is {phase:?}"));
        }
        match self {
            Self::Accepted(tag) if sight.accepted() != Some(tag) => {
                return Err(format!("{:?} is accepted", sight.accepted()));
            }
            Self::Rejected(tag) if sight.rejected().as_deref() != Some(tag) => {
                return Err(format!("{:?} is rejected", sight.rejected()));
            }
            Self::Accepted(_) | Self::Rejected(_) | Self::Released => {}
        }
        sight.settled(X)
    }
}
