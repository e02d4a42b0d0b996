//! Copies of sessions: forks, archives into files and back.

use serde_json::{Value, json};

use crate::commands::fake::{Fake, json as answer, stream};
use crate::commands::program::{ask, ask_with_input};

const ARCHIVE: &str = "{\"format\":\"mainspring.session\"}\n{\"messages\":0}\n";

/// A complete HTTP response of JSON lines.
fn lines(text: &str) -> String {
    let length = text.len();
    format!(
        "HTTP/1.1 200 x\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{text}"
    )
}

#[test]
fn an_archive_goes_to_stdout_or_into_a_file() {
    let fake = Fake::answering([lines(ARCHIVE)]);
    let ended = ask(&fake.url, &["sessions", "export", "ses_1"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ARCHIVE));
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("one.jsonl");
    let path = file.to_str().expect("a text");
    let ended = ask(&fake.url, &["sessions", "export", "ses_1", path]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""));
    let written = std::fs::read_to_string(&file).expect("the file");
    assert_eq!(written, ARCHIVE);
    assert_eq!(fake.asked()[1].line, "GET /v1/sessions/ses_1/export");
}

#[test]
fn an_archive_that_breaks_off_replaces_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("one.jsonl");
    std::fs::write(&file, "before").expect("writes");
    let path = file.to_str().expect("a text");
    let fake = Fake::answering([stream(ARCHIVE)]);
    let ended = ask(&fake.url, &["sessions", "export", "ses_1", path]);
    assert_eq!(ended.code, 6, "{}", ended.stderr);
    let kept = std::fs::read_to_string(&file).expect("the file");
    assert_eq!(kept, "before");
    let left = std::fs::read_dir(dir.path()).expect("the directory");
    assert_eq!(left.count(), 1);
}

#[test]
fn an_archive_is_read_from_a_file_or_stdin() {
    let made = answer(201, "", &json!({ "id": "ses_2" }).to_string());
    let fake = Fake::answering([made]);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("one.jsonl");
    std::fs::write(&file, ARCHIVE).expect("writes");
    let path = file.to_str().expect("a text");
    let from_file = ["sessions", "import", path, "-o", "json"];
    let ended = ask(&fake.url, &from_file);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let shown: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(shown["id"], "ses_2");
    let ended = ask_with_input(&fake.url, &["sessions", "import", "-"], ARCHIVE);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for asked in fake.asked() {
        assert_eq!(asked.line, "POST /v1/sessions:import");
        assert_eq!(asked.header("content-type"), Some("application/x-ndjson"));
        assert!(asked.header("idempotency-key").is_some());
        assert_eq!(asked.body, ARCHIVE);
    }
    let missing = ask(&fake.url, &["sessions", "import", "/nowhere/at/all"]);
    assert_eq!(missing.code, 3, "{}", missing.stderr);
}

#[test]
fn old_messages_are_pruned_by_number_or_count() {
    let pruned = json!({ "removed": 3, "first_seq": 4, "dry_run": false });
    let fake = Fake::answering([answer(200, "", &pruned.to_string())]);
    for (more, body) in [
        (
            vec!["--before", "4"],
            json!({ "before_seq": 4, "dry_run": false }),
        ),
        (
            vec!["--keep-last", "2", "--dry-run"],
            json!({ "keep_last": 2, "dry_run": true }),
        ),
    ] {
        let mut arguments = vec!["sessions", "prune", "ses_1"];
        arguments.extend(more);
        let ended = ask(&fake.url, &arguments);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let asked = fake.asked().pop().expect("a request");
        assert_eq!(asked.line, "POST /v1/sessions/ses_1/prune");
        let said: Value = serde_json::from_str(&asked.body).expect("JSON");
        assert_eq!(said, body);
    }
    assert_eq!(ask(&fake.url, &["sessions", "prune", "ses_1"]).code, 2);
}

#[test]
fn a_fork_names_its_place_or_leaves_it_to_the_server() {
    let made = answer(201, "", &json!({ "id": "ses_2" }).to_string());
    let fake = Fake::answering([made]);
    for (more, body) in [
        (vec![], json!({})),
        (vec!["--seq", "4"], json!({ "seq": 4 })),
    ] {
        let mut arguments = vec!["sessions", "fork", "ses_1"];
        arguments.extend(more);
        assert_eq!(ask(&fake.url, &arguments).code, 0);
        let asked = fake.asked().pop().expect("a request");
        assert_eq!(asked.line, "POST /v1/sessions/ses_1/fork");
        assert!(asked.header("idempotency-key").is_some());
        let said: Value = serde_json::from_str(&asked.body).expect("JSON");
        assert_eq!(said, body);
    }
}
