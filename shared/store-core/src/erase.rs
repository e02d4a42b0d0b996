//! Removing the rows of deleted sessions, a page at a time.

use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::store::{CALLS_EACH, DeletedSession, ERASED_MS_MIN, Erased};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::query::{query_as, query_scalar, statement};
use crate::store::{Tx, clock};

pub(crate) async fn due(
    conn: &mut Conn,
    at: Option<Timestamp>,
    after: Option<DeletedSession>,
    limit: u32,
) -> Result<Vec<DeletedSession>> {
    let now = clock(conn, at).await?;
    let after = after.map_or((i64::MIN, i32::MIN, Uuid::nil()), |after| {
        (after.due_at.0, after.key.tenant.0, after.key.session.0)
    });
    let rows: Vec<(i32, Uuid, i64)> =
        query_as(sql!("erasures/due"), ["tenant", "session_id", "due_at"])
            .bind(now.0)
            .bind(after.0)
            .bind(after.1)
            .bind(after.2)
            .bind(limit)
            .fetch_all(conn)
            .await?;
    let read = |(tenant, session, due_at)| DeletedSession {
        due_at: Timestamp(due_at),
        key: SessionKey {
            tenant: TenantId(tenant),
            session: SessionId(session),
        },
    };
    Ok(rows.into_iter().map(read).collect())
}

pub(crate) async fn erase(tx: &mut Tx, key: SessionKey, limit: u32) -> Result<Erased> {
    let known: Option<(i64, i64, Uuid)> =
        query_as(sql!("erasures/load"), ["deleted_at", "seq", "send_id"])
            .bind(key.tenant.0)
            .bind(key.session.0)
            .fetch_optional(tx.conn())
            .await?;
    let Some((deleted_at, seq, send)) = known else {
        return Ok(Erased::default());
    };
    let limit = u64::from(limit.max(1));
    let (messages, seq) = messages(tx, key, seq, limit).await?;
    let sends_max = limit.div_ceil(CALLS_EACH as u64);
    let sends: Vec<Uuid> = query_scalar(sql!("erasures/sends"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(send)
        .bind(sends_max as i64)
        .fetch_all(tx.conn())
        .await?;
    let (mut calls, mut usage) = (0, 0);
    for send in &sends {
        statement(sql!("erasures/blank_send"))
            .bind(key.tenant.0)
            .bind(send)
            .bind("{}")
            .execute(tx.conn())
            .await?;
        calls += drop_calls(tx, key.tenant, SendId(*send), limit - calls).await?;
        usage += statement(sql!("erasures/drop_usage"))
            .bind(key.tenant.0)
            .bind(send)
            .bind((limit - usage) as i64)
            .execute(tx.conn())
            .await?
            .rows_affected();
    }
    let is_through = calls < limit && usage < limit;
    let send = sends.last().copied().filter(|_| is_through).unwrap_or(send);
    let mut rows = vec![messages, calls, usage];
    for sql in [
        sql!("erasures/drop_items"),
        sql!("erasures/drop_agents"),
        sql!("erasures/drop_folds"),
        sql!("erasures/drop_projections"),
    ] {
        let dropped = statement(sql)
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(limit as i64)
            .execute(tx.conn())
            .await?;
        rows.push(dropped.rows_affected());
    }
    let more = sends.len() as u64 == sends_max || rows.contains(&limit);
    note(tx, key, (deleted_at, seq, send), more).await?;
    Ok(Erased {
        rows: rows.iter().sum(),
        more,
    })
}

/// Removes the next messages. Returns their number, and the last one's `seq`.
async fn messages(tx: &mut Tx, key: SessionKey, seq: i64, limit: u64) -> Result<(u64, i64)> {
    let (count, last): (i64, Option<i64>) =
        query_as(sql!("erasures/messages"), ["count", "last_seq"])
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(seq)
            .bind(limit as i64)
            .fetch_one(tx.conn())
            .await?;
    let last = last.unwrap_or(seq);
    statement(sql!("erasures/drop_messages"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(seq)
        .bind(last)
        .execute(tx.conn())
        .await?;
    Ok((count.unsigned_abs(), last))
}

/// Removes calls of a send, whose ids begin with the send's id.
async fn drop_calls(tx: &mut Tx, tenant: TenantId, send: SendId, limit: u64) -> Result<u64> {
    let prefix = format!("call_{}", send.0.simple());
    let dropped = statement(sql!("erasures/drop_calls"))
        .bind(format!("{prefix}_"))
        .bind(format!("{prefix}`"))
        .bind(limit as i64)
        .bind(tenant.0)
        .execute(tx.conn())
        .await?;
    Ok(dropped.rows_affected())
}

/// Records the progress. Once nothing is left of the session or of those below it, one last visit
/// is scheduled for when nothing more can be created below it; that visit removes the record.
async fn note(
    tx: &mut Tx,
    key: SessionKey,
    (deleted_at, seq, send): (i64, i64, Uuid),
    more: bool,
) -> Result<()> {
    let now = tx.now;
    let any_below: bool = query_scalar(sql!("erasures/any_below"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_one(tx.conn())
        .await?;
    let is_done = !more && !any_below;
    let end = deleted_at + ERASED_MS_MIN;
    if is_done && end <= now.0 {
        statement(sql!("erasures/end"))
            .bind(key.tenant.0)
            .bind(key.session.0)
            .execute(tx.conn())
            .await?;
        return Ok(());
    }
    statement(sql!("erasures/note"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(seq)
        .bind(send)
        .bind(is_done.then_some(end))
        .execute(tx.conn())
        .await?;
    Ok(())
}
