//! Trying success expressions on the pods that run, before a rollout depends on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::service::{Service, Unusable};
use super::table::Table;
use crate::analysis::{Checker, Finding, Metrics, PodName, Pods, Query, Value, Values, values};
use crate::cluster::Sight;
use crate::rollout::observation::{Deployment, Life};

/// How many series of one pod are shown.
const SHOWN_SERIES: usize = 5;

/// Which pods play the canary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cast {
    /// The service.
    pub service: Service,
    /// Whose pods they are.
    pub part: Part,
    /// The pods, alive; by their names. Where no two versions run side by side those that play the canary play the primary
    /// too.
    pub pods: Pods,
}

/// Whose pods play the canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// At rest, or not registered yet: X's own.
    Original,
    /// A rollout is open: the canary's.
    Canary,
    /// A rollout is open and its canary has no pods: those of the accepted version.
    Primary,
}

impl fmt::Display for Cast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.pods.canary.len();
        let (pods, play) = match number {
            1 => ("pod", "plays"),
            _ => ("pods", "play"),
        };
        let service = &self.service;
        match self.part {
            Part::Original => write!(
                f,
                "{service}: no rollout is open, {number} {pods} {play} the canary"
            ),
            Part::Canary => write!(f, "{service}: a rollout is open, {number} canary {pods}"),
            Part::Primary => write!(
                f,
                "{service}: a rollout is open without canary pods, {number} {pods} of the accepted version {play} the canary"
            ),
        }
    }
}

/// Which pods expressions are tried on. There may be none.
///
/// # Errors
///
/// When there is no Deployment.
pub fn cast(sight: &Sight) -> Result<Cast, Unusable> {
    let seen = &sight.observation;
    let service = Service {
        namespace: sight.namespace.clone(),
        deployment: sight.deployment.clone(),
    };
    let Some(original) = &seen.original else {
        return Err(Unusable::NoDeployment(service));
    };
    let pods = |owner: &Deployment| -> BTreeSet<PodName> {
        let alive = seen.pods_of(&owner.uid).filter(|pod| pod.is_alive());
        alive
            .filter_map(|pod| PodName::new(&pod.name).ok())
            .collect()
    };
    let clone = |clone: &Option<Deployment>| {
        let ours = clone.as_ref().filter(|clone| {
            clone.life == Life::Alive && clone.owner.as_ref() == Some(&original.uid)
        });
        ours.map(pods).unwrap_or_default()
    };
    let primary = clone(&seen.primary);
    let (part, canary) = [
        (Part::Canary, clone(&seen.canary)),
        (Part::Original, pods(original)),
        (Part::Primary, primary.clone()),
    ]
    .into_iter()
    .find(|(_, pods)| !pods.is_empty())
    .unwrap_or((Part::Original, BTreeSet::new()));
    let primary = match part {
        Part::Canary => primary,
        Part::Original | Part::Primary => canary.clone(),
    };
    Ok(Cast {
        service,
        part,
        pods: Pods {
            canary: canary.into_iter().collect(),
            primary: primary.into_iter().collect(),
        },
    })
}

/// One expression, and what was found.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The expression as it was given, on one line.
    pub expression: String,
    /// What Prometheus is asked about the first pod.
    pub asked: String,
    /// One for each pod; a single one where the expression names none.
    pub rows: Vec<Row>,
    /// What Prometheus had to say about its answers.
    pub warnings: BTreeSet<String>,
}

/// What was found about one pod.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub pod: Option<PodName>,
    /// The verdict.
    pub found: Found,
    /// What it rests on, as it was a moment later.
    pub values: Vec<Value>,
}

/// The verdict on one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It holds.
    Passed,
    /// It is false; how.
    Failed(String),
    /// There is nothing to judge by; what is missing.
    NoData(String),
    /// There is no usable answer; why.
    Unavailable(String),
}

impl Found {
    fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::NoData(_) => "no data",
            Self::Unavailable(_) => "unavailable",
        }
    }
}

/// Asks everything that a check would ask, and for the values too.
pub async fn try_out(
    metrics: &Arc<dyn Metrics>,
    check_interval: Duration,
    queries: &[Query],
    pods: &Pods,
) -> Vec<Tried> {
    let mut checker = Checker::new(Arc::clone(metrics), check_interval);
    let mut tried = Vec::with_capacity(queries.len());
    for query in queries {
        let report = checker.check(std::slice::from_ref(query), pods).await;
        let verdicts = Verdicts::of(query, &report.findings);
        let subjects = query.subjects(pods);
        let judged: Vec<Option<&PodName>> = subjects
            .iter()
            .copied()
            .filter(|pod| verdicts.has(*pod))
            .collect();
        let (values, warnings) =
            values(metrics.as_ref(), check_interval, query, pods, &judged).await;
        let mut values: BTreeMap<Option<&PodName>, Values> =
            judged.into_iter().zip(values).collect();
        tried.push(Tried {
            expression: query.text(),
            asked: query.judged(subjects.first().copied().flatten(), pods),
            rows: subjects
                .iter()
                .map(|pod| verdicts.row(query, *pod, values.remove(pod)))
                .collect(),
            warnings,
        });
    }
    tried
}

/// What a round found, by pod.
struct Verdicts<'a> {
    by_pod: BTreeMap<Option<&'a str>, &'a Finding>,
    /// Why some have none.
    unavailable: Vec<String>,
}

impl<'a> Verdicts<'a> {
    fn of(query: &Query, findings: &'a [Finding]) -> Self {
        let about_it = format!("{}: ", query.text());
        let mut verdicts = Self {
            by_pod: BTreeMap::new(),
            unavailable: Vec::new(),
        };
        for finding in findings {
            match finding {
                Finding::Unavailable { text } => {
                    let reason = text.strip_prefix(&about_it).unwrap_or(text);
                    verdicts.unavailable.push(reason.to_owned());
                }
                Finding::Passed { .. } | Finding::Failed { .. } | Finding::NoData { .. } => {
                    verdicts.by_pod.insert(finding.pod(), finding);
                }
            }
        }
        verdicts
    }

    fn has(&self, pod: Option<&PodName>) -> bool {
        self.by_pod.contains_key(&pod.map(PodName::as_str))
    }

    fn row(&self, query: &Query, pod: Option<&PodName>, values: Option<Values>) -> Row {
        let about_it = format!("{} ", query.shown(pod));
        let how = |text: &str| text.strip_prefix(&about_it).unwrap_or(text).to_owned();
        let found = match self.by_pod.get(&pod.map(PodName::as_str)) {
            Some(Finding::Passed { .. }) => Found::Passed,
            Some(Finding::Failed { text, .. }) => Found::Failed(how(text)),
            Some(Finding::NoData { text, .. }) => Found::NoData(how(text)),
            Some(Finding::Unavailable { .. }) | None => {
                Found::Unavailable(self.unavailable.join("; "))
            }
        };
        Row {
            pod: pod.cloned(),
            found,
            values: values.and_then(Result::ok).unwrap_or_default(),
        }
    }
}

impl Row {
    /// What false comparisons compare comes first. A failure is told in words where there are no values, or where they
    /// have changed since.
    fn evidence(&self) -> String {
        let (holding, failing): (Vec<&Value>, Vec<&Value>) =
            self.values.iter().partition(|value| value.holds());
        let (how, shows_it) = match &self.found {
            Found::Passed => (None, true),
            Found::Failed(how) => (Some(how), !failing.is_empty()),
            Found::NoData(how) => (Some(how), false),
            Found::Unavailable(reason) => return reason.clone(),
        };
        let pod = self.pod.as_ref().map_or("", PodName::as_str);
        let values: Vec<&Value> = failing.into_iter().chain(holding).collect();
        let mut shown: Vec<String> = values
            .iter()
            .take(SHOWN_SERIES)
            .map(|value| match values.len() {
                1 => value.to_string(),
                _ => format!("{value} {}", value.series.without_value(pod)),
            })
            .collect();
        match values.len().saturating_sub(SHOWN_SERIES) {
            0 => {}
            more => shown.push(format!("and {more} more")),
        }
        let told = how.filter(|_| !shows_it).cloned();
        told.into_iter().chain(shown).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.expression)?;
        if self.asked != self.expression {
            writeln!(f, "  asked: {}", self.asked)?;
        }
        let mut table = Table::new(["POD", "VERDICT", "VALUES"]);
        for row in &self.rows {
            table.row([
                row.pod
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), ToString::to_string),
                row.found.word().to_owned(),
                row.evidence(),
            ]);
        }
        let table = table.to_string();
        let warnings = self
            .warnings
            .iter()
            .map(|warning| format!("warning: {warning}"));
        let lines = table.lines().map(str::to_owned).chain(warnings);
        let lines: Vec<String> = lines.map(|line| format!("  {line}")).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// How all of it went: a line for people, and whether everything passed.
pub fn summary(tried: &[Tried]) -> Result<String, String> {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    for row in tried.iter().flat_map(|tried| &tried.rows) {
        *counts.entry(row.found.word()).or_default() += 1;
    }
    let all: usize = counts.values().sum();
    let passed = counts.remove("passed").unwrap_or(0);
    let text = format!("{passed} of {all} passed");
    if passed == all && all > 0 {
        return Ok(text);
    }
    let others: Vec<String> = counts
        .into_iter()
        .map(|(word, count)| format!("{count} {word}"))
        .collect();
    Err(format!("{text}: {}", others.join(", ")))
}
