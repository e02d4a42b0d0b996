//! Previews of a session's next model call, without making the call.
//!
//! A worker renders the preview exactly as it would render the call itself, with its own tools,
//! providers and model facts. Requests for previews are sent over the bus.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::agent::{FoldStrategy, SendOptions};
use crate::error::Code;
use crate::id::{BootId, SendId, SessionKey};
use crate::message::ContentPart;
use crate::model::Digest;

/// A preview request to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// The request's id; also the topic on which the answer is published.
    pub id: Uuid,
    /// The worker that should answer.
    pub boot: BootId,
    /// The session.
    pub key: SessionKey,
    /// The input of a hypothetical send; absent to preview the session's actual next call.
    #[serde(default)]
    pub input: Option<Vec<ContentPart>>,
    /// The options of that send.
    #[serde(default)]
    pub options: SendOptions,
    /// Base64 content that the input refers to and that is not stored; only if the provider's own
    /// request is wanted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<String>,
    /// Whether to include the provider's own request.
    #[serde(default)]
    pub with_request: bool,
}

/// The answer to a preview request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answered {
    /// The preview.
    Preview(Box<Preview>),
    /// There is no preview, for this reason.
    Refused {
        /// The error code.
        code: Code,
        /// What happened.
        detail: String,
    },
}

impl Answered {
    /// A refusal.
    pub fn refused(code: Code, detail: impl Into<String>) -> Self {
        Self::Refused {
            code,
            detail: detail.into(),
        }
    }
}

/// The request of a session's next model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Preview {
    /// Identifies the request: `round.completed` has the same one, unless a hook changes the request, or
    /// the session, the agent or its notes change before.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// The provider's configured name.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The send of this round; null for a hypothetical one.
    #[schema(value_type = Option<String>)]
    pub send_id: Option<SendId>,
    /// The round within that send, from 0.
    pub round: i32,
    /// The request's parts in the order in which the model reads them.
    pub parts: Vec<PreviewPart>,
    /// Tokens of all parts: estimated, and corrected by what the provider counted lately.
    pub tokens: u64,
    /// Tokens likely to be read from the provider's prompt cache.
    pub cached: u64,
    /// The model's window: tokens of a request and its answer together.
    pub window: u64,
    /// Tokens that the request may have.
    pub budget: u64,
    /// Tokens that the answer may have.
    pub answer_max: u32,
    /// The first message that is shown.
    pub from_seq: i64,
    /// The folds before the window.
    pub folds: Vec<PreviewFold>,
    /// What is shown after the messages, at the end of the user's turn.
    pub tail: Option<String>,
    /// The cost of the call, if the model's prices are known.
    pub cost: Option<PreviewCost>,
    /// The next fold, if the window has no room for all messages.
    #[serde(default)]
    pub next_fold: Option<NextFold>,
    /// The last message of the running send whose results are aged, if the window has no room for all of them.
    #[serde(default)]
    pub aged_to: Option<i64>,
    /// What would delay or prevent the call.
    pub limits: Vec<PreviewLimit>,
    /// The request as its provider would get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub request: Option<Value>,
}

/// A part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PreviewPart {
    /// What it is.
    pub kind: PartKind,
    /// How many there are: tools, folds or messages.
    pub count: usize,
    /// Its tokens.
    pub tokens: u64,
    /// Tokens likely to be read from the provider's prompt cache.
    pub cached: u64,
    /// Tokens that would be written to the provider's cache, if that is priced separately.
    #[serde(default)]
    pub written: u64,
    /// Its cost in US dollars, if the model's prices are known.
    #[serde(default)]
    pub cost_usd: Option<f64>,
}

/// The parts of a request, in the order in which the model reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// The tools on offer.
    Tools,
    /// The system prompt.
    System,
    /// The folds of older messages.
    Folds,
    /// Stored messages.
    History,
    /// Messages that the model has not been shown yet: the input, inbox items.
    New,
    /// The tail, which belongs to no message.
    Tail,
}

/// What stands for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PreviewFold {
    /// The first message that it stands for.
    pub from_seq: i64,
    /// The last one.
    pub to_seq: i64,
    /// Its tokens.
    pub tokens: u64,
}

/// A fold that the next call would cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NextFold {
    /// When it would be made.
    pub when: FoldWhen,
    /// How.
    pub strategy: FoldStrategy,
    /// The first message that it would cover, including those of the folds that it replaces.
    pub from_seq: i64,
    /// The last one.
    pub to_seq: i64,
    /// About how many tokens they take.
    pub tokens: u64,
}

/// When something is folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FoldWhen {
    /// Before the model is called; the call will then be a different one.
    Before,
    /// Concurrently with the send, which does not wait for it.
    Beside,
    /// Once the send has ended, unless it runs for long.
    After,
}

/// The cost of a call, in US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PreviewCost {
    /// The request, all of it: what is cached at that price, and the rest at its full one.
    pub input_usd: f64,
    /// The part for tokens read from the provider's cache.
    #[serde(default)]
    pub cache_read_usd: f64,
    /// The part for tokens written to the provider's cache.
    #[serde(default)]
    pub cache_write_usd: f64,
    /// The longest answer.
    pub answer_max_usd: f64,
}

/// What would delay or prevent a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PreviewLimit {
    /// What it is, as a code.
    pub code: String,
    /// In words.
    pub detail: String,
}
