//! Ends of sends: by their worker, or without one.

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{BootId, SendId};
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendRecord, SendResult, StopReason};
use mainspring_shared::session::SIGNAL_CANCEL;
use mainspring_shared::step::{RoundRef, StepKind, StepRefs};
use mainspring_shared::store::{
    CompleteOutcome, CompleteSend, Completed, ReadySession, SendTotals, Then, UsageRow,
};

use crate::calls;
use crate::claim;
use crate::db::sql;
use crate::fault::Result;
use crate::hot::{self, Author, Hot, NewStep};
use crate::inbox;
use crate::query::query_scalar;
use crate::rounds::{Held, Stored, held, number, usage_rows};
use crate::rows::json;
use crate::store::Tx;

/// Makes sends final one after the other.
pub(crate) async fn all(tx: &mut Tx, items: Vec<CompleteSend>) -> Result<Vec<CompleteOutcome>> {
    hot::lock(tx, items.iter().map(|item| item.key)).await?;
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
    let result = if hot.signals & SIGNAL_CANCEL != 0 {
        SendResult::cancelled()
    } else if hot.signals & item.unless != 0 {
        hot.signals = 0;
        hot.save(tx).await?;
        return Ok(CompleteOutcome::Undelivered);
    } else {
        item.result
    };
    let author = Author::from(item.lease);
    calls::change(tx, item.key, author, &item.changes).await?;
    inbox::deliver(tx, item.key, send, &item.deliveries, hot.next_seq).await?;
    let goes_on = hot.pending > 0 && item.then == Then::Continue;
    hot.keep_for_next();
    let ring = if goes_on { None } else { hot.give_back(tx.now) };
    let end = End {
        messages: &item.messages,
        usage: &item.usage,
        totals: Some(&item.totals),
        round: item.round,
        ..End::of(send, &result)
    };
    let (stored, step) = finish(tx, &mut hot, author, end).await?;
    let mut next = None;
    if goes_on && let Some(head) = claim::head(tx, item.key).await? {
        let started = claim::go(tx, &mut hot, item.lease, head, false).await?;
        next = Some((started, hot.counters()));
    }
    Ok(CompleteOutcome::Completed(Box::new(Completed {
        status: result.status,
        first_seq: stored.first_seq,
        step,
        at: tx.now,
        next,
        ring,
    })))
}

/// How a send ends, and what is stored with its end.
#[derive(Debug)]
pub(crate) struct End<'e> {
    pub(crate) send: SendId,
    pub(crate) result: &'e SendResult,
    pub(crate) messages: &'e [NewMessage],
    pub(crate) usage: &'e [UsageRow],
    /// Without totals the send keeps its own.
    pub(crate) totals: Option<&'e SendTotals>,
    pub(crate) round: Option<RoundRef>,
}

impl<'e> End<'e> {
    /// An end with nothing besides.
    pub(crate) fn of(send: SendId, result: &'e SendResult) -> Self {
        Self {
            send,
            result,
            messages: &[],
            usage: &[],
            totals: None,
            round: None,
        }
    }
}

/// Makes a send final, and writes the hot row as it is now. Returns what was said and the number
/// of the step.
pub(crate) async fn finish(
    tx: &mut Tx,
    hot: &mut Hot,
    author: Author,
    end: End<'_>,
) -> Result<(Stored, i64)> {
    let End { send, result, .. } = end;
    if let Some(totals) = end.totals {
        hot.spend(tx, totals).await?;
    }
    let (stored, messages) = number(hot, end.messages)?;
    let refs = StepRefs {
        reason: Some(result.stop_reason.as_str().to_owned()),
        status: Some(result.status.as_str().to_owned()),
        ..stored.refs(end.round)
    };
    let step = NewStep {
        author,
        send,
        kind: StepKind::Finished,
        at: tx.now,
        refs: &refs,
    };
    let sql = sql!(
        "messages/insert",
        "usage/insert",
        "sends/finish",
        "steps/write"
    );
    let (n, query) = hot.step(sql, step)?;
    query
        .bind(messages)
        .bind(usage_rows(end.usage)?)
        .bind(
            end.totals
                .map(|totals| json(&totals.spending()))
                .transpose()?,
        )
        .bind(end.totals.map(|totals| totals.rounds))
        .bind(end.totals.map(|totals| totals.attempts))
        .bind(result.status.as_str())
        .bind(result.stop_reason.as_str())
        .bind(result.output_text.clone())
        .bind(result.output.as_ref().map(json).transpose()?)
        .bind(result.error.as_ref().map(json).transpose()?)
        .execute(tx.conn())
        .await?;
    Ok((stored, n))
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
    let others: bool = query_scalar(sql!("sends/others_placed"))
        .bind(hot.key.tenant.0)
        .bind(hot.key.session.0)
        .bind(send.id.0)
        .fetch_one(tx.conn())
        .await?;
    if !others {
        hot.ready_since = None;
    }
    let author = Author::ungranted(boot);
    let (_, step) = finish(tx, hot, author, End::of(send.id, result)).await?;
    Ok(step)
}

/// Ends a started send that nobody runs, under a grant of its own. Its input becomes a message if
/// nothing of the send is in the transcript yet; calls that are open are ended and answered.
pub(crate) async fn finish_unowned(
    tx: &mut Tx,
    hot: &mut Hot,
    boot: BootId,
    send: &SendRecord,
    result: &SendResult,
) -> Result<(i64, Option<ReadySession>)> {
    let author = hot.grant(boot);
    let spoke: bool = query_scalar(sql!("steps/spoke"))
        .bind(hot.key.tenant.0)
        .bind(hot.key.session.0)
        .bind(send.id.0)
        .bind(send.first_step)
        .fetch_one(tx.conn())
        .await?;
    let unsaid = if spoke {
        calls::end_open_round(tx, hot, send.id).await?
    } else {
        vec![NewMessage::user(send.input.clone(), 0)]
    };
    hot.keep_for_next();
    let ring = hot.give_back(tx.now);
    let end = End {
        messages: &unsaid,
        ..End::of(send.id, result)
    };
    let (_, step) = finish(tx, hot, author, end).await?;
    Ok((step, ring))
}

/// How a send ends whose deadline passed.
pub(crate) fn past_deadline() -> SendResult {
    let message = "the deadline passed before the send ended";
    let failure = Failure::new(Code::SendDeadline, message);
    SendResult::failed(StopReason::Deadline, failure)
}
