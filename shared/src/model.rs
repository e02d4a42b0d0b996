//! Requests to a language model, independent of any provider.
//!
//! [`session::render`](crate::session::render) makes a [`Request`] from rows; the transports of the
//! worker translate it. Its [`digest`](Request::digest) identifies what the model was shown.

mod calibration;
mod digest;
mod estimate;
mod facts;
mod measured;
mod names;
mod published;

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::agent::{OutputSpec, ReasoningEffort, ToolChoice};
use crate::message::Message;

pub use self::calibration::Calibration;
pub use self::digest::{Digest, InvalidDigest};
pub use self::estimate::{
    estimate_answer_tokens, estimate_message_tokens, estimate_request_tokens, estimate_tokens,
    expect_message_tokens, expect_request_tokens, expect_tokens, expect_tool_tokens,
};
pub use self::facts::{FactsOverride, Medium, ModelFacts, Takes, Thinking};
pub use self::measured::Measured;
pub use self::published::PublishedModels;

/// A tool on offer.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// The name that the model calls it by.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of its arguments; anything but an object means "any object".
    pub parameters: Value,
}

/// Whether a provider may produce an answer in the background, if its transport supports that.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum InBackground {
    /// It may not: nobody would fetch or cancel the answer.
    #[default]
    No,
    /// It may: the caller stores the provider's id of the answer.
    Allowed,
    /// It already does, under this id: fetch that answer instead of asking again.
    TakenUp(String),
}

/// The request of one attempt.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// The model's name as the provider knows it, without the provider's own name.
    pub model: String,
    /// The system prompt.
    pub system: Option<String>,
    /// The folds, then the active window by `seq`. Shared, not copied: transports serialize
    /// directly from here.
    pub messages: Vec<Arc<Message>>,
    /// How many of the messages, from the first one on, have reached their final form: up to the
    /// last fold, digest or shortened result. If more of them change, everything after these
    /// changes, too, so a provider's cache should store the request up to here.
    pub settled: usize,
    /// The same for the previous request, if that belongs to an earlier send and had fewer: a
    /// provider's cache holds this request up to there, and no further.
    pub settled_before: Option<usize>,
    /// Maximum tokens of a request to the model and its answer together, as far as anybody knows; a
    /// transport judges by it whether a refusal without a reason is one of length.
    pub window: Option<u64>,
    /// Maximum number of tokens of the answer.
    pub max_tokens: u32,
    /// What is shown after the last message, at the end of the user's turn. It belongs to no
    /// message, and the next send shows another one. Everything that changes between sends goes
    /// here, so that the rest is unchanged and can be served from the provider's prompt cache.
    pub tail: Option<String>,
    /// Tells the provider which requests share a prefix; `None` if there are no others.
    pub cache_key: Option<String>,
    /// Whether the provider may produce the answer in the background.
    pub background: InBackground,
    /// Passed on unchanged; the provider's default when absent.
    pub temperature: Option<f64>,
    /// Passed on unchanged; the provider's default when absent.
    pub top_p: Option<f64>,
    /// Stop sequences; the answer ends before them.
    pub stop: Vec<String>,
    /// How much the model should think, if the provider supports it.
    pub reasoning_effort: Option<ReasoningEffort>,
    /// How many tokens of the answer may be used for thinking, if the provider accepts a number.
    pub thinking_tokens: Option<u32>,
    /// See [`ModelFacts::adaptive`].
    pub adaptive: bool,
    /// The tools on offer, in the order in which the model sees them.
    pub tools: Vec<Arc<ToolSpec>>,
    /// Whether the model must call tools, or which one.
    pub tool_choice: ToolChoice,
    /// Whether the model may make several calls in one answer; the provider's default when absent.
    pub parallel_tool_calls: Option<bool>,
    /// Whether the answer is to be a JSON object of any form, if the provider can hold it to that.
    pub json_object: bool,
    /// Further members of the request, as the author of the agent gave them. They never replace what the
    /// transport itself sets.
    pub model_options: Option<Arc<Map<String, Value>>>,
    /// The longest edge of images given inline or as blobs: larger ones are scaled down before the
    /// transport gets them. Unchanged when absent.
    pub images_max_edge: Option<u32>,
    /// The schema of the final answer. Unless the model's facts say that its provider enforces it,
    /// it is also in the system prompt or the tail, and a transport need not do anything about it.
    pub output: Option<Arc<OutputSpec>>,
}

impl Request {
    /// Lets the model decide about tools where nothing is left to decide: if no tools are on offer,
    /// or the one that it must call is not. To be called after the tools have changed.
    pub fn drop_lost_choice(&mut self) {
        if self.tools.is_empty() {
            self.parallel_tool_calls = None;
            self.tool_choice = ToolChoice::Auto;
        }
        let names = self.tools.iter().map(|tool| tool.name.as_str());
        if self.tool_choice.fault(names).is_some() {
            self.tool_choice = ToolChoice::Auto;
        }
    }
}
