//! Seats of tenants with a limit of sends in flight: taken with a claim, under the lock of the tenant's row of
//! limits. What ends a send knows nothing of them: a seat counts while its session's send is running.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::id::{SessionId, SessionKey, TenantId};
use mainspring_shared::store::{CalledSeats, ClaimOutcome, ClaimSession, ReadySession, Result};
use mainspring_shared::tenant::{
    InLine, Room, SEAT_CALLED_MS, SEAT_LINE_MAX, SeatLimits, SeatsTaken,
};
use mainspring_shared::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::claim::Claim;
use crate::group::{Group, drive};
use crate::retry::{Fault, Pool, fetch, repeatable, sql};
use crate::rows::{Fields, key_columns, priority_of};
use crate::store::PostgresStore;

/// Those from the beginning of a line that are looked at for having no work any more.
const GONE_MAX: i64 = 500;

type Faulty<T> = std::result::Result<T, Fault>;

/// Claims sessions of one tenant that need seats.
struct Seated<'a> {
    claim: &'a Claim<'a>,
    tenant: TenantId,
}

/// Claims again what needs a seat, tenant by tenant. Where that fails the sweep brings them again.
pub(crate) async fn claim(
    pool: &Pool,
    claim: &Claim<'_>,
    items: &[ClaimSession],
    outcomes: &mut [ClaimOutcome],
) {
    let mut waiting: BTreeMap<TenantId, Vec<usize>> = BTreeMap::new();
    for (ord, outcome) in outcomes.iter().enumerate() {
        if *outcome == ClaimOutcome::Waits {
            waiting.entry(items[ord].key.tenant).or_default().push(ord);
        }
    }
    for (tenant, ords) in waiting {
        let asked: Vec<ClaimSession> = ords.iter().map(|ord| items[*ord].clone()).collect();
        match drive(pool, &Seated { claim, tenant }, &asked).await {
            Ok(found) => {
                for (ord, outcome) in ords.into_iter().zip(found) {
                    outcomes[ord] = outcome;
                }
            }
            Err(error) => {
                tracing::debug!(tenant = %tenant, %error, "no seats were taken");
                let given = asked.iter().map(|item| (item.key, item.token.0));
                claim.doubtful.remember(given);
                for ord in ords {
                    outcomes[ord] = ClaimOutcome::Busy;
                }
            }
        }
    }
}

impl Group for Seated<'_> {
    type Item = ClaimSession;
    type Outcome = ClaimOutcome;
    type Seen = BTreeSet<SessionKey>;

    fn clashes(&self, item: &ClaimSession, seen: &mut BTreeSet<SessionKey>) -> bool {
        self.claim.clashes(item, seen)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&ClaimSession],
    ) -> Faulty<Vec<Option<ClaimOutcome>>> {
        let mut tx = connection.begin().await?;
        let mut room = room(&mut tx, self.claim.at, self.tenant, items.len()).await?;
        // Under the lock: nothing starts meanwhile that does not run already.
        let asked = asked(&mut tx, items).await?;
        let mut seats = Seats::default();
        let mut seated = Vec::with_capacity(items.len());
        let mut waits = vec![false; items.len()];
        for (ord, item) in items.iter().enumerate() {
            let session = item.key.session;
            // What runs has its seat; what has no work, or no limit any more, needs none.
            let needs = asked.get(&ord).filter(|asked| !asked.has_one);
            let (Some(asked), Some(room)) = (needs, room.as_mut()) else {
                seated.push(room.is_none());
                continue;
            };
            let taken = room.take(session, asked.leaf);
            seats.put(session, asked.leaf, (!taken).then_some(asked.since));
            waits[ord] = !taken;
            seated.push(taken);
        }
        seats.store(&mut tx, self.tenant).await?;
        let (mut tried, mut terms) = (Vec::new(), Vec::new());
        for (ord, item) in items.iter().enumerate() {
            if !waits[ord] {
                tried.push(*item);
                terms.push(seated[ord]);
            }
        }
        let mut found = self
            .claim
            .run_with(&mut tx, &tried, terms)
            .await?
            .into_iter();
        tx.commit().await?;
        let outcomes = waits.into_iter().map(|waits| {
            if waits {
                return Some(ClaimOutcome::Waits);
            }
            found.next().flatten().map(|outcome| match outcome {
                // One that got work since it was looked at: whoever made it ready enqueued it.
                ClaimOutcome::Waits => ClaimOutcome::Busy,
                ClaimOutcome::Claimed(_)
                | ClaimOutcome::Busy
                | ClaimOutcome::Suspect
                | ClaimOutcome::Idle => outcome,
            })
        });
        Ok(outcomes.collect())
    }

    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&ClaimSession],
    ) -> Faulty<Vec<Option<ClaimOutcome>>> {
        self.claim.read_back(connection, items).await
    }

    fn unsettled(&self, item: &ClaimSession) -> Result<ClaimOutcome> {
        self.claim.unsettled(item)
    }

    fn session(&self, item: &ClaimSession) -> Option<SessionKey> {
        self.claim.session(item)
    }

    fn locked(&self, item: &ClaimSession) -> Result<ClaimOutcome> {
        self.claim.locked(item)
    }
}

/// A session that wants a seat.
struct SeatRequest {
    /// Whether its send runs already.
    has_one: bool,
    leaf: bool,
    since: Timestamp,
}

/// What sessions would run, by their place; those without work are not among them.
async fn asked(
    connection: &mut PgConnection,
    items: &[&ClaimSession],
) -> Faulty<BTreeMap<usize, SeatRequest>> {
    let (tenants, sessions) = key_columns(items.iter().map(|item| item.key));
    let query = sql!("seats/asked").bind(tenants).bind(sessions);
    let rows = query.fetch_all(connection).await?;
    let read = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "session_hot");
        let asked = SeatRequest {
            has_one: fields.take("has_one")?,
            leaf: fields.take("leaf")?,
            since: fields.time("ready_since")?,
        };
        Ok((fields.ord()?, asked))
    });
    Ok(read.collect::<Result<_>>()?)
}

/// The seats of a tenant, locked; none where nothing limits them.
async fn limits(connection: &mut PgConnection, tenant: TenantId) -> Faulty<Option<SeatLimits>> {
    let query = sql!("seats/limits").bind(tenant.0);
    let Some(row) = query.fetch_optional(connection).await? else {
        return Ok(None);
    };
    let mut fields = Fields::new(&row, "seat_limits");
    let mut limit = |column| {
        let limit: Option<i32> = fields.take(column)?;
        Ok::<_, mainspring_shared::store::Error>(limit.map(i32::unsigned_abs))
    };
    Ok(Some(SeatLimits {
        sends: limit("sends_running")?,
        leaves: limit("leaves_running")?,
    }))
}

/// What is free of a tenant's seats, for so many who want one, under their lock.
async fn room(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
    wanted: usize,
) -> Faulty<Option<Room>> {
    let Some(limits) = limits(connection, tenant).await? else {
        return Ok(None);
    };
    let mut taken = taken_of(connection, tenant).await?;
    let is_short = |taken, leaf| (Room::places(limits, taken, leaf) as usize) < wanted;
    if is_short(taken, false) || is_short(taken, true) {
        let free = sql!("seats/free").bind(tenant.0);
        free.execute(&mut *connection).await?;
        taken = taken_of(connection, tenant).await?;
    }
    let mut first = Vec::new();
    for leaf in [false, true] {
        let places = Room::places(limits, taken, leaf);
        if places > 0 {
            let rows = line(connection, at, (tenant, leaf), SEAT_CALLED_MS, places).await?;
            first.extend(rows.into_iter().map(|waiting| waiting.of));
        }
    }
    Ok(Some(Room::new(limits, taken, first)))
}

async fn taken_of(connection: &mut PgConnection, tenant: TenantId) -> Faulty<SeatsTaken> {
    let query = sql!("seats/taken").bind(tenant.0);
    let row = query.fetch_one(connection).await?;
    let mut fields = Fields::new(&row, "seats");
    let mut count = |column| {
        let total = fields.total(column)?;
        Ok::<_, mainspring_shared::store::Error>(u32::try_from(total).unwrap_or(u32::MAX))
    };
    Ok(SeatsTaken {
        sends: count("sends")?,
        leaves: count("leaves")?,
    })
}

/// One of a line.
struct Waiting {
    of: InLine,
    was_called: bool,
    ready: ReadySession,
}

async fn line(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    (tenant, leaf): (TenantId, bool),
    called_ms: i64,
    limit: u32,
) -> Faulty<Vec<Waiting>> {
    let query = sql!("seats/line")
        .bind(at.map(|at| at.0))
        .bind(tenant.0)
        .bind(leaf)
        .bind(called_ms)
        .bind(i64::from(limit));
    let rows = query.fetch_all(connection).await?;
    let read = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "seats");
        let session = SessionId(fields.take("session_id")?);
        let of = InLine {
            since: fields.time("waits_since")?,
            session,
            leaf: fields.take("leaf")?,
        };
        let was_called = fields.maybe_time("called_at")?.is_some();
        let ready = ReadySession {
            key: SessionKey { tenant, session },
            pool: fields.take("pool")?,
            priority: priority_of(fields.take("priority")?),
            ready_since: fields.time("ready_since")?,
        };
        Ok(Waiting {
            of,
            was_called,
            ready,
        })
    });
    Ok(read.collect::<Result<_>>()?)
}

/// Rows to write: who has a seat, and who waits since when.
#[derive(Default)]
struct Seats {
    sessions: Vec<Uuid>,
    leaves: Vec<bool>,
    since: Vec<Option<i64>>,
}

impl Seats {
    fn put(&mut self, session: SessionId, leaf: bool, since: Option<Timestamp>) {
        self.sessions.push(session.0);
        self.leaves.push(leaf);
        self.since.push(since.map(|since| since.0));
    }

    async fn store(self, connection: &mut PgConnection, tenant: TenantId) -> Faulty<()> {
        if self.sessions.is_empty() {
            return Ok(());
        }
        let put = sql!("seats/put")
            .bind(tenant.0)
            .bind(self.sessions)
            .bind(self.leaves)
            .bind(self.since);
        put.execute(connection).await?;
        Ok(())
    }
}

/// Calls those that wait and can have a seat; see [`mainspring_shared::store::Tenants::call_seats`].
pub(crate) async fn call(store: &PostgresStore, tenant: Option<TenantId>) -> Result<CalledSeats> {
    let (at, pool) = (store.at, &store.pools.writers);
    let only = tenant.map(|tenant| tenant.0);
    let rows = fetch(pool, || sql!("seats/tenants").bind(only)).await?;
    let mut called = CalledSeats::default();
    for row in &rows {
        let tenant = TenantId(Fields::new(row, "seats").take("tenant")?);
        let ready = repeatable!(pool, |connection| call_one(connection, at, tenant));
        called.enqueue.extend(ready?);
    }
    if !rows.is_empty() {
        let rows = fetch(pool, || sql!("seats/waiting")).await?;
        let row = rows
            .first()
            .map(|row| Fields::new(row, "seats").total("waiting"));
        called.waiting = row.unwrap_or(Ok(0))?;
    }
    Ok(called)
}

async fn call_one(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
) -> Faulty<Vec<ReadySession>> {
    let mut tx = connection.begin().await?;
    let Some(limits) = limits(&mut tx, tenant).await? else {
        return Ok(Vec::new());
    };
    let free = sql!("seats/free").bind(tenant.0);
    free.execute(&mut *tx).await?;
    let gone = sql!("seats/gone").bind(tenant.0).bind(GONE_MAX);
    gone.execute(&mut *tx).await?;
    let taken = taken_of(&mut tx, tenant).await?;
    let mut first = Vec::new();
    for leaf in [false, true] {
        let places = Room::places(limits, taken, leaf).min(SEAT_LINE_MAX);
        if places > 0 {
            first.extend(line(&mut tx, at, (tenant, leaf), SEAT_CALLED_MS, places).await?);
        }
    }
    let room = Room::new(
        limits,
        taken,
        first.iter().map(|waiting| waiting.of).collect(),
    );
    let next: BTreeSet<SessionId> = room.next().into_iter().map(|it| it.session).collect();
    first.retain(|waiting| !waiting.was_called && next.contains(&waiting.of.session));
    first.sort_by_key(|waiting| waiting.of);
    if !first.is_empty() {
        let sessions: Vec<Uuid> = first.iter().map(|waiting| waiting.of.session.0).collect();
        let call = sql!("seats/call").bind(at.map(|at| at.0)).bind(tenant.0);
        call.bind(sessions).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(first.into_iter().map(|waiting| waiting.ready).collect())
}

/// Follows the limits of a tenant, in the transaction that changes them.
pub(crate) async fn follow(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
    limits: Option<SeatLimits>,
) -> Faulty<()> {
    let Some(limits) = limits else {
        // First the lock, under which others take seats.
        let lift = sql!("seats/lift").bind(tenant.0);
        lift.execute(&mut *connection).await?;
        let clear = sql!("seats/clear").bind(tenant.0);
        clear.execute(connection).await?;
        return Ok(());
    };
    let number = |limit: Option<u32>| limit.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX));
    let set = sql!("seats/set")
        .bind(at.map(|at| at.0))
        .bind(tenant.0)
        .bind(number(limits.sends))
        .bind(number(limits.leaves));
    set.execute(&mut *connection).await?;
    let seed = sql!("seats/seed").bind(tenant.0);
    seed.execute(connection).await?;
    Ok(())
}

type Dumped = (
    Vec<(TenantId, Timestamp)>,
    Vec<(SessionKey, Option<Timestamp>)>,
);

/// Since when tenants have seats, and who has or wants one.
pub(crate) async fn dump(connection: &mut PgConnection) -> Faulty<Dumped> {
    let rows = sql!("reads/dump_seat_limits");
    let rows = rows.fetch_all(&mut *connection).await?;
    let limits = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "seat_limits");
        Ok((TenantId(fields.take("tenant")?), fields.time("set_at")?))
    });
    let limits = limits.collect::<Result<_>>()?;
    let rows = sql!("reads/dump_seats").fetch_all(connection).await?;
    let seats = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "seats");
        Ok((fields.key()?, fields.maybe_time("waits_since")?))
    });
    Ok((limits, seats.collect::<Result<_>>()?))
}
