//! Streams that users of comparable programs reported, each with what must come out of it.
//!
//! A row names the public thread in which the behaviour was reported; the stream is written here.

mod chat;
mod items;
mod messages;

use mainspring_shared::message::{ContentPart, Piece, pieces};
use mainspring_worker::llm::{Chunk, Reply};
use serde_json::Value;

use super::chat::{delta, end};
use super::data;
use super::reading::read;
use crate::answer::tests::{request, source};
use crate::answer::{ChunkSink, Source};
use crate::http::Reader;
use crate::settings::Kind;
use crate::{anthropic, openai, responses};

/// A stream, or a whole body, and the answer in it.
struct Report {
    source: &'static str,
    /// What must hold.
    says: &'static str,
    given: String,
    /// The answer as [`shown`] writes it; of a failure, its class and some of its words.
    answer: &'static str,
}

fn report(source: &'static str, says: &'static str, given: String, answer: &'static str) -> Report {
    Report {
        source,
        says,
        given,
        answer,
    }
}

/// The parts of an answer in their order, and its end.
fn shown(reply: &Reply) -> String {
    let words = pieces(&reply.content, &reply.tool_calls).map(|piece| match piece {
        Piece::Part(ContentPart::Text { text }) => format!("text {text}"),
        Piece::Part(ContentPart::Reasoning {
            text, signature, ..
        }) => format!("thought {text}{}", signature.as_deref().unwrap_or_default()),
        Piece::Part(other) => format!("{other:?}"),
        Piece::Call(call) => format!("call {} {} {}", call.id, call.name, call.arguments),
    });
    let words: Vec<_> = words.collect();
    format!("{} ({:?})", words.join(" | "), reply.finish)
}

fn said(kind: Kind, stream: &str) -> String {
    match read(kind, [stream.as_bytes()]) {
        Ok((reply, _, _)) => shown(&reply),
        Err(error) => format!("{error:?}"),
    }
}

fn check(kind: Kind, reports: &[Report]) {
    check_by(kind, reports, |said, answer| said == answer);
}

/// That each of these fails, in these words.
fn check_failures(kind: Kind, reports: &[Report]) {
    check_by(kind, reports, |said, answer| {
        let (class, words) = answer.split_once(": ").expect("a class and words");
        said.starts_with(class) && said.contains(words)
    });
}

fn check_by(kind: Kind, reports: &[Report], fits: impl Fn(&str, &str) -> bool) {
    let mut wrong = Vec::new();
    for report in reports {
        let said = said(kind, &report.given);
        if !fits(&said, report.answer) {
            let Report { source, says, .. } = report;
            wrong.push(format!("{source}: {says}: {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The answer in a body that was not streamed.
fn whole_said(kind: Kind, body: &Value) -> String {
    let mut ignore = |_: Chunk<'_>| {};
    let mut sink = ChunkSink::new(&mut ignore);
    let source = Source {
        protocol: kind.as_str(),
        ..source()
    };
    let read = match kind {
        Kind::OpenAi => {
            let mut answer = openai::Answer::new(source, false);
            answer
                .whole(body, &mut sink)
                .map(|()| shown(&answer.reply(&request())))
        }
        Kind::OpenAiResponses => {
            let mut answer = responses::Answer::new(source, false);
            answer
                .whole(body, &mut sink)
                .map(|()| shown(&answer.reply(&request())))
        }
        Kind::Anthropic => {
            let mut answer = anthropic::Answer::new(source);
            answer
                .whole(body, &mut sink)
                .map(|()| shown(&answer.reply(&request())))
        }
        Kind::Demo => panic!("it has no wire"),
    };
    read.unwrap_or_else(|error| format!("{error:?}"))
}

/// Input, output and cached tokens of a stream.
fn counted(kind: Kind, stream: &str) -> (u64, u64, u64) {
    let (reply, _, _) = read(kind, [stream.as_bytes()]).expect("an answer");
    assert!(!reply.usage.estimated, "{stream}");
    let usage = reply.usage;
    (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
    )
}
