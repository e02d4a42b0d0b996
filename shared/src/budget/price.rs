//! Prices of tokens.

use serde::{Deserialize, Serialize};

use crate::usage::Usage;

/// A model's prices, in US dollars per million tokens of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Input tokens.
    pub input: f64,
    /// Output tokens.
    pub output: f64,
    /// Input tokens served by the provider's cache; as `input` when absent.
    #[serde(default)]
    pub cache_read: Option<f64>,
    /// Input tokens written to the provider's cache; as `input` when absent.
    #[serde(default)]
    pub cache_write: Option<f64>,
    /// The price of long requests, if it is different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongPrice>,
}

/// The price of a long request: factors for all of its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongPrice {
    /// Requests with more input tokens than this are long, cached ones included.
    pub above: u64,
    /// Factor for the prices of input tokens, cached or not.
    pub input: f64,
    /// Factor for the price of output tokens.
    pub output: f64,
}

impl Price {
    /// Parses `MODEL=INPUT/OUTPUT[/CACHED[/WRITTEN]]`: a model's name and its prices.
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

    /// The maximum cost in dollars of an answer whose cached tokens are unknown: the provider may
    /// have written all input to its cache, at a higher price.
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

    /// The prices for a request of this length.
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

    /// The cost of one answer in dollars. Not for the sum of several, whose requests may each have
    /// been shorter.
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

/// The cost of tokens at a price per million, in billionths of a dollar.
pub(super) fn nano_tokens(tokens: u64, per_million: f64) -> u64 {
    (tokens as f64 * per_million * 1e3).ceil() as u64
}
