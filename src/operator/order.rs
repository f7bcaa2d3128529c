//! Giving an order and waiting for its answer.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use futures::StreamExt as _;
use thiserror::Error;
use tokio::time::{sleep, timeout};

use super::service::{Service, Unusable, problem, steerable, why_absent};
use crate::cluster::{Cluster, ClusterError, OrderBook, Scope};
use crate::config::display_duration;
use crate::rollout::Command;
use crate::rollout::command::{Answer, Answered, Verb};
use crate::rollout::observation::{Rolling, Uid};
use crate::rollout::state::{Motion, State};

/// How often the answer is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How often an order is put down anew because the state was written in between.
const TRIES: u32 = 20;

/// How many services are given the same order at a time.
const SIDE_BY_SIDE: usize = 16;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum OrderError {
    /// The service takes no orders.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// Another order lies there.
    #[error(
        "another order waits to be taken: {waiting}; if Volery is down, take it off with \
         kubectl -n {} annotate podtemplate {}-volery volery.dev/command-", .service.namespace, .service.deployment
    )]
    Occupied {
        /// Whose.
        service: Service,
        /// The other one.
        waiting: String,
    },
    /// The state object changed at every try.
    #[error("the state object changed at each of {TRIES} tries to put the order on it: try again")]
    Restless,
    /// Nobody took it.
    #[error("no answer within {}: it seems that Volery does not run; {taken_back}", display_duration(*.patience))]
    Unanswered {
        /// How long was waited.
        patience: Duration,
        /// What became of the order.
        taken_back: TakenBack,
    },
    /// It does not lie there any more and the answer is not its own.
    #[error(
        "it does not lie on the state object any more, and the answer there is another one's: taken and answered just \
         before that, or taken off by somebody; see volery status {deployment} and the Deployment's events"
    )]
    Lost {
        /// X's name.
        deployment: String,
    },
    /// The state object is gone.
    #[error(
        "the state object went away before there was an answer: the service was given back, or somebody deleted it"
    )]
    Gone,
    /// A request failed.
    #[error("{}", problem(.0))]
    Request(#[from] ClusterError),
}

/// What became of an order that nobody answered.
#[derive(Debug)]
pub enum TakenBack {
    /// It was taken off again.
    Yes,
    /// It could not be.
    No(Box<OrderError>),
}

impl fmt::Display for TakenBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes => f.write_str("the order is taken off again, nothing is left of it"),
            Self::No(why) => write!(
                f,
                "the order could not be taken off again ({why}), so it may still be carried out"
            ),
        }
    }
}

impl OrderError {
    /// Whether it was given and nobody knows what came of it: exit code 2.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Unanswered { .. } | Self::Lost { .. } | Self::Gone => true,
            Self::Unusable(_) | Self::Occupied { .. } | Self::Restless | Self::Request(_) => false,
        }
    }
}

/// Gives one service an order and waits for the answer, at most for `patience`. An order that nobody answers is taken off
/// again: it must not be carried out by a daemon that comes back hours later.
///
/// # Errors
///
/// When the service takes no orders, or no answer comes.
pub async fn give(
    cluster: &Cluster,
    service: &Service,
    verb: Verb,
    patience: Duration,
) -> Result<Answer, OrderError> {
    let given = Given::put(cluster, service, verb).await?;
    match timeout(patience, given.answer(cluster)).await {
        Ok(outcome) => outcome,
        Err(_) => given.take_back(cluster, patience).await,
    }
}

/// Gives every service that it concerns the same order: `hold` those that are not on hold, `resume` those that are.
/// None of the services, if it concerns none.
///
/// # Errors
///
/// When the services cannot be listed.
pub async fn give_all(
    cluster: &Cluster,
    scope: &Scope,
    verb: Verb,
    patience: Duration,
) -> Result<Vec<(Service, Result<Answer, OrderError>)>, ClusterError> {
    let concerned = |state: &State| match verb {
        Verb::Hold => state.motion == Motion::Free,
        Verb::Resume => state.motion == Motion::Held,
        Verb::Abort
        | Verb::Promote
        | Verb::Retry
        | Verb::Bypass
        | Verb::Restart
        | Verb::Undo { .. }
        | Verb::Release(_) => true,
    };
    let sights = cluster.sights(scope).await?;
    let services = sights.into_iter().filter_map(|sight| {
        let object = sight.observation.state?;
        // What cannot be read is told of by its own error.
        let concerned = object.state.as_ref().map_or(true, concerned);
        concerned.then_some(Service {
            namespace: sight.namespace,
            deployment: sight.deployment,
        })
    });
    let given = services.map(|service| async move {
        let outcome = give(cluster, &service, verb, patience).await;
        (service, outcome)
    });
    Ok(futures::stream::iter(given)
        .buffered(SIDE_BY_SIDE)
        .collect()
        .await)
}

/// An order that lies on a state object, or did.
struct Given<'a> {
    service: &'a Service,
    verb: Verb,
    id: String,
    text: String,
    object: Uid,
}

impl<'a> Given<'a> {
    async fn put(cluster: &Cluster, service: &'a Service, verb: Verb) -> Result<Self, OrderError> {
        let id = random_id();
        let (namespace, deployment) = (&service.namespace, &service.deployment);
        for _ in 0..TRIES {
            let Some(book) = cluster.order_book(namespace, deployment).await? else {
                return Err(why_absent(cluster, service).await.into());
            };
            let state = steerable(service, &book.object)?;
            if let Some(waiting) = book.waiting {
                return Err(OrderError::Occupied {
                    service: service.clone(),
                    waiting,
                });
            }
            let command = Command {
                verb,
                id: Some(id.clone()),
                rollout: names_its_rollout(verb).then_some(state.rollout),
            };
            let given = Given {
                service,
                verb,
                id: id.clone(),
                text: command.to_string(),
                object: book.object.uid.clone(),
            };
            match cluster
                .give_order(namespace, deployment, &book.object, &given.text)
                .await
            {
                Ok(()) => return Ok(given),
                Err(ClusterError::Stale { .. }) => sleep(LOOK_AGAIN).await,
                Err(error) => return given.if_it_lies_there(cluster, error).await,
            }
        }
        Err(OrderError::Restless)
    }

    /// A write that was not answered may have been carried out.
    async fn if_it_lies_there(
        self,
        cluster: &Cluster,
        error: ClusterError,
    ) -> Result<Self, OrderError> {
        let unsure = match &error {
            ClusterError::Unavailable { .. } | ClusterError::Timeout { .. } => true,
            ClusterError::Stale { .. }
            | ClusterError::NotLeading { .. }
            | ClusterError::Forbidden { .. }
            | ClusterError::Refused { .. } => false,
        };
        if unsure && let Ok(Some(book)) = self.book(cluster).await {
            let ours = book.waiting.as_ref() == Some(&self.text) || self.answer_in(&book).is_some();
            if ours {
                return Ok(self);
            }
        }
        Err(error.into())
    }

    async fn book(&self, cluster: &Cluster) -> Result<Option<OrderBook>, ClusterError> {
        cluster
            .order_book(&self.service.namespace, &self.service.deployment)
            .await
    }

    fn answer_in(&self, book: &OrderBook) -> Option<Answer> {
        let answer = book.answered.as_ref()?;
        (answer.id.as_ref() == Some(&self.id)).then(|| answer.clone())
    }

    /// Waits until the order is answered, or can no longer be.
    async fn answer(&self, cluster: &Cluster) -> Result<Answer, OrderError> {
        loop {
            // A read that fails is tried again until patience ends.
            if let Ok(seen) = self.book(cluster).await
                && let Some(outcome) = self.outcome(cluster, seen).await
            {
                return outcome;
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// What came of the order by this sight of the state object; none while it lies there.
    async fn outcome(
        &self,
        cluster: &Cluster,
        seen: Option<OrderBook>,
    ) -> Option<Result<Answer, OrderError>> {
        let Some(book) = seen.filter(|book| book.object.uid == self.object) else {
            return Some(self.given_back(cluster).await);
        };
        if let Some(answer) = self.answer_in(&book) {
            return Some(Ok(answer));
        }
        let lies_there = book.waiting.as_ref() == Some(&self.text);
        (!lies_there).then(|| {
            Err(OrderError::Lost {
                deployment: self.service.deployment.clone(),
            })
        })
    }

    /// The state object is gone, and the answer with it: a release that is over already says so by an X that is not paused.
    async fn given_back(&self, cluster: &Cluster) -> Result<Answer, OrderError> {
        let Verb::Release(_) = self.verb else {
            return Err(OrderError::Gone);
        };
        let original = cluster
            .original(&self.service.namespace, &self.service.deployment)
            .await?;
        match original {
            Some(original) if original.rolling == Rolling::Unpaused => Ok(Answer {
                id: Some(self.id.clone()),
                command: self.verb.to_string(),
                outcome: Answered::Done,
                message: "the service is given back".to_owned(),
            }),
            Some(_) | None => Err(OrderError::Gone),
        }
    }

    async fn take_back(&self, cluster: &Cluster, patience: Duration) -> Result<Answer, OrderError> {
        let (namespace, deployment) = (&self.service.namespace, &self.service.deployment);
        let taken_back = match cluster
            .take_order_back(namespace, deployment, &self.object, &self.text)
            .await
        {
            Ok(()) => TakenBack::Yes,
            // Somebody was faster: most likely the daemon, with an answer.
            Err(ClusterError::Stale { .. }) => match self.book(cluster).await {
                Ok(seen) => match self.outcome(cluster, seen).await {
                    Some(outcome) => return outcome,
                    None => TakenBack::No(Box::new(OrderError::Restless)),
                },
                Err(error) => TakenBack::No(Box::new(error.into())),
            },
            Err(error) => TakenBack::No(Box::new(error.into())),
        };
        Err(OrderError::Unanswered {
            patience,
            taken_back,
        })
    }
}

/// Orders about an open rollout, or about what stands still, are void for any other: what is meant is what was seen.
fn names_its_rollout(verb: Verb) -> bool {
    match verb {
        Verb::Abort | Verb::Promote | Verb::Resume | Verb::Bypass => true,
        Verb::Hold | Verb::Retry | Verb::Restart | Verb::Undo { .. } | Verb::Release(_) => false,
    }
}

/// Sixteen digits that no other order has: the standard library seeds its hashers from the system's randomness.
fn random_id() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_orders_have_the_same_id() {
        let ids: std::collections::BTreeSet<String> = (0..1000).map(|_| random_id()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 16));
    }
}
