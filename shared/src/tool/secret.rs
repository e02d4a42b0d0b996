//! Named secrets of a tenant, which its HTTP tools may send to the hosts that each secret names.
//!
//! They are stored sealed, as the tenant's keys for providers are, under names that no provider can have.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::TenantId;

/// Maximum number of secrets of a tenant.
pub const SECRETS_MAX: u32 = 100;

/// Maximum bytes of a value.
pub const VALUE_BYTES_MAX: usize = 4_096;

/// Minimum bytes of a value: a shorter one could not be told from other text where it has to be hidden.
pub const VALUE_BYTES_MIN: usize = 8;

/// Maximum number of hosts of a secret.
pub const HOSTS_MAX: usize = 20;

const NAME_CHARS_MAX: usize = 64;

/// What the rows of secrets begin with. The names of providers have no slash.
const PREFIX: &str = "/";

/// A secret as it is sealed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The value.
    pub value: String,
    /// The origins that it may be sent to, like `https://api.example`.
    pub hosts: Vec<String>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// The row of a secret among the keys of its tenant.
pub fn row(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// The name of the secret in a row; none if the row is a provider's key.
pub fn name_of(row: &str) -> Option<&str> {
    row.strip_prefix(PREFIX)
}

/// The last row that can be a secret's, for reading what comes after them.
pub fn last_row() -> String {
    format!("{PREFIX}{}", char::MAX)
}

/// The context that a sealed secret is bound to: it cannot be opened for another tenant or under another name.
pub fn seal_context(tenant: TenantId, name: &str) -> String {
    format!("secret:{tenant}:{name}")
}

/// Whether a text can be the name of a secret.
pub fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.chars().all(fits)
}

/// Checks a value. The error never contains it.
pub fn check_value(value: &str) -> Result<(), String> {
    let fits = (VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&value.len())
        && value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && value.trim() == value;
    if fits {
        return Ok(());
    }
    Err(format!(
        "must be {VALUE_BYTES_MIN} to {VALUE_BYTES_MAX} visible ASCII characters, without blanks at the ends"
    ))
}

/// The origin that a host stands for: `api.example` is `https://api.example`, another scheme or port has to be written.
pub fn origin(host: &str) -> Result<String, String> {
    let wrong =
        || "must be a host like api.example, or an origin like https://api.example:8443".to_owned();
    let host = host.trim().to_ascii_lowercase();
    let (scheme, rest) = host.split_once("://").unwrap_or(("https", &host));
    let port = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => return Err(wrong()),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let rest = rest.strip_suffix(port).unwrap_or(rest);
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-:[]_".contains(c);
    if rest.is_empty() || rest.len() > 300 || !rest.chars().all(fits) {
        return Err(wrong());
    }
    Ok(format!("{scheme}://{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_origin() {
        for (host, expected) in [
            ("api.example", "https://api.example"),
            ("API.example:8443", "https://api.example:8443"),
            ("https://api.example:443/", "https://api.example"),
            ("http://127.0.0.1:80", "http://127.0.0.1"),
            ("http://[::1]:7480", "http://[::1]:7480"),
        ] {
            assert_eq!(origin(host).as_deref(), Ok(expected), "{host}");
        }
        for bad in [
            "",
            "https://",
            "ftp://a",
            "a/b",
            "a@b",
            "*.example",
            "a?b",
            "a b",
            "a\r\n.b",
        ] {
            assert!(origin(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_provider_has_the_row_of_a_secret() {
        assert_eq!(name_of(&row("github")), Some("github"));
        assert_eq!(name_of("anthropic"), None);
        assert!(crate::provider_key::check_provider(&row("github")).is_err());
        assert!(row("zzz") < last_row());
        assert!(!is_name("a/b") && !is_name("") && is_name("stripe.live-1"));
        let held = Held {
            value: "hidden-value".to_owned(),
            hosts: vec![],
        };
        assert!(!format!("{held:?}").contains("hidden-value"));
        for bad in ["short", "1234567\n", " 12345678", "1234567\u{e4}"] {
            assert!(check_value(bad).is_err(), "{bad:?}");
        }
        assert!(check_value("user:a pass").is_ok());
    }
}
