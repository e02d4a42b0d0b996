//! What is stored of a round: messages, calls and the event log's entry.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::error::Code;
use mainspring_shared::id::SendId;
use mainspring_shared::message::{ContentPart, Message, NewMessage, Role, ToolCall, plain_text};
use mainspring_shared::pause::PauseSet;
use mainspring_shared::send::machine::{Answer, End};
use mainspring_shared::send::{StopReason, WaitingOn};
use mainspring_shared::session::shown::{Shown, ShownMemory};
use mainspring_shared::step::RoundRef;
use mainspring_shared::store::{CallBegin, NewCall};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{Approval, CallRecord, CallResult, Repeat, answers, call_id};

use super::model_call::QuestionId;
use super::plan;
use super::vet::Vetted;
use crate::llm::{Error, Finish, Reply};
use crate::tool::{Executor, Offers};

/// Classifies an answer by what it asks for; an empty answer is an error.
pub(super) fn classify(reply: &Reply) -> Result<Answer, Error> {
    if reply.finish == Finish::Refused {
        return Ok(Answer::Refused);
    }
    if reply.finish == Finish::Length {
        return Ok(Answer::Cut);
    }
    if let Finish::Failed(reason) = &reply.finish {
        return Err(Error::bad(format!("the provider gave up: {reason:.200}")));
    }
    if reply.finish == Finish::Paused && !plain_text(&reply.content).trim().is_empty() {
        return Ok(Answer::Part);
    }
    if !reply.tool_calls.is_empty() {
        return Ok(Answer::Calls);
    }
    if plain_text(&reply.content).trim().is_empty() {
        return Err(Error::BadResponse {
            message: "the answer is empty".into(),
        });
    }
    Ok(Answer::Final)
}

/// The round for the event log.
pub(super) fn round_ref(
    reply: &Reply,
    index: i32,
    asked: QuestionId,
    shown: Option<&Shown>,
) -> RoundRef {
    let memory = shown.and_then(|shown| shown.memory.as_ref());
    RoundRef {
        index,
        model: reply.model.clone(),
        usage: reply.usage,
        digest: asked.digest,
        folded: asked.folded,
        aged_to: asked.aged_to,
        recalled: memory.filter(|_| index == 0).map(ShownMemory::recalled),
    }
}

/// What the transcript says where the model said nothing after its tools: providers refuse empty
/// messages.
const SAID_NOTHING: &str = "[empty] The model said nothing after its tools.";

/// The assistant's message without its calls.
pub(super) fn answer(reply: &Reply, round: i32) -> NewMessage {
    let content = if reply.content.is_empty() && reply.tool_calls.is_empty() {
        vec![ContentPart::text(SAID_NOTHING)]
    } else {
        reply.content.clone()
    };
    NewMessage {
        role: Role::Assistant,
        ..NewMessage::user(content, round)
    }
}

/// The message that closes a transcript if the send ends between two rounds, so that the next send
/// begins after an answer. It belongs to the last round, which is already paid for.
pub(super) fn closing(end: End, rounds: i32) -> Option<NewMessage> {
    let text = match end {
        End::Completed(StopReason::RoundLimit) => {
            format!("[round_limit] The work ended here, at its limit of {rounds} rounds.")
        }
        End::Failed(StopReason::Budget, _) => {
            "[budget] The work ended here, because its budget is spent.".to_owned()
        }
        End::Completed(_) | End::Failed(..) | End::Cancelled => return None,
    };
    (rounds > 0).then(|| NewMessage {
        role: Role::Assistant,
        ..NewMessage::user(vec![ContentPart::text(text)], rounds - 1)
    })
}

/// A round with calls, ready to be stored.
#[derive(Debug)]
pub(super) struct Round {
    /// The assistant's message, and the results if every call has one already.
    pub(super) messages: Vec<NewMessage>,
    /// The rows to create.
    pub(super) calls: Vec<NewCall>,
    /// The same rows as they will be once stored.
    pub(super) records: Vec<CallRecord>,
}

/// The send and round that a request belongs to, and the time.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundContext {
    pub(super) key: mainspring_shared::id::SessionKey,
    pub(super) send: SendId,
    pub(super) round: i32,
    pub(super) epoch: i64,
    pub(super) now: Timestamp,
    /// Whether this worker must not start anything new.
    pub(super) stopping: bool,
    /// How long to wait for people's answers, unless the question says otherwise.
    pub(super) answer_within: Option<Duration>,
    /// Whether too little budget is left for any child.
    pub(super) no_children: bool,
}

/// The assistant's message with its calls, and each call's row. Ids are derived from the send, the
/// round and the place: they stay the same when the round is asked again after a crash, and never
/// equal those of another round.
pub(super) fn round(
    reply: &Reply,
    asking: RoundContext,
    (offers, pauses): (&Offers, &PauseSet),
    vetted: &[Vetted],
) -> Round {
    let RoundContext { send, round, .. } = asking;
    let both = reply.tool_calls.iter().zip(vetted).enumerate();
    let calls: Vec<ToolCall> = both
        .map(|(place, (call, vetted))| ToolCall {
            id: call_id(send, round, place),
            arguments: vetted.said.clone(),
            ..call.clone()
        })
        .collect();
    let mut rows = Vec::with_capacity(calls.len());
    for (place, (call, vetted)) in calls.iter().zip(vetted).enumerate() {
        let offer = offers.get(&call.name);
        let begins = match (vetted.result.clone(), offer) {
            (Some(settled), _) => CallBegin::Settled(settled),
            (None, None) => CallBegin::Settled(unknown_tool(&call.name, offers)),
            (None, Some(offer)) if asking.no_children && offer.traits.effect.is_agents_work() => {
                CallBegin::Settled(too_little_for_a_child())
            }
            (None, Some(offer)) if offer.approval => CallBegin::Waits {
                on: WaitingOn::Human,
                approval: true,
                deadline: asking.answer_within,
            },
            (None, Some(offer)) => match &offer.place {
                Executor::Here(_) => CallBegin::Requested,
                Executor::Outside { on, deadline } => {
                    let question = offer.question(&vetted.arguments);
                    let expires = question.map(|asked| asked.expires().or(asking.answer_within));
                    CallBegin::Waits {
                        on: *on,
                        approval: false,
                        deadline: expires.unwrap_or(*deadline),
                    }
                }
            },
        };
        rows.push(NewCall {
            call_id: call.id.clone(),
            round,
            place: place as i32,
            name: call.name.clone(),
            arguments: vetted.arguments.clone(),
            repeat: offer.map_or(Repeat::Safe, |offer| offer.traits.repeat),
            begins,
        });
    }
    let mut records: Vec<CallRecord> = rows.iter().map(|row| record(row, asking)).collect();
    if !asking.stopping {
        // The calls that run first are marked as started when their rows are created, which saves a
        // transaction.
        let is_held = |name: &str| pauses.of_tool(asking.key.tenant, name).is_some();
        for place in plan::first(&records, offers, is_held) {
            rows[place].begins = CallBegin::Started;
            records[place].started_epoch = Some(asking.epoch);
            records[place].attempt = 1;
        }
    }
    let mut messages = vec![NewMessage {
        tool_calls: calls,
        ..answer(reply, round)
    }];
    messages.extend(answers(&records).into_iter().flatten());
    Round {
        messages,
        calls: rows,
        records,
    }
}

fn too_little_for_a_child() -> CallResult {
    let text = "error: too little of the budget is left for other agents; do it yourself, or answer \
                with what you have";
    CallResult::error(Code::BudgetExceeded, text)
}

fn unknown_tool(name: &str, offers: &Offers) -> CallResult {
    let shown: String = name.chars().take(100).collect();
    let mut text = format!("error: there is no tool named {shown:?}");
    if let Some(names) = offers.names() {
        text.push_str("; there are: ");
        text.push_str(&names);
    }
    CallResult::error(Code::ToolNotFound, text)
}

fn record(row: &NewCall, asking: RoundContext) -> CallRecord {
    let mut record = CallRecord {
        call_id: row.call_id.clone(),
        session: asking.key.session,
        send_id: asking.send,
        round: row.round,
        place: row.place,
        name: row.name.clone(),
        arguments: row.arguments.clone(),
        repeat: row.repeat,
        waits_on: None,
        approval: Approval::None,
        started_epoch: None,
        attempt: 0,
        deadline_at: None,
        asked: Vec::new(),
        result: None,
        requested_at: asking.now,
        claim: None,
        settled_at: None,
    };
    match &row.begins {
        CallBegin::Started | CallBegin::Requested => {}
        CallBegin::Waits {
            on,
            approval,
            deadline,
        } => {
            record.waits_on = Some(*on);
            record.deadline_at = deadline.map(|within| asking.now.after(within));
            if *approval {
                record.approval = Approval::Asked;
            }
        }
        CallBegin::Settled(result) => {
            record.result = Some(result.clone());
            record.settled_at = Some(asking.now);
        }
    }
    record
}

/// The last text of the model in this send, which is the answer of a send that runs out of rounds.
pub(super) fn last_text(messages: &[Arc<Message>], send: SendId) -> String {
    let said = messages
        .iter()
        .rev()
        .find(|m| m.role == Role::Assistant && m.send_id == send);
    said.map(|message| plain_text(&message.content))
        .unwrap_or_default()
}
