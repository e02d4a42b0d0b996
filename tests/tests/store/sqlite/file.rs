//! The database file: who may open it, and what it must contain.

use std::path::Path;

use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{Error, Inspect as _, SchemaWrong};
use mainspring_store_sqlite::{MigratePolicy, SqliteOptions};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tempfile::TempDir;

use crate::sqlite::newest;
use crate::sqlite::opened::{Opened, open, open_in};
use crate::sqlite::steps::*;

/// A connection besides the store's, as another program would have it.
pub(crate) async fn beside(dir: &TempDir) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(dir.path().join("mainspring.db"))
        .pragma("ignore_check_constraints", "ON");
    options.connect().await.expect("connects")
}

async fn execute(conn: &mut SqliteConnection, sql: &'static str) {
    sqlx::query(sql).execute(conn).await.expect("executes");
}

#[tokio::test]
async fn a_second_process_is_refused_and_told_who_has_the_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = SqliteOptions::dir(dir.path());
    options.name = "the first".to_owned();
    let first = mainspring_store_sqlite::open(options.clone())
        .await
        .expect("opens");
    let second = mainspring_store_sqlite::open(options.clone()).await;
    let Err(Error::Locked { path, holder }) = second else {
        panic!("locked was expected: {second:?}");
    };
    assert_eq!(Path::new(&path), dir.path());
    assert_eq!(holder, format!("pid {}, the first", std::process::id()));
    drop(first);
    mainspring_store_sqlite::open(options)
        .await
        .expect("opens again");
}

#[tokio::test]
async fn a_reader_needs_no_lock_and_changes_nothing() {
    let Opened { store, place: dir } = open().await;
    accept(&store, 0, opening(1, 1)).await;
    let options = SqliteOptions::dir(dir.path());
    let reader = mainspring_store_sqlite::open_read_only(options)
        .await
        .expect("opens");
    assert_eq!(
        reader.dump().await.expect("answers"),
        store.dump().await.expect("answers")
    );
    assert_sound(&reader, 1).await;
    let refused = reader
        .at(time(1))
        .accept_sends(SCHEDULER, vec![sending(2, 1)])
        .await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    accept(&store, 2, sending(2, 1)).await;
    let seen = reader.dump().await.expect("answers");
    assert_eq!(seen.sessions[0].sends.len(), 2);
}

#[tokio::test]
async fn what_was_committed_is_there_after_reopening() {
    let Opened { store, place: dir } = open().await;
    let claimed = running(&store).await;
    append(&store, 20, round(&claimed)).await;
    let before = store.dump().await.expect("answers");
    drop(store);
    let store = open_in(&dir).await;
    assert_eq!(store.dump().await.expect("answers"), before);
    assert_sound(&store, 30).await;
}

#[tokio::test]
async fn a_file_that_does_not_exist_is_not_created_where_it_must() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = SqliteOptions::dir(dir.path());
    options.migrate = MigratePolicy::Verify;
    for opened in [
        mainspring_store_sqlite::open(options.clone()).await,
        mainspring_store_sqlite::open_read_only(options.clone()).await,
    ] {
        let missing = matches!(
            opened,
            Err(Error::SchemaMissing {
                found: 0,
                needed
            }) if needed == newest()
        );
        assert!(missing, "{opened:?}");
    }
    assert_eq!(dir.path().read_dir().expect("a directory").count(), 0);
}

#[tokio::test]
async fn the_index_of_a_journal_is_made_where_the_schema_may_be_changed() {
    let Opened { store, place: dir } = open().await;
    drop(store);
    let mut options = SqliteOptions::dir(dir.path());
    options.migrate = MigratePolicy::Verify;
    let index = async |options: &SqliteOptions| {
        let store = mainspring_store_sqlite::open(options.clone()).await;
        store.expect("opens").index_steps().await
    };
    let refused = index(&options).await.expect_err("it is not there");
    let why = std::error::Error::source(&refused).expect("a reason");
    assert!(
        why.to_string()
            .contains("CREATE INDEX IF NOT EXISTS steps_at"),
        "{why}"
    );
    options.migrate = MigratePolicy::Create;
    index(&options).await.expect("it is made");
    options.migrate = MigratePolicy::Verify;
    index(&options).await.expect("it is there");
}

#[tokio::test]
async fn an_empty_file_has_no_schema() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("mainspring.db"), []).expect("writes");
    let mut options = SqliteOptions::dir(dir.path());
    options.migrate = MigratePolicy::Verify;
    let opened = mainspring_store_sqlite::open(options).await;
    assert!(
        matches!(opened, Err(Error::SchemaMissing { found: 0, .. })),
        "{opened:?}"
    );
}

#[tokio::test]
async fn a_newer_schema_that_took_something_away_is_refused() {
    let Opened { store, place: dir } = open().await;
    let mut conn = beside(&dir).await;
    execute(
        &mut conn,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'later', TRUE, x'00', 0)",
    )
    .await;
    // The later migration removed nothing that this program needs.
    assert_eq!(store.check().await.expect("is sound").schema, 9999);
    drop(store);
    let again = mainspring_store_sqlite::open(SqliteOptions::dir(dir.path())).await;
    let store = again.expect("opens");
    execute(&mut conn, "UPDATE schema_compatibility SET protocol = 99").await;
    let checked = store.check().await;
    assert!(
        matches!(checked, Err(Error::ProtocolOlder { demanded: 99, .. })),
        "{checked:?}"
    );
    execute(&mut conn, "UPDATE schema_compatibility SET oldest = 9999").await;
    conn.close().await.expect("closes");
    assert!(matches!(
        store.check().await,
        Err(Error::SchemaNewer {
            found: 9999,
            known
        }) if known == newest()
    ));
    drop(store);
    let opened = mainspring_store_sqlite::open(SqliteOptions::dir(dir.path())).await;
    assert!(
        matches!(opened, Err(Error::SchemaNewer { found: 9999, .. })),
        "{opened:?}"
    );
}

#[tokio::test]
async fn what_a_schema_lacks_is_told_and_what_is_told_mends_it() {
    let Opened { store, place: dir } = open().await;
    assert_eq!(store.schema_faults().await.expect("reads"), []);
    let mut conn = beside(&dir).await;
    for harm in [
        "DROP TABLE pauses",
        "DROP INDEX memories_expires",
        "ALTER TABLE runs DROP COLUMN result",
    ] {
        execute(&mut conn, harm).await;
    }
    let faults = store.schema_faults().await.expect("reads");
    let names: Vec<&str> = faults.iter().map(|fault| &*fault.needed.name).collect();
    assert_eq!(
        names,
        ["pauses", "runs.result", "memories.memories_expires"]
    );
    for fault in faults {
        let SchemaWrong::Missing(ddl) = fault.wrong else {
            panic!("{fault:?}");
        };
        sqlx::query(sqlx::AssertSqlSafe(ddl))
            .execute(&mut conn)
            .await
            .expect("mends");
    }
    assert_eq!(store.schema_faults().await.expect("reads"), []);
}

/// A release may stop using something that a later one removes, but it must stay while an older
/// release runs beside it.
#[test]
fn a_migration_that_takes_something_away_says_which_programs_still_work() {
    const FIRST: &str = "0036";
    let takes_away = |text: &str| {
        // The condition of an index removes nothing.
        let upper = text.to_uppercase().replace("IS NOT NULL", "");
        [
            "DROP TABLE",
            "DROP COLUMN",
            "RENAME",
            "NOT NULL;",
            "SET NOT NULL",
            "DROP DEFAULT",
            "ADD CONSTRAINT",
        ]
        .iter()
        .any(|words| upper.contains(words))
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations");
    let mut seen = 0;
    for database in ["postgres", "mysql", "sqlite"] {
        for file in std::fs::read_dir(folder.join(database)).expect("the migrations") {
            let path = file.expect("an entry").path();
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            if &*name <= FIRST {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a text");
            seen += 1;
            assert!(
                !takes_away(&text) || text.contains("schema_compatibility"),
                "{database}/{name} takes something away from the previous release: \
                 it ends with UPDATE schema_compatibility SET oldest = its own version"
            );
        }
    }
    assert!(seen >= 3, "{seen} migrations are looked at");
    assert!(takes_away("ALTER TABLE sends DROP COLUMN title;"));
    assert!(takes_away(
        "ALTER TABLE sends ADD COLUMN title TEXT NOT NULL;"
    ));
    assert!(!takes_away("ALTER TABLE sends ADD COLUMN title TEXT;"));
    assert!(!takes_away(
        "CREATE INDEX titles ON sends (title) WHERE title IS NOT NULL;"
    ));
}

#[tokio::test]
async fn a_check_says_what_answers() {
    let Opened { store, place: _dir } = open().await;
    let info = store.check().await.expect("answers");
    assert!(info.server.starts_with("SQLite 3."), "{}", info.server);
    assert_eq!(info.schema, newest());
    assert!(info.now.0 > 1_600_000_000_000, "{}", info.now);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_named() {
    let Opened { store, place: dir } = open().await;
    accept(&store, 0, opening(1, 1)).await;
    let mut conn = beside(&dir).await;
    execute(&mut conn, "UPDATE sends SET options = '{'").await;
    let found = store.get_sends(vec![(key(1).tenant, send(1))]).await;
    let Err(Error::Corrupt {
        table, column, row, ..
    }) = found
    else {
        panic!("corrupt was expected: {found:?}");
    };
    assert_eq!((table, column), ("sends", "options"));
    assert_eq!(row, send(1).to_string());
}

#[tokio::test]
async fn a_writer_that_is_held_up_waits_its_turn() {
    let Opened { store, place: dir } = open().await;
    accept(&store, 0, opening(1, 1)).await;
    let mut conn = beside(&dir).await;
    execute(&mut conn, "BEGIN IMMEDIATE").await;
    let held_up = async { accept(&store, 1, sending(2, 1)).await };
    let let_go = async {
        // The store's busy timeout is far longer than it takes to get here.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        execute(&mut conn, "COMMIT").await;
    };
    let (accepted, ()) = tokio::join!(held_up, let_go);
    assert_eq!(accepted.position, Some(2));
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_no_transaction_open() {
    let Opened { store, place: _dir } = open().await;
    accept(&store, 0, opening(1, 1)).await;
    let then = store.at(time(1));
    for n in 2..40 {
        let offered = then.accept_sends(SCHEDULER, vec![sending(n, 1)]);
        tokio::select! {
            biased;
            _ = offered => {}
            () = tokio::task::yield_now() => {}
        }
    }
    // Each of them was carried out, in order, before this one.
    let last = accept(&store, 2, sending(40, 1)).await;
    assert_eq!(last.position, Some(40));
    assert_sound(&store, 3).await;
}

#[test]
fn the_embedded_schema_is_the_directorys() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations/sqlite");
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .expect("the migrations")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sql"))
        .collect();
    files.sort();
    let ddl = mainspring_store_sqlite::ddl();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a text");
        assert!(
            ddl.contains(text.trim_end()),
            "{} is missing",
            path.display()
        );
    }
}

#[tokio::test]
async fn the_printed_ddl_makes_a_schema_that_passes_for_ours() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = SqliteOptions::dir(dir.path());
    let made = SqliteConnectOptions::new()
        .filename(&options.file)
        .create_if_missing(true);
    let mut conn = made.connect().await.expect("connects");
    let ddl = sqlx::AssertSqlSafe(mainspring_store_sqlite::ddl());
    sqlx::raw_sql(ddl).execute(&mut conn).await.expect("runs");
    conn.close().await.expect("closes");
    options.migrate = MigratePolicy::Verify;
    let store = mainspring_store_sqlite::open(options).await.expect("opens");
    assert_eq!(store.check().await.expect("is sound").schema, newest());
}
