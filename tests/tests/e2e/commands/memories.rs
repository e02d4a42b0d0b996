//! Agents' memories on the command line: entered, read, found, edited, exported, deleted and
//! erased.

use serde_json::{Value, json};

use crate::commands::program::{Serving, ask, json};

fn texts(rows: &Value) -> Vec<&str> {
    let rows = rows.as_array().expect("a list").iter();
    rows.map(|row| row["text"].as_str().expect("a text"))
        .collect()
}

#[test]
fn memories_are_read_edited_exported_and_erased() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(&folder.path().join("data"), &[]);
    let add = |namespace: &str, text: &str| {
        json(
            &dev.url,
            &["memories", "add", text, "--namespace", namespace],
        )
    };
    let tea = add("user/1", "likes green tea");
    add("user/1/work", "works as a nurse");
    add("user/2", "the dog is called Rex");
    let id = tea["id"].as_str().expect("an id");
    // Read.
    assert_eq!(json(&dev.url, &["memories", "show", id]), tea);
    let mine = json(&dev.url, &["memories", "list", "--namespace", "user/1"]);
    assert_eq!(texts(&mine), ["works as a nurse", "likes green tea"]);
    let found = ["memories", "search", "which tea?", "--namespace", "user"];
    assert_eq!(texts(&json(&dev.url, &found)), ["likes green tea"]);
    let table = ask(&dev.url, &["memories", "list"]);
    assert_eq!(table.code, 0, "{}", table.stderr);
    assert!(table.stdout.contains("NAMESPACE"), "{}", table.stdout);
    // Edited.
    let edited = json(&dev.url, &["memories", "edit", id, "likes black tea"]);
    assert_eq!(
        (&edited["text"], &edited["id"]),
        (&json!("likes black tea"), &tea["id"])
    );
    // Exported: one line of JSON per entry, nothing else.
    let exported = ask(&dev.url, &["memories", "export", "--namespace", "user/1"]);
    let lines: Vec<Value> = exported
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    assert_eq!(lines.len(), 2);
    assert!(lines.contains(&edited), "{lines:?}");
    // Erased, with a record that does not contain the text.
    let erased = json(&dev.url, &["memories", "erase", "--namespace", "user/1"]);
    assert_eq!(erased, json!({"deleted": 2}));
    assert_eq!(ask(&dev.url, &["memories", "show", id]).code, 3);
    let left = json(&dev.url, &["memories", "list"]);
    assert_eq!(texts(&left), ["the dog is called Rex"]);
    let erasures = json(&dev.url, &["memories", "erasures", "--namespace", "user/1"]);
    assert_eq!(erasures[0]["deleted"], 2, "{erasures}");
    assert_eq!(erasures[0]["by"], "operator", "{erasures}");
    assert!(!erasures.to_string().contains("user/1"), "{erasures}");
    let others = json(&dev.url, &["memories", "erasures", "--namespace", "user/2"]);
    assert_eq!(others, json!([]));
    // Deleted, one by one.
    let last = left[0]["id"].as_str().expect("an id");
    assert_eq!(ask(&dev.url, &["memories", "delete", last]).code, 0);
    assert_eq!(ask(&dev.url, &["memories", "delete", last]).code, 3);
    assert_eq!(json(&dev.url, &["memories", "list"]), json!([]));
}
