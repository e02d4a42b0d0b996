//! The store suite on Postgres: each test has a database of its own on the server that
//! `MAINSPRING_TEST_POSTGRES_URL` names.

use std::io::Write;

use async_trait::async_trait;
use mainspring_shared::store::Inspect;
use mainspring_store_postgres::{PostgresStore, Settings};
use mainspring_tests::databases::{Lent, Server};
use mainspring_tests::store_suite;
use mainspring_tests::suites::store::agreement::assert_agrees;
use mainspring_tests::suites::store::concurrent::assert_linearizable;
use mainspring_tests::suites::store::harness::{Opened, environment};
use mainspring_tests::suites::store::recall::assert_recalls;
use mainspring_tests::suites::store::writes::assert_written_once;

struct Postgres {
    store: PostgresStore,
    _lent: Lent,
}

#[async_trait]
impl Opened for Postgres {
    fn store(&self) -> &dyn Inspect {
        &self.store
    }

    async fn close(self) {
        self.store.close().await;
    }
}

/// The address of a database on the server, if one is given.
fn server() -> Option<String> {
    environment("MAINSPRING_TEST_POSTGRES_URL")
}

async fn open() -> Option<Postgres> {
    let settings = |url: &str| Settings::new(url.to_owned());
    let migrated = async |url: &str| {
        let store = PostgresStore::open(&settings(url)).await;
        store.expect("a fresh database").close().await;
    };
    let lent = Server::Postgres.lend(migrated).await?;
    let store = PostgresStore::open(&settings(lent.url())).await;
    let store = store.expect("the store opens");
    Some(Postgres { store, _lent: lent })
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
fn calls_at_the_same_time_leave_what_some_order_of_them_does() {
    assert_linearizable(open);
}

#[test]
fn postgres_is_there_or_was_skipped() {
    if server().is_some() {
        return;
    }
    let required = environment("REQUIRE_STORES").as_deref() == Some("all");
    assert!(!required, "MAINSPRING_TEST_POSTGRES_URL is not set");
    // Write to stderr directly: the harness shows printed output only when a test fails.
    let notice = "skipped: MAINSPRING_TEST_POSTGRES_URL is not set, no case ran on Postgres\n";
    let shown = std::io::stderr().write_all(notice.as_bytes());
    shown.expect("standard error is open");
}
