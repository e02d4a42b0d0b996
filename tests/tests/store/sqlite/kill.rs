//! What a killed process leaves behind.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use mainspring_shared::store::Inspect as _;
use mainspring_shared::store::prelude::*;
use mainspring_store_sqlite::SqliteOptions;
use tempfile::TempDir;

use crate::sqlite::opened::{Opened, open, open_in};
use crate::sqlite::steps::*;

/// Marker file: tells the child test that it is meant to run in this directory.
const CHILD: &str = "child";

/// The process that is killed: accepts sends, one transaction each, and prints a line after each.
#[tokio::test]
#[ignore = "started by the test below, in a directory of its own"]
async fn accepts_until_it_is_killed() {
    if !std::path::Path::new(CHILD).exists() {
        return;
    }
    let store = mainspring_store_sqlite::open(SqliteOptions::dir("."))
        .await
        .expect("opens");
    let mut stdout = std::io::stdout();
    for n in 1..100_000 {
        let item = if n == 1 { opening(n, 1) } else { sending(n, 1) };
        let item = mainspring_shared::store::AcceptSend {
            queued_max: i64::MAX,
            keeper: None,
            ..item
        };
        accept(&store, 0, item).await;
        writeln!(stdout, "accepted {n}").expect("writes");
    }
}

fn number(line: &str) -> Option<u128> {
    line.strip_prefix("accepted ")?.parse().ok()
}

#[tokio::test]
async fn what_a_killed_process_was_told_is_there() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join(CHILD), []).expect("writes");
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .args([
            "--exact",
            "sqlite::kill::accepts_until_it_is_killed",
            "--ignored",
            "--nocapture",
        ])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut accepted: Vec<u128> = Vec::new();
    while let Some(line) = lines.next() {
        accepted.extend(number(&line.expect("a line")));
        if accepted.len() == 50 {
            child.kill().expect("kills");
            let rest = lines.by_ref().map_while(Result::ok);
            accepted.extend(rest.filter_map(|line| number(&line)));
            break;
        }
    }
    child.wait().expect("ends");
    assert!(
        accepted.len() >= 50,
        "the child accepted {}",
        accepted.len()
    );
    let store = open_in(&dir).await;
    let ids = accepted.iter().map(|n| (key(1).tenant, send(*n))).collect();
    let found = store.get_sends(ids).await.expect("answers");
    assert!(found.iter().all(Option::is_some));
    assert_sound(&store, 1).await;
}

/// Copies a store's files while it is open, with the write-ahead log truncated to `kept` bytes, as
/// after a power cut.
fn cut(from: &TempDir, kept: u64) -> TempDir {
    let to = tempfile::tempdir().expect("a directory");
    for name in ["mainspring.db", "mainspring.db-wal"] {
        std::fs::copy(from.path().join(name), to.path().join(name)).expect("copies");
    }
    let log = to.path().join("mainspring.db-wal");
    let log = std::fs::OpenOptions::new()
        .write(true)
        .open(log)
        .expect("opens");
    log.set_len(kept).expect("cuts");
    to
}

#[tokio::test]
async fn wherever_the_log_is_cut_the_store_is_sound() {
    let Opened { store, place: dir } = open().await;
    let claimed = running(&store).await;
    append(&store, 20, round(&claimed)).await;
    accept(&store, 21, sending(2, 1)).await;
    let item = ending(
        &claimed,
        &claimed.send.record,
        mainspring_shared::store::AfterSend::Continue,
    );
    complete(&store, 30, item).await;
    let whole = std::fs::metadata(dir.path().join("mainspring.db-wal"))
        .expect("a log")
        .len();
    let before = store.dump().await.expect("answers");
    let copy = cut(&dir, whole);
    let survivor = open_in(&copy).await;
    assert_eq!(survivor.dump().await.expect("answers"), before);
    let mut sends_seen = std::collections::BTreeSet::new();
    for kept in (0..whole).step_by(12_345) {
        let cut = cut(&dir, kept);
        let survivor = open_in(&cut).await;
        assert_sound(&survivor, 31).await;
        let dump = survivor.dump().await.expect("answers");
        sends_seen.insert(dump.sessions.iter().map(|s| s.sends.len()).sum::<usize>());
    }
    assert!(
        sends_seen.len() > 1,
        "the cuts fell between commits: {sends_seen:?}"
    );
}
