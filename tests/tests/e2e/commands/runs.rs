use std::path::Path;

use serde_json::{Value, json};

use crate::commands::program::{Serving, ask, ask_with_input, eventually, json, mainspring};

/// A workflow of two steps, the second of which reads the first's result.
fn two_steps(first: &str) -> Value {
    let agent = |id: &str, input: &str| {
        let spec = json!({ "name": id, "system_prompt": "Do it.", "tools": [] });
        json!({ "type": "agent", "id": id, "spec": spec, "input": input })
    };
    json!({ "name": "two", "root": { "type": "sequence", "steps": [
        agent("first", first), agent("second", "again: {{first}}"),
    ] } })
}

/// Writes the spec to a file; returns its path.
fn file(folder: &Path, name: &str, spec: &Value) -> String {
    let path = folder.join(name);
    std::fs::write(&path, spec.to_string()).expect("written");
    path.display().to_string()
}

fn id(value: &Value) -> &str {
    value["id"].as_str().expect("an id")
}

#[test]
fn a_run_is_followed_to_its_result_and_read_afterwards() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(&folder.path().join("data"), &[]);
    let spec = file(folder.path(), "two.json", &two_steps("{{input}}"));
    let ended = ask(&dev.url, &["run", &spec, "--input", "tea"]);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "again: tea\n"),
        "{}",
        ended.stderr
    );
    // Progress goes to stderr, the result to stdout.
    for line in ["run.running", "completed  /0:first", "completed  /1:second"] {
        assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
    }
    let words = two_steps("water").to_string();
    let piped = ask_with_input(&dev.url, &["run", "-", "-o", "json"], &words);
    let piped: Value = serde_json::from_str(&piped.stdout).expect("JSON");
    assert_eq!(piped["result"]["text"], "again: water");

    let left = ask(&dev.url, &["run", &spec, "--input", "milk", "--detach"]);
    let run = left.stdout.trim();
    assert!(left.code == 0 && run.starts_with("run_"), "{left:?}");
    let shown = json(&dev.url, &["runs", "show", run, "--wait", "20s"]);
    assert_eq!(
        (&shown["status"], &shown["input"]),
        (&json!("completed"), &json!("milk"))
    );
    let tail = ask(&dev.url, &["runs", "tail", run]);
    assert_eq!(tail.code, 0, "{}", tail.stderr);
    let events: Vec<&str> = tail
        .stdout
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(events.first(), Some(&"node.running"), "{events:?}");
    assert_eq!(events.last(), Some(&"run.completed"), "{events:?}");
    let first = tail
        .stdout
        .split_whitespace()
        .next()
        .expect("an event's id");
    let rest = ask(&dev.url, &["runs", "tail", run, "--after", first]);
    assert_eq!(rest.stdout.lines().count(), events.len() - 1);

    let nodes = json(&dev.url, &["runs", "nodes", run]);
    let paths: Vec<_> = nodes
        .as_array()
        .expect("nodes")
        .iter()
        .map(|node| &node["path"])
        .collect();
    assert_eq!(paths, ["/", "/0:first", "/1:second"]);
    let below = ask(&dev.url, &["runs", "nodes", run, "--prefix", "/1"]);
    let lines: Vec<&str> = below.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{}", below.stdout);
    assert!(
        lines[0].starts_with("PATH") && lines[1].ends_with("again: milk"),
        "{lines:?}"
    );
    // An export is JSON however it is asked for.
    let exported = ask(&dev.url, &["runs", "export", run]);
    let exported: Value = serde_json::from_str(&exported.stdout).expect("JSON");
    assert_eq!(
        (&exported["format"], &exported["nodes"]),
        (&json!("mainspring.run.1"), &nodes)
    );
    let all = json(&dev.url, &["runs", "list"]);
    assert_eq!(all.as_array().map(Vec::len), Some(3));
    assert_eq!(id(&all[0]), run);
    let one = json(
        &dev.url,
        &["runs", "list", "--limit", "1", "--status", "completed"],
    );
    assert_eq!(one.as_array().map(Vec::len), Some(1));
}

#[test]
fn a_run_beside_the_process_that_has_the_folder_is_run_by_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let dev = Serving::dev(&data, &[]);
    let spec = file(folder.path(), "two.json", &two_steps("{{input}}"));
    let mut command = mainspring();
    command.args(["run", &spec, "--input", "tea", "--data-dir"]);
    let ended: crate::commands::program::Ended = command.arg(&data).output().expect("runs").into();
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "again: tea\n"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains(&dev.url), "{}", ended.stderr);
    let runs = json(&dev.url, &["runs", "list"]);
    assert_eq!(runs.as_array().map(Vec::len), Some(1));
}

#[test]
fn a_run_that_fails_or_is_cancelled_ends_the_command_so_and_is_retried() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(&folder.path().join("data"), &[]);
    let failing = file(folder.path(), "failing.json", &two_steps("!fail 401"));
    let failed = ask(&dev.url, &["run", &failing]);
    assert_eq!((failed.code, failed.stdout.as_str()), (7, ""));
    assert!(failed.stderr.contains("(llm.auth)"), "{}", failed.stderr);
    let run = json(&dev.url, &["runs", "list", "--status", "failed"]);
    assert_eq!(ask(&dev.url, &["runs", "tail", id(&run[0])]).code, 7);

    let slow = file(folder.path(), "slow.json", &two_steps("!sleep 1h"));
    let left = ask(&dev.url, &["run", &slow, "--detach"]);
    let run = left.stdout.trim();
    let begun = || {
        let shown = json(&dev.url, &["runs", "show", run]);
        (shown["counts"]["live"] == 1).then_some(())
    };
    eventually("its leaf begins", begun);
    assert_eq!(ask(&dev.url, &["runs", "retry", run]).code, 4);
    let asked = ask(&dev.url, &["runs", "cancel", run, "--reason", "enough"]);
    assert_eq!(asked.code, 0, "{}", asked.stderr);
    let tail = ask(&dev.url, &["runs", "tail", run]);
    assert_eq!(tail.code, 8, "{}", tail.stderr);
    assert!(tail.stdout.contains("enough"), "{}", tail.stdout);
    let again = ask(&dev.url, &["runs", "retry", run, "--max-tokens", "100000"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    let retried = || {
        let shown = json(&dev.url, &["runs", "show", run]);
        (shown["attempt"] == 2 && shown["counts"]["live"] == 1).then_some(())
    };
    eventually("its leaf begins again", retried);
    // One node is steered, ended, and given a result by hand.
    let on = |verb: &'static str, more: &[&str]| {
        let words = [&["runs", verb, run, "--node", "/0:first"][..], more].concat();
        ask(&dev.url, &words)
    };
    let steered = on("steer", &["be quick"]);
    assert_eq!(steered.code, 0, "{}", steered.stderr);
    assert_eq!(on("amend", &["--json", "{"]).code, 2);
    assert_eq!(on("cancel", &[]).code, 0);
    assert_eq!(ask(&dev.url, &["runs", "tail", run]).code, 8);
    assert_eq!(on("cancel", &[]).code, 4);
    let amended = on("amend", &["done by hand"]);
    assert_eq!(amended.code, 0, "{}", amended.stderr);
    let shown = json(&dev.url, &["runs", "show", run, "--wait", "20s"]);
    assert_eq!(shown["result"]["text"], "again: done by hand", "{shown}");
    let slow_again = on("retry", &[]);
    assert_eq!(slow_again.code, 0, "{}", slow_again.stderr);
    assert_eq!(ask(&dev.url, &["runs", "cancel", run]).code, 0);
}

#[test]
fn a_spec_that_makes_no_sense_is_explained_and_starts_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(&folder.path().join("data"), &[]);
    let wrong = json!({ "name": "", "root": { "type": "dance" } });
    let wrong = file(folder.path(), "wrong.json", &wrong);
    let refused = ask(&dev.url, &["run", &wrong]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    for part in ["spec.invalid", "/spec/name", "/spec/root/type"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    std::fs::write(&wrong, "{").expect("written");
    assert_eq!(ask(&dev.url, &["run", &wrong]).code, 2);
    assert_eq!(ask(&dev.url, &["run", "nowhere.json"]).code, 2);
    let nothing = "run_00000000000000000000000000000000";
    for words in [
        ["runs", "show"],
        ["runs", "tail"],
        ["runs", "cancel"],
        ["runs", "export"],
    ] {
        let ended = ask(&dev.url, &[words[0], words[1], nothing]);
        assert_eq!(ended.code, 3, "{words:?}: {}", ended.stderr);
    }
    assert_eq!(json(&dev.url, &["runs", "list"]), json!([]));
}

#[test]
fn a_run_without_a_server_keeps_its_data_in_the_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data").display().to_string();
    let spec = file(folder.path(), "two.json", &two_steps("{{input}}"));
    let mut command = mainspring();
    command.args(["run", &spec, "--input", "tea", "--data-dir", &data]);
    let output = command.output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        (output.status.code(), text.as_ref()),
        (Some(0), "again: tea\n")
    );
    let dev = Serving::dev(Path::new(&data), &[]);
    let all = json(&dev.url, &["runs", "list"]);
    assert_eq!(all[0]["status"], "completed");
}
