//! Opening the file.

use mainspring_shared::store::{Error, Result};
use sqlx::ConnectOptions;

use mainspring_store_core::SqlStore;

use crate::db::SqliteDb;
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
    let (dir, name) = (options.data_dir(), options.name.clone());
    let lock = tokio::task::spawn_blocking(move || DirLock::take(&dir, &name));
    let lock = lock.await.map_err(|ended| Error::Unavailable {
        source: Box::new(ended),
    })??;
    let mut conn = options.writer().connect().await.map_err(fault)?;
    migrate::prepare(&mut conn, options.migrate).await?;
    Ok(SqlStore::new(SqliteDb::new(
        conn,
        Some(lock),
        options.pool(),
        options.migrate,
    )))
}

/// Opens the file for reading only, beside whoever writes to it. Every method that writes
/// answers `Refused`.
///
/// # Errors
///
/// As for `open`, but never `Locked`.
pub async fn open_read_only(options: SqliteOptions) -> Result<SqlStore> {
    must_exist(&options)?;
    let mut conn = options.reader().connect().await.map_err(fault)?;
    migrate::verify(&mut conn).await?;
    Ok(SqlStore::new(SqliteDb::new(
        conn,
        None,
        options.pool(),
        migrate::MigratePolicy::Verify,
    )))
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
