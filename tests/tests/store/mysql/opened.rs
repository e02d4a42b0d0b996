//! A store in a database of its own.

use mainspring_store_core::SqlStore;
use mainspring_store_mysql::Settings;
use mainspring_tests::databases::{Lent, Server};
use sqlx::{Connection, MySqlConnection};

/// Where a store's data is.
pub(crate) struct Place {
    url: String,
    /// Returned to the pool when the test is over.
    _lent: Option<Lent>,
}

pub(crate) struct Opened {
    pub(crate) store: SqlStore,
    pub(crate) place: Place,
}

impl Place {
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// Opens a store; `None` if there is no server. `suite::mysql` then reports the tests as skipped,
/// or fails if skipping is not allowed.
pub(crate) async fn open() -> Option<Opened> {
    let migrated = async |url: &str| drop(open_at(url).await);
    let lent = Server::Mysql.lend(migrated).await?;
    let store = open_at(lent.url()).await;
    let place = Place {
        url: lent.url().to_owned(),
        _lent: Some(lent),
    };
    Some(Opened { store, place })
}

/// Like [`open`], but in a database that no later test gets, because this test changes its schema.
pub(crate) async fn open_unshared() -> Option<Opened> {
    let url = Server::Mysql.empty_database()?;
    let store = open_at(&url).await;
    let place = Place { url, _lent: None };
    Some(Opened { store, place })
}

pub(crate) use self::open as reachable;

/// Opens another process's store on the same database.
pub(crate) async fn open_again(place: &Place) -> SqlStore {
    open_at(place.url()).await
}

async fn open_at(url: &str) -> SqlStore {
    let opened = mainspring_store_mysql::open(&Settings::new(url.to_owned())).await;
    opened.expect("opens")
}

/// Runs statements behind the store's back, with constraint checks off.
pub(crate) async fn execute(place: &Place, sql: &'static str) {
    let conn = MySqlConnection::connect(place.url()).await;
    let mut conn = conn.expect("connects");
    let session = "SET SESSION check_constraint_checks = OFF, \
         sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'";
    for sql in [session, sql] {
        sqlx::raw_sql(sql).execute(&mut conn).await.expect(sql);
    }
}
