//! Words for sessions that may be busy.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::SendId;
use mainspring_shared::inbox::{Fate, InboxItem, ItemKind};
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::{Lifecycle, SIGNAL_INBOX, SIGNAL_INTERRUPT};
use mainspring_shared::store::{DeliverItem, DeliverOutcome};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::interrupted_call;

use crate::calls::{Told, settle};
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
        return accepted(send_id, known.clone(), (None, None));
    }
    if let Some(known) = known.filter(|known| known.kind == item.kind) {
        return DeliverOutcome::Kept(Box::new(known.clone()));
    }
    let pending = session.inbox.values().filter(|i| i.fate == Fate::Pending);
    if i64::try_from(pending.count()).is_ok_and(|pending| pending >= item.items_max) {
        return DeliverOutcome::Full;
    }
    let send_id = match item.mode {
        OnBusy::Coalesce => last_queued(session),
        OnBusy::Steer | OnBusy::Interrupt => absorbing(session),
        // These make sends, never items.
        OnBusy::Enqueue | OnBusy::Reject => None,
    };
    if send_id.is_none() && item.kind == ItemKind::Message {
        return DeliverOutcome::Idle;
    }
    let words = NewItem {
        id: item.item_id,
        kind: item.kind,
        mode: item.mode,
        send_id,
        content: item.content,
    };
    let Some(send_id) = send_id else {
        let stored = session.store_item(words, Fate::Pending, now);
        session.tell_of_item(item.mode, now);
        return DeliverOutcome::Kept(Box::new(stored));
    };
    if item.mode == OnBusy::Coalesce {
        if let Some(send) = session.sends.get_mut(&send_id) {
            send.input.extend(words.content.iter().cloned());
        }
        let stored = session.store_item(words, Fate::Delivered, now);
        return accepted(send_id, stored, (None, None));
    }
    let stored = session.store_item(words, Fate::Pending, now);
    let told = session.tell_of_item(item.mode, now);
    accepted(send_id, stored, told)
}

fn accepted(send_id: SendId, item: InboxItem, (ring, owner): Told) -> DeliverOutcome {
    DeliverOutcome::Accepted {
        send_id,
        item: Box::new(item),
        ring,
        owner,
    }
}

/// The last send that waits for its turn and has its place.
fn last_queued(session: &Session) -> Option<SendId> {
    let queued = session
        .open_sends()
        .filter(|send| send.status == SendStatus::Queued && send.position.is_some());
    queued.max_by_key(|send| send.position).map(|send| send.id)
}

/// The send that is under way, or else the next one.
pub(crate) fn absorbing(session: &Session) -> Option<SendId> {
    let send = session.active().or_else(|| session.head());
    send.map(|send| send.id)
}

/// An item before it has its place.
pub(crate) struct NewItem {
    pub(crate) id: String,
    pub(crate) kind: ItemKind,
    pub(crate) mode: OnBusy,
    pub(crate) send_id: Option<SendId>,
    pub(crate) content: Vec<ContentPart>,
}

impl Session {
    /// Stores an item at the next place.
    pub(crate) fn store_item(&mut self, new: NewItem, fate: Fate, now: Timestamp) -> InboxItem {
        let item = InboxItem {
            id: new.id,
            n: self.take_place(),
            kind: new.kind,
            mode: new.mode,
            send_id: new.send_id,
            content: new.content,
            fate,
            seq: None,
            created_at: now,
            settled_at: (fate != Fate::Pending).then_some(now),
        };
        self.inbox.insert(item.n, item.clone());
        item
    }

    /// Tells the send that is under way of a pending item.
    pub(crate) fn tell_of_item(&mut self, mode: OnBusy, now: Timestamp) -> Told {
        self.hot.signals |= SIGNAL_INBOX;
        if mode == OnBusy::Interrupt {
            self.hot.signals |= SIGNAL_INTERRUPT;
        }
        let Some(active) = self.active() else {
            return (None, None);
        };
        let id = active.id;
        match active.waiting_on {
            None => (None, self.hot.owner),
            Some(WaitingOn::Retry | WaitingOn::Timer) => (self.wake(now), None),
            Some(WaitingOn::Recovery) => (None, None),
            Some(WaitingOn::Tool | WaitingOn::Human | WaitingOn::Agent | WaitingOn::Run) => {
                if mode != OnBusy::Interrupt {
                    return (None, None);
                }
                let calls = self.calls.values_mut();
                for call in calls.filter(|call| call.send_id == id && call.waits_on.is_some()) {
                    settle(call, interrupted_call(), now);
                }
                (self.wake(now), None)
            }
        }
    }
}
