//! The settings of a provider.

use std::num::NonZeroU32;
use std::time::Duration;

use mainspring_worker::llm::Secret;

use crate::extra::RequestExtra;
use crate::rules::RuleSettings;

/// Base URL of the public OpenAI API.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

/// Base URL of the public Anthropic API.
pub const ANTHROPIC_BASE_URL: &str = "https://api.anthropic.com";

/// The protocol that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Chat completions, of OpenAI or any compatible server.
    OpenAi,
    /// OpenAI's Responses API.
    OpenAiResponses,
    /// Anthropic's Messages API.
    Anthropic,
    /// None: it answers without a network.
    Demo,
}

impl Kind {
    /// The name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Demo => "demo",
        }
    }

    /// The kind with this name, ignoring case.
    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::OpenAi,
            Self::OpenAiResponses,
            Self::Anthropic,
            Self::Demo,
        ]
        .into_iter()
        .find(|kind| kind.as_str().eq_ignore_ascii_case(text.trim()))
    }

    /// The default base URL; empty for [`Kind::Demo`].
    pub const fn default_base_url(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses => OPENAI_BASE_URL,
            Self::Anthropic => ANTHROPIC_BASE_URL,
            Self::Demo => "",
        }
    }
}

/// The settings of one provider.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own"
)]
pub struct ProviderSettings {
    /// The name before the slash in `NAME/model`.
    pub name: String,
    /// The protocol.
    pub kind: Kind,
    /// The base URL: including the version segment for OpenAI's protocols; with or without it for
    /// Anthropic's.
    pub base_url: String,
    /// Sent with every request; if empty, none is sent, as self-hosted servers often need none.
    pub api_key: Secret,
    /// The model if a request names none; if empty, each request must name one.
    pub model: String,
    /// Whether answers are streamed. Otherwise nothing is received before the whole answer.
    pub stream: bool,
    /// Whether the provider itself enforces a JSON Schema. OpenAI's protocols have a way to ask for
    /// it; elsewhere, or without it, the schema goes into the system prompt.
    pub native_schema: bool,
    /// Whether requests mark what the provider may keep in its prompt cache. Only the Messages API
    /// has such marks; OpenAI caches requests in any case.
    pub prompt_cache: bool,
    /// Whether answers are requested in the background, if the protocol supports it: the provider
    /// then works on them, and stores them, even while no client is connected.
    pub background: bool,
    /// Time limit from the first packet to the end of the TLS handshake.
    pub connect_timeout: Duration,
    /// Time limit from the start of an attempt to the first byte of a streamed answer.
    pub first_byte_timeout: Duration,
    /// The longest silence inside a stream. Comments and pings count as activity.
    pub idle_timeout: Duration,
    /// Time limit of the whole attempt.
    pub attempt_timeout: Duration,
    /// Additional headers for every request, such as an organisation's name. Values are not shown.
    pub headers: Vec<(String, Secret)>,
    /// Additional members for every request.
    pub extra: RequestExtra,
    /// What it accepts, where that differs from what is built in.
    pub rules: RuleSettings,
    /// When calls wait before they are made.
    pub limits: Limits,
}

/// When calls wait before they are made. Outages are tracked per process; rates are those of the
/// account, of which this process has its [share](mainspring_worker::llm::Share).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests per minute; limits that the provider reports are respected in any case.
    pub requests_per_minute: Option<NonZeroU32>,
    /// Input tokens per minute, likewise.
    pub tokens_per_minute: Option<NonZeroU32>,
    /// Number of consecutive outages after which the provider is only called by single probes until
    /// one of them succeeds; 0 disables this.
    pub breaker_failures: u32,
    /// How long the provider is not called then. Doubles with each failed probe, up to eight times.
    pub breaker_pause: Duration,
    /// How long a call waits in memory; beyond that it is [held](mainspring_worker::llm::Error::Held).
    pub wait_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_per_minute: None,
            tokens_per_minute: None,
            breaker_failures: 20,
            breaker_pause: Duration::from_secs(10),
            wait_max: Duration::from_secs(5),
        }
    }
}

impl ProviderSettings {
    /// Settings for a provider of this kind at its public address, with the default timeouts.
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self {
            name: name.into(),
            kind,
            base_url: kind.default_base_url().to_owned(),
            api_key: Secret::default(),
            model: if kind == Kind::Demo {
                "demo".to_owned()
            } else {
                String::new()
            },
            stream: true,
            native_schema: matches!(kind, Kind::OpenAi | Kind::OpenAiResponses),
            prompt_cache: true,
            background: false,
            connect_timeout: Duration::from_secs(10),
            // Twice the idle timeout: before it, a long prompt is read and a queue waited out.
            first_byte_timeout: Duration::from_mins(2),
            idle_timeout: Duration::from_mins(1),
            attempt_timeout: Duration::from_mins(10),
            headers: Vec::new(),
            extra: RequestExtra::default(),
            rules: RuleSettings::default(),
            limits: Limits::default(),
        }
    }
}
