//! Facts about models: their windows, accepted inputs, and prices.
//!
//! Facts are data. `facts.toml` has the built-in ones; the configuration overrides them field by
//! field. For an unknown model, [`ModelFacts::unknown`] is assumed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::digest::Digest;
use super::names;
use crate::budget::Price;

/// The window assumed for an unknown model: the minimum of current models.
const WINDOW_UNKNOWN: u64 = 128_000;

/// The window assumed for an unknown model of Anthropic's, likewise.
const WINDOW_CLAUDE: u64 = 200_000;

/// The models of Anthropic's that were there before its models decided how much they think, and have
/// no facts.
const OLD_CLAUDE: &[&str] = &["claude-2", "claude-3", "claude-instant"];

/// The built-in facts.
const BUILT_IN: &str = include_str!("facts.toml");

static KNOWN: LazyLock<BTreeMap<String, ModelFacts>> = LazyLock::new(|| {
    let known = toml::from_str(BUILT_IN);
    known.expect("a test reads each entry")
});

/// The known properties of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelFacts {
    /// Maximum tokens of a request and its answer together.
    pub window: u64,
    /// Maximum tokens of a request, if there is a separate limit.
    pub input_max: Option<u64>,
    /// Maximum tokens of an answer; unknown when absent.
    pub output_max: Option<u64>,
    /// What it accepts besides text.
    pub takes: Takes,
    /// Whether its provider can enforce a JSON Schema; the transport decides when absent.
    pub native_schema: Option<bool>,
    /// Whether it thinks before it answers; unknown when absent.
    pub thinking: Option<Thinking>,
    /// Whether it decides itself how much to think: it accepts an effort, but no number of tokens
    /// and neither `temperature` nor `top_p`.
    pub adaptive: bool,
    /// How many tokens it counts for each token of most models, for the same text.
    pub tokens: f64,
    /// Its prices; unknown when absent.
    pub price: Option<Price>,
    /// Whether the built-in facts or the configuration say anything about it.
    pub known: bool,
}

/// What a model accepts besides text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Takes {
    /// Images.
    pub image: bool,
    /// PDF files.
    pub pdf: bool,
    /// Audio.
    pub audio: bool,
}

/// Whether a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Thinking {
    /// It does not.
    Never,
    /// It may be asked to, or not to.
    Optional,
    /// It always does.
    Always,
}

/// Something besides text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// An image.
    Image,
    /// A PDF file.
    Pdf,
    /// Audio.
    Audio,
}

/// A model's facts in the configuration; each field overrides the built-in one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactsOverride {
    /// See [`ModelFacts::window`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// See [`ModelFacts::input_max`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_max: Option<u64>,
    /// See [`ModelFacts::output_max`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_max: Option<u64>,
    /// See [`ModelFacts::takes`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Vec<Medium>>,
    /// See [`ModelFacts::native_schema`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_schema: Option<bool>,
    /// See [`ModelFacts::thinking`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// See [`ModelFacts::adaptive`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<bool>,
    /// See [`ModelFacts::tokens`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
    /// See [`ModelFacts::price`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// The day on which its source said so, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// Where this is from, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl ModelFacts {
    /// The facts assumed for an unknown model. Unsupported input is left to its provider to refuse.
    pub const fn unknown() -> Self {
        Self {
            window: WINDOW_UNKNOWN,
            input_max: None,
            output_max: None,
            takes: Takes {
                image: true,
                pdf: true,
                audio: true,
            },
            native_schema: None,
            thinking: None,
            adaptive: false,
            tokens: 1.0,
            price: None,
            known: false,
        }
    }

    /// What is assumed of a model of Anthropic's that is not known: all since Opus 4.7 decide by
    /// themselves how much they think, and refuse to be told.
    const fn unknown_claude() -> Self {
        Self {
            window: WINDOW_CLAUDE,
            takes: Takes {
                image: true,
                pdf: true,
                audio: false,
            },
            thinking: Some(Thinking::Optional),
            adaptive: true,
            ..Self::unknown()
        }
    }

    /// The facts of the model with this name: the built-in ones, or what is assumed.
    pub fn of(model: &str) -> Self {
        Self::built_in(model).unwrap_or_else(|| {
            let name = names::spoken(model);
            if name.starts_with("claude-") && !OLD_CLAUDE.iter().any(|old| name.starts_with(old)) {
                Self::unknown_claude()
            } else {
                Self::unknown()
            }
        })
    }

    /// The built-in facts of the model with this name. Vendors' names also cover their dated
    /// versions (`gpt-5-2025-08-07`), the names of routers (`anthropic/claude-opus-4.5:free`) and
    /// those of clouds (`us.anthropic.claude-opus-4-8-v1:0`, `claude-opus-4-8@20260528`).
    pub fn built_in(model: &str) -> Option<Self> {
        names::of(model).find_map(|name| KNOWN.get(&name)).copied()
    }

    /// Identifies the built-in facts of this release.
    pub fn edition() -> String {
        Digest(Sha256::digest(BUILT_IN).into()).to_string()
    }

    /// The facts with the configuration's overrides.
    #[must_use]
    pub fn with(mut self, said: &FactsOverride) -> Self {
        self.known |= *said != FactsOverride::default();
        self.window = said.window.unwrap_or(self.window);
        self.input_max = match (said.input_max, said.window) {
            (Some(max), _) => Some(max),
            // An input limit for another window is meaningless.
            (None, Some(_)) => None,
            (None, None) => self.input_max,
        };
        self.output_max = said.output_max.or(self.output_max);
        self.takes = said.input.as_deref().map_or(self.takes, Takes::of);
        self.native_schema = said.native_schema.or(self.native_schema);
        self.thinking = said.thinking.or(self.thinking);
        self.adaptive = said.adaptive.unwrap_or(self.adaptive);
        self.tokens = said.tokens.unwrap_or(self.tokens);
        self.price = said.price.or(self.price);
        self
    }

    /// Whether the provider enforces a JSON Schema, so that the model need not be told of it.
    /// `transport` says whether the transport can ask for that.
    pub fn enforces_schema(&self, transport: bool) -> bool {
        transport && self.native_schema.unwrap_or(true)
    }

    /// Maximum tokens of a request if its answer may have `output` tokens.
    pub fn input_for(&self, output: u64) -> u64 {
        let output = output.min(self.output_max.unwrap_or(u64::MAX));
        let beside = self.window.saturating_sub(output);
        beside.min(self.input_max.unwrap_or(u64::MAX))
    }

    /// The token budget of a request if its answer may have `output` tokens: 4 % of the window, and
    /// at least 2 000 tokens, are kept free for estimation errors.
    pub fn budget_for(&self, output: u64) -> u64 {
        let reserve = (self.window / 25).max(2_000);
        self.input_for(output).saturating_sub(reserve)
    }
}

impl Takes {
    fn of(media: &[Medium]) -> Self {
        Self {
            image: media.contains(&Medium::Image),
            pdf: media.contains(&Medium::Pdf),
            audio: media.contains(&Medium::Audio),
        }
    }
}

impl<'de> Deserialize<'de> for ModelFacts {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let said = FactsOverride::deserialize(deserializer)?;
        Ok(Self::unknown().with(&said))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::budget::LongPrice;
    use crate::time::Timestamp;
    use crate::usage::Usage;

    /// What is missing or implausible in an entry.
    fn faults(name: &str, said: &FactsOverride) -> Vec<String> {
        let mut faults = Vec::new();
        let mut check = |holds: bool, what: &str| {
            if !holds {
                faults.push(format!("{name}: {what}"));
            }
        };
        let date = said.as_of.as_deref().unwrap_or_default();
        let day = serde_json::from_value::<Timestamp>(json!(format!("{date}T00:00:00Z")));
        check(
            date.len() == 10 && day.is_ok(),
            "as_of is a day like 2026-11-24",
        );
        let source = said.source.as_deref().unwrap_or_default();
        check(source.len() > 5, "source says where it is from");
        let window = said.window.unwrap_or_default();
        if name.starts_with("text-embedding-") {
            // They write nothing.
            let price = said.price.unwrap_or_default();
            check(
                window > 1_000 && price.input > price.output,
                "price and window",
            );
            return faults;
        }
        check((16_000..=20_000_000).contains(&window), "window");
        let output = said.output_max.unwrap_or_default();
        check((4_000..=window).contains(&output), "output_max");
        check(said.input_max.is_none_or(|max| max < window), "input_max");
        check(said.input.is_some(), "input, if need be []");
        check(said.native_schema.is_some(), "native_schema");
        check(said.thinking.is_some(), "thinking");
        let tokens = said.tokens.unwrap_or(1.0);
        check((0.5..=2.0).contains(&tokens), "tokens");
        if matches!(name, "demo" | "direct") {
            return faults;
        }
        let Some(price) = said.price else {
            check(false, "price");
            return faults;
        };
        check(
            0.0 < price.input && price.input < price.output,
            "price: input, output",
        );
        check(price.output < 1_000.0, "price: for a million tokens");
        let read = price.cache_read.unwrap_or_default();
        check(0.0 < read && read <= price.input, "price: cache_read");
        let is_dearer = price.cache_write.is_none_or(|write| write > price.input);
        check(
            is_dearer,
            "price: cache_write is left out unless it costs more than input",
        );
        let writes = ["claude-", "gpt-6", "gpt-5.6", "qwen3.7"];
        if writes.iter().any(|vendor| name.starts_with(vendor)) {
            check(
                price.cache_write.is_some(),
                "price: cache_write, which its vendor charges for",
            );
        }
        let is_above = |long: LongPrice| (1_000..window).contains(&long.above) && long.input > 1.0;
        check(price.long.is_none_or(is_above), "price: long");
        faults
    }

    #[test]
    fn every_entry_is_whole_and_plausible() {
        let table: toml::Table = BUILT_IN.parse().expect("TOML");
        let entries: BTreeMap<String, FactsOverride> = table.try_into().expect("entries");
        let faults = entries.iter().flat_map(|(name, said)| faults(name, said));
        let faults: Vec<_> = faults.collect();
        assert!(faults.is_empty(), "{faults:#?}");
        for name in entries.keys() {
            let facts = ModelFacts::built_in(name).expect(name);
            assert!(facts.known, "{name}");
            assert!(
                facts.budget_for(8_000) > 8_000 || facts.window < 16_000,
                "{name}"
            );
        }
    }

    #[test]
    fn the_most_used_models_of_all_vendors_are_known_with_their_prices() {
        let all = |vendor: &str| {
            let priced = |facts: &&ModelFacts| facts.price.is_some();
            let of_vendor = KNOWN.iter().filter(|(name, _)| name.starts_with(vendor));
            of_vendor.filter(|(_, facts)| priced(facts)).count()
        };
        for (vendor, count) in [
            ("gpt-", 20),
            ("claude-", 15),
            ("gemini-", 5),
            ("grok-", 3),
            ("deepseek-", 2),
            ("kimi-", 3),
            ("glm-", 3),
            ("qwen", 3),
            ("minimax-", 1),
            ("mistral-", 3),
            ("gpt-oss-", 1),
            ("llama-", 1),
        ] {
            assert!(all(vendor) >= count, "{vendor}: {}", all(vendor));
        }
        assert!(KNOWN.values().filter(|facts| facts.price.is_some()).count() >= 60);
    }

    #[test]
    fn an_entry_that_is_not_whole_is_named_with_what_it_lacks() {
        let said = FactsOverride {
            as_of: Some("24.11.2026".into()),
            window: Some(200_000),
            price: Some(Price {
                input: 5.0,
                output: 1.0,
                ..Price::default()
            }),
            ..FactsOverride::default()
        };
        let found = faults("claude-x", &said);
        for what in [
            "as_of",
            "source",
            "output_max",
            "thinking",
            "input, output",
            "cache_write",
        ] {
            assert!(
                found.iter().any(|fault| fault.contains(what)),
                "{what}: {found:#?}"
            );
        }
    }

    #[test]
    fn an_unknown_model_of_anthropic_is_one_that_decides_how_much_it_thinks() {
        for name in [
            "claude-opus-6",
            "anthropic/claude-opus-6",
            "eu.anthropic.claude-opus-6-v1:0",
            "claude-opus-6@20270101",
            "claude-opus-4-9",
        ] {
            let facts = ModelFacts::of(name);
            assert!(
                facts.adaptive && !facts.known && facts.price.is_none(),
                "{name}"
            );
        }
        for name in [
            "claude-3-5-haiku-20241022",
            "claude-opus-4-20250514",
            "gpt-9",
            "my-claude",
        ] {
            assert!(!ModelFacts::of(name).adaptive, "{name}");
        }
    }

    #[test]
    fn newer_models_of_anthropic_decide_how_much_they_think() {
        let adaptive = |name| ModelFacts::built_in(name).map(|facts| facts.adaptive);
        assert_eq!(adaptive("claude-opus-4-7"), Some(true));
        assert_eq!(adaptive("anthropic/claude-sonnet-5"), Some(true));
        assert_eq!(adaptive("claude-opus-4-6"), Some(false));
        assert_eq!(adaptive("gpt-5.4"), Some(false));
        let output = ModelFacts::built_in("claude-sonnet-4-6").and_then(|facts| facts.output_max);
        assert_eq!(output, Some(128_000));
        let said = FactsOverride {
            adaptive: Some(true),
            ..FactsOverride::default()
        };
        assert!(ModelFacts::unknown().with(&said).adaptive);
    }

    #[test]
    fn a_model_is_known_by_all_its_names() {
        let known = |name: &str| ModelFacts::built_in(name).map(|facts| facts.window);
        for (name, window) in [
            ("gpt-5-mini", Some(400_000)),
            ("gpt-5-mini-2025-08-07", Some(400_000)),
            ("openai/gpt-5-mini", Some(400_000)),
            ("GPT-5-mini", Some(400_000)),
            ("claude-opus-4-5-20251101", Some(200_000)),
            ("claude-opus-4-5-latest", Some(200_000)),
            ("anthropic/claude-opus-4.5", Some(200_000)),
            ("claude-opus-4.5:free", Some(200_000)),
            ("anthropic.claude-opus-4-8-v1:0", Some(1_000_000)),
            ("us.anthropic.claude-opus-4-8-v1:0", Some(1_000_000)),
            ("anthropic.claude-haiku-4-5-20251001-v1:0", Some(200_000)),
            (
                "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-opus-4-8-v1:0",
                Some(1_000_000),
            ),
            ("claude-opus-4-8@20260528", Some(1_000_000)),
            ("models/gemini-2.5-pro", Some(1_048_576)),
            ("google/gemini-2.5-flash-preview-09-2025", Some(1_048_576)),
            ("gemini-2.5-pro-preview-06-05", Some(1_048_576)),
            ("gemini-3.1-pro-preview", Some(1_048_576)),
            ("openai/gpt-oss-120b", Some(131_072)),
            ("openai.gpt-oss-120b-1:0", Some(131_072)),
            ("gpt-oss:120b", Some(131_072)),
            ("llama-3.3-70b-versatile", Some(131_072)),
            ("meta-llama/Llama-3.3-70B-Instruct-Turbo", Some(131_072)),
            ("MiniMax-M3", Some(1_000_000)),
            ("deepseek/deepseek-v4-pro-0813", Some(1_000_000)),
            ("z-ai/glm-4.7", Some(204_800)),
            ("moonshotai/Kimi-K2.6", Some(262_144)),
            ("mistral-large-2512", Some(262_144)),
            ("mistral-large-2411", None),
            ("claude-opus-4-9", None),
            ("gpt-5-mini-tuned", None),
            ("gpt-5-12345678", Some(400_000)),
            ("-20251101", None),
            ("é-é", None),
            ("", None),
        ] {
            assert_eq!(known(name), window, "{name:?}");
        }
    }

    #[test]
    fn a_configuration_overrides_field_by_field() {
        let facts = ModelFacts::built_in("gpt-5.4").expect("known");
        assert_eq!((facts.window, facts.input_max), (1_050_000, Some(922_000)));
        let said = FactsOverride {
            window: Some(16_000),
            input: Some(vec![Medium::Image]),
            ..FactsOverride::default()
        };
        let narrow = facts.with(&said);
        assert_eq!((narrow.window, narrow.input_max), (16_000, None));
        assert!(narrow.takes.image && !narrow.takes.pdf);
        assert_eq!(narrow.price, facts.price);
        let unknown = ModelFacts::unknown();
        assert!(!unknown.with(&FactsOverride::default()).known);
        assert!(unknown.with(&said).known);
    }

    #[test]
    fn a_request_leaves_room_for_its_answer_and_for_what_an_estimate_misses() {
        let facts = ModelFacts {
            window: 16_000,
            ..ModelFacts::unknown()
        };
        assert_eq!(facts.input_for(4_000), 12_000);
        assert_eq!(facts.budget_for(4_000), 10_000);
        assert_eq!(facts.budget_for(50_000), 0);
        let capped = ModelFacts {
            output_max: Some(2_000),
            input_max: Some(13_000),
            ..facts
        };
        assert_eq!(capped.input_for(8_000), 13_000);
        let wide = ModelFacts {
            window: 1_000_000,
            ..facts
        };
        assert_eq!(wide.budget_for(100_000), 860_000);
    }

    #[test]
    fn what_is_written_to_a_cache_costs_its_own_price() {
        let price = ModelFacts::built_in("claude-opus-5-5").and_then(|facts| facts.price);
        let price = price.expect("a price");
        let usage = Usage {
            input_tokens: 1_000_000,
            cache_read_tokens: 300_000,
            cache_write_tokens: 500_000,
            output_tokens: 100_000,
            ..Usage::default()
        };
        // 200 000 fresh at 4 $, 300 000 read at 0.2 $, 500 000 written at 5 $, 100 000 out at 20 $.
        assert!((price.of(&usage) - (0.8 + 0.06 + 2.5 + 2.0)).abs() < 1e-9);
    }

    #[test]
    fn a_long_request_costs_its_multiple() {
        let price = ModelFacts::built_in("gpt-6.2-sol").and_then(|facts| facts.price);
        let price = price.expect("a price");
        let usage = |input_tokens| Usage {
            input_tokens,
            output_tokens: 100_000,
            ..Usage::default()
        };
        assert!((price.of(&usage(272_000)) - (0.544 + 1.0)).abs() < 1e-9);
        assert!((price.of(&usage(300_000)) - (1.2 + 1.5)).abs() < 1e-9);
    }
}
