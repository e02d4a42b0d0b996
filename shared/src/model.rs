//! What a language model is asked, in the words of no provider.
//!
//! [`session::render`](crate::session::render) makes a [`Request`] from rows; the transports of the
//! worker translate it. Its [`digest`](Request::digest) identifies what the model was shown.

mod calibration;
mod digest;
mod estimate;
mod facts;
mod measured;

use std::sync::Arc;

use serde_json::Value;

use crate::agent::{OutputSpec, ReasoningEffort};
use crate::message::Message;

pub use self::calibration::Calibration;
pub use self::digest::{Digest, InvalidDigest};
pub use self::estimate::{
    estimate_answer_tokens, estimate_message_tokens, estimate_request_tokens, estimate_tokens,
    expect_message_tokens, expect_request_tokens, expect_tokens, expect_tool_tokens,
};
pub use self::facts::{FactsOverride, Medium, ModelFacts, Takes, Thinking};
pub use self::measured::Measured;

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

/// Whether a provider may work on an answer while nobody is connected, where its transport can ask for that.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum InBackground {
    /// It may not: nobody would take the answer up, or tell that it is wanted no more.
    #[default]
    No,
    /// It may: whoever asks keeps what the provider calls the answer.
    Allowed,
    /// It already does, and calls the answer so: that is taken up instead of asking again.
    TakenUp(String),
}

/// What one attempt asks.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The model's name as the provider knows it, without the provider's own name.
    pub model: String,
    /// Said before the transcript.
    pub system: Option<String>,
    /// The folds, then the active window in the order of `seq`. Never copied: transports serialize
    /// from here.
    pub messages: Vec<Arc<Message>>,
    /// How many of the messages, from the first on, have the form that they keep: up to the last fold,
    /// digest or forgotten result. When more of them change, all behind these does, so a provider's
    /// cache is to keep the request up to here.
    pub settled: usize,
    /// How many of them had that form in the request before, where it belongs to an earlier send and more do now: a
    /// provider's cache has this request up to there, and no further.
    pub settled_before: Option<usize>,
    /// The most tokens that the answer may have.
    pub max_tokens: u32,
    /// What is shown behind the last message, as the end of the user's turn: it belongs to no
    /// message, and the next send is shown another one. Whatever changes from send to send stands
    /// here, so that all before it stays as it is and is served from the provider's prompt cache.
    pub tail: Option<String>,
    /// Tells the provider which requests begin alike; nothing, where that is nobody's.
    pub cache_key: Option<String>,
    /// Whether the provider may work on the answer while nobody is connected.
    pub background: InBackground,
    /// Passed on as it is; the provider's default when absent.
    pub temperature: Option<f64>,
    /// Passed on as it is; the provider's default when absent.
    pub top_p: Option<f64>,
    /// Texts that end the answer before them.
    pub stop: Vec<String>,
    /// How much the model is to think, where the provider takes it.
    pub reasoning_effort: Option<ReasoningEffort>,
    /// How many tokens of the answer may be thought, where the provider takes a number.
    pub thinking_tokens: Option<u32>,
    /// See [`ModelFacts::adaptive`].
    pub adaptive: bool,
    /// The tools on offer, in the order in which the model sees them.
    pub tools: Vec<Arc<ToolSpec>>,
    /// The longest edge of pictures that are here or among the blobs: larger ones are scaled down before
    /// the transport gets them. As they are when absent.
    pub images_max_edge: Option<u32>,
    /// The shape of the final answer. Unless the model's facts say that its provider enforces it, it
    /// is in the system prompt or the tail, too, and a transport need not do anything about it.
    pub output: Option<Arc<OutputSpec>>,
}
