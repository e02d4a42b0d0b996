//! Ends of sends: by their worker, or without one.

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{BootId, SendId};
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendRecord, SendResult, StopReason};
use mainspring_shared::session::SIGNAL_CANCEL;
use mainspring_shared::step::{StepKind, StepRefs};
use mainspring_shared::store::{
    CompleteOutcome, CompleteSend, Completed, ReadySession, SendTotals, Then,
};

use crate::claim;
use crate::fault::Result;
use crate::hot::{Author, Hot};
use crate::rounds::{Held, held, write_messages, write_usage};
use crate::rows::json;
use crate::writer::Tx;

/// Makes sends final one after the other.
pub(crate) async fn all(tx: &mut Tx, items: Vec<CompleteSend>) -> Result<Vec<CompleteOutcome>> {
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(one(tx, item).await?);
    }
    Ok(outcomes)
}

async fn one(tx: &mut Tx, item: CompleteSend) -> Result<CompleteOutcome> {
    let send = item.send_id;
    let Some(Held { mut hot, .. }) = held(tx, item.key, item.lease, send).await? else {
        return Ok(CompleteOutcome::LeaseLost);
    };
    let author = Author::from(item.lease);
    let stored = write_messages(tx, &mut hot, author, send, &item.messages).await?;
    write_usage(tx, item.key, send, &item.usage).await?;
    let result = if hot.signals & SIGNAL_CANCEL == 0 {
        item.result
    } else {
        SendResult::cancelled()
    };
    let status = result.status;
    let goes_on = hot.pending > 0 && item.then == Then::Continue;
    hot.signals = 0;
    let ring = if goes_on { None } else { hot.give_back(tx.now) };
    let refs = stored.refs(item.round);
    let totals = Some(&item.totals);
    let step = finish(tx, &mut hot, author, send, &result, totals, refs).await?;
    let mut next = None;
    if goes_on && let Some(head) = claim::head(tx, item.key).await? {
        let started = claim::go(tx, &mut hot, item.lease, head, false).await?;
        next = Some((started, hot.counters()));
    }
    Ok(CompleteOutcome::Completed(Box::new(Completed {
        status,
        first_seq: stored.first_seq,
        step,
        at: tx.now,
        next,
        ring,
    })))
}

/// Makes a send final, and writes the hot row as it is now. Without totals the send keeps its own.
pub(crate) async fn finish(
    tx: &mut Tx,
    hot: &mut Hot,
    author: Author,
    send: SendId,
    result: &SendResult,
    totals: Option<&SendTotals>,
    refs: StepRefs,
) -> Result<i64> {
    let now = tx.now;
    sqlx::query(include_str!("../sql/sends/finish.sql"))
        .bind(hot.key.tenant.0)
        .bind(send.0)
        .bind(result.status.as_str())
        .bind(result.stop_reason.as_str())
        .bind(result.output_text.clone())
        .bind(result.output.as_ref().map(json).transpose()?)
        .bind(result.error.as_ref().map(json).transpose()?)
        .bind(now.0)
        .bind(totals.map(|totals| json(&totals.usage)).transpose()?)
        .bind(totals.map(|totals| totals.rounds))
        .bind(totals.map(|totals| totals.attempts))
        .execute(tx.conn())
        .await?;
    let refs = StepRefs {
        reason: Some(result.stop_reason.as_str().to_owned()),
        status: Some(result.status.as_str().to_owned()),
        ..refs
    };
    hot.step(tx, author, send, StepKind::Finished, &refs).await
}

/// Ends a queued send, which needs no grant and leaves no message. The session is at rest when no
/// other open send has its place.
pub(crate) async fn finish_queued(
    tx: &mut Tx,
    hot: &mut Hot,
    boot: BootId,
    send: &SendRecord,
    result: &SendResult,
) -> Result<i64> {
    if send.position.is_some() {
        hot.pending -= 1;
    }
    let others: bool = sqlx::query_scalar(include_str!("../sql/sends/others_placed.sql"))
        .bind(hot.key.tenant.0)
        .bind(hot.key.session.0)
        .bind(send.id.0)
        .fetch_one(tx.conn())
        .await?;
    if !others {
        hot.ready_since = None;
    }
    let author = Author::ungranted(boot);
    finish(tx, hot, author, send.id, result, None, StepRefs::default()).await
}

/// Ends a started send that nobody runs, under a grant of its own. Its input becomes a message if
/// nothing of the send is in the transcript yet.
pub(crate) async fn finish_unowned(
    tx: &mut Tx,
    hot: &mut Hot,
    boot: BootId,
    send: &SendRecord,
    result: &SendResult,
) -> Result<(i64, Option<ReadySession>)> {
    let author = hot.grant(boot);
    let spoke: bool = sqlx::query_scalar(include_str!("../sql/steps/spoke.sql"))
        .bind(hot.key.tenant.0)
        .bind(hot.key.session.0)
        .bind(send.id.0)
        .bind(send.first_step)
        .fetch_one(tx.conn())
        .await?;
    let mut unsaid = Vec::new();
    if !spoke {
        unsaid.push(NewMessage::user(send.input.clone(), 0));
    }
    let stored = write_messages(tx, hot, author, send.id, &unsaid).await?;
    hot.signals = 0;
    let ring = hot.give_back(tx.now);
    let step = finish(tx, hot, author, send.id, result, None, stored.refs(None)).await?;
    Ok((step, ring))
}

/// How a send ends whose deadline passed.
pub(crate) fn past_deadline() -> SendResult {
    let message = "the deadline passed before the send ended";
    let failure = Failure::new(Code::SendDeadline, message);
    SendResult::failed(StopReason::Deadline, failure)
}
