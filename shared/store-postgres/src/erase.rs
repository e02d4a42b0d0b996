//! Removing the rows of deleted sessions, a page at a time.

use mainspring_shared::id::SessionKey;
use mainspring_shared::store::{CALLS_EACH, DeletedSession, ERASED_MS_MIN, Erased, Result};
use mainspring_shared::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::fault::Fault;
use crate::ledger::now;
use crate::retry::{Attempts, Pool, Verdict, fetch, sql};
use crate::rows::Fields;

pub(crate) async fn due(
    pool: &Pool,
    at: Option<Timestamp>,
    after: Option<DeletedSession>,
    limit: u32,
) -> Result<Vec<DeletedSession>> {
    let after = after.map_or((i64::MIN, i32::MIN, Uuid::nil()), |after| {
        (after.due_at.0, after.key.tenant.0, after.key.session.0)
    });
    let rows = fetch(pool, || {
        sql!("erasures/due")
            .bind(at.map(|at| at.0))
            .bind(after.0)
            .bind(after.1)
            .bind(after.2)
            .bind(i64::from(limit))
    })
    .await?;
    let read = |row| {
        let mut fields = Fields::new(row, "erasures");
        let key = fields.key()?;
        let due_at = fields.time("due_at")?;
        Ok(DeletedSession { due_at, key })
    };
    rows.iter().map(read).collect()
}

pub(crate) async fn erase(
    pool: &Pool,
    at: Option<Timestamp>,
    key: SessionKey,
    limit: u32,
) -> Result<Erased> {
    let mut attempts = Attempts::default();
    loop {
        let erased = attempts.on(pool, async |connection| {
            erase_once(connection, at, key, limit).await
        });
        match erased.await {
            Ok(outcome) => return Ok(outcome),
            // A repeat removes the next page.
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn erase_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    key: SessionKey,
    limit: u32,
) -> std::result::Result<Erased, Fault> {
    let mut tx = connection.begin().await?;
    let now = now(&mut tx, at).await?;
    let row = sql!("erasures/lock")
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_optional(&mut *tx)
        .await?;
    let Some(row) = row else {
        tx.rollback().await?;
        return Ok(Erased::default());
    };
    let mut fields = Fields::new(&row, "erasures");
    let deleted_at = fields.time("deleted_at")?;
    let (seq, send): (i64, Uuid) = (fields.take("seq")?, fields.take("send_id")?);
    let limit = i64::from(limit.max(1));
    let sends_max = (limit as usize).div_ceil(CALLS_EACH) as i64;
    let row = sql!("erasures/page")
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(seq)
        .bind(send)
        .bind(limit)
        .bind(sends_max)
        .fetch_one(&mut *tx)
        .await?;
    let mut fields = Fields::new(&row, "messages");
    let messages: i64 = fields.take("messages")?;
    let seq: Option<i64> = fields.take("seq")?;
    let sends: i64 = fields.take("sends")?;
    let send: Option<Uuid> = fields.take("send_id")?;
    let (calls, usage): (i64, i64) = (fields.take("calls")?, fields.take("usage")?);
    let (items, agents): (i64, i64) = (fields.take("items")?, fields.take("agents")?);
    let (folds, projections): (i64, i64) = (fields.take("folds")?, fields.take("projections")?);
    let rows = [messages, calls, usage, items, agents, folds, projections];
    let more = sends == sends_max || rows.contains(&limit);
    let end = deleted_at.0 + ERASED_MS_MIN;
    sql!("erasures/note")
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(seq)
        .bind(send.filter(|_| calls < limit && usage < limit))
        .bind(!more)
        .bind(end)
        .execute(&mut *tx)
        .await?;
    if !more && end <= now.0 {
        sql!("erasures/end")
            .bind(key.tenant.0)
            .bind(key.session.0)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(Erased {
        rows: rows.iter().sum::<i64>().unsigned_abs(),
        more,
    })
}
