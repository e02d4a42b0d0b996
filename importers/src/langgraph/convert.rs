//! Turns LangChain's messages into a transcript.

use mainspring_shared::message::{Arguments, ContentPart, plain_text};
use mainspring_shared::time::Timestamp;
use serde_json::Value;

use super::serde::CLASS;
use crate::error::Error;
use crate::parts;
use crate::transcript::{Answered, Called, Transcript};

/// Adds the messages of a channel.
pub(super) fn messages(
    transcript: &mut Transcript,
    messages: &Value,
    at: Timestamp,
) -> Result<(), Error> {
    let list = match messages {
        Value::Array(list) => list.as_slice(),
        Value::Null => &[],
        _ => return Err(Error::shape("the channel is no list of messages")),
    };
    for message in list {
        one(transcript, message, at);
    }
    Ok(())
}

/// The role of a message: its own type, or that of its class.
fn role(message: &Value) -> &str {
    let named = message["type"].as_str().or(message["role"].as_str());
    let class = message[CLASS].as_str().unwrap_or_default();
    match named.unwrap_or(class) {
        "human" | "user" | "HumanMessage" | "HumanMessageChunk" => "user",
        "ai" | "assistant" | "AIMessage" | "AIMessageChunk" => "assistant",
        "tool" | "function" | "ToolMessage" | "FunctionMessage" | "ToolMessageChunk" => "tool",
        "system" | "developer" | "SystemMessage" | "SystemMessageChunk" => "system",
        "chat" => message["role"].as_str().unwrap_or("chat"),
        other => other,
    }
}

fn one(transcript: &mut Transcript, message: &Value, at: Timestamp) {
    let content = parts::content(transcript, &message["content"]);
    for (member, name) in [
        ("usage_metadata", "usage of messages"),
        ("artifact", "artifacts of tools"),
    ] {
        if !message[member].is_null() {
            transcript.leave(name);
        }
    }
    match role(message) {
        "user" => transcript.user(content, at, true),
        "assistant" => {
            let thoughts = message["additional_kwargs"]["reasoning_content"].as_str();
            let mut all: Vec<ContentPart> =
                thoughts.and_then(parts::reasoning).into_iter().collect();
            all.extend(content);
            let calls = calls(message);
            transcript.assistant(all, calls, at);
        }
        "tool" => {
            let text = |name: &str| message[name].as_str().map(str::to_owned);
            let answered = Answered {
                call: text("tool_call_id").unwrap_or_default(),
                name: text("name"),
                content,
                failed: message["status"] == "error",
            };
            transcript.result(answered, at);
        }
        "system" => {
            let is_first =
                transcript.len() == 0 && transcript.session.agent.system_prompt.is_none();
            if is_first {
                let text = plain_text(&content).replace('\0', "\u{fffd}");
                transcript.session.agent.system_prompt = (!text.is_empty()).then_some(text);
            } else {
                transcript.leave("messages of role system, kept as the user's");
                said_by(transcript, "system", content, at);
            }
        }
        other => {
            transcript.leave(&format!("messages of role {other}, kept as the user's"));
            said_by(transcript, other, content, at);
        }
    }
}

fn said_by(transcript: &mut Transcript, who: &str, content: Vec<ContentPart>, at: Timestamp) {
    let mut all = vec![ContentPart::text(format!("[{who}]"))];
    all.extend(content);
    transcript.user(all, at, false);
}

/// The calls of a message, with those whose arguments are no JSON.
fn calls(message: &Value) -> Vec<Called> {
    let lists = [&message["tool_calls"], &message["invalid_tool_calls"]];
    let calls = lists.iter().filter_map(|list| list.as_array()).flatten();
    let calls = calls.map(|call| {
        let text = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
        let arguments = match &call["args"] {
            Value::String(text) => Arguments::read(text),
            Value::Null => Arguments::read(""),
            value => Arguments::from(value.clone()),
        };
        Called {
            id: text("id"),
            name: text("name"),
            arguments,
        }
    });
    calls.collect()
}

#[cfg(test)]
mod tests {
    use mainspring_shared::message::Role;
    use serde_json::json;

    use super::*;
    use crate::session::{Session, System};

    #[test]
    fn a_thread_with_tools_becomes_a_transcript() {
        let said = json!([
            {"type": "system", "content": "Be brief."},
            {"type": "human", "content": [{"type": "text", "text": "weather?"}]},
            {"type": "ai", "content": "", "additional_kwargs": {"reasoning_content": "hm"},
             "tool_calls": [{"name": "weather", "args": {"city": "Ulm"}, "id": "c1", "type": "tool_call"}]},
            {"type": "tool", "content": "rain", "tool_call_id": "c1", "status": "error", "artifact": {"a": 1}},
            {"type": "ai", "content": "It rains.", "tool_calls": [], "usage_metadata": {"input_tokens": 1}},
            {"__class__": "SystemMessage", "content": "Be longer."},
            {"role": "critic", "type": "chat", "content": "Why?"},
        ]);
        let at = Timestamp(1_700_000_000_000);
        let mut transcript = Transcript::new(Session::new(System::LangGraph, "1", at));
        messages(&mut transcript, &said, at).expect("messages");
        let session = transcript.finish();
        assert_eq!(session.agent.system_prompt.as_deref(), Some("Be brief."));
        let told: Vec<_> = session
            .messages
            .iter()
            .map(|it| (it.role, plain_text(&it.content)))
            .collect();
        let expected = [
            (Role::User, "weather?"),
            (Role::Assistant, ""),
            (Role::Tool, "rain"),
            (Role::Assistant, "It rains."),
            (Role::User, "[system]\n\nBe longer."),
            (Role::User, "[critic]\n\nWhy?"),
        ];
        assert_eq!(told, expected.map(|(role, text)| (role, text.to_owned())));
        assert!(session.messages[2].failed);
        assert_eq!(
            session.messages[1].tool_calls[0].arguments.text(),
            r#"{"city":"Ulm"}"#
        );
        assert_eq!(session.left_out.iter().count(), 4);
    }

    #[test]
    fn messages_of_any_shape_are_no_panic() {
        for odd in [
            json!([]),
            json!([[], 7, null, "x", [[{}, {}, null]]]),
            json!([{"type": "ai", "tool_calls": "x", "content": {"a": 1}}]),
            json!([{"type": "ai", "tool_calls": ["x", null, []], "invalid_tool_calls": {}}]),
            json!([{"type": "tool", "tool_call_id": 7, "content": [[], "x", {"type": 7}]}]),
        ] {
            let at = Timestamp(1_700_000_000_000);
            let mut transcript = Transcript::new(Session::new(System::LangGraph, "1", at));
            let read = messages(&mut transcript, &odd, at);
            read.unwrap_or_else(|error| panic!("{odd}: {error}"));
            let said = odd.as_array().map_or(0, Vec::len);
            let kept = transcript.finish().messages;
            // What has no role is the user's; a result that nothing asked for is left out.
            assert!(kept.len() <= said, "{odd}: {kept:?}");
        }
    }
}
