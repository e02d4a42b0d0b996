//! A fold in two phases: the model first saves lasting facts as notes, then writes the summary.
//!
//! The loop is bounded and flat. Calls are recorded and answered with a few words; the run makes
//! them once the fold is attached, as calls of the session's own note tools.

use std::sync::Arc;

use mainspring_shared::message::{ContentPart, Message, NewMessage, Role, ToolCall, plain_text};
use mainspring_shared::model::expect_message_tokens;
use mainspring_shared::session::fold::FoldKind;
use mainspring_shared::usage::Usage;

use super::summary::{summarize, summary};
use super::{Fault, Taken, Written};
use crate::llm::{Chunk, Finish, Reply, Request, ToolSpec, Traced};

/// The agent's tools that a fold may use.
pub(crate) const NOTE_TOOLS: [&str; 2] = ["note_add", "note_update"];

/// Maximum number of model calls that may save notes.
const ROUNDS: usize = 4;

/// Estimated tokens of answers with notes after which the summary is requested.
const TOKENS_MAX: u64 = 10_000;

/// Maximum number of note calls that are made for one fold.
const NOTES_MAX: usize = 16;

/// System prompt of the fold.
const SYSTEM: &str = "You condense the beginning of a conversation in two phases. First save what \
                      is of lasting value with note_add: decisions, preferences and constraints, \
                      facts, open commitments, fixes that were hard to find; one per note, and \
                      refine with note_update instead of repeating. Then, in a message without \
                      calls, write the summary.";

/// Told to the model when it has saved notes for long enough.
const FINISH: &str = "Write the summary now, between <summary> and </summary>.";

/// Asks for notes and a summary. If the model does not reach a summary, it is asked for one alone.
pub(crate) async fn distill(
    client: Traced,
    request: Arc<Request>,
    tools: Vec<Arc<ToolSpec>>,
    taken: &Taken,
) -> Result<Written, Fault> {
    let mut asking = Request {
        system: Some(SYSTEM.to_owned()),
        tools,
        ..Request::clone(&request)
    };
    let (mut notes, mut used, mut answered) = (Vec::new(), Usage::default(), None);
    let mut said = 0;
    for round in 0..=ROUNDS {
        let is_last = round == ROUNDS || said >= TOKENS_MAX;
        if is_last {
            asking.tools.clear();
            push(
                &mut asking,
                NewMessage::user(vec![ContentPart::text(FINISH)], 0),
            );
        }
        if round > 0 {
            taken.asks(&asking);
        }
        let mut on_chunk = |chunk: Chunk<'_>| taken.hears(&chunk);
        // Recorded notes survive a failure: a plain summary follows.
        let Ok(reply) = client.complete(&asking, &mut on_chunk).await else {
            break;
        };
        used.add(&reply.usage);
        answered = Some(reply.model.clone());
        if reply.tool_calls.is_empty() || is_last {
            if let Some(text) = summary(&plain_text(&reply.content)) {
                return Ok(written(text, reply, used, notes));
            }
            break;
        }
        said += capture(&mut asking, reply, round, &mut notes);
    }
    taken.asks(&request);
    let plain = summarize(client, request, taken).await;
    match plain {
        Ok(Written {
            text,
            reply: Some(reply),
            ..
        }) => {
            used.add(&reply.usage);
            Ok(written(text, reply, used, notes))
        }
        Err(Fault::Empty {
            reply: Some(mut reply),
        }) => {
            reply.usage.add(&used);
            Err(Fault::Empty { reply: Some(reply) })
        }
        Err(Fault::Model(error)) => {
            let Some(model) = answered else {
                return Err(Fault::Model(error));
            };
            tracing::warn!(%error, "could not write a fold's summary; dropping its notes");
            // Earlier answers are paid for.
            let reply = Reply {
                content: Vec::new(),
                tool_calls: Vec::new(),
                finish: Finish::Stop,
                usage: used,
                model,
            };
            Err(Fault::Empty {
                reply: Some(Box::new(reply)),
            })
        }
        other => other,
    }
}

fn written(text: String, reply: Reply, used: Usage, notes: Vec<ToolCall>) -> Written {
    Written {
        kind: FoldKind::Agentic,
        text,
        reply: Some(Reply {
            usage: used,
            ..reply
        }),
        notes,
    }
}

/// Records the calls of an answer and answers them. Returns the approximate tokens of the answer.
fn capture(asking: &mut Request, reply: Reply, round: usize, notes: &mut Vec<ToolCall>) -> u64 {
    let calls = reply.tool_calls.into_iter().enumerate();
    let calls: Vec<ToolCall> = calls
        .map(|(place, call)| ToolCall {
            // Models reuse the ids of earlier rounds.
            id: format!("fold_{round}_{place}"),
            ..call
        })
        .collect();
    let said = NewMessage {
        role: Role::Assistant,
        tool_calls: calls.clone(),
        ..NewMessage::user(reply.content, 0)
    };
    push(asking, said);
    let tokens = asking
        .messages
        .last()
        .map(|said| expect_message_tokens(said));
    for (call, back) in calls.into_iter().zip(1..) {
        let known = NOTE_TOOLS.contains(&call.name.as_str());
        let text = match known {
            true if notes.len() < NOTES_MAX => "saved",
            true => "error: no more notes can be saved; write the summary",
            false => "error: unknown tool",
        };
        let answer = NewMessage {
            role: Role::Tool,
            tool_call_id: Some(call.id.clone()),
            name: Some(call.name.clone()),
            failed: text != "saved",
            asked_back: Some(back),
            ..NewMessage::user(vec![ContentPart::text(text)], 0)
        };
        push(asking, answer);
        if text == "saved" {
            notes.push(call);
        }
    }
    tokens.unwrap_or_default()
}

fn push(asking: &mut Request, new: NewMessage) {
    let Some(last) = asking.messages.last() else {
        return;
    };
    let message: Message = new.at(last.seq + 1, last.send_id, last.created_at, 0);
    asking.messages.push(Arc::new(message));
}
