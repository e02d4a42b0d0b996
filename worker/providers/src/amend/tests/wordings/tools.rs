//! The schemas of tools.

use super::*;

fn function(tool: &Value) -> &Value {
    tool.get("function").unwrap_or(tool)
}

fn parameters(tool: &Value) -> &Value {
    let function = function(tool);
    function
        .get("parameters")
        .unwrap_or(&function["input_schema"])
}

fn odd(body: &Value) -> Option<(usize, &Value)> {
    let tools = body["tools"].as_array()?;
    let mut tools = tools.iter().enumerate();
    tools.find(|(_, tool)| function(tool)["name"] == "odd")
}

/// Ways to refuse the schema of the tool `odd`, at a place of the list.
fn schema_wordings() -> Vec<SaysAt<usize>> {
    let mut wordings: Vec<SaysAt<usize>> = vec![
        Box::new(|at| {
            (
                400,
                error(
                    "Invalid schema for function 'odd': schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.",
                    Some(&format!("tools[{at}].function.parameters")),
                    Some("invalid_function_parameters"),
                ),
            )
        }),
        Box::new(|at| {
            (
                400,
                error(
                    "Invalid schema for function 'odd': In context=(), object schema missing properties.",
                    Some(&format!("tools[{at}].parameters")),
                    Some("invalid_function_parameters"),
                ),
            )
        }),
        Box::new(|_| (400, error("Invalid schema for function 'odd'", None, None))),
        Box::new(|at| {
            (
                400,
                anthropic(&format!(
                    "tools.{at}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
                )),
            )
        }),
        Box::new(|at| {
            (
                400,
                anthropic(&format!(
                    "tools.{at}.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
                )),
            )
        }),
        Box::new(|at| {
            (
                400,
                anthropic(&format!(
                    "tools.{at}.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'"
                )),
            )
        }),
        Box::new(|at| {
            (400, json!([{"error": {"code": 400, "message": format!("Invalid JSON payload received. Unknown name \"anyOf\" at 'tools[0].function_declarations[{at}].parameters': Cannot find field."), "status": "INVALID_ARGUMENT"}}]).to_string())
        }),
        Box::new(|at| {
            (400, json!({"error": {"code": 400, "message": format!("* GenerateContentRequest.tools[0].function_declarations[{at}].parameters.properties: should be non-empty for OBJECT type"), "status": "INVALID_ARGUMENT"}}).to_string())
        }),
        Box::new(|_| {
            (
                400,
                error(
                    "Invalid request: tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'properties.url': type is not defined>",
                    None,
                    None,
                ),
            )
        }),
        Box::new(|at| {
            (
                422,
                fastapi(
                    &json!(["body", "tools", at, "function", "parameters"]),
                    "value_error",
                    "Invalid schema",
                ),
            )
        }),
        Box::new(|at| {
            (400, json!({"message": format!("body.tools.{at}.function.parameters: unsupported keyword"), "code": "wrong_api_format"}).to_string())
        }),
    ];
    for (status, text) in bare() {
        wordings.push(Box::new(move |_| (status, text.clone())));
    }
    wordings
}

pub(super) fn tools() -> Vec<Case> {
    // What the vendor takes of the tool: a plain schema, any object only, or nothing.
    let kinds: [(&str, Has); 3] = [
        ("pattern", |schema| schema.to_string().contains("pattern")),
        ("properties", |schema| {
            schema["properties"]
                .as_object()
                .is_some_and(|all| !all.is_empty())
        }),
        ("the tool", |_| true),
    ];
    let mut cases = Vec::new();
    for (name, refused) in kinds {
        for (place, says) in schema_wordings().into_iter().enumerate() {
            if name == "properties" && place >= 11 {
                continue; // Nothing says that a schema is refused at all.
            }
            cases.push(Case {
                name: format!("{name} {place}"),
                has: Box::new(move |body| {
                    odd(body).is_some_and(|(_, tool)| refused(parameters(tool)))
                }),
                says: Box::new(move |body| says(odd(body).expect("it is refused").0)),
                gone: None,
            });
        }
    }
    cases
}
