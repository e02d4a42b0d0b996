//! The schema of final answers.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::tool::schema::Schema;

/// The default name of the answer.
const NAME_DEFAULT: &str = "output";

/// Maximum length of a name in characters; every provider accepts this.
const NAME_CHARS_MAX: usize = 64;

/// Members of the long form. `schema` is not a JSON Schema keyword, so it distinguishes the two forms.
const MEMBERS: [&str; 3] = ["name", "schema", "strict"];

/// What asks for a JSON object of any form. It is no JSON Schema: that has no such type.
const ANY_OBJECT: &str = "json_object";

/// An output schema, given as `{name?, schema, strict?}`, as just the schema, or as
/// `{"type": "json_object"}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OutputSpec {
    /// The name of the answer.
    pub name: String,
    /// The JSON Schema that the answer must fit.
    pub schema: Value,
    /// Whether the provider should enforce the schema, if it can. Providers then accept only some
    /// schemas. The answer is checked either way.
    pub strict: bool,
    /// Whether any object will do: then providers have a mode for it that needs no schema.
    #[serde(skip)]
    pub any_object: bool,
}

/// What is wrong with an output schema, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct OutputFault {
    /// A JSON pointer into the value.
    pub pointer: String,
    /// What is wrong.
    pub detail: String,
}

fn fault(pointer: &str, detail: impl Into<String>) -> OutputFault {
    OutputFault {
        pointer: pointer.to_owned(),
        detail: detail.into(),
    }
}

impl OutputSpec {
    /// Reads either form, and compiles the schema.
    pub fn read(value: &Value) -> Result<(Self, Schema), OutputFault> {
        let Value::Object(members) = value else {
            return Err(fault("", "must be an object"));
        };
        let (spec, at) = if members.get("type").and_then(Value::as_str) == Some(ANY_OBJECT) {
            (Self::any_object(members)?, "")
        } else if members.contains_key("schema") {
            (Self::long(members)?, "/schema")
        } else {
            let spec = Self {
                name: NAME_DEFAULT.to_owned(),
                schema: value.clone(),
                strict: false,
                any_object: false,
            };
            (spec, "")
        };
        match Schema::compile(&spec.schema) {
            Ok(schema) => Ok((spec, schema)),
            Err(inner) => Err(fault(&format!("{at}{}", inner.pointer), inner.detail)),
        }
    }

    fn any_object(members: &Map<String, Value>) -> Result<Self, OutputFault> {
        if members.len() > 1 {
            let detail = format!("only `type` is allowed with {ANY_OBJECT:?}");
            return Err(fault("", detail));
        }
        Ok(Self {
            name: NAME_DEFAULT.to_owned(),
            schema: json!({"type": "object"}),
            strict: false,
            any_object: true,
        })
    }

    fn long(members: &Map<String, Value>) -> Result<Self, OutputFault> {
        if let Some(other) = members
            .keys()
            .find(|name| !MEMBERS.contains(&name.as_str()))
        {
            let detail = format!("only `schema`, `name` and `strict` are allowed, not {other:?}");
            return Err(fault("", detail));
        }
        let name = match members.get("name") {
            None | Some(Value::Null) => NAME_DEFAULT,
            Some(Value::String(name)) if is_name(name) => name,
            Some(_) => {
                let detail = "must have 1 to 64 of the characters a-z, A-Z, 0-9, _ and -";
                return Err(fault("/name", detail));
            }
        };
        let strict = match members.get("strict") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(strict)) => *strict,
            Some(_) => return Err(fault("/strict", "must be true or false")),
        };
        match members.get("schema") {
            Some(schema @ Value::Object(_)) => Ok(Self {
                name: name.to_owned(),
                schema: schema.clone(),
                strict,
                any_object: false,
            }),
            _ => Err(fault("/schema", "must be a JSON Schema object")),
        }
    }
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &Value) -> Result<OutputSpec, String> {
        OutputSpec::read(value)
            .map(|(spec, _)| spec)
            .map_err(|fault| fault.pointer)
    }

    #[test]
    fn both_forms_are_read() {
        let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let bare = read(&schema).expect("a schema");
        assert_eq!((bare.name.as_str(), bare.strict), ("output", false));
        assert_eq!(bare.schema, schema);
        let long = read(&json!({"name": "person", "schema": schema, "strict": true}));
        let long = long.expect("a schema");
        assert_eq!((long.name.as_str(), long.strict), ("person", true));
        assert_eq!(long.schema, schema);
        assert!(read(&json!({})).is_ok(), "any value fits");
    }

    #[test]
    fn any_object_can_be_asked_for() {
        let any = read(&json!({"type": "json_object"})).expect("a shape");
        assert!(any.any_object);
        assert_eq!(any.schema, json!({"type": "object"}));
        let schema = read(&json!({"type": "object"})).expect("a schema");
        assert!(!schema.any_object);
    }

    #[test]
    fn faults_are_pointed_at() {
        for (value, pointer) in [
            (json!({"type": "json_object", "properties": {}}), ""),
            (json!(true), ""),
            (json!("string"), ""),
            (json!({"type": "text"}), "/type"),
            (json!({"$ref": "https://x.example/s"}), "/$ref"),
            (json!({"schema": {}, "kind": "x"}), ""),
            (json!({"schema": {"type": "text"}}), "/schema/type"),
            (json!({"schema": true}), "/schema"),
            (json!({"schema": {}, "name": "a b"}), "/name"),
            (json!({"schema": {}, "strict": "yes"}), "/strict"),
        ] {
            assert_eq!(read(&value), Err(pointer.to_owned()), "{value}");
        }
    }
}
