//! What waits for a channel: bounded, the oldest gives way.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::alert::Alert;

/// How many alerts wait for one channel at most. With more in the way, the oldest are of least use.
pub(super) const ROOM: usize = 256;

/// Whether more will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Open,
    Closed,
}

#[derive(Default)]
struct Waiting {
    alerts: VecDeque<Arc<Alert>>,
    /// How many had to give way since that was told last.
    dropped: u64,
}

/// Whether something had to give way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There was some.
    Enough,
    /// The oldest was dropped, the first since that was told last.
    NoneLeft,
    /// Another one was dropped.
    StillNone,
}

/// A bounded queue of alerts.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    bell: tokio::sync::Notify,
    flow: watch::Sender<Flow>,
}

impl Queue {
    pub fn new() -> Self {
        Self {
            waiting: Mutex::default(),
            bell: tokio::sync::Notify::new(),
            flow: watch::Sender::new(Flow::Open),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never waits.
    pub fn put(&self, alert: Arc<Alert>) -> Room {
        let mut waiting = self.lock();
        let mut room = Room::Enough;
        if waiting.alerts.len() >= ROOM {
            waiting.alerts.pop_front();
            room = match waiting.dropped {
                0 => Room::NoneLeft,
                _ => Room::StillNone,
            };
            waiting.dropped = waiting.dropped.saturating_add(1);
        }
        waiting.alerts.push_back(alert);
        drop(waiting);
        self.bell.notify_one();
        room
    }

    /// The oldest; none when no more will come.
    pub async fn next(&self) -> Option<Arc<Alert>> {
        loop {
            if let Some(alert) = self.lock().alerts.pop_front() {
                return Some(alert);
            }
            if self.is_closed() {
                return None;
            }
            self.bell.notified().await;
        }
    }

    pub fn close(&self) {
        self.flow.send_replace(Flow::Closed);
        self.bell.notify_one();
    }

    pub fn is_closed(&self) -> bool {
        *self.flow.borrow() == Flow::Closed
    }

    /// Returns when no more will come.
    pub async fn closed(&self) {
        // The sender lives as long as the queue.
        let _ = self
            .flow
            .subscribe()
            .wait_for(|flow| *flow == Flow::Closed)
            .await;
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.lock().alerts.len()
    }

    /// How many had to give way since this was asked last.
    pub fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.lock().dropped)
    }
}
