//! What happened to a service, as Events on X: what `kubectl describe` and `kubectl get events` show. What concerns the
//! daemon as a whole is told on its own pod.
//!
//! Telling never delays what is told about: notices wait in a bounded queue, and a task of its own writes them, each with
//! a deadline and few tries. The same thing said again, after a crash or by another replica, raises the count of the one
//! Event there is: its name follows from what it says.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tracing::{debug, warn};

use super::perform::{create, patch};
use super::rights::Resource;
use super::{Cluster, ClusterError, Kind};
use crate::rollout::observation::{Deployment, Uid};

/// `v1` Events: those that `kubectl describe` counts.
pub(super) const EVENTS: Resource = Resource {
    group: "",
    name: "events",
};

/// The reporting component.
const COMPONENT: &str = "volery";

/// The longest message, in bytes: the API server's own limit for notes.
const LONGEST_MESSAGE: usize = 1024;

/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// How many notices wait at most. A thousand services can come to a step at the same moment; with more in the way, the
/// oldest are of least use.
const ROOM: usize = 1024;

/// The pauses after a first and a second failed try; there is no fourth.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// How an Event wants to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// The ordinary course of things.
    Normal,
    /// A person should look at it.
    Warning,
}

impl Tone {
    /// As an Event's `type` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The pod that the daemon runs in, as the downward API tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPod {
    namespace: String,
    name: String,
    uid: Uid,
}

impl OwnPod {
    /// Its name, in an environment.
    pub const NAME: &'static str = "POD_NAME";
    /// Its namespace, in an environment.
    pub const NAMESPACE: &'static str = "POD_NAMESPACE";
    /// Its uid, in an environment: `kubectl describe` asks for Events by it.
    pub const UID: &'static str = "POD_UID";

    /// What an environment says of it; `None` unless it says all three, as outside a cluster.
    pub fn of(environment: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let said = |name| environment(name).filter(|value| !value.is_empty());
        Some(Self {
            namespace: said(Self::NAMESPACE)?,
            name: said(Self::NAME)?,
            uid: Uid(said(Self::UID)?),
        })
    }
}

/// One thing to tell about an object: most often X.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    namespace: String,
    kind: Kind,
    object: String,
    uid: Uid,
    reason: &'static str,
    /// What it is named after.
    about: String,
    message: String,
    tone: Tone,
    at: Timestamp,
}

impl Notice {
    /// A notice about `original`, in `namespace`. Of `text` the first line is told, at most 1024 bytes of it.
    pub fn new(
        namespace: &str,
        original: &Deployment,
        reason: &'static str,
        text: &str,
        tone: Tone,
    ) -> Self {
        let (name, uid) = (&original.name, &original.uid);
        Self::of(namespace, Kind::Deployment, name, uid, reason, text, tone)
    }

    /// The same notice, which says nothing new as long as `about` is the same, with other numbers or not.
    #[must_use]
    pub fn about(self, about: &str) -> Self {
        Self {
            about: one_line(about),
            ..self
        }
    }

    /// A notice about the daemon itself. Of `text` the first line is told, at most 1024 bytes of it.
    pub fn about_us(pod: &OwnPod, reason: &'static str, text: &str, tone: Tone) -> Self {
        let OwnPod {
            namespace,
            name,
            uid,
        } = pod;
        Self::of(namespace, Kind::Pod, name, uid, reason, text, tone)
    }

    fn of(
        namespace: &str,
        kind: Kind,
        object: &str,
        uid: &Uid,
        reason: &'static str,
        text: &str,
        tone: Tone,
    ) -> Self {
        let message = one_line(text);
        Self {
            namespace: namespace.to_owned(),
            kind,
            object: object.to_owned(),
            uid: uid.clone(),
            reason,
            about: message.clone(),
            message,
            tone,
            at: Timestamp::UNIX_EPOCH,
        }
    }

    /// The Event's name: the same for the same words about the same life of the same object.
    fn name(&self) -> String {
        let mut digest = Sha256::new();
        for part in [self.uid.0.as_str(), self.reason, &self.about] {
            digest.update(part.as_bytes());
            digest.update([0]);
        }
        let mut hash = String::new();
        for byte in digest.finalize().iter().take(8) {
            let _ = write!(hash, "{byte:02x}");
        }
        let room = LONGEST_NAME - 1 - hash.len();
        let name = cut(&self.object, room).trim_end_matches(['.', '-']);
        format!("{name}.{hash}")
    }

    fn body(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name(), "namespace": self.namespace},
            "involvedObject": {
                "apiVersion": self.kind.api_version(),
                "kind": self.kind.name(),
                "namespace": self.namespace,
                "name": self.object,
                "uid": self.uid,
            },
            "type": self.tone.name(),
            "reason": self.reason,
            "message": self.message,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "count": 1,
            "firstTimestamp": self.at.to_string(),
            "lastTimestamp": self.at.to_string(),
        })
    }
}

/// A text's first line, at most [`LONGEST_MESSAGE`] bytes of it.
pub(super) fn one_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.len() <= LONGEST_MESSAGE {
        return line.to_owned();
    }
    let cut_off = "…";
    format!("{}{cut_off}", cut(line, LONGEST_MESSAGE - cut_off.len()))
}

/// At most so many bytes of a text, whole characters only.
fn cut(text: &str, room: usize) -> &str {
    let end = (0..=room.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or(text)
}

/// The way to the task that writes Events.
#[derive(Clone)]
pub struct Events {
    cluster: Cluster,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    bell: Notify,
}

#[derive(Default)]
struct Waiting {
    notices: VecDeque<Notice>,
    /// How many had to give way since there was room last.
    dropped: u64,
    closed: bool,
}

impl Events {
    /// Events in a cluster; [`Self::write`] must run for them to appear.
    pub fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            queue: Arc::default(),
        }
    }

    /// Has something told, dated now. Never waits: when there is no room, the oldest notice is dropped.
    pub fn tell(&self, notice: Notice) {
        let at = self.cluster.now();
        self.queue.put(Notice { at, ..notice });
    }

    /// No more will be told: [`Self::write`] ends when everything is written.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.queue.bell.notify_one();
    }

    /// Writes what is told, in order, until [`Self::close`].
    pub async fn write(self) {
        let mut troubled = false;
        while let Some(notice) = self.queue.next().await {
            match self.cluster.record(&notice).await {
                Ok(()) => troubled = false,
                Err(error @ ClusterError::NotLeading { .. }) => debug!("{error}"),
                Err(error) if troubled => debug!("{error}"),
                Err(error) => {
                    warn!("an Event is lost, what it tells is in this log: {error}");
                    troubled = true;
                }
            }
        }
    }
}

impl Queue {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, notice: Notice) {
        let mut waiting = self.lock();
        if waiting.notices.len() >= ROOM {
            waiting.notices.pop_front();
            if waiting.dropped == 0 {
                warn!("Events cannot be written as fast as things happen: the oldest are dropped");
            }
            waiting.dropped = waiting.dropped.saturating_add(1);
        }
        waiting.notices.push_back(notice);
        drop(waiting);
        self.bell.notify_one();
    }

    async fn next(&self) -> Option<Notice> {
        loop {
            {
                let mut waiting = self.lock();
                if let Some(notice) = waiting.notices.pop_front() {
                    return Some(notice);
                }
                if waiting.dropped > 0 {
                    debug!("{} Events were dropped", waiting.dropped);
                    waiting.dropped = 0;
                }
                if waiting.closed {
                    return None;
                }
            }
            self.bell.notified().await;
        }
    }
}

impl Cluster {
    /// Writes one Event, or raises the count of the one that says the same. A try that was applied and not answered is
    /// known again by its date, so that nothing is counted twice.
    async fn record(&self, notice: &Notice) -> Result<(), ClusterError> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let outcome = match self.create_event(notice).await {
                // It exists.
                Err(ClusterError::Stale { .. }) => self.raise_event(notice).await,
                other => other,
            };
            match outcome {
                Err(
                    error @ (ClusterError::Stale { .. }
                    | ClusterError::Unavailable { .. }
                    | ClusterError::Timeout { .. }),
                ) => match pauses.next() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(error),
                },
                other => return other,
            }
        }
    }

    async fn create_event(&self, notice: &Notice) -> Result<(), ClusterError> {
        let what = format!("create events {}/{}", notice.namespace, notice.name());
        create(&self.events(&notice.namespace), what, notice.body())
            .await
            .map(drop)
    }

    /// Counts what is said again. An empty patch reads the Event, so that no right to read Events is needed.
    async fn raise_event(&self, notice: &Notice) -> Result<(), ClusterError> {
        let event = self.patch_event(notice, json!({})).await?;
        let counted = event.data.get("lastTimestamp").and_then(Value::as_str);
        let counted = counted.and_then(|text| text.parse::<Timestamp>().ok());
        if counted.is_some_and(|counted| counted >= notice.at) {
            return Ok(());
        }
        let count = event.data.get("count").and_then(Value::as_u64).unwrap_or(1);
        let raised = json!({
            "metadata": {"resourceVersion": event.metadata.resource_version},
            "count": count.saturating_add(1),
            "message": notice.message,
            "lastTimestamp": notice.at.to_string(),
        });
        self.patch_event(notice, raised).await.map(drop)
    }

    async fn patch_event(
        &self,
        notice: &Notice,
        change: Value,
    ) -> Result<DynamicObject, ClusterError> {
        let name = notice.name();
        let what = format!("patch events {}/{name}", notice.namespace);
        let api = self.events(&notice.namespace);
        patch(&api, what, &name, &Patch::Merge(change)).await
    }

    fn events(&self, namespace: &str) -> Api<DynamicObject> {
        self.api_of(&EVENTS.in_version("v1", "Event"), namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(deployment: &str, message: &str) -> Notice {
        Notice {
            namespace: "workers".to_owned(),
            kind: Kind::Deployment,
            object: deployment.to_owned(),
            uid: Uid("a-life".to_owned()),
            reason: "Checking",
            about: one_line(message),
            message: one_line(message),
            tone: Tone::Normal,
            at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn an_event_is_named_after_what_it_says() {
        let one = notice("orders", "step 1/2");
        assert_eq!(one.name(), one.clone().name());
        assert_eq!(one.name(), "orders.2fa5ff663a8135ee");
        assert_ne!(one.name(), notice("orders", "step 2/2").name());
        let reason = "CheckFailed";
        assert_ne!(
            one.name(),
            Notice {
                reason,
                ..one.clone()
            }
            .name()
        );
        let other_numbers = notice("orders", "step 1/2 of 12").about("step 1/2");
        assert_eq!(one.name(), other_numbers.name());
        let uid = Uid("another-life".to_owned());
        assert_ne!(one.name(), Notice { uid, ..one.clone() }.name());
    }

    #[test]
    fn the_own_pod_is_known_where_all_of_it_is_told() {
        let whole = [
            (OwnPod::NAME, "volery-0"),
            (OwnPod::NAMESPACE, "workers"),
            (OwnPod::UID, "a-life"),
        ];
        let told = |without: &str| {
            let without = without.to_owned();
            OwnPod::of(&move |name| {
                let said = whole
                    .iter()
                    .find(|(key, _)| *key == name && *key != without);
                said.map(|(_, value)| (*value).to_owned())
            })
        };
        let pod = told("").expect("all of it is told");
        let body = Notice::about_us(&pod, "ConfigRejected", "why", Tone::Warning).body();
        assert_eq!(
            body.get("involvedObject"),
            Some(&json!({
                "apiVersion": "v1", "kind": "Pod", "namespace": "workers", "name": "volery-0", "uid": "a-life",
            }))
        );
        for (key, _) in whole {
            assert_eq!(told(key), None, "without {key}");
        }
    }

    #[test]
    fn a_long_name_leaves_room_for_the_rest() {
        let long = format!("{}.{}", "a".repeat(235), "b".repeat(17));
        let name = notice(&long, "step 1/2").name();
        assert!(name.len() <= LONGEST_NAME, "{name}");
        assert!(name.starts_with(&format!("{}.", "a".repeat(235))), "{name}");
        assert!(!name.contains(".."), "{name}");
    }

    #[test]
    fn a_message_is_one_line_of_at_most_1024_bytes_and_whole_characters() {
        assert_eq!(one_line("rollout 1\n- image: a"), "rollout 1");
        assert_eq!(one_line(""), "");
        let fits = "ä".repeat(512);
        assert_eq!(one_line(&fits), fits);
        let long = format!("a{}", "ä".repeat(600));
        let told = one_line(&long);
        assert!(
            told.len() <= LONGEST_MESSAGE && told.ends_with("ä…"),
            "{told}"
        );
    }

    #[test]
    fn a_full_queue_drops_the_oldest() {
        let queue = Queue::default();
        for number in 0..ROOM + 3 {
            queue.put(notice("orders", &number.to_string()));
        }
        let waiting = queue.lock();
        assert_eq!(waiting.notices.len(), ROOM);
        assert_eq!(waiting.dropped, 3);
        let oldest = waiting.notices.front().map(|notice| notice.message.clone());
        assert_eq!(oldest.as_deref(), Some("3"));
    }
}
