//! A success expression: `PromQL` with placeholders, understood at load and rewritten for judging.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use promql_parser::parser::value::ValueType;
use promql_parser::parser::{BinModifier, BinaryExpr, Expr};

use super::batch::Request;
use super::pod::{PodName, Pods, Role};
use super::source::{Comparison, Kind, Lexeme, POD, SourceError, Template, scan, tidy};
use super::verdict::Rule;
use crate::config::{Expression, OnNoData, Service};

/// The longest expression that is accepted, in bytes. Regular expressions over many names can be long.
const MAX_LENGTH: usize = 8 * 1024;

/// Why a text is not a success expression. Says what was wrong and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// Nothing but white space and comments.
    #[error(
        "the expression is empty; write a comparison such as my_errors{{pod=\"<<pod>>\"}} == 0"
    )]
    Empty,
    /// Longer than any expression that people can read.
    #[error(
        "the expression has {bytes} bytes; at most {MAX_LENGTH} are allowed: split it into several expressions"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Quotes, brackets or placeholders are wrong.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// `PromQL` does not read like that.
    #[error("`{expression}` is not valid PromQL: {reason}")]
    Invalid {
        /// The tidied text.
        expression: String,
        /// What the parser said, or what it is known to mean.
        reason: String,
    },
    /// Nothing is compared anywhere: there is a value, but no word on which values are good.
    #[error(
        "`{expression}` compares nothing, so it cannot fail; say what is good, for example {example}"
    )]
    NoComparison {
        /// The tidied text.
        expression: String,
        /// A comparison to start from.
        example: String,
    },
    /// There is a comparison, but only inside of something else.
    #[error(
        "the comparison in `{expression}` is inside of something else, so the result is a value and not an answer; \
         make a comparison the outermost operation, for example `{expression} == 1`"
    )]
    InnerComparison {
        /// The tidied text.
        expression: String,
    },
    /// `a > 5 < 10`: the first comparison silently drops the series that fail it.
    #[error(
        "`{expression}` compares the result of a comparison, which silently drops the series that fail the inner one; \
         write one expression for each comparison"
    )]
    ChainedComparison {
        /// The tidied text.
        expression: String,
    },
    /// Rewriting would not mean the same; kept as an error so that a verdict never rests on a guess.
    #[error(
        "`{expression}` is too unusual to be rewritten safely; put parentheses around both sides of the comparison"
    )]
    Unsplittable {
        /// The tidied text.
        expression: String,
    },
}

/// A success expression that can be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// As the user wrote it, tidied.
    shown: Template,
    /// As it is sent.
    judged: Request,
    form: Form,
    /// What a comparison compares, for people to see; numbers are as they are written.
    sides: Option<[Template; 2]>,
    on_no_data: OnNoData,
}

/// What the outermost operation is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// A comparison, judged through the `bool` modifier.
    Comparison {
        operator: Comparison,
        left: Operand,
        right: Operand,
    },
    /// `and`, `or`, `unless`.
    SetOperation {
        /// Returns a sample when there is anything to judge at all.
        presence: Request,
    },
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operand {
    /// Known without asking.
    Number,
    /// Prometheus knows.
    Query(Request),
}

impl Query {
    /// The success expressions of a service, each as the file has it. All of them were understood when the file was read.
    #[must_use]
    pub fn of(service: &Service) -> Vec<Self> {
        let of = |expression: &Expression| {
            let query = Self::parse(expression.text()).ok()?;
            Some(query.with_on_no_data(expression.on_no_data))
        };
        service.success.iter().filter_map(of).collect()
    }

    /// Understands `text`, or says why it cannot be judged.
    ///
    /// # Errors
    /// See [`ExpressionError`]; each one means that the text can never be judged, on no pod.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        if text.len() > MAX_LENGTH {
            return Err(ExpressionError::TooLong { bytes: text.len() });
        }
        let text = tidy(text)?;
        if text.is_empty() {
            return Err(ExpressionError::Empty);
        }
        let parsed = Parsed::new(&text)?;
        let compares = |lexeme: &Lexeme| matches!(lexeme.kind, Kind::Comparison(_));
        let query = match &parsed.operation {
            Operation::Comparison(binary) => parsed.comparison(binary)?,
            Operation::Set => parsed.set_operation()?,
            Operation::Neither if parsed.lexemes.iter().any(compares) => {
                return Err(ExpressionError::InnerComparison { expression: text });
            }
            Operation::Neither => {
                let example = match parsed.tree.value_type() {
                    ValueType::Vector => format!("`{text} > 0`"),
                    ValueType::Scalar | ValueType::Matrix | ValueType::String => {
                        "`my_errors{pod=\"<<pod>>\"} == 0`".to_owned()
                    }
                };
                return Err(ExpressionError::NoComparison {
                    expression: text,
                    example,
                });
            }
        };
        query.prove()?;
        Ok(query)
    }

    /// The expression as the user wrote it, on one line, placeholders and all.
    #[must_use]
    pub fn text(&self) -> String {
        self.shown.show(None)
    }

    /// Whether the expression names the pod. One that does not judges something other than the canary, and is
    /// evaluated once in a round.
    #[must_use]
    pub fn mentions_pod(&self) -> bool {
        self.shown.mentions_pod()
    }

    /// What it is about: each canary pod of `pods`, in their order; or nothing in particular, where it names no pod.
    #[must_use]
    pub fn subjects<'a>(&self, pods: &'a Pods) -> Vec<Option<&'a PodName>> {
        if self.mentions_pod() {
            pods.canary.iter().map(Some).collect()
        } else {
            vec![None]
        }
    }

    /// The rule by which the answer is judged.
    #[must_use]
    pub fn rule(&self) -> Rule {
        match &self.form {
            Form::Comparison {
                operator: Comparison::NotEqual,
                ..
            } => Rule::Inequality,
            Form::Comparison { .. } => Rule::Comparison,
            Form::SetOperation { .. } => Rule::SetOperation,
        }
    }

    /// Whether the expression names the pods of a role.
    #[must_use]
    pub fn mentions(&self, role: Role) -> bool {
        self.shown.mentions(role)
    }

    /// The user's expression for `pod`, for people to read: the pods of a role, which may be hundreds, stay a placeholder.
    #[must_use]
    pub fn shown(&self, pod: Option<&PodName>) -> String {
        self.shown.show(pod)
    }

    /// What to ask Prometheus about `pod`, one of `pods`: a comparison answers 1 or 0 for each series.
    #[must_use]
    pub fn judged(&self, pod: Option<&PodName>, pods: &Pods) -> String {
        self.judged.each.resolve(pod, pods)
    }

    /// What to ask Prometheus, with the placeholders.
    #[must_use]
    pub fn template(&self) -> String {
        self.judged.each.show(None)
    }

    /// What it means that there is still no data after `no_data_grace`.
    #[must_use]
    pub fn on_no_data(&self) -> OnNoData {
        self.on_no_data
    }

    /// The same expression with `on_no_data` as the file has it.
    #[must_use]
    pub fn with_on_no_data(self, on_no_data: OnNoData) -> Self {
        Self { on_no_data, ..self }
    }

    /// Whether one query is enough for all pods: because the answer can be told apart by pod, or none is named.
    #[must_use]
    pub fn is_asked_once(&self) -> bool {
        self.judged.batch.is_some() || !self.mentions_pod()
    }

    /// What is asked in a round.
    pub(super) fn request(&self) -> &Request {
        &self.judged
    }

    /// What is compared about `pod`, and how; nothing for a set operation.
    pub(super) fn sides(
        &self,
        pod: Option<&PodName>,
        pods: &Pods,
    ) -> Option<([String; 2], Comparison)> {
        match (&self.form, &self.sides) {
            (Form::Comparison { operator, .. }, Some(sides)) => Some((
                sides.each_ref().map(|side| side.resolve(pod, pods)),
                *operator,
            )),
            (Form::Comparison { .. }, None) | (Form::SetOperation { .. }, _) => None,
        }
    }

    pub(super) fn form(&self) -> &Form {
        &self.form
    }

    /// Everything that will ever be sent parses once a pod's name stands in it.
    fn prove(&self) -> Result<(), ExpressionError> {
        let sample = PodName::new("a.b-c").map_err(|error| ExpressionError::Invalid {
            expression: self.text(),
            reason: error.to_string(),
        })?;
        let pods = Pods {
            canary: vec![sample.clone(), sample.clone()],
            primary: Vec::new(),
        };
        let mut requests = vec![&self.judged];
        match &self.form {
            Form::Comparison { left, right, .. } => {
                for side in [left, right] {
                    match side {
                        Operand::Query(request) => requests.push(request),
                        Operand::Number => {}
                    }
                }
            }
            Form::SetOperation { presence } => requests.push(presence),
        }
        for request in requests {
            parse(&request.each.resolve(Some(&sample), &pods))?;
        }
        Ok(())
    }
}

/// What the outermost operation of a parsed text is, parentheses around all of it put aside.
enum Operation {
    Comparison(BinaryExpr),
    Set,
    Neither,
}

/// A tidied text together with what it means.
struct Parsed<'a> {
    text: &'a str,
    lexemes: Vec<Lexeme>,
    tree: Expr,
    /// How many parentheses stand around all of it.
    wraps: usize,
    operation: Operation,
}

impl<'a> Parsed<'a> {
    fn new(text: &'a str) -> Result<Self, ExpressionError> {
        let tree = parse(text)?;
        let lexemes = scan(text)?
            .into_iter()
            .filter(|l| l.kind != Kind::Blank)
            .collect();
        let (wraps, inner) = unwrap(&tree);
        let operation = if let Expr::Binary(binary) = inner {
            if binary.op.is_comparison_operator() {
                Operation::Comparison(binary.clone())
            } else if binary.op.is_set_operator() {
                Operation::Set
            } else {
                Operation::Neither
            }
        } else {
            Operation::Neither
        };
        Ok(Self {
            text,
            lexemes,
            tree,
            wraps,
            operation,
        })
    }

    fn comparison(&self, binary: &BinaryExpr) -> Result<Query, ExpressionError> {
        if [&binary.lhs, &binary.rhs]
            .into_iter()
            .any(|side| filters(side))
        {
            return Err(ExpressionError::ChainedComparison {
                expression: self.text.to_owned(),
            });
        }
        let (index, operator) = self
            .outermost_comparison()
            .ok_or_else(|| self.unsplittable())?;
        let inside = self.inside();
        let at = self
            .lexemes
            .get(index)
            .map(|l| l.at.clone())
            .ok_or_else(|| self.unsplittable())?;
        let right_start = self.after_modifiers(index + 1);
        let left = self.part(inside.start..at.start);
        let right = self.part(right_start..inside.end);
        for (part, tree) in [(left, &binary.lhs), (right, &binary.rhs)] {
            if parse(part).as_ref() != Ok(tree.as_ref()) {
                return Err(self.unsplittable());
            }
        }
        Ok(Query {
            shown: Template::new(self.text)?,
            judged: Request::new(&self.with_bool(binary)?)?,
            form: Form::Comparison {
                operator,
                left: operand(&binary.lhs, left)?,
                right: operand(&binary.rhs, right)?,
            },
            sides: Some([Template::new(left)?, Template::new(right)?]),
            on_no_data: OnNoData::default(),
        })
    }

    fn set_operation(&self) -> Result<Query, ExpressionError> {
        let mut leaves = Vec::new();
        self.leaves(&mut leaves)?;
        let about_pods: Vec<&String> = leaves.iter().filter(|leaf| leaf.contains(POD)).collect();
        let asked = if about_pods.is_empty() {
            leaves.iter().collect()
        } else {
            about_pods
        };
        let presence = asked
            .iter()
            .map(|leaf| format!("({leaf})"))
            .collect::<Vec<_>>()
            .join(" or ");
        Ok(Query {
            shown: Template::new(self.text)?,
            judged: Request::new(self.text)?,
            form: Form::SetOperation {
                presence: Request::new(&presence)?,
            },
            sides: None,
            on_no_data: OnNoData::default(),
        })
    }

    /// The operands of a set operation and of the set operations in it, comparisons with `bool`, so that each
    /// returns a sample wherever it has data.
    fn leaves(&self, leaves: &mut Vec<String>) -> Result<(), ExpressionError> {
        match &self.operation {
            Operation::Comparison(binary) => leaves.push(self.with_bool(binary)?),
            Operation::Neither => leaves.push(self.text.to_owned()),
            Operation::Set => {
                let inside = self.inside();
                let mut start = inside.start;
                for (index, lexeme) in self.lexemes.iter().enumerate() {
                    if lexeme.depth == self.wraps && self.is_set_operator(lexeme) {
                        self.leaf(start..lexeme.at.start, leaves)?;
                        start = self.after_modifiers(index + 1);
                    }
                }
                self.leaf(start..inside.end, leaves)?;
            }
        }
        Ok(())
    }

    fn leaf(&self, at: Range<usize>, leaves: &mut Vec<String>) -> Result<(), ExpressionError> {
        let leaf = Parsed::new(self.part(at)).map_err(|_| self.unsplittable())?;
        if leaf.tree.value_type() != ValueType::Vector {
            return Err(self.unsplittable());
        }
        leaf.leaves(leaves)
    }

    fn is_set_operator(&self, lexeme: &Lexeme) -> bool {
        let word = self.part(lexeme.at.clone());
        lexeme.kind == Kind::Word
            && ["and", "or", "unless"]
                .iter()
                .any(|set| word.eq_ignore_ascii_case(set))
    }

    /// The text with the `bool` modifier on its outermost comparison, proven to mean just that.
    fn with_bool(&self, binary: &BinaryExpr) -> Result<String, ExpressionError> {
        if binary.return_bool() {
            return Ok(self.text.to_owned());
        }
        let (index, _) = self
            .outermost_comparison()
            .ok_or_else(|| self.unsplittable())?;
        let end = self.lexemes.get(index).map_or(0, |l| l.at.end);
        let rewritten = format!(
            "{} bool{}",
            self.part(0..end),
            self.part_as_is(end..self.text.len())
        );
        if parse(&rewritten).as_ref() == Ok(&returning_bool(self.tree.clone())) {
            Ok(rewritten)
        } else {
            Err(self.unsplittable())
        }
    }

    /// Comparisons bind alike and to the left, so the outermost one is the last that no further parenthesis encloses.
    fn outermost_comparison(&self) -> Option<(usize, Comparison)> {
        self.lexemes
            .iter()
            .enumerate()
            .rev()
            .find_map(|(index, lexeme)| match lexeme.kind {
                Kind::Comparison(operator) if lexeme.depth == self.wraps => Some((index, operator)),
                Kind::Comparison(_)
                | Kind::Open
                | Kind::Close
                | Kind::Word
                | Kind::Blank
                | Kind::Text(_)
                | Kind::Other => None,
            })
    }

    /// What stands inside of the parentheses around all of the text.
    fn inside(&self) -> Range<usize> {
        let start = self.lexemes.get(self.wraps).map_or(0, |l| l.at.start);
        let end = self
            .lexemes
            .len()
            .checked_sub(self.wraps + 1)
            .and_then(|last| self.lexemes.get(last));
        start..end.map_or(self.text.len(), |l| l.at.end)
    }

    /// Where the right operand begins: behind `bool`, `on (...)` and the like, of which the first is lexeme `index`.
    fn after_modifiers(&self, mut index: usize) -> usize {
        const TAKES_A_LIST: [&str; 7] = [
            "on",
            "ignoring",
            "group_left",
            "group_right",
            "fill",
            "fill_left",
            "fill_right",
        ];
        while let Some(lexeme) = self.lexemes.get(index) {
            let word = self.part(lexeme.at.clone()).to_ascii_lowercase();
            let list_follows = self
                .lexemes
                .get(index + 1)
                .is_some_and(|next| next.kind == Kind::Open);
            if lexeme.kind != Kind::Word {
                break;
            } else if word == "bool" {
                index += 1;
            } else if TAKES_A_LIST.contains(&word.as_str()) && list_follows {
                let closes = |l: &Lexeme| l.kind == Kind::Close && l.depth == lexeme.depth;
                let length = self.lexemes.iter().skip(index).position(closes);
                index += length.map_or(1, |length| length + 1);
            } else if word.starts_with("group_") && TAKES_A_LIST.contains(&word.as_str()) {
                index += 1;
            } else {
                break;
            }
        }
        self.lexemes
            .get(index)
            .map_or(self.text.len(), |l| l.at.start)
    }

    fn part(&self, at: Range<usize>) -> &str {
        self.part_as_is(at).trim()
    }

    fn part_as_is(&self, at: Range<usize>) -> &str {
        self.text.get(at).unwrap_or_default()
    }

    fn unsplittable(&self) -> ExpressionError {
        ExpressionError::Unsplittable {
            expression: self.text.to_owned(),
        }
    }
}

/// How many parentheses stand around all of `tree`, and what is in them.
fn unwrap(mut tree: &Expr) -> (usize, &Expr) {
    let mut wraps = 0;
    while let Expr::Paren(paren) = tree {
        tree = &paren.expr;
        wraps += 1;
    }
    (wraps, tree)
}

/// Whether `side` is itself a comparison that drops series instead of answering for them.
fn filters(side: &Expr) -> bool {
    matches!(unwrap(side).1, Expr::Binary(inner) if inner.op.is_comparison_operator() && !inner.return_bool())
}

fn operand(tree: &Expr, text: &str) -> Result<Operand, ExpressionError> {
    let (_, mut inner) = unwrap(tree);
    while let Expr::Unary(unary) = inner {
        inner = unwrap(&unary.expr).1;
    }
    Ok(if matches!(inner, Expr::NumberLiteral(_)) {
        Operand::Number
    } else {
        Operand::Query(Request::new(text)?)
    })
}

/// `tree` with the `bool` modifier on its outermost comparison.
fn returning_bool(mut tree: Expr) -> Expr {
    let mut inner = &mut tree;
    while let Expr::Paren(paren) = inner {
        inner = &mut paren.expr;
    }
    if let Expr::Binary(binary) = inner {
        let modifier = binary.modifier.take().unwrap_or_else(BinModifier::default);
        binary.modifier = Some(modifier.with_return_bool(true));
    }
    tree
}

/// Parses, with the parser's panics (it makes durations of any number, however large) turned into errors.
pub(super) fn parse(text: &str) -> Result<Expr, ExpressionError> {
    let invalid = |reason: String| ExpressionError::Invalid {
        expression: text.to_owned(),
        reason,
    };
    match catch_unwind(AssertUnwindSafe(|| promql_parser::parser::parse(text))) {
        Ok(Ok(tree)) => Ok(tree),
        Ok(Err(reason)) if reason.contains("must use BOOL modifier") => Err(invalid(
            "two single numbers are compared only with the bool modifier; write for example scalar(x) > bool 5, \
             or leave scalar() out"
                .to_owned(),
        )),
        Ok(Err(reason)) if reason == "invalid promql query" => Err(invalid(
            "an operator, an operand or a comma is missing or too many (and \"equal\" is written ==)".to_owned(),
        )),
        Ok(Err(reason)) => Err(invalid(reason)),
        Err(_) => Err(invalid("a number or duration in it is out of range".to_owned())),
    }
}

#[cfg(test)]
mod tests;
