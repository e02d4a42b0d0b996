//! A transcript as its messages.

use mainspring_scheduler::App;
use mainspring_shared::message::{Message, Role};
use mainspring_shared::send::SendRecord;
use mainspring_shared::store::{self, ReadMessages};
use serde_json::{Value, json};

use super::encode::message_id;
use crate::openai::listen::words;

/// How much of a transcript is shown, from its end.
const MESSAGES: i64 = 500;

/// What a client is to show in place of all that it has, and the place of the last message of it.
pub(super) async fn snapshot(app: &App, send: &SendRecord) -> store::Result<(Vec<Value>, i64)> {
    let session = app.store.get_session(send.key).await?;
    let last = session.map_or(0, |session| session.last_seq());
    let wanted = ReadMessages {
        key: send.key,
        after: (last - MESSAGES).max(0),
        limit: MESSAGES as u32,
    };
    let messages = app.store.read_messages(wanted).await?;
    let seen = messages.last().map_or(0, |message| message.seq);
    let is_there = messages.iter().any(|message| message.send_id == send.id);
    let mut shown: Vec<Value> = messages.iter().filter_map(of).collect();
    if !is_there {
        // It is stored with the first answer to it.
        let (_, text) = words(send.effective_input());
        let id = format!("usr_{}", send.id.0.simple());
        shown.push(json!({ "id": id, "role": "user", "content": text }));
    }
    Ok((shown, seen))
}

fn of(message: &Message) -> Option<Value> {
    let (_, text) = words(&message.content);
    match message.role {
        Role::User => {
            let id = format!("usr_{}_{}", message.send_id.0.simple(), message.seq);
            Some(json!({ "id": id, "role": "user", "content": text }))
        }
        Role::Assistant => {
            let calls = message.tool_calls.iter().map(|call| {
                json!({
                    "id": call.id, "type": "function",
                    "function": { "name": call.name, "arguments": call.arguments.text() },
                })
            });
            let calls: Vec<Value> = calls.collect();
            if text.is_empty() && calls.is_empty() {
                return None;
            }
            let id = message_id(message.send_id, message.round, None);
            let mut shown = json!({ "id": id, "role": "assistant", "content": text });
            if !calls.is_empty() {
                shown["toolCalls"] = json!(calls);
            }
            Some(shown)
        }
        Role::Tool => {
            let call = message.tool_call_id.as_ref()?;
            Some(
                json!({ "id": format!("res_{call}"), "role": "tool", "toolCallId": call, "content": text }),
            )
        }
    }
}
