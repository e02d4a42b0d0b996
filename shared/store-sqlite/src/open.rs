//! Opening the file.

use mainspring_shared::store::{Error, Result};
use mainspring_store_core::SqlStore;

use crate::db::SqliteDb;
use crate::driver::Driver;
use crate::fault::fault;
use crate::lock::DirLock;
use crate::migrate;
use crate::options::SqliteOptions;

/// Locks the data directory, opens the file, and creates or verifies its schema.
///
/// # Errors
///
/// `Locked` if another process has locked the directory; `SchemaMissing` and `SchemaNewer` if the
/// schema does not fit; `Unavailable` if the file cannot be opened.
pub async fn open(options: SqliteOptions) -> Result<SqlStore> {
    if options.migrate == migrate::MigratePolicy::Verify {
        must_exist(&options)?;
    }
    let lock = lock(&options).await?;
    let mut driver = Driver::writer(&options).map_err(fault)?;
    migrate::prepare(&mut driver, &options, options.migrate).await?;
    Ok(SqlStore::new(SqliteDb::new(driver, Some(lock), options)?))
}

/// Opens the file read-only, while another process may write to it. Every method that writes fails
/// with `Refused`.
///
/// # Errors
///
/// As for `open`, but never `Locked`.
pub async fn open_read_only(options: SqliteOptions) -> Result<SqlStore> {
    must_exist(&options)?;
    let mut driver = Driver::reader(&options).map_err(fault)?;
    migrate::verify(&mut driver)?;
    let options = SqliteOptions {
        migrate: migrate::MigratePolicy::Verify,
        ..options
    };
    Ok(SqlStore::new(SqliteDb::new(driver, None, options)?))
}

/// The size of a file before and after it was vacuumed, in bytes, with its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vacuumed {
    /// The size before.
    pub before: u64,
    /// The size after.
    pub after: u64,
}

/// Rewrites the file without the free space that deleted rows left in it. Needs about the file's
/// size of free disk space meanwhile. If it is interrupted, the file is unchanged.
///
/// # Errors
///
/// `Locked` if a process uses the directory; `SchemaMissing` if there is no file; `Unavailable` and
/// `Refused` for errors of SQLite.
pub async fn vacuum(options: SqliteOptions) -> Result<Vacuumed> {
    must_exist(&options)?;
    let _lock = lock(&options).await?;
    let before = size(&options);
    let made = options.clone();
    let vacuumed = tokio::task::spawn_blocking(move || {
        let mut driver = Driver::writer(&made)?;
        // VACUUM writes the new content to the log; the checkpoint moves it into the file.
        driver.execute("VACUUM")?;
        driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    });
    vacuumed.await.map_err(unavailable)?.map_err(fault)?;
    Ok(Vacuumed {
        before,
        after: size(&options),
    })
}

/// The bytes of the file and its log.
fn size(options: &SqliteOptions) -> u64 {
    let files = [options.file.clone(), options.log()];
    let sizes = files.map(|file| std::fs::metadata(file).map_or(0, |found| found.len()));
    sizes.iter().sum()
}

/// Locks the data directory.
async fn lock(options: &SqliteOptions) -> Result<DirLock> {
    let (dir, name) = (options.data_dir(), options.name.clone());
    let lock = tokio::task::spawn_blocking(move || DirLock::take(&dir, &name));
    lock.await.map_err(unavailable)?
}

fn unavailable(ended: tokio::task::JoinError) -> Error {
    Error::Unavailable {
        source: Box::new(ended),
    }
}

fn must_exist(options: &SqliteOptions) -> Result<()> {
    if options.file.exists() {
        return Ok(());
    }
    Err(Error::SchemaMissing {
        found: 0,
        needed: migrate::needed(),
    })
}
