//! The lists of a server, decoded element by element: an odd one is repaired where that is
//! harmless, or left out with a warning that names it, and the others stay.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mainspring_shared::tool::{Repeat, schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Bytes of one tool's schemas and words; a larger tool would fill a prompt by itself.
const TOOL_BYTES_MAX: usize = 256 << 10;

/// Characters of a name or a member's value in a warning.
const SAID_CHARS_MAX: usize = 100;

/// Whether calls of a tool can be tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Tasks {
    /// They cannot.
    #[default]
    Never,
    /// They can.
    Optional,
    /// They must.
    Required,
}

/// A tool as its server describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Described {
    /// Its name on the server.
    pub(super) name: String,
    /// Its description or title, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) words: Option<String>,
    /// The schema of its arguments.
    pub(super) parameters: Value,
    /// The schema of its structured results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<Value>,
    /// The effect of a repeated call.
    pub(super) repeat: Repeat,
    /// Whether its calls can be tasks.
    #[serde(default)]
    pub(super) tasks: Tasks,
}

impl Described {
    /// The tool in an element of a list, and what was repaired in it; or why it cannot be offered.
    pub(super) fn read(element: Value) -> Result<(Self, Vec<String>), String> {
        let Value::Object(mut tool) = element else {
            return Err("it is not an object".to_owned());
        };
        let name = match tool.remove("name") {
            Some(Value::String(name)) if !name.trim().is_empty() => name,
            Some(other) => return Err(format!("its name is {}", shown(&other))),
            None => return Err("it has no name".to_owned()),
        };
        let mut repaired = Vec::new();
        let parameters = object_schema(tool.remove("inputSchema"), &mut repaired);
        let output = match tool.remove("outputSchema") {
            Some(Value::Object(schema)) => Some(Value::Object(schema)),
            Some(Value::Null) | None => None,
            Some(other) => {
                repaired.push(format!("outputSchema is {}", shown(&other)));
                None
            }
        };
        let described = Self {
            words: words(&mut tool, &mut repaired),
            repeat: repeat(tool.get("annotations"), &mut repaired),
            tasks: tasks(tool.remove("execution").as_ref()),
            name,
            parameters,
            output,
        };
        let bytes = described.bytes();
        if bytes > TOOL_BYTES_MAX {
            return Err(format!("its description and schemas have {bytes} bytes"));
        }
        Ok((described, repaired))
    }

    fn bytes(&self) -> usize {
        let schemas = [Some(&self.parameters), self.output.as_ref()];
        let schemas = schemas.into_iter().flatten();
        let words = self.words.as_deref().map_or(0, str::len);
        words
            + schemas
                .map(|schema| schema.to_string().len())
                .sum::<usize>()
    }
}

/// The schema of arguments; anything that is not one stands for any object.
fn object_schema(given: Option<Value>, repaired: &mut Vec<String>) -> Value {
    match given {
        Some(Value::Object(mut schema)) => {
            // Arguments are an object, whatever else a schema without a type would allow.
            schema.entry("type").or_insert_with(|| "object".into());
            Value::Object(schema)
        }
        Some(other) => {
            repaired.push(format!("inputSchema is {}", shown(&other)));
            schema::any_object()
        }
        None => {
            repaired.push("inputSchema is missing".to_owned());
            schema::any_object()
        }
    }
}

/// A description, or else a title.
fn words(tool: &mut Map<String, Value>, repaired: &mut Vec<String>) -> Option<String> {
    for member in ["description", "title"] {
        match tool.remove(member) {
            Some(Value::String(words)) if !words.trim().is_empty() => {
                return Some(words.trim().to_owned());
            }
            Some(Value::String(_) | Value::Null) | None => {}
            Some(other) => repaired.push(format!("{member} is {}", shown(&other))),
        }
    }
    None
}

/// What the server says about repeating a call: only a hint, trusted because the operator chose the
/// server. Of a hint that is not a boolean nothing is believed.
fn repeat(annotations: Option<&Value>, repaired: &mut Vec<String>) -> Repeat {
    let mut hint = |name: &str| match annotations.and_then(|said| said.get(name)) {
        Some(Value::Bool(hint)) => *hint,
        Some(Value::Null) | None => false,
        Some(other) => {
            repaired.push(format!("annotations.{name} is {}", shown(other)));
            false
        }
    };
    let (reads, idempotent) = (hint("readOnlyHint"), hint("idempotentHint"));
    if reads {
        Repeat::Safe
    } else if idempotent {
        Repeat::Keyed
    } else {
        Repeat::Once
    }
}

fn tasks(execution: Option<&Value>) -> Tasks {
    let said = execution.and_then(|execution| execution.get("taskSupport"));
    match said.and_then(Value::as_str) {
        Some("optional") => Tasks::Optional,
        Some("required") => Tasks::Required,
        _ => Tasks::Never,
    }
}

fn shown(value: &Value) -> String {
    value.to_string().chars().take(SAID_CHARS_MAX).collect()
}

/// The elements of a page of a list, and the cursor of the next page. A list that is not one is
/// empty.
pub(super) fn page(result: &mut Value, member: &str) -> (Vec<Value>, Option<String>) {
    let elements = match result.get_mut(member).map(Value::take) {
        Some(Value::Array(elements)) => elements,
        _ => Vec::new(),
    };
    let cursor = result.get("nextCursor").and_then(Value::as_str);
    (elements, cursor.map(str::to_owned))
}

/// The tools among the elements of a list, each name once, by name. Says what is odd.
pub(super) fn tools(server: &str, elements: Vec<Value>, tools_max: usize) -> Vec<Described> {
    let mut tools = BTreeMap::new();
    for (place, element) in elements.into_iter().enumerate() {
        let name = element.get("name").cloned().unwrap_or_default();
        match Described::read(element) {
            Ok((tool, repaired)) => {
                if !repaired.is_empty() {
                    let mut odd = String::new();
                    for what in repaired {
                        // Writing to a string cannot fail.
                        let _ = write!(odd, "{}{what}", if odd.is_empty() { "" } else { "; " });
                    }
                    tracing::warn!(
                        mcp.server = server,
                        tool.name = tool.name,
                        odd,
                        "an MCP server describes a tool oddly; it is offered without that"
                    );
                }
                if tools.len() >= tools_max && !tools.contains_key(&tool.name) {
                    tracing::warn!(
                        mcp.server = server,
                        tools_max,
                        "an MCP server has too many tools; the rest is left out"
                    );
                    break;
                }
                tools.entry(tool.name.clone()).or_insert(tool);
            }
            Err(why) => tracing::warn!(
                mcp.server = server,
                tool.place = place,
                tool.name = shown(&name),
                why,
                "leaving out a tool of an MCP server; its other tools are offered"
            ),
        }
    }
    tools.into_values().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(tool: Value) -> Described {
        Described::read(tool).expect("a tool").0
    }

    #[test]
    fn a_schema_that_is_none_stands_for_any_object() {
        let (missing, said) = Described::read(json!({"name": "t"})).expect("a tool");
        assert_eq!(missing.parameters, schema::any_object());
        assert_eq!(said, ["inputSchema is missing"]);
        for odd in [json!(null), json!(true), json!([]), json!("object")] {
            let tool = read(json!({"name": "t", "inputSchema": odd}));
            assert_eq!(tool.parameters, schema::any_object(), "{odd}");
        }
        let untyped = read(json!({"name": "t", "inputSchema": {"properties": {}}}));
        assert_eq!(untyped.parameters["type"], "object");
    }

    #[test]
    fn odd_members_cost_no_more_than_themselves() {
        let tool = json!({
            "name": "t", "title": "Title", "description": 7, "inputSchema": {"type": "object"},
            "outputSchema": [], "icons": "x", "_meta": false, "execution": "fast",
            "annotations": {"readOnlyHint": "yes", "idempotentHint": true},
        });
        let (tool, said) = Described::read(tool).expect("a tool");
        assert_eq!(tool.words.as_deref(), Some("Title"));
        assert_eq!((tool.repeat, tool.tasks), (Repeat::Keyed, Tasks::Never));
        assert_eq!(tool.output, None);
        let expected = [
            "outputSchema is []",
            "description is 7",
            "annotations.readOnlyHint is \"yes\"",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn what_cannot_be_called_is_left_out_and_the_others_stay() {
        let large = "x".repeat(TOOL_BYTES_MAX);
        let list = json!([
            {"name": "good", "inputSchema": {"type": "object"}},
            {"inputSchema": {"type": "object"}}, {"name": 7}, {"name": " "}, null, "text",
            {"name": "large", "description": large},
            {"name": "good", "description": "again"},
            {"name": "also", "annotations": 3},
        ]);
        let Value::Array(list) = list else {
            unreachable!("an array was written")
        };
        let named = |tools: Vec<Described>| tools.into_iter().map(|tool| tool.name);
        let names: Vec<String> = named(tools("s", list.clone(), 9)).collect();
        assert_eq!(names, ["also", "good"]);
        let names: Vec<String> = named(tools("s", list, 1)).collect();
        assert_eq!(names, ["good"]);
    }

    #[test]
    fn an_empty_cursor_is_a_cursor() {
        let mut first = json!({"tools": [1], "nextCursor": ""});
        assert_eq!(
            page(&mut first, "tools"),
            (vec![json!(1)], Some(String::new()))
        );
        for last in [json!({"tools": []}), json!({"nextCursor": null}), json!([])] {
            assert_eq!(
                page(&mut last.clone(), "tools"),
                (Vec::new(), None),
                "{last}"
            );
        }
    }
}
