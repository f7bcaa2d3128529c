//! The stand-in for scheduler and kubelet: pods run, fail and end as their template's annotations say.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::object::{Key, Kind, Object, remove, set};
use super::shared::{Api, Shared, Write};
use super::store::{Deletion, Occurrence, Part};

/// How a pod of this template behaves: `ready`, `never-ready`, `crash-loop`, `image-pull` or `unschedulable`.
pub const BEHAVIOUR: &str = "bed.volery.dev/behaviour";
/// How long a pod of this template takes to become ready, for example `300ms`.
pub const READY_AFTER: &str = "bed.volery.dev/ready-after";
/// How long a pod of this template takes to end, for example `2s`.
pub const TERMINATE_AFTER: &str = "bed.volery.dev/terminate-after";

/// The delay before a container that crashed is started again, the first time; doubles with each crash.
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
/// The longest delay before a container that crashed is started again.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);

/// What a pod does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// becomes ready and stays so
    #[default]
    Ready,
    /// runs, and never becomes ready
    NeverReady,
    /// starts, exits with code 1, and is started again, later and later
    CrashLoop,
    /// waits for an image that cannot be pulled
    ImagePull,
    /// waits for a node
    Unschedulable,
}

impl Behaviour {
    /// The behaviour of a name, as in the annotation.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "ready" => Some(Self::Ready),
            "never-ready" => Some(Self::NeverReady),
            "crash-loop" => Some(Self::CrashLoop),
            "image-pull" => Some(Self::ImagePull),
            "unschedulable" => Some(Self::Unschedulable),
            _ => None,
        }
    }
}

/// What one pod does, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conduct {
    /// what it does
    pub behaviour: Behaviour,
    /// how long after its start it becomes ready, or crashes
    pub ready_after: Duration,
    /// how long it takes to end
    pub terminate_after: Duration,
}

/// Decides what a pod does, given what its annotations say; called with the store locked.
pub type Direct = Box<dyn FnMut(&Object, Conduct) -> Conduct + Send>;

/// The table of overrides.
#[derive(Default)]
pub(super) struct Behaviours {
    pub(super) direct: Option<Direct>,
}

/// Reads a duration such as `300ms`, `2s` or `1m`.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text
        .trim()
        .split_at(text.trim().find(|letter: char| !letter.is_ascii_digit())?);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number * 60)),
        _ => None,
    }
}

fn conduct(shared: &Shared, pod: &Object) -> Conduct {
    let told = |name: &str| pod.annotation(name);
    let conduct = Conduct {
        behaviour: told(BEHAVIOUR)
            .and_then(Behaviour::named)
            .unwrap_or_default(),
        ready_after: told(READY_AFTER)
            .and_then(duration)
            .unwrap_or(shared.options.ready_after),
        terminate_after: told(TERMINATE_AFTER)
            .and_then(duration)
            .unwrap_or(shared.options.terminate_after),
    };
    match &mut shared.lock().behaviours.direct {
        Some(direct) => direct(pod, conduct),
        None => conduct,
    }
}

/// Runs all pods.
pub(super) async fn run(shared: Arc<Shared>) {
    let kubelet = Kubelet {
        api: Api::new(Arc::clone(&shared), "kubelet"),
        shared: Arc::clone(&shared),
    };
    let mut lives = JoinSet::new();
    let mut seen = 0;
    loop {
        let rung = shared.rung();
        let change = shared.lock().store.change(Kind::Pod, seen).cloned();
        let Some(change) = change else {
            rung.await;
            while lives.try_join_next().is_some() {}
            continue;
        };
        seen += 1;
        let pod = &change.object;
        let ends_now = pod.is_terminating()
            && !change
                .before
                .as_ref()
                .is_some_and(|before| before.is_terminating());
        match change.occurrence {
            Occurrence::Added => {
                lives.spawn(kubelet.clone().live(Arc::clone(pod)));
            }
            Occurrence::Modified if ends_now => {
                lives.spawn(kubelet.clone().end(Arc::clone(pod)));
            }
            Occurrence::Modified | Occurrence::Deleted => {}
        }
    }
}

#[derive(Clone)]
struct Kubelet {
    api: Api,
    shared: Arc<Shared>,
}

impl Kubelet {
    /// A pod's life until it is told to end.
    async fn live(self, pod: Arc<Object>) {
        let conduct = conduct(&self.shared, &pod);
        let start = self
            .shared
            .lock()
            .store
            .random
            .duration(&self.shared.options.start_time);
        sleep(start).await;
        if conduct.behaviour == Behaviour::Unschedulable {
            self.update(&pod, Part::Status, |pod| {
                let now = self.shared.clock.timestamp();
                set(
                    pod,
                    &["status", "conditions"],
                    json!([{
                        "type": "PodScheduled",
                        "status": "False",
                        "lastTransitionTime": now,
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient cpu.",
                    }]),
                );
            });
            return;
        }
        let node = format!(
            "node-{}",
            1 + self
                .shared
                .lock()
                .store
                .random
                .below(self.shared.options.nodes.max(1))
        );
        let placed = self.update(&pod, Part::Main, |pod| {
            set(pod, &["spec", "nodeName"], json!(node))
        });
        if !placed {
            return;
        }
        match conduct.behaviour {
            Behaviour::Ready => {
                self.running(&pod, 0, Readiness::NotReady);
                sleep(conduct.ready_after).await;
                self.running(&pod, 0, Readiness::Ready);
            }
            Behaviour::NeverReady => {
                self.running(&pod, 0, Readiness::NotReady);
            }
            Behaviour::CrashLoop => self.crash(&pod, conduct.ready_after).await,
            Behaviour::ImagePull => {
                self.waiting(&pod, "Pending", 0, "ErrImagePull", "image not found");
                sleep(FIRST_BACK_OFF).await;
                self.waiting(
                    &pod,
                    "Pending",
                    0,
                    "ImagePullBackOff",
                    "Back-off pulling image",
                );
            }
            Behaviour::Unschedulable => {}
        }
    }

    async fn crash(&self, pod: &Object, runs_for: Duration) {
        let mut back_off = FIRST_BACK_OFF;
        let mut restarts = 0;
        while self.running(pod, restarts, Readiness::NotReady) {
            sleep(runs_for).await;
            if !self.waiting(
                pod,
                "Running",
                restarts,
                "CrashLoopBackOff",
                "back-off restarting failed container",
            ) {
                return;
            }
            sleep(back_off).await;
            back_off = (back_off * 2).min(LONGEST_BACK_OFF);
            restarts += 1;
        }
    }

    /// Ends a pod that was told to.
    async fn end(self, pod: Arc<Object>) {
        let grace = pod.number("/metadata/deletionGracePeriodSeconds");
        let longest = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        sleep(conduct(&self.shared, &pod).terminate_after.min(longest)).await;
        let deletion = Deletion {
            uid: Some(pod.uid().to_owned()),
            grace: Some(0),
            ..Deletion::default()
        };
        // Somebody else may have ended it by force meanwhile.
        let _ = self
            .api
            .write_now(Kind::Pod, &pod.key(), Part::Main, Write::Delete(deletion));
    }

    fn running(&self, pod: &Object, restarts: u32, readiness: Readiness) -> bool {
        let now = self.shared.clock.timestamp();
        self.update(pod, Part::Status, |pod| {
            let mut statuses = containers(pod, restarts, readiness == Readiness::Ready);
            for status in &mut statuses {
                set(status, &["state"], json!({"running": {"startedAt": now}}));
                set(status, &["started"], json!(true));
                if restarts > 0 {
                    set(status, &["lastState"], exited(&now));
                }
            }
            set(pod, &["status", "phase"], json!("Running"));
            set(
                pod,
                &["status", "containerStatuses"],
                Value::Array(statuses),
            );
            set_conditions(pod, readiness, &now);
        })
    }

    fn waiting(
        &self,
        pod: &Object,
        phase: &str,
        restarts: u32,
        reason: &str,
        message: &str,
    ) -> bool {
        let now = self.shared.clock.timestamp();
        self.update(pod, Part::Status, |pod| {
            let mut statuses = containers(pod, restarts, false);
            for status in &mut statuses {
                set(
                    status,
                    &["state"],
                    json!({"waiting": {"reason": reason, "message": message}}),
                );
                set(status, &["started"], json!(false));
                if phase == "Running" {
                    set(status, &["lastState"], exited(&now));
                }
            }
            set(pod, &["status", "phase"], json!(phase));
            set(
                pod,
                &["status", "containerStatuses"],
                Value::Array(statuses),
            );
            set_conditions(pod, Readiness::NotReady, &now);
        })
    }

    /// Changes a pod that still lives; whether it does.
    fn update(&self, pod: &Object, part: Part, change: impl FnOnce(&mut Value)) -> bool {
        let key: Key = pod.key();
        let current = self.shared.lock().store.find(Kind::Pod, &key).cloned();
        let Some(current) =
            current.filter(|current| current.uid() == pod.uid() && current.is_active())
        else {
            return false;
        };
        let mut new = current.json().clone();
        change(&mut new);
        self.api
            .write_now(Kind::Pod, &key, part, Write::Replace(new))
            .is_ok()
    }
}

/// Whether a pod serves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readiness {
    Ready,
    NotReady,
}

fn exited(now: &str) -> Value {
    json!({"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": now}})
}

/// The statuses of a pod's containers, without their state.
fn containers(pod: &Value, restarts: u32, ready: bool) -> Vec<Value> {
    pod.pointer("/spec/containers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|container| {
            json!({
                "name": container.get("name").cloned().unwrap_or_default(),
                "image": container.get("image").cloned().unwrap_or_default(),
                "imageID": "",
                "ready": ready,
                "restartCount": restarts,
            })
        })
        .collect()
}

/// Writes the conditions of a pod on a node; a condition keeps its time when it keeps its status.
fn set_conditions(pod: &mut Value, readiness: Readiness, now: &str) {
    let before = Object::new(pod.clone());
    let condition = |kind: &str, holds: bool| {
        let status = if holds { "True" } else { "False" };
        let old = before
            .condition(kind)
            .filter(|old| old.get("status").and_then(Value::as_str) == Some(status));
        let since = old
            .and_then(|old| old.get("lastTransitionTime"))
            .cloned()
            .unwrap_or_else(|| json!(now));
        json!({"type": kind, "status": status, "lastTransitionTime": since})
    };
    let ready = readiness == Readiness::Ready;
    let conditions = [
        condition("PodScheduled", true),
        condition("Initialized", true),
        condition("ContainersReady", ready),
        condition("Ready", ready),
    ];
    set(pod, &["status", "conditions"], json!(conditions));
    if before.at("/status/startTime").is_none() {
        set(pod, &["status", "startTime"], json!(now));
    }
    remove(pod, &["status", "reason"]);
}
