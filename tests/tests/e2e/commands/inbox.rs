//! What waits for people, listed and answered from one place.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::commands::fake::{Fake, json as answer, problem};
use crate::commands::program::{Serving, ask, eventually, json, mainspring};

/// Sends this to an agent with the name, whose calls of `pay` need approval; returns the send.
fn send(dev: &Serving, folder: &Path, name: &str, text: &str) -> String {
    let pay =
        json!({ "type": "external", "name": "pay", "description": "Pays.", "approval": true });
    let agent = json!({ "name": name, "tools": [pay, "ask_person"] });
    let file = folder.join(format!("{name}.json"));
    std::fs::write(&file, agent.to_string()).expect("written");
    let file = file.display().to_string();
    let sent = ask(&dev.url, &["send", "--agent", &file, text]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    sent.stdout.trim().to_owned()
}

/// The one call that waits and wants this.
fn waiting(dev: &Serving, wants: &str) -> String {
    eventually("the call waits", || {
        let calls = json(&dev.url, &["inbox"]);
        let call = &calls[0];
        (call["wants"] == wants).then(|| call["call_id"].as_str().expect("an id").to_owned())
    })
}

/// A send's answer, once there is one.
fn answered(dev: &Serving, send: &str) -> Value {
    let shown = json(&dev.url, &["sends", "show", send, "--wait", "20s"]);
    assert_eq!(shown["status"], "completed", "{shown}");
    shown["output_text"].clone()
}

#[test]
fn an_approval_is_listed_given_and_gone_and_then_the_result_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(&folder.path().join("data"), &[]);
    let text = "!tool pay {\"to\": \"\u{9b}31mmallory\\u001b[2J\"}";
    let send = send(&dev, folder.path(), "buyer", text);
    let call = waiting(&dev, "permission");
    let listed = ask(&dev.url, &["inbox"]);
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert!(
        lines[0].starts_with("CALL") && lines.len() == 2,
        "{lines:?}"
    );
    for part in [&call, "approval", "pay {\"to\"", "mallory", "buyer", "ses_"] {
        assert!(lines[1].contains(part), "{part}: {lines:?}");
    }
    let obeyed = |text: &str| text.chars().any(|c| c.is_control() && c != '\n');
    assert!(!obeyed(&listed.stdout), "{lines:?}");
    let as_json = ask(&dev.url, &["inbox", "-o", "json"]);
    assert!(!obeyed(&as_json.stdout), "{}", as_json.stdout);
    assert_eq!(json(&dev.url, &["inbox", "--agent", "nobody"]), json!([]));
    assert_ne!(json(&dev.url, &["inbox", "--agent", "buyer"]), json!([]));
    // It wants another answer.
    let wrong = ask(&dev.url, &["inbox", "answer", &call, "yes"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("inbox approve"), "{}", wrong.stderr);

    let given = ask(&dev.url, &["inbox", "approve", &call, "--note", "go on"]);
    assert_eq!(given.code, 0, "{}", given.stderr);
    assert!(given.stdout.contains("accepted"), "{}", given.stdout);
    // The same call now asks for its result.
    assert_eq!(waiting(&dev, "answer"), call);
    let listed = ask(&dev.url, &["inbox"]);
    assert!(listed.stdout.contains("external"), "{}", listed.stdout);
    let wrong = ask(&dev.url, &["inbox", "approve", &call]);
    assert!(wrong.stderr.contains("inbox answer"), "{}", wrong.stderr);
    let paid = ask(
        &dev.url,
        &["inbox", "answer", &call, "--json", "{\"paid\": 5}"],
    );
    assert_eq!(paid.code, 0, "{}", paid.stderr);
    assert!(answered(&dev, &send).to_string().contains("paid"));
    assert_eq!(json(&dev.url, &["inbox"]), json!([]));
    let late = ask(&dev.url, &["inbox", "approve", &call]);
    assert_eq!(late.code, 3);
    assert!(
        late.stderr.contains("`mainspring inbox`"),
        "{}",
        late.stderr
    );
}

#[test]
fn a_question_is_answered_and_an_approval_denied() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(&folder.path().join("data"), &[]);
    let question = "!tool ask_person {\"question\": \"In which colour?\"}";
    let first = send(&dev, folder.path(), "painter", question);
    let call = waiting(&dev, "answer");
    let listed = ask(&dev.url, &["inbox"]);
    for part in ["question", "In which colour?", "painter"] {
        assert!(listed.stdout.contains(part), "{}", listed.stdout);
    }
    let said = ask(&dev.url, &["inbox", "answer", &call, "in green"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(answered(&dev, &first).to_string().contains("in green"));

    let second = send(&dev, folder.path(), "buyer", "!tool pay {}");
    let call = waiting(&dev, "permission");
    let denied = ask(&dev.url, &["inbox", "deny", &call, "--note", "too dear"]);
    assert_eq!(denied.code, 0, "{}", denied.stderr);
    assert!(answered(&dev, &second).to_string().contains("too dear"));
}

#[test]
fn who_watches_reads_a_line_for_each_call_that_comes_or_goes() {
    let call = |id: &str| {
        json!({
            "call_id": id, "session_id": "ses_1", "send_id": "snd_1", "name": "pay",
            "wants": "permission", "waiting_on": "human", "arguments": {},
            "requested_at": "2024-01-01T00:00:00Z",
        })
    };
    let page = |calls: &[Value]| answer(200, "", &json!({ "data": calls }).to_string());
    let (both, one) = (
        page(&[call("call_a"), call("call_b")]),
        page(&[call("call_b")]),
    );
    let mut looks = 0;
    let fake = Fake::choosing(move |line| {
        if line == "GET /v1/sessions/ses_1" {
            return answer(200, "", "{\"agent\":{\"name\":\"buyer\"}}");
        }
        looks += 1;
        match looks {
            1 => both.clone(),
            // As many as the client tries.
            2..=5 => problem(503, "store.unavailable"),
            _ => one.clone(),
        }
    });
    let mut command = mainspring();
    command
        .env("MAINSPRING_SERVER", &fake.url)
        .args(["inbox", "--watch"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let lines: Vec<String> = lines.take(3).map(|line| line.expect("UTF-8")).collect();
    assert!(
        lines[0].starts_with("call_a  approval  pay {}  buyer"),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("call_b"), "{lines:?}");
    assert_eq!(lines[2], "call_a  gone");
    let pid = child.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-s", "INT", &pid])
        .status();
    assert!(sent.expect("kill runs").success());
    let ended = child.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    for part in ["as told", "there again"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
