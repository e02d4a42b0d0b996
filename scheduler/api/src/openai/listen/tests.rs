use mainspring_shared::id::SendId;
use mainspring_shared::message::ToolCall;
use serde_json::json;
use uuid::Uuid;

use super::*;

fn listener(from: i32, whole: bool) -> Listener {
    Listener::new(from, BTreeSet::from(["outside".to_owned()]), whole)
}

fn delta(attempt: i32, offset: usize, text: &str) -> (&'static str, String) {
    (
        "message.delta",
        json!({ "round": 0, "attempt": attempt, "offset": offset, "text": text }).to_string(),
    )
}

fn message(round: i32, role: Role, text: &str, calls: &[(&str, &str)]) -> (&'static str, String) {
    let calls = calls
        .iter()
        .map(|(id, name)| ToolCall::new(*id, *name, json!({ "n": 1 })));
    let message = Message {
        seq: 1,
        send_id: SendId(Uuid::nil()),
        role,
        content: vec![ContentPart::text(text)],
        tool_calls: calls.collect(),
        tool_call_id: (role == Role::Tool).then(|| text.to_owned()),
        name: None,
        failed: false,
        round,
        created_at: mainspring_shared::time::Timestamp(0),
        asked_at_seq: None,
        epoch: 0,
    };
    (
        "message.completed",
        serde_json::to_string(&message).expect("JSON"),
    )
}

fn hear(listener: &mut Listener, events: &[(&'static str, String)]) -> Vec<Heard> {
    events
        .iter()
        .flat_map(|(name, data)| listener.hear(name, data))
        .collect()
}

fn text(round: i32, text: &str) -> Heard {
    Heard::Piece(Piece {
        kind: Kind::Text,
        round,
        text: text.to_owned(),
    })
}

fn said(round: i32) -> Heard {
    Heard::Said {
        round,
        calls: Vec::new(),
    }
}

#[test]
fn the_stored_message_adds_what_was_not_streamed() {
    let heard = hear(
        &mut listener(0, false),
        &[
            delta(1, 0, "äö"),
            delta(1, 2, "ü"),
            delta(1, 5, "gap"),
            message(0, Role::Assistant, "äöü, all", &[]),
        ],
    );
    assert_eq!(
        heard,
        [text(0, "äö"), text(0, "ü"), text(0, ", all"), said(0)]
    );
}

#[test]
fn what_is_streamed_twice_is_told_once() {
    let heard = hear(
        &mut listener(0, false),
        &[delta(1, 0, "ab"), delta(1, 0, "abc"), delta(1, 1, "bc")],
    );
    assert_eq!(heard, [text(0, "ab"), text(0, "c")]);
}

#[test]
fn another_attempt_or_another_text_voids_what_was_told() {
    let heard = hear(
        &mut listener(0, false),
        &[
            delta(1, 0, "ab"),
            delta(2, 0, "x"),
            message(0, Role::Assistant, "yz", &[]),
        ],
    );
    let expected = [
        text(0, "ab"),
        Heard::Void,
        text(0, "x"),
        Heard::Void,
        text(0, "yz"),
        said(0),
    ];
    assert_eq!(heard, expected);
}

#[test]
fn a_response_ends_with_calls_to_the_client_and_the_next_one_begins_behind_them() {
    let waiting = ("send.waiting", json!({ "waiting_on": "tool" }).to_string());
    let events = [
        message(0, Role::User, "go", &[]),
        message(
            0,
            Role::Assistant,
            "calling",
            &[("call_a", "outside"), ("call_b", "inside")],
        ),
        waiting,
        message(0, Role::Tool, "call_a", &[]),
        message(1, Role::Assistant, "done", &[]),
    ];
    let heard = hear(&mut listener(0, false), &events);
    let called = Called {
        id: "call_a".into(),
        name: "outside".into(),
        arguments: json!({ "n": 1 }).to_string(),
    };
    let first = [
        text(0, "calling"),
        Heard::Said {
            round: 0,
            calls: vec![called],
        },
        Heard::Over(Over::Calls),
    ];
    assert_eq!(heard, first);
    // Someone answered before the send was seen to wait.
    let quick: Vec<_> = events
        .iter()
        .filter(|(name, _)| *name != "send.waiting")
        .cloned()
        .collect();
    assert_eq!(hear(&mut listener(0, false), &quick), first);
    let mut second = listener(1, false);
    assert_eq!(hear(&mut second, &events), [text(1, "done"), said(1)]);
    assert_eq!(second.previous(), Some(0));
}

#[test]
fn an_answer_with_a_schema_is_told_once_it_is_whole() {
    let view = json!({
        "id": SendId(Uuid::nil()), "session_id": mainspring_shared::id::SessionId(Uuid::nil()), "status": "completed",
        "stop_reason": "end", "output_text": "{}", "output": { "n": 1 }, "error": null,
        "usage": Usage::default(), "rounds": 2, "attempts": 1, "waiting_on": null, "position": 1,
        "created_at": "2026-01-01T00:00:00Z", "started_at": null, "finished_at": null,
    });
    let events = [
        delta(1, 0, "wrong"),
        message(0, Role::Assistant, "wrong", &[]),
        message(1, Role::Assistant, "Here: {\"n\": 1}", &[]),
        ("send.completed", view.to_string()),
    ];
    let heard = hear(&mut listener(0, true), &events);
    assert_eq!(heard[..2], [text(1, "{\"n\":1}"), said(1)]);
    assert!(
        matches!(&heard[2..], [Heard::Over(Over::Send(_))]),
        "{heard:?}"
    );
}
