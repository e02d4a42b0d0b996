//! JSON Schemas of arguments and outputs: compiled once, every fault reported.

use serde_json::{Value, json};

/// Faults of one value that are reported: a model needs the first few, not a flood.
const FAULTS_MAX: usize = 8;

/// Bytes of one schema: more than a model will read.
const SCHEMA_BYTES_MAX: usize = 256 << 10;

/// The schema that every object fits.
pub fn any_object() -> Value {
    json!({ "type": "object", "properties": {} })
}

/// A compiled schema. Never looks anything up outside itself.
#[derive(Debug, Clone)]
pub struct Schema {
    validator: std::sync::Arc<jsonschema::Validator>,
}

impl Schema {
    /// Compiles a schema; says what is wrong with it otherwise.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        if schema.to_string().len() > SCHEMA_BYTES_MAX {
            return Err(format!("a schema has at most {SCHEMA_BYTES_MAX} bytes"));
        }
        match jsonschema::validator_for(schema) {
            Ok(validator) => Ok(Self {
                validator: validator.into(),
            }),
            Err(error) => Err(format!("is not a JSON Schema: {error}")),
        }
    }

    /// The first faults of a value, each with where it is; none when it fits.
    pub fn faults(&self, value: &Value) -> Vec<String> {
        let faults = self.validator.iter_errors(value).take(FAULTS_MAX);
        let said = faults.map(|error| {
            let path = error.instance_path().to_string();
            if path.is_empty() {
                error.to_string()
            } else {
                format!("{path}: {error}")
            }
        });
        said.collect()
    }
}

/// Checks the schema of a tool's arguments: a valid one, for objects.
pub fn check_parameters(schema: &Value) -> Result<(), String> {
    match schema.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(_) => return Err("arguments are an object: `type` must be \"object\"".to_owned()),
    }
    if !schema.is_object() {
        return Err("must be a JSON Schema object".to_owned());
    }
    Schema::compile(schema).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_say_where_and_what() {
        let schema = Schema::compile(&json!({
            "type": "object",
            "required": ["path"],
            "properties": {"path": {"type": "string"}, "n": {"type": "integer", "minimum": 1}},
            "additionalProperties": false,
        }))
        .expect("compiles");
        assert!(schema.faults(&json!({"path": "a", "n": 2})).is_empty());
        let faults = schema.faults(&json!({"n": 0, "z": 1})).join("\n");
        for part in ["path", "/n", "z"] {
            assert!(faults.contains(part), "{part} in {faults}");
        }
    }

    #[test]
    fn a_schema_that_points_outside_is_refused() {
        let away = json!({"type": "object", "properties": {"a": {"$ref": "https://x.example/s"}}});
        assert!(Schema::compile(&away).is_err());
        let file = json!({"$ref": "file:///etc/passwd"});
        assert!(Schema::compile(&file).is_err());
    }
}
