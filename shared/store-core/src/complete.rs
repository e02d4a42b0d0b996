//! Ends of sends, by their worker or without one.

use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::transition::{self, Change, Complete, Completion, Grant};
use mainspring_shared::store::{CompleteOutcome, CompleteSend, Completed};

use crate::calls;
use crate::claim::{self, Head};
use crate::db::sql;
use crate::fault::Result;
use crate::hot::{self, CommitExtras, Committed};
use crate::inbox;
use crate::projections;
use crate::query::query_scalar;
use crate::rounds::{LeasedSession, load_leased};
use crate::store::Tx;

/// Makes sends final one after the other.
pub(crate) async fn all(tx: &mut Tx, items: Vec<CompleteSend>) -> Result<Vec<CompleteOutcome>> {
    let locked = hot::lock(tx, items.iter().map(|item| item.key)).await?;
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(if locked.contains(&item.key) {
            CompleteOutcome::Locked
        } else {
            Box::pin(one(tx, item)).await?
        });
    }
    Ok(outcomes)
}

async fn one(tx: &mut Tx, item: CompleteSend) -> Result<CompleteOutcome> {
    let (id, now) = (item.send_id, tx.now);
    let Some(LeasedSession { hot, send }) = load_leased(tx, item.key, item.lease, id).await? else {
        return Ok(CompleteOutcome::LeaseLost);
    };
    let completion = Completion {
        result: item.result,
        round: item.round,
        totals: &item.totals,
        unless: item.unless,
        then: item.then,
    };
    let (change, continues) = match transition::complete(&hot, &send, item.lease, completion, now) {
        Complete::LeaseLost => return Ok(CompleteOutcome::LeaseLost),
        Complete::Undelivered(change) => {
            hot::commit(tx, change, CommitExtras::default()).await?;
            return Ok(CompleteOutcome::Undelivered);
        }
        Complete::Ended(change) => (change, false),
        Complete::Continues(change) => (change, true),
    };
    let grant = Grant::from(item.lease);
    calls::change(tx, item.key, grant, &item.changes).await?;
    inbox::deliver(tx, item.key, id, &item.deliveries, hot.next_seq).await?;
    let extras = CommitExtras {
        messages: &item.messages,
        usage: &item.usage,
        totals: Some(&item.totals),
    };
    let status = change.send.map_or(send.status, |send| send.status);
    let done = hot::commit(tx, change, extras).await?;
    projections::save(tx, item.key, &item.projections).await?;
    let mut enqueue = done.notify.ready;
    let mut next = None;
    if continues {
        let head = claim::head(tx, item.key).await?;
        let state = head.as_ref().map(Head::state);
        let change = transition::start_next(&done.hot, state.as_ref(), now);
        let send = change.send;
        let begun = hot::commit(tx, change, CommitExtras::default()).await?;
        enqueue = begun.notify.ready;
        if let (Some(head), Some(send)) = (head, send) {
            let started = claim::started(tx, head, send, None).await?;
            next = Some((started, begun.hot.counters()));
        }
    }
    Ok(CompleteOutcome::Completed(Box::new(Completed {
        status,
        first_seq: done.first_seq,
        step: done.step,
        at: now,
        next,
        enqueue,
    })))
}

/// Stores a change that does not come from the worker that runs the send. If it ends a send that
/// had begun, the send's open calls are settled and answered, and its input becomes a message if
/// the transcript has nothing of the send yet.
pub(crate) async fn settle(
    tx: &mut Tx,
    mut change: Change,
    send: &SendRecord,
) -> Result<Committed> {
    if change.end.is_none() || send.status == SendStatus::Queued {
        return hot::commit(tx, change, CommitExtras::default()).await;
    }
    let messages = last_messages(tx, &change, send).await?;
    let mut send = send.clone();
    let paid = send.bill_crashed_call();
    if let Some(row) = &paid {
        change.hot.pay(&row.usage);
    }
    let totals = send.totals(change.hot.spent);
    let extras = CommitExtras {
        messages: &messages,
        usage: paid.as_slice(),
        totals: paid.is_some().then_some(&totals),
    };
    hot::commit(tx, change, extras).await
}

async fn last_messages(tx: &mut Tx, change: &Change, send: &SendRecord) -> Result<Vec<NewMessage>> {
    let spoke: bool = query_scalar(sql!("steps/spoke"))
        .bind(send.key.tenant.0)
        .bind(send.key.session.0)
        .bind(send.id.0)
        .bind(send.first_step)
        .fetch_one(tx.conn())
        .await?;
    if spoke {
        calls::end_open_round(tx, &change.hot, send.id).await
    } else {
        Ok(vec![NewMessage::user(send.effective_input().to_vec(), 0)])
    }
}
