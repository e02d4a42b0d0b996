//! What SQLite's errors mean for who met them.

use mainspring_store_core::fault::{Class, Fault};

// Primary result codes of SQLite, https://sqlite.org/rescode.html.
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
/// Out of memory, interrupted, I/O error, disk full, cannot open, locking protocol: the machine's
/// state, not the statement's.
const ENVIRONMENT: [i32; 6] = [7, 9, 10, 13, 14, 15];

/// An error of the driver as a failure of the store.
pub(crate) fn fault(error: sqlx::Error) -> Fault {
    let class = class(&error);
    Fault::database(error, class)
}

fn class(error: &sqlx::Error) -> Class {
    match primary_code(error) {
        Some(BUSY | LOCKED) => Class::Busy,
        Some(code) if ENVIRONMENT.contains(&code) => Class::Unavailable,
        Some(_) => Class::Refused,
        None => match error {
            sqlx::Error::RowNotFound
            | sqlx::Error::Encode(_)
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnIndexOutOfBounds { .. } => Class::Refused,
            _ => Class::Unavailable,
        },
    }
}

/// SQLite's primary result code behind a driver's error; drivers report extended ones.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?;
    code.parse::<i32>().ok().map(|extended| extended & 0xff)
}
