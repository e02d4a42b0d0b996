//! Every recorded answer in `tests/fixtures`, in one piece and split at any point.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use mainspring_providers::Kind;
use mainspring_shared::error::Coded;
use mainspring_shared::message::ContentPart;

use super::server::{Answer, Server, Then};
use super::{Heard, ask, hello, model, settings};

fn fixtures(provider: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/transports")
        .join(provider);
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The answer of a recorded file: `status_429.json` has status 429; the extension determines the
/// content type.
fn answer(path: &Path, body: &[u8], piece: usize) -> Answer {
    let name = path.file_stem().unwrap().to_str().unwrap();
    let status = name
        .strip_prefix("status_")
        .map_or(200, |rest| rest[..3].parse().unwrap());
    let content_type = match path.extension().unwrap().to_str().unwrap() {
        "sse" => "text/event-stream; charset=utf-8",
        "json" => "application/json",
        _ => "text/html",
    };
    let then = if name.starts_with("cut") {
        Then::Close
    } else {
        Then::End
    };
    Answer::new(status, content_type, body, piece)
        .header("retry-after", "3")
        .then(then)
}

fn shown(heard: &Heard) -> String {
    let reply = match &heard.reply {
        Err(error) => {
            let permanent = if error.is_permanent() {
                "permanent"
            } else {
                "passing"
            };
            let wait = error
                .retry_after()
                .map(|wait| format!(", after {wait:?}"))
                .unwrap_or_default();
            return format!("{} ({permanent}{wait}): {error}", error.code());
        }
        Ok(reply) => reply,
    };
    let mut shown = format!("{:?} by {}\n", reply.finish, reply.model);
    for part in &reply.content {
        // The port of its origin is another one each time.
        let part = format!("{part:?}");
        let (before, behind) = part.split_once("127.0.0.1:").unwrap_or((&part, ""));
        let behind = behind.trim_start_matches(|c: char| c.is_ascii_digit());
        let host = if behind.is_empty() { "" } else { "127.0.0.1" };
        writeln!(shown, "{before}{host}{behind}").unwrap();
    }
    for call in &reply.tool_calls {
        writeln!(
            shown,
            "call {:?} {:?} {}",
            call.id, call.name, call.arguments
        )
        .unwrap();
    }
    let u = &reply.usage;
    write!(
        shown,
        "in {} (cached {}) out {} (reasoning {})",
        u.input_tokens, u.cache_read_tokens, u.output_tokens, u.reasoning_tokens
    )
    .unwrap();
    if let Some(cost) = u.cost_usd {
        write!(shown, " ${cost}").unwrap();
    }
    if u.estimated {
        shown.push_str(" estimated");
    }
    shown
}

fn joined(content: &[ContentPart]) -> (String, String) {
    let (mut text, mut reasoning) = (String::new(), String::new());
    for part in content {
        match part {
            ContentPart::Text { text: piece } => text.push_str(piece),
            ContentPart::Reasoning { text: piece, .. } => reasoning.push_str(piece),
            // It is for the provider alone.
            ContentPart::Attached(_) => {}
            ContentPart::Image { .. } | ContentPart::File { .. } | ContentPart::Digest { .. } => {
                panic!("no model gives {part:?}")
            }
        }
    }
    (text, reasoning)
}

async fn outcome(kind: Kind, path: &Path, body: &[u8], piece: usize) -> String {
    let server = Server::start(answer(path, body, piece)).await;
    let heard = ask(&*model(&settings(kind, &server.url("/v1"))), &hello()).await;
    assert_eq!(
        server.received().len(),
        1,
        "{}: a transport asks once",
        path.display()
    );
    if let Ok(reply) = &heard.reply {
        let whole = joined(&reply.content);
        let interleaved = path.ends_with("interleaved_blocks_and_citations.sse");
        if !interleaved {
            assert_eq!(
                (&heard.text, &heard.reasoning),
                (&whole.0, &whole.1),
                "{}",
                path.display()
            );
        }
        assert!(!format!("{reply:?}").contains("\\0"), "{}", path.display());
    }
    shown(&heard)
}

async fn all(kind: Kind) -> String {
    let mut book = String::new();
    for path in fixtures(kind.as_str()) {
        let body = std::fs::read(&path).unwrap();
        let whole = outcome(kind, &path, &body, usize::MAX).await;
        for piece in [1, 7, 100] {
            let cut = outcome(kind, &path, &body, piece).await;
            assert_eq!(cut, whole, "{} in pieces of {piece}", path.display());
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        writeln!(book, "== {name}\n{whole}\n").unwrap();
    }
    book
}

#[tokio::test]
async fn every_recorded_answer_of_chat_completions_is_read() {
    insta::assert_snapshot!(all(Kind::OpenAi).await);
}

#[tokio::test]
async fn every_recorded_answer_of_responses_is_read() {
    insta::assert_snapshot!(all(Kind::OpenAiResponses).await);
}

#[tokio::test]
async fn every_recorded_answer_of_messages_is_read() {
    insta::assert_snapshot!(all(Kind::Anthropic).await);
}
