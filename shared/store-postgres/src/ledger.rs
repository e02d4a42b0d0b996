//! Transactions that decide over several rows of a session: under the locks of the hot rows, the
//! rows are read, changed here, and written back.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::agent::Priority;
use mainspring_shared::id::{BootId, LeaseToken, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::send::{SendRecord, SendResult, StopReason, WaitingOn};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::step::StepRefs;
use mainspring_shared::store::{ReadySession, Result};
use mainspring_shared::time::Timestamp;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::columns::json;
use crate::retry::{Fault, sql};
use crate::rows::{Fields, key_columns, priority_number, priority_of, send_columns};

/// What the send at the head of a session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Active {
    /// None has begun.
    None,
    /// It runs.
    Runs,
    /// It waits.
    Waits,
}

impl Active {
    fn from_i16(number: i16) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Runs),
            2 => Some(Self::Waits),
            _ => None,
        }
    }
}

/// A hot row.
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
    pub(crate) active: Active,
    pub(crate) signals: i32,
    pub(crate) ready_since: Option<Timestamp>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) pool: String,
    pub(crate) priority: Priority,
}

impl Hot {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Self> {
        let key = fields.key()?;
        let owner: Option<Uuid> = fields.take("owner_boot")?;
        let token: Option<Uuid> = fields.take("token")?;
        Ok(Self {
            key,
            owner: owner.map(BootId),
            token: token.map(LeaseToken),
            epoch: fields.take("epoch")?,
            next_seq: fields.take("next_seq")?,
            next_position: fields.take("next_position")?,
            next_step: fields.take("next_step")?,
            pending: fields.take("pending")?,
            active: {
                let number = fields.take("active")?;
                Active::from_i16(number)
                    .ok_or_else(|| fields.corrupt("active", format!("{number} is unknown")))?
            },
            signals: fields.take("signals")?,
            ready_since: fields.maybe_time("ready_since")?,
            lifecycle: {
                let number = fields.take("lifecycle")?;
                Lifecycle::from_i16(number)
                    .ok_or_else(|| fields.corrupt("lifecycle", format!("{number} is unknown")))?
            },
            pool: fields.take("pool")?,
            priority: priority_of(fields.take("priority")?),
        })
    }

    /// What whoever rings for this session has to know; none unless it is ready.
    pub(crate) fn ring(&self) -> Option<ReadySession> {
        self.ready_since.map(|ready_since| ReadySession {
            key: self.key,
            pool: self.pool.clone(),
            priority: self.priority,
            ready_since,
        })
    }

    /// Gives work its place. Someone has to ring when the session was not ready before; behind a
    /// send that waits nothing can go on yet.
    pub(crate) fn gain_work(
        &mut self,
        priority: Priority,
        now: Timestamp,
    ) -> (i64, Option<ReadySession>) {
        let position = self.next_position;
        self.next_position += 1;
        self.pending += 1;
        if self.active == Active::Waits || self.ready_since.is_some() {
            return (position, None);
        }
        self.priority = priority;
        self.ready_since = Some(now);
        (position, self.ring())
    }

    fn take_step(&mut self) -> i64 {
        let n = self.next_step;
        self.next_step += 1;
        n
    }
}

struct StepRow {
    key: SessionKey,
    n: i64,
    send: SendId,
    epoch: i64,
    refs: StepRefs,
}

struct InputRow {
    tenant: TenantId,
    send: SendId,
    seq: i64,
    epoch: i64,
}

/// Locked sessions, what was read of them, and what is to be written.
pub(crate) struct Ledger {
    pub(crate) now: Timestamp,
    boot: BootId,
    pub(crate) hot: BTreeMap<SessionKey, Hot>,
    pub(crate) sends: BTreeMap<(TenantId, SendId), SendRecord>,
    /// Who wrote the last message of each session.
    speakers: BTreeMap<SessionKey, SendId>,
    changed: BTreeSet<(TenantId, SendId)>,
    steps: Vec<StepRow>,
    inputs: Vec<InputRow>,
}

impl Ledger {
    /// Locks the hot rows of `keys` in their order. Unknown sessions are left out.
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
            Ok((hot.key, hot))
        });
        Ok(Self {
            now,
            boot,
            hot: hot.collect::<Result<_>>()?,
            sends: BTreeMap::new(),
            speakers: BTreeMap::new(),
            changed: BTreeSet::new(),
            steps: Vec::new(),
            inputs: Vec::new(),
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

    /// Reads every open send of the locked sessions; returns them by place, those without one
    /// behind.
    pub(crate) async fn read_open_sends(
        &mut self,
        connection: &mut PgConnection,
    ) -> std::result::Result<Vec<SendId>, Fault> {
        let (tenants, sessions) = key_columns(self.hot.keys().copied());
        let rows = sql!("ledger/open_sends")
            .bind(tenants)
            .bind(sessions)
            .fetch_all(connection)
            .await?;
        Ok(self.keep_sends(&rows)?)
    }

    fn keep_sends(&mut self, rows: &[PgRow]) -> Result<Vec<SendId>> {
        let mut ids = Vec::with_capacity(rows.len());
        for row in rows {
            let mut fields = Fields::new(row, "sends");
            let _: i64 = fields.take("ord")?;
            let send = fields.send()?;
            ids.push(send.id);
            self.sends.insert((send.key.tenant, send.id), send);
        }
        Ok(ids)
    }

    /// Reads which sends have messages already; to be called before any of them ends under a grant.
    pub(crate) async fn read_speakers(
        &mut self,
        connection: &mut PgConnection,
    ) -> std::result::Result<(), Fault> {
        let (tenants, sessions) = key_columns(self.hot.keys().copied());
        let last: Vec<i64> = self.hot.values().map(|hot| hot.next_seq - 1).collect();
        let rows = sql!("ledger/speakers")
            .bind(tenants)
            .bind(sessions)
            .bind(last)
            .fetch_all(connection)
            .await?;
        for row in &rows {
            let mut fields = Fields::new(row, "messages");
            let key = fields.key()?;
            let speaker = SendId(fields.take("send_id")?);
            self.speakers.insert(key, speaker);
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
            self.changed.insert((tenant, id));
        }
    }

    /// Ends a queued send, which needs no grant and leaves no message. The session is at rest when
    /// nothing is left that has a place.
    pub(crate) fn finish_queued(&mut self, key: SessionKey, id: SendId, result: SendResult) -> i64 {
        let had_place = self
            .sends
            .get(&(key.tenant, id))
            .is_some_and(|send| send.position.is_some());
        if let Some(hot) = self.hot.get_mut(&key) {
            hot.pending -= i64::from(had_place);
            if hot.pending == 0 && hot.active == Active::None {
                hot.ready_since = None;
            }
        }
        self.finish(key, id, result, 0, StepRefs::default())
    }

    /// Ends a started send that nobody runs, under a grant of its own. Its input becomes a message
    /// if nothing of the send is in the transcript yet.
    pub(crate) fn finish_unowned(
        &mut self,
        key: SessionKey,
        id: SendId,
        result: SendResult,
    ) -> (i64, Option<ReadySession>) {
        let epoch = self.grant(key);
        let now = self.now;
        let mut refs = StepRefs::default();
        if self.speakers.get(&key) != Some(&id)
            && let Some(hot) = self.hot.get_mut(&key)
        {
            let seq = hot.next_seq;
            hot.next_seq += 1;
            refs.first_seq = Some(seq);
            refs.messages = 1;
            self.speakers.insert(key, id);
            self.inputs.push(InputRow {
                tenant: key.tenant,
                send: id,
                seq,
                epoch,
            });
        }
        let n = self.finish(key, id, result, epoch, refs);
        let ring = self.hot.get_mut(&key).and_then(|hot| {
            hot.active = Active::None;
            hot.signals = 0;
            hot.owner = None;
            hot.token = None;
            hot.ready_since = (hot.pending > 0).then_some(now);
            hot.ring()
        });
        (n, ring)
    }

    /// Makes a grant that begins and ends in this transaction.
    pub(crate) fn grant(&mut self, key: SessionKey) -> i64 {
        self.hot.get_mut(&key).map_or(0, |hot| {
            hot.epoch += 1;
            hot.epoch
        })
    }

    /// Makes a send final and writes its step.
    pub(crate) fn finish(
        &mut self,
        key: SessionKey,
        id: SendId,
        result: SendResult,
        epoch: i64,
        refs: StepRefs,
    ) -> i64 {
        let now = self.now;
        let refs = StepRefs {
            reason: Some(result.stop_reason.as_str().to_owned()),
            status: Some(result.status.as_str().to_owned()),
            ..refs
        };
        self.change(key.tenant, id, |send| {
            send.status = result.status;
            send.stop_reason = Some(result.stop_reason);
            send.error = result.error;
            send.waiting_on = None;
            send.alarm_at = None;
            send.finished_at = Some(now);
        });
        let n = self.hot.get_mut(&key).map_or(0, Hot::take_step);
        self.steps.push(StepRow {
            key,
            n,
            send: id,
            epoch,
            refs,
        });
        n
    }

    /// Writes everything back.
    pub(crate) async fn write(
        self,
        connection: &mut PgConnection,
    ) -> std::result::Result<(), Fault> {
        self.write_hot(connection).await?;
        self.write_sends(connection).await?;
        if !self.steps.is_empty() {
            let (tenants, sessions) = key_columns(self.steps.iter().map(|step| step.key));
            let ns: Vec<i64> = self.steps.iter().map(|step| step.n).collect();
            let sends: Vec<Uuid> = self.steps.iter().map(|step| step.send.0).collect();
            let epochs: Vec<i64> = self.steps.iter().map(|step| step.epoch).collect();
            let refs: Vec<String> = self.steps.iter().map(|step| json(&step.refs)).collect();
            sql!("ledger/write_steps")
                .bind(self.boot.0)
                .bind(self.now.0)
                .bind(tenants)
                .bind(sessions)
                .bind(ns)
                .bind(sends)
                .bind(epochs)
                .bind(refs)
                .execute(&mut *connection)
                .await?;
        }
        if !self.inputs.is_empty() {
            let (tenants, sends) = send_columns(self.inputs.iter().map(|i| (i.tenant, i.send)));
            let seqs: Vec<i64> = self.inputs.iter().map(|input| input.seq).collect();
            let epochs: Vec<i64> = self.inputs.iter().map(|input| input.epoch).collect();
            sql!("ledger/write_inputs")
                .bind(self.now.0)
                .bind(tenants)
                .bind(sends)
                .bind(seqs)
                .bind(epochs)
                .execute(&mut *connection)
                .await?;
        }
        Ok(())
    }

    async fn write_hot(&self, connection: &mut PgConnection) -> std::result::Result<(), Fault> {
        let rows = || self.hot.values();
        let (tenants, sessions) = key_columns(self.hot.keys().copied());
        let owners: Vec<Option<Uuid>> = rows().map(|hot| hot.owner.map(|boot| boot.0)).collect();
        let tokens: Vec<Option<Uuid>> = rows().map(|hot| hot.token.map(|token| token.0)).collect();
        let readies: Vec<Option<i64>> = rows().map(|hot| hot.ready_since.map(|t| t.0)).collect();
        sql!("ledger/write_hot")
            .bind(tenants)
            .bind(sessions)
            .bind(owners)
            .bind(tokens)
            .bind(rows().map(|hot| hot.epoch).collect::<Vec<_>>())
            .bind(rows().map(|hot| hot.next_seq).collect::<Vec<_>>())
            .bind(rows().map(|hot| hot.next_position).collect::<Vec<_>>())
            .bind(rows().map(|hot| hot.next_step).collect::<Vec<_>>())
            .bind(rows().map(|hot| hot.pending).collect::<Vec<_>>())
            .bind(rows().map(|hot| hot.active as i16).collect::<Vec<_>>())
            .bind(rows().map(|hot| hot.signals).collect::<Vec<_>>())
            .bind(readies)
            .bind(rows().map(|hot| hot.lifecycle.as_i16()).collect::<Vec<_>>())
            .bind(rows().map(|hot| hot.pool.as_str()).collect::<Vec<_>>())
            .bind(
                rows()
                    .map(|hot| priority_number(hot.priority))
                    .collect::<Vec<_>>(),
            )
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn write_sends(&self, connection: &mut PgConnection) -> std::result::Result<(), Fault> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let rows = || self.changed.iter().filter_map(|id| self.sends.get(id));
        let (tenants, ids) = send_columns(self.changed.iter().copied());
        let positions: Vec<Option<i64>> = rows().map(|send| send.position).collect();
        let statuses: Vec<&str> = rows().map(|send| send.status.as_str()).collect();
        let waiting = rows().map(|send| send.waiting_on.map(WaitingOn::as_str));
        let reasons = rows().map(|send| send.stop_reason.map(StopReason::as_str));
        let errors = rows().map(|send| send.error.as_ref().map(json));
        let asked: Vec<bool> = rows().map(|send| send.cancel_requested).collect();
        let alarms = rows().map(|send| send.alarm_at.map(|at| at.0));
        let ends = rows().map(|send| send.finished_at.map(|at| at.0));
        sql!("ledger/write_sends")
            .bind(tenants)
            .bind(ids)
            .bind(positions)
            .bind(statuses)
            .bind(waiting.collect::<Vec<_>>())
            .bind(reasons.collect::<Vec<_>>())
            .bind(errors.collect::<Vec<_>>())
            .bind(asked)
            .bind(alarms.collect::<Vec<_>>())
            .bind(ends.collect::<Vec<_>>())
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// The database's clock, unless a test gives the time.
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

/// The sessions of sends.
pub(crate) async fn homes(
    connection: &mut PgConnection,
    ids: &[(TenantId, SendId)],
) -> std::result::Result<Vec<SessionKey>, Fault> {
    let (tenants, ids) = send_columns(ids.iter().copied());
    let rows = sql!("ledger/homes")
        .bind(tenants)
        .bind(ids)
        .fetch_all(connection)
        .await?;
    let keys = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "sends");
        let tenant = TenantId(fields.take("tenant")?);
        let session = SessionId(fields.take("session_id")?);
        Ok(SessionKey { tenant, session })
    });
    Ok(keys.collect::<Result<_>>()?)
}
