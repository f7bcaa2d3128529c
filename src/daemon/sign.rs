//! The condition on X, kept in step with what the log has said last, beside the work and never in its way.

use std::time::Duration;

use tokio::task::JoinHandle;
use tracing::{debug, warn};

use super::clock::Instant;
use crate::cluster::{Cluster, ClusterError, Condition};
use crate::rollout::Observation;
use crate::rollout::observation::{Deployment, Life, Mark};

/// The pause after a first failed write; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two tries: who may not write conditions does not ask for ever at short intervals.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How soon the same condition is written again when somebody else has taken it away.
const NO_FIGHT: Duration = Duration::from_secs(60);

/// The condition of one service.
pub(super) struct Sign {
    service: String,
    namespace: String,
    cluster: Cluster,
    writing: Option<JoinHandle<Result<(), ClusterError>>>,
    /// What was written last, whether it came to be or not.
    written: Option<Condition>,
    not_before: Option<Instant>,
    failures: u32,
    troubled: bool,
}

impl Sign {
    pub fn new(service: String, namespace: String, cluster: Cluster) -> Self {
        Self {
            service,
            namespace,
            cluster,
            writing: None,
            written: None,
            not_before: None,
            failures: 0,
            troubled: false,
        }
    }

    /// The service is called so from now on.
    pub fn rename(&mut self, service: String) {
        self.service = service;
    }

    /// What X shows, as far as it is seen.
    pub fn shown(&self, original: &Deployment) -> Option<Condition> {
        self.cluster.condition(&self.namespace, &original.name)
    }

    /// Begins to write what X should show, if it does not. Returns how long to wait before asking again, if there is
    /// something left to write that nothing else will remind of.
    pub fn show(
        &mut self,
        observation: &Observation,
        wanted: Option<Condition>,
        now: Instant,
    ) -> Option<Duration> {
        self.take_result(now);
        let original = observation.original.as_ref()?;
        let wanted = wanted?;
        let shown = self.shown(original);
        if shown.as_ref() == Some(&wanted) || !is_ours(observation, shown.as_ref()) {
            return None;
        }
        if self.writing.is_some() {
            return None;
        }
        if self.written.as_ref() != Some(&wanted) {
            self.not_before = None;
        }
        if let Some(wait) = self
            .not_before
            .map(|at| at.saturating_duration_since(now))
            .filter(|wait| !wait.is_zero())
        {
            return Some(wait);
        }
        self.written = Some(wanted.clone());
        let (cluster, namespace) = (self.cluster.clone(), self.namespace.clone());
        let original = original.clone();
        self.writing = Some(tokio::spawn(async move {
            cluster.show(&namespace, &original, &wanted).await
        }));
        None
    }

    /// Takes the condition off X, if it shows one. Nothing is written meanwhile, so none comes after it.
    ///
    /// # Errors
    ///
    /// As [`Cluster::take_down`].
    pub async fn take_down(&mut self, original: &Deployment) -> Result<Left, ClusterError> {
        self.finish().await;
        if self.shown(original).is_none() {
            return Ok(Left::AsItWas);
        }
        self.written = None;
        self.cluster.take_down(&self.namespace, original).await?;
        Ok(Left::Changed)
    }

    /// Waits for a write in hand.
    pub async fn finish(&mut self) {
        if let Some(writing) = self.writing.take() {
            // What came of it is seen on X.
            let _ = writing.await;
        }
    }

    fn take_result(&mut self, now: Instant) {
        let Some(ended) = self
            .writing
            .as_mut()
            .and_then(futures::FutureExt::now_or_never)
        else {
            return;
        };
        self.writing = None;
        // A write that broke off is like one that was never answered: X shows what came of it.
        let error = match ended {
            Ok(Err(error)) => error,
            Ok(Ok(())) | Err(_) => {
                self.failures = 0;
                self.troubled = false;
                self.not_before = Some(now + NO_FIGHT);
                return;
            }
        };
        let pause = FIRST_PAUSE
            .saturating_mul(2u32.saturating_pow(self.failures))
            .min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + pause);
        if self.troubled
            || matches!(
                error,
                ClusterError::Stale { .. } | ClusterError::NotLeading { .. }
            )
        {
            debug!(service = self.service, "{error}");
        } else {
            self.troubled = true;
            warn!(
                service = self.service,
                "the condition on the Deployment is not up to date: {error}"
            );
        }
    }
}

/// How [`Sign::take_down`] leaves X.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// It showed nothing.
    AsItWas,
    /// It was written: what was decided before is of an older version.
    Changed,
}

/// Whether the condition can be taken off again by whoever finds the service later: by its state object, which is what
/// says that it is registered; or X shows it already.
fn is_ours(observation: &Observation, shown: Option<&Condition>) -> bool {
    let (Some(original), state) = (&observation.original, &observation.state) else {
        return false;
    };
    let registered = state.as_ref().is_some_and(|state| {
        state.mark == Mark::Ours
            && state.life == Life::Alive
            && state.owner.as_ref() == Some(&original.uid)
    });
    original.life == Life::Alive && (registered || shown.is_some())
}
