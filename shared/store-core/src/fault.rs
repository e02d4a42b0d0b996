//! What can go wrong inside, and what the port says of it.

use mainspring_shared::store::{Denial, Error, ROWS_UNREADABLE};

/// A failure inside the store, before it is put into the port's words.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The driver failed, or the database refused a statement.
    #[error("the database failed")]
    Database {
        /// What the driver says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
        /// What a caller can do about it.
        class: Class,
    },
    /// A statement that always returns a row returned none, or too few columns.
    #[error("the database returned no row or too few columns")]
    NoRow,
    /// A row cannot be read as what it should be.
    #[error("{table}.{column} cannot be read: {detail}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The row's key; empty until its reader knows it.
        row: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A value cannot be written as JSON.
    #[error("a value cannot be written as JSON")]
    Encode(#[from] serde_json::Error),
    /// The schema is not the one this program needs.
    #[error("the schema does not fit")]
    Schema(Error),
}

/// What a failure of the database means for who met it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The statement or its data are at fault: it fails again.
    Refused,
    /// Another transaction was in the way: the same one may be run again.
    Busy,
    /// A key exists already. When another transaction has just entered it, the same one run again
    /// sees that; else it fails again.
    Duplicate,
    /// The program was reached, but may not do this.
    Denied(Denial),
    /// The connection, the server or its machine are at fault.
    Unavailable,
}

/// What functions inside the store return.
pub type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    /// A failure of the database.
    pub fn database(
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
        class: Class,
    ) -> Self {
        Self::Database {
            source: source.into(),
            class,
        }
    }

    /// The schema lacks something that is made only when it is needed, and is not to be changed by this program.
    pub fn to_run(statement: &str) -> Self {
        let text = format!("the schema lacks an index that a journal needs; run: {statement}");
        Self::Schema(Error::Refused {
            source: text.into(),
        })
    }

    /// A column that cannot be read.
    pub(crate) fn unreadable(table: &'static str, column: &'static str, detail: String) -> Self {
        Self::Corrupt {
            table,
            column,
            row: String::new(),
            detail,
        }
    }

    /// Names the row that a `Corrupt` is about.
    pub(crate) fn of_row(self, name: impl FnOnce() -> String) -> Self {
        match self {
            Self::Corrupt {
                table,
                column,
                row,
                detail,
            } if row.is_empty() => Self::Corrupt {
                table,
                column,
                row: name(),
                detail,
            },
            other => other,
        }
    }

    /// Whether an item's data is at fault, so that others do better without it.
    pub(crate) fn is_of_data(&self) -> bool {
        match self {
            Self::Corrupt { .. } | Self::Encode(_) | Self::NoRow => true,
            Self::Database { class, .. } => *class == Class::Refused,
            Self::Schema(_) => false,
        }
    }

    /// Whether another connection was in the way and the same transaction may be tried again.
    pub fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Database {
                class: Class::Busy | Class::Duplicate,
                ..
            }
        )
    }
}

/// Counts a row that cannot be read, or an item that cannot be written, and is passed over: one
/// item's failure, never that of whoever came upon it among others. The audit names such rows.
pub(crate) fn skipped(fault: &Fault) {
    let table = match fault {
        Fault::Corrupt { table, .. } => table,
        Fault::Database { .. } | Fault::NoRow | Fault::Encode(_) | Fault::Schema(_) => "",
    };
    metrics::counter!(ROWS_UNREADABLE, "table" => table).increment(1);
    tracing::debug!(error = %fault, "a row cannot be read and is passed over");
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Database { source, class } => match class {
                Class::Refused | Class::Duplicate => Self::Refused { source },
                Class::Denied(why) => Self::Denied { why, source },
                Class::Busy | Class::Unavailable => Self::Unavailable { source },
            },
            Fault::NoRow => Self::Refused {
                source: Box::new(fault),
            },
            Fault::Corrupt {
                table,
                column,
                row,
                detail,
            } => Self::Corrupt {
                table,
                column,
                row,
                detail,
            },
            Fault::Encode(error) => Self::Refused {
                source: Box::new(error),
            },
            Fault::Schema(error) => error,
        }
    }
}
