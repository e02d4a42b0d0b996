use std::io::{Read, Write};

use serde_json::json;

use crate::commands::fake::{Fake, json as answer, problem};
use crate::commands::program::{Ended, ask, mainspring};

const ID: &str = "snd_0123456789abcdef0123456789abcdef";

fn ended_with(status: u16, code: &str) -> Ended {
    let fake = Fake::answering([problem(status, code)]);
    ask(&fake.url, &["sends", "show", ID])
}

#[test]
fn each_kind_of_problem_has_its_exit_code_and_says_what_to_do_next() {
    for (status, code, exit) in [
        (500, "internal", 1),
        (400, "request.invalid", 2),
        (404, "send.not_found", 3),
        (409, "session.busy", 4),
        (422, "idempotency.mismatch", 4),
        (401, "auth.missing", 5),
        (403, "auth.forbidden", 5),
        (429, "limit.exceeded", 6),
        (503, "store.unavailable", 6),
        // A code of a newer server is unknown, so the status decides.
        (404, "news.not_found", 3),
        (418, "teapot.empty", 2),
    ] {
        let ended = ended_with(status, code);
        assert_eq!(ended.code, exit, "{code}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{code}");
        assert!(ended.stderr.starts_with("error: "), "{}", ended.stderr);
        assert!(ended.stderr.contains("as told"), "{}", ended.stderr);
        assert!(
            ended.stderr.lines().count() >= 2,
            "{code} says nothing to do: {}",
            ended.stderr
        );
    }
}

#[test]
fn a_single_member_at_fault_is_named() {
    let errors = json!([{ "pointer": "/input", "detail": "must not be empty" }]);
    let body =
        json!({ "code": "request.invalid", "detail": "must not be empty", "errors": errors });
    let fake = Fake::answering([answer(400, "", &body.to_string())]);
    let ended = ask(&fake.url, &["send", ""]);
    assert_eq!(ended.code, 2);
    assert!(
        ended
            .stderr
            .starts_with("error: /input: must not be empty (request.invalid)\n"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_program_reads_an_error_as_one_line_of_json() {
    let fake = Fake::answering([problem(404, "run.not_found")]);
    for format in ["json", "jsonl"] {
        let ended = ask(&fake.url, &["runs", "show", "run_x", "-o", format]);
        assert_eq!((ended.code, ended.stdout.as_str()), (3, ""));
        let said: serde_json::Value = serde_json::from_str(&ended.stderr).expect("JSON");
        assert_eq!(said["code"], "run.not_found");
        assert_eq!(said["detail"], "as told");
        assert_eq!(said["exit_code"], 3);
        assert_eq!(said["next"], "`mainspring runs list` shows what exists");
    }
    let nobody = ask("http://127.0.0.1:1", &["workers", "-o", "json"]);
    let said: serde_json::Value = serde_json::from_str(&nobody.stderr).expect("JSON");
    assert_eq!(said["exit_code"], 6);
}

#[test]
fn https_at_a_server_without_tls_is_said_in_words() {
    // A server that does not wait for the end of a line that it cannot read.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else {
                return;
            };
            let mut greeting = [0; 16];
            // The client may have disconnected.
            let _ = connection.read_exact(&mut greeting);
            let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let ended = ask(&format!("https://{address}"), &["workers"]);
    assert_eq!(ended.code, 6);
    let said = format!("error: https://{address} does not speak TLS\n  try http://{address}");
    assert!(ended.stderr.starts_with(&said), "{}", ended.stderr);
}

#[test]
fn nobody_there_is_6_and_names_the_address() {
    let ended = ask("http://127.0.0.1:1", &["workers"]);
    assert_eq!(ended.code, 6);
    assert!(
        ended
            .stderr
            .contains("http://127.0.0.1:1 cannot be reached"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("mainspring dev"), "{}", ended.stderr);
}

#[test]
fn an_answer_that_is_not_ours_is_a_failure() {
    let fake = Fake::answering([answer(200, "", "<html>")]);
    let ended = ask(&fake.url, &["workers"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("sent an invalid response"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_command_line_that_makes_no_sense_is_2() {
    for line in [
        &["send"][..],
        &["send", "hi", "--timeout", "3s"],
        &["send", "hi", "--wait", "--timeout", "3"],
        &["sessions", "list", "--limit", "0"],
        &["sessions", "create", "--metadata", "x"],
        &["nothing"],
    ] {
        let ended = ask("http://127.0.0.1:1", line);
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (2, ""),
            "{line:?}: {}",
            ended.stderr
        );
        assert!(
            ended.stderr.contains("error: "),
            "{line:?}: {}",
            ended.stderr
        );
    }
}

#[test]
fn a_busy_server_is_asked_again_with_the_same_key() {
    let accepted = json!({ "id": ID, "session_id": "ses_1", "status": "queued" }).to_string();
    let fake = Fake::answering([
        problem(503, "store.unavailable"),
        problem(429, "limit.exceeded"),
        answer(202, "", &accepted),
    ]);
    let ended = ask(&fake.url, &["send", "hi"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.stdout, format!("{ID}\n"));
    let asked = fake.asked();
    let keys: Vec<_> = asked
        .iter()
        .map(|it| it.header("idempotency-key"))
        .collect();
    assert_eq!(keys.len(), 3);
    assert!(keys[0].is_some_and(|key| key.len() >= 32), "{keys:?}");
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert!(
        asked
            .iter()
            .all(|it| it.line == "POST /v1/sends" && it.body == asked[0].body)
    );
}

#[test]
fn a_key_that_no_header_can_carry_is_not_a_server_that_cannot_be_reached() {
    let mut command = mainspring();
    command.args(["--server", "http://127.0.0.1:1", "sends", "list"]);
    command.env("MAINSPRING_API_KEY", "msk_one\nmsk_two");
    let ended = Ended::from(command.output().expect("runs"));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("MAINSPRING_API_KEY is not a key"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("msk_one"), "{}", ended.stderr);
}

#[test]
fn a_server_that_stays_busy_is_given_up() {
    let fake = Fake::answering([problem(503, "store.unavailable")]);
    let ended = ask(&fake.url, &["queue"]);
    assert_eq!(ended.code, 6);
    assert_eq!(fake.asked().len(), 4);
}

#[test]
fn a_connection_that_breaks_is_tried_again_since_the_key_makes_it_harmless() {
    let accepted = json!({ "id": ID, "session_id": "ses_1", "status": "queued" }).to_string();
    let fake = Fake::answering(["HTTP/1.1 2".to_owned(), answer(202, "", &accepted)]);
    let ended = ask(&fake.url, &["send", "hi", "--idempotency-key", "mine"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        fake.asked()
            .iter()
            .all(|it| it.header("idempotency-key") == Some("mine"))
    );
    assert_eq!(fake.asked().len(), 2);
}

#[test]
fn what_changes_something_without_a_key_is_not_repeated_blindly() {
    let fake = Fake::answering(["HTTP/1.1 2".to_owned()]);
    let ended = ask(&fake.url, &["sends", "cancel", ID]);
    assert_eq!(ended.code, 6, "{}", ended.stderr);
    assert_eq!(fake.asked().len(), 1);
}
