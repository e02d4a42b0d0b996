use std::process::{Command, Stdio};

use crate::commands::program::{
    Ended, Serving, ask, ask_with_input, binary, eventually, json, mainspring, metrics,
};

#[test]
fn a_newcomer_gets_an_answer_and_can_continue() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let first = ask(&dev.url, &["send", "--wait", "hi"]);
    assert_eq!(
        (first.code, first.stdout.as_str()),
        (0, "hi\n"),
        "{}",
        first.stderr
    );
    let session = first
        .stderr
        .split_whitespace()
        .find(|word| word.starts_with("ses_"));
    let session = session.expect("the session is named");
    let again = ask(
        &dev.url,
        &["send", "--wait", "--session", session, "and again"],
    );
    assert_eq!(again.stdout, "and again\n", "{}", again.stderr);
    let messages = json(&dev.url, &["sessions", "messages", session]);
    assert_eq!(messages.as_array().map(Vec::len), Some(4));
    let chat = ask_with_input(
        &dev.url,
        &["chat", "--session", session],
        "one\n!stream 3x1ms\n",
    );
    assert_eq!(chat.stdout.lines().next(), Some("one"), "{}", chat.stderr);
    let workers = json(&dev.url, &["workers"]);
    assert_eq!(workers.as_array().map(Vec::len), Some(1));
    let listed = json(&dev.url, &["workers", "list"]);
    assert_eq!(listed[0]["id"], workers[0]["id"]);
    let id = workers[0]["id"].as_str().expect("an id");
    let shown = json(&dev.url, &["workers", "show", id]);
    assert_eq!(shown["name"], workers[0]["name"]);
    assert_eq!(ask(&dev.url, &["workers", "show", "nobody"]).code, 3);
    let info = json(&dev.url, &["sessions", "show", session]);
    assert_eq!(info["messages"], 8);
}

#[test]
fn metrics_say_what_models_took_and_what_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    assert_eq!(ask(&dev.url, &["send", "--wait", "!stream 3x1ms"]).code, 0);
    let text = metrics(&dev.url);
    for line in [
        r#"mainspring_worker_model_tokens_total{model="demo",purpose="round",kind="input"} "#,
        r#"mainspring_worker_model_tokens_total{model="demo",purpose="round",kind="output"} "#,
        r#"mainspring_worker_model_call_seconds_count{model="demo",outcome="answered"} 1"#,
        r#"mainspring_worker_model_first_piece_seconds_count{model="demo"} 1"#,
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    eventually("what waits is measured", || {
        let ready = r#"mainspring_queue_ready_sessions{pool="default"} "#;
        metrics(&dev.url).contains(ready).then_some(())
    });
}

#[test]
fn a_send_that_fails_or_is_cancelled_ends_the_command_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    assert_eq!(ask(&dev.url, &["send", "--wait", "!fail 401"]).code, 7);
    let sleeping = ask(&dev.url, &["send", "!sleep 1h"]);
    let id = sleeping.stdout.trim();
    assert_eq!(ask(&dev.url, &["sends", "cancel", id]).code, 0);
    let tail = ask(&dev.url, &["sends", "tail", id]);
    assert_eq!(tail.code, 8, "{}", tail.stderr);
    assert!(tail.stdout.contains("send.cancelled"), "{}", tail.stdout);
    let missing = "ses_00000000000000000000000000000000";
    assert_eq!(ask(&dev.url, &["sessions", "show", missing]).code, 3);
}

#[test]
fn what_a_list_shows_is_acted_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let sleeping = ["one", "two"].map(|name| {
        let sent = ask(&dev.url, &["send", &format!("{name} !sleep 1h")]);
        sent.stdout.trim().to_owned()
    });
    let [one, two] = &sleeping;
    let everything = ask(&dev.url, &["sends", "list", "--then", "cancel"]);
    assert_eq!(everything.code, 2, "{}", everything.stderr);
    let list = ["sends", "list", "--since", "1h"];
    let acted = json(&dev.url, &[&list[..], &["--then", "cancel"]].concat());
    let done = serde_json::json!([
        { "id": two, "done": true, "problem": null }, { "id": one, "done": true, "problem": null },
    ]);
    assert_eq!(acted, done);
    for id in &sleeping {
        assert_eq!(ask(&dev.url, &["sends", "tail", id]).code, 8);
    }
    let retry = [&list[..], &["--status", "cancelled", "--then", "retry"]].concat();
    assert_eq!(json(&dev.url, &retry), done);
    let sends = json(&dev.url, &list);
    assert_eq!(sends.as_array().map(Vec::len), Some(4), "{sends}");
}

#[test]
fn a_closed_session_takes_nothing_and_a_deleted_one_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let made = json(
        &dev.url,
        &["sessions", "create", "--name", "x", "--metadata", "team=a"],
    );
    let id = made["id"].as_str().expect("an id");
    let found = json(
        &dev.url,
        &["sessions", "list", "--metadata", "team=a", "--agent", "x"],
    );
    assert_eq!(found[0]["id"], id);
    assert_eq!(
        json(&dev.url, &["sessions", "close", id])["status"],
        "closed"
    );
    assert_eq!(ask(&dev.url, &["send", "--session", id, "hi"]).code, 4);
    assert_eq!(
        json(&dev.url, &["sessions", "reopen", id])["status"],
        "idle"
    );
    assert_eq!(
        ask(&dev.url, &["send", "--wait", "--session", id, "hi"]).code,
        0
    );
    assert_eq!(ask(&dev.url, &["sessions", "delete", id]).code, 0);
    assert_eq!(ask(&dev.url, &["sessions", "show", id]).code, 3);
}

#[test]
fn a_killed_process_answers_after_its_restart_and_the_audit_agrees() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut dev = Serving::dev(folder.path(), &["--lease-ttl", "1s"]);
    let id = ask(&dev.url, &["send", "!sleep 1s"])
        .stdout
        .trim()
        .to_owned();
    eventually("the send runs", || {
        (json(&dev.url, &["sends", "show", &id])["status"] == "running").then_some(())
    });
    dev.signal("KILL");
    assert_eq!(dev.wait(), None);
    let mut dev = Serving::dev(folder.path(), &["--lease-ttl", "1s"]);
    let tail = ask(&dev.url, &["sends", "tail", &id]);
    assert_eq!(tail.code, 0, "{}", tail.stderr);
    let audit = mainspring()
        .args(["audit", "--data-dir"])
        .arg(folder.path())
        .output();
    let audit = audit.expect("runs");
    assert!(
        audit.status.success(),
        "{}",
        String::from_utf8_lossy(&audit.stdout)
    );
    assert!(audit.stdout.is_empty(), "an audit that passes says nothing");
    let audit = mainspring()
        .args(["audit", "-o", "json", "--data-dir"])
        .arg(folder.path())
        .output();
    assert_eq!(audit.expect("runs").stdout, b"[]\n");
    dev.signal("TERM");
    assert_eq!(dev.wait(), Some(0));
}

#[test]
fn a_stop_lets_an_answer_under_way_be_finished() {
    // A closed terminal stops a process as well, unless whoever started it ignores that.
    for signal in ["INT", "HUP"] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("env");
        command.env_clear().stdin(Stdio::null());
        command.arg("--default-signal=HUP").arg(binary());
        let mut dev = Serving::dev_by(command, folder.path(), &[]);
        let id = ask(&dev.url, &["send", "!sleep 500ms"])
            .stdout
            .trim()
            .to_owned();
        eventually("the send runs", || {
            (json(&dev.url, &["sends", "show", &id])["status"] == "running").then_some(())
        });
        dev.signal(signal);
        assert_eq!(dev.wait(), Some(0), "{signal}");
        let dev = Serving::dev(folder.path(), &[]);
        let send = json(&dev.url, &["sends", "show", &id]);
        assert_eq!(
            (&send["status"], &send["attempts"]),
            (&"completed".into(), &1.into()),
            "{signal}"
        );
    }
}

#[test]
fn doctor_looks_at_the_server_that_commands_would_use() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let doctor = |url: &str| {
        let mut command = mainspring();
        command.current_dir(elsewhere.path());
        let command = command.env("MAINSPRING_SERVER", url).arg("doctor");
        Ended::from(command.output().expect("runs"))
    };
    let found = doctor(&dev.url);
    let line = found.stdout.lines().find(|line| line.contains(" server "));
    let line = line.unwrap_or_default();
    assert!(
        line.starts_with("ok ") && line.contains(&dev.url),
        "{}",
        found.stdout
    );
    let nobody = doctor("http://127.0.0.1:1");
    let line = nobody.stdout.lines().find(|line| line.contains(" server "));
    let line = line.unwrap_or_default();
    assert!(
        line.starts_with("problem ") && line.contains("127.0.0.1:1"),
        "{}",
        nobody.stdout
    );
    assert_eq!(nobody.code, 1);
}

#[test]
fn a_second_process_on_the_same_folder_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let _dev = Serving::dev(folder.path(), &["--name", "the-first"]);
    let second = mainspring()
        .args(["dev", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(folder.path())
        .output()
        .expect("runs");
    let stderr = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(6), "{stderr}");
    assert!(
        stderr.contains("the-first") && stderr.contains("--data-dir"),
        "{stderr}"
    );
}

#[test]
fn a_database_meant_for_others_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = mainspring();
    command
        .args(["dev", "--print-config", "--data-dir"])
        .arg(folder.path());
    command.env("DATABASE_URL", "mysql://elsewhere/x");
    assert!(command.output().expect("runs").status.success());
}

#[test]
fn a_conversation_shows_what_the_agent_asks_and_the_next_line_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let chat = &["chat", "--tool", "ask_person"];
    let asks =
        "!tool ask_person {\"question\": \"go on?\", \"options\": [\"yes please\", \"no\"]}\n";
    let ended = ask_with_input(&dev.url, chat, &format!("{asks}1\nand then\n"));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("[asks] go on?\n  1. yes please\n  2. no\n"),
        "{}",
        ended.stderr
    );
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].contains("yes please"), "{lines:?}");
    assert_eq!(lines.last(), Some(&"and then"));

    // The input ends before the question is answered: the send waits, and the command says how to
    // answer it.
    let ended = ask_with_input(&dev.url, chat, asks);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("mainspring sends answer snd_"),
        "{}",
        ended.stderr
    );
    let session = ended
        .stderr
        .split_whitespace()
        .find(|word| word.starts_with("ses_"));
    let session = session.expect("the session is named").trim_end_matches('`');
    let waiting = json(&dev.url, &["calls", session]);
    assert_eq!(waiting[0]["arguments"]["question"], "go on?");

    // A user who returns is shown the open question.
    let ended = ask_with_input(&dev.url, &["chat", "--session", session], "2\n");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("no"), "{}", ended.stdout);
    assert!(
        json(&dev.url, &["calls", session])
            .as_array()
            .is_some_and(Vec::is_empty)
    );
}

#[test]
fn an_agent_is_taken_from_a_file_and_its_flags() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(&folder.path().join("data"), &[]);
    let file = folder.path().join("agent.json");
    std::fs::write(&file, "{\"name\": \"writer\", \"tools\": [\"explore\"]}").expect("written");
    let file = file.to_str().expect("UTF-8");
    let words = ["--agent", file, "--tool", "write_file", "--model", "demo"];
    let made = json(&dev.url, &[&["sessions", "create"], &words[..]].concat());
    assert_eq!(made["agent"]["name"], "writer");
    assert_eq!(
        made["agent"]["tools"],
        serde_json::json!(["explore", "write_file"])
    );
    let text = "!tool write_file {\"path\": \"a.txt\", \"content\": \"hi\"}";
    let sent = ask(&dev.url, &["send", "--wait", "--tool", "core", text]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(sent.stdout.contains("a.txt"), "{}", sent.stdout);
}

#[test]
fn tools_that_no_worker_has_are_warned_of_and_the_cost_of_a_session_is_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let known = json(&dev.url, &["tools", "--workers"]);
    let names = known.as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(|tool| tool["name"].as_str()).collect();
    assert!(names.contains(&"grep"), "{names:?}");
    let sent = ask(&dev.url, &["send", "--wait", "--tool", "grepp", "hi"]);
    assert_eq!(
        (sent.code, sent.stdout.as_str()),
        (0, "hi\n"),
        "{}",
        sent.stderr
    );
    let warned = sent.stderr.contains("did you mean \"grep\"?");
    assert!(warned, "{}", sent.stderr);
    let session = sent
        .stderr
        .split_whitespace()
        .find(|word| word.starts_with("ses_"));
    let session = session.expect("the session is named");
    let usage = json(&dev.url, &["sessions", "usage", session]);
    assert_eq!(usage["own"]["calls"], 1, "{usage}");
    assert_eq!(usage["own"], usage["tree"]);
    assert_eq!(usage["own"]["purposes"][0]["purpose"], "round", "{usage}");
    let table = ask(&dev.url, &["sessions", "usage", session, "-o", "table"]);
    let lines: Vec<&str> = table.stdout.lines().collect();
    assert!(lines[0].starts_with("OF"), "{}", table.stdout);
    assert_eq!(lines.len(), 5, "{}", table.stdout);
}

#[test]
fn what_the_model_would_be_asked_is_shown_before_it_is_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let made = json(&dev.url, &["sessions", "create", "--name", "x"]);
    let id = made["id"].as_str().expect("an id");
    let context = ["sessions", "context", id, "--input", "hello"];
    let shown = json(&dev.url, &context);
    assert_eq!(
        (&shown["model"], &shown["window"]),
        (&"demo".into(), &200_000.into())
    );
    assert_eq!(shown["parts"][0]["kind"], "new", "{shown}");
    let table = ask(&dev.url, &context);
    let digest = shown["digest"].as_str().expect("a digest");
    assert!(table.stderr.contains(digest), "{}", table.stderr);
    assert_eq!(
        ask(&dev.url, &["send", "--wait", "--session", id, "hello"]).code,
        0
    );
    let sends = json(&dev.url, &["sends", "list", "--session", id]);
    let send = sends[0]["id"].as_str().expect("an id");
    let events = ask(&dev.url, &["sends", "tail", send, "-o", "jsonl"]).stdout;
    let round = events.lines().find(|line| line.contains("round.completed"));
    let round = round.expect("a round");
    assert!(round.contains(digest), "{digest} is not in {round}");
}

#[test]
fn recorded_rounds_are_rendered_again_and_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let data = folder.path().to_str().expect("UTF-8");
    for text in ["hello", "!tool list_files {}", "bye"] {
        let sent = ask(&dev.url, &["send", "--wait", "--tool", "core", text]);
        assert_eq!(sent.code, 0, "{}", sent.stderr);
    }
    let diff = |more: &[&str]| {
        let mut command = mainspring();
        command.args(["diff", "--data-dir", data]).args(more);
        let output = command.output().expect("runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let file = |name: &str, agent: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, agent).expect("written");
        path.display().to_string()
    };
    let one = file("one.json", r#"{"system_prompt": "Be brief."}"#);
    let two = file("two.json", r#"{"system_prompt": "Be bold."}"#);
    let (code, stdout, stderr) = diff(&["--agent", &format!("{one}..{one}")]);
    assert_eq!((code, stdout.as_str()), (Some(0), ""), "{stderr}");
    let (code, stdout, stderr) = diff(&["--agent", &format!("{one}..{two}")]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stdout.contains("Be brief.") && stdout.contains("Be bold."),
        "{stdout}"
    );
    // Published versions.
    for text in ["You serve a team.", "You serve a team well."] {
        let agent = format!(
            r#"{{"name": "helper", "prompt": {{"sections": [{{"name": "team", "text": "{text}"}}]}}}}"#
        );
        let published = ask(&dev.url, &["agents", "apply", &file("helper.json", &agent)]);
        assert_eq!(published.code, 0, "{}", published.stderr);
    }
    let (code, stdout, stderr) = diff(&["--agent", "helper@1..helper@2"]);
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(stdout.contains("well."), "{stdout}");
    let (code, stdout, stderr) = diff(&["--agent", "helper@2..helper"]);
    assert_eq!((code, stdout.as_str()), (Some(0), ""), "{stderr}");
    let (code, _, stderr) = diff(&["--agent", "helper@1..helper@7"]);
    assert_eq!(code, Some(3), "{stderr}");
    let (code, _, stderr) = diff(&["--tenant", "ten_7", "--agent", "helper"]);
    assert_eq!(code, Some(3), "{stderr}");
}
