//! Results that clients lost, as users of comparable programs reported: the public thread, what must hold, a result, and
//! what the model sees of it.

use serde_json::json;

use super::*;

struct Report {
    source: &'static str,
    says: &'static str,
    result: Value,
    shown: &'static [&'static str],
}

const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAE=";

fn reports() -> Vec<Report> {
    let resource =
        |resource: Value| json!({ "content": [{ "type": "resource", "resource": resource }] });
    vec![
        Report {
            source: "langgenius/dify-docs#439",
            says: "a picture that says for whom it is meant is one",
            result: json!({ "content": [{ "type": "image", "data": PIXEL, "mimeType": "image/png",
                "annotations": { "audience": ["user"], "priority": 0.9 } }] }),
            shown: &["picture image/png"],
        },
        Report {
            source: "unslothai/unsloth#9636",
            says: "a resource may be a picture, whose type is written in any case and with parameters",
            result: resource(
                json!({ "uri": "r://a", "mimeType": "Image/PNG; charset=binary", "blob": PIXEL }),
            ),
            shown: &["picture image/png"],
        },
        Report {
            source: "anthropics/anthropic-sdk-python#1836",
            says: "bytes of no type are no text, and hide no text behind them",
            result: json!({ "content": [
                { "type": "resource", "resource": { "uri": "r://bytes", "blob": "//79AAEC" } },
                { "type": "resource", "resource": { "uri": "r://note", "text": "seen" } },
            ] }),
            shown: &[
                "[r://bytes, no type, 6 bytes, not shown]",
                "[r://note]\nseen",
            ],
        },
        Report {
            source: "open-webui/open-webui#25260",
            says: "a resource of which only the address is known is told by it",
            result: resource(json!({ "uri": "r://report", "mimeType": "text/csv" })),
            shown: &["[r://report, text/csv]"],
        },
        Report {
            source: "modelcontextprotocol/rust-sdk#338",
            says: "the type of a text in a resource is told",
            result: resource(
                json!({ "uri": "ui://page", "mimeType": "text/html", "text": "<h1>a</h1>" }),
            ),
            shown: &["[ui://page, text/html]\n<h1>a</h1>"],
        },
        Report {
            source: "anthropics/claude-code#3073",
            says: "a picture of a type that no provider reads is told, and cannot be refused",
            result: json!({ "content": [{ "type": "image", "data": "PHN2Zy8+", "mimeType": "image/svg+xml" }] }),
            shown: &["[image, image/svg+xml, 6 bytes, not shown]"],
        },
        Report {
            source: "ggml-org/llama.cpp#26410",
            says: "structured content beside an empty list is what the model reads",
            result: json!({ "content": [], "structuredContent": { "accounts": [1], "total": 36 } }),
            shown: &[r#"{"accounts":[1],"total":36}"#],
        },
        Report {
            source: "agno-agi/agno#8695",
            says: "a failure that is told only as structured content is told",
            result: json!({ "isError": true, "content": [], "structuredContent": { "code": "E42" } }),
            shown: &[r#"error: {"code":"E42"}"#],
        },
    ]
}

#[test]
fn the_model_sees_of_a_result_what_its_server_meant() {
    let mut wrong = Vec::new();
    for Report {
        source,
        says,
        result,
        shown,
    } in reports()
    {
        let seen: Vec<String> = match read(result) {
            Ok(output) => output
                .content
                .into_iter()
                .map(|part| match part {
                    ContentPart::Text { text } => text,
                    ContentPart::Image {
                        source: ImageSource::Base64 { media_type, .. },
                    } => format!("picture {media_type}"),
                    other => format!("{other:?}"),
                })
                .collect(),
            Err(ToolError::Reply { message, .. }) => vec![format!("error: {message}")],
            Err(other) => vec![format!("{other:?}")],
        };
        if seen != shown {
            wrong.push(format!("{source}: {says}: {seen:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
