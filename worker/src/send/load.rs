//! What a send may use and what its model is shown, from its agent, its options and its rows. The
//! preview of a model call uses the same functions.

use std::sync::Arc;

use mainspring_shared::agent::{MAX_ROUNDS_DEFAULT, OutputSpec, ToolChoice};
use mainspring_shared::message::{ContentPart, Message};
use mainspring_shared::send::machine::Rules;
use mainspring_shared::session::fold::Fold;
use mainspring_shared::session::projection::Projection;
use mainspring_shared::session::render::{Conversation, Inputs, Reader, TailPart, render};
use mainspring_shared::session::shown::Shown;
use mainspring_shared::store::{SendTotals, StartedSend};
use mainspring_shared::time::Clock;

use crate::config::WorkerConfig;
use crate::llm::{Request, Resolved};
use crate::tool::{CellOwner, NoCell, Offers, Tools};

/// The name of the model that the send wants; `None` means the default provider's default.
pub(crate) fn model(send: &StartedSend) -> Option<&str> {
    send.record
        .options
        .model
        .as_deref()
        .or(send.agent.model.as_deref())
}

/// The rules of the send's machine.
pub(super) fn rules(send: &StartedSend, config: &WorkerConfig, hooked: bool) -> Rules {
    let rounds = send.record.options.max_rounds.or(send.agent.max_rounds);
    let shown = send.record.shown.as_ref();
    let back = shown.and_then(|shown| shown.sent_back).unwrap_or_default();
    Rules {
        rounds_max: rounds.unwrap_or(MAX_ROUNDS_DEFAULT) + back.rounds,
        crashes_max: config.crashes_max,
        attempts_max: config.attempts_max,
        retry: config.retry,
        hold_max: config.hold_max,
        first_round: send.record.rounds.unsigned_abs(),
        begun: send.record.attempts.unsigned_abs(),
        lost: lost(send),
        recovery: send.agent.recovery,
        decides: hooked && back.times < config.continues_max,
    }
}

/// Model calls of the current round that earlier workers may have begun but did not record. A call
/// whose background answer is taken up is not counted: it is paid for once, with its answer.
pub(super) fn lost(send: &StartedSend) -> u32 {
    let begun = u32::try_from(send.record.attempts - send.record.counted).unwrap_or(0);
    begun.saturating_sub(u32::from(has_background(send)))
}

/// Whether a provider is working on an answer to it in the background.
pub(super) fn has_background(send: &StartedSend) -> bool {
    let shown = send.record.shown.as_ref();
    shown.is_some_and(|shown| shown.background.is_some())
}

/// What is known at once of what the send is shown: the stored value, or else the start of its
/// window.
pub(crate) fn shown(send: &StartedSend, next_seq: i64) -> Option<Shown> {
    let is_bounded = send.agent.context.last_messages.is_some();
    let begins = || Shown {
        from_seq: Some(send.window_from(next_seq)),
        ..Shown::default()
    };
    send.record
        .shown
        .clone()
        .or_else(|| is_bounded.then(begins))
}

/// Where the window of a send with these totals begins.
pub(super) fn window_from(totals: &SendTotals) -> i64 {
    let shown = totals.shown.as_ref();
    shown.and_then(|shown| shown.from_seq).unwrap_or(1)
}

/// The last message of the send, by these totals, whose results count as old.
pub(super) fn aged_to(totals: &SendTotals) -> i64 {
    let shown = totals.shown.as_ref();
    shown.and_then(|shown| shown.aged_to).unwrap_or(0)
}

/// The inputs of one model call of a send.
#[derive(Clone)]
pub(crate) struct Question<'a> {
    /// The send and its agent.
    pub(crate) send: &'a StartedSend,
    /// The round, from 0.
    pub(crate) round: i32,
    /// The model.
    pub(crate) resolved: &'a Resolved,
    /// The tools.
    pub(crate) offers: &'a Offers,
    /// What all rounds of the send are shown.
    pub(crate) shown: Option<&'a Shown>,
    /// The folds, which stand for the messages before the window.
    pub(crate) folds: &'a [Arc<Fold>],
    /// The projections, which stand for the window's first sends.
    pub(crate) projections: &'a [Arc<Projection>],
    /// The messages of the window after them, including those that are not stored yet.
    pub(crate) messages: Vec<Arc<Message>>,
    /// The last message of the send whose results count as old.
    pub(crate) aged_to: i64,
    /// The beginning of the answer, if it was truncated.
    pub(crate) partial: Option<&'a [ContentPart]>,
    /// The required shape of the answer.
    pub(crate) output: Option<&'a Arc<OutputSpec>>,
}

/// The request of a round.
pub(crate) fn request(question: Question<'_>) -> Request {
    let Question { send, resolved, .. } = question;
    let missing = question.offers.missing();
    let has_tools = !question.offers.specs().is_empty();
    render(Inputs {
        model: Reader {
            name: resolved.model.clone(),
            facts: &resolved.facts,
            native_schema: resolved.client.native_schema(&resolved.model, has_tools),
            sounds: resolved.client.sounds(),
        },
        session: send.record.key.session,
        send: send.record.id,
        agent: &send.agent,
        options: &send.record.options,
        round: question.round.unsigned_abs(),
        tools: question.offers.specs(),
        said: Conversation {
            folds: question.folds,
            projections: question.projections,
            messages: question.messages,
            aged_to: question.aged_to,
            partial: question.partial,
        },
        tail: tail(missing.as_deref(), question.shown),
        output: question.output,
    })
}

/// What the model is shown after the messages: the tools that are missing, the notes, the to-do
/// list and the recalled memory.
fn tail<'a>(missing: Option<&'a str>, shown: Option<&'a Shown>) -> Vec<TailPart<'a>> {
    let notes = shown.and_then(|shown| shown.notes.as_deref());
    let notes = notes.map(|text| TailPart::Data { tag: "notes", text });
    let memory = shown.and_then(|shown| shown.memory.as_ref()?.text.as_deref());
    let memory = memory.map(|text| TailPart::Data {
        tag: "memory",
        text,
    });
    let todo = shown.and_then(|shown| shown.todo.as_deref());
    let todo = todo.map(|text| TailPart::Data { tag: "todo", text });
    let missing = missing.map(TailPart::System);
    let lists = notes.into_iter().chain(todo);
    missing.into_iter().chain(lists).chain(memory).collect()
}

/// The tools and skills that a send's model is offered.
pub(crate) async fn offers(
    tools: &Tools,
    clock: &dyn Clock,
    send: &StartedSend,
) -> Result<Offers, NoCell> {
    let agent = &send.agent;
    let lists_none = agent.tools.is_empty() && agent.skills.is_empty() && agent.memory.is_none();
    if lists_none && !agent.context.hides() {
        return Ok(Offers::default());
    }
    let only = send.record.options.tools.as_deref();
    let owner = CellOwner {
        session: send.record.key,
        send: send.record.id,
    };
    let offers = tools.offers_of(clock, (owner, agent), only).await?;
    Ok(match agent.tool_choice {
        Some(ToolChoice::None) => offers.barred(),
        Some(ToolChoice::Auto | ToolChoice::Required | ToolChoice::Tool(_)) | None => offers,
    })
}
