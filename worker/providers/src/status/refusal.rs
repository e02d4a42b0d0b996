//! Reads the refusals of providers, whatever their form.

use std::time::Duration;

use mainspring_shared::time::Timestamp;
use mainspring_worker::llm::json;
use serde_json::Value;

use super::shown::{ProviderSecrets, presentable};
use super::wait;

/// How much of a refusal's words is read.
const WORDS_BYTES_MAX: usize = 8 * 1024;

/// How many values of a refusal are read, and how deep.
const VALUES_MAX: usize = 256;
const DEPTH_MAX: usize = 8;

/// Members with words for people, the most telling first.
const MESSAGES: [&str; 7] = [
    "message",
    "detail",
    "error",
    "msg",
    "status_msg",
    "error_msg",
    "description",
];

/// Members with words for programs.
const CODES: [&str; 12] = [
    "type",
    "code",
    "status",
    "status_code",
    "error_code",
    "error_type",
    "err_code",
    "reason",
    "@type",
    "quotaId",
    "quotaMetric",
    "event_id",
];

/// A provider's refusal, as far as it can be parsed.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    /// Its message, safe to show.
    pub(crate) message: String,
    /// A status named in the body.
    pub(super) status: Option<u16>,
    /// How long the body asks us to wait.
    pub(super) wait: Option<Duration>,
    said: Said,
}

/// What a refusal says, for being judged by; not fit to be shown.
#[derive(Debug, Default)]
struct Said {
    /// The words for people, as they came.
    words: String,
    /// All words, in lower case.
    lower: String,
    /// The words for programs, in lower case.
    codes: Vec<String>,
    /// The parameter that it names.
    param: String,
    /// The places that it names, in the form of FastAPI: `body.messages.1.name`.
    places: Vec<String>,
    host: String,
    vendor: String,
}

impl Refusal {
    /// Parses a body: an error object of any provider, or any text.
    pub(crate) fn from_body(body: &[u8], told: &ProviderSecrets, now: Timestamp) -> Self {
        let text = String::from_utf8_lossy(body);
        match json::parse(&text) {
            Some(value) => Self::read(&value, told, Some(now)),
            // HTML pages of proxies do not help, and may reveal too much.
            None if text.trim_start().starts_with('<') => Self::from_text("an HTML page", told),
            None => Self::from_text(&text, told),
        }
    }

    /// Parses an error object inside an answer.
    pub(crate) fn from_value(value: &Value, told: &ProviderSecrets) -> Self {
        Self::read(value, told, None)
    }

    /// A refusal with a message of our own.
    pub(crate) fn said(words: &str) -> Self {
        Self::from_text(words, &ProviderSecrets::default())
    }

    fn read(value: &Value, told: &ProviderSecrets, now: Option<Timestamp>) -> Self {
        let value = match value {
            Value::Array(items) => items.first().unwrap_or(value),
            other => other,
        };
        let mut walk = Walk {
            now,
            ..Walk::default()
        };
        walk.read(value, 0);
        let message = walk.message();
        let mut refusal = Self::of(&message, &walk.words, told);
        refusal.said.places = walk.places;
        refusal.said.param = walk.param;
        for code in &walk.codes {
            refusal.said.lower.push(' ');
            refusal.said.lower.push_str(code);
        }
        refusal.said.lower.push(' ');
        refusal
            .said
            .lower
            .push_str(&refusal.said.param.to_ascii_lowercase());
        refusal.said.codes = walk.codes;
        refusal.status = walk.status;
        refusal.wait = walk.wait.or(refusal.wait);
        refusal
    }

    fn from_text(text: &str, told: &ProviderSecrets) -> Self {
        Self::of(text, text, told)
    }

    fn of(message: &str, words: &str, told: &ProviderSecrets) -> Self {
        let message = presentable(message, told);
        let words = told.hidden(cut(words));
        let message = if message.is_empty() {
            "it gave no reason".to_owned()
        } else {
            message
        };
        let lower = words.to_ascii_lowercase();
        Self {
            message,
            status: None,
            wait: wait::in_words(&lower),
            said: Said {
                lower,
                words,
                host: told.host().to_owned(),
                vendor: told.vendor().to_owned(),
                ..Said::default()
            },
        }
    }

    /// Whether any of these words, in lower case, is in it.
    pub(crate) fn has_any(&self, words: &[String]) -> bool {
        words
            .iter()
            .any(|word| self.said.lower.contains(word.as_str()))
    }

    /// Whether one of these, in lower case, is in it.
    pub(crate) fn has(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.said.lower.contains(word))
    }

    /// Whether one of its codes is this.
    pub(super) fn has_code(&self, code: &str) -> bool {
        self.said.codes.iter().any(|own| own == code)
    }

    /// The parameter that it names; empty if none.
    pub(crate) fn param(&self) -> &str {
        &self.said.param
    }

    /// The places that it names, as `body.messages.1.name`.
    pub(crate) fn places(&self) -> &[String] {
        &self.said.places
    }

    /// Its words as they came. They are not fit to be shown.
    pub(crate) fn words(&self) -> &str {
        &self.said.words
    }

    /// Its words and codes in lower case. They are not fit to be shown.
    pub(crate) fn lower(&self) -> &str {
        &self.said.lower
    }

    /// The provider's host.
    pub(super) fn host(&self) -> &str {
        &self.said.host
    }

    /// The vendor that the operator names.
    pub(super) fn vendor(&self) -> &str {
        &self.said.vendor
    }
}

/// What is found in an error object.
#[derive(Debug, Default)]
struct Walk {
    words: String,
    first: Option<String>,
    /// What the provider behind a router said.
    inner: Option<String>,
    codes: Vec<String>,
    param: String,
    places: Vec<String>,
    status: Option<u16>,
    wait: Option<Duration>,
    now: Option<Timestamp>,
    seen: usize,
}

impl Walk {
    fn read(&mut self, value: &Value, depth: usize) {
        self.seen += 1;
        if depth > DEPTH_MAX || self.seen > VALUES_MAX {
            return;
        }
        match value {
            Value::Object(members) => {
                if let Some(place) = place(value) {
                    self.placed(place, value);
                    return;
                }
                for name in MESSAGES {
                    if let Some(Value::String(text)) = members.get(name) {
                        self.word(text);
                    }
                }
                for (name, value) in members {
                    self.member(name, value, depth);
                }
            }
            Value::Array(items) => {
                for item in items {
                    match item {
                        Value::String(text) => self.word(text),
                        other => self.read(other, depth + 1),
                    }
                }
            }
            Value::String(text) => self.word(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn member(&mut self, name: &str, value: &Value, depth: usize) {
        match (name, value) {
            ("param" | "field", Value::String(text)) if self.param.is_empty() => {
                self.param = text.chars().take(256).collect();
            }
            ("retryDelay", Value::String(text)) => self.wait = wait::span(text).or(self.wait),
            ("retryDelay", Value::Object(parts)) => {
                let part = |name: &str| parts.get(name).and_then(Value::as_f64);
                let whole = part("seconds").unwrap_or_default();
                let rest = part("nanos").unwrap_or_default() / 1e9;
                self.wait = wait::seconds(whole + rest).or(self.wait);
            }
            (
                "retry_after" | "retry_after_seconds" | "resets_in_seconds",
                Value::Number(seconds),
            ) => {
                let seconds = seconds.as_f64().and_then(wait::seconds);
                self.wait = self.wait.or(seconds);
            }
            // OpenRouter repeats the headers of its own answer.
            ("X-RateLimit-Reset", Value::String(text)) => {
                let at = self.now.and_then(|now| wait::until(text, now));
                self.wait = self.wait.or(at);
            }
            // OpenRouter passes on what the provider behind it said, as text.
            ("raw", Value::String(text)) => {
                let inner = json::parse(text);
                let inner = inner.unwrap_or_else(|| Value::String(text.clone()));
                let before = self.first.take();
                self.read(&inner, depth + 1);
                self.inner = self.first.take();
                self.first = before;
            }
            // The model's own words.
            ("failed_generation" | "input" | "ctx" | "url", _) => {}
            (name, Value::String(text)) if CODES.contains(&name) => self.code(text),
            (name, Value::Number(number)) if CODES.contains(&name) => {
                self.code(&number.to_string());
                let status = number.as_u64().and_then(|n| u16::try_from(n).ok());
                self.status = status.filter(|s| (400..600).contains(s)).or(self.status);
            }
            (_, Value::Object(_) | Value::Array(_)) => self.read(value, depth + 1),
            (_, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {}
        }
    }

    fn code(&mut self, text: &str) {
        self.codes.push(
            text.chars()
                .take(128)
                .collect::<String>()
                .to_ascii_lowercase(),
        );
    }

    /// One element of FastAPI's list.
    fn placed(&mut self, place: String, value: &Value) {
        let why = value.get("msg").and_then(Value::as_str).unwrap_or_default();
        if let Some(kind) = value.get("type").and_then(Value::as_str) {
            self.code(kind);
        }
        self.word(&format!("{place}: {why}"));
        self.places.push(place);
    }

    fn word(&mut self, text: &str) {
        if text.trim().is_empty() || self.words.contains(text) {
            return;
        }
        if !self.words.is_empty() {
            self.words.push('\n');
        }
        self.words.push_str(cut(text));
        self.first.get_or_insert_with(|| text.to_owned());
    }

    fn message(&self) -> String {
        let first = self.first.clone().unwrap_or_default();
        match &self.inner {
            Some(inner) if !first.contains(inner.as_str()) => format!("{first}: {inner}"),
            _ => first,
        }
    }
}

/// The place that an element of FastAPI's list names.
fn place(value: &Value) -> Option<String> {
    let steps = value.get("loc")?.as_array()?;
    let step = |step: &Value| match step {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Some(steps.iter().map(step).collect::<Vec<_>>().join("."))
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(WORDS_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
