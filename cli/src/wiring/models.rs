//! The providers of models.

use std::sync::Arc;

use crate::config::{Config, Provider, ProviderKind};
use mainspring_providers::{Kind, ProviderSettings};
use mainspring_runtime::Choice as _;
use mainspring_shared::budget::Price;
use mainspring_shared::time::Clock;
use mainspring_worker::llm::{Providers, Secret};

use crate::failure::{Failure, usage};

/// Every configured provider; the default one is called by its kind.
pub(crate) fn providers(config: &Config, clock: &Arc<dyn Clock>) -> Result<Providers, Failure> {
    let default = config.llm.kind.as_str();
    let mut settings: Vec<ProviderSettings> = config
        .providers
        .iter()
        .map(|(name, provider)| settings_of(name, provider))
        .collect();
    // A named provider may take the name of the default one's kind; then the default one has none
    // of its own left to clash with.
    let default = if config.providers.contains_key(default) {
        "default"
    } else {
        default
    };
    settings.push(settings_of(default, &config.llm));
    let prices = config
        .prices
        .iter()
        .filter_map(|entry| Price::parse_entry(entry));
    let providers = mainspring_providers::open(&settings, default, clock).map_err(usage)?;
    Ok(providers.with_prices(prices.collect()))
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
        name: base.name,
        kind,
    }
}
