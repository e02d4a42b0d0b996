//! The session's inbox, as read by the run of its send.

use mainspring_shared::inbox::InboxItem;
use mainspring_shared::store::ReadInbox;

use super::lease_state::Inbox;
use super::run::Run;

/// Maximum number of inbox items that one round tells the model.
const ITEMS_MAX: u32 = 64;

impl Run<'_> {
    pub(super) fn pending_items(&self) -> ReadInbox {
        ReadInbox {
            key: self.send.record.key,
            pending: true,
            after: 0,
            limit: ITEMS_MAX,
        }
    }

    /// Whether the inbox has something that the model is not about to be told.
    pub(super) async fn has_news(&mut self) -> bool {
        let read = self.kernel.parts.store.read_inbox(self.pending_items());
        // If this read fails, the next lease renewal brings the signal again.
        let items = read.await.unwrap_or_default();
        let news = self.prompt.pending_messages.lacks(&items);
        if news {
            self.lease_state.inbox = Inbox::Raised;
        }
        news
    }

    /// Whether a read of the inbox may have left items behind.
    pub(super) fn is_full(&self, items: &[InboxItem]) -> bool {
        items.len() >= self.pending_items().limit as usize
    }

    /// Whether the inbox has something that the model was not told; `None` if the database does not
    /// answer.
    pub(super) async fn lacks_words(&mut self) -> Option<bool> {
        let query = self.pending_items();
        let store = &self.kernel.parts.store;
        let items = self.db_retry().ask(|| store.read_inbox(query)).await?;
        Some(self.is_full(&items) || self.prompt.pending_messages.lacks(&items))
    }

    /// Reads the inbox for the round that begins. Returns false if the database does not answer.
    pub(super) async fn gather(&mut self, round: i32) -> bool {
        let query = self.pending_items();
        let store = &self.kernel.parts.store;
        let Some(items) = self.db_retry().ask(|| store.read_inbox(query)).await else {
            return false;
        };
        // What did not fit comes with the next round.
        let fits = !self.is_full(&items);
        let new = self.prompt.pending_messages.new_of(items);
        if !self.roll_up_items(&new).await {
            self.lease_state.inbox = Inbox::Lowered;
            return false;
        }
        self.lease_state.inbox = if fits { Inbox::Known } else { Inbox::Lowered };
        self.prompt
            .pending_messages
            .items(new, self.send.record.id, round);
        true
    }
}
