//! Everything that happened in a namespace, in order: so that a scenario can assert about the whole way and not only the end.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::{Debug, Write as _},
    sync::{Arc, Mutex},
};

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::Pod,
    },
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    runtime::{WatchStreamExt as _, watcher},
};
use serde::de::DeserializeOwned;
use tokio::{task::JoinHandle, time::Instant};

use crate::kubelet::tag;

/// A state of an object, or its end. Pods come in the order of their changes; the kinds may be a little apart from each other.
#[derive(Clone, Debug)]
pub struct Event {
    pub at: Instant,
    pub object: Object,
    pub gone: bool,
}

/// An object as the API server showed it.
#[derive(Clone, Debug)]
pub enum Object {
    Pod(Arc<Pod>),
    ReplicaSet(Arc<ReplicaSet>),
    Deployment(Arc<Deployment>),
}

impl From<Pod> for Object {
    fn from(pod: Pod) -> Self {
        Self::Pod(Arc::new(pod))
    }
}

impl From<ReplicaSet> for Object {
    fn from(rs: ReplicaSet) -> Self {
        Self::ReplicaSet(Arc::new(rs))
    }
}

impl From<Deployment> for Object {
    fn from(deployment: Deployment) -> Self {
        Self::Deployment(Arc::new(deployment))
    }
}

/// The pods at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// Not terminating, failed or evicted.
    pub alive: usize,
    /// Alive and Ready.
    pub available: usize,
    /// Deleted, but still there.
    pub terminating: usize,
    /// Alive, and of these available, by image tag.
    pub by_tag: BTreeMap<String, (usize, usize)>,
}

/// Watches a namespace from its creation on.
pub struct Recorder {
    events: Arc<Mutex<Vec<Event>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Recorder {
    pub fn start(client: &Client, namespace: &str) -> Self {
        let events = Arc::default();
        let tasks = vec![
            tokio::spawn(record(
                Api::<Pod>::namespaced(client.clone(), namespace),
                Arc::clone(&events),
            )),
            tokio::spawn(record(
                Api::<ReplicaSet>::namespaced(client.clone(), namespace),
                Arc::clone(&events),
            )),
            tokio::spawn(record(
                Api::<Deployment>::namespaced(client.clone(), namespace),
                Arc::clone(&events),
            )),
        ];
        Self { events, tasks }
    }

    /// All events so far.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// The newest resource version seen of each object, by uid; `u64::MAX` of those that are gone.
    pub fn versions(&self) -> HashMap<String, u64> {
        let newest = |event: &Event| {
            let metadata = match &event.object {
                Object::Pod(pod) => &pod.metadata,
                Object::ReplicaSet(rs) => &rs.metadata,
                Object::Deployment(deployment) => &deployment.metadata,
            };
            let version = metadata
                .resource_version
                .as_deref()
                .and_then(|v| v.parse().ok());
            let version = if event.gone {
                u64::MAX
            } else {
                version.unwrap_or_default()
            };
            (metadata.uid.clone().unwrap_or_default(), version)
        };
        self.events.lock().unwrap().iter().map(newest).collect()
    }

    /// The pods first seen since `since`, as they were then, in order.
    pub fn started(&self, since: Instant) -> Vec<Arc<Pod>> {
        let mut known = BTreeSet::new();
        self.pods()
            .filter(|(_, pod, _)| known.insert(pod.uid()))
            .filter(|(at, ..)| *at >= since)
            .map(|(_, pod, _)| pod)
            .collect()
    }

    /// How many pods were started since `since`, by image tag.
    pub fn starts(&self, since: Instant) -> BTreeMap<String, usize> {
        let mut starts = BTreeMap::new();
        for pod in self.started(since) {
            *starts.entry(tag(&pod).to_owned()).or_default() += 1;
        }
        starts
    }

    /// How many pods began to terminate (or vanished at once) since `since`, by image tag.
    pub fn stops(&self, since: Instant) -> BTreeMap<String, usize> {
        let mut known = BTreeSet::new();
        let mut stops = BTreeMap::new();
        for (at, pod, gone) in self.pods() {
            if (gone || pod.metadata.deletion_timestamp.is_some())
                && known.insert(pod.uid())
                && at >= since
            {
                *stops.entry(tag(&pod).to_owned()).or_default() += 1;
            }
        }
        stops
    }

    /// The pods at `since`, and after every event from then on.
    pub fn series(&self, since: Instant) -> Vec<(Instant, Pods)> {
        let mut states: HashMap<String, (String, State)> = HashMap::new();
        let mut series = vec![];
        let mut at_since = Pods::default();
        for (at, pod, gone) in self.pods() {
            let uid = pod.uid().unwrap_or_default();
            if gone {
                states.remove(&uid);
            } else {
                states.insert(uid, (tag(&pod).to_owned(), State::of(&pod)));
            }
            let now = count(&states);
            if at < since {
                at_since = now;
            } else {
                series.push((at, now));
            }
        }
        series.insert(0, (since, at_since));
        series
    }

    /// The fewest and the most of something over [`Self::series`].
    pub fn range(&self, since: Instant, of: impl Fn(&Pods) -> usize) -> (usize, usize) {
        let numbers: Vec<_> = self
            .series(since)
            .iter()
            .map(|(_, pods)| of(pods))
            .collect();
        (
            numbers.iter().copied().min().unwrap_or_default(),
            numbers.iter().copied().max().unwrap_or_default(),
        )
    }

    /// The distinct steps of an open rollout in order, `(C,P)`: `spec.replicas` of `NAME-canary` and `NAME-primary`, at every change
    /// while both exist.
    pub fn steps(&self, name: &str, since: Instant) -> Vec<(i32, i32)> {
        let (mut canary, mut primary) = (None, None);
        let mut steps = Vec::new();
        for event in self.events() {
            let Object::Deployment(deployment) = &event.object else {
                continue;
            };
            let replicas = deployment
                .spec
                .as_ref()
                .and_then(|spec| spec.replicas)
                .filter(|_| !event.gone);
            if deployment.name_any() == format!("{name}-canary") {
                canary = replicas;
            } else if deployment.name_any() == format!("{name}-primary") {
                primary = replicas;
            } else {
                continue;
            }
            if let (Some(c), Some(p)) = (canary, primary)
                && event.at >= since
                && steps.last() != Some(&(c, p))
            {
                steps.push((c, p));
            }
        }
        steps
    }

    /// All resource versions that a Deployment has had since `since`.
    pub fn deployment_states(&self, name: &str, since: Instant) -> Vec<Arc<Deployment>> {
        let of_name = |event: Event| match event.object {
            Object::Deployment(deployment)
                if event.at >= since && deployment.name_any() == name =>
            {
                Some(deployment)
            }
            _ => None,
        };
        self.events().into_iter().filter_map(of_name).collect()
    }

    /// The last minutes in words, one line per change of a pod, ReplicaSet or Deployment that matters.
    pub fn story(&self) -> String {
        let events = self.events();
        let Some(first) = events.first().map(|event| event.at) else {
            return String::new();
        };
        let mut story = String::new();
        let mut last: HashMap<String, String> = HashMap::new();
        for event in &events {
            let (name, text) = match &event.object {
                Object::Pod(pod) => (
                    format!("pod {}", pod.name_any()),
                    format!("{} {:?}", tag(pod), State::of(pod)),
                ),
                Object::ReplicaSet(rs) => {
                    let owner = rs
                        .owner_references()
                        .first()
                        .map_or("nobody", |owner| owner.name.as_str());
                    let wanted = rs
                        .spec
                        .as_ref()
                        .and_then(|spec| spec.replicas)
                        .unwrap_or_default();
                    let is = rs.status.as_ref().map_or(0, |status| status.replicas);
                    (
                        format!("replicaset {}", rs.name_any()),
                        format!("of {owner}: {is} of {wanted}"),
                    )
                }
                Object::Deployment(d) => {
                    let spec = d.spec.clone().unwrap_or_default();
                    let status = d.status.clone().unwrap_or_default();
                    let text = format!(
                        "{} of {}, {} up to date, {} available, {}",
                        status.replicas.unwrap_or_default(),
                        spec.replicas.unwrap_or_default(),
                        status.updated_replicas.unwrap_or_default(),
                        status.available_replicas.unwrap_or_default(),
                        if spec.paused == Some(true) {
                            "paused"
                        } else {
                            "not paused"
                        },
                    );
                    (format!("deployment {}", d.name_any()), text)
                }
            };
            let text = if event.gone { "gone".to_owned() } else { text };
            if last.insert(name.clone(), text.clone()).as_ref() != Some(&text) {
                let _ = writeln!(
                    story,
                    "{:8.3} {name}: {text}",
                    (event.at - first).as_secs_f64()
                );
            }
        }
        story
    }

    fn pods(&self) -> impl Iterator<Item = (Instant, Arc<Pod>, bool)> {
        self.events()
            .into_iter()
            .filter_map(|event| match event.object {
                Object::Pod(pod) => Some((event.at, pod, event.gone)),
                _ => None,
            })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unavailable,
    Available,
    Terminating,
    Over,
}

impl State {
    fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        if pod.metadata.deletion_timestamp.is_some() {
            Self::Terminating
        } else if status
            .and_then(|s| s.phase.as_deref())
            .is_some_and(|phase| phase == "Failed" || phase == "Succeeded")
        {
            Self::Over
        } else if status.is_some_and(|s| {
            s.conditions
                .iter()
                .flatten()
                .any(|c| c.type_ == "Ready" && c.status == "True")
        }) {
            Self::Available
        } else {
            Self::Unavailable
        }
    }
}

fn count(states: &HashMap<String, (String, State)>) -> Pods {
    let mut pods = Pods::default();
    for (tag, state) in states.values() {
        let available = usize::from(*state == State::Available);
        match state {
            State::Terminating => pods.terminating += 1,
            State::Over => {}
            State::Unavailable | State::Available => {
                pods.alive += 1;
                pods.available += available;
                let of_tag = pods.by_tag.entry(tag.clone()).or_default();
                of_tag.0 += 1;
                of_tag.1 += available;
            }
        }
    }
    pods
}

async fn record<K>(api: Api<K>, events: Arc<Mutex<Vec<Event>>>)
where
    K: Resource<Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + Into<Object>
        + 'static,
    K::DynamicType: Default,
{
    let stream = watcher(api, watcher::Config::default()).default_backoff();
    pin_mut!(stream);
    while let Some(event) = stream.next().await {
        let (object, gone) = match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                (object.into(), false)
            }
            Ok(watcher::Event::Delete(object)) => (object.into(), true),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => continue,
            Err(error) => {
                eprintln!("test bed: the recorder's watch: {error}");
                continue;
            }
        };
        events.lock().unwrap().push(Event {
            at: Instant::now(),
            object,
            gone,
        });
    }
}
