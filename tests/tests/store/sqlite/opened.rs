//! A store in a directory of its own, which is removed with it.

use mainspring_store_core::SqlStore;
use mainspring_store_sqlite::SqliteOptions;
use tempfile::TempDir;

use crate::sqlite::file::beside;

/// Where a store's data is.
pub(crate) type Place = TempDir;

pub(crate) struct Opened {
    pub(crate) store: SqlStore,
    pub(crate) place: Place,
}

pub(crate) async fn open() -> Opened {
    let place = tempfile::tempdir().expect("a directory");
    let store = open_in(&place).await;
    Opened { store, place }
}

/// Always a store here; the MySQL tests, which share some of this code, have none without a server.
pub(crate) async fn reachable() -> Option<Opened> {
    Some(open().await)
}

pub(crate) async fn open_in(place: &Place) -> SqlStore {
    let opened = mainspring_store_sqlite::open(SqliteOptions::dir(place.path())).await;
    opened.expect("opens")
}

/// Runs statements behind the store's back, with constraint checks off.
pub(crate) async fn execute(place: &Place, sql: &'static str) {
    let mut conn = beside(place).await;
    sqlx::raw_sql(sql).execute(&mut conn).await.expect(sql);
}
