//! What a worker says of its models when it starts, so that a scheduler, which may have another
//! configuration or none, can tell whether a model has a price.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ModelFacts;
use crate::words::nearest;

/// The providers and prices that one worker is configured with. No keys, and no addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct PublishedModels {
    /// The [edition](ModelFacts::edition) of the facts that are built into it.
    #[serde(default)]
    pub edition: String,
    /// The provider of models without a provider's name.
    #[serde(default)]
    pub default: String,
    /// Each provider with its default model, which may be empty.
    #[serde(default)]
    pub providers: BTreeMap<String, String>,
    /// The models, as `MODEL` or `PROVIDER/MODEL`, that its configuration gives a price.
    #[serde(default)]
    pub priced: BTreeSet<String>,
    /// The model that it computes vectors with, as `PROVIDER/MODEL`, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vectors: Option<String>,
}

/// Names that people put before a model although no provider is configured under them: kinds of providers, and vendors.
const VENDORS: [&str; 12] = [
    "anthropic",
    "azure",
    "bedrock",
    "cohere",
    "deepseek",
    "demo",
    "google",
    "groq",
    "mistral",
    "openai",
    "vertex",
    "xai",
];

impl PublishedModels {
    /// What to say of a model whose first part looks like the name of a provider that the worker does not have: its
    /// default provider is then asked for the whole name. Nothing where that is usual there, as at routers.
    pub fn no_provider(&self, model: &str) -> Option<String> {
        let (provider, _) = model.trim().split_once('/')?;
        let own = self.providers.get(&self.default)?;
        if self.providers.contains_key(provider) || own.contains('/') {
            return None;
        }
        let names = self.providers.keys().map(String::as_str);
        let near = nearest(provider, names.filter(|name| !name.is_empty()));
        if near.is_none() && !VENDORS.contains(&provider) {
            return None;
        }
        let near = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
        Some(format!(
            "no provider is named {provider:?}: the default one, {:?}, is asked for {model:?}{near}",
            self.default
        ))
    }

    /// Whether the worker computes vectors with this model, as `MODEL` or `PROVIDER/MODEL`.
    pub fn has_vectors_of(&self, model: &str) -> bool {
        let own = self.vectors.as_deref();
        own.is_some_and(|own| {
            own == model || own.split_once('/').is_some_and(|(_, name)| name == model)
        })
    }

    /// Whether the worker can tell what a call of this model costs, and which model that is; agents
    /// name it as `MODEL` or `PROVIDER/MODEL`. `None` if this release cannot know: the worker may
    /// know more models, or has none by that name.
    pub fn lacks_price(&self, model: Option<&str>) -> Option<String> {
        let model = model.unwrap_or_default().trim();
        let named = model.split_once('/');
        let named = named.filter(|(provider, _)| self.providers.contains_key(*provider));
        let (provider, rest) = named.unwrap_or((&self.default, model));
        let own = self.providers.get(provider)?;
        let name = if rest.is_empty() { own.as_str() } else { rest };
        if name.is_empty() || self.edition != ModelFacts::edition() {
            return None;
        }
        let full = format!("{provider}/{name}");
        let is_known = ModelFacts::built_in(name).is_some_and(|facts| facts.price.is_some());
        let is_set = self.priced.contains(name) || self.priced.contains(&full);
        (!is_known && !is_set).then_some(full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published() -> PublishedModels {
        let own = |name: &str| (name.to_owned(), String::new());
        PublishedModels {
            edition: ModelFacts::edition(),
            default: "main".into(),
            providers: [
                ("main".to_owned(), "mine".to_owned()),
                own("local"),
                own("other"),
            ]
            .into(),
            priced: ["local/llama3".to_owned(), "cheap".to_owned()].into(),
            vectors: None,
        }
    }

    #[test]
    fn a_provider_that_does_not_exist_is_noticed() {
        let published = published();
        let said = |model: &str| published.no_provider(model);
        let vendor = said("anthropic/claude").expect("told");
        assert!(
            vendor.contains("\"main\", is asked for \"anthropic/claude\""),
            "{vendor}"
        );
        let near = said("locl/llama3").expect("told");
        assert!(near.ends_with("did you mean \"local\"?"), "{near}");
        for usual in ["local/llama3", "gpt-5", "meta-llama/llama3", "main/x"] {
            assert_eq!(said(usual), None, "{usual}");
        }
        let router = PublishedModels {
            providers: [("main".to_owned(), "vendor/model".to_owned())].into(),
            ..published
        };
        assert_eq!(router.no_provider("anthropic/claude"), None);
    }

    #[test]
    fn a_model_has_the_price_that_is_built_in_or_configured() {
        let published = published();
        let lacks = |model: &str| published.lacks_price(Some(model));
        for priced in [
            "gpt-5-mini",
            "openai/gpt-5-mini",
            "other/gpt-5-mini",
            "local/llama3",
            "other/cheap",
        ] {
            assert_eq!(lacks(priced), None, "{priced}");
        }
        assert_eq!(lacks("llama3").as_deref(), Some("main/llama3"));
        assert_eq!(lacks("other/llama3").as_deref(), Some("other/llama3"));
        assert_eq!(published.lacks_price(None).as_deref(), Some("main/mine"));
    }

    #[test]
    fn a_model_for_vectors_is_named_with_or_without_its_provider() {
        let published = PublishedModels {
            vectors: Some("main/org/embed".into()),
            ..published()
        };
        assert!(published.has_vectors_of("main/org/embed"));
        assert!(published.has_vectors_of("org/embed"));
        assert!(!published.has_vectors_of("embed"));
        assert!(!PublishedModels::default().has_vectors_of(""));
    }

    #[test]
    fn what_cannot_be_known_is_not_held_against_a_model() {
        let newer = PublishedModels {
            edition: "another".into(),
            ..published()
        };
        assert_eq!(newer.lacks_price(Some("llama3")), None);
        assert_eq!(
            published().lacks_price(Some("local/")),
            None,
            "no such model"
        );
    }
}
