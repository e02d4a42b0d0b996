//! What an agent remembers beyond its session.

use serde::{Deserialize, Serialize};

use crate::memory::{Namespace, NamespaceFault};
use crate::stored::Extra;

/// The built-in provider, which uses the store.
pub const BUILTIN: &str = "builtin";

/// Default maximum number of memory tokens shown to a send.
pub const BUDGET_TOKENS_DEFAULT: u32 = 1_500;

/// Maximum number of memory tokens that an agent may ask for.
pub const BUDGET_TOKENS_MAX: u32 = 100_000;

/// What an agent remembers beyond its session, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MemorySpec {
    /// Who keeps it: `builtin`, or a name under `[memory]` in the workers' configuration.
    #[serde(default = "builtin", skip_serializing_if = "is_builtin")]
    pub provider: String,
    /// The namespace: a path like `user/{{metadata.user_id}}`, rendered from the session's `metadata` and `session_id`
    /// when a send starts. A value never extends beyond its segment of the path.
    pub namespace: String,
    /// Tokens of memory that a send is shown at most.
    #[serde(default = "budget_tokens")]
    pub budget_tokens: u32,
    /// How it is found again.
    #[serde(default)]
    pub recall: RecallMode,
    /// What is remembered automatically.
    #[serde(default)]
    pub extract: ExtractMode,
    /// The model that extracts; by default the one that the workers' configuration names, else the
    /// send's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extract_model: Option<String>,
    /// The memory of agents that it starts: `.` for the same namespace, or a path below it. Without it
    /// they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

fn builtin() -> String {
    BUILTIN.to_owned()
}

fn is_builtin(provider: &str) -> bool {
    provider == BUILTIN
}

fn budget_tokens() -> u32 {
    BUDGET_TOKENS_DEFAULT
}

/// How an agent finds again what it remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RecallMode {
    /// Entries that match a send's input are shown to the model; it has the tools, too.
    #[default]
    Auto,
    /// It has the tools `memory_search`, `memory_save` and `memory_forget`.
    Tool,
    /// Not at all.
    Off,
}

/// What an agent remembers automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExtractMode {
    /// Nothing.
    #[default]
    Off,
    /// What a model finds worth keeping in a send that has completed.
    AfterSend,
}

impl MemorySpec {
    /// Memory in this namespace, with the defaults for everything else.
    pub fn new(namespace: impl Into<String>) -> Self {
        Self {
            provider: builtin(),
            namespace: namespace.into(),
            budget_tokens: BUDGET_TOKENS_DEFAULT,
            recall: RecallMode::default(),
            extract: ExtractMode::default(),
            extract_model: None,
            grants: None,
            extra: Extra::default(),
        }
    }

    /// What is wrong with it: pointers into it, each with the reason.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if self.provider.is_empty() || self.provider.len() > 64 {
            faults.push(("/provider", "must have 1 to 64 bytes".to_owned()));
        }
        if let Err(fault) = Namespace::check_template(&self.namespace) {
            faults.push(("/namespace", format!("cannot be used: {fault}")));
        }
        if !(1..=BUDGET_TOKENS_MAX).contains(&self.budget_tokens) {
            let detail = format!("must be from 1 to {BUDGET_TOKENS_MAX}");
            faults.push(("/budget_tokens", detail));
        }
        if let Some(path) = self.grants.as_deref().filter(|path| *path != ".")
            && let Err(fault) = path.parse::<Namespace>()
        {
            let detail = format!("must be . or a path below the namespace: {fault}");
            faults.push(("/grants", detail));
        }
        faults
    }

    /// The memory granted to an agent started by one with this memory in the namespace `own`: at or
    /// below it. `None` if nothing is granted.
    pub fn granted(&self, own: &Namespace) -> Result<Option<Self>, NamespaceFault> {
        let Some(path) = self.grants.as_deref() else {
            return Ok(None);
        };
        let namespace = match path {
            "." => own.clone(),
            path => own.below(path)?,
        };
        Ok(Some(Self {
            namespace: namespace.to_string(),
            extract: ExtractMode::Off,
            extract_model: None,
            grants: Some(".".to_owned()),
            ..self.clone()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_stay_at_or_below_their_parents_namespace() {
        let own: Namespace = "user/1".parse().expect("a namespace");
        let mut spec = MemorySpec::new("user/{{metadata.user_id}}");
        assert_eq!(spec.granted(&own), Ok(None));
        for (path, expected) in [(".", "user/1"), ("work/a", "user/1/work/a")] {
            spec.grants = Some(path.to_owned());
            let granted = spec.granted(&own).expect("a path").expect("granted");
            assert_eq!(granted.namespace, expected);
            assert_eq!(granted.extract, ExtractMode::Off);
            let below: Namespace = granted.namespace.parse().expect("a namespace");
            assert!(own.covers(&below));
        }
        for path in ["..", "../2", "/x", "a//b"] {
            spec.grants = Some(path.to_owned());
            assert!(spec.granted(&own).is_err(), "{path}");
            assert_eq!(spec.faults().len(), 1, "{path}");
        }
    }
}
