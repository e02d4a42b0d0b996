//! Streams of Messages.

use super::{ARGUMENTS, Cut, SAID, THOUGHT, deltas};

pub(super) fn messages(cut: Cut, last: &str) -> Vec<String> {
    let event = |kind: &str, members: &str| {
        format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{members}}}\n\n")
    };
    let mut events = vec![event(
        "message_start",
        r#","message":{"model":"m-1","content":[],"usage":{"input_tokens":11,"output_tokens":1}}"#,
    )];
    let mut block =
        |index: usize, start: &str, kind: &str, member: &str, pieces: Vec<String>, close: &str| {
            events.push(event(
                "content_block_start",
                &format!(r#","index":{index},"content_block":{start}"#),
            ));
            events.push("event: ping\ndata: {\"type\":\"ping\"}\n\n".to_owned());
            for piece in pieces {
                events.push(event(
                    "content_block_delta",
                    &format!(r#","index":{index},"delta":{{"type":"{kind}","{member}":{piece}}}"#),
                ));
            }
            if !close.is_empty() {
                events.push(event(
                "content_block_delta",
                &format!(
                    r#","index":{index},"delta":{{"type":"signature_delta","signature":"{close}"}}"#
                ),
            ));
            }
            events.push(event("content_block_stop", &format!(r#","index":{index}"#)));
        };
    let tool = |n: usize| {
        format!(
            r#"{{"type":"tool_use","id":"toolu_{n}","name":"read","input":{{}},"caller":{{"type":"direct"}}}}"#
        )
    };
    block(
        0,
        r#"{"type":"thinking","thinking":"","signature":""}"#,
        "thinking_delta",
        "thinking",
        deltas(THOUGHT, cut),
        "c2ln",
    );
    block(
        1,
        &tool(1),
        "input_json_delta",
        "partial_json",
        deltas(ARGUMENTS, cut),
        "",
    );
    block(
        2,
        r#"{"type":"redacted_thinking","data":"c2Vh"}"#,
        "",
        "",
        Vec::new(),
        "",
    );
    block(
        3,
        r#"{"type":"text","text":""}"#,
        "text_delta",
        "text",
        deltas(SAID, cut),
        "",
    );
    block(
        4,
        r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}"#,
        "input_json_delta",
        "partial_json",
        deltas("{\"query\":\"z\"}", cut),
        "",
    );
    block(
        5,
        &tool(2),
        "input_json_delta",
        "partial_json",
        deltas(ARGUMENTS, cut),
        "",
    );
    events.push(event(
        "message_delta",
        r#","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":22}"#,
    ));
    events.push(last.to_owned());
    events
}
