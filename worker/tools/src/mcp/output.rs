//! Turns an MCP server's result into what the model reads.

use mainspring_shared::message::{ContentPart, ImageSource, plain_text};
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use mainspring_worker::tool::{Output, ToolError};

/// Maximum bytes of a value that is kept alongside the text; a larger one becomes text only.
const VALUE_BYTES_MAX: usize = 2_000_000;

/// The member of a result's `_meta` that holds the call's digest, shown once the call is old.
const DIGEST: &str = "mainspring/digest";

/// The output of a result, or its error.
pub(super) fn read(response: CallToolResponse) -> Result<Output, ToolError> {
    match response {
        CallToolResponse::Complete(result) => complete(result),
        CallToolResponse::InputRequired(_) => Err(ToolError::reply(
            "the tool requests further input, which is not supported",
        )),
        _ => Err(ToolError::reply("the tool responded in an unsupported way")),
    }
}

fn complete(result: CallToolResult) -> Result<Output, ToolError> {
    let failed = result.is_error == Some(true);
    let digest = result.meta.as_ref().and_then(|meta| meta.get(DIGEST));
    let digest = digest.and_then(Value::as_str).map(str::to_owned);
    let digested = |output: Output| match digest {
        Some(digest) => output.with_digest(digest),
        None => output,
    };
    let mut content: Vec<ContentPart> = result.content.into_iter().map(part).collect();
    let value = result
        .structured_content
        .map(|value| (value.to_string(), value));
    if content.is_empty()
        && let Some((text, _)) = &value
    {
        content.push(ContentPart::text(text));
    }
    if failed
        && content
            .iter()
            .any(|part| matches!(part, ContentPart::Image { .. }))
    {
        content.insert(0, ContentPart::text("error:"));
        return Ok(digested(Output {
            content,
            value: None,
            failed,
        }));
    }
    if failed {
        let said = plain_text(&content);
        let said = if said.trim().is_empty() {
            "the tool failed and does not say why"
        } else {
            &said
        };
        return Err(ToolError::reply(said));
    }
    let value = value.filter(|(text, _)| text.len() <= VALUE_BYTES_MAX);
    let value: Option<Value> = value.map(|(_, value)| value);
    Ok(digested(Output {
        content,
        value,
        failed,
    }))
}

fn part(block: ContentBlock) -> ContentPart {
    match block {
        ContentBlock::Text(text) => ContentPart::text(text.text),
        ContentBlock::Image(image) => self::image(&image.mime_type, &image.data),
        ContentBlock::Audio(audio) => note("audio", Some(&audio.mime_type), &audio.data),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                ContentPart::text(format!("[{uri}]\n{text}"))
            }
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => note(&uri, mime_type.as_deref(), &blob),
            _ => unknown(),
        },
        ContentBlock::ResourceLink(link) => {
            let kind = link.mime_type.map(|kind| format!(", {kind}"));
            let (name, uri) = (link.name, link.uri);
            ContentPart::text(format!("[{name}: {uri}{}]", kind.unwrap_or_default()))
        }
        _ => unknown(),
    }
}

/// An image; if no provider accepts its type, the model is told that there was one.
fn image(mime_type: &str, base64: &str) -> ContentPart {
    let source = ImageSource::Base64 {
        media_type: mime_type.to_owned(),
        data: base64.to_owned(),
    };
    let image = ContentPart::Image { source };
    if image.media_fault().is_some() {
        return note("image", Some(mime_type), base64);
    }
    image
}

fn note(what: &str, mime_type: Option<&str>, base64: &str) -> ContentPart {
    let padding = base64.bytes().rev().take_while(|b| *b == b'=').count();
    let bytes = (base64.len() / 4 * 3).saturating_sub(padding);
    let kind = mime_type.unwrap_or("no type");
    ContentPart::text(format!("[{what}, {kind}, {bytes} bytes, not shown]"))
}

fn unknown() -> ContentPart {
    ContentPart::text("[content of an unsupported kind]")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn given(result: Value) -> Result<Output, ToolError> {
        let result: CallToolResult = serde_json::from_value(result).expect("a result");
        read(CallToolResponse::Complete(result))
    }

    fn texts(output: Output) -> Vec<String> {
        let text = |part| match part {
            ContentPart::Text { text } => text,
            other => format!("{other:?}"),
        };
        output.content.into_iter().map(text).collect()
    }

    #[test]
    fn an_image_is_kept_and_every_other_kind_is_text_or_a_note() {
        let output = given(json!({"content": [
            {"type": "text", "text": "a"},
            {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="},
            {"type": "image", "mimeType": "image/tiff", "data": "iVBORw0KGgo="},
            {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "x/y", "blob": "AA=="}},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
        ]}));
        let expected = [
            "a",
            r#"Image { source: Base64 { media_type: "image/png", data: "iVBORw0KGgo=" } }"#,
            "[image, image/tiff, 8 bytes, not shown]",
            "[audio, audio/wav, 3 bytes, not shown]",
            "[file:///a]\ninside",
            "[file:///b, x/y, 1 bytes, not shown]",
            "[c: file:///c]",
        ];
        assert_eq!(texts(output.expect("a success")), expected);
    }

    #[test]
    fn a_value_is_kept_beside_the_text_and_stands_in_for_it() {
        let both = given(json!({
            "content": [{"type": "text", "text": "one"}],
            "structuredContent": {"n": 1},
        }));
        let both = both.expect("a success");
        assert_eq!(both.value, Some(json!({"n": 1})));
        assert_eq!(texts(both), ["one"]);
        let alone = given(json!({"content": [], "structuredContent": {"n": 1}}));
        assert_eq!(alone, Ok(Output::json(json!({"n": 1}))));
        let large = given(json!({"structuredContent": "x".repeat(VALUE_BYTES_MAX)}));
        assert_eq!(large.expect("a success").value, None);
    }

    #[test]
    fn a_server_may_say_what_is_left_of_a_call() {
        let output = given(json!({
            "content": [{"type": "text", "text": "a long list"}],
            "_meta": {"mainspring/digest": "3 open issues", "x": 1},
        }));
        let expected = Output::text("a long list").with_digest("3 open issues");
        assert_eq!(output, Ok(expected));
        let other = given(json!({"content": [], "_meta": {"mainspring/digest": 3}}));
        assert_eq!(other, Ok(Output::default()));
    }

    #[test]
    fn an_error_is_one_and_says_what_it_says() {
        let said = given(json!({"isError": true, "content": [{"type": "text", "text": "no"}]}));
        assert_eq!(said, Err(ToolError::reply("no")));
        let mute = given(json!({"isError": true, "content": []}));
        assert_eq!(
            mute,
            Err(ToolError::reply("the tool failed and does not say why"))
        );
        let value = given(json!({"isError": true, "structuredContent": {"why": "so"}}));
        assert_eq!(value, Err(ToolError::reply(r#"{"why":"so"}"#)));
        let shown = given(json!({"isError": true, "content": [
            {"type": "text", "text": "see"},
            {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="},
        ]}));
        let shown = shown.expect("more than words");
        assert!(shown.failed);
        assert_eq!(texts(shown)[..2], ["error:", "see"]);
        let fine = given(json!({"isError": false, "content": []}));
        assert_eq!(fine, Ok(Output::default()));
    }
}
