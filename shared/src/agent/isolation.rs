//! Where an agent's tools run that affect the outside world.

use serde::{Deserialize, Serialize};

/// Where those of an agent's tools run that reach beyond the database: files, the shell, HTTP and MCP.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Where the workers' configuration says.
    #[default]
    None,
    /// In a separate process for each send, behind the launcher. A worker that cannot start one
    /// fails the send.
    Process,
}

impl Isolation {
    /// Every isolation, the weakest first.
    pub const ALL: [Self; 2] = [Self::None, Self::Process];

    /// The name in a spec.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Process => "process",
        }
    }

    /// The stricter of two: a started agent is never isolated less than its starter.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        self.max(other)
    }

    /// Whether no isolation is required.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}
