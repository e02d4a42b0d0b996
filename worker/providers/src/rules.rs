//! What is known of endpoints and of models behind them, as data: which members of a request they accept, which
//! they refuse, what they give and must be given back.
//!
//! `vendors.toml` is a list of entries that are laid over one another in its order, member by member: the rules of
//! protocols, then of models wherever they are, then of hosts, then of models at hosts. What the operator configures
//! lies on top. No code compares hosts.

mod members;
mod pattern;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde::Deserialize;

pub use self::members::{
    AttachedBack, CallIds, ContentBesideCalls, OutputLimit, Pdf, ReasoningBack, ReasoningWhen,
    ResponseFormat, Rules, Said, Sampling, SchemaDialect, SystemRole, ThinkingForm, ThinkingOff,
    ThinkingSwitch, ToolChoiceWord, ToolsAtResponses, UnsignedCalls,
};
use self::pattern::{matches, names};
use crate::settings::Kind;

/// The table.
const TABLE: &str = include_str!("vendors.toml");

static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let table: Result<Table, _> = toml::from_str(TABLE);
    table.expect("a test reads each entry").entry
});

/// How many models' rules are kept, so that they need not be resolved for each request.
const KEPT_MAX: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    entry: Vec<Entry>,
}

/// An entry of the table. It holds where all of its conditions hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The vendor or server, by the name that an operator gives. Without hosts, an entry with a vendor only holds
    /// where the operator names it.
    #[serde(default)]
    vendor: Option<String>,
    /// Patterns of the host, with the port if one is given.
    #[serde(default)]
    host: Vec<String>,
    /// The protocols; all of them if there are none.
    #[serde(default)]
    protocol: Vec<String>,
    /// Patterns of the model's name.
    #[serde(default)]
    model: Vec<String>,
    /// Where it is known from.
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "it is for readers of the table; a test asks for it"
        )
    )]
    source: String,
    /// Of which day that is.
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "it is for readers of the table; a test asks for it"
        )
    )]
    date: String,
    /// What it says.
    says: Said,
}

impl Entry {
    fn is_of(&self, kind: Kind, place: &Place<'_>) -> bool {
        let protocol = self.protocol.is_empty() || self.protocol.iter().any(|p| p == kind.as_str());
        let host = match (&self.vendor, place.vendor) {
            (None, _) => self.host.is_empty() || place.is_any(&self.host),
            (Some(own), Some(named)) => own == named,
            (Some(_), None) => place.is_any(&self.host),
        };
        protocol && host
    }

    fn is_for(&self, names: &[String]) -> bool {
        let any = |name: &String| self.model.iter().any(|pattern| matches(pattern, name));
        self.model.is_empty() || names.iter().any(any)
    }
}

/// Where an endpoint is.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    host: &'a str,
    port: Option<u16>,
    /// The vendor that the operator names.
    vendor: Option<&'a str>,
}

impl Place<'_> {
    fn is_any(&self, patterns: &[String]) -> bool {
        let host = self.host.to_ascii_lowercase();
        let with_port = self.port.map(|port| format!("{host}:{port}"));
        patterns.iter().any(|pattern| {
            let at_port = with_port.as_ref().is_some_and(|it| matches(pattern, it));
            at_port || matches(pattern, &host)
        })
    }
}

/// What an operator says of an endpoint.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuleSettings {
    /// The vendor or server, where the host doesn't tell it.
    pub vendor: Option<String>,
    /// Of the models that match a pattern, `*` for all; longer patterns take precedence.
    pub by_model: BTreeMap<String, Said>,
}

/// The rules of one endpoint.
#[derive(Debug)]
pub struct RuleBook {
    entries: Vec<&'static Entry>,
    by_model: Vec<(String, Said)>,
    kept: Mutex<BTreeMap<String, Arc<Rules>>>,
}

impl RuleBook {
    /// The rules of the endpoint at this host, which is spoken to by this protocol.
    pub fn new(kind: Kind, host: &str, port: Option<u16>, said: &RuleSettings) -> Self {
        let vendor = said.vendor.as_deref();
        let place = Place { host, port, vendor };
        let mut by_model: Vec<_> = said.by_model.clone().into_iter().collect();
        by_model.sort_by_key(|(pattern, _)| pattern.len());
        Self {
            entries: ENTRIES.iter().filter(|it| it.is_of(kind, &place)).collect(),
            by_model,
            kept: Mutex::default(),
        }
    }

    /// The rules for this model.
    pub fn of(&self, model: &str) -> Arc<Rules> {
        // No code under this lock can panic midway, so the value is never half changed.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rules) = kept.get(model) {
            return Arc::clone(rules);
        }
        let rules = Arc::new(self.resolve(model));
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(model.to_owned(), Arc::clone(&rules));
        rules
    }

    fn resolve(&self, model: &str) -> Rules {
        let own = names(model);
        let said: Vec<&Said> = self
            .by_model
            .iter()
            .filter(|(pattern, _)| own.iter().any(|name| matches(pattern, name)))
            .map(|(_, said)| said)
            .collect();
        let like = said.iter().rev().find_map(|said| said.like.as_deref());
        let names = like.map_or(own, names);
        let mut rules = Rules::default();
        for entry in self.entries.iter().filter(|entry| entry.is_for(&names)) {
            rules.lay(&entry.says);
        }
        for said in said {
            rules.lay(said);
        }
        rules
    }
}

/// The vendors and servers that an operator can name.
pub const VENDORS: &[&str] = &[
    "anthropic",
    "azure",
    "cerebras",
    "copilot",
    "dashscope",
    "deepseek",
    "fireworks",
    "google",
    "groq",
    "litellm",
    "llamacpp",
    "lmstudio",
    "minimax",
    "mistral",
    "moonshot",
    "ollama",
    "openai",
    "openrouter",
    "perplexity",
    "sglang",
    "together",
    "vllm",
    "xai",
    "zai",
];

#[cfg(test)]
mod tests;
