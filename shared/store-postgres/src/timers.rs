//! Timers: creating and changing them. Lock order: timers before hot rows.

use async_trait::async_trait;
use mainspring_shared::id::BootId;
use mainspring_shared::store::{Fired, ListOccurrences, ListTimers, Page, Timers};
use mainspring_shared::timer::Occurrence;

use crate::store::PostgresStore;
mod fire;
mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mainspring_shared::id::{SessionId, TenantId, TimerId};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::{
    ChangeTimer, ChangeTimerOutcome, CreateTimerOutcome, Error, IdempotencyKey, NewTimer,
    RefuseTimer, Result,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::{Step, TimerRecord, TimerState};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::accept::lookup;
use crate::columns::{KeyColumns, json};
use crate::fault::Fault;
use crate::group::{Effect, Group, drive};
use crate::ledger::now;
use crate::retry::{Attempts, Pool, Verdict, execute, sql};
use crate::rows::Fields;

#[async_trait]
impl Timers for PostgresStore {
    async fn create_timers(
        &self,
        items: Vec<(NewTimer, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateTimerOutcome>> {
        create(&self.pools.writers, self.at, items).await
    }

    async fn change_timers(&self, items: Vec<ChangeTimer>) -> Result<Vec<ChangeTimerOutcome>> {
        change(&self.pools.writers, self.at, &items).await
    }

    async fn fire_timers(&self, boot: BootId, limit: u32) -> Result<Fired> {
        fire(&self.pools.writers, self.at, boot, limit).await
    }

    async fn sweep_timers(&self, keep: Duration) -> Result<u64> {
        retention(&self.pools.writers, self.at, keep).await
    }

    async fn get_timers(&self, ids: Vec<(TenantId, TimerId)>) -> Result<Vec<Option<TimerRecord>>> {
        get(&self.pools.claimers, &ids).await
    }

    async fn list_timers(&self, query: ListTimers) -> Result<Page<TimerRecord>> {
        list(&self.pools.readers, &query).await
    }

    async fn list_occurrences(&self, query: ListOccurrences) -> Result<Page<Occurrence>> {
        occurrences(&self.pools.readers, &query).await
    }
}

pub(crate) use fire::fire;
pub(crate) use read::{dump, get, list, occurrences};

/// Rows of each kind that one call of the retention deletes.
const RETENTION_ROWS: i64 = 1_000;

type Item = (NewTimer, Option<IdempotencyKey>);

pub(crate) async fn create(
    pool: &Pool,
    at: Option<Timestamp>,
    items: Vec<Item>,
) -> Result<Vec<CreateTimerOutcome>> {
    drive(pool, &Create { at }, &items).await
}

struct Create {
    at: Option<Timestamp>,
}

impl Effect for CreateTimerOutcome {
    fn took_effect(&self) -> bool {
        matches!(self, Self::Created(_))
    }
}

impl Group for Create {
    type Item = Item;
    type Outcome = CreateTimerOutcome;
    type Seen = BTreeSet<(TenantId, SessionId)>;

    /// A timer with `armed_max` would not count those of its session that the same statement
    /// creates.
    fn conflicts_with(&self, (new, _): &Item, seen: &mut Self::Seen) -> bool {
        let Some(session) = new.target.session() else {
            return false;
        };
        let first = seen.insert((new.tenant, session));
        new.armed_max.is_some() && !first
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&Item],
    ) -> std::result::Result<Vec<Option<CreateTimerOutcome>>, Fault> {
        let mut tx = connection.begin().await?;
        let now = now(&mut tx, self.at).await?;
        let mut outcomes: Vec<Option<CreateTimerOutcome>> = items.iter().map(|_| None).collect();
        let keyed = items.iter().enumerate();
        let keyed = keyed.filter_map(|(index, (_, key))| Some((index, key.as_ref()?)));
        for (index, known) in lookup(&mut tx, keyed.collect()).await? {
            outcomes[index] = Some(if known.same_request {
                CreateTimerOutcome::Replayed(TimerId(known.resource))
            } else {
                CreateTimerOutcome::Mismatch
            });
        }
        let fresh = unsaid(&outcomes);
        for (index, reason) in refuse(&mut tx, items, &fresh).await? {
            outcomes[index] = Some(CreateTimerOutcome::Refused(reason));
        }
        let mut made = Vec::new();
        for index in unsaid(&outcomes) {
            match record(&items[index].0, now) {
                Ok(record) => made.push((index, record)),
                Err(reason) => outcomes[index] = Some(CreateTimerOutcome::Refused(reason)),
            }
        }
        for (index, record) in store(&mut tx, now, items, made).await? {
            outcomes[index] = Some(CreateTimerOutcome::Created(Box::new(record)));
        }
        tx.commit().await?;
        Ok(outcomes)
    }

    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&Item],
    ) -> std::result::Result<Vec<Option<CreateTimerOutcome>>, Fault> {
        let ids = items.iter().map(|(new, _)| (new.tenant, new.id));
        let found = read::of(connection, ids.collect()).await?;
        let created = |record| CreateTimerOutcome::Created(Box::new(record));
        Ok(found.into_iter().map(|found| found.map(created)).collect())
    }

    fn unsettled(&self, _: &Item) -> Result<CreateTimerOutcome> {
        Err(Error::Unavailable {
            source: "an idempotency key was taken and freed again and again".into(),
        })
    }
}

/// The indexes without an outcome.
fn unsaid(outcomes: &[Option<CreateTimerOutcome>]) -> Vec<usize> {
    let all = outcomes.iter().enumerate();
    all.filter(|(_, outcome)| outcome.is_none())
        .map(|(index, _)| index)
        .collect()
}

/// The record of a timer that is armed now.
fn record(new: &NewTimer, now: Timestamp) -> std::result::Result<TimerRecord, RefuseTimer> {
    let state = TimerState::armed(new.id, &new.rule, now).map_err(RefuseTimer::Schedule)?;
    Ok(TimerRecord {
        id: new.id,
        tenant: new.tenant,
        target: new.target.clone(),
        rule: new.rule.clone(),
        state,
        created_at: now,
        updated_at: now,
    })
}

/// The items that their sessions refuse. Sessions whose timers are counted are locked first.
async fn refuse(
    tx: &mut PgConnection,
    items: &[&Item],
    fresh: &[usize],
) -> std::result::Result<Vec<(usize, RefuseTimer)>, Fault> {
    let asked = fresh.iter().filter_map(|index| {
        let new = &items[*index].0;
        Some((*index, new, new.target.session()?))
    });
    let asked: Vec<_> = asked.collect();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let columns = |only_counted: bool| -> (Vec<i32>, Vec<Uuid>) {
        let wanted = asked.iter();
        let wanted = wanted.filter(|(_, new, _)| !only_counted || new.armed_max.is_some());
        wanted.map(|(_, new, id)| (new.tenant.0, id.0)).unzip()
    };
    let (tenants, sessions) = columns(true);
    if !tenants.is_empty() {
        sql!("timers/lock_sessions")
            .bind(tenants)
            .bind(sessions)
            .execute(&mut *tx)
            .await?;
    }
    let (tenants, sessions) = columns(false);
    let counts = asked.iter().map(|(_, new, _)| new.armed_max.is_some());
    let rows = sql!("timers/sessions")
        .bind(tenants)
        .bind(sessions)
        .bind(counts.collect::<Vec<bool>>())
        .fetch_all(tx)
        .await?;
    let mut refused: Vec<Option<RefuseTimer>> = asked
        .iter()
        .map(|_| Some(RefuseTimer::SessionNotFound))
        .collect();
    for row in &rows {
        let mut fields = Fields::new(row, "session_hot");
        let ord = fields.ord()?;
        let lifecycle: i16 = fields.take("lifecycle")?;
        let armed: i64 = fields.take("armed")?;
        let full = asked[ord]
            .1
            .armed_max
            .is_some_and(|max| armed >= i64::from(max));
        refused[ord] = match Lifecycle::from_i16(lifecycle) {
            Some(Lifecycle::Open) => full.then_some(RefuseTimer::TooMany),
            Some(Lifecycle::Closed) => Some(RefuseTimer::SessionClosed),
            Some(Lifecycle::Deleted) | None => Some(RefuseTimer::SessionNotFound),
        };
    }
    let refused = asked.iter().zip(refused);
    Ok(refused
        .filter_map(|((index, ..), reason)| Some((*index, reason?)))
        .collect())
}

/// Stores timers. Those whose idempotency keys exist already are left out of the result.
async fn store(
    tx: &mut PgConnection,
    now: Timestamp,
    items: &[&Item],
    made: Vec<(usize, TimerRecord)>,
) -> std::result::Result<Vec<(usize, TimerRecord)>, Fault> {
    if made.is_empty() {
        return Ok(made);
    }
    let all = || made.iter().map(|(_, record)| record);
    let session = |timer: &TimerRecord| timer.target.session().map(|session| session.0);
    let mut keys = KeyColumns::default();
    for (index, _) in &made {
        keys.push(items[*index].1.as_ref());
    }
    let query = sql!("timers/create")
        .bind(now.0)
        .bind(all().map(|t| t.tenant.0).collect::<Vec<i32>>())
        .bind(all().map(|t| t.id.0).collect::<Vec<Uuid>>())
        .bind(all().map(session).collect::<Vec<_>>())
        .bind(all().map(|t| json(&t.target)).collect::<Vec<_>>())
        .bind(all().map(|t| json(&t.rule)).collect::<Vec<_>>())
        .bind(all().map(|t| t.state.status.as_str()).collect::<Vec<_>>())
        .bind(all().map(|t| t.state.next_n).collect::<Vec<_>>())
        .bind(
            all()
                .map(|t| t.state.due_at.map(|at| at.0))
                .collect::<Vec<_>>(),
        )
        .bind(
            all()
                .map(|t| t.state.fire_at.map(|at| at.0))
                .collect::<Vec<_>>(),
        );
    let rows = keys.bind(query).fetch_all(tx).await?;
    let mut made: Vec<Option<(usize, TimerRecord)>> = made.into_iter().map(Some).collect();
    let mut stored = Vec::with_capacity(rows.len());
    for row in &rows {
        let ord = Fields::new(row, "timers").ord()?;
        stored.extend(made[ord].take());
    }
    Ok(stored)
}

pub(crate) async fn change(
    pool: &Pool,
    at: Option<Timestamp>,
    items: &[ChangeTimer],
) -> Result<Vec<ChangeTimerOutcome>> {
    let mut attempts = Attempts::default();
    loop {
        let changed = attempts.on(pool, async |connection| {
            change_once(connection, at, items).await
        });
        match changed.await {
            Ok(outcomes) => return Ok(outcomes),
            // A repeat finds the timers as it wants them.
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn change_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    items: &[ChangeTimer],
) -> std::result::Result<Vec<ChangeTimerOutcome>, Fault> {
    let mut tx = connection.begin().await?;
    let (tenants, ids): (Vec<i32>, Vec<Uuid>) = items.iter().map(|i| (i.tenant.0, i.id.0)).unzip();
    let rows = sql!("timers/lock")
        .bind(tenants)
        .bind(ids)
        .fetch_all(&mut *tx)
        .await?;
    let now = now(&mut tx, at).await?;
    let mut timers = BTreeMap::new();
    for row in &rows {
        let timer = Fields::new(row, "timers").timer()?;
        timers.insert((timer.tenant, timer.id), timer);
    }
    let (mut changed, mut amended) = (BTreeSet::new(), BTreeSet::new());
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        let key = (item.tenant, item.id);
        let mine = |timer: &&mut TimerRecord| {
            item.session
                .is_none_or(|session| timer.target.session() == Some(session))
        };
        let Some(timer) = timers.get_mut(&key).filter(mine) else {
            outcomes.push(ChangeTimerOutcome::NotFound);
            continue;
        };
        outcomes.push(match item.change.apply(timer, now) {
            Ok(next) => {
                if next.rule != timer.rule || next.target != timer.target {
                    amended.insert(key);
                }
                if next != *timer {
                    changed.insert(key);
                    *timer = next;
                }
                ChangeTimerOutcome::Changed(Box::new(timer.clone()))
            }
            Err(why) => ChangeTimerOutcome::refused(timer.clone(), why),
        });
    }
    if !amended.is_empty() {
        let all = || amended.iter().filter_map(|key| timers.get(key));
        sql!("timers/amend")
            .bind(all().map(|timer| timer.tenant.0).collect::<Vec<i32>>())
            .bind(all().map(|timer| timer.id.0).collect::<Vec<Uuid>>())
            .bind(all().map(|timer| json(&timer.target)).collect::<Vec<_>>())
            .bind(all().map(|timer| json(&timer.rule)).collect::<Vec<_>>())
            .execute(&mut *tx)
            .await?;
    }
    let steps: Vec<(TimerRecord, Step)> = timers
        .into_iter()
        .filter(|(key, _)| changed.contains(key))
        .map(|(_, timer)| {
            let step = Step {
                next: timer.state.clone(),
                occurrences: Vec::new(),
            };
            (timer, step)
        })
        .collect();
    fire::settle(&mut tx, now, &steps).await?;
    tx.commit().await?;
    Ok(outcomes)
}

/// Deletes a bounded number of old occurrences and of timers that ended long ago.
pub(crate) async fn retention(pool: &Pool, at: Option<Timestamp>, keep: Duration) -> Result<u64> {
    let at = at.map(|at| at.0);
    let keep = keep.as_millis() as i64;
    let occurrences = execute(pool, || {
        sql!("timers/forget_occurrences")
            .bind(at)
            .bind(keep)
            .bind(RETENTION_ROWS)
    })
    .await?;
    let timers = execute(pool, || {
        sql!("timers/forget")
            .bind(at)
            .bind(keep)
            .bind(RETENTION_ROWS)
    })
    .await?;
    Ok(occurrences + timers)
}
