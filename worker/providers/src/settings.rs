//! What a provider needs to know.

use std::num::NonZeroU32;
use std::time::Duration;

use mainspring_worker::llm::Secret;

use crate::extra::RequestExtra;

/// The public OpenAI API.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

/// The public Anthropic API.
pub const ANTHROPIC_BASE_URL: &str = "https://api.anthropic.com";

/// The protocol that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Chat completions, of OpenAI or of anything compatible.
    OpenAi,
    /// OpenAI's Responses.
    OpenAiResponses,
    /// Anthropic's Messages.
    Anthropic,
    /// None: it answers by itself.
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

    /// The kind with this name, in any case.
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

    /// Where it is found unless told otherwise; empty for [`Kind::Demo`].
    pub const fn default_base_url(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses => OPENAI_BASE_URL,
            Self::Anthropic => ANTHROPIC_BASE_URL,
            Self::Demo => "",
        }
    }
}

/// One provider.
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
    /// Up to and with the version segment for OpenAI's protocols; with or without it for
    /// Anthropic's.
    pub base_url: String,
    /// Sent with every request; nothing is sent when empty, as servers at home like it.
    pub api_key: Secret,
    /// The model when a request names none; empty means that each must name one.
    pub model: String,
    /// Whether answers are streamed. Without, nothing is heard before the whole answer.
    pub stream: bool,
    /// Whether the provider holds answers to a JSON Schema by itself. OpenAI's protocols
    /// have a way to ask for it; elsewhere, and without it, the schema goes into the system prompt.
    pub native_schema: bool,
    /// Whether requests say up to where the provider may keep them in its prompt cache. Only
    /// Messages have a way to say it; OpenAI keeps requests in any case.
    pub prompt_cache: bool,
    /// Whether answers are asked for in the background, where the protocol can: the provider then works on
    /// them, and keeps them, also while nobody is connected.
    pub background: bool,
    /// From the first packet to the end of the TLS handshake.
    pub connect_timeout: Duration,
    /// From the start of an attempt to the first byte of a streamed answer.
    pub first_byte_timeout: Duration,
    /// The longest silence inside a stream. Comments and pings count as life.
    pub idle_timeout: Duration,
    /// The whole attempt.
    pub attempt_timeout: Duration,
    /// More headers for every request, such as an organisation's name. Values are not shown.
    pub headers: Vec<(String, Secret)>,
    /// More members for every request.
    pub extra: RequestExtra,
    /// When calls wait before they are made.
    pub limits: Limits,
}

/// When calls wait before they are made. What is learned of outages concerns this process alone; rates are those of
/// the account, of which this process has its [part](mainspring_worker::llm::Share).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests per minute; what the provider says about its limits is kept to in any case.
    pub requests_per_minute: Option<NonZeroU32>,
    /// Input tokens per minute, likewise.
    pub tokens_per_minute: Option<NonZeroU32>,
    /// Outages in a row after which the provider is asked by single calls only, until one of them
    /// succeeds; 0 for never.
    pub breaker_failures: u32,
    /// How long nobody asks after that. It doubles with each call that fails, up to eight times.
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
    /// A provider of this kind at its public address, with the default timeouts.
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
            // Twice the silence: a long prompt is read, and a queue waited out, before it.
            first_byte_timeout: Duration::from_mins(2),
            idle_timeout: Duration::from_mins(1),
            attempt_timeout: Duration::from_mins(10),
            headers: Vec::new(),
            extra: RequestExtra::default(),
            limits: Limits::default(),
        }
    }
}
