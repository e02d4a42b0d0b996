//! Saving the notes of a fold: calls of the session's own tools, made once the fold is attached.

use std::sync::Arc;

use mainspring_shared::id::BootId;
use mainspring_shared::memory::Account;
use mainspring_shared::message::ToolCall;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::Kernel;
use crate::hook::{self, At};
use crate::tool::{Executor, Invocation, Offers, Skills};

/// What saving the notes of a fold needs.
pub(crate) struct Notebook {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) at: At,
    pub(crate) boot: BootId,
    /// The tools of the send.
    pub(crate) offers: Offers,
    /// Stops a call.
    pub(crate) stop: CancellationToken,
}

impl Notebook {
    /// Makes the calls that save the notes of the fold numbered `fold`, within the tools' own
    /// limits. A note that cannot be saved is just missing.
    pub(crate) async fn save(&self, notes: Vec<ToolCall>, fold: i64) {
        for (place, call) in notes.into_iter().enumerate() {
            self.save_one(call, fold, place).await;
        }
    }

    async fn save_one(&self, call: ToolCall, fold: i64, place: usize) {
        let hooks = &self.kernel.parts.hooks;
        let Some(offer) = self.offers.get(&call.name) else {
            return;
        };
        let Executor::Here(tool) = &offer.place else {
            return;
        };
        let Ok(arguments) = offer.checked(&call.arguments) else {
            return;
        };
        let mut asked = hook::ToolCall {
            call_id: format!("fold_{}_{fold}_{place}", self.at.session.session),
            name: call.name.clone(),
            said: None,
            arguments,
        };
        if !hooks.is_empty() && hooks.before_tool(self.at, &mut asked).await.is_some() {
            return;
        }
        let Ok(arguments) = offer.checked(&Value::Object(asked.arguments)) else {
            return;
        };
        let invocation = Invocation {
            call_id: asked.call_id,
            said: None,
            arguments,
            session: self.at.session,
            send_id: self.at.send,
            boot: self.boot,
            attempt: 1,
            stop: self.stop.clone(),
            skills: Skills::default(),
            account: Account::default(),
            progress: crate::tool::Progress::default(),
            kept: crate::tool::Kept::default(),
            inquiring: crate::tool::Inquiring::default(),
        };
        if let Err(error) = tool.call(invocation).await {
            tracing::warn!(send.id = %self.at.send, %error, "could not save a note of a fold");
        }
    }
}
