//! Which of several daemons acts: the one that has the Lease (case K10).
//!
//! Nobody's clock is believed (case K54): whether a Lease has run out is judged by this process's own monotonic time since
//! it was seen to change last, and a leader counts its term from the moment *before* it asked for it. So the leader's term
//! ends, with its right to write, before anybody else may take the Lease.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::clock::{self, Instant};
use crate::cluster::{Claim, Cluster, ClusterError, Fence, LeaseName, LeaseRecord};
use crate::config::display_duration;

/// The times of an election.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// After this without a renewal others may take the Lease. Whole seconds.
    pub lasts: Duration,
    /// After this without a renewal the leader writes nothing more. Shorter than [`lasts`](Self::lasts), by more than a
    /// request may take to arrive.
    pub term: Duration,
    /// How often the leader renews it.
    pub renew: Duration,
    /// How often the others look, and how soon a failed request is tried again.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lasts: Duration::from_secs(15),
            term: Duration::from_secs(10),
            renew: Duration::from_secs(4),
            retry: Duration::from_secs(2),
        }
    }
}

/// A daemon's candidacy.
#[derive(Clone, Debug)]
pub struct Candidacy {
    /// The Lease.
    pub lease: LeaseName,
    /// This daemon: another name for each process that runs at the same time.
    pub identity: String,
    /// The times.
    pub timing: Timing,
}

/// Whether this daemon may act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Not yet known.
    Unknown,
    /// It does not.
    StandingBy {
        /// The daemon that does.
        leader: String,
    },
    /// It does.
    Leading,
    /// It did: the Lease could not be renewed in time, or somebody else has taken it. Nothing can be written any more.
    Deposed,
}

/// The right to write, which ends by itself.
#[derive(Debug, Default)]
pub(super) struct Term(Mutex<Option<Ends>>);

/// When a term ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends {
    /// Nothing is sent from then on.
    at: Instant,
    /// Nothing may arrive from then on: others may lead.
    for_others: Instant,
}

impl Term {
    fn ends(&self, ends: Option<Ends>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = ends;
    }

    fn end(&self) -> Option<Ends> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fence for Term {
    fn open_for(&self) -> Option<Duration> {
        let (ends, now) = (self.end()?, clock::now());
        (now < ends.at).then(|| ends.for_others.saturating_duration_since(now))
    }
}

/// What is known of the Lease, and since when.
#[derive(Debug)]
struct Seen {
    record: LeaseRecord,
    unchanged_since: Instant,
}

/// What to do about a Lease.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Create,
    Take,
    Renew,
    StandBy { leader: String },
}

/// What a daemon that has looked at the Lease at `now` does.
fn step(seen: Option<&Seen>, identity: &str, now: Instant) -> Step {
    let Some(seen) = seen else {
        return Step::Create;
    };
    match &seen.record.holder {
        None => Step::Take,
        Some(holder) if holder == identity => Step::Renew,
        Some(holder) => {
            if now.saturating_duration_since(seen.unchanged_since) > seen.record.lasts {
                Step::Take
            } else {
                Step::StandBy {
                    leader: holder.clone(),
                }
            }
        }
    }
}

/// A daemon that stands for election.
pub(super) struct Election {
    cluster: Cluster,
    candidacy: Candidacy,
    term: Arc<Term>,
    leadership: watch::Sender<Leadership>,
    seen: Option<Seen>,
    trouble: String,
}

impl Election {
    /// `term` is the fence that the daemon's writes have to pass.
    pub fn new(cluster: Cluster, candidacy: Candidacy, term: Arc<Term>) -> Self {
        Self {
            cluster,
            candidacy,
            term,
            leadership: watch::Sender::new(Leadership::Unknown),
            seen: None,
            trouble: String::new(),
        }
    }

    /// How it goes.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// Stands until this daemon is deposed: it must stop then, whatever it was doing.
    pub async fn stand(&mut self) {
        loop {
            let end = self.term.end();
            tokio::select! {
                biased;
                // Nothing is written any more; whatever was going on must stop.
                () = clock::until(end.map(|ends| ends.at)) => {
                    // It may have been renewed meanwhile.
                    if self.term.end() == end {
                        self.depose(&format!(
                            "{} could not be renewed for {}",
                            self.candidacy.lease,
                            display_duration(self.candidacy.timing.term)
                        ));
                    }
                }
                () = self.go_on() => {}
            }
            if *self.leadership.borrow() == Leadership::Deposed {
                return;
            }
        }
    }

    /// One attempt, and the pause after it.
    async fn go_on(&mut self) {
        let Timing { renew, retry, .. } = self.candidacy.timing;
        // An answer that does not come must not use up the term.
        let outcome = match tokio::time::timeout(retry, self.attempt()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!(
                "{}: no answer within {}",
                self.candidacy.lease,
                display_duration(retry)
            )),
        };
        let is_leading = *self.leadership.borrow() == Leadership::Leading;
        let pause = match outcome {
            Ok(()) => {
                self.trouble.clear();
                if is_leading { renew } else { retry }
            }
            Err(trouble) => {
                self.tell(trouble);
                if is_leading { retry / 4 } else { retry }
            }
        };
        if *self.leadership.borrow() != Leadership::Deposed {
            tokio::time::sleep(pause).await;
        }
    }

    /// Looks, and takes or renews the Lease where that is this daemon's business.
    async fn attempt(&mut self) -> Result<(), ClusterError> {
        let leading = *self.leadership.borrow() == Leadership::Leading;
        // A leader that knows what it has written last need not read it.
        if !leading || self.seen.is_none() {
            self.look().await?;
        }
        let Candidacy {
            lease,
            identity,
            timing,
        } = &self.candidacy;
        let asked = clock::now();
        let ends = Ends {
            at: asked + timing.term,
            for_others: asked + timing.lasts,
        };
        let next = step(self.seen.as_ref(), identity, asked);
        let written = match (&next, &self.seen) {
            (Step::StandBy { leader }, _) => {
                self.stand_by(leader.clone());
                return Ok(());
            }
            (Step::Renew, Some(seen)) => {
                self.cluster
                    .claim_lease(lease, &seen.record, &Claim::Renew)
                    .await
            }
            (Step::Take, Some(seen)) => {
                let claim = Claim::Take {
                    holder: identity,
                    lasts: timing.lasts,
                };
                self.cluster.claim_lease(lease, &seen.record, &claim).await
            }
            (Step::Create | Step::Renew | Step::Take, _) => {
                self.cluster
                    .create_lease(lease, identity, timing.lasts)
                    .await
            }
        };
        let stale = match written {
            Ok(record) => {
                self.see(record);
                self.term.ends(Some(ends));
                self.lead();
                return Ok(());
            }
            Err(error @ ClusterError::Stale { .. }) => error,
            Err(error) => return Err(error),
        };
        // Somebody else wrote first, or an earlier request of ours was applied and never answered: then it is ours, and the
        // next attempt renews what was found.
        self.look().await?;
        match step(self.seen.as_ref(), &self.candidacy.identity, clock::now()) {
            Step::StandBy { leader } => {
                self.stand_by(leader);
                Ok(())
            }
            Step::Create | Step::Take | Step::Renew => Err(stale),
        }
    }

    async fn look(&mut self) -> Result<(), ClusterError> {
        match self.cluster.lease(&self.candidacy.lease).await? {
            Some(record) => self.see(record),
            None => self.seen = None,
        }
        Ok(())
    }

    fn see(&mut self, record: LeaseRecord) {
        if self.seen.as_ref().is_none_or(|seen| seen.record != record) {
            self.seen = Some(Seen {
                record,
                unchanged_since: clock::now(),
            });
        }
    }

    fn lead(&self) {
        if *self.leadership.borrow() != Leadership::Leading {
            info!(
                "leading: {} has {}",
                self.candidacy.identity, self.candidacy.lease
            );
            self.leadership.send_replace(Leadership::Leading);
        }
    }

    fn stand_by(&self, leader: String) {
        if *self.leadership.borrow() == Leadership::Leading {
            self.depose(&format!("{leader} has taken {}", self.candidacy.lease));
            return;
        }
        let standing_by = Leadership::StandingBy {
            leader: leader.clone(),
        };
        if *self.leadership.borrow() != standing_by {
            info!("standing by: {leader} leads");
            self.leadership.send_replace(standing_by);
        }
    }

    fn depose(&self, why: &str) {
        self.term.ends(None);
        warn!("no longer leading: {why}");
        self.leadership.send_replace(Leadership::Deposed);
    }

    fn tell(&mut self, text: String) {
        if text == self.trouble {
            debug!("{text}");
        } else {
            warn!("{text}; trying again");
            self.trouble = text;
        }
    }

    /// Gives the Lease up, so that the next daemon need not wait until it has run out.
    pub async fn give_up(&mut self) {
        self.term.ends(None);
        if *self.leadership.borrow() != Leadership::Leading {
            return;
        }
        let Some(seen) = &self.seen else { return };
        let lease = &self.candidacy.lease;
        let given_up = self
            .cluster
            .claim_lease(lease, &seen.record, &Claim::GiveUp);
        if let Err(error) = given_up.await {
            debug!("{error}; it runs out by itself");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(holder: Option<&str>, unchanged_since: Instant) -> Option<Seen> {
        Some(Seen {
            record: LeaseRecord {
                holder: holder.map(str::to_owned),
                lasts: Duration::from_secs(15),
                transitions: 3,
                version: "7".to_owned(),
            },
            unchanged_since,
        })
    }

    #[test]
    fn a_lease_is_taken_from_nobody_and_from_who_has_not_renewed_it_for_as_long_as_this_daemon_has_looked()
     {
        let start = clock::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let other = Step::StandBy {
            leader: "b".to_owned(),
        };
        for (lease, now, expected) in [
            (None, at(0), Step::Create),
            (seen(None, at(0)), at(0), Step::Take),
            (seen(Some("a"), at(0)), at(0), Step::Renew),
            (seen(Some("a"), at(0)), at(99), Step::Renew),
            (seen(Some("b"), at(0)), at(0), other),
            (
                seen(Some("b"), at(0)),
                at(15),
                Step::StandBy {
                    leader: "b".to_owned(),
                },
            ),
            (seen(Some("b"), at(0)), at(16), Step::Take),
            (
                seen(Some("b"), at(10)),
                at(16),
                Step::StandBy {
                    leader: "b".to_owned(),
                },
            ),
        ] {
            assert_eq!(step(lease.as_ref(), "a", now), expected, "{lease:?}");
        }
    }

    #[test]
    fn the_right_to_write_ends_by_itself() {
        let (term, now) = (Term::default(), clock::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(term.open_for(), None, "nobody leads from the start");
        let ends = |at, for_others| Some(Ends { at, for_others });
        term.ends(ends(after(3600), after(7200)));
        let open_for = term.open_for().expect("it is open");
        assert!(open_for > Duration::from_secs(7000), "{open_for:?}");
        term.ends(ends(now, after(7200)));
        assert_eq!(term.open_for(), None);
        term.ends(None);
        assert_eq!(term.open_for(), None);
    }
}
