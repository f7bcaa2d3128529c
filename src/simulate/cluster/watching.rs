//! Watches: a stream of changes from a resourceVersion on, with bookmarks, that ends when it was asked to.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::Lag;
use super::object::{Kind, Object};
use super::refusal::Refusal;
use super::selector::Selector;
use super::server::{Form, Life};
use super::shared::Shared;
use super::store::{Change, Occurrence};

/// How often a watch that wants bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long a watch lasts when the client does not say: the real server takes between 30 and 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

/// What a watch asks for.
pub(super) struct Asked {
    pub(super) kind: Kind,
    pub(super) form: Form,
    pub(super) namespace: String,
    pub(super) selector: Selector,
    /// The revision after which changes are wanted; none: everything there is, then changes.
    pub(super) from: Option<u64>,
    pub(super) initial_events: bool,
    pub(super) bookmarks: bool,
    pub(super) timeout: Option<u64>,
}

impl Asked {
    fn wants(&self, object: &Object) -> bool {
        (self.namespace.is_empty() || object.namespace() == self.namespace)
            && self.selector.matches(object)
    }
}

struct Watching {
    shared: Arc<Shared>,
    asked: Asked,
    lag: Lag,
    life: Arc<Life>,
    /// How often watches had been broken when this one began.
    breaks: u64,
    /// Lines to send before anything else.
    ready: VecDeque<Bytes>,
    /// The index of the next change to look at.
    next: usize,
    /// The revision up to which the client has seen everything.
    revision: u64,
    ends: Instant,
    bookmark_due: Instant,
    over: bool,
}

/// What a watch does next.
enum Step {
    Send(Bytes),
    Look,
    End,
    Wait(Option<Instant>),
}

/// The lines of a watch.
pub(super) fn stream(
    shared: Arc<Shared>,
    asked: Asked,
    lag: Lag,
    life: Arc<Life>,
) -> BoxStream<'static, Bytes> {
    let now = shared.clock.now();
    let ends = now + asked.timeout.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let mut watching = Watching {
        shared,
        asked,
        lag,
        life,
        breaks: 0,
        ready: VecDeque::new(),
        next: 0,
        revision: 0,
        ends,
        bookmark_due: now + BOOKMARK_EVERY,
        over: false,
    };
    watching.begin();
    stream::unfold(watching, |mut watching| async move {
        watching.line().await.map(|line| (line, watching))
    })
    .boxed()
}

impl Watching {
    fn begin(&mut self) {
        let shared = Arc::clone(&self.shared);
        let state = shared.lock();
        let store = &state.store;
        let everything = self.asked.initial_events || self.asked.from.is_none();
        self.revision = match self.asked.from {
            Some(from) if !everything => from,
            _ => store.revision(),
        };
        self.breaks = store.breaks();
        if self.revision < store.oldest() {
            let refusal = Refusal::expired(self.revision, store.oldest());
            self.fail(&refusal);
            return;
        }
        self.next = store.changes_after(self.asked.kind, self.revision);
        if everything {
            for object in store
                .all(self.asked.kind)
                .filter(|object| self.asked.wants(object))
            {
                self.ready
                    .push_back(line("ADDED", &self.asked.form.show(object)));
            }
        }
        if self.asked.initial_events && self.asked.bookmarks {
            self.ready
                .push_back(self.bookmark(&json!({"k8s.io/initial-events-end": "true"})));
        }
    }

    fn fail(&mut self, refusal: &Refusal) {
        self.ready.push_back(line("ERROR", &refusal.status()));
        self.over = true;
    }

    fn bookmark(&self, annotations: &Value) -> Bytes {
        let (kind, form) = (self.asked.kind, self.asked.form);
        let api_version = if form == Form::CoreEvent {
            "v1"
        } else {
            kind.api_version()
        };
        let metadata = json!({
            "resourceVersion": self.revision.to_string(),
            "creationTimestamp": null,
            "annotations": annotations,
        });
        line(
            "BOOKMARK",
            &json!({"kind": kind.name(), "apiVersion": api_version, "metadata": metadata}),
        )
    }

    async fn line(&mut self) -> Option<Bytes> {
        let (shared, life) = (Arc::clone(&self.shared), Arc::clone(&self.life));
        loop {
            let (rung, ended) = (shared.rung(), life.ended());
            if life.has_ended() {
                // A client that was killed hears nothing any more, not even the end.
                return std::future::pending().await;
            }
            match self.step() {
                Step::Send(line) => return Some(line),
                Step::Look => {}
                Step::End => return None,
                Step::Wait(due) => {
                    let due = due.map_or(self.ends, |due| due.min(self.ends));
                    tokio::select! {
                        biased;
                        () = ended => {}
                        () = sleep_until(due) => {}
                        () = rung => {}
                    }
                }
            }
        }
    }

    fn step(&mut self) -> Step {
        if let Some(line) = self.ready.pop_front() {
            return Step::Send(line);
        }
        let now = self.shared.clock.now();
        if self.over || now >= self.ends {
            return Step::End;
        }
        let (change, newest) = {
            let state = self.shared.lock();
            if state.store.breaks() != self.breaks {
                let oldest = state.store.oldest();
                drop(state);
                if self.revision >= oldest {
                    return Step::End;
                }
                self.fail(&Refusal::expired(self.revision, oldest));
                return Step::Look;
            }
            (
                state.store.change(self.asked.kind, self.next).cloned(),
                state.store.revision(),
            )
        };
        if let Some(change) = change {
            let due = self.shared.shown_at(self.asked.kind, self.lag, &change);
            if due > now {
                return Step::Wait(Some(due));
            }
            self.next += 1;
            self.revision = change.revision;
            return self.tell(&change).map_or(Step::Look, Step::Send);
        }
        if !self.asked.bookmarks {
            return Step::Wait(None);
        }
        if now < self.bookmark_due {
            return Step::Wait(Some(self.bookmark_due));
        }
        self.bookmark_due = now + BOOKMARK_EVERY;
        self.revision = newest.max(self.revision);
        Step::Send(self.bookmark(&json!({})))
    }

    /// What a change is for somebody who sees only what the selector selects.
    fn tell(&self, change: &Change) -> Option<Bytes> {
        let is_wanted =
            change.occurrence != Occurrence::Deleted && self.asked.wants(&change.object);
        let was_wanted = change
            .before
            .as_ref()
            .is_some_and(|before| self.asked.wants(before));
        let occurrence = match (was_wanted, is_wanted) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return None,
        };
        Some(line(occurrence, &self.asked.form.show(&change.object)))
    }
}

fn line(occurrence: &str, object: &Value) -> Bytes {
    Bytes::from(format!(
        "{{\"object\":{object},\"type\":\"{occurrence}\"}}\n"
    ))
}
