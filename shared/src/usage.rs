//! The usage and cost of model calls.

use serde::{Deserialize, Serialize};

use crate::named::named;

named! {
    /// What a model was asked for.
    Purpose {
        /// A round of a send.
        Round = "round",
        /// A fold of a session's transcript.
        Fold = "fold",
        /// An extraction of memory entries from a send.
        Extract = "extract",
        /// Embeddings of texts, for the memory.
        Embed = "embed",
    }
}

impl Purpose {
    /// Reads the column `purpose`, which is null for rounds.
    pub fn stored(text: Option<&str>) -> Self {
        text.and_then(Self::parse).unwrap_or(Self::Round)
    }
}

/// Tokens and cost of one model response, or the sum of several.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Usage {
    /// Input tokens, including those from the provider's cache.
    pub input_tokens: u64,
    /// Output tokens, including reasoning.
    pub output_tokens: u64,
    /// The part of `input_tokens` that the provider's cache served.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// The part of `input_tokens` that was written to the provider's cache, if reported.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// The part of `output_tokens` that was reasoning.
    #[serde(default)]
    pub reasoning_tokens: u64,
    /// US dollars, if a price is known.
    #[serde(default)]
    pub cost_usd: Option<f64>,
    /// True if the provider reported no usage and the numbers are estimates.
    #[serde(default)]
    pub estimated: bool,
}

impl Usage {
    /// Adds `other`: counts add up, an unknown price does not hide a known one, and one estimate
    /// makes the sum an estimate.
    pub fn add(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cache_read_tokens = self
            .cache_read_tokens
            .saturating_add(other.cache_read_tokens);
        self.cache_write_tokens = self
            .cache_write_tokens
            .saturating_add(other.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
        self.cost_usd = match (self.cost_usd, other.cost_usd) {
            (Some(a), Some(b)) => Some(a + b),
            (known, None) | (None, known) => known,
        };
        self.estimated |= other.estimated;
    }
}
