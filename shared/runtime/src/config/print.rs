//! Prints a configuration as a file would hold it, each value with its origin. Secrets are hidden.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use toml::Value;

use super::keys::{Key, Keys, Kind};
use super::secret::Secret;

/// Renders checked values, those outside any table first.
pub(super) fn render(keys: &Keys, values: &BTreeMap<String, (Value, String)>) -> String {
    let mut tables: BTreeMap<&str, String> = BTreeMap::new();
    for (path, (value, origin)) in values {
        let key = keys.find(path);
        let (table, name) = keys.split(path);
        let name = quoted(name);
        let text = tables.entry(table).or_default();
        let shown = shown(key.as_ref(), value);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} = {shown}  # {origin}");
    }
    let mut out = String::new();
    for (table, text) in tables {
        if !table.is_empty() {
            let _ = writeln!(out, "\n[{table}]");
        }
        out.push_str(&text);
    }
    out
}

/// A name as it is written in a file.
fn quoted(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if name.chars().all(is_bare) {
        name.to_owned()
    } else {
        Value::from(name).to_string()
    }
}

fn shown(key: Option<&Key>, value: &Value) -> Value {
    match (key.map(|key| key.kind), value) {
        (Some(Kind::Secret) | None, _) => Value::String(Secret::new("").to_string()),
        (Some(Kind::Url(_)), Value::String(url)) => {
            Value::String(Secret::new(url.clone()).redacted_url())
        }
        (Some(Kind::Urls(_)), Value::Array(urls)) => {
            let urls = urls.iter().filter_map(Value::as_str);
            let shown = urls.map(|url| Secret::new(url).redacted_url());
            Value::Array(shown.map(Value::String).collect())
        }
        (Some(Kind::Words), Value::Array(words)) => {
            let hidden = words.iter().map(|_| Secret::new("").to_string());
            Value::Array(hidden.map(Value::String).collect())
        }
        (Some(_), value) => value.clone(),
    }
}
