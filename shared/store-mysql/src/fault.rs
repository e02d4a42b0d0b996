//! What the errors of MySQL and MariaDB mean for who met them.

use mainspring_shared::store::Denial;
use mainspring_store_core::fault::{Class, Fault};
use sqlx::mysql::MySqlDatabaseError;

// Numbers of https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html, which
// MariaDB shares.
const LOCK_WAIT_TIMEOUT: u16 = 1205;
const DEADLOCK: u16 = 1213;
/// MariaDB 11.6 and newer: a row changed since the transaction read it.
const CHANGED_SINCE_READ: u16 = 1020;
const DUPLICATE_KEY: u16 = 1062;
const LOGIN: [u16; 3] = [1045, 1130, 1698];
const DATABASE: [u16; 2] = [1044, 1049];
const RIGHTS: [u16; 3] = [1142, 1143, 1227];
/// Out of connections, memory or disk; shutting down; read-only during a failover; interrupted.
const SERVER: [u16; 14] = [
    1021, 1030, 1040, 1041, 1053, 1077, 1079, 1114, 1203, 1226, 1290, 1317, 1836, 3024,
];

/// An error of the driver as a failure of the store.
pub(crate) fn fault(error: sqlx::Error) -> Fault {
    let class = class(&error);
    Fault::database(error, class)
}

/// The number of a server's error.
pub(crate) fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?;
    let error = error.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}

/// Whether the server does not let this program do that.
pub(crate) fn lacks_rights(error: &sqlx::Error) -> bool {
    number(error).is_some_and(|number| RIGHTS.contains(&number))
}

fn class(error: &sqlx::Error) -> Class {
    match number(error) {
        Some(LOCK_WAIT_TIMEOUT | DEADLOCK | CHANGED_SINCE_READ) => Class::Busy,
        Some(DUPLICATE_KEY) => Class::Duplicate,
        Some(number) if LOGIN.contains(&number) => Class::Denied(Denial::Login),
        Some(number) if DATABASE.contains(&number) => Class::Denied(Denial::Database),
        Some(number) if RIGHTS.contains(&number) => Class::Denied(Denial::Rights),
        Some(number) if SERVER.contains(&number) => Class::Unavailable,
        Some(_) => Class::Refused,
        None => match error {
            sqlx::Error::RowNotFound
            | sqlx::Error::Configuration(_)
            | sqlx::Error::Encode(_)
            | sqlx::Error::Decode(_)
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnIndexOutOfBounds { .. } => Class::Refused,
            _ => Class::Unavailable,
        },
    }
}
