//! Waiting for conditions: generous deadlines, and failures that say what was seen instead.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Far more than anything takes on an idle machine, so that a busy one does not fail a test.
const DEADLINE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until `probe` succeeds and returns what it found; its error says what is there instead.
///
/// # Panics
/// After a minute, with `what` and the last error.
pub async fn eventually<T, F: Future<Output = Result<T, String>>>(
    what: &str,
    probe: impl FnMut() -> F,
) -> T {
    within(DEADLINE, what, probe).await
}

/// [`eventually`] with a deadline of its own.
pub async fn within<T, F: Future<Output = Result<T, String>>>(
    deadline: Duration,
    what: &str,
    mut probe: impl FnMut() -> F,
) -> T {
    let end = Instant::now() + deadline;
    loop {
        match probe().await {
            Ok(found) => return found,
            Err(seen) if Instant::now() >= end => {
                panic!("waited {deadline:?} for {what}, but {seen}")
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Watches that something stays true for `span`: for what must *not* happen. The span only has to be long enough that the thing
/// would happen if it could, so a slow machine makes such a check weaker but never fails it.
///
/// # Panics
/// With `what` and the error, as soon as `probe` fails.
pub async fn stays<F: Future<Output = Result<(), String>>>(
    what: &str,
    span: Duration,
    mut probe: impl FnMut() -> F,
) {
    let end = Instant::now() + span;
    while Instant::now() < end {
        if let Err(seen) = probe().await {
            panic!("{what} did not last: {seen}");
        }
        sleep(PAUSE).await;
    }
}

/// `Ok` when the condition holds, else the description of what is seen.
pub fn ensure(condition: bool, seen: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(seen()) }
}
