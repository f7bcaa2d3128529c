//! At rest: X owns its pods; what differs from that is put right, and a new template opens a rollout.

use super::Replicas;
use super::action::{Action, CloneRole};
use super::decide::{Desired, Pass, Turn, Urgency, delete, images};
use super::diff::TemplateDiff;
use super::observation::{Deployment, Life, Observed, ReplicaSet, Rolling};
use super::plan::{Blocked, Event, Next, Plan, Status, Vetting};
use super::register::stash;
use super::release;
use super::state::{Bypass, Elapsed, Motion, Order, Phase, Rewrite, State};
use super::template::{Template, TemplateHash};
use crate::config::{CanaryOn, KnownGood};

pub(super) fn decide(pass: &Pass<'_>) -> Plan {
    let original = pass.original;
    let status = status(pass);
    // Whoever un-pauses what is to be given back has decided about it (case K06).
    if pass.desired == Desired::Released && original.rolling == Rolling::Unpaused {
        return release::begin(pass);
    }
    if let Some(plan) = pass.repause(status.clone()) {
        return plan;
    }
    if original.observed == Observed::NotYet {
        return Plan::wait(status);
    }
    let keeper = pass.accepted_set();
    let others: Vec<&ReplicaSet> = pass
        .observation
        .replica_sets_of(&original.uid)
        .filter(|set| keeper.is_none_or(|keeper| keeper.uid != set.uid))
        .collect();
    if !others.is_empty() {
        return pass
            .observation
            .live(single_out(pass, keeper, others, status));
    }
    if keeper.is_none() && pass.wanted() > Replicas::ZERO {
        return pass.observation.live(restore(pass, status, pass.wanted()));
    }
    if let Some(keeper) = keeper.filter(|keeper| pass.state.accepted.as_ref() != Some(&keeper.uid))
    {
        return pass
            .observation
            .live(Plan::act(status, vec![name_accepted(pass, keeper)]));
    }
    if pass.desired == Desired::Released {
        let rewrites = matches!(pass.state.order, Some(Order::Rewrite { .. }));
        return match take_order(pass, &status).filter(|_| rewrites) {
            Some(plan) => plan,
            None => release::begin(pass),
        };
    }
    if let Some(plan) = trim_stash(pass, &status) {
        return plan;
    }
    if pass.state.motion == Motion::Held {
        return Plan::wait(status);
    }
    if let Some(plan) = take_order(pass, &status) {
        return plan;
    }
    if original.template == *pass.accepted()
        || stays_rejected(pass)
        || pass.wanted() == Replicas::ZERO
    {
        return Plan::wait(status);
    }
    if let Some(longer) = pass.fight() {
        return Plan::wait_for(status, longer);
    }
    match pass.desired {
        Desired::Managed(turn @ (Turn::Unasked | Turn::Waits { .. })) => {
            let rejected = pass.state.rejected.is_some();
            let urgency = if rejected || pass.state.order.is_some() {
                Urgency::Fix
            } else {
                Urgency::Ordinary
            };
            Plan::wait(Status::Queued {
                images: images(&original.template),
                turn,
                urgency,
            })
        }
        Desired::Managed(Turn::Taken) | Desired::Released => open(pass),
    }
}

/// What was ordered about X's template, until it is there or void.
fn take_order(pass: &Pass<'_>, status: &Status) -> Option<Plan> {
    let original = pass.original;
    let name = &original.name;
    let done = |order: Option<Order>| {
        let state = State {
            order,
            ..pass.state.clone()
        };
        Plan::act(status.clone(), vec![pass.write(state, None)])
    };
    let void = || {
        done(None).telling(Event::OrderVoid {
            deployment: name.clone(),
        })
    };
    let plan = match pass.state.order.as_ref()? {
        Order::Bypass { candidate, .. } | Order::Retry { candidate } => {
            if original.template.hash() == *candidate && original.template != *pass.accepted() {
                return None;
            }
            void()
        }
        Order::Rewrite { with, instead_of } => match rewritten(pass, with) {
            Some(template) => {
                let why = match with {
                    Rewrite::Restart { .. } => Some(Bypass::Restart),
                    Rewrite::Undo { .. } => Some(Bypass::Undo),
                    Rewrite::Restore | Rewrite::Release => None,
                };
                let carried_out = done(why.map(|why| Order::Bypass {
                    candidate: template.hash(),
                    why,
                }));
                if template == original.template {
                    carried_out
                } else if original.template.hash() == *instead_of {
                    // In the same breath: whatever puts the old one back is not answered by a second try.
                    let rewrite = Action::Rewrite {
                        name: name.clone(),
                        uid: original.uid.clone(),
                        resource_version: original.resource_version.clone(),
                        template,
                    };
                    carried_out.after(rewrite).telling(Event::Rewritten {
                        with: with.clone(),
                        deployment: name.clone(),
                    })
                } else {
                    void()
                }
            }
            None => void(),
        },
    };
    Some(pass.observation.live(plan))
}

/// The template that X gets by an order; none if the history has lost it.
fn rewritten(pass: &Pass<'_>, with: &Rewrite) -> Option<Template> {
    match with {
        Rewrite::Restart { at } => Some(pass.accepted().restarted(*at)),
        Rewrite::Restore | Rewrite::Release => Some(pass.accepted().clone()),
        Rewrite::Undo { revision } => past(pass)
            .into_iter()
            .find(|set| set.revision == Some(*revision))
            .map(|set| set.template.clone()),
    }
}

/// Whether X asks for what was rejected and nobody has ordered that it be tried again.
fn stays_rejected(pass: &Pass<'_>) -> bool {
    let candidate = pass.original.template.hash();
    let retried =
        matches!(&pass.state.order, Some(Order::Retry { candidate: again }) if *again == candidate);
    !retried && pass.state.bypass_of(&candidate).is_none() && is_rejected(pass)
}

/// What X waits for, whatever else is put right meanwhile: it changes only when a person should read a new line.
fn status(pass: &Pass<'_>) -> Status {
    let template = &pass.original.template;
    let rejection = pass
        .state
        .rejected
        .as_ref()
        .filter(|_| stays_rejected(pass));
    if pass.state.motion == Motion::Held {
        Status::Held {
            at: None,
            deployment: pass.original.name.clone(),
        }
    } else if pass.fight().is_some() {
        Status::Blocked(Blocked::Unpaused {
            deployment: pass.original.name.clone(),
        })
    } else if *template == *pass.accepted() {
        at_rest(pass)
    } else if let Some(rejection) = rejection {
        Status::Rejected {
            rejection: Box::new(rejection.clone()),
            replicas: pass.wanted(),
            images: images(pass.accepted()),
            namespace: pass.service.namespace.clone(),
            deployment: pass.original.name.clone(),
        }
    } else if pass.wanted() == Replicas::ZERO {
        Status::CandidateWaits {
            images: images(template),
        }
    } else {
        at_rest(pass)
    }
}

fn at_rest(pass: &Pass<'_>) -> Status {
    Status::AtRest {
        replicas: pass.wanted(),
        images: images(pass.accepted()),
    }
}

/// X must own exactly one ReplicaSet (design section 3, fact 5): the accepted one, unless a person's hand has given the
/// load to another (design section 2, "X found un-paused"). Decided on a live look, after the pause was observed.
fn single_out(
    pass: &Pass<'_>,
    keeper: Option<&ReplicaSet>,
    others: Vec<&ReplicaSet>,
    status: Status,
) -> Plan {
    let (empty, started): (Vec<&ReplicaSet>, Vec<&ReplicaSet>) =
        others.into_iter().partition(|set| set.is_empty());
    if started.is_empty() {
        return Plan::act(status, stash(pass, empty));
    }
    let needed = pass
        .wanted()
        .saturating_sub(pass.original.rest.max_unavailable(pass.wanted()));
    let carries_the_load = keeper.is_some_and(|keeper| keeper.available >= needed);
    // A version that has fewer pods available than the accepted one carries nothing, however few those are: right after a
    // rollback the accepted pods are still starting, and the version that failed must not win by that.
    let taken_over = started.iter().find(|set| {
        set.template == pass.original.template
            && set.available > keeper.map_or(Replicas::ZERO, |keeper| keeper.available)
    });
    if pass.original.template != *pass.accepted()
        && !carries_the_load
        && let Some(set) = taken_over
    {
        let state = State {
            rejected: None,
            accepted: Some(set.uid.clone()),
            rollout: pass.state.rollout.next(),
            ..pass.state.clone()
        };
        let mut actions = forget_failed(pass);
        actions.push(pass.write(state, Some(set.template.clone())));
        return Plan::act(status, actions).telling(Event::AcceptedByHand {
            images: images(&set.template),
        });
    }
    if keeper.is_none() {
        // Nothing with pods is deleted before the accepted version has its own.
        return restore(pass, status, Replicas::ZERO);
    }
    let replica_sets = started.iter().map(|set| set.name.clone()).collect();
    Plan::act(status, started.into_iter().map(delete).collect())
        .telling(Event::Removed { replica_sets })
}

/// The accepted version's ReplicaSet is gone: it is made again from the state object, never from X (case K09). Where
/// X runs nothing it has its number from the first moment on: one that the controller finds empty is scaled up and, where
/// X keeps no history, deleted in the same breath, with the pods it has just started (design section 3, fact 18).
fn restore(pass: &Pass<'_>, status: Status, replicas: Replicas) -> Plan {
    let create = pass.create_set(pass.accepted(), pass.original, replicas);
    Plan::act(status, vec![create]).telling(Event::Restored {
        images: images(pass.accepted()),
    })
}

/// Notes which ReplicaSet runs the accepted version.
fn name_accepted(pass: &Pass<'_>, set: &ReplicaSet) -> Action {
    let state = State {
        accepted: Some(set.uid.clone()),
        ..pass.state.clone()
    };
    pass.write(state, None)
}

/// The stash keeps as much history as the user asked X to keep, and each version once, as Kubernetes does: the newest
/// ReplicaSet of it, none of the accepted one.
fn trim_stash(pass: &Pass<'_>, status: &Status) -> Option<Plan> {
    let mut kept: Vec<&ReplicaSet> = Vec::new();
    let mut surplus = Vec::new();
    for set in history(pass) {
        let twin = set.template == *pass.accepted()
            || kept.iter().any(|kept| kept.template == set.template);
        if twin || kept.len() >= pass.original.rest.history_limit {
            surplus.push(set);
        } else {
            kept.push(set);
        }
    }
    if surplus.is_empty() {
        return None;
    }
    let actions = surplus.into_iter().map(delete).collect();
    Some(pass.observation.live(Plan::act(status.clone(), actions)))
}

/// The stash, the latest revision first, without the version that failed.
fn history<'a>(pass: &Pass<'a>) -> Vec<&'a ReplicaSet> {
    let rejected = pass.state.rejected_set();
    let mut sets: Vec<&ReplicaSet> = pass
        .observation
        .replica_sets_of(&pass.object.uid)
        .filter(|set| rejected != Some(set.name.as_str()))
        .collect();
    sets.sort_by_key(|set| std::cmp::Reverse(set.revision));
    sets
}

/// The versions that ran before as the accepted one, the latest first.
pub(super) fn past<'a>(pass: &Pass<'a>) -> Vec<&'a ReplicaSet> {
    let mut sets = history(pass);
    sets.retain(|set| set.template != *pass.accepted());
    sets
}

/// Whether X asks for the template that failed last. The ReplicaSet in the stash still holds it as the server tells it;
/// should it be gone, its hash must do.
pub(super) fn is_rejected(pass: &Pass<'_>) -> bool {
    let Some(rejection) = &pass.state.rejected else {
        return false;
    };
    failed_set(pass).is_some_and(|set| set.template == pass.original.template)
        || pass.original.template.hash() == rejection.candidate
}

/// The ReplicaSet in the stash of the version that failed last.
fn failed_set<'a>(pass: &Pass<'a>) -> Option<&'a ReplicaSet> {
    let name = pass.state.rejected_set()?;
    let stash = &pass.object.uid;
    let mut sets = pass.observation.replica_sets.iter();
    sets.find(|set| set.owner == *stash && set.life == Life::Alive && set.name == name)
}

/// Before the state forgets a rejection: what is left of it in the stash would be taken for a version that once was the
/// accepted one.
pub(super) fn forget_failed(pass: &Pass<'_>) -> Vec<Action> {
    failed_set(pass).map(delete).into_iter().collect()
}

/// Opens a rollout: the intent is written first, everything else follows from it. Only what ran as the accepted version
/// is history: the ReplicaSet of the version that failed goes when another is tried, its hash is remembered.
fn open(pass: &Pass<'_>) -> Plan {
    let left = [CloneRole::Primary, CloneRole::Canary]
        .into_iter()
        .find_map(|clone| Some((clone, pass.deployment(clone.into())?)));
    if let Some((clone, deployment)) = left {
        return remove_left(pass, clone, deployment);
    }
    let candidate = pass.original.template.hash();
    let ladder = pass.ladder();
    let rollout = pass.state.rollout.next();
    let mut actions = forget_failed(pass);
    let bypass = bypass(pass, &candidate);
    let vetting = match bypass {
        Some(why) => Vetting::Bypass {
            steps: ladder.unchecked_steps(),
            why,
        },
        None => Vetting::Checks {
            steps: ladder.checked_steps(),
            breakpoint: ladder.breakpoint(),
            all_steps: ladder.all_steps(),
            known: known(pass),
        },
    };
    let state = State {
        rollout,
        open_for: Elapsed::ZERO,
        rejected: pass.state.rejected.clone().filter(|_| !is_rejected(pass)),
        order: bypass.map(|why| Order::Bypass {
            candidate: candidate.clone(),
            why,
        }),
        ..pass.state.in_phase(Phase::Opening {
            candidate,
            elapsed: Elapsed::ZERO,
        })
    };
    actions.push(pass.write(state, None));
    Plan {
        status: Status::Opening,
        events: vec![Event::Candidate {
            rollout,
            diff: TemplateDiff::new(pass.accepted(), &pass.original.template),
            replicas: pass.wanted(),
            deployment: pass.original.name.clone(),
            vetting,
        }],
        next: Next::Act(actions),
    }
}

/// Why X's template is rolled out without checks, if it is.
fn bypass(pass: &Pass<'_>, candidate: &TemplateHash) -> Option<Bypass> {
    let ordered = pass.state.bypass_of(candidate);
    let template = &pass.original.template;
    ordered.or_else(|| {
        if pass.service.canary_on == CanaryOn::Containers
            && template.has_containers_of(pass.accepted())
        {
            Some(Bypass::NotContainers)
        } else if pass.service.known_good == KnownGood::Bypass && known(pass).is_some() {
            Some(Bypass::KnownGood)
        } else {
            None
        }
    })
}

/// The revision in the history that has X's template: it was accepted before.
fn known(pass: &Pass<'_>) -> Option<u64> {
    past(pass)
        .into_iter()
        .find(|set| set.template == pass.original.template)?
        .revision
}

/// A clone of ours that no rollout needs: one that owns nothing came of a request that was answered too late.
fn remove_left(pass: &Pass<'_>, clone: CloneRole, deployment: &Deployment) -> Plan {
    if pass
        .observation
        .replica_sets
        .iter()
        .any(|set| set.owner == deployment.uid)
    {
        return Plan::wait(Status::Blocked(Blocked::CloneLeft {
            name: deployment.name.clone(),
        }));
    }
    let delete = Action::DeleteClone {
        clone,
        uid: deployment.uid.clone(),
    };
    pass.observation.live(Plan::act(status(pass), vec![delete]))
}
