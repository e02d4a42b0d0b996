//! What a request says was said: items of the Responses API and messages of chat completions, in one form.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mainspring_shared::json::Sorted;
use mainspring_shared::message::{ContentPart, FileSource, ImageSource, Message, Role};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::listen::{Called, words};
use crate::validate::Checks;

/// One thing that was said.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Given {
    /// Instructions of the developer.
    System(String),
    /// By the user.
    User(Vec<ContentPart>),
    /// By the model.
    Assistant { text: String, calls: Vec<Called> },
    /// The result of a call.
    Output {
        call: String,
        parts: Vec<ContentPart>,
        at: String,
    },
}

/// One thing of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Item {
    /// What was said.
    Said(Given),
    /// The id of what was said, in the form of this API.
    Named { id: String, at: String },
}

/// All that was said, in parts with different fates.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// What was said before, which may be stored already.
    pub(super) history: Vec<Given>,
    /// What the user says now.
    pub(super) input: Vec<ContentPart>,
    /// The results of calls that are answered now.
    pub(super) outputs: Vec<(String, Vec<ContentPart>, String)>,
}

impl Told {
    /// Separates what is said now from what was said before. `is_ours` tells whether a call was made here: the result
    /// of one that was not is only history, if the user says something behind it.
    pub(super) fn of(given: Vec<Given>, is_ours: impl Fn(&str) -> bool) -> Self {
        let mut told = Self {
            history: given,
            ..Self::default()
        };
        told.history.retain(|one| !matches!(one, Given::System(_)));
        let is_now = |one: &Given| matches!(one, Given::User(_) | Given::Output { .. });
        let mut before = told
            .history
            .iter()
            .rposition(|one| !is_now(one))
            .map_or(0, |last| last + 1);
        let theirs = told.history[before..]
            .iter()
            .rposition(|one| matches!(one, Given::Output { call, .. } if !is_ours(call)));
        if let Some(theirs) = theirs
            && before + theirs + 1 < told.history.len()
        {
            before += theirs + 1;
        }
        for now in told.history.split_off(before) {
            match now {
                Given::User(parts) => told.input.extend(parts),
                Given::Output { call, parts, at } => told.outputs.push((call, parts, at)),
                Given::System(_) | Given::Assistant { .. } => {}
            }
        }
        told
    }

    /// A name for what the user says with results of calls: the same for every repeat of the request.
    pub(super) fn name(&self) -> String {
        let calls = self.outputs.iter().map(|(call, ..)| call.clone());
        let said: Vec<String> = calls.chain(self.input.iter().map(digest)).collect();
        hex(said.join("\n").as_bytes())[..32].to_owned()
    }
}

/// The developer's instructions, behind those of the request.
pub(super) fn instructions(own: Option<String>, items: &[Item]) -> Option<String> {
    let said = items.iter().filter_map(|item| match item {
        Item::Said(Given::System(text)) => Some(text.clone()),
        Item::Said(Given::User(_) | Given::Assistant { .. } | Given::Output { .. })
        | Item::Named { .. } => None,
    });
    let all: Vec<String> = own.into_iter().chain(said).collect();
    (!all.is_empty()).then(|| all.join("\n\n"))
}

/// Adds one thing. What the model said is added to what it said just before.
pub(super) fn push(given: &mut Vec<Given>, one: Given) {
    match (given.last_mut(), one) {
        (
            Some(Given::Assistant { text, calls }),
            Given::Assistant {
                text: said,
                calls: called,
            },
        ) => {
            join(text, &said);
            calls.extend(called);
        }
        (_, one) => given.push(one),
    }
}

/// Adds a paragraph.
pub(super) fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}

/// Reads items of the Responses API.
pub(super) fn items(checks: &mut Checks, items: &[Value], at: &str) -> Vec<Item> {
    let mut given = Vec::new();
    for (place, item) in items.iter().enumerate() {
        let at = format!("{at}/{place}");
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        let plain = if item["role"].is_null() && item["id"].is_string() {
            "item_reference"
        } else {
            "message"
        };
        match item["type"].as_str().unwrap_or(plain) {
            "message" => given.extend(message(checks, item, &at).map(Item::Said)),
            "function_call" => {
                let called = Called {
                    id: text("call_id"),
                    name: text("name"),
                    arguments: text("arguments"),
                };
                given.push(Item::Said(Given::Assistant {
                    text: String::new(),
                    calls: vec![called],
                }));
            }
            "function_call_output" => {
                let parts = content(checks, &item["output"], &format!("{at}/output"));
                given.push(Item::Said(Given::Output {
                    call: text("call_id"),
                    parts,
                    at: at.clone(),
                }));
            }
            "item_reference" => given.push(Item::Named { id: text("id"), at }),
            // What a model thought is of no use to another one, and the session has what is.
            "reasoning" => {}
            other => checks.refuse(
                &format!("{at}/type"),
                &format!("{other:?} is not supported here"),
            ),
        }
    }
    given
}

/// Reads a message of either API.
pub(super) fn message(checks: &mut Checks, item: &Value, at: &str) -> Option<Given> {
    let mut said = || content(checks, &item["content"], &format!("{at}/content"));
    match item["role"].as_str().unwrap_or_default() {
        "user" => Some(Given::User(said())),
        "assistant" => Some(Given::Assistant {
            text: words(&said()).1,
            calls: Vec::new(),
        }),
        "system" | "developer" => Some(Given::System(words(&said()).1)),
        other => {
            let detail = format!("{other:?} is not a role here");
            checks.refuse(&format!("{at}/role"), &detail);
            None
        }
    }
}

/// Reads content: a text, or a list of parts of either API.
pub(super) fn content(checks: &mut Checks, content: &Value, at: &str) -> Vec<ContentPart> {
    let list = match content {
        Value::Null => return Vec::new(),
        Value::String(text) => return text_part(checks, text, at).into_iter().collect(),
        Value::Array(list) => list,
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            checks.refuse(at, "must be a text or a list of parts");
            return Vec::new();
        }
    };
    let parts = list.iter().enumerate().filter_map(|(place, part)| {
        let at = format!("{at}/{place}");
        match part["type"].as_str().unwrap_or_default() {
            "input_text" | "output_text" | "text" => text_part(
                checks,
                part["text"].as_str().unwrap_or_default(),
                &format!("{at}/text"),
            ),
            "refusal" => text_part(checks, part["refusal"].as_str().unwrap_or_default(), &at),
            "input_image" => image(
                checks,
                part["image_url"].as_str(),
                &format!("{at}/image_url"),
            ),
            "image_url" => image(
                checks,
                part["image_url"]["url"].as_str(),
                &format!("{at}/image_url/url"),
            ),
            "input_file" => file(checks, part, &at),
            "file" => file(checks, &part["file"], &format!("{at}/file")),
            other => {
                checks.refuse(
                    &format!("{at}/type"),
                    &format!("{other:?} is not supported here"),
                );
                None
            }
        }
    });
    parts.collect()
}

fn text_part(checks: &mut Checks, text: &str, at: &str) -> Option<ContentPart> {
    if text.contains('\0') {
        checks.refuse(at, "must not contain U+0000");
    }
    (!text.is_empty()).then(|| ContentPart::text(text))
}

fn image(checks: &mut Checks, url: Option<&str>, at: &str) -> Option<ContentPart> {
    let Some(url) = url else {
        checks.refuse(
            at,
            "is needed: files of OpenAI's own store are not supported",
        );
        return None;
    };
    let source = match data(url) {
        Some((media_type, data)) => ImageSource::Base64 { media_type, data },
        None => ImageSource::Url {
            url: url.to_owned(),
        },
    };
    let part = ContentPart::Image { source };
    let before = part.media_fault();
    if let Some(fault) = before {
        checks.refuse(at, &fault.detail);
    }
    Some(part)
}

fn file(checks: &mut Checks, part: &Value, at: &str) -> Option<ContentPart> {
    let at = format!("{at}/file_data");
    let Some((media_type, data)) = part["file_data"].as_str().and_then(data) else {
        checks.refuse(
            &at,
            "must be a data: URL in Base64; other files are not supported",
        );
        return None;
    };
    let name = part["filename"].as_str().unwrap_or("file").to_owned();
    let part = ContentPart::File {
        name,
        source: FileSource::Base64 { media_type, data },
    };
    if let Some(fault) = part.media_fault() {
        checks.refuse(&at, &fault.detail);
    }
    Some(part)
}

/// The media type and the Base64 text of a `data:` URL.
fn data(url: &str) -> Option<(String, String)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?.split(';').next()?;
    Some((media_type.to_owned(), data.to_owned()))
}

/// What was said, in a form in which a transcript and what a client sends of it are equal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    User(Vec<String>),
    Assistant(String, Vec<(String, String, String)>),
    /// Of a result only the call is compared: long ones are stored shortened.
    Output(String),
}

/// The lines of what a client says was said before.
pub(super) fn lines(given: &[Given]) -> Vec<Line> {
    let mut lines = Vec::new();
    for one in given {
        match one {
            Given::System(_) => {}
            Given::User(parts) => push_user(&mut lines, parts),
            Given::Assistant { text, calls } => {
                push_line(
                    &mut lines,
                    text,
                    calls
                        .iter()
                        .map(|call| (&*call.id, &*call.name, call.arguments.clone())),
                );
            }
            Given::Output { call, .. } => lines.push(Line::Output(call.clone())),
        }
    }
    lines
}

/// The lines of a transcript. `is_function` tells the calls that clients see.
pub(super) fn lines_of(
    messages: &[Message],
    is_function: impl Fn(&Message, &str) -> bool,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut seen = BTreeSet::new();
    for message in messages {
        match message.role {
            Role::User => push_user(&mut lines, &message.content),
            Role::Assistant => {
                let calls = message
                    .tool_calls
                    .iter()
                    .filter(|call| is_function(message, &call.name));
                let calls: Vec<_> = calls
                    .map(|call| (&*call.id, &*call.name, call.arguments.text().into_owned()))
                    .collect();
                seen.extend(calls.iter().map(|(id, ..)| (*id).to_owned()));
                push_line(&mut lines, &words(&message.content).1, calls.into_iter());
            }
            Role::Tool => {
                let call = message.tool_call_id.clone().unwrap_or_default();
                if seen.contains(&call) {
                    lines.push(Line::Output(call));
                }
            }
        }
    }
    lines
}

fn push_user(lines: &mut Vec<Line>, parts: &[ContentPart]) {
    let parts = parts.iter().map(digest);
    if let Some(Line::User(all)) = lines.last_mut() {
        all.extend(parts);
    } else {
        lines.push(Line::User(parts.collect()));
    }
}

fn push_line<'a>(
    lines: &mut Vec<Line>,
    text: &str,
    calls: impl Iterator<Item = (&'a str, &'a str, String)>,
) {
    let calls = calls.map(|(id, name, arguments)| {
        let value = serde_json::from_str::<Value>(&arguments);
        let plain = value
            .ok()
            .and_then(|value| serde_json::to_string(&Sorted(&value)).ok());
        (id.to_owned(), name.to_owned(), plain.unwrap_or(arguments))
    });
    let text = text.trim();
    if let Some(Line::Assistant(said, called)) = lines.last_mut() {
        join(said, text);
        called.extend(calls);
    } else {
        lines.push(Line::Assistant(text.to_owned(), calls.collect()));
    }
}

/// A part in a form that does not depend on where its bytes are.
fn digest(part: &ContentPart) -> String {
    let of = |data: &str| {
        STANDARD
            .decode(data)
            .map_or_else(|_| data.to_owned(), |bytes| hex(&bytes))
    };
    match part {
        ContentPart::Text { text } => format!("text {}", text.trim()),
        ContentPart::Image {
            source: ImageSource::Base64 { data, .. },
        }
        | ContentPart::File {
            source: FileSource::Base64 { data, .. },
            ..
        } => format!("bytes {}", of(data)),
        ContentPart::Image {
            source: ImageSource::Blob { sha256, .. },
        }
        | ContentPart::File {
            source: FileSource::Blob { sha256, .. },
            ..
        } => format!("bytes {sha256}"),
        ContentPart::Image {
            source: ImageSource::Url { url },
        } => format!("url {url}"),
        ContentPart::File {
            source: FileSource::Text { text },
            ..
        } => format!("bytes {}", hex(text.as_bytes())),
        ContentPart::Reasoning { .. } | ContentPart::Digest { .. } | ContentPart::Attached(_) => {
            String::new()
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    crate::archive::hex(&Sha256::digest(bytes))
}

/// What the sessions are found by in which something may have been said before: whom it was said to, and the first
/// words.
pub(super) fn opening(to: &str, lines: &[Line]) -> Option<String> {
    let first = lines.iter().find_map(|line| match line {
        Line::User(parts) => Some(parts.join("\n")),
        Line::Assistant(..) | Line::Output(_) => None,
    })?;
    Some(hex(format!("{to}\n{first}").as_bytes())[..32].to_owned())
}

#[cfg(test)]
mod tests;
