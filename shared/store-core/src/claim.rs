//! Claims: taking a session's lease, starting or resuming its head send, and reading the part of
//! its window that the claimer lacks.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{BootId, SessionKey};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::Message;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::step::{StepKind, StepRefs};
use mainspring_shared::store::{ClaimOutcome, ClaimSession, Claimed, Resumed, StartedSend};

use crate::boots::declare_dead;
use crate::db::sql;
use crate::fault::Result;
use crate::hot::{self, Hot, NewStep, Session};
use crate::query::{query_scalar, statement};
use crate::rows::{self, Cells};
use crate::store::Tx;

/// A session's first open send with the agent that it runs with.
#[derive(Debug)]
pub(crate) struct Head {
    record: SendRecord,
    agent: AgentSpec,
    /// The version to pin to.
    version: i32,
}

/// Claims sessions one after the other.
pub(crate) async fn all(
    tx: &mut Tx,
    boot: BootId,
    items: Vec<ClaimSession>,
) -> Result<Vec<ClaimOutcome>> {
    hot::lock(tx, items.iter().map(|item| item.key)).await?;
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(one(tx, boot, item).await?);
    }
    Ok(outcomes)
}

async fn one(tx: &mut Tx, boot: BootId, item: ClaimSession) -> Result<ClaimOutcome> {
    let Some(session) = hot::load(tx, item.key).await? else {
        return Ok(ClaimOutcome::Idle);
    };
    let Session {
        mut hot,
        owner_lives,
        head: status,
        ..
    } = session;
    if hot.ready_since.is_none() {
        return Ok(ClaimOutcome::Idle);
    }
    // Nobody takes over from itself, however late it is: it would be declared dead by that.
    let is_taken = owner_lives || hot.owner == Some(boot);
    if is_taken || (hot.owner.is_some() && !item.orphans) || is_dead(tx, boot).await? {
        return Ok(ClaimOutcome::Busy);
    }
    // A queued send has lost nobody, whoever held its session.
    let orphaned = hot.owner.is_some() && status == Some(SendStatus::Running);
    if let Some(dead) = hot.owner {
        declare_dead(tx, dead).await?;
    }
    let Some(head) = head(tx, item.key).await? else {
        hot.owner = None;
        hot.token = None;
        hot.ready_since = None;
        hot.save(tx).await?;
        return Ok(ClaimOutcome::Idle);
    };
    if head.record.crashes + i32::from(orphaned) >= item.crashes_below {
        if hot.owner.take().is_some() {
            hot.token = None;
            hot.save(tx).await?;
        }
        if orphaned {
            statement(sql!("sends/died"))
                .bind(item.key.tenant.0)
                .bind(head.record.id.0)
                .execute(tx.conn())
                .await?;
        }
        return Ok(ClaimOutcome::Suspect);
    }
    let grant = hot.grant(boot);
    let lease = Lease {
        boot,
        token: item.token,
        epoch: grant.epoch,
        write: 0,
    };
    hot.owner = Some(boot);
    hot.token = Some(item.token);
    let send = go(tx, &mut hot, lease, head, orphaned).await?;
    let window = window(tx, &hot, &send.agent, &item).await?;
    Ok(ClaimOutcome::Claimed(Box::new(Claimed {
        key: item.key,
        lease,
        counters: hot.counters(),
        send,
        spent: hot.spent.unwrap_or_default(),
        window,
    })))
}

/// Whether a boot was declared dead, or ended.
async fn is_dead(tx: &mut Tx, boot: BootId) -> Result<bool> {
    let dead = query_scalar(sql!("boots/is_dead"))
        .bind(boot.0)
        .fetch_optional(tx.conn())
        .await?;
    Ok(dead.unwrap_or(false))
}

/// The first open send that has its place.
pub(crate) async fn head(tx: &mut Tx, key: SessionKey) -> Result<Option<Head>> {
    let row = statement(sql!("claims/head"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_optional(tx.conn())
        .await?;
    let Some(row) = row else { return Ok(None) };
    let mut cells = Cells::new(&row, "sends");
    let record = rows::send(&mut cells)?;
    let mut cells = cells.of("agents");
    let version = cells.get("version")?;
    let agent = cells
        .json("spec")
        .map_err(|fault| fault.of_row(|| format!("{key} version {version}")))?;
    Ok(Some(Head {
        record,
        agent,
        version,
    }))
}

/// Lets the head run under a lease that the hot row already carries, and writes both.
pub(crate) async fn go(
    tx: &mut Tx,
    hot: &mut Hot,
    lease: Lease,
    head: Head,
    taken_over: bool,
) -> Result<StartedSend> {
    match head.record.status {
        SendStatus::Queued => start(tx, hot, head).await,
        _ => resume(tx, hot, lease, head, taken_over).await,
    }
}

/// Starts a queued send: no step, because a claim may be lost.
async fn start(tx: &mut Tx, hot: &mut Hot, head: Head) -> Result<StartedSend> {
    let now = tx.now;
    let Head {
        mut record,
        agent,
        version,
    } = head;
    hot.pending -= 1;
    record.status = SendStatus::Running;
    record.started_at = record.started_at.or(Some(now));
    record.agent_version = record.agent_version.or(Some(version));
    record.alarm_at = record.deadline_at;
    let sql = sql!("sends/start", "sessions/save");
    hot.bind(statement(sql))
        .bind(record.id.0)
        .bind(record.started_at.map(|at| at.0))
        .bind(record.agent_version)
        .execute(tx.conn())
        .await?;
    Ok(StartedSend {
        record,
        agent,
        resumed: None,
    })
}

/// Goes on with a send that had begun: it was running when its worker died or left, or it waited
/// and what it waited for has come.
async fn resume(
    tx: &mut Tx,
    hot: &mut Hot,
    lease: Lease,
    head: Head,
    taken_over: bool,
) -> Result<StartedSend> {
    let Head {
        mut record, agent, ..
    } = head;
    let reason = match record.waiting_on.take() {
        Some(on) => {
            record.alarm_at = record.deadline_at;
            Resumed::from_wait(on)
        }
        None if taken_over => {
            record.crashes += 1;
            record.attempts += 1;
            Resumed::Takeover
        }
        None if record.crashes > 0 => Resumed::Takeover,
        None => Resumed::Handover,
    };
    record.status = SendStatus::Running;
    let refs = StepRefs {
        reason: Some(reason.as_str().to_owned()),
        ..StepRefs::default()
    };
    let step = NewStep {
        author: lease.into(),
        send: record.id,
        kind: StepKind::Resumed,
        at: tx.now,
        refs: &refs,
    };
    let sql = sql!("sends/resume", "steps/write");
    let (_, query) = hot.step(sql, step)?;
    query
        .bind(record.crashes)
        .bind(record.alarm_at.map(|at| at.0))
        .bind(record.attempts)
        .execute(tx.conn())
        .await?;
    Ok(StartedSend {
        record,
        agent,
        resumed: Some(reason),
    })
}

/// The messages of the active window that the claimer's cache lacks.
async fn window(
    tx: &mut Tx,
    hot: &Hot,
    agent: &AgentSpec,
    item: &ClaimSession,
) -> Result<Vec<Message>> {
    let from = match agent.context.last_messages {
        Some(last) => (hot.next_seq - i64::from(last)).max(1),
        None => 1,
    };
    // The first message asks for nothing before it, so a cache that reaches back to it is whole.
    let (cached_from, cached_next) = if item.cached_version == hot.context_version {
        (item.cached_from_seq, item.cached_next_seq)
    } else {
        (0, 0)
    };
    let whole = cached_next == hot.next_seq && cached_from <= 1;
    if from == hot.next_seq || (from == 1 && whole) {
        return Ok(Vec::new());
    }
    let rows = statement(sql!("messages/window"))
        .bind(item.key.tenant.0)
        .bind(item.key.session.0)
        .bind(from)
        .bind(cached_from)
        .bind(cached_next)
        .fetch_all(tx.conn())
        .await?;
    rows.iter()
        .map(|row| rows::message(row).map(|(_, message)| message))
        .collect()
}
