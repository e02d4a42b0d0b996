//! The suite of stores, on MySQL or MariaDB: each test has a database of its own on the server of
//! `MAINSPRING_TEST_MYSQL_URL`, made and dropped with the server's client.

use std::io::Write;

use async_trait::async_trait;
use mainspring_runtime::OsEntropy;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::store::Inspect;
use mainspring_store_mysql::{MysqlStore, Settings};
use mainspring_tests::store_suite;
use mainspring_tests::suites::store::agreement::assert_agrees;
use mainspring_tests::suites::store::harness::{Opened, environment};
use mainspring_tests::suites::store::recall::assert_recalls;
use mainspring_tests::suites::store::writes::assert_written_once;
use tokio::process::Command;

struct Mysql {
    store: MysqlStore,
    database: String,
}

#[async_trait]
impl Opened for Mysql {
    fn store(&self) -> &dyn Inspect {
        &self.store
    }

    async fn close(self) {
        drop(self.store);
        let server = server().expect("the server was there when the test began");
        client(&server, &format!("DROP DATABASE {}", self.database)).await;
    }
}

/// The address of the server, `mysql://USER@HOST:PORT/`, where one is given.
fn server() -> Option<String> {
    environment("MAINSPRING_TEST_MYSQL_URL")
}

async fn client(url: &str, sql: &str) {
    let authority = url.trim_start_matches("mysql://").trim_end_matches('/');
    let (user, address) = authority.split_once('@').expect("the URL names a user");
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let (host, port) = address.split_once(':').unwrap_or((address, "3306"));
    let output = Command::new("mariadb")
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
        .output()
        .await
        .expect("the client runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{sql}: {said}");
}

async fn open() -> Option<Mysql> {
    let server = server()?;
    let database = format!("mainspring_test_{}", OsEntropy.random_id().simple());
    client(&server, &format!("CREATE DATABASE {database}")).await;
    let url = format!("{}/{database}", server.trim_end_matches('/'));
    let store = mainspring_store_mysql::open(&Settings::new(url)).await;
    let store = store.expect("the store opens");
    Some(Mysql { store, database })
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
fn mysql_agrees_with_the_model() {
    assert_agrees(open);
}

#[test]
fn mysql_is_there_or_was_skipped() {
    if server().is_some() {
        return;
    }
    let required = environment("REQUIRE_STORES").as_deref() == Some("all");
    assert!(!required, "MAINSPRING_TEST_MYSQL_URL is not set");
    // Straight to the terminal: the harness shows what is printed only when a test fails.
    let notice = "skipped: MAINSPRING_TEST_MYSQL_URL is not set, no case ran on MySQL\n";
    let shown = std::io::stderr().write_all(notice.as_bytes());
    shown.expect("standard error is open");
}
