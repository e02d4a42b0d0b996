//! Streams of Messages.

use super::*;

fn event(kind: &str, members: &str) -> String {
    format!(
        "event: {kind}\n{}",
        data(&format!(r#"{{"type":"{kind}",{members}}}"#))
    )
}

fn start(index: u64, block: &str) -> String {
    event(
        "content_block_start",
        &format!(r#""index":{index},"content_block":{block}"#),
    )
}

fn more(index: u64, delta: &str) -> String {
    event(
        "content_block_delta",
        &format!(r#""index":{index},"delta":{delta}"#),
    )
}

fn stop(index: u64) -> String {
    event("content_block_stop", &format!(r#""index":{index}"#))
}

fn ends(reason: &str) -> String {
    event(
        "message_delta",
        &format!(r#""delta":{{"stop_reason":"{reason}"}},"usage":{{"output_tokens":7}}"#),
    ) + &event("message_stop", r#""x":0"#)
}

fn begins(usage: &str) -> String {
    event(
        "message_start",
        &format!(
            r#""message":{{"type":"message","role":"assistant","model":"m","content":[],"usage":{usage}}}"#
        ),
    )
}

#[test]
fn thoughts_and_their_signatures_stay_together_however_they_come() {
    check(
        Kind::Anthropic,
        &[
            report(
                "anthropics/anthropic-sdk-csharp#181",
                "a signature may come only behind the thought, in a block that began without one",
                start(0, r#"{"type":"thinking","thinking":""}"#)
                    + &more(0, r#"{"type":"thinking_delta","thinking":"hm"}"#)
                    + &more(0, r#"{"type":"signature_delta","signature":"c2ln"}"#)
                    + &stop(0)
                    + &start(1, r#"{"type":"text","text":""}"#)
                    + &more(1, r#"{"type":"text_delta","text":"a"}"#)
                    + &stop(1)
                    + &ends("end_turn"),
                "thought hmc2ln | text a (Stop)",
            ),
            report(
                "anomalyco/opencode#38733",
                "a signature and the arguments may come whole with the beginning of their blocks",
                start(
                    0,
                    r#"{"type":"thinking","thinking":"hm","signature":"c2ln"}"#,
                ) + &stop(0)
                    + &start(
                        1,
                        r#"{"type":"tool_use","id":"t","name":"act","input":{"x":1}}"#,
                    )
                    + &stop(1)
                    + &ends("tool_use"),
                r#"thought hmc2ln | call t act {"x":1} (ToolCalls)"#,
            ),
            report(
                "looplj/axonhub#1105",
                "a thought that is not shown keeps its signature, and the text behind it gets none",
                start(0, r#"{"type":"thinking","thinking":"","signature":""}"#)
                    + &event("ping", r#""x":0"#)
                    + &more(0, r#"{"type":"signature_delta","signature":"c2ln"}"#)
                    + &stop(0)
                    + &start(1, r#"{"type":"text","text":""}"#)
                    + &more(1, r#"{"type":"text_delta","text":"a"}"#)
                    + &stop(1)
                    + &ends("end_turn"),
                "thought c2ln | text a (Stop)",
            ),
            report(
                "sgl-project/sglang#39752",
                "a thought may have no signature at all",
                start(0, r#"{"type":"thinking","thinking":""}"#)
                    + &more(0, r#"{"type":"thinking_delta","thinking":"hm"}"#)
                    + &stop(0)
                    + &start(1, r#"{"type":"text","text":"a"}"#)
                    + &stop(1)
                    + &ends("end_turn"),
                "thought hm | text a (Stop)",
            ),
        ],
    );
}

#[test]
fn blocks_without_anything_are_no_part_of_an_answer() {
    check(
        Kind::Anthropic,
        &[
            report(
                "anthropics/anthropic-sdk-python#461",
                "an empty text beside a call is none, so that it cannot go back",
                start(0, r#"{"type":"text","text":""}"#)
                    + &stop(0)
                    + &start(1, r#"{"type":"tool_use","id":"t","name":"act","input":{}}"#)
                    + &stop(1)
                    + &ends("tool_use"),
                "call t act {} (ToolCalls)",
            ),
            report(
                "mastra-ai/mastra#14187",
                "a reason for calls without any is an end, so that nothing is asked for again",
                begins(r#"{"input_tokens":9,"output_tokens":1}"#) + &ends("tool_use"),
                " (Stop)",
            ),
        ],
    );
}

#[test]
fn tokens_that_are_told_twice_are_counted_once() {
    let text = start(0, r#"{"type":"text","text":"a"}"#);
    let delta = |usage: &str| {
        event(
            "message_delta",
            &format!(r#""delta":{{"stop_reason":"end_turn"}},"usage":{usage}"#),
        )
    };
    // maximhq/bifrost#6598: the start counts the whole prompt, the end only what was in no cache.
    let stream = begins(r#"{"input_tokens":10000,"output_tokens":0}"#)
        + &text
        + &delta(
            r#"{"input_tokens":100,"cache_read_input_tokens":9900,"cache_creation_input_tokens":0,"output_tokens":7}"#,
        );
    assert_eq!(counted(Kind::Anthropic, &stream), (10_000, 7, 9_900));
    // envoyproxy/ai-gateway#2239: the end repeats what the start told of the cache.
    let cached =
        r#""input_tokens":9,"cache_read_input_tokens":100,"cache_creation_input_tokens":5"#;
    let stream = begins(&format!(r#"{{{cached},"output_tokens":1}}"#))
        + &text
        + &delta(&format!(r#"{{{cached},"output_tokens":7}}"#));
    assert_eq!(counted(Kind::Anthropic, &stream), (114, 7, 100));
}

#[test]
fn what_gateways_add_to_a_stream_or_write_otherwise_changes_nothing() {
    let said = |behind: &str| {
        start(0, r#"{"type":"text","text":"a"}"#)
            + &stop(0)
            + &event("message_delta", r#""delta":{"stop_reason":"end_turn"}"#)
            + behind
    };
    let ended = event("message_stop", r#""x":0"#);
    check(
        Kind::Anthropic,
        &[
            report(
                "earendil-works/pi#3708",
                "the marker of another protocol may take the place of the last event",
                said(&data("[DONE]")),
                "text a (Stop)",
            ),
            report(
                "zed-industries/zed#61627",
                "the marker of another protocol may follow the last event",
                said(&(ended + &data("[DONE]"))),
                "text a (Stop)",
            ),
            report(
                "nielspeter/claude-code-proxy#13",
                "the arguments of a call may be the text of an object",
                start(
                    0,
                    r#"{"type":"tool_use","id":"t","name":"act","input":"{\"x\":\"9\"}"}"#,
                ) + &stop(0)
                    + &ends("tool_use"),
                r#"call t act {"x":"9"} (ToolCalls)"#,
            ),
        ],
    );
}
