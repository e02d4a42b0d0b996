//! The sweeps: finding what is ready, due or old.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::session::hot::SendState;
use mainspring_shared::session::transition;
use mainspring_shared::store::{
    API_KEY_KEEP, AlarmSweep, Orphans, Result, RetireSends, Retired, SweepOrphans, SweepReady,
    Sweeps, Swept,
};
use mainspring_shared::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::fault::Fault;
use crate::ledger::{Ledger, now};
use crate::pieces::{Piece, Pieces};
use crate::retry::{Attempts, Pool, Verdict, execute, fetch, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;

#[async_trait]
impl Sweeps for PostgresStore {
    async fn sweep_ready(&self, query: SweepReady) -> Result<Swept> {
        ready(&self.pools.claimers, self.at, &query).await
    }

    async fn sweep_alarms(&self, boot: BootId, limit: u32) -> Result<AlarmSweep> {
        alarms(&self.pools.writers, self.at, boot, limit).await
    }

    async fn sweep_orphans(&self, query: SweepOrphans) -> Result<Orphans> {
        orphans(&self.pools.claimers, self.at, query).await
    }

    async fn sweep_retention(&self, keep: Duration) -> Result<u64> {
        retention(&self.pools.writers, self.at, keep).await
    }
}

/// Rows of each kind that one call of the retention deletes.
const RETENTION_ROWS: i64 = 1_000;

/// Ready sessions without a live owner, oldest first. Queries one row more than the limit, to tell
/// whether more follow.
pub(crate) async fn ready(pool: &Pool, at: Option<Timestamp>, query: &SweepReady) -> Result<Swept> {
    let after = query
        .after
        .map_or((i64::MIN, i32::MIN, Uuid::nil()), |(time, key)| {
            (time.0, key.tenant.0, key.session.0)
        });
    let rows = fetch(pool, || {
        sql!("sweeps/ready")
            .bind(at.map(|at| at.0))
            .bind(query.older_than_ms)
            .bind(after.0)
            .bind(after.1)
            .bind(after.2)
            .bind(query.pool.clone())
            .bind(i64::from(query.limit) + 1)
    })
    .await?;
    let mut sessions = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut fields = Fields::new(row, "session_hot");
        let key = fields.key()?;
        sessions.extend(fields.ready_session(key)?);
    }
    let more = sessions.len() > query.limit as usize;
    sessions.truncate(query.limit as usize);
    let last = sessions.last().filter(|_| more);
    let next = last.map(|ready| (ready.ready_since, ready.key));
    Ok(Swept { sessions, next })
}

/// Sends that ended without completing while work below them still runs.
pub(crate) async fn orphans(
    pool: &Pool,
    at: Option<Timestamp>,
    query: SweepOrphans,
) -> Result<Orphans> {
    let after = query.after.unwrap_or((TenantId(i32::MIN), Uuid::nil()));
    let rows = fetch(pool, || {
        sql!("sweeps/orphans")
            .bind(at.map(|at| at.0))
            .bind(i64::try_from(query.older_than.as_millis()).unwrap_or(i64::MAX))
            .bind(after.0.0)
            .bind(after.1)
            .bind(i64::from(query.limit))
    })
    .await?;
    let mut of = BTreeSet::new();
    let mut last = None;
    for row in &rows {
        let mut fields = Fields::new(row, "sends");
        let tenant = TenantId(fields.take("tenant")?);
        last = Some((tenant, fields.take("id")?));
        let session: Option<Uuid> = fields.take("session_id")?;
        let send: Option<Uuid> = fields.take("send_id")?;
        let ended = session.zip(send).map(|(session, send)| {
            let session = SessionId(session);
            (SessionKey { tenant, session }, SendId(send))
        });
        of.extend(ended);
    }
    Ok(Orphans {
        of: of.into_iter().collect(),
        next: last.filter(|_| rows.len() == query.limit as usize),
    })
}

/// Serves due alarms, oldest first. Sessions that another transaction has locked are left to it or
/// to the next sweep.
pub(crate) async fn alarms(
    pool: &Pool,
    at: Option<Timestamp>,
    boot: BootId,
    limit: u32,
) -> Result<AlarmSweep> {
    let mut pieces = Pieces::new(limit);
    let mut all = AlarmSweep::default();
    while let Some(piece) = pieces.next() {
        let Some(swept) = pieces.of(piece, alarms_of(pool, at, boot, piece).await)? else {
            continue;
        };
        all.enqueue.extend(swept.enqueue);
        all.finished.extend(swept.finished);
        all.begun.extend(swept.begun);
        all.served += swept.served;
        (all.now, all.next_alarm_at) = (swept.now, swept.next_alarm_at);
    }
    Ok(all)
}

async fn alarms_of(
    pool: &Pool,
    at: Option<Timestamp>,
    boot: BootId,
    piece: Piece,
) -> Result<AlarmSweep> {
    let mut attempts = Attempts::default();
    loop {
        let swept = attempts.on(pool, async |connection| {
            alarms_once(connection, at, boot, piece).await
        });
        match swept.await {
            Ok(sweep) => return Ok(sweep),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn alarms_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    boot: BootId,
    piece: Piece,
) -> std::result::Result<AlarmSweep, Fault> {
    let mut tx = connection.begin().await?;
    let now = now(&mut tx, at).await?;
    let mut sweep = AlarmSweep {
        now,
        ..AlarmSweep::default()
    };
    let due = due(&mut tx, now, piece).await?;
    if !due.is_empty() {
        let keys = due.iter().map(|(key, _)| *key);
        let mut ledger = Ledger::lock(&mut tx, Some(now), boot, keys).await?;
        let ids = due.iter().map(|(key, id)| (key.tenant, *id));
        ledger.read_sends(&mut tx, ids).await?;
        ledger.read_owners(&mut tx).await?;
        ledger.read_last(&mut tx).await?;
        for (key, id) in due {
            serve(&mut ledger, key, id, &mut sweep);
        }
        ledger.write(&mut tx).await?;
    }
    let next = sql!("sweeps/next_alarm").fetch_optional(&mut *tx).await?;
    if let Some(row) = next {
        sweep.next_alarm_at = Some(Fields::new(&row, "sends").time("alarm_at")?);
    }
    tx.commit().await?;
    Ok(sweep)
}

/// Locks the sessions of due alarms.
async fn due(
    connection: &mut PgConnection,
    now: Timestamp,
    piece: Piece,
) -> std::result::Result<Vec<(SessionKey, SendId)>, Fault> {
    let rows = sql!("sweeps/due")
        .bind(now.0)
        .bind(i64::from(piece.limit))
        .bind(i64::from(piece.skip))
        .fetch_all(connection)
        .await?;
    let due = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "sends");
        let key = fields.key()?;
        Ok((key, SendId(fields.take("send_id")?)))
    });
    Ok(due.collect::<Result<_>>()?)
}

/// Serves one alarm if it is still due under the session's lock.
fn serve(ledger: &mut Ledger, key: SessionKey, id: SendId, sweep: &mut AlarmSweep) {
    let place = (key.tenant, id);
    let Some((hot, send)) = ledger.hot.get(&key).zip(ledger.sends.get(&place)) else {
        return;
    };
    if send.alarm_at.is_none_or(|alarm_at| alarm_at > ledger.now) {
        return;
    }
    sweep.served += 1;
    let state = SendState::of(send);
    let lease_until = ledger.lease_until(key);
    let change = transition::expire(
        &hot.row,
        &state,
        hot.head(),
        lease_until,
        ledger.boot,
        ledger.now,
    );
    if change.end.is_some() {
        sweep.finished.push((key, id, change.step_n()));
        if state.is_active() {
            sweep.begun.push((key, id));
        }
    }
    sweep.enqueue.extend(ledger.settle(change).ready);
}

/// Deletes a bounded number of old idempotency keys and of boots that ended long ago.
pub(crate) async fn retention(pool: &Pool, at: Option<Timestamp>, keep: Duration) -> Result<u64> {
    let at = at.map(|at| at.0);
    let keep = keep.as_millis() as i64;
    let keys = execute(pool, || {
        sql!("sweeps/forget_keys")
            .bind(at)
            .bind(keep)
            .bind(RETENTION_ROWS)
    })
    .await?;
    let boots = execute(pool, || {
        sql!("sweeps/forget_boots")
            .bind(at)
            .bind(keep)
            .bind(RETENTION_ROWS)
    })
    .await?;
    let api_keys = execute(pool, || {
        sql!("sweeps/forget_api_keys")
            .bind(at)
            .bind(keep.max(API_KEY_KEEP.as_millis() as i64))
            .bind(RETENTION_ROWS)
    })
    .await?;
    Ok(keys + boots + api_keys)
}

/// Deletes those sends of a page that are old enough, with everything that only they refer to.
pub(crate) async fn retire_sends(
    pool: &Pool,
    at: Option<Timestamp>,
    query: RetireSends,
) -> Result<Retired> {
    let after = query.after.map(|after| after.0).unwrap_or_default();
    let rows = fetch(pool, || {
        sql!("sweeps/retire_sends")
            .bind(at.map(|at| at.0))
            .bind(query.keep.as_millis() as i64)
            .bind(query.tenant.0)
            .bind(after)
            .bind(i64::from(query.limit))
            .bind(query.young.as_millis() as i64)
    })
    .await?;
    let mut retired = Retired::default();
    for row in &rows {
        let mut fields = Fields::new(row, "sends");
        let removed: i64 = fields.take("removed")?;
        retired.rows += removed.unsigned_abs();
        retired.next = fields.take::<Option<Uuid>>("next")?.map(SendId);
        let skipped: i64 = fields.take("skipped")?;
        retired.skipped += skipped.unsigned_abs();
    }
    Ok(retired)
}
