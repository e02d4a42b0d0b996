//! Projections of ended sends, for agents that show digests: they are stored with the end of a
//! send. Where the model needs more than a projection in the window, the messages are read.

use std::sync::Arc;

use mainspring_shared::message::NewMessage;
use mainspring_shared::session::fold;
use mainspring_shared::session::projection::{Projection, to_store};
use mainspring_shared::session::render;
use mainspring_shared::time::Timestamp;

use super::load;
use super::run::Run;
use crate::session::read_messages;

impl Run<'_> {
    /// Reads the messages if the window has less than the model is shown. Returns false as
    /// `read_whole` does.
    pub(super) async fn read_lacking(&mut self) -> bool {
        let from = load::window_from(&self.bill.totals);
        let (send, context) = (self.send.record.id, &self.send.agent.context);
        render::has_all(self.prompt.window, from, send, context) || self.read_whole().await
    }

    /// Reads the messages that the window has projections for. Returns false if the database does
    /// not have all of them, or the lease is lost.
    pub(super) async fn read_whole(&mut self) -> bool {
        let from = load::window_from(&self.bill.totals);
        if self.prompt.window.projections(from).is_empty() && !self.prompt.window.cuts(from) {
            return true;
        }
        let begin = fold::begin(from, self.prompt.window.fold_end());
        let next_seq = self.prompt.window.next_seq();
        let (store, key) = (self.kernel.parts.store.as_ref(), self.send.record.key);
        let read = self
            .db_retry()
            .ask(|| read_messages(store, key, begin, next_seq));
        let Some(Some(read)) = read.await else {
            return false;
        };
        self.prompt.window.replace(read);
        true
    }

    /// The projections to store with the end of the send, whose last messages are `last`, and the
    /// message up to which all sends of the window have a projection then. None for an agent that
    /// shows no digests.
    pub(super) fn projections(&self, last: &[NewMessage]) -> (Vec<Projection>, i64) {
        let context = &self.send.agent.context;
        let window = &*self.prompt.window;
        if !context.representation.is_stored() {
            return (Vec::new(), window.projected_to());
        }
        let send = self.send.record.id;
        let last = last.iter().zip(window.next_seq()..);
        let last = last.map(|(message, seq)| message.clone().at(seq, send, Timestamp(0), 0));
        let from = load::window_from(&self.bill.totals);
        let said = window.active(from);
        let stored_to = window.projected_to();
        let lacks = said.partition_point(|message| message.seq <= stored_to);
        let is_cut = context.last_messages.is_some() && lacks == 0;
        let said = said[lacks..].iter().cloned();
        let said: Vec<_> = said.chain(last.map(Arc::new)).collect();
        to_store(&said, stored_to, is_cut)
    }
}
