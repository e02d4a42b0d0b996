//! Seats, for tenants that limit their sends in flight or have agents that do. A claim takes a seat
//! under the lock of the tenant's row of limits. Ending a send does not touch its seat: a seat
//! counts only while its session's send is running.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::agent::{AgentKey, AgentName, AgentSpec, SendOptions};
use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::session::hot::HotRow;
use mainspring_shared::store::{CalledSeats, ReadySession};
use mainspring_shared::tenant::{
    InLine, Room, SEAT_CALLED_MS, SeatCount, SeatKind, SeatLimits, SeatsTaken,
};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use crate::agents;
use crate::db::{Conn, sql};
use crate::fault::{Fault, Result};
use crate::hot;
use crate::query::{query_as, query_scalar, statement};
use crate::row::Row;
use crate::rows::Cells;
use crate::store::Tx;

/// Maximum number of sessions at the head of a line that are checked for having no work, or other
/// work, by now.
const GONE_MAX: u32 = 500;

/// What a session needs a seat for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeatRequest<'a> {
    /// Its first open send.
    pub(crate) send: SendId,
    /// The version of the session's agent to which it is, or would be, pinned.
    pub(crate) version: i32,
    /// The published agent that runs it.
    pub(crate) agent: Option<&'a AgentName>,
    /// Whether it is a leaf of a run.
    pub(crate) leaf: bool,
}

/// The seats of the tenants in a batch of claims. A tenant's seats are locked on first use; none if
/// nothing limits them.
#[derive(Debug, Default)]
pub(crate) struct Rooms(BTreeMap<TenantId, Option<Room>>);

impl Rooms {
    /// Takes a seat for a session that is about to be claimed. If none is free, the session joins
    /// the line, and false is returned.
    pub(crate) async fn take(
        &mut self,
        tx: &mut Tx,
        hot: &HotRow,
        wants: SeatRequest<'_>,
    ) -> Result<bool> {
        let (tenant, session) = (hot.key.tenant, hot.key.session);
        let room = match self.0.entry(tenant) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(room(tx, tenant).await?),
        };
        let Some(room) = room else {
            return Ok(true);
        };
        let kind = room.kind(wants.agent, wants.leaf);
        let taken = room.take(session, &kind);
        let since = hot.ready_since.filter(|_| !taken);
        statement(sql!("seats/put"))
            .bind(tenant.0)
            .bind(session.0)
            .bind(kind.leaf)
            .bind(since.map(|since| since.0))
            .bind(column(kind.agent.as_ref()))
            .bind(wants.send.0)
            .bind(wants.version)
            .execute(tx.conn())
            .await?;
        Ok(taken)
    }
}

/// An agent as stored in a column: empty if there is none with a limit.
fn column(agent: Option<&AgentName>) -> &str {
    agent.map_or("", AgentName::as_str)
}

/// The limits of a tenant's seats, which are locked; none if nothing limits them.
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
    let (sends, leaves) = (limit("sends_running")?, limit("leaves_running")?);
    let agents = if cells.get("agents")? {
        agents::running(tx.conn(), tenant).await?
    } else {
        BTreeMap::new()
    };
    Ok(Some(SeatLimits {
        sends,
        leaves,
        agents,
    }))
}

/// The free seats of a tenant and the head of its line, under the lock.
async fn room(tx: &mut Tx, tenant: TenantId) -> Result<Option<Room>> {
    let Some(limits) = limits(tx, tenant).await? else {
        return Ok(None);
    };
    let (taken, first) = free(tx, tenant, &limits).await?;
    let line = first.into_iter().map(|waiting| waiting.of).collect();
    Ok(Some(Room::new(limits, taken, line)))
}

async fn free(
    tx: &mut Tx,
    tenant: TenantId,
    limits: &SeatLimits,
) -> Result<(SeatsTaken, Vec<Waiting>)> {
    statement(sql!("seats/free"))
        .bind(tenant.0)
        .execute(tx.conn())
        .await?;
    let counts = counts(tx, tenant).await?;
    let taken = SeatCount::sum(&counts);
    let passed = tx.now.0 - SEAT_CALLED_MS;
    let mut first = Vec::new();
    for SeatCount { kind, waiting, .. } in counts {
        let places = limits.places(&taken, &kind);
        if waiting > 0 && places > 0 {
            let rows = statement(sql!("seats/line"))
                .bind(tenant.0)
                .bind(column(kind.agent.as_ref()))
                .bind(kind.leaf)
                .bind(passed)
                .bind(places)
                .fetch_all(tx.conn())
                .await?;
            for row in &rows {
                first.push(read_waiting(row, &kind)?);
            }
        }
    }
    first.sort_by(|one, other| one.of.cmp(&other.of));
    Ok((taken, first))
}

/// The number of a tenant's taken seats and waiting sessions, by kind.
async fn counts(tx: &mut Tx, tenant: TenantId) -> Result<Vec<SeatCount>> {
    let rows = statement(sql!("seats/counts"))
        .bind(tenant.0)
        .fetch_all(tx.conn())
        .await?;
    let count = |rows: i64| u32::try_from(rows).unwrap_or(u32::MAX);
    let counts = rows.iter().map(|row| {
        let mut cells = Cells::new(row, "seats");
        let name: &str = cells.get("agent")?;
        let agent = Some(name).filter(|name| !name.is_empty());
        let agent = agent.map(str::parse::<AgentName>).transpose();
        Ok(SeatCount {
            kind: SeatKind {
                agent: agent.map_err(|why| cells.corrupt("agent", &why))?,
                leaf: cells.get("leaf")?,
            },
            taken: count(cells.get("taken")?),
            waiting: count(cells.get("waiting")?),
        })
    });
    counts.collect()
}

/// A session that waits in a line.
struct Waiting {
    of: InLine,
    was_called: bool,
    ready: ReadySession,
}

fn read_waiting(row: &Row, kind: &SeatKind) -> Result<Waiting> {
    let mut cells = Cells::new(row, "seats");
    let key = cells.key()?;
    Ok(Waiting {
        of: InLine {
            since: cells.time("waits_since")?,
            session: key.session,
            kind: kind.clone(),
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

/// Calls waiting sessions that can have a seat; see
/// [`mainspring_shared::store::Tenants::call_seats`].
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
    let sweeps = tenant.is_none();
    for tenant in tenants {
        call_one(tx, TenantId(tenant), sweeps, &mut called).await?;
    }
    let waiting: i64 = query_scalar(sql!("seats/waiting"))
        .fetch_one(tx.conn())
        .await?;
    called.waiting = waiting.unsigned_abs();
    Ok(called)
}

async fn call_one(
    tx: &mut Tx,
    tenant: TenantId,
    sweeps: bool,
    called: &mut CalledSeats,
) -> Result<()> {
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
    if sweeps && !limits.agents.is_empty() {
        ask_again(tx, tenant).await?;
    }
    let (taken, first) = free(tx, tenant, &limits).await?;
    let line = first.iter().map(|waiting| waiting.of.clone()).collect();
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

/// Makes sessions that wait for an agent's seat, but whose next send has another agent by now, wait
/// for any seat: the agent is determined when they are called.
async fn ask_again(tx: &mut Tx, tenant: TenantId) -> Result<()> {
    for SeatCount { kind, waiting, .. } in counts(tx, tenant).await? {
        if waiting == 0 || kind.agent.is_none() {
            continue;
        }
        let stale: Vec<Uuid> = query_scalar(sql!("seats/stale"))
            .bind(tenant.0)
            .bind(column(kind.agent.as_ref()))
            .bind(kind.leaf)
            .bind(GONE_MAX)
            .fetch_all(tx.conn())
            .await?;
        for session in stale {
            statement(sql!("seats/mark"))
                .bind(tenant.0)
                .bind(session)
                .bind("")
                .bind(None::<Uuid>)
                .bind(None::<i32>)
                .execute(tx.conn())
                .await?;
        }
    }
    Ok(())
}

/// Adapts the seats to changed limits of a tenant, in the transaction that changes them.
pub(crate) async fn apply_limits(
    tx: &mut Tx,
    tenant: TenantId,
    limits: Option<SeatLimits>,
) -> Result<()> {
    let now = tx.now;
    let Some(limits) = limits else {
        let lift = statement(sql!("seats/lift", "seats/clear")).bind(tenant.0);
        return lift.execute(tx.conn()).await.map(drop);
    };
    statement(sql!("seats/set"))
        .bind(tenant.0)
        .bind(limits.sends)
        .bind(limits.leaves)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    seed(tx, tenant).await
}

/// Gives seats to running sends.
async fn seed(tx: &mut Tx, tenant: TenantId) -> Result<()> {
    let seed = statement(sql!("seats/seed")).bind(tenant.0);
    seed.execute(tx.conn()).await.map(drop)
}

/// Prevents others from taking seats of a tenant while an agent's limit changes.
pub(crate) async fn lock_for_agent(tx: &mut Tx, tenant: TenantId, is_limited: bool) -> Result<()> {
    if !is_limited {
        limits(tx, tenant).await?;
        return Ok(());
    }
    let now = tx.now;
    let lock = statement(sql!("seats/set_agents"))
        .bind(tenant.0)
        .bind(now.0);
    lock.execute(tx.conn()).await.map(drop)
}

/// Adapts the seats to an agent's stored limit, under the lock of its tenant's seats.
pub(crate) async fn apply_agent_limits(
    tx: &mut Tx,
    key: &AgentKey,
    is_limited: bool,
) -> Result<()> {
    if is_limited {
        seed(tx, key.tenant).await?;
        return mark(tx, key).await;
    }
    statement(sql!("seats/unmark"))
        .bind(key.tenant.0)
        .bind(key.name.as_str())
        .execute(tx.conn())
        .await?;
    if agents::running(tx.conn(), key.tenant).await?.is_empty() {
        let lift = statement(sql!("seats/lift_agents", "seats/clear")).bind(key.tenant.0);
        lift.execute(tx.conn()).await?;
    }
    Ok(())
}

/// Counts the sends that an agent runs, or is going to run, against the agent's own seats.
async fn mark(tx: &mut Tx, key: &AgentKey) -> Result<()> {
    let rows = statement(sql!("seats/heads"))
        .bind(key.tenant.0)
        .bind(key.name.as_str())
        .fetch_all(tx.conn())
        .await?;
    for row in &rows {
        let mut cells = Cells::new(row, "sends");
        let session: Uuid = cells.get("session_id")?;
        let send = cells.send_id()?;
        let version: i32 = cells.get("version")?;
        if published(&mut cells).as_ref() != Some(&key.name) {
            continue;
        }
        statement(sql!("seats/mark"))
            .bind(key.tenant.0)
            .bind(session)
            .bind(key.name.as_str())
            .bind(send.0)
            .bind(version)
            .execute(tx.conn())
            .await?;
    }
    Ok(())
}

/// The published agent that runs a send, by the columns `options, spec`. A send that cannot be read
/// is reported by its claim.
fn published(cells: &mut Cells<'_>) -> Option<AgentName> {
    let options: SendOptions = cells.json("options").ok()?;
    let spec: AgentSpec = cells.json("spec").ok()?;
    options.published_in(&spec).cloned()
}

type Dumped = (
    Vec<(TenantId, Timestamp)>,
    Vec<(SessionKey, Option<Timestamp>)>,
);

/// Since when tenants have seats, and the sessions that have a seat or wait for one.
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
