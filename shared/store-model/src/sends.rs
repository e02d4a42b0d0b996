//! Accepting and cancelling sends.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::budget::Held;
use mainspring_shared::id::{BootId, KeyId, SendId, SessionKey, TenantId};
use mainspring_shared::pause::PauseKey;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::session::transition::{self, Offer, grant_accepted};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, Accepted, CancelOutcome, DeliverItem, DeliverOutcome, GrantedSend,
    IdempotencyKey, KeyOutcome, ListSends, Page, RefuseReason, Result, RetireSends, Retired, Sends,
    Target,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::usage::Usage;
use uuid::Uuid;

use crate::memory::ModelStore;
use crate::pauses::StoredPause;
use crate::session::Session;
use crate::state::{Seen, State};
use crate::{boots, inbox, reads, sweeps};

/// Where sends are, and what holds them back.
#[derive(Debug, Default)]
pub(crate) struct SendTables {
    /// The session of each send.
    pub(crate) homes: BTreeMap<(TenantId, SendId), SessionKey>,
    /// Places among a tenant's open sends, with the time at which they were taken.
    pub(crate) places: BTreeMap<(TenantId, SendId), Timestamp>,
    /// Places among an API key's open sends, with the time at which they were taken.
    pub(crate) key_places: BTreeMap<(TenantId, (KeyId, SendId)), Timestamp>,
    pub(crate) pauses: BTreeMap<PauseKey, StoredPause>,
    /// The pauses for which sends wait.
    pub(crate) pause_waits: BTreeMap<(TenantId, SendId), PauseKey>,
}

#[async_trait]
impl Sends for ModelStore {
    async fn accept_sends(
        &self,
        boot: BootId,
        items: Vec<AcceptSend>,
    ) -> Result<Vec<AcceptOutcome>> {
        let (mut state, now) = self.begin();
        let outcomes = items
            .into_iter()
            .map(|item| accept(&mut state, now, boot, item));
        Ok(outcomes.collect())
    }

    async fn take_key(&self, key: IdempotencyKey) -> Result<KeyOutcome> {
        let (mut state, now) = self.begin();
        Ok(state.take_key(&key, now))
    }

    async fn keyed_resource(&self, key: IdempotencyKey) -> Result<Option<Uuid>> {
        let (state, _) = self.begin();
        Ok(state.keyed_resource(&key))
    }

    async fn cancel_sends(
        &self,
        boot: BootId,
        items: Vec<(TenantId, SendId)>,
    ) -> Result<Vec<CancelOutcome>> {
        let (mut state, now) = self.begin();
        let outcomes = items
            .into_iter()
            .map(|(tenant, id)| cancel(&mut state, now, boot, tenant, id));
        Ok(outcomes.collect())
    }

    async fn deliver_items(
        &self,
        _boot: BootId,
        items: Vec<DeliverItem>,
    ) -> Result<Vec<DeliverOutcome>> {
        let (mut state, now) = self.begin();
        let outcomes = items
            .into_iter()
            .map(|item| inbox::deliver(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn resume_recovery(&self, _boot: BootId, key: SessionKey) -> Result<Option<SendId>> {
        let (mut state, now) = self.begin();
        Ok(resume_recovery(&mut state, now, key))
    }

    async fn retire_sends(&self, query: RetireSends) -> Result<Retired> {
        let (mut state, now) = self.begin();
        Ok(sweeps::retire_sends(&mut state, now, query))
    }

    async fn get_sends(&self, ids: Vec<(TenantId, SendId)>) -> Result<Vec<Option<SendRecord>>> {
        let (state, _) = self.begin();
        let found = ids
            .into_iter()
            .map(|(tenant, id)| state.send(tenant, id).cloned());
        Ok(found.collect())
    }

    async fn list_sends(&self, query: ListSends) -> Result<Page<SendRecord>> {
        let (state, _) = self.begin();
        Ok(reads::sends(&state, &query))
    }
}

pub(crate) fn accept(
    state: &mut State,
    now: Timestamp,
    boot: BootId,
    item: AcceptSend,
) -> AcceptOutcome {
    match state.seen(item.idempotency.as_ref()) {
        Seen::Before(send) => return AcceptOutcome::Replayed(SendId(send)),
        Seen::Mismatch => return AcceptOutcome::Mismatch,
        Seen::Never => {}
    }
    if let Some(parent) = item.parent() {
        let parent = state.sessions.get(&parent);
        if parent.is_none_or(|parent| parent.hot.lifecycle == Lifecycle::Deleted) {
            return AcceptOutcome::Refused(RefuseReason::SessionNotFound);
        }
    }
    let key = item.target.key();
    // The id serves as a key: a repeated request without an idempotency key stores nothing.
    if state.sends.homes.contains_key(&(key.tenant, item.id)) {
        return AcceptOutcome::Replayed(item.id);
    }
    match &item.target {
        Target::New(new) => {
            let session = Session::new((**new).clone(), now);
            state.add_session(session);
        }
        Target::Existing(_) => {
            let refusal = match state.sessions.get(&key) {
                None => Some(RefuseReason::SessionNotFound),
                Some(session) => {
                    let busy = session.open_sends().next().is_some();
                    let on_busy = item.options.on_busy;
                    transition::refuse_accept(&session.hot, busy, on_busy, item.queued_max)
                }
            };
            if let Some(reason) = refusal {
                return AcceptOutcome::Refused(reason);
            }
        }
    }
    state.remember(item.idempotency.as_ref(), item.id.0, now);
    state.sends.homes.insert((key.tenant, item.id), key);
    let is_new = matches!(item.target, Target::New(_));
    let keeper = item.keeper.filter(|_| !is_new);
    let keeper = keeper.filter(|keeper| state.may_keep(key, *keeper, now));
    let Some(session) = state.sessions.get_mut(&key) else {
        return AcceptOutcome::Refused(RefuseReason::SessionNotFound);
    };
    AcceptOutcome::Accepted(store(session, now, boot, keeper, item))
}

fn store(
    session: &mut Session,
    now: Timestamp,
    boot: BootId,
    keeper: Option<BootId>,
    item: AcceptSend,
) -> Accepted {
    let offer = Offer {
        id: item.id,
        options: &item.options,
        boot,
    };
    let accepted = transition::accept(&session.hot, session.head_status(), offer, now);
    let step = accepted.step_n();
    let eager = keeper.and_then(|keeper| grant_accepted(&accepted, keeper, now));
    let (change, eager) = match eager {
        Some(eager) => (eager.change, Some((eager.lease.epoch, eager.ready))),
        None => (accepted, None),
    };
    let send = SendRecord {
        id: item.id,
        key: session.key,
        position: None,
        status: SendStatus::Queued,
        waiting_on: None,
        stop_reason: None,
        input: item.input,
        options: item.options,
        agent_version: None,
        output_text: None,
        output: None,
        error: None,
        usage: Usage::default(),
        held: Held::default(),
        rounds: 0,
        attempts: 0,
        counted: 0,
        not_failed: 0,
        shown: None,
        crashes: 0,
        cancel_requested: false,
        reports_to: item.reports_to,
        run: item.run,
        deadline_at: None,
        alarm_at: None,
        first_step: step,
        created_at: now,
        started_at: None,
        finished_at: None,
    };
    session.sends.insert(item.id, send);
    let position = change.send.and_then(|send| send.position);
    let enqueue = session.commit(change, Vec::new()).ready;
    let granted = eager.and_then(|(epoch, ready)| {
        Some(Box::new(GrantedSend {
            ready,
            epoch,
            counters: session.hot.counters(),
            spent: session.hot.spent,
            agent_version: session.pin(item.id)?,
        }))
    });
    Accepted {
        position,
        step,
        created_at: now,
        enqueue,
        granted,
    }
}

pub(crate) fn cancel(
    state: &mut State,
    now: Timestamp,
    boot: BootId,
    tenant: TenantId,
    id: SendId,
) -> CancelOutcome {
    let Some(home) = state.sends.homes.get(&(tenant, id)).copied() else {
        return CancelOutcome::NotFound;
    };
    let runs = state.send(tenant, id).map(|send| send.status) == Some(SendStatus::Running);
    let owner = state
        .sessions
        .get(&home)
        .and_then(|session| session.hot.owner);
    let lease = runs.then(|| boots::lease_of(state, now, owner)).flatten();
    let Some(session) = state.sessions.get_mut(&home) else {
        return CancelOutcome::NotFound;
    };
    let Some(send) = session.send_state(id) else {
        return CancelOutcome::NotFound;
    };
    let head = session.head_status();
    let change = transition::cancel(&session.hot, &send, head, lease, boot, now);
    let Some(mut change) = change else {
        return CancelOutcome::AlreadyFinal(Box::new(session.sends[&id].clone()));
    };
    session.bill_crashed_call(id, &mut change);
    let step = change.step_n();
    let unsaid = if change.end.is_some() && send.is_active() {
        session.unsaid(id, now)
    } else {
        Vec::new()
    };
    let notify = session.commit(change, unsaid);
    let send = Box::new(session.sends[&id].clone());
    match notify.owner {
        Some(owner) => CancelOutcome::Signalled { send, owner },
        None => CancelOutcome::Cancelled {
            send,
            step,
            enqueue: notify.ready,
        },
    }
}

pub(crate) fn resume_recovery(
    state: &mut State,
    now: Timestamp,
    key: SessionKey,
) -> Option<SendId> {
    let session = state.sessions.get_mut(&key)?;
    let head = session.head_state();
    let change = transition::resume(&session.hot, head.as_ref(), now)?;
    session.commit(change, Vec::new());
    head.map(|head| head.id)
}
