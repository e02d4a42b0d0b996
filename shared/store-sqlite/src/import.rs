//! Sessions with copied transcripts.

use mainspring_shared::list::ListName;
use mainspring_shared::message::{Message, copies};
use mainspring_shared::store::{CreateOutcome, ImportSession};
use serde::Serialize;

use crate::fault::Result;
use crate::lists;
use crate::rows::json;
use crate::sessions;
use crate::writer::Tx;

/// A row of `messages` on its way into the statement.
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

/// Creates a session with its transcript.
pub(crate) async fn import(tx: &mut Tx, item: ImportSession) -> Result<CreateOutcome> {
    let key = item.session.key;
    let outcome = sessions::create_one(tx, item.session, item.idempotency).await?;
    let CreateOutcome::Created(mut record) = outcome else {
        return Ok(outcome);
    };
    let messages = copies(item.messages);
    let rows = messages.iter().map(row).collect::<Result<Vec<_>>>()?;
    sqlx::query(include_str!("../sql/messages/copy.sql"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(json(&rows)?)
        .execute(tx.conn())
        .await?;
    lists::copy(tx, key.tenant, &ListName::Todo(key.session), &item.todo).await?;
    lists::copy(tx, key.tenant, &ListName::Notes(key.session), &item.notes).await?;
    record.messages = messages.len() as i64;
    Ok(CreateOutcome::Created(record))
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
