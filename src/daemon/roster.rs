//! Who is looked after: one task for each Deployment, and what each has been told to do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use super::service::{ServiceTask, Shared};
use crate::cluster::Registered;
use crate::config::Service;

/// What a task is to do.
pub(super) struct Assignment {
    pub service: Service,
    pub wish: Wish,
}

/// What is to become of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The file has it.
    Keep,
    /// The file has it no more.
    Release,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With the daemon.
    Stopped,
    /// The service is no longer registered.
    GivenBack(By),
}

/// What a service was given back by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A person's order.
    Order,
    /// It was missing in the file.
    File,
}

/// The tasks of all services.
pub(super) struct Roster {
    members: BTreeMap<Registered, watch::Sender<Arc<Assignment>>>,
    tasks: JoinSet<(Registered, End)>,
    /// Given back by order while the file has them: not taken on again before the file has been without them.
    given_back: BTreeSet<Registered>,
}

impl Roster {
    pub fn new() -> Self {
        Self {
            members: BTreeMap::new(),
            tasks: JoinSet::new(),
            given_back: BTreeSet::new(),
        }
    }

    /// What a Deployment's task has been told last, if it has one.
    pub fn assignment(&self, who: &Registered) -> Option<Arc<Assignment>> {
        Some(self.members.get(who)?.borrow().clone())
    }

    /// What all tasks have been told last.
    pub fn assignments(&self) -> impl Iterator<Item = (&Registered, Arc<Assignment>)> {
        let members = self.members.iter();
        members.map(|(who, told)| (who, told.borrow().clone()))
    }

    /// Has these services looked after, as they say: with tasks of their own, or with those that they have already.
    pub fn keep<'a>(&mut self, services: impl Iterator<Item = &'a Service>, shared: &Shared) {
        let mut known = BTreeSet::new();
        for service in services {
            let who = target(service);
            if !self.given_back.contains(&who) {
                self.assign(&who, service, Wish::Keep, shared);
            }
            known.insert(who);
        }
        self.given_back.retain(|who| known.contains(who));
    }

    /// Has a service given back.
    pub fn release(&mut self, service: &Service, shared: &Shared) {
        self.assign(&target(service), service, Wish::Release, shared);
    }

    fn assign(&mut self, who: &Registered, service: &Service, wish: Wish, shared: &Shared) {
        let assignment = || {
            Arc::new(Assignment {
                service: service.clone(),
                wish,
            })
        };
        match self.members.get(who) {
            Some(told) => {
                told.send_if_modified(|told| {
                    let is_news = told.wish != wish || told.service != *service;
                    if is_news {
                        *told = assignment();
                    }
                    is_news
                });
            }
            None => {
                let (told, telling) = watch::channel(assignment());
                self.members.insert(who.clone(), told);
                let task = ServiceTask::new(telling, shared.clone());
                let who = who.clone();
                self.tasks.spawn(async move { (who, task.run().await) });
            }
        }
    }

    /// The next task that ends; `None` where there is none.
    pub async fn ended(&mut self) -> Option<Result<(Registered, End), JoinError>> {
        self.tasks.join_next().await
    }

    /// Takes in how a task has ended. What was given back because it was missing, and is wanted again by now, is taken on
    /// again.
    pub fn parted(&mut self, who: Registered, end: End, shared: &Shared) {
        let Some(told) = self.members.remove(&who) else {
            return;
        };
        let assignment = told.borrow().clone();
        match (end, assignment.wish) {
            (End::GivenBack(By::File), Wish::Keep) => {
                self.assign(&who, &assignment.service, Wish::Keep, shared);
            }
            (End::GivenBack(By::Order), Wish::Keep) => {
                self.given_back.insert(who);
            }
            (End::GivenBack(By::File | By::Order), Wish::Release) | (End::Stopped, _) => {}
        }
    }
}

/// Which Deployment an entry is about.
pub(super) fn target(service: &Service) -> Registered {
    Registered {
        namespace: service.namespace.clone(),
        deployment: service.deployment.clone(),
    }
}
