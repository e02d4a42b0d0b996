//! The memory of agents.

use std::sync::Arc;
use std::time::Duration;

use mainspring_providers::{DemoVectors, Embeddings, Kind};
use mainspring_runtime::Choice as _;
use mainspring_shared::agent::memory::BUILTIN;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::memory::Embedder;
use mainspring_shared::model::ModelFacts;
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;
use mainspring_tools::http::{Caller, CallerSettings};
use mainspring_tools::memory::HttpMemory;
use mainspring_worker::llm::Secret;
use mainspring_worker::memory::Memories;

use super::models::{facts, settings_of};
use crate::config::Config;
use crate::failure::{Failure, usage, usage_text};

/// Every address, since the operator of the workers decides where their memory is.
pub(super) const ANYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// How long computing an entry's vector may take; nobody waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The memory providers: the one in the store, and those that the configuration names.
pub(crate) fn memories(
    config: &Config,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
) -> Result<Memories, Failure> {
    let embedder = embedder(config)?;
    let embedder = embedder.map(|embedder| (embedder, config.embeddings.timeout));
    let mut memories = Memories::new(store.clone(), clock.clone(), embedder);
    if config.memory.is_empty() {
        return Ok(memories);
    }
    let signing = config.tools.signing_secret.iter();
    let signing = signing.flat_map(|secrets| secrets.reveal().split_whitespace());
    let settings = CallerSettings {
        signing_secrets: signing.map(Secret::new).collect(),
        allow_private: ANYWHERE.map(str::to_owned).to_vec(),
        ..CallerSettings::default()
    };
    let caller = Caller::new(&settings, clock.clone(), entropy.clone()).map_err(usage)?;
    for (name, server) in &config.memory {
        let Some(url) = &server.url else {
            let message = format!("[memory.{name}] needs the provider's url");
            return Err(usage_text(message, "give its url"));
        };
        if name == BUILTIN {
            let message = format!("[memory.{name}] uses the reserved name of the builtin memory");
            return Err(usage_text(message, "give it another name"));
        }
        memories.insert(
            name,
            Arc::new(HttpMemory::new(url, server.timeout, &caller)),
        );
    }
    Ok(memories)
}

fn embedder(config: &Config) -> Result<Option<Arc<dyn Embedder>>, Failure> {
    let settings = &config.embeddings;
    let Some(model) = &settings.model else {
        return Ok(None);
    };
    let provider = match &settings.provider {
        None => settings_of(config.llm.kind.as_str(), &config.llm),
        Some(name) => {
            let provider = config.providers.get(name).ok_or_else(|| {
                let message = format!("memory.embeddings_provider: there is no [providers.{name}]");
                usage_text(message, "name an existing one, or none for the default one")
            })?;
            settings_of(name, provider)
        }
    };
    if provider.kind == Kind::Demo {
        let made = DemoVectors::new(&provider.name, model, settings.dimensions);
        return Ok(Some(Arc::new(made)));
    }
    // Queries have their own shorter limit; entries are given more time.
    let patience = settings.timeout.max(PATIENCE);
    let made = Embeddings::open(&provider, model, settings.dimensions, patience);
    let price = match facts(config).remove(model).and_then(|said| said.price) {
        Some(price) => Some(price),
        None => ModelFacts::built_in(model).and_then(|facts| facts.price),
    };
    Ok(Some(Arc::new(made.map_err(usage)?.with_price(price))))
}
