#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod db;
mod dialect;
mod fault;
mod migrate;
mod schema;
mod settings;

use mainspring_shared::store::Result;
/// The store on one database of a MySQL or MariaDB server.
pub use mainspring_store_core::SqlStore as MysqlStore;
pub use migrate::ddl;
pub use settings::{SchemaPolicy, Settings};

use crate::db::MysqlDb;

/// Connects, and makes sure of the schema.
///
/// # Errors
///
/// `SchemaMissing` and `SchemaNewer` when the schema does not fit; `Denied` when the server refuses
/// the login, has no such database or denies a right; `Unavailable` when it cannot be reached;
/// `Refused` when the address cannot be read.
pub async fn open(settings: &Settings) -> Result<MysqlStore> {
    migrate::prepare(settings).await?;
    Ok(MysqlStore::new(MysqlDb::new(settings)?))
}
