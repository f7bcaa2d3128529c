//! How a mapping is read key by key, whatever the keys mean: own values, defaults, and every mistake told once.

use std::collections::BTreeSet;
use std::fmt;

use super::document::{Content, Mapping, Node, Whole};
use super::load::ExpressionCheck;
use super::problem::{Fault, Found, Position, Problem};
use super::warning::{Doubt, Warning};

/// The items of all lists of a file, each as often as a service has it. Anchors and `defaults` let a short text give many
/// services a long list; no honest file comes near this.
const MOST_LISTED: usize = 100_000;

const TOO_MANY_LISTED: &str = "expected at most 100000 items in all lists of all services, those by anchors and defaults \
                               included";

/// The longest key that is compared with those that mean something, in bytes.
const LONGEST_MISSPELT: usize = 64;

/// One mapping of the file under a fixed set of keys, those that mean nothing already told.
pub(super) struct Fields<'n> {
    pub path: String,
    pub at: Position,
    pub mapping: &'n Mapping,
    /// Keys that are most likely there under a misspelt name: not missing as well.
    pub misspelt: Vec<&'static str>,
    pub absent: Absent<'n>,
}

/// What takes the place of a key that is not in a mapping.
#[derive(Clone, Copy)]
pub(super) enum Absent<'n> {
    /// The key's own default; without one the key is missing.
    Builtin,
    /// Nothing: the mapping is itself one that others fall back on, and may leave out what it likes.
    LeftOpen,
    /// What another mapping holds, then the key's own default.
    FallBack(&'n Defaults<'n>),
}

/// A mapping that others fall back on, what is wrong with it already told.
pub(super) struct Defaults<'n> {
    pub path: String,
    /// `None` if there is no telling what stands in it.
    pub mapping: Option<&'n Mapping>,
    /// Keys of which nobody can say what they should have been.
    pub wrong: BTreeSet<&'static str>,
}

/// Where a key's value comes from.
enum Given<'n> {
    Here(&'n Node),
    FallBack(&'n Node),
    /// It was meant to be somewhere, and that has been told.
    Wrong,
    Nowhere,
}

impl<'n> Fields<'n> {
    /// Where these keys are to be changed: at the first that this mapping says itself, else where it falls back on the
    /// first. `None` where the first is nowhere.
    pub fn place_of(&self, keys: &[&'static str]) -> Option<(Position, String)> {
        let first = keys.first()?;
        let fallback = match self.absent {
            Absent::Builtin | Absent::LeftOpen => None,
            Absent::FallBack(defaults) => defaults
                .mapping
                .and_then(|mapping| mapping.get(first))
                .map(|node| (node.at, format!("{}.{first}", defaults.path))),
        };
        let here = |key: &&str| Some((self.mapping.get(key)?.at, self.path_to(key)));
        if self.mapping.get(first).is_none() {
            fallback.as_ref()?;
        }
        keys.iter().find_map(here).or(fallback)
    }

    pub fn path_to(&self, key: &str) -> String {
        let key = printable(key);
        if self.path.is_empty() {
            key
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn given(&self, key: &'static str) -> Given<'n> {
        if let Some(node) = self.mapping.get(key) {
            return Given::Here(node);
        }
        if self.misspelt.contains(&key) {
            return Given::Wrong;
        }
        match self.absent {
            Absent::Builtin | Absent::LeftOpen => Given::Nowhere,
            Absent::FallBack(defaults) if defaults.wrong.contains(key) => Given::Wrong,
            Absent::FallBack(defaults) => defaults
                .mapping
                .and_then(|mapping| mapping.get(key))
                .map_or(Given::Nowhere, Given::FallBack),
        }
    }
}

/// How much of a key a path shows, in characters.
const LONGEST_KEY: usize = 80;

/// A key as part of a path: whatever was typed, on one line.
pub(super) fn printable(key: &str) -> String {
    let cut = key.char_indices().nth(LONGEST_KEY).map(|(end, _)| end);
    let (key, rest) = match cut {
        Some(end) => (key.get(..end).unwrap_or_default(), "..."),
        None => (key, ""),
    };
    if key.contains(char::is_control) {
        format!("{key:?}{rest}")
    } else {
        format!("{key}{rest}")
    }
}

/// Reads on after each mistake.
pub(super) struct Reader<'c> {
    pub check: &'c ExpressionCheck<'c>,
    pub problems: Vec<Problem>,
    pub warnings: Vec<Warning>,
    pub listed: usize,
}

impl Reader<'_> {
    pub fn warn(&mut self, at: Position, path: impl Into<String>, doubt: Doubt) {
        self.warnings.push(Warning {
            at,
            path: path.into(),
            doubt,
        });
    }

    pub fn problem(&mut self, at: Position, path: impl Into<String>, fault: Fault) {
        self.problems.push(Problem {
            at,
            path: path.into(),
            fault,
        });
    }

    /// Takes a mapping by its keys and tells those that are repeated or unknown.
    pub fn fields<'n>(
        &mut self,
        path: String,
        at: Position,
        mapping: &'n Mapping,
        known: &'static [&'static str],
        absent: Absent<'n>,
    ) -> Fields<'n> {
        let mut fields = Fields {
            path,
            at,
            mapping,
            misspelt: Vec::new(),
            absent,
        };
        for repeated in &mapping.repeated {
            let first = repeated.first;
            self.problem(
                repeated.at,
                fields.path_to(&repeated.key),
                Fault::Repeated { first },
            );
        }
        for entry in &mapping.entries {
            if known.contains(&entry.key.as_str()) {
                continue;
            }
            let fault = match nearest(&entry.key, known) {
                Some(nearest) => {
                    fields.misspelt.push(nearest);
                    Fault::Misspelt { nearest }
                }
                None => Fault::UnknownKey { known },
            };
            self.problem(entry.at, fields.path_to(&entry.key), fault);
        }
        fields
    }

    /// A key's value, wherever it comes from; `None` if something is wrong, which has been told.
    ///
    /// A mistake in what a mapping falls back on is told where that stands, not again for everyone who takes it.
    pub fn take<T>(
        &mut self,
        fields: &Fields<'_>,
        key: &'static str,
        read: impl FnOnce(&mut Self, String, &Node) -> Option<T>,
        nowhere: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        match fields.given(key) {
            Given::Here(node) => read(self, fields.path_to(key), node),
            Given::FallBack(node) => {
                let (told, warned) = (self.problems.len(), self.warnings.len());
                let value = read(self, fields.path_to(key), node);
                self.problems.truncate(told);
                self.warnings.truncate(warned);
                value
            }
            Given::Wrong => None,
            Given::Nowhere => nowhere(self),
        }
    }

    pub fn required<T, E: fmt::Display>(
        &mut self,
        fields: &Fields<'_>,
        key: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.take(
            fields,
            key,
            |reader, path, node| reader.value(path, node, parse),
            |reader| {
                reader.missing(fields, key, expected);
                None
            },
        )
    }

    pub fn optional<T, E: fmt::Display>(
        &mut self,
        fields: &Fields<'_>,
        key: &'static str,
        default: T,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.take(
            fields,
            key,
            |reader, path, node| reader.value(path, node, parse),
            |_| Some(default),
        )
    }

    /// A list of texts of which each counts once, by default none.
    pub fn set<E: fmt::Display>(
        &mut self,
        fields: &Fields<'_>,
        key: &'static str,
        expected: &str,
        parse: impl Fn(&str) -> Result<String, E>,
    ) -> Option<BTreeSet<String>> {
        self.take(
            fields,
            key,
            |reader, path, node| {
                reader.list(path, node, expected, |reader, path, item| {
                    reader.value(path, item, &parse)
                })
            },
            |_| Some(BTreeSet::new()),
        )
    }

    /// Every item of a list; `None` if it is none, or one of them is wrong.
    pub fn list<T, C: FromIterator<T>>(
        &mut self,
        path: String,
        node: &Node,
        expected: &str,
        mut read: impl FnMut(&mut Self, String, &Node) -> Option<T>,
    ) -> Option<C> {
        let Content::List(items) = &node.content else {
            self.unexpected(node, path, &format!("expected {expected}"));
            return None;
        };
        self.listed = self.listed.saturating_add(items.len());
        if self.listed > MOST_LISTED {
            self.unexpected(node, path, TOO_MANY_LISTED);
            return None;
        }
        // Collected first, so that one wrong item does not hide those behind it.
        let read: Vec<Option<T>> = items
            .iter()
            .enumerate()
            .map(|(index, item)| read(self, format!("{path}[{index}]"), item))
            .collect();
        read.into_iter().collect()
    }

    pub fn value<T, E: fmt::Display>(
        &mut self,
        path: String,
        node: &Node,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.value_shown(path, node, found, parse)
    }

    /// A value that is not to be shown as it was written.
    pub fn value_shown<T, E: fmt::Display>(
        &mut self,
        path: String,
        node: &Node,
        shown: impl Fn(&Node) -> Found,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let parsed = match &node.content {
            Content::Text(text) => parse(text),
            // What every reader says of an empty text is what it expects.
            Content::Nothing | Content::List(_) | Content::Mapping(_) => parse(""),
            Content::Faulty => return None,
        };
        match parsed {
            Ok(value) => Some(value),
            Err(error) => {
                let fault = Fault::Unexpected {
                    found: shown(node),
                    expected: error.to_string(),
                };
                self.problem(node.at, path, fault);
                None
            }
        }
    }

    pub fn missing(&mut self, fields: &Fields<'_>, key: &'static str, expected: &'static str) {
        let is_told = fields.misspelt.contains(&key) || fields.mapping.whole == Whole::No;
        if !is_told && !matches!(fields.absent, Absent::LeftOpen) {
            self.problem(fields.at, fields.path_to(key), Fault::Missing { expected });
        }
    }

    pub fn unexpected(&mut self, node: &Node, path: String, expected: &str) {
        if matches!(node.content, Content::Faulty) {
            return;
        }
        let fault = Fault::Unexpected {
            found: found(node),
            expected: expected.to_owned(),
        };
        self.problem(node.at, path, fault);
    }
}

pub(super) fn found(node: &Node) -> Found {
    match &node.content {
        Content::Nothing | Content::Faulty => Found::Nothing,
        Content::Text(text) => Found::text(text),
        Content::List(_) => Found::List,
        Content::Mapping(_) => Found::Mapping,
    }
}

/// The known key that somebody who wrote `key` most likely meant: at most a third of it is different.
pub(super) fn nearest(key: &str, known: &'static [&'static str]) -> Option<&'static str> {
    // `maxStepDuration` and `max-step-duration` are habits of other tools, not different words.
    if key.len() > LONGEST_MISSPELT {
        return None;
    }
    let plain = |key: &str| key.replace(['-', '_'], "").to_lowercase();
    let key = plain(key);
    known
        .iter()
        .map(|known| (strsim::osa_distance(&key, &plain(known)), *known))
        .filter(|(distance, known)| distance * 3 <= known.len().max(key.len()))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}
