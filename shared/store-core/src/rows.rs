//! Conversion of rows to domain types.

use std::time::Duration;

use mainspring_shared::agent::{OnBusy, SendOptions};
use mainspring_shared::budget::Spending;
use mainspring_shared::id::{BootId, LeaseToken, RunId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::inbox::{Fate, InboxItem, ItemKind};
use mainspring_shared::message::{Message, Role};
use mainspring_shared::send::{SendRecord, SendStatus, StopReason, WaitingOn};
use mainspring_shared::session::hot::SendState;
use mainspring_shared::step::{Step, StepKind};
use mainspring_shared::store::{self, BootRecord, Parent};
use mainspring_shared::stored;
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{Approval, CallRecord, Claim, Repeat};
use mainspring_shared::workflow::run::RunLeaf;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::fault::{Fault, Result};
use crate::row::Row;
use crate::value::{FromValue, Value};

/// A row, read by the names of its columns.
#[derive(Debug)]
pub(crate) struct Cells<'r> {
    row: &'r Row,
    table: &'static str,
    /// The index after the column that was read last, where the next search begins. Readers mostly
    /// follow the order of the statement's list, so the search usually ends there.
    next: usize,
}

impl<'r> Cells<'r> {
    /// Reads a row whose columns belong to this table, or most of them.
    pub(crate) fn new(row: &'r Row, table: &'static str) -> Self {
        Self {
            row,
            table,
            next: 0,
        }
    }

    /// The same row; the columns read from here on belong to another table.
    pub(crate) fn of(mut self, table: &'static str) -> Self {
        self.table = table;
        self
    }

    /// A column's value.
    pub(crate) fn get<T>(&mut self, column: &'static str) -> Result<T>
    where
        T: FromValue<'r>,
    {
        let value = self.value(column)?;
        T::from_value(value).map_err(|why| self.corrupt(column, &why))
    }

    fn value(&mut self, column: &'static str) -> Result<&'r Value> {
        let found = self.row.find(column, self.next);
        let (index, value) =
            found.ok_or_else(|| self.corrupt(column, &"the statement returns no such column"))?;
        self.next = index + 1;
        Ok(value)
    }

    /// Whether a column is null.
    pub(crate) fn is_null(&mut self, column: &'static str) -> Result<bool> {
        Ok(matches!(self.value(column)?, Value::Null))
    }

    /// A column as JSON text.
    pub(crate) fn json<T: DeserializeOwned>(&mut self, column: &'static str) -> Result<T> {
        let text: &str = self.get(column)?;
        stored::read(text).map_err(|error| self.corrupt(column, &error))
    }

    /// A column as JSON text; none if it is null.
    pub(crate) fn json_opt<T: DeserializeOwned>(
        &mut self,
        column: &'static str,
    ) -> Result<Option<T>> {
        let text: Option<&str> = self.get(column)?;
        let value = text.map(stored::read).transpose();
        value.map_err(|error| self.corrupt(column, &error))
    }

    /// A column as one of a set of words.
    pub(crate) fn word<T>(
        &mut self,
        column: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let text: &str = self.get(column)?;
        parse(text).ok_or_else(|| self.corrupt(column, &format!("{text:?} is not known")))
    }

    /// A column as one of a set of words; none if it is null.
    pub(crate) fn word_opt<T>(
        &mut self,
        column: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let text: Option<&str> = self.get(column)?;
        let Some(text) = text else {
            return Ok(None);
        };
        let word = parse(text);
        word.map(Some)
            .ok_or_else(|| self.corrupt(column, &format!("{text:?} is not known")))
    }

    pub(crate) fn time(&mut self, column: &'static str) -> Result<Timestamp> {
        self.get(column).map(Timestamp)
    }

    pub(crate) fn time_opt(&mut self, column: &'static str) -> Result<Option<Timestamp>> {
        let millis: Option<i64> = self.get(column)?;
        Ok(millis.map(Timestamp))
    }

    pub(crate) fn send_id(&mut self) -> Result<SendId> {
        self.get("send_id").map(SendId)
    }

    pub(crate) fn boot_opt(&mut self, column: &'static str) -> Result<Option<BootId>> {
        let id: Option<Uuid> = self.get(column)?;
        Ok(id.map(BootId))
    }

    pub(crate) fn token_opt(&mut self, column: &'static str) -> Result<Option<LeaseToken>> {
        let id: Option<Uuid> = self.get(column)?;
        Ok(id.map(LeaseToken))
    }

    /// The columns `tenant, session_id`.
    pub(crate) fn key(&mut self) -> Result<SessionKey> {
        Ok(SessionKey {
            tenant: TenantId(self.get("tenant")?),
            session: SessionId(self.get("session_id")?),
        })
    }

    /// An error about a column of this row. The caller adds the row's name.
    pub(crate) fn corrupt(&self, column: &'static str, why: &dyn std::fmt::Display) -> Fault {
        Fault::Corrupt {
            table: self.table,
            column,
            row: String::new(),
            detail: why.to_string(),
        }
    }
}

/// Reads `{send}`.
pub(crate) fn send(cells: &mut Cells<'_>) -> Result<SendRecord> {
    let key = cells.key()?;
    let id = cells.send_id()?;
    send_fields(cells, key, id).map_err(|fault| fault.of_row(|| id.to_string()))
}

/// The leaf of a run that a send belongs to.
fn leaf(cells: &mut Cells<'_>) -> Result<Option<RunLeaf>> {
    let run: Option<Uuid> = cells.get("run_id")?;
    let path: Option<String> = cells.get("run_path")?;
    let attempt: Option<i32> = cells.get("run_attempt")?;
    let leaf = run.zip(path).zip(attempt);
    Ok(leaf.map(|((run, path), attempt)| RunLeaf {
        run: RunId(run),
        path,
        attempt,
    }))
}

/// Reads the columns of a send that the session machine uses.
pub(crate) fn send_state(cells: &mut Cells<'_>, id: SendId) -> Result<SendState> {
    send_state_fields(cells, id).map_err(|fault| fault.of_row(|| id.to_string()))
}

fn send_state_fields(cells: &mut Cells<'_>, id: SendId) -> Result<SendState> {
    Ok(SendState {
        id,
        position: cells.get("position")?,
        status: cells.word("status", SendStatus::parse)?,
        waiting_on: cells.word_opt("waiting_on", WaitingOn::parse)?,
        priority: cells.json::<SendOptions>("options")?.priority,
        deadline_at: cells.time_opt("deadline_at")?,
        alarm_at: cells.time_opt("alarm_at")?,
        rounds: cells.get("rounds")?,
        attempts: cells.get("attempts")?,
        crashes: cells.get("crashes")?,
        cancel_requested: cells.get("cancel_requested")?,
        started_at: cells.time_opt("started_at")?,
        finished_at: cells.time_opt("finished_at")?,
    })
}

fn send_fields(cells: &mut Cells<'_>, key: SessionKey, id: SendId) -> Result<SendRecord> {
    let spending: Spending;
    let (counted, not_failed, shown);
    Ok(SendRecord {
        id,
        key,
        position: cells.get("position")?,
        status: cells.word("status", SendStatus::parse)?,
        waiting_on: cells.word_opt("waiting_on", WaitingOn::parse)?,
        stop_reason: cells.word_opt("stop_reason", StopReason::parse)?,
        input: cells.json("input")?,
        options: cells.json("options")?,
        agent_version: cells.get("agent_version")?,
        output_text: cells.get("output_text")?,
        output: cells.json_opt("output")?,
        error: cells.json_opt("error")?,
        usage: {
            spending = cells.json_opt("usage")?.unwrap_or_default();
            spending.usage
        },
        held: {
            counted = spending.counted;
            not_failed = spending.not_failed;
            shown = spending.shown;
            spending.held
        },
        rounds: cells.get("rounds")?,
        attempts: cells.get("attempts")?,
        counted,
        not_failed,
        shown,
        crashes: cells.get("crashes")?,
        cancel_requested: cells.get("cancel_requested")?,
        reports_to: cells.get("reports_to")?,
        run: leaf(cells)?,
        deadline_at: cells.time_opt("deadline_at")?,
        alarm_at: cells.time_opt("alarm_at")?,
        first_step: cells.get("first_step")?,
        created_at: cells.time("created_at")?,
        started_at: cells.time_opt("started_at")?,
        finished_at: cells.time_opt("finished_at")?,
    })
}

/// Reads `tenant, session_id, {message}`.
pub(crate) fn message(row: &Row) -> Result<(SessionKey, Message)> {
    let mut cells = Cells::new(row, "messages");
    let key = cells.key()?;
    let seq = cells.get("seq")?;
    let message = message_fields(&mut cells, seq);
    let message = message.map_err(|fault| fault.of_row(|| format!("{key}#{seq}")))?;
    Ok((key, message))
}

fn message_fields(cells: &mut Cells<'_>, seq: i64) -> Result<Message> {
    let role = |text: &str| {
        [Role::User, Role::Assistant, Role::Tool]
            .into_iter()
            .find(|role| role.as_str() == text)
    };
    Ok(Message {
        seq,
        send_id: cells.send_id()?,
        role: cells.word("role", role)?,
        content: cells.json("content")?,
        tool_calls: cells.json_opt("tool_calls")?.unwrap_or_default(),
        tool_call_id: cells.get("tool_call_id")?,
        name: cells.get("name")?,
        failed: cells.get("failed")?,
        round: cells.get("round")?,
        asked_at_seq: cells.get("asked_at_seq")?,
        epoch: cells.get("epoch")?,
        created_at: cells.time("created_at")?,
    })
}

/// Reads `tenant, session_id, {call}`.
pub(crate) fn call(row: &Row) -> Result<(SessionKey, CallRecord)> {
    let mut cells = Cells::new(row, "tool_calls");
    let key = cells.key()?;
    let id: String = cells.get("call_id")?;
    let call = call_fields(&mut cells, key, id.clone());
    let call = call.map_err(|fault| fault.of_row(|| id))?;
    Ok((key, call))
}

fn call_fields(cells: &mut Cells<'_>, key: SessionKey, call_id: String) -> Result<CallRecord> {
    Ok(CallRecord {
        call_id,
        session: key.session,
        send_id: cells.send_id()?,
        round: cells.get("round")?,
        place: cells.get("place")?,
        name: cells.get("name")?,
        arguments: cells.json("arguments")?,
        repeat: cells.word("repeat", Repeat::parse)?,
        waits_on: cells.word_opt("waits_on", WaitingOn::parse)?,
        approval: cells.word("approval", Approval::parse)?,
        started_epoch: cells.get("started_epoch")?,
        attempt: cells.get("attempt")?,
        deadline_at: cells.time_opt("deadline_at")?,
        asked: cells.json_opt("asked")?.unwrap_or_default(),
        result: cells.json_opt("result")?,
        requested_at: cells.time("requested_at")?,
        settled_at: cells.time_opt("settled_at")?,
        claim: {
            let token: Option<Uuid> = cells.get("claim")?;
            let until = cells.time_opt("claimed_until")?;
            let n: Option<i32> = cells.get("claim_n")?;
            let claim = token.zip(until).zip(n);
            claim.map(|((token, until), n)| Claim { token, until, n })
        },
    })
}

/// Reads `tenant, session_id, {item}`.
pub(crate) fn item(row: &Row) -> Result<(SessionKey, InboxItem)> {
    let mut cells = Cells::new(row, "inbox");
    let key = cells.key()?;
    let id: String = cells.get("item_id")?;
    let item = item_fields(&mut cells, id.clone());
    let item = item.map_err(|fault| fault.of_row(|| format!("{key} {id}")))?;
    Ok((key, item))
}

fn item_fields(cells: &mut Cells<'_>, id: String) -> Result<InboxItem> {
    let mode = |text: &str| MODES.into_iter().find(|mode| mode_word(*mode) == text);
    Ok(InboxItem {
        id,
        n: cells.get("n")?,
        kind: cells.word("kind", ItemKind::parse)?,
        mode: cells.word("mode", mode)?,
        send_id: cells.get::<Option<Uuid>>("send_id")?.map(SendId),
        content: cells.json("content")?,
        fate: cells.word("fate", Fate::parse)?,
        seq: cells.get("seq")?,
        created_at: cells.time("created_at")?,
        settled_at: cells.time_opt("settled_at")?,
    })
}

const MODES: [OnBusy; 5] = [
    OnBusy::Enqueue,
    OnBusy::Coalesce,
    OnBusy::Steer,
    OnBusy::Interrupt,
    OnBusy::Reject,
];

/// A mode's word in the database.
pub(crate) fn mode_word(mode: OnBusy) -> &'static str {
    match mode {
        OnBusy::Enqueue => "enqueue",
        OnBusy::Coalesce => "coalesce",
        OnBusy::Steer => "steer",
        OnBusy::Interrupt => "interrupt",
        OnBusy::Reject => "reject",
    }
}

/// The parent of a session, if it has one.
pub(crate) fn parent(cells: &mut Cells<'_>) -> Result<Option<Parent>> {
    if cells.is_null("parent_session")? {
        return Ok(None);
    }
    Ok(Some(Parent {
        session: SessionId(cells.get("parent_session")?),
        call_id: cells.get("parent_call")?,
        root: SessionId(cells.get("root_session")?),
        depth: cells.get("depth")?,
    }))
}

/// Reads `tenant, session_id, {step}`.
pub(crate) fn step(row: &Row) -> Result<(SessionKey, Step)> {
    let mut cells = Cells::new(row, "steps");
    let key = cells.key()?;
    let n = cells.get("n")?;
    let step = step_fields(&mut cells, n);
    let step = step.map_err(|fault| fault.of_row(|| format!("{key}#{n}")))?;
    Ok((key, step))
}

fn step_fields(cells: &mut Cells<'_>, n: i64) -> Result<Step> {
    Ok(Step {
        n,
        send_id: cells.send_id()?,
        kind: cells.word("kind", StepKind::parse)?,
        epoch: cells.get("epoch")?,
        boot: BootId(cells.get("boot")?),
        at: cells.time("at")?,
        refs: cells.json("refs")?,
    })
}

/// Reads `{boot}`.
pub(crate) fn boot(row: &Row) -> Result<BootRecord> {
    let mut cells = Cells::new(row, "boots");
    let id = BootId(cells.get("boot_id")?);
    boot_fields(&mut cells, id).map_err(|fault| fault.of_row(|| id.to_string()))
}

fn boot_fields(cells: &mut Cells<'_>, id: BootId) -> Result<BootRecord> {
    Ok(BootRecord {
        id,
        role: cells.word("role", store::Role::parse)?,
        name: cells.get("name")?,
        pool: cells.get("pool")?,
        concurrency: cells.get("concurrency")?,
        in_flight: cells.get("in_flight")?,
        started_at: cells.time("started_at")?,
        lease_until: cells.time("lease_until")?,
        ttl: Duration::from_millis(cells.get::<i64>("lease_ms")?.unsigned_abs()),
        protocol: cells.get("protocol")?,
        dead_at: cells.time_opt("dead_at")?,
    })
}

/// A value as its JSON text.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    Ok(serde_json::to_string(value)?)
}
