//! What a session noted for itself, for the model at the begin of a send.

use mainspring_shared::id::SessionKey;
use mainspring_shared::list::{ListName, notes_shown};
use mainspring_shared::store::{Result, Store};

use super::run::Run;
use crate::tool::{Effect, Offers};

/// Characters of notes that the model is shown; pinned ones always.
const NOTES_CHARS_MAX: usize = 8_000;

impl Run<'_> {
    /// Reads the notes of an agent that has the tools for them. False when the database does not
    /// say.
    pub(super) async fn recall(&mut self) -> bool {
        if self.send.record.shown.is_some() {
            // Whatever was noted since, the model is shown what it was shown before.
            return true;
        }
        if !keeps_notes(&self.prompt.offers) {
            return true;
        }
        let store = &self.kernel.parts.store;
        let read = self
            .patience()
            .ask(|| read_notes(store.as_ref(), self.send.record.key));
        let Some(notes) = read.await else {
            return false;
        };
        let shown = self.bill.totals.shown.get_or_insert_default();
        shown.notes = notes;
        true
    }
}

/// Whether an agent with these tools is shown the session's notes.
pub(crate) fn keeps_notes(offers: &Offers) -> bool {
    let mut offered = offers.list().iter();
    offered.any(|offer| offer.traits.effect == Effect::Recall)
}

/// The notes of a session, as its model is shown them.
pub(crate) async fn read_notes(store: &dyn Store, key: SessionKey) -> Result<Option<String>> {
    let name = ListName::Notes(key.session);
    let list = store.read_list(key.tenant, name).await?;
    Ok(notes_shown(&list.entries, NOTES_CHARS_MAX))
}
