//! Replies to agents' questions.

use serde_json::{Value, json};

use crate::commands::fake::{Fake, json as answer};
use crate::commands::program::{Ended, ask};

const SEND: &str = "snd_0123456789abcdef0123456789abcdef";

fn call(id: &str, wants: &str) -> Value {
    json!({
        "call_id": id, "session_id": "ses_1", "send_id": SEND, "name": "pay", "wants": wants,
        "arguments": { "euro": 5 }, "requested_at": "2024-01-01T00:00:00Z",
    })
}

/// Runs the answer command for a send that waits for these calls; also returns what it posted.
fn answering(waiting: &[Value], outcome: &str, more: &[&str]) -> (Ended, Option<Value>) {
    let send = json!({ "id": SEND, "session_id": "ses_1", "status": "waiting" });
    let posted = json!({ "results": [{ "call_id": "call_a", "status": outcome }] });
    let fake = Fake::answering([
        answer(200, "", &send.to_string()),
        answer(200, "", &json!({ "data": waiting }).to_string()),
        answer(200, "", &posted.to_string()),
    ]);
    let mut arguments = vec!["sends", "answer", SEND];
    arguments.extend(more);
    let ended = ask(&fake.url, &arguments);
    let posts = fake.asked();
    let post = posts.iter().find(|asked| asked.line.starts_with("POST"));
    let body = post.map(|asked| {
        assert_eq!(asked.line, "POST /v1/sessions/ses_1/tool-results");
        serde_json::from_str(&asked.body).expect("JSON")
    });
    (ended, body)
}

#[test]
fn without_an_answer_what_waits_is_listed() {
    let other = json!({ "call_id": "call_z", "session_id": "ses_1", "send_id": "snd_other" });
    let below = json!({ "call_id": "call_b", "session_id": "ses_2", "send_id": "snd_below" });
    let waiting = [call("call_a", "permission"), below, other];
    let (ended, body) = answering(&waiting, "accepted", &["-o", "jsonl"]);
    assert_eq!((ended.code, body), (0, None), "{}", ended.stderr);
    let ids = ended.stdout.lines().map(|line| {
        let call: Value = serde_json::from_str(line).expect("JSON");
        call["call_id"].clone()
    });
    assert_eq!(ids.collect::<Vec<_>>(), ["call_a", "call_b"]);
}

#[test]
fn an_answer_is_posted_in_the_form_that_the_call_wants() {
    let cases: [(&str, &[&str], Value); 6] = [
        (
            "permission",
            &["--approve"],
            json!({ "output": { "approved": true } }),
        ),
        (
            "permission",
            &["--deny"],
            json!({ "output": { "approved": false } }),
        ),
        (
            "permission",
            &["--deny", "too dear"],
            json!({ "output": { "approved": false, "note": "too dear" } }),
        ),
        ("answer", &["in green"], json!({ "output": "in green" })),
        (
            "answer",
            &["--json", "[1, null]"],
            json!({ "output": [1, null] }),
        ),
        (
            "answer",
            &["--error", "no such thing"],
            json!({ "error": "no such thing" }),
        ),
    ];
    for (wants, more, expected) in cases {
        let (ended, body) = answering(&[call("call_a", wants)], "accepted", more);
        assert_eq!(ended.code, 0, "{more:?}: {}", ended.stderr);
        let mut result = expected;
        result["call_id"] = json!("call_a");
        result["answers"] = json!(wants);
        assert_eq!(body, Some(json!({ "results": [result] })), "{more:?}");
    }
}

#[test]
fn what_makes_no_sense_is_not_posted() {
    let permission = call("call_a", "permission");
    let question = call("call_b", "answer");
    let both = [permission.clone(), question.clone()];
    let cases: [(&[Value], &[&str], i32, &str); 7] = [
        (&both, &["yes"], 2, "--call"),
        (&both, &["yes", "--call", "call_x"], 3, "call_x"),
        (&[], &["yes"], 4, "is not waiting for an answer"),
        (&both, &["yes", "--call", "call_a"], 2, "--approve"),
        (&both, &["--approve", "--call", "call_b"], 2, "as text"),
        (&both, &["--json", "{"], 2, "not JSON"),
        (&both, &["yes", "--approve"], 2, "cannot be used with"),
    ];
    for (waiting, more, code, says) in cases {
        let (ended, body) = answering(waiting, "accepted", more);
        assert_eq!(
            (ended.code, body),
            (code, None),
            "{more:?}: {}",
            ended.stderr
        );
        assert!(ended.stderr.contains(says), "{more:?}: {}", ended.stderr);
    }
}

#[test]
fn an_answer_that_comes_second_is_a_conflict() {
    let (ended, _) = answering(&[call("call_a", "answer")], "already_settled", &["late"]);
    assert_eq!(ended.code, 4);
    assert!(ended.stderr.contains("already settled"), "{}", ended.stderr);
}
