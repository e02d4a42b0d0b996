//! Facts about models: their windows, accepted inputs, and prices.
//!
//! Facts are data. `facts.toml` has the built-in ones; the configuration overrides them field by
//! field. For an unknown model, [`ModelFacts::unknown`] is assumed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::budget::Price;

/// The window assumed for an unknown model: the minimum of current models.
const WINDOW_UNKNOWN: u64 = 128_000;

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

    /// The built-in facts of the model with this name. Vendors' names also cover their dated
    /// versions (`gpt-5-2025-08-07`), and routers' names (`anthropic/claude-opus-4.5`).
    pub fn built_in(model: &str) -> Option<Self> {
        let name = model.rsplit('/').next().unwrap_or(model);
        let name = name.trim().to_ascii_lowercase();
        let undated = without_date(&name);
        let vendors = undated.replace('.', "-");
        let names = [name.as_str(), undated, &vendors];
        names.into_iter().find_map(|name| KNOWN.get(name)).copied()
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

/// A name without a trailing date or `latest`.
fn without_date(name: &str) -> &str {
    let name = name.strip_suffix("-latest").unwrap_or(name);
    let is_digits = |part: &str, count: usize| {
        part.len() == count && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let Some((rest, last)) = name.rsplit_once('-') else {
        return name;
    };
    if is_digits(last, 8) {
        return rest;
    }
    let date = rest.rsplit_once('-').and_then(|(rest, month)| {
        let (rest, year) = rest.rsplit_once('-')?;
        (is_digits(last, 2) && is_digits(month, 2) && is_digits(year, 4)).then_some(rest)
    });
    date.unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Usage;

    #[test]
    fn every_entry_is_read_and_makes_sense() {
        let table: toml::Table = BUILT_IN.parse().expect("TOML");
        assert!(table.len() > 30);
        for (name, value) in table {
            let said: FactsOverride = value.try_into().expect(&name);
            if name.starts_with("text-embedding-") {
                // Embedding models have no answers.
                let facts = ModelFacts::built_in(&name).expect(&name);
                let price = facts.price.expect("it is known");
                assert!(price.input > price.output, "{name}");
                continue;
            }
            assert!(said.window.is_some() && said.output_max.is_some(), "{name}");
            assert!(
                said.native_schema.is_some() && said.thinking.is_some(),
                "{name}"
            );
            let facts = ModelFacts::built_in(&name).expect(&name);
            assert!(facts.known, "{name}");
            assert!((16_000..=20_000_000).contains(&facts.window), "{name}");
            assert!(
                facts.output_max.is_some_and(|max| max <= facts.window),
                "{name}"
            );
            assert!(
                facts.input_max.is_none_or(|max| max < facts.window),
                "{name}"
            );
            assert!((0.5..=2.0).contains(&facts.tokens), "{name}");
            assert!(facts.budget_for(8_000) > 8_000, "{name}");
            if let Some(price) = facts.price {
                let read = price.cache_read.expect("vendors have a price for it");
                assert!(0.0 < read && read < price.input, "{name}");
                assert!(
                    price.input < price.output && price.output < 1_000.0,
                    "{name}"
                );
                assert!(
                    price.cache_write.is_none_or(|write| write > price.input),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn newer_models_of_anthropic_decide_how_much_they_think() {
        let adaptive = |name| ModelFacts::built_in(name).map(|facts| facts.adaptive);
        assert_eq!(adaptive("claude-opus-4-7"), Some(true));
        assert_eq!(adaptive("anthropic/claude-sonnet-5"), Some(true));
        assert_eq!(adaptive("claude-opus-4-6"), Some(false));
        assert_eq!(adaptive("gpt-5.4"), Some(false));
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
