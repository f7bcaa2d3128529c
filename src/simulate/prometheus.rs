//! A Prometheus that knows no series: it answers what a success expression needs to hold, or to be false, for the pods
//! of a version, so that any configuration can be tried as it is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use promql_parser::parser::Expr;

use super::cluster::{Cluster, Kind, Lifeline};
use super::scenario::{Trouble, Which};
use crate::analysis::{
    Answer, Labels, Measure, Metrics, PodName, Query, Response, Rule, Sample, Unavailable,
};

/// How long an answer takes.
const LATENCY: Duration = Duration::from_millis(20);

/// The placeholder for a pod's name in what [`Query`] shows.
const POD: &str = "<<pod>>";

/// What Prometheus sees, as it changes during a simulation.
#[derive(Default)]
struct Weather {
    down: bool,
    /// By image.
    troubles: BTreeMap<String, Vec<Trouble>>,
    asked: usize,
}

/// The simulated Prometheus. Cheap to clone.
#[derive(Clone)]
pub(super) struct Prometheus {
    cluster: Cluster,
    namespace: String,
    worker: String,
    expressions: Arc<Vec<Known>>,
    weather: Arc<Mutex<Weather>>,
}

/// An expression of the configuration.
struct Known {
    query: Query,
    /// What is asked, with the placeholder.
    judged: String,
    values: Values,
}

/// Values of both sides of a comparison.
struct Values {
    holding: (f64, f64),
    failing: (f64, f64),
}

/// What a question is about.
struct Question<'a> {
    number: usize,
    known: &'a Known,
    pod: Option<String>,
    part: Part,
}

/// Which part of an expression is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The one that is judged.
    Whole,
    /// The left side of its comparison.
    Left,
    /// The right side.
    Right,
    /// Whether there is anything to judge.
    Presence,
}

impl Prometheus {
    pub fn new(cluster: Cluster, namespace: &str, worker: &str, queries: Vec<Query>) -> Self {
        let known = |query: Query| Known {
            judged: query.judged(None),
            values: Values::of(&query),
            query,
        };
        Self {
            cluster,
            namespace: namespace.to_owned(),
            worker: worker.to_owned(),
            expressions: Arc::new(queries.into_iter().map(known).collect()),
            weather: Arc::default(),
        }
    }

    /// The same Prometheus as one life of the daemon sees it: the dead ask nothing.
    pub fn for_life(&self, life: Lifeline) -> Arc<dyn Metrics> {
        Arc::new(Client {
            prometheus: self.clone(),
            life,
        })
    }

    pub fn go_down(&self) {
        self.weather().down = true;
    }

    pub fn come_up(&self) {
        self.weather().down = false;
    }

    pub fn spoil(&self, image: &str, trouble: Trouble) {
        self.weather()
            .troubles
            .entry(image.to_owned())
            .or_default()
            .push(trouble);
    }

    pub fn heal(&self, image: &str, trouble: Trouble) {
        if let Some(troubles) = self.weather().troubles.get_mut(image) {
            troubles.retain(|other| *other != trouble);
        }
    }

    /// How many queries were asked so far.
    pub fn asked(&self) -> usize {
        self.weather().asked
    }

    fn weather(&self) -> MutexGuard<'_, Weather> {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, text: &str) -> Result<Answer, Unavailable> {
        if self.weather().down {
            return Err(Unavailable::Unreachable(
                "Connection refused (os error 111)".to_owned(),
            ));
        }
        let Some(question) = self.understand(text) else {
            return Ok(Answer::Vector(Vec::new()));
        };
        let troubles = self.troubles(question.pod.as_deref());
        if troubles.contains(&Trouble::NoData) {
            return Ok(Answer::Vector(Vec::new()));
        }
        let failing = troubles.iter().any(|trouble| match trouble {
            Trouble::Metrics(Which::All) => true,
            Trouble::Metrics(Which::Only(number)) => *number == question.number,
            Trouble::NoData
            | Trouble::Crash
            | Trouble::NeverReady
            | Trouble::ImagePull
            | Trouble::Unschedulable => false,
        });
        let values = &question.known.values;
        let (left, right) = if failing {
            values.failing
        } else {
            values.holding
        };
        let value = match (question.part, question.known.query.rule()) {
            (Part::Whole, Rule::SetOperation) if failing => {
                return Ok(Answer::Vector(Vec::new()));
            }
            (Part::Whole, Rule::Comparison | Rule::Inequality) if failing => 0.0,
            (Part::Whole | Part::Presence, _) => 1.0,
            (Part::Left, _) => left,
            (Part::Right, _) => right,
        };
        let labels = question.pod.as_deref().map(|pod| ("pod", pod));
        Ok(Answer::Vector(vec![Sample {
            labels: Labels::new(labels),
            measure: Measure::Number(value),
        }]))
    }

    /// What is wrong with a pod, or, where none is named, with any version that has a pod.
    fn troubles(&self, pod: Option<&str>) -> Vec<Trouble> {
        let images: Vec<String> = self.cluster.look(|now| {
            let image = |pod: &super::cluster::Object| pod.image().to_owned();
            match pod {
                Some(pod) => now
                    .get(Kind::Pod, &self.namespace, pod)
                    .map(image)
                    .into_iter()
                    .collect(),
                None => now
                    .list(Kind::Pod, &self.namespace)
                    .filter(|pod| pod.is_ready() && pod.image().starts_with(&self.worker))
                    .map(image)
                    .collect(),
            }
        });
        let weather = self.weather();
        images
            .iter()
            .filter_map(|image| weather.troubles.get(image))
            .flatten()
            .copied()
            .collect()
    }

    fn understand(&self, text: &str) -> Option<Question<'_>> {
        let pod = self.pod_in(text);
        let name = pod.as_deref().and_then(|pod| PodName::new(pod).ok());
        let numbered = || self.expressions.iter().zip(1..);
        let whole = |known: &Known| known.query.judged(name.as_ref());
        let question = |number, known, part| Question {
            number,
            known,
            pod: pod.clone(),
            part,
        };
        if let Some((known, number)) = numbered().find(|(known, _)| whole(known) == text) {
            return Some(question(number, known, Part::Whole));
        }
        // A side of a comparison stands in it as it is asked for; what else is asked belongs to a set operation.
        let side = numbered().find_map(|(known, number)| {
            let whole = whole(known);
            let at = whole.find(text)?;
            let before = whole.get(..at)?;
            let part = if before.chars().all(|c| c == '(' || c.is_whitespace()) {
                Part::Left
            } else {
                Part::Right
            };
            (known.query.rule() != Rule::SetOperation).then(|| question(number, known, part))
        });
        side.or_else(|| {
            numbered()
                .find(|(known, _)| known.query.rule() == Rule::SetOperation)
                .map(|(known, number)| question(number, known, Part::Presence))
        })
    }

    /// The pod that a question names: by what stands before the placeholder, else by the names of all pods.
    fn pod_in(&self, text: &str) -> Option<String> {
        let by_place = self.expressions.iter().find_map(|known| {
            let (before, _) = known.judged.split_once(POD)?;
            let rest = text.strip_prefix(before)?;
            let name: String = rest
                .chars()
                .filter(|c| *c != '\\')
                .take_while(|c| c.is_ascii_alphanumeric() || "-.".contains(*c))
                .collect();
            let exists = |now: &super::cluster::Snapshot<'_>| {
                now.get(Kind::Pod, &self.namespace, &name).is_some()
            };
            self.cluster.look(exists).then_some(name)
        });
        by_place.or_else(|| {
            let plain = text.replace('\\', "");
            self.cluster.look(|now| {
                now.list(Kind::Pod, &self.namespace)
                    .map(super::cluster::Object::name)
                    .find(|name| plain.contains(name))
                    .map(str::to_owned)
            })
        })
    }
}

struct Client {
    prometheus: Prometheus,
    life: Lifeline,
}

impl Metrics for Client {
    fn query<'a>(
        &'a self,
        query: &'a str,
        _deadline: Duration,
    ) -> BoxFuture<'a, Result<Response, Unavailable>> {
        Box::pin(async move {
            if self.life.is_cut() {
                return std::future::pending().await;
            }
            self.prometheus.weather().asked += 1;
            tokio::time::sleep(LATENCY).await;
            self.prometheus.answer(query).map(|answer| Response {
                answer,
                warnings: Vec::new(),
            })
        })
    }
}

impl Values {
    /// Values that make a comparison true, and such that make it false.
    fn of(query: &Query) -> Self {
        let pod = PodName::new("pod").ok();
        let tree = promql_parser::parser::parse(&query.judged(pod.as_ref()));
        let sides = tree.ok().and_then(|tree| {
            let Expr::Binary(binary) = without_parentheses(&tree) else {
                return None;
            };
            let operator = binary.op.to_string();
            Some((operator, number(&binary.lhs), number(&binary.rhs)))
        });
        let Some((operator, left, right)) = sides else {
            return Self {
                holding: (1.0, 1.0),
                failing: (0.0, 0.0),
            };
        };
        match (left, right) {
            (Some(left), None) => {
                let measured = Measured::against(left, mirrored(&operator));
                Self {
                    holding: (left, measured.holding),
                    failing: (left, measured.failing),
                }
            }
            (_, right) => {
                let right = right.unwrap_or(10.0);
                let measured = Measured::against(right, &operator);
                Self {
                    holding: (measured.holding, right),
                    failing: (measured.failing, right),
                }
            }
        }
    }
}

/// Two values for the left side of a comparison with a number.
struct Measured {
    holding: f64,
    failing: f64,
}

impl Measured {
    fn against(limit: f64, operator: &str) -> Self {
        // Somewhat beyond the limit on either side; where it is 0, so is what fails to exceed it.
        let above = if limit == 0.0 {
            3.0
        } else {
            limit + limit.abs() * 0.5
        };
        let below = limit - limit.abs() * 0.625;
        let (holding, failing) = match operator {
            ">" | ">=" if limit == 0.0 && operator == ">=" => (3.0, -1.0),
            ">" | ">=" => (above, below),
            "<" if limit == 0.0 => (-1.0, above),
            "<" | "<=" => (below, above),
            "!=" => (above, limit),
            _ => (limit, above),
        };
        Self { holding, failing }
    }
}

/// The operator with its sides exchanged.
fn mirrored(operator: &str) -> &str {
    match operator {
        ">" => "<",
        ">=" => "<=",
        "<" => ">",
        "<=" => ">=",
        other => other,
    }
}

fn without_parentheses(mut tree: &Expr) -> &Expr {
    while let Expr::Paren(paren) = tree {
        tree = &paren.expr;
    }
    tree
}

fn number(tree: &Expr) -> Option<f64> {
    let tree = without_parentheses(tree);
    if let Expr::Unary(negated) = tree {
        return number(&negated.expr).map(|value| -value);
    }
    let Expr::NumberLiteral(literal) = tree else {
        return None;
    };
    Some(literal.val)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_a_comparison_make_it_true_and_false() {
        let holds = |operator: &str, left: f64, right: f64| match operator {
            ">" => left > right,
            ">=" => left >= right,
            "<" => left < right,
            "<=" => left <= right,
            "==" => left == right,
            "!=" => left != right,
            other => panic!("{other}"),
        };
        for operator in [">", ">=", "<", "<=", "==", "!="] {
            for limit in ["500", "0", "-3", "0.05"] {
                let pod = "a{pod=\"<<pod>>\"}";
                for text in [
                    format!("{pod} {operator} {limit}"),
                    format!("{limit} {operator} {pod}"),
                    format!("({pod} {operator} b)"),
                ] {
                    let values = Values::of(&Query::parse(&text).unwrap());
                    let (left, right) = values.holding;
                    assert!(holds(operator, left, right), "{text}: {left} {right}");
                    let (left, right) = values.failing;
                    assert!(!holds(operator, left, right), "{text}: {left} {right}");
                }
            }
        }
    }
}
