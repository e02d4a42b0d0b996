//! What the model is asked: a function of the agent, the options and the active window.

use std::sync::Arc;

use mainspring_shared::agent::{MAX_ROUNDS_DEFAULT, MAX_TOKENS_DEFAULT, OutputSpec};
use mainspring_shared::message::{ContentPart, NewMessage, Role};
use mainspring_shared::send::machine::Rules;
use mainspring_shared::session::shown::Shown;
use mainspring_shared::session::window::Window;
use mainspring_shared::store::{SendTotals, StartedSend};

use crate::config::WorkerConfig;
use crate::llm::{Reply, Request};
use crate::tool::Offers;

/// What a model is told whose answer was cut.
const GO_ON: &str = "Your answer reached its token limit and was cut. Go on exactly where it stops: \
                     repeat nothing of it, and say nothing about the cut.";

/// The name of the model that the send wants; the default provider's default when absent.
pub(super) fn model(send: &StartedSend) -> Option<&str> {
    send.record
        .options
        .model
        .as_deref()
        .or(send.agent.model.as_deref())
}

/// What the send may use.
pub(super) fn rules(send: &StartedSend, config: &WorkerConfig) -> Rules {
    let rounds = send.record.options.max_rounds.or(send.agent.max_rounds);
    Rules {
        rounds_max: rounds.unwrap_or(MAX_ROUNDS_DEFAULT),
        crashes_max: config.crashes_max,
        attempts_max: config.attempts_max,
        retry: config.retry,
        hold_max: config.hold_max,
        first_round: send.record.rounds.unsigned_abs(),
        lost: lost(send),
        recovery: send.agent.recovery,
    }
}

/// Model calls of the present round that earlier workers may have begun and never told of.
pub(super) fn lost(send: &StartedSend) -> u32 {
    u32::try_from(send.record.attempts - send.record.counted).unwrap_or(0)
}

/// What is known at once of what the send is shown: as it is stored, else where its window begins.
pub(super) fn shown(send: &StartedSend, next_seq: i64) -> Option<Shown> {
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

/// Where the window of a send with these sums begins.
pub(super) fn window_from(totals: &SendTotals) -> i64 {
    let shown = totals.shown.as_ref();
    shown.and_then(|shown| shown.from_seq).unwrap_or(1)
}

/// The request of the next round. `unsaid` are messages that the transcript does not have yet; the
/// window is what it will be once it has them.
pub(super) fn request(
    send: &StartedSend,
    model: String,
    (window, from): (&Window, i64),
    unsaid: &[NewMessage],
    offers: &Offers,
) -> Request {
    let record = &send.record;
    let extra = unsaid
        .iter()
        .zip(window.next_seq()..)
        .map(|(message, seq)| message.clone().at(seq, record.id, record.created_at, 0));
    let messages = window.active_with(from, extra);
    let options = &record.options;
    let prompt = options
        .system_prompt
        .as_deref()
        .or(send.agent.system_prompt.as_deref());
    let prompt = prompt.filter(|prompt| !prompt.trim().is_empty());
    Request {
        model,
        system: prompt.map(str::to_owned),
        messages,
        tail: offers.missing(),
        cache_key: Some(record.key.session.to_string()),
        max_tokens: send.agent.max_tokens.unwrap_or(MAX_TOKENS_DEFAULT),
        temperature: send.agent.temperature,
        top_p: send.agent.top_p,
        stop: send.agent.stop.clone(),
        reasoning_effort: send.agent.reasoning_effort,
        tools: offers.specs(),
        output: None,
    }
}

/// Shows the model the beginning of its answer, and asks for the rest.
pub(super) fn go_on(request: &mut Request, partial: &Reply) {
    let Some(last) = request.messages.last().cloned() else {
        return;
    };
    let said = NewMessage {
        role: Role::Assistant,
        ..NewMessage::user(partial.content.clone(), last.round)
    };
    let ask = NewMessage::user(vec![ContentPart::text(GO_ON)], last.round);
    for (message, seq) in [said, ask].into_iter().zip(last.seq + 1..) {
        let message = message.at(seq, last.send_id, last.created_at, last.epoch);
        request.messages.push(Arc::new(message));
    }
}

/// Shows the model its notes, as data.
pub(super) fn remind(request: &mut Request, shown: Option<&Shown>) {
    if let Some(notes) = shown.and_then(|shown| shown.notes.as_deref()) {
        paragraph(&mut request.tail, &fenced("notes", notes));
    }
}

/// A text between tags that it cannot close: what is in it was written by a model, or by whomever
/// it read, and is not to be taken for the user's words.
fn fenced(tag: &str, text: &str) -> String {
    let text = text.replace(&format!("</{tag}"), &format!("<\u{200b}/{tag}"));
    format!("<{tag}>\n{text}\n</{tag}>")
}

/// Adds a paragraph.
fn paragraph(text: &mut Option<String>, more: &str) {
    let text = text.get_or_insert_default();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}

/// Asks for an answer of this shape. Where the provider does not hold the model to it, the model is
/// told so: before the messages if it is the agent's, which no send changes.
pub(super) fn shape(request: &mut Request, output: &Arc<OutputSpec>, native: bool, is_sends: bool) {
    request.output = Some(Arc::clone(output));
    if native {
        return;
    }
    let told = format!(
        "Your final answer is one JSON value and nothing else: no explanation, no Markdown. It fits \
         this JSON Schema:\n{}",
        output.schema
    );
    let place = if is_sends {
        &mut request.tail
    } else {
        &mut request.system
    };
    paragraph(place, &told);
}
