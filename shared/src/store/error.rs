//! The errors of a store.

use std::fmt;
use std::time::Duration;

use crate::error::{Code, Coded};

/// A database error, as seen by the rest of the system.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be reached or did not answer in time; nothing is known to have changed.
    #[error("the database is unavailable")]
    Unavailable {
        /// The driver's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database has no schema, or one older than this program.
    #[error("the schema is at version {found}, this program needs {needed}")]
    SchemaMissing {
        /// The version in the database, 0 when there is none.
        found: i64,
        /// The version that this program was built with.
        needed: i64,
    },
    /// The database's schema is newer than this program.
    #[error("the schema is at version {found}, this program knows up to {known}")]
    SchemaNewer {
        /// The version in the database.
        found: i64,
        /// The version that this program was built with.
        known: i64,
    },
    /// Processes of a newer release use a protocol that this program does not understand.
    #[error("this program speaks protocol {spoken}, the database demands {demanded} or newer")]
    ProtocolOlder {
        /// The version that this program speaks.
        spoken: i64,
        /// The oldest version that the database allows.
        demanded: i64,
    },
    /// A row cannot be decoded.
    #[error("{table}.{column} of {row} cannot be read: {detail}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The row's key.
        row: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The database refused a statement that it should have taken.
    #[error("the database refused a statement")]
    Refused {
        /// The driver's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database is reachable but denies this program access: its configuration, here or there,
    /// must change.
    #[error("{why}")]
    Denied {
        /// What it refuses.
        why: Denial,
        /// The database's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another process uses this data directory.
    #[error("{path} is in use by another process ({holder})")]
    Locked {
        /// The data directory.
        path: String,
        /// What the lock file says of its holder.
        holder: String,
    },
}

/// What a reachable database denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// The login: a wrong user or password, or an address that may not connect.
    Login,
    /// The database of this name, which does not exist.
    Database,
    /// A statement for which the user lacks the right.
    Rights,
    /// A session of its own: a pooler gives each transaction another connection.
    Session,
    /// Text beyond the database's encoding.
    Encoding,
}

/// The database takes reads, but no writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the database accepts no writes: it is read-only, or a standby")]
pub struct ReadOnly;

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Login => "the database refuses the login",
            Self::Database => "the server has no database of this name",
            Self::Rights => "the database user lacks a privilege",
            Self::Session => {
                "the address is that of a pooler in transaction mode, which loses prepared \
                 statements and settings"
            }
            Self::Encoding => "the database's encoding is not UTF8",
        })
    }
}

impl Error {
    /// The error as a row of an audit report.
    pub fn row(&self) -> serde_json::Value {
        let Self::Corrupt {
            table,
            column,
            row,
            detail,
        } = self
        else {
            return serde_json::json!({ "detail": self.to_string() });
        };
        serde_json::json!({ "table": table, "column": column, "row": row, "detail": detail })
    }

    /// Whether an item's data is at fault, so that the other items of its group may succeed without it.
    pub fn is_of_data(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Refused { .. })
    }
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::Unavailable { .. } | Self::Locked { .. } => Code::StoreUnavailable,
            Self::SchemaMissing { .. } => Code::StoreSchemaMissing,
            Self::SchemaNewer { .. } | Self::ProtocolOlder { .. } => Code::StoreSchemaNewer,
            Self::Denied { .. } => Code::StoreDenied,
            Self::Corrupt { .. } | Self::Refused { .. } => Code::Internal,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        matches!(self, Self::Unavailable { .. }).then_some(Duration::from_secs(1))
    }
}
