//! Answers that a provider works on whether or not anybody waits for them: what they are called is stored
//! as soon as it is known, so that whoever takes the send over takes the answer up, too.
//!
//! A worker that dies before that is stored leaves an answer that nobody takes up; its send is answered
//! anew, as without a background. One that dies later loses nothing: the answer is read once more from its
//! beginning, and paid for once, by who stores it.

use mainspring_shared::model::InBackground;
use mainspring_shared::send::machine::Event;
use mainspring_shared::session::shown::Background;
use tokio::sync::oneshot;

use super::run::Run;
use crate::llm::Resolved;

impl Run<'_> {
    /// Whether the present question is asked in the background: it may be, or is answered already. An answer
    /// of another model's, or to another question, is wanted no more.
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

    /// Stores what the provider calls the answer that it works on. An event when that did not work.
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

    /// There is no such answer any more. What is stored says so with the next step.
    pub(super) fn forget_background(&mut self) -> Option<Background> {
        self.asking.background = None;
        self.bill.note_background(None)
    }

    /// Leaves the answer to the next worker, who pays for all of it.
    pub(super) fn leave_background(&mut self, open: Background) {
        self.bill.note_background(Some(open));
        self.asking.call = None;
        self.asking.asked = None;
        self.hold.owed().asked = None;
    }

    /// Lets the provider know that nobody wants the answer.
    pub(super) fn abandon(&self, open: Background) {
        let model = format!("{}/{}", open.provider, open.model);
        // A provider that is configured no more cannot be told.
        let Ok(resolved) = self.kernel.parts.providers.resolve(Some(&model)) else {
            return;
        };
        let client = self.client(&resolved);
        self.kernel.lifecycle.spawn(async move {
            if let Err(error) = client.abandon(&open.id).await {
                tracing::info!(%error, "an answer in the background could not be cancelled");
            }
        });
    }
}

/// What the provider calls the answer, once it says so.
pub(super) async fn told(background: &mut Option<oneshot::Receiver<String>>) -> String {
    let said = match background {
        Some(receiver) => receiver.await.ok(),
        None => None,
    };
    // A receiver must not be asked again once it has answered.
    *background = None;
    match said {
        Some(id) => id,
        // The call is over without it, which is for others to find.
        None => std::future::pending().await,
    }
}
