//! The stand-in for scheduler and kubelet: pods run, fail and end as their template's annotations say, the same that the
//! test bed's stand-in reads, until somebody says otherwise while they run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use super::object::{Kind, Object, set, text_of};
use super::shared::{Api, Shared, Write};
use super::store::{Deletion, Occurrence, Part};

/// How a pod of this template behaves: `ready`, `never-ready`, `crash-loop`, `image-pull` or `unschedulable`.
pub const BEHAVIOUR: &str = "bed.volery.dev/behaviour";
/// How long a pod of this template takes to become ready, for example `300ms`.
pub const READY_AFTER: &str = "bed.volery.dev/ready-after";
/// How long a crash-looping pod of this template stays up, for example `1s`, which is the default.
pub const UP: &str = "bed.volery.dev/up";
/// How long a crash-looping pod of this template stays down, for example `1s`, which is the default.
pub const DOWN: &str = "bed.volery.dev/down";
/// The exit code of a crash-looping pod of this template; 1 by default.
pub const EXIT_CODE: &str = "bed.volery.dev/exit-code";
/// How long a pod of this template takes to end, for example `2s`.
pub const TERMINATE_AFTER: &str = "bed.volery.dev/terminate-after";

/// What the containers of a pod do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// run, and are ready after `after`
    Ready {
        /// since the container's start
        after: Duration,
    },
    /// run and never become ready
    NeverReady,
    /// are ready for `up`, then gone for `down`, again and again, the restart count rising
    CrashLoop {
        /// how long they run
        up: Duration,
        /// how long until they are started again
        down: Duration,
        /// how they end
        exit_code: i64,
    },
    /// wait for an image that cannot be pulled
    ImagePull,
    /// wait for a node
    Unschedulable,
}

/// What one pod does, and how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conduct {
    /// what it does
    pub behaviour: Behaviour,
    /// how long it takes to end, at most its grace period
    pub terminate_after: Duration,
}

/// Decides what a pod does, given what its annotations say; called whenever the pod acts, with the store locked.
pub type Direct = Box<dyn FnMut(&Object, Conduct) -> Conduct + Send>;

/// What was said about pods while they run.
#[derive(Default)]
pub(super) struct Orders {
    /// by namespace and image
    pub(super) turned: BTreeMap<(String, String), Behaviour>,
    pub(super) direct: Option<Direct>,
}

/// Reads a duration such as `300ms` or `2s`.
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
    let told =
        |name: &str, default: Duration| pod.annotation(name).and_then(duration).unwrap_or(default);
    let behaviour = match pod.annotation(BEHAVIOUR).unwrap_or_default() {
        "never-ready" => Behaviour::NeverReady,
        "crash-loop" => Behaviour::CrashLoop {
            up: told(UP, Duration::from_secs(1)),
            down: told(DOWN, Duration::from_secs(1)),
            exit_code: pod
                .annotation(EXIT_CODE)
                .and_then(|code| code.parse().ok())
                .unwrap_or(1),
        },
        "image-pull" => Behaviour::ImagePull,
        "unschedulable" => Behaviour::Unschedulable,
        _ => Behaviour::Ready {
            after: told(READY_AFTER, shared.options.ready_after),
        },
    };
    let mut conduct = Conduct {
        behaviour,
        terminate_after: told(TERMINATE_AFTER, shared.options.terminate_after),
    };
    let mut state = shared.lock();
    let turned = (pod.namespace().to_owned(), pod.image().to_owned());
    if let Some(behaviour) = state.orders.turned.get(&turned) {
        conduct.behaviour = *behaviour;
    }
    match &mut state.orders.direct {
        Some(direct) => direct(pod, conduct),
        None => conduct,
    }
}

/// Runs all pods.
pub(super) async fn run(shared: Arc<Shared>) {
    let api = Api::new(Arc::clone(&shared), "kubelet");
    let mut tasks = JoinSet::new();
    let mut lives: BTreeMap<String, AbortHandle> = BTreeMap::new();
    let mut seen = 0;
    loop {
        let rung = shared.rung();
        let change = shared.lock().store.change(Kind::Pod, seen).cloned();
        let Some(change) = change else {
            rung.await;
            while tasks.try_join_next().is_some() {}
            continue;
        };
        seen += 1;
        let pod = &change.object;
        let ends_now = pod.is_terminating()
            && !change
                .before
                .as_ref()
                .is_some_and(|before| before.is_terminating());
        let life = || Life::new(Arc::clone(&shared), api.clone(), Arc::clone(pod));
        match change.occurrence {
            Occurrence::Added => {
                lives.insert(pod.uid().to_owned(), tasks.spawn(life().live()));
            }
            Occurrence::Modified | Occurrence::Deleted => {
                if (ends_now || change.occurrence == Occurrence::Deleted)
                    && let Some(running) = lives.remove(pod.uid())
                {
                    running.abort();
                }
                if ends_now && change.occurrence == Occurrence::Modified {
                    tasks.spawn(life().end());
                }
            }
        }
    }
}

/// Where the containers of a pod are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Unscheduled,
    Pulling,
    Running,
    Ready,
    BackOff,
}

/// The life of one pod.
struct Life {
    shared: Arc<Shared>,
    api: Api,
    pod: Arc<Object>,
    restarts: u32,
    last_exit: Option<i64>,
    up_since: Option<Instant>,
    down_since: Option<Instant>,
    /// What was written last: the status is written when it changes.
    shown: Option<(Stage, u32)>,
}

impl Life {
    const fn new(shared: Arc<Shared>, api: Api, pod: Arc<Object>) -> Self {
        Self {
            shared,
            api,
            pod,
            restarts: 0,
            last_exit: None,
            up_since: None,
            down_since: None,
            shown: None,
        }
    }

    async fn live(mut self) {
        let delay = self
            .shared
            .lock()
            .store
            .random
            .duration(&self.shared.options.start_time);
        sleep(delay).await;
        let mut started = None;
        let shared = Arc::clone(&self.shared);
        loop {
            let ordered = shared.rung_for_pods();
            let behaviour = conduct(&self.shared, &self.pod).behaviour;
            if started.is_none() && behaviour != Behaviour::Unschedulable {
                if !self.bind() {
                    return;
                }
                started = Some(self.shared.clock.now());
            }
            let (stage, next) = self.stage(behaviour, started);
            if !self.show(stage) {
                return;
            }
            match next {
                Some(next) => tokio::select! {
                    biased;
                    () = ordered => {}
                    () = sleep_until(next) => {}
                },
                None => ordered.await,
            }
        }
    }

    /// Where the containers are now, and when that changes by itself.
    fn stage(
        &mut self,
        behaviour: Behaviour,
        started: Option<Instant>,
    ) -> (Stage, Option<Instant>) {
        let now = self.shared.clock.now();
        let Some(started) = started else {
            return (Stage::Unscheduled, None);
        };
        match behaviour {
            Behaviour::NeverReady | Behaviour::Unschedulable => (Stage::Running, None),
            Behaviour::ImagePull => (Stage::Pulling, None),
            Behaviour::Ready { after } if now < started + after => {
                (Stage::Running, Some(started + after))
            }
            Behaviour::Ready { .. } => (Stage::Ready, None),
            Behaviour::CrashLoop {
                up,
                down,
                exit_code,
            } => {
                if let Some(since) = self.down_since.filter(|since| now < *since + down) {
                    return (Stage::BackOff, Some(since + down));
                }
                if self.down_since.take().is_some() {
                    self.up_since = None;
                }
                let since = *self.up_since.get_or_insert(now);
                if now < since + up {
                    return (Stage::Ready, Some(since + up));
                }
                self.down_since = Some(now);
                self.restarts += 1;
                self.last_exit = Some(exit_code);
                (Stage::BackOff, Some(now + down))
            }
        }
    }

    /// Ends a pod that was told to.
    async fn end(self) {
        let grace = self.pod.number("/metadata/deletionGracePeriodSeconds");
        let longest = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        sleep(
            conduct(&self.shared, &self.pod)
                .terminate_after
                .min(longest),
        )
        .await;
        let deletion = Deletion {
            uid: Some(self.pod.uid().to_owned()),
            grace: Some(0),
            ..Deletion::default()
        };
        // Somebody else may have ended it by force meanwhile.
        let _ = self.api.write_now(
            Kind::Pod,
            &self.pod.key(),
            Part::Main,
            Write::Delete(deletion),
        );
    }

    /// Places the pod on a node; whether it still lives.
    fn bind(&self) -> bool {
        let node = format!(
            "node-{}",
            1 + self
                .shared
                .lock()
                .store
                .random
                .below(self.shared.options.nodes.max(1))
        );
        self.update(Part::Main, |pod| {
            set(pod, &["spec", "nodeName"], json!(node))
        })
    }

    /// Writes the status if it is another; whether the pod still lives.
    fn show(&mut self, stage: Stage) -> bool {
        if self.shown == Some((stage, self.restarts)) {
            return true;
        }
        self.shown = Some((stage, self.restarts));
        self.update(Part::Status, |pod| {
            let now = self.shared.clock.timestamp();
            let before = Object::new(pod.clone());
            if stage == Stage::Unscheduled {
                set(pod, &["status", "conditions"], json!([unscheduled(&now)]));
                return;
            }
            let phase = if stage == Stage::Pulling {
                "Pending"
            } else {
                "Running"
            };
            set(pod, &["status", "phase"], json!(phase));
            set(
                pod,
                &["status", "startTime"],
                json!(before.text("/metadata/creationTimestamp")),
            );
            set(
                pod,
                &["status", "conditions"],
                conditions(&before, stage, &now),
            );
            let containers = before.at("/spec/containers").and_then(Value::as_array);
            let statuses: Vec<Value> = containers
                .into_iter()
                .flatten()
                .enumerate()
                .map(|(index, container)| {
                    if index == 0 {
                        self.first_container(container, stage, &now)
                    } else {
                        other_container(container, &now)
                    }
                })
                .collect();
            set(
                pod,
                &["status", "containerStatuses"],
                Value::Array(statuses),
            );
        })
    }

    /// Trouble befalls the first container; the others of such a pod just run.
    fn first_container(&self, container: &Value, stage: Stage, now: &str) -> Value {
        let (name, image) = (text_of(container, "name"), text_of(container, "image"));
        let waiting = |reason: &str, message: String| json!({"waiting": {"reason": reason, "message": message}});
        let state = match stage {
            Stage::Pulling => waiting(
                "ImagePullBackOff",
                format!("Back-off pulling image \"{image}\": not found"),
            ),
            Stage::BackOff => waiting(
                "CrashLoopBackOff",
                format!("back-off 10s restarting failed container={name}"),
            ),
            Stage::Unscheduled | Stage::Running | Stage::Ready => {
                json!({"running": {"startedAt": now}})
            }
        };
        let mut status = json!({
            "name": name,
            "image": image,
            "imageID": "",
            "ready": stage == Stage::Ready,
            "started": matches!(stage, Stage::Ready | Stage::Running),
            "restartCount": self.restarts,
            "state": state,
        });
        if let Some(code) = self.last_exit {
            let reason = if code == 0 { "Completed" } else { "Error" };
            let exit =
                json!({"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now});
            set(&mut status, &["lastState", "terminated"], exit);
        }
        status
    }

    /// Changes the pod if it still lives; whether it does.
    fn update(&self, part: Part, change: impl FnOnce(&mut Value)) -> bool {
        let key = self.pod.key();
        let current = self.shared.lock().store.find(Kind::Pod, &key).cloned();
        let Some(current) =
            current.filter(|current| current.uid() == self.pod.uid() && current.is_active())
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

fn unscheduled(now: &str) -> Value {
    json!({
        "type": "PodScheduled",
        "status": "False",
        "lastTransitionTime": now,
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: \
                    3 No preemption victims found for incoming pod.",
    })
}

fn other_container(container: &Value, now: &str) -> Value {
    json!({
        "name": text_of(container, "name"),
        "image": text_of(container, "image"),
        "imageID": "",
        "ready": true,
        "started": true,
        "restartCount": 0,
        "state": {"running": {"startedAt": now}},
    })
}

/// The conditions of a pod on a node; each keeps its time while it keeps its status.
fn conditions(before: &Object, stage: Stage, now: &str) -> Value {
    let ready = stage == Stage::Ready;
    let condition = |kind: &str, holds: bool| {
        let status = if holds { "True" } else { "False" };
        let old = before
            .condition(kind)
            .filter(|old| text_of(old, "status") == status);
        let since = old.map_or(now, |old| text_of(old, "lastTransitionTime"));
        let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": since});
        if !holds {
            set(&mut condition, &["reason"], json!("ContainersNotReady"));
        }
        condition
    };
    json!([
        condition("PodScheduled", true),
        condition("Initialized", true),
        condition("ContainersReady", ready),
        condition("Ready", ready),
    ])
}
