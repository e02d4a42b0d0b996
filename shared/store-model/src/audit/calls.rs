//! The invariants of calls, of the inbox, and of children.

use std::time::Duration;

use mainspring_shared::agent::OnBusy;
use mainspring_shared::inbox::{Fate, InboxItem};
use mainspring_shared::message::Message;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::{Dump, DumpSession};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{CallRecord, child_item, child_result};
use serde_json::json;

use super::Found;

/// How long the end of a child may be unreported to its parent.
const REPORT_BOUND: Duration = Duration::from_mins(1);

/// The calls of a message are answered directly after it, in their order, and settled. Only the
/// last message of the active send may have answers that are still missing.
pub(super) fn transcript(found: &mut Found<'_>) {
    let session = found.session;
    let messages = &session.messages;
    let active = session
        .sends
        .iter()
        .find(|send| matches!(send.status, SendStatus::Running | SendStatus::Waiting));
    let mut answered = 0;
    for (place, message) in messages.iter().enumerate() {
        let behind = &messages[place + 1..];
        let is_open = behind.is_empty() && active.is_some_and(|send| send.id == message.send_id);
        if is_open {
            continue;
        }
        for (n, call) in message.tool_calls.iter().enumerate() {
            let is_answer = |answer: &Message| {
                answer.tool_call_id.as_deref() == Some(&call.id)
                    && answer.send_id == message.send_id
            };
            let row = session.calls.iter().find(|row| row.call_id == call.id);
            // Copied messages, of epoch 0, have no call rows; those of removed sends lost theirs.
            let without =
                message.epoch == 0 || session.sends.iter().all(|send| send.id != message.send_id);
            let is_settled = row.map_or(without, |row| row.result.is_some());
            if behind.get(n).is_some_and(is_answer) && is_settled {
                answered += 1;
            } else {
                let row = json!({ "call": call.id, "seq": message.seq });
                found.add("call.one_result", row);
            }
        }
    }
    let answers = messages.iter().filter(|m| m.tool_call_id.is_some()).count();
    if answers > answered {
        let row = json!({ "answers": answers, "in_place": answered });
        found.add("call.one_result", row);
    }
}

/// The fields of a call are consistent with its state.
pub(super) fn rows(found: &mut Found<'_>) {
    let session = found.session;
    for call in &session.calls {
        if !fits(call) {
            found.add("call.settled_shape", json!({ "call": call.call_id }));
        }
    }
}

fn fits(call: &CallRecord) -> bool {
    let is_settled = call.result.is_some();
    call.settled_at.is_some() == is_settled
        && !(is_settled && call.waits_on.is_some())
        && call.started_epoch.is_some() == (call.attempt > 0)
}

/// The fields of an item are consistent with its fate.
pub(super) fn inbox(found: &mut Found<'_>) {
    let session = found.session;
    for item in &session.inbox {
        if !has_one_fate(session, item) {
            let row = json!({ "item": item.id, "fate": item.fate, "seq": item.seq });
            found.add("inbox.one_fate", row);
        }
    }
}

fn has_one_fate(session: &DumpSession, item: &InboxItem) -> bool {
    // An item that was merged into a queued send's input has no message of its own.
    let is_said = item.fate == Fate::Delivered && item.mode != OnBusy::Coalesce;
    let message = item.seq.map(|seq| {
        let is_there = session.messages.iter().any(|message| message.seq == seq);
        is_there || seq < session.first_seq || session.hot.lifecycle == Lifecycle::Deleted
    });
    item.settled_at.is_some() == (item.fate != Fate::Pending)
        && if is_said {
            message == Some(true)
        } else {
            message.is_none()
        }
}

/// The end of a child is recorded at its parent: as the call's result, or as an item.
pub(super) fn reports(found: &mut Found<'_>, dump: &Dump, now: Timestamp) {
    let session = found.session;
    for send in &session.sends {
        let is_late = send
            .finished_at
            .is_some_and(|finished_at| finished_at.after(REPORT_BOUND) < now);
        let Some(call_id) = send.reports_to.as_deref().filter(|_| is_late) else {
            continue;
        };
        let mut others = dump.sessions.iter();
        let call = others.find_map(|other| {
            let is_near =
                other.key.tenant == session.key.tenant && other.hot.lifecycle != Lifecycle::Deleted;
            let call = other.calls.iter().find(|call| call.call_id == call_id);
            call.filter(|_| is_near).map(|call| (other, call))
        });
        if let Some((parent, call)) = call
            && !knows(parent, call, send)
        {
            let row = json!({ "send": send.id, "parent": parent.key.session, "call": call_id });
            found.add("child.reported", row);
        }
    }
}

fn knows(parent: &DumpSession, call: &CallRecord, send: &SendRecord) -> bool {
    let (item_id, _) = child_item(send, &call.call_id);
    call.result.as_ref() == Some(&child_result(send))
        || parent.inbox.iter().any(|item| item.id == item_id)
}
