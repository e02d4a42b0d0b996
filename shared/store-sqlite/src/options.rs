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
    /// The database file. Its directory is the data directory, which only one process may use at a
    /// time.
    pub file: PathBuf,
    /// What to do about a missing or outdated schema. Created or migrated by default.
    pub migrate: MigratePolicy,
    /// The name of this process in the lock file, for the error message of a second process.
    pub name: String,
    /// The maximum number of concurrent read connections. Four by default.
    pub readers: u32,
}

impl SqliteOptions {
    /// How long a statement waits while another program has locked the file.
    pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

    /// The size to which the log file is truncated after a checkpoint, in bytes; a burst may need
    /// more for a while.
    pub(crate) const LOG_KEPT: i64 = 64 << 20;

    /// Options for the database in this file, which is created if it does not exist.
    pub fn file(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            migrate: MigratePolicy::default(),
            name: "mainspring".to_owned(),
            readers: 4,
        }
    }

    /// Options for the database in this data directory.
    pub fn dir(dir: impl AsRef<Path>) -> Self {
        Self::file(dir.as_ref().join(FILE))
    }

    /// Options for a URL `sqlite://PATH` or `sqlite:PATH`, where `PATH` is a plain file path,
    /// without URL encoding. `None` for anything else, including URLs with parameters.
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

    /// The file's write-ahead log.
    pub(crate) fn log(&self) -> PathBuf {
        let mut log = self.file.clone().into_os_string();
        log.push("-wal");
        log.into()
    }

    /// Whether to create a missing file.
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
