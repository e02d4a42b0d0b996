//! What the end of a send writes in addition to the session machine's decision.

use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::transition::{Change, Notify};
use mainspring_shared::tool::{answers, cancelled_call};

use super::Ledger;

impl Ledger {
    /// Records a change that does not come from the send's worker. If it ends a send that had
    /// started, open calls are settled as cancelled and answered, the input becomes a message
    /// unless the transcript already has messages of the send, and the cost of a dead worker's call
    /// is recorded. Requires `read_last`.
    pub(crate) fn settle(&mut self, change: Change) -> Notify {
        let key = change.hot.key;
        let ended = change.send.filter(|_| change.end.is_some());
        let Some(id) = ended.map(|send| send.id) else {
            return self.commit(change);
        };
        let place = (key.tenant, id);
        let has_begun = |send: &&mut SendRecord| send.status != SendStatus::Queued;
        let Some(send) = self.sends.get_mut(&place).filter(has_begun) else {
            return self.commit(change);
        };
        let paid = send.bill_crashed_call();
        let input = NewMessage::user(send.effective_input().to_vec(), 0);
        self.writes.paid.extend(paid.map(|row| (key, id, row)));
        let mut messages = self.end_calls(key, id);
        if self.last.get(&key).is_none_or(|last| last.send != id) {
            messages.push(input);
        }
        self.commit_with(change, messages)
    }

    /// Records a change that ends a send under its worker's lease. Open calls are settled as
    /// cancelled and answered. Requires `read_last`.
    pub(crate) fn settle_leased(&mut self, change: Change) -> Notify {
        let messages = match change.send {
            Some(send) => self.end_calls(change.hot.key, send.id),
            None => Vec::new(),
        };
        self.commit_with(change, messages)
    }

    /// Settles the open calls of the round in which a send ends; returns the results that the
    /// transcript lacks, as messages.
    fn end_calls(&mut self, key: SessionKey, id: SendId) -> Vec<NewMessage> {
        let last = self.last.get(&key);
        let Some(last) = last.filter(|last| last.asks && last.send == id) else {
            return Vec::new();
        };
        let round = last.round_of(key);
        self.settle_all(round, |call| call.result.is_none(), &cancelled_call());
        let calls = self.rounds.get(&round);
        let answers = calls.and_then(|calls| answers(calls));
        answers.unwrap_or_default()
    }
}
