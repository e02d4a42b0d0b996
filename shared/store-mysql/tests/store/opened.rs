//! A store in a database of its own, which is dropped with it.

use std::io::Write as _;
use std::process::Command;

use mainspring_runtime::OsEntropy;
use mainspring_shared::entropy::Entropy;
use mainspring_store_core::SqlStore;
use mainspring_store_mysql::Settings;
use sqlx::{Connection, MySqlConnection};

/// Where a store's data is.
pub(crate) struct Place {
    server: String,
    name: String,
}

pub(crate) struct Opened {
    pub(crate) store: SqlStore,
    pub(crate) place: Place,
}

impl Place {
    pub(crate) fn new() -> Self {
        let server = server();
        let place = Self {
            server: server.trim_end_matches('/').to_owned(),
            name: format!("mainspring_test_{}", OsEntropy.random_id().simple()),
        };
        place.client(&format!("CREATE DATABASE {}", place.name));
        place
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/{}", self.server, self.name)
    }

    fn client(&self, sql: &str) {
        let authority = self.server.trim_start_matches("mysql://");
        let (user, address) = authority.split_once('@').expect("the URL names a user");
        let (user, password) = user.split_once(':').unwrap_or((user, ""));
        let (host, port) = address.split_once(':').unwrap_or((address, "3306"));
        let status = Command::new("mariadb")
            .args([
                "--no-defaults",
                "-h",
                host,
                "-P",
                port,
                "-u",
                user,
                "-e",
                sql,
            ])
            .env("MYSQL_PWD", password)
            .status();
        assert!(status.expect("the client runs").success(), "{sql}");
    }
}

/// The address of the server. Without one the whole binary is skipped, in so many words: what is
/// shared with SQLite's tests knows of no store that is not there.
#[expect(
    clippy::disallowed_methods,
    clippy::exit,
    reason = "tests take their server from the environment, and end where there is none"
)]
fn server() -> String {
    if let Ok(server) = std::env::var("MAINSPRING_TEST_MYSQL_URL") {
        return server;
    }
    let required = std::env::var("REQUIRE_STORES").is_ok_and(|stores| stores == "all");
    assert!(!required, "MAINSPRING_TEST_MYSQL_URL is not set");
    // Straight to the terminal: the harness shows what is printed only when a test fails.
    let notice = "SKIPPED: MAINSPRING_TEST_MYSQL_URL is not set, no test ran on MySQL\n";
    let _ = std::io::stderr().write_all(notice.as_bytes());
    std::process::exit(0);
}

impl Drop for Place {
    fn drop(&mut self) {
        self.client(&format!("DROP DATABASE {}", self.name));
    }
}

pub(crate) async fn open() -> Opened {
    let place = Place::new();
    let store = open_again(&place).await;
    Opened { store, place }
}

/// Another process' store on the same database.
pub(crate) async fn open_again(place: &Place) -> SqlStore {
    let opened = mainspring_store_mysql::open(&Settings::new(place.url())).await;
    opened.expect("opens")
}

/// Runs statements behind the store's back, and no constraint is checked.
pub(crate) async fn execute(place: &Place, sql: &'static str) {
    let conn = MySqlConnection::connect(&place.url()).await;
    let mut conn = conn.expect("connects");
    let session = "SET SESSION check_constraint_checks = OFF, \
         sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'";
    for sql in [session, sql] {
        sqlx::raw_sql(sql).execute(&mut conn).await.expect(sql);
    }
}
