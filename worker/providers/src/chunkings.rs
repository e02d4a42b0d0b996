//! However a stream is cut into packets, events and pieces, the answer in it is the same.

mod gateways;
mod reports;

use mainspring_shared::message::{ContentPart, Piece, pieces};
use mainspring_worker::llm::{Chunk, Error, Finish, Reply};
use proptest::prelude::*;

use crate::answer::tests::{request, source};
use crate::answer::{ANSWER_BYTES_MAX, ChunkSink, Source};
use crate::http::Reader;
use crate::settings::Kind;
use crate::{anthropic, openai, responses, sse};

/// Words with characters of every width, a pair of surrogates at each end of which a delta may begin.
const SAID: &str = "Hé 日本 \u{1F60B}\u{1F680}, \"quoted\"\\ and\nso on.";
const THOUGHT: &str = "First \u{1F914} I look,\tthen I say.";
const ARGUMENTS: &str = "{\"path\": \"a \u{1F4C4}.txt\", \"lines\": [1, 2]}";

/// How a text is cut into deltas: into so many UTF-16 units each, and all of it at once with 0.
type Cut = usize;

/// A way of streaming the same answer.
struct Style {
    name: &'static str,
    kind: Kind,
    events: fn(Cut) -> Vec<String>,
}

const STYLES: &[Style] = &[
    Style {
        name: "openai",
        kind: Kind::OpenAi,
        events: |cut| chat(cut, &CHAT),
    },
    Style {
        name: "groq",
        kind: Kind::OpenAi,
        events: |cut| {
            chat(
                cut,
                &Chat {
                    reasoning: Some("reasoning"),
                    ..CHAT
                },
            )
        },
    },
    Style {
        name: "deepseek",
        kind: Kind::OpenAi,
        events: |cut| {
            chat(
                cut,
                &Chat {
                    reasoning: Some("reasoning_content"),
                    ..CHAT
                },
            )
        },
    },
    Style {
        name: "gemini",
        kind: Kind::OpenAi,
        events: |cut| {
            chat(
                cut,
                &Chat {
                    index: false,
                    whole_calls: true,
                    finish: "stop",
                    call: r#","extra_content":{"google":{"thought_signature":"c2ln"}}"#,
                    ..CHAT
                },
            )
        },
    },
    Style {
        name: "kimi",
        kind: Kind::OpenAi,
        events: |cut| {
            chat(
                cut,
                &Chat {
                    ids: ["functions.read:0", "functions.read:1"],
                    reasoning: Some("reasoning_content"),
                    ..CHAT
                },
            )
        },
    },
    Style {
        name: "vllm",
        kind: Kind::OpenAi,
        events: |cut| {
            chat(
                cut,
                &Chat {
                    reasoning: Some("reasoning"),
                    ids: ["", ""],
                    finish: "tool_calls",
                    ..CHAT
                },
            )
        },
    },
    Style {
        name: "ollama",
        kind: Kind::OpenAi,
        events: |cut| {
            chat(
                cut,
                &Chat {
                    whole_calls: true,
                    finish: "stop",
                    ..CHAT
                },
            )
        },
    },
    Style {
        name: "same id twice",
        kind: Kind::OpenAi,
        events: |cut| {
            chat(
                cut,
                &Chat {
                    ids: ["read:3", "read:3"],
                    ..CHAT
                },
            )
        },
    },
    Style {
        name: "openrouter",
        kind: Kind::OpenAi,
        events: openrouter,
    },
    Style {
        name: "mistral",
        kind: Kind::OpenAi,
        events: mistral,
    },
    Style {
        name: "responses",
        kind: Kind::OpenAiResponses,
        events: |cut| responses_events(cut, End::Whole),
    },
    Style {
        name: "responses without an end",
        kind: Kind::OpenAiResponses,
        events: |cut| responses_events(cut, End::Empty),
    },
    Style {
        name: "responses with a short end",
        kind: Kind::OpenAiResponses,
        events: |cut| responses_events(cut, End::LastOnly),
    },
    Style {
        name: "responses with a sorted end",
        kind: Kind::OpenAiResponses,
        events: |cut| responses_events(cut, End::Sorted),
    },
    Style {
        name: "messages",
        kind: Kind::Anthropic,
        events: |cut| {
            messages(
                cut,
                "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            )
        },
    },
    Style {
        name: "messages with a foreign end",
        kind: Kind::Anthropic,
        events: |cut| messages(cut, "data: [DONE]\n\n"),
    },
];

/// The deltas of a text as JSON strings, with everything but ASCII escaped.
fn deltas(text: &str, cut: Cut) -> Vec<String> {
    let units: Vec<u16> = text.encode_utf16().collect();
    let size = if cut == 0 { units.len() } else { cut };
    let literal = |units: &[u16]| {
        let escaped = units.iter().map(|unit| match u8::try_from(*unit) {
            Ok(byte @ 0x20..=0x7E) if byte != b'"' && byte != b'\\' => char::from(byte).to_string(),
            _ => format!("\\u{unit:04x}"),
        });
        format!("\"{}\"", escaped.collect::<String>())
    };
    units.chunks(size).map(literal).collect()
}

fn data(json: &str) -> String {
    format!("data: {json}\n\n")
}

struct Chat {
    reasoning: Option<&'static str>,
    index: bool,
    ids: [&'static str; 2],
    whole_calls: bool,
    finish: &'static str,
    /// Further members of the first call.
    call: &'static str,
}

const CHAT: Chat = Chat {
    reasoning: None,
    index: true,
    ids: ["call_a", "call_b"],
    whole_calls: false,
    finish: "tool_calls",
    call: "",
};

fn delta(members: &str) -> String {
    data(&format!(
        r#"{{"id":"x","model":"m-1","choices":[{{"index":0,"delta":{{{members}}},"finish_reason":null}}]}}"#
    ))
}

fn end(finish: &str) -> Vec<String> {
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

fn chat(cut: Cut, style: &Chat) -> Vec<String> {
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

fn openrouter(cut: Cut) -> Vec<String> {
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

fn mistral(cut: Cut) -> Vec<String> {
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

#[derive(Clone, Copy, PartialEq)]
enum End {
    Whole,
    Empty,
    LastOnly,
    Sorted,
}

/// Deltas of each item, or, if they come at once, only the ends of their parts.
#[expect(clippy::too_many_lines, reason = "a stream, event by event")]
fn responses_events(cut: Cut, last: End) -> Vec<String> {
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

fn messages(cut: Cut, last: &str) -> Vec<String> {
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

/// What was heard while an answer was read, and the answer.
type Read = Result<(Reply, String, String), Error>;

fn read<'p>(kind: Kind, packets: impl IntoIterator<Item = &'p [u8]>) -> Read {
    let source = Source {
        protocol: kind.as_str(),
        ..source()
    };
    match kind {
        Kind::OpenAi => {
            let answer = openai::Answer::new(source, false);
            run(answer, packets, |answer| answer.reply(&request()))
        }
        Kind::OpenAiResponses => {
            let answer = responses::Answer::new(source, false);
            run(answer, packets, |answer| answer.reply(&request()))
        }
        Kind::Anthropic => {
            let answer = anthropic::Answer::new(source);
            run(answer, packets, |answer| answer.reply(&request()))
        }
        Kind::Demo => panic!("it is not streamed"),
    }
}

fn run<'p, R: Reader>(
    mut reader: R,
    packets: impl IntoIterator<Item = &'p [u8]>,
    reply: impl FnOnce(R) -> Reply,
) -> Read {
    let (mut text, mut thought) = (String::new(), String::new());
    let mut hear = |chunk: Chunk<'_>| match chunk {
        Chunk::Text(piece) => text.push_str(piece),
        Chunk::Reasoning(piece) => thought.push_str(piece),
        Chunk::Background(_) => {}
    };
    let mut sink = ChunkSink::new(&mut hear);
    let mut parser = sse::Parser::new(ANSWER_BYTES_MAX);
    for packet in packets {
        parser.push(packet, &mut |event: &str, data: &str| {
            if reader.ended() {
                Ok(())
            } else {
                reader.event(event, data, &mut sink)
            }
        })?;
    }
    if !reader.complete() {
        return Err(Error::unavailable("it broke off"));
    }
    Ok((reply(reader), text, thought))
}

fn whole(style: &Style, cut: Cut) -> Vec<u8> {
    (style.events)(cut).concat().into_bytes()
}

/// The answer of a style, checked for what all of them say.
fn expected(style: &Style) -> (Reply, String, String) {
    let bytes = whole(style, 0);
    let read = read(style.kind, [&bytes[..]]).expect(style.name);
    let (reply, text, _) = &read;
    let name = style.name;
    assert_eq!(text, SAID, "{name}");
    assert_eq!(reply.tool_calls.len(), 2, "{name}: {reply:?}");
    for call in &reply.tool_calls {
        assert_eq!(call.name, "read", "{name}");
        let arguments: serde_json::Value = serde_json::from_str(ARGUMENTS).expect("it is JSON");
        assert!(call.arguments == arguments, "{name}: {call:?}");
    }
    assert_eq!(reply.finish, Finish::ToolCalls, "{name}");
    assert_eq!(
        (reply.usage.input_tokens, reply.usage.output_tokens),
        (11, 22),
        "{name}"
    );
    read
}

#[test]
fn an_answer_is_the_same_wherever_its_packets_end_and_however_it_comes_in_pieces() {
    let mut chunkings = 0;
    for style in STYLES {
        let expected = expected(style);
        for cut in [0, 1, 2, 3, 5, 8, 13] {
            let bytes = whole(style, cut);
            let name = format!("{}, pieces of {cut}", style.name);
            let single = read(style.kind, bytes.chunks(1)).expect(&name);
            assert_eq!(single, expected, "{name}");
            let borders = (1..bytes.len()).step_by(if cut == 0 { 2 } else { 97 });
            for border in borders {
                let (first, second) = bytes.split_at(border);
                let cut = read(style.kind, [first, second]).expect(&name);
                assert_eq!(cut, expected, "{name}, cut at {border}");
                chunkings += 1;
            }
        }
    }
    assert!(chunkings >= 10_000, "{chunkings}");
}

proptest! {
    #[test]
    fn an_answer_is_the_same_in_any_packets(
        style in 0..STYLES.len(), cut in 0_usize..20, sizes in prop::collection::vec(1_usize..300, 1..40)
    ) {
        let style = &STYLES[style];
        let bytes = whole(style, cut);
        let mut rest = &bytes[..];
        let mut packets = Vec::new();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (packet, more) = rest.split_at((*size).min(rest.len()));
            packets.push(packet);
            rest = more;
        }
        prop_assert_eq!(read(style.kind, packets).expect(style.name), expected(style));
    }
}

/// An answer as a line: texts, thoughts, calls and attachments in their order.
fn line(reply: &Reply) -> String {
    let words = pieces(&reply.content, &reply.tool_calls).map(|piece| match piece {
        Piece::Part(ContentPart::Text { text }) => format!("text {text}"),
        Piece::Part(ContentPart::Reasoning {
            text, signature, ..
        }) => {
            format!("thought {text}{}", signature.as_deref().unwrap_or_default())
        }
        Piece::Part(ContentPart::Attached(attached)) => format!("attached {}", attached.json),
        Piece::Part(other) => format!("{other:?}"),
        Piece::Call(call) => format!("call {} {}", call.id, call.arguments),
    });
    words.collect::<Vec<_>>().join(" | ")
}

fn said(kind: Kind, stream: &str) -> String {
    match read(kind, [stream.as_bytes()]) {
        Ok((reply, _, _)) => format!("{} ({:?})", line(&reply), reply.finish),
        Err(error) => format!("{error:?}"),
    }
}

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
