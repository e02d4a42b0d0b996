//! The providers of a process, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use mainspring_runtime::Sealer;
use mainspring_shared::budget::no_price;
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::memory::Embedder;
use mainspring_shared::model::{FactsOverride, ModelFacts, PublishedModels};

use super::Model;
use super::calibrations::Calibrations;
use super::direct::{self, Direct};
use super::error::Error;
use super::share::Share;
use super::tenant_keys::TenantKeys;

/// How many models without facts are warned about.
const UNKNOWN_MAX: usize = 100;

/// A name that no provider can have: it contains a slash, which separates it from a model's name,
/// or has no letter.
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
    pub provider: Arc<str>,
    /// The client.
    pub client: Arc<dyn Model>,
    /// The model's name as the provider knows it.
    pub model: String,
    /// The facts of the model.
    pub facts: ModelFacts,
}

impl Resolved {
    /// Why it cannot be called within a budget in dollars: its price is not known.
    pub(crate) fn without_price(&self) -> Failure {
        let name = format!("{}/{}", self.provider, self.model);
        Failure::new(Code::BudgetNoPrice, no_price(&name))
    }
}

#[derive(Debug)]
struct Provider {
    client: Arc<dyn Model>,
    model: String,
}

/// All providers that a process can ask, one HTTP client each.
#[derive(Debug)]
pub struct Providers {
    by_name: BTreeMap<Arc<str>, Provider>,
    default: String,
    /// Facts from the configuration, by `MODEL` or `PROVIDER/MODEL`; the latter takes precedence.
    facts: BTreeMap<String, FactsOverride>,
    /// Models without any facts that were warned about.
    unknown: Mutex<BTreeSet<String>>,
    calibrations: Calibrations,
    tenant_keys: TenantKeys,
    embedder_keys: TenantKeys<dyn Embedder>,
    share: Share,
}

impl Providers {
    /// No providers except the one that runs the leaves of workflows; `default` names the provider
    /// of models without a provider's name.
    pub fn new(default: impl Into<String>) -> Self {
        let direct = Provider {
            client: Arc::new(Direct),
            model: direct::MODEL.to_owned(),
        };
        Self {
            by_name: BTreeMap::from([(direct::PROVIDER.into(), direct)]),
            default: default.into(),
            facts: BTreeMap::new(),
            unknown: Mutex::default(),
            calibrations: Calibrations::default(),
            tenant_keys: TenantKeys::default(),
            embedder_keys: TenantKeys::default(),
            share: Share::default(),
        }
    }

    /// Whether a provider has this name.
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The same with another default provider.
    #[must_use]
    pub fn with_default(mut self, name: impl Into<String>) -> Self {
        self.default = name.into();
        self
    }

    /// Adds a custom provider, or replaces one. `model` is asked when a request names none.
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
            name.into(),
            Provider {
                client,
                model: model.to_owned(),
            },
        );
        Ok(())
    }

    /// Sets facts of models, by `MODEL` or `PROVIDER/MODEL`, which override the built-in ones.
    #[must_use]
    pub fn with_facts(mut self, facts: BTreeMap<String, FactsOverride>) -> Self {
        self.facts = facts;
        self
    }

    /// Sets the key that unseals tenants' keys. Without it, calls of tenants that have set one
    /// fail.
    #[must_use]
    pub fn with_sealer(mut self, sealer: Option<Arc<Sealer>>) -> Self {
        self.tenant_keys = TenantKeys::new(sealer.clone());
        self.embedder_keys = TenantKeys::new(sealer);
        self
    }

    /// Sets the share by which the limits of providers are divided.
    #[must_use]
    pub fn with_share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// This process's share of what providers allow.
    pub(crate) fn share(&self) -> &Share {
        &self.share
    }

    /// The tenants' own keys.
    pub(crate) fn tenant_keys(&self) -> &TenantKeys {
        &self.tenant_keys
    }

    /// The same for embeddings.
    pub(crate) fn embedder_keys(&self) -> &TenantKeys<dyn Embedder> {
        &self.embedder_keys
    }

    /// The calibrations, by model: what providers counted relative to the estimates.
    pub fn calibrations(&self) -> &Calibrations {
        &self.calibrations
    }

    /// The facts of a provider's model.
    fn facts(&self, provider: &str, model: &str) -> ModelFacts {
        let full = format!("{provider}/{model}");
        let mut facts = ModelFacts::of(model);
        for name in [model, &full] {
            if let Some(said) = self.facts.get(name) {
                facts = facts.with(said);
            }
        }
        if !facts.known {
            let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
            // Names come from agents, so only as many are remembered as people may want to look at.
            if unknown.len() < UNKNOWN_MAX && unknown.insert(full) {
                tracing::warn!(
                    provider,
                    model,
                    window = facts.window,
                    "unknown model: assuming this window and no price; \
                     set [models.\"{provider}/{model}\"] in the configuration"
                );
            }
        }
        facts
    }

    /// Resolves an agent's `model`: `NAME/model`, `NAME/` for that provider's own default, or a
    /// model of the default provider. If the name before a slash is no provider's, it belongs to
    /// the model, as in the catalogues of routers.
    pub fn resolve(&self, model: Option<&str>) -> Result<Resolved, Error> {
        let model = model.unwrap_or_default().trim();
        let named = model
            .split_once('/')
            .and_then(|(name, rest)| self.by_name.get_key_value(name).map(|found| (found, rest)));
        let unnamed = || {
            self.by_name
                .get_key_value(self.default.as_str())
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
            let provider = name.to_string();
            return Err(Error::NoModel { provider });
        }
        Ok(Resolved {
            facts: self.facts(name, model),
            provider: Arc::clone(name),
            client: Arc::clone(&provider.client),
            model: model.to_owned(),
        })
    }

    /// What schedulers are told of them.
    pub(crate) fn published(&self) -> PublishedModels {
        let providers = self.by_name.iter();
        let providers = providers.filter(|(name, _)| ***name != *direct::PROVIDER);
        let priced = self.facts.iter();
        let priced = priced.filter(|(_, said)| said.price.is_some());
        PublishedModels {
            edition: ModelFacts::edition(),
            default: self.default.clone(),
            providers: providers
                .map(|(name, provider)| (name.to_string(), provider.model.clone()))
                .collect(),
            priced: priced.map(|(name, _)| name.clone()).collect(),
            vectors: None,
        }
    }

    /// The configured names, in order, without the provider that runs the leaves of workflows.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.by_name.keys().map(AsRef::as_ref);
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

    #[test]
    fn the_configuration_says_more_of_a_model_than_is_built_in() {
        let mut providers = Providers::new("main");
        for name in ["main", "other"] {
            let inserted = providers.insert(name, Arc::new(Direct), "");
            assert_eq!(inserted, Ok(()));
        }
        let window = |window| FactsOverride {
            window: Some(window),
            ..FactsOverride::default()
        };
        let facts = [
            ("gpt-5", window(1)),
            ("other/gpt-5", window(2)),
            ("mine", window(3)),
        ];
        let facts = facts.map(|(name, facts)| (name.to_owned(), facts));
        let providers = providers.with_facts(facts.into());
        let facts = |model| providers.resolve(Some(model)).map(|found| found.facts);
        assert_eq!(facts("gpt-5").expect("a model").window, 1);
        assert_eq!(facts("other/gpt-5").expect("a model").window, 2);
        assert!(facts("gpt-5").expect("a model").price.is_some());
        assert_eq!(facts("other/mine").expect("a model").window, 3);
        assert_eq!(facts("gpt-4o").expect("a model").window, 128_000);
        let published = providers.published();
        for name in [
            "gpt-5",
            "other/gpt-5",
            "mine",
            "other/mine",
            "strange",
            "vendor/gpt-4o",
        ] {
            let resolved = providers.resolve(Some(name)).expect("a model");
            let full = format!("{}/{}", resolved.provider, resolved.model);
            let lacking = resolved.facts.price.is_none().then_some(full);
            assert_eq!(published.lacks_price(Some(name)), lacking, "{name}");
        }
        let strange = facts("strange").expect("a model");
        assert!(!strange.known && strange.price.is_none());
    }
}
