//! Work under a lease: checking that it still holds, and writing a round or a step of its calls.

use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::NewMessage;
use mainspring_shared::session::SIGNAL_RESULT;
use mainspring_shared::session::hot::{HotRow, SendState};
use mainspring_shared::session::transition::{self, Grant};
use mainspring_shared::store::{AppendOutcome, AppendRound, Counters, UsageRow};
use serde::Serialize;

use crate::calls;
use crate::db::sql;
use crate::fault::Result;
use crate::folds;
use crate::hot::{self, CommitExtras};
use crate::inbox;
use crate::query::statement;
use crate::rows::{self, Cells, json};
use crate::store::Tx;

/// A session with the token of a lease, and the send that runs in it.
#[derive(Debug)]
pub(crate) struct LeasedSession {
    pub(crate) hot: HotRow,
    pub(crate) send: SendState,
}

/// Stores rounds one after the other.
pub(crate) async fn all(tx: &mut Tx, items: Vec<AppendRound>) -> Result<Vec<AppendOutcome>> {
    let locked = hot::lock(tx, items.iter().map(|item| item.key)).await?;
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(if locked.contains(&item.key) {
            AppendOutcome::Locked
        } else {
            one(tx, item).await?
        });
    }
    Ok(outcomes)
}

async fn one(tx: &mut Tx, item: AppendRound) -> Result<AppendOutcome> {
    let id = item.send_id;
    let Some(LeasedSession { hot, send }) = load_leased(tx, item.key, item.lease, id).await? else {
        return repeated(tx, &item).await;
    };
    let change = transition::append(&hot, &send, item.lease, item.refs(), &item.totals, tx.now);
    let Some(change) = change else {
        return repeated(tx, &item).await;
    };
    let grant = Grant::from(item.lease);
    calls::insert(tx, item.key, id, grant, &item.calls).await?;
    calls::change(tx, item.key, grant, &item.changes).await?;
    inbox::deliver(tx, item.key, id, &item.deliveries, hot.next_seq).await?;
    let extras = CommitExtras {
        messages: &item.messages,
        usage: &item.usage,
        totals: Some(&item.totals),
    };
    let done = hot::commit(tx, change, extras).await?;
    if let Some(fold) = item.fold {
        let fold = fold.at(done.hot.context_version, id, tx.now);
        folds::attach(tx, item.key, &fold).await?;
    }
    Ok(AppendOutcome::Appended {
        first_seq: done.first_seq,
        step: done.step,
        at: tx.now,
        counters: Counters {
            signals: hot.signals,
            ..done.hot.counters()
        },
    })
}

/// Answers a write that the fence refused. A repeat of the lease's last write gets the first one's
/// answer again. The signals that the first answer reported have been cleared since: those for
/// inbox items are read from the inbox, and a result is always signalled, which at worst makes the
/// worker look once for nothing.
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
    let for_items: i32 = cells.get("inbox_signals")?;
    let step = cells.get("n")?;
    let at = cells.time("at")?;
    let first_seq: Option<i64> = cells.get("first_seq")?;
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

/// The session, if it has the lease's token and the send runs under it. The write number is checked
/// by the session machine.
pub(crate) async fn load_leased(
    tx: &mut Tx,
    key: SessionKey,
    lease: Lease,
    send: SendId,
) -> Result<Option<LeasedSession>> {
    let row = statement(sql!("sessions/held"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(lease.token.0)
        .bind(lease.boot.0)
        .bind(send.0)
        .fetch_optional(tx.conn())
        .await?;
    let Some(row) = row else { return Ok(None) };
    let mut cells = Cells::new(&row, "session_hot");
    let hot = hot::read(&mut cells)?;
    let send = rows::send_state(&mut cells.of("sends"), send)?;
    Ok(Some(LeasedSession { hot, send }))
}

/// A row of `messages`, as the statement's parameter.
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

/// Messages as JSON, numbered from `first_seq`.
pub(crate) fn message_rows(messages: &[NewMessage], first_seq: i64) -> Result<String> {
    let rows = messages.iter().zip(first_seq..);
    let rows = rows.map(|(message, seq)| message_row(message, seq));
    json(&rows.collect::<Result<Vec<_>>>()?)
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

/// A row of `usage_rows`, as the statement's parameter.
#[derive(Debug, Serialize)]
struct UsageCells<'u> {
    round: i32,
    attempt: i32,
    model: &'u str,
    usage: String,
}

/// The usage of model responses, as JSON.
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
