//! The hot row of a session: read at the start of a step, changed in memory, written at its end.
//! Between the two nothing else can change it, because there is one writer.

use std::collections::BTreeSet;

use mainspring_shared::agent::Priority;
use mainspring_shared::budget::Spent;
use mainspring_shared::id::{BootId, LeaseToken, SendId, SessionKey};
use mainspring_shared::lease::Lease;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::{Lifecycle, SIGNAL_INBOX};
use mainspring_shared::step::{StepKind, StepRefs};
use mainspring_shared::store::{Counters, ReadySession, SendTotals};
use mainspring_shared::time::Timestamp;

use crate::db::{Statement, sql};
use crate::fault::Result;
use crate::query::{Query, statement};
use crate::rows::{self, Cells, json};
use crate::store::Tx;

/// A row of `session_hot`.
#[derive(Debug, Clone)]
pub(crate) struct Hot {
    pub(crate) key: SessionKey,
    pub(crate) owner: Option<BootId>,
    pub(crate) token: Option<LeaseToken>,
    pub(crate) epoch: i64,
    pub(crate) next_seq: i64,
    pub(crate) next_position: i64,
    pub(crate) next_step: i64,
    pub(crate) pending: i64,
    pub(crate) signals: i32,
    pub(crate) ready_since: Option<Timestamp>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) pool: String,
    pub(crate) priority: Priority,
    /// What the session spent, as it was read; written by [`Hot::spend`] alone.
    pub(crate) spent: Option<Spent>,
    /// Writes under the grant, as they were read: counted where the fence is.
    pub(crate) writes: i64,
    /// Changes of the context other than by messages, as they were read: raised by who makes one.
    pub(crate) context_version: i64,
}

/// A hot row with what a step without a lease has to know besides.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) hot: Hot,
    /// Whether the owner's boot is alive.
    pub(crate) owner_lives: bool,
    /// The status of the first open send that has its place.
    pub(crate) head: Option<SendStatus>,
    /// Whether any send is not final, delayed ones included.
    pub(crate) busy: bool,
}

/// A step to write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewStep<'r> {
    pub(crate) author: Author,
    pub(crate) send: SendId,
    pub(crate) kind: StepKind,
    pub(crate) at: Timestamp,
    pub(crate) refs: &'r StepRefs,
}

/// Who commits a step, and under which grant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Author {
    pub(crate) boot: BootId,
    pub(crate) epoch: i64,
}

impl Author {
    /// Someone who needs no grant for what it does.
    pub(crate) fn ungranted(boot: BootId) -> Self {
        Self { boot, epoch: 0 }
    }
}

impl From<Lease> for Author {
    fn from(lease: Lease) -> Self {
        Self {
            boot: lease.boot,
            epoch: lease.epoch,
        }
    }
}

/// The number in the database.
pub(crate) fn priority_number(priority: Priority) -> i32 {
    match priority {
        Priority::High => 0,
        Priority::Low => 1,
    }
}

/// The priority with this number.
pub(crate) fn priority(number: i32) -> Priority {
    if number == 0 {
        Priority::High
    } else {
        Priority::Low
    }
}

/// `tenant, session_id, owner_boot, token, epoch, next_seq, next_position, next_step, pending,
/// signals, ready_since, lifecycle, pool, priority, spent, writes, context_version`
pub(crate) fn read(cells: &mut Cells<'_>) -> Result<Hot> {
    let key = cells.key()?;
    fields(cells, key).map_err(|fault| fault.of_row(|| key.to_string()))
}

fn fields(cells: &mut Cells<'_>, key: SessionKey) -> Result<Hot> {
    Ok(Hot {
        key,
        owner: cells.boot_opt("owner_boot")?,
        token: cells.token_opt("token")?,
        epoch: cells.get("epoch")?,
        next_seq: cells.get("next_seq")?,
        next_position: cells.get("next_position")?,
        next_step: cells.get("next_step")?,
        pending: cells.get("pending")?,
        signals: cells.get("signals")?,
        ready_since: cells.time_opt("ready_since")?,
        lifecycle: lifecycle(cells)?,
        pool: cells.get("pool")?,
        priority: priority(cells.get("priority")?),
        spent: cells.json_opt("spent")?,
        writes: cells.get("writes")?,
        context_version: cells.get("context_version")?,
    })
}

pub(crate) fn lifecycle(cells: &mut Cells<'_>) -> Result<Lifecycle> {
    let number: i16 = cells.get("lifecycle")?;
    Lifecycle::from_i16(number)
        .ok_or_else(|| cells.corrupt("lifecycle", &format!("{number} is not known")))
}

/// Locks sessions in the order of their keys, so that transactions over several of them do not wait
/// for each other in a circle. With one writer there is nobody to wait for.
pub(crate) async fn lock(tx: &mut Tx, keys: impl Iterator<Item = SessionKey>) -> Result<()> {
    if !tx.has_peers {
        return Ok(());
    }
    let keys: BTreeSet<SessionKey> = keys.collect();
    if keys.len() < 2 {
        return Ok(());
    }
    for key in keys {
        statement(sql!("sessions/lock"))
            .bind(key.tenant.0)
            .bind(key.session.0)
            .execute(tx.conn())
            .await?;
    }
    Ok(())
}

/// A session that is not deleted.
pub(crate) async fn load(tx: &mut Tx, key: SessionKey) -> Result<Option<Session>> {
    let row = statement(sql!("sessions/load"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(tx.now.0)
        .fetch_optional(tx.conn())
        .await?;
    let Some(row) = row else { return Ok(None) };
    let mut cells = Cells::new(&row, "session_hot");
    let hot = read(&mut cells)?;
    let owner_lives = cells.get("owner_lives")?;
    let mut cells = cells.of("sends");
    let head = cells.word_opt("status", SendStatus::parse)?;
    let busy = cells.get("busy")?;
    Ok(Some(Session {
        hot,
        owner_lives,
        head,
        busy,
    }))
}

/// The first open send of a session that has its place: the active one, if there is any.
pub(crate) async fn head(tx: &mut Tx, key: SessionKey) -> Result<Option<SendRecord>> {
    let row = statement(sql!("sends/head"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_optional(tx.conn())
        .await?;
    let row = row.as_ref();
    row.map(|row| rows::send(&mut Cells::new(row, "sends")))
        .transpose()
}

impl Hot {
    /// Marks the session as having work; keeps the older moment. Returns whom to ring for when it
    /// had none before.
    pub(crate) fn make_ready(&mut self, now: Timestamp) -> Option<ReadySession> {
        if self.ready_since.is_some() {
            return None;
        }
        self.ready_since = Some(now);
        Some(self.ring(now))
    }

    /// Makes a session ready as from now whose head waited: what it waited for has come. Returns
    /// whom to ring for.
    pub(crate) fn wake(&mut self, now: Timestamp) -> ReadySession {
        self.ready_since = Some(now);
        self.ring(now)
    }

    /// Takes a queued send that just got its place into account. Returns whom to ring for when the
    /// session was not ready before; behind a send that waits nothing can go on yet.
    pub(crate) fn gain_work(
        &mut self,
        now: Timestamp,
        head: Option<SendStatus>,
        priority: Priority,
    ) -> Option<ReadySession> {
        self.pending += 1;
        if head == Some(SendStatus::Waiting) || self.ready_since.is_some() {
            return None;
        }
        self.priority = priority;
        self.make_ready(now)
    }

    /// Takes the lease back and decides what is left: queued sends make the session ready, as from
    /// now, and someone has to ring.
    pub(crate) fn give_back(&mut self, now: Timestamp) -> Option<ReadySession> {
        self.owner = None;
        self.token = None;
        self.ready_since = None;
        if self.pending > 0 {
            return self.make_ready(now);
        }
        None
    }

    /// A grant inside one transaction, for who settles a send that nobody runs.
    pub(crate) fn grant(&mut self, boot: BootId) -> Author {
        self.epoch += 1;
        Author {
            boot,
            epoch: self.epoch,
        }
    }

    /// Lowers the signals that concern a send that ends. The next one finds the inbox.
    pub(crate) fn keep_for_next(&mut self) {
        self.signals &= SIGNAL_INBOX;
    }

    fn ring(&self, ready_since: Timestamp) -> ReadySession {
        ReadySession {
            key: self.key,
            pool: self.pool.clone(),
            priority: self.priority,
            ready_since,
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            next_seq: self.next_seq,
            pending: self.pending,
            signals: self.signals,
            context_version: self.context_version,
        }
    }

    /// Writes what the session has spent, where the totals say so.
    pub(crate) async fn spend(&mut self, tx: &mut Tx, totals: &SendTotals) -> Result<()> {
        let Some(spent) = totals.session else {
            return Ok(());
        };
        self.spent = Some(spent);
        statement(sql!("sessions/spend"))
            .bind(self.key.tenant.0)
            .bind(self.key.session.0)
            .bind(json(&spent)?)
            .execute(tx.conn())
            .await?;
        Ok(())
    }

    /// Writes the row as it is now.
    pub(crate) async fn save(&self, tx: &mut Tx) -> Result<()> {
        self.bind(statement(sql!("sessions/save")))
            .execute(tx.conn())
            .await?;
        Ok(())
    }

    /// Numbers a step. Binds what every file of a step names alike: `$1` to `$14` are the row as
    /// the step leaves it, `$15` to `$21` the step. What a kind of step needs besides begins at
    /// `$22`. Returns the step's number too.
    pub(crate) fn step(
        &mut self,
        sql: &'static Statement,
        step: NewStep<'_>,
    ) -> Result<(i64, Query)> {
        let n = self.next_step;
        self.next_step += 1;
        let query = self.bind(statement(sql));
        let query = query
            .bind(n)
            .bind(step.send.0)
            .bind(step.kind.as_str())
            .bind(step.author.epoch)
            .bind(step.author.boot.0)
            .bind(step.at.0)
            .bind(json(step.refs)?);
        Ok((n, query))
    }

    /// Binds `$1` to `$14`: the row as it is now.
    pub(crate) fn bind(&self, query: Query) -> Query {
        query
            .bind(self.key.tenant.0)
            .bind(self.key.session.0)
            .bind(self.owner.map(|boot| boot.0))
            .bind(self.token.map(|token| token.0))
            .bind(self.epoch)
            .bind(self.next_seq)
            .bind(self.next_position)
            .bind(self.next_step)
            .bind(self.pending)
            .bind(self.signals)
            .bind(self.ready_since.map(|at| at.0))
            .bind(self.lifecycle.as_i16())
            .bind(self.pool.clone())
            .bind(priority_number(self.priority))
    }
}
