//! The verdict of one check: passed, failed or inconclusive (design, promise 4).

use std::time::Duration;

use super::Replicas;
use super::decide::{Desired, Pass, decide};
use super::observation::{Container, Disruption, End, Life, Observation, Pod, PodPhase, Ready};
use super::plan::{Event, Next, Plan, Status};
use super::state::{Cause, Checks, Elapsed, Failure, KnownPod, Over, Phase, Said, Stage};
use super::step::{Kind, Stand, stand};
use crate::analysis::{CheckReport, Finding, Grace, Verdict};
use crate::config::{CompletedContainers, Service, display_duration};

/// Judges what a check found, and decides what follows.
///
/// `report` answers a [`Next::Check`]; should the service have moved on meanwhile, it is dropped and this decides as
/// [`decide`] would. Findings about pods that are gone by now do not count (case K59).
pub fn judge(
    service: &Service,
    desired: Desired,
    observation: &Observation,
    since: Duration,
    report: &CheckReport,
) -> Plan {
    let plan = decide(service, desired, observation, since);
    let (Next::Check(_), Some(original), Some(object)) =
        (&plan.next, &observation.original, &observation.state)
    else {
        return plan;
    };
    let Ok(state) = &object.state else {
        return plan;
    };
    let pass = Pass {
        service,
        desired,
        observation,
        original,
        object,
        state: state.advanced(since),
    };
    let Phase::Stepping { candidate, step } = &pass.state.phase else {
        return plan;
    };
    match stand(&pass, candidate, step, Kind::Checked) {
        Ok(stand) if step.stage == Stage::Checking => {
            Judgement::new(&stand, report).conclude(&stand, plan.status)
        }
        Ok(_) | Err(_) => plan,
    }
}

/// A canary pod that has failed since the last check is a failed check at once: by the time of the next one it may have
/// been deleted, and its successor is clean (case K22).
pub(super) fn at_once(stand: &Stand<'_>, status: &Status) -> Option<Plan> {
    let is_new = |pod: &Pod| {
        let known = stand.step.checks.pods.get(&pod.uid);
        known.is_none_or(|known| known.over == Over::NotSeen)
    };
    let nothing = CheckReport::default();
    ended(stand)
        .any(is_new)
        .then(|| Judgement::new(stand, &nothing).conclude(stand, status.clone()))
}

struct Judgement {
    verdict: Verdict,
    /// The step's findings with this check counted.
    checks: Checks,
}

impl Judgement {
    fn new(stand: &Stand<'_>, report: &CheckReport) -> Self {
        let mut checks = stand.step.checks.clone();
        let mut failures = crashes(stand, &mut checks);
        let mut doubts = Vec::new();
        let available = stand.available();
        if available >= stand.target() && available > Replicas::ZERO {
            checks.short_for = None;
        } else {
            checks.short_for.get_or_insert(Elapsed::ZERO);
            doubts.push(format!(
                "only {available} of {} canary pods are available",
                stand.target()
            ));
        }
        let alive: Vec<&str> = stand.canary_pods().map(|pod| pod.name.as_str()).collect();
        let mut report = report.clone();
        report.drop_pods(|pod| !alive.contains(&pod));
        let verdict = report.verdict(|pod, expression| grace(stand, &checks, pod, expression));
        remember_data(stand, &mut checks, &report);
        match verdict {
            Verdict::Passed => {}
            Verdict::Failed(found) => failures.extend(found),
            Verdict::Inconclusive(found) => doubts.extend(found),
        }
        let verdict = if !failures.is_empty() {
            Verdict::Failed(failures)
        } else if !doubts.is_empty() {
            Verdict::Inconclusive(doubts)
        } else {
            Verdict::Passed
        };
        checks.count(match &verdict {
            Verdict::Passed => Said::Yes,
            Verdict::Failed(_) => Said::No,
            Verdict::Inconclusive(_) => Said::Neither,
        });
        Self { verdict, checks }
    }

    fn conclude(self, stand: &Stand<'_>, status: Status) -> Plan {
        let service = stand.pass.service;
        let Self { verdict, checks } = self;
        let mut events = Vec::new();
        if checks
            .short_for
            .is_some_and(|short_for| short_for.duration() >= service.abort)
        {
            return stand.fail_unavailable();
        }
        match verdict {
            Verdict::Passed => {
                if stand.step.checks.in_doubt() {
                    events.push(Event::CheckConclusive { at: stand.at() });
                }
                if checks.elapsed.duration() >= service.max_step_duration {
                    return stand.next_step(events);
                }
            }
            Verdict::Failed(failures) => {
                let evidence = shortened(&failures);
                let allowed = service.check_max_failures.get();
                events.push(Event::CheckFailed {
                    at: stand.at(),
                    failed: checks.failed,
                    allowed,
                    evidence: evidence.clone(),
                    then: service.on_failure,
                });
                if checks.failed >= allowed {
                    let evidence = format!(
                        "{} of {allowed} in {}: {evidence}",
                        checks.failed,
                        stand.at()
                    );
                    let mut plan = stand.fail(Failure {
                        cause: Cause::ChecksFailed,
                        evidence,
                    });
                    events.append(&mut plan.events);
                    plan.events = events;
                    return plan;
                }
            }
            Verdict::Inconclusive(doubts) => {
                let evidence = shortened(&doubts);
                let lasting = checks.doubt_for.map_or(Duration::ZERO, Elapsed::duration);
                let limit = service.inconclusive_timeout;
                if !stand.step.checks.in_doubt() {
                    events.push(Event::CheckInconclusive {
                        at: stand.at(),
                        limit,
                        evidence: evidence.clone(),
                        then: service.on_failure,
                    });
                }
                if lasting >= limit {
                    let evidence = format!("none for {}: {evidence}", display_duration(limit));
                    let mut plan = stand.fail(Failure {
                        cause: Cause::MetricsUnavailable,
                        evidence,
                    });
                    events.append(&mut plan.events);
                    plan.events = events;
                    return plan;
                }
            }
        }
        Plan {
            status,
            events,
            next: Next::Act(vec![stand.with_checks(checks)]),
        }
    }
}

/// Whether a pod may still be without series for an expression: while it is not ready; and while it has had none in this
/// step, until it has been asked about for `no_data_grace`, each pod by itself: one that came in place of another has not
/// been scraped yet either (case K16).
fn grace(stand: &Stand<'_>, checks: &Checks, pod: Option<&str>, expression: &str) -> Grace {
    let asked = match pod {
        None => checks.asked.duration(),
        Some(name) => match stand.canary_pods().find(|pod| pod.name == name) {
            Some(pod) if pod.ready == Ready::Yes => {
                if checks.has_had_data(&pod.uid, expression) {
                    return Grace::Over;
                }
                checks.asked_about(&pod.uid)
            }
            Some(_) | None => return Grace::Running,
        },
    };
    if asked < stand.pass.service.no_data_grace {
        Grace::Running
    } else {
        Grace::Over
    }
}

/// Whose grace for what is over since there was data. What is over anyway need not be remembered.
fn remember_data(stand: &Stand<'_>, checks: &mut Checks, report: &CheckReport) {
    let grace = stand.pass.service.no_data_grace;
    for pod in stand.canary_pods() {
        if checks.asked_about(&pod.uid) >= grace {
            checks.forget_data(&pod.uid);
            continue;
        }
        for finding in &report.findings {
            match finding {
                Finding::Passed {
                    pod: Some(name),
                    expression,
                }
                | Finding::Failed {
                    pod: Some(name),
                    expression,
                    ..
                } if *name == pod.name => checks.had_data(&pod.uid, expression),
                Finding::Passed { .. }
                | Finding::Failed { .. }
                | Finding::NoData { .. }
                | Finding::Unavailable { .. } => {}
            }
        }
    }
}

/// Restarts since the last check, and canary pods that ended: each is held against the candidate once (K14, K22), by pod
/// and container, unless it is by design: `ignore_containers` (K20), `ignore_completed` and `max_restarts` (K21). A pod that
/// was told to end, or was driven out, is no evidence either way.
fn crashes(stand: &Stand<'_>, checks: &mut Checks) -> Vec<String> {
    let pods: Vec<&Pod> = stand.canary_pods().chain(ended(stand)).collect();
    let (service, asked) = (stand.pass.service, checks.asked);
    checks
        .pods
        .retain(|uid, _| pods.iter().any(|pod| pod.uid == *uid));
    let mut found = Vec::new();
    for pod in pods {
        let known = checks
            .pods
            .entry(pod.uid.clone())
            .or_insert_with(|| KnownPod {
                since: asked,
                ..KnownPod::default()
            });
        let mut restarts = 0;
        let mut worst: Option<(u32, &Container)> = None;
        for container in &pod.containers {
            let more = newly_restarted(known, container);
            if !is_evidence(service, container) {
                continue;
            }
            restarts += more;
            if more > 0 && worst.is_none_or(|(most, _)| more > most) {
                worst = Some((more, container));
            }
        }
        known.counted = known.counted.saturating_add(restarts);
        if pod.phase == PodPhase::Failed && known.over == Over::NotSeen {
            known.over = Over::Seen;
            let ended = pod
                .containers
                .iter()
                .find(|container| container.last_end.is_some());
            found.push(format!("{} failed{}", pod.name, how(ended)));
        } else if restarts > 0 && known.counted > service.max_restarts {
            found.push(format!(
                "{} restarted {restarts} time{}{}{}",
                pod.name,
                if restarts == 1 { "" } else { "s" },
                how(worst.map(|(_, container)| container)),
                beyond(known.counted, service.max_restarts),
            ));
        }
    }
    found
}

/// The canary's pods that have failed by themselves.
fn ended<'a>(stand: &'a Stand<'_>) -> impl Iterator<Item = &'a Pod> {
    stand.pass.observation.pods.iter().filter(|pod| {
        pod.owner == stand.set.uid
            && pod.phase == PodPhase::Failed
            && pod.life == Life::Alive
            && pod.disruption == Disruption::None
    })
}

/// How often a container has restarted since the last check; from now on that is known.
fn newly_restarted(known: &mut KnownPod, container: &Container) -> u32 {
    if container.restarts == 0 {
        return 0;
    }
    let before = known
        .restarts
        .insert(container.name.clone(), container.restarts)
        .unwrap_or(0);
    container.restarts.saturating_sub(before)
}

/// Whether a restart of this container says something about the version.
fn is_evidence(service: &Service, container: &Container) -> bool {
    let by_design = service.ignore_completed == CompletedContainers::Ignore
        && container
            .restarted_after
            .as_ref()
            .is_some_and(End::is_completion);
    !by_design && !service.ignore_containers.contains(&container.name)
}

fn how(container: Option<&Container>) -> String {
    let told = container.and_then(|container| {
        let end = container
            .restarted_after
            .as_ref()
            .or(container.last_end.as_ref())?;
        Some(format!(", container {} ended: {end}", container.name))
    });
    told.unwrap_or_default()
}

fn beyond(counted: u32, allowed: u32) -> String {
    if allowed == 0 {
        String::new()
    } else {
        format!(" ({counted} in all, max_restarts is {allowed})")
    }
}

/// The first finding, and how many more there are: a line, not a page.
fn shortened(findings: &[String]) -> String {
    match findings {
        [] => String::new(),
        [only] => only.clone(),
        [first, rest @ ..] => format!(
            "{first} (and {} more such finding{})",
            rest.len(),
            if rest.len() == 1 { "" } else { "s" }
        ),
    }
}
