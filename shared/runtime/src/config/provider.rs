//! Providers of models: the default one, whose settings may come from names that other programs
//! use, and named ones.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::time::Span;
use serde::{Deserialize, Serialize};
use toml::Value;

use super::layers::{DEFAULTS, Layers};
use super::{Environment, Secret};

/// How a model is asked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// The protocol it speaks.
    pub provider: ProviderKind,
    /// Where it is, version segment included; the vendor's own address when none.
    #[serde(default)]
    pub base_url: Option<String>,
    /// Its key.
    #[serde(default)]
    pub api_key: Option<Secret>,
    /// The model for agents that name none.
    #[serde(default)]
    pub model: Option<String>,
    /// Whether answers are streamed.
    pub stream: bool,
    /// Whether the provider holds answers to a JSON Schema by itself; by its protocol when not set.
    #[serde(default)]
    pub native_schema: Option<bool>,
    /// How long a connection may take to be made.
    pub connect_timeout: Span,
    /// How long a streamed answer may take to begin.
    pub first_byte_timeout: Span,
    /// How long it may pause.
    pub idle_timeout: Span,
    /// How long one attempt may take in all.
    pub attempt_timeout: Span,
    /// More headers for every request.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
}

impl Provider {
    /// Whether it lacks a key without which it cannot work: a vendor's own endpoint takes nobody
    /// without one, others may.
    pub fn needs_key(&self) -> bool {
        let vendor = self.provider != ProviderKind::Demo && self.base_url.is_none();
        vendor && self.api_key.is_none()
    }
}

/// A provider's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// Chat completions of OpenAI and of everything compatible.
    Openai,
    /// Messages of Anthropic.
    Anthropic,
    /// The built-in model that needs no network.
    Demo,
}

impl ProviderKind {
    /// The name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
            Self::Demo => "demo",
        }
    }

    /// The variable in which its users keep their key.
    pub(super) const fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::Openai => Some("OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Demo => None,
        }
    }

    /// What a vendor's own endpoint is asked for when nobody names a model. Elsewhere there is no
    /// telling which models exist.
    const fn model_default(self) -> &'static str {
        match self {
            Self::Openai => "gpt-5-mini",
            Self::Anthropic => "claude-sonnet-4-5",
            Self::Demo => "demo",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let all = [Self::Openai, Self::Anthropic, Self::Demo];
        all.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// What another program's names for a provider mean here.
fn foreign_kind(text: &str) -> ProviderKind {
    match text.trim().to_ascii_lowercase().as_str() {
        "anthropic" | "claude" | "dashscope-anthropic" => ProviderKind::Anthropic,
        "demo" | "echo" | "stub" => ProviderKind::Demo,
        _ => ProviderKind::Openai,
    }
}

/// What a named provider takes from `[llm]` where it does not say otherwise.
const INHERITED: [&str; 5] = [
    "stream",
    "connect_timeout",
    "first_byte_timeout",
    "idle_timeout",
    "attempt_timeout",
];

/// The prefix of the other program's names, which count when ours are not set.
const FOREIGN: &str = "POWER_LOOP_";

/// Completes the providers: fallback names, keys kept in variables, defaults of `[llm]` for named
/// ones.
pub(super) fn resolve(layers: &mut Layers, environment: &Environment) {
    resolve_default(layers, environment);
    let names: BTreeSet<String> = layers
        .values
        .keys()
        .filter_map(|path| path.strip_prefix("providers.")?.split_once('.'))
        .map(|(name, _)| name.to_owned())
        .collect();
    for name in names {
        resolve_named(layers, environment, &name);
    }
}

fn resolve_default(layers: &mut Layers, environment: &Environment) {
    key_from_variable(layers, environment, "llm");
    let named = text(layers, "llm.provider");
    let foreign = |name: &str| {
        let variable = format!("{FOREIGN}{name}");
        environment
            .get(&variable)
            .map(|value| (value.to_owned(), variable))
    };
    let foreign_kind = foreign("PROVIDER").map(|(value, from)| (foreign_kind(&value), from));
    let theirs = foreign_kind
        .as_ref()
        .map_or(ProviderKind::Openai, |(kind, _)| *kind);
    // Settings of another provider would not fit.
    if named.as_deref().is_none_or(|ours| ours == theirs.as_str()) {
        for (field, name) in [
            ("base_url", "BASE_URL"),
            ("api_key", "API_KEY"),
            ("model", "MODEL"),
        ] {
            let path = format!("llm.{field}");
            if let (None, Some((value, variable))) = (text(layers, &path), foreign(name)) {
                layers.spelled(&path, &value, &variable);
            }
        }
    }
    // An address or a key without a kind is taken for one of what most endpoints speak.
    let implied = ["base_url", "api_key"].into_iter().find_map(|field| {
        let (_, origin) = layers.values.get(&format!("llm.{field}"))?;
        Some((ProviderKind::Openai, origin.clone()))
    });
    let usual = [ProviderKind::Openai, ProviderKind::Anthropic]
        .into_iter()
        .find_map(|kind| {
            let variable = kind.key_variable()?;
            environment
                .get(variable)
                .map(|_| (kind, variable.to_owned()))
        });
    let (kind, origin) = named
        .as_deref()
        .and_then(ProviderKind::parse)
        .map(|kind| (kind, String::new()))
        .or(foreign_kind)
        .or(implied)
        .or(usual)
        .unwrap_or((ProviderKind::Demo, DEFAULTS.to_owned()));
    if named.is_none() {
        layers.spelled("llm.provider", kind.as_str(), &origin);
    }
    complete(layers, environment, "llm", kind);
}

fn resolve_named(layers: &mut Layers, environment: &Environment, name: &str) {
    let prefix = format!("providers.{name}");
    key_from_variable(layers, environment, &prefix);
    for field in INHERITED {
        if let Some(value) = layers.values.get(&format!("llm.{field}")).cloned() {
            layers
                .values
                .entry(format!("{prefix}.{field}"))
                .or_insert(value);
        }
    }
    let kind = text(layers, &format!("{prefix}.provider"));
    let Some(kind) = kind.as_deref().and_then(ProviderKind::parse) else {
        let detail = format!("[{prefix}] needs provider = \"openai\", \"anthropic\" or \"demo\"");
        layers.problem("config.missing", &prefix, detail);
        return;
    };
    if name.contains('/') {
        let detail = format!("[{prefix}]: a name without / is needed, as models are NAME/model");
        layers.problem("config.invalid_value", &prefix, detail);
    }
    complete(layers, environment, &prefix, kind);
}

/// Replaces `api_key_env` by the key that it points to.
fn key_from_variable(layers: &mut Layers, environment: &Environment, prefix: &str) {
    let Some((Value::String(variable), origin)) =
        layers.values.remove(&format!("{prefix}.api_key_env"))
    else {
        return;
    };
    let path = format!("{prefix}.api_key");
    match environment.get(&variable) {
        _ if text(layers, &path).is_some() => {
            let detail = format!("{path} and {path}_env are both set; keep one");
            layers.problem("config.invalid_value", &origin, detail);
        }
        Some(key) => layers.spelled(&path, key, &variable),
        None => {
            let detail = format!("{path}_env names a variable that is not set");
            layers.problem("config.missing", &origin, detail);
        }
    }
}

/// Fills in what follows from the kind: the vendor's usual variable and model.
fn complete(layers: &mut Layers, environment: &Environment, prefix: &str, kind: ProviderKind) {
    let path = |field: &str| format!("{prefix}.{field}");
    let usual = kind
        .key_variable()
        .and_then(|name| Some((environment.get(name)?, name)));
    let own_endpoint = text(layers, &path("base_url")).is_none();
    // A named provider elsewhere must not be handed the vendor's key by accident.
    let may_use_usual = prefix == "llm" || own_endpoint;
    if let (None, Some((key, name)), true) = (text(layers, &path("api_key")), usual, may_use_usual)
    {
        layers.spelled(&path("api_key"), key, name);
    }
    if text(layers, &path("model")).is_none() && own_endpoint {
        layers.spelled(&path("model"), kind.model_default(), DEFAULTS);
    }
}

fn text(layers: &Layers, path: &str) -> Option<String> {
    match layers.values.get(path) {
        Some((Value::String(text), _)) => Some(text.clone()),
        _ => None,
    }
}
