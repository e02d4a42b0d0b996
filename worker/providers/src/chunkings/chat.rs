//! Streams of chat completions.

use super::{ARGUMENTS, Cut, SAID, THOUGHT, data, deltas};

pub(super) struct Chat {
    pub(super) reasoning: Option<&'static str>,
    pub(super) index: bool,
    pub(super) ids: [&'static str; 2],
    pub(super) whole_calls: bool,
    pub(super) finish: &'static str,
    /// Further members of the first call.
    pub(super) call: &'static str,
}

pub(super) const CHAT: Chat = Chat {
    reasoning: None,
    index: true,
    ids: ["call_a", "call_b"],
    whole_calls: false,
    finish: "tool_calls",
    call: "",
};

pub(super) fn delta(members: &str) -> String {
    data(&format!(
        r#"{{"id":"x","model":"m-1","choices":[{{"index":0,"delta":{{{members}}},"finish_reason":null}}]}}"#
    ))
}

pub(super) fn end(finish: &str) -> Vec<String> {
    vec![
        data(&format!(
            r#"{{"model":"m-1","choices":[{{"index":0,"delta":{{}},"finish_reason":"{finish}"}}]}}"#
        )),
        data(r#"{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":22}}"#),
        data("[DONE]"),
    ]
}

fn chat_calls(cut: Cut, style: &Chat) -> Vec<String> {
    let mut events = Vec::new();
    for (place, id) in style.ids.iter().enumerate() {
        let index = if style.index {
            format!(r#""index":{place},"#)
        } else {
            String::new()
        };
        let id = if id.is_empty() {
            String::new()
        } else {
            format!(r#""id":"{id}","#)
        };
        let more = if place == 0 { style.call } else { "" };
        let call = |function: &str| {
            format!(
                r#""tool_calls":[{{{index}{id}"type":"function","function":{{{function}}}{more}}}]"#
            )
        };
        if style.whole_calls {
            let whole = &deltas(ARGUMENTS, 0)[0];
            events.push(delta(&call(&format!(
                r#""name":"read","arguments":{whole}"#
            ))));
            continue;
        }
        events.push(delta(&call(r#""name":"read","arguments":"""#)));
        for piece in deltas(ARGUMENTS, cut) {
            events.push(delta(&format!(
                r#""tool_calls":[{{{index}"function":{{"arguments":{piece}}}}}]"#
            )));
        }
    }
    events
}

pub(super) fn chat(cut: Cut, style: &Chat) -> Vec<String> {
    let mut events = vec![
        ": keep-alive\n\n".to_owned(),
        delta(r#""role":"assistant","content":"""#),
    ];
    if let Some(name) = style.reasoning {
        let pieces = deltas(THOUGHT, cut).into_iter();
        events.extend(pieces.map(|piece| delta(&format!(r#""{name}":{piece}"#))));
    }
    let pieces = deltas(SAID, cut).into_iter();
    events.extend(pieces.map(|piece| delta(&format!(r#""content":{piece}"#))));
    events.extend(chat_calls(cut, style));
    events.extend(end(style.finish));
    events
}

pub(super) fn openrouter(cut: Cut) -> Vec<String> {
    let mut events = vec![": OPENROUTER PROCESSING\n\n".to_owned()];
    let pieces = deltas(THOUGHT, cut).into_iter();
    events.extend(pieces.map(|piece| {
        delta(&format!(
            r#""reasoning":{piece},"reasoning_details":[{{"type":"reasoning.text","text":{piece},"format":"anthropic-claude-v1","index":0}}]"#
        ))
    }));
    events.push(delta(
        r#""reasoning_details":[{"type":"reasoning.text","signature":"c2ln","format":"anthropic-claude-v1","index":0}]"#,
    ));
    let pieces = deltas(SAID, cut).into_iter();
    events.extend(pieces.map(|piece| delta(&format!(r#""content":{piece}"#))));
    events.extend(chat_calls(cut, &CHAT));
    events.extend(end("tool_calls"));
    events
}

pub(super) fn mistral(cut: Cut) -> Vec<String> {
    let mut events = Vec::new();
    let pieces = deltas(THOUGHT, cut).into_iter();
    events.extend(pieces.map(|piece| {
        delta(&format!(
            r#""content":[{{"type":"thinking","thinking":[{{"type":"text","text":{piece}}}]}}]"#
        ))
    }));
    let pieces = deltas(SAID, cut).into_iter();
    events.extend(
        pieces.map(|piece| delta(&format!(r#""content":[{{"type":"text","text":{piece}}}]"#))),
    );
    events.extend(chat_calls(
        cut,
        &Chat {
            ids: ["abcDEF123", "abcDEF124"],
            ..CHAT
        },
    ));
    events.extend(end("tool_calls"));
    events
}
