//! What stands where in an answer, what ends it, and what is none.

use mainspring_shared::message::ContentPart;
use mainspring_worker::llm::{Finish, Reply};

use super::reading::read;
use super::{STYLES, THOUGHT, data, delta, end, expected, line, said};
use crate::settings::Kind;

#[test]
fn thoughts_texts_and_calls_of_one_answer_keep_their_order() {
    let style = |name: &str| STYLES.iter().find(|it| it.name == name).expect("it exists");
    let (reply, _, _) = expected(style("messages"));
    let kinds = |reply: &Reply| -> Vec<String> {
        let line = line(reply);
        let words = line
            .split(" | ")
            .map(|it| it.split(' ').next().unwrap_or_default().to_owned());
        words.collect()
    };
    assert_eq!(
        kinds(&reply),
        ["thought", "call", "thought", "text", "attached", "call"]
    );
    let (reply, _, _) = expected(style("responses with a sorted end"));
    assert_eq!(
        kinds(&reply),
        ["thought", "call", "thought", "text", "attached", "call"]
    );
    let signed: Vec<&str> = reply
        .content
        .iter()
        .filter_map(|part| match part {
            ContentPart::Reasoning { signature, .. } => signature.as_deref(),
            _ => None,
        })
        .collect();
    // Each id stays with its own content, whatever the order of the last list.
    assert_eq!(signed, ["responses:rs_1 m ENC1", "responses:rs_2 m ENC2"]);
}

#[test]
fn texts_around_a_call_are_two_and_those_of_citations_one() {
    let block = |index: u64, block: &str| {
        data(&format!(
            r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#
        ))
    };
    let end = data(r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#)
        + &data(r#"{"type":"message_stop"}"#);
    let stream = [
        block(0, r#"{"type":"text","text":"be"}"#),
        block(1, r#"{"type":"text","text":"fore"}"#),
        block(
            2,
            r#"{"type":"tool_use","id":"a","name":"f","input":"{\"x\":\"9\"}"}"#,
        ),
        block(3, r#"{"type":"text","text":"behind"}"#),
        end,
    ];
    assert_eq!(
        said(Kind::Anthropic, &stream.concat()),
        r#"text before | call a {"x":"9"} | text behind (ToolCalls)"#
    );
}

#[test]
fn what_is_no_whole_answer_is_not_taken_for_one() {
    let text = delta(r#""content":"half""#);
    for (stream, says) in [
        (
            format!(
                "{text}{}{}",
                data(r#"{"object":"error","message":"CUDA error","code":500}"#),
                data("[DONE]")
            ),
            "CUDA error",
        ),
        (
            format!(
                "{text}{}{}",
                data(r#"{"detail":"upstream is gone"}"#),
                data("[DONE]")
            ),
            "broke off",
        ),
        (
            data(
                r#"{"base_resp":{"status_code":1000,"status_msg":"unknown error"},"choices":null}"#,
            ),
            "unknown error",
        ),
        (
            format!(
                "{}{}",
                delta(r#""tool_calls":[{"index":0,"function":{"name":"f","arguments":"{\"a"}}]"#),
                data("[DONE]")
            ),
            "broke off",
        ),
        (
            format!("{text}event: error\ndata: the server is on fire\n\n"),
            "on fire",
        ),
    ] {
        let said = said(Kind::OpenAi, &stream);
        assert!(
            said.contains(says) && said.starts_with("Un"),
            "{stream}: {said}"
        );
    }
    // Some servers never give a reason.
    assert_eq!(
        said(Kind::OpenAi, &format!("{text}{}", data("[DONE]"))),
        "text half (Stop)"
    );
    let stream = "event: error\ndata: the server is on fire\n\n";
    assert!(said(Kind::Anthropic, stream).contains("on fire"));
}

#[test]
fn reasons_for_an_end_mean_what_their_vendors_say() {
    let ends = |reason: &str| {
        let stream = format!("{}{}", delta(r#""content":"x""#), end(reason).concat());
        read(Kind::OpenAi, [stream.as_bytes()]).map(|(reply, _, _)| reply.finish)
    };
    for (reason, finish) in [
        ("STOP", Finish::Stop),
        ("sensitive", Finish::Refused),
        ("PROHIBITED_CONTENT", Finish::Refused),
        ("model_context_window_exceeded", Finish::Length),
        (
            "insufficient_system_resource",
            Finish::Failed("insufficient_system_resource".into()),
        ),
        (
            "MALFORMED_FUNCTION_CALL",
            Finish::Failed("malformed_function_call".into()),
        ),
        ("pause_turn", Finish::Paused),
        ("banana", Finish::Other("banana".into())),
    ] {
        assert_eq!(ends(reason), Ok(finish), "{reason}");
    }
}

#[test]
fn what_was_attached_is_kept_as_it_came_with_where_it_came_from() {
    let style = |name: &str| STYLES.iter().find(|it| it.name == name).expect("it exists");
    let (reply, _, thought) = expected(style("openrouter"));
    assert_eq!(thought, THOUGHT);
    let attached = reply.content.iter().find_map(|part| match part {
        ContentPart::Attached(attached) => Some(attached),
        _ => None,
    });
    let attached = attached.expect("it has details");
    assert_eq!(attached.origin.member.as_deref(), Some("reasoning_details"));
    let details: serde_json::Value = serde_json::from_str(&attached.json).expect("it is JSON");
    assert_eq!(details.as_array().map(Vec::len), Some(1));
    assert_eq!(details[0]["text"], THOUGHT);
    assert_eq!(details[0]["signature"], "c2ln");
    let (reply, _, _) = expected(style("gemini"));
    let call = reply.tool_calls[0].attached.as_ref().expect("it is signed");
    assert_eq!(
        call.json.as_deref(),
        Some(r#"{"extra_content":{"google":{"thought_signature":"c2ln"}}}"#)
    );
    let (reply, _, _) = expected(style("groq"));
    let member = reply.content.iter().find_map(|part| match part {
        ContentPart::Reasoning { origin, .. } => origin.as_ref()?.member.clone(),
        _ => None,
    });
    assert_eq!(member.as_deref(), Some("reasoning"));
}

#[test]
fn a_final_list_that_lacks_items_or_has_them_elsewhere_repeats_no_call() {
    let event = |kind: &str, members: &str| data(&format!(r#"{{"type":"{kind}",{members}}}"#));
    let call = |id: &str| {
        format!(
            r#"{{"type":"function_call","id":"fc_{id}","call_id":"{id}","name":"act","arguments":"{{\"x\":\"{id}\"}}"}}"#
        )
    };
    let done = |index: u64, item: &str| {
        event(
            "response.output_item.done",
            &format!(r#""output_index":{index},"item":{item}"#),
        )
    };
    let completed = |items: &str| {
        event(
            "response.completed",
            &format!(r#""response":{{"status":"completed","output":[{items}]}}"#),
        )
    };
    let text = r#"{"type":"message","id":"m1","content":[{"type":"output_text","text":"hello"}]}"#;
    for (stream, expected) in [
        (
            done(0, text) + &done(2, &call("1")) + &completed(&format!("{text},{}", call("1"))),
            r#"text hello | call 1 {"x":"1"} (ToolCalls)"#,
        ),
        (
            done(0, &call("one")) + &done(1, &call("two")) + &completed(&call("two")),
            r#"call one {"x":"one"} | call two {"x":"two"} (ToolCalls)"#,
        ),
        (done(1, text) + &completed(text), "text hello (Stop)"),
        (
            // Items without ids, at another place.
            done(
                4,
                r#"{"type":"function_call","name":"act","arguments":"{}"}"#,
            ) + &completed(r#"{"type":"function_call","name":"act","arguments":"{}"}"#),
            "call call_0 {} (ToolCalls)",
        ),
        (
            // An item that was not streamed is added.
            done(0, text) + &completed(&format!("{text},{}", call("late"))),
            r#"text hello | call late {"x":"late"} (ToolCalls)"#,
        ),
        (
            // Item 1 arrives before item 0.
            done(1, &call("b")) + &done(0, text) + &completed(""),
            r#"text hello | call b {"x":"b"} (ToolCalls)"#,
        ),
    ] {
        assert_eq!(said(Kind::OpenAiResponses, &stream), expected);
    }
}

#[test]
fn words_that_come_only_at_the_end_of_their_part_are_read() {
    let event = |kind: &str, members: &str| data(&format!(r#"{{"type":"{kind}",{members}}}"#));
    let completed = event(
        "response.completed",
        r#""response":{"status":"completed","output":[]}"#,
    );
    let stream = event(
        "response.output_text.done",
        r#""item_id":"m","output_index":0,"content_index":0,"text":"all of it""#,
    );
    assert_eq!(
        said(Kind::OpenAiResponses, &(stream + &completed)),
        "text all of it (Stop)"
    );
    let stream = event(
        "response.output_item.added",
        r#""output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":""}"#,
    ) + &event(
        "response.function_call_arguments.done",
        r#""item_id":"fc","output_index":0,"arguments":"{\"x\":1}""#,
    );
    assert_eq!(
        said(Kind::OpenAiResponses, &(stream + &completed)),
        r#"call c {"x":1} (ToolCalls)"#
    );
}

#[test]
fn what_a_text_is_for_is_kept_before_it() {
    let item = |phase: &str, id: &str, text: &str| {
        format!(
            r#"{{"type":"message","id":"{id}",{phase}"role":"assistant","status":"completed","content":[{{"type":"output_text","text":"{text}"}}]}}"#
        )
    };
    let items = [
        item(r#""phase":"commentary","#, "msg_1", "I look."),
        item(r#""phase":"final_answer","#, "msg_2", "It is."),
        item(r#""phase":null,"#, "msg_3", "So."),
    ];
    let mut stream = String::new();
    for (index, item) in items.iter().enumerate() {
        for event in ["added", "done"] {
            let kind = format!("response.output_item.{event}");
            stream.push_str(&data(&format!(
                r#"{{"type":"{kind}","output_index":{index},"item":{item}}}"#
            )));
        }
    }
    stream.push_str(&data(&format!(
        r#"{{"type":"response.completed","response":{{"status":"completed","output":[{}]}}}}"#,
        items.join(",")
    )));
    let expected = concat!(
        r#"attached {"phase":"commentary"} | text I look. | "#,
        r#"attached {"phase":"final_answer"} | text It is. | text So. (Stop)"#
    );
    assert_eq!(said(Kind::OpenAiResponses, &stream), expected);
}
