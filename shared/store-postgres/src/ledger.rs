//! Transactions over several rows of a session: under the locks of the hot rows, the rows are read,
//! the session machine decides, and its changes are written back.

mod commit;
mod end;
mod hot;
mod outside;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::message::Message;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::step::Step;
use mainspring_shared::store::{Result, UsageRow};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{CallRecord, calls_of_round};
use sqlx::PgConnection;
use sqlx::postgres::PgRow;

use crate::fault::Fault;
use crate::retry::sql;
use crate::rows::{Fields, key_columns, send_columns};

pub(crate) use hot::Hot;
pub(crate) use outside::NewItem;
use write::{CallKey, ItemRow};

/// A round of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RoundKey {
    pub(crate) tenant: TenantId,
    pub(crate) send: SendId,
    pub(crate) round: i32,
}

impl RoundKey {
    /// The range of its calls' ids: their common prefix, and the first text after all of them.
    pub(crate) fn bounds(self) -> (String, String) {
        let first = calls_of_round(self.send, self.round);
        let mut behind = first.clone();
        let last = behind.pop().map(|last| char::from(last as u8 + 1));
        behind.extend(last);
        (first, behind)
    }
}

/// The last message of a transcript.
#[derive(Debug, Clone, Copy)]
struct Last {
    send: SendId,
    round: i32,
    /// Whether it requests calls, which then have no results in the transcript yet.
    asks: bool,
}

/// A session's open sends with the first and the last position.
#[derive(Debug, Clone, Copy)]
struct Heads {
    first: SendId,
    last: SendId,
}

/// Locked sessions with their rows, and the changes to write.
pub(crate) struct Ledger {
    pub(crate) now: Timestamp,
    pub(crate) boot: BootId,
    pub(crate) hot: BTreeMap<SessionKey, Hot>,
    /// The hot rows as they were when they were locked.
    locked: BTreeMap<SessionKey, Hot>,
    pub(crate) sends: BTreeMap<(TenantId, SendId), SendRecord>,
    heads: BTreeMap<SessionKey, Heads>,
    last: BTreeMap<SessionKey, Last>,
    /// The calls of rounds, by their places in the round.
    rounds: BTreeMap<RoundKey, Vec<CallRecord>>,
    writes: Writes,
    /// When the leases of the owners of running sends expire, as far as they were read.
    leases: BTreeMap<BootId, Timestamp>,
}

/// Changes to write besides the hot rows.
#[derive(Default)]
struct Writes {
    /// Sends that changed.
    changed: BTreeSet<(TenantId, SendId)>,
    /// Sends whose input gained content.
    joined: BTreeSet<(TenantId, SendId)>,
    /// Calls that changed.
    settled: BTreeSet<CallKey>,
    /// Final steps: a ledger appends no others.
    steps: Vec<(SessionKey, Step)>,
    messages: Vec<(SessionKey, Message)>,
    /// The cost of calls whose workers died, for sends that end.
    paid: Vec<(SessionKey, SendId, UsageRow)>,
    items: Vec<ItemRow>,
}

/// Tries to lock the hot rows of sessions without waiting. Returns the sessions that another
/// transaction has locked; unknown ones are not among them.
pub(crate) async fn locked_out(
    connection: &mut PgConnection,
    keys: impl IntoIterator<Item = SessionKey>,
) -> std::result::Result<BTreeSet<SessionKey>, Fault> {
    let (tenants, sessions) = key_columns(keys);
    if tenants.is_empty() {
        return Ok(BTreeSet::new());
    }
    let rows = sql!("ledger/lock_free")
        .bind(tenants)
        .bind(sessions)
        .fetch_all(connection)
        .await?;
    let locked = rows.iter().map(|row| Fields::new(row, "session_hot").key());
    Ok(locked.collect::<Result<_>>()?)
}

impl Ledger {
    /// Locks the hot rows of `keys` in key order. Unknown sessions are left out.
    pub(crate) async fn lock(
        connection: &mut PgConnection,
        at: Option<Timestamp>,
        boot: BootId,
        keys: impl IntoIterator<Item = SessionKey>,
    ) -> std::result::Result<Self, Fault> {
        let (tenants, sessions) = key_columns(keys);
        let rows = sql!("ledger/lock")
            .bind(tenants)
            .bind(sessions)
            .fetch_all(&mut *connection)
            .await?;
        let now = now(connection, at).await?;
        let hot = rows.iter().map(|row| {
            let hot = Hot::read(&mut Fields::new(row, "session_hot"))?;
            Ok((hot.row.key, hot))
        });
        let hot: BTreeMap<SessionKey, Hot> = hot.collect::<Result<_>>()?;
        Ok(Self {
            now,
            boot,
            locked: hot.clone(),
            hot,
            sends: BTreeMap::new(),
            heads: BTreeMap::new(),
            last: BTreeMap::new(),
            rounds: BTreeMap::new(),
            writes: Writes::default(),
            leases: BTreeMap::new(),
        })
    }

    /// Reads sends whose sessions are locked.
    pub(crate) async fn read_sends(
        &mut self,
        connection: &mut PgConnection,
        ids: impl IntoIterator<Item = (TenantId, SendId)>,
    ) -> std::result::Result<(), Fault> {
        let (tenants, ids) = send_columns(ids);
        let rows = sql!("sends/get")
            .bind(tenants)
            .bind(ids)
            .fetch_all(connection)
            .await?;
        self.keep_sends(&rows)?;
        Ok(())
    }

    /// Reads the leases of the owners of the running sends that were read. Owners whose lease has
    /// expired are declared dead and count as owning nothing here, so that their sends may be
    /// ended.
    pub(crate) async fn read_owners(
        &mut self,
        connection: &mut PgConnection,
    ) -> std::result::Result<(), Fault> {
        let running = self
            .sends
            .values()
            .filter(|send| send.status == SendStatus::Running);
        let owners = running.filter_map(|send| self.hot.get(&send.key)?.row.owner);
        let owners: BTreeSet<BootId> = owners.collect();
        if owners.is_empty() {
            return Ok(());
        }
        let owners: Vec<_> = owners.into_iter().map(|owner| owner.0).collect();
        sql!("ledger/bury")
            .bind(owners.clone())
            .bind(self.now.0)
            .execute(&mut *connection)
            .await?;
        // A separate statement, so that it sees a concurrent renewal or declaration of death.
        let rows = sql!("ledger/owners")
            .bind(owners)
            .fetch_all(connection)
            .await?;
        for row in &rows {
            let mut fields = Fields::new(row, "boots");
            let boot = BootId(fields.take("boot_id")?);
            self.leases.insert(boot, fields.time("lease_until")?);
        }
        Ok(())
    }

    /// When the lease of a session's owner expires; `None` if nobody owns it or the owner is dead.
    /// Requires `read_owners`.
    pub(crate) fn lease_until(&self, key: SessionKey) -> Option<Timestamp> {
        let owner = self.row(key)?.owner?;
        self.leases.get(&owner).copied()
    }

    /// Reads the last open sends of a locked session, at most `limit`, last first.
    pub(crate) async fn read_last_open_sends(
        &mut self,
        connection: &mut PgConnection,
        key: SessionKey,
        limit: i64,
    ) -> std::result::Result<Vec<SendId>, Fault> {
        let rows = sql!("ledger/last_open_sends")
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(limit)
            .fetch_all(connection)
            .await?;
        Ok(self.keep_sends(&rows)?)
    }

    fn keep_sends(&mut self, rows: &[PgRow]) -> Result<Vec<SendId>> {
        let mut ids = Vec::with_capacity(rows.len());
        for row in rows {
            let mut fields = Fields::new(row, "sends");
            let send = fields.send()?;
            ids.push(send.id);
            self.sends.insert((send.key.tenant, send.id), send);
        }
        Ok(ids)
    }

    /// Reads the open sends with the first and the last position of each locked session.
    pub(crate) async fn read_heads(
        &mut self,
        connection: &mut PgConnection,
    ) -> std::result::Result<(), Fault> {
        let (tenants, sessions) = key_columns(self.hot.keys().copied());
        let rows = sql!("ledger/heads")
            .bind(tenants)
            .bind(sessions)
            .fetch_all(connection)
            .await?;
        let ids = self.keep_sends(&rows)?;
        for (row, id) in rows.iter().zip(ids) {
            let mut fields = Fields::new(row, "sends");
            let tenant = TenantId(fields.take("tenant")?);
            let Some(send) = self.sends.get(&(tenant, id)) else {
                continue;
            };
            let place = |id: SendId| self.sends.get(&(tenant, id)).map(|send| send.position);
            let (first, last) = self
                .heads
                .get(&send.key)
                .map_or((id, id), |heads| (heads.first, heads.last));
            let heads = Heads {
                first: if place(id) < place(first) { id } else { first },
                last: if place(id) > place(last) { id } else { last },
            };
            self.heads.insert(send.key, heads);
        }
        Ok(())
    }

    /// Reads the last messages of the locked sessions, with the calls of open rounds. Call it
    /// before any of their sends ends under a grant.
    pub(crate) async fn read_last(
        &mut self,
        connection: &mut PgConnection,
    ) -> std::result::Result<(), Fault> {
        let (tenants, sessions) = key_columns(self.hot.keys().copied());
        let seqs: Vec<i64> = self.hot.values().map(|hot| hot.row.next_seq - 1).collect();
        let rows = sql!("ledger/last_messages")
            .bind(tenants)
            .bind(sessions)
            .bind(seqs)
            .fetch_all(&mut *connection)
            .await?;
        let mut open = Vec::new();
        for row in &rows {
            let mut fields = Fields::new(row, "messages");
            let key = fields.key()?;
            let last = Last {
                send: SendId(fields.take("send_id")?),
                round: fields.take("round")?,
                asks: fields.take("asks")?,
            };
            if last.asks {
                open.push(last.round_of(key));
            }
            self.last.insert(key, last);
        }
        self.read_rounds(connection, open).await
    }

    /// Reads the calls of these rounds, whose sessions are locked.
    pub(crate) async fn read_rounds(
        &mut self,
        connection: &mut PgConnection,
        rounds: impl IntoIterator<Item = RoundKey>,
    ) -> std::result::Result<(), Fault> {
        let rounds: BTreeSet<RoundKey> = rounds.into_iter().collect();
        if rounds.is_empty() {
            return Ok(());
        }
        let rounds: Vec<RoundKey> = rounds.into_iter().collect();
        let tenants: Vec<i32> = rounds.iter().map(|round| round.tenant.0).collect();
        let (first, behind): (Vec<_>, Vec<_>) = rounds.iter().map(|round| round.bounds()).unzip();
        let rows = sql!("calls/rounds")
            .bind(tenants)
            .bind(first)
            .bind(behind)
            .fetch_all(connection)
            .await?;
        for row in &rows {
            let mut fields = Fields::new(row, "tool_calls");
            let round = rounds[fields.ord()?];
            self.rounds.entry(round).or_default().push(fields.call()?);
        }
        Ok(())
    }

    /// Changes a send that was read.
    pub(crate) fn change(
        &mut self,
        tenant: TenantId,
        id: SendId,
        change: impl FnOnce(&mut SendRecord),
    ) {
        if let Some(send) = self.sends.get_mut(&(tenant, id)) {
            change(send);
            self.writes.changed.insert((tenant, id));
        }
    }
}

impl Last {
    fn round_of(self, key: SessionKey) -> RoundKey {
        RoundKey {
            tenant: key.tenant,
            send: self.send,
            round: self.round,
        }
    }
}

/// The time of the database's clock, unless a test sets it.
pub(crate) async fn now(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
) -> std::result::Result<Timestamp, Fault> {
    if let Some(at) = at {
        return Ok(at);
    }
    let row = sql!("ledger/now")
        .bind(None::<i64>)
        .fetch_one(connection)
        .await?;
    Ok(Fields::new(&row, "clock").time("now")?)
}
