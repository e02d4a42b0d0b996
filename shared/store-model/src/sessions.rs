//! Creating, copying, changing and deleting sessions.

use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey};
use mainspring_shared::list::ListName;
use mainspring_shared::message::{Message, copies};
use mainspring_shared::send::{SendResult, SendStatus};
use mainspring_shared::session::{Lifecycle, SessionRecord, SessionStatus};
use mainspring_shared::step::StepRefs;
use mainspring_shared::store::{
    CreateOutcome, DeleteOutcome, IdempotencyKey, ImportSession, NewSession, PruneOutcome,
    PruneSession, SessionPatch, UpdateOutcome,
};
use mainspring_shared::time::Timestamp;

use crate::lists;
use crate::session::Session;
use crate::state::{Seen, State};
use crate::timers;

pub(crate) fn create(
    state: &mut State,
    now: Timestamp,
    new: NewSession,
    idempotency: Option<&IdempotencyKey>,
) -> CreateOutcome {
    add(state, now, Session::new(new, now), idempotency)
}

pub(crate) fn import(state: &mut State, now: Timestamp, item: ImportSession) -> CreateOutcome {
    let mut session = Session::new(item.session, now);
    let messages = copies(item.messages).into_iter();
    session.messages = messages.map(|message| (message.seq, message)).collect();
    session.hot.next_seq += session.messages.len() as i64;
    let key = session.key;
    let outcome = add(state, now, session, item.idempotency.as_ref());
    if matches!(outcome, CreateOutcome::Created(_)) {
        let (tenant, session) = (key.tenant, key.session);
        lists::copy(state, tenant, &ListName::Todo(session), item.todo);
        lists::copy(state, tenant, &ListName::Notes(session), item.notes);
    }
    outcome
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
    state.sessions.insert(key, session);
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
            agent.pool().clone_into(&mut session.pool);
            cold.agent_version += 1;
            cold.agents.insert(cold.agent_version, agent);
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
    let owner = session.hot.owner;
    let writer = session.grant(boot);
    let cancelled = open_in_order(session);
    for id in &cancelled {
        let end = SendResult::cancelled();
        session.finish(*id, end, writer, now, StepRefs::default());
    }
    session.cold = None;
    session.messages.clear();
    session.first_seq = 1;
    session.calls.clear();
    session.inbox.clear();
    session.usage.clear();
    session.hot.lifecycle = Lifecycle::Deleted;
    session.hot.owner = None;
    session.hot.token = None;
    session.hot.ready_since = None;
    session.hot.pending = 0;
    session.hot.signals = 0;
    let last_step = session.hot.next_step - 1;
    lists::delete(state, key.tenant, key.session);
    crate::runs::cancel_of(state, key);
    DeleteOutcome::Deleted {
        cancelled,
        owner,
        last_step,
    }
}

pub(crate) fn prune(state: &mut State, item: PruneSession) -> PruneOutcome {
    let session = state.sessions.get_mut(&item.key);
    let Some(session) = session.filter(|s| s.hot.lifecycle != Lifecycle::Deleted) else {
        return PruneOutcome::NotFound;
    };
    let active = session.active().map(|send| send.id);
    let of_active = |message: &&Message| Some(message.send_id) == active;
    let active_from = session.messages.values().find(of_active);
    let active_from = active_from.map(|message| message.seq);
    let before = session.first_seq;
    let mut first_seq = item
        .to
        .first_kept(before, session.hot.next_seq, active_from);
    let asked = session.messages.get(&first_seq);
    first_seq = asked.and_then(|m| m.asked_at_seq).unwrap_or(first_seq);
    if !item.dry_run {
        let kept = session.messages.split_off(&first_seq);
        for gone in std::mem::replace(&mut session.messages, kept).into_values() {
            if let Some(call) = gone.tool_call_id {
                session.calls.remove(&call);
            }
        }
        session.first_seq = first_seq;
    }
    PruneOutcome::Pruned {
        removed: first_seq - before,
        first_seq,
    }
}

/// The open sends by place, those without one behind, in the order of their ids.
fn open_in_order(session: &Session) -> Vec<SendId> {
    let mut open: Vec<_> = session.open_sends().collect();
    open.sort_by_key(|send| (send.position.is_none(), send.position, send.id));
    open.into_iter().map(|send| send.id).collect()
}

/// A session as it is shown; none for a tombstone.
pub(crate) fn record(state: &State, session: &Session, now: Timestamp) -> Option<SessionRecord> {
    let cold = session.cold.as_ref()?;
    Some(SessionRecord {
        key: session.key,
        status: status(state, session, now),
        agent: cold.agents.get(&cold.agent_version)?.clone(),
        agent_version: cold.agent_version,
        metadata: cold.metadata.clone(),
        messages: session.hot.next_seq - session.first_seq,
        first_seq: session.first_seq,
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
