//! Recording the decisions of the session machine.

use mainspring_shared::id::SessionKey;
use mainspring_shared::message::NewMessage;
use mainspring_shared::session::hot::{HotRow, SendState};
use mainspring_shared::session::transition::{Change, Notify};

use super::Ledger;

impl Ledger {
    /// The row of a locked session, as the session machine sees it.
    pub(crate) fn row(&self, key: SessionKey) -> Option<&HotRow> {
        self.hot.get(&key).map(|hot| &hot.row)
    }

    /// The head of a locked session. Requires `read_heads`.
    pub(crate) fn head(&self, key: SessionKey) -> Option<SendState> {
        let heads = self.heads.get(&key)?;
        let head = self.sends.get(&(key.tenant, heads.first));
        head.map(SendState::of)
    }

    /// Records a change of a locked session, to be written with everything else. Returns whom to
    /// notify once it is committed.
    pub(crate) fn commit(&mut self, change: Change) -> Notify {
        self.commit_with(change, Vec::new())
    }

    /// Records a change with the messages of its step.
    pub(super) fn commit_with(&mut self, change: Change, messages: Vec<NewMessage>) -> Notify {
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
