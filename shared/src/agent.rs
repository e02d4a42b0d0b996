//! Agents: how a session's model is called.

mod calls;
mod context;
mod delegation;
mod isolation;
pub mod memory;
mod model_options;
mod named;
mod openai;
mod output;
pub mod prompt;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::budget::Budget;
use crate::id::RunId;
use crate::list::{NOTES_MAX_DEFAULT, WhenFull};
use crate::skill::AgentSkill;
use crate::stored::Extra;
use crate::time::Span;
use crate::timer::FiredBy;
use crate::tool::{ToolEntry, pool_of};

pub use self::calls::{CallSettings, ReasoningEffort, TEMPERATURE_MAX, ToolChoice};
pub use self::context::{
    FOLD_HARD_DEFAULT, FOLD_SOFT_DEFAULT, FoldSpec, FoldStrategy, KEEP_SENDS_DEFAULT,
    Representation, ToolContext,
};
pub use self::delegation::{Delegation, NotGranted};
pub use self::isolation::Isolation;
pub use self::memory::{ExtractMode, MemorySpec, RecallMode};
pub use self::model_options::{ModelOptions, OptionFault};
pub use self::named::{
    AgentKey, AgentLimits, AgentName, AgentQuery, AgentRef, AgentVersion, AgentVersionView, Alias,
    NameFault, NamedAgent, NamedAgentView, Pick,
};
pub use self::openai::OpenAiNote;
pub use self::output::{OutputFault, OutputSpec};
pub use self::prompt::{
    Bound, BoundSection, PromptFault, PromptSection, PromptSpec, PromptVariable,
};

/// The default pool of agents and workers.
pub const DEFAULT_POOL: &str = "default";

/// Default maximum number of rounds of a send.
pub const MAX_ROUNDS_DEFAULT: u32 = 50;

/// Default maximum number of tokens of an answer.
pub const MAX_TOKENS_DEFAULT: u32 = 8_000;

/// Default number of newest images and files that are always shown. Each costs about as much as a
/// thousand words, in every round.
pub const IMAGES_KEPT_DEFAULT: u32 = 10;

/// How a session's model is called. Versioned: a send keeps the version that was
/// current when it started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AgentSpec {
    /// A label to filter by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Instructions for the model, before the transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Further instructions after the system prompt: sections with variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptSpec>,
    /// `MODEL` of the default provider, or `PROVIDER/MODEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Tools on offer: presets and names of tools that the workers have, and tools declared here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolEntry>,
    /// Narrows the tools to those with these names: a child gets no more than its parent has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// The published agents that it may start as children and leaves: `NAME` for all versions, or
    /// `NAME@VERSION` or `NAME@ALIAS` for just what is written so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub allow_agents: Vec<AgentQuery>,
    /// Maximum number of rounds of one send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<u32>,
    /// Maximum number of tokens of one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Passed to the provider as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Passed to the provider as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Texts that end an answer before them, at most four. The answer counts as complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// How much the model is to think. Passed to OpenAI's protocols as it is; for Anthropic, unless
    /// `thinking` is set, `low`, `medium` and `high` let a quarter, half and three quarters of
    /// `max_tokens` be thought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Whether the model must call tools. `required` and a tool's name apply to the first round of each send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether one answer may have several calls; the provider's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Further members of model requests, for what only some providers offer: an object of at most 16 KiB of JSON.
    /// Members that have a setting of their own are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub model_options: Option<ModelOptions>,
    /// How many tokens of each answer may be thought, for Anthropic; others ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingSpec>,
    /// Models to call instead, in this order, when `model` is not available: its provider is down, rejects the key or
    /// limits the rate for longer than a worker waits in memory. At most four.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<String>,
    /// The budget of all sends of the session together, with everything that they cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The schema of final answers: a JSON Schema, or `{name, schema, strict}`; `{"type": "json_object"}` for any
    /// JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub output_schema: Option<Value>,
    /// What the model sees of the transcript.
    #[serde(default)]
    pub context: ContextSpec,
    /// What to do with an interrupted round.
    #[serde(default)]
    pub recovery: Recovery,
    /// The workers that may run it; `default` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Where those of its tools run that reach beyond the database.
    #[serde(default, skip_serializing_if = "Isolation::is_none")]
    pub isolation: Isolation,
    /// How it keeps notes, if it has the tools for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<NotesSpec>,
    /// The board that it shares with all agents that name the same; by default that of its
    /// tree of sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board: Option<String>,
    /// What was added when a session took the agent; absent in requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub bound: Option<Box<Bound>>,
    /// Skills that its model may read, `NAME` or `NAME@HASH`. A bare name means its current version when
    /// the agent is stored, and that version from then on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, required = false)]
    pub skills: Vec<AgentSkill>,
    /// What it remembers beyond its session; nothing when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemorySpec>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

impl AgentSpec {
    /// The agent as shown to people, without its skills' descriptions.
    #[must_use]
    pub fn shown(mut self) -> Self {
        self.skills = self.skills.into_iter().map(AgentSkill::shown).collect();
        self
    }

    /// The pool that its sends run in: its own, the one that its tools need, or the default.
    pub fn pool(&self) -> &str {
        self.own_pool().unwrap_or(DEFAULT_POOL)
    }

    /// The pool that it or its tools ask for, if any.
    pub fn own_pool(&self) -> Option<&str> {
        let own = self.pool.as_deref();
        own.or_else(|| pool_of(&self.tools))
    }

    /// The published version that it is, if it is one.
    pub fn reference(&self) -> Option<&AgentRef> {
        self.bound.as_ref()?.agent.as_ref()
    }

    /// The published agent that pays for its model calls: itself, or, for an agent defined inline,
    /// the published one that started it, directly or through other inline agents.
    pub fn payer(&self) -> Option<&AgentName> {
        let bound = self.bound.as_ref()?;
        let own = bound.agent.as_ref().map(|agent| &agent.name);
        own.or(bound.payer.as_ref())
    }
}

/// How much an agent's model may think.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ThinkingSpec {
    /// Tokens of one answer that may be thought, at least 1024 and fewer than `max_tokens`.
    pub budget_tokens: u32,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

/// The smallest [`ThinkingSpec::budget_tokens`] that providers accept.
pub const THINKING_TOKENS_MIN: u32 = 1_024;

/// Maximum number of models in [`AgentSpec::fallback`].
pub const FALLBACK_MAX: usize = 4;

/// How an agent keeps notes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NotesSpec {
    /// Maximum number of notes, at most 50.
    #[serde(default = "notes_max")]
    pub max: u32,
    /// What becomes of one more.
    #[serde(default)]
    pub when_full: WhenFull,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

impl Default for NotesSpec {
    fn default() -> Self {
        Self {
            max: NOTES_MAX_DEFAULT,
            when_full: WhenFull::Reject,
            extra: Extra::default(),
        }
    }
}

fn notes_max() -> u32 {
    NOTES_MAX_DEFAULT
}

/// Maximum number of texts in [`AgentSpec::stop`]; a limit of providers.
pub const STOP_MAX: usize = 4;

/// What the model sees of the transcript.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ContextSpec {
    /// Maximum number of the last messages when a send starts, its input included; all of them when absent. To preserve
    /// providers' prompt caches, the window moves in blocks: once the limit is exceeded, by half of it. The send's own
    /// messages come on top.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_messages: Option<u32>,
    /// How sends that have ended are shown.
    #[serde(default, skip_serializing_if = "Representation::is_default")]
    pub representation: Representation,
    /// How what the model's window has no room for is folded.
    #[serde(default, skip_serializing_if = "FoldSpec::is_default")]
    pub fold: FoldSpec,
    /// How older results of these tools are shown; unchanged by default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, ToolContext>,
    /// Which pictures and files are shown again with later rounds.
    #[serde(default, skip_serializing_if = "ImagesSpec::is_default")]
    pub images: ImagesSpec,
    /// What to do with an answer that was truncated at its token limit.
    #[serde(default, skip_serializing_if = "OnTruncation::is_default")]
    pub on_truncation: OnTruncation,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

impl ContextSpec {
    /// Whether sends are shown as digests, or older tool results are shortened, so that the agent
    /// needs tools to read what is hidden. Folds alone do not count, since most conversations never
    /// need them.
    pub fn hides(&self) -> bool {
        let shortens = |policy: &ToolContext| *policy != ToolContext::Preserve;
        self.representation == Representation::Projection || self.tools.values().any(shortens)
    }
}

/// Which pictures and files of the window a model call contains, and how large. Others are replaced by a
/// line that says what they were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ImagesSpec {
    /// The newest ones that are always shown; all are shown when null, and each only until the model has
    /// answered when 0. To keep providers' prompt caches of use, older ones go in blocks: once there are twice
    /// as many, as many of them.
    #[serde(default = "ImagesSpec::keep_default")]
    pub keep: Option<u32>,
    /// The maximum edge of pictures in pixels, from 64 to 8192: larger ones are scaled down, except those that the
    /// provider fetches. Unchanged when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_edge: Option<u32>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

/// The smallest [`ImagesSpec::max_edge`]: nothing can be recognized in smaller images.
pub const IMAGES_EDGE_MIN: u32 = 64;

/// The largest [`ImagesSpec::max_edge`]; a limit of providers.
pub const IMAGES_EDGE_MAX: u32 = 8_192;

impl ImagesSpec {
    #[expect(
        clippy::unnecessary_wraps,
        reason = "it is the default of an optional member"
    )]
    const fn keep_default() -> Option<u32> {
        Some(IMAGES_KEPT_DEFAULT)
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for ImagesSpec {
    fn default() -> Self {
        Self {
            keep: Self::keep_default(),
            max_edge: None,
            extra: Extra::default(),
        }
    }
}

/// What to do with an answer that was truncated at its token limit. Its calls are never executed: the last of them may
/// be truncated as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnTruncation {
    /// The model is asked to continue, as long as rounds are left; the parts become one message. An
    /// answer with calls, or without text, fails its send.
    #[default]
    Continue,
    /// It is accepted as the answer, without its calls.
    Accept,
    /// Its send fails with `llm.truncated`.
    Fail,
}

impl OnTruncation {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What to do with a round that was open when its worker died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Recovery {
    /// The next worker continues without asking.
    #[default]
    Auto,
    /// The send waits for `resume` or `abort`.
    Manual,
}

/// What a sender decides about one send, on top of the agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SendOptions {
    /// Replaces the agent's model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Replaces the agent's system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Narrows the agent's tools to those with these names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Replaces the agent's limit on rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<u32>,
    /// The budget of this send, with everything that it causes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Replaces the agent's shape of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub output_schema: Option<Value>,
    /// Replaces the agent's limit on the tokens of one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Replaces the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Replaces the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Replaces the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Replaces the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Replaces the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Replaces the agent's, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub model_options: Option<ModelOptions>,
    /// What the sender notes about it. Not part of any request to a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Box<Map<String, Value>>>,
    /// Orders sessions in the queue, never sends inside one.
    #[serde(default)]
    pub priority: Priority,
    /// From accept to the end; the send fails when it passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub deadline: Option<Span>,
    /// From acceptance until it has a position in the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub delay: Option<Span>,
    /// What to do when the session has a send that is not final.
    #[serde(default)]
    pub on_busy: OnBusy,
    /// The published agent for this send only, as it was when the send was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub agent: Option<Box<AgentSpec>>,
    /// The timer occurrence that created the send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub fired_by: Option<FiredBy>,
    /// The run whose end the input reports, if its unused reservation is refunded with this send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub ended_run: Option<RunId>,
    /// What it is shown with in the OpenAI-compatible API, if it came through that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub openai: Option<Box<OpenAiNote>>,
    /// The span that accepted the send, as a W3C `traceparent`; parent of its work in traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub traceparent: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

impl SendOptions {
    /// The agent that the send runs with, in a session with the agent `session`, and with what the
    /// sender decides about model calls. The pool, the budget of all sends together and at least
    /// the isolation remain the session's.
    #[must_use]
    pub fn agent_in(&self, session: AgentSpec) -> AgentSpec {
        let agent = match &self.agent {
            None => session,
            Some(own) => AgentSpec {
                budget: session.budget,
                pool: Some(session.pool().to_owned()),
                isolation: session.isolation.stricter(own.isolation),
                ..own.as_ref().clone()
            },
        };
        self.over(agent)
    }

    /// The published agent that the send runs with, in a session with the agent `session`; `None`
    /// if it is defined inline.
    pub fn published_in<'a>(&'a self, session: &'a AgentSpec) -> Option<&'a AgentName> {
        let agent = self.agent.as_deref().unwrap_or(session);
        agent.reference().map(|reference| &reference.name)
    }

    /// How far they change the agent. Exhaustive, so that a new option has to be judged.
    pub fn change(&self) -> AgentChange {
        let Self {
            model,
            system_prompt,
            tools,
            max_rounds,
            max_tokens,
            temperature,
            top_p,
            reasoning_effort,
            tool_choice,
            parallel_tool_calls,
            model_options,
            // Limits, the form of the answer, notes, and when the send runs, are the sender's.
            budget: _,
            output_schema: _,
            metadata: _,
            priority: _,
            deadline: _,
            delay: _,
            on_busy: _,
            // A published one.
            agent: _,
            // These are not part of any request.
            fired_by: _,
            ended_run: _,
            openai: _,
            traceparent: _,
            extra: _,
        } = self;
        if model.is_some() || system_prompt.is_some() || model_options.is_some() {
            AgentChange::Replaced
        } else if tools.is_some()
            || max_rounds.is_some()
            || max_tokens.is_some()
            || temperature.is_some()
            || top_p.is_some()
            || reasoning_effort.is_some()
            || tool_choice.is_some()
            || parallel_tool_calls.is_some()
        {
            AgentChange::Adjusted
        } else {
            AgentChange::None
        }
    }

    /// The published version that the send itself names, if any.
    pub fn agent_ref(&self) -> Option<&AgentRef> {
        self.agent.as_deref()?.reference()
    }
}

/// How far the options of a send change its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AgentChange {
    /// Not at all.
    None,
    /// It is called in another way, with fewer tools or other limits.
    Adjusted,
    /// It has another model or other instructions: it is another agent.
    Replaced,
}

/// Which of two queues a session's activations go through.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Someone is waiting for it: served first.
    #[default]
    High,
    /// Background work.
    Low,
}

/// What a send does on a busy session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnBusy {
    /// Is queued.
    #[default]
    Enqueue,
    /// Is merged into the input of the last send that has not started; otherwise is queued.
    Coalesce,
    /// Is delivered to the active send before its next round.
    Steer,
    /// Voids the model call in flight, and is delivered to the send at once.
    Interrupt,
    /// Is refused with `session.busy`.
    Reject,
}
