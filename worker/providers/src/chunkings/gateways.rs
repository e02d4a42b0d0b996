//! What gateways make of a protocol: names used twice, ends said twice, and errors without their own event.

use super::{data, delta, end, said};
use crate::settings::Kind;

fn event(kind: &str, members: &str) -> String {
    data(&format!(r#"{{"type":"{kind}",{members}}}"#))
}

fn done(index: u64, item: &str) -> String {
    event(
        "response.output_item.done",
        &format!(r#""output_index":{index},"item":{item}"#),
    )
}

fn completed() -> String {
    event(
        "response.completed",
        r#""response":{"status":"completed","output":[]}"#,
    )
}

fn call(ids: &str, argument: u64) -> String {
    format!(r#"{{"type":"function_call",{ids},"name":"act","arguments":"{{\"x\":{argument}}}"}}"#)
}

#[test]
fn items_with_one_call_id_are_two_calls_if_their_own_ids_or_places_differ() {
    let both = r#"call c {"x":1} | call c {"x":2} (ToolCalls)"#;
    for ids in [
        [
            r#""id":"fc_1","call_id":"c""#,
            r#""id":"fc_2","call_id":"c""#,
        ],
        [r#""call_id":"c""#, r#""call_id":"c""#],
    ] {
        let stream = done(0, &call(ids[0], 1)) + &done(1, &call(ids[1], 2)) + &completed();
        assert_eq!(said(Kind::OpenAiResponses, &stream), both, "{ids:?}");
    }
}

#[test]
fn an_item_whose_end_was_read_is_not_changed_by_another_end() {
    let ids = r#""id":"fc_1","call_id":"c""#;
    let stream = done(0, &call(ids, 1)) + &done(0, &call(ids, 2)) + &completed();
    assert_eq!(
        said(Kind::OpenAiResponses, &stream),
        r#"call c {"x":1} (ToolCalls)"#
    );
}

#[test]
fn a_half_of_a_character_waits_for_its_own_text() {
    let thought = |text: &str| delta(&format!(r#""reasoning_content":"{text}""#));
    let text = |text: &str| delta(&format!(r#""content":"{text}""#));
    // The thought is as long as the text when the text waits for its half.
    let stream = text(r"a\ud83d") + &thought("x") + &thought("y") + &text(r"\ude0bb");
    assert_eq!(
        said(Kind::OpenAi, &(stream + &end("stop").concat())),
        "thought xy | text a\u{1F60B}b (Stop)"
    );
    // Both wait.
    let stream = text(r"a\ud83d") + &thought(r"xy\ud83d") + &text(r"\ude0bb") + &thought(r"\ude0b");
    assert_eq!(
        said(Kind::OpenAi, &(stream + &end("stop").concat())),
        "thought xy\u{1F60B} | text a\u{1F60B}b (Stop)"
    );
}

#[test]
fn a_half_of_a_character_in_what_comes_whole_is_replaced_but_in_arguments() {
    let block = event(
        "content_block_start",
        r#""index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{"x":"\ud83d"}}"#,
    );
    let block = block
        + &event(
            "content_block_start",
            r#""index":1,"content_block":{"type":"server_tool_use","input":{"x":"\ud83d"}}"#,
        );
    let ends = event("message_delta", r#""delta":{"stop_reason":"tool_use"}"#);
    let said = said(Kind::Anthropic, &(block + &ends));
    assert!(
        // The tool is not called with what the model did not say.
        said.starts_with(r#"call a "{\"x\":\"\\ud83d\"}" | attached"#),
        "{said}"
    );
    assert!(!said.contains('\u{10F83D}'), "{said}");
}

#[test]
fn an_error_is_one_without_its_kind_too() {
    let error = r#"{"error":{"type":"overloaded_error","message":"no room left"}}"#;
    for kind in [Kind::OpenAi, Kind::Anthropic, Kind::OpenAiResponses] {
        let said = said(kind, &data(error));
        assert!(said.contains("no room left"), "{kind:?}: {said}");
        let vllm = r#"{"object":"error","message":"no room left","code":500}"#;
        let said = super::said(kind, &data(vllm));
        assert!(said.contains("no room left"), "{kind:?}: {said}");
    }
}
