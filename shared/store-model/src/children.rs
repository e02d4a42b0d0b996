//! Reporting the ends of children to their parents.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::inbox::ItemKind;
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::transition::{self, AtRest, Notify, settle};
use mainspring_shared::store::ReportOutcome;
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{child_item, child_result};

use crate::inbox::NewItem;
use crate::session::Session;
use crate::state::State;

pub(crate) fn report(
    state: &mut State,
    now: Timestamp,
    named: Option<&[(TenantId, SendId)]>,
    limit: u32,
) -> Vec<ReportOutcome> {
    let sessions = state.sessions.values();
    let open = sessions.flat_map(|session| {
        let sends = session.sends.values();
        sends.filter(|send| send.status.is_final() && !session.journal.reported.contains(&send.id))
    });
    let due = open
        .filter(|send| send.reports_to.is_some())
        .filter(|send| named.is_none_or(|named| named.contains(&(send.key.tenant, send.id))));
    let mut due: Vec<SendRecord> = due.cloned().collect();
    due.sort_by_key(|send| (send.finished_at, send.id));
    due.truncate(limit as usize);
    let outcomes = due.iter().filter_map(|send| {
        let child = state.sessions.get_mut(&send.key)?;
        child.journal.reported.insert(send.id);
        tell_parent(state, now, send)
    });
    outcomes.collect()
}

/// Reports a send to its parent: the session that made the call. The call names it even if the
/// child was deleted; once the call is gone, there is no parent.
fn tell_parent(state: &mut State, now: Timestamp, send: &SendRecord) -> Option<ReportOutcome> {
    let tenant = send.key.tenant;
    let call_id = send.reports_to.as_deref()?;
    let call = state.call(tenant, call_id)?;
    let is_open = call.result.is_none();
    let parent = SessionKey {
        tenant,
        session: call.session,
    };
    let session = state.sessions.get_mut(&parent)?;
    let notify = if is_open {
        let answer = |call: &mut _| settle(call, child_result(send), now);
        session.change_from_outside(call_id, answer, now)
    } else {
        let (id, content) = child_item(send, call_id);
        session.report(id, content, AtRest::Keep, now)?
    };
    Some(ReportOutcome {
        send_id: send.id,
        parent,
        enqueue: notify.ready,
        owner: notify.owner,
    })
}

impl Session {
    /// Stores the end of a child or of a run as an item, because the call that requested it was
    /// settled before. None if it has to become a send.
    pub(crate) fn report(
        &mut self,
        id: String,
        content: Vec<ContentPart>,
        at_rest: AtRest,
        now: Timestamp,
    ) -> Option<Notify> {
        let head = self.head_state();
        let stored = transition::report(&self.hot, head.as_ref(), at_rest, now)?;
        let item = NewItem {
            id,
            kind: ItemKind::Child,
            mode: OnBusy::Steer,
            content,
        };
        Some(self.store_item(item, stored, now).1)
    }
}
