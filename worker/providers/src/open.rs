//! Creates the configured providers.

use std::sync::Arc;

use mainspring_shared::time::Clock;
use mainspring_worker::llm::{InvalidName, Model, Providers, Share};

use crate::anthropic::Anthropic;
use crate::demo::Demo;
use crate::gate::{Gate, Guarded};
use crate::openai::OpenAi;
use crate::responses::Responses;
use crate::settings::{Kind, ProviderSettings};

/// Why a provider cannot be created. Never shows a key.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The base URL is invalid.
    #[error("the base URL of provider {provider} is not an http or https address")]
    BaseUrl {
        /// The provider's name.
        provider: String,
    },
    /// A header, or the key, has characters that are not allowed in headers.
    #[error("the header {header} of provider {provider} cannot be sent")]
    Header {
        /// The provider's name.
        provider: String,
        /// The header's name.
        header: String,
    },
    /// The HTTP client cannot be built.
    #[error("the HTTP client of provider {provider} cannot be built")]
    Client {
        /// The provider's name.
        provider: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Two providers have the same name.
    #[error("provider {provider} is configured twice")]
    Twice {
        /// The provider's name.
        provider: String,
    },
    /// The default provider does not exist.
    #[error("the default provider {provider} is not configured")]
    NoDefault {
        /// The provider's name.
        provider: String,
    },
}

/// Creates a provider for each of `settings`; `default` names the one for models without a
/// provider's name.
///
/// # Panics
///
/// If an HTTP provider is created before a rustls crypto provider is installed.
pub fn open(
    settings: &[ProviderSettings],
    default: &str,
    clock: &Arc<dyn Clock>,
) -> Result<Providers, SetupError> {
    let share = Share::default();
    let mut providers = Providers::new(default).with_share(share.clone());
    for each in settings {
        if providers.contains(&each.name) {
            return Err(SetupError::Twice {
                provider: each.name.clone(),
            });
        }
        providers.insert(&each.name, made(each, &share, clock)?, &each.model)?;
    }
    if settings.iter().any(|each| each.name == default) {
        Ok(providers)
    } else {
        Err(SetupError::NoDefault {
            provider: default.to_owned(),
        })
    }
}

/// Creates a client for one provider, with its own gate.
pub(crate) fn made(
    settings: &ProviderSettings,
    share: &Share,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Model>, SetupError> {
    let gate = Arc::new(Gate::new(settings, share.clone(), Arc::clone(clock)));
    Ok(match settings.kind {
        Kind::OpenAi => guarded(OpenAi::new(settings, &gate, clock)?, gate, settings),
        Kind::OpenAiResponses => guarded(Responses::new(settings, &gate, clock)?, gate, settings),
        Kind::Anthropic => guarded(Anthropic::new(settings, &gate, clock)?, gate, settings),
        Kind::Demo => Arc::new(Demo::new(Arc::clone(clock))),
    })
}

fn guarded(
    model: impl Model + 'static,
    gate: Arc<Gate>,
    settings: &ProviderSettings,
) -> Arc<dyn Model> {
    Arc::new(Guarded {
        model,
        gate,
        settings: settings.clone(),
    })
}

#[cfg(test)]
mod tests {
    use mainspring_runtime::SystemClock;
    use mainspring_worker::llm::Secret;

    use super::*;

    fn demo(name: &str, model: &str) -> ProviderSettings {
        ProviderSettings {
            model: model.to_owned(),
            ..ProviderSettings::new(name, Kind::Demo)
        }
    }

    fn providers(settings: &[ProviderSettings]) -> Result<Providers, SetupError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        open(settings, "main", &clock)
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        assert!(providers(&[demo("main", "")]).is_ok());
        assert!(matches!(providers(&[]), Err(SetupError::NoDefault { .. })));
        assert!(matches!(
            providers(&[demo("a/b", "")]),
            Err(SetupError::Name(_))
        ));
        let twice = providers(&[demo("main", ""), demo("main", "")]);
        assert!(matches!(twice, Err(SetupError::Twice { .. })));
    }

    #[test]
    fn no_key_is_printed() {
        let mut settings = demo("main", "x");
        settings.api_key = Secret::new("very-secret");
        let header = ("x-more".to_owned(), Secret::new("very-secret"));
        settings.headers.push(header);
        assert!(!format!("{settings:?}").contains("very-secret"));
    }
}
