//! Keys that say where a secret is. What stands under them by mistake may be the secret itself, and is not shown.

use super::super::document::{Content, Node};
use super::super::problem::{Fault, Found};
use super::super::reader::{Fields, Reader, found};
use super::super::secret::{Secret, SecretPlaceError};

/// What somebody may have put in the wrong place is not shown.
pub(super) fn hidden(node: &Node) -> Found {
    match &node.content {
        Content::Text(_) => Found::Text("***".to_owned()),
        Content::Nothing | Content::List(_) | Content::Mapping(_) | Content::Faulty => found(node),
    }
}

impl Reader<'_> {
    /// Where secrets are said to be. What cannot be used has been told.
    pub(super) fn secrets(
        &mut self,
        fields: &Fields<'_>,
        [variable, file]: [&str; 2],
    ) -> [Option<Secret>; 2] {
        let mut read = |key: &str, parse: fn(&str) -> Result<Secret, SecretPlaceError>| {
            let node = fields.mapping.get(key)?;
            self.value_shown(fields.path_to(key), node, hidden, parse)
        };
        [read(variable, Secret::variable), read(file, Secret::file)]
    }

    /// Which of these keys is there; `None` if there are several, or one is misspelt, which has been told.
    pub(super) fn at_most_one(
        &mut self,
        fields: &Fields<'_>,
        keys: &[&'static str],
        expected: &str,
    ) -> Option<Option<&'static str>> {
        let mut present = keys.iter().filter(|key| fields.mapping.get(key).is_some());
        let first = present.next().copied();
        if let Some((key, node)) = present
            .next()
            .and_then(|key| Some((key, fields.mapping.get(key)?)))
        {
            self.hidden(node, fields.path_to(key), expected);
            return None;
        }
        let is_misspelt = keys.iter().any(|key| fields.misspelt.contains(key));
        (first.is_some() || !is_misspelt).then_some(first)
    }

    /// A mistake where a secret may stand.
    pub(super) fn hidden(&mut self, node: &Node, path: String, expected: &str) {
        if matches!(node.content, Content::Faulty) {
            return;
        }
        let fault = Fault::Unexpected {
            found: hidden(node),
            expected: expected.to_owned(),
        };
        self.problem(node.at, path, fault);
    }
}
