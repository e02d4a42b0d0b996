use mainspring_shared::id::SendId;
use mainspring_shared::message::{NewMessage, ToolCall};
use mainspring_shared::time::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::*;

fn read_items(list: &Value) -> Vec<Item> {
    let mut checks = Checks::new();
    let items = items(&mut checks, list.as_array().expect("a list"), "/input");
    checks.finish().expect("is valid");
    items
}

fn read(list: &Value) -> Vec<Given> {
    let mut given = Vec::new();
    for item in read_items(list) {
        match item {
            Item::Said(one) => push(&mut given, one),
            Item::Named { id, .. } => panic!("{id}"),
        }
    }
    given
}

#[test]
fn what_is_said_now_is_told_from_what_was_said_before() {
    let list = json!([
        { "role": "developer", "content": "be brief" },
        { "role": "user", "content": "one" },
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "1", "annotations": [] }] },
        { "role": "user", "content": [{ "type": "input_text", "text": "two" }] },
        { "role": "user", "content": "three" },
    ]);
    let told = Told::of(read(&list), |_| true);
    assert_eq!(
        instructions(Some("you".into()), &read_items(&list)).as_deref(),
        Some("you\n\nbe brief")
    );
    assert_eq!(told.history.len(), 2);
    assert_eq!(
        told.input,
        [ContentPart::text("two"), ContentPart::text("three")]
    );
    assert_eq!(told.outputs, []);
}

#[test]
fn an_item_without_a_role_or_a_type_is_named_by_its_id() {
    let named = |id: &str, at: &str| Item::Named {
        id: id.to_owned(),
        at: at.to_owned(),
    };
    let list = json!([{ "type": "item_reference", "id": "msg_1" }, { "id": "fc_1" }]);
    let expected = [named("msg_1", "/input/0"), named("fc_1", "/input/1")];
    assert_eq!(read_items(&list), expected);
}

#[test]
fn the_result_of_a_call_that_was_made_elsewhere_is_history_once_the_user_goes_on() {
    let call = json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" });
    let result = json!({ "type": "function_call_output", "call_id": "c", "output": "1" });
    let more = json!({ "role": "user", "content": "and on" });
    let told = |list: Value, ours: bool| {
        let told = Told::of(read(&list), |_| ours);
        (told.history.len(), told.outputs.len(), told.input.len())
    };
    assert_eq!(told(json!([call, result, more]), true), (1, 1, 1));
    assert_eq!(told(json!([call, result, more]), false), (2, 0, 1));
    assert_eq!(told(json!([call, result]), false), (1, 1, 0));
}

#[test]
fn what_is_not_supported_is_refused_by_its_place() {
    for (item, at) in [
        (json!({ "type": "computer_call" }), "/input/0/type"),
        (
            json!({ "role": "user", "content": [{ "type": "input_audio" }] }),
            "/input/0/content/0/type",
        ),
        (
            json!({ "role": "narrator", "content": "x" }),
            "/input/0/role",
        ),
        (
            json!({ "role": "user", "content": [{ "type": "input_image", "file_id": "f" }] }),
            "/input/0/content/0/image_url",
        ),
        (
            json!({ "role": "user", "content": [{ "type": "input_file", "file_id": "f" }] }),
            "/input/0/content/0/file_data",
        ),
    ] {
        let mut checks = Checks::new();
        items(&mut checks, &[item], "/input");
        let error = checks.finish().expect_err(at);
        assert_eq!(error.members()[0].pointer, at);
    }
}

#[test]
fn pictures_and_files_come_as_data() {
    let png = STANDARD.encode(b"\x89PNG\r\n\x1a\n0000");
    let given = read(&json!([{ "role": "user", "content": [
        { "type": "input_image", "image_url": format!("data:image/png;base64,{png}") },
        { "type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0=" },
    ] }]));
    let [Given::User(parts)] = given.as_slice() else {
        panic!("{given:?}");
    };
    assert!(
        matches!(&parts[0], ContentPart::Image { source: ImageSource::Base64 { media_type, .. } } if media_type == "image/png")
    );
    assert!(matches!(&parts[1], ContentPart::File { name, .. } if name == "a.pdf"));
}

#[test]
fn a_transcript_reads_like_what_a_client_says_of_it() {
    let send = SendId(Uuid::nil());
    let assistant = |text: &str, calls: Vec<ToolCall>| NewMessage {
        role: Role::Assistant,
        tool_calls: calls,
        ..NewMessage::user(vec![ContentPart::text(text)], 0)
    };
    let result = |call: &str| NewMessage {
        role: Role::Tool,
        tool_call_id: Some(call.to_owned()),
        ..NewMessage::user(vec![ContentPart::text("r")], 0)
    };
    let messages = [
        NewMessage::user(vec![ContentPart::text("hi ")], 0),
        assistant("looking", vec![ToolCall::new("c1", "inside", json!({}))]),
        result("c1"),
        assistant(
            "asking",
            vec![ToolCall::new("c2", "outside", json!({ "b": 1, "a": 2 }))],
        ),
        result("c2"),
    ];
    let messages: Vec<Message> = messages
        .into_iter()
        .zip(1..)
        .map(|(new, seq)| new.at(seq, send, Timestamp(0), 0))
        .collect();
    let stored = lines_of(&messages, |_, name| name == "outside");
    let said = lines(&read(&json!([
        { "role": "user", "content": "hi" },
        { "role": "assistant", "content": "looking" },
        { "role": "assistant", "content": "asking" },
        { "type": "reasoning", "id": "rs_1", "summary": [] },
        { "type": "function_call", "call_id": "c2", "name": "outside", "arguments": "{\"a\": 2, \"b\": 1}" },
        { "type": "function_call_output", "call_id": "c2", "output": "something else" },
    ])));
    assert_eq!(stored, said);
    assert_eq!(opening("", &stored), opening("", &said));
    assert_ne!(opening("", &stored), opening("agent", &said));
}
