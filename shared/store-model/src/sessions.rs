//! Creating, importing, changing and deleting sessions.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::agent::SendOptions;
use mainspring_shared::id::{BootId, RunKey, SendId, SessionId, SessionKey};
use mainspring_shared::list::ListName;
use mainspring_shared::message::{Message, copies_behind};
use mainspring_shared::send::{SendRecord, SendResult, SendStatus};
use mainspring_shared::session::fold;
use mainspring_shared::session::transition;
use mainspring_shared::session::{Lifecycle, SessionRecord, SessionStatus};
use mainspring_shared::store::{
    AppendCopies, CALLS_EACH, CopiesOutcome, CreateOutcome, DeleteOutcome, DeletedSession,
    ERASED_AT_ONCE, ERASED_MS_MIN, Erased, FoldAtRest, FoldedAtRest, IdempotencyKey, ImportSession,
    ListSessions, NewSession, Page, PruneOutcome, PruneSession, Result, STAGED_MS, SessionPatch,
    SessionUsage, Sessions, UpdateOutcome,
};
use mainspring_shared::time::Timestamp;

use crate::memory::ModelStore;
use crate::session::{Erasing, Session, Transcript};
use crate::state::{Seen, State};
use crate::{lists, reads, timers};

#[async_trait]
impl Sessions for ModelStore {
    async fn create_sessions(
        &self,
        items: Vec<(NewSession, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateOutcome>> {
        let (mut state, now) = self.begin();
        let outcomes = items
            .into_iter()
            .map(|(new, key)| create(&mut state, now, new, key.as_ref()));
        Ok(outcomes.collect())
    }

    async fn import_session(&self, item: ImportSession) -> Result<CreateOutcome> {
        let (mut state, now) = self.begin();
        Ok(import(&mut state, now, item))
    }

    async fn append_copies(&self, item: AppendCopies) -> Result<CopiesOutcome> {
        let (mut state, _) = self.begin();
        Ok(append(&mut state, item))
    }

    async fn update_session(&self, key: SessionKey, patch: SessionPatch) -> Result<UpdateOutcome> {
        let (mut state, now) = self.begin();
        Ok(update(&mut state, now, key, patch))
    }

    async fn delete_session(&self, key: SessionKey, boot: BootId) -> Result<DeleteOutcome> {
        let (mut state, now) = self.begin();
        Ok(delete(&mut state, now, key, boot))
    }

    async fn deleted_sessions(
        &self,
        after: Option<DeletedSession>,
        limit: u32,
    ) -> Result<Vec<DeletedSession>> {
        let (state, now) = self.begin();
        Ok(deleted(&state, now, after, limit))
    }

    async fn erase_session(&self, key: SessionKey, limit: u32) -> Result<Erased> {
        let (mut state, now) = self.begin();
        Ok(erase(&mut state, now, key, limit))
    }

    async fn prune_session(&self, item: PruneSession) -> Result<PruneOutcome> {
        let (mut state, _) = self.begin();
        Ok(prune(&mut state, item))
    }

    async fn fold_at_rest(&self, item: FoldAtRest) -> Result<FoldedAtRest> {
        let (mut state, now) = self.begin();
        Ok(fold_at_rest(&mut state, now, item))
    }

    async fn get_session(&self, key: SessionKey) -> Result<Option<SessionRecord>> {
        let (state, now) = self.begin();
        Ok(reads::session(&state, now, key))
    }

    async fn list_sessions(&self, query: ListSessions) -> Result<Page<SessionRecord>> {
        let (state, now) = self.begin();
        Ok(reads::sessions(&state, now, &query))
    }

    async fn list_children(&self, key: SessionKey) -> Result<Vec<SessionKey>> {
        let (state, _) = self.begin();
        Ok(reads::children(&state, key))
    }

    async fn session_usage(&self, key: SessionKey) -> Result<Option<SessionUsage>> {
        let (state, _) = self.begin();
        Ok(reads::usage(&state, key))
    }

    async fn open_children(&self, key: SessionKey) -> Result<u64> {
        let (state, _) = self.begin();
        Ok(reads::open_children(&state, key))
    }
}

pub(crate) fn create(
    state: &mut State,
    now: Timestamp,
    new: NewSession,
    idempotency: Option<&IdempotencyKey>,
) -> CreateOutcome {
    add(state, now, Session::new(new, now), idempotency)
}

pub(crate) fn import(state: &mut State, now: Timestamp, item: ImportSession) -> CreateOutcome {
    let key = item.session.key;
    let mut session = Session::new(item.session, now);
    let messages = copies_behind(item.messages, item.behind).into_iter();
    session.transcript.messages = messages.map(|message| (message.seq, message)).collect();
    if item.behind > 0 {
        let staged = state.sessions.get_mut(&key);
        let Some(staged) = staged.filter(|staged| waits(staged, item.behind, now)) else {
            return CreateOutcome::Gone;
        };
        if item.more {
            staged
                .transcript
                .messages
                .append(&mut session.transcript.messages);
            if let Some(erasing) = &mut staged.erasing {
                erasing.due_at = Timestamp(now.0 + STAGED_MS);
            }
            return CreateOutcome::Staged;
        }
        let mut before = staged.transcript.messages.clone();
        before.append(&mut session.transcript.messages);
        session.transcript.messages = before;
    } else if item.more {
        session.cold = None;
        session.hot.lifecycle = Lifecycle::Deleted;
        session.erasing = Some(Erasing {
            deleted_at: now,
            due_at: Timestamp(now.0 + STAGED_MS),
            agents: BTreeMap::new(),
            up_to: None,
        });
        // A repeat keeps what the first one stored.
        let known = state.sessions.get(&key);
        if known.is_none_or(|known| known.erasing.is_none()) {
            state.add_session(session);
        }
        return CreateOutcome::Staged;
    }
    session.hot.next_seq += session.transcript.messages.len() as i64;
    session.hot.context_version = item.folds.iter().map(|fold| fold.n).max().unwrap_or(0);
    session.transcript.folds = item.folds;
    let projections = item.projections.into_iter();
    session.transcript.projections = projections.map(|it| (it.from_seq, it)).collect();
    let outcome = add(state, now, session, item.idempotency.as_ref());
    if matches!(outcome, CreateOutcome::Created(_)) {
        let (tenant, session) = (key.tenant, key.session);
        lists::copy(state, tenant, &ListName::Todo(session), item.todo);
        lists::copy(state, tenant, &ListName::Notes(session), item.notes);
    }
    outcome
}

/// Whether a staged session waits for the page after its first `behind` messages, which are all
/// present.
fn waits(staged: &Session, behind: i64, now: Timestamp) -> bool {
    let erasing = staged.erasing.as_ref();
    let messages = &staged.transcript.messages;
    erasing.is_some_and(|erasing| erasing.due_at > now)
        && messages.first_key_value().map(|(seq, _)| *seq) == Some(1)
        && messages.len() as i64 >= behind
}

fn add(
    state: &mut State,
    now: Timestamp,
    session: Session,
    idempotency: Option<&IdempotencyKey>,
) -> CreateOutcome {
    match state.seen(idempotency) {
        Seen::Before(session) => return CreateOutcome::Replayed(SessionId(session)),
        Seen::Mismatch => return CreateOutcome::Mismatch,
        Seen::Never => {}
    }
    let key = session.key;
    state.remember(idempotency, key.session.0, now);
    let record = record(state, &session, now);
    state.add_session(session);
    match record {
        Some(record) => CreateOutcome::Created(Box::new(record)),
        None => CreateOutcome::Mismatch,
    }
}

pub(crate) fn update(
    state: &mut State,
    now: Timestamp,
    key: SessionKey,
    patch: SessionPatch,
) -> UpdateOutcome {
    let session = state.sessions.get_mut(&key);
    if let Some(session) = session
        && let Some(cold) = &mut session.cold
    {
        if let Some(agent) = patch.agent {
            agent.pool().clone_into(&mut session.hot.pool);
            cold.agent_version += 1;
            cold.agents.insert(cold.agent_version, agent);
            session.hot.context_version += 1;
        }
        if let Some(metadata) = patch.metadata {
            cold.metadata = metadata;
        }
        session.hot.lifecycle = match patch.closed {
            Some(true) => Lifecycle::Closed,
            Some(false) => Lifecycle::Open,
            None => session.hot.lifecycle,
        };
        cold.updated_at = now;
    }
    let session = state.sessions.get(&key);
    match session.and_then(|session| record(state, session, now)) {
        Some(record) => UpdateOutcome::Updated(Box::new(record)),
        None => UpdateOutcome::NotFound,
    }
}

pub(crate) fn delete(
    state: &mut State,
    now: Timestamp,
    key: SessionKey,
    boot: BootId,
) -> DeleteOutcome {
    timers::cancel_all(state, now, key);
    let session = state.sessions.get_mut(&key);
    let Some(session) = session.filter(|s| s.hot.lifecycle != Lifecycle::Deleted) else {
        return DeleteOutcome::NotFound;
    };
    let mut cancelled = open_in_order(session);
    if cancelled.len() > ERASED_AT_ONCE as usize {
        let mut last = cancelled.split_off(cancelled.len() - ERASED_AT_ONCE as usize);
        last.reverse();
        for id in &last {
            let Some(send) = session.send_state(*id) else {
                continue;
            };
            let (head, end) = (session.head_status(), SendResult::cancelled());
            let change = transition::end_queued(&session.hot, &send, head, end, boot, now);
            session.commit(change, Vec::new());
        }
        session.hot.lifecycle = Lifecycle::Closed;
        session.erasing.get_or_insert(Erasing {
            deleted_at: now,
            due_at: now,
            agents: BTreeMap::new(),
            up_to: None,
        });
        return DeleteOutcome::Ending {
            cancelled: last,
            last_step: session.hot.next_step - 1,
        };
    }
    let owner = session.hot.owner;
    let (tombstone, grant) = transition::delete(&session.hot, boot);
    session.hot = tombstone;
    for id in &cancelled {
        let Some(send) = session.send_state(*id) else {
            continue;
        };
        let end = SendResult::cancelled();
        let change = transition::finish(session.hot.clone(), &send, end, grant, now);
        session.commit(change, Vec::new());
    }
    session.erasing = session.cold.take().map(|cold| Erasing {
        deleted_at: now,
        due_at: now,
        agents: cold.agents,
        up_to: None,
    });
    session.transcript.first_seq = 1;
    let last_step = session.hot.next_step - 1;
    lists::delete(state, key.tenant, key.session);
    state
        .tenants
        .names
        .retain(|(tenant, _), session| (*tenant, *session) != (key.tenant, key.session));
    crate::runs::cancel_of(state, key);
    DeleteOutcome::Deleted {
        cancelled,
        owner,
        last_step,
    }
}

fn fold_at_rest(state: &mut State, now: Timestamp, item: FoldAtRest) -> FoldedAtRest {
    let session = state.sessions.get_mut(&item.key);
    let Some(session) = session.filter(|session| session.cold.is_some()) else {
        return FoldedAtRest::Dropped;
    };
    if !session.sends.contains_key(&item.send_id) {
        return FoldedAtRest::Dropped;
    }
    for row in item.usage {
        let stored = (item.send_id, row.round, row.attempt);
        if session.usage.contains_key(&stored) {
            continue;
        }
        let row = row.at_rest();
        let slot = (item.send_id, row.round, row.attempt);
        session.usage.entry(slot).or_insert(row);
    }
    let Some(fold) = item.fold else {
        return FoldedAtRest::Dropped;
    };
    let change = transition::fold_at_rest(
        &session.hot,
        item.context_version,
        (item.send_id, item.boot),
        fold.reference(),
        now,
    );
    let change = match change {
        Ok(change) => change,
        Err(why) => return why.into(),
    };
    let step = change.step_n();
    session.commit(change, Vec::new());
    let fold = fold.at(session.hot.context_version, item.send_id, now);
    fold::attach(&mut session.transcript.folds, fold);
    FoldedAtRest::Attached { step }
}

pub(crate) fn append(state: &mut State, item: AppendCopies) -> CopiesOutcome {
    let session = state.sessions.get_mut(&item.key);
    let Some(session) = session.filter(|s| s.hot.lifecycle != Lifecycle::Deleted) else {
        return CopiesOutcome::NotFound;
    };
    let first_seq = session.hot.next_seq;
    let messages = &mut session.transcript.messages;
    let send = item.messages.first().map(|message| message.send_id);
    let mut known = messages.range(first_seq - AppendCopies::SEARCHED..);
    if let Some((seq, _)) = known.find(|(_, message)| Some(message.send_id) == send) {
        return CopiesOutcome::Appended { first_seq: *seq };
    }
    if session.hot.lifecycle == Lifecycle::Closed {
        return CopiesOutcome::Closed;
    }
    let is_open = |send: &SendRecord| send.finished_at.is_none() && send.position.is_some();
    if session.hot.owner.is_some() || session.sends.values().any(is_open) {
        return CopiesOutcome::Busy;
    }
    let copies = copies_behind(item.messages, first_seq - 1).into_iter();
    messages.extend(copies.map(|message| (message.seq, message)));
    session.hot.next_seq += messages.range(first_seq..).count() as i64;
    session.hot.context_version += 1;
    CopiesOutcome::Appended { first_seq }
}

pub(crate) fn prune(state: &mut State, item: PruneSession) -> PruneOutcome {
    let session = state.sessions.get_mut(&item.key);
    let Some(session) = session.filter(|s| s.hot.lifecycle != Lifecycle::Deleted) else {
        return PruneOutcome::NotFound;
    };
    let active = session.active().map(|send| send.id);
    let of_active = |message: &&Message| Some(message.send_id) == active;
    let active_from = session.transcript.messages.values().find(of_active);
    let active_from = active_from.map(|message| message.seq);
    let before = session.transcript.first_seq;
    let until = begins(
        &session.transcript,
        item.to
            .first_kept(before, session.hot.next_seq, active_from),
    );
    let page = before.saturating_add(i64::from(item.limit.max(1)));
    let mut first_seq = until;
    if page < until && !item.dry_run {
        first_seq = begins(&session.transcript, page);
        if first_seq <= before {
            // A single message has more results than fit in a page.
            let mut behind = session.transcript.messages.range(page + 1..until);
            let next = behind.find(|(_, message)| message.asked_at_seq.is_none());
            first_seq = next.map_or(until, |(seq, _)| *seq);
        }
    }
    if !item.dry_run && first_seq > before {
        let kept = session.transcript.messages.split_off(&first_seq);
        for gone in std::mem::replace(&mut session.transcript.messages, kept).into_values() {
            if let Some(call) = gone.tool_call_id {
                session.calls.remove(&call);
            }
        }
        session.transcript.projections = session.transcript.projections.split_off(&first_seq);
        session.transcript.first_seq = first_seq;
        session.hot.context_version += 1;
    }
    PruneOutcome::Pruned {
        removed: first_seq - before,
        first_seq,
        until,
    }
}

/// The first message to keep so that a transcript can begin at `seq`: the question, if there is an
/// answer at `seq`.
fn begins(transcript: &Transcript, seq: i64) -> i64 {
    let asked = transcript.messages.get(&seq).and_then(|m| m.asked_at_seq);
    asked.unwrap_or(seq)
}

/// Deleted sessions that are due for removal of their rows.
pub(crate) fn deleted(
    state: &State,
    now: Timestamp,
    after: Option<DeletedSession>,
    limit: u32,
) -> Vec<DeletedSession> {
    let erasing = state.sessions.values().filter_map(|session| {
        let due_at = session.erasing.as_ref()?.due_at;
        let key = session.key;
        (due_at <= now).then_some(DeletedSession { due_at, key })
    });
    let mut found: Vec<_> = erasing.filter(|found| Some(*found) > after).collect();
    found.sort_unstable();
    found.truncate(limit as usize);
    found
}

/// Removes a page of a deleted session's rows, in the order of their keys.
pub(crate) fn erase(state: &mut State, now: Timestamp, key: SessionKey, limit: u32) -> Erased {
    let alive_below = !reads::children(state, key).is_empty();
    let Some(session) = state.sessions.get_mut(&key) else {
        return Erased::default();
    };
    let is_deleted = session.hot.lifecycle == Lifecycle::Deleted;
    let Some(erasing) = session.erasing.as_mut().filter(|_| is_deleted) else {
        return Erased::default();
    };
    let limit = limit.max(1) as usize;
    let sends = session.sends.keys().filter(|id| Some(**id) > erasing.up_to);
    let sends: Vec<SendId> = sends.take(limit.div_ceil(CALLS_EACH)).copied().collect();
    let usage = session.usage.keys().filter(|(id, ..)| sends.contains(id));
    let usage: Vec<_> = usage.take(limit).copied().collect();
    let calls = session
        .calls
        .values()
        .filter(|call| sends.contains(&call.send_id));
    let calls: Vec<_> = calls.take(limit).map(|call| call.call_id.clone()).collect();
    for id in &sends {
        let Some(send) = session.sends.get_mut(id) else {
            continue;
        };
        let is_told = send.reports_to.is_none() || session.journal.reported.contains(id);
        let is_read = send.run.as_ref().is_none_or(|at| {
            let (tenant, run) = (key.tenant, at.run);
            !state.runs.rows.contains_key(&RunKey { tenant, run })
        });
        if send.finished_at.is_some() && is_told && is_read {
            send.input.clear();
            send.options = SendOptions::default();
            (send.output_text, send.output) = (None, None);
        }
    }
    if usage.len() < limit && calls.len() < limit {
        erasing.up_to = sends.last().copied().or(erasing.up_to);
    }
    session.usage.retain(|row, _| !usage.contains(row));
    session.calls.retain(|id, _| !calls.contains(id));
    let mut items: Vec<_> = session.inbox.values().collect();
    items.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    let items: Vec<i64> = items.iter().take(limit).map(|item| item.n).collect();
    session.inbox.retain(|n, _| !items.contains(n));
    let messages = pop(&mut session.transcript.messages, limit);
    let folds = limit.min(session.transcript.folds.len());
    session.transcript.folds.drain(..folds);
    let projections = pop(&mut session.transcript.projections, limit);
    let agents = pop(&mut erasing.agents, limit);
    let rows = [
        messages,
        usage.len(),
        calls.len(),
        items.len(),
        agents,
        folds,
        projections,
    ];
    let more = sends.len() == limit.div_ceil(CALLS_EACH) || rows.contains(&limit);
    if !more && !alive_below {
        let end = erasing.deleted_at.0 + ERASED_MS_MIN;
        erasing.due_at = Timestamp(end);
        if end <= now.0 {
            session.erasing = None;
        }
    }
    Erased {
        rows: rows.iter().sum::<usize>() as u64,
        more,
    }
}

/// Removes the first rows. Returns their number.
fn pop<K: Ord, V>(rows: &mut BTreeMap<K, V>, limit: usize) -> usize {
    let mut count = 0;
    while count < limit && rows.pop_first().is_some() {
        count += 1;
    }
    count
}

/// The open sends by position; those without one follow, by id.
fn open_in_order(session: &Session) -> Vec<SendId> {
    let mut open: Vec<_> = session.open_sends().collect();
    open.sort_by_key(|send| (send.position.is_none(), send.position, send.id));
    open.into_iter().map(|send| send.id).collect()
}

/// A session as returned to clients; none for a tombstone.
pub(crate) fn record(state: &State, session: &Session, now: Timestamp) -> Option<SessionRecord> {
    let cold = session.cold.as_ref()?;
    Some(SessionRecord {
        key: session.key,
        status: status(state, session, now),
        agent: cold.agents.get(&cold.agent_version)?.clone(),
        agent_version: cold.agent_version,
        metadata: cold.metadata.clone(),
        messages: session.hot.next_seq - session.transcript.first_seq,
        first_seq: session.transcript.first_seq,
        parent: cold.parent.clone(),
        created_at: cold.created_at,
        updated_at: cold.updated_at,
    })
}

fn status(state: &State, session: &Session, now: Timestamp) -> SessionStatus {
    let waits = session.active().map(|send| send.status) == Some(SendStatus::Waiting);
    if session.hot.lifecycle == Lifecycle::Closed {
        SessionStatus::Closed
    } else if state.is_held(session, now) {
        SessionStatus::Running
    } else if session.hot.ready_since.is_some() {
        SessionStatus::Queued
    } else if waits {
        SessionStatus::Waiting
    } else {
        SessionStatus::Idle
    }
}
