//! What tokens cost.

use serde::{Deserialize, Serialize};

use crate::usage::Usage;

/// What a model's tokens cost, in US dollars for a million of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens read.
    pub input: f64,
    /// Tokens written.
    pub output: f64,
    /// Tokens read that the provider's cache served; as `input` when absent.
    #[serde(default)]
    pub cache_read: Option<f64>,
    /// Tokens read that were written to the provider's cache; as `input` when absent.
    #[serde(default)]
    pub cache_write: Option<f64>,
    /// What long requests cost, where that is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongPrice>,
}

/// What a long request costs: a multiple, for all of its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongPrice {
    /// Requests with more tokens than this are long, those from the cache included.
    pub above: u64,
    /// Of the price of tokens read, whether the cache served them or not.
    pub input: f64,
    /// Of the price of tokens written.
    pub output: f64,
}

impl Price {
    /// Reads `MODEL=INPUT/OUTPUT[/CACHED[/WRITTEN]]`: a model's name and its prices.
    pub fn parse_entry(text: &str) -> Option<(String, Self)> {
        let (model, prices) = text.rsplit_once('=')?;
        let numbers = prices.split('/').map(|price| price.trim().parse::<f64>());
        let numbers: Vec<f64> = numbers.collect::<Result<_, _>>().ok()?;
        let (input, output, cache_read, cache_write) = match numbers[..] {
            [input, output] => (input, output, None, None),
            [input, output, read] => (input, output, Some(read), None),
            [input, output, read, written] => (input, output, Some(read), Some(written)),
            _ => return None,
        };
        let model = model.trim();
        let sensible = |price: &f64| price.is_finite() && *price >= 0.0;
        (!model.is_empty() && numbers.iter().all(sensible)).then(|| {
            let price = Self {
                input,
                output,
                cache_read,
                cache_write,
                long: None,
            };
            (model.to_owned(), price)
        })
    }

    /// The most dollars that an answer cost whose cached tokens are not known: a provider may have
    /// written all that it read to its cache, at a price of its own.
    pub fn at_most(&self, usage: &Usage) -> f64 {
        let dearest = Self {
            input: self.dearest_input(),
            ..*self
        };
        dearest.of(&Usage {
            cache_read_tokens: 0,
            cache_write_tokens: 0,
            ..*usage
        })
    }

    pub(super) fn dearest_input(&self) -> f64 {
        self.input.max(self.cache_write.unwrap_or(0.0))
    }

    /// What the tokens of a request of this length cost.
    #[must_use]
    pub fn for_input(&self, tokens: u64) -> Self {
        let Some(long) = self.long.filter(|long| tokens > long.above) else {
            return Self {
                long: None,
                ..*self
            };
        };
        Self {
            input: self.input * long.input,
            output: self.output * long.output,
            cache_read: self.cache_read.map(|price| price * long.input),
            cache_write: self.cache_write.map(|price| price * long.input),
            long: None,
        }
    }

    /// The dollars that one answer cost. Not for the sum of several, whose requests may each have been
    /// shorter.
    pub fn of(&self, usage: &Usage) -> f64 {
        self.for_input(usage.input_tokens).flat(usage)
    }

    fn flat(&self, usage: &Usage) -> f64 {
        let cached = usage.cache_read_tokens.min(usage.input_tokens);
        let written = usage.cache_write_tokens.min(usage.input_tokens - cached);
        let fresh = usage.input_tokens - cached - written;
        let cache = self.cache_read.unwrap_or(self.input);
        let million = fresh as f64 * self.input
            + cached as f64 * cache
            + written as f64 * self.cache_write.unwrap_or(self.input)
            + usage.output_tokens as f64 * self.output;
        million / 1e6
    }
}

/// What tokens cost at a price per million.
pub(super) fn nano_tokens(tokens: u64, per_million: f64) -> u64 {
    (tokens as f64 * per_million * 1e3).ceil() as u64
}
