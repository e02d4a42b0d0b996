//! The model providers.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::config::{Config, Provider, ProviderKind, extra, rule_settings};
use mainspring_providers::{Kind, Limits, ProviderSettings};
use mainspring_runtime::Choice as _;
use mainspring_shared::budget::Price;
use mainspring_shared::model::FactsOverride;
use mainspring_shared::time::Clock;
use mainspring_worker::llm::{Providers, Secret};

use super::webhooks::sealer;
use crate::failure::{Failure, usage};

/// Every configured provider; the default one is named after its kind.
pub(crate) fn providers(config: &Config, clock: &Arc<dyn Clock>) -> Result<Providers, Failure> {
    let (settings, default) = provider_settings(config);
    let providers = mainspring_providers::open(&settings, default, clock).map_err(usage)?;
    let sealer = sealer(config)?.map(Arc::new);
    Ok(providers.with_facts(facts(config)).with_sealer(sealer))
}

/// The settings of all providers, and the name of the default one.
pub(crate) fn provider_settings(config: &Config) -> (Vec<ProviderSettings>, &'static str) {
    let default = config.llm.kind.as_str();
    let mut settings: Vec<ProviderSettings> = config
        .providers
        .iter()
        .map(|(name, provider)| waiting(name, provider, config))
        .collect();
    // If a named provider is called like the default provider's kind, the default one gets another
    // name, so that they do not clash.
    let default = if config.providers.contains_key(default) {
        "default"
    } else {
        default
    };
    settings.push(waiting(default, &config.llm, config));
    (settings, default)
}

/// What the configuration says about models: `prices` and `[models]`, which takes precedence.
pub(super) fn facts(config: &Config) -> BTreeMap<String, FactsOverride> {
    let prices = config.prices.iter();
    let prices = prices.filter_map(|entry| Price::parse_entry(entry));
    let mut facts: BTreeMap<String, FactsOverride> = BTreeMap::new();
    for (model, price) in prices {
        facts.entry(model).or_default().price = Some(price);
    }
    for (model, said) in &config.models.0 {
        let known = facts.entry(model.clone()).or_default();
        *known = FactsOverride {
            price: said.price.or(known.price),
            ..said.clone()
        };
    }
    facts
}

/// As [`settings_of`], with the time that a call may wait in memory for its turn.
fn waiting(name: &str, provider: &Provider, config: &Config) -> ProviderSettings {
    let mut settings = settings_of(name, provider);
    settings.limits.wait_max = config.worker.hold_max;
    settings
}

pub(super) fn settings_of(name: &str, provider: &Provider) -> ProviderSettings {
    let kind = match provider.kind {
        ProviderKind::Openai => Kind::OpenAi,
        ProviderKind::OpenaiResponses => Kind::OpenAiResponses,
        ProviderKind::Anthropic => Kind::Anthropic,
        ProviderKind::Demo => Kind::Demo,
    };
    let secret = |secret: &mainspring_runtime::Secret| Secret::new(secret.reveal());
    let base = ProviderSettings::new(name, kind);
    ProviderSettings {
        base_url: provider.base_url.clone().unwrap_or(base.base_url),
        api_key: provider.api_key.as_ref().map(secret).unwrap_or_default(),
        model: provider.model.clone().unwrap_or_default(),
        stream: provider.stream,
        prompt_cache: provider.prompt_cache,
        background: provider.background,
        native_schema: provider.native_schema.unwrap_or(base.native_schema),
        connect_timeout: provider.connect_timeout,
        first_byte_timeout: provider.first_byte_timeout,
        idle_timeout: provider.idle_timeout,
        attempt_timeout: provider.attempt_timeout,
        headers: provider
            .headers
            .iter()
            .map(|(name, it)| (name.clone(), secret(it)))
            .collect(),
        // Malformed members were already refused when the configuration was validated.
        extra: extra(provider).unwrap_or_default(),
        rules: rule_settings(provider),
        limits: Limits {
            requests_per_minute: NonZeroU32::new(provider.requests_per_minute),
            tokens_per_minute: NonZeroU32::new(provider.tokens_per_minute),
            breaker_failures: provider.breaker_failures,
            breaker_pause: provider.breaker_pause,
            ..base.limits
        },
        name: base.name,
        kind,
    }
}
