//! Streams of Responses.

use super::{ARGUMENTS, Cut, SAID, THOUGHT, deltas};

#[derive(Clone, Copy, PartialEq)]
pub(super) enum End {
    Whole,
    Empty,
    LastOnly,
    Sorted,
}

/// Deltas of each item, or, if they come at once, only the ends of their parts.
#[expect(clippy::too_many_lines, reason = "a stream, event by event")]
pub(super) fn events(cut: Cut, last: End) -> Vec<String> {
    let event = |kind: &str, members: &str| {
        format!("event: {kind}\ndata: {{\"type\":\"{kind}\",{members}}}\n\n")
    };
    let (said, thought, arguments) = (
        &deltas(SAID, 0)[0],
        &deltas(THOUGHT, 0)[0],
        &deltas(ARGUMENTS, 0)[0],
    );
    let reasoning = |n: usize| {
        format!(
            r#"{{"type":"reasoning","id":"rs_{n}","encrypted_content":"ENC{n}","summary":[{{"type":"summary_text","text":{thought}}}]}}"#
        )
    };
    let call = |n: usize| {
        format!(
            r#"{{"type":"function_call","id":"fc_{n}","call_id":"call_{n}","name":"read","arguments":{arguments},"status":"completed"}}"#
        )
    };
    let message = format!(
        r#"{{"type":"message","id":"msg_1","role":"assistant","content":[{{"type":"output_text","text":{said}}}]}}"#
    );
    let search = r#"{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"z"}}"#;
    let mut events = vec![event(
        "response.created",
        r#""response":{"id":"resp_1","model":"m-1","status":"in_progress","output":[]}"#,
    )];
    let mut items = Vec::new();
    let mut begin = |index: usize, start: &str, inner: Vec<String>, whole: String| {
        events.push(event(
            "response.output_item.added",
            &format!(r#""output_index":{index},"item":{start}"#),
        ));
        events.extend(inner);
        events.push(event(
            "response.output_item.done",
            &format!(r#""output_index":{index},"item":{whole}"#),
        ));
        items.push(whole);
    };
    let thoughts = |n: usize, index: usize| -> Vec<String> {
        let at = format!(r#""item_id":"rs_{n}","output_index":{index},"summary_index":0"#);
        if cut == 0 {
            return vec![event(
                "response.reasoning_summary_text.done",
                &format!(r#"{at},"text":{thought}"#),
            )];
        }
        let pieces = deltas(THOUGHT, cut).into_iter();
        pieces
            .map(|piece| {
                event(
                    "response.reasoning_summary_text.delta",
                    &format!(r#"{at},"delta":{piece}"#),
                )
            })
            .collect()
    };
    let inputs = |n: usize, index: usize| -> Vec<String> {
        let at = format!(r#""item_id":"fc_{n}","output_index":{index}"#);
        if cut == 0 {
            return vec![event(
                "response.function_call_arguments.done",
                &format!(r#"{at},"arguments":{arguments}"#),
            )];
        }
        let pieces = deltas(ARGUMENTS, cut).into_iter();
        pieces
            .map(|piece| {
                event(
                    "response.function_call_arguments.delta",
                    &format!(r#"{at},"delta":{piece}"#),
                )
            })
            .collect()
    };
    let texts = |index: usize| -> Vec<String> {
        let at = format!(r#""item_id":"msg_1","output_index":{index},"content_index":0"#);
        if cut == 0 {
            return vec![event(
                "response.output_text.done",
                &format!(r#"{at},"text":{said}"#),
            )];
        }
        let pieces = deltas(SAID, cut).into_iter();
        pieces
            .map(|piece| {
                event(
                    "response.output_text.delta",
                    &format!(r#"{at},"delta":{piece}"#),
                )
            })
            .collect()
    };
    // Places with gaps, as gateways leave them.
    begin(
        0,
        r#"{"type":"reasoning","id":"rs_1","summary":[]}"#,
        thoughts(1, 0),
        reasoning(1),
    );
    begin(
        2,
        r#"{"type":"function_call","id":"fc_1","call_id":"call_1","name":"read","arguments":""}"#,
        inputs(1, 2),
        call(1),
    );
    begin(
        3,
        r#"{"type":"reasoning","id":"rs_2","summary":[]}"#,
        thoughts(2, 3),
        reasoning(2),
    );
    begin(
        5,
        r#"{"type":"message","id":"msg_1","role":"assistant","content":[]}"#,
        texts(5),
        message,
    );
    begin(6, search, Vec::new(), search.to_owned());
    begin(
        7,
        r#"{"type":"function_call","id":"fc_2","call_id":"call_2","name":"read","arguments":""}"#,
        inputs(2, 7),
        call(2),
    );
    match last {
        End::Whole => {}
        End::Empty => items.clear(),
        End::LastOnly => drop(items.drain(..5)),
        End::Sorted => items.reverse(),
    }
    events.push(event("response.completed", &format!(
        r#""response":{{"id":"resp_1","model":"m-1","status":"completed","output":[{}],"usage":{{"input_tokens":11,"output_tokens":22}}}}"#,
        items.join(",")
    )));
    events
}
