//! Secret values.

use std::fmt;

use mainspring_shared::secrets;
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

    /// The URL as it may be shown.
    pub fn redacted_url(&self) -> String {
        secrets::shown_url(&self.0)
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
