//! Where the file is and how to open it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

use crate::migrate::MigratePolicy;

/// The database's file in a data directory.
const FILE: &str = "mainspring.db";

/// How to open a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// The database's file. Its directory is the data directory, which one process may use.
    pub file: PathBuf,
    /// What to do about a schema that is missing or old. By default it is created.
    pub migrate: MigratePolicy,
    /// What the lock file says of this process, for the message that a second one gets.
    pub name: String,
    /// Connections that read at once. Four by default.
    pub readers: u32,
}

impl SqliteOptions {
    /// How long a statement waits for another program that holds the file.
    pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

    /// Bytes that the log keeps on disk once it was written back; a burst may need more for a while.
    pub(crate) const LOG_KEPT: i64 = 64 << 20;

    /// The database in this file, created when it does not exist.
    pub fn file(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            migrate: MigratePolicy::default(),
            name: "mainspring".to_owned(),
            readers: 4,
        }
    }

    /// The database in this data directory.
    pub fn dir(dir: impl AsRef<Path>) -> Self {
        Self::file(dir.as_ref().join(FILE))
    }

    /// The database that `sqlite://PATH` or `sqlite:PATH` names, where `PATH` is a file as the
    /// system spells it. `None` for anything else, parameters included.
    pub fn from_url(url: &str) -> Option<Self> {
        let path = url.strip_prefix("sqlite:")?;
        let path = path.strip_prefix("//").unwrap_or(path);
        let plain = !path.is_empty() && !path.contains(['?', '#']) && path != ":memory:";
        plain.then(|| Self::file(path))
    }

    /// The data directory.
    pub(crate) fn data_dir(&self) -> PathBuf {
        match self.file.parent() {
            Some(dir) if dir != Path::new("") => dir.to_owned(),
            _ => PathBuf::from("."),
        }
    }

    /// The log of the file.
    pub(crate) fn log(&self) -> PathBuf {
        let mut log = self.file.clone().into_os_string();
        log.push("-wal");
        log.into()
    }

    /// Whether a file that is missing is made.
    pub(crate) fn creates(&self) -> bool {
        self.migrate == MigratePolicy::Create
    }

    /// A connection for the migrator, which has a driver of its own.
    pub(crate) fn migrator(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new()
            .filename(&self.file)
            .busy_timeout(Self::BUSY_TIMEOUT)
            .foreign_keys(false)
            .disable_statement_logging()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_files() {
        for (url, file) in [
            ("sqlite:///var/lib/m/m.db", "/var/lib/m/m.db"),
            ("sqlite://data/m.db", "data/m.db"),
            ("sqlite:m.db", "m.db"),
        ] {
            let options = SqliteOptions::from_url(url).expect(url);
            assert_eq!(options.file, Path::new(file));
        }
        for url in ["postgres://m", "sqlite://", "sqlite:m.db?mode=ro", "m.db"] {
            assert_eq!(SqliteOptions::from_url(url), None, "{url}");
        }
    }

    #[test]
    fn the_data_directory_is_the_files() {
        let dir = |file: &str| SqliteOptions::file(file).data_dir();
        assert_eq!(dir("m.db"), Path::new("."));
        assert_eq!(dir("data/m.db"), Path::new("data"));
        assert_eq!(SqliteOptions::dir("data").data_dir(), Path::new("data"));
    }
}
