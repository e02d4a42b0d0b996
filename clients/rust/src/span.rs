//! Durations as the API writes them.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A duration as the API writes it: `"30s"`, `"500ms"`, `"2h"`. Made from a [`Duration`], in whole milliseconds, or from
/// such a text, which the server checks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(String);

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(format!("{}ms", duration.as_millis()))
    }
}

impl From<&str> for Span {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Span {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
