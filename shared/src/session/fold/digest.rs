//! Digests: short texts that stand for a send, made without a model. The same messages always give
//! the same text.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;

use super::Fold;
use crate::message::{ContentPart, FileSource, Message, Role, ToolCall, digest_of, plain_text};
use crate::model::expect_tokens;

/// Characters of a user message that a digest shows.
const INPUT_CHARS: usize = 1_000;

/// Characters of an answer that a digest shows.
const ANSWER_CHARS: usize = 600;

/// Characters of a tool result that a digest shows.
const RESULT_CHARS: usize = 160;

/// Characters of each of a call's arguments that a digest shows.
const ARGUMENT_CHARS: usize = 60;

/// Arguments of a call that a digest shows.
const ARGUMENTS: usize = 4;

/// Line lengths in characters that are tried in turn if a digest must be shorter.
const LINE_CHARS: [usize; 5] = [400, 160, 80, 40, 24];

/// The digest of a finished send: what was said, in order, one line per call, and the answer. `#N`
/// is the number of a message, which `recall` accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest {
    /// What the user said.
    pub asked: String,
    /// What was done and answered.
    pub done: String,
}

/// The digest of a send's messages.
pub fn of_send(messages: &[Arc<Message>]) -> Digest {
    let (mut asked, mut done) = (String::new(), String::new());
    let last = messages.iter().rposition(|m| m.role == Role::Assistant);
    for (place, message) in messages.iter().enumerate() {
        match message.role {
            Role::User => {
                let text = cut(&shown(&message.content), INPUT_CHARS);
                line(&mut asked, &format!("[#{}] {text}", message.seq));
            }
            Role::Assistant => {
                for call in &message.tool_calls {
                    line(&mut done, &called(message.seq, call, messages));
                }
                let text = plain_text(&message.content);
                if Some(place) == last && !text.trim().is_empty() {
                    let text = cut(&text, ANSWER_CHARS);
                    line(&mut done, &format!("[#{}] {text}", message.seq));
                }
            }
            Role::Tool => {}
        }
    }
    if done.is_empty() {
        done.push_str("(no output)");
    }
    Digest { asked, done }
}

/// The digest of these folds and the messages after them, in at most about `tokens` tokens: lines
/// are shortened first, then the oldest are dropped.
pub fn of_span(folds: &[Arc<Fold>], messages: &[Arc<Message>], tokens: u64) -> String {
    let mut text = String::new();
    for fold in folds {
        line(&mut text, &fold.text);
    }
    for send in sends(messages) {
        let Digest { asked, done } = of_send(send);
        if !asked.is_empty() {
            line(&mut text, &format!("user: {asked}"));
        }
        line(&mut text, &format!("assistant: {done}"));
    }
    fitting(text, tokens)
}

fn fitting(mut text: String, tokens: u64) -> String {
    for chars in LINE_CHARS {
        if expect_tokens(&text) <= tokens {
            return text;
        }
        let lines = text.lines().map(|line| cut(line, chars));
        text = lines.collect::<Vec<_>>().join("\n");
    }
    let lines: Vec<&str> = text.lines().collect();
    let mut left = tokens;
    let newest = lines.iter().rev().take_while(|line| {
        let takes = expect_tokens(line) + 1;
        let fits = takes <= left;
        left = left.saturating_sub(takes);
        fits
    });
    match lines.len() - newest.count() {
        0 => text,
        gone => format!(
            "[{gone} older lines left out]\n{}",
            lines[gone..].join("\n")
        ),
    }
}

/// Groups messages by send, in order.
pub fn sends(messages: &[Arc<Message>]) -> impl Iterator<Item = &[Arc<Message>]> {
    messages.chunk_by(|a, b| a.send_id == b.send_id)
}

/// A call with the digest that its tool gave of the result, or else with its arguments and the
/// beginning of the result.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "every other kind is shown alike"
)]
fn called(seq: i64, call: &ToolCall, messages: &[Arc<Message>]) -> String {
    let result = messages
        .iter()
        .find(|message| message.tool_call_id.as_ref() == Some(&call.id));
    let failed = |result: &Message| if result.failed { "failed: " } else { "" };
    if let Some((result, said)) = result.and_then(|it| Some((it, digest_of(&it.content)?))) {
        return format!("[#{seq}] {} \u{2192} {}{said}", call.name, failed(result));
    }
    let arguments = match &*call.arguments {
        Value::Object(members) => {
            let shown = members.iter().take(ARGUMENTS);
            let shown = shown.map(|(name, value)| format!("{name}={}", argument(value)));
            let mut shown: Vec<_> = shown.collect();
            if members.len() > ARGUMENTS {
                shown.push("\u{2026}".to_owned());
            }
            shown.join(", ")
        }
        other => argument(other),
    };
    let mut text = format!("[#{seq}] {}({arguments})", call.name);
    if let Some(result) = result {
        let said = cut(&one_line(&shown(&result.content)), RESULT_CHARS);
        // Writing to a string cannot fail.
        let _ = write!(text, " \u{2192} {}{said}", failed(result));
    }
    text
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "every other kind is shown alike"
)]
fn argument(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    cut(&one_line(&text), ARGUMENT_CHARS)
}

/// The text of the parts; other parts are named.
pub fn shown(parts: &[ContentPart]) -> String {
    let parts = parts.iter().filter_map(|part| match part {
        ContentPart::Text { text } => Some(text.clone()),
        ContentPart::Reasoning { .. } | ContentPart::Digest { .. } | ContentPart::Attached(_) => {
            None
        }
        ContentPart::Image { .. } => Some("[image]".to_owned()),
        ContentPart::File { name, source } => Some(match source {
            FileSource::Text { text } => format!("[file {name}]\n{text}"),
            FileSource::Base64 { .. } | FileSource::Blob { .. } => format!("[file {name}]"),
        }),
    });
    parts.collect::<Vec<_>>().join("\n\n")
}

/// The first `chars` characters, with an ellipsis if anything was cut.
pub fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}\u{2026}", &text[..end]),
        None => text.to_owned(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn line(text: &mut String, more: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(more);
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::id::SendId;
    use crate::message::NewMessage;
    use crate::time::Timestamp;

    fn message(seq: i64, role: Role, text: &str) -> Message {
        let new = NewMessage {
            role,
            ..NewMessage::user(vec![ContentPart::text(text)], 0)
        };
        new.at(seq, SendId(Uuid::from_u128(1)), Timestamp(0), 1)
    }

    #[test]
    fn a_send_is_what_was_asked_a_line_per_call_and_the_answer() {
        let mut asks = message(2, Role::Assistant, "Let me look.");
        let arguments = json!({"path": "a.txt", "lines": [1, 2]});
        asks.tool_calls = vec![ToolCall::new("c", "read_file", arguments)];
        let mut result = message(3, Role::Tool, "first\n  second");
        result.tool_call_id = Some("c".into());
        let messages = [
            message(1, Role::User, "What is in it?"),
            asks,
            result,
            message(4, Role::Assistant, "Two lines."),
        ]
        .map(Arc::new);
        let digest = of_send(&messages);
        assert_eq!(digest.asked, "[#1] What is in it?");
        assert_eq!(
            digest.done,
            "[#2] read_file(path=a.txt, lines=[1,2]) \u{2192} first second\n[#4] Two lines."
        );
        assert_eq!(
            of_span(&[], &messages, 1_000),
            format!("user: {}\nassistant: {}", digest.asked, digest.done)
        );
    }

    #[test]
    fn a_call_is_what_its_tool_says_of_it_where_it_says_anything() {
        let mut asks = message(2, Role::Assistant, "");
        let ids = ["a", "b"].map(str::to_owned);
        asks.tool_calls = ids
            .clone()
            .map(|id| ToolCall::new(id, "read_file", json!({"path": "a.txt"})))
            .into();
        let said = |seq, id: &str, failed| {
            let mut result = message(seq, Role::Tool, "the whole file");
            result.tool_call_id = Some(id.into());
            let text = "read a.txt, 930 lines".to_owned();
            result.content.push(ContentPart::Digest { text });
            Message { failed, ..result }
        };
        let messages = [asks, said(3, "a", false), said(4, "b", true)].map(Arc::new);
        assert_eq!(
            of_send(&messages).done,
            "[#2] read_file \u{2192} read a.txt, 930 lines\n\
             [#2] read_file \u{2192} failed: read a.txt, 930 lines"
        );
    }

    #[test]
    fn a_send_without_an_answer_says_so_and_long_texts_are_cut() {
        let long = "x".repeat(INPUT_CHARS + 1);
        let digest = of_send(&[Arc::new(message(9, Role::User, &long))]);
        assert_eq!(digest.done, "(no output)");
        assert_eq!(
            digest.asked.chars().count(),
            "[#9] ".len() + INPUT_CHARS + 1
        );
    }

    #[test]
    fn a_digest_is_shortened_until_it_fits_and_keeps_the_newest() {
        let long = "several words that say what was wanted ".repeat(20);
        let messages: Vec<_> = (1..=50)
            .map(|seq| Arc::new(message(seq, Role::User, &long)))
            .collect();
        let mut before = u64::MAX;
        for tokens in [4_000, 1_000, 300, 50] {
            let text = of_span(&[], &messages, tokens);
            let takes = expect_tokens(&text);
            assert!(
                takes <= tokens + 10 && takes < before,
                "{takes} of {tokens}"
            );
            assert!(text.contains("[#50]"), "{text}");
            before = takes;
        }
        assert!(of_span(&[], &messages, 50).starts_with('['));
    }
}
