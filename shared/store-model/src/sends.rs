//! Accepting sends and asking them to end.

use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::agent::OnBusy;
use mainspring_shared::budget::Held;
use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::send::{SendRecord, SendResult, SendStatus, WaitingOn};
use mainspring_shared::session::{Lifecycle, SIGNAL_CANCEL};
use mainspring_shared::step::{StepKind, StepRefs};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, Accepted, CancelOutcome, DeliverItem, DeliverOutcome,
    IdempotencyKey, KeyOutcome, ListSends, Page, RefuseReason, Result, RetireSends, Retired, Sends,
    Target,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::usage::Usage;

use crate::memory::ModelStore;
use crate::session::{Session, Writer};
use crate::state::{Seen, State};
use crate::{boots, inbox, reads, sweeps};

#[async_trait]
impl Sends for ModelStore {
    async fn accept_sends(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<AcceptSend>,
    ) -> Result<Vec<AcceptOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|item| accept(&mut state, now, boot, item));
        Ok(outcomes.collect())
    }

    async fn take_key(&self, at: Option<Timestamp>, key: IdempotencyKey) -> Result<KeyOutcome> {
        let (mut state, now) = self.begin(at);
        Ok(state.take_key(&key, now))
    }

    async fn cancel_sends(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<(TenantId, SendId)>,
    ) -> Result<Vec<CancelOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|(tenant, id)| cancel(&mut state, now, boot, tenant, id));
        Ok(outcomes.collect())
    }

    async fn deliver_items(
        &self,
        at: Option<Timestamp>,
        _boot: BootId,
        items: Vec<DeliverItem>,
    ) -> Result<Vec<DeliverOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|item| inbox::deliver(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn resume_recovery(
        &self,
        at: Option<Timestamp>,
        _boot: BootId,
        key: SessionKey,
    ) -> Result<Option<SendId>> {
        let (mut state, now) = self.begin(at);
        Ok(resume_recovery(&mut state, now, key))
    }

    async fn retire_sends(&self, at: Option<Timestamp>, query: RetireSends) -> Result<Retired> {
        let (mut state, now) = self.begin(at);
        Ok(sweeps::retire_sends(&mut state, now, query))
    }

    async fn get_sends(&self, ids: Vec<(TenantId, SendId)>) -> Result<Vec<Option<SendRecord>>> {
        let (state, _) = self.begin(None);
        let found = ids
            .into_iter()
            .map(|(tenant, id)| state.send(tenant, id).cloned());
        Ok(found.collect())
    }

    async fn list_sends(&self, query: ListSends) -> Result<Page<SendRecord>> {
        let (state, _) = self.begin(None);
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
    // Its id is its key: a request that comes again without another one stores nothing.
    if state.homes.contains_key(&(key.tenant, item.id)) {
        return AcceptOutcome::Replayed(item.id);
    }
    match &item.target {
        Target::New(new) => {
            let session = Session::new((**new).clone(), now);
            state.sessions.insert(key, session);
        }
        Target::Existing(_) => {
            if let Some(reason) = refusal(state.sessions.get(&key), &item) {
                return AcceptOutcome::Refused(reason);
            }
        }
    }
    state.remember(item.idempotency.as_ref(), item.id.0, now);
    state.homes.insert((key.tenant, item.id), key);
    let Some(session) = state.sessions.get_mut(&key) else {
        return AcceptOutcome::Refused(RefuseReason::SessionNotFound);
    };
    AcceptOutcome::Accepted(store(session, now, boot, item))
}

fn refusal(session: Option<&Session>, item: &AcceptSend) -> Option<RefuseReason> {
    let Some(session) = session else {
        return Some(RefuseReason::SessionNotFound);
    };
    match session.hot.lifecycle {
        Lifecycle::Deleted => return Some(RefuseReason::SessionNotFound),
        Lifecycle::Closed => return Some(RefuseReason::SessionClosed),
        Lifecycle::Open => {}
    }
    if item.options.on_busy == OnBusy::Reject && session.open_sends().next().is_some() {
        return Some(RefuseReason::Busy);
    }
    (session.hot.pending >= item.queued_max).then_some(RefuseReason::QueueFull)
}

fn store(session: &mut Session, now: Timestamp, boot: BootId, item: AcceptSend) -> Accepted {
    let writer = Writer { epoch: 0, boot };
    let step = session.write_step(
        item.id,
        StepKind::Accepted,
        writer,
        now,
        StepRefs::default(),
    );
    let deadline_at = item.options.deadline.map(|span| now.after(span.0));
    let due = item.options.delay.map(|span| now.after(span.0));
    let position = due.is_none().then(|| session.take_place());
    let priority = item.options.priority;
    let send = SendRecord {
        id: item.id,
        key: session.key,
        position,
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
        crashes: 0,
        cancel_requested: false,
        reports_to: item.reports_to,
        run: item.run,
        deadline_at,
        alarm_at: [due, deadline_at].into_iter().flatten().min(),
        first_step: step,
        created_at: now,
        started_at: None,
        finished_at: None,
    };
    session.sends.insert(item.id, send);
    let ring = position.and_then(|_| session.gain_work(priority, now));
    Accepted {
        position,
        step,
        created_at: now,
        ring,
    }
}

pub(crate) fn cancel(
    state: &mut State,
    now: Timestamp,
    boot: BootId,
    tenant: TenantId,
    id: SendId,
) -> CancelOutcome {
    let Some(home) = state.homes.get(&(tenant, id)).copied() else {
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
    let Some(send) = session.sends.get_mut(&id) else {
        return CancelOutcome::NotFound;
    };
    if send.status.is_final() {
        return CancelOutcome::AlreadyFinal(Box::new(send.clone()));
    }
    send.cancel_requested = true;
    let (step, ring) = match (send.status, owner.zip(lease)) {
        (SendStatus::Running, Some((owner, lease_until))) => {
            session.hot.signals |= SIGNAL_CANCEL;
            // Should the worker die before it obeys, the alarm finds the send.
            let lease_end = lease_until.after(Duration::from_millis(1));
            send.alarm_at = send.alarm_at.into_iter().chain([lease_end]).min();
            return CancelOutcome::Signalled {
                send: Box::new(send.clone()),
                owner,
            };
        }
        (SendStatus::Queued, _) => {
            let step = session.finish_queued(id, SendResult::cancelled(), boot, now);
            (step, None)
        }
        _ => session.finish_unowned(id, SendResult::cancelled(), boot, now),
    };
    let send = Box::new(session.sends[&id].clone());
    CancelOutcome::Cancelled { send, step, ring }
}

pub(crate) fn resume_recovery(
    state: &mut State,
    now: Timestamp,
    key: SessionKey,
) -> Option<SendId> {
    let session = state.sessions.get_mut(&key)?;
    let send = session.waiting()?;
    if send.waiting_on != Some(WaitingOn::Recovery) {
        return None;
    }
    let id = send.id;
    session.wake(now);
    Some(id)
}
