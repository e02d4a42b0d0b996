//! Changes of calls and inboxes that do not come from the send's worker.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::inbox::{Fate, InboxItem, ItemKind};
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::transition::{self, AtRest, Change, Notify, Stored, settle};
use mainspring_shared::store::CallAnswer;
use mainspring_shared::tool::{CallRecord, CallResult, interrupted_call};

use super::write::ItemRow;
use super::{Ledger, RoundKey};

/// An inbox item before it has its number.
pub(crate) struct NewItem {
    pub(crate) id: String,
    pub(crate) kind: ItemKind,
    pub(crate) mode: OnBusy,
    pub(crate) content: Vec<ContentPart>,
}

impl Ledger {
    /// The last queued send with a position.
    pub(crate) fn last_queued(&self, key: SessionKey) -> Option<SendId> {
        let heads = self.heads.get(&key)?;
        let send = self.sends.get(&(key.tenant, heads.last))?;
        (send.status == SendStatus::Queued).then_some(send.id)
    }

    /// Appends content to the input of a send that was read.
    fn join(&mut self, key: SessionKey, id: SendId, content: &[ContentPart]) {
        if let Some(send) = self.sends.get_mut(&(key.tenant, id)) {
            send.input.extend_from_slice(content);
            self.writes.joined.insert((key.tenant, id));
        }
    }

    /// A call of a round that was read.
    pub(crate) fn call(&self, round: RoundKey, call_id: &str) -> Option<&CallRecord> {
        let mut calls = self.rounds.get(&round)?.iter();
        calls.find(|call| call.call_id == call_id)
    }

    /// Changes a call of a round that was read, because of an answer from outside. Its send may
    /// continue once no call of the round waits. Requires `read_heads`.
    pub(crate) fn answer_call(
        &mut self,
        key: SessionKey,
        round: RoundKey,
        call_id: &str,
        change: impl FnOnce(&mut CallRecord),
    ) -> Notify {
        let head = self.head(key);
        let Some((hot, calls)) = self.hot.get(&key).zip(self.rounds.get_mut(&round)) else {
            return Notify::default();
        };
        let Some(call) = calls.iter_mut().find(|call| call.call_id == call_id) else {
            return Notify::default();
        };
        change(call);
        self.writes.settled.insert((round, call.place));
        let round_waits = calls.iter().any(|call| call.waits_on.is_some());
        let change = transition::answer(&hot.row, head.as_ref(), round.send, round_waits, self.now);
        self.commit(change)
    }

    /// Changes whose a call of a round is that was read: its send waits on.
    pub(crate) fn claim_call(
        &mut self,
        round: RoundKey,
        call_id: &str,
        answer: CallAnswer,
    ) -> Option<&CallRecord> {
        let calls = self.rounds.get_mut(&round)?.iter_mut();
        let call = calls.into_iter().find(|call| call.call_id == call_id)?;
        transition::take(call, answer, self.now);
        self.writes.settled.insert((round, call.place));
        Some(call)
    }

    /// Settles a call of a round that was read with this result, through [`Ledger::answer_call`].
    pub(crate) fn settle_call(
        &mut self,
        key: SessionKey,
        round: RoundKey,
        call_id: &str,
        result: CallResult,
    ) -> Notify {
        let now = self.now;
        self.answer_call(key, round, call_id, |call| settle(call, result, now))
    }

    /// Settles the matching calls of a round with this result.
    pub(super) fn settle_all(
        &mut self,
        round: RoundKey,
        is_meant: impl Fn(&CallRecord) -> bool,
        result: &CallResult,
    ) {
        let calls = self.rounds.get_mut(&round).into_iter().flatten();
        for call in calls.filter(|call| is_meant(call)) {
            settle(call, result.clone(), self.now);
            self.writes.settled.insert((round, call.place));
        }
    }

    /// Settles the calls of its open round that a send waits for as interrupted. Requires
    /// `read_last`.
    fn interrupt_calls(&mut self, key: SessionKey, send: SendId) {
        let last = self.last.get(&key);
        if let Some(last) = last.filter(|last| last.asks && last.send == send) {
            let round = last.round_of(key);
            self.settle_all(round, |call| call.waits_on.is_some(), &interrupted_call());
        }
    }

    /// Stores a pending item as the session machine decided; returns whom to notify.
    pub(crate) fn store_item(
        &mut self,
        key: SessionKey,
        new: NewItem,
        stored: Stored,
    ) -> (InboxItem, Notify) {
        if stored.interrupts
            && let Some(send) = stored.send
        {
            self.interrupt_calls(key, send);
        }
        let item = self.insert_item(key, new, stored.n, stored.send, Fate::Pending);
        (item, self.commit(stored.change))
    }

    /// Stores an item as delivered by merging it into the input of a queued send; returns whom to
    /// notify.
    pub(crate) fn join_item(
        &mut self,
        new: NewItem,
        change: Change,
        n: i64,
        send: SendId,
    ) -> (InboxItem, Notify) {
        let key = change.hot.key;
        self.join(key, send, &new.content);
        let item = self.insert_item(key, new, n, Some(send), Fate::Delivered);
        (item, self.commit(change))
    }

    /// Stores the end of a child or run as an inbox item, because the call that started it is
    /// already settled. `None` if it must become a send instead. Requires `read_heads`.
    pub(crate) fn report(
        &mut self,
        key: SessionKey,
        id: String,
        content: Vec<ContentPart>,
        at_rest: AtRest,
    ) -> Option<Notify> {
        let head = self.head(key);
        let stored = transition::report(self.row(key)?, head.as_ref(), at_rest, self.now)?;
        let item = NewItem {
            id,
            kind: ItemKind::Child,
            mode: OnBusy::Steer,
            content,
        };
        Some(self.store_item(key, item, stored).1)
    }

    fn insert_item(
        &mut self,
        key: SessionKey,
        new: NewItem,
        n: i64,
        send_id: Option<SendId>,
        fate: Fate,
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
            created_at: self.now,
            settled_at: (fate != Fate::Pending).then_some(self.now),
        };
        self.writes.items.push(ItemRow {
            key,
            item: item.clone(),
        });
        item
    }

    /// Whom an earlier change would have notified: the boot that owns the session, otherwise the
    /// queue.
    pub(crate) fn notified_before(&self, key: SessionKey) -> Notify {
        let Some(row) = self.row(key) else {
            return Notify::default();
        };
        Notify {
            ready: row.ready().filter(|_| row.owner.is_none()),
            owner: row.owner,
        }
    }
}
