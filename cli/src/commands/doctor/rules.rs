//! What endpoints accept, as far as `doctor --probe` finds out.

use std::sync::Arc;

use mainspring_providers::rules::Said;
use mainspring_providers::{Kind, ProviderSettings, learn};
use mainspring_shared::time::Clock;
use serde_json::Value;

use crate::config::Config;
use crate::failure::Failure;
use crate::{output, wiring};

/// Learns the rules of endpoints.
pub(super) struct Learner<'a> {
    pub(super) config: &'a Config,
    pub(super) clock: &'a Arc<dyn Clock>,
}

/// What was learnt: the table for it in the configuration and what to put there, and what failed.
pub(super) type LearntRules = (Option<(String, Said)>, Vec<(&'static str, String)>);

impl Learner<'_> {
    /// Learns what a provider's endpoint accepts for a model. Only chat completions differ so much that it is worth the
    /// requests.
    pub(super) async fn learn(&self, provider: &str, model: &str) -> LearntRules {
        let (settings, default) = wiring::provider_settings(self.config);
        let is_this = |it: &ProviderSettings| it.name == provider && it.kind == Kind::OpenAi;
        let Some(settings) = settings.into_iter().find(is_this) else {
            return (None, Vec::new());
        };
        match learn(&settings, model, self.clock).await {
            Ok(learned) => {
                let table = if provider == default {
                    "llm".to_owned()
                } else {
                    format!("providers.{provider}")
                };
                let table = format!("{table}.rules.{}", Value::from(model.to_ascii_lowercase()));
                let said = learned.said;
                let says = (said != Said::default()).then_some((table, said));
                (says, learned.failed)
            }
            Err(error) => (None, vec![("rules", error.to_string())]),
        }
    }
}

/// Prints rules in the form in which the configuration takes them.
pub(super) fn pasteable_rules(table: &str, said: &Said) -> Result<(), Failure> {
    output::line(&format!("\n[{table}]"))?;
    // As with facts, TOML and JSON look the same.
    let members = serde_json::to_value(said).unwrap_or_default();
    for (name, value) in members.as_object().into_iter().flatten() {
        output::line(&format!("{name} = {value}"))?;
    }
    output::line("")
}
