//! The suite of stores, on Postgres: each test has a database of its own on the server of
//! `MAINSPRING_TEST_POSTGRES_URL`, made and dropped with psql.

use std::io::Write;

use async_trait::async_trait;
use mainspring_runtime::OsEntropy;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::store::Inspect;
use mainspring_store_postgres::{PostgresStore, Settings};
use mainspring_tests::store_suite;
use mainspring_tests::suites::store::agreement::assert_agrees;
use mainspring_tests::suites::store::harness::{Opened, environment};
use mainspring_tests::suites::store::recall::assert_recalls;
use mainspring_tests::suites::store::writes::assert_written_once;
use tokio::process::Command;

struct Postgres {
    store: PostgresStore,
    database: String,
}

#[async_trait]
impl Opened for Postgres {
    fn store(&self) -> &dyn Inspect {
        &self.store
    }

    async fn close(self) {
        self.store.close().await;
        let server = server().expect("the server was there when the test began");
        psql(
            &server,
            &format!("DROP DATABASE {} WITH (FORCE)", self.database),
        )
        .await;
    }
}

/// The address of a database on the server, where one is given.
fn server() -> Option<String> {
    environment("MAINSPRING_TEST_POSTGRES_URL")
}

async fn psql(url: &str, sql: &str) {
    let output = Command::new("psql")
        .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql])
        .output()
        .await
        .expect("psql runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{sql}: {said}");
}

/// The address of another database on the same server.
fn beside(url: &str, database: &str) -> String {
    let (address, options) = match url.split_once('?') {
        Some((address, options)) => (address, format!("?{options}")),
        None => (url, String::new()),
    };
    let authority = address.find("://").map_or(0, |at| at + 3);
    let server = match address[authority..].find('/') {
        Some(slash) => &address[..authority + slash],
        None => address,
    };
    format!("{server}/{database}{options}")
}

async fn open() -> Option<Postgres> {
    let server = server()?;
    let database = format!("mainspring_test_{}", OsEntropy.random_id().simple());
    psql(&server, &format!("CREATE DATABASE {database}")).await;
    let settings = Settings::new(beside(&server, &database));
    let store = PostgresStore::open(&settings).await;
    let store = store.expect("the store opens");
    Some(Postgres { store, database })
}

store_suite!(open);

#[test]
fn among_many_entries_the_right_one_is_found() {
    assert_recalls(open);
}

#[test]
fn every_write_takes_effect_once_and_none_by_a_stale_writer() {
    assert_written_once(open);
}

#[test]
fn postgres_agrees_with_the_model() {
    assert_agrees(open);
}

#[test]
fn postgres_is_there_or_was_skipped() {
    if server().is_some() {
        return;
    }
    let required = environment("REQUIRE_STORES").as_deref() == Some("all");
    assert!(!required, "MAINSPRING_TEST_POSTGRES_URL is not set");
    // Straight to the terminal: the harness shows what is printed only when a test fails.
    let notice = "skipped: MAINSPRING_TEST_POSTGRES_URL is not set, no case ran on Postgres\n";
    let shown = std::io::stderr().write_all(notice.as_bytes());
    shown.expect("standard error is open");
}

#[test]
fn the_database_of_an_address_is_replaced_and_nothing_else() {
    for (url, expected) in [
        ("postgres://u:p@h:1/a", "postgres://u:p@h:1/b"),
        ("postgres://h", "postgres://h/b"),
        ("postgres:///a?host=/run/x", "postgres:///b?host=/run/x"),
    ] {
        assert_eq!(beside(url, "b"), expected);
    }
}
