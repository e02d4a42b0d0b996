//! The port to language models.
//!
//! A [`Model`] makes one attempt and never retries by itself, so that retries are decided in one
//! place, by the send's machine, and every attempt is visible and counted. Every failure is an
//! [`Error`] with a stable code that says whether another attempt makes sense.
//!
//! The crate `mainspring-providers` contains the built-in transports. A custom provider is an
//! implementation of [`Model`] that is passed to [`Providers::insert`]. Only `mainspring/direct` is
//! in this crate: it calls no model but makes one tool call, for the leaves of workflows.

mod calibrations;
mod direct;
mod error;
pub mod json;
mod providers;
mod secret;
mod share;
mod tenant_keys;
mod traced;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::message::{ContentPart, ToolCall};
use mainspring_shared::usage::Usage;

pub use mainspring_shared::model::{
    Calibration, FactsOverride, InBackground, Measured, ModelFacts, Request, ToolSpec,
    estimate_answer_tokens, estimate_message_tokens, estimate_request_tokens, estimate_tokens,
    expect_message_tokens, expect_request_tokens, expect_tokens,
};

pub use self::calibrations::Calibrations;
pub(crate) use self::calibrations::MODELS_MAX;
pub(crate) use self::error::MONEY_IS_RESERVED;
pub use self::error::{Error, Hold, Wait};
pub use self::providers::{InvalidName, Providers, Resolved};
pub use self::secret::Secret;
pub use self::share::Share;
pub(crate) use self::traced::Traced;

/// A chunk of an answer as it arrives. The chunks of one kind, concatenated, are the text of the
/// reply.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Chunk<'a> {
    /// Text of the answer.
    Text(&'a str),
    /// Text of the model's reasoning.
    Reasoning(&'a str),
    /// A part of a call's arguments. It is not in the text of the reply, and nobody is shown it before the call is whole.
    Hidden(&'a str),
    /// No text: what the provider has counted of this answer so far. It may be all that is known if the answer is cut off.
    Counted(Usage),
    /// No text: the provider works on the answer in the background, under this id.
    Background(&'a str),
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// The model finished its answer.
    Stop,
    /// The token limit cut it off: the text, or the arguments of the last call, are incomplete.
    Length,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The model or the provider's filter declined; the text, if any, is its explanation.
    Refused,
    /// The provider paused a long answer, which it goes on with when it is sent back what there is of it.
    Paused,
    /// The provider gave up, for this reason: the answer is not whole.
    Failed(String),
    /// A reason that nobody knows; it is not taken for success.
    Other(String),
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Reasoning and text, usually in this order. Free of U+0000 and of invalid UTF-8, which are
    /// replaced with U+FFFD; the same holds for the calls.
    pub content: Vec<ContentPart>,
    /// The calls in the order in which the model made them. If the provider left out an id, it is
    /// `call_N`, where N is the place in this list: unique in the reply, not in the session.
    pub tool_calls: Vec<ToolCall>,
    /// Why it ended.
    pub finish: Finish,
    /// What it cost; an estimate if the provider did not report it.
    pub usage: Usage,
    /// The model that answered, according to the provider; the requested one if it did not say.
    pub model: String,
}

/// A client for a language model.
#[async_trait]
pub trait Model: Send + Sync + Debug {
    /// Asks once and returns the whole answer. `on_chunk` receives chunks in order as they arrive;
    /// it must not block. A transport that does not stream passes each kind as one chunk.
    ///
    /// Dropping the future ends the attempt and closes its connection. The chunks of a failed
    /// attempt are void: the next attempt starts over. The same request must always be sent as the
    /// same bytes, so that providers can use their prompt caches.
    async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error>;

    /// Cancels an answer that the provider works on in the background. If that is impossible, the
    /// answer is completed in vain.
    async fn abandon(&self, background: &str) -> Result<(), Error> {
        let _ = background;
        Ok(())
    }

    /// Whether the provider enforces [`Request::output`] for this model, in a request with or without
    /// tools, so that the prompt need not mention it. Answers are checked either way.
    fn native_schema(&self, model: &str, tools: bool) -> bool {
        let _ = (model, tools);
        false
    }

    /// Why and for how long a request would be held here before its provider is asked. Changes
    /// nothing.
    fn held(&self, request: &Request) -> Option<(Hold, Duration)> {
        let _ = request;
        None
    }

    /// Whether its provider may cache the beginnings of requests.
    fn keeps_prompts(&self) -> bool {
        true
    }

    /// The media types of audio that its requests can contain; it is never given audio of other
    /// types.
    fn sounds(&self) -> &'static [&'static str] {
        &[]
    }

    /// How to ask it with another key; `None` if it takes none.
    fn keyed(&self) -> Option<&dyn Keyed> {
        None
    }

    /// The request as its provider would get it, as JSON; `None` if there is no such form. Sends
    /// nothing.
    fn wire(&self, request: &Request) -> Option<Result<Vec<u8>, Error>> {
        let _ = request;
        None
    }
}

/// A model that can be asked with keys other than the operator's.
pub trait Keyed: Sync {
    /// The same model with this key. Limits and outages observed under it affect no other key.
    fn with_key(&self, key: &Secret) -> Result<Arc<dyn Model>, Error>;
}

/// An empty request, for tests.
#[cfg(test)]
pub(crate) fn bare_request() -> Request {
    Request {
        model: String::new(),
        system: None,
        messages: Vec::new(),
        max_tokens: 1,
        ..Request::default()
    }
}
