//! Failures inside the store, and their translation to the port's errors.

use mainspring_shared::store::{Denial, Error, ROWS_UNREADABLE, ReadOnly};

/// A failure inside the store, before it becomes an error of the port.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The driver failed, or the database refused a statement.
    #[error("the database failed")]
    Database {
        /// The driver's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
        /// What a caller can do about it.
        class: Class,
    },
    /// A statement that always returns a row returned none, or too few columns.
    #[error("the database returned no row or too few columns")]
    NoRow,
    /// A row does not have the expected content.
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
    /// The schema is not the one that this program needs.
    #[error("the schema does not fit")]
    Schema(Error),
}

/// What a database failure means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The statement or its data are at fault: it would fail again.
    Refused,
    /// Another transaction was in the way: this one may be retried.
    Busy,
    /// A key exists already. If another transaction has just inserted it, a retry sees that;
    /// otherwise the retry fails too.
    Duplicate,
    /// The database was reached, but does not allow this.
    Denied(Denial),
    /// The connection, the server or its machine is at fault.
    Unavailable,
    /// The connection broke, and nothing was written on it. Another one may do better.
    Broken,
    /// The server accepts no writes. The next connection may lead to another.
    ReadOnly,
}

/// The result of functions inside the store.
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

    /// The schema lacks an index that is created only on demand, and this program may not create
    /// it.
    pub fn to_run(statement: &str) -> Self {
        let text = format!("the schema lacks an index that a journal needs; run: {statement}");
        Self::Schema(Error::Refused {
            source: text.into(),
        })
    }

    /// A column's value cannot be read.
    pub(crate) fn unreadable(table: &'static str, column: &'static str, detail: String) -> Self {
        Self::Corrupt {
            table,
            column,
            row: String::new(),
            detail,
        }
    }

    /// Adds the row's name to a `Corrupt`.
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

    /// Whether an item's data is at fault, so that other items can succeed without it.
    pub(crate) fn is_of_data(&self) -> bool {
        match self {
            Self::Corrupt { .. } | Self::Encode(_) | Self::NoRow => true,
            Self::Database { class, .. } => *class == Class::Refused,
            Self::Schema(_) => false,
        }
    }

    /// Whether another connection was in the way, so that the transaction may be retried.
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

impl Fault {
    /// Whether nothing was written because of the connection, and another one may do better.
    pub fn is_of_connection(&self) -> bool {
        matches!(
            self,
            Self::Database {
                class: Class::Broken | Class::ReadOnly,
                ..
            }
        )
    }

    /// The same failure, of which it is not known whether anything was written.
    #[must_use]
    pub fn of_unknown_outcome(self) -> Self {
        match self {
            Self::Database { source, .. } => Self::database(source, Class::Unavailable),
            other => other,
        }
    }
}

/// Counts a row that cannot be read, or an item that cannot be written, and that is skipped. The
/// failure is only that item's, and does not fail the operation that met it among others. The audit
/// names such rows.
pub(crate) fn skipped(fault: &Fault) {
    let table = match fault {
        Fault::Corrupt { table, .. } => table,
        Fault::Database { .. } | Fault::NoRow | Fault::Encode(_) | Fault::Schema(_) => "",
    };
    metrics::counter!(ROWS_UNREADABLE, "table" => table).increment(1);
    tracing::debug!(error = %fault, "skipping a row that cannot be read or written");
}

/// The readable rows; unreadable ones are counted and skipped.
pub(crate) fn readable<T>(rows: impl Iterator<Item = Result<T>>) -> Vec<T> {
    let rows = rows.map(|row| row.inspect_err(skipped));
    rows.filter_map(Result::ok).collect()
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Database { source, class } => match class {
                Class::Refused | Class::Duplicate => Self::Refused { source },
                Class::Denied(why) => Self::Denied { why, source },
                Class::Busy | Class::Unavailable | Class::Broken => Self::Unavailable { source },
                Class::ReadOnly => Self::Unavailable {
                    source: Box::new(ReadOnly),
                },
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
