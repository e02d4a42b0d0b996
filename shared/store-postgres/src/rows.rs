//! Reading rows. An unreadable row is a `Corrupt` error with its table, column and key.

mod calls;

use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, OnBusy, Priority};
use mainspring_shared::budget::Spending;
use mainspring_shared::id::{BootId, RunId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::message::{Message, Role};
use mainspring_shared::send::{SendRecord, SendStatus, StopReason, WaitingOn};
use mainspring_shared::session::{SessionRecord, SessionStatus};
use mainspring_shared::step::{Step, StepKind};
use mainspring_shared::store::{BootRecord, Error, ReadySession, Result};
use mainspring_shared::stored;
use mainspring_shared::time::Timestamp;
use mainspring_shared::workflow::run::RunLeaf;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgRow;
use sqlx::{Column, Decode, Postgres, Row, Type};
use uuid::Uuid;

pub(crate) use calls::calls_in_order;

/// The detail of the error if a reader and its statement disagree.
const NO_COLUMN: &str = "the statement returns no such column";

/// The error for a statement that writes a row of a table but returned none.
pub(crate) fn no_row(table: &'static str, column: &'static str) -> Error {
    Error::Corrupt {
        table,
        column,
        row: String::new(),
        detail: "a statement that writes a row returned none".to_owned(),
    }
}

/// A row that is read by column names.
pub(crate) struct Fields<'r> {
    row: &'r PgRow,
    /// The index after the last column read. Readers mostly follow the statement's column order, so
    /// the search for the next name starts, and usually ends, here.
    next: usize,
    table: &'static str,
    key: String,
}

impl<'r> Fields<'r> {
    pub(crate) fn new(row: &'r PgRow, table: &'static str) -> Self {
        Self {
            row,
            next: 0,
            table,
            key: String::new(),
        }
    }

    /// Reads the column with this name.
    pub(crate) fn take<T>(&mut self, column: &'static str) -> Result<T>
    where
        T: Decode<'r, Postgres> + Type<Postgres>,
    {
        let columns = self.row.columns();
        let named = |index: &usize| columns.get(*index).is_some_and(|it| it.name() == column);
        let (next, count) = (self.next, columns.len());
        let index = (next..count).chain(0..next.min(count)).find(named);
        let index = index.ok_or_else(|| self.corrupt(column, NO_COLUMN.to_owned()))?;
        self.next = index + 1;
        let value = self.row.try_get(index);
        value.map_err(|error| self.corrupt(column, error.to_string()))
    }

    /// Sets the row's key for errors.
    pub(crate) fn name_row(&mut self, key: String) {
        self.key = key;
    }

    /// The index of a row's item in its statement, from 0.
    pub(crate) fn ord(&mut self) -> Result<usize> {
        let ord: i64 = self.take("ord")?;
        usize::try_from(ord - 1).map_err(|error| self.corrupt("ord", error.to_string()))
    }

    pub(crate) fn time(&mut self, column: &'static str) -> Result<Timestamp> {
        self.take(column).map(Timestamp)
    }

    pub(crate) fn maybe_time(&mut self, column: &'static str) -> Result<Option<Timestamp>> {
        let time: Option<i64> = self.take(column)?;
        Ok(time.map(Timestamp))
    }

    pub(crate) fn key(&mut self) -> Result<SessionKey> {
        let tenant = TenantId(self.take("tenant")?);
        let session = SessionId(self.take("session_id")?);
        Ok(SessionKey { tenant, session })
    }

    /// Reads JSON text.
    pub(crate) fn json<T: DeserializeOwned>(&mut self, column: &'static str) -> Result<T> {
        let text: &str = self.take(column)?;
        self.parse_json(column, text)
    }

    pub(crate) fn maybe_json<T: DeserializeOwned>(
        &mut self,
        column: &'static str,
    ) -> Result<Option<T>> {
        let text: Option<&str> = self.take(column)?;
        text.map(|text| self.parse_json(column, text)).transpose()
    }

    fn parse_json<T: DeserializeOwned>(&self, column: &'static str, text: &str) -> Result<T> {
        stored::read(text).map_err(|error| self.corrupt(column, error.to_string()))
    }

    /// Reads a name from a fixed list.
    pub(crate) fn name<T>(
        &mut self,
        column: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let text: &str = self.take(column)?;
        parse(text).ok_or_else(|| self.corrupt(column, format!("{text:?} is unknown")))
    }

    pub(crate) fn maybe_name<T>(
        &mut self,
        column: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let text: Option<&str> = self.take(column)?;
        let Some(text) = text else {
            return Ok(None);
        };
        let value = parse(text);
        value.map_or_else(
            || Err(self.corrupt(column, format!("{text:?} is unknown"))),
            |value| Ok(Some(value)),
        )
    }

    pub(crate) fn corrupt(&self, column: &'static str, detail: String) -> Error {
        Error::Corrupt {
            table: self.table,
            column,
            row: self.key.clone(),
            detail,
        }
    }

    /// Reads `{send}`; `None` if the row has no send.
    pub(crate) fn maybe_send(&mut self) -> Result<Option<SendRecord>> {
        let tenant: Option<i32> = self.take("tenant")?;
        let tenant = tenant.map(TenantId);
        tenant.map(|tenant| self.send_of(tenant)).transpose()
    }

    /// Reads `{send}`.
    pub(crate) fn send(&mut self) -> Result<SendRecord> {
        let tenant = TenantId(self.take("tenant")?);
        self.send_of(tenant)
    }

    fn send_of(&mut self, tenant: TenantId) -> Result<SendRecord> {
        let id = SendId(self.take("send_id")?);
        self.key = id.to_string();
        let session = SessionId(self.take("session_id")?);
        let spending: Spending;
        let (counted, not_failed, shown);
        Ok(SendRecord {
            id,
            key: SessionKey { tenant, session },
            position: self.take("position")?,
            status: self.name("status", SendStatus::parse)?,
            waiting_on: self.maybe_name("waiting_on", WaitingOn::parse)?,
            stop_reason: self.maybe_name("stop_reason", StopReason::parse)?,
            input: self.json("input")?,
            options: self.json("options")?,
            agent_version: self.take("agent_version")?,
            output_text: self.take("output_text")?,
            output: self.maybe_json("output")?,
            error: self.maybe_json("error")?,
            usage: {
                spending = self.maybe_json("usage")?.unwrap_or_default();
                spending.usage
            },
            held: {
                counted = spending.counted;
                not_failed = spending.not_failed;
                shown = spending.shown;
                spending.held
            },
            rounds: self.take("rounds")?,
            attempts: self.take("attempts")?,
            counted,
            not_failed,
            shown,
            crashes: self.take("crashes")?,
            cancel_requested: self.take("cancel_requested")?,
            reports_to: self.take("reports_to")?,
            run: self.maybe_leaf()?,
            deadline_at: self.maybe_time("deadline_at")?,
            alarm_at: self.maybe_time("alarm_at")?,
            first_step: self.take("first_step")?,
            created_at: self.time("created_at")?,
            started_at: self.maybe_time("started_at")?,
            finished_at: self.maybe_time("finished_at")?,
        })
    }

    /// Reads the leaf of a run that a send belongs to, if any.
    fn maybe_leaf(&mut self) -> Result<Option<RunLeaf>> {
        let run: Option<Uuid> = self.take("run_id")?;
        let path: Option<String> = self.take("run_path")?;
        let attempt: Option<i32> = self.take("run_attempt")?;
        let leaf = run.zip(path).zip(attempt);
        Ok(leaf.map(|((run, path), attempt)| RunLeaf {
            run: RunId(run),
            path,
            attempt,
        }))
    }

    /// Reads an agent, if the row has one.
    pub(crate) fn maybe_agent(&mut self) -> Result<Option<AgentSpec>> {
        self.maybe_json("spec")
    }

    /// Reads `{message}`.
    pub(crate) fn message(&mut self) -> Result<Message> {
        let seq: i64 = self.take("seq")?;
        self.key = seq.to_string();
        let tool_calls: Option<Vec<_>>;
        Ok(Message {
            seq,
            send_id: SendId(self.take("send_id")?),
            role: self.name("role", role)?,
            content: self.json("content")?,
            tool_calls: {
                tool_calls = self.maybe_json("tool_calls")?;
                tool_calls.unwrap_or_default()
            },
            tool_call_id: self.take("tool_call_id")?,
            name: self.take("name")?,
            failed: self.take("failed")?,
            round: self.take("round")?,
            asked_at_seq: self.take("asked_at_seq")?,
            epoch: self.take("epoch")?,
            created_at: self.time("created_at")?,
        })
    }

    /// Reads `{step}`.
    pub(crate) fn step(&mut self) -> Result<Step> {
        let n: i64 = self.take("n")?;
        self.key = n.to_string();
        Ok(Step {
            n,
            send_id: SendId(self.take("send_id")?),
            kind: self.name("kind", StepKind::parse)?,
            epoch: self.take("epoch")?,
            boot: BootId(self.take("boot")?),
            at: self.time("at")?,
            refs: self.json("refs")?,
        })
    }

    /// Reads a session.
    pub(crate) fn session(&mut self) -> Result<SessionRecord> {
        let key = self.key()?;
        self.key = key.to_string();
        Ok(SessionRecord {
            key,
            agent: self.json("spec")?,
            agent_version: self.take("agent_version")?,
            metadata: self.json("metadata")?,
            messages: self.take("messages")?,
            first_seq: self.take("first_seq")?,
            parent: self.maybe_parent()?,
            created_at: self.time("created_at")?,
            updated_at: self.time("updated_at")?,
            status: self.name("status", SessionStatus::parse)?,
        })
    }

    /// Reads `{boot}`.
    pub(crate) fn boot(&mut self) -> Result<BootRecord> {
        let id = BootId(self.take("boot_id")?);
        self.key = id.to_string();
        Ok(BootRecord {
            id,
            role: self.name("role", mainspring_shared::store::Role::parse)?,
            name: self.take("name")?,
            pool: self.take("pool")?,
            concurrency: self.count("concurrency")?,
            in_flight: self.count("in_flight")?,
            started_at: self.time("started_at")?,
            lease_until: self.time("lease_until")?,
            ttl: Duration::from_millis(self.total("lease_ms")?),
            protocol: self.count("protocol")?,
            dead_at: self.maybe_time("dead_at")?,
        })
    }

    /// Reads a count from an `INTEGER`.
    fn count(&mut self, column: &'static str) -> Result<u32> {
        let count: i32 = self.take(column)?;
        u32::try_from(count).map_err(|error| self.corrupt(column, error.to_string()))
    }

    /// Reads a count from a `BIGINT`.
    pub(crate) fn total(&mut self, column: &'static str) -> Result<u64> {
        let total: i64 = self.take(column)?;
        u64::try_from(total).map_err(|error| self.corrupt(column, error.to_string()))
    }

    /// Reads the columns `tenant, session_id, signals`; `None` if they are null.
    pub(crate) fn maybe_signals(&mut self) -> Result<Option<(SessionKey, i32)>> {
        let tenant: Option<i32> = self.take("tenant")?;
        let session: Option<Uuid> = self.take("session_id")?;
        let signals: Option<i32> = self.take("signals")?;
        let Some(((tenant, session), signals)) = tenant.zip(session).zip(signals) else {
            return Ok(None);
        };
        let key = SessionKey {
            tenant: TenantId(tenant),
            session: SessionId(session),
        };
        Ok(Some((key, signals)))
    }

    /// Reads the columns `ready_since, pool, priority`; `None` unless the session is ready.
    pub(crate) fn ready_session(&mut self, key: SessionKey) -> Result<Option<ReadySession>> {
        let ready_since = self.maybe_time("ready_since")?;
        let pool: &str = self.take("pool")?;
        let priority = priority_of(self.take("priority")?);
        Ok(ready_since.map(|ready_since| ReadySession {
            key,
            pool: pool.to_owned(),
            priority,
            ready_since,
        }))
    }
}

/// Counts an unreadable row that is skipped, so that it does not fail a read of other rows with it.
/// The audit reports it.
pub(crate) fn skipped(error: &Error) {
    let table = if let Error::Corrupt { table, .. } = error {
        table
    } else {
        ""
    };
    metrics::counter!(mainspring_shared::store::ROWS_UNREADABLE, "table" => table).increment(1);
    tracing::debug!(error = %error, "skipping a row that cannot be read");
}

/// The readable rows; unreadable ones are counted and skipped.
pub(crate) fn readable<T>(rows: impl Iterator<Item = Result<T>>) -> Vec<T> {
    let rows = rows.map(|row| row.inspect_err(skipped));
    rows.filter_map(Result::ok).collect()
}

fn role(text: &str) -> Option<Role> {
    let mut roles = [Role::User, Role::Assistant, Role::Tool].into_iter();
    roles.find(|role| role.as_str() == text)
}

/// The encoding of a priority in the database.
pub(crate) fn priority_number(priority: Priority) -> i16 {
    match priority {
        Priority::High => 0,
        Priority::Low => 1,
    }
}

/// The priority with this encoding.
pub(crate) fn priority_of(number: i16) -> Priority {
    if number == 0 {
        Priority::High
    } else {
        Priority::Low
    }
}

/// The encoding of a mode in the database.
pub(crate) fn mode_name(mode: OnBusy) -> &'static str {
    match mode {
        OnBusy::Enqueue => "enqueue",
        OnBusy::Coalesce => "coalesce",
        OnBusy::Steer => "steer",
        OnBusy::Interrupt => "interrupt",
        OnBusy::Reject => "reject",
    }
}

/// The mode with this encoding.
fn mode_of(text: &str) -> Option<OnBusy> {
    let modes = [
        OnBusy::Enqueue,
        OnBusy::Coalesce,
        OnBusy::Steer,
        OnBusy::Interrupt,
        OnBusy::Reject,
    ];
    modes.into_iter().find(|mode| mode_name(*mode) == text)
}

/// Puts the sends that a statement returned, each with its item's `ord`, into the order of the
/// items.
pub(crate) fn sends_in_order(rows: &[PgRow], items: usize) -> Result<Vec<Option<SendRecord>>> {
    let mut found = vec![None; items];
    for row in rows {
        let mut fields = Fields::new(row, "sends");
        let ord = fields.ord()?;
        let send = fields.send()?;
        if let Some(place) = found.get_mut(ord) {
            *place = Some(send);
        }
    }
    Ok(found)
}

/// Session keys as the columns `tenant, id`.
pub(crate) fn key_columns(keys: impl IntoIterator<Item = SessionKey>) -> (Vec<i32>, Vec<Uuid>) {
    let columns = keys.into_iter().map(|key| (key.tenant.0, key.session.0));
    columns.unzip()
}

/// Sends as the columns `tenant, id`.
pub(crate) fn send_columns(
    ids: impl IntoIterator<Item = (TenantId, SendId)>,
) -> (Vec<i32>, Vec<Uuid>) {
    let columns = ids.into_iter().map(|(tenant, id)| (tenant.0, id.0));
    columns.unzip()
}
