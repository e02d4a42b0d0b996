//! Why Redis does not do what it is asked to, in words that are safe to show.

use apalis_core::error::WorkerError;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why a server that can be reached does not do the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The user or password is wrong.
    Unauthenticated,
    /// The user lacks a right.
    Forbidden,
    /// The memory limit is reached, and nothing may be evicted.
    Full,
    /// It is a replica.
    ReadOnly,
    /// It cannot save its data, and refuses writes because of it.
    CannotSave,
    /// A key of the queue holds a value of another type.
    ForeignType,
    /// It is starting.
    Loading,
    /// It runs somebody's script that does not end.
    Busy,
    /// It is a node of a cluster, which this crate does not support.
    Cluster,
    /// Anything else.
    Other,
}

/// The code that begins the server's own text, and what it means.
const CODES: [(&str, Refusal); 12] = [
    ("OOM", Refusal::Full),
    ("NOPERM", Refusal::Forbidden),
    ("NOAUTH", Refusal::Unauthenticated),
    ("WRONGPASS", Refusal::Unauthenticated),
    ("READONLY", Refusal::ReadOnly),
    ("MISCONF", Refusal::CannotSave),
    ("WRONGTYPE", Refusal::ForeignType),
    ("LOADING", Refusal::Loading),
    ("MASTERDOWN", Refusal::ReadOnly),
    ("BUSY", Refusal::Busy),
    ("MOVED", Refusal::Cluster),
    ("CROSSSLOT", Refusal::Cluster),
];

impl Refusal {
    /// Why the server refused. `None` if it did not: the error is one of the connection.
    pub(crate) fn of(error: &RedisError) -> Option<Self> {
        match error.kind() {
            ErrorKind::AuthenticationFailed => return Some(Self::Unauthenticated),
            ErrorKind::Server(ServerErrorKind::ReadOnly) => return Some(Self::ReadOnly),
            ErrorKind::Server(_) | ErrorKind::Extension => {}
            _ => return None,
        }
        let known = |code: &str| CODES.iter().find(|(known, _)| *known == code);
        if let Some((_, refusal)) = error.code().and_then(known) {
            return Some(*refusal);
        }
        // Before Redis 7, the error of a command of a script is inside of the script's.
        let said = error.detail().unwrap_or_default();
        // A user may be kept from a command of a script without a code of its own.
        if said.contains("The user executing the script can't") {
            return Some(Self::Forbidden);
        }
        let inside = said
            .split([' ', ':'])
            .filter_map(|word| word.strip_prefix('-'));
        Some(
            inside
                .filter_map(known)
                .map(|(_, it)| *it)
                .next()
                .unwrap_or(Self::Other),
        )
    }

    /// Why the server refused, if that is what this error of apalis comes from. It has the server's error in its text
    /// only: none of its layers names a source.
    pub(crate) fn behind(error: &WorkerError) -> Option<Self> {
        let WorkerError::BackendError(cause) = error else {
            return None;
        };
        let text = cause.to_string();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let mut known = words.filter_map(|word| CODES.iter().find(|(code, _)| *code == word));
        known.next().map(|(_, refusal)| *refusal)
    }

    /// The cause, for logs and people.
    pub(crate) const fn cause(self) -> &'static str {
        match self {
            Self::Unauthenticated => "authentication failed",
            Self::Forbidden => "its user lacks a right (ACL)",
            Self::Full => "its memory is full (maxmemory)",
            Self::ReadOnly => "it is a read-only replica",
            Self::CannotSave => "it cannot save its data and refuses writes",
            Self::ForeignType => "a key of the queue is of another type",
            Self::Loading => "it is loading its data",
            Self::Busy => "it is busy with somebody's script",
            Self::Cluster => "it is a node of a cluster",
            Self::Other => "it refuses a command",
        }
    }

    /// What to do about it.
    pub(crate) const fn cure(self) -> &'static str {
        match self {
            Self::Unauthenticated => "mend user and password in redis_url",
            Self::Forbidden => {
                "grant the user `~PREFIX:* ~core:apalis:* &PREFIX:* +@all -@admin`, with redis_prefix for PREFIX"
            }
            Self::Full => "raise maxmemory, or find what fills it: `redis-cli --bigkeys`",
            Self::ReadOnly => "let redis_url name the primary",
            Self::CannotSave => "free its disk, or see its log",
            Self::ForeignType => {
                "another application uses the same keys: choose another redis_prefix, or delete PREFIX:*"
            }
            Self::Loading => "wait until it has loaded its data",
            Self::Busy => "see `redis-cli SCRIPT KILL`",
            Self::Cluster => "use a standalone Redis: a cluster is not supported",
            Self::Other => "see its log",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Option<Refusal> {
        let answer = format!("-{text}\r\n");
        let value = redis::parse_redis_value(answer.as_bytes()).unwrap();
        Refusal::of(&value.extract_error().unwrap_err())
    }

    #[test]
    fn a_servers_text_of_any_release_tells_the_cause() {
        let old = "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: ";
        for (text, refusal) in [
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                Refusal::Full,
            ),
            (
                "NOPERM this user has no permissions to run the 'eval' command",
                Refusal::Forbidden,
            ),
            ("WRONGTYPE Operation against a key", Refusal::ForeignType),
            (
                "READONLY You can't write against a read only replica.",
                Refusal::ReadOnly,
            ),
            (
                "MISCONF Redis is configured to save RDB snapshots",
                Refusal::CannotSave,
            ),
            (&format!("{old}-OOM command not allowed"), Refusal::Full),
            (
                &format!("{old}-WRONGTYPE Operation against a key"),
                Refusal::ForeignType,
            ),
            (
                &format!("{old}The user executing the script can't run this command or subcommand"),
                Refusal::Forbidden,
            ),
            ("ERR unknown command", Refusal::Other),
        ] {
            assert_eq!(said(text), Some(refusal), "{text}");
        }
    }

    #[test]
    fn what_ends_a_worker_of_apalis_is_read_from_its_text() {
        let value = redis::parse_redis_value(b"-WRONGTYPE Operation against a key\r\n").unwrap();
        let refused = value.extract_error().unwrap_err();
        let of = |error: RedisError| {
            let error = apalis_redis::Error::from(error);
            Refusal::behind(&WorkerError::BackendError(
                format!("backend: {error}").into(),
            ))
        };
        assert_eq!(of(refused), Some(Refusal::ForeignType));
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert_eq!(of(broken.into()), None);
    }

    #[test]
    fn a_broken_connection_is_no_refusal() {
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(Refusal::of(&broken), None);
    }
}
