//! Classification of the errors of MySQL and MariaDB.

use mainspring_shared::store::Denial;
use mainspring_store_core::fault::{Class, Fault};
use sqlx::mysql::MySqlDatabaseError;

// Numbers from https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html, which
// MariaDB shares.
pub(crate) const LOCK_WAIT_TIMEOUT: u16 = 1205;
const DEADLOCK: u16 = 1213;
/// MariaDB 11.6 and newer: a row changed since the transaction read it.
const CHANGED_SINCE_READ: u16 = 1020;
const DUPLICATE_KEY: u16 = 1062;
/// A wrong user or password; a client address that may not connect; an account that is locked or
/// needs a new password; a connection without TLS if the account or the server requires it.
const LOGIN: [u16; 9] = [1045, 1130, 1698, 1820, 1862, 3118, 3159, 3955, 4151];
const DATABASE: [u16; 2] = [1044, 1049];
const RIGHTS: [u16; 3] = [1142, 1143, 1227];
/// Out of connections, threads, memory or disk; shutting down; interrupted.
const SERVER: [u16; 14] = [
    1021, 1030, 1037, 1040, 1041, 1053, 1077, 1079, 1114, 1135, 1203, 1226, 1317, 3024,
];
/// The server, or the transaction, is read-only: it was demoted, or its disk is nearly full.
const READ_ONLY: [u16; 3] = [1290, 1792, 1836];
/// The server does not accept the connection for now, or has ended it: it cannot resolve the
/// client's address, or has blocked it after failures (`FLUSH HOSTS`); it is offline, or a cluster
/// node that is not ready (1047); the connection broke, was killed, or was idle for too long. Also
/// what proxies report for a server that they cannot reach.
const CONNECTION: [u16; 21] = [
    1042, 1047, 1129, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 2055, 3032,
    3168, 3169, 4031, 9001, 9002,
];

/// Converts an error of the driver to a fault of the store.
pub(crate) fn fault(error: sqlx::Error) -> Fault {
    let class = class(&error);
    Fault::database(error, class)
}

/// The number of a server error.
pub(crate) fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?;
    let error = error.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}

/// Whether this program's user lacks the rights for the statement.
pub(crate) fn lacks_rights(error: &sqlx::Error) -> bool {
    number(error).is_some_and(|number| RIGHTS.contains(&number))
}

/// Whether the server refused because it takes no writes.
pub(crate) fn is_read_only(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Database {
            class: Class::ReadOnly,
            ..
        }
    )
}

fn class(error: &sqlx::Error) -> Class {
    match number(error) {
        Some(number) => class_of(number),
        None => match error {
            sqlx::Error::RowNotFound
            | sqlx::Error::Configuration(_)
            | sqlx::Error::Encode(_)
            | sqlx::Error::Decode(_)
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnIndexOutOfBounds { .. } => Class::Refused,
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::WorkerCrashed => Class::Broken,
            _ => Class::Unavailable,
        },
    }
}

fn class_of(number: u16) -> Class {
    match number {
        LOCK_WAIT_TIMEOUT | DEADLOCK | CHANGED_SINCE_READ => Class::Busy,
        DUPLICATE_KEY => Class::Duplicate,
        number if LOGIN.contains(&number) => Class::Denied(Denial::Login),
        number if DATABASE.contains(&number) => Class::Denied(Denial::Database),
        number if RIGHTS.contains(&number) => Class::Denied(Denial::Rights),
        number if READ_ONLY.contains(&number) => Class::ReadOnly,
        number if CONNECTION.contains(&number) => Class::Broken,
        number if SERVER.contains(&number) => Class::Unavailable,
        _ => Class::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_connection_from_being_made_for_now_is_unavailable() {
        for (number, said) in [
            (1040, "too many connections"),
            (1047, "the node is not prepared for use"),
            (1053, "server shutdown in progress"),
            (
                1129,
                "the host is blocked because of many connection errors",
            ),
            (1135, "can't create a new thread"),
            (1203, "the user has too many connections"),
            (1927, "the connection was killed"),
            (2013, "a proxy lost its connection to the server"),
            (3032, "the server is in offline mode"),
            (4031, "disconnected because of inactivity"),
        ] {
            let class = class_of(number);
            let passes = matches!(class, Class::Unavailable | Class::Broken);
            assert!(passes, "{number}: {said}");
        }
    }

    #[test]
    fn an_account_that_may_not_connect_is_denied() {
        // A wrong password, a client address that may not connect, a locked account, a connection
        // without TLS.
        for number in [1045, 1130, 3118, 3159] {
            let class = class_of(number);
            assert!(matches!(class, Class::Denied(Denial::Login)), "{number}");
        }
    }

    #[test]
    fn a_fault_of_a_statement_is_not_unavailable() {
        // Syntax, an unknown column, a missing table, a packet that is too large, a violated
        // constraint.
        for number in [1064, 1054, 1146, 1153, 3819] {
            let class = class_of(number);
            assert!(matches!(class, Class::Refused), "{number}");
        }
    }
}
