//! Changes of a session's calls and inbox items, from any source.

use async_trait::async_trait;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::inbox::{Fate, InboxItem};
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::session::transition::{self, Notify, settle};
use mainspring_shared::store::{
    CallBegin, CallChange, CallStep, Calls, ClaimableCalls, Delivery, ListWaitingCalls, NewCall,
    Page, PostOutcome, PostResult, ReadInbox, ReportOutcome, Result,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{Approval, CallRecord, answers, cancelled_call};

use crate::memory::ModelStore;
use crate::session::Session;
use crate::state::State;
use crate::{children, posts, reads};

#[async_trait]
impl Calls for ModelStore {
    async fn post_results(&self, items: Vec<PostResult>) -> Result<Vec<PostOutcome>> {
        let (mut state, now) = self.begin();
        let outcomes = items
            .into_iter()
            .map(|item| posts::post(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn report_children(
        &self,
        sends: Option<Vec<(TenantId, SendId)>>,
        limit: u32,
    ) -> Result<Vec<ReportOutcome>> {
        let (mut state, now) = self.begin();
        Ok(children::report(&mut state, now, sends.as_deref(), limit))
    }

    async fn read_round(
        &self,
        key: SessionKey,
        send: SendId,
        round: i32,
    ) -> Result<Vec<CallRecord>> {
        let (state, _) = self.begin();
        Ok(reads::round(&state, key, send, round))
    }

    async fn get_calls(&self, ids: Vec<(TenantId, String)>) -> Result<Vec<Option<CallRecord>>> {
        let (state, _) = self.begin();
        let found = ids
            .into_iter()
            .map(|(tenant, id)| state.call(tenant, &id).cloned());
        Ok(found.collect())
    }

    async fn list_waiting_calls(&self, query: ListWaitingCalls) -> Result<Page<CallRecord>> {
        let (state, _) = self.begin();
        let is_meant = |call: &CallRecord| match call.waits_on {
            Some(on @ (WaitingOn::Human | WaitingOn::Tool)) => {
                call.result.is_none() && query.on.is_none_or(|wanted| wanted == on)
            }
            _ => false,
        };
        let place = |call: &CallRecord| (call.requested_at, call.call_id.clone());
        let mut found = waiting(&state, query.tenant, is_meant);
        found.retain(|call| {
            query
                .after
                .as_ref()
                .is_none_or(|after| place(call) > *after)
        });
        let more = found.len() > query.limit as usize;
        found.truncate(query.limit as usize);
        Ok(Page { data: found, more })
    }

    async fn claimable_calls(&self, query: ClaimableCalls) -> Result<Page<CallRecord>> {
        let (state, now) = self.begin();
        let is_named = |call: &CallRecord| {
            query.names.contains(&call.name) && call.is_claimable(query.token, now)
        };
        let mut found = waiting(&state, query.tenant, is_named);
        let is_held = |call: &CallRecord| call.claimed_with(query.token).is_some();
        if query.after.is_none() && found.iter().any(is_held) {
            found.retain(is_held);
        } else {
            let is_behind = |call: &CallRecord| {
                let place = (call.requested_at, call.call_id.clone());
                query.after.as_ref().is_none_or(|after| place > *after)
            };
            found.retain(|call| !is_held(call) && is_behind(call));
        }
        let more = found.len() > query.limit as usize;
        found.truncate(query.limit as usize);
        Ok(Page { data: found, more })
    }

    async fn lapsed_calls(&self, limit: u32) -> Result<Vec<(SessionKey, String)>> {
        let (state, now) = self.begin();
        let sessions = state.sessions.iter();
        let sessions = sessions.filter(|(_, session)| session.cold.is_some());
        let lapsed = sessions.flat_map(|(key, session)| {
            let calls = session.calls.values().filter(|call| call.is_lapsed(now));
            calls.map(|call| {
                (
                    call.claim.map(|claim| claim.until),
                    *key,
                    call.call_id.clone(),
                )
            })
        });
        let mut lapsed: Vec<_> = lapsed.collect();
        lapsed.sort();
        lapsed.truncate(limit as usize);
        Ok(lapsed.into_iter().map(|(_, key, id)| (key, id)).collect())
    }

    async fn read_inbox(&self, query: ReadInbox) -> Result<Vec<InboxItem>> {
        let (state, _) = self.begin();
        Ok(reads::inbox(&state, query))
    }
}

/// The tenant's calls that are meant, the longest waiting first.
fn waiting(
    state: &State,
    tenant: TenantId,
    is_meant: impl Fn(&CallRecord) -> bool,
) -> Vec<CallRecord> {
    let sessions = state.sessions.iter();
    let sessions = sessions.filter(|(key, session)| key.tenant == tenant && session.cold.is_some());
    let calls = sessions.flat_map(|(_, session)| session.calls.values());
    let mut calls: Vec<_> = calls.filter(|call| is_meant(call)).cloned().collect();
    calls.sort_by_key(|call| (call.requested_at, call.call_id.clone()));
    calls
}

impl Session {
    /// The calls of a round, ordered by place.
    pub(crate) fn round(&self, send: SendId, round: i32) -> Vec<CallRecord> {
        let calls = self.calls.values();
        let calls = calls.filter(|call| call.send_id == send && call.round == round);
        let mut calls: Vec<_> = calls.cloned().collect();
        calls.sort_by_key(|call| call.place);
        calls
    }

    /// Stores the calls that a send's round requested.
    pub(crate) fn begin_calls(
        &mut self,
        send_id: SendId,
        calls: Vec<NewCall>,
        epoch: i64,
        now: Timestamp,
    ) {
        for new in calls {
            let mut call = CallRecord {
                call_id: new.call_id,
                session: self.key.session,
                send_id,
                round: new.round,
                place: new.place,
                name: new.name,
                arguments: new.arguments,
                repeat: new.repeat,
                waits_on: None,
                approval: Approval::None,
                started_epoch: None,
                attempt: 0,
                deadline_at: None,
                asked: Vec::new(),
                result: None,
                requested_at: now,
                settled_at: None,
                claim: None,
            };
            match new.begins {
                CallBegin::Requested => {}
                CallBegin::Started => start(&mut call, epoch),
                CallBegin::Waits {
                    on,
                    approval,
                    deadline,
                } => {
                    call.waits_on = Some(on);
                    call.deadline_at = deadline.map(|span| now.after(span));
                    if approval {
                        call.approval = Approval::Asked;
                    }
                }
                CallBegin::Settled(result) => settle(&mut call, result, now),
            }
            self.calls.insert(call.call_id.clone(), call);
        }
    }

    /// Changes calls. Settled ones stay as they are.
    pub(crate) fn change_calls(&mut self, changes: Vec<CallChange>, epoch: i64, now: Timestamp) {
        for change in changes {
            let call = self.calls.get_mut(&change.call_id);
            let Some(call) = call.filter(|call| call.result.is_none()) else {
                continue;
            };
            match change.change {
                CallStep::Started => start(call, epoch),
                CallStep::Waits { on, deadline } => {
                    call.waits_on = Some(on);
                    call.deadline_at = deadline.map(|span| now.after(span));
                }
                CallStep::Asks { asked, deadline } => {
                    call.waits_on = Some(WaitingOn::Human);
                    call.deadline_at = deadline.map(|span| now.after(span));
                    call.asked = asked;
                }
                CallStep::Settled(result) => settle(call, result, now),
            }
        }
    }

    /// Records which messages, from `first_seq` on, deliver which items.
    pub(crate) fn deliver(
        &mut self,
        send_id: SendId,
        deliveries: &[Delivery],
        first_seq: i64,
        now: Timestamp,
    ) {
        for delivery in deliveries {
            let mut items = self.inbox.values_mut();
            let item = items.find(|item| item.id == delivery.item_id);
            if let Some(item) = item.filter(|item| item.fate == Fate::Pending) {
                item.fate = Fate::Delivered;
                item.seq = Some(first_seq + i64::from(delivery.message));
                item.settled_at = Some(now);
                item.send_id = item.send_id.or(Some(send_id));
            }
        }
    }

    /// Settles the open calls of the round in which a send ends. Returns the answers that the
    /// transcript lacks.
    pub(crate) fn end_calls(&mut self, send_id: SendId, now: Timestamp) -> Vec<NewMessage> {
        let last = self.transcript.messages.values().next_back();
        let asks = last.filter(|last| last.send_id == send_id && !last.tool_calls.is_empty());
        let Some(round) = asks.map(|asks| asks.round) else {
            return Vec::new();
        };
        let calls = self.calls.values_mut();
        let open = calls
            .filter(|call| call.send_id == send_id && call.round == round && call.result.is_none());
        for call in open {
            settle(call, cancelled_call(), now);
        }
        answers(&self.round(send_id, round)).unwrap_or_default()
    }

    /// Settles or approves a call on behalf of someone outside, and notifies its send.
    pub(crate) fn change_from_outside(
        &mut self,
        call_id: &str,
        change: impl FnOnce(&mut CallRecord),
        now: Timestamp,
    ) -> Notify {
        let Some(call) = self.calls.get_mut(call_id) else {
            return Notify::default();
        };
        change(call);
        let (send_id, round) = (call.send_id, call.round);
        let calls = self.round(send_id, round);
        let round_waits = calls.iter().any(|call| call.waits_on.is_some());
        let head = self.head_state();
        let change = transition::answer(&self.hot, head.as_ref(), send_id, round_waits, now);
        self.commit(change, Vec::new())
    }
}

fn start(call: &mut CallRecord, epoch: i64) {
    call.started_epoch = Some(epoch);
    call.attempt += 1;
    call.waits_on = None;
}
