use mainspring_shared::message::{Role, plain_text};
use serde_json::json;

use super::*;
use crate::session::Session;

const AT: Timestamp = Timestamp(1_700_000_000_000);

fn read(text: &str) -> Vec<Found> {
    let mut export = OpenAi::of(text.as_bytes(), AT).expect("an export");
    std::iter::from_fn(|| export.next()).collect()
}

fn only(text: &str) -> Session {
    let mut found = read(text);
    assert_eq!(found.len(), 1, "{found:?}");
    match found.remove(0) {
        Found::Session(session) => *session,
        Found::Refused { id, why } => panic!("{id}: {why}"),
    }
}

fn told(session: &Session) -> Vec<(Role, String)> {
    let told = session.messages.iter();
    told.map(|it| (it.role, plain_text(&it.content))).collect()
}

fn items() -> Value {
    json!([
        {"type": "message", "id": "msg_1", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"type": "message", "id": "msg_2", "role": "user", "content": [{"type": "input_text", "text": "weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": "{\"city\":\"Ulm\"}"},
        {"type": "function_call_output", "id": "fo_1", "call_id": "c1", "output": "rain"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "message", "id": "msg_3", "role": "assistant", "content": [{"type": "output_text", "text": "It rains."}]},
    ])
}

fn expected() -> Vec<(Role, String)> {
    let told = [
        (Role::User, "weather?"),
        (Role::Assistant, ""),
        (Role::Tool, "rain"),
        (Role::Assistant, "It rains."),
    ];
    told.map(|(role, text)| (role, text.to_owned())).to_vec()
}

#[test]
fn a_page_of_items_is_a_conversation_in_either_order_and_form() {
    let items = items();
    let mut newest = items.as_array().expect("a list").clone();
    newest.reverse();
    let lines: Vec<String> = newest.iter().map(Value::to_string).collect();
    let texts = [
        items.to_string(),
        json!({"object": "list", "data": items, "has_more": false}).to_string(),
        json!({"object": "list", "data": newest}).to_string(),
        lines.join("\n"),
    ];
    let sessions: Vec<Session> = texts.iter().map(|text| only(text)).collect();
    for session in &sessions {
        assert_eq!(told(session), expected());
        assert_eq!(session.agent.system_prompt.as_deref(), Some("Be brief."));
        let left: Vec<_> = session.left_out.iter().collect();
        assert_eq!(left, [("items of type web_search_call", 1)]);
        assert_eq!(session.source(), "items:msg_1");
        assert_eq!(session.archive(), sessions[0].archive());
    }
    assert_eq!(sessions[0].messages[1].tool_calls[0].name, "weather");
}

#[test]
fn lines_of_conversations_are_read_apart_and_a_damaged_one_is_told() {
    let one = json!({"id": "conv_1", "created_at": 1_600_000_000, "metadata": {"user": "u1"}, "items": items()});
    let two = json!({"id": "conv_2", "items": {"object": "list", "data": items()}});
    let three = json!({"id": "conv_3", "items": 3});
    let found = read(&format!("{one}\n{{\"id\"\n\n{two}\n{three}\n"));
    let ids: Vec<String> = found
        .iter()
        .map(|found| match found {
            Found::Session(session) => session.source().to_owned(),
            Found::Refused { id, why } => format!("{id}: {why}"),
        })
        .collect();
    let expected = [
        "conv_1",
        "line 2: it is no JSON",
        "conv_2",
        "conv_3: its items are no list",
    ];
    assert_eq!(ids, expected);
    let Found::Session(first) = &found[0] else {
        panic!("{found:?}");
    };
    assert_eq!(first.created_at, Timestamp(1_600_000_000_000));
    assert_eq!(first.metadata["user"], "u1");
}

#[test]
fn of_a_tree_the_current_branch_is_read() {
    let node = |parent: &str, role: &str, to: &str, text: &str| {
        json!({"parent": parent, "message": {"author": {"role": role, "name": to}, "recipient": to,
            "create_time": 1_700_000_001.5, "content": {"content_type": "text", "parts": [text]}}})
    };
    let export = json!([{
        "title": "Rain", "create_time": 1_700_000_000.25, "conversation_id": "c-1", "current_node": "e",
        "mapping": {
            "root": {"parent": null, "message": null},
            "s": node("root", "system", "all", ""),
            "a": node("s", "user", "all", "weather?"),
            "b": node("a", "assistant", "python", "look()"),
            "c": node("b", "tool", "python", "rain"),
            "d": node("c", "assistant", "all", "Sun."),
            "e": node("c", "assistant", "all", "It rains."),
        },
    }]);
    let session = only(&export.to_string());
    assert_eq!(told(&session), expected());
    assert_eq!(session.metadata["title"], "Rain");
    assert_eq!(session.created_at, Timestamp(1_700_000_000_250));
    let call = &session.messages[1].tool_calls[0];
    assert_eq!(
        (call.name.as_str(), &*call.arguments.text()),
        ("python", r#"{"input":"look()"}"#)
    );
    let left: Vec<_> = session.left_out.iter().collect();
    assert_eq!(left, [("messages of other branches", 1)]);
}

#[test]
fn a_tree_that_goes_round_ends() {
    let export = json!({"id": "c-2", "current_node": "a", "mapping": {
        "a": {"parent": "b", "message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["x"]}}},
        "b": {"parent": "a", "message": null},
    }});
    assert_eq!(only(&export.to_string()).messages.len(), 1);
}

#[test]
fn what_is_no_export_is_refused() {
    for text in ["", "hello", "\u{0}"] {
        assert!(OpenAi::of(text.as_bytes(), AT).is_err(), "{text:?}");
    }
    let deep = format!(
        "{{\"id\": \"c\", \"items\": {}}}",
        "[".repeat(1 << 16) + &"]".repeat(1 << 16)
    );
    let found = read(&deep);
    assert!(matches!(&found[..], [Found::Refused { .. }]), "{found:?}");
}
