//! Conversations of other systems, imported once and again. What these systems store themselves is checked with their
//! own packages (`cargo xtask clients`).

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::program::{Serving, ask};

/// A server that nobody listens at.
const NOWHERE: &str = "http://127.0.0.1:9";

fn conversation(id: &str, says: &[&str]) -> Value {
    let items = says.iter().zip(["user", "assistant"].into_iter().cycle());
    let items =
        items.map(|(text, role)| json!({ "type": "message", "role": role, "content": text }));
    let items: Vec<Value> = items.collect();
    json!({ "id": id, "created_at": 1_700_000_000, "metadata": { "user": "u1" }, "items": items })
}

fn write(file: &Path, lines: &[Value]) -> String {
    let lines = lines.iter().map(|line| format!("{line}\n"));
    let lines = lines.collect::<Vec<_>>().concat();
    fs::write(file, lines).expect("written");
    file.to_str().expect("UTF-8").to_owned()
}

/// Imports a file; returns the counts of this kind.
fn import(server: &str, more: &[&str], code: i32, kind: &str) -> [u64; 4] {
    let ended = ask(
        server,
        &[&["import", "-o", "json", "openai"], more].concat(),
    );
    assert_eq!(ended.code, code, "{}", ended.stderr);
    let rows: Vec<Value> = serde_json::from_str(&ended.stdout).expect("JSON");
    let row = rows
        .iter()
        .find(|row| row["kind"] == kind)
        .expect("counted");
    ["created", "known", "refused", "left_out"].map(|name| row[name].as_u64().expect("a count"))
}

#[test]
fn conversations_are_imported_once_and_told_when_they_have_grown() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("conversations.jsonl");
    let said = [
        conversation("conv_1", &["weather?", "rain"]),
        conversation("conv_2", &["hello"]),
        json!({ "id": "conv_3", "items": "none" }),
    ];
    let path = write(&file, &said);
    // Counting needs no server.
    assert_eq!(
        import(NOWHERE, &[&path, "--dry-run"], 1, "messages"),
        [3, 0, 0, 0]
    );
    let refused = ask(NOWHERE, &["import", "openai", &path]);
    assert_eq!(refused.code, 6, "{}", refused.stderr);

    let dev = Serving::dev(&folder.path().join("data"), &[]);
    assert_eq!(import(&dev.url, &[&path], 1, "sessions"), [2, 0, 1, 0]);
    assert_eq!(import(&dev.url, &[&path], 1, "messages"), [0, 3, 0, 0]);
    let path = write(
        &file,
        &[
            conversation("conv_1", &["weather?", "rain", "and now?"]),
            said[1].clone(),
        ],
    );
    assert_eq!(
        import(&dev.url, &[&path], 0, "conversations that have grown since"),
        [0, 0, 0, 1]
    );

    let listed = ask(&dev.url, &["sessions", "list", "-o", "json"]);
    let sessions: Vec<Value> = serde_json::from_str(&listed.stdout).expect("JSON");
    let mut from: Vec<_> = sessions
        .iter()
        .map(|it| (&it["metadata"], &it["messages"]))
        .collect();
    from.sort_by_key(|(_, messages)| messages.as_i64());
    let about = |id: &str| json!({ "imported_by": "openai", "imported_from": id, "user": "u1" });
    assert_eq!(
        from,
        [(&about("conv_2"), &json!(1)), (&about("conv_1"), &json!(2))]
    );
    // What was deleted here can be imported again.
    let second = sessions.iter().find(|it| it["metadata"] == about("conv_2"));
    let id = second.and_then(|it| it["id"].as_str()).expect("an id");
    assert_eq!(ask(&dev.url, &["sessions", "delete", id]).code, 0);
    assert_eq!(import(&dev.url, &[&path], 0, "sessions"), [1, 1, 0, 0]);
}

#[test]
fn what_cannot_be_opened_is_said_without_its_secrets() {
    let url = "postgres://reader:secret@127.0.0.1:9/app";
    let ended = ask(NOWHERE, &["import", "langgraph", url, "--dry-run"]);
    assert_eq!(ended.code, 6, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("the database cannot be read"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("secret"), "{}", ended.stderr);
    let ended = ask(NOWHERE, &["import", "power-loop", "mysql://u:secret@h/d"]);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(!ended.stderr.contains("secret"), "{}", ended.stderr);
    let ended = ask(NOWHERE, &["import", "one.jsonl", "openai", "two.jsonl"]);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    let ended = ask(NOWHERE, &["import"]);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
}
