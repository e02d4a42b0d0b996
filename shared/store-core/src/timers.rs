//! Timers: creating, changing and firing them, and their occurrences.

use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SessionKey, TenantId, TimerId};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store;
use mainspring_shared::store::{
    AcceptOutcome, ChangeTimer, ChangeTimerOutcome, CreateRunOutcome, CreateTimerOutcome, Fired,
    FiredRun, FiredSend, IdempotencyKey, ListOccurrences, ListTimers, NewTimer, Page, RefuseTimer,
    TimerDelivery, Timers, WebhookNews, deliveries, refusal, run_refusal,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::{
    Event, Fate, Occurrence, Refusal, Step, TimerRecord, TimerState, TimerStatus, TimerTarget,
    transition,
};
use uuid::Uuid;

use crate::accept::{self, Seen};
use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::query::{query_scalar, statement};
use crate::reads::page;
use crate::row::Row;
use crate::rows::{Cells, json};
use crate::store::{SqlStore, Tx};
use crate::{hot, runs, webhooks};

#[async_trait]
impl Timers for SqlStore {
    async fn create_timers(
        &self,
        items: Vec<(NewTimer, Option<IdempotencyKey>)>,
    ) -> store::Result<Vec<CreateTimerOutcome>> {
        self.write(items, |tx, items| Box::pin(create(tx, items)))
            .await
    }

    async fn change_timers(
        &self,
        items: Vec<ChangeTimer>,
    ) -> store::Result<Vec<ChangeTimerOutcome>> {
        self.write(items, |tx, items| Box::pin(change(tx, items)))
            .await
    }

    async fn fire_timers(&self, boot: BootId, limit: u32) -> store::Result<Fired> {
        self.write((boot, limit), |tx, (boot, limit)| {
            Box::pin(fire(tx, boot, limit))
        })
        .await
    }

    async fn sweep_timers(&self, keep: Duration) -> store::Result<u64> {
        self.write(keep, |tx, keep| Box::pin(retention(tx, keep)))
            .await
    }

    async fn get_timers(
        &self,
        ids: Vec<(TenantId, TimerId)>,
    ) -> store::Result<Vec<Option<TimerRecord>>> {
        self.read(|conn| Box::pin(all(conn, ids))).await
    }

    async fn list_timers(&self, query: ListTimers) -> store::Result<Page<TimerRecord>> {
        self.read(|conn| Box::pin(list(conn, query))).await
    }

    async fn list_occurrences(&self, query: ListOccurrences) -> store::Result<Page<Occurrence>> {
        self.read(|conn| Box::pin(occurrences(conn, query))).await
    }
}

/// Maximum number of rows of one kind that one retention sweep removes, so that it never holds the
/// writer for long.
const RETENTION_BATCH: i64 = 1_000;

/// Creates timers one after the other.
pub(crate) async fn create(
    tx: &mut Tx,
    items: Vec<(NewTimer, Option<IdempotencyKey>)>,
) -> Result<Vec<CreateTimerOutcome>> {
    let mut outcomes = Vec::with_capacity(items.len());
    for (new, key) in items {
        outcomes.push(create_one(tx, new, key).await?);
    }
    Ok(outcomes)
}

async fn create_one(
    tx: &mut Tx,
    new: NewTimer,
    key: Option<IdempotencyKey>,
) -> Result<CreateTimerOutcome> {
    if let Some(key) = &key {
        match accept::seen(tx, key).await? {
            Seen::Never => {}
            Seen::Before(timer) => return Ok(CreateTimerOutcome::Replayed(TimerId(timer))),
            Seen::OtherBody => return Ok(CreateTimerOutcome::Mismatch),
        }
    }
    if let Some(reason) = refuse(tx, &new).await? {
        return Ok(CreateTimerOutcome::Refused(reason));
    }
    let state = match TimerState::armed(new.id, &new.rule, tx.now) {
        Ok(state) => state,
        Err(fault) => return Ok(CreateTimerOutcome::Refused(RefuseTimer::Schedule(fault))),
    };
    if let Some(key) = &key {
        accept::remember(tx, key, new.id.0).await?;
    }
    let now = tx.now;
    statement(sql!("timers/insert"))
        .bind(new.tenant.0)
        .bind(new.id.0)
        .bind(new.target.session().map(|session| session.0))
        .bind(json(&new.target)?)
        .bind(json(&new.rule)?)
        .bind(state.status.as_str())
        .bind(state.next_n)
        .bind(state.due_at.map(|at| at.0))
        .bind(state.fire_at.map(|at| at.0))
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(CreateTimerOutcome::Created(Box::new(TimerRecord {
        id: new.id,
        tenant: new.tenant,
        target: new.target,
        rule: new.rule,
        state,
        created_at: now,
        updated_at: now,
    })))
}

async fn refuse(tx: &mut Tx, new: &NewTimer) -> Result<Option<RefuseTimer>> {
    let Some(session) = new.target.session() else {
        return Ok(None);
    };
    let row = statement(sql!("timers/session"))
        .bind(new.tenant.0)
        .bind(session.0)
        .fetch_optional(tx.conn())
        .await?;
    let Some(row) = row else {
        return Ok(Some(RefuseTimer::SessionNotFound));
    };
    let mut cells = Cells::new(&row, "session_hot");
    let lifecycle = hot::lifecycle(&mut cells)?;
    let armed: i64 = cells.get("armed")?;
    Ok(match lifecycle {
        Lifecycle::Deleted => Some(RefuseTimer::SessionNotFound),
        Lifecycle::Closed => Some(RefuseTimer::SessionClosed),
        Lifecycle::Open => new
            .armed_max
            .filter(|max| armed >= i64::from(*max))
            .map(|_| RefuseTimer::TooMany),
    })
}

/// Changes timers one after the other.
pub(crate) async fn change(
    tx: &mut Tx,
    items: Vec<ChangeTimer>,
) -> Result<Vec<ChangeTimerOutcome>> {
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(change_one(tx, item).await?);
    }
    Ok(outcomes)
}

async fn change_one(tx: &mut Tx, item: ChangeTimer) -> Result<ChangeTimerOutcome> {
    statement(sql!("timers/lock"))
        .bind(item.tenant.0)
        .bind(item.id.0)
        .execute(tx.conn())
        .await?;
    let found = get(tx.conn(), item.tenant, item.id).await?;
    let mine = |timer: &TimerRecord| {
        item.session
            .is_none_or(|session| timer.target.session() == Some(session))
    };
    let Some(mut timer) = found.filter(mine) else {
        return Ok(ChangeTimerOutcome::NotFound);
    };
    let next = match item.change.apply(&timer, tx.now) {
        Ok(next) => next,
        Err(why) => return Ok(ChangeTimerOutcome::refused(timer, why)),
    };
    if next.rule != timer.rule || next.target != timer.target {
        statement(sql!("timers/amend"))
            .bind(next.tenant.0)
            .bind(next.id.0)
            .bind(json(&next.target)?)
            .bind(json(&next.rule)?)
            .execute(tx.conn())
            .await?;
    }
    if next != timer {
        let step = Step {
            next: next.state.clone(),
            occurrences: Vec::new(),
        };
        timer = next;
        take(tx, &mut timer, step).await?;
    }
    Ok(ChangeTimerOutcome::Changed(Box::new(timer)))
}

/// Stores the state after a step.
async fn take(tx: &mut Tx, timer: &mut TimerRecord, step: Step) -> Result<()> {
    let now = tx.now;
    let state = &step.next;
    statement(sql!("timers/change"))
        .bind(timer.tenant.0)
        .bind(timer.id.0)
        .bind(state.status.as_str())
        .bind(state.next_n)
        .bind(state.due_at.map(|at| at.0))
        .bind(state.fire_at.map(|at| at.0))
        .bind(state.failures)
        .bind(state.failure.as_ref().map(json).transpose()?)
        .bind(state.last_send.map(|send| send.0))
        .bind(state.last_fired_at.map(|at| at.0))
        .bind(state.ended_at.map(|at| at.0))
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    for occurrence in &step.occurrences {
        statement(sql!("timers/occur"))
            .bind(timer.tenant.0)
            .bind(timer.id.0)
            .bind(occurrence.n)
            .bind(occurrence.due_at.0)
            .bind(occurrence.fate.as_str())
            .bind(occurrence.send_id.map(|send| send.0))
            .bind(occurrence.fired_at.0)
            .bind(occurrence.manual)
            .execute(tx.conn())
            .await?;
    }
    timer.state = step.next;
    timer.updated_at = now;
    Ok(())
}

/// Ends the timers of a deleted session.
pub(crate) async fn cancel_of_session(tx: &mut Tx, key: SessionKey) -> Result<()> {
    let now = tx.now;
    statement(sql!("timers/cancel_of_session"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    statement(sql!("timers/empty_of_session"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(json(&TimerTarget::emptied(key.session))?)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Fires due timers, oldest first.
pub(crate) async fn fire(tx: &mut Tx, boot: BootId, limit: u32) -> Result<Fired> {
    let now = tx.now;
    let mut fired = Fired {
        now,
        ..Fired::default()
    };
    let mut passed_over = 0;
    let mut any_locked = false;
    loop {
        let rows = statement(sql!("timers/due"))
            .bind(now.0)
            .bind(limit)
            .bind(passed_over)
            .fetch_all(tx.conn())
            .await?;
        fired.more = rows.len() >= limit as usize;
        for row in &rows {
            tx.begin_item().await?;
            let one = fire_row(tx, boot, row).await;
            match tx.end_item(one).await? {
                Some(Some(one)) => fired.add(one),
                Some(None) => {
                    any_locked = true;
                    passed_over += 1;
                }
                None => passed_over += 1,
            }
        }
        // If no timer of the page could be read and locked, try the next page.
        if fired.served > 0 || !fired.more {
            break;
        }
    }
    let next: Option<i64> = query_scalar(sql!("timers/next"))
        .bind(now.0)
        .fetch_one(tx.conn())
        .await?;
    fired.next_due_at = next.map(Timestamp);
    if any_locked {
        fired.retry_locked();
    }
    Ok(fired)
}

/// Fires the timer of a row, and returns the effects. A timer whose session is locked by someone
/// else stays due, and does not delay the others.
async fn fire_row(tx: &mut Tx, boot: BootId, row: &Row) -> Result<Option<Fired>> {
    let mut fired = Fired::default();
    let mut cells = Cells::new(row, "timers");
    let timer = record(&mut cells)?;
    let status = cells.word_opt("last_status", SendStatus::parse)?;
    let queued = status == Some(SendStatus::Queued);
    if let TimerTarget::Send { session, .. } = &timer.target {
        let key = SessionKey {
            tenant: timer.tenant,
            session: *session,
        };
        if !hot::try_lock(tx, key).await? {
            return Ok(None);
        }
    }
    fire_one(tx, boot, timer, queued, &mut fired).await?;
    Ok(Some(fired))
}

async fn fire_one(
    tx: &mut Tx,
    boot: BootId,
    mut timer: TimerRecord,
    queued: bool,
    fired: &mut Fired,
) -> Result<()> {
    let now = tx.now;
    let queued = timer.state.last_send.filter(|_| queued);
    let due = |refused: Option<Refusal>| Event::Due { queued, refused };
    let Ok(mut step) = transition(&timer, &due(None), now) else {
        return Ok(());
    };
    let mut refused = None;
    for (occurrence, delivery) in deliveries(&timer, &step) {
        refused = match delivery {
            TimerDelivery::Send(item) => {
                let (key, send) = (item.target.key(), item.id);
                let outcomes = accept::all(tx, boot, vec![*item]).await?;
                let outcome = outcomes
                    .into_iter()
                    .next()
                    .unwrap_or(AcceptOutcome::Mismatch);
                if let AcceptOutcome::Accepted(accepted) = &outcome {
                    fired.enqueue.extend(accepted.enqueue.clone());
                    fired.sends.push(FiredSend {
                        key,
                        send,
                        step: accepted.step,
                        due_at: occurrence.due_at,
                    });
                }
                refusal(occurrence.n, &outcome)
            }
            TimerDelivery::Run(new) => {
                let outcome = runs::create_one(tx, *new).await?;
                if let CreateRunOutcome::Created(run) = &outcome {
                    let due_at = occurrence.due_at;
                    fired.runs.push(FiredRun {
                        key: run.key,
                        due_at,
                    });
                }
                run_refusal(occurrence.n, &outcome)
            }
        };
        if refused.is_some() {
            break;
        }
    }
    let is_refused = refused.is_some();
    if is_refused && let Ok(less) = transition(&timer, &due(refused), now) {
        step = less;
    }
    fired.count(&step, is_refused);
    if let Some(news) = WebhookNews::of_firing(&timer, &step, now) {
        webhooks::note(tx, &news).await?;
    }
    take(tx, &mut timer, step).await
}

/// Removes a batch of rows that are old enough. Returns the number of removed rows.
pub(crate) async fn retention(tx: &mut Tx, keep: Duration) -> Result<u64> {
    let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
    let before = tx.now.0.saturating_sub(keep);
    let mut removed = 0;
    for sql in [sql!("timers/forget_occurrences"), sql!("timers/forget")] {
        let done = statement(sql)
            .bind(before)
            .bind(RETENTION_BATCH)
            .execute(tx.conn())
            .await?;
        removed += done.rows_affected();
    }
    Ok(removed)
}

/// Timers by id.
pub(crate) async fn all(
    conn: &mut Conn,
    ids: Vec<(TenantId, TimerId)>,
) -> Result<Vec<Option<TimerRecord>>> {
    let mut found = Vec::with_capacity(ids.len());
    for (tenant, id) in ids {
        found.push(get(conn, tenant, id).await?);
    }
    Ok(found)
}

async fn get(conn: &mut Conn, tenant: TenantId, id: TimerId) -> Result<Option<TimerRecord>> {
    let row = statement(sql!("timers/get"))
        .bind(tenant.0)
        .bind(id.0)
        .fetch_optional(conn)
        .await?;
    row.as_ref().map(timer).transpose()
}

/// Timers, newest first.
pub(crate) async fn list(conn: &mut Conn, query: ListTimers) -> Result<Page<TimerRecord>> {
    let sql = if query.session.is_some() {
        sql!("timers/list_of_session")
    } else {
        sql!("timers/list")
    };
    let rows = statement(sql)
        .bind(query.tenant.0)
        .bind(query.before.map(|id| id.0))
        .bind(query.status.map(TimerStatus::as_str))
        .bind(i64::from(query.limit) + 1)
        .bind(query.session.map(|id| id.0))
        .fetch_all(conn)
        .await?;
    Ok(page(&rows, query.limit, timer))
}

/// A timer's occurrences, newest first.
pub(crate) async fn occurrences(
    conn: &mut Conn,
    query: ListOccurrences,
) -> Result<Page<Occurrence>> {
    let rows = statement(sql!("timers/occurrences"))
        .bind(query.tenant.0)
        .bind(query.timer.0)
        .bind(query.before)
        .bind(i64::from(query.limit) + 1)
        .fetch_all(conn)
        .await?;
    Ok(page(&rows, query.limit, |row| {
        occurrence(&mut Cells::new(row, "timer_occurrences"))
    }))
}

/// All timers with their occurrences.
pub(crate) async fn dump(conn: &mut Conn) -> Result<Vec<(TimerRecord, Vec<Occurrence>)>> {
    let rows = statement(sql!("timers/dump")).fetch_all(&mut *conn).await?;
    let timers = rows.iter().map(|row| Ok((timer(row)?, Vec::new())));
    let mut timers = timers.collect::<Result<Vec<_>>>()?;
    let rows = statement(sql!("timers/dump_occurrences"))
        .fetch_all(conn)
        .await?;
    for row in &rows {
        let mut cells = Cells::new(row, "timer_occurrences");
        let key = (TenantId(cells.get("tenant")?), timer_id(&mut cells)?);
        let found = timers.binary_search_by_key(&key, |(t, _)| (t.tenant, t.id));
        if let Ok(index) = found {
            timers[index].1.push(occurrence(&mut cells)?);
        }
    }
    Ok(timers)
}

pub(crate) fn timer(row: &Row) -> Result<TimerRecord> {
    record(&mut Cells::new(row, "timers"))
}

fn timer_id(cells: &mut Cells<'_>) -> Result<TimerId> {
    cells.get::<Uuid>("timer_id").map(TimerId)
}

/// Reads `{timer}`.
fn record(cells: &mut Cells<'_>) -> Result<TimerRecord> {
    let tenant = TenantId(cells.get("tenant")?);
    let id = timer_id(cells)?;
    record_fields(cells, tenant, id).map_err(|fault| fault.of_row(|| id.to_string()))
}

fn record_fields(cells: &mut Cells<'_>, tenant: TenantId, id: TimerId) -> Result<TimerRecord> {
    Ok(TimerRecord {
        id,
        tenant,
        target: cells.json("target")?,
        rule: cells.json("rule")?,
        state: TimerState {
            status: cells.word("status", TimerStatus::parse)?,
            next_n: cells.get("next_n")?,
            due_at: cells.time_opt("due_at")?,
            fire_at: cells.time_opt("fire_at")?,
            failures: cells.get("failures")?,
            failure: cells.json_opt("failure")?,
            last_send: cells
                .get::<Option<Uuid>>("last_send")?
                .map(mainspring_shared::id::SendId),
            last_fired_at: cells.time_opt("last_fired_at")?,
            ended_at: cells.time_opt("ended_at")?,
        },
        created_at: cells.time("created_at")?,
        updated_at: cells.time("updated_at")?,
    })
}

/// Reads `{occurrence}`.
pub(crate) fn occurrence(cells: &mut Cells<'_>) -> Result<Occurrence> {
    Ok(Occurrence {
        n: cells.get("n")?,
        due_at: cells.time("due_at")?,
        fate: cells.word("fate", Fate::parse)?,
        send_id: cells
            .get::<Option<Uuid>>("send_id")?
            .map(mainspring_shared::id::SendId),
        fired_at: cells.time("fired_at")?,
        manual: cells.get("manual")?,
    })
}
