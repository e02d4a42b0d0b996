//! Streams of Responses.

use super::*;

fn event(kind: &str, members: &str) -> String {
    data(&format!(r#"{{"type":"response.{kind}",{members}}}"#))
}

fn item(kind: &str, index: u64, item: &str) -> String {
    event(
        &format!("output_item.{kind}"),
        &format!(r#""output_index":{index},"item":{item}"#),
    )
}

fn completed(output: &str) -> String {
    event(
        "completed",
        &format!(r#""response":{{"id":"r","status":"completed"{output}}}"#),
    )
}

#[test]
fn items_are_read_wherever_their_words_are() {
    let called = |id: &str, name: &str, arguments: &str| {
        format!(
            r#"{{"type":"function_call","id":"{id}","call_id":"c","name":"{name}","arguments":"{arguments}"}}"#
        )
    };
    check(
        Kind::OpenAiResponses,
        &[
            report(
                "can1357/oh-my-pi#8696",
                "a summary may come without a part being added, and is not repeated by its item's end",
                item("added", 0, r#"{"type":"reasoning","id":"rs","summary":[]}"#)
                    + &event(
                        "reasoning_summary_text.delta",
                        r#""item_id":"rs","output_index":0,"summary_index":0,"delta":"I lo""#,
                    )
                    + &event(
                        "reasoning_summary_text.delta",
                        r#""item_id":"rs","output_index":0,"summary_index":0,"delta":"ok.""#,
                    )
                    + &item(
                        "done",
                        0,
                        r#"{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"I look."}]}"#,
                    )
                    + &item("done", 1, &called("fc", "act", "{}"))
                    + &completed(r#","output":[]"#),
                "thought I look. | call c act {} (ToolCalls)",
            ),
            report(
                "microsoft/agent-framework-go#683",
                "encrypted reasoning may come only with its item's end",
                item("added", 0, r#"{"type":"reasoning","id":"rs","summary":[]}"#)
                    + &item(
                        "done",
                        0,
                        r#"{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"ENC"}"#,
                    )
                    + &item(
                        "done",
                        1,
                        r#"{"type":"message","id":"m","content":[{"type":"output_text","text":"a"}]}"#,
                    )
                    + &completed(r#","output":[]"#),
                "thought responses:rs m ENC | text a (Stop)",
            ),
            report(
                "BigPizzaV3/CodexPlusPlus#614",
                "an item's end without its name takes it from the item's beginning",
                item("added", 0, &called("fc", "exec", ""))
                    + &item("done", 0, &called("fc", "", r#"{\"cmd\":\"ls\"}"#))
                    + &completed(r#","output":[]"#),
                r#"call c exec {"cmd":"ls"} (ToolCalls)"#,
            ),
            report(
                "Oaklight/llm-rosetta#56",
                "deltas without an item, a place and a part are one text",
                event("output_text.delta", r#""delta":"hel""#)
                    + &event("output_text.delta", r#""delta":"lo""#)
                    + &event(
                        "completed",
                        r#""response":{"status":"completed","output":[]}"#,
                    ),
                "text hello (Stop)",
            ),
            report(
                "makecindy/cindy#4509",
                "a part may have no text, and the last list may stand outside of the response",
                item(
                    "added",
                    0,
                    r#"{"type":"message","id":"m","content":[{"type":"output_text"}]}"#,
                ) + &event(
                    "output_text.delta",
                    r#""item_id":"m","output_index":0,"delta":"HELLO""#,
                ) + &item(
                    "done",
                    0,
                    r#"{"type":"message","id":"m","content":[{"type":"output_text"}]}"#,
                ) + &event(
                    "completed",
                    r#""response":{"id":"r","status":"completed"},"output":[]"#,
                ),
                "text HELLO (Stop)",
            ),
            report(
                "PwnKit-Labs/pwnkit#331",
                "the last event may have no list at all",
                item("done", 0, &called("fc", "act", "{}"))
                    + &event(
                        "completed",
                        r#""response":{"id":"r","usage":{"input_tokens":11,"output_tokens":2},"end_turn":false}"#,
                    ),
                "call c act {} (ToolCalls)",
            ),
        ],
    );
}

#[test]
fn the_last_list_repeats_nothing_under_other_ids() {
    let items = |prefix: &str| {
        [
            format!(
                r#"{{"type":"reasoning","id":"{prefix}1","content":[{{"type":"reasoning_text","text":"I look."}}],"summary":[]}}"#
            ),
            format!(
                r#"{{"type":"message","id":"{prefix}2","content":[{{"type":"output_text","text":"a"}}]}}"#
            ),
            format!(
                r#"{{"type":"function_call","id":"{prefix}3","call_id":"{prefix}4","name":"act","arguments":"{{}}"}}"#
            ),
        ]
    };
    let stream: String = (0..)
        .zip(items("bare-"))
        .map(|(index, whole)| item("done", index, &whole))
        .collect();
    check(
        Kind::OpenAiResponses,
        &[report(
            "vllm-project/vllm#56285",
            "items whose ids differ between the stream and the last list are the same if they say the same",
            stream + &completed(&format!(r#","output":[{}]"#, items("rs_").join(","))),
            "thought I look. | text a | call bare-4 act {} (ToolCalls)",
        )],
    );
}

#[test]
fn items_stand_where_they_say_and_not_in_the_order_in_which_they_came() {
    let text = |n: u32| {
        format!(
            r#"{{"type":"message","id":"m{n}","role":"assistant","content":[{{"type":"output_text","text":"{n}"}}]}}"#
        )
    };
    check(
        Kind::OpenAiResponses,
        &[report(
            "openai/openai-node#2354",
            "the first item may come behind the second",
            item("done", 1, &text(1)) + &item("done", 0, &text(0)) + &completed(r#","output":[]"#),
            "text 0 | text 1 (Stop)",
        )],
    );
}
