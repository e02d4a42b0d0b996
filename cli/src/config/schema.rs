//! The JSON Schema of a configuration file, for editors and charts, generated from the keys. A test
//! compares it with the committed one.

use mainspring_runtime::{Environment, Key, Kind, Layers, Sources};
use serde_json::{Value, json};

use super::keys;
use crate::settings::MANUAL;

/// The schema, with the defaults from the manual.
fn schema() -> Value {
    let mut root = json!({ "type": "object" });
    let defaults = defaults();
    for key in keys().iter() {
        let default = defaults.get(key.path).map(|(value, _)| value);
        insert(&mut root, key, default.map(|value| json!(value)));
    }
    // A provider inherits what it leaves out; the defaults are shown under `[llm]`.
    let mut provider = root["properties"]["llm"].clone();
    for member in provider["properties"].as_object_mut().into_iter().flatten() {
        if let Some(member) = member.1.as_object_mut() {
            member.remove("default");
        }
    }
    root["properties"]["providers"] = json!({ "type": "object", "additionalProperties": provider });
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("The configuration of Mainspring");
    root
}

/// The manual's settings alone.
fn defaults() -> Layers {
    let sources = Sources {
        defaults: MANUAL,
        file: None,
        environment: &Environment::default(),
        flags: &[],
    };
    Layers::read(keys(), &sources)
}

/// Inserts a key at its path, into objects that allow no other members.
fn insert(root: &mut Value, key: &Key, default: Option<Value>) {
    let mut names = key.path.split('.').peekable();
    let mut object = root;
    while let Some(name) = names.next() {
        if name == "*" && names.peek().is_none() {
            object["additionalProperties"] = match key.kind {
                Kind::Table { .. } => describe(key.kind),
                _ => json!({ "type": "string" }),
            };
            return;
        }
        // A table may have fixed names besides those that users choose.
        let is_table = object["additionalProperties"].is_object();
        if !is_table {
            object["additionalProperties"] = if name == "*" { json!({}) } else { json!(false) };
        }
        let member = if name == "*" {
            &mut object["additionalProperties"]
        } else {
            &mut object["properties"][name]
        };
        if names.peek().is_none() {
            *member = describe(key.kind);
            if let Some(value) = default {
                member["default"] = value;
            }
            return;
        }
        member["type"] = json!("object");
        object = member;
    }
}

fn describe(kind: Kind) -> Value {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let url = |schemes: &[&str]| text(&format!("^({}):/*[^/]", schemes.join("|")));
    let mut member = match kind {
        Kind::Text | Kind::Secret => text("\\S"),
        Kind::Choice(words) => json!({ "enum": words }),
        Kind::Url(schemes) => url(schemes),
        Kind::Urls(schemes) => json!({ "type": "array", "items": url(schemes) }),
        Kind::Address => text("^.+:[0-9]{1,5}$"),
        Kind::List | Kind::Words => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Choices(words) => json!({ "type": "array", "items": { "enum": words } }),
        Kind::Number => json!({ "type": "number", "minimum": 0 }),
        Kind::Table { members, needs } => {
            let members = members.iter();
            let members: serde_json::Map<_, _> = members
                .map(|(name, kind)| ((*name).to_owned(), describe(*kind)))
                .collect();
            json!({
                "type": "object",
                "properties": members,
                "required": needs,
                "additionalProperties": false
            })
        }
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Integer { min, max } => {
            json!({ "type": "integer", "minimum": min, "maximum": max })
        }
        Kind::Span { .. } => text("^[0-9]+(ms|s|m|h|d)$"),
        Kind::Keep { .. } => text("^([0-9]+(ms|s|m|h|d)|forever)$"),
    };
    member["description"] = json!(kind.wants());
    member
}

#[test]
fn the_committed_schema_is_this_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/config.schema.json");
    // By name: what moves in the code stays in its place here.
    let mut sorted = schema();
    sorted.sort_all_objects();
    let written = serde_json::to_string_pretty(&sorted).expect("JSON") + "\n";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &written).expect("docs/config.schema.json can be written");
    }
    let committed = std::fs::read_to_string(path).expect("docs/config.schema.json can be read");
    assert!(
        committed == written,
        "docs/config.schema.json is out of date; look at the difference after \
         UPDATE_DOCS=1 cargo test -p mainspring-cli --bin mainspring schema"
    );
}

#[test]
fn every_default_is_in_the_schema() {
    let schema = schema();
    for (path, default) in defaults().below("") {
        let pointer = format!("/properties/{}/default", path.replace('.', "/properties/"));
        assert_eq!(schema.pointer(&pointer), Some(&json!(default)), "{path}");
    }
}
