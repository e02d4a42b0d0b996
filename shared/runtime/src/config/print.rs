//! Shows a configuration as a file would hold it, each value with where it came from, without what
//! is secret.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use toml::Value;

use super::keys::{Keys, Kind};
use super::secret::Secret;

/// Renders checked values; those without a table first.
pub(super) fn render(keys: &Keys, values: &BTreeMap<String, (Value, String)>) -> String {
    let mut tables: BTreeMap<&str, String> = BTreeMap::new();
    for (path, (value, origin)) in values {
        let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
        let text = tables.entry(table).or_default();
        let shown = shown(keys, path, value);
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

fn shown(keys: &Keys, path: &str, value: &Value) -> Value {
    match (keys.find(path).map(|key| key.kind), value) {
        (Some(Kind::Secret) | None, _) => Value::String(Secret::new("").to_string()),
        (Some(Kind::Url(_)), Value::String(url)) => {
            Value::String(Secret::new(url.clone()).redacted_url())
        }
        (Some(_), value) => value.clone(),
    }
}
