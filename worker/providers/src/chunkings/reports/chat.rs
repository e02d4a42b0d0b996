//! Streams of chat completions.

use serde_json::json;

use super::*;

fn calls(calls: &str) -> String {
    delta(&format!(r#""tool_calls":[{calls}]"#))
}

fn text(text: &str) -> String {
    delta(&format!(r#""content":"{text}""#))
}

fn ends(reason: &str) -> String {
    end(reason).concat()
}

#[test]
fn fragments_of_calls_with_odd_labels_are_one_call() {
    check(
        Kind::OpenAi,
        &[
            report(
                "anomalyco/opencode#37841",
                "an empty id and an empty name continue a call",
                calls(
                    r#"{"index":0,"id":"c","type":"function","function":{"name":"calc","arguments":"{"}}"#,
                ) + &calls(
                    r#"{"index":0,"id":"","type":"function","function":{"name":"","arguments":"\"e\":"}}"#,
                ) + &calls(r#"{"index":0,"id":"","function":{"name":"","arguments":"1}"}}"#)
                    + &ends("tool_calls"),
                r#"call c calc {"e":1} (ToolCalls)"#,
            ),
            report(
                "sgl-project/sglang#35542",
                "null for id and name continues a call, with and without an index",
                calls(
                    r#"{"index":0,"id":"c","type":"function","function":{"name":"calc","arguments":""}}"#,
                ) + &calls(
                    r#"{"index":0,"id":null,"type":null,"function":{"name":null,"arguments":"{\"e\""}}"#,
                ) + &calls(
                    r#"{"index":null,"id":null,"function":{"name":null,"arguments":":1}"}}"#,
                ) + &ends("tool_calls"),
                r#"call c calc {"e":1} (ToolCalls)"#,
            ),
            report(
                "openai/openai-python#3246",
                "a call without any index takes the arguments that follow it, and so does the next",
                calls(r#"{"id":"c","type":"function","function":{"name":"calc","arguments":""}}"#)
                    + &calls(r#"{"function":{"arguments":"{\"e\":"}}"#)
                    + &calls(r#"{"function":{"arguments":"1}"}}"#)
                    + &calls(
                        r#"{"id":"d","type":"function","function":{"name":"calc","arguments":""}}"#,
                    )
                    + &calls(r#"{"function":{"arguments":"{\"e\":2}"}}"#)
                    + &ends("tool_calls"),
                r#"call c calc {"e":1} | call d calc {"e":2} (ToolCalls)"#,
            ),
            report(
                "adolfousier/opencrabs#1499",
                "an empty reason between fragments ends nothing",
                calls(r#"{"index":0,"id":"c","function":{"name":"calc","arguments":"{\"e\""}}"#)
                    + &data(r#"{"choices":[{"index":0,"delta":{},"finish_reason":""}]}"#)
                    + &calls(r#"{"index":0,"function":{"arguments":":1}"}}"#)
                    + &ends("tool_calls"),
                r#"call c calc {"e":1} (ToolCalls)"#,
            ),
            report(
                "archestra-ai/archestra#6729",
                "a thought and a call may come in one delta",
                delta(
                    r#""reasoning_content":"I add.","content":"","tool_calls":[{"index":0,"id":"c","function":{"name":"calc","arguments":"{}"}}]"#,
                ) + &ends("tool_calls"),
                "thought I add. | call c calc {} (ToolCalls)",
            ),
        ],
    );
}

#[test]
fn chunks_without_the_usual_members_say_nothing_and_harm_nothing() {
    check(
        Kind::OpenAi,
        &[
            report(
                "cline/cline#8527",
                "the choices of the last chunk may be null",
                text("a")
                    + &data(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#)
                    + &data(
                        r#"{"choices":null,"usage":{"prompt_tokens":11,"completion_tokens":2}}"#,
                    )
                    + &data("[DONE]"),
                "text a (Stop)",
            ),
            report(
                "QwenLM/qwen-code#1448",
                "a choice may have no delta",
                data(r#"{"choices":[{"index":0,"finish_reason":null}]}"#)
                    + &text("a")
                    + &data(r#"{"choices":[{"index":0,"delta":null,"finish_reason":null}]}"#)
                    + &text("b")
                    + &ends("stop"),
                "text ab (Stop)",
            ),
            report(
                "microsoft/autogen#6465",
                "what a filter says behind the end does not undo the reason",
                data(
                    r#"{"id":"","model":"","object":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#,
                ) + &text("a")
                    + &data(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#)
                    + &data(
                        r#"{"id":"","model":"","choices":[{"index":0,"finish_reason":null,"content_filter_results":{},"content_filter_offsets":{"check_offset":44,"start_offset":44,"end_offset":198}}],"usage":null}"#,
                    )
                    + &data("[DONE]"),
                "text a (Length)",
            ),
            report(
                "tashfeenahmed/freellmapi#156",
                "a count without choices may come at any time",
                data(r#"{"usage":{"prompt_tokens":11,"completion_tokens":0}}"#)
                    + &text("a")
                    + &data(r#"{"usage":{"prompt_tokens":11,"completion_tokens":1}}"#)
                    + &text("b")
                    + &ends("stop"),
                "text ab (Stop)",
            ),
            report(
                "mistralai/mistral-vibe#794",
                "a colon alone is a comment",
                format!(":\n\n:\n{}:\n\n{}", text("a"), ends("stop")),
                "text a (Stop)",
            ),
            report(
                "mnfst/llm-gateway#2053",
                "a comment that a gateway repeats as data is one",
                data(": OPENROUTER PROCESSING")
                    + &text("a")
                    + &data(": keep-alive")
                    + &ends("stop"),
                "text a (Stop)",
            ),
        ],
    );
}

#[test]
fn the_end_of_an_answer_is_what_it_says_it_is() {
    check(
        Kind::OpenAi,
        &[
            report(
                "earendil-works/pi#7441",
                "a count with empty choices behind everything ends an answer without a reason and a marker",
                text("hello")
                    + &data(r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}"#),
                "text hello (Stop)",
            ),
            report(
                "vllm-project/vllm#53255",
                "a reason for calls without any is an end",
                text("No tool fits.")
                    + &data(
                        r#"{"choices":[{"index":0,"delta":{"tool_calls":[]},"finish_reason":"tool_calls"}]}"#,
                    )
                    + &data("[DONE]"),
                "text No tool fits. (Stop)",
            ),
            report(
                "NousResearch/hermes-agent#83886",
                "a call that its own vendor calls malformed is not made",
                calls(r#"{"index":0,"id":"c","function":{"name":"pay","arguments":"{}"}}"#)
                    + &ends("MALFORMED_FUNCTION_CALL"),
                r#"call c pay {} (Failed("malformed_function_call"))"#,
            ),
            report(
                "NousResearch/hermes-agent#11171",
                "a reason may be told behind the filter that gives it",
                text("") + &ends("function_call_filter: MALFORMED_FUNCTION_CALL"),
                r#" (Failed("malformed_function_call"))"#,
            ),
            report(
                "gethouston/houston#1211",
                "a network error of the provider is no success",
                text("half of") + &ends("network_error"),
                r#"text half of (Failed("network_error"))"#,
            ),
        ],
    );
}

#[test]
fn an_answer_that_fails_says_why() {
    check_failures(
        Kind::OpenAi,
        &[
            report(
                "vercel/ai#19165",
                "a stream that ends without a reason, a count and a marker is cut",
                text("half of"),
                "Unavailable: broke off",
            ),
            report(
                "earendil-works/pi#7441",
                "a count amid a call ends nothing",
                calls(r#"{"index":0,"id":"c","function":{"name":"calc","arguments":"{\"e\""}}"#)
                    + &data(r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}"#),
                "Unavailable: broke off",
            ),
            report(
                "fox1245/NeoGraph#124",
                "an error may be only a text",
                data(r#"{"error":"STREAM_EXPLODED"}"#) + &data("[DONE]"),
                "Unavailable: STREAM_EXPLODED",
            ),
            report(
                "octos-org/octos#13",
                "an event of errors may have its words in a member of its data",
                text("half")
                    + "event: error\ndata: {\"error\":\"Stream error: Internal Network Failure\"}\n\n",
                "Unavailable: Internal Network Failure",
            ),
            report(
                "langchain-ai/langchainjs#11579",
                "an error beside a choice is one, whatever the choice says",
                text("half")
                    + &data(
                        r#"{"id":"g","error":{"code":"server_error","message":"Provider disconnected"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}"#,
                    ),
                "Unavailable: Provider disconnected",
            ),
            report(
                "earendil-works/pi#9002",
                "an error as the reason is an outage",
                text("half")
                    + &data(
                        r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","native_finish_reason":"error"}]}"#,
                    )
                    + &data("[DONE]"),
                "Unavailable: gave up",
            ),
            report(
                "unslothai/unsloth#9390",
                "a window that runs full amid the answer is an overflow",
                text("half")
                    + &data(
                        r#"{"error":{"code":400,"message":"request (2358 tokens) exceeds the available context size (2048 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":2358,"n_ctx":2048}}"#,
                    ),
                "ContextOverflow: 2358 tokens",
            ),
        ],
    );
}

#[test]
fn a_whole_body_is_read_as_a_stream_would_be() {
    // microsoft/autogen#4878: a call without an id, beside content that is null, and "stop".
    let gemini = json!({"id": null, "choices": [{"finish_reason": "stop", "index": 0, "logprobs": null, "message": {
        "content": null, "refusal": null, "role": "assistant", "audio": null, "function_call": null,
        "tool_calls": [{"id": "", "function": {"arguments": "{\"query\":\"x\"}", "name": "search"}, "type": "function"}],
    }}], "usage": {"completion_tokens": 6, "prompt_tokens": 50, "completion_tokens_details": null}});
    assert_eq!(
        whole_said(Kind::OpenAi, &gemini),
        r#"call call_0 search {"query":"x"} (ToolCalls)"#
    );
    // oobabooga/textgen#7257: llama-server refuses with status 200.
    let full = json!({"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 14429,
        "n_ctx": 8192, "message": "the request exceeds the available context size. try increasing the context size or enable context shift"}});
    let said = whole_said(Kind::OpenAi, &full);
    assert!(said.starts_with("ContextOverflow"), "{said}");
}

#[test]
fn tokens_are_counted_wherever_they_are_told() {
    // earendil-works/pi#2017: Moonshot tells them in the choice.
    let stream = text("a")
        + &data(
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":19,"completion_tokens":13,"total_tokens":32,"cached_tokens":8}}]}"#,
        )
        + &data("[DONE]");
    assert_eq!(counted(Kind::OpenAi, &stream), (19, 13, 8));
    // laravel/ai#924: what OpenRouter read from its cache is a part of the prompt.
    let stream = text("a")
        + &data(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#)
        + &data(
            r#"{"choices":[],"usage":{"prompt_tokens":10339,"completion_tokens":4,"total_tokens":10343,"prompt_tokens_details":{"cached_tokens":10318,"audio_tokens":0}}}"#,
        );
    assert_eq!(counted(Kind::OpenAi, &stream), (10_339, 4, 10_318));
}
