//! Answers that a provider produces in the background, whether or not anybody waits for them. The
//! answer's id is stored as soon as it is known, so that a worker that takes the send over can take
//! up the answer, too.
//!
//! If the worker crashes before that, the answer is orphaned and the send is answered again, as
//! without a background call. If it crashes later, nothing is lost: the next worker reads the
//! answer again from its beginning, and the worker that stores it pays for it once.

use mainspring_shared::model::InBackground;
use mainspring_shared::send::machine::Event;
use mainspring_shared::session::shown::Background;
use tokio::sync::oneshot;

use super::run::Run;
use crate::llm::Resolved;

impl Run<'_> {
    /// How to ask the current question in the background: start a new answer, or take up the one
    /// that exists. An answer from another model or to another question is abandoned.
    pub(super) fn in_background(&mut self, round: i32, resolved: &Resolved) -> InBackground {
        let Some(open) = self.bill.note_background(None) else {
            return InBackground::Allowed;
        };
        let is_its = open.round == round
            && *open.provider == *resolved.provider
            && open.model == resolved.model;
        if !is_its {
            self.abandon(open);
            return InBackground::Allowed;
        }
        let id = open.id.clone();
        self.bill.note_background(Some(open));
        InBackground::TakenUp(id)
    }

    /// Stores the provider's id of the background answer. Returns an event if that failed.
    pub(super) async fn note_background(&mut self, id: String) -> Option<Event> {
        let asked = self.asking.asked.as_ref()?;
        let open = Background {
            round: self.bill.totals.rounds,
            provider: asked.provider.to_string(),
            model: asked.request.model.clone(),
            id,
        };
        self.bill.note_background(Some(open));
        self.store_changes(Vec::new()).await
    }

    /// Forgets the background answer. The next step stores that.
    pub(super) fn forget_background(&mut self) -> Option<Background> {
        self.asking.background = None;
        self.bill.note_background(None)
    }

    /// Leaves the answer to the next worker, which pays for all of it.
    pub(super) fn leave_background(&mut self, open: Background) {
        self.bill.note_background(Some(open));
        self.asking.call = None;
        self.asking.asked = None;
        self.lease_state.owed().asked = None;
    }

    /// Tells the provider that the answer is not wanted.
    pub(super) fn abandon(&self, open: Background) {
        let model = format!("{}/{}", open.provider, open.model);
        // A provider that is not configured any longer cannot be told.
        let Ok(resolved) = self.kernel.parts.providers.resolve(Some(&model)) else {
            return;
        };
        let client = self.client(&resolved);
        self.kernel.lifecycle.spawn(async move {
            if let Err(error) = client.abandon(&open.id).await {
                tracing::info!(%error, "could not cancel a background answer");
            }
        });
    }
}

/// The provider's id of the answer, once it is known.
pub(super) async fn told(background: &mut Option<oneshot::Receiver<String>>) -> String {
    let said = match background {
        Some(receiver) => receiver.await.ok(),
        None => None,
    };
    // A receiver must not be polled again once it has completed.
    *background = None;
    match said {
        Some(id) => id,
        // The call ended without an id; its result is handled elsewhere.
        None => std::future::pending().await,
    }
}
