//! Checks made before anything is read: too deep, too large, not JSON.

use serde_json::Value;

use super::Problem;
use crate::tool::schema;
use crate::wording::plain;
use crate::workflow::spec::{BYTES_MAX, JSON_DEPTH_MAX};

/// Maximum number of patterns in all schemas: each is compiled whenever the spec is read.
const PATTERNS_MAX: usize = 256;

/// Parses a JSON text.
pub(crate) fn decode(text: &str, pointer: &str) -> Result<Value, Problem> {
    if text.len() > BYTES_MAX {
        return Err(too_large(pointer));
    }
    serde_json::from_str(text).map_err(|error| Problem {
        pointer: pointer.to_owned(),
        rule: "not_json",
        message: format!("the text is not JSON: {}", plain(&error.to_string())),
        hint: "write a JSON object, without a fence or a comment around it".to_owned(),
    })
}

fn too_large(pointer: &str) -> Problem {
    Problem {
        pointer: pointer.to_owned(),
        rule: "too_large",
        message: format!("the spec has more than {BYTES_MAX} bytes"),
        hint: "put large data into `input` or into a tool that a leaf reads".to_owned(),
    }
}

/// Checks depth and size without recursion, so that everything after it may recurse.
pub(crate) fn check(spec: &Value) -> Result<(), Problem> {
    let mut open = vec![(spec, 1, String::new())];
    let mut bytes = 0_usize;
    while let Some((value, depth, pointer)) = open.pop() {
        if depth > JSON_DEPTH_MAX {
            return Err(Problem {
                pointer,
                rule: "too_deep",
                message: format!("the JSON nests deeper than {JSON_DEPTH_MAX} levels"),
                hint: "flatten sequences of sequences, and shorten schemas".to_owned(),
            });
        }
        bytes += 2 + match value {
            Value::String(text) => text.len(),
            Value::Object(map) => map.keys().map(|key| key.len() + 4).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => 4,
        };
        if bytes > BYTES_MAX {
            return Err(too_large(""));
        }
        match value {
            Value::String(text) if text.contains('\0') => return Err(nul(pointer)),
            Value::Array(list) => {
                let below = list.iter().enumerate();
                open.extend(below.map(|(i, one)| (one, depth + 1, format!("{pointer}/{i}"))));
            }
            Value::Object(map) => {
                if map.keys().any(|key| key.contains('\0')) {
                    return Err(nul(pointer));
                }
                open.extend(
                    map.iter()
                        .map(|(key, one)| (one, depth + 1, at(&pointer, key))),
                );
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    if schema::patterns(spec) > PATTERNS_MAX {
        return Err(Problem {
            pointer: String::new(),
            rule: "too_many_patterns",
            message: format!("the schemas in the spec have more than {PATTERNS_MAX} patterns"),
            hint: "check texts in a tool or in a later node".to_owned(),
        });
    }
    Ok(())
}

fn nul(pointer: String) -> Problem {
    Problem {
        pointer,
        rule: "nul",
        message: "a text contains U+0000, which databases cannot store".to_owned(),
        hint: "leave the character out".to_owned(),
    }
}

/// The pointer of a member.
pub(crate) fn at(pointer: &str, key: &str) -> String {
    if key.contains(['~', '/']) {
        format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
    } else {
        format!("{pointer}/{key}")
    }
}
