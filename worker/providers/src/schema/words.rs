//! What a schema no longer says, in words for the model.

use serde_json::Value;

use super::Object;

/// Maximum characters of one remark.
const WORDS_MAX: usize = 300;

/// Maximum number of alternatives that are listed.
const ALTERNATIVES_MAX: usize = 12;

/// A remark about a keyword that is left out of a node; `None` if it is of no use to a model.
pub(super) fn of_keyword(keyword: &str, value: &Value) -> Option<String> {
    let said = short(value);
    let words = match keyword {
        "const" => format!("Always {said}."),
        "default" => format!("Default: {said}."),
        "enum" => format!("One of {said}."),
        "examples" | "example" => format!("For example {said}."),
        "exclusiveMaximum" => format!("Less than {said}."),
        "exclusiveMinimum" => format!("More than {said}."),
        "format" => format!("Format: {}.", value.as_str()?),
        "maxLength" => format!("At most {said} characters."),
        "minLength" => format!("At least {said} characters."),
        "maxProperties" => format!("At most {said} members."),
        "minProperties" => format!("At least {said} members."),
        "multipleOf" => format!("A multiple of {said}."),
        "not" => format!("Must not fit {said}."),
        "pattern" => format!("Must match {}.", value.as_str()?),
        "uniqueItems" if *value == Value::Bool(true) => "Without repetitions.".to_owned(),
        "additionalProperties" if value.as_object().is_some_and(|it| !it.is_empty()) => {
            format!("Further members of any name: {said}.")
        }
        "patternProperties" => format!("Members by the pattern of their names: {said}."),
        "dependentRequired" => format!("Members that need others: {said}."),
        _ => return None,
    };
    (words.chars().count() <= WORDS_MAX).then_some(words)
}

/// The rule that one of several alternatives holds.
pub(super) fn of_alternatives(keyword: &str, base: &Object, branches: &[Object]) -> Option<String> {
    let mut said = Vec::new();
    for branch in branches {
        let alternative = alternative(base, branch)?;
        if !said.contains(&alternative) {
            said.push(alternative);
        }
    }
    if said.len() < 2 || said.len() > ALTERNATIVES_MAX {
        return None;
    }
    let how = if keyword == "oneOf" {
        "Exactly one of these holds"
    } else {
        "At least one of these holds"
    };
    Some(format!("{how}: {}.", said.join("; "))).filter(|it| it.chars().count() <= 3 * WORDS_MAX)
}

/// What sets an alternative apart: fixed members, and those that it needs.
fn alternative(base: &Object, branch: &Object) -> Option<String> {
    let mut parts = Vec::new();
    let mut fixed = Vec::new();
    for (name, member) in branch
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let value =
            member
                .get("const")
                .or_else(|| match member.get("enum")?.as_array()?.as_slice() {
                    [only] => Some(only),
                    _ => None,
                });
        if let Some(value) = value {
            parts.push(format!("{name} is {}", short(value)));
            fixed.push(name.as_str());
        }
    }
    let always = names(base);
    let needed: Vec<&str> = names(branch)
        .into_iter()
        .filter(|name| !always.contains(name) && !fixed.contains(name))
        .collect();
    if !needed.is_empty() {
        let with = if parts.is_empty() { "" } else { "with " };
        parts.push(format!("{with}{}", needed.join(", ")));
    }
    if parts.is_empty() {
        let title = branch.get("title").or_else(|| branch.get("description"));
        parts.push(title?.as_str()?.to_owned());
    }
    Some(parts.join(", "))
}

/// The names of required members.
pub(super) fn names(node: &Object) -> Vec<&str> {
    let names = node.get("required").and_then(Value::as_array);
    names
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// A value as text.
fn short(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(Value::to_string).collect();
            values.join(", ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

/// Adds a remark to the description of a node.
pub(super) fn add(node: &mut Object, words: &str) {
    let described = match node.get("description").and_then(Value::as_str) {
        Some(own) if own.contains(words) => return,
        Some(own) if !own.trim().is_empty() => format!("{} {words}", own.trim_end()),
        _ => words.to_owned(),
    };
    node.insert("description".to_owned(), described.into());
}
