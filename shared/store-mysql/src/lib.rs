#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod db;
mod dialect;
mod fault;
mod marks;
mod migrate;
mod pool;
mod schema;
mod settings;

pub use dialect::translated;
use mainspring_shared::store::Result;
/// The store on one database of a MySQL or MariaDB server.
pub use mainspring_store_core::SqlStore as MysqlStore;
pub use migrate::ddl;
pub use settings::{SchemaPolicy, Settings};

use crate::db::MysqlDb;

/// Connects to the database, and creates or verifies its schema.
///
/// # Errors
///
/// `SchemaMissing` and `SchemaNewer` if the schema does not fit; `Denied` if the server refuses the
/// login, has no such database or denies a right; `Unavailable` if it cannot be reached; `Refused`
/// if the URL cannot be parsed.
pub async fn open(settings: &Settings) -> Result<MysqlStore> {
    migrate::prepare(settings).await?;
    Ok(MysqlStore::new(MysqlDb::new(settings)?))
}
