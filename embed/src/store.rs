//! Databases by their URLs.

use std::sync::Arc;

use mainspring_shared::secrets::shown_url;
use mainspring_shared::store::Store;
use mainspring_store_postgres::{PostgresStore, Settings};
use mainspring_store_sqlite::SqliteOptions;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::error::Error;

/// Opens a database, and creates or upgrades its schema.
pub(crate) async fn open(url: String) -> Result<Arc<dyn Store>, Error> {
    // On a thread of its own: the migrator's futures are not known to move between threads, and those of whoever opens are to.
    let runtime = Handle::current();
    let opening = spawn_blocking(move || runtime.block_on(opened(url)));
    opening.await.map_err(Error::setup)?
}

async fn opened(url: String) -> Result<Arc<dyn Store>, Error> {
    // A file has no password.
    let shown = match url.strip_prefix("sqlite:") {
        Some(_) => url.clone(),
        None => shown_url(&url),
    };
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        let settings = Settings::new(url);
        return match PostgresStore::open(&settings).await {
            Ok(store) => Ok(Arc::new(store)),
            Err(source) => Err(Error::Store { shown, source }),
        };
    }
    let Some(options) = SqliteOptions::from_url(&url) else {
        return Err(Error::Url { shown });
    };
    match mainspring_store_sqlite::open(options).await {
        Ok(store) => Ok(Arc::new(store)),
        Err(source) => Err(Error::Store { shown, source }),
    }
}
