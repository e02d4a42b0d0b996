//! Model providers: the default one, whose settings may come from other programs' variables, and
//! named ones.

use std::collections::BTreeMap;
use std::time::Duration;

use mainspring_runtime::{
    Choice as _, DEFAULTS, Environment, Key, Layers, Named, Secret, choice, settings,
};

use mainspring_providers::rules::{RuleSettings, Said, VENDORS};
use mainspring_providers::{ExtraFault, RequestExtra};

use super::{DAY, HTTP, MS, rules};

settings! {
    /// The settings of a model provider.
    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct Provider {
        /// The protocol it speaks.
        kind: ProviderKind = ProviderKind::Demo => Key::choice("llm.provider", ProviderKind::WORDS);
        /// Where it is, version segment included; the vendor's own address when none.
        base_url: Option<String> => Key::url("llm.base_url", HTTP);
        /// Its key.
        api_key: Option<Secret> => Key::secret("llm.api_key");
        /// The model for agents that name none.
        model: Option<String> => Key::text("llm.model");
        /// Whether answers are streamed.
        stream: bool = true => Key::switch("llm.stream");
        /// Whether the provider holds answers to a JSON Schema by itself; by its protocol when not
        /// set.
        native_schema: Option<bool> => Key::switch("llm.native_schema");
        /// Whether requests to Anthropic say up to where it may keep them in its prompt cache.
        prompt_cache: bool = true => Key::switch("llm.prompt_cache");
        /// Whether OpenAI's Responses run in background mode.
        background: bool = false => Key::switch("llm.background");
        /// How long a connection may take to be made.
        connect_timeout: Duration = Duration::from_secs(10)
            => Key::span("llm.connect_timeout", MS, DAY);
        /// How long a streamed answer may take to begin.
        first_byte_timeout: Duration = Duration::from_mins(2)
            => Key::span("llm.first_byte_timeout", MS, DAY);
        /// How long it may pause.
        idle_timeout: Duration = Duration::from_mins(1)
            => Key::span("llm.idle_timeout", MS, DAY);
        /// How long one attempt may take in all.
        attempt_timeout: Duration = Duration::from_mins(10)
            => Key::span("llm.attempt_timeout", MS, DAY);
        /// More headers for every request: any name, and values that may be secrets.
        headers: BTreeMap<String, Secret> => Key::secret("llm.headers.*");
        /// More members for every request: a JSON object.
        request_extra: Option<String> => Key::secret("llm.request_extra");
        /// The same per model, which takes precedence.
        model_extra: BTreeMap<String, String> => Key::text("llm.model_extra.*");
        /// The vendor or server whose rules apply, where its host doesn't tell.
        vendor: Option<String> => Key::choice("llm.vendor", VENDORS);
        /// What it accepts, by the model's name or a pattern of it, where that differs from what is built in.
        rules: Named<Said> = Named::default() => Key::table("llm.rules.*", rules::MEMBERS);
        /// Requests per minute of one worker; no limit on our side when 0.
        requests_per_minute: u32 = 0 => Key::integer("llm.requests_per_minute", 0, 1_000_000_000);
        /// Input tokens per minute of one worker, likewise.
        tokens_per_minute: u32 = 0 => Key::integer("llm.tokens_per_minute", 0, 4_000_000_000);
        /// Outages in a row after which the provider is only probed; never when 0.
        breaker_failures: u32 = 20 => Key::integer("llm.breaker_failures", 0, 1_000_000);
        /// How long no requests are sent before the first probe.
        breaker_pause: Duration = Duration::from_secs(10)
            => Key::span("llm.breaker_pause", MS, DAY);
    }
}

/// The setting that names the variable with a provider's key, instead of the key itself.
pub(super) const KEY_VARIABLE: Key = Key::text("llm.api_key_env");

impl Provider {
    /// Whether it lacks a key that it needs: a vendor's own endpoint always needs one, others may
    /// not.
    pub(crate) fn needs_key(&self) -> bool {
        let vendor = self.kind != ProviderKind::Demo && self.base_url.is_none();
        vendor && self.api_key.is_none()
    }
}

choice! {
    /// A provider's protocol.
    pub(crate) enum ProviderKind {
        /// Chat completions of OpenAI and of everything compatible.
        Openai = "openai",
        /// Responses of OpenAI, and of servers that speak it.
        OpenaiResponses = "openai-responses",
        /// Messages of Anthropic.
        Anthropic = "anthropic",
        /// The built-in model that needs no network.
        Demo = "demo",
    }
}

impl ProviderKind {
    /// The variable in which users usually keep their key.
    pub(super) const fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::Openai | Self::OpenaiResponses => Some("OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Demo => None,
        }
    }

    /// The default model at a vendor's own endpoint. For other endpoints there is no telling which
    /// models exist.
    const fn model_default(self) -> &'static str {
        match self {
            Self::Openai | Self::OpenaiResponses => "gpt-5-mini",
            Self::Anthropic => "claude-sonnet-4-5",
            Self::Demo => "demo",
        }
    }
}

/// Maps another program's provider name to a provider.
fn foreign_kind(text: &str) -> ProviderKind {
    match text.trim().to_ascii_lowercase().as_str() {
        "anthropic" | "claude" | "dashscope-anthropic" => ProviderKind::Anthropic,
        "openai-responses" => ProviderKind::OpenaiResponses,
        "demo" | "echo" | "stub" => ProviderKind::Demo,
        _ => ProviderKind::Openai,
    }
}

/// The settings that a named provider inherits from `[llm]` if it does not set them.
const INHERITED: [&str; 11] = [
    "stream",
    "prompt_cache",
    "background",
    "connect_timeout",
    "first_byte_timeout",
    "idle_timeout",
    "attempt_timeout",
    "breaker_failures",
    "breaker_pause",
    "requests_per_minute",
    "tokens_per_minute",
];

/// The prefix of the other program's variables, which apply if ours are not set.
const FOREIGN: &str = "POWER_LOOP_";

/// Completes the providers: fallback variables, keys kept in variables, and defaults inherited from
/// `[llm]` by named ones.
pub(super) fn resolve(layers: &mut Layers, environment: &Environment) {
    resolve_default(layers, environment);
    for name in layers.names("providers") {
        resolve_named(layers, environment, &name);
    }
}

fn resolve_default(layers: &mut Layers, environment: &Environment) {
    key_from_variable(layers, environment, "llm");
    let named = layers.text_at("llm.provider").map(str::to_owned);
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
    // Settings for another kind of provider would not fit.
    if named.as_deref().is_none_or(|ours| ours == theirs.as_str()) {
        for (field, name) in [
            ("base_url", "BASE_URL"),
            ("api_key", "API_KEY"),
            ("model", "MODEL"),
        ] {
            let path = format!("llm.{field}");
            if let (None, Some((value, variable))) = (layers.text_at(&path), foreign(name)) {
                layers.set_from_text(&path, &value, &variable);
            }
        }
    }
    // An address or a key without a kind is assumed to be for the protocol that most endpoints
    // speak.
    let implied = ["base_url", "api_key"].into_iter().find_map(|field| {
        let (_, origin) = layers.get(&format!("llm.{field}"))?;
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
        .and_then(ProviderKind::from_word)
        .map(|kind| (kind, String::new()))
        .or(foreign_kind)
        .or(implied)
        .or(usual)
        .unwrap_or((ProviderKind::Demo, DEFAULTS.to_owned()));
    if named.is_none() {
        layers.set_from_text("llm.provider", kind.as_str(), &origin);
    }
    complete(layers, environment, "llm", kind);
}

fn resolve_named(layers: &mut Layers, environment: &Environment, name: &str) {
    let prefix = format!("providers.{name}");
    key_from_variable(layers, environment, &prefix);
    for field in INHERITED {
        layers.inherit(&format!("{prefix}.{field}"), &format!("llm.{field}"));
    }
    let kind = layers.text_at(&format!("{prefix}.provider"));
    let Some(kind) = kind.and_then(ProviderKind::from_word) else {
        let known = ProviderKind::WORDS.join("\", \"");
        let detail = format!("[{prefix}] needs provider, one of \"{known}\"");
        layers.problem("config.missing", &prefix, detail);
        return;
    };
    if name.contains('/') {
        let detail = format!("[{prefix}]: a name without / is needed, as models are NAME/model");
        layers.problem("config.invalid_value", &prefix, detail);
    }
    complete(layers, environment, &prefix, kind);
}

/// The members that a provider adds to its requests.
pub(crate) fn extra(provider: &Provider) -> Result<RequestExtra, ExtraFault> {
    let all = provider.request_extra.as_deref();
    let mut extra = all.map(RequestExtra::read).transpose()?.unwrap_or_default();
    for (model, members) in &provider.model_extra {
        extra.insert(model, members)?;
    }
    Ok(extra)
}

/// What the configuration says about what a provider accepts.
pub(crate) fn rule_settings(provider: &Provider) -> RuleSettings {
    RuleSettings {
        vendor: provider.vendor.clone(),
        by_model: provider.rules.0.clone(),
    }
}

/// Replaces `api_key_env` with the key in that variable.
fn key_from_variable(layers: &mut Layers, environment: &Environment, prefix: &str) {
    let Some((variable, origin)) = layers.take(&format!("{prefix}.api_key_env")) else {
        return;
    };
    let variable = variable.as_str().unwrap_or_default();
    let path = format!("{prefix}.api_key");
    match environment.get(variable) {
        _ if layers.text_at(&path).is_some() => {
            let detail = format!("{path} and {path}_env are both set; keep one");
            layers.problem("config.invalid_value", &origin, detail);
        }
        Some(key) => layers.set_from_text(&path, key, variable),
        None => {
            let detail = format!("{path}_env names a variable that is not set");
            layers.problem("config.missing", &origin, detail);
        }
    }
}

/// Fills in what follows from the provider's kind: the vendor's usual variable and model.
fn complete(layers: &mut Layers, environment: &Environment, prefix: &str, kind: ProviderKind) {
    let path = |field: &str| format!("{prefix}.{field}");
    let usual = kind
        .key_variable()
        .and_then(|name| Some((environment.get(name)?, name)));
    let own_endpoint = layers.text_at(&path("base_url")).is_none();
    // A named provider at another endpoint must not receive the vendor's key by accident.
    let may_use_usual = prefix == "llm" || own_endpoint;
    if let (None, Some((key, name)), true) =
        (layers.text_at(&path("api_key")), usual, may_use_usual)
    {
        layers.set_from_text(&path("api_key"), key, name);
    }
    if layers.text_at(&path("model")).is_none() && own_endpoint {
        layers.set_from_text(&path("model"), kind.model_default(), DEFAULTS);
    }
}
