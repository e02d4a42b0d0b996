//! Schemas of servers in use that a vendor refused, as their users reported.

use super::*;

/// A member's schema, and values that it takes.
struct Report {
    source: &'static str,
    says: &'static str,
    member: Value,
    takes: Vec<Value>,
}

fn reports() -> Vec<Report> {
    vec![
        Report {
            source: "Dokploy/mcp#74",
            says: "a bound that is excluded by a flag, as in draft 4, is a bound",
            member: json!({ "type": "integer", "exclusiveMinimum": true, "minimum": 0, "maximum": 9_007_199_254_740_991_i64 }),
            takes: vec![json!(1), json!(300)],
        },
        Report {
            source: "ThinkInAIXYZ/go-mcp#170",
            says: "a member may say of itself that it is required",
            member: json!({ "type": "object", "properties": {
                "first": { "type": "string", "required": true, "description": "the first" },
                "second": { "type": "integer", "required": false },
            } }),
            takes: vec![
                json!({ "first": "x" }),
                json!({ "first": "x", "second": 2 }),
            ],
        },
        Report {
            source: "microsoft/azure-devops-mcp#145",
            says: "numbers may be listed",
            member: json!({ "type": "number", "enum": [0, 1, 2, 4, 8, 16, 32, 64] }),
            takes: vec![json!(0), json!(64)],
        },
        Report {
            source: "anomalyco/opencode#46676",
            says: "a list of which only the empty text is one is none",
            member: json!({ "anyOf": [{ "type": "string", "enum": [""] }, { "type": "string", "format": "uri" }, { "type": "null" }] }),
            takes: vec![json!(""), json!("https://a.example"), json!(null)],
        },
        Report {
            source: "router-for-me/CLIProxyAPI#4545",
            says: "an optional value may be null in its list and in its types",
            member: json!({ "type": ["string", "null"], "enum": ["pending", "completed", null] }),
            takes: vec![json!("pending"), json!(null)],
        },
        Report {
            source: "epam/ai-dial-adapter-vertexai#219",
            says: "a list may be null",
            member: json!({ "type": ["array", "null"], "items": { "type": "string" } }),
            takes: vec![json!([]), json!(["a"]), json!(null)],
        },
    ]
}

#[test]
fn schemas_that_vendors_refused_are_taken_by_every_dialect_and_are_no_stricter() {
    for Report {
        source,
        says,
        member,
        takes,
    } in reports()
    {
        let schema =
            json!({ "type": "object", "properties": { "it": member }, "required": ["it"] });
        for dialect in DIALECTS {
            let what = format!("{source}: {says}: {dialect:?}");
            let fitted = fitted(&schema, dialect);
            let written = fitted.schema.as_ref().expect("it has a member");
            let found = faults(written, dialect);
            // As it is where a dialect takes everything.
            assert!(
                found.is_empty() || dialect == SchemaDialect::Plain,
                "{what}: {found:?} in {written:#}"
            );
            if dialect != SchemaDialect::Plain {
                for value in &takes {
                    accepts(&fitted, &json!({ "it": value }), &what);
                }
            }
        }
    }
}
