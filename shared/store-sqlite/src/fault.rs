//! Classification of SQLite's errors.

use mainspring_store_core::fault::{Class, Fault};

// Primary result codes of SQLite, https://sqlite.org/rescode.html.
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
/// Out of memory, interrupted, I/O error, disk full, cannot open, locking protocol: caused by the
/// environment, not by the statement.
const ENVIRONMENT: [i32; 6] = [7, 9, 10, 13, 14, 15];

/// Converts an error of the driver to a fault of the store.
pub(crate) fn fault(error: rusqlite::Error) -> Fault {
    let class = match error.sqlite_error() {
        Some(error) => class(error.extended_code),
        None => Class::Refused,
    };
    Fault::database(error, class)
}

/// Converts an error of the migrator's driver.
pub(crate) fn migration_fault(error: sqlx::Error) -> Fault {
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    let class = match code.and_then(|code| code.parse().ok()) {
        Some(code) => class(code),
        None => Class::Unavailable,
    };
    Fault::database(error, class)
}

/// Classifies a result code; drivers report extended ones.
fn class(code: i32) -> Class {
    match code & 0xff {
        BUSY | LOCKED => Class::Busy,
        code if ENVIRONMENT.contains(&code) => Class::Unavailable,
        _ => Class::Refused,
    }
}
