//! ChatGPT's `conversations.json`: trees of messages, of which one branch is shown.

use std::collections::BTreeSet;

use mainspring_shared::message::{Arguments, ContentPart};
use mainspring_shared::time::Timestamp;
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::parts;
use crate::session::{Session, System, time};
use crate::transcript::{Answered, Called, Transcript};

/// The current branch of a conversation.
pub(super) fn session(id: &str, at: Timestamp, conversation: &mut Value) -> Result<Session, Error> {
    let created_at = seconds(&conversation["create_time"]).unwrap_or(at);
    let mut session = Session::new(System::OpenAi, id, created_at);
    let mut metadata = Map::new();
    if let Some(title) = conversation["title"].as_str() {
        metadata.insert("title".to_owned(), json!(title));
    }
    session.describe(metadata);
    let Value::Object(mapping) = conversation["mapping"].take() else {
        return Err(Error::shape("it has no messages"));
    };
    let current = conversation["current_node"].as_str();
    let branch = branch(&mapping, current.unwrap_or_default());
    let has_words = |node: &&Value| node["message"].is_object();
    let all = mapping.values().filter(has_words).count();
    let mut transcript = Transcript::new(session);
    let mut call = 0;
    for node in &branch {
        say(&mut transcript, &node["message"], &mut call, created_at);
    }
    let kept = branch
        .iter()
        .copied()
        .filter(|node| has_words(node))
        .count();
    let others = all.saturating_sub(kept) as u64;
    transcript
        .session
        .left_out
        .add_many("messages of other branches", others);
    Ok(transcript.finish())
}

/// The nodes from the root to this one. A tree that is none ends where it was before.
fn branch<'a>(mapping: &'a Map<String, Value>, current: &str) -> Vec<&'a Value> {
    let mut seen = BTreeSet::new();
    let mut branch = Vec::new();
    let mut at = Some(current);
    while let Some((name, node)) = at.and_then(|at| mapping.get_key_value(at)) {
        if !seen.insert(name.as_str()) {
            break;
        }
        branch.push(node);
        at = node["parent"].as_str();
    }
    branch.reverse();
    branch
}

/// Adds a message. Tools are called by messages to them, and answer with the next one.
fn say(transcript: &mut Transcript, message: &Value, call: &mut u64, before: Timestamp) {
    if message.is_null() {
        return;
    }
    let at = seconds(&message["create_time"]).unwrap_or(before);
    let to = message["recipient"].as_str().unwrap_or("all");
    let author = &message["author"];
    let role = author["role"].as_str().unwrap_or_default();
    let content = content(transcript, &message["content"]);
    if content.is_empty() {
        // Each conversation begins with such messages.
        return;
    }
    match role {
        "user" => transcript.user(content, at, true),
        "assistant" if to != "all" => {
            *call += 1;
            let text = mainspring_shared::message::plain_text(&content);
            let arguments = match serde_json::from_str::<Value>(&text) {
                Ok(Value::Object(_)) => Arguments::read(&text),
                _ => Arguments::from(json!({ "input": text })),
            };
            let called = Called {
                id: format!("call_{call}"),
                name: to.to_owned(),
                arguments,
            };
            transcript.assistant(Vec::new(), vec![called], at);
        }
        "assistant" => transcript.assistant(content, Vec::new(), at),
        "tool" => {
            let open = format!("call_{call}");
            let is_open = transcript.waits_for(&open);
            let answered = Answered {
                call: if is_open { open } else { String::new() },
                name: author["name"].as_str().map(str::to_owned),
                content,
                failed: false,
            };
            transcript.result(answered, at);
        }
        other => {
            transcript.leave(&format!("messages of role {other}, kept as the user's"));
            let mut all = vec![ContentPart::text(format!("[{other}]"))];
            all.extend(content);
            transcript.user(all, at, false);
        }
    }
}

fn content(transcript: &mut Transcript, content: &Value) -> Vec<ContentPart> {
    match content["content_type"].as_str().unwrap_or_default() {
        "text" | "multimodal_text" => {
            let list = content["parts"].as_array().map_or(&[][..], Vec::as_slice);
            let parts = list.iter().flat_map(|part| {
                if let Some(text) = part.as_str() {
                    return parts::words(text);
                }
                let kind = part["content_type"].as_str().unwrap_or("without a type");
                transcript.leave(&format!("parts of messages: {kind}"));
                parts::words(&format!("[{kind}]"))
            });
            parts.collect()
        }
        "code" | "execution_output" | "tether_quote" | "system_error" => {
            parts::words(content["text"].as_str().unwrap_or_default())
        }
        "thoughts" => {
            let list = content["thoughts"].as_array().into_iter().flatten();
            let texts = list.filter_map(|one| one["content"].as_str());
            texts.filter_map(parts::reasoning).collect()
        }
        "" => Vec::new(),
        other => {
            transcript.leave(&format!("messages: {other}"));
            Vec::new()
        }
    }
}

/// A time in seconds, with fractions.
fn seconds(value: &Value) -> Option<Timestamp> {
    let seconds = value.as_f64().filter(|seconds| seconds.is_finite())?;
    Some(time((seconds * 1_000.0) as i64))
}
