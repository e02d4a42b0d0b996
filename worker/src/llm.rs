//! The port to language models.
//!
//! A [`Model`] makes one attempt: it never tries again by itself, so that retries are decided in
//! one place, by the send's machine, and every attempt is seen and counted. Everything that can go
//! wrong is an [`Error`] with a stable code that says whether another attempt makes sense.
//!
//! The crate `mainspring-providers` has the transports that ship. A provider of one's own is an
//! implementation of [`Model`] given to [`Providers::insert`]. Only `mainspring/direct` is here: no
//! model, one tool call, for the leaves of workflows.

mod direct;
mod error;
mod estimate;
pub mod json;
mod providers;
mod secret;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::agent::{OutputSpec, ReasoningEffort};
use mainspring_shared::message::{ContentPart, Message, ToolCall};
use mainspring_shared::usage::Usage;
use serde_json::Value;

pub use self::error::{Error, Wait};
pub use self::estimate::{
    estimate_answer_tokens, estimate_message_tokens, estimate_request_tokens, estimate_tokens,
};
pub use self::providers::{InvalidName, Providers, Resolved};
pub use self::secret::Secret;

/// A tool on offer.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// The name that the model calls it by.
    pub name: String,
    /// What the model is told about it.
    pub description: String,
    /// The JSON Schema of its arguments; anything but an object means "any object".
    pub parameters: Value,
}

/// What one attempt asks.
#[derive(Debug, Clone)]
pub struct Request {
    /// The model's name as the provider knows it, without the provider's own name.
    pub model: String,
    /// Said before the transcript.
    pub system: Option<String>,
    /// The active window in the order of `seq`. Never copied: transports serialize from here.
    pub messages: Vec<Arc<Message>>,
    /// The most tokens that the answer may have.
    pub max_tokens: u32,
    /// What is shown behind the last message, as the end of the user's turn: it belongs to no
    /// message, and the next send is shown another one. Whatever changes from send to send stands
    /// here, so that all before it stays as it is and is served from the provider's prompt cache.
    pub tail: Option<String>,
    /// Tells the provider which requests begin alike; nothing, where that is nobody's.
    pub cache_key: Option<String>,
    /// Passed on as it is; the provider's default when absent.
    pub temperature: Option<f64>,
    /// Passed on as it is; the provider's default when absent.
    pub top_p: Option<f64>,
    /// Texts that end the answer before them.
    pub stop: Vec<String>,
    /// How much the model is to think, where the provider takes it.
    pub reasoning_effort: Option<ReasoningEffort>,
    /// The tools on offer, in the order in which the model sees them.
    pub tools: Vec<Arc<ToolSpec>>,
    /// The shape of the final answer. Unless [`Model::native_schema`] says otherwise it is in the
    /// system prompt or the tail, too, and a transport need not do anything about it.
    pub output: Option<Arc<OutputSpec>>,
}

/// A piece of an answer while it arrives. Pieces of one kind, joined, are the text of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// Said to the user.
    Text(&'a str),
    /// Thought aloud.
    Reasoning(&'a str),
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

    /// Whether the provider holds the model to [`Request::output`], so that no words about it are
    /// needed. Answers are checked either way.
    fn native_schema(&self) -> bool {
        false
    }
}
