//! Seats of tenants with a limit of sends in flight: taken with a claim, under the lock of the tenant's row of
//! limits. What ends a send knows nothing of them: a seat counts while its session's send is running.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::id::{SessionId, SessionKey, TenantId};
use mainspring_shared::session::hot::HotRow;
use mainspring_shared::store::{CalledSeats, ReadySession};
use mainspring_shared::tenant::{InLine, Room, SEAT_CALLED_MS, SeatLimits, SeatsTaken};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use crate::db::{Conn, sql};
use crate::fault::{Fault, Result};
use crate::hot;
use crate::query::{query_as, query_scalar, statement};
use crate::row::Row;
use crate::rows::Cells;
use crate::store::Tx;

/// Those from the beginning of a line that are looked at for having no work any more.
const GONE_MAX: u32 = 500;

/// The seats of the tenants of a batch of claims, each locked when it is first asked for; none where nothing
/// limits them any more.
#[derive(Debug, Default)]
pub(crate) struct Rooms(BTreeMap<TenantId, Option<Room>>);

impl Rooms {
    /// Takes a seat for a session that is about to be claimed; otherwise it waits in the line, and false.
    pub(crate) async fn take(&mut self, tx: &mut Tx, hot: &HotRow, leaf: bool) -> Result<bool> {
        let (tenant, session) = (hot.key.tenant, hot.key.session);
        let room = match self.0.entry(tenant) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(room(tx, tenant).await?),
        };
        let Some(room) = room else {
            return Ok(true);
        };
        let taken = room.take(session, leaf);
        let since = hot.ready_since.filter(|_| !taken);
        statement(sql!("seats/put"))
            .bind(tenant.0)
            .bind(session.0)
            .bind(leaf)
            .bind(since.map(|since| since.0))
            .execute(tx.conn())
            .await?;
        Ok(taken)
    }
}

/// The seats of a tenant, locked; none where nothing limits them.
async fn limits(tx: &mut Tx, tenant: TenantId) -> Result<Option<SeatLimits>> {
    let row = statement(sql!("seats/limits"))
        .bind(tenant.0)
        .fetch_optional(tx.conn())
        .await?;
    let Some(row) = row else { return Ok(None) };
    let mut cells = Cells::new(&row, "seat_limits");
    let mut limit = |column| {
        let limit: Option<i32> = cells.get(column)?;
        Ok::<_, Fault>(limit.map(i32::unsigned_abs))
    };
    Ok(Some(SeatLimits {
        sends: limit("sends_running")?,
        leaves: limit("leaves_running")?,
    }))
}

/// What is free of a tenant's seats, and for whom, under their lock.
async fn room(tx: &mut Tx, tenant: TenantId) -> Result<Option<Room>> {
    let Some(limits) = limits(tx, tenant).await? else {
        return Ok(None);
    };
    let (taken, first) = free(tx, tenant, limits).await?;
    let line = first.into_iter().map(|waiting| waiting.of).collect();
    Ok(Some(Room::new(limits, taken, line)))
}

async fn free(
    tx: &mut Tx,
    tenant: TenantId,
    limits: SeatLimits,
) -> Result<(SeatsTaken, Vec<Waiting>)> {
    statement(sql!("seats/free"))
        .bind(tenant.0)
        .execute(tx.conn())
        .await?;
    let names = ["sends", "leaves"];
    let (sends, leaves): (i64, i64) = query_as(sql!("seats/taken"), names)
        .bind(tenant.0)
        .fetch_one(tx.conn())
        .await?;
    let count = |rows: i64| u32::try_from(rows).unwrap_or(u32::MAX);
    let taken = SeatsTaken {
        sends: count(sends),
        leaves: count(leaves),
    };
    let passed = tx.now.0 - SEAT_CALLED_MS;
    let mut first = Vec::new();
    for leaf in [false, true] {
        let places = Room::places(limits, taken, leaf);
        if places > 0 {
            let rows = statement(sql!("seats/line"))
                .bind(tenant.0)
                .bind(leaf)
                .bind(passed)
                .bind(places)
                .fetch_all(tx.conn())
                .await?;
            for row in &rows {
                first.push(waiting(row, leaf)?);
            }
        }
    }
    first.sort_by_key(|waiting| waiting.of);
    Ok((taken, first))
}

/// One of a line.
struct Waiting {
    of: InLine,
    was_called: bool,
    ready: ReadySession,
}

fn waiting(row: &Row, leaf: bool) -> Result<Waiting> {
    let mut cells = Cells::new(row, "seats");
    let key = cells.key()?;
    Ok(Waiting {
        of: InLine {
            since: cells.time("waits_since")?,
            session: key.session,
            leaf,
        },
        was_called: cells.time_opt("called_at")?.is_some(),
        ready: ReadySession {
            key,
            pool: cells.get("pool")?,
            priority: hot::priority(cells.get("priority")?),
            ready_since: cells.time("ready_since")?,
        },
    })
}

/// Calls those that wait and can have a seat; see [`mainspring_shared::store::Tenants::call_seats`].
pub(crate) async fn call(tx: &mut Tx, tenant: Option<TenantId>) -> Result<CalledSeats> {
    let (from, to) = tenant.map_or((i32::MIN, i32::MAX), |only| (only.0, only.0));
    let tenants: Vec<i32> = query_scalar(sql!("seats/tenants"))
        .bind(from)
        .bind(to)
        .fetch_all(tx.conn())
        .await?;
    let mut called = CalledSeats::default();
    if tenants.is_empty() {
        return Ok(called);
    }
    for tenant in tenants {
        call_one(tx, TenantId(tenant), &mut called).await?;
    }
    let waiting: i64 = query_scalar(sql!("seats/waiting"))
        .fetch_one(tx.conn())
        .await?;
    called.waiting = waiting.unsigned_abs();
    Ok(called)
}

async fn call_one(tx: &mut Tx, tenant: TenantId, called: &mut CalledSeats) -> Result<()> {
    let Some(limits) = limits(tx, tenant).await? else {
        return Ok(());
    };
    let gone: Vec<Uuid> = query_scalar(sql!("seats/gone"))
        .bind(tenant.0)
        .bind(GONE_MAX)
        .fetch_all(tx.conn())
        .await?;
    for session in gone {
        statement(sql!("seats/drop"))
            .bind(tenant.0)
            .bind(session)
            .execute(tx.conn())
            .await?;
    }
    let (taken, first) = free(tx, tenant, limits).await?;
    let line = first.iter().map(|waiting| waiting.of).collect();
    let next = Room::new(limits, taken, line).next().into_iter();
    let next: BTreeSet<SessionId> = next.map(|waiting| waiting.session).collect();
    let now = tx.now;
    for waiting in first {
        if waiting.was_called || !next.contains(&waiting.of.session) {
            continue;
        }
        statement(sql!("seats/call"))
            .bind(tenant.0)
            .bind(waiting.of.session.0)
            .bind(now.0)
            .execute(tx.conn())
            .await?;
        called.enqueue.push(waiting.ready);
    }
    Ok(())
}

/// Follows the limits of a tenant, in the transaction that changes them.
pub(crate) async fn follow(
    tx: &mut Tx,
    tenant: TenantId,
    limits: Option<SeatLimits>,
) -> Result<()> {
    let now = tx.now;
    let Some(limits) = limits else {
        let lift = statement(sql!("seats/lift")).bind(tenant.0);
        return lift.execute(tx.conn()).await.map(drop);
    };
    statement(sql!("seats/set"))
        .bind(tenant.0)
        .bind(limits.sends)
        .bind(limits.leaves)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    let seed = statement(sql!("seats/seed")).bind(tenant.0);
    seed.execute(tx.conn()).await.map(drop)
}

type Dumped = (
    Vec<(TenantId, Timestamp)>,
    Vec<(SessionKey, Option<Timestamp>)>,
);

/// Since when tenants have seats, and who has or wants one.
pub(crate) async fn dump(conn: &mut Conn) -> Result<Dumped> {
    let limits: Vec<(i32, i64)> = query_as(sql!("seats/dump_limits"), ["tenant", "set_at"])
        .fetch_all(&mut *conn)
        .await?;
    let limits = limits.into_iter();
    let limits = limits.map(|(tenant, set_at)| (TenantId(tenant), Timestamp(set_at)));
    let rows = statement(sql!("seats/dump")).fetch_all(conn).await?;
    let seats = rows.iter().map(|row| {
        let mut cells = Cells::new(row, "seats");
        Ok((cells.key()?, cells.time_opt("waits_since")?))
    });
    Ok((limits.collect(), seats.collect::<Result<_>>()?))
}
