//! The end of a send whose run panicked.

use std::sync::{Arc, PoisonError};

use mainspring_shared::budget::Spent;
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendResult, StopReason};
use mainspring_shared::store::{
    AfterSend, CallChange, CallStep, CompleteOutcome, CompleteSend, FoldAtRest, ReadInbox,
    ReadMessages, ReleaseLoss, SendTotals, UsageRow,
};
use mainspring_shared::tool::{answers, cancelled_call};

use super::disown;
use crate::fold::resting;
use crate::send::PendingMessages;
use crate::writes::Began;
use crate::{Kernel, metrics, writes};

/// How many inbox items the end of a panicked run tells.
const ITEMS_MAX: u32 = 64;

/// Ends the send whose run panicked, because another run would most likely panic too. The session's
/// lease would be renewed with all others of this process, so it is released here.
pub(super) async fn end_panicked(kernel: &Arc<Kernel>, key: SessionKey, lease: Lease) {
    tracing::error!(session.id = %key.session, "a run panicked; ending its send");
    if let Some(CompleteOutcome::Completed(completed)) = fail(kernel, key, lease).await {
        metrics::send_ended(completed.status);
        if let Some(ready) = completed.enqueue {
            writes::enqueue(&kernel.parts, ready);
        }
    } else {
        disown(kernel, key, lease.token, ReleaseLoss::ModelCall).await;
    }
}

/// Fails the send, with the cost of its model calls. If the end cannot be stored, the cost of calls
/// outside the rounds is stored without a lease: the next owner repeats the round's call, but none
/// of these.
async fn fail(kernel: &Arc<Kernel>, key: SessionKey, lease: Lease) -> Option<CompleteOutcome> {
    let control = kernel.running.control(key)?;
    let (send_id, lease) = (control.send, control.handles.lease(lease));
    let (rows, session) = {
        let owed = &control.handles.owed;
        owed.lock().unwrap_or_else(PoisonError::into_inner).settle()
    };
    let beside = rows.iter().filter(|row| !row.is_of_round());
    let beside: Vec<_> = beside.cloned().collect();
    let ended = complete_failed(kernel, (key, lease), send_id, (rows, session)).await;
    if !matches!(ended, Some(CompleteOutcome::Completed(_))) && !beside.is_empty() {
        let unpaid = FoldAtRest {
            key,
            send_id,
            boot: lease.boot,
            context_version: 0,
            fold: None,
            usage: beside,
        };
        resting::spawn_pay(kernel, unpaid);
    }
    ended
}

/// Stores the end of a failed send; `None` if the database does not answer.
async fn complete_failed(
    kernel: &Arc<Kernel>,
    (key, lease): (SessionKey, Lease),
    send_id: SendId,
    (rows, session): (Vec<UsageRow>, Option<Spent>),
) -> Option<CompleteOutcome> {
    let ids = vec![(key.tenant, send_id)];
    let record = kernel.parts.store.get_sends(ids).await.ok()?.pop()??;
    let began = Began::of(&record);
    let failure = Failure::new(Code::Internal, "a defect ended the run of this send");
    let mut pending_messages = PendingMessages::default();
    if record.rounds == 0 {
        pending_messages.input(NewMessage::user(record.input.clone(), 0));
    } else {
        let (changes, answers) = unanswered(kernel, key, send_id).await?;
        pending_messages.answers(answers, changes);
    }
    // Their signal may have been lowered, so nobody would look for them again.
    let query = ReadInbox {
        key,
        pending: true,
        after: 0,
        limit: ITEMS_MAX,
    };
    let items = kernel.parts.store.read_inbox(query).await.ok()?;
    pending_messages.items(items, send_id, record.rounds);
    let PendingMessages {
        messages,
        changes,
        deliveries,
        ..
    } = pending_messages;
    let mut usage = record.usage;
    for row in &rows {
        usage.add(&row.usage);
    }
    let mut of_rounds = rows.iter().filter(|row| row.is_of_round());
    let attempts = of_rounds.by_ref().map(|row| row.attempt).max();
    let attempts = attempts.unwrap_or_default().max(record.attempts);
    let item = CompleteSend {
        key,
        lease,
        send_id,
        messages,
        changes,
        deliveries,
        unless: 0,
        usage: rows,
        round: None,
        totals: SendTotals {
            usage,
            attempts,
            ..record.totals(session)
        },
        result: SendResult::failed(StopReason::Internal, failure),
        // The next send that ends stores the projection of this one.
        projections: Vec::new(),
        // The next send needs a run whose state is not in doubt.
        then: AfterSend::Release,
    };
    kernel.writes.complete(item, began).await.ok()
}

/// The results that the last message of the transcript is waiting for, if it is one of this send
/// with calls. Open calls are settled as ended.
async fn unanswered(
    kernel: &Kernel,
    key: SessionKey,
    send: SendId,
) -> Option<(Vec<CallChange>, Vec<NewMessage>)> {
    let store = &kernel.parts.store;
    let last = store.get_session(key).await.ok()??.last_seq();
    let query = ReadMessages {
        key,
        after: last - 1,
        limit: 1,
    };
    let last = store.read_messages(query).await.ok()?.pop();
    let asking = last.filter(|last| last.send_id == send && !last.tool_calls.is_empty());
    let Some(asking) = asking else {
        return Some((Vec::new(), Vec::new()));
    };
    let mut calls = store.read_round(key, send, asking.round).await.ok()?;
    let mut changes = Vec::new();
    for call in calls.iter_mut().filter(|call| call.result.is_none()) {
        call.result = Some(cancelled_call());
        changes.push(CallChange {
            call_id: call.call_id.clone(),
            change: CallStep::Settled(cancelled_call()),
        });
    }
    Some((changes, answers(&calls)?))
}
