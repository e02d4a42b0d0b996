//! Creating, changing and deleting sessions.

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey};
use mainspring_shared::send::SendResult;
use mainspring_shared::session::hot::{HotRow, SendState};
use mainspring_shared::session::transition::{self, Grant};
use mainspring_shared::session::{Lifecycle, SessionRecord, SessionStatus};
use mainspring_shared::store;
use mainspring_shared::store::{
    AppendCopies, CopiesOutcome, CreateOutcome, DeleteOutcome, DeletedSession, ERASED_AT_ONCE,
    Erased, FoldAtRest, FoldedAtRest, IdempotencyKey, ImportSession, ListSessions, NewSession,
    Page, PruneOutcome, PruneSession, SessionPatch, SessionUsage, Sessions, UpdateOutcome,
};
use uuid::Uuid;

use crate::accept::{self, Seen};
use crate::db::sql;
use crate::fault::Result;
use crate::hot::{self, CommitExtras};
use crate::query::{query_as, query_scalar, statement};
use crate::rows::json;
use crate::store::{SqlStore, Tx};
use crate::{erase, folds, import, lists, reads, runs, timers};

#[async_trait]
impl Sessions for SqlStore {
    async fn create_sessions(
        &self,
        items: Vec<(NewSession, Option<IdempotencyKey>)>,
    ) -> store::Result<Vec<CreateOutcome>> {
        self.write(items, |tx, items| Box::pin(create(tx, items)))
            .await
    }

    async fn import_session(&self, item: ImportSession) -> store::Result<CreateOutcome> {
        self.write(item, |tx, item| Box::pin(import::import(tx, item)))
            .await
    }

    async fn append_copies(&self, item: AppendCopies) -> store::Result<CopiesOutcome> {
        self.write(item, |tx, item| Box::pin(import::append(tx, item)))
            .await
    }

    async fn update_session(
        &self,
        key: SessionKey,
        patch: SessionPatch,
    ) -> store::Result<UpdateOutcome> {
        self.write((key, patch), |tx, (key, patch)| {
            Box::pin(update(tx, key, patch))
        })
        .await
    }

    async fn delete_session(&self, key: SessionKey, boot: BootId) -> store::Result<DeleteOutcome> {
        self.write((key, boot), |tx, (key, boot)| {
            Box::pin(delete(tx, key, boot))
        })
        .await
    }

    async fn deleted_sessions(
        &self,
        after: Option<DeletedSession>,
        limit: u32,
    ) -> store::Result<Vec<DeletedSession>> {
        self.read(move |conn| Box::pin(erase::due(conn, self.at, after, limit)))
            .await
    }

    async fn erase_session(&self, key: SessionKey, limit: u32) -> store::Result<Erased> {
        self.write((key, limit), |tx, (key, limit)| {
            Box::pin(erase::erase(tx, key, limit))
        })
        .await
    }

    async fn prune_session(&self, item: PruneSession) -> store::Result<PruneOutcome> {
        self.write(item, |tx, item| Box::pin(prune(tx, item))).await
    }

    async fn fold_at_rest(&self, item: FoldAtRest) -> store::Result<FoldedAtRest> {
        self.write(item, |tx, item| Box::pin(folds::at_rest(tx, item)))
            .await
    }

    async fn get_session(&self, key: SessionKey) -> store::Result<Option<SessionRecord>> {
        self.read(move |conn| Box::pin(reads::session(conn, key)))
            .await
    }

    async fn list_sessions(&self, query: ListSessions) -> store::Result<Page<SessionRecord>> {
        self.read(|conn| Box::pin(reads::sessions(conn, query)))
            .await
    }

    async fn list_children(&self, key: SessionKey) -> store::Result<Vec<SessionKey>> {
        self.read(move |conn| Box::pin(reads::children(conn, key)))
            .await
    }

    async fn session_usage(&self, key: SessionKey) -> store::Result<Option<SessionUsage>> {
        self.read(move |conn| Box::pin(reads::usage(conn, key)))
            .await
    }

    async fn open_children(&self, key: SessionKey) -> store::Result<u64> {
        self.read(move |conn| Box::pin(reads::open_children(conn, key)))
            .await
    }
}

/// Creates sessions one after the other.
pub(crate) async fn create(
    tx: &mut Tx,
    items: Vec<(NewSession, Option<IdempotencyKey>)>,
) -> Result<Vec<CreateOutcome>> {
    let mut outcomes = Vec::with_capacity(items.len());
    for (new, key) in items {
        outcomes.push(create_one(tx, new, key).await?);
    }
    Ok(outcomes)
}

pub(crate) async fn create_one(
    tx: &mut Tx,
    new: NewSession,
    key: Option<IdempotencyKey>,
) -> Result<CreateOutcome> {
    if let Some(known) = known(tx, key.as_ref()).await? {
        return Ok(known);
    }
    if let Some(key) = &key {
        accept::remember(tx, key, new.key.session.0).await?;
    }
    accept::create(tx, &new).await?;
    Ok(CreateOutcome::Created(Box::new(SessionRecord {
        key: new.key,
        status: SessionStatus::Idle,
        agent: new.agent,
        agent_version: 1,
        metadata: new.metadata,
        messages: 0,
        first_seq: 1,
        parent: new.parent,
        created_at: tx.now,
        updated_at: tx.now,
    })))
}

/// The outcome of an earlier request with this key.
pub(crate) async fn known(
    tx: &mut Tx,
    key: Option<&IdempotencyKey>,
) -> Result<Option<CreateOutcome>> {
    let Some(key) = key else { return Ok(None) };
    Ok(match accept::seen(tx, key).await? {
        Seen::Never => None,
        Seen::Before(session) => Some(CreateOutcome::Replayed(SessionId(session))),
        Seen::OtherBody => Some(CreateOutcome::Mismatch),
    })
}

/// Changes a session.
pub(crate) async fn update(
    tx: &mut Tx,
    key: SessionKey,
    patch: SessionPatch,
) -> Result<UpdateOutcome> {
    let now = tx.now;
    let Some(session) = hot::load(tx, key).await? else {
        return Ok(UpdateOutcome::NotFound);
    };
    let mut hot = session.hot;
    if let Some(agent) = &patch.agent {
        agent.pool().clone_into(&mut hot.pool);
        statement(sql!("agents/add"))
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(json(agent)?)
            .bind(agent.name.clone())
            .execute(tx.conn())
            .await?;
    }
    hot.lifecycle = match patch.closed {
        Some(true) => Lifecycle::Closed,
        Some(false) => Lifecycle::Open,
        None => hot.lifecycle,
    };
    hot::save(tx, hot).await?;
    statement(sql!("sessions/update"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(patch.metadata.as_ref().map(json).transpose()?)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(match reads::session_at(tx.conn(), now, key).await? {
        Some(record) => UpdateOutcome::Updated(Box::new(record)),
        None => UpdateOutcome::NotFound,
    })
}

/// Removes old messages.
pub(crate) async fn prune(tx: &mut Tx, item: PruneSession) -> Result<PruneOutcome> {
    let key = item.key;
    let Some(session) = hot::load(tx, key).await? else {
        return Ok(PruneOutcome::NotFound);
    };
    let (before, active_from): (i64, Option<i64>) =
        query_as(sql!("sessions/prune_from"), ["first_seq", "active_from"])
            .bind(key.tenant.0)
            .bind(key.session.0)
            .fetch_one(tx.conn())
            .await?;
    let first_kept = item
        .to
        .first_kept(before, session.hot.next_seq, active_from);
    let until = begins(tx, key, first_kept).await?;
    let page = before.saturating_add(i64::from(item.limit.max(1)));
    let mut first_seq = until;
    if page < until && !item.dry_run {
        first_seq = begins(tx, key, page).await?;
        if first_seq <= before {
            // A single message has more results than fit in a page.
            let next: Option<i64> = query_scalar(sql!("sessions/prune_next"))
                .bind(key.tenant.0)
                .bind(key.session.0)
                .bind(page)
                .bind(until)
                .fetch_optional(tx.conn())
                .await?;
            first_seq = next.unwrap_or(until);
        }
    }
    if !item.dry_run && first_seq > before {
        statement(sql!("sessions/prune"))
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(first_seq)
            .execute(tx.conn())
            .await?;
    }
    Ok(PruneOutcome::Pruned {
        removed: first_seq - before,
        first_seq,
        until,
    })
}

/// The first message to keep so that a transcript can begin at `seq`: the question, if there is an
/// answer at `seq`.
async fn begins(tx: &mut Tx, key: SessionKey, seq: i64) -> Result<i64> {
    let asked: Option<Option<i64>> = query_scalar(sql!("messages/asked_at"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(seq)
        .fetch_optional(tx.conn())
        .await?;
    Ok(asked.flatten().unwrap_or(seq))
}

/// Cancels a session's open sends under a grant and leaves its tombstone.
pub(crate) async fn delete(tx: &mut Tx, key: SessionKey, boot: BootId) -> Result<DeleteOutcome> {
    let Some(session) = hot::load(tx, key).await? else {
        return Ok(DeleteOutcome::NotFound);
    };
    let hot = session.hot;
    let mut last: Vec<(Uuid, Option<i64>)> =
        query_as(sql!("sends/last_open"), ["send_id", "position"])
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(ERASED_AT_ONCE + 1)
            .fetch_all(tx.conn())
            .await?;
    timers::cancel_of_session(tx, key).await?;
    if last.len() > ERASED_AT_ONCE as usize {
        last.truncate(ERASED_AT_ONCE as usize);
        return end_last(tx, hot, boot, last).await;
    }
    let owner = hot.owner;
    let (mut hot, grant) = transition::delete(&hot, boot);
    let cancelled: Vec<SendId> = last.into_iter().rev().map(|(id, _)| SendId(id)).collect();
    for id in &cancelled {
        hot = end(tx, hot, *id, grant).await?;
    }
    hot::save(tx, hot.clone()).await?;
    let now = tx.now;
    statement(sql!("sessions/mark"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    lists::erase(tx, key.tenant, key.session).await?;
    runs::cancel_of(tx, key).await?;
    Ok(DeleteOutcome::Deleted {
        cancelled,
        owner,
        last_step: hot.next_step - 1,
    })
}

/// Cancels the last of a session's open sends, all of which are queued, and closes the session. The
/// other sends are cancelled by later calls.
async fn end_last(
    tx: &mut Tx,
    mut hot: HotRow,
    boot: BootId,
    last: Vec<(Uuid, Option<i64>)>,
) -> Result<DeleteOutcome> {
    let mut cancelled = Vec::with_capacity(last.len());
    for (id, position) in last {
        hot.pending -= i64::from(position.is_some());
        hot = end(tx, hot, SendId(id), Grant::none(boot)).await?;
        cancelled.push(SendId(id));
    }
    hot.lifecycle = Lifecycle::Closed;
    hot::save(tx, hot.clone()).await?;
    let now = tx.now;
    statement(sql!("erasures/begin"))
        .bind(hot.key.tenant.0)
        .bind(hot.key.session.0)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(DeleteOutcome::Ending {
        cancelled,
        last_step: hot.next_step - 1,
    })
}

/// Cancels an open send of a session that is being deleted.
async fn end(tx: &mut Tx, hot: HotRow, id: SendId, grant: Grant) -> Result<HotRow> {
    let Some(send) = reads::send(tx.conn(), hot.key.tenant, id).await? else {
        return Ok(hot);
    };
    let state = SendState::of(&send);
    let change = transition::finish(hot, &state, SendResult::cancelled(), grant, tx.now);
    Ok(hot::commit(tx, change, CommitExtras::default()).await?.hot)
}
