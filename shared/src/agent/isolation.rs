//! Where what an agent does to the world is done.

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
    /// Where the workers' configuration has them run.
    #[default]
    None,
    /// In one process of their own for each send, behind the launcher. A worker that cannot start one fails
    /// the send.
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

    /// The stronger of two: nobody who is started is isolated less than who starts it.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        self.max(other)
    }

    /// Whether it says nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}
