//! Importing sessions with their transcripts.

use mainspring_shared::id::SessionKey;
use mainspring_shared::list::ListName;
use mainspring_shared::message::{Message, copies_behind};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::{
    AppendCopies, CopiesOutcome, CreateOutcome, ImportSession, STAGED_MS,
};
use serde::Serialize;

use crate::db::sql;
use crate::fault::Result;
use crate::folds;
use crate::hot;
use crate::lists;
use crate::projections;
use crate::query::{query_scalar, statement};
use crate::rows::json;
use crate::sessions;
use crate::store::Tx;

/// A row of `messages`, as the statement's parameter.
#[derive(Debug, Serialize)]
struct CopyRow<'m> {
    seq: i64,
    send: String,
    role: &'static str,
    content: String,
    tool_calls: Option<String>,
    tool_call_id: Option<&'m str>,
    name: Option<&'m str>,
    failed: i32,
    round: i32,
    asked_at_seq: Option<i64>,
    created_at: i64,
}

/// Creates a session with its transcript, or stores one page of that. Until the last page the
/// session counts as deleted, and is removed if no page arrives for long.
pub(crate) async fn import(tx: &mut Tx, item: ImportSession) -> Result<CreateOutcome> {
    let key = item.session.key;
    let messages = copies_behind(item.messages, item.behind);
    if item.behind > 0 && !stage_on(tx, key).await? {
        return Ok(CreateOutcome::Gone);
    }
    if item.more {
        if item.behind == 0 {
            let now = tx.now;
            statement(sql!("sessions/stage"))
                .bind(key.tenant.0)
                .bind(key.session.0)
                .bind(item.session.agent.pool())
                .bind(now.0 + STAGED_MS)
                .bind(now.0)
                .execute(tx.conn())
                .await?;
        }
        copy(tx, key, &messages).await?;
        return Ok(CreateOutcome::Staged);
    }
    if let Some(known) = sessions::known(tx, item.idempotency.as_ref()).await? {
        return Ok(known);
    }
    if item.behind > 0 {
        statement(sql!("sessions/unstage"))
            .bind(key.tenant.0)
            .bind(key.session.0)
            .execute(tx.conn())
            .await?;
    }
    let outcome = sessions::create_one(tx, item.session, item.idempotency).await?;
    let CreateOutcome::Created(mut record) = outcome else {
        return Ok(outcome);
    };
    copy(tx, key, &messages).await?;
    record.messages = item.behind + messages.len() as i64;
    statement(sql!("messages/copied"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(record.messages + 1)
        .execute(tx.conn())
        .await?;
    folds::copy(tx, key, &item.folds).await?;
    projections::save(tx, key, &item.projections).await?;
    lists::copy(tx, key.tenant, &ListName::Todo(key.session), &item.todo).await?;
    lists::copy(tx, key.tenant, &ListName::Notes(key.session), &item.notes).await?;
    Ok(CreateOutcome::Created(record))
}

/// Adds messages behind a transcript.
pub(crate) async fn append(tx: &mut Tx, item: AppendCopies) -> Result<CopiesOutcome> {
    let key = item.key;
    let Some(session) = hot::load(tx, key).await? else {
        return Ok(CopiesOutcome::NotFound);
    };
    let first_seq = session.hot.next_seq;
    if let Some(first) = item.messages.first() {
        let known: Option<Option<i64>> = query_scalar(sql!("messages/first_of"))
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(first_seq - AppendCopies::SEARCHED)
            .bind(first.send_id.0)
            .fetch_optional(tx.conn())
            .await?;
        if let Some(first_seq) = known.flatten() {
            return Ok(CopiesOutcome::Appended { first_seq });
        }
    }
    if session.hot.lifecycle == Lifecycle::Closed {
        return Ok(CopiesOutcome::Closed);
    }
    if session.hot.owner.is_some() || session.head.is_some() {
        return Ok(CopiesOutcome::Busy);
    }
    let messages = copies_behind(item.messages, first_seq - 1);
    copy(tx, key, &messages).await?;
    statement(sql!("messages/appended"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(first_seq + messages.len() as i64)
        .execute(tx.conn())
        .await?;
    Ok(CopiesOutcome::Appended { first_seq })
}

/// Extends the time of a session whose messages arrive in pages. Returns whether it still exists.
async fn stage_on(tx: &mut Tx, key: SessionKey) -> Result<bool> {
    let now = tx.now;
    let kept = statement(sql!("sessions/stage_on"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(now.0 + STAGED_MS)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(kept.rows_affected() > 0)
}

async fn copy(tx: &mut Tx, key: SessionKey, messages: &[Message]) -> Result<()> {
    let rows = messages.iter().map(row).collect::<Result<Vec<_>>>()?;
    statement(sql!("messages/copy"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(json(&rows)?)
        .execute(tx.conn())
        .await?;
    Ok(())
}

fn row(message: &Message) -> Result<CopyRow<'_>> {
    let calls = &message.tool_calls;
    Ok(CopyRow {
        seq: message.seq,
        send: message.send_id.0.simple().to_string(),
        role: message.role.as_str(),
        content: json(&message.content)?,
        tool_calls: (!calls.is_empty()).then(|| json(calls)).transpose()?,
        tool_call_id: message.tool_call_id.as_deref(),
        name: message.name.as_deref(),
        failed: i32::from(message.failed),
        round: message.round,
        asked_at_seq: message.asked_at_seq,
        created_at: message.created_at.0,
    })
}
