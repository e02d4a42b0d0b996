//! Reading timers.

use mainspring_shared::id::{SendId, TenantId, TimerId};
use mainspring_shared::store::{ListOccurrences, ListTimers, Page, Result};
use mainspring_shared::timer::{Fate, Occurrence, TimerRecord, TimerState, TimerStatus};
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::fault::Fault;
use crate::reads::page;
use crate::retry::{PgQuery, Pool, fetch, sql};
use crate::rows::Fields;

impl Fields<'_> {
    /// Reads `{timer}`.
    pub(crate) fn timer(&mut self) -> Result<TimerRecord> {
        let tenant = TenantId(self.take("tenant")?);
        let id = self.timer_id()?;
        self.name_row(id.to_string());
        Ok(TimerRecord {
            id,
            tenant,
            target: self.json("target")?,
            rule: self.json("rule")?,
            state: TimerState {
                status: self.name("status", TimerStatus::parse)?,
                next_n: self.take("next_n")?,
                due_at: self.maybe_time("due_at")?,
                fire_at: self.maybe_time("fire_at")?,
                failures: self.take("failures")?,
                failure: self.maybe_json("failure")?,
                last_send: self.maybe_send_id("last_send")?,
                last_fired_at: self.maybe_time("last_fired_at")?,
                ended_at: self.maybe_time("ended_at")?,
            },
            created_at: self.time("created_at")?,
            updated_at: self.time("updated_at")?,
        })
    }

    fn timer_id(&mut self) -> Result<TimerId> {
        self.take("timer_id").map(TimerId)
    }

    pub(super) fn maybe_send_id(&mut self, column: &'static str) -> Result<Option<SendId>> {
        let id: Option<Uuid> = self.take(column)?;
        Ok(id.map(SendId))
    }

    /// Reads `{occurrence}`.
    pub(crate) fn occurrence(&mut self) -> Result<Occurrence> {
        Ok(Occurrence {
            n: self.take("n")?,
            due_at: self.time("due_at")?,
            fate: self.name("fate", Fate::parse)?,
            send_id: self.maybe_send_id("send_id")?,
            fired_at: self.time("fired_at")?,
            manual: self.take("manual")?,
        })
    }
}

/// A row of `ord` and a timer.
fn placed(row: &PgRow) -> Result<(i64, TimerRecord)> {
    let mut fields = Fields::new(row, "timers");
    Ok((fields.take("ord")?, fields.timer()?))
}

fn by_id(ids: &[(TenantId, TimerId)]) -> PgQuery {
    let (tenants, ids): (Vec<i32>, Vec<Uuid>) = ids.iter().map(|(t, id)| (t.0, id.0)).unzip();
    sql!("timers/get").bind(tenants).bind(ids)
}

fn in_order(rows: &[PgRow], count: usize) -> Result<Vec<Option<TimerRecord>>> {
    let mut found: Vec<Option<TimerRecord>> = (0..count).map(|_| None).collect();
    for row in rows {
        let (ord, timer) = placed(row)?;
        found[ord as usize - 1] = Some(timer);
    }
    Ok(found)
}

/// Reads timers by id, within a step.
pub(super) async fn of(
    connection: &mut PgConnection,
    ids: Vec<(TenantId, TimerId)>,
) -> std::result::Result<Vec<Option<TimerRecord>>, Fault> {
    let rows = by_id(&ids).fetch_all(connection).await?;
    Ok(in_order(&rows, ids.len())?)
}

/// Reads timers by id.
pub(crate) async fn get(
    pool: &Pool,
    ids: &[(TenantId, TimerId)],
) -> Result<Vec<Option<TimerRecord>>> {
    let rows = fetch(pool, || by_id(ids)).await?;
    in_order(&rows, ids.len())
}

/// Lists timers, newest first.
pub(crate) async fn list(pool: &Pool, query: &ListTimers) -> Result<Page<TimerRecord>> {
    let rows = fetch(pool, || {
        sql!("timers/list")
            .bind(query.tenant.0)
            .bind(query.session.map(|id| id.0))
            .bind(query.status.map(TimerStatus::as_str))
            .bind(query.before.map(|id| id.0))
            .bind(i64::from(query.limit) + 1)
            .persistent(false)
    })
    .await?;
    Ok(page(&rows, query.limit, |row| Ok(placed(row)?.1)))
}

/// Lists a timer's occurrences, newest first.
pub(crate) async fn occurrences(pool: &Pool, query: &ListOccurrences) -> Result<Page<Occurrence>> {
    let rows = fetch(pool, || {
        sql!("timers/occurrences")
            .bind(query.tenant.0)
            .bind(query.timer.0)
            .bind(query.before)
            .bind(i64::from(query.limit) + 1)
    })
    .await?;
    let read = |row: &PgRow| Fields::new(row, "timer_occurrences").occurrence();
    Ok(page(&rows, query.limit, read))
}

/// Every timer with its occurrences.
pub(crate) async fn dump(
    tx: &mut PgConnection,
) -> std::result::Result<Vec<(TimerRecord, Vec<Occurrence>)>, Fault> {
    let rows = sql!("reads/dump_timers").fetch_all(&mut *tx).await?;
    let timers = rows.iter().map(|row| Ok((placed(row)?.1, Vec::new())));
    let mut timers = timers.collect::<Result<Vec<_>>>()?;
    for row in &sql!("reads/dump_occurrences").fetch_all(tx).await? {
        let mut fields = Fields::new(row, "timer_occurrences");
        let key = (TenantId(fields.take("tenant")?), fields.timer_id()?);
        let found = timers.binary_search_by_key(&key, |(t, _)| (t.tenant, t.id));
        if let Ok(index) = found {
            timers[index].1.push(fields.occurrence()?);
        }
    }
    Ok(timers)
}
