//! What a send may use and is shown, by its agent, its options and what is stored of it.

use mainspring_shared::agent::MAX_ROUNDS_DEFAULT;
use mainspring_shared::send::machine::Rules;
use mainspring_shared::session::render::TailPart;
use mainspring_shared::session::shown::Shown;
use mainspring_shared::store::{SendTotals, StartedSend};

use crate::config::WorkerConfig;

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

/// What a send is shown behind its messages: what is missing of its tools, and its notes.
pub(super) fn tail<'a>(missing: Option<&'a str>, shown: Option<&'a Shown>) -> Vec<TailPart<'a>> {
    let notes = shown.and_then(|shown| shown.notes.as_deref());
    let notes = notes.map(|text| TailPart::Data { tag: "notes", text });
    missing
        .map(TailPart::Told)
        .into_iter()
        .chain(notes)
        .collect()
}
