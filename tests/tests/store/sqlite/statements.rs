//! Checks of the SQL statements themselves.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mainspring_store_core::db::{SQLITE, spelled};
use sqlx::{AssertSqlSafe, Column, Executor, Row, SqlSafeStr, Statement};

use crate::sqlite::file::beside;
use crate::sqlite::opened::{Opened, open};

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Every statement, with the file it comes from.
fn statements() -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    for dir in ["store-sqlite/sql", "store-core/sql"] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../shared")
            .join(dir);
        files(&dir, &mut paths);
    }
    let mut found = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a text");
        assert!(
            text.starts_with("-- "),
            "{} says what it does",
            path.display()
        );
        let text = spelled(&text, SQLITE);
        let code = text.lines().filter(|line| !line.starts_with("--"));
        let code = code.collect::<Vec<_>>().join("\n");
        let split = code.split(';').map(str::trim).filter(|sql| !sql.is_empty());
        found.extend(split.map(|sql| (path.clone(), sql.to_owned())));
    }
    found
}

#[tokio::test]
async fn every_statement_prepares() {
    let Opened {
        store: _store,
        place: dir,
    } = open().await;
    let mut conn = beside(&dir).await;
    let statements = statements();
    assert!(statements.len() > 60, "{}", statements.len());
    for (path, sql) in statements {
        let prepared = conn.prepare(AssertSqlSafe(sql).into_sql_str()).await;
        let prepared = prepared.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // Columns are read by name, so names must be unique.
        let names = prepared.columns().iter().map(Column::name);
        let distinct: BTreeSet<&str> = names.clone().collect();
        assert_eq!(names.len(), distinct.len(), "{}", path.display());
    }
}

#[tokio::test]
async fn no_statement_of_the_hot_path_scans_a_table() {
    const HOT: [&str; 42] = [
        "boots/declare_dead",
        "boots/renew",
        "boots/signals",
        "calls/any_waits",
        "calls/change",
        "calls/get",
        "calls/settle",
        "calls/settle_round",
        "calls/settle_waiting",
        "claims/head",
        "idempotency/find",
        "inbox/count_pending",
        "inbox/deliver",
        "inbox/find",
        "inbox/read_pending",
        "lists/entries",
        "lists/load",
        "lists/written",
        "messages/open_round",
        "messages/window",
        "sends/due",
        "sends/get",
        "sends/head",
        "sends/join",
        "sends/last_queued",
        "sends/list_of_session",
        "sends/next_alarm",
        "sends/pin",
        "sends/reported",
        "sends/save",
        "sends/unreported",
        "sends/unreported_one",
        "sessions/children",
        "sessions/held",
        "sessions/load",
        "sessions/ready",
        "timers/change",
        "timers/due",
        "timers/get",
        "timers/list_of_session",
        "timers/next",
        "timers/session",
    ];
    let Opened {
        store: _store,
        place: dir,
    } = open().await;
    let mut conn = beside(&dir).await;
    let mut seen = 0;
    for (path, sql) in statements() {
        let name = path.with_extension("");
        if !HOT.iter().any(|hot| name.ends_with(hot)) {
            continue;
        }
        seen += 1;
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
        let plan = sqlx::query(explain)
            .fetch_all(&mut conn)
            .await
            .expect("explains");
        for row in plan {
            let detail: String = row.get("detail");
            // A parameter's array, a constant row, and a part of the window's own statement.
            let harmless = detail.contains(" VIRTUAL TABLE ")
                || ["SCAN CONSTANT ROW", "SCAN w"].contains(&detail.as_str());
            let scans = detail.starts_with("SCAN") && !harmless;
            assert!(
                !scans || detail.contains("USING"),
                "{}: {detail}",
                path.display()
            );
            assert!(
                !detail.ends_with("(tenant=?)"),
                "{} reads a whole tenant: {detail}",
                path.display()
            );
            assert!(
                !detail.contains("TEMP B-TREE"),
                "{}: {detail}",
                path.display()
            );
        }
    }
    assert_eq!(seen, HOT.len());
}
