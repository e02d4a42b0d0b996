//! Work under a lease: whether it still holds, and what a round, or a step of its calls, writes.

use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::NewMessage;
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_RESULT};
use mainspring_shared::step::{RoundRef, StepKind, StepRefs};
use mainspring_shared::store::{AppendOutcome, AppendRound, Counters, UsageRow};
use mainspring_shared::time::Timestamp;
use serde::Serialize;

use crate::calls;
use crate::db::sql;
use crate::fault::Result;
use crate::hot::{self, Author, Hot, NewStep};
use crate::inbox;
use crate::query::statement;
use crate::rows::{Cells, json};
use crate::store::Tx;

/// A session under a lease that holds, with the send that runs in it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) hot: Hot,
    /// The running send's deadline.
    pub(crate) deadline_at: Option<Timestamp>,
}

/// Messages that a step wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) first_seq: i64,
    pub(crate) count: u32,
}

impl Stored {
    /// A step's references to these messages.
    pub(crate) fn refs(self, round: Option<RoundRef>) -> StepRefs {
        StepRefs {
            first_seq: (self.count > 0).then_some(self.first_seq),
            messages: self.count,
            round,
            ..StepRefs::default()
        }
    }
}

/// Stores rounds one after the other.
pub(crate) async fn all(tx: &mut Tx, items: Vec<AppendRound>) -> Result<Vec<AppendOutcome>> {
    hot::lock(tx, items.iter().map(|item| item.key)).await?;
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(one(tx, item).await?);
    }
    Ok(outcomes)
}

async fn one(tx: &mut Tx, item: AppendRound) -> Result<AppendOutcome> {
    let send = item.send_id;
    let Some(Held { mut hot, .. }) = held(tx, item.key, item.lease, send).await? else {
        return repeated(tx, &item).await;
    };
    let author = Author::from(item.lease);
    hot.spend(tx, &item.totals).await?;
    let (stored, messages) = number(&mut hot, &item.messages)?;
    calls::insert(tx, item.key, send, author, &item.calls).await?;
    calls::change(tx, item.key, author, &item.changes).await?;
    inbox::deliver(tx, item.key, send, &item.deliveries, stored.first_seq).await?;
    let signals = hot.signals;
    hot.signals &= SIGNAL_CANCEL;
    let kind = match item.round {
        Some(_) => StepKind::Round,
        None => StepKind::Calls,
    };
    let refs = stored.refs(item.round);
    let step = NewStep {
        author,
        send,
        kind,
        at: tx.now,
        refs: &refs,
    };
    let sql = sql!(
        "messages/insert",
        "usage/insert",
        "sends/round",
        "steps/write"
    );
    let (step, query) = hot.step(sql, step)?;
    query
        .bind(messages)
        .bind(usage_rows(&item.usage)?)
        .bind(json(&item.totals.spending())?)
        .bind(item.totals.rounds)
        .bind(item.totals.attempts)
        .execute(tx.conn())
        .await?;
    Ok(AppendOutcome::Appended {
        first_seq: stored.first_seq,
        step,
        at: tx.now,
        counters: Counters {
            signals,
            ..hot.counters()
        },
    })
}

/// Answers what the fence kept out: a repeat of what its lease stored last is told what the first
/// was. Signals that the first answer told of are lowered by now: those of the inbox are read from
/// it, and who is told of a result that is none looks once too often.
async fn repeated(tx: &mut Tx, item: &AppendRound) -> Result<AppendOutcome> {
    let row = statement(sql!("sessions/last_write"))
        .bind(item.key.tenant.0)
        .bind(item.key.session.0)
        .bind(item.lease.token.0)
        .bind(item.lease.boot.0)
        .bind(item.send_id.0)
        .bind(item.lease.write)
        .fetch_optional(tx.conn())
        .await?;
    let Some(row) = row else {
        return Ok(AppendOutcome::LeaseLost);
    };
    let mut cells = Cells::new(&row, "steps");
    let next_seq = cells.get("next_seq")?;
    let pending = cells.get("pending")?;
    let signals: i32 = cells.get("signals")?;
    let context_version = cells.get("context_version")?;
    let for_items: i32 = cells.get("inbox")?;
    let step = cells.get("n")?;
    let at = cells.time("at")?;
    let first_seq: Option<i64> = cells.get("refs")?;
    Ok(AppendOutcome::Appended {
        first_seq: first_seq.unwrap_or(next_seq),
        step,
        at,
        counters: Counters {
            next_seq,
            pending,
            signals: signals | for_items | SIGNAL_RESULT,
            context_version,
        },
    })
}

/// The session, if the lease holds and the send runs under it; the write is counted then.
pub(crate) async fn held(
    tx: &mut Tx,
    key: SessionKey,
    lease: Lease,
    send: SendId,
) -> Result<Option<Held>> {
    let row = statement(sql!("sessions/held"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(lease.token.0)
        .bind(lease.boot.0)
        .bind(send.0)
        .bind(lease.write)
        .fetch_optional(tx.conn())
        .await?;
    let Some(row) = row else { return Ok(None) };
    let mut cells = Cells::new(&row, "session_hot");
    let hot = hot::read(&mut cells)?;
    let deadline_at = cells.of("sends").time_opt("deadline_at")?;
    Ok(Some(Held { hot, deadline_at }))
}

/// A row of `messages` on its way into the statement.
#[derive(Debug, Serialize)]
struct MessageRow<'m> {
    seq: i64,
    role: &'static str,
    content: String,
    tool_calls: Option<String>,
    tool_call_id: Option<&'m str>,
    name: Option<&'m str>,
    failed: i32,
    round: i32,
    asked_at_seq: Option<i64>,
}

/// Numbers messages, which a step is about to store, and gives their rows as JSON.
pub(crate) fn number(hot: &mut Hot, messages: &[NewMessage]) -> Result<(Stored, String)> {
    let stored = Stored {
        first_seq: hot.next_seq,
        count: messages.len() as u32,
    };
    let rows = messages.iter().zip(hot.next_seq..);
    let rows = rows
        .map(|(message, seq)| message_row(message, seq))
        .collect::<Result<Vec<_>>>()?;
    hot.next_seq += i64::from(stored.count);
    Ok((stored, json(&rows)?))
}

fn message_row(message: &NewMessage, seq: i64) -> Result<MessageRow<'_>> {
    let calls = &message.tool_calls;
    Ok(MessageRow {
        seq,
        role: message.role.as_str(),
        content: json(&message.content)?,
        tool_calls: (!calls.is_empty()).then(|| json(calls)).transpose()?,
        tool_call_id: message.tool_call_id.as_deref(),
        name: message.name.as_deref(),
        failed: i32::from(message.failed),
        round: message.round,
        asked_at_seq: message.asked_back.map(|back| seq - i64::from(back)),
    })
}

/// A row of `usage_rows` on its way into the statement.
#[derive(Debug, Serialize)]
struct UsageCells<'u> {
    round: i32,
    attempt: i32,
    model: &'u str,
    usage: String,
}

/// What model responses cost, as JSON.
pub(crate) fn usage_rows(usage: &[UsageRow]) -> Result<String> {
    let rows = usage.iter().map(|row| {
        Ok(UsageCells {
            round: row.round,
            attempt: row.attempt,
            model: &row.model,
            usage: json(&row.usage)?,
        })
    });
    json(&rows.collect::<Result<Vec<_>>>()?)
}
