//! What the driver's errors mean.

use std::fmt;

use mainspring_shared::store::placements::Elsewhere;
use mainspring_shared::store::{Denial, Error, ReadOnly};
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// A failure inside a step.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The driver or the server failed.
    Driver(sqlx::Error),
    /// A row could not be read.
    Row(Error),
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Row(error)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Row(error) => error,
            Fault::Driver(error) => match kind(&error) {
                Kind::Full => unavailable(TooManyConnections),
                Kind::ReadOnly => unavailable(ReadOnly),
                Kind::Elsewhere => Elsewhere.into(),
                Kind::Conflict | Kind::Lost | Kind::Away => unavailable(error),
                Kind::Denied(why) => denied(why, &error),
                Kind::BadData | Kind::Refused => refused(error),
            },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Conflict,
    Lost,
    Away,
    /// The connection leads to a server that takes no writes. There may be another by now.
    ReadOnly,
    /// No connection is left on the server, or for this user.
    Full,
    /// The rows belong to a tenant that is not on this database; raised by the fence's triggers.
    Elsewhere,
    BadData,
    Denied(Denial),
    Refused,
}

/// SQLSTATE classes that are transient if the error ended a connection or prevented one: they then
/// describe the state of the server or pooler, not the statement. Examples: a database that allows
/// no connections (55000), one that was dropped under a standby's sessions (57P04), a pooler
/// without a server (58000), an internal error of the server (XX000).
const SERVER: [&str; 4] = ["55", "57", "58", "XX"];

pub(crate) fn kind(error: &sqlx::Error) -> Kind {
    let Some(database) = error.as_database_error() else {
        return kind_without_code(error);
    };
    let Some(code) = database.code() else {
        return kind_without_code(error);
    };
    let severity = database
        .try_downcast_ref::<PgDatabaseError>()
        .map(PgDatabaseError::severity);
    kind_of(&code, severity)
}

fn kind_of(code: &str, severity: Option<PgSeverity>) -> Kind {
    let ends_connection = matches!(severity, Some(PgSeverity::Fatal | PgSeverity::Panic));
    match code {
        // Serialization failure, deadlock, lock timeout.
        "40001" | "40P01" | "55P03" => Kind::Conflict,
        // The server ended the connection: shutdown, crash, idle timeout, transaction timeout.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04" => Kind::Lost,
        // Statement timeout.
        "57014" => Kind::Away,
        // A standby; or transactions are read-only by default.
        "25006" => Kind::ReadOnly,
        // A prepared statement is not there, or was prepared by somebody else: a pooler gives each
        // transaction another connection.
        "26000" | "42P05" => Kind::Denied(Denial::Session),
        "08P01" if !ends_connection => Kind::Denied(Denial::Session),
        // pgbouncer also reports this class for a server that it cannot reach, or that had no free
        // connection for too long.
        code if code.starts_with("08") => Kind::Lost,
        "53300" => Kind::Full,
        "MS001" => Kind::Elsewhere,
        "28000" | "28P01" => Kind::Denied(Denial::Login),
        "3D000" => Kind::Denied(Denial::Database),
        "42501" => Kind::Denied(Denial::Rights),
        // Out of memory or disk.
        code if code.starts_with("53") => Kind::Away,
        // Data exceptions and violated constraints.
        code if code.starts_with("22") || code.starts_with("23") => Kind::BadData,
        code if ends_connection && SERVER.iter().any(|class| code.starts_with(class)) => Kind::Lost,
        // Reading or writing failed outside the server.
        "58000" | "58030" => Kind::Away,
        _ => Kind::Refused,
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the driver's list is open, and what is not named here is a defect of ours"
)]
fn kind_without_code(error: &sqlx::Error) -> Kind {
    match error {
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => Kind::Away,
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed => Kind::Lost,
        _ => Kind::Refused,
    }
}

/// Whether the error says that a table does not exist.
pub(crate) fn is_undefined_table(error: &sqlx::Error) -> bool {
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    code.as_deref() == Some("42P01")
}

pub(crate) fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Unavailable {
        source: Box::new(error),
    }
}

pub(crate) fn refused(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Refused {
        source: Box::new(error),
    }
}

/// All connections that the server allows, or allows this user, are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyConnections;

impl fmt::Display for TooManyConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("every connection that the server allows is taken")
    }
}

impl std::error::Error for TooManyConnections {}

fn denied(why: Denial, error: &sqlx::Error) -> Error {
    let said = error.as_database_error().map_or_else(
        || error.to_string(),
        |database| database.message().to_owned(),
    );
    Error::Denied {
        why,
        // The server's message only, without the driver's wording.
        source: said.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the fault is transient once all attempts are used up.
    fn passes(code: &str, severity: PgSeverity) -> bool {
        match kind_of(code, Some(severity)) {
            Kind::Conflict | Kind::Lost | Kind::Away | Kind::ReadOnly | Kind::Full => true,
            Kind::Elsewhere | Kind::BadData | Kind::Denied(_) | Kind::Refused => false,
        }
    }

    #[test]
    fn what_keeps_a_connection_from_being_made_for_now_passes() {
        for (code, said) in [
            ("55000", "database is not currently accepting connections"),
            (
                "57P01",
                "terminating connection due to administrator command",
            ),
            ("57P03", "the database system is starting up"),
            (
                "57P04",
                "terminating connection due to conflict with recovery",
            ),
            ("25P04", "terminating connection due to transaction timeout"),
            ("53300", "sorry, too many clients already"),
            ("53400", "a configuration limit is exceeded"),
            (
                "08P01",
                "pgbouncer: server login has been failing, or query_wait_timeout",
            ),
            ("08006", "a pooler lost its server"),
            ("58000", "a pooler could not get a connection from its pool"),
            ("XX000", "a pooler reached its limit of clients"),
        ] {
            assert!(passes(code, PgSeverity::Fatal), "{code}: {said}");
        }
    }

    #[test]
    fn a_fault_of_a_statement_does_not_pass() {
        for (code, said) in [
            ("55000", "currval of a sequence is not yet defined"),
            ("XX000", "cache lookup failed"),
            ("58P01", "could not access file"),
            ("42P01", "relation does not exist"),
            ("0A000", "cached plan must not change result type"),
            ("23505", "duplicate key value"),
        ] {
            assert!(!passes(code, PgSeverity::Error), "{code}: {said}");
        }
    }

    #[test]
    fn what_settings_have_to_cure_does_not_pass_also_where_it_keeps_a_connection_from_being_made() {
        let denied = |code| kind_of(code, Some(PgSeverity::Fatal));
        assert_eq!(denied("28000"), Kind::Denied(Denial::Login));
        assert_eq!(denied("28P01"), Kind::Denied(Denial::Login));
        assert_eq!(denied("3D000"), Kind::Denied(Denial::Database));
        assert_eq!(denied("42501"), Kind::Denied(Denial::Rights));
        // A connection parameter that the server does not know.
        assert_eq!(denied("42704"), Kind::Refused);
    }

    #[test]
    fn what_a_pooler_does_to_prepared_statements_is_told_as_such() {
        let error = |code| kind_of(code, Some(PgSeverity::Error));
        for code in ["26000", "42P05", "08P01"] {
            assert_eq!(error(code), Kind::Denied(Denial::Session), "{code}");
        }
        // A pooler that cannot reach its server ends the connection.
        assert_eq!(kind_of("08P01", Some(PgSeverity::Fatal)), Kind::Lost);
    }

    #[test]
    fn work_on_a_connection_that_the_server_ended_may_have_taken_effect() {
        for code in ["55000", "57P01", "58000", "XX000", "08006"] {
            assert_eq!(kind_of(code, Some(PgSeverity::Fatal)), Kind::Lost, "{code}");
        }
        assert_eq!(kind_of("58030", Some(PgSeverity::Error)), Kind::Away);
    }
}
