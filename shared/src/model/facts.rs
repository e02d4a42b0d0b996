//! What is known of models: their windows, what they take, and what they cost.
//!
//! Facts are data. `facts.toml` holds those that are built in; the configuration overrides them field
//! by field. Of a model that nobody knows, [`ModelFacts::unknown`] is assumed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::budget::Price;

/// The window that is assumed of a model that nobody knows: what today's models have at the least.
const WINDOW_UNKNOWN: u64 = 128_000;

/// The built-in facts.
const BUILT_IN: &str = include_str!("facts.toml");

static KNOWN: LazyLock<BTreeMap<String, ModelFacts>> = LazyLock::new(|| {
    let known = toml::from_str(BUILT_IN);
    known.expect("a test reads each entry")
});

/// What is known of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelFacts {
    /// Tokens of a request and its answer together.
    pub window: u64,
    /// Tokens of a request, where that is bounded besides.
    pub input_max: Option<u64>,
    /// Tokens of an answer at most; not known when absent.
    pub output_max: Option<u64>,
    /// What may stand in a request besides text.
    pub takes: Takes,
    /// Whether its provider can hold answers to a JSON Schema; its transport decides when absent.
    pub native_schema: Option<bool>,
    /// Whether it thinks before it answers; not known when absent.
    pub thinking: Option<Thinking>,
    /// Whether it decides by itself how much it thinks: it takes an effort, and neither a number of tokens nor
    /// `temperature` and `top_p`.
    pub adaptive: bool,
    /// Tokens that it counts where most models count one, for the same text.
    pub tokens: f64,
    /// What its tokens cost; not known when absent.
    pub price: Option<Price>,
    /// Whether anything of this is known, by the built-in facts or the configuration.
    pub known: bool,
}

/// What a model takes besides text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Takes {
    /// Pictures.
    pub image: bool,
    /// PDF files.
    pub pdf: bool,
    /// Sound.
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
    /// A picture.
    Image,
    /// A PDF file.
    Pdf,
    /// Sound.
    Audio,
}

/// What a configuration says of a model: each field overrides the built-in one.
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
    /// What is assumed of a model that nobody knows. What it takes is left to its provider to refuse.
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

    /// What is built in of the model with this name. Vendors' names stand for their dated versions
    /// (`gpt-5-2025-08-07`), and routers' names (`anthropic/claude-opus-4.5`) for the vendors'.
    pub fn built_in(model: &str) -> Option<Self> {
        let name = model.rsplit('/').next().unwrap_or(model);
        let name = name.trim().to_ascii_lowercase();
        let undated = without_date(&name);
        let vendors = undated.replace('.', "-");
        let names = [name.as_str(), undated, &vendors];
        names.into_iter().find_map(|name| KNOWN.get(name)).copied()
    }

    /// The facts with what a configuration says.
    #[must_use]
    pub fn with(mut self, said: &FactsOverride) -> Self {
        self.known |= *said != FactsOverride::default();
        self.window = said.window.unwrap_or(self.window);
        self.input_max = match (said.input_max, said.window) {
            (Some(max), _) => Some(max),
            // The bound within another window than this one means nothing.
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

    /// Whether answers are held to a JSON Schema by the provider, so that the model need not be told of
    /// it. `transport` says whether the way to the provider can ask for that.
    pub fn enforces_schema(&self, transport: bool) -> bool {
        transport && self.native_schema.unwrap_or(true)
    }

    /// Tokens that a request may have whose answer may have so many.
    pub fn input_for(&self, output: u64) -> u64 {
        let output = output.min(self.output_max.unwrap_or(u64::MAX));
        let beside = self.window.saturating_sub(output);
        beside.min(self.input_max.unwrap_or(u64::MAX))
    }

    /// Tokens that a request is allowed to have whose answer may have so many: some are kept free for
    /// what an estimate misses, 4 % of the window and at least 2 000.
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

/// A name without the date, or the `latest`, that it ends with.
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
                // Nobody talks to these.
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
