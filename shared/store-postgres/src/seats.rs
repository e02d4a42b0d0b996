//! Seats of tenants that limit their sends in flight, or that have agents with such a limit. A seat
//! is taken with a claim, under the lock of the tenant's row of limits. Ending a send does not
//! touch seats: a seat counts while its session's send is running.

mod apply_limits;

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::agent::{AgentName, AgentSpec, SendOptions};
use mainspring_shared::id::{SessionId, SessionKey, TenantId};
use mainspring_shared::store::{CalledSeats, ClaimOutcome, ClaimSession, ReadySession, Result};
use mainspring_shared::tenant::{
    InLine, Room, SEAT_CALLED_MS, SeatCount, SeatKind, SeatLimits, SeatsTaken,
};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::agents;
use crate::claim::Claim;
use crate::fault::Fault;
use crate::group::{Group, drive};
use crate::retry::{Pool, fetch, repeatable, sql};
use crate::rows::{Fields, key_columns, priority_of};
use crate::store::PostgresStore;

pub(crate) use self::apply_limits::{apply_agent_limits, apply_limits, lock_for_agent};

/// Attempts to claim sessions without their next send or agent changing in between.
const ATTEMPTS: u32 = 3;

/// Rows of seats, of ended and of live sends, that a tenant may have before those of ended sends
/// are cleared. With `n` rows, if that is more, on average two in `n` requests for a seat clear
/// them.
const LEFT_MAX: u128 = 64;

/// How many of the first sessions in a line are checked for having no work any more, or other work.
const GONE_MAX: i64 = 500;

type Faulty<T> = std::result::Result<T, Fault>;

/// Claims sessions of one tenant that need seats.
struct Seated<'a> {
    claim: &'a Claim<'a>,
    tenant: TenantId,
}

/// Claims the sessions that need a seat once more, tenant by tenant. If that fails, the sweep
/// enqueues them again.
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
                tracing::debug!(
                    tenant = %tenant,
                    %error,
                    "could not take seats; the grants will be released"
                );
                let given = asked.iter().map(|item| (item.key, item.token.0));
                claim.grants_to_release.remember(given);
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

    fn conflicts_with(&self, item: &ClaimSession, seen: &mut BTreeSet<SessionKey>) -> bool {
        self.claim.conflicts_with(item, seen)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&ClaimSession],
    ) -> Faulty<Vec<Option<ClaimOutcome>>> {
        for _ in 0..ATTEMPTS {
            if let Some(outcomes) = self.attempt(connection, items).await? {
                return Ok(outcomes);
            }
        }
        // The sweep enqueues them again.
        Ok(vec![Some(ClaimOutcome::Busy); items.len()])
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

impl Seated<'_> {
    /// Takes seats and claims the sessions. `None`, with nothing written, if a session's next send
    /// or agent changed in between.
    async fn attempt(
        &self,
        connection: &mut PgConnection,
        items: &[&ClaimSession],
    ) -> Faulty<Option<Vec<Option<ClaimOutcome>>>> {
        let mut tx = connection.begin().await?;
        let limits = limits(&mut tx, self.tenant).await?;
        // Under the lock, so that no further send starts meanwhile.
        let asked = asked(&mut tx, items, limits.as_ref()).await?;
        let mut room = match limits {
            Some(limits) => Some(room(&mut tx, self, limits, &asked).await?),
            None => None,
        };
        let mut seats = Seats::default();
        let mut seated = Vec::with_capacity(items.len());
        let mut waits = vec![false; items.len()];
        for (ord, item) in items.iter().enumerate() {
            let session = item.key.session;
            // A running send has its seat; a session without work, or without a limit any more,
            // needs none.
            let needs = asked.get(&ord).filter(|asked| !asked.has_one);
            let (Some(asked), Some(room)) = (needs, room.as_mut()) else {
                seated.push(room.is_none());
                continue;
            };
            let taken = room.take(session, &asked.kind);
            seats.put(session, asked, taken);
            waits[ord] = !taken;
            seated.push(taken);
        }
        seats.store(&mut tx, self.tenant).await?;
        let (mut tried, mut terms, mut requests) = (Vec::new(), Vec::new(), Vec::new());
        for (ord, item) in items.iter().enumerate() {
            if !waits[ord] {
                tried.push(*item);
                terms.push(seated[ord]);
                requests.push(asked.get(&ord));
            }
        }
        let found = self.claim.run_with(&mut tx, &tried, terms).await?;
        let mut both = requests.into_iter().zip(&found);
        if both
            .any(|(asked, found)| asked.is_some_and(|asked| asked.is_for_another(found.as_ref())))
        {
            tx.rollback().await?;
            return Ok(None);
        }
        tx.commit().await?;
        let mut found = found.into_iter();
        let outcomes = waits.into_iter().map(|waits| {
            if waits {
                return Some(ClaimOutcome::Waits);
            }
            found.next().flatten().map(|outcome| match outcome {
                // It got work after it was checked: the process that made it ready enqueued it.
                ClaimOutcome::Waits => ClaimOutcome::Busy,
                ClaimOutcome::Claimed(_)
                | ClaimOutcome::Busy
                | ClaimOutcome::Suspect
                | ClaimOutcome::Idle => outcome,
            })
        });
        Ok(Some(outcomes.collect()))
    }
}

/// A session that needs a seat.
struct SeatRequest {
    /// Whether its send is already running.
    has_one: bool,
    kind: SeatKind,
    since: Timestamp,
    /// The send that it would run; `version` is the version of the session's agent.
    send: Uuid,
    version: i32,
}

impl SeatRequest {
    /// Whether the claim got another send or agent version than the one requested: the session was
    /// not locked when the request was made, and its agent or first send may have changed.
    fn is_for_another(&self, found: Option<&ClaimOutcome>) -> bool {
        let Some(ClaimOutcome::Claimed(claimed)) = found else {
            return false;
        };
        let record = &claimed.send.record;
        !self.has_one && (record.id.0, record.agent_version) != (self.send, Some(self.version))
    }
}

/// What the sessions would run, by index; those without work are left out.
async fn asked(
    connection: &mut PgConnection,
    items: &[&ClaimSession],
    limits: Option<&SeatLimits>,
) -> Faulty<BTreeMap<usize, SeatRequest>> {
    let (tenants, sessions) = key_columns(items.iter().map(|item| item.key));
    let limits = limits.filter(|limits| !limits.agents.is_empty());
    let query = sql!("seats/asked")
        .bind(tenants)
        .bind(sessions)
        .bind(limits.is_some());
    let rows = query.fetch_all(connection).await?;
    let read = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "session_hot");
        let leaf: bool = fields.take("leaf")?;
        let kind = match limits {
            Some(limits) => limits.kind(published(&mut fields).as_ref(), leaf),
            None => SeatKind { leaf, agent: None },
        };
        let asked = SeatRequest {
            has_one: fields.take("has_one")?,
            kind,
            since: fields.time("ready_since")?,
            send: fields.take("send_id")?,
            version: fields.take("agent_version")?,
        };
        Ok((fields.ord()?, asked))
    });
    Ok(read.collect::<Result<_>>()?)
}

/// The published agent that runs a send, from the columns `options, spec`. The claim reports an
/// unreadable one.
fn published(fields: &mut Fields<'_>) -> Option<AgentName> {
    let options: SendOptions = fields.json("options").ok()?;
    let spec: AgentSpec = fields.json("spec").ok()?;
    options.published_in(&spec).cloned()
}

/// Reads and locks the seat limits of a tenant; `None` if it has none.
async fn limits(connection: &mut PgConnection, tenant: TenantId) -> Faulty<Option<SeatLimits>> {
    let query = sql!("seats/limits").bind(tenant.0);
    let Some(row) = query.fetch_optional(&mut *connection).await? else {
        return Ok(None);
    };
    let (mut limits, has_agents) = read_limits(&row)?;
    if has_agents {
        limits.agents = agents::running(connection, tenant).await?;
    }
    Ok(Some(limits))
}

/// Reads the limits of a tenant, and whether its agents have limits.
fn read_limits(row: &PgRow) -> Result<(SeatLimits, bool)> {
    let mut fields = Fields::new(row, "seat_limits");
    let mut limit = |column| {
        let limit: Option<i32> = fields.take(column)?;
        Ok::<_, mainspring_shared::store::Error>(limit.map(i32::unsigned_abs))
    };
    let limits = SeatLimits {
        sends: limit("sends_running")?,
        leaves: limit("leaves_running")?,
        agents: BTreeMap::new(),
    };
    Ok((limits, fields.take("agents")?))
}

/// The free seats of a tenant, for the sessions that request one. Requires the lock of its limits.
async fn room(
    connection: &mut PgConnection,
    of: &Seated<'_>,
    limits: SeatLimits,
    asked: &BTreeMap<usize, SeatRequest>,
) -> Faulty<Room> {
    let mut counts = counts(connection, of.tenant).await?;
    if is_short(&limits, &counts, asked) || is_full(&counts, asked) {
        let free = sql!("seats/free").bind(of.tenant.0);
        free.execute(&mut *connection).await?;
        counts = self::counts(connection, of.tenant).await?;
    }
    let (taken, first) = line(connection, of.claim.at, of.tenant, (&limits, &counts)).await?;
    let first = first.into_iter().map(|waiting| waiting.of).collect();
    Ok(Room::new(limits, taken, first))
}

/// Whether there may be too few seats for the sessions that request one or wait for one, unless
/// seats of ended sends are cleared.
fn is_short(
    limits: &SeatLimits,
    counts: &[SeatCount],
    asked: &BTreeMap<usize, SeatRequest>,
) -> bool {
    let taken = SeatCount::sum(counts);
    let in_line = counts.iter().filter(|count| count.waiting > 0);
    let waiting: u32 = in_line.clone().map(|count| count.waiting).sum();
    let wanted = asked.len() + waiting as usize;
    let kinds = asked.values().map(|asked| &asked.kind);
    let mut kinds = kinds.chain(in_line.map(|count| &count.kind));
    kinds.any(|kind| (limits.places(&taken, kind) as usize) < wanted)
}

/// Whether to clear seats of ended sends although there are enough. On average this happens when
/// they are as many as those of live sends, so that the amortized cost per claim is constant. Picks
/// requests by the ids of their sends, which are random.
fn is_full(counts: &[SeatCount], asked: &BTreeMap<usize, SeatRequest>) -> bool {
    let taken = u128::from(SeatCount::sum(counts).sends);
    let mut sends = asked.values().map(|asked| asked.send.as_u128());
    taken > LEFT_MAX && sends.any(|id| id % taken < 2)
}

/// The number of a tenant's sessions with a seat and of those that wait for one, per kind.
async fn counts(connection: &mut PgConnection, tenant: TenantId) -> Faulty<Vec<SeatCount>> {
    let query = sql!("seats/counts").bind(tenant.0);
    let rows = query.fetch_all(connection).await?;
    let count = |total: u64| u32::try_from(total).unwrap_or(u32::MAX);
    let counts = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "seats");
        Ok(SeatCount {
            kind: kind(&mut fields)?,
            taken: count(fields.total("taken")?),
            waiting: count(fields.total("waiting")?),
        })
    });
    Ok(counts.collect::<Result<_>>()?)
}

/// Reads the columns `agent, leaf`.
fn kind(fields: &mut Fields<'_>) -> Result<SeatKind> {
    let name: &str = fields.take("agent")?;
    let agent = Some(name).filter(|name| !name.is_empty());
    let agent = agent.map(str::parse::<AgentName>).transpose();
    Ok(SeatKind {
        agent: agent.map_err(|why| fields.corrupt("agent", why.to_string()))?,
        leaf: fields.take("leaf")?,
    })
}

/// A session in a line.
struct Waiting {
    of: InLine,
    was_called: bool,
    ready: ReadySession,
}

/// The seats taken, and the first sessions in line: of each kind at most as many as may get a seat.
async fn line(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
    (limits, counts): (&SeatLimits, &[SeatCount]),
) -> Faulty<(SeatsTaken, Vec<Waiting>)> {
    let taken = SeatCount::sum(counts);
    let in_line = counts.iter().filter(|count| count.waiting > 0);
    let of_kinds = in_line.map(|count| (&count.kind, limits.places(&taken, &count.kind)));
    let of_kinds: Vec<_> = of_kinds.filter(|(_, places)| *places > 0).collect();
    if of_kinds.is_empty() {
        return Ok((taken, Vec::new()));
    }
    let (agents, leaves) = kind_columns(of_kinds.iter().map(|(kind, _)| *kind));
    let places = of_kinds.iter().map(|(_, places)| i64::from(*places));
    let query = sql!("seats/line")
        .bind(at.map(|at| at.0))
        .bind(tenant.0)
        .bind(agents)
        .bind(leaves)
        .bind(SEAT_CALLED_MS)
        .bind(places.collect::<Vec<_>>());
    let rows = query.fetch_all(connection).await?;
    let read = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "seats");
        let session = SessionId(fields.take("session_id")?);
        let of = InLine {
            kind: kind(&mut fields)?,
            since: fields.time("waits_since")?,
            session,
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
    Ok((taken, read.collect::<Result<_>>()?))
}

/// An agent as a column: empty if the kind has no agent with a limit.
fn agent_text(kind: &SeatKind) -> String {
    let agent = kind.agent.as_ref().map(AgentName::as_str);
    agent.unwrap_or_default().to_owned()
}

/// Kinds as columns: agents, and whether they are leaves.
fn kind_columns<'k>(kinds: impl Iterator<Item = &'k SeatKind>) -> (Vec<String>, Vec<bool>) {
    kinds.map(|kind| (agent_text(kind), kind.leaf)).unzip()
}

/// Rows to write: sessions with a seat, and sessions that wait, with the time since when.
#[derive(Default)]
struct Seats {
    sessions: Vec<Uuid>,
    leaves: Vec<bool>,
    since: Vec<Option<i64>>,
    agents: Vec<String>,
    sends: Vec<Uuid>,
    versions: Vec<i32>,
}

impl Seats {
    fn put(&mut self, session: SessionId, asked: &SeatRequest, taken: bool) {
        self.sessions.push(session.0);
        self.leaves.push(asked.kind.leaf);
        self.since.push((!taken).then_some(asked.since.0));
        self.agents.push(agent_text(&asked.kind));
        self.sends.push(asked.send);
        self.versions.push(asked.version);
    }

    async fn store(self, connection: &mut PgConnection, tenant: TenantId) -> Faulty<()> {
        if self.sessions.is_empty() {
            return Ok(());
        }
        let put = sql!("seats/put")
            .bind(tenant.0)
            .bind(self.sessions)
            .bind(self.leaves)
            .bind(self.since)
            .bind(self.agents)
            .bind(self.sends)
            .bind(self.versions);
        put.execute(connection).await?;
        Ok(())
    }
}

/// Calls waiting sessions that can get a seat; see
/// [`mainspring_shared::store::Tenants::call_seats`].
pub(crate) async fn call(store: &PostgresStore, tenant: Option<TenantId>) -> Result<CalledSeats> {
    let (at, pool) = (store.at, &store.pools.writers);
    let only = tenant.map(|tenant| tenant.0);
    let rows = fetch(pool, || sql!("seats/tenants").bind(only)).await?;
    let mut called = CalledSeats::default();
    let sweeps = only.is_none();
    for row in &rows {
        let tenant = TenantId(Fields::new(row, "seats").take("tenant")?);
        let ready = repeatable!(pool, |connection| call_one(connection, at, tenant, sweeps));
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
    sweeps: bool,
) -> Faulty<Vec<ReadySession>> {
    let mut tx = connection.begin().await?;
    let Some(limits) = limits(&mut tx, tenant).await? else {
        return Ok(Vec::new());
    };
    let free = sql!("seats/free").bind(tenant.0);
    free.execute(&mut *tx).await?;
    let gone = sql!("seats/gone").bind(tenant.0).bind(GONE_MAX);
    gone.execute(&mut *tx).await?;
    let mut counts = counts(&mut tx, tenant).await?;
    if sweeps && ask_again(&mut tx, tenant, &counts).await? {
        counts = self::counts(&mut tx, tenant).await?;
    }
    let (taken, mut first) = line(&mut tx, at, tenant, (&limits, &counts)).await?;
    let room = Room::new(
        limits,
        taken,
        first.iter().map(|waiting| waiting.of.clone()).collect(),
    );
    let next: BTreeSet<SessionId> = room.next().into_iter().map(|it| it.session).collect();
    first.retain(|waiting| !waiting.was_called && next.contains(&waiting.of.session));
    first.sort_by(|one, other| one.of.cmp(&other.of));
    if !first.is_empty() {
        let sessions: Vec<Uuid> = first.iter().map(|waiting| waiting.of.session.0).collect();
        let call = sql!("seats/call").bind(at.map(|at| at.0)).bind(tenant.0);
        call.bind(sessions).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(first.into_iter().map(|waiting| waiting.ready).collect())
}

/// Sessions that wait for a seat of an agent that is no longer that of their next send wait for any
/// seat from now on; their agent is determined when they are called. Returns whether there were
/// any.
async fn ask_again(
    connection: &mut PgConnection,
    tenant: TenantId,
    counts: &[SeatCount],
) -> Faulty<bool> {
    let of_agents = counts.iter().filter(|count| count.waiting > 0);
    let of_agents = of_agents.map(|count| &count.kind);
    let (agents, leaves) = kind_columns(of_agents.filter(|kind| kind.agent.is_some()));
    if agents.is_empty() {
        return Ok(false);
    }
    let done = sql!("seats/ask_again")
        .bind(tenant.0)
        .bind(agents)
        .bind(leaves)
        .bind(GONE_MAX)
        .execute(connection)
        .await?;
    Ok(done.rows_affected() > 0)
}

type Dumped = (
    Vec<(TenantId, Timestamp)>,
    Vec<(SessionKey, Option<Timestamp>)>,
);

/// When tenants' seat limits were set, and the sessions that have a seat or wait for one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_as_many_claims_as_there_are_seats_clears_those_of_ended_sends() {
        let clears = |taken: u32| {
            let kind = SeatKind::default();
            let counts = [SeatCount {
                kind: kind.clone(),
                taken,
                waiting: 0,
            }];
            let of = |n: u32| {
                let asked = SeatRequest {
                    has_one: false,
                    kind: kind.clone(),
                    since: Timestamp(0),
                    send: Uuid::from_u128(u128::from(n)),
                    version: 1,
                };
                is_full(&counts, &BTreeMap::from([(0, asked)]))
            };
            (0..10_000).filter(|n| of(*n)).count()
        };
        assert_eq!(clears(64), 0, "too few to be of any weight");
        assert_eq!(clears(100), 200);
        assert_eq!(clears(5_000), 4);
        assert!(!is_full(&[], &BTreeMap::new()));
    }
}
