//! What happened in the cluster, so that promises can be checked: every request, every write that changed something,
//! every pod's life, and how many pods of each image there were at each moment.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::object::{Kind, Object};
use super::store::{Change, Occurrence, Part, Sort};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// reads one object
    Get,
    /// reads many
    List,
    /// follows many
    Watch,
    /// makes one
    Create,
    /// replaces one (PUT)
    Replace,
    /// changes one (PATCH)
    Patch,
    /// deletes one
    Delete,
}

impl Verb {
    /// Whether the verb writes.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(
            self,
            Self::Create | Self::Replace | Self::Patch | Self::Delete
        )
    }

    /// The verb as in RBAC rules and audit logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Replace => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// One request, as an audit log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// since the cluster began
    pub at: Duration,
    /// who asked: the name a client was made with, `user`, or a component such as `deployment-controller`
    pub agent: String,
    /// what was asked
    pub verb: Verb,
    /// of which kind
    pub kind: Kind,
    /// in which namespace; empty for all
    pub namespace: String,
    /// which object; empty for many
    pub name: String,
    /// which part of it
    pub part: Part,
}

impl Request {
    /// Whether it only tells something, from which nothing follows: an Event, or a condition that somebody patches into a
    /// Deployment's status.
    #[must_use]
    pub fn only_tells(&self) -> bool {
        Sort::of(self.kind, self.part, self.verb) == Sort::Word
    }
}

impl fmt::Display for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            Part::Main => "",
            Part::Status => "/status",
            Part::Scale => "/scale",
        };
        let Self {
            agent,
            verb,
            kind,
            namespace,
            name,
            ..
        } = self;
        write!(
            formatter,
            "{} {agent} {} {}{part} {namespace}/{name}",
            Moment(self.at),
            verb.name(),
            kind.plural()
        )
    }
}

/// A time since the cluster began, as `00:01:02.345`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(
    /// since the cluster began
    pub Duration,
);

impl fmt::Display for Moment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        write!(
            formatter,
            "{hours:02}:{minutes:02}:{:02}.{:03}",
            seconds % 60,
            self.0.subsec_millis()
        )
    }
}

/// A turn in a pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// created: what the promises call a pod start
    Started,
    /// has become ready
    Ready,
    /// is no longer ready
    Unready,
    /// told to end
    Terminating,
    /// gone
    Ended,
}

/// One turn of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTurn {
    /// since the cluster began
    pub at: Duration,
    /// its namespace
    pub namespace: String,
    /// its name
    pub pod: String,
    /// image of its first container
    pub image: String,
    /// name of the ReplicaSet that owns it
    pub replica_set: String,
    /// what happened
    pub turn: Turn,
}

/// How many pods there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// neither terminating nor finished
    pub alive: usize,
    /// alive and ready
    pub ready: usize,
    /// told to end, not gone
    pub terminating: usize,
}

impl Count {
    fn of(pod: &Object) -> Self {
        let alive = pod.is_active();
        Self {
            alive: usize::from(alive),
            ready: usize::from(alive && pod.is_ready()),
            terminating: usize::from(pod.is_terminating()),
        }
    }

    fn add(&mut self, other: Self) {
        self.alive += other.alive;
        self.ready += other.ready;
        self.terminating += other.terminating;
    }

    fn subtract(&mut self, other: Self) {
        self.alive = self.alive.saturating_sub(other.alive);
        self.ready = self.ready.saturating_sub(other.ready);
        self.terminating = self.terminating.saturating_sub(other.terminating);
    }
}

/// The pods of one namespace, counted on with each change: a census of hundreds of pods for each change of one would
/// be most of a large simulation's work.
#[derive(Debug, Default)]
pub(super) struct Tally {
    images: Counts,
    replica_sets: Counts,
}

/// Counts by a name, each with how many pods there are of it, of whatever sort.
type Counts = BTreeMap<String, (usize, Count)>;

impl Tally {
    /// Takes in a change of a pod of this namespace.
    pub(super) fn note(&mut self, change: &Change) {
        if change.occurrence != Occurrence::Deleted {
            let one = Count::of(&change.object);
            for (counts, name) in self.counts_of(&change.object) {
                if !counts.contains_key(name) {
                    counts.insert(name.to_owned(), (0, Count::default()));
                }
                if let Some((pods, count)) = counts.get_mut(name) {
                    *pods += 1;
                    count.add(one);
                }
            }
        }
        if let Some(before) = &change.before {
            let one = Count::of(before);
            for (counts, name) in self.counts_of(before) {
                let Some((pods, count)) = counts.get_mut(name) else {
                    continue;
                };
                *pods = pods.saturating_sub(1);
                count.subtract(one);
                if *pods == 0 {
                    counts.remove(name);
                }
            }
        }
    }

    fn counts_of<'a>(&mut self, pod: &'a Object) -> [(&mut Counts, &'a str); 2] {
        let owner = pod.controlled_by().map(|owner| owner.name.as_str());
        [
            (&mut self.images, pod.image()),
            (&mut self.replica_sets, owner.unwrap_or_default()),
        ]
    }

    /// How many pods there are now.
    pub(super) fn census(&self, at: Duration, namespace: &str) -> Census {
        let counts = |counts: &Counts| {
            counts
                .iter()
                .map(|(name, (_, count))| (name.clone(), *count))
                .collect()
        };
        Census {
            at,
            namespace: namespace.to_owned(),
            images: counts(&self.images),
            replica_sets: counts(&self.replica_sets),
        }
    }
}

/// The pods of one namespace at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// since the cluster began; holds until the next census of this namespace
    pub at: Duration,
    /// the namespace
    pub namespace: String,
    /// by image of the first container
    pub images: BTreeMap<String, Count>,
    /// by name of the ReplicaSet, for versions that differ in something else
    pub replica_sets: BTreeMap<String, Count>,
}

impl Census {
    /// All pods together.
    #[must_use]
    pub fn total(&self) -> Count {
        let mut total = Count::default();
        self.images.values().for_each(|count| total.add(*count));
        total
    }

    /// The pods of one image.
    #[must_use]
    pub fn of(&self, image: &str) -> Count {
        self.images.get(image).copied().unwrap_or_default()
    }

    /// Whether nothing has changed since `last`.
    fn agrees_with(&self, last: &Self) -> bool {
        (&self.images, &self.replica_sets) == (&last.images, &last.replica_sets)
    }
}

/// Everything that happened so far.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// every request that reached the server, reads too
    pub requests: Vec<Request>,
    /// every write that changed an object
    pub writes: Vec<Request>,
    /// every turn of every pod
    pub pods: Vec<PodTurn>,
    /// the pods of each namespace whenever their number changed
    pub census: Vec<Census>,
}

impl Journal {
    /// How many pods were started in a namespace, of an image.
    #[must_use]
    pub fn starts(&self, namespace: &str, image: &str) -> usize {
        self.turns(namespace, Turn::Started)
            .filter(|turn| turn.image == image)
            .count()
    }

    /// The turns of one sort in a namespace.
    pub fn turns<'a>(
        &'a self,
        namespace: &'a str,
        turn: Turn,
    ) -> impl Iterator<Item = &'a PodTurn> {
        self.pods
            .iter()
            .filter(move |pod| pod.namespace == namespace && pod.turn == turn)
    }

    /// The censuses of a namespace that held at some time since `since`, the one that held at `since` included.
    pub fn censuses<'a>(
        &'a self,
        namespace: &'a str,
        since: Duration,
    ) -> impl Iterator<Item = &'a Census> {
        let all = || {
            self.census
                .iter()
                .filter(move |census| census.namespace == namespace)
        };
        let first = all().rposition_before(since);
        all().skip(first)
    }

    /// The most pods alive in a namespace at any time since `since`.
    #[must_use]
    pub fn most_alive(&self, namespace: &str, since: Duration) -> usize {
        self.censuses(namespace, since)
            .map(|census| census.total().alive)
            .max()
            .unwrap_or_default()
    }

    /// The fewest pods ready in a namespace at any time since `since`.
    #[must_use]
    pub fn least_ready(&self, namespace: &str, since: Duration) -> usize {
        self.censuses(namespace, since)
            .map(|census| census.total().ready)
            .min()
            .unwrap_or_default()
    }

    /// The writes of one agent.
    pub fn writes_by<'a>(&'a self, agent: &'a str) -> impl Iterator<Item = &'a Request> {
        self.writes.iter().filter(move |write| write.agent == agent)
    }

    /// The requests of one agent.
    pub fn requests_by<'a>(&'a self, agent: &'a str) -> impl Iterator<Item = &'a Request> {
        self.requests
            .iter()
            .filter(move |request| request.agent == agent)
    }

    pub(super) fn note_pod(&mut self, at: Duration, change: &Change) {
        let pod = &change.object;
        let before = change.before.as_deref();
        let mut turns = Vec::new();
        match change.occurrence {
            Occurrence::Added => turns.push(Turn::Started),
            Occurrence::Deleted => turns.push(Turn::Ended),
            Occurrence::Modified => {
                let was_ready = before.is_some_and(Object::is_ready);
                if pod.is_ready() != was_ready {
                    turns.push(if was_ready {
                        Turn::Unready
                    } else {
                        Turn::Ready
                    });
                }
                if pod.is_terminating() && !before.is_some_and(Object::is_terminating) {
                    turns.push(Turn::Terminating);
                }
            }
        }
        self.pods.extend(turns.into_iter().map(|turn| {
            PodTurn {
                at,
                namespace: pod.namespace().to_owned(),
                pod: pod.name().to_owned(),
                image: pod.image().to_owned(),
                replica_set: pod
                    .controlled_by()
                    .map(|owner| owner.name.clone())
                    .unwrap_or_default(),
                turn,
            }
        }));
    }

    pub(super) fn note_census(&mut self, census: Census) {
        let last = self
            .census
            .iter()
            .rev()
            .find(|last| last.namespace == census.namespace);
        if last.is_none_or(|last| !census.agrees_with(last)) {
            self.census.push(census);
        }
    }
}

/// Finds where to start reading a timeline.
trait Timeline {
    /// The index of the last entry at or before `since`; 0 when there is none.
    fn rposition_before(self, since: Duration) -> usize;
}

impl<'a, I: Iterator<Item = &'a Census>> Timeline for I {
    fn rposition_before(self, since: Duration) -> usize {
        self.take_while(|census| census.at <= since)
            .count()
            .saturating_sub(1)
    }
}
