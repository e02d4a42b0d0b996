//! Reads streams as transports do.

use mainspring_shared::message::{ContentPart, Piece, pieces};
use mainspring_worker::llm::{Chunk, Error, Finish, Reply};

use super::{ARGUMENTS, Cut, SAID, Style};
use crate::answer::tests::{request, source};
use crate::answer::{ANSWER_BYTES_MAX, ChunkSink, Source};
use crate::http::Reader;
use crate::settings::Kind;
use crate::{anthropic, openai, responses, sse};

/// What was heard while an answer was read, and the answer.
pub(super) type Read = Result<(Reply, String, String), Error>;

pub(super) fn read<'p>(kind: Kind, packets: impl IntoIterator<Item = &'p [u8]>) -> Read {
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
        Chunk::Hidden(_) | Chunk::Counted(_) | Chunk::Background(_) => {}
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

pub(super) fn whole(style: &Style, cut: Cut) -> Vec<u8> {
    (style.events)(cut).concat().into_bytes()
}

/// The answer of a style, checked for what all of them say.
pub(super) fn expected(style: &Style) -> (Reply, String, String) {
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

/// An answer as a line: texts, thoughts, calls and attachments in their order.
pub(super) fn line(reply: &Reply) -> String {
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

pub(super) fn said(kind: Kind, stream: &str) -> String {
    match read(kind, [stream.as_bytes()]) {
        Ok((reply, _, _)) => format!("{} ({:?})", line(&reply), reply.finish),
        Err(error) => format!("{error:?}"),
    }
}
