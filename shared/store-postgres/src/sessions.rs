//! Creating, changing and deleting sessions.

use std::collections::BTreeSet;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey};
use mainspring_shared::send::SendResult;
use mainspring_shared::session::hot::SendState;
use mainspring_shared::session::transition;
use mainspring_shared::session::{Lifecycle, SessionRecord, SessionStatus};
use mainspring_shared::store::{
    AppendCopies, CopiesOutcome, CreateOutcome, DeleteOutcome, DeletedSession, ERASED_AT_ONCE,
    Erased, Error, FoldAtRest, FoldedAtRest, IdempotencyKey, ImportSession, ListSessions,
    NewSession, Page, PruneOutcome, PruneSession, Result, SessionPatch, SessionUsage, Sessions,
    UpdateOutcome,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::TimerTarget;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::accept::lookup;
use crate::columns::{KeyColumns, ParentColumns, json, maybe_text, metadata, text};
use crate::fault::Fault;
use crate::group::{Group, drive};
use crate::ledger::{Ledger, now};
use crate::retry::{Attempts, Pool, Verdict, sql};
use crate::rows::{Fields, key_columns};
use crate::store::PostgresStore;
use crate::{erase, folds, import, lists, reads, runs};

#[async_trait]
impl Sessions for PostgresStore {
    async fn create_sessions(
        &self,
        items: Vec<(NewSession, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateOutcome>> {
        create(&self.pools.writers, self.at, items).await
    }

    async fn import_session(&self, item: ImportSession) -> Result<CreateOutcome> {
        import::import(&self.pools.writers, self.at, item).await
    }

    async fn update_session(&self, key: SessionKey, patch: SessionPatch) -> Result<UpdateOutcome> {
        update(&self.pools.writers, self.at, key, &patch).await
    }

    async fn delete_session(&self, key: SessionKey, boot: BootId) -> Result<DeleteOutcome> {
        delete(&self.pools.writers, self.at, key, boot).await
    }

    async fn deleted_sessions(
        &self,
        after: Option<DeletedSession>,
        limit: u32,
    ) -> Result<Vec<DeletedSession>> {
        erase::due(&self.pools.claimers, self.at, after, limit).await
    }

    async fn erase_session(&self, key: SessionKey, limit: u32) -> Result<Erased> {
        erase::erase(&self.pools.writers, self.at, key, limit).await
    }

    async fn append_copies(&self, item: AppendCopies) -> Result<CopiesOutcome> {
        import::append(&self.pools.writers, self.at, item).await
    }

    async fn prune_session(&self, item: PruneSession) -> Result<PruneOutcome> {
        prune(&self.pools.writers, self.at, item).await
    }

    async fn fold_at_rest(&self, item: FoldAtRest) -> Result<FoldedAtRest> {
        folds::at_rest(&self.pools.writers, self.at, &item).await
    }

    async fn get_session(&self, key: SessionKey) -> Result<Option<SessionRecord>> {
        reads::session(&self.pools.claimers, key).await
    }

    async fn list_sessions(&self, query: ListSessions) -> Result<Page<SessionRecord>> {
        reads::list_sessions(&self.pools.readers, &query).await
    }

    async fn list_children(&self, key: SessionKey) -> Result<Vec<SessionKey>> {
        reads::children(&self.pools.claimers, key).await
    }

    async fn session_usage(&self, key: SessionKey) -> Result<Option<SessionUsage>> {
        // It reads all sends of a tree, so it uses the pool of the streamers, where no step waits
        // for it.
        reads::usage(&self.pools.streamers, key).await
    }

    async fn open_children(&self, key: SessionKey) -> Result<u64> {
        reads::open_children(&self.pools.claimers, key).await
    }
}

pub(crate) async fn create(
    pool: &Pool,
    at: Option<Timestamp>,
    items: Vec<(NewSession, Option<IdempotencyKey>)>,
) -> Result<Vec<CreateOutcome>> {
    drive(pool, &Create { at }, &items).await
}

struct Create {
    at: Option<Timestamp>,
}

impl Group for Create {
    type Item = (NewSession, Option<IdempotencyKey>);
    type Outcome = CreateOutcome;
    type Seen = BTreeSet<SessionKey>;

    fn conflicts_with(&self, item: &Self::Item, seen: &mut BTreeSet<SessionKey>) -> bool {
        !seen.insert(item.0.key)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&Self::Item],
    ) -> std::result::Result<Vec<Option<CreateOutcome>>, Fault> {
        let created = self.store(connection, items).await?;
        let mut outcomes: Vec<Option<CreateOutcome>> = created
            .iter()
            .zip(items)
            .map(|(created, (new, _))| created.map(|now| created_as(new, now)))
            .collect();
        let met = items.iter().enumerate().zip(&created);
        let met = met.filter_map(|((index, (_, key)), created)| match created {
            None => Some((index, key.as_ref()?)),
            Some(_) => None,
        });
        let met: Vec<_> = met.collect();
        for (index, known) in lookup(connection, met).await? {
            outcomes[index] = Some(if known.same_request {
                CreateOutcome::Replayed(SessionId(known.resource))
            } else {
                CreateOutcome::Mismatch
            });
        }
        Ok(outcomes)
    }

    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&Self::Item],
    ) -> std::result::Result<Vec<Option<CreateOutcome>>, Fault> {
        let (tenants, sessions) = key_columns(items.iter().map(|(new, _)| new.key));
        let rows = sql!("sessions/created")
            .bind(tenants)
            .bind(sessions)
            .fetch_all(connection)
            .await?;
        let mut found: Vec<_> = items.iter().map(|_| None).collect();
        for row in &rows {
            let mut fields = Fields::new(row, "sessions");
            let ord = fields.ord()?;
            found[ord] = Some(created_as(&items[ord].0, fields.time("created_at")?));
        }
        Ok(found)
    }

    fn unsettled(&self, _: &Self::Item) -> Result<CreateOutcome> {
        Err(Error::Unavailable {
            source: "an idempotency key was taken and freed again and again".into(),
        })
    }
}

impl Create {
    /// Creates the sessions. Returns when each was created; `None` if its idempotency key exists
    /// already.
    async fn store(
        &self,
        connection: &mut PgConnection,
        items: &[&(NewSession, Option<IdempotencyKey>)],
    ) -> std::result::Result<Vec<Option<Timestamp>>, Fault> {
        let (tenants, sessions) = key_columns(items.iter().map(|(new, _)| new.key));
        let specs: Vec<String> = items.iter().map(|(new, _)| json(&new.agent)).collect();
        let names = items
            .iter()
            .map(|(new, _)| maybe_text(new.agent.name.as_deref()));
        let data: Vec<String> = items
            .iter()
            .map(|(new, _)| metadata(&new.metadata))
            .collect();
        let pools = items
            .iter()
            .map(|(new, _)| text(new.agent.pool()).into_owned());
        let mut parents = ParentColumns::default();
        let mut keys = KeyColumns::default();
        for (new, key) in items {
            parents.push(new.parent.as_ref());
            keys.push(key.as_ref());
        }
        let query = sql!("sessions/create")
            .bind(self.at.map(|at| at.0))
            .bind(tenants)
            .bind(sessions)
            .bind(specs)
            .bind(names.collect::<Vec<_>>())
            .bind(data)
            .bind(pools.collect::<Vec<_>>());
        let query = keys.bind(parents.bind(query));
        let rows = query.fetch_all(connection).await?;
        let mut created = vec![None; items.len()];
        for row in &rows {
            let mut fields = Fields::new(row, "sessions");
            let ord = fields.ord()?;
            created[ord] = Some(fields.time("now")?);
        }
        Ok(created)
    }
}

fn created_as(new: &NewSession, now: Timestamp) -> CreateOutcome {
    CreateOutcome::Created(Box::new(SessionRecord {
        key: new.key,
        status: SessionStatus::Idle,
        agent: new.agent.clone(),
        agent_version: 1,
        metadata: new.metadata.clone(),
        messages: 0,
        first_seq: 1,
        parent: new.parent.clone(),
        created_at: now,
        updated_at: now,
    }))
}

/// Reads a session; `None` if it is unknown or deleted.
async fn read(
    connection: &mut PgConnection,
    now: Timestamp,
    key: SessionKey,
) -> std::result::Result<Option<SessionRecord>, Fault> {
    let row = sql!("sessions/get")
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(now.0)
        .fetch_optional(connection)
        .await?;
    let record = row.map(|row| Fields::new(&row, "sessions").session());
    Ok(record.transpose()?)
}

pub(crate) async fn update(
    pool: &Pool,
    at: Option<Timestamp>,
    key: SessionKey,
    patch: &SessionPatch,
) -> Result<UpdateOutcome> {
    let mut attempts = Attempts::default();
    loop {
        let updated = attempts.on(pool, async |connection| {
            update_once(connection, at, key, patch).await
        });
        match updated.await {
            Ok(outcome) => return Ok(outcome),
            // A repeat stores the same agent as one more version, which is harmless.
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn update_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    key: SessionKey,
    patch: &SessionPatch,
) -> std::result::Result<UpdateOutcome, Fault> {
    let mut tx = connection.begin().await?;
    // No step is written, so none needs a boot.
    let nobody = BootId(Uuid::nil());
    let mut ledger = Ledger::lock(&mut tx, at, nobody, [key]).await?;
    let now = ledger.now;
    let hot = ledger.hot.get_mut(&key);
    let Some(hot) = hot.filter(|hot| hot.row.lifecycle != Lifecycle::Deleted) else {
        tx.rollback().await?;
        return Ok(UpdateOutcome::NotFound);
    };
    if let Some(agent) = &patch.agent {
        hot.row.pool = text(agent.pool()).into_owned();
    }
    hot.row.lifecycle = match patch.closed {
        Some(true) => Lifecycle::Closed,
        Some(false) => Lifecycle::Open,
        None => hot.row.lifecycle,
    };
    ledger.write(&mut tx).await?;
    let name = patch.agent.as_ref().and_then(|agent| agent.name.as_deref());
    sql!("sessions/update")
        .bind(now.0)
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(patch.agent.as_ref().map(json))
        .bind(name.map(text))
        .bind(patch.metadata.as_ref().map(metadata))
        .execute(&mut *tx)
        .await?;
    let record = read(&mut tx, now, key).await?;
    tx.commit().await?;
    let updated = record.map(|record| UpdateOutcome::Updated(Box::new(record)));
    Ok(updated.unwrap_or(UpdateOutcome::NotFound))
}

pub(crate) async fn prune(
    pool: &Pool,
    at: Option<Timestamp>,
    item: PruneSession,
) -> Result<PruneOutcome> {
    let mut attempts = Attempts::default();
    loop {
        let pruned = attempts.on(pool, async |connection| {
            prune_once(connection, at, item).await
        });
        match pruned.await {
            Ok(outcome) => return Ok(outcome),
            // A repeat has less to remove, with the same final state.
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn prune_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    item: PruneSession,
) -> std::result::Result<PruneOutcome, Fault> {
    let key = item.key;
    let mut tx = connection.begin().await?;
    let nobody = BootId(Uuid::nil());
    let ledger = Ledger::lock(&mut tx, at, nobody, [key]).await?;
    let hot = ledger.hot.get(&key);
    let Some(hot) = hot.filter(|hot| hot.row.lifecycle != Lifecycle::Deleted) else {
        tx.rollback().await?;
        return Ok(PruneOutcome::NotFound);
    };
    let row = sql!("sessions/prune_from")
        .bind(key.tenant.0)
        .bind(key.session.0)
        .fetch_one(&mut *tx)
        .await?;
    let mut fields = Fields::new(&row, "sessions");
    let before: i64 = fields.take("first_seq")?;
    let first_kept = item
        .to
        .first_kept(before, hot.row.next_seq, fields.take("active_from")?);
    let until = begins(&mut tx, key, first_kept).await?;
    let page = before.saturating_add(i64::from(item.limit.max(1)));
    let mut first_seq = until;
    if page < until && !item.dry_run {
        first_seq = begins(&mut tx, key, page).await?;
        if first_seq <= before {
            // A single round has more results than the page.
            let next = sql!("sessions/prune_next")
                .bind(key.tenant.0)
                .bind(key.session.0)
                .bind(page)
                .bind(until)
                .fetch_optional(&mut *tx)
                .await?;
            let next = next.map(|row| Fields::new(&row, "messages").take("seq"));
            first_seq = next.transpose()?.unwrap_or(until);
        }
    }
    if !item.dry_run && first_seq > before {
        sql!("sessions/prune")
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(first_seq)
            .bind(before)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(PruneOutcome::Pruned {
        removed: first_seq - before,
        first_seq,
        until,
    })
}

/// Where a transcript cut at `seq` must begin: if the message is a call's result, at the message
/// that requested the call.
async fn begins(
    connection: &mut PgConnection,
    key: SessionKey,
    seq: i64,
) -> std::result::Result<i64, Fault> {
    let asked = sql!("sessions/asked_at")
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(seq)
        .fetch_optional(connection)
        .await?;
    let asked: Option<Option<i64>> = asked
        .map(|row| Fields::new(&row, "messages").take("asked_at_seq"))
        .transpose()?;
    Ok(asked.flatten().unwrap_or(seq))
}

pub(crate) async fn delete(
    pool: &Pool,
    at: Option<Timestamp>,
    key: SessionKey,
    boot: BootId,
) -> Result<DeleteOutcome> {
    let mut attempts = Attempts::default();
    loop {
        let was_lost = attempts.any_lost();
        let deleted = attempts.on(pool, async |connection| {
            delete_once(connection, at, key, boot, was_lost).await
        });
        match deleted.await {
            Ok(outcome) => return Ok(outcome),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn delete_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    key: SessionKey,
    boot: BootId,
    was_lost: bool,
) -> std::result::Result<DeleteOutcome, Fault> {
    let mut tx = connection.begin().await?;
    let ended_at = now(&mut tx, at).await?;
    sql!("timers/cancel_of_session")
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(ended_at.0)
        .execute(&mut *tx)
        .await?;
    sql!("timers/empty_of_session")
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(json(&TimerTarget::emptied(key.session)))
        .execute(&mut *tx)
        .await?;
    let mut ledger = Ledger::lock(&mut tx, at, boot, [key]).await?;
    let Some(hot) = ledger.hot.get(&key) else {
        tx.rollback().await?;
        return Ok(DeleteOutcome::NotFound);
    };
    if hot.row.lifecycle == Lifecycle::Deleted {
        tx.rollback().await?;
        // An earlier attempt deleted it; the steps show which sends it ended.
        return Ok(if was_lost {
            DeleteOutcome::Deleted {
                cancelled: Vec::new(),
                owner: None,
                last_step: hot.row.next_step - 1,
            }
        } else {
            DeleteOutcome::NotFound
        });
    }
    let owner = hot.row.owner;
    let at_once = ERASED_AT_ONCE as usize;
    let limit = i64::from(ERASED_AT_ONCE) + 1;
    let mut cancelled = ledger.read_last_open_sends(&mut tx, key, limit).await?;
    if cancelled.len() > at_once {
        cancelled.truncate(at_once);
        let last_step = end_last(&mut ledger, key, &cancelled);
        let now = ledger.now;
        ledger.write(&mut tx).await?;
        sql!("erasures/begin")
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(now.0)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        return Ok(DeleteOutcome::Ending {
            cancelled,
            last_step,
        });
    }
    cancelled.reverse();
    end_all(&mut ledger, key, &cancelled);
    let last_step = ledger.hot.get(&key).map_or(0, |hot| hot.row.next_step - 1);
    let now = ledger.now;
    ledger.write(&mut tx).await?;
    runs::cancel_of(&mut tx, now, key).await?;
    sql!("sessions/mark")
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(now.0)
        .execute(&mut *tx)
        .await?;
    lists::erase(&mut tx, key.tenant, key.session).await?;
    tx.commit().await?;
    Ok(DeleteOutcome::Deleted {
        cancelled,
        owner,
        last_step,
    })
}

/// Cancels the last of a session's open sends, which are all queued, and closes the session; the
/// remaining sends are cancelled by the next calls. Returns the number of the session's last step.
fn end_last(ledger: &mut Ledger, key: SessionKey, last: &[SendId]) -> i64 {
    for id in last {
        let place = (key.tenant, *id);
        let Some((hot, send)) = ledger.hot.get(&key).zip(ledger.sends.get(&place)) else {
            continue;
        };
        let (state, end) = (SendState::of(send), SendResult::cancelled());
        let (boot, now) = (ledger.boot, ledger.now);
        let change = transition::end_queued(&hot.row, &state, hot.head(), end, boot, now);
        ledger.commit(change);
    }
    let Some(hot) = ledger.hot.get_mut(&key) else {
        return 0;
    };
    hot.row.lifecycle = Lifecycle::Closed;
    hot.row.next_step - 1
}

/// Cancels open sends under one grant and turns the hot row into a tombstone.
fn end_all(ledger: &mut Ledger, key: SessionKey, open: &[SendId]) {
    let boot = ledger.boot;
    let Some(hot) = ledger.hot.get_mut(&key) else {
        return;
    };
    let (mut row, grant) = transition::delete(&hot.row, boot);
    hot.row = row.clone();
    for id in open {
        let Some(send) = ledger.sends.get(&(key.tenant, *id)) else {
            continue;
        };
        let (state, end) = (SendState::of(send), SendResult::cancelled());
        let change = transition::finish(row, &state, end, grant, ledger.now);
        row = change.hot.clone();
        ledger.commit(change);
    }
}
