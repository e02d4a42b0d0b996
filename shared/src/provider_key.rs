//! Keys that tenants bring for model providers.

use crate::id::TenantId;
use crate::time::Timestamp;

/// Maximum length of a provider's name, in characters.
pub const PROVIDER_CHARS_MAX: usize = 100;

/// Maximum length of a key, in bytes; those of the big providers have 50 to 200.
pub const KEY_BYTES_MAX: usize = 4_096;

/// Maximum number of providers that a tenant may have keys for.
pub const PROVIDERS_MAX: u32 = 50;

/// Number of characters of a key that its owner is shown, and the minimum length of a key for that,
/// so that the hint does not help to guess the rest.
const HINT_CHARS: usize = 4;
const HINTED_CHARS_MIN: usize = 16;

/// A tenant's key for a provider, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderKeyRecord {
    /// The owner.
    pub tenant: TenantId,
    /// The provider's name in the configuration of workers.
    pub provider: String,
    /// The key, sealed for [`seal_context`].
    pub sealed: String,
    /// Its last characters, see [`hint`].
    pub hint: String,
    /// When it was set.
    pub set_at: Timestamp,
}

/// The context that a sealed key is bound to: it cannot be opened for another tenant or provider.
pub fn seal_context(tenant: TenantId, provider: &str) -> String {
    format!("provider_key:{tenant}:{provider}")
}

/// The last characters of a key, to tell keys apart; empty for a short one.
pub fn hint(key: &str) -> String {
    let chars = key.chars().count();
    if chars < HINTED_CHARS_MIN {
        return String::new();
    }
    key.chars().skip(chars - HINT_CHARS).collect()
}

/// Checks that a text can be the name of a provider with a key.
pub fn check_provider(name: &str) -> Result<(), String> {
    let is_name = !name.trim().is_empty()
        && name.chars().count() <= PROVIDER_CHARS_MAX
        && !name.chars().any(|c| c.is_control() || c == '/');
    if is_name {
        return Ok(());
    }
    Err(format!(
        "must be the name of a provider: 1 to {PROVIDER_CHARS_MAX} characters without a slash"
    ))
}

/// Checks that a text can be sent as a key. The error never contains it.
pub fn check_key(key: &str) -> Result<(), String> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(format!(
        "must be a key as its provider gave it: 1 to {KEY_BYTES_MAX} visible ASCII characters without blanks"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_short_key_nothing_is_shown() {
        assert_eq!(hint("sk-0123456789abcd"), "abcd");
        assert_eq!(hint("sk-0123456789ab"), "");
    }

    #[test]
    fn what_no_header_can_carry_is_no_key() {
        assert!(check_key("sk-ant-api03_Zz=").is_ok());
        for bad in [
            "",
            "with blank",
            "line\n",
            "\u{e4}",
            &"k".repeat(KEY_BYTES_MAX + 1),
        ] {
            assert!(check_key(bad).is_err(), "{bad:?}");
        }
        for bad in ["", " ", "a/b", "a\tb"] {
            assert!(check_provider(bad).is_err(), "{bad:?}");
        }
    }
}
