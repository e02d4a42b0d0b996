//! The store suite on SQLite: each test has a directory of its own.

use async_trait::async_trait;
use mainspring_shared::store::Inspect;
use mainspring_store_sqlite::{SqliteOptions, SqliteStore};
use mainspring_tests::store_suite;
use mainspring_tests::suites::store::agreement::assert_agrees;
use mainspring_tests::suites::store::concurrent::assert_linearizable;
use mainspring_tests::suites::store::harness::Opened;
use mainspring_tests::suites::store::recall::assert_recalls;
use mainspring_tests::suites::store::writes::assert_written_once;
use tempfile::TempDir;

struct Sqlite {
    store: SqliteStore,
    dir: TempDir,
}

#[async_trait]
impl Opened for Sqlite {
    fn store(&self) -> &dyn Inspect {
        &self.store
    }

    async fn close(self) {
        drop(self.store);
        self.dir.close().expect("the directory can be removed");
    }
}

async fn open() -> Option<Sqlite> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = mainspring_store_sqlite::open(SqliteOptions::dir(dir.path())).await;
    let store = store.expect("the store opens");
    Some(Sqlite { store, dir })
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
fn sqlite_agrees_with_the_model() {
    assert_agrees(open);
}

#[test]
fn calls_at_the_same_time_leave_what_some_order_of_them_does() {
    assert_linearizable(open);
}
