//! What is stored of a round: messages, calls with their results, the event log's entry.

use mainspring_shared::error::Code;
use mainspring_shared::id::SendId;
use mainspring_shared::message::{ContentPart, Message, NewMessage, Role, ToolCall, plain_text};
use mainspring_shared::send::machine::Answer;
use mainspring_shared::step::RoundRef;
use mainspring_shared::store::CallRow;
use serde_json::json;

use crate::llm::{Error, Finish, Reply};

/// What an answer asks for; an answer that says nothing is no answer.
pub(super) fn classify(reply: &Reply) -> Result<Answer, Error> {
    if reply.finish == Finish::Refused {
        return Ok(Answer::Refused);
    }
    // Calls of an answer that was cut may be cut themselves: they are not made.
    if !reply.tool_calls.is_empty() && reply.finish != Finish::Length {
        return Ok(Answer::Calls);
    }
    if plain_text(&reply.content).trim().is_empty() {
        return Err(Error::BadResponse {
            message: "the answer is empty".into(),
        });
    }
    match reply.finish {
        Finish::Length => Ok(Answer::Cut),
        Finish::Stop | Finish::ToolCalls | Finish::Other(_) | Finish::Refused => Ok(Answer::Final),
    }
}

/// The round for the event log.
pub(super) fn round_ref(reply: &Reply, index: i32) -> RoundRef {
    RoundRef {
        index,
        model: reply.model.clone(),
        usage: reply.usage,
    }
}

/// The assistant's message without its calls.
pub(super) fn answer(reply: &Reply, round: i32) -> NewMessage {
    NewMessage {
        role: Role::Assistant,
        ..NewMessage::user(reply.content.clone(), round)
    }
}

/// The assistant's message with its calls, each call's row, and each call's answer. The ids are
/// made of the send, the round and the place: the same when the round is asked again after a
/// crash, and never those of another round.
pub(super) fn round(reply: &Reply, send: SendId, round: i32) -> (Vec<NewMessage>, Vec<CallRow>) {
    let calls: Vec<ToolCall> = reply
        .tool_calls
        .iter()
        .enumerate()
        .map(|(place, call)| ToolCall {
            id: call_id(send, round, place),
            ..call.clone()
        })
        .collect();
    let mut messages = vec![NewMessage {
        tool_calls: calls.clone(),
        ..answer(reply, round)
    }];
    let mut rows = Vec::with_capacity(calls.len());
    for (place, call) in calls.into_iter().enumerate() {
        let text = format!("error: there is no tool named {:?}", call.name);
        messages.push(NewMessage {
            role: Role::Tool,
            tool_call_id: Some(call.id.clone()),
            name: Some(call.name.clone()),
            asked_back: Some(place as u32 + 1),
            ..NewMessage::user(vec![ContentPart::text(text.clone())], round)
        });
        rows.push(CallRow {
            call_id: call.id,
            index: place as i32,
            name: call.name,
            arguments: call.arguments,
            result: Some(json!({ "code": Code::ToolNotFound, "message": text })),
            failed: true,
        });
    }
    (messages, rows)
}

fn call_id(send: SendId, round: i32, place: usize) -> String {
    format!("call_{}_{round}_{place}", send.0.simple())
}

/// The last thing that the model said in this send: what a send that runs out of rounds answers.
pub(super) fn last_text(messages: &[std::sync::Arc<Message>], send: SendId) -> String {
    let said = messages
        .iter()
        .rev()
        .find(|m| m.role == Role::Assistant && m.send_id == send);
    said.map(|message| plain_text(&message.content))
        .unwrap_or_default()
}
