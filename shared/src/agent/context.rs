//! An agent's settings for folding, representation and shortening of results.

use serde::{Deserialize, Serialize};

use crate::stored::Extra;

/// Default share of the budget above which a fold is made concurrently with the conversation.
pub const FOLD_SOFT_DEFAULT: f64 = 0.60;

/// Default share of the budget above which a fold is made before the model is called.
pub const FOLD_HARD_DEFAULT: f64 = 0.85;

/// Default number of newest sends that are not folded.
pub const KEEP_SENDS_DEFAULT: u32 = 4;

/// How sends that have ended are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Representation {
    /// As they were stored.
    #[default]
    Verbatim,
    /// As digests: the input, a line per tool call, and the answer. The newest sends are shown
    /// unchanged.
    Projection,
}

impl Representation {
    /// Whether it is the default, so that it is not serialized.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a projection is stored for each send.
    pub const fn is_stored(self) -> bool {
        match self {
            Self::Verbatim => false,
            Self::Projection => true,
        }
    }
}

/// How what the model's window has no room for is folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FoldStrategy {
    /// Not at all: what does not fit is not sent.
    None,
    /// A model writes a summary, into which an earlier one is merged.
    #[default]
    Summary,
    /// A model first takes notes of what is worth keeping, then writes a summary.
    Agentic,
    /// Digests of the sends, without a model.
    Projection,
    /// A service at `url` writes it.
    Http,
}

impl FoldStrategy {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Summary => "summary",
            Self::Agentic => "agentic",
            Self::Projection => "projection",
            Self::Http => "http",
        }
    }
}

/// When and how parts of the transcript are folded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FoldSpec {
    /// How.
    #[serde(default)]
    pub strategy: FoldStrategy,
    /// Share of the context's budget above which a fold is made in the background; 0.6 when absent. The budget is the
    /// model's window without its answer and a reserve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft: Option<f64>,
    /// Share of the budget above which a fold is made before the model is called; 0.85 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard: Option<f64>,
    /// The newest sends, which are not folded; 4 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_sends: Option<u32>,
    /// The model that writes it, if it is not the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The service of strategy `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

impl FoldSpec {
    /// Whether it is the default, so that it is not serialized.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The share of the budget above which a fold is made concurrently with the conversation.
    pub fn soft(&self) -> f64 {
        self.soft.unwrap_or(FOLD_SOFT_DEFAULT).min(self.hard())
    }

    /// The share of the budget above which a fold is made before the model is called.
    pub fn hard(&self) -> f64 {
        self.hard.unwrap_or(FOLD_HARD_DEFAULT)
    }

    /// How many of the newest sends are not folded.
    pub fn keep_sends(&self) -> u32 {
        self.keep_sends.unwrap_or(KEEP_SENDS_DEFAULT)
    }
}

/// How the model is shown the older results of a tool, of all but the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolContext {
    /// Unchanged.
    Preserve,
    /// Their beginning and end.
    Truncate,
    /// A line that says how to read them.
    Archive,
    /// Their first lines, with a line that says how to read the rest.
    Summary,
}
