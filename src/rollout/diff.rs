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
    match value {
        Value::Object(fields) => {
            for (key, child) in fields {
                if key == "env" {
                    write_environment(child, path, lines);
                } else {
                    within(path, &format!(".{key}"), |path| {
                        write_leaves(child, path, lines)
                    });
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                within(path, &segment(index, item), |path| {
                    write_leaves(item, path, lines)
                });
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            lines.push_str(&format!("{}: {value}\n", path.trim_start_matches('.')));
        }
    }
}

/// A container's environment: names and sources, never values.
fn write_environment(variables: &Value, path: &mut String, lines: &mut String) {
    let items = variables.as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, variable) in items.iter().enumerate() {
        within(path, &format!(".env{}", segment(index, variable)), |path| {
            for (key, child) in variable.as_object().into_iter().flatten() {
                within(path, &format!(".{key}"), |path| match key.as_str() {
                    "value" => {
                        lines.push_str(&format!("{}: {HIDDEN}\n", path.trim_start_matches('.')))
                    }
                    _ => write_leaves(child, path, lines),
                });
            }
        });
    }
}

fn segment(index: usize, item: &Value) -> String {
    let name = item.get("name").and_then(Value::as_str);
    name.map_or_else(|| format!("[{index}]"), |name| format!("[{name}]"))
}

fn within(path: &mut String, segment: &str, write: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push_str(segment);
    write(path);
    path.truncate(length);
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
    fn no_name_of_a_variable_lets_its_value_be_shown() {
        for name in ["A[0]", "].value[", "x].env[y", "env", "value"] {
            let with = |value: &str| template("a", json!([{"name": name, "value": value}]));
            let text = TemplateDiff::new(&with("s3cret"), &template("a", json!([]))).to_string();
            assert!(!text.contains("s3cret"), "{text}");
        }
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
