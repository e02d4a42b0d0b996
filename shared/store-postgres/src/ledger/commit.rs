//! Taking over what the session machine decided.

use mainspring_shared::id::SessionKey;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::hot::{HotRow, SendState};
use mainspring_shared::session::transition::{Change, Notify};

use super::Ledger;

impl Ledger {
    /// The row of a locked session, as the machine sees it.
    pub(crate) fn row(&self, key: SessionKey) -> Option<&HotRow> {
        self.hot.get(&key).map(|hot| &hot.row)
    }

    /// The head of a locked session; the heads have to be read.
    pub(crate) fn head(&self, key: SessionKey) -> Option<SendState> {
        self.absorbing(key).map(SendState::of)
    }

    /// Takes over a change of a locked session, to be written with everything else. Returns who is to be
    /// notified once that is committed.
    pub(crate) fn commit(&mut self, change: Change) -> Notify {
        self.commit_with(change, Vec::new())
    }

    /// Takes over a change that comes from nobody who runs the send. Where it ends one that had begun, the
    /// calls that it left open are ended and answered, its input becomes a message if nothing of the send is
    /// in the transcript yet, and what a call of a dead worker cost is entered. The last messages have to be
    /// read.
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
        let paid = send.pay_for_the_dead();
        let input = NewMessage::user(send.words().to_vec(), 0);
        self.writes.paid.extend(paid.map(|row| (key, id, row)));
        let mut messages = self.end_calls(key, id);
        if self.last.get(&key).is_none_or(|last| last.send != id) {
            messages.push(input);
        }
        self.commit_with(change, messages)
    }

    /// Takes over a change with the messages that belong to its step.
    fn commit_with(&mut self, change: Change, messages: Vec<NewMessage>) -> Notify {
        let key = change.hot.key;
        let first_seq = change.hot.next_seq;
        let change = change.with_messages(messages.len() as u32);
        if let Some(step) = change.step {
            for (seq, message) in (first_seq..).zip(messages) {
                let message = message.at(seq, step.send_id, step.at, step.epoch);
                self.writes.messages.push((key, message));
            }
            self.writes.steps.push((key, step));
        }
        let (state, end) = (change.send, change.end);
        let before = state.and_then(|state| self.sends.get(&(key.tenant, state.id)));
        let was_active = before.is_some_and(|send| SendState::of(send).is_active());
        if let Some(state) = state {
            self.change(key.tenant, state.id, |send| {
                state.store_in(send);
                if let Some(end) = end {
                    send.stop_reason = Some(end.stop_reason);
                    send.output_text = end.output_text;
                    send.output = end.output;
                    send.error = end.error;
                }
            });
        }
        if let Some(hot) = self.hot.get_mut(&key) {
            hot.row = change.hot;
            match state {
                Some(state) if state.is_active() => hot.active = Some(state.status),
                Some(_) if was_active => hot.active = None,
                Some(_) | None => {}
            }
        }
        change.notify
    }
}
