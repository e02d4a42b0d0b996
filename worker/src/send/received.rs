//! What was received of an answer, for the case that it is cut off: providers bill what they have read and written by
//! then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use mainspring_shared::budget::Price;
use mainspring_shared::usage::Usage;

use crate::llm::{Chunk, estimate_tokens};

/// What was received of an answer so far.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Estimated output tokens.
    streamed: AtomicU64,
    /// What the provider has counted.
    counted: Mutex<Option<Usage>>,
}

impl Received {
    /// Counts a chunk.
    pub(super) fn hears(&self, chunk: &Chunk<'_>) {
        match chunk {
            Chunk::Text(text) | Chunk::Reasoning(text) | Chunk::Hidden(text) => {
                self.streamed
                    .fetch_add(estimate_tokens(text), Ordering::Relaxed);
            }
            // Some report zeros until the end.
            Chunk::Counted(usage) if usage.input_tokens == 0 => {}
            Chunk::Counted(usage) => {
                *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = Some(*usage);
            }
            Chunk::Background(_) => {}
        }
    }

    fn counted(&self) -> Option<Usage> {
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the provider has begun to answer.
    pub(super) fn has_begun(&self) -> bool {
        self.streamed.load(Ordering::Relaxed) > 0 || self.counted().is_some()
    }

    /// The estimated usage of the call if it is cut off here: what the provider has counted, or else so many input
    /// tokens.
    pub(super) fn usage(&self, input_tokens: u64, price: Option<&Price>) -> Usage {
        let streamed = self.streamed.load(Ordering::Relaxed);
        let counted = self.counted();
        let usage = match counted {
            Some(counted) => Usage {
                output_tokens: counted.output_tokens.max(streamed),
                ..counted
            },
            None => Usage {
                input_tokens,
                output_tokens: streamed,
                ..Usage::default()
            },
        };
        let priced = price.map(|price| match counted {
            Some(_) => price.of(&usage),
            None => price.at_most(&usage),
        });
        let costs = [usage.cost_usd, priced];
        Usage {
            cost_usd: costs.into_iter().flatten().reduce(f64::max),
            estimated: true,
            ..usage
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(input_tokens: u64, output_tokens: u64) -> Usage {
        Usage {
            input_tokens,
            output_tokens,
            cache_read_tokens: input_tokens / 2,
            ..Usage::default()
        }
    }

    #[test]
    fn what_the_provider_has_counted_wins_over_the_estimate() {
        let received = Received::default();
        assert!(!received.has_begun());
        received.hears(&Chunk::Counted(counted(0, 0)));
        assert!(!received.has_begun(), "zeros are no count");
        received.hears(&Chunk::Hidden("{\"path\": \"a long one\""));
        let estimated = received.usage(149, None);
        assert!(received.has_begun() && estimated.estimated);
        assert_eq!(estimated.input_tokens, 149);
        assert_eq!(
            estimated.output_tokens,
            estimate_tokens("{\"path\": \"a long one\"")
        );
        received.hears(&Chunk::Counted(counted(11, 1)));
        let usage = received.usage(149, None);
        assert_eq!((usage.input_tokens, usage.cache_read_tokens), (11, 5));
        assert_eq!(usage.output_tokens, estimated.output_tokens);
        assert!(usage.estimated, "the output is");
    }

    #[test]
    fn a_counted_call_is_priced_as_counted_and_another_as_the_dearest() {
        let (_, price) = Price::parse_entry("m=10/20/1").expect("a price");
        let received = Received::default();
        received.hears(&Chunk::Text("words"));
        let dearest = received.usage(1_000, Some(&price)).cost_usd;
        received.hears(&Chunk::Counted(counted(1_000, 1)));
        let usage = received.usage(1_000, Some(&price));
        assert_eq!(usage.cost_usd, Some(price.of(&usage)));
        assert!(usage.cost_usd < dearest);
    }
}
