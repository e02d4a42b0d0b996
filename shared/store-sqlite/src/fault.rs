//! What can go wrong inside, and what the port says of it.

use mainspring_shared::store::{Error, ROWS_UNREADABLE};

/// A failure inside the store, before it is put into the port's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The driver failed, or the database refused a statement.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
    /// A row cannot be read as what it should be.
    #[error("{table}.{column} cannot be read: {detail}")]
    Corrupt {
        table: &'static str,
        column: &'static str,
        row: String,
        detail: String,
    },
    /// A value cannot be written as JSON.
    #[error("a value cannot be written as JSON")]
    Encode(#[from] serde_json::Error),
    /// The schema is not the one this program needs.
    #[error("the schema does not fit")]
    Schema(Error),
}

/// What functions inside the store return.
pub(crate) type Result<T> = std::result::Result<T, Fault>;

// Primary result codes of SQLite, https://sqlite.org/rescode.html.
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
/// Out of memory, interrupted, I/O error, disk full, cannot open, locking protocol: the machine's
/// state, not the statement's.
const ENVIRONMENT: [i32; 6] = [7, 9, 10, 13, 14, 15];

impl Fault {
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
            Self::Corrupt { .. } | Self::Encode(_) => true,
            Self::Database(error) => is_refused(error),
            Self::Schema(_) => false,
        }
    }

    /// Whether another connection was in the way and the same transaction may be tried again.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Database(error) if matches!(primary_code(error), Some(BUSY | LOCKED)))
    }
}

/// SQLite's primary result code behind a driver's error; drivers report extended ones.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?;
    code.parse::<i32>().ok().map(|extended| extended & 0xff)
}

/// Whether the database refused a statement, not its machine.
fn is_refused(error: &sqlx::Error) -> bool {
    match primary_code(error) {
        Some(code) => !matches!(code, BUSY | LOCKED) && !ENVIRONMENT.contains(&code),
        None => matches!(
            error,
            sqlx::Error::RowNotFound
                | sqlx::Error::Encode(_)
                | sqlx::Error::ColumnIndexOutOfBounds { .. }
        ),
    }
}

/// Counts a row that cannot be read, or an item that cannot be written, and is passed over: one
/// item's failure, never that of whoever came upon it among others. The audit names such rows.
pub(crate) fn skipped(fault: &Fault) {
    let table = match fault {
        Fault::Corrupt { table, .. } => table,
        Fault::Database(_) | Fault::Encode(_) | Fault::Schema(_) => "",
    };
    metrics::counter!(ROWS_UNREADABLE, "table" => table).increment(1);
    tracing::debug!(error = %fault, "a row cannot be read and is passed over");
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Database(error) => {
                let refused = is_refused(&error);
                let source = Box::new(error);
                if refused {
                    Self::Refused { source }
                } else {
                    Self::Unavailable { source }
                }
            }
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
