//! The port to language models.
//!
//! A [`Model`] makes one attempt: it never tries again by itself, so that retries are decided in
//! one place, by the send's machine, and every attempt is seen and counted. Everything that can go
//! wrong is an [`Error`] with a stable code that says whether another attempt makes sense.
//!
//! The crate `mainspring-providers` has the transports that ship. A provider of one's own is an
//! implementation of [`Model`] given to [`Providers::insert`]. Only `mainspring/direct` is here: no
//! model, one tool call, for the leaves of workflows.

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

/// A piece of an answer while it arrives. Pieces of one kind, joined, are the text of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// Said to the user.
    Text(&'a str),
    /// Thought aloud.
    Reasoning(&'a str),
    /// Nothing said: the provider works on the answer even when nobody waits for it, and calls it so.
    Background(&'a str),
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// The model had said what it had to say.
    Stop,
    /// The bound on tokens cut it: the text, or the arguments of the last call, are incomplete.
    Length,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The model or the provider's filter declined; the text, if any, is its explanation.
    Refused,
    /// A reason of the provider's own.
    Other(String),
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Reasoning and text, as a rule in this order. Free of U+0000 and of invalid UTF-8, both of
    /// which arrive as U+FFFD; this holds for the calls as well.
    pub content: Vec<ContentPart>,
    /// The calls in the order in which the model made them. An id that the provider left out
    /// reads `call_N`, N being the place in this list: unique in the reply, not in the session.
    pub tool_calls: Vec<ToolCall>,
    /// Why it ended.
    pub finish: Finish,
    /// What it cost, an estimate when the provider did not say.
    pub usage: Usage,
    /// The model that answered, by the provider's word; the one asked for when it gave none.
    pub model: String,
}

/// A way to a language model.
#[async_trait]
pub trait Model: Send + Sync + Debug {
    /// Asks once and returns the whole answer. `on_chunk` hears pieces as they arrive, in order;
    /// it must not block. A transport that does not stream gives each kind in one piece.
    ///
    /// Dropping the future ends the attempt and closes its connection. What was heard of an
    /// attempt that fails is void: the next attempt starts anew. The same request is always sent
    /// as the same bytes, so that providers can serve their caches.
    async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error>;

    /// Nobody wants this answer any more that the provider works on in the background. Where it cannot be
    /// told, it finishes in vain.
    async fn abandon(&self, background: &str) -> Result<(), Error> {
        let _ = background;
        Ok(())
    }

    /// Whether the provider holds the model to [`Request::output`], so that no words about it are
    /// needed. Answers are checked either way.
    fn native_schema(&self) -> bool {
        false
    }

    /// What would hold a request back here before its provider is asked, and for how long. Changes nothing.
    fn held(&self, request: &Request) -> Option<(Hold, Duration)> {
        let _ = request;
        None
    }

    /// Whether its provider may keep the beginnings of requests in a cache.
    fn keeps_prompts(&self) -> bool {
        true
    }

    /// The media types of sound that there is a form for in its requests; files of others are never given
    /// to it.
    fn sounds(&self) -> &'static [&'static str] {
        &[]
    }

    /// How to ask it with another key; none where it takes none.
    fn keyed(&self) -> Option<&dyn Keyed> {
        None
    }

    /// The request as its provider would get it, as JSON; none where there is no such form. Asks nobody.
    fn wire(&self, request: &Request) -> Option<Result<Vec<u8>, Error>> {
        let _ = request;
        None
    }
}

/// A model that can be asked with other keys than the operator's.
pub trait Keyed: Sync {
    /// The same model with this key. What is learned of limits and outages under it concerns no other key.
    fn with_key(&self, key: &Secret) -> Result<Arc<dyn Model>, Error>;
}

/// A request that says nothing, for tests.
#[cfg(test)]
pub(crate) fn bare_request() -> Request {
    Request {
        model: String::new(),
        system: None,
        messages: Vec::new(),
        max_tokens: 1,
        settled: 0,
        settled_before: None,
        background: InBackground::No,
        tail: None,
        cache_key: None,
        temperature: None,
        top_p: None,
        stop: Vec::new(),
        reasoning_effort: None,
        thinking_tokens: None,
        adaptive: false,
        images_max_edge: None,
        tools: Vec::new(),
        output: None,
    }
}
