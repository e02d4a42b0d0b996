//! A session's own lists, for the model at the start of a send: its notes and its to-do list.

use mainspring_shared::id::SessionKey;
use mainspring_shared::list::{ListName, notes_shown, todo_shown};
use mainspring_shared::session::shown::Shown;
use mainspring_shared::store::{Result, Store};

use super::run::Run;
use crate::tool::{Effect, Offers};

/// Maximum characters of notes that the model is shown; pinned ones are always shown.
const NOTES_CHARS_MAX: usize = 8_000;

impl Run<'_> {
    /// Reads the lists of an agent that has the tools for them. Returns false if the database does
    /// not answer.
    pub(super) async fn recall(&mut self) -> bool {
        if self.send.record.shown.is_some() {
            // The model is shown the same as before, whatever was noted since.
            return true;
        }
        let own = OwnLists::of(&self.prompt.offers);
        if own == OwnLists::default() {
            return true;
        }
        let store = &self.kernel.parts.store;
        let read = self
            .db_retry()
            .ask(|| own.read(store.as_ref(), self.send.record.key));
        let Some(texts) = read.await else {
            return false;
        };
        texts.show(self.bill.totals.shown.get_or_insert_default());
        true
    }
}

/// Which of its session's lists an agent is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct OwnLists {
    notes: bool,
    todo: bool,
}

/// The texts of a session's lists, as its model is shown them.
#[derive(Debug, Default)]
pub(crate) struct OwnTexts {
    notes: Option<String>,
    todo: Option<String>,
}

impl OwnLists {
    /// The lists of an agent with these tools.
    pub(crate) fn of(offers: &Offers) -> Self {
        let has = |effect| offers.list().iter().any(|it| it.traits.effect == effect);
        Self {
            notes: has(Effect::Recall),
            todo: has(Effect::RecallTodo),
        }
    }

    /// Reads the lists.
    pub(crate) async fn read(self, store: &dyn Store, key: SessionKey) -> Result<OwnTexts> {
        let mut texts = OwnTexts::default();
        if self.notes {
            let list = store.read_list(key.tenant, ListName::Notes(key.session));
            texts.notes = notes_shown(&list.await?.entries, NOTES_CHARS_MAX);
        }
        if self.todo {
            let list = store.read_list(key.tenant, ListName::Todo(key.session));
            texts.todo = todo_shown(&list.await?.entries);
        }
        Ok(texts)
    }
}

impl OwnTexts {
    /// Stores them in what the send is shown.
    pub(crate) fn show(self, shown: &mut Shown) {
        shown.notes = self.notes;
        shown.todo = self.todo;
    }
}
