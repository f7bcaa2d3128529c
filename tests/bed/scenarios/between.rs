//! Things that happen right after one certain write of the daemon, before it makes the next.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt as _;

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
    /// Only counts.
    pub fn never(namespace: &Namespace) -> Self {
        Self::when(namespace, |_, _| false)
    }

    /// After the `nth` write from now on, the first being 1.
    pub fn after(namespace: &Namespace, nth: usize) -> Self {
        Self::when(namespace, move |number, _| number == nth)
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
            if !request.is_write() {
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

/// How a rollout of a sweep ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Promoted,
    RolledBack,
}

/// The shortest durations: two steps of half the replicas, decided by two checks of nothing but restarts.
pub const SHORT: &str = "step: 50%\nstart_delay: 0s\nmax_step_duration: 200ms\ncheck_success_step_duration: 200ms\nsuccess: []";

/// The same, decided by what Prometheus says; it has the time between checks to answer, also on a busy machine.
pub const SHORT_JUDGED: &str = "step: 50%\nstart_delay: 0s\nmax_step_duration: 200ms\ncheck_success_step_duration: 5s\ncheck_max_failures: 1\nsuccess: [{expr: 'my_errors{pod=\"<<pod>>\"} == 0'}]";

/// Runs `run` for each case, some side by side, and tells of all that failed.
pub async fn sweep<C, F>(cases: impl IntoIterator<Item = C>, run: impl Fn(C) -> F)
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
