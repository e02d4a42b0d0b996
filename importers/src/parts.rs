//! Content in the forms of OpenAI, Anthropic and LangChain.
//!
//! Only what the source itself holds is read: paths and addresses are never opened.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mainspring_shared::blob::{BlobHash, BlobRef};
use mainspring_shared::message::{ContentPart, FileSource, ImageSource};
use serde_json::Value;
use serde_json::value::Index;

use crate::session::Blob;
use crate::transcript::Transcript;

/// Reads content: a text, a list of parts, or nothing.
pub(crate) fn content(transcript: &mut Transcript, content: &Value) -> Vec<ContentPart> {
    match content {
        Value::Null => Vec::new(),
        Value::String(text) => words(text),
        Value::Array(list) => {
            let parts = list.iter().flat_map(|part| one(transcript, part));
            parts.collect()
        }
        Value::Object(_) => one(transcript, content),
        Value::Bool(_) | Value::Number(_) => words(&content.to_string()),
    }
}

/// A text as parts; an empty one is none.
pub(crate) fn words(text: &str) -> Vec<ContentPart> {
    if text.is_empty() {
        return Vec::new();
    }
    vec![ContentPart::text(text)]
}

/// A text of the model's thoughts.
pub(crate) fn reasoning(text: &str) -> Option<ContentPart> {
    (!text.is_empty()).then(|| ContentPart::Reasoning {
        text: text.to_owned(),
        signature: None,
        origin: None,
    })
}

fn one(transcript: &mut Transcript, part: &Value) -> Vec<ContentPart> {
    if let Value::String(text) = part {
        return words(text);
    }
    let text = |name: &str| part[name].as_str().unwrap_or_default();
    match text("type") {
        "text" | "input_text" | "output_text" | "summary_text" | "text-plain" => {
            words(text("text"))
        }
        "refusal" => words(text("refusal")),
        "thinking" | "reasoning" | "reasoning_text" => thoughts(transcript, part),
        "image_url" => {
            let url = part["image_url"]["url"].as_str();
            image_at(transcript, url.unwrap_or(text("image_url")))
        }
        "input_image" if part["image_url"].is_string() => image_at(transcript, text("image_url")),
        "image" => image(transcript, part),
        "file" if part["file"].is_object() => file(transcript, &part["file"]),
        "input_file" | "file" | "document" => file(transcript, part),
        "attachment" => attachment(transcript, &part["attachment"]),
        // These stand among the message's calls as well.
        "tool_use" | "tool_call" | "function_call" | "input_json_delta" => Vec::new(),
        "" => {
            transcript.leave("parts of messages without a type");
            Vec::new()
        }
        other => {
            transcript.leave(&format!("parts of messages of type {other}"));
            Vec::new()
        }
    }
}

/// What a model thought. Signatures are of use to the endpoint alone that made them.
fn thoughts(transcript: &mut Transcript, part: &Value) -> Vec<ContentPart> {
    if part["signature"].is_string() || part["encrypted_content"].is_string() {
        transcript.leave("signatures of reasoning");
    }
    let text = ["thinking", "reasoning", "text"]
        .iter()
        .find_map(|name| part[name].as_str());
    let lists = [&part["summary"], &part["content"]];
    let listed = lists.iter().filter_map(|list| list.as_array()).flatten();
    let listed = listed.filter_map(|one| one["text"].as_str());
    text.into_iter()
        .chain(listed)
        .filter_map(reasoning)
        .collect()
}

/// An image at an address: a `data:` URL, or one that providers fetch.
fn image_at(transcript: &mut Transcript, url: &str) -> Vec<ContentPart> {
    let source = match data(url) {
        Some((media_type, data)) => ImageSource::Base64 {
            media_type: media_type.to_owned(),
            data: data.to_owned(),
        },
        None => ImageSource::Url {
            url: url.to_owned(),
        },
    };
    media(transcript, ContentPart::Image { source })
}

/// Anthropic's and LangChain's images.
fn image(transcript: &mut Transcript, part: &Value) -> Vec<ContentPart> {
    let source = inner(part);
    if let Some((media_type, data)) = bytes(source) {
        let source = ImageSource::Base64 {
            media_type: media_type.to_owned(),
            data: data.to_owned(),
        };
        return media(transcript, ContentPart::Image { source });
    }
    if let Some(url) = source["url"].as_str() {
        return image_at(transcript, url);
    }
    transcript.leave("images that the source does not hold");
    words("[an image]")
}

/// Files in any of the forms.
fn file(transcript: &mut Transcript, part: &Value) -> Vec<ContentPart> {
    let source = inner(part);
    let given = ["filename", "title", "name"]
        .iter()
        .find_map(|name| part[name].as_str());
    let name: String = given.unwrap_or("file").chars().take(100).collect();
    let name = name.replace(char::is_control, " ");
    let held = part["file_data"].as_str().and_then(data).or(bytes(source));
    if let Some((media_type, data)) = held {
        let source = FileSource::Base64 {
            media_type: media_type.to_owned(),
            data: data.to_owned(),
        };
        return media(transcript, ContentPart::File { name, source });
    }
    if let Some(text) = source["text"].as_str().or(source["data"].as_str()) {
        let source = FileSource::Text {
            text: text.to_owned(),
        };
        return media(transcript, ContentPart::File { name, source });
    }
    transcript.leave("files that the source does not hold");
    words(&format!("[the file {name}]"))
}

/// A file that the source names by its path.
fn attachment(transcript: &mut Transcript, part: &Value) -> Vec<ContentPart> {
    transcript.leave("attachments, whose files are not in the database");
    let name = part["filename"].as_str().unwrap_or("attachment");
    words(&format!("[the file {name}]"))
}

/// Where the bytes of a part are described.
fn inner(part: &Value) -> &Value {
    if part["source"].is_object() {
        &part["source"]
    } else {
        part
    }
}

/// The media type and the base64 of a part that holds them.
fn bytes(source: &Value) -> Option<(&str, &str)> {
    let media_type = source["media_type"]
        .as_str()
        .or(source["mime_type"].as_str())?;
    let kind = source["type"].as_str().or(source["source_type"].as_str());
    let is_text = kind == Some("text");
    let data = source["base64"].as_str().or(source["data"].as_str())?;
    (!is_text).then_some((media_type, data))
}

/// The media type and the base64 of a `data:` URL.
fn data(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?.split(';').next()?;
    Some((media_type, data))
}

/// An image or a file, with its bytes kept as a blob; what providers would refuse becomes a note.
fn media(transcript: &mut Transcript, part: ContentPart) -> Vec<ContentPart> {
    let what = if matches!(part, ContentPart::Image { .. }) {
        "image"
    } else {
        "file"
    };
    if let Some(fault) = part.media_fault() {
        transcript.leave(&format!("{what}s that models do not read"));
        return words(
            &format!("[an {what} was left out: it {}]", fault.detail).replace("an f", "a f"),
        );
    }
    let Some((media_type, data)) = part.inline() else {
        return vec![part];
    };
    let decoded = STANDARD.decode(data).unwrap_or_default();
    if decoded.is_empty() {
        transcript.leave(&format!("{what}s without content"));
        return words(&format!("[an empty {what}]"));
    }
    let name = BlobRef {
        sha256: BlobHash::of(&decoded),
        media_type: media_type.to_owned(),
        bytes: decoded.len() as u64,
    };
    transcript.keep(Blob {
        name: name.clone(),
        data: decoded,
    });
    vec![part.naming(name)]
}

/// Takes a member or an item out of a value; null if there is none, whatever the value is.
pub(crate) fn taken(value: &mut Value, at: impl Index) -> Value {
    value.get_mut(at).map(Value::take).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use mainspring_shared::time::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::session::{Session, System};

    const PNG: &str = "iVBORw0KGgo=";

    fn read(value: &Value) -> (Vec<ContentPart>, Session) {
        let session = Session::new(System::LangGraph, "1", Timestamp(0));
        let mut transcript = Transcript::new(session);
        let parts = content(&mut transcript, value);
        (parts, transcript.finish())
    }

    #[test]
    fn images_of_each_vendor_become_the_same_blob() {
        let url = format!("data:image/png;base64,{PNG}");
        let forms = json!([
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "image_url", "image_url": url},
            {"type": "input_image", "image_url": url},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            {"type": "image", "base64": PNG, "mime_type": "image/png"},
            {"type": "image", "source_type": "base64", "data": PNG, "mime_type": "image/png"},
        ]);
        let (parts, session) = read(&forms);
        assert_eq!(parts.len(), 6);
        assert!(parts.windows(2).all(|two| two[0] == two[1]), "{parts:?}");
        assert_eq!(session.blobs.len(), 1);
        assert_eq!(session.blobs[0].data, STANDARD.decode(PNG).expect("base64"));
        assert!(session.left_out.is_empty());
    }

    #[test]
    fn what_cannot_be_kept_is_told() {
        let (parts, session) = read(&json!([
            "hello",
            {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
            {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2Zz4="}},
            {"type": "input_file", "file_id": "file-1", "filename": "a\u{7}.pdf"},
            {"type": "attachment", "attachment": {"path": "/etc/passwd", "filename": "passwd"}},
            {"type": "audio", "data": "…"},
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {},
            {"type": "tool_use", "id": "1", "name": "look", "input": {}},
        ]));
        let texts: Vec<&str> = mainspring_shared::message::texts(&parts).collect();
        assert_eq!(
            texts,
            [
                "hello",
                "[an image was left out: it must be an https address]",
                "[an image was left out: it must be one of image/gif, image/jpeg, image/png, image/webp]",
                "[the file a .pdf]",
                "[the file passwd]",
            ]
        );
        let left: Vec<_> = session.left_out.iter().collect();
        assert_eq!(
            left,
            [
                ("attachments, whose files are not in the database", 1),
                ("files that the source does not hold", 1),
                ("images that models do not read", 2),
                ("parts of messages of type audio", 1),
                ("parts of messages without a type", 1),
                ("signatures of reasoning", 1),
            ]
        );
    }
}
