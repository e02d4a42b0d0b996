//! What may be shown of a provider's words.

use mainspring_shared::secrets::Secrets;
use mainspring_worker::llm::Secret;

use crate::settings::ProviderSettings;

/// Maximum characters of a provider's message.
pub(super) const MESSAGE_CHARS_MAX: usize = 300;

/// Prefixes of API keys at well-known providers.
const KEY_PREFIXES: &[&str] = &[
    "sk-", "sk_", "pk-", "rk-", "gsk_", "xai-", "AIza", "hf_", "nvapi-",
];

/// How many characters of the key identify a shortened copy of it.
const KEY_PART_CHARS: usize = 6;

/// Secrets that a provider is sent and may quote in its messages, and who that is.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProviderSecrets {
    key: Secret,
    others: Secrets,
    /// Some meanings are a vendor's own.
    host: String,
    /// The vendor that the operator names.
    vendor: String,
}

impl ProviderSecrets {
    /// The key, and the credentials in the headers and the URL.
    pub(crate) fn of(settings: &ProviderSettings, address: &str) -> Self {
        let secrets = Secrets::default().and_of_url(address);
        let values = settings.headers.iter().map(|(_, value)| value.expose());
        let host = reqwest::Url::parse(address).ok();
        let host = host.and_then(|url| Some(url.host_str()?.to_ascii_lowercase()));
        Self {
            key: settings.api_key.clone(),
            others: values.fold(secrets, Secrets::and),
            host: host.unwrap_or_default(),
            vendor: settings.rules.vendor.clone().unwrap_or_default(),
        }
    }

    /// Only the key.
    #[cfg(test)]
    pub(crate) fn key(key: &str) -> Self {
        Self {
            key: Secret::new(key),
            ..Self::default()
        }
    }

    /// No secrets, at this host.
    #[cfg(test)]
    pub(crate) fn at(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            ..Self::default()
        }
    }

    /// The provider's host.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// The vendor that the operator names; empty if none is named.
    pub(super) fn vendor(&self) -> &str {
        &self.vendor
    }

    /// A text without the secrets, but not fit to be shown: it may have parts of the key.
    pub(super) fn hidden(&self, text: &str) -> String {
        let text = self.others.hidden(text);
        if self.key.is_empty() {
            text
        } else {
            text.replace(self.key.expose(), "[redacted]")
        }
    }
}

/// A provider's message on one line, shortened, without anything that looks like a key, and without
/// the other secrets that it was sent.
pub(crate) fn presentable(text: &str, told: &ProviderSecrets) -> String {
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
