//! What a session noted for itself, for the model at the begin of a send.

use mainspring_shared::list::{ListName, notes_shown};

use super::run::Run;
use crate::tool::Effect;

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
        let mut offered = self.prompt.offers.list().iter();
        if !offered.any(|offer| offer.traits.effect == Effect::Recall) {
            return true;
        }
        let name = ListName::Notes(self.key.session);
        let tenant = self.key.tenant;
        let store = &self.kernel.parts.store;
        let read = self
            .patience()
            .ask(|| store.read_list(tenant, name.clone()));
        let Some(list) = read.await else {
            return false;
        };
        let shown = self.bill.totals.shown.get_or_insert_default();
        shown.notes = notes_shown(&list.entries, NOTES_CHARS_MAX);
        true
    }
}
