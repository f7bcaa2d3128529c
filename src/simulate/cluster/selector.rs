//! Label and field selectors, from requests and from specs.

use serde_json::{Map, Value};

use super::object::{Object, text_of};
use super::refusal::Refusal;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
}

impl Requirement {
    fn holds<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        let among = |values: &[String], value: &str| values.iter().any(|one| one == value);
        match self {
            Self::In(name, values) => value_of(name).is_some_and(|value| among(values, value)),
            Self::NotIn(name, values) => value_of(name).is_none_or(|value| !among(values, value)),
            Self::Exists(name) => value_of(name).is_some(),
            Self::Missing(name) => value_of(name).is_none(),
        }
    }
}

/// What a list or a watch asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

impl Selector {
    /// Reads `labelSelector` and `fieldSelector`.
    pub(super) fn read(labels: &str, fields: &str) -> Result<Self, Refusal> {
        Ok(Self {
            labels: requirements(labels)?,
            fields: requirements(fields)?,
        })
    }

    /// Whether an object is asked for.
    pub(super) fn matches(&self, object: &Object) -> bool {
        self.labels
            .iter()
            .all(|requirement| requirement.holds(|name| label(object.labels(), name)))
            && self.fields.iter().all(|requirement| {
                // A field that is not set counts as the empty text.
                requirement.holds(|name| Some(object.text(&format!("/{}", name.replace('.', "/")))))
            })
    }
}

fn label<'a>(labels: Option<&'a Map<String, Value>>, name: &str) -> Option<&'a str> {
    labels
        .and_then(|labels| labels.get(name))
        .and_then(Value::as_str)
}

fn requirements(text: &str) -> Result<Vec<Requirement>, Refusal> {
    split(text)
        .into_iter()
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(requirement)
        .collect()
}

/// Splits at commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut from) = (0_usize, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text.get(from..at).unwrap_or_default());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(from..).unwrap_or_default());
    parts
}

fn requirement(part: &str) -> Result<Requirement, Refusal> {
    let own = |text: &str| text.trim().to_owned();
    if let Some((name, rest)) = part.split_once(" notin ") {
        return Ok(Requirement::NotIn(own(name), set(rest)?));
    }
    if let Some((name, rest)) = part.split_once(" in ") {
        return Ok(Requirement::In(own(name), set(rest)?));
    }
    if let Some((name, value)) = part.split_once("!=") {
        return Ok(Requirement::NotIn(own(name), vec![own(value)]));
    }
    if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Requirement::In(own(name), vec![own(value)]));
    }
    Ok(match part.strip_prefix('!') {
        Some(name) => Requirement::Missing(own(name)),
        None => Requirement::Exists(own(part)),
    })
}

fn set(text: &str) -> Result<Vec<String>, Refusal> {
    let inner = text
        .trim()
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'))
        .ok_or_else(|| {
            Refusal::bad_request(format!(
                "unable to parse requirement: found '{text}', expected: '('"
            ))
        })?;
    Ok(inner
        .split(',')
        .map(|value| value.trim().to_owned())
        .collect())
}

/// What the `spec.selector` of a workload asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requirements(Vec<Requirement>);

impl Requirements {
    /// Reads a `spec.selector`; none asks for nothing.
    pub(super) fn of_spec(selector: Option<&Value>) -> Self {
        Self(of_spec(selector))
    }

    /// Whether it selects these labels. Like the controllers, an empty one selects nothing.
    pub(super) fn select(&self, labels: Option<&Map<String, Value>>) -> bool {
        !self.0.is_empty()
            && self
                .0
                .iter()
                .all(|requirement| requirement.holds(|name| label(labels, name)))
    }
}

fn of_spec(selector: Option<&Value>) -> Vec<Requirement> {
    let mut requirements = Vec::new();
    let Some(selector) = selector else {
        return requirements;
    };
    for (name, value) in selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        requirements.push(Requirement::In(
            name.clone(),
            vec![value.as_str().unwrap_or_default().to_owned()],
        ));
    }
    for expression in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let name = text_of(expression, "key").to_owned();
        let values = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        requirements.push(match text_of(expression, "operator") {
            "NotIn" => Requirement::NotIn(name, values),
            "Exists" => Requirement::Exists(name),
            "DoesNotExist" => Requirement::Missing(name),
            _ => Requirement::In(name, values),
        });
    }
    requirements
}

/// A `spec.selector` as the text of a label selector, as in `status.selector` of a Scale.
pub(super) fn as_text(selector: Option<&Value>) -> String {
    of_spec(selector)
        .iter()
        .map(|requirement| match requirement {
            Requirement::In(name, values) if values.len() == 1 => {
                format!("{name}={}", values.join(","))
            }
            Requirement::In(name, values) => format!("{name} in ({})", values.join(",")),
            Requirement::NotIn(name, values) => format!("{name} notin ({})", values.join(",")),
            Requirement::Exists(name) => name.clone(),
            Requirement::Missing(name) => format!("!{name}"),
        })
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_label_selector_reads_every_form() {
        let object = Object::new(json!({
            "metadata": {"name": "x", "labels": {"app": "worker", "tier": "back"}},
            "status": {"phase": "Running"},
        }));
        for (labels, fields, matches) in [
            ("", "", true),
            ("app=worker", "", true),
            ("app==worker,tier=back", "", true),
            ("app=other", "", false),
            ("app!=other", "", true),
            ("missing!=x", "", true),
            ("app in (a, worker),tier", "", true),
            ("app notin (a,worker)", "", false),
            ("!app", "", false),
            ("!missing", "", true),
            ("missing", "", false),
            ("", "metadata.name=x", true),
            ("", "metadata.name=y", false),
            ("app", "status.phase!=Failed", true),
        ] {
            let selector = Selector::read(labels, fields).unwrap();
            assert_eq!(selector.matches(&object), matches, "{labels:?} {fields:?}");
        }
    }

    #[test]
    fn an_empty_selector_of_a_workload_selects_nothing() {
        assert!(!Requirements::of_spec(Some(&json!({}))).select(None));
        assert!(!Requirements::of_spec(None).select(None));
    }
}
