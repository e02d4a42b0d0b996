//! Turns an MCP server's result into what the model reads.

use mainspring_shared::message::{ContentPart, FileSource, ImageSource, plain_text};
use serde_json::Value;

use mainspring_worker::tool::{Output, ToolError};

/// Maximum bytes of a value that is kept alongside the text; a larger one becomes text only.
const VALUE_BYTES_MAX: usize = 2_000_000;

/// Blocks of one result that are read; a model is told how many more there were.
const BLOCKS_MAX: usize = 1_000;

/// Characters of a word that a server chose, in a note.
const WORD_CHARS_MAX: usize = 200;

/// The member of a result's `_meta` that holds the call's digest, shown once the call is old.
const DIGEST: &str = "mainspring/digest";

/// The files that models read besides text.
const PDF: &str = "application/pdf";

/// The output of a result as the server wrote it, or its error. Whatever is not understood becomes
/// a note, and the rest is kept: the tool may have acted.
pub(super) fn read(mut result: Value) -> Result<Output, ToolError> {
    let failed = result.get("isError") == Some(&Value::Bool(true));
    let digest = result.get("_meta").and_then(|meta| meta.get(DIGEST));
    let digest = digest.and_then(Value::as_str).map(str::to_owned);
    let value = structured(&mut result);
    let mut content = contents(result.get_mut("content").map(Value::take));
    if let Some(value) = &value
        && !says(&content, value)
    {
        content.push(ContentPart::text(value.to_string()));
    }
    let more = |part: &ContentPart| !matches!(part, ContentPart::Text { .. });
    if failed && !content.iter().any(more) {
        let said = plain_text(&content);
        let said = if said.trim().is_empty() {
            "the tool failed and does not say why"
        } else {
            &said
        };
        return Err(ToolError::reply(said));
    }
    if failed {
        content.insert(0, ContentPart::text("error:"));
    }
    let fits = |value: &Value| !failed && value.to_string().len() <= VALUE_BYTES_MAX;
    let output = Output {
        content,
        value: value.filter(fits),
        failed,
    };
    Ok(match digest {
        Some(digest) => output.with_digest(digest),
        None => output,
    })
}

/// The structured content, which is an object in all versions of the protocol that say what it is;
/// any other value but null is kept, too.
fn structured(result: &mut Value) -> Option<Value> {
    let value = result.get_mut("structuredContent")?.take();
    (!value.is_null()).then_some(value)
}

/// Whether one of the texts, or all of them together, are the value as JSON: servers repeat it for
/// clients that read only text. If the text is another one, the model sees both.
fn says(content: &[ContentPart], value: &Value) -> bool {
    let is_it = |text: &str| serde_json::from_str::<Value>(text).is_ok_and(|said| said == *value);
    let one = |part: &ContentPart| matches!(part, ContentPart::Text { text } if is_it(text));
    content.iter().any(one) || is_it(&plain_text(content))
}

/// The parts of a content, whatever stands in its place.
pub(super) fn contents(content: Option<Value>) -> Vec<ContentPart> {
    match content {
        Some(Value::Array(blocks)) => {
            let rest = blocks.len().saturating_sub(BLOCKS_MAX);
            let mut parts: Vec<ContentPart> =
                blocks.into_iter().take(BLOCKS_MAX).map(part).collect();
            if rest > 0 {
                parts.push(ContentPart::text(format!("[{rest} more parts, not shown]")));
            }
            parts
        }
        // One block without its list, or a text without its block.
        Some(block @ Value::Object(_)) => vec![part(block)],
        Some(Value::String(text)) => vec![ContentPart::text(text)],
        Some(Value::Null) | None => Vec::new(),
        Some(Value::Bool(_) | Value::Number(_)) => vec![unknown(None)],
    }
}

fn part(mut block: Value) -> ContentPart {
    let kind = block.get("type").and_then(Value::as_str).map(str::to_owned);
    match kind.as_deref() {
        Some("text") | None if block.get("text").is_some_and(Value::is_string) => {
            ContentPart::text(taken(&mut block, "text").unwrap_or_default())
        }
        Some("image") => media(&mut block, "image", image),
        Some("audio") => media(&mut block, "audio", |kind, data| {
            note("audio", Some(kind), data)
        }),
        Some("resource") => match block.get_mut("resource") {
            Some(resource) => self::resource(resource),
            None => unknown(kind.as_deref()),
        },
        Some("resource_link") => link(&block),
        _ => unknown(kind.as_deref()),
    }
}

fn taken(value: &mut Value, member: &str) -> Option<String> {
    match value.get_mut(member).map(Value::take) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

fn media(block: &mut Value, what: &str, read: fn(&str, &str) -> ContentPart) -> ContentPart {
    let (kind, data) = (taken(block, "mimeType"), taken(block, "data"));
    match data {
        Some(data) => read(kind.as_deref().unwrap_or_default(), &data),
        None => unknown(Some(what)),
    }
}

/// The contents of a resource, embedded or read.
pub(super) fn resource(resource: &mut Value) -> ContentPart {
    let (uri, kind) = (taken(resource, "uri"), taken(resource, "mimeType"));
    let named = uri.is_some();
    let uri = uri.as_deref().unwrap_or("no address");
    if let Some(text) = taken(resource, "text") {
        let head = about(&[Some(uri), kind.as_deref()]);
        return ContentPart::text(format!("[{head}]\n{text}"));
    }
    let Some(data) = taken(resource, "blob") else {
        // Only its address: the model can have it read.
        return if named {
            ContentPart::text(format!("[{}]", about(&[Some(uri), kind.as_deref()])))
        } else {
            unknown(Some("resource"))
        };
    };
    let kind = kind.as_deref().map(plain_kind);
    match kind.as_deref() {
        Some(PDF) => file(uri, PDF, &data),
        Some(kind) if kind.starts_with("image/") => image(kind, &data),
        kind => note(&word(uri), kind, &data),
    }
}

/// A link with everything that helps to decide whether to follow it.
fn link(block: &Value) -> ContentPart {
    let said = |member: &str| block.get(member).and_then(Value::as_str);
    let Some(uri) = said("uri") else {
        return unknown(Some("resource_link"));
    };
    let name = said("title").or_else(|| said("name"));
    let place = match name {
        Some(name) => format!("{}: {uri}", word(name)),
        None => uri.to_owned(),
    };
    let bytes = block.get("size").and_then(Value::as_u64);
    let bytes = bytes.map(|bytes| format!("{bytes} bytes"));
    let head = about(&[Some(&place), said("mimeType"), bytes.as_deref()]);
    match said("description")
        .map(str::trim)
        .filter(|text| !text.is_empty())
    {
        Some(description) => ContentPart::text(format!("[{head}] {description}")),
        None => ContentPart::text(format!("[{head}]")),
    }
}

fn about(words: &[Option<&str>]) -> String {
    let words: Vec<&str> = words.iter().flatten().copied().collect();
    words.join(", ")
}

/// A media type without its parameters, in lower case.
fn plain_kind(kind: &str) -> String {
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().to_ascii_lowercase()
}

/// An image; if no provider accepts its type, the model is told that there was one.
fn image(mime_type: &str, base64: &str) -> ContentPart {
    let source = ImageSource::Base64 {
        media_type: plain_kind(mime_type),
        data: base64.to_owned(),
    };
    let image = ContentPart::Image { source };
    if image.media_fault().is_some() {
        return note("image", Some(mime_type), base64);
    }
    image
}

/// A file named after the end of its address; if it is too large, a note.
fn file(uri: &str, media_type: &str, base64: &str) -> ContentPart {
    let named = |end: &&str| !end.is_empty();
    let name = uri.rsplit(['/', ':']).find(named).unwrap_or("file");
    let source = FileSource::Base64 {
        media_type: media_type.to_owned(),
        data: base64.to_owned(),
    };
    let file = ContentPart::File {
        name: word(name),
        source,
    };
    if file.media_fault().is_some() {
        return note(&word(uri), Some(media_type), base64);
    }
    file
}

fn note(what: &str, mime_type: Option<&str>, base64: &str) -> ContentPart {
    let padding = base64.bytes().rev().take_while(|b| *b == b'=').count();
    let bytes = (base64.len() / 4 * 3).saturating_sub(padding);
    let kind = word(
        mime_type
            .filter(|kind| !kind.is_empty())
            .unwrap_or("no type"),
    );
    ContentPart::text(format!("[{what}, {kind}, {bytes} bytes, not shown]"))
}

fn unknown(kind: Option<&str>) -> ContentPart {
    match kind {
        Some(kind) => {
            let kind = word(kind);
            ContentPart::text(format!("[content of an unsupported kind: {kind}]"))
        }
        None => ContentPart::text("[content of an unsupported kind]"),
    }
}

fn word(said: &str) -> String {
    said.chars()
        .filter(|c| !c.is_control())
        .take(WORD_CHARS_MAX)
        .collect()
}

#[cfg(test)]
mod reports;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn given(result: Value) -> Result<Output, ToolError> {
        read(result)
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
            {"type": "resource", "resource":
                {"uri": "file:///bill.pdf", "mimeType": "application/pdf", "blob": "AA=="}},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
            {"type": "resource_link", "uri": "file:///d", "name": "d", "title": "D",
                "mimeType": "text/csv", "size": 9, "description": " All of it. "},
        ]}));
        let expected = [
            "a",
            r#"Image { source: Base64 { media_type: "image/png", data: "iVBORw0KGgo=" } }"#,
            "[image, image/tiff, 8 bytes, not shown]",
            "[audio, audio/wav, 3 bytes, not shown]",
            "[file:///a]\ninside",
            "[file:///b, x/y, 1 bytes, not shown]",
            r#"File { name: "bill.pdf", source: Base64 { media_type: "application/pdf", data: "AA==" } }"#,
            "[c: file:///c]",
            "[D: file:///d, text/csv, 9 bytes] All of it.",
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
        assert_eq!(texts(both), ["one", r#"{"n":1}"#]);
        let same = given(json!({
            "content": [{"type": "text", "text": "{ \"n\": 1 }"}],
            "structuredContent": {"n": 1},
        }));
        assert_eq!(texts(same.expect("a success")), [r#"{ "n": 1 }"#]);
        let alone = given(json!({"content": [], "structuredContent": {"n": 1}}));
        assert_eq!(alone, Ok(Output::json(json!({"n": 1}))));
        let large = given(json!({"structuredContent": "x".repeat(VALUE_BYTES_MAX)}));
        assert_eq!(large.expect("a success").value, None);
    }

    #[test]
    fn what_is_not_understood_becomes_a_note_and_the_rest_is_kept() {
        let output = given(json!({"content": [
            {"type": "text", "text": "seen"}, {"type": "hologram"}, {"type": 3}, null, 7,
            {"type": "text"}, {"text": "untyped"}, {"type": "image", "mimeType": "image/png"},
            {"type": "text", "text": "after", "annotations": "x", "_meta": []},
        ], "_meta": "x", "structuredContent": null}));
        let unknown = "[content of an unsupported kind";
        let expected = [
            "seen",
            &format!("{unknown}: hologram]"),
            &format!("{unknown}]"),
            &format!("{unknown}]"),
            &format!("{unknown}]"),
            &format!("{unknown}: text]"),
            "untyped",
            &format!("{unknown}: image]"),
            "after",
        ];
        assert_eq!(texts(output.expect("a success")), expected);
        for (odd, text) in [
            (json!({"content": "plain"}), "plain"),
            (json!({"content": {"type": "text", "text": "one"}}), "one"),
            (json!({"content": [], "structuredContent": [1]}), "[1]"),
        ] {
            assert_eq!(texts(given(odd).expect("a success")), [text]);
        }
        for nothing in [json!({}), json!(null), json!({"content": null})] {
            assert_eq!(given(nothing), Ok(Output::default()));
        }
        let many = vec![json!({"type": "text", "text": "x"}); BLOCKS_MAX + 2];
        let output = given(json!({ "content": many })).expect("a success");
        let last = texts(output).pop();
        assert_eq!(last.as_deref(), Some("[2 more parts, not shown]"));
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
