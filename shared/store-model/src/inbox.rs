//! Messages to sessions that may be busy.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::SendId;
use mainspring_shared::inbox::{Fate, InboxItem, ItemKind};
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::Lifecycle;
use mainspring_shared::session::transition::{
    self, Delivery, DeliveryFacts, Notify, Stored, settle,
};
use mainspring_shared::store::{DeliverItem, DeliverOutcome};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::interrupted_call;

use crate::session::Session;
use crate::state::{Seen, State};

pub(crate) fn deliver(state: &mut State, now: Timestamp, item: DeliverItem) -> DeliverOutcome {
    match state.seen(item.idempotency.as_ref()) {
        Seen::Before(send) => return DeliverOutcome::Replayed(SendId(send)),
        Seen::Mismatch => return DeliverOutcome::Mismatch,
        Seen::Never => {}
    }
    let Some(session) = state.sessions.get_mut(&item.key) else {
        return DeliverOutcome::NotFound;
    };
    match session.hot.lifecycle {
        Lifecycle::Deleted => return DeliverOutcome::NotFound,
        Lifecycle::Closed => return DeliverOutcome::Closed,
        Lifecycle::Open => {}
    }
    let idempotency = item.idempotency.clone();
    let outcome = take(session, now, item);
    if let DeliverOutcome::Accepted { send_id, .. } = &outcome {
        state.remember(idempotency.as_ref(), send_id.0, now);
    }
    outcome
}

fn take(session: &mut Session, now: Timestamp, item: DeliverItem) -> DeliverOutcome {
    let known = session
        .inbox
        .values()
        .find(|known| known.id == item.item_id);
    if let Some(known) = known
        && let Some(send_id) = known.send_id
    {
        return accepted(send_id, known.clone(), Notify::default());
    }
    if let Some(known) = known.filter(|known| known.kind == item.kind) {
        return DeliverOutcome::Kept(Box::new(known.clone()));
    }
    let pending = session.inbox.values().filter(|i| i.fate == Fate::Pending);
    let pending_items = i64::try_from(pending.count()).unwrap_or(i64::MAX);
    let head = session.head_state();
    let facts = DeliveryFacts {
        head: head.as_ref(),
        last_queued: last_queued(session),
        pending_items,
    };
    let (mode, kind) = (item.mode, item.kind);
    let decided = transition::deliver(&session.hot, facts, mode, kind, item.items_max, now);
    let words = NewItem {
        id: item.item_id,
        kind,
        mode,
        content: item.content,
    };
    match decided {
        Delivery::Full => DeliverOutcome::Full,
        Delivery::Idle => DeliverOutcome::Idle,
        Delivery::Joined { change, n, send } => {
            if let Some(send) = session.sends.get_mut(&send) {
                send.input.extend(words.content.iter().cloned());
            }
            let notify = session.commit(change, Vec::new());
            let item = session.insert_item(words, n, Some(send), Fate::Delivered, now);
            accepted(send, item, notify)
        }
        Delivery::Stored(stored) => {
            let send = stored.send;
            let (item, notify) = session.store_item(words, stored, now);
            match send {
                Some(send) => accepted(send, item, notify),
                None => DeliverOutcome::Kept(Box::new(item)),
            }
        }
    }
}

fn accepted(send_id: SendId, item: InboxItem, notify: Notify) -> DeliverOutcome {
    DeliverOutcome::Accepted {
        send_id,
        item: Box::new(item),
        enqueue: notify.ready,
        owner: notify.owner,
    }
}

/// The queued send with the highest position.
fn last_queued(session: &Session) -> Option<SendId> {
    let queued = session
        .open_sends()
        .filter(|send| send.status == SendStatus::Queued && send.position.is_some());
    queued.max_by_key(|send| send.position).map(|send| send.id)
}

/// An item that has no place yet.
pub(crate) struct NewItem {
    pub(crate) id: String,
    pub(crate) kind: ItemKind,
    pub(crate) mode: OnBusy,
    pub(crate) content: Vec<ContentPart>,
}

impl Session {
    /// Stores a pending item, with the effects that were decided.
    pub(crate) fn store_item(
        &mut self,
        new: NewItem,
        stored: Stored,
        now: Timestamp,
    ) -> (InboxItem, Notify) {
        if stored.interrupts {
            let calls = self.calls.values_mut();
            for call in
                calls.filter(|call| Some(call.send_id) == stored.send && call.waits_on.is_some())
            {
                settle(call, interrupted_call(), now);
            }
        }
        let notify = self.commit(stored.change, Vec::new());
        let item = self.insert_item(new, stored.n, stored.send, Fate::Pending, now);
        (item, notify)
    }

    fn insert_item(
        &mut self,
        new: NewItem,
        n: i64,
        send_id: Option<SendId>,
        fate: Fate,
        now: Timestamp,
    ) -> InboxItem {
        let item = InboxItem {
            id: new.id,
            n,
            kind: new.kind,
            mode: new.mode,
            send_id,
            content: new.content,
            fate,
            seq: None,
            created_at: now,
            settled_at: (fate != Fate::Pending).then_some(now),
        };
        self.inbox.insert(n, item.clone());
        item
    }
}
