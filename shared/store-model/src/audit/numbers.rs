//! Facts that are stored in several places: who wrote what, sums, budgets, rounds.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::budget::Spent;
use mainspring_shared::id::{BootId, SendId};
use mainspring_shared::inbox::ItemKind;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::step::StepKind;
use mainspring_shared::store::{DumpSession, EXTRACT_ROUND};
use mainspring_shared::tool::CallRecord;
use mainspring_shared::usage::Usage;
use serde_json::{Value, json};

use super::{Found, writes};

/// Each message was written by a step of its send and epoch, and the messages that a step wrote
/// exist unless they were pruned. Copied messages, of epoch 0, have no step; those of removed sends
/// lost theirs.
pub(super) fn written(found: &mut Found<'_>) {
    let session = found.session;
    for message in session.messages.iter().filter(|m| m.epoch > 0) {
        let Some(send) = session.sends.iter().find(|s| s.id == message.send_id) else {
            continue;
        };
        let row = || json!({ "send": message.send_id, "seq": message.seq });
        let wrote = session.steps.iter().any(|step| {
            step.send_id == message.send_id && step.epoch == message.epoch && writes(step, message)
        });
        if !wrote {
            found.add("message.has_step", row());
        }
        if send.started_at.is_none() {
            found.add("send.unstarted_is_silent", row());
        }
    }
    if session.hot.lifecycle == Lifecycle::Deleted {
        return;
    }
    let there: BTreeSet<i64> = session.messages.iter().map(|message| message.seq).collect();
    for step in &session.steps {
        let Some(first) = step.refs.first_seq else {
            continue;
        };
        let mut seqs = first.max(session.first_seq)..first + i64::from(step.refs.messages);
        if seqs.any(|seq| !there.contains(&seq)) {
            let row = json!({ "send": step.send_id, "step": step.n });
            found.add("message.has_step", row);
        }
    }
}

/// Each call is requested by a message of its send.
pub(super) fn asked(found: &mut Found<'_>) {
    let session = found.session;
    for call in &session.calls {
        let asks = session.messages.iter().any(|message| {
            let mut ids = message.tool_calls.iter().map(|asked| &asked.id);
            message.send_id == call.send_id && ids.any(|id| *id == call.call_id)
        });
        if !asks {
            found.add("call.asked", json!({ "call": call.call_id }));
        }
    }
}

/// Nothing begins under an epoch that was never granted. When a send continues under another epoch,
/// a step records that, or the send ends with it.
pub(super) fn grants(found: &mut Found<'_>) {
    let session = found.session;
    for call in &session.calls {
        let epoch = call.started_epoch;
        if epoch.is_some_and(|epoch| epoch < 1 || epoch > session.hot.epoch) {
            let row = json!({ "call": call.call_id, "epoch": epoch });
            found.add("epoch.granted", row);
        }
    }
    let mut epochs: BTreeMap<SendId, i64> = BTreeMap::new();
    for step in session.steps.iter().filter(|step| step.epoch > 0) {
        let before = epochs.insert(step.send_id, step.epoch);
        let says_so = matches!(step.kind, StepKind::Resumed | StepKind::Finished);
        if before.is_some_and(|before| step.epoch > before) && !says_so {
            let row = json!({ "step": step.n, "epoch": step.epoch });
            found.add("epoch.granted", row);
        }
    }
}

/// The boots that wrote under each epoch, and the owner, which holds the current one.
pub(super) fn holders(session: &DumpSession) -> BTreeMap<i64, BTreeSet<BootId>> {
    let mut boots: BTreeMap<i64, BTreeSet<BootId>> = BTreeMap::new();
    for step in session.steps.iter().filter(|step| step.epoch > 0) {
        boots.entry(step.epoch).or_default().insert(step.boot);
    }
    if let Some(owner) = session.hot.owner {
        boots.entry(session.hot.epoch).or_default().insert(owner);
    }
    boots
}

/// Folds of the same level do not overlap, nor do folds in use, and none separates a call from its
/// results.
pub(super) fn folds(found: &mut Found<'_>) {
    let session = found.session;
    for (place, fold) in session.folds.iter().enumerate() {
        for other in &session.folds[place + 1..] {
            let overlap = other.from_seq <= fold.to_seq && other.to_seq >= fold.from_seq;
            let shown = fold.covered_by.is_none() && other.covered_by.is_none();
            if overlap && (other.level == fold.level || shown) {
                let row = json!({ "fold": fold.n, "with": other.n });
                found.add("fold.in_order", row);
            }
        }
        let next = session
            .messages
            .iter()
            .find(|message| message.seq == fold.to_seq + 1);
        let asked = next.and_then(|next| next.asked_at_seq);
        if asked.is_some_and(|asked| asked <= fold.to_seq) {
            found.add("fold.in_order", json!({ "fold": fold.n, "with": null }));
        }
    }
}

/// Each projection replaces all messages of its send that no fold replaces, and the send has ended.
pub(super) fn projections(found: &mut Found<'_>) {
    let session = found.session;
    if session.hot.lifecycle == Lifecycle::Deleted {
        return;
    }
    for projection in &session.projections {
        let own = session.messages.iter();
        let own = own.filter(|message| message.send_id == projection.send_id);
        let (within, beyond): (Vec<_>, Vec<_>) = own
            .map(|message| message.seq)
            .partition(|seq| (projection.from_seq..=projection.to_seq).contains(seq));
        let is_folded = |seq: i64| session.folds.iter().any(|fold| fold.to_seq == seq);
        let lacks = beyond.into_iter().any(|seq| {
            seq == projection.to_seq + 1 || (seq == projection.from_seq - 1 && !is_folded(seq))
        });
        let mut sends = session.sends.iter();
        let is_open = sends.any(|send| send.id == projection.send_id && !send.status.is_final());
        let count = projection.to_seq - projection.from_seq + 1;
        if within.len() as i64 != count || lacks || is_open {
            let row = json!({ "projection": projection.from_seq });
            found.add("projection.of_send", row);
        }
    }
}

/// The rounds that a send's steps close are numbered from 0, each once, and are as many as the send
/// counts.
pub(super) fn rounds(found: &mut Found<'_>) {
    let session = found.session;
    for send in &session.sends {
        let steps = session.steps.iter().filter(|step| step.send_id == send.id);
        let closed = steps.filter_map(|step| step.refs.round.as_ref());
        let closed: Vec<i32> = closed.map(|round| round.index).collect();
        if !closed.iter().copied().eq(0..send.rounds) {
            let row = json!({ "send": send.id, "rounds": send.rounds, "closed": closed });
            found.add("send.rounds_in_order", row);
        }
    }
}

/// The usage rows of a send, by round and attempt.
fn paid(session: &DumpSession, send: SendId) -> impl Iterator<Item = &Usage> {
    let rows = session.usage.iter().zip(&session.paid);
    // Calls that do not belong to a round have negative numbers.
    rows.filter(move |((of, round, _), _)| *of == send && *round != EXTRACT_ROUND)
        .map(|(_, usage)| usage)
}

/// Each usage row belongs to a send that reached its round.
pub(super) fn earned(found: &mut Found<'_>) {
    let session = found.session;
    for (send, round, _) in &session.usage {
        let record = session.sends.iter().find(|record| record.id == *send);
        if record.is_none_or(|record| *round > record.rounds) {
            let row = json!({ "send": send, "round": round });
            found.add("usage.matches_rounds", row);
        }
    }
}

/// The usage of a send is the sum of its usage rows and of what its children and runs used.
pub(super) fn sums(found: &mut Found<'_>) {
    let session = found.session;
    if session.hot.lifecycle == Lifecycle::Deleted {
        return;
    }
    for send in &session.sends {
        let (mut read, mut written) = (0, 0);
        for usage in paid(session, send.id) {
            read += usage.input_tokens;
            written += usage.output_tokens;
        }
        let used = &send.usage;
        let less = used.input_tokens < read || used.output_tokens < written;
        let same = used.input_tokens == read && used.output_tokens == written;
        if less || !(same || used.estimated || has_others(session, send)) {
            let row = json!({
                "send": send.id,
                "rows": [read, written],
                "used": [used.input_tokens, used.output_tokens],
            });
            found.add("usage.sums", row);
        }
    }
}

/// Whether children or runs may have added to the send's usage. If calls were pruned, that is
/// unknown.
fn has_others(session: &DumpSession, send: &SendRecord) -> bool {
    let mut calls = session.calls.iter().filter(|call| call.send_id == send.id);
    let mut items = session.inbox.iter();
    session.first_seq > 1
        || send.options.ended_run.is_some()
        || calls.any(|call| matches!(call.name.as_str(), "spawn_agent" | "create_workflow"))
        || items.any(|item| item.kind == ItemKind::Child || item.id.starts_with("run:"))
}

/// The rounds of a send, its usage before the last answer and its reservations stay within its
/// budget. A completed send has nothing reserved for a child that reported to it and below which
/// nothing is working. A send that a hook allowed to exceed its budget is left out.
pub(super) fn budgets(found: &mut Found<'_>) {
    let session = found.session;
    for send in &session.sends {
        let held = send.held.sum();
        let budget = send.options.budget.unwrap_or_default();
        let rounds = u64::from(send.rounds.unsigned_abs()).saturating_add(held.rounds);
        let last = paid(session, send.id).last().copied().unwrap_or_default();
        let before: u64 = paid(session, send.id).map(tokens).sum();
        let before = before - tokens(&last);
        let passed = budget.rounds.is_some_and(|cap| rounds > u64::from(cap))
            || (budget.tokens).is_some_and(|cap| before > cap || held.tokens > cap);
        let back = send.shown.as_ref().and_then(|shown| shown.sent_back);
        let is_let = back.is_some_and(|back| back.unpriced_before > 0);
        if passed && !is_let {
            let row = json!({ "send": send.id, "rounds": rounds, "tokens": before, "held": held });
            found.add("budget.kept", row);
        }
        let slices = send.held.0.iter();
        for (call_id, slice) in slices.filter(|_| send.status == SendStatus::Completed) {
            if is_out(slice)
                && session
                    .calls
                    .iter()
                    .any(|c| c.call_id == *call_id && is_told(c))
            {
                let row = json!({ "send": send.id, "call": call_id, "held": slice });
                found.add("budget.kept", row);
            }
        }
    }
}

fn tokens(usage: &Usage) -> u64 {
    usage.input_tokens.saturating_add(usage.output_tokens)
}

/// Rounds are charged where they were used.
fn is_out(slice: &Spent) -> bool {
    slice.tokens > 0 || slice.nano_usd > 0
}

/// Whether the call's result is the end of the child that it created, with no work left below it.
fn is_told(call: &CallRecord) -> bool {
    let result = call.result.as_ref();
    let member = |name| result.and_then(|result| result.value.as_ref()?.get(name));
    let ended = matches!(
        member("status").and_then(Value::as_str),
        Some("completed" | "failed")
    );
    call.name == "spawn_agent" && ended && member("kept").is_none()
}
