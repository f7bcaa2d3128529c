//! Things that happen right after one certain write of the daemon, before it makes the next.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt as _;
use tokio::time::Instant;

use super::promises::{at_rest, envelope, never_more_of, never_more_than, started};
use crate::{
    namespace::Namespace,
    proxy::{Gate, Seen, Verdict},
};

/// So many runs of a sweep go on at once.
const SIDE_BY_SIDE: usize = 5;

/// Counts the daemon's writes, and holds it after one of them: that one is carried out, but not answered.
pub struct Hold {
    gate: Arc<Gate>,
    writes: Arc<AtomicUsize>,
    held: Arc<Mutex<Option<String>>>,
}

impl Hold {
    /// After the `nth` write from now on that does more than tell, the first being 1; without a number it only counts.
    pub fn after(namespace: &Namespace, nth: Option<usize>) -> Self {
        Self::when(namespace, move |number, _| nth == Some(number))
    }

    /// After the first write like this.
    pub fn after_first(
        namespace: &Namespace,
        like: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        let done = Mutex::new(false);
        Self::when(namespace, move |_, write| {
            let mut done = done.lock().unwrap();
            let now = !*done && like(&describe(write));
            *done |= now;
            now
        })
    }

    fn when(
        namespace: &Namespace,
        holds: impl Fn(usize, &Seen) -> bool + Send + Sync + 'static,
    ) -> Self {
        let hold = Self {
            gate: Arc::default(),
            writes: Arc::default(),
            held: Arc::default(),
        };
        let (gate, writes, held) = (
            Arc::clone(&hold.gate),
            Arc::clone(&hold.writes),
            Arc::clone(&hold.held),
        );
        namespace.daemon_proxy.on_request(move |request| {
            if !request.is_write() || request.only_tells() {
                return Verdict::Pass;
            }
            let number = writes.fetch_add(1, Ordering::Relaxed) + 1;
            if !holds(number, request) {
                return Verdict::Pass;
            }
            *held.lock().unwrap() = Some(describe(request));
            Verdict::PassThenGate(Arc::clone(&gate))
        });
        hold
    }

    /// Waits until the daemon is held, and says after which write.
    pub async fn reached(&self) -> String {
        self.gate.reached().await;
        self.held.lock().unwrap().clone().unwrap_or_default()
    }

    /// [`Self::reached`], or nothing when what the daemon does ends before: a run may need fewer checks than the one that was counted.
    pub async fn reached_before(&self, end: impl Future<Output = ()>) -> Option<String> {
        tokio::select! {
            biased;
            write = self.reached() => Some(write),
            () = end => None,
        }
    }

    /// Lets the daemon go on.
    pub fn open(&self) {
        self.gate.open();
    }

    /// The writes so far.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}

/// A write in one line: method, path without the namespace, body.
fn describe(write: &Seen) -> String {
    let path = write
        .path
        .split_once("/namespaces/")
        .and_then(|(_, rest)| rest.split_once('/'))
        .map_or("", |(_, rest)| rest);
    format!(
        "{} {path} {}",
        write.method,
        String::from_utf8_lossy(&write.body)
    )
}

/// How a rollout of BASE from v1 to v2 ends whose first step has two pods.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Promoted,
    RolledBack,
}

impl End {
    /// The version that runs then.
    pub const fn version(self) -> &'static str {
        match self {
            Self::Promoted => "v2",
            Self::RolledBack => "v1",
        }
    }

    /// The shortest durations by which a rollout ends like this where every answer of Prometheus is 0, which is no success.
    pub const fn settings(self) -> &'static str {
        match self {
            Self::Promoted => SHORT,
            Self::RolledBack => SHORT_JUDGED,
        }
    }

    /// The worker came to this end since `since`, by a way that breaks no promise.
    pub async fn reached(self, namespace: &Namespace, since: Instant, replicas: usize) {
        let wanted = i32::try_from(replicas).unwrap();
        at_rest(namespace, "orders-worker", self.version(), wanted).await;
        match self {
            Self::Promoted => {
                started(namespace, since, &[("v2", replicas)]).await;
                envelope(namespace, since, replicas, 2).await;
            }
            Self::RolledBack => {
                started(namespace, since, &[("v1", 2), ("v2", 2)]).await;
                never_more_of(namespace, since, "v2", 2).await;
                never_more_than(namespace, since, replicas + 2).await;
            }
        }
    }
}

/// The shortest durations: two steps of half the replicas, decided by two checks of nothing but restarts.
pub const SHORT: &str = "step: 50%\nstart_delay: 0s\nmax_step_duration: 200ms\ncheck_success_step_duration: 200ms\nsuccess: []";

/// The same, decided by what Prometheus says; it has the time between checks to answer, also on a busy machine.
const SHORT_JUDGED: &str = "step: 50%\nstart_delay: 0s\nmax_step_duration: 200ms\ncheck_success_step_duration: 5s\ncheck_max_failures: 1\nsuccess: [{expr: 'my_errors{pod=\"<<pod>>\"} == 0'}]";

/// Lets `run` go undisturbed, which must make so many writes at least, and then again for each of them, with its number, disturbed after it.
/// It returns how many writes it made.
pub async fn at_every_write<F>(fewest: usize, run: impl Fn(Option<usize>) -> F)
where
    F: Future<Output = usize> + Send + 'static,
{
    let writes = run(None).await;
    assert!(writes >= fewest, "only {writes} writes");
    sweep(1..=writes, |nth| {
        let run = run(Some(nth));
        async move {
            run.await;
        }
    })
    .await;
}

/// Runs `run` for each case, some side by side, and tells of all that failed.
async fn sweep<C, F>(cases: impl IntoIterator<Item = C>, run: impl Fn(C) -> F)
where
    C: std::fmt::Debug,
    F: Future<Output = ()> + Send + 'static,
{
    let failed: Vec<String> = futures::stream::iter(cases)
        .map(|case| {
            let name = format!("{case:?}");
            let task = tokio::spawn(tokio::time::timeout(Duration::from_secs(150), run(case)));
            async move {
                match task.await {
                    Ok(Ok(())) => None,
                    Ok(Err(_)) => Some(format!("{name}: not finished in time")),
                    Err(error) => {
                        let payload = error.try_into_panic().ok();
                        let text = payload
                            .and_then(|payload| payload.downcast_ref::<String>().cloned())
                            .unwrap_or_else(|| "panicked".to_owned());
                        Some(format!("{name}: {text}"))
                    }
                }
            }
        })
        .buffered(SIDE_BY_SIDE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
}
