//! The agent of a leaf.

use serde_json::{Map, Value};

use super::Agent;
use crate::agent::AgentSpec;
use crate::tool::ToolEntry;
use crate::workflow::run::RunOptions;

/// Rounds of a leaf unless it says otherwise.
pub const MAX_ROUNDS_DEFAULT: u32 = 8;
/// Rounds that a leaf may ask for.
pub const MAX_ROUNDS_MAX: u32 = 50;
/// Tokens of one answer unless the leaf says otherwise.
pub const MAX_TOKENS_DEFAULT: u32 = 4_000;
/// Tokens that one answer may be allowed.
pub const MAX_TOKENS_MAX: u32 = 10_000_000;

/// The agent of a leaf, as a spec writes it.
#[derive(Debug, Clone, PartialEq)]
pub struct LeafAgent {
    /// A label to filter by.
    pub name: String,
    /// Said to the model before everything else, a template.
    pub system_prompt: String,
    /// Tools on offer; those of whoever started the run when absent.
    pub tools: Option<Vec<ToolEntry>>,
    /// Model calls that it may make.
    pub max_rounds: u32,
    /// Tokens that one answer may have.
    pub max_tokens: u32,
    /// Passed to the provider as it is.
    pub temperature: f64,
    /// The model; that of whoever started the run, or the workers' default, when absent.
    pub model: Option<String>,
    /// The shape of its answer.
    pub output_schema: Option<Value>,
    /// How long its session is kept.
    pub lifecycle: Lifecycle,
    /// Of its session.
    pub metadata: Map<String, Value>,
    /// Tokens that it may use in all.
    pub budget: Option<u64>,
    /// The workers that may run it.
    pub pool: Option<String>,
}

/// How long the session of a leaf is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lifecycle {
    /// Until the leaf succeeded; as `Linked` where it did not.
    Ephemeral,
    /// As long as its run, and the session that the run belongs to.
    #[default]
    Linked,
    /// For itself: it has no parent, and stays when the run is removed.
    Detached,
}

impl Lifecycle {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Ephemeral, Self::Linked, Self::Detached];

    /// The word in a spec.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ephemeral => "ephemeral",
            Self::Linked => "linked",
            Self::Detached => "detached",
        }
    }
}

impl LeafAgent {
    /// Whether its session goes as soon as it succeeded.
    pub fn is_ephemeral(&self) -> bool {
        self.lifecycle == Lifecycle::Ephemeral
    }
}

impl Agent {
    /// The agent of its session, with the rendered prompt, in a run with these options.
    pub fn session_agent(&self, system_prompt: String, options: &RunOptions) -> AgentSpec {
        let spec = &self.spec;
        let heir = options.heir(spec.tools.as_deref());
        AgentSpec {
            name: Some(spec.name.clone()),
            system_prompt: Some(system_prompt),
            model: spec.model.clone().or_else(|| heir.model.clone()),
            max_rounds: Some(spec.max_rounds),
            max_tokens: Some(spec.max_tokens),
            temperature: Some(spec.temperature),
            output_schema: self.schema().cloned(),
            pool: options.pool.clone().or_else(|| spec.pool.clone()),
            ..heir
        }
    }

    /// The shape of its answer: the node's own, else the agent's.
    pub fn schema(&self) -> Option<&Value> {
        self.output_schema
            .as_ref()
            .or(self.spec.output_schema.as_ref())
    }
}
