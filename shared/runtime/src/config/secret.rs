//! Secret values.

use std::fmt;

use serde::{Serialize, Serializer};

/// The placeholder for secrets.
const HIDDEN: &str = "[hidden]";

/// A text that is never shown: neither `Debug`, `Display` nor serialization reveals it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the code that has to use it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The URL with its password and its query hidden. A text that is not a URL is hidden as a
    /// whole.
    pub fn redacted_url(&self) -> String {
        let Some((scheme, rest)) = self.0.split_once("://") else {
            return HIDDEN.to_owned();
        };
        let (rest, query) = rest.split_once('?').map_or((rest, ""), |_| {
            (rest.split('?').next().unwrap_or_default(), "?[hidden]")
        });
        // The last `@` ends the credentials: a password may contain one unescaped.
        let authority_end = rest.rfind('@').map_or(0, |at| at + 1);
        let (credentials, host) = rest.split_at(authority_end);
        let credentials = credentials
            .strip_suffix('@')
            .map_or(String::new(), |credentials| {
                match credentials.split_once(':') {
                    Some((user, _)) => format!("{user}:{HIDDEN}@"),
                    None => format!("{credentials}@"),
                }
            });
        format!("{scheme}://{credentials}{host}{query}")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}
