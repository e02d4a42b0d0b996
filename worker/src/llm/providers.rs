//! The providers of a process, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainspring_shared::budget::Price;
use mainspring_shared::time::Clock;

use super::Model;
use super::anthropic::Anthropic;
use super::demo::Demo;
use super::direct::{self, Direct};
use super::error::Error;
use super::openai::OpenAi;
use super::settings::{Kind, ProviderSettings};

/// Settings that no provider can be made of. Never shows a key.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The address is not one.
    #[error("the base URL of provider {provider} is not an http or https address")]
    BaseUrl {
        /// Whose.
        provider: String,
    },
    /// A header, or the key, has characters that no header may have.
    #[error("the header {header} of provider {provider} cannot be sent")]
    Header {
        /// Whose.
        provider: String,
        /// Its name.
        header: String,
    },
    /// The HTTP client cannot be built.
    #[error("the HTTP client of provider {provider} cannot be built")]
    Client {
        /// Whose.
        provider: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// A name with a slash, which no model's name could begin with, or without any letter.
    #[error("{provider:?} cannot be a provider's name")]
    Name {
        /// The name.
        provider: String,
    },
    /// Two providers of one name.
    #[error("provider {provider} is configured twice")]
    Twice {
        /// The name.
        provider: String,
    },
    /// The default provider does not exist.
    #[error("the default provider {provider} is not configured")]
    NoDefault {
        /// The name.
        provider: String,
    },
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
    /// Makes each of `settings`; `default` names the one for models without a provider's name.
    ///
    /// # Panics
    ///
    /// When an HTTP provider is made before a rustls crypto provider is installed.
    pub fn new(
        settings: &[ProviderSettings],
        default: &str,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, SetupError> {
        let mut providers = Self {
            by_name: BTreeMap::new(),
            default: default.to_owned(),
            prices: BTreeMap::new(),
        };
        for each in settings {
            if providers.by_name.contains_key(&each.name) {
                return Err(SetupError::Twice {
                    provider: each.name.clone(),
                });
            }
            let client: Arc<dyn Model> = match each.kind {
                Kind::OpenAi => Arc::new(OpenAi::new(each, Arc::clone(clock))?),
                Kind::Anthropic => Arc::new(Anthropic::new(each, Arc::clone(clock))?),
                Kind::Demo => Arc::new(Demo::new(Arc::clone(clock))),
            };
            providers.insert(&each.name, client, &each.model)?;
        }
        let is_there = providers.by_name.contains_key(default);
        providers.insert(direct::PROVIDER, Arc::new(Direct), direct::MODEL)?;
        if is_there {
            Ok(providers)
        } else {
            Err(SetupError::NoDefault {
                provider: default.to_owned(),
            })
        }
    }

    /// Adds a provider of the embedding program's own, or replaces one. `model` is asked when a
    /// request names none.
    pub fn insert(
        &mut self,
        name: &str,
        client: Arc<dyn Model>,
        model: &str,
    ) -> Result<(), SetupError> {
        if name.trim().is_empty() || name.contains('/') {
            return Err(SetupError::Name {
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
    use mainspring_runtime::SystemClock;

    fn demo(name: &str, model: &str) -> ProviderSettings {
        ProviderSettings {
            model: model.to_owned(),
            ..ProviderSettings::new(name, Kind::Demo)
        }
    }

    fn providers(settings: &[ProviderSettings]) -> Result<Providers, SetupError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        Providers::new(settings, "main", &clock)
    }

    #[test]
    fn a_model_is_found_with_and_without_its_providers_name() {
        let providers = providers(&[demo("main", "small"), demo("other", "")]).expect("valid");
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
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        assert!(matches!(providers(&[]), Err(SetupError::NoDefault { .. })));
        assert!(matches!(
            providers(&[demo("a/b", "")]),
            Err(SetupError::Name { .. })
        ));
        let twice = providers(&[demo("main", ""), demo("main", "")]);
        assert!(matches!(twice, Err(SetupError::Twice { .. })));
    }

    #[test]
    fn no_key_is_printed() {
        let mut settings = demo("main", "x");
        settings.api_key = super::super::Secret::new("very-secret");
        settings.headers.push((
            "x-more".to_owned(),
            super::super::Secret::new("very-secret"),
        ));
        assert!(!format!("{settings:?}").contains("very-secret"));
    }
}
