//! The hot row of a session: it is read at the start of a step, decided on by the session machine,
//! and written at the end. In between nothing else can change it, because there is only one writer
//! or the row is locked.

use std::collections::BTreeSet;
use std::time::Duration;

use mainspring_shared::agent::Priority;
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendRecord, SendStatus, WaitingOn};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::session::hot::HotRow;
use mainspring_shared::session::transition::{Change, Notify};
use mainspring_shared::store::{SendTotals, UsageRow, WebhookNews};

use crate::db::sql;
use crate::fault::Result;
use crate::query::{Query, query_scalar, statement};
use crate::rounds::{message_rows, usage_rows};
use crate::rows::{self, Cells, json};
use crate::store::{Tx, pause};
use crate::webhooks;

/// Pauses between attempts to lock a session, and the total time that a group waits for locked
/// sessions. Workers and schedulers hold such a lock for a few milliseconds.
const WAIT_MIN: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_millis(20);
const WAITED_MAX: Duration = Duration::from_millis(250);
/// The total wait for sessions that were found locked before: enough for a session with many
/// writers, and hardly noticeable if its lock is held for long.
const WAITED_AGAIN_MAX: Duration = Duration::from_millis(30);

/// A hot row, with what a step without a lease needs to know in addition.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) hot: HotRow,
    /// Whether the owner's boot is alive.
    pub(crate) owner_lives: bool,
    /// Whether the owner stopped by itself: then it ran nothing any more, and what it still owns was
    /// granted to it meanwhile.
    pub(crate) owner_stopped: bool,
    /// The status of the first open send that has a position.
    pub(crate) head: Option<SendStatus>,
    /// Whether any send is not final, including delayed ones.
    pub(crate) busy: bool,
}

/// What is stored together with a change.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CommitExtras<'b> {
    pub(crate) messages: &'b [NewMessage],
    pub(crate) usage: &'b [UsageRow],
    /// Without totals, the send's own are kept.
    pub(crate) totals: Option<&'b SendTotals>,
}

/// A change that was stored.
#[derive(Debug)]
pub(crate) struct Committed {
    /// The row after the change.
    pub(crate) hot: HotRow,
    pub(crate) notify: Notify,
    /// The number of the step; 0 if there was none.
    pub(crate) step: i64,
    /// The number of the first message, or of the next one if none was stored.
    pub(crate) first_seq: i64,
}

/// A priority's number in the database.
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

/// Reads `{hot}`.
pub(crate) fn read(cells: &mut Cells<'_>) -> Result<HotRow> {
    let key = cells.key()?;
    fields(cells, key).map_err(|fault| fault.of_row(|| key.to_string()))
}

fn fields(cells: &mut Cells<'_>, key: SessionKey) -> Result<HotRow> {
    Ok(HotRow {
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

/// Locks sessions in the order of their keys, so that transactions over several of them cannot
/// deadlock. Returns the sessions that stay locked by someone else for longer than the others
/// should wait; the transaction has to go on without them. With one writer there is nothing to wait
/// for.
pub(crate) async fn lock(
    tx: &mut Tx,
    keys: impl Iterator<Item = SessionKey>,
) -> Result<BTreeSet<SessionKey>> {
    let Some(contended) = tx.contended.clone() else {
        return Ok(BTreeSet::new());
    };
    let keys: BTreeSet<SessionKey> = keys.collect();
    let known = contended.among(keys.iter().copied());
    let mut locked = BTreeSet::new();
    let (mut wait, mut waited) = (WAIT_MIN, Duration::ZERO);
    for key in &keys {
        let most = if known.contains(key) {
            WAITED_AGAIN_MAX
        } else {
            WAITED_MAX
        };
        let mut is_free = try_lock(tx, *key).await?;
        while !is_free && waited < most {
            pause(wait).await;
            waited += wait;
            wait = (wait * 2).min(WAIT_MAX);
            is_free = try_lock(tx, *key).await?;
        }
        if !is_free {
            locked.insert(*key);
        }
    }
    contended.free(keys.into_iter().filter(|key| !locked.contains(key)));
    contended.note(&locked);
    Ok(locked)
}

/// Locks a session, unless someone else has locked it. Returns true also for a session that does
/// not exist.
pub(crate) async fn try_lock(tx: &mut Tx, key: SessionKey) -> Result<bool> {
    if tx.contended.is_none() {
        return Ok(true);
    }
    let row = statement(sql!("sessions/lock"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_optional(tx.conn())
        .await?;
    if row.is_some() {
        return Ok(true);
    }
    let exists: bool = query_scalar(sql!("sessions/exists"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_one(tx.conn())
        .await?;
    Ok(!exists)
}

/// Loads a session; none if it is deleted.
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
    let (owner_lives, owner_stopped) = (cells.get("owner_lives")?, cells.get("owner_stopped")?);
    let mut cells = cells.of("sends");
    let head = cells.word_opt("head_status", SendStatus::parse)?;
    let busy = cells.get("busy")?;
    Ok(Some(Session {
        hot,
        owner_lives,
        owner_stopped,
        head,
        busy,
    }))
}

/// A session's first open send that has a position: the active one, if there is one.
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

/// Stores a change: the hot row, the send, the step, and what belongs to them.
pub(crate) async fn commit(
    tx: &mut Tx,
    change: Change,
    extras: CommitExtras<'_>,
) -> Result<Committed> {
    let first_seq = change.hot.next_seq;
    let messages = message_rows(extras.messages, first_seq)?;
    let change = change.with_messages(extras.messages.len() as u32);
    let sql = match (&change.send, &change.step) {
        (Some(_), Some(_)) if !extras.messages.is_empty() || !extras.usage.is_empty() => sql!(
            "messages/insert",
            "usage/insert",
            "sends/save",
            "steps/insert",
            "sessions/save"
        ),
        (Some(_), Some(_)) => sql!("sends/save", "steps/insert", "sessions/save"),
        (Some(_), None) => sql!("sends/save", "sessions/save"),
        (None, Some(_)) => sql!("steps/insert", "sessions/save"),
        (None, None) => sql!("sessions/save"),
    };
    bind(statement(sql), &change)?
        .bind(extras.totals.map(|it| json(&it.spending())).transpose()?)
        .bind(messages)
        .bind(usage_rows(extras.usage)?)
        .execute(tx.conn())
        .await?;
    if let Some(step) = &change.step
        && let Some(news) = WebhookNews::of_step(change.hot.key, step)
    {
        webhooks::note(tx, &news).await?;
    }
    let step = change.step_n();
    Ok(Committed {
        hot: change.hot,
        notify: change.notify,
        step,
        first_seq,
    })
}

/// Writes only the hot row.
pub(crate) async fn save(tx: &mut Tx, hot: HotRow) -> Result<()> {
    let change = Change {
        hot,
        send: None,
        end: None,
        step: None,
        notify: Notify::default(),
    };
    commit(tx, change, CommitExtras::default()).await.map(drop)
}

/// Binds the parameters that all files of a change share: `$1` to `$16` are the hot row after the
/// change, `$17` to `$23` the step, `$24` to `$37` the send. `$18` is the send's id, with or
/// without a step.
pub(crate) fn bind(query: Query, change: &Change) -> Result<Query> {
    let Change {
        hot,
        send,
        end,
        step,
        notify: _,
    } = change;
    let send = send.as_ref();
    let step = step.as_ref();
    let id = send.map(|send| send.id).or(step.map(|step| step.send_id));
    let query = query
        .bind(hot.key.tenant.0)
        .bind(hot.key.session.0)
        .bind(hot.owner.map(|boot| boot.0))
        .bind(hot.token.map(|token| token.0))
        .bind(hot.epoch)
        .bind(hot.next_seq)
        .bind(hot.next_position)
        .bind(hot.next_step)
        .bind(hot.pending)
        .bind(hot.signals)
        .bind(hot.ready_since.map(|at| at.0))
        .bind(hot.lifecycle.as_i16())
        .bind(hot.pool.clone())
        .bind(priority_number(hot.priority))
        .bind(hot.writes)
        .bind(hot.spent.as_ref().map(json).transpose()?)
        .bind(step.map(|step| step.n))
        .bind(id.map(|id| id.0))
        .bind(step.map(|step| step.kind.as_str()))
        .bind(step.map(|step| step.epoch))
        .bind(step.map(|step| step.boot.0))
        .bind(step.map(|step| step.at.0))
        .bind(step.map(|step| json(&step.refs)).transpose()?)
        .bind(send.map(|send| send.status.as_str()))
        .bind(send.and_then(|send| send.waiting_on).map(WaitingOn::as_str))
        .bind(send.and_then(|send| send.position))
        .bind(send.and_then(|send| send.alarm_at).map(|at| at.0))
        .bind(send.map(|send| send.rounds))
        .bind(send.map(|send| send.attempts))
        .bind(send.map(|send| send.crashes))
        .bind(send.map(|send| send.cancel_requested))
        .bind(send.and_then(|send| send.started_at).map(|at| at.0))
        .bind(send.and_then(|send| send.finished_at).map(|at| at.0));
    let end = end.as_ref();
    Ok(query
        .bind(end.map(|end| end.stop_reason.as_str()))
        .bind(end.and_then(|end| end.output_text.clone()))
        .bind(
            end.and_then(|end| end.output.as_ref())
                .map(json)
                .transpose()?,
        )
        .bind(
            end.and_then(|end| end.error.as_ref())
                .map(json)
                .transpose()?,
        ))
}
