//! Normalizes the usage that providers report in many different ways.

use mainspring_shared::usage::Usage;
use serde_json::Value;

/// More tokens than any answer has; a larger number is a provider's mistake.
const TOKENS_MAX: u64 = 1_000_000_000_000;

const INPUT: &[&str] = &[
    "prompt_tokens",
    "input_tokens",
    "prompt_token_count",
    "promptTokens",
    "inputTokenCount",
    "prompt_count",
];
const OUTPUT: &[&str] = &[
    "completion_tokens",
    "output_tokens",
    "completion_token_count",
    "completionTokens",
    "outputTokenCount",
    "generated_tokens",
    "candidates_token_count",
];
const TOTAL: &[&str] = &[
    "total_tokens",
    "total_token_count",
    "totalTokens",
    "token_count",
    "usage_tokens",
];
const CACHED: &[&str] = &[
    "prompt_cache_hit_tokens",
    "cached_tokens",
    "cache_hit_tokens",
    "prompt_cached_tokens",
];
const CACHED_DETAILS: &[&str] = &["cached_tokens", "cache_hit_tokens", "cacheHitTokens"];
/// OpenAI since GPT-5.6 and OpenRouter (2026-07), DashScope, LiteLLM.
const WRITTEN_DETAILS: &[&str] = &[
    "cache_write_tokens",
    "cache_creation_input_tokens",
    "cache_creation_tokens",
];
const REASONING: &[&str] = &[
    "reasoning_tokens",
    "reasoning_token",
    "reasoningTokens",
    "thinking_tokens",
];
const INPUT_DETAILS: &[&str] = &[
    "prompt_tokens_details",
    "input_tokens_details",
    "promptTokensDetails",
    "inputTokensDetails",
];
const OUTPUT_DETAILS: &[&str] = &[
    "completion_tokens_details",
    "output_tokens_details",
    "completionTokensDetails",
    "outputTokensDetails",
];

/// Whether the input count includes cached tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheCount {
    /// Included, as with OpenAI.
    Included,
    /// Separate, as with Anthropic: tokens read from and written to the cache come on top.
    OnTop,
}

/// What has been reported so far; later reports complete earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Counts {
    input: Option<u64>,
    output: Option<u64>,
    total: Option<u64>,
    cache_read: Option<u64>,
    cache_written: Option<u64>,
    reasoning: Option<u64>,
    cost_usd: Option<f64>,
}

impl Counts {
    /// Merges a report. Counts only grow within an answer, so the larger one is kept.
    pub(super) fn read(&mut self, usage: &Value, cache: CacheCount) {
        if !usage.is_object() {
            return;
        }
        if cache == CacheCount::OnTop {
            self.forget_whole_prompt(usage);
        }
        keep(&mut self.input, first(usage, INPUT));
        keep(&mut self.output, first(usage, OUTPUT));
        keep(&mut self.total, first(usage, TOTAL));
        keep(
            &mut self.reasoning,
            first(usage, REASONING).or_else(|| within(usage, OUTPUT_DETAILS, REASONING)),
        );
        match cache {
            CacheCount::Included => {
                let read =
                    first(usage, CACHED).or_else(|| within(usage, INPUT_DETAILS, CACHED_DETAILS));
                keep(&mut self.cache_read, read);
                let written = within(usage, INPUT_DETAILS, WRITTEN_DETAILS);
                keep(
                    &mut self.cache_written,
                    written.or_else(|| first(usage, WRITTEN_DETAILS)),
                );
            }
            CacheCount::OnTop => {
                keep(
                    &mut self.cache_read,
                    first(usage, &["cache_read_input_tokens"]),
                );
                keep(
                    &mut self.cache_written,
                    first(usage, &["cache_creation_input_tokens"]),
                );
            }
        }
        let cost = usage
            .get("cost")
            .and_then(Value::as_f64)
            .filter(|cost| *cost >= 0.0);
        self.cost_usd = cost.or(self.cost_usd);
    }

    /// Some servers count the whole prompt at first, and later only what was in no cache, beside what was.
    fn forget_whole_prompt(&mut self, usage: &Value) {
        let cached = |count: Option<u64>| count.is_some_and(|count| count > 0);
        let told = ["cache_read_input_tokens", "cache_creation_input_tokens"]
            .iter()
            .any(|name| cached(first(usage, &[name])));
        let is_new = told && !cached(self.cache_read) && !cached(self.cache_written);
        if is_new && cached(first(usage, INPUT)) {
            self.input = None;
        }
    }

    /// Counts what only the total has as output: thoughts, at providers that count them nowhere else.
    pub(super) fn count_thoughts_in_total(&mut self) {
        if let (Some(total), Some(input)) = (self.total, self.input) {
            let rest = total.saturating_sub(input);
            let thoughts = rest.saturating_sub(self.output.unwrap_or(0));
            if thoughts > 0 {
                keep(&mut self.reasoning, Some(thoughts));
                self.output = Some(rest);
            }
        }
    }

    /// The usage, or `None` if neither side was counted.
    pub(super) fn usage(&self, cache: CacheCount) -> Option<Usage> {
        if self.input.is_none() && self.output.is_none() {
            return None;
        }
        let cache_read_tokens = self.cache_read.unwrap_or(0);
        let mut input_tokens = self.input.unwrap_or(0);
        if cache == CacheCount::OnTop {
            input_tokens += cache_read_tokens + self.cache_written.unwrap_or(0);
        }
        let mut output_tokens = self.output.unwrap_or(0);
        let reasoning_tokens = self.reasoning.unwrap_or(0);
        // Some providers count reasoning separately from the output; only the total shows it.
        if self.total == Some(input_tokens + output_tokens + reasoning_tokens) {
            output_tokens += reasoning_tokens;
        }
        Some(Usage {
            input_tokens,
            output_tokens,
            cache_read_tokens: cache_read_tokens.min(input_tokens),
            cache_write_tokens: self.cache_written.unwrap_or(0).min(input_tokens),
            reasoning_tokens: reasoning_tokens.min(output_tokens),
            cost_usd: self.cost_usd,
            estimated: false,
        })
    }
}

fn keep(slot: &mut Option<u64>, count: Option<u64>) {
    *slot = (*slot).max(count);
}

fn first(usage: &Value, keys: &[&str]) -> Option<u64> {
    keys.iter().find_map(|key| integer(usage.get(key)?))
}

fn within(usage: &Value, objects: &[&str], keys: &[&str]) -> Option<u64> {
    objects
        .iter()
        .find_map(|object| first(usage.get(object)?, keys))
}

/// Parses an integer, which may also be a string or have a decimal point.
fn integer(value: &Value) -> Option<u64> {
    let float = match value {
        Value::Number(number) => match number.as_u64() {
            Some(count) => return Some(count.min(TOKENS_MAX)),
            None => number.as_f64()?,
        },
        Value::String(text) => text.trim().parse().ok()?,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    (float >= 0.0 && float.fract() == 0.0).then_some(float.min(TOKENS_MAX as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(cache: CacheCount, reports: &[Value]) -> Option<(u64, u64, u64, u64)> {
        let mut counts = Counts::default();
        for report in reports {
            counts.read(report, cache);
        }
        let u = counts.usage(cache)?;
        Some((
            u.input_tokens,
            u.output_tokens,
            u.cache_read_tokens,
            u.reasoning_tokens,
        ))
    }

    #[test]
    fn every_known_spelling_is_read() {
        let table = [
            (
                json!({"prompt_tokens": 10, "completion_tokens": 4}),
                (10, 4, 0, 0),
            ),
            (
                json!({"promptTokens": "10", "completionTokens": 4.0}),
                (10, 4, 0, 0),
            ),
            (
                json!({"prompt_token_count": 10, "candidates_token_count": 4}),
                (10, 4, 0, 0),
            ),
            (
                json!({"prompt_tokens": null, "input_tokens": 10, "output_tokens": 4}),
                (10, 4, 0, 0),
            ),
            (
                json!({"prompt_tokens": 10, "completion_tokens": 4, "prompt_cache_hit_tokens": 8}),
                (10, 4, 8, 0),
            ),
            (
                json!({"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14,
                    "prompt_tokens_details": {"cached_tokens": 8},
                    "completion_tokens_details": {"reasoning_tokens": 3}}),
                (10, 4, 8, 3),
            ),
            (
                json!({"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 17, "reasoning_tokens": 3}),
                (10, 7, 0, 3),
            ),
        ];
        for (report, expected) in table {
            assert_eq!(
                read(CacheCount::Included, std::slice::from_ref(&report)),
                Some(expected),
                "{report}"
            );
        }
    }

    #[test]
    fn anthropics_cache_comes_on_top_and_later_reports_complete_earlier_ones() {
        let reports = [
            json!({"input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5, "output_tokens": 1}),
            json!({"input_tokens": 0, "output_tokens": 40}),
        ];
        assert_eq!(read(CacheCount::OnTop, &reports), Some((115, 40, 100, 0)));
    }

    #[test]
    fn what_is_no_count_is_no_report() {
        for report in [
            json!(null),
            json!({}),
            json!({"prompt_tokens": -1}),
            json!({"input_tokens": "many"}),
        ] {
            assert_eq!(
                read(CacheCount::Included, std::slice::from_ref(&report)),
                None,
                "{report}"
            );
        }
    }
}
