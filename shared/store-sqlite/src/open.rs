//! Opening the file.

use mainspring_shared::store::{Error, Result};
use mainspring_store_core::SqlStore;

use crate::db::SqliteDb;
use crate::driver::Driver;
use crate::fault::fault;
use crate::lock::DirLock;
use crate::migrate;
use crate::options::SqliteOptions;

/// Takes the data directory, opens the file and makes sure of its schema.
///
/// # Errors
///
/// `Locked` when another process has the directory; `SchemaMissing` and `SchemaNewer` when the
/// schema does not fit; `Unavailable` when the file cannot be opened.
pub async fn open(options: SqliteOptions) -> Result<SqlStore> {
    if options.migrate == migrate::MigratePolicy::Verify {
        must_exist(&options)?;
    }
    let lock = lock(&options).await?;
    let mut driver = Driver::writer(&options).map_err(fault)?;
    migrate::prepare(&mut driver, &options, options.migrate).await?;
    Ok(SqlStore::new(SqliteDb::new(driver, Some(lock), options)?))
}

/// Opens the file for reading only, beside whoever writes to it. Every method that writes
/// answers `Refused`.
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
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

/// Writes the file anew without the room that deleted rows left in it. Needs about as much room again on the
/// disk while it works; broken off, the file is as it was.
///
/// # Errors
///
/// `Locked` when a process serves from the directory; `SchemaMissing` when there is no file; `Unavailable` and
/// `Refused` as SQLite says.
pub async fn vacuum(options: SqliteOptions) -> Result<Vacuumed> {
    must_exist(&options)?;
    let _lock = lock(&options).await?;
    let before = size(&options);
    let made = options.clone();
    let vacuumed = tokio::task::spawn_blocking(move || {
        let mut driver = Driver::writer(&made)?;
        // The new content goes through the log, which is emptied into the file then.
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

/// Takes the data directory.
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
