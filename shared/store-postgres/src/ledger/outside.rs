//! What changes calls and inboxes from outside of a send's work.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::inbox::{Fate, InboxItem, ItemKind};
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::{SendRecord, SendStatus, WaitingOn};
use mainspring_shared::session::transition::{self, Notify};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT};
use mainspring_shared::tool::{CallRecord, CallResult, interrupted_call};

use super::write::ItemRow;
use super::{Hot, Ledger, RoundKey};

/// An inbox item before it has its place.
pub(crate) struct NewItem {
    pub(crate) id: String,
    pub(crate) kind: ItemKind,
    pub(crate) mode: OnBusy,
    pub(crate) send_id: Option<SendId>,
    pub(crate) content: Vec<ContentPart>,
}

impl Ledger {
    /// The send that runs or waits; the heads have to be read.
    pub(crate) fn active(&self, key: SessionKey) -> Option<&SendRecord> {
        let send = self.absorbing(key);
        send.filter(|send| matches!(send.status, SendStatus::Running | SendStatus::Waiting))
    }

    /// The send that is under way, or else the next one.
    pub(crate) fn absorbing(&self, key: SessionKey) -> Option<&SendRecord> {
        let heads = self.heads.get(&key)?;
        self.sends.get(&(key.tenant, heads.first))
    }

    /// The last send that waits for its turn and has its place.
    pub(crate) fn last_queued(&self, key: SessionKey) -> Option<&SendRecord> {
        let heads = self.heads.get(&key)?;
        let send = self.sends.get(&(key.tenant, heads.last));
        send.filter(|send| send.status == SendStatus::Queued)
    }

    /// Adds words to the input of a send that was read.
    pub(crate) fn join(&mut self, key: SessionKey, id: SendId, content: &[ContentPart]) {
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

    /// Changes a call of a round that was read, because someone outside answered it. Its send may go on once
    /// no call of the round waits; the heads have to be read.
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

    /// Gives a call of a round that was read its result, as [`Ledger::answer_call`] does.
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

    /// Gives those calls of a round that are meant this result.
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

    /// Stores an item at the next place of a session.
    pub(crate) fn store_item(&mut self, key: SessionKey, new: NewItem, fate: Fate) -> InboxItem {
        let now = self.now;
        let item = InboxItem {
            id: new.id,
            n: self.hot.get_mut(&key).map_or(0, Hot::take_place),
            kind: new.kind,
            mode: new.mode,
            send_id: new.send_id,
            content: new.content,
            fate,
            seq: None,
            created_at: now,
            settled_at: (fate != Fate::Pending).then_some(now),
        };
        self.writes.items.push(ItemRow {
            key,
            item: item.clone(),
        });
        item
    }

    /// Tells the session's send of a pending item: a running one by a signal, one that waits for a
    /// time by going on. To interrupt, the calls that others are waited for end, too; for that the
    /// last messages have to be read.
    pub(crate) fn tell_of_item(&mut self, key: SessionKey, mode: OnBusy) -> Notify {
        let interrupts = mode == OnBusy::Interrupt;
        let signals = if interrupts {
            SIGNAL_INBOX | SIGNAL_INTERRUPT
        } else {
            SIGNAL_INBOX
        };
        let owner = self.raise(key, signals);
        let Some(active) = self.active(key) else {
            return Notify::default();
        };
        let id = active.id;
        match active.waiting_on {
            None => Notify { ready: None, owner },
            Some(WaitingOn::Retry | WaitingOn::Timer) => self.wake(key, id),
            Some(WaitingOn::Recovery) => Notify::default(),
            Some(WaitingOn::Tool | WaitingOn::Human | WaitingOn::Agent | WaitingOn::Run) => {
                if !interrupts {
                    return Notify::default();
                }
                let last = self.last.get(&key);
                if let Some(last) = last.filter(|last| last.asks && last.send == id) {
                    let round = last.round_of(key);
                    let waits = |call: &CallRecord| call.waits_on.is_some();
                    self.settle_all(round, waits, &interrupted_call());
                }
                self.wake(key, id)
            }
        }
    }

    /// Raises signals; returns the boot that holds the session.
    fn raise(&mut self, key: SessionKey, signals: i32) -> Option<BootId> {
        let hot = self.hot.get_mut(&key)?;
        hot.row.signals |= signals;
        hot.row.owner
    }

    /// Lets the send that waits go on: it has to be enqueued.
    pub(crate) fn wake(&mut self, key: SessionKey, id: SendId) -> Notify {
        let now = self.now;
        self.change(key.tenant, id, |send| send.alarm_at = send.deadline_at);
        let enqueue = self.hot.get_mut(&key).and_then(|hot| {
            hot.row.ready_since = Some(now);
            hot.row.ready()
        });
        Notify {
            ready: enqueue,
            owner: None,
        }
    }

    /// Who would have been notified of a change that was made before: the boot that holds the session, or
    /// else the queue.
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

fn settle(call: &mut CallRecord, result: CallResult, now: mainspring_shared::time::Timestamp) {
    call.result = Some(result);
    call.settled_at = Some(now);
    call.waits_on = None;
}
