//! Claims: taking a session's lease, starting or resuming its head send, and reading the part of
//! its window that the claimer lacks.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::message::Message;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::fold;
use mainspring_shared::session::hot::{HotRow, SendState};
use mainspring_shared::session::projection::Projected;
use mainspring_shared::session::transition::{
    self, ClaimFacts, ClaimRefusal, Claimer, Granted, refuse_claim,
};
use mainspring_shared::store::{ClaimOutcome, ClaimSession, Claimed, Resumed, StartedSend};

use crate::boots::declare_dead;
use crate::db::sql;
use crate::fault::Result;
use crate::folds;
use crate::hot::{self, CommitExtras};
use crate::projections;
use crate::query::{query_scalar, statement};
use crate::rows::{self, Cells};
use crate::seats::{Rooms, SeatRequest};
use crate::store::Tx;

/// A session's first open send with the agent that runs it.
#[derive(Debug)]
pub(crate) struct Head {
    record: SendRecord,
    agent: AgentSpec,
    /// The version to which the send is pinned.
    version: i32,
    /// Whether its tenant limits sends in flight.
    seated: bool,
}

/// Claims sessions one after the other.
pub(crate) async fn all(
    tx: &mut Tx,
    boot: BootId,
    items: Vec<ClaimSession>,
) -> Result<Vec<ClaimOutcome>> {
    let locked = hot::lock(tx, items.iter().map(|item| item.key)).await?;
    let mut rooms = Rooms::default();
    // Order by tenant, so that two transactions that take seats cannot deadlock.
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|ord| items[*ord].key.tenant);
    let mut outcomes = vec![ClaimOutcome::Busy; items.len()];
    let mut items: Vec<Option<ClaimSession>> = items.into_iter().map(Some).collect();
    for ord in order {
        let item = items[ord].take().filter(|item| !locked.contains(&item.key));
        if let Some(item) = item {
            outcomes[ord] = one(tx, boot, item, &mut rooms).await?;
        }
    }
    Ok(outcomes)
}

async fn one(
    tx: &mut Tx,
    boot: BootId,
    item: ClaimSession,
    rooms: &mut Rooms,
) -> Result<ClaimOutcome> {
    let Some(session) = hot::load(tx, item.key).await? else {
        return Ok(ClaimOutcome::Idle);
    };
    let mut hot = session.hot;
    if session.owner_stopped {
        (hot.owner, hot.token) = (None, None);
    }
    let claimer = Claimer {
        boot,
        token: item.token,
        crashes_below: item.crashes_below,
        orphans: item.orphans,
    };
    let facts = ClaimFacts {
        owner_lives: session.owner_lives,
        claimer_dead: hot.ready_since.is_some() && is_dead(tx, boot).await?,
    };
    match refuse_claim(&hot, claimer, facts) {
        Some(ClaimRefusal::Idle) => return Ok(ClaimOutcome::Idle),
        Some(ClaimRefusal::Busy) => return Ok(ClaimOutcome::Busy),
        None => {}
    }
    let head = head(tx, item.key).await?;
    let state = head.as_ref().map(Head::state);
    // A running send keeps its seat.
    if let Some(head) = head.as_ref().filter(|head| head.needs_seat())
        && !rooms.take(tx, &hot, head.seat_request()).await?
    {
        return Ok(ClaimOutcome::Waits);
    }
    let seated = head.as_ref().is_some_and(|head| head.seated);
    let claim = transition::claim(&hot, state.as_ref(), claimer, tx.now);
    if let Some(dead) = claim.dead {
        declare_dead(tx, dead).await?;
    }
    let send = claim.change.send;
    let done = hot::commit(tx, claim.change, CommitExtras::default()).await?;
    let (lease, resumed) = match claim.granted {
        Granted::Idle => return Ok(ClaimOutcome::Idle),
        Granted::Suspect => return Ok(ClaimOutcome::Suspect),
        Granted::Lease(lease, resumed) => (lease, resumed),
    };
    let (Some(head), Some(send)) = (head, send) else {
        return Ok(ClaimOutcome::Idle);
    };
    let send = started(tx, head, send, resumed).await?;
    let is_ours = item.has_valid_cache(done.hot.next_seq, done.hot.context_version);
    // At context version 0 there are no folds.
    let folds = if is_ours || done.hot.context_version == 0 {
        Vec::new()
    } else {
        folds::shown(tx.conn(), item.key).await?
    };
    let fold_end = if is_ours {
        item.cached_fold_end
    } else {
        fold::end(&folds)
    };
    let from = fold::begin(send.window_from(done.hot.next_seq), fold_end);
    let lacks = Lacks::of(&done.hot, from, &item);
    let context = &send.agent.context;
    let projected = match lacks {
        Lacks::All => projections::shown(tx.conn(), item.key, from, context).await?,
        Lacks::Nothing | Lacks::End => Projected::default(),
    };
    let from = projected.behind(from);
    let window = match lacks {
        Lacks::Nothing => Vec::new(),
        Lacks::End => {
            window(
                tx,
                from,
                &item,
                (item.cached_from_seq, item.cached_next_seq),
            )
            .await?
        }
        Lacks::All => window(tx, from, &item, (0, 0)).await?,
    };
    Ok(ClaimOutcome::Claimed(Box::new(Claimed {
        key: item.key,
        lease,
        counters: done.hot.counters(),
        send,
        spent: done.hot.spent.unwrap_or_default(),
        seated,
        folds,
        projected,
        window,
    })))
}

/// Whether a boot was declared dead or has ended.
async fn is_dead(tx: &mut Tx, boot: BootId) -> Result<bool> {
    let dead = query_scalar(sql!("boots/is_dead"))
        .bind(boot.0)
        .fetch_optional(tx.conn())
        .await?;
    Ok(dead.unwrap_or(false))
}

/// The first open send that has a position.
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
    let seated = cells.get("seated")?;
    let agent = cells
        .json("spec")
        .map_err(|fault| fault.of_row(|| format!("{key} version {version}")))?;
    Ok(Some(Head {
        record,
        agent,
        version,
        seated,
    }))
}

impl Head {
    /// Whether a claim has to take a seat for it.
    fn needs_seat(&self) -> bool {
        self.seated && self.record.status != SendStatus::Running
    }

    /// The seat that it needs.
    fn seat_request(&self) -> SeatRequest<'_> {
        SeatRequest {
            send: self.record.id,
            version: self.version,
            agent: self.record.options.published_in(&self.agent),
            leaf: self.record.run.is_some(),
        }
    }

    /// The columns on which the session machine decides.
    pub(crate) fn state(&self) -> SendState {
        SendState::of(&self.record)
    }
}

/// The head as passed to its claimer. A send that starts is pinned to the version of its agent.
pub(crate) async fn started(
    tx: &mut Tx,
    head: Head,
    send: SendState,
    resumed: Option<Resumed>,
) -> Result<StartedSend> {
    let Head {
        mut record,
        agent,
        version,
        seated: _,
    } = head;
    send.store_in(&mut record);
    if record.agent_version.is_none() {
        record.agent_version = Some(version);
        pin(tx, (record.key.tenant, record.id), version).await?;
    }
    Ok(StartedSend::new(record, agent, resumed))
}

/// Records the version of its session's agent with which a send runs.
pub(crate) async fn pin(tx: &mut Tx, (tenant, id): (TenantId, SendId), version: i32) -> Result<()> {
    statement(sql!("sends/pin"))
        .bind(tenant.0)
        .bind(id.0)
        .bind(version)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// The part of a window that a claimer's cache lacks.
#[derive(Debug, Clone, Copy)]
enum Lacks {
    Nothing,
    /// The messages after the cached ones; the whole window if it begins with the answer to a
    /// message that is not cached.
    End,
    All,
}

impl Lacks {
    fn of(hot: &HotRow, from: i64, item: &ClaimSession) -> Self {
        let is_ours = item.has_valid_cache(hot.next_seq, hot.context_version);
        // A cache never begins with an answer: if it reaches back this far, it has the question
        // too.
        let reaches_back = is_ours && item.cached_from_seq <= from;
        if from >= hot.next_seq || (reaches_back && item.cached_next_seq == hot.next_seq) {
            Self::Nothing
        } else if reaches_back && item.cached_next_seq > from {
            Self::End
        } else {
            Self::All
        }
    }
}

/// The messages of the active window that the claimer's cache lacks.
async fn window(
    tx: &mut Tx,
    from: i64,
    item: &ClaimSession,
    (cached_from, cached_next): (i64, i64),
) -> Result<Vec<Message>> {
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
