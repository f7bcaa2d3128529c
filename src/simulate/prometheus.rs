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
    Answer, Labels, Measure, Metrics, NO_POD, Query, Response, Role, Rule, Sample, Unavailable,
};

/// How long an answer takes.
const LATENCY: Duration = Duration::from_millis(20);

/// The placeholder for a pod's name in what [`Query`] shows.
const POD: &str = "<<pod>>";

/// All placeholders.
const PLACEHOLDERS: [&str; 3] = [POD, Role::Canary.placeholder(), Role::Primary.placeholder()];

/// What stands for names in the shape of a text.
const HOLE: char = '\u{0}';

/// The label of a pod's series where the expression does not tell.
const LABEL: &str = "pod";

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
    /// What is asked, whatever the names in it.
    shape: Shape,
    values: Values,
}

/// Values of both sides of a comparison.
struct Values {
    holding: (f64, f64),
    failing: (f64, f64),
}

/// A query without the names in it, so that it is found again whichever pods it is about.
#[derive(Debug, PartialEq)]
struct Shape {
    text: String,
    /// The names that stood in each hole.
    names: Vec<Vec<String>>,
}

/// What a question is about.
struct Question<'a> {
    number: usize,
    known: &'a Known,
    about: About,
    part: Part,
}

/// Whom a question is about.
enum About {
    /// The pods of these names.
    Pods(Vec<String>),
    /// Nobody in particular.
    All,
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
            shape: Shape::of_template(&query.template()),
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
        let samples = match &question.about {
            About::All => vec![self.sample(&question, None)],
            About::Pods(pods) => {
                let pods = pods.iter().filter(|pod| self.exists(pod));
                pods.map(|pod| self.sample(&question, Some(pod))).collect()
            }
        };
        Ok(Answer::Vector(samples.into_iter().flatten().collect()))
    }

    /// The sample of a pod, or of all, if there is one.
    fn sample(&self, question: &Question<'_>, pod: Option<&str>) -> Option<Sample> {
        let troubles = self.troubles(pod);
        if troubles.contains(&Trouble::NoData) {
            return None;
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
            (Part::Whole, Rule::SetOperation) if failing => return None,
            (Part::Whole, Rule::Comparison | Rule::Inequality) if failing => 0.0,
            (Part::Whole | Part::Presence, _) => 1.0,
            (Part::Left, _) => left,
            (Part::Right, _) => right,
        };
        let labels = pod.map(|pod| (question.known.shape.label(), pod));
        Some(Sample {
            labels: Labels::new(labels),
            measure: Measure::Number(value),
        })
    }

    fn exists(&self, pod: &str) -> bool {
        self.cluster
            .look(|now| now.get(Kind::Pod, &self.namespace, pod).is_some())
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
        let asked = Shape::of(text, |name| name == NO_POD || self.exists(name));
        let numbered = || self.expressions.iter().zip(1..);
        // Whose names stand in the holes of what is asked, the first of which is this one of the whole expression.
        let about = |known: &Known, first: usize| {
            let of_pods = known.shape.names.iter().skip(first).zip(&asked.names);
            let mut pods: Vec<String> = of_pods
                .filter(|(hole, _)| hole.iter().any(|name| name == POD))
                .flat_map(|(_, names)| names.clone())
                .collect();
            pods.sort();
            pods.dedup();
            if pods.is_empty() {
                About::All
            } else {
                About::Pods(pods)
            }
        };
        if let Some((known, number)) = numbered().find(|(known, _)| known.shape.text == asked.text)
        {
            return Some(Question {
                number,
                known,
                about: about(known, 0),
                part: Part::Whole,
            });
        }
        // A side of a comparison stands in it as it is asked for; what else is asked belongs to a set operation.
        let side = numbered().find_map(|(known, number)| {
            let at = known.shape.text.find(&asked.text)?;
            let before = known.shape.text.get(..at)?;
            let part = if before.chars().all(|c| c == '(' || c.is_whitespace()) {
                Part::Left
            } else {
                Part::Right
            };
            (known.query.rule() != Rule::SetOperation).then(|| Question {
                number,
                known,
                about: about(known, before.matches(HOLE).count()),
                part,
            })
        });
        side.or_else(|| {
            numbered()
                .find(|(known, _)| known.query.rule() == Rule::SetOperation)
                .map(|(known, number)| Question {
                    number,
                    known,
                    about: about(known, 0),
                    part: Part::Presence,
                })
        })
    }
}

impl Shape {
    /// The shape of what is asked, with placeholders in place of names.
    fn of_template(text: &str) -> Self {
        Self::of(text, |name| PLACEHOLDERS.contains(&name))
    }

    /// The shape of `text`, in which alternatives are names as soon as one of them is.
    fn of(text: &str, is_name: impl Fn(&str) -> bool) -> Self {
        // Names stand alone where one is asked about, and in a regular expression where many are.
        let plain = text.replace("[.]", ".").replace("=~", "=");
        let mut shape = Self {
            text: String::new(),
            names: Vec::new(),
        };
        let mut rest = plain.as_str();
        while let Some(first) = rest.chars().next() {
            let length = rest.find(|c| !may_be_in_names(c)).unwrap_or(rest.len());
            let run = rest.get(..length).unwrap_or_default();
            // A dot behind it is the regular expression's.
            let names = run.trim_end_matches('.');
            if !names.is_empty() && names.split('|').any(&is_name) {
                shape.text.push(HOLE);
                shape
                    .names
                    .push(names.split('|').map(str::to_owned).collect());
                rest = rest.get(names.len()..).unwrap_or_default();
            } else {
                let length = length.max(first.len_utf8());
                shape.text.push_str(rest.get(..length).unwrap_or_default());
                rest = rest.get(length..).unwrap_or_default();
            }
        }
        // A group around names is how they stand beside something else.
        shape.text = shape.text.replace("(?:\u{0})", "\u{0}");
        shape
    }

    /// The label whose value the first hole is.
    fn label(&self) -> &str {
        let before = self.text.split(HOLE).next().unwrap_or_default();
        let before = before.trim_end_matches(['"', '\'', '`']).trim_end();
        let Some(before) = before.strip_suffix('=') else {
            return LABEL;
        };
        let before = before.trim_end().trim_end_matches('"');
        let is_in_label = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let from = before.rfind(|c| !is_in_label(c)).map_or(0, |at| at + 1);
        before
            .get(from..)
            .filter(|label| !label.is_empty())
            .unwrap_or(LABEL)
    }
}

/// Names, the placeholder, and what stands between alternatives.
fn may_be_in_names(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || "-.|<>".contains(c)
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
        let tree = promql_parser::parser::parse(&query.template());
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
    fn a_query_is_found_again_whichever_pods_it_is_about() {
        let pods = ["a-1", "b.c-2"];
        let shape = |text: &str| Shape::of(text, |name| name == NO_POD || pods.contains(&name));
        let cases = [
            (
                r#"x{p="<<pod>>"} > 5"#,
                r#"x{p="a-1"} > 5"#,
                vec![vec!["a-1"]],
            ),
            (
                r#"x{p="<<pod>>"} > 5"#,
                r#"x{p=~"a-1|gone-3|b[.]c-2"} > 5"#,
                vec![vec!["a-1", "gone-3", "b.c-2"]],
            ),
            (
                r#"x{p=~"<<pod>>.*"} < y{q=~"z|<<pod>>"}"#,
                r#"x{p=~"a-1.*"} < y{q=~"z|a-1"}"#,
                vec![vec!["a-1"], vec!["z", "a-1"]],
            ),
            (
                r#"x{p="<<pod>>"} > scalar(avg(x{p=~"<<primary>>"}))"#,
                r#"x{p=~"a-1|b[.]c-2"} > scalar(avg(x{p=~"-no-pod-"}))"#,
                vec![vec!["a-1", "b.c-2"], vec![NO_POD]],
            ),
            (
                r#"x{p!~"z.*<<canary>>"} > 0"#,
                r#"x{p!~"z.*(?:a-1|b[.]c-2)"} > 0"#,
                vec![vec!["a-1", "b.c-2"]],
            ),
        ];
        for (template, asked, names) in cases {
            let known = Shape::of_template(template);
            assert_eq!(shape(asked).text, known.text, "{asked}");
            assert_eq!(shape(asked).names, names, "{asked}");
        }
        let labels = [
            (r#"x{kubernetes_pod = "<<pod>>"}"#, "kubernetes_pod"),
            (r#"x{app="y",pod_name=~`<<pod>>`}"#, "pod_name"),
            (r#"label_replace(x, "pod", "<<pod>>", "", "")"#, "pod"),
            ("up", "pod"),
        ];
        for (text, label) in labels {
            assert_eq!(Shape::of_template(text).label(), label, "{text}");
        }
    }

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
