//! A stand-in for scheduler and kubelet: it binds pods, makes them Running and Ready after a while, and removes deleted ones.
//!
//! What a pod does is written in annotations of its template ([`Behaviour::annotations`]), and can be overridden while it runs
//! ([`Kubelet::turn`]). No Node objects exist: nothing that would miss them runs in the bed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::{
    api::core::v1::{Binding, Container, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};

const PREFIX: &str = "bed.volery.dev/";

/// What the containers of a pod do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Runs, and is ready after `after`.
    Ready { after: Duration },
    /// Runs and never becomes ready.
    NeverReady,
    /// Ready for `up`, then gone with this exit code for `down`, again and again, its restart count rising.
    CrashLoop {
        up: Duration,
        down: Duration,
        exit_code: i32,
    },
    /// The image of the first container cannot be pulled.
    ImagePull,
    /// No node takes it.
    Unschedulable,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self::Ready {
            after: Duration::from_millis(100),
        }
    }
}

impl Behaviour {
    /// The annotations of a pod template that ask for this behaviour.
    pub fn annotations(self) -> BTreeMap<String, String> {
        let mut annotations = BTreeMap::new();
        let mut set =
            |name: &str, value: String| annotations.insert(format!("{PREFIX}{name}"), value);
        match self {
            Self::Ready { after } => {
                set("behaviour", "ready".into());
                set("ready-after", millis(after));
            }
            Self::NeverReady => {
                set("behaviour", "never-ready".into());
            }
            Self::CrashLoop {
                up,
                down,
                exit_code,
            } => {
                set("behaviour", "crash-loop".into());
                set("up", millis(up));
                set("down", millis(down));
                set("exit-code", exit_code.to_string());
            }
            Self::ImagePull => {
                set("behaviour", "image-pull".into());
            }
            Self::Unschedulable => {
                set("behaviour", "unschedulable".into());
            }
        }
        annotations
    }

    fn of(pod: &Pod) -> Self {
        let duration = |name: &str, default: u64| {
            annotated_duration(pod, name).unwrap_or(Duration::from_millis(default))
        };
        let behaviour = pod
            .annotations()
            .get(&format!("{PREFIX}behaviour"))
            .map_or("ready", String::as_str);
        match behaviour {
            "ready" => Self::Ready {
                after: duration("ready-after", 100),
            },
            "never-ready" => Self::NeverReady,
            "crash-loop" => Self::CrashLoop {
                up: duration("up", 1000),
                down: duration("down", 1000),
                exit_code: pod
                    .annotations()
                    .get(&format!("{PREFIX}exit-code"))
                    .and_then(|code| code.parse().ok())
                    .unwrap_or(1),
            },
            "image-pull" => Self::ImagePull,
            "unschedulable" => Self::Unschedulable,
            other => panic!(
                "the kubelet stand-in knows no behaviour {other:?} (pod {})",
                pod.name_any()
            ),
        }
    }
}

/// The annotation that makes deleted pods stay Terminating for this long (default 100 ms).
pub fn terminate_after(time: Duration) -> (String, String) {
    (format!("{PREFIX}terminate-after"), millis(time))
}

/// The annotation that tells of containers, init containers and sidecars that have restarted before anybody looks: name, restarts, and
/// the last exit code.
pub fn restarted(containers: &[(&str, i32, i32)]) -> (String, String) {
    let told: Vec<_> = containers
        .iter()
        .map(|(name, restarts, code)| format!("{name}={restarts}:{code}"))
        .collect();
    (format!("{PREFIX}restarted"), told.join(","))
}

/// The annotation of pods of which each node takes one, and how many nodes there are.
pub fn nodes(number: usize) -> (String, String) {
    (format!("{PREFIX}nodes"), number.to_string())
}

/// The restarts and the last exit code that [`restarted`] tells of a container.
fn told_restarts(pod: &Pod, container: &str) -> Option<(i32, i32)> {
    let all = pod.annotations().get(&format!("{PREFIX}restarted"))?;
    let one = all
        .split(',')
        .find_map(|one| one.strip_prefix(container)?.strip_prefix('='))?;
    let (restarts, code) = one.split_once(':')?;
    Some((restarts.parse().ok()?, code.parse().ok()?))
}

fn terminated(code: i32, since: &str) -> Value {
    let reason = match code {
        0 => "Completed",
        137 => "OOMKilled",
        _ => "Error",
    };
    json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": since, "finishedAt": since}})
}

fn millis(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

fn annotated_duration(pod: &Pod, name: &str) -> Option<Duration> {
    let text = pod.annotations().get(&format!("{PREFIX}{name}"))?;
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s')?, 1000),
    };
    number
        .parse()
        .ok()
        .map(|number: u64| Duration::from_millis(number * unit))
}

/// The tag of the first container's image.
pub fn tag(pod: &Pod) -> &str {
    let image = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.containers.first())
        .and_then(|container| container.image.as_deref());
    image
        .and_then(|image| image.rsplit(':').next())
        .unwrap_or_default()
}

struct Override {
    namespace: String,
    tag: String,
    behaviour: Behaviour,
}

/// The stand-in and what it knows.
pub struct Kubelet {
    client: Client,
    overrides: Mutex<Vec<Override>>,
    overrides_changed: watch::Sender<()>,
    /// Running pods by uid, with the time of their start: what the metrics endpoint serves.
    running: Mutex<HashMap<String, (Pod, Instant)>>,
    /// The pods, by uid, that sit on a node of their own, by namespace.
    seats: Mutex<HashMap<String, BTreeSet<String>>>,
}

impl Kubelet {
    /// Starts it; it works until its task is aborted.
    pub fn start(client: Client) -> (Arc<Self>, JoinHandle<()>) {
        let kubelet = Arc::new(Self {
            client,
            overrides: Mutex::default(),
            overrides_changed: watch::Sender::new(()),
            running: Mutex::default(),
            seats: Mutex::default(),
        });
        let task = tokio::spawn(Arc::clone(&kubelet).watch());
        (kubelet, task)
    }

    /// From now on pods in `namespace` whose first image has this tag behave like this, running ones too.
    pub fn turn(&self, namespace: &str, tag: &str, behaviour: Behaviour) {
        let mut overrides = self.overrides.lock().unwrap();
        overrides.retain(|o| o.namespace != namespace || o.tag != tag);
        overrides.push(Override {
            namespace: namespace.to_owned(),
            tag: tag.to_owned(),
            behaviour,
        });
        drop(overrides);
        self.overrides_changed.send_replace(());
    }

    /// All pods whose containers run, with the time since their start.
    pub fn running(&self) -> Vec<(Pod, Duration)> {
        self.running
            .lock()
            .unwrap()
            .values()
            .map(|(pod, started)| (pod.clone(), started.elapsed()))
            .collect()
    }

    /// Whether a node takes the pod. One that takes one pod only is free again when that pod is gone for good.
    fn is_seated(&self, pod: &Pod) -> bool {
        let Some(nodes) = pod.annotations().get(&format!("{PREFIX}nodes")) else {
            return true;
        };
        let nodes: usize = nodes.parse().expect("a number of nodes");
        let mut seats = self.seats.lock().unwrap();
        let taken = seats
            .entry(pod.namespace().unwrap_or_default())
            .or_default();
        let uid = pod.uid().unwrap_or_default();
        if !taken.contains(&uid) && taken.len() < nodes {
            taken.insert(uid.clone());
        }
        taken.contains(&uid)
    }

    fn unseat(&self, pod: &Pod) {
        let mut seats = self.seats.lock().unwrap();
        let freed = seats
            .get_mut(&pod.namespace().unwrap_or_default())
            .is_some_and(|taken| taken.remove(&pod.uid().unwrap_or_default()));
        drop(seats);
        if freed {
            self.overrides_changed.send_replace(());
        }
    }

    fn behaviour(&self, pod: &Pod) -> Behaviour {
        if !self.is_seated(pod) {
            return Behaviour::Unschedulable;
        }
        let overrides = self.overrides.lock().unwrap();
        let overriding = overrides
            .iter()
            .find(|o| Some(&o.namespace) == pod.namespace().as_ref() && o.tag == tag(pod));
        overriding.map_or_else(|| Behaviour::of(pod), |o| o.behaviour)
    }

    async fn watch(self: Arc<Self>) {
        let stream = watcher(
            Api::<Pod>::all(self.client.clone()),
            watcher::Config::default(),
        )
        .default_backoff();
        pin_mut!(stream);
        let mut pods: HashMap<String, watch::Sender<Pod>> = HashMap::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                    let uid = pod.uid().unwrap_or_default();
                    if let Some(sender) = pods.get(&uid) {
                        sender.send_replace(pod);
                    } else {
                        let (sender, receiver) = watch::channel(pod);
                        pods.insert(uid, sender);
                        tokio::spawn(Life::new(Arc::clone(&self), receiver).live());
                    }
                }
                Ok(watcher::Event::Delete(pod)) => {
                    pods.remove(&pod.uid().unwrap_or_default());
                    self.unseat(&pod);
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
                Err(error) => eprintln!("test bed: the kubelet stand-in's watch: {error}"),
            }
        }
    }
}

/// Where the containers of a pod are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Unscheduled,
    Pulling,
    Running { ready: bool },
    BackOff { exit_code: i32 },
}

/// The life of one pod. The watch channel closes when the pod is gone.
struct Life {
    kubelet: Arc<Kubelet>,
    pod: watch::Receiver<Pod>,
    api: Api<Pod>,
    name: String,
    uid: String,
    started: Instant,
    restarts: i32,
    last_exit: Option<i32>,
    /// Since when the pod is in its stage, in the API's form: the transition times of its conditions.
    shown: Option<(Stage, i32, String)>,
}

impl Life {
    fn new(kubelet: Arc<Kubelet>, pod: watch::Receiver<Pod>) -> Self {
        let first = pod.borrow().clone();
        let api = Api::namespaced(
            kubelet.client.clone(),
            &first.namespace().unwrap_or_default(),
        );
        Self {
            api,
            name: first.name_any(),
            uid: first.uid().unwrap_or_default(),
            kubelet,
            pod,
            started: Instant::now(),
            restarts: 0,
            last_exit: None,
            shown: None,
        }
    }

    async fn live(mut self) {
        let mut overrides_changed = self.kubelet.overrides_changed.subscribe();
        let mut bound = false;
        let mut up_since = None;
        let mut down_since: Option<Instant> = None;
        loop {
            let pod = self.pod.borrow_and_update().clone();
            if pod.metadata.deletion_timestamp.is_some() {
                return self.terminate(&pod).await;
            }
            let over = pod
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref())
                .is_some_and(|p| p == "Failed" || p == "Succeeded");
            if over {
                self.kubelet.running.lock().unwrap().remove(&self.uid);
                if self.pod.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let behaviour = self.kubelet.behaviour(&pod);
            if behaviour != Behaviour::Unschedulable && !bound {
                bound = self.bind(&pod).await;
                if !bound {
                    sleep(Duration::from_millis(200)).await;
                    continue;
                }
                self.started = Instant::now();
            }
            let now = Instant::now();
            let (stage, next) = match behaviour {
                Behaviour::Unschedulable if !bound => (Stage::Unscheduled, None),
                Behaviour::NeverReady | Behaviour::Unschedulable => {
                    (Stage::Running { ready: false }, None)
                }
                Behaviour::ImagePull => (Stage::Pulling, None),
                Behaviour::Ready { after } => {
                    let ready_at = self.started + after;
                    if now < ready_at {
                        (Stage::Running { ready: false }, Some(ready_at))
                    } else {
                        (Stage::Running { ready: true }, None)
                    }
                }
                Behaviour::CrashLoop {
                    up,
                    down,
                    exit_code,
                } => match down_since {
                    Some(since) if now < since + down => {
                        (Stage::BackOff { exit_code }, Some(since + down))
                    }
                    _ => {
                        if down_since.take().is_some() {
                            up_since = None;
                        }
                        let since = *up_since.get_or_insert(now);
                        if now < since + up {
                            (Stage::Running { ready: true }, Some(since + up))
                        } else {
                            down_since = Some(now);
                            self.restarts += 1;
                            self.last_exit = Some(exit_code);
                            (Stage::BackOff { exit_code }, Some(now + down))
                        }
                    }
                },
            };
            self.show(&pod, stage).await;
            tokio::select! {
                changed = self.pod.changed() => if changed.is_err() {
                    self.kubelet.running.lock().unwrap().remove(&self.uid);
                    return;
                },
                _ = overrides_changed.changed() => {}
                () = async { match next { Some(at) => sleep_until(at).await, None => std::future::pending().await } } => {}
            }
        }
    }

    async fn bind(&self, pod: &Pod) -> bool {
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                uid: Some(self.uid.clone()),
                ..Default::default()
            },
            target: ObjectReference {
                kind: Some("Node".into()),
                name: Some("bed".into()),
                ..Default::default()
            },
        };
        if pod
            .spec
            .as_ref()
            .is_some_and(|spec| spec.node_name.is_some())
        {
            return true;
        }
        self.api
            .create_subresource::<_, Value>("binding", &self.name, &PostParams::default(), &binding)
            .await
            .is_ok()
    }

    async fn terminate(&mut self, pod: &Pod) {
        sleep(annotated_duration(pod, "terminate-after").unwrap_or(Duration::from_millis(100)))
            .await;
        self.kubelet.running.lock().unwrap().remove(&self.uid);
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(self.uid.clone()),
                resource_version: None,
            }),
            ..Default::default()
        };
        while let Err(error) = self.api.delete(&self.name, &now).await {
            if matches!(&error, kube::Error::Api(status) if status.code == 404 || status.code == 409)
            {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Writes the status when it is not what was written last.
    async fn show(&mut self, pod: &Pod, stage: Stage) {
        let since = match &self.shown {
            Some((shown, restarts, _)) if *shown == stage && *restarts == self.restarts => return,
            _ => now(),
        };
        let status = self.status(pod, stage, &since);
        let patch = Patch::Merge(json!({"metadata": {"uid": self.uid}, "status": status}));
        if self
            .api
            .patch_status(&self.name, &PatchParams::default(), &patch)
            .await
            .is_ok()
        {
            self.shown = Some((stage, self.restarts, since));
            let mut running = self.kubelet.running.lock().unwrap();
            if matches!(stage, Stage::Running { .. }) {
                running
                    .entry(self.uid.clone())
                    .or_insert_with(|| (pod.clone(), Instant::now()));
            } else {
                running.remove(&self.uid);
            }
        }
    }

    fn status(&self, pod: &Pod, stage: Stage, since: &str) -> Value {
        let created = pod
            .creation_timestamp()
            .map(|time| json!(time))
            .unwrap_or(Value::Null);
        let condition = |kind: &str, is: bool, reason: Option<&str>, message: Option<String>| json!({"type": kind, "status": if is { "True" } else { "False" }, "reason": reason, "message": message, "lastTransitionTime": since});
        let Some(spec) = &pod.spec else {
            return Value::Null;
        };
        if stage == Stage::Unscheduled {
            let nodes = pod.annotations().get(&format!("{PREFIX}nodes"));
            let (nodes, why) = nodes.map_or(("3", "Insufficient cpu"), |nodes| {
                (nodes, "node(s) didn't match pod anti-affinity rules")
            });
            let message = format!(
                "0/{nodes} nodes are available: {nodes} {why}. preemption: 0/{nodes} nodes are available: \
                 {nodes} No preemption victims found for incoming pod."
            );
            return json!({"phase": "Pending", "conditions": [condition("PodScheduled", false, Some("Unschedulable"), Some(message))]});
        }
        let ready = stage == Stage::Running { ready: true };
        let unready: Vec<_> = spec.containers.iter().map(|c| c.name.as_str()).collect();
        let (reason, message) = if ready {
            (None, None)
        } else {
            (
                Some("ContainersNotReady"),
                Some(format!(
                    "containers with unready status: [{}]",
                    unready.join(" ")
                )),
            )
        };
        let initialized = stage != Stage::Pulling || spec.init_containers.is_none();
        json!({
            "phase": if stage == Stage::Pulling { "Pending" } else { "Running" },
            "startTime": created, "hostIP": "192.0.2.1", "podIP": "192.0.2.2", "podIPs": [{"ip": "192.0.2.2"}],
            "conditions": [
                condition("PodScheduled", true, None, None),
                condition("Initialized", initialized, None, None),
                condition("ContainersReady", ready, reason, message.clone()),
                condition("Ready", ready, reason, message),
            ],
            "initContainerStatuses": spec.init_containers.iter().flatten().map(|c| init_status(pod, c, since)).collect::<Vec<_>>(),
            "containerStatuses": spec.containers.iter().enumerate().map(|(i, c)| self.container_status(pod, c, i == 0, stage, since)).collect::<Vec<_>>(),
        })
    }

    /// Trouble befalls the first container; the others of such a pod just run.
    fn container_status(
        &self,
        pod: &Pod,
        container: &Container,
        first: bool,
        stage: Stage,
        since: &str,
    ) -> Value {
        let image = container.image.as_deref().unwrap_or_default();
        let running = json!({"running": {"startedAt": since}});
        let (state, ready) = match stage {
            Stage::Pulling if first => (
                json!({"waiting": {"reason": "ImagePullBackOff", "message": format!("Back-off pulling image \"{image}\": not found")}}),
                false,
            ),
            Stage::BackOff { .. } if first => {
                let message = format!(
                    "back-off 10s restarting failed container={}",
                    container.name
                );
                (
                    json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}}),
                    false,
                )
            }
            Stage::Unscheduled | Stage::Pulling | Stage::BackOff { .. } => (running, true),
            Stage::Running { ready } => (running, ready || !first),
        };
        let told = told_restarts(pod, &container.name);
        let restarts =
            told.map_or(0, |(restarts, _)| restarts) + if first { self.restarts } else { 0 };
        let last_exit = self
            .last_exit
            .filter(|_| first)
            .or(told.map(|(_, code)| code));
        let last_state = last_exit.map_or(json!({}), |code| terminated(code, since));
        json!({
            "name": container.name, "image": image, "imageID": "bed", "ready": ready, "started": ready,
            "restartCount": restarts, "state": state, "lastState": last_state,
        })
    }
}

/// A native sidecar runs on; any other init container has ended well.
fn init_status(pod: &Pod, container: &Container, since: &str) -> Value {
    let told = told_restarts(pod, &container.name);
    let sidecar = container.restart_policy.as_deref() == Some("Always");
    let state = if sidecar {
        json!({"running": {"startedAt": since}})
    } else {
        terminated(0, since)
    };
    json!({
        "name": container.name, "image": container.image, "imageID": "bed", "ready": true, "started": sidecar,
        "restartCount": told.map_or(0, |(restarts, _)| restarts), "state": state,
        "lastState": told.map_or(json!({}), |(_, code)| terminated(code, since)),
    })
}

fn now() -> String {
    jiff::Timestamp::now()
        .round(jiff::Unit::Second)
        .unwrap()
        .to_string()
}
