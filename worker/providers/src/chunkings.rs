//! However a stream is cut into packets, events and pieces, the answer in it is the same.

mod chat;
mod gateways;
mod messages;
mod orders;
mod reading;
mod reports;
mod responses;

use proptest::prelude::*;

use self::chat::{CHAT, Chat, chat, delta, end, mistral, openrouter};
use self::messages::messages;
use self::reading::{expected, line, read, said, whole};
use self::responses::End;
use crate::settings::Kind;

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
        events: |cut| responses::events(cut, End::Whole),
    },
    Style {
        name: "responses without an end",
        kind: Kind::OpenAiResponses,
        events: |cut| responses::events(cut, End::Empty),
    },
    Style {
        name: "responses with a short end",
        kind: Kind::OpenAiResponses,
        events: |cut| responses::events(cut, End::LastOnly),
    },
    Style {
        name: "responses with a sorted end",
        kind: Kind::OpenAiResponses,
        events: |cut| responses::events(cut, End::Sorted),
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
