//! What changes calls and inboxes from outside of a send's work.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::inbox::{Fate, InboxItem, ItemKind};
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::{SendRecord, SendStatus, WaitingOn};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT, SIGNAL_RESULT};
use mainspring_shared::store::ReadySession;
use mainspring_shared::tool::{CallRecord, CallResult, interrupted_call};

use super::write::ItemRow;
use super::{Hot, Ledger, RoundKey};

/// Who is to hear of a change: the queue, or this boot by a signal.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) enqueue: Option<ReadySession>,
    pub(crate) owner: Option<BootId>,
}

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

    /// Changes a call of a round that was read, and tells its send.
    pub(crate) fn change_call(
        &mut self,
        key: SessionKey,
        round: RoundKey,
        call_id: &str,
        change: impl FnOnce(&mut CallRecord),
    ) -> Told {
        let calls = self.rounds.get_mut(&round);
        let call = calls.and_then(|calls| calls.iter_mut().find(|c| c.call_id == call_id));
        let Some(call) = call else {
            return Told::default();
        };
        change(call);
        self.writes.settled.insert((round, call.place));
        self.tell_of_result(key, round)
    }

    /// Gives a call of a round that was read its result, and tells its send.
    pub(crate) fn settle_call(
        &mut self,
        key: SessionKey,
        round: RoundKey,
        call_id: &str,
        result: CallResult,
    ) -> Told {
        let now = self.now;
        self.change_call(key, round, call_id, |call| settle(call, result, now))
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

    /// Tells the session's send, if the round is its own: a running one by a signal, a waiting one
    /// by going on once none of the round's calls waits any more.
    fn tell_of_result(&mut self, key: SessionKey, round: RoundKey) -> Told {
        let active = self.active(key).filter(|send| send.id == round.send);
        let Some((status, on)) = active.map(|send| (send.status, send.waiting_on)) else {
            return Told::default();
        };
        let owner = self.raise(key, SIGNAL_RESULT);
        if status == SendStatus::Running {
            return Told {
                enqueue: None,
                owner,
            };
        }
        let for_calls = matches!(
            on,
            Some(WaitingOn::Tool | WaitingOn::Human | WaitingOn::Agent | WaitingOn::Run)
        );
        let mut calls = self.rounds.get(&round).into_iter().flatten();
        if for_calls && calls.all(|call| call.waits_on.is_none()) {
            return self.wake(key, round.send);
        }
        Told::default()
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
    pub(crate) fn tell_of_item(&mut self, key: SessionKey, mode: OnBusy) -> Told {
        let interrupts = mode == OnBusy::Interrupt;
        let signals = if interrupts {
            SIGNAL_INBOX | SIGNAL_INTERRUPT
        } else {
            SIGNAL_INBOX
        };
        let owner = self.raise(key, signals);
        let Some(active) = self.active(key) else {
            return Told::default();
        };
        let id = active.id;
        match active.waiting_on {
            None => Told {
                enqueue: None,
                owner,
            },
            Some(WaitingOn::Retry | WaitingOn::Timer) => self.wake(key, id),
            Some(WaitingOn::Recovery) => Told::default(),
            Some(WaitingOn::Tool | WaitingOn::Human | WaitingOn::Agent | WaitingOn::Run) => {
                if !interrupts {
                    return Told::default();
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
    pub(crate) fn wake(&mut self, key: SessionKey, id: SendId) -> Told {
        let now = self.now;
        self.change(key.tenant, id, |send| send.alarm_at = send.deadline_at);
        let enqueue = self.hot.get_mut(&key).and_then(|hot| {
            hot.row.ready_since = Some(now);
            hot.row.ready()
        });
        Told {
            enqueue,
            owner: None,
        }
    }

    /// Who would have been told of a change that was made before: the boot that holds the session, or
    /// else the queue.
    pub(crate) fn told_before(&self, key: SessionKey) -> Told {
        let Some(hot) = self.hot.get(&key) else {
            return Told::default();
        };
        Told {
            enqueue: hot.row.ready().filter(|_| hot.row.owner.is_none()),
            owner: hot.row.owner,
        }
    }
}

fn settle(call: &mut CallRecord, result: CallResult, now: mainspring_shared::time::Timestamp) {
    call.result = Some(result);
    call.settled_at = Some(now);
    call.waits_on = None;
}
