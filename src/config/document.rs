//! The YAML text as a tree whose every node knows where it stands.
//!
//! Values stay the text that a person wrote: what `10%`, `on` or `010` means is decided by the key they stand
//! under, never by YAML's own types. Anchors and merge keys (`<<`) are resolved here.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag, options};

use super::problem::Position;

/// Aliases let a short text build a deep tree, and everything that walks a tree does so on the stack.
const DEEPEST: usize = 64;

/// Merge keys let a short text build large mappings; no honest file comes near this many entries.
const MOST_MERGED: usize = 100_000;

/// So do aliases: each node counts as often as it is reached from the root.
const MOST_NODES: usize = 250_000;

/// The longest key or value, in bytes: twice the longest expression.
const LONGEST_TEXT: usize = 16 * 1024;

/// One node of the tree.
#[derive(Debug)]
pub(super) struct Node {
    /// Where the node begins; for an alias, where the anchored node does.
    pub at: Position,
    pub content: Content,
    depth: usize,
    /// How many nodes it holds, itself included, each as often as it is reached.
    size: usize,
}

impl Node {
    fn new(at: Position, content: Content) -> Self {
        let below: Vec<&Self> = match &content {
            Content::Nothing | Content::Text(_) | Content::Faulty => Vec::new(),
            Content::List(items) => items.iter().map(Rc::as_ref).collect(),
            Content::Mapping(mapping) => {
                let entries = mapping.entries.iter();
                entries.map(|entry| entry.value.as_ref()).collect()
            }
        };
        let depth = below.iter().map(|node| node.depth + 1).max();
        let sizes = below.iter().map(|node| node.size);
        let size = sizes.fold(1, usize::saturating_add);
        Self {
            at,
            depth: depth.unwrap_or(0),
            size,
            content,
        }
    }
}

/// A whole text.
#[derive(Debug)]
pub(super) struct Document {
    pub root: Rc<Node>,
    /// What it uses that this file has no use for; in the tree nothing stands there.
    pub faults: Vec<Malformed>,
}

/// What a node holds.
#[derive(Debug)]
pub(super) enum Content {
    /// Nothing was written, or `null`, or `~`.
    Nothing,
    Text(String),
    List(Vec<Rc<Node>>),
    Mapping(Mapping),
    /// Something of which a fault has been told: nobody knows what was meant.
    Faulty,
}

/// A mapping with its merge keys resolved.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    /// In the order of the file, merged entries last. No key stands here twice.
    pub entries: Vec<Entry>,
    /// Keys written more than once, each time but the first.
    pub repeated: Vec<Repeated>,
    /// Whether everything that it merges is in it.
    pub whole: Whole,
}

/// Whether all of a mapping is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Whole {
    /// It is.
    #[default]
    Yes,
    /// It merges something of which a fault has been told, and may have any key by that.
    No,
}

impl Mapping {
    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(&entry.value)
    }

    /// Whether a key was written more than once.
    pub fn repeats(&self, key: &str) -> bool {
        self.repeated.iter().any(|repeated| repeated.key == key)
    }
}

/// One key of a mapping and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub at: Position,
    pub value: Rc<Node>,
}

/// A key that was written again.
#[derive(Debug)]
pub(super) struct Repeated {
    pub key: String,
    pub at: Position,
    pub first: Position,
}

/// Why a text is no tree: it is not YAML, or uses what this file has no use for.
#[derive(Debug)]
pub(super) struct Malformed {
    pub at: Position,
    pub message: String,
}

impl Malformed {
    fn new(at: Position, message: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
        }
    }
}

impl From<ScanError> for Malformed {
    fn from(error: ScanError) -> Self {
        Self::new(
            position(error.marker()),
            format!("this is not YAML: {}", error.info()),
        )
    }
}

/// Reads a text as one YAML document. A text without any is a tree that holds nothing.
///
/// # Errors
///
/// Where reading cannot go on: behind it, nothing is told.
pub(super) fn read(text: &str) -> Result<Document, Malformed> {
    let mut builder = Builder::default();
    let options = options! { emit_comments: false, emit_unresolved_aliases: true };
    for step in Parser::new_from_str_with_options(text, options) {
        let (event, span) = step?;
        if builder.take(event, &span)? == More::No {
            break;
        }
    }
    let nothing = || Rc::new(Node::new(Position::START, Content::Nothing));
    Ok(Document {
        root: builder.root.unwrap_or_else(nothing),
        faults: builder.faults,
    })
}

/// Whether there is more to read.
#[derive(PartialEq, Eq)]
enum More {
    Yes,
    No,
}

fn position(marker: &Marker) -> Position {
    Position {
        line: marker.line().max(1),
        column: marker.col() + 1,
    }
}

/// The marks that YAML gives an anchor; 0 stands for none.
type Anchor = usize;

/// A list or mapping whose end has not been read yet.
struct Open {
    at: Position,
    anchor: Anchor,
    content: OpenContent,
}

enum OpenContent {
    List(Vec<Rc<Node>>),
    Mapping(OpenMapping),
}

#[derive(Default)]
struct OpenMapping {
    key: Option<Key>,
    mapping: Mapping,
    first_of: HashMap<String, Position>,
    merged: Vec<Rc<Node>>,
}

enum Key {
    Named {
        text: String,
        at: Position,
        merges: Merges,
    },
    /// None that this file could have: its value is read and forgotten.
    Unusable,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Merges {
    Yes,
    No,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<Anchor, Rc<Node>>,
    root: Option<Rc<Node>>,
    merged: usize,
    faults: Vec<Malformed>,
}

impl Builder {
    fn fault(&mut self, at: Position, message: impl Into<String>) {
        self.faults.push(Malformed::new(at, message));
    }

    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<More, Malformed> {
        let at = position(&span.start);
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                self.fault(
                    at,
                    "a second YAML document begins here; expected a single one",
                );
                return Ok(More::No);
            }
            Event::Scalar(text, ..) if text.len() > LONGEST_TEXT => {
                let message = format!(
                    "this text has {} bytes; expected at most {LONGEST_TEXT}",
                    text.len()
                );
                self.fault(at, message);
                self.place(at, Rc::new(Node::new(at, Content::Faulty)), Merges::No);
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.untagged(at, tag.as_deref());
                let plain = style == ScalarStyle::Plain;
                let merges = if plain && text == "<<" {
                    Merges::Yes
                } else {
                    Merges::No
                };
                let content = match &*text {
                    "" | "~" | "null" | "Null" | "NULL" if plain => Content::Nothing,
                    _ => Content::Text(text.into_owned()),
                };
                self.complete(at, anchor, content, merges)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.untagged(at, tag.as_deref());
                self.begin(at, anchor, OpenContent::List(Vec::new()));
            }
            Event::MappingStart(_, anchor, tag) => {
                self.untagged(at, tag.as_deref());
                self.begin(at, anchor, OpenContent::Mapping(OpenMapping::default()));
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    let content = match open.content {
                        OpenContent::List(items) => Content::List(items),
                        OpenContent::Mapping(mapping) => Content::Mapping(self.close(mapping)?),
                    };
                    self.complete(open.at, open.anchor, content, Merges::No)?;
                }
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).map(Rc::clone);
                let node = node.unwrap_or_else(|| {
                    self.fault(at, "this alias stands inside what it names");
                    Rc::new(Node::new(at, Content::Faulty))
                });
                self.place(at, node, Merges::No);
            }
            Event::UnresolvedAlias(name) => {
                self.fault(at, format!("no anchor is named {name:?}"));
                self.place(at, Rc::new(Node::new(at, Content::Faulty)), Merges::No);
            }
            Event::DocumentStart(..)
            | Event::DocumentEnd
            | Event::StreamStart
            | Event::StreamEnd
            | Event::Anchor(..)
            | Event::Comment(..) => {}
            // Metadata that a later version of the parser may add: its nodes are all above.
            _ => {}
        }
        Ok(More::Yes)
    }

    /// No key of this file needs a YAML type: a tag is a template's leftover or a misread expression.
    fn untagged(&mut self, at: Position, tag: Option<&Tag>) {
        if tag.is_some() {
            self.fault(
                at,
                "expected a value without a YAML tag (the word with '!' before it)",
            );
        }
    }

    fn begin(&mut self, at: Position, anchor: Anchor, content: OpenContent) {
        self.open.push(Open {
            at,
            anchor,
            content,
        });
    }

    /// A node has been read to its end: remembers it for its aliases and puts it where it belongs.
    fn complete(
        &mut self,
        at: Position,
        anchor: Anchor,
        content: Content,
        merges: Merges,
    ) -> Result<(), Malformed> {
        let node = Node::new(at, content);
        if node.depth > DEEPEST {
            return Err(Malformed::new(at, "this is nested too deeply"));
        }
        if node.size > MOST_NODES {
            return Err(Malformed::new(at, "aliases repeat what is here too often"));
        }
        let node = Rc::new(node);
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        self.place(at, node, merges);
        Ok(())
    }

    fn place(&mut self, at: Position, node: Rc<Node>, merges: Merges) {
        let faults = &mut self.faults;
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(OpenContent::List(items)) => items.push(node),
            Some(OpenContent::Mapping(mapping)) => match mapping.key.take() {
                None => mapping.key = Some(key(at, &node, merges, faults)),
                Some(Key::Named { text, at, merges }) => {
                    mapping.insert(text, at, merges, node, faults);
                }
                Some(Key::Unusable) => {}
            },
        }
    }

    /// The mapping with what it merges: its own keys win, then those merged first.
    fn close(&mut self, open: OpenMapping) -> Result<Mapping, Malformed> {
        let mut mapping = open.mapping;
        let mut keys: HashSet<String> = open.first_of.into_keys().collect();
        for source in &open.merged {
            let Content::Mapping(source_mapping) = &source.content else {
                continue;
            };
            self.merged += source_mapping.entries.len();
            if self.merged > MOST_MERGED {
                return Err(Malformed::new(
                    source.at,
                    "merge keys repeat this too often",
                ));
            }
            for entry in &source_mapping.entries {
                if keys.insert(entry.key.clone()) {
                    mapping.entries.push(entry.clone());
                }
            }
        }
        Ok(mapping)
    }
}

fn key(at: Position, node: &Node, merges: Merges, faults: &mut Vec<Malformed>) -> Key {
    let found = match &node.content {
        Content::Text(text) => {
            return Key::Named {
                text: text.clone(),
                at,
                merges,
            };
        }
        Content::Faulty => return Key::Unusable,
        Content::Nothing => "nothing",
        Content::List(_) | Content::Mapping(_) => "a list or a mapping",
    };
    faults.push(Malformed::new(at, format!("expected a key, found {found}")));
    Key::Unusable
}

impl OpenMapping {
    fn insert(
        &mut self,
        key: String,
        at: Position,
        merges: Merges,
        value: Rc<Node>,
        faults: &mut Vec<Malformed>,
    ) {
        if let Some(first) = self.first_of.get(&key) {
            let first = *first;
            self.mapping.repeated.push(Repeated { key, at, first });
            return;
        }
        self.first_of.insert(key.clone(), at);
        if merges == Merges::No {
            self.mapping.entries.push(Entry { key, at, value });
        } else if !self.merge(value) {
            self.mapping.whole = Whole::No;
            faults.push(Malformed::new(
                at,
                "expected \"<<\" to merge a mapping or a list of mappings",
            ));
        }
    }

    /// Whether this can be merged, or why not has been told.
    fn merge(&mut self, value: Rc<Node>) -> bool {
        let sources = match &value.content {
            Content::Mapping(_) | Content::Faulty => vec![value],
            Content::List(sources) => sources.iter().map(Rc::clone).collect(),
            Content::Nothing | Content::Text(_) => return false,
        };
        for source in sources {
            match &source.content {
                Content::Mapping(mapping) => {
                    if mapping.whole == Whole::No {
                        self.mapping.whole = Whole::No;
                    }
                    self.merged.push(source);
                }
                Content::Faulty => self.mapping.whole = Whole::No,
                Content::Nothing | Content::Text(_) | Content::List(_) => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(node: &Node) -> String {
        match &node.content {
            Content::Nothing => "-".to_owned(),
            Content::Faulty => "?".to_owned(),
            Content::Text(text) => format!("{text:?}"),
            Content::List(items) => {
                let items: Vec<String> = items.iter().map(|item| outline(item)).collect();
                format!("[{}]", items.join(" "))
            }
            Content::Mapping(mapping) => {
                let entries: Vec<String> = mapping
                    .entries
                    .iter()
                    .map(|entry| format!("{}={}", entry.key, outline(&entry.value)))
                    .collect();
                format!("{{{}}}", entries.join(" "))
            }
        }
    }

    fn read_outline(text: &str) -> String {
        match read(text) {
            Ok(document) => match document.faults.first() {
                None => outline(&document.root),
                Some(fault) => format!("{}: {}", fault.at, fault.message),
            },
            Err(error) => format!("{}: {}", error.at, error.message),
        }
    }

    #[test]
    fn values_stay_the_text_that_was_written() {
        for (text, expected) in [
            ("a: 010\nb: on\nc: 1e3", r#"{a="010" b="on" c="1e3"}"#),
            (
                "a: 10%\nb: '10%'\nc: \"10%\"",
                r#"{a="10%" b="10%" c="10%"}"#,
            ),
            ("a:\nb: ~\nc: null\nd: 'null'", r#"{a=- b=- c=- d="null"}"#),
            ("a: [x, {y: z}]", r#"{a=["x" {y="z"}]}"#),
            ("", "-"),
            ("# nothing but a comment\n", "-"),
            ("---\na: b\n", r#"{a="b"}"#),
            ("\u{feff}a: b\r\nc: d\r\n", r#"{a="b" c="d"}"#),
        ] {
            assert_eq!(read_outline(text), expected, "{text:?}");
        }
    }

    #[test]
    fn anchors_and_merge_keys_are_resolved_and_a_mappings_own_keys_win() {
        for (text, expected) in [
            ("a: &x 1\nb: *x", r#"{a="1" b="1"}"#),
            (
                "a: &x {p: 1, q: 2}\nb: {q: 3, <<: *x}",
                r#"{a={p="1" q="2"} b={q="3" p="1"}}"#,
            ),
            (
                "a: &x {p: 1}\nb: &y {p: 2, r: 4}\nc: {<<: [*x, *y]}",
                r#"{a={p="1"} b={p="2" r="4"} c={p="1" r="4"}}"#,
            ),
            ("a: {'<<': 1}", r#"{a={<<="1"}}"#),
        ] {
            assert_eq!(read_outline(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_this_file_has_no_use_for_is_refused_where_it_stands() {
        for (text, expected) in [
            (
                "a: b\n---\nc: d\n",
                "2:1: a second YAML document begins here; expected a single one",
            ),
            (
                "a: !x b",
                "1:7: expected a value without a YAML tag (the word with '!' before it)",
            ),
            (
                "? [a]\n: b",
                "1:3: expected a key, found a list or a mapping",
            ),
            ("~: b", "1:1: expected a key, found nothing"),
            ("a: &x [*x]", "1:8: this alias stands inside what it names"),
            (
                "a:\n  <<: 1",
                "2:3: expected \"<<\" to merge a mapping or a list of mappings",
            ),
        ] {
            assert_eq!(read_outline(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_repeated_key_is_kept_with_both_places() {
        let node = read("a: 1\nb: 2\na: 3\n").unwrap().root;
        let Content::Mapping(mapping) = &node.content else {
            panic!("no mapping");
        };
        assert_eq!(outline(&node), r#"{a="1" b="2"}"#);
        let [repeated] = &mapping.repeated[..] else {
            panic!("{:?}", mapping.repeated);
        };
        assert_eq!(
            (repeated.key.as_str(), repeated.first.line, repeated.at.line),
            ("a", 1, 3)
        );
    }

    #[test]
    fn texts_that_would_build_enormous_trees_are_refused() {
        let mut deep = "a0: &a0 [x]\n".to_owned();
        for level in 1..10_000 {
            deep.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
        }
        assert_eq!(read_outline(&deep), "65:11: this is nested too deeply");

        let keys: Vec<String> = (0..1_000).map(|key| format!("k{key}: v")).collect();
        let mut wide = format!("a: &a {{{}}}\n", keys.join(", "));
        for service in 0..1_000 {
            wide.push_str(&format!("s{service}: {{<<: *a}}\n"));
        }
        assert!(read_outline(&wide).ends_with("merge keys repeat this too often"));
        assert!(read_outline(&"[".repeat(100_000)).starts_with("1:"));
    }

    #[test]
    fn a_long_expression_on_one_line_is_read() {
        let long = "x".repeat(5_000);
        assert_eq!(
            read_outline(&format!("- expr: {long} > 1")),
            format!("[{{expr=\"{long} > 1\"}}]")
        );
    }
}
