//! One query for many pods, where the answer can be told apart by pod.
//!
//! `label="<<pod>>"` becomes `label=~"a|b|c"`, which `PromQL` anchors at both ends, and the answer is split by the
//! label's value. That is right only if the label survives, so it is proven from the expression's tree, from the
//! leaves to the root, that each part is one of two things (anything else is asked pod by pod):
//!
//! * **Apart**: it names no pod, so it is the same whichever pods are asked about (all pods of a role are no choice).
//! * **Keyed** by the label: asked about many pods it returns, for each of them, just the series that it returns when
//!   asked about that pod alone, each with the pod's name in the label; and no other series.
//!
//! | part | is keyed, given that |
//! | --- | --- |
//! | selector, range selector | its only mention of the pod is `label="<<pod>>"` (or `=~`), on one label, not `le` or one of Prometheus' own (`__name__`) |
//! | function of each series | the argument is keyed, the others are numbers: no series is computed from another pod's |
//! | `label_replace`, `label_join` | likewise, and it writes another label |
//! | subquery | what is in it is keyed: it is so at each of its moments |
//! | aggregation | the label is in `by`, or `without` leaves it: no group has series of two pods |
//! | operation with a number | the other side is keyed |
//! | `a op b`, one of them keyed | the label is matched on, so that only series of one pod meet; not `or` and the right side of `unless` where the other side is apart: series of pods that were not asked about would stay |
//! | `a op group_left b`, and mirrored | the many side is keyed and the one side apart: each series finds its partner by itself |
//! | `a and b`, `a unless b` | `a` is keyed and `b` apart: each series stays or goes by itself |
//!
//! `topk`, `bottomk` and `limitk` are not in it, since which of equal series they return depends on their order; nor is
//! whatever has no series to be told apart by: `absent`, `scalar`, `vector`, `fill` of what is not there.
//!
//! An error about one pod (two series that match the same one) spoils the answer about all. An expression that fails
//! like that is asked pod by pod, so that nothing else of it is lost; so is one whose answer has series of nobody that
//! was asked about, which no Prometheus returns, but perhaps something that plays one.

use std::collections::BTreeMap;

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::token::{
    T_ADD, T_ATAN2, T_AVG, T_COUNT, T_COUNT_VALUES, T_DIV, T_EQLC, T_GROUP, T_GTE, T_GTR, T_LAND,
    T_LOR, T_LSS, T_LTE, T_LUNLESS, T_MAX, T_MIN, T_MOD, T_MUL, T_NEQ, T_POW, T_QUANTILE, T_STDDEV,
    T_STDVAR, T_SUB, T_SUM, TokenId,
};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{
    AggregateExpr, BinModifier, BinaryExpr, Call, Expr, LabelModifier, VectorMatchCardinality,
    VectorSelector,
};

use super::answer::{Answer, Sample};
use super::expression::parse;
use super::pod::{PodName, Pods};
use super::source::{Kind, Matching, POD, SourceError, Template, scan};

/// How many pods one query is about at most: a name has up to 253 characters, and its query is parsed as a whole.
pub(super) const MAX_PODS: usize = 500;

/// The label of a classic histogram's buckets, which functions of histograms take away.
const BUCKET: &str = "le";

/// Functions that compute each series from one series (or one histogram) and keep its labels.
const OF_EACH_SERIES: &[&str] = &[
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "avg_over_time",
    "ceil",
    "changes",
    "clamp",
    "clamp_max",
    "clamp_min",
    "cos",
    "cosh",
    "count_over_time",
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "days_in_month",
    "deg",
    "delta",
    "deriv",
    "double_exponential_smoothing",
    "exp",
    "floor",
    "histogram_avg",
    "histogram_count",
    "histogram_fraction",
    "histogram_quantile",
    "histogram_stddev",
    "histogram_stdvar",
    "histogram_sum",
    "hour",
    "idelta",
    "increase",
    "irate",
    "last_over_time",
    "ln",
    "log10",
    "log2",
    "mad_over_time",
    "max_over_time",
    "min_over_time",
    "minute",
    "month",
    "predict_linear",
    "present_over_time",
    "quantile_over_time",
    "rad",
    "rate",
    "resets",
    "round",
    "sgn",
    "sin",
    "sinh",
    "sort",
    "sort_desc",
    "sqrt",
    "stddev_over_time",
    "stdvar_over_time",
    "sum_over_time",
    "tan",
    "tanh",
    "timestamp",
    "year",
];

/// Aggregations whose result for a group is a function of the group's series, whatever their order, up to a last digit.
const OF_A_GROUP: &[TokenId] = &[
    T_AVG, T_COUNT, T_GROUP, T_MAX, T_MIN, T_QUANTILE, T_STDDEV, T_STDVAR, T_SUM,
];

/// Arithmetic and comparisons.
const OF_A_PAIR: &[TokenId] = &[
    T_ADD, T_ATAN2, T_DIV, T_EQLC, T_GTE, T_GTR, T_LSS, T_LTE, T_MOD, T_MUL, T_NEQ, T_POW, T_SUB,
];

/// A query, and how it is asked about many pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// For a single pod.
    pub(super) each: Template,
    /// For many at once, where that is right.
    pub(super) batch: Option<Batch>,
}

/// One query for many pods, and the label that tells its answer apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Batch {
    label: String,
    template: Template,
}

impl Request {
    /// The ways to ask the tidied `text`.
    pub(super) fn new(text: &str) -> Result<Self, SourceError> {
        Ok(Self {
            each: Template::new(text)?,
            batch: Batch::of(text),
        })
    }
}

impl Batch {
    fn of(text: &str) -> Option<Self> {
        if has_escaped_code(text)? {
            return None;
        }
        let text = with_pods_matched_by_regex(text)?;
        let template = Template::new(&text).ok()?;
        let tree = parse(&text).ok()?;
        let mut proof = Proof::default();
        match proof.reach(&tree)? {
            // A hole that the tree does not show is in a place that nothing is known about.
            Reach::Keyed(label) if template.holes() == proof.matchers => Some(Self {
                label: label.to_owned(),
                template,
            }),
            Reach::Keyed(_) | Reach::Apart => None,
        }
    }

    /// The query for `some` of `pods` at once.
    pub(super) fn resolve(&self, some: &[&PodName], pods: &Pods) -> String {
        self.template.resolve_for_all(some, pods)
    }

    /// What `answer` says about each of `pods`, in their order; nothing if it says something about somebody else.
    pub(super) fn split(&self, answer: Answer, pods: &[&PodName]) -> Option<Vec<Answer>> {
        let samples = match answer {
            Answer::Vector(samples) => samples,
            // Not an answer that has anything for anybody.
            Answer::Scalar(_) | Answer::Text | Answer::Matrix => {
                return Some(vec![answer; pods.len()]);
            }
        };
        let mut by_pod: BTreeMap<&str, Vec<Sample>> =
            pods.iter().map(|pod| (pod.as_str(), Vec::new())).collect();
        for sample in samples {
            let pod = sample.labels.get(&self.label)?;
            by_pod.get_mut(pod)?.push(sample);
        }
        Some(
            pods.iter()
                .map(|pod| Answer::Vector(by_pod.remove(pod.as_str()).unwrap_or_default()))
                .collect(),
        )
    }
}

/// Whether a string has a character by its number. The parser reads some of them as another label than Prometheus does
/// (`\xc3` is a character to the one and a byte to the other), and a placeholder could hide in them.
fn has_escaped_code(text: &str) -> Option<bool> {
    for lexeme in scan(text).ok()? {
        let is_string = matches!(lexeme.kind, Kind::Text(_));
        let part = text.get(lexeme.at)?;
        let mut characters = part.chars();
        while let Some(character) = characters.next() {
            if is_string
                && character == '\\'
                && matches!(characters.next(), Some('x' | 'u' | 'U' | '0'..='7'))
            {
                return Some(true);
            }
        }
    }
    Some(false)
}

/// `text` with each `="<<pod>>"` as `=~"<<pod>>"`.
fn with_pods_matched_by_regex(text: &str) -> Option<String> {
    let mut rewritten = String::with_capacity(text.len());
    let mut before = "";
    let mut last = "";
    // Where the last lexeme that is not blank ends in what is rewritten.
    let mut end = 0;
    for lexeme in scan(text).ok()? {
        let part = text.get(lexeme.at)?;
        if lexeme.kind == Kind::Text(Matching::Literal)
            && quoted(part) == Some(POD)
            && last == "="
            && before != "!"
        {
            rewritten.insert(end, '~');
        }
        rewritten.push_str(part);
        if lexeme.kind != Kind::Blank {
            before = last;
            last = part;
            end = rewritten.len();
        }
    }
    Some(rewritten)
}

/// What stands between the quotes.
fn quoted(string: &str) -> Option<&str> {
    string.get(1..string.len().checked_sub(1)?)
}

/// What is known of a part of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach<'a> {
    /// It names no pod.
    Apart,
    /// Its series are told apart by this label.
    Keyed(&'a str),
}

/// See the table of this module. Each step of it returns nothing where it proves nothing.
#[derive(Default)]
struct Proof {
    /// How many matchers name the pod.
    matchers: usize,
}

impl Proof {
    fn reach<'a>(&mut self, tree: &'a Expr) -> Option<Reach<'a>> {
        match tree {
            Expr::NumberLiteral(_) => Some(Reach::Apart),
            Expr::StringLiteral(literal) => (!literal.val.contains(POD)).then_some(Reach::Apart),
            Expr::Paren(paren) => self.reach(&paren.expr),
            Expr::Unary(unary) => self.reach(&unary.expr),
            Expr::Subquery(subquery) => self.reach(&subquery.expr),
            Expr::VectorSelector(selector) => self.selector(selector),
            Expr::MatrixSelector(selector) => self.selector(&selector.vs),
            Expr::Call(call) => self.call(call),
            Expr::Aggregate(aggregate) => self.aggregate(aggregate),
            Expr::Binary(binary) => self.binary(binary),
            Expr::Extension(_) => None,
        }
    }

    fn selector<'a>(&mut self, selector: &'a VectorSelector) -> Option<Reach<'a>> {
        let mentions =
            |matcher: &Matcher| matcher.name.contains(POD) || matcher.value.contains(POD);
        if !selector.matchers.or_matchers.is_empty()
            || selector
                .name
                .as_ref()
                .is_some_and(|name| name.contains(POD))
        {
            return None;
        }
        let mut reach = Reach::Apart;
        for matcher in selector.matchers.matchers.iter().filter(|m| mentions(m)) {
            let label = matcher.name.as_str();
            let is_whole = matches!(matcher.op, MatchOp::Re(_)) && matcher.value == POD;
            // Prometheus keeps its own labels, the metric's name and its type, as it likes.
            let is_kept = !label.starts_with("__") && label != BUCKET && !label.contains(POD);
            if !is_whole || !is_kept || (reach != Reach::Apart && reach != Reach::Keyed(label)) {
                return None;
            }
            self.matchers += 1;
            reach = Reach::Keyed(label);
        }
        Some(reach)
    }

    fn call<'a>(&mut self, call: &'a Call) -> Option<Reach<'a>> {
        let mut keyed = None;
        for argument in &call.args.args {
            match self.reach(argument)? {
                Reach::Keyed(_) if keyed.is_some() => return None,
                Reach::Keyed(label) => keyed = Some(label),
                Reach::Apart => {}
            }
        }
        let Some(label) = keyed else {
            return Some(Reach::Apart);
        };
        let keeps = match call.func.name {
            // The label that is written is the second argument.
            "label_replace" | "label_join" => {
                let written = call.args.args.get(1).and_then(|written| literal(written))?;
                written != label
            }
            name => {
                let is_other = |argument: &Expr| argument.value_type() == ValueType::Scalar;
                let others = call.args.args.iter().filter(|argument| is_other(argument));
                OF_EACH_SERIES.contains(&name) && others.count() + 1 == call.args.args.len()
            }
        };
        keeps.then_some(Reach::Keyed(label))
    }

    fn aggregate<'a>(&mut self, aggregate: &'a AggregateExpr) -> Option<Reach<'a>> {
        let parameter = aggregate.param.as_deref();
        if let Some(parameter) = parameter
            && self.reach(parameter)? != Reach::Apart
        {
            return None;
        }
        let Reach::Keyed(label) = self.reach(&aggregate.expr)? else {
            return Some(Reach::Apart);
        };
        let is_grouped_by = match &aggregate.modifier {
            Some(LabelModifier::Include(labels)) => labels.labels.iter().any(|name| name == label),
            Some(LabelModifier::Exclude(labels)) => labels.labels.iter().all(|name| name != label),
            None => false,
        };
        let operation = aggregate.op.id();
        let keeps = OF_A_GROUP.contains(&operation)
            || (operation == T_COUNT_VALUES
                && parameter
                    .and_then(literal)
                    .is_some_and(|written| written != label));
        (is_grouped_by && keeps).then_some(Reach::Keyed(label))
    }

    fn binary<'a>(&mut self, binary: &'a BinaryExpr) -> Option<Reach<'a>> {
        let left = self.reach(&binary.lhs)?;
        let right = self.reach(&binary.rhs)?;
        let label = match (left, right) {
            (Reach::Apart, Reach::Apart) => return Some(Reach::Apart),
            (Reach::Keyed(left), Reach::Keyed(right)) if left != right => return None,
            (Reach::Keyed(label), _) | (_, Reach::Keyed(label)) => label,
        };
        let modifier = binary.modifier.as_ref();
        let is_keyed = |reach: Reach<'_>| reach != Reach::Apart;
        let operation = binary.op.id();
        let holds = if [&binary.lhs, &binary.rhs]
            .iter()
            .any(|side| side.value_type() == ValueType::Scalar)
        {
            OF_A_PAIR.contains(&operation)
        } else if modifier.is_some_and(fills_or_copies(label)) {
            false
        } else {
            let joined = is_matched_on(label, modifier);
            let both = is_keyed(left) && is_keyed(right);
            match operation {
                T_LAND => !is_keyed(right) || joined,
                T_LUNLESS => !is_keyed(right) || (both && joined),
                T_LOR => both && joined,
                operation if OF_A_PAIR.contains(&operation) => {
                    joined
                        || match modifier.map(|modifier| &modifier.card) {
                            Some(VectorMatchCardinality::ManyToOne(_)) => !is_keyed(right),
                            Some(VectorMatchCardinality::OneToMany(_)) => !is_keyed(left),
                            Some(
                                VectorMatchCardinality::OneToOne
                                | VectorMatchCardinality::ManyToMany,
                            )
                            | None => false,
                        }
                }
                _ => false,
            }
        };
        holds.then_some(Reach::Keyed(label))
    }
}

/// Whether a side's series are made up, or their label is taken from the other side.
fn fills_or_copies(label: &str) -> impl Fn(&BinModifier) -> bool {
    move |modifier| {
        let fill = &modifier.fill_values;
        let copied = modifier.card.labels();
        fill.lhs.is_some()
            || fill.rhs.is_some()
            || copied.is_some_and(|copied| copied.labels.iter().any(|name| name == label))
    }
}

/// Whether only series with the same value of `label` meet.
fn is_matched_on(label: &str, modifier: Option<&BinModifier>) -> bool {
    match modifier.and_then(|modifier| modifier.matching.as_ref()) {
        Some(LabelModifier::Include(labels)) => labels.labels.iter().any(|name| name == label),
        Some(LabelModifier::Exclude(labels)) => labels.labels.iter().all(|name| name != label),
        None => true,
    }
}

/// The string that `tree` is.
fn literal(tree: &Expr) -> Option<&str> {
    match tree {
        Expr::StringLiteral(literal) => Some(&literal.val),
        Expr::Paren(paren) => literal(&paren.expr),
        Expr::Aggregate(_)
        | Expr::Unary(_)
        | Expr::Binary(_)
        | Expr::Subquery(_)
        | Expr::NumberLiteral(_)
        | Expr::VectorSelector(_)
        | Expr::MatrixSelector(_)
        | Expr::Call(_)
        | Expr::Extension(_) => None,
    }
}

#[cfg(test)]
mod tests;
