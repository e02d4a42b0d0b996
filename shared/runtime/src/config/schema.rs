//! The JSON Schema of a configuration file, for editors and charts. It says what the table of keys
//! says; a test compares it with the one that is committed.

use serde_json::{Map, Value, json};

use super::keys::{KEYS, Key, Kind, MCP};

/// The schema, with the defaults that this file of defaults names.
fn schema(defaults: &toml::Value) -> Value {
    let mut root = table(KEYS, "", defaults);
    let texts = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    root["properties"]["llm"]["properties"]["headers"] = texts.clone();
    // What a provider leaves out it takes from the defaults, which `[llm]` shows.
    let mut provider = root["properties"]["llm"].clone();
    for member in provider["properties"].as_object_mut().into_iter().flatten() {
        if let Some(member) = member.1.as_object_mut() {
            member.remove("default");
        }
    }
    let mut server = table(MCP, "mcp.", &toml::Value::Boolean(false));
    server["properties"]["env"] = texts.clone();
    server["properties"]["headers"] = texts;
    root["properties"]["providers"] = json!({ "type": "object", "additionalProperties": provider });
    root["properties"]["mcp"] = json!({ "type": "object", "additionalProperties": server });
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("The configuration of Mainspring");
    root
}

/// An object of the keys whose paths begin with `within`.
fn table(keys: &[Key], within: &str, defaults: &toml::Value) -> Value {
    let mut properties = Map::new();
    for key in keys {
        let Some(path) = key.path.strip_prefix(within) else {
            continue;
        };
        match path.split_once('.') {
            None => {
                let mut member = describe(key.kind);
                if let Some(value) = defaults.get(path) {
                    member["default"] = json!(value);
                }
                properties.insert(path.to_owned(), member);
            }
            Some((name, _)) if !properties.contains_key(name) => {
                let none = toml::Value::Boolean(false);
                let below = defaults.get(name).unwrap_or(&none);
                let below = table(keys, &format!("{within}{name}."), below);
                properties.insert(name.to_owned(), below);
            }
            Some(_) => {}
        }
    }
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn describe(kind: Kind) -> Value {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let mut member = match kind {
        Kind::Text | Kind::Secret => text("\\S"),
        Kind::Choice(words) => json!({ "enum": words }),
        Kind::Url(schemes) => text(&format!("^({}):/*[^/]", schemes.join("|"))),
        Kind::Address => text("^.+:[0-9]{1,5}$"),
        Kind::List => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Integer { min, max } => {
            json!({ "type": "integer", "minimum": min, "maximum": max })
        }
        Kind::Span { .. } => text("^[0-9]+(ms|s|m|h|d)$"),
    };
    member["description"] = json!(kind.wants());
    member
}

#[test]
fn the_committed_schema_is_this_one() {
    let manual = include_str!("../../../../cli/config.default.toml");
    let defaults: toml::Value = toml::from_str(manual).expect("TOML");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.schema.json");
    let written = serde_json::to_string_pretty(&schema(&defaults)).expect("JSON") + "\n";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &written).expect("docs/config.schema.json can be written");
    }
    let committed = std::fs::read_to_string(path).expect("docs/config.schema.json can be read");
    assert!(
        committed == written,
        "docs/config.schema.json is out of date; look at the difference after \
         UPDATE_DOCS=1 cargo test -p mainspring-runtime --lib schema"
    );
}

#[test]
fn every_default_is_in_the_schema() {
    let manual = include_str!("../../../../cli/config.default.toml");
    let defaults: toml::Value = toml::from_str(manual).expect("TOML");
    let schema = schema(&defaults);
    let mut left = vec![(String::new(), defaults)];
    while let Some((pointer, value)) = left.pop() {
        let member = schema.pointer(&pointer);
        let member = member.unwrap_or_else(|| panic!("{pointer} is missing"));
        match value {
            toml::Value::Table(members) => left.extend(
                members
                    .into_iter()
                    .map(|(name, value)| (format!("{pointer}/properties/{name}"), value)),
            ),
            value => assert_eq!(member["default"], json!(value), "{pointer}"),
        }
    }
}
