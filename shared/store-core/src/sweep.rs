//! Background work: finding ready sessions, serving alarms, removing old rows.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::hot::SendState;
use mainspring_shared::session::transition;
use mainspring_shared::store;
use mainspring_shared::store::{
    API_KEY_KEEP, AlarmSweep, Orphans, ReadySession, RetireSends, Retired, SweepOrphans,
    SweepReady, Sweeps, Swept,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::calls_of_send;
use uuid::Uuid;

use crate::boots::lease_of;
use crate::complete::settle;
use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::hot::{self, Session};
use crate::query::{query_as, query_scalar, statement};
use crate::reads;
use crate::row::Row;
use crate::rows::{self, Cells};
use crate::store::{SqlStore, Tx, clock};

#[async_trait]
impl Sweeps for SqlStore {
    async fn sweep_ready(&self, query: SweepReady) -> store::Result<Swept> {
        self.read(move |conn| Box::pin(ready(conn, self.at, query)))
            .await
    }

    async fn sweep_alarms(&self, boot: BootId, limit: u32) -> store::Result<AlarmSweep> {
        self.write((boot, limit), |tx, (boot, limit)| {
            Box::pin(alarms(tx, boot, limit))
        })
        .await
    }

    async fn sweep_orphans(&self, query: SweepOrphans) -> store::Result<Orphans> {
        self.read(move |conn| Box::pin(orphans(conn, self.at, query)))
            .await
    }

    async fn sweep_retention(&self, keep: Duration) -> store::Result<u64> {
        self.write(keep, |tx, keep| Box::pin(retention(tx, keep)))
            .await
    }
}

/// Maximum number of rows of one kind that one retention sweep removes, so that it never holds the
/// writer for long.
const RETENTION_BATCH: i64 = 1_000;

/// Sends that ended without completing while work below them continues.
pub(crate) async fn orphans(
    conn: &mut Conn,
    at: Option<Timestamp>,
    query: SweepOrphans,
) -> Result<Orphans> {
    let now = clock(conn, at).await?;
    let older = i64::try_from(query.older_than.as_millis()).unwrap_or(i64::MAX);
    let after = query.after.unwrap_or((TenantId(i32::MIN), Uuid::nil()));
    let rows: Vec<(i32, Uuid, Option<Uuid>, Option<Uuid>)> = query_as(
        sql!("sends/orphans"),
        ["tenant", "id", "session_id", "send_id"],
    )
    .bind(now.0.saturating_sub(older))
    .bind(after.0.0)
    .bind(after.1)
    .bind(query.limit)
    .fetch_all(conn)
    .await?;
    let last = rows.last().map(|row| (TenantId(row.0), row.1));
    let full = rows.len() == query.limit as usize;
    let ended = |(tenant, _, session, send): (i32, Uuid, Option<Uuid>, Option<Uuid>)| {
        let (tenant, session) = (TenantId(tenant), SessionId(session?));
        Some((SessionKey { tenant, session }, SendId(send?)))
    };
    let of: BTreeSet<_> = rows.into_iter().filter_map(ended).collect();
    Ok(Orphans {
        of: of.into_iter().collect(),
        next: last.filter(|_| full),
    })
}

/// Sessions that have work and no live owner, oldest first.
pub(crate) async fn ready(
    conn: &mut Conn,
    at: Option<Timestamp>,
    query: SweepReady,
) -> Result<Swept> {
    let now = clock(conn, at).await?;
    let after = query.after;
    let rows = statement(sql!("sessions/ready"))
        .bind(now.0)
        .bind(now.0.saturating_sub(query.older_than_ms))
        .bind(query.pool)
        .bind(after.map_or(i64::MIN, |(since, _)| since.0))
        .bind(after.map_or(i32::MIN, |(_, key)| key.tenant.0))
        .bind(after.map(|(_, key)| key.session.0).unwrap_or_default())
        .bind(i64::from(query.limit) + 1)
        .fetch_all(conn)
        .await?;
    let mut sessions = rows.iter().map(ready_session).collect::<Result<Vec<_>>>()?;
    let more = sessions.len() > query.limit as usize;
    sessions.truncate(query.limit as usize);
    let last = sessions.last().filter(|_| more);
    let next = last.map(|session| (session.ready_since, session.key));
    Ok(Swept { sessions, next })
}

fn ready_session(row: &Row) -> Result<ReadySession> {
    let mut cells = Cells::new(row, "session_hot");
    Ok(ReadySession {
        key: cells.key()?,
        pool: cells.get("pool")?,
        priority: hot::priority(cells.get("priority")?),
        ready_since: cells.time("ready_since")?,
    })
}

/// Serves due alarms, oldest first.
pub(crate) async fn alarms(tx: &mut Tx, boot: BootId, limit: u32) -> Result<AlarmSweep> {
    let now = tx.now;
    let mut sweep = AlarmSweep {
        now,
        ..AlarmSweep::default()
    };
    let mut passed_over = 0;
    loop {
        let rows = statement(sql!("sends/due"))
            .bind(now.0)
            .bind(limit)
            .bind(passed_over)
            .fetch_all(tx.conn())
            .await?;
        for row in &rows {
            tx.begin_item().await?;
            let served = serve_row(tx, boot, row).await;
            let Some(served) = tx.end_item(served).await?.flatten() else {
                passed_over += 1;
                continue;
            };
            sweep.served += 1;
            sweep.enqueue.extend(served.enqueue);
            sweep.finished.extend(served.finished);
            sweep.begun.extend(served.begun);
        }
        // If no send of the page could be read and locked, try the next page.
        if sweep.served > 0 || rows.len() < limit as usize {
            break;
        }
    }
    let next: Option<i64> = query_scalar(sql!("sends/next_alarm"))
        .fetch_one(tx.conn())
        .await?;
    sweep.next_alarm_at = next.map(Timestamp);
    Ok(sweep)
}

/// Serves the alarm of a send, and returns the effects. A send whose session is locked by someone
/// else is left for the next sweep.
async fn serve_row(tx: &mut Tx, boot: BootId, row: &Row) -> Result<Option<AlarmSweep>> {
    let mut served = AlarmSweep::default();
    let found = rows::send(&mut Cells::new(row, "sends"))?;
    if !hot::try_lock(tx, found.key).await? {
        return Ok(None);
    }
    let Some(session) = hot::load(tx, found.key).await? else {
        return Ok(Some(served));
    };
    // Another sweep may have served it before the session was locked.
    let send = reads::send(tx.conn(), found.key.tenant, found.id).await?;
    let is_due = |send: &SendRecord| send.alarm_at.is_some_and(|at| at <= tx.now);
    if let Some(send) = send.filter(is_due) {
        serve(tx, boot, session, &send, &mut served).await?;
    }
    Ok(Some(served))
}

async fn serve(
    tx: &mut Tx,
    boot: BootId,
    session: Session,
    send: &SendRecord,
    sweep: &mut AlarmSweep,
) -> Result<()> {
    let Session { hot, head, .. } = session;
    let lease_until = match send.status {
        SendStatus::Running => lease_of(tx, hot.owner).await?,
        _ => None,
    };
    let state = SendState::of(send);
    let change = transition::expire(&hot, &state, head, lease_until, boot, tx.now);
    let is_end = change.end.is_some();
    let done = settle(tx, change, send).await?;
    sweep.enqueue.extend(done.notify.ready);
    if is_end {
        sweep.finished.push((send.key, send.id, done.step));
        if send.status != SendStatus::Queued {
            sweep.begun.push((send.key, send.id));
        }
    }
    Ok(())
}

/// Removes a batch of rows that are old enough. Returns the number of removed rows.
pub(crate) async fn retention(tx: &mut Tx, keep: Duration) -> Result<u64> {
    let before = |keep: Duration| {
        let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        tx.now.0.saturating_sub(keep)
    };
    let (old, keys) = (before(keep), before(keep.max(API_KEY_KEEP)));
    let mut removed = 0;
    for (sql, before) in [
        (sql!("idempotency/expire"), old),
        (sql!("boots/expire"), old),
        (sql!("keys/expire"), keys),
    ] {
        let done = statement(sql)
            .bind(before)
            .bind(RETENTION_BATCH)
            .execute(tx.conn())
            .await?;
        removed += done.rows_affected();
    }
    Ok(removed)
}

/// Removes the sends of a page that are old enough, with everything that belongs only to them.
pub(crate) async fn retire_sends(tx: &mut Tx, query: RetireSends) -> Result<Retired> {
    let before = |age: Duration| {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        tx.now.0.saturating_sub(age)
    };
    let (keep, young) = (before(query.keep), before(query.young));
    let rows = statement(sql!("sends/page"))
        .bind(query.tenant.0)
        .bind(query.after.map(|after| after.0).unwrap_or_default())
        .bind(query.limit)
        .bind(keep)
        .bind(young)
        .fetch_all(tx.conn())
        .await?;
    let full = rows.len() == query.limit as usize;
    let mut retired = Retired::default();
    let mut rounds: i64 = 0;
    for row in &rows {
        if rounds >= i64::from(query.limit) {
            // The rest belongs to the next page.
            return Ok(retired);
        }
        let mut cells = Cells::new(row, "sends");
        let (key, send) = (cells.key()?, cells.send_id()?);
        let first_step: i64 = cells.get("first_step")?;
        let more: bool = cells.get("more")?;
        retired.next = Some(send).filter(|_| more);
        let may_go: bool = cells.get("may_go")?;
        let is_old: bool = cells.get("is_old")?;
        rounds += cells.get::<i64>("rounds")?;
        if may_go {
            retired.rows += retire(tx, key, send, first_step).await?;
        } else if is_old {
            retired.skipped += 1;
        }
    }
    retired.next = retired.next.filter(|_| full);
    Ok(retired)
}

async fn retire(tx: &mut Tx, key: SessionKey, send: SendId, first_step: i64) -> Result<u64> {
    let steps = statement(sql!("steps/retire"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(send.0)
        .bind(first_step)
        .execute(tx.conn())
        .await?
        .rows_affected();
    if steps > 0 {
        statement(sql!("steps/retired"))
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(steps as i64)
            .execute(tx.conn())
            .await?;
    }
    let (first, behind) = calls_of_send(send);
    let calls = statement(sql!("calls/retire"))
        .bind(key.tenant.0)
        .bind(first)
        .bind(behind)
        .execute(tx.conn())
        .await?;
    let mut rows = steps + calls.rows_affected();
    for sql in [sql!("usage/retire"), sql!("sends/retire")] {
        let done = statement(sql).bind(key.tenant.0).bind(send.0);
        rows += done.execute(tx.conn()).await?.rows_affected();
    }
    Ok(rows)
}
