//! Checks of the SQL statements themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sqlx::{AssertSqlSafe, Column, Connection, Executor, MySqlConnection, SqlSafeStr, Statement};

use mainspring_store_mysql::translated;

use crate::mysql::opened::{Opened, open};

fn folder(path: &str) -> Vec<std::path::PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared/store-mysql")
        .join(path);
    let entries = std::fs::read_dir(path).expect("a folder");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a text")
}

/// The core's statements by name, with MySQL's own versions where it has them.
fn texts() -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    for noun in folder("../store-core/sql") {
        for path in folder(noun.to_str().expect("a name")) {
            let name = |path: &Path| {
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned())
            };
            let (noun, verb) = (name(&noun).expect("a name"), name(&path).expect("a name"));
            texts.insert(format!("{noun}/{verb}"), read(&path));
        }
    }
    for path in folder("sql") {
        for section in read(&path).split("-- name: ").skip(1) {
            let (name, text) = section.split_once('\n').expect("a name and a text");
            assert!(text.starts_with("-- "), "{name} says what it does");
            let known = texts.insert(name.trim().to_owned(), text.to_owned());
            assert!(known.is_some(), "{name} is a statement of the core");
        }
    }
    texts
}

#[tokio::test]
async fn every_statement_prepares() {
    let Some(Opened { place, .. }) = open().await else {
        return;
    };
    let conn = MySqlConnection::connect(place.url()).await;
    let mut conn = conn.expect("connects");
    let mode = "SET SESSION sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,STRICT_ALL_TABLES,\
                NO_BACKSLASH_ESCAPES'";
    sqlx::raw_sql(mode).execute(&mut conn).await.expect("sets");
    let texts = texts();
    assert!(texts.len() > 200, "{}", texts.len());
    for (name, text) in texts {
        for sql in translated(&text) {
            let prepared = conn.prepare(AssertSqlSafe(sql).into_sql_str()).await;
            let prepared = prepared.unwrap_or_else(|error| panic!("{name}: {error}"));
            // Columns are read by name, so names must be unique.
            let names = prepared.columns().iter().map(Column::name);
            let distinct: BTreeSet<&str> = names.clone().collect();
            assert_eq!(names.len(), distinct.len(), "{name}");
        }
    }
}
