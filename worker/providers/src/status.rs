//! Classifies the refusals of providers.

use std::time::Duration;

use serde_json::Value;

use crate::settings::ProviderSettings;
use mainspring_shared::secrets::Secrets;
use mainspring_worker::llm::Error;
use mainspring_worker::llm::Secret;
use mainspring_worker::llm::json;

/// Maximum characters of a provider's message.
const MESSAGE_CHARS_MAX: usize = 300;

/// Prefixes of API keys at well-known providers.
const KEY_PREFIXES: &[&str] = &[
    "sk-", "sk_", "pk-", "rk-", "gsk_", "xai-", "AIza", "hf_", "nvapi-",
];

/// How many characters of the key identify a shortened copy of it.
const KEY_PART_CHARS: usize = 6;

/// Secrets that a provider is sent and may quote in its messages.
#[derive(Debug, Clone, Default)]
pub(super) struct ProviderSecrets {
    key: Secret,
    others: Secrets,
}

impl ProviderSecrets {
    /// The key, and the credentials in the headers and the URL.
    pub(super) fn of(settings: &ProviderSettings, address: &str) -> Self {
        let address = Secrets::default().and_of_url(address);
        let values = settings.headers.iter().map(|(_, value)| value.expose());
        Self {
            key: settings.api_key.clone(),
            others: values.fold(address, Secrets::and),
        }
    }

    /// Only the key.
    #[cfg(test)]
    fn key(key: &str) -> Self {
        Self {
            key: Secret::new(key),
            others: Secrets::default(),
        }
    }
}

/// A provider's refusal, as far as it can be parsed.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    /// Its message, safe to show.
    pub(super) message: String,
    /// `type`, `code`, `param` and the message in lower case, from which the meaning is guessed.
    hints: String,
    /// A status named in the body, if the status line had none.
    status: Option<u16>,
}

impl Refusal {
    /// Parses a body: an error object of any provider, or any text.
    pub(super) fn from_body(body: &[u8], told: &ProviderSecrets) -> Self {
        let text = String::from_utf8_lossy(body);
        match json::parse(&text) {
            Some(value) => Self::from_value(&value, told),
            // HTML pages of proxies do not help, and may reveal too much.
            None if text.trim_start().starts_with('<') => Self::from_text("an HTML page", told),
            None => Self::from_text(&text, told),
        }
    }

    /// Parses an error object, either bare or under `error`.
    pub(super) fn from_value(value: &Value, told: &ProviderSecrets) -> Self {
        let value = match value {
            Value::Array(items) => items.first().unwrap_or(value),
            other => other,
        };
        let error = value
            .get("error")
            .filter(|error| !error.is_null())
            .unwrap_or(value);
        let words = ["message", "detail", "error", "msg"]
            .iter()
            .find_map(|key| error.get(key)?.as_str());
        let message = words.or(error.as_str()).unwrap_or_default();
        let mut refusal = Self::from_text(message, told);
        for field in ["type", "code", "param", "status"] {
            match error.get(field) {
                Some(Value::String(text)) => {
                    refusal.hints.push(' ');
                    refusal.hints.push_str(&text.to_ascii_lowercase());
                }
                Some(Value::Number(number)) => {
                    let status = number.as_u64().and_then(|n| u16::try_from(n).ok());
                    refusal.status = status.filter(|s| (400..600).contains(s)).or(refusal.status);
                }
                _ => {}
            }
        }
        refusal
    }

    /// A refusal with a message of our own.
    pub(super) fn said(words: &str) -> Self {
        Self::from_text(words, &ProviderSecrets::default())
    }

    fn from_text(text: &str, told: &ProviderSecrets) -> Self {
        let message = presentable(text, told);
        let hints = message.to_ascii_lowercase();
        let message = if message.is_empty() {
            "it gave no reason".to_owned()
        } else {
            message
        };
        Self {
            message,
            hints,
            status: None,
        }
    }

    fn hints(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.hints.contains(word))
    }

    fn overflows(&self) -> bool {
        self.hints(&[
            "context_length_exceeded",
            "context length",
            "context window",
            "context_window",
            "prompt is too long",
            "input is too long",
            "too many tokens",
            "maximum context",
            "exceeds the maximum number of tokens",
            "exceed_context_size",
            "reduce the length",
            "string_above_max_length",
        ])
    }

    fn filtered(&self) -> bool {
        self.hints(&[
            "content_filter",
            "content_policy",
            "content management policy",
            "data_inspection_failed",
            "moderation",
        ])
    }

    fn unpaid(&self) -> bool {
        self.hints(&[
            "insufficient_quota",
            "insufficient balance",
            "credit balance",
            "billing_hard_limit",
            "billing_not_active",
        ])
    }
}

/// The error for a status other than 2xx.
pub(super) fn classify(status: u16, refusal: &Refusal, retry_after: Option<Duration>) -> Error {
    let message = format!("status {status}: {}", refusal.message);
    match status {
        401..=403 if refusal.filtered() => Error::Refused { message },
        401..=403 => Error::Auth { message },
        429 if refusal.unpaid() => Error::Auth { message },
        429 => Error::RateLimited {
            message,
            retry_after,
        },
        // It may have worked on the answer until the timeout.
        408 | 504 => Error::Unavailable {
            message,
            retry_after,
        },
        409 | 425 | 500..=599 => Error::Unreached {
            message,
            retry_after,
        },
        413 => Error::ContextOverflow { message },
        400..=499 => refused(refusal, message),
        // Redirects are not followed: they would send the key elsewhere.
        _ => Error::bad(message),
    }
}

fn refused(refusal: &Refusal, message: String) -> Error {
    if refusal.overflows() {
        Error::ContextOverflow { message }
    } else if refusal.filtered() {
        Error::Refused { message }
    } else if refusal.unpaid() {
        Error::Auth { message }
    } else {
        Error::InvalidRequest { message }
    }
}

/// The error for an error object inside an answer with status 200.
pub(super) fn classify_inside(refusal: &Refusal) -> Error {
    if let Some(status) = refusal.status {
        return match classify(status, refusal, None) {
            // The answer had begun.
            Error::Unreached {
                message,
                retry_after,
            } => Error::Unavailable {
                message,
                retry_after,
            },
            other => other,
        };
    }
    let message = refusal.message.clone();
    if refusal.hints(&["rate_limit", "rate limit", "too_many_requests"]) {
        Error::RateLimited {
            message,
            retry_after: None,
        }
    } else if refusal.hints(&["authentication", "permission", "invalid_api_key"]) {
        Error::Auth { message }
    } else if refusal.overflows()
        || refusal.filtered()
        || refusal.unpaid()
        || refusal.hints(&["invalid_request"])
    {
        refused(refusal, message)
    } else {
        // Overload, a server failure, or unknown: another attempt costs little.
        Error::Unavailable {
            message,
            retry_after: None,
        }
    }
}

/// A provider's message on one line, shortened, without anything that looks like a key, and without
/// the other secrets that it was sent.
pub(super) fn presentable(text: &str, told: &ProviderSecrets) -> String {
    // Before truncation, because half of a secret would not be recognized.
    let text = told.others.hidden(text);
    let key = &told.key;
    let start: String = text.chars().take(4 * MESSAGE_CHARS_MAX).collect();
    let start = if key.is_empty() {
        start
    } else {
        start.replace(key.expose(), "[redacted]")
    };
    let mut shown = String::new();
    for word in start
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|w| !w.is_empty())
    {
        if !shown.is_empty() {
            shown.push(' ');
        }
        let piece = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*' | '.' | '…');
        let mut rest = word;
        while let Some(first) = rest.chars().next() {
            let len = if piece(first) {
                rest.find(|c| !piece(c)).unwrap_or(rest.len())
            } else {
                first.len_utf8()
            };
            let (head, tail) = rest.split_at(len);
            shown.push_str(if looks_like_key(head, key.expose()) {
                "[redacted]"
            } else {
                head
            });
            rest = tail;
        }
    }
    if shown.chars().count() > MESSAGE_CHARS_MAX {
        shown = shown
            .chars()
            .take(MESSAGE_CHARS_MAX - 1)
            .chain(['…'])
            .collect();
    }
    shown
}

fn looks_like_key(piece: &str, key: &str) -> bool {
    let shares = |part: Option<&str>| part.is_some_and(|part| piece.contains(part));
    let named = KEY_PREFIXES
        .iter()
        .any(|p| piece.starts_with(p) && piece.len() > p.len() + 3);
    named
        || piece.contains("***")
        || (key.len() >= 2 * KEY_PART_CHARS
            && (shares(key.get(..KEY_PART_CHARS)) || shares(key.get(key.len() - KEY_PART_CHARS..))))
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
