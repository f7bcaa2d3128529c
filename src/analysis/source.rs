//! `PromQL` as text: tidied, cut into the few lexemes that the rewriter needs, and resolved for a pod.
//!
//! `promql-parser` tells what an expression *is* but not where its operators stand, and what it prints is not
//! always what it read. So text is only ever cut and spliced, never printed from the tree, and each splice is
//! proven by parsing the result (see [`super::expression`]).

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::pod::{PodName, Pods, Role, alternatives};

/// The placeholder for a pod's name.
pub(super) const POD: &str = "<<pod>>";

/// How deep brackets may be nested.
const MAX_DEPTH: usize = 64;

/// How many words, operators, numbers, strings and brackets an expression may have: no tree that is parsed from them
/// is deeper, which bounds the recursion of everything that walks the tree.
const MAX_LEXEMES: usize = 500;

/// What keeps a text from being taken for `PromQL` with placeholders.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// A quote, brace, bracket or parenthesis without its partner.
    #[error("the {0} is never closed; add its partner")]
    Unclosed(char),
    /// A closing parenthesis too many.
    #[error("a ')' closes nothing; remove it or add the '(' before it")]
    Unopened,
    /// More nested brackets than anybody writes by hand.
    #[error("more than {MAX_DEPTH} parentheses are nested; simplify the expression")]
    TooDeep,
    /// More words and operators than anybody reads.
    #[error(
        "it has more than {MAX_LEXEMES} words and operators; split it into several expressions"
    )]
    TooManyLexemes,
    /// Something between `<<` and `>>` that stands for nothing.
    #[error(
        "unknown placeholder {}; there are {POD}, the name of a canary pod, and <<canary>> and <<primary>>, \
         regular expressions for all pods of the candidate and of the accepted version",
        one_line(found)
    )]
    UnknownPlaceholder {
        /// The placeholder as written.
        found: String,
    },
    /// A regular expression where text is compared as it is.
    #[error(
        "{found} stands for a regular expression over all pods of its role; match with =~ (or !~), for example \
         my_errors{{pod=~\"{found}\"}}"
    )]
    NotInRegex {
        /// The placeholder.
        found: &'static str,
    },
    /// Where a regular expression takes no group.
    #[error(
        "{found} stands for a group of names, which cannot be in [...] nor behind a backslash; write for example \
         {{pod=~\"{found}|another\"}}"
    )]
    NotAGroup {
        /// The placeholder.
        found: &'static str,
    },
    /// `<<` without `>>`, which would never match a pod and so look like missing data.
    #[error("a placeholder is opened with << and never closed; write {POD}")]
    OpenPlaceholder,
    /// A placeholder where `PromQL` has no text to put a name into.
    #[error("{found} must stand inside quotes, for example my_errors{{pod=\"{POD}\"}} == 0")]
    BarePlaceholder {
        /// The placeholder.
        found: &'static str,
    },
}

/// A comparison operator of `PromQL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    /// Whether it is true of these numbers; of a NaN only `!=` is.
    pub(super) fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        })
    }
}

/// What a lexeme is, as far as the rewriter needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `(`
    Open,
    /// `)`
    Close,
    /// A comparison operator outside of braces.
    Comparison(Comparison),
    /// An identifier or keyword outside of braces.
    Word,
    /// White space or a comment.
    Blank,
    /// A string; with the matcher's operator before it a regular expression or not.
    Text(Matching),
    /// Anything else.
    Other,
}

/// How a string is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matching {
    /// As it is.
    Literal,
    /// As a regular expression (`=~`, `!~`).
    Regex,
}

/// A lexeme, where it stands, and in how many open parentheses. A parenthesis itself has the depth outside of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lexeme {
    pub(super) kind: Kind,
    pub(super) at: Range<usize>,
    pub(super) depth: usize,
}

/// Where the scanner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    Braces,
    Brackets,
}

/// Cuts `text` into lexemes. They cover it without a gap.
pub(super) fn scan(text: &str) -> Result<Vec<Lexeme>, SourceError> {
    let mut lexemes: Vec<Lexeme> = Vec::new();
    let mut rest = text;
    let mut depth = 0_usize;
    let mut place = Place::Outside;
    let mut matching = Matching::Literal;
    while let Some(first) = rest.chars().next() {
        let start = text.len() - rest.len();
        let mut depth_of_lexeme = depth;
        let (kind, length) = match (place, first) {
            (_, c) if c.is_whitespace() => (
                Kind::Blank,
                rest.find(|c: char| !c.is_whitespace())
                    .unwrap_or(rest.len()),
            ),
            (Place::Outside | Place::Braces, '#') => {
                (Kind::Blank, rest.find(['\n', '\r']).unwrap_or(rest.len()))
            }
            (Place::Outside | Place::Braces, '"' | '\'' | '`') => {
                let length = string_length(rest, first).ok_or(SourceError::Unclosed(first))?;
                (
                    Kind::Text(std::mem::replace(&mut matching, Matching::Literal)),
                    length,
                )
            }
            (Place::Outside, '{') => {
                place = Place::Braces;
                (Kind::Other, 1)
            }
            (Place::Outside, '[') => {
                place = Place::Brackets;
                (Kind::Other, 1)
            }
            (Place::Braces, '}') | (Place::Brackets, ']') => {
                place = Place::Outside;
                (Kind::Other, 1)
            }
            (_, c) if is_word(c) => {
                let length = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
                let named = place == Place::Outside && !(c.is_ascii_digit() || c == '.');
                (if named { Kind::Word } else { Kind::Other }, length)
            }
            (Place::Braces, _) => {
                if rest.starts_with("=~") || rest.starts_with("!~") {
                    matching = Matching::Regex;
                    (Kind::Other, 2)
                } else {
                    if first == ',' {
                        matching = Matching::Literal;
                    }
                    (Kind::Other, first.len_utf8())
                }
            }
            (Place::Outside, '(') => {
                depth += 1;
                (Kind::Open, 1)
            }
            (Place::Outside, ')') => {
                depth = depth.checked_sub(1).ok_or(SourceError::Unopened)?;
                depth_of_lexeme = depth;
                (Kind::Close, 1)
            }
            (Place::Outside, _) => operator(rest),
            (Place::Brackets, c) => (Kind::Other, c.len_utf8()),
        };
        if rest.starts_with("<<") {
            return Err(match placeholder(rest) {
                Some(POD) => SourceError::BarePlaceholder { found: POD },
                Some(found) => role(found).map_or_else(
                    || SourceError::UnknownPlaceholder {
                        found: found.to_owned(),
                    },
                    |role| SourceError::BarePlaceholder {
                        found: role.placeholder(),
                    },
                ),
                None => SourceError::OpenPlaceholder,
            });
        }
        lexemes.push(Lexeme {
            kind,
            at: start..start + length,
            depth: depth_of_lexeme,
        });
        rest = rest.get(length..).unwrap_or_default();
    }
    match place {
        Place::Braces => Err(SourceError::Unclosed('{')),
        Place::Brackets => Err(SourceError::Unclosed('[')),
        Place::Outside if depth > 0 => Err(SourceError::Unclosed('(')),
        Place::Outside => Ok(lexemes),
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_:.".contains(c)
}

/// The length of the string that `rest` starts with, quotes included. Backquoted ones know no escapes, and they alone may
/// go over several lines, as Prometheus has it.
fn string_length(rest: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '\n' if quote != '`' => return None,
            _ if escaped => escaped = false,
            '\\' if quote != '`' => escaped = true,
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// The operator or single character that `rest`, outside of braces, starts with.
fn operator(rest: &str) -> (Kind, usize) {
    const OPERATORS: [(&str, Comparison); 6] = [
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    OPERATORS
        .iter()
        .find(|(text, _)| rest.starts_with(text))
        .map_or_else(
            || (Kind::Other, rest.chars().next().map_or(1, char::len_utf8)),
            |&(text, comparison)| (Kind::Comparison(comparison), text.len()),
        )
}

/// The placeholder that `rest` starts with (`<<` is known to be there), or `None` when it is never closed.
fn placeholder(rest: &str) -> Option<&str> {
    rest.find(">>").and_then(|end| rest.get(..end + 2))
}

/// `text` on one line: comments dropped, white space outside of strings folded. Placeholders and size are checked.
pub(super) fn tidy(text: &str) -> Result<String, SourceError> {
    let mut tidied = String::with_capacity(text.len());
    let lexemes = scan(text)?;
    if lexemes
        .iter()
        .filter(|lexeme| lexeme.kind != Kind::Blank)
        .count()
        > MAX_LEXEMES
    {
        return Err(SourceError::TooManyLexemes);
    }
    if lexemes.iter().any(|lexeme| lexeme.depth > MAX_DEPTH) {
        return Err(SourceError::TooDeep);
    }
    for lexeme in lexemes {
        let part = text.get(lexeme.at).unwrap_or_default();
        match lexeme.kind {
            Kind::Blank => {
                if !tidied.is_empty() && !tidied.ends_with(' ') {
                    tidied.push(' ');
                }
                continue;
            }
            Kind::Text(used) => {
                check_placeholders(part, used)?;
                tidied.push_str(&requoted(part));
                continue;
            }
            Kind::Open | Kind::Close | Kind::Comparison(_) | Kind::Word | Kind::Other => {}
        }
        tidied.push_str(part);
    }
    Ok(tidied.trim_end().to_owned())
}

/// A backquoted string with backslashes or line breaks in double quotes: `promql-parser` takes the former for escapes,
/// Prometheus does not, and an expression is shown on one line.
fn requoted(string: &str) -> Cow<'_, str> {
    match string
        .strip_prefix('`')
        .and_then(|rest| rest.strip_suffix('`'))
    {
        Some(raw) if raw.contains(['\\', '\n', '\r']) => {
            let escaped = raw
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n")
                .replace('\r', "\\r");
            Cow::Owned(format!("\"{escaped}\""))
        }
        Some(_) | None => Cow::Borrowed(string),
    }
}

/// How much of what a person wrote an error shows, in characters.
const LONGEST_SHOWN: usize = 80;

/// A part of an expression, as part of a line.
fn one_line(text: &str) -> String {
    let printable = text.replace(char::is_control, " ");
    match printable.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}...", printable.get(..end).unwrap_or_default()),
        None => printable,
    }
}

fn check_placeholders(string: &str, used: Matching) -> Result<(), SourceError> {
    let mut rest = string;
    while let Some(from) = rest.find("<<") {
        let here = rest.get(from..).unwrap_or_default();
        let found = placeholder(here).ok_or(SourceError::OpenPlaceholder)?;
        if found != POD {
            let role = role(found).ok_or_else(|| SourceError::UnknownPlaceholder {
                found: found.to_owned(),
            })?;
            let found = role.placeholder();
            if used != Matching::Regex {
                return Err(SourceError::NotInRegex { found });
            }
            let before = string.get(..string.len() - here.len()).unwrap_or_default();
            if !takes_a_group(before) {
                return Err(SourceError::NotAGroup { found });
            }
        }
        rest = here.get(found.len()..).unwrap_or_default();
    }
    Ok(())
}

fn role(placeholder: &str) -> Option<Role> {
    [Role::Canary, Role::Primary]
        .into_iter()
        .find(|role| role.placeholder() == placeholder)
}

/// Whether a group may follow in a regular expression that begins like this, quote included. In a string that knows
/// escapes a backslash of the regular expression is two, so that an odd one is none of it.
fn takes_a_group(before: &str) -> bool {
    let is_raw = before.starts_with('`');
    let regex = if is_raw {
        before.to_owned()
    } else {
        before.replace("\\\\", "\\")
    };
    let mut in_class = false;
    let mut escaped = false;
    for c in regex.chars().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            _ => {}
        }
    }
    !escaped && !in_class
}

/// A query with holes where pods' names go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Pod,
    PodInRegex,
    Role(Role, Extent),
}

/// How much of a regular expression a placeholder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    Part,
}

impl Template {
    /// Cuts tidied text at its placeholders.
    pub(super) fn new(tidied: &str) -> Result<Self, SourceError> {
        let mut pieces = Vec::new();
        let mut text = String::new();
        for lexeme in scan(tidied)? {
            let part = tidied.get(lexeme.at).unwrap_or_default();
            let pod = match lexeme.kind {
                Kind::Text(Matching::Regex) => Piece::PodInRegex,
                Kind::Text(Matching::Literal)
                | Kind::Open
                | Kind::Close
                | Kind::Comparison(_)
                | Kind::Word
                | Kind::Blank
                | Kind::Other => Piece::Pod,
            };
            let mut rest = part;
            while let Some((before, found)) = rest.find("<<").and_then(|from| {
                let (before, here) = rest.split_at_checked(from)?;
                Some((before, placeholder(here)?))
            }) {
                let extent = if found.len() + 2 == part.len() {
                    Extent::Whole
                } else {
                    Extent::Part
                };
                let piece = match role(found) {
                    _ if found == POD => Some(pod.clone()),
                    Some(role) if pod == Piece::PodInRegex => Some(Piece::Role(role, extent)),
                    Some(_) | None => None,
                };
                text.push_str(before);
                match piece {
                    Some(piece) => {
                        pieces.push(Piece::Text(std::mem::take(&mut text)));
                        pieces.push(piece);
                    }
                    None => text.push_str(found),
                }
                rest = rest.get(before.len() + found.len()..).unwrap_or_default();
            }
            text.push_str(rest);
        }
        pieces.push(Piece::Text(text));
        Ok(Self(pieces))
    }

    /// Whether a pod's name is asked for anywhere.
    pub(super) fn mentions_pod(&self) -> bool {
        self.holes() > 0
    }

    /// Whether the pods of a role are asked for anywhere.
    pub(super) fn mentions(&self, role: Role) -> bool {
        self.0
            .iter()
            .any(|piece| matches!(piece, Piece::Role(mentioned, _) if *mentioned == role))
    }

    /// In how many places a pod's name is asked for.
    pub(super) fn holes(&self) -> usize {
        let is_hole = |piece: &&Piece| matches!(piece, Piece::Pod | Piece::PodInRegex);
        self.0.iter().filter(is_hole).count()
    }

    /// As it was written, but for the name of `pod`: names of all pods of a role say nothing to people.
    pub(super) fn show(&self, pod: Option<&PodName>) -> String {
        match pod {
            Some(pod) => self.fill(pod.as_str(), &alternatives([pod]), None),
            None => self.fill(POD, POD, None),
        }
    }

    /// The query for `pod`, one of `pods`.
    pub(super) fn resolve(&self, pod: Option<&PodName>, pods: &Pods) -> String {
        match pod {
            Some(pod) => self.fill(pod.as_str(), &alternatives([pod]), Some(pods)),
            None => self.fill(POD, POD, Some(pods)),
        }
    }

    /// The query for `some` of `pods` at once, whose names are alternatives in regular expressions.
    pub(super) fn resolve_for_all(&self, some: &[&PodName], pods: &Pods) -> String {
        let names = alternatives(some.iter().copied());
        self.fill(&names, &names, Some(pods))
    }

    fn fill(&self, name: &str, name_in_regex: &str, roles: Option<&Pods>) -> String {
        self.0
            .iter()
            .map(|piece| match (piece, roles) {
                (Piece::Text(text), _) => text.clone(),
                (Piece::Pod, _) => name.to_owned(),
                (Piece::PodInRegex, _) => name_in_regex.to_owned(),
                (Piece::Role(role, Extent::Whole), Some(pods)) => alternatives(pods.of(*role)),
                (Piece::Role(role, Extent::Part), Some(pods)) => {
                    format!("(?:{})", alternatives(pods.of(*role)))
                }
                (Piece::Role(role, _), None) => role.placeholder().to_owned(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_line_breaks_go_and_strings_stay_as_they_are() {
        let text = "  rate(x{a=\"b  # <<pod>> \"}[5m]) # no <<canary>> here\n\t > 5 # end";
        assert_eq!(tidy(text).unwrap(), "rate(x{a=\"b  # <<pod>> \"}[5m]) > 5");
    }

    #[test]
    fn backslashes_in_backquotes_stay_backslashes() {
        assert_eq!(
            tidy("x{a=~`b\\.\"\n`} > `c`").unwrap(),
            "x{a=~\"b\\\\.\\\"\\n\"} > `c`"
        );
        assert_eq!(tidy("x{a=`b\r\nc`} > 5").unwrap(), "x{a=\"b\\r\\nc\"} > 5");
        assert_eq!(
            tidy("x{a=`b\\`,c=`> 5`}").unwrap(),
            "x{a=\"b\\\\\",c=`> 5`}"
        );
    }

    #[test]
    fn placeholders_that_stand_for_nothing_are_refused_by_name() {
        let cases = [
            (
                r#"x{pod=~"<<original>>"} > 0"#,
                "unknown placeholder <<original>>",
            ),
            (r#"x{pod="<< pod >>"} > 0"#, "unknown placeholder << pod >>"),
            (r#"x{pod="<<Pod>>"} > 0"#, "unknown placeholder <<Pod>>"),
            (r#"x{pod="<<pod>"} > 0"#, "never closed"),
            ("x{pod=<<pod>>} > 0", "must stand inside quotes"),
            ("errors_<<pod>> > 0", "must stand inside quotes"),
            (
                "errors_<<canary>> > 0",
                "<<canary>> must stand inside quotes",
            ),
            (
                r#"x{pod="<<canary>>"} > 0"#,
                r#"match with =~ (or !~), for example my_errors{pod=~"<<canary>>"}"#,
            ),
            (r#"x{pod!='<<primary>>'} > 0"#, r#"pod=~"<<primary>>""#),
            (
                r#"label_replace(x, "a", "<<primary>>", "", "") > 0"#,
                "match with =~",
            ),
            (r#"x{pod=~"[<<canary>>]"} > 0"#, "cannot be in [...]"),
            (r#"x{pod=~"a\\\\<<canary>>"} > 0"#, "behind a backslash"),
            ("x{pod=~`a\\<<canary>>`} > 0", "behind a backslash"),
            ("a << 5", "never closed"),
            ("x{pod=\"<<p\no\td>>\"} > 0", "never closed"),
            ("x{pod=`<<p\no\td>>`} > 0", "unknown placeholder <<p o d>>;"),
        ];
        for (text, expected) in cases {
            let error = tidy(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_pods_dots_are_only_dots_in_a_regular_expression() {
        let pod = PodName::new("a.b-0").unwrap();
        let cases = [
            (r#"x{pod="<<pod>>"}"#, r#"x{pod="a.b-0"}"#),
            (
                r#"x{pod!="<<pod>>",q=~"<<pod>>|z"}"#,
                r#"x{pod!="a.b-0",q=~"a[.]b-0|z"}"#,
            ),
            (
                "x{pod!~`.*<<pod>>.*`, a='<<pod>>'}",
                "x{pod!~`.*a[.]b-0.*`, a='a.b-0'}",
            ),
            (
                r#"label_replace(x, "a", "<<pod>>", "", "")"#,
                r#"label_replace(x, "a", "a.b-0", "", "")"#,
            ),
        ];
        for (text, expected) in cases {
            let template = Template::new(text).unwrap();
            assert!(template.mentions_pod());
            assert_eq!(template.resolve(Some(&pod), &Pods::default()), expected);
            assert_eq!(template.show(Some(&pod)), expected);
            assert_eq!(template.show(None), text);
        }
        assert!(!Template::new("up > 0").unwrap().mentions_pod());
    }

    #[test]
    fn the_pods_of_a_role_are_alternatives_and_a_group_where_more_stands_beside_them() {
        let pods = Pods {
            canary: vec![PodName::new("c.d-1").unwrap(), PodName::new("c-2").unwrap()],
            primary: Vec::new(),
        };
        let cases = [
            (r#"x{pod=~"<<canary>>"}"#, r#"x{pod=~"c[.]d-1|c-2"}"#),
            (r#"x{pod!~'<<canary>>'}"#, r#"x{pod!~'c[.]d-1|c-2'}"#),
            (
                r#"x{pod=~"[a-z]\\\\.<<canary>>|z"}"#,
                r#"x{pod=~"[a-z]\\\\.(?:c[.]d-1|c-2)|z"}"#,
            ),
            (r#"x{pod=~"<<primary>>"}"#, r#"x{pod=~"-no-pod-"}"#),
            (
                r#"x{pod=~`<<primary>>|<<canary>>`,q="<<pod>>"}"#,
                r#"x{pod=~`(?:-no-pod-)|(?:c[.]d-1|c-2)`,q="c-2"}"#,
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(tidy(text).as_deref(), Ok(text));
            let template = Template::new(text).unwrap();
            assert_eq!(template.resolve(pods.canary.last(), &pods), expected);
            assert_eq!(template.show(None), text);
            assert_eq!(template.mentions(Role::Canary), text.contains("canary"));
            assert_eq!(template.mentions(Role::Primary), text.contains("primary"));
        }
    }

    #[test]
    fn lexemes_cover_the_text_and_know_their_depth() {
        let text = r#"(sum by (or) (x{a!="<",b=~">="}[5m:]) >= bool .5e3) # ä"#;
        let lexemes = scan(text).unwrap();
        let joined: String = lexemes.iter().map(|l| &text[l.at.clone()]).collect();
        assert_eq!(joined, text);
        let comparisons: Vec<_> = lexemes
            .iter()
            .filter(|l| matches!(l.kind, Kind::Comparison(_)))
            .map(|l| (l.depth, &text[l.at.clone()]))
            .collect();
        assert_eq!(comparisons, [(1, ">=")]);
    }

    #[test]
    fn what_is_opened_must_be_closed() {
        let cases = [
            ("(a > 0", SourceError::Unclosed('(')),
            ("a) > 0", SourceError::Unopened),
            ("a{b=\"c\" > 0", SourceError::Unclosed('{')),
            ("a[5m > 0", SourceError::Unclosed('[')),
            ("a{b=\"c} > 0", SourceError::Unclosed('"')),
            ("a{b='c\\'} > 0", SourceError::Unclosed('\'')),
            ("a{b=\"c\nd\"} > 0", SourceError::Unclosed('"')),
            ("a{b=\"c\\\nd\"} > 0", SourceError::Unclosed('"')),
        ];
        for (text, expected) in cases {
            assert_eq!(scan(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn size_is_bounded() {
        let nested = |depth| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
        assert_eq!(tidy(&nested(64)), Ok(nested(64)));
        assert_eq!(tidy(&nested(66)), Err(SourceError::TooDeep));
        assert!(tidy(&"a ".repeat(500)).is_ok());
        assert_eq!(tidy(&"a ".repeat(501)), Err(SourceError::TooManyLexemes));
        assert_eq!(tidy(&"-".repeat(501)), Err(SourceError::TooManyLexemes));
        assert!(tidy(&format!("a{{b=~'{}'}}", "x|".repeat(3000))).is_ok());
    }
}
