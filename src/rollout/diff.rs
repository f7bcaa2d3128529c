//! The difference between two templates, for people.

use std::fmt;

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::template::Template;

/// Changed lines of two templates written as YAML, each with its path; values of environment variables never appear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateDiff {
    lines: Vec<String>,
}

/// What stands in place of an environment variable's value.
const HIDDEN: &str = "(value not shown)";

impl TemplateDiff {
    /// What changes from `accepted` to `candidate`.
    pub fn new(accepted: &Template, candidate: &Template) -> Self {
        let before = readable(accepted.json());
        let after = readable(candidate.json());
        let diff = TextDiff::from_lines(&before, &after);
        let mut lines: Vec<String> = diff
            .iter_all_changes()
            .filter_map(|change| {
                let sign = match change.tag() {
                    ChangeTag::Delete => '-',
                    ChangeTag::Insert => '+',
                    ChangeTag::Equal => return None,
                };
                Some(format!("{sign} {}", change.value().trim_end()))
            })
            .collect();
        if lines.is_empty() {
            lines.push("~ only values of environment variables changed".to_owned());
        }
        Self { lines }
    }
}

impl fmt::Display for TemplateDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self
            .lines
            .iter()
            .map(|line| format!("    {line}"))
            .collect();
        f.write_str(&lines.join("\n"))
    }
}

/// One line per leaf, `path: value`, so that a changed line can be understood without its surroundings.
fn readable(template: &Value) -> String {
    let mut lines = String::new();
    write_leaves(template, &mut String::new(), &mut lines);
    lines
}

fn write_leaves(value: &Value, path: &mut String, lines: &mut String) {
    let mut descend = |segment: String, child: &Value, lines: &mut String| {
        let length = path.len();
        path.push_str(&segment);
        if is_environment_value(path) {
            lines.push_str(&format!("{}: {HIDDEN}\n", path.trim_start_matches('.')));
        } else {
            write_leaves(child, path, lines);
        }
        path.truncate(length);
    };
    match value {
        Value::Object(fields) => {
            for (key, child) in fields {
                descend(format!(".{key}"), child, lines);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let name = item
                    .get("name")
                    .and_then(Value::as_str)
                    .map_or_else(|| index.to_string(), str::to_owned);
                descend(format!("[{name}]"), item, lines);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            lines.push_str(&format!("{}: {value}\n", path.trim_start_matches('.')));
        }
    }
}

fn is_environment_value(path: &str) -> bool {
    path.rsplit_once("].").is_some_and(|(before, field)| {
        field == "value"
            && before
                .rsplit_once('[')
                .is_some_and(|(list, _)| list.ends_with(".env"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(image: &str, env: Value) -> Template {
        Template::new(
            json!({"spec": {"containers": [{"name": "app", "image": image, "env": env}]}}),
        )
    }

    #[test]
    fn a_new_image_is_one_line_each_way() {
        let diff = TemplateDiff::new(
            &template("worker:v1", json!([])),
            &template("worker:v2", json!([])),
        );
        assert_eq!(
            diff.to_string(),
            "    - spec.containers[app].image: \"worker:v1\"\n    + spec.containers[app].image: \"worker:v2\""
        );
    }

    #[test]
    fn values_of_environment_variables_are_never_shown() {
        let before = template("a", json!([{"name": "TOKEN", "value": "s3cret"}]));
        let after = template(
            "a",
            json!([{"name": "TOKEN", "value": "n3w"}, {"name": "MODE", "value": "fast"}]),
        );
        let text = TemplateDiff::new(&before, &after).to_string();
        assert!(
            !text.contains("s3cret") && !text.contains("n3w") && !text.contains("fast"),
            "{text}"
        );
        assert!(
            text.contains("+ spec.containers[app].env[MODE].name: \"MODE\""),
            "{text}"
        );
        let only = TemplateDiff::new(
            &before,
            &template("a", json!([{"name": "TOKEN", "value": "n3w"}])),
        );
        assert_eq!(
            only.to_string(),
            "    ~ only values of environment variables changed"
        );
    }

    #[test]
    fn a_field_called_value_elsewhere_is_shown() {
        let with = |value: &str| {
            Template::new(json!({"spec": {"tolerations": [{"key": "a", "value": value}]}}))
        };
        assert!(
            TemplateDiff::new(&with("x"), &with("y"))
                .to_string()
                .contains("\"y\"")
        );
    }
}
