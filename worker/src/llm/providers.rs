//! The providers of a process, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainspring_shared::budget::Price;

use super::Model;
use super::direct::{self, Direct};
use super::error::Error;

/// A name that no provider can have: with a slash, which no model's name could begin with, or
/// without any letter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{provider:?} cannot be a provider's name")]
pub struct InvalidName {
    /// The name.
    pub provider: String,
}

/// A model to ask, and what to put into [`Request::model`](super::Request::model).
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The provider's configured name, for metrics and traces.
    pub provider: String,
    /// The way to it.
    pub client: Arc<dyn Model>,
    /// The model's name as the provider knows it.
    pub model: String,
    /// What its tokens cost, where that is known.
    pub price: Option<Price>,
}

#[derive(Debug)]
struct Provider {
    client: Arc<dyn Model>,
    model: String,
}

/// All providers that a process can ask, one HTTP client each.
#[derive(Debug)]
pub struct Providers {
    by_name: BTreeMap<String, Provider>,
    default: String,
    /// By `MODEL`, or `PROVIDER/MODEL`, which wins.
    prices: BTreeMap<String, Price>,
}

impl Providers {
    /// No providers but what runs the leaves of workflows; `default` names the one for models without
    /// a provider's name.
    pub fn new(default: impl Into<String>) -> Self {
        let direct = Provider {
            client: Arc::new(Direct),
            model: direct::MODEL.to_owned(),
        };
        Self {
            by_name: BTreeMap::from([(direct::PROVIDER.to_owned(), direct)]),
            default: default.into(),
            prices: BTreeMap::new(),
        }
    }

    /// Whether a provider has this name.
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Adds a provider of the embedding program's own, or replaces one. `model` is asked when a
    /// request names none.
    pub fn insert(
        &mut self,
        name: &str,
        client: Arc<dyn Model>,
        model: &str,
    ) -> Result<(), InvalidName> {
        if name.trim().is_empty() || name.contains('/') {
            return Err(InvalidName {
                provider: name.to_owned(),
            });
        }
        self.by_name.insert(
            name.to_owned(),
            Provider {
                client,
                model: model.to_owned(),
            },
        );
        Ok(())
    }

    /// Sets what models cost, by `MODEL` or `PROVIDER/MODEL`.
    #[must_use]
    pub fn with_prices(mut self, prices: BTreeMap<String, Price>) -> Self {
        self.prices = prices;
        self
    }

    /// Finds what an agent's `model` means: `NAME/model`, `NAME/` for that provider's own default,
    /// or a model of the default provider. A name before a slash that is no provider's belongs to
    /// the model, as in the catalogues of routers.
    pub fn resolve(&self, model: Option<&str>) -> Result<Resolved, Error> {
        let model = model.unwrap_or_default().trim();
        let named = model
            .split_once('/')
            .and_then(|(name, rest)| self.by_name.get_key_value(name).map(|found| (found, rest)));
        let unnamed = || {
            self.by_name
                .get_key_value(&self.default)
                .map(|found| (found, model))
        };
        let ((name, provider), rest) =
            named
                .or_else(unnamed)
                .ok_or_else(|| Error::InvalidRequest {
                    message: "no default provider is configured".to_owned(),
                })?;
        let model = if rest.is_empty() {
            provider.model.as_str()
        } else {
            rest
        };
        if model.is_empty() {
            let provider = name.clone();
            return Err(Error::NoModel { provider });
        }
        let price = self.prices.get(&format!("{name}/{model}"));
        let price = price.or_else(|| self.prices.get(model)).copied();
        Ok(Resolved {
            price,
            provider: name.clone(),
            client: Arc::clone(&provider.client),
            model: model.to_owned(),
        })
    }

    /// The configured names, in order; what runs the leaves of workflows is not one of them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.by_name.keys().map(String::as_str);
        names.filter(|name| *name != direct::PROVIDER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_with_and_without_its_providers_name() {
        let mut providers = Providers::new("main");
        for (name, model) in [("main", "small"), ("other", "")] {
            let inserted = providers.insert(name, Arc::new(Direct), model);
            assert_eq!(inserted, Ok(()));
        }
        let found = |model| {
            let found = providers.resolve(model).ok()?;
            Some(format!("{} {}", found.provider, found.model))
        };
        assert_eq!(found(None).as_deref(), Some("main small"));
        assert_eq!(found(Some("large")).as_deref(), Some("main large"));
        assert_eq!(found(Some("other/x/y")).as_deref(), Some("other x/y"));
        assert_eq!(found(Some("vendor/x")).as_deref(), Some("main vendor/x"));
        assert_eq!(found(Some("main/")).as_deref(), Some("main small"));
        assert_eq!(found(Some("other/")), None);
        assert!(providers.names().eq(["main", "other"]));
        let refused = providers.insert("a/b", Arc::new(Direct), "");
        assert!(refused.is_err());
    }
}
