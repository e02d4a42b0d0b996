//! Methods that call every database: due work, cleanup, statistics and audits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SessionKey, TenantId};
use mainspring_shared::message::Message;
use mainspring_shared::session::fold::Fold;
use mainspring_shared::step::Step;
use mainspring_shared::store::{
    AlarmSweep, AuditOptions, AuditPiece, AuditPlace, Audited, ClaimRuns, ClaimedRuns,
    DeletedSession, Error, FannedOut, FindMessages, FindSteps, Fired, FoundSteps, ListRuns,
    ListSessions, ListTenants, Orphans, QueueStats, ReadMessages, Reads, ReadySession,
    ReportOutcome, Result, RetireBlobs, RetireDeliveries, RetiredBlobs, ScalingStats, SchemaFault,
    ServerInfo, SweepOrphans, SweepReady, Sweeps, Swept, Violation,
};
use mainspring_shared::time::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::by_tenant::placed;
use crate::merge::page;
use crate::place::Place;
use crate::store::{GRACE, PlacedStore};

/// An invariant that exists only with several databases.
const ONE_PLACE: &str = "placement.one_place";

/// Long enough for answers that read whole databases.
const UNBOUNDED: Duration = Duration::from_hours(1);

// What is due --------------------------------------------------------------------------------------

placed! { Sweeps:
    fn sweep_ready(query: SweepReady) -> Swept = by (sweep_ready);
    fn sweep_alarms(boot: BootId, limit: u32) -> AlarmSweep = by (sweep_alarms);
    fn sweep_orphans(query: SweepOrphans) -> Orphans = by (sweep_orphans);
    fn sweep_retention(keep: Duration) -> u64 = by (sweep_retention);
}

async fn sweep_ready(store: &PlacedStore, query: SweepReady) -> Result<Swept> {
    store.catalogue.find(TenantId::DEFAULT).await?;
    let limit = query.limit;
    let look = |place: Arc<Place>| {
        let query = query.clone();
        async move { place.store.sweep_ready(query).await }
    };
    let found = store.each(GRACE, look).await.some()?;
    let pages = found.into_iter().map(|(place, swept)| {
        let mine = swept.sessions.into_iter();
        let mine = mine.filter(|ready| store.is_at(place, ready.key.tenant));
        let mine: Vec<ReadySession> = mine.collect();
        (mine, swept.next)
    });
    let (sessions, next) = page(pages.collect(), |it| (it.ready_since, it.key), limit);
    Ok(Swept { sessions, next })
}

/// Converts a time of another database to the clock of the first one: equally long after now.
pub(super) fn by_clock(at: Timestamp, there: Timestamp, here: Timestamp) -> Timestamp {
    Timestamp(here.0.saturating_add(at.0.saturating_sub(there.0)))
}

/// The earlier of two optional times.
pub(super) fn sooner(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

async fn sweep_alarms(store: &PlacedStore, boot: BootId, limit: u32) -> Result<AlarmSweep> {
    let sweep = move |place: Arc<Place>| async move { place.store.sweep_alarms(boot, limit).await };
    let found = store.each(GRACE, sweep).await.some()?;
    let mut parts = found.into_iter().map(|(_, part)| part);
    let mut all = parts.next().unwrap_or_default();
    let mut is_full = all.served >= limit;
    for part in parts {
        is_full |= part.served >= limit;
        all.enqueue.extend(part.enqueue);
        all.finished.extend(part.finished);
        all.begun.extend(part.begun);
        all.served = all.served.saturating_add(part.served);
        let next = part.next_alarm_at.map(|at| by_clock(at, part.now, all.now));
        all.next_alarm_at = sooner(all.next_alarm_at, next);
    }
    // `limit` makes the caller sweep again.
    all.served = if is_full {
        limit
    } else {
        all.served.min(limit.saturating_sub(1))
    };
    Ok(all)
}

async fn sweep_orphans(store: &PlacedStore, query: SweepOrphans) -> Result<Orphans> {
    store.catalogue.find(TenantId::DEFAULT).await?;
    let look = move |place: Arc<Place>| async move { place.store.sweep_orphans(query).await };
    let found = store.each(GRACE, look).await.some()?;
    let mut of = BTreeSet::new();
    let mut next = None;
    for (place, part) in found {
        let mine = part.of.into_iter();
        of.extend(mine.filter(|(key, _)| store.is_at(place, key.tenant)));
        // Items of other databases after this cursor are returned again.
        next = next.into_iter().chain(part.next).min();
    }
    let of = of.into_iter().collect();
    Ok(Orphans { of, next })
}

async fn sweep_retention(store: &PlacedStore, keep: Duration) -> Result<u64> {
    super::tenants::follow(store).await;
    let sweep = move |place: Arc<Place>| async move { place.store.sweep_retention(keep).await };
    store.each(GRACE, sweep).await.sum()
}

pub(super) async fn fire_timers(store: &PlacedStore, boot: BootId, limit: u32) -> Result<Fired> {
    let fire = move |place: Arc<Place>| async move { place.store.fire_timers(boot, limit).await };
    let found = store.each(GRACE, fire).await.some()?;
    let mut parts = found.into_iter().map(|(_, part)| part);
    let mut all = parts.next().unwrap_or_default();
    for part in parts {
        all.more |= part.more;
        let next = part.next_due_at.map(|at| by_clock(at, part.now, all.now));
        all.next_due_at = sooner(all.next_due_at, next);
        all.add(part);
    }
    Ok(all)
}

pub(super) async fn lapsed_calls(
    store: &PlacedStore,
    limit: u32,
) -> Result<Vec<(SessionKey, String)>> {
    let look = move |place: Arc<Place>| async move { place.store.lapsed_calls(limit).await };
    let found = store.each(GRACE, look).await.some()?;
    let all = found.into_iter().flat_map(|(place, part)| {
        let mine = part.into_iter();
        mine.filter(move |(key, _)| store.is_at(place, key.tenant))
    });
    Ok(all.collect())
}

pub(super) async fn sweep_timers(store: &PlacedStore, keep: Duration) -> Result<u64> {
    let sweep = move |place: Arc<Place>| async move { place.store.sweep_timers(keep).await };
    store.each(GRACE, sweep).await.sum()
}

pub(super) async fn claim_runs(store: &PlacedStore, claim: ClaimRuns) -> Result<ClaimedRuns> {
    let look = |place: Arc<Place>| {
        let claim = claim.clone();
        async move { place.store.claim_runs(claim).await }
    };
    let found = store.each(GRACE, look).await.some()?;
    let mut all = ClaimedRuns {
        runs: Vec::new(),
        now: Timestamp(0),
        next_alarm: None,
    };
    for (n, (_, part)) in found.into_iter().enumerate() {
        if n == 0 {
            all.now = part.now;
        }
        let next = part.next_alarm.map(|at| by_clock(at, part.now, all.now));
        all.next_alarm = sooner(all.next_alarm, next);
        all.runs.extend(part.runs);
    }
    Ok(all)
}

pub(super) async fn report_children(store: &PlacedStore, limit: u32) -> Result<Vec<ReportOutcome>> {
    let report =
        move |place: Arc<Place>| async move { place.store.report_children(None, limit).await };
    let found = store.each(GRACE, report).await.some()?;
    Ok(found.into_iter().flat_map(|(_, part)| part).collect())
}

pub(super) async fn expire_memories(store: &PlacedStore, limit: u32) -> Result<u64> {
    let expire = move |place: Arc<Place>| async move { place.store.expire_memories(limit).await };
    store.each(GRACE, expire).await.sum()
}

pub(super) async fn sweep_money(store: &PlacedStore, limit: u32) -> Result<u32> {
    let sweep = move |place: Arc<Place>| async move { place.store.sweep_money(limit).await };
    store.each(GRACE, sweep).await.sum()
}

/// The home has the limits of all tenants, and each database those of its tenants' agents.
/// Unavailable databases are left out, since callers keep treating the tenants that they know to be
/// limited as such.
pub(super) async fn money_tenants(store: &PlacedStore) -> Result<Vec<TenantId>> {
    let look = |place: Arc<Place>| async move { place.store.money_tenants().await };
    let found = store.each(GRACE, look).await.some()?;
    let all: BTreeSet<TenantId> = found.into_iter().flat_map(|(_, part)| part).collect();
    Ok(all.into_iter().collect())
}

pub(super) async fn fan_out(store: &PlacedStore, limit: u32) -> Result<FannedOut> {
    let fan_out = move |place: Arc<Place>| async move { place.store.fan_out(limit).await };
    let found = store.each(GRACE, fan_out).await.some()?;
    let mut all = FannedOut::default();
    for (_, part) in found {
        all.events += part.events;
        all.deliveries += part.deliveries;
    }
    Ok(all)
}

pub(super) async fn retire_deliveries(store: &PlacedStore, query: RetireDeliveries) -> Result<u64> {
    let retire = move |place: Arc<Place>| async move { place.store.retire_deliveries(query).await };
    store.each(GRACE, retire).await.sum()
}

pub(super) async fn retire_blobs(store: &PlacedStore, query: RetireBlobs) -> Result<RetiredBlobs> {
    let retire = move |place: Arc<Place>| async move { place.store.retire_blobs(query).await };
    let found = store.each(GRACE, retire).await.some()?;
    let mut all = RetiredBlobs::default();
    for (_, part) in found {
        all.going.extend(part.going);
        all.holds += part.holds;
        all.next = all.next.into_iter().chain(part.next).min();
    }
    Ok(all)
}

pub(super) async fn deleted_sessions(
    store: &PlacedStore,
    after: Option<DeletedSession>,
    limit: u32,
) -> Result<Vec<DeletedSession>> {
    store.catalogue.find(TenantId::DEFAULT).await?;
    let look =
        move |place: Arc<Place>| async move { place.store.deleted_sessions(after, limit).await };
    let found = store.each(GRACE, look).await.some()?;
    let mut all: Vec<DeletedSession> = found
        .into_iter()
        .flat_map(|(place, part)| part.into_iter().map(move |it| (place, it)))
        .filter(|(place, it)| store.is_at(*place, it.key.tenant))
        .map(|(_, it)| it)
        .collect();
    all.sort_unstable();
    all.truncate(limit as usize);
    Ok(all)
}

// Reads --------------------------------------------------------------------------------------------

placed! { Reads:
    fn now() -> Timestamp = by (now);
    fn check() -> ServerInfo = home ();
    fn schema_faults() -> Vec<SchemaFault> = by (schema_faults);
    fn last_steps(keys: Vec<SessionKey>) -> Vec<i64> = by (last_steps);
    fn read_messages(query: ReadMessages) -> Vec<Message> = at (query.key.tenant);
    fn read_folds(key: SessionKey) -> Vec<Fold> = at (key.tenant);
    fn find_messages(query: FindMessages) -> Vec<Message> = at (query.key.tenant);
    fn read_steps(key: SessionKey, after: i64, limit: u32) -> Vec<Step> = at (key.tenant);
    fn index_steps() -> () = by (index_steps);
    fn find_steps(query: FindSteps) -> Vec<FoundSteps> = by (find_steps);
    fn queue_stats() -> Vec<QueueStats> = by (queue_stats);
    fn scaling(pool: &str) -> ScalingStats = by (scaling);
    fn audit(options: AuditOptions) -> Vec<Violation> = by (audit);
    fn audit_piece(piece: AuditPiece) -> Audited = by (audit_piece);
}

async fn now(store: &PlacedStore) -> Result<Timestamp> {
    let mut last = None;
    for place in store.places() {
        match place.ask(place.store.now()).await {
            Ok(now) => return Ok(now),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| crate::place::Away(store.home().name.clone()).into()))
}

async fn schema_faults(store: &PlacedStore) -> Result<Vec<SchemaFault>> {
    let look = |place: Arc<Place>| async move { place.store.schema_faults().await };
    let found = store.each(UNBOUNDED, look).await.all()?;
    Ok(found.into_iter().flat_map(|(_, part)| part).collect())
}

async fn last_steps(store: &PlacedStore, keys: Vec<SessionKey>) -> Result<Vec<i64>> {
    let call = |place: Arc<Place>, keys| async move { place.store.last_steps(keys).await };
    // 0, as for an unknown session: no one is notified of steps that cannot be read.
    store.split(keys, |key| key.tenant, Some(0), call).await
}

async fn index_steps(store: &PlacedStore) -> Result<()> {
    let index = |place: Arc<Place>| async move { place.store.index_steps().await };
    store.each(UNBOUNDED, index).await.all().map(drop)
}

/// Fails if a database is unavailable, so that a journal waits for it: it must contain every step.
async fn find_steps(store: &PlacedStore, query: FindSteps) -> Result<Vec<FoundSteps>> {
    let limit = query.limit;
    let look = |place: Arc<Place>| {
        let query = query.clone();
        async move { place.store.find_steps(query).await }
    };
    let found = store.each(UNBOUNDED, look).await.all()?;
    let mut steps: Vec<FoundSteps> = found.into_iter().flat_map(|(_, part)| part).collect();
    steps.sort_unstable();
    // While a tenant moves, two databases have its steps.
    steps.dedup_by(|next, kept| {
        let is_same = next.key == kept.key;
        if is_same {
            kept.first = kept.first.min(next.first);
            kept.last = kept.last.max(next.last);
        }
        is_same
    });
    steps.truncate(limit as usize);
    Ok(steps)
}

async fn queue_stats(store: &PlacedStore) -> Result<Vec<QueueStats>> {
    let look = |place: Arc<Place>| async move { place.store.queue_stats().await };
    let found = store.each(GRACE, look).await.some()?;
    let mut pools: BTreeMap<String, QueueStats> = BTreeMap::new();
    for part in found.into_iter().flat_map(|(_, part)| part) {
        let pool = pools
            .entry(part.pool.clone())
            .or_insert_with(|| QueueStats {
                pool: part.pool.clone(),
                ready: 0,
                running: 0,
                oldest_ready_ms: 0,
            });
        pool.ready += part.ready;
        pool.running += part.running;
        pool.oldest_ready_ms = pool.oldest_ready_ms.max(part.oldest_ready_ms);
    }
    Ok(pools.into_values().collect())
}

async fn scaling(store: &PlacedStore, pool: &str) -> Result<ScalingStats> {
    let look = |place: Arc<Place>| {
        let pool = pool.to_owned();
        async move { place.store.scaling(&pool).await }
    };
    let found = store.each(GRACE, look).await.some()?;
    let mut all = ScalingStats::default();
    for (_, part) in found {
        all.ready += part.ready;
        all.running += part.running;
        all.demand += part.demand;
    }
    Ok(all)
}

/// Checks every invariant on every database, and that no tenant is on two of them.
async fn audit(store: &PlacedStore, options: AuditOptions) -> Result<Vec<Violation>> {
    store.catalogue.read(true).await?;
    let look = move |place: Arc<Place>| async move { place.store.audit(options).await };
    let found = store.each(UNBOUNDED, look).await.all()?;
    let mut all: Vec<Violation> = Vec::new();
    for (place, violations) in found {
        let name = &store.places()[place].name;
        for mut violation in violations {
            for row in &mut violation.rows {
                if let Value::Object(row) = row {
                    row.insert("database".to_owned(), json!(name));
                }
            }
            match all
                .iter_mut()
                .find(|it| it.invariant == violation.invariant)
            {
                Some(known) => known.rows.extend(violation.rows),
                None => all.push(violation),
            }
        }
    }
    let rows = strays(store).await?;
    if !rows.is_empty() {
        all.push(Violation {
            invariant: ONE_PLACE.to_owned(),
            rows,
        });
    }
    Ok(all)
}

/// Databases with sessions or runs of a tenant that is on another database and is not being moved.
async fn strays(store: &PlacedStore) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    let settled = store.catalogue.rows().into_iter();
    for row in settled.filter(|row| row.other.is_none()) {
        for place in store.places().iter().filter(|it| it.name != row.place) {
            let sessions = ListSessions {
                tenant: row.tenant,
                status: None,
                agent: None,
                metadata: BTreeMap::new(),
                before: None,
                limit: 1,
            };
            let runs = ListRuns {
                tenant: row.tenant,
                before: None,
                status: None,
                session: None,
                limit: 1,
            };
            let sessions = place.ask(place.store.list_sessions(sessions)).await?;
            let runs = place.ask(place.store.list_runs(runs)).await?;
            if !sessions.data.is_empty() || !runs.data.is_empty() {
                rows.push(json!({
                    "tenant": row.tenant, "database": place.name, "place": row.place,
                }));
            }
        }
    }
    Ok(rows)
}

/// Audits tenant by tenant, each on its database. A tenant whose database is unavailable is
/// skipped.
async fn audit_piece(store: &PlacedStore, piece: AuditPiece) -> Result<Audited> {
    let mut from = piece.from;
    if from.tenant.0 < 1 {
        from = AuditPlace::of(1, from.id);
    }
    let tenant = from.tenant;
    let look = |place: Arc<Place>| async move {
        place.store.audit_piece(AuditPiece { from, ..piece }).await
    };
    let audited = match store.at(tenant, look).await {
        Err(Error::Unavailable { .. }) => Ok(Audited::NOTHING),
        audited => audited,
    };
    let mut audited = audited?;
    if audited.next.is_some_and(|next| next.tenant == tenant) {
        return Ok(audited);
    }
    let query = ListTenants {
        after: Some(tenant),
        limit: 1,
    };
    let home = store.home();
    let next = home.ask(home.store.list_tenants(query)).await?;
    let next = next.data.first();
    audited.next = next.map(|next| AuditPlace::of(next.id.0, Uuid::nil()));
    Ok(audited)
}
