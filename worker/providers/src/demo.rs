//! A model that needs no network and always answers with what the user said last.
//!
//! Directives in that text make it do more. Each is at the start of a line or follows a blank:
//!
//! | directive | does |
//! |---|---|
//! | `!tool NAME {json}` | calls a tool; may be repeated; once the results are there, it answers with them |
//! | `!then` | what follows applies to the next round, once the results are there |
//! | `!sleep 200ms` | waits before it begins |
//! | `!stream 20x10ms` | answers in exactly 20 chunks, 10 ms apart; pads shorter texts with dots |
//! | `!fail 429 2s` | fails as a response with this status would, optionally with a retry-after time |
//! | `!fail WORD` | fails as `timeout`, `refused`, `overflow` or `garbage` |
//!
//! If an output schema is given, it answers with a small value that matches, with strings made from the
//! text that it would have said.
//!
//! If any JSON object is asked for, it answers with one whose `text` is what it would have said.
//!
//! If asked to continue a truncated answer, it says the rest of it.
//!
//! If the user's message has no text, it names what there was instead: `[image]`, `[file]`, or
//! `(no text)`.
//!
//! Its vectors are made of the words of a text: see [`DemoVectors`].
//!
//! Malformed directives are plain text. After tool results, only `!stream` applies.

mod directive;
mod sample;
mod vectors;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::message::{ContentPart, Message, Role, ToolCall, plain_text, texts};
use mainspring_shared::time::Clock;
use mainspring_shared::usage::Usage;

use self::directive::{Directives, Fail};
pub use self::vectors::DemoVectors;
use crate::status;
use mainspring_worker::llm::{Chunk, Finish, Model, Reply, Request, json};
use mainspring_worker::llm::{Error, Wait};

/// Separates what applies to one round from what applies to the next.
const THEN: &str = "!then";

/// Occurs in the message that tells a model to continue a truncated answer.
const GO_ON: &str = "Go on exactly where it stops";

/// The `demo` provider.
#[derive(Debug)]
pub struct Demo {
    clock: Arc<dyn Clock>,
}

impl Demo {
    /// A model that waits on `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock }
    }

    async fn say(
        &self,
        text: &str,
        pace: Option<(usize, Duration)>,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) {
        let Some((count, pause)) = pace else {
            if !text.is_empty() {
                on_chunk(Chunk::Text(text));
            }
            return;
        };
        let chars = text.chars().count();
        let mut rest = text;
        for n in 0..count {
            if n > 0 {
                self.clock.sleep(pause).await;
            }
            let len = chars * (n + 1) / count - chars * n / count;
            let end = rest
                .char_indices()
                .nth(len)
                .map_or(rest.len(), |(at, _)| at);
            let (chunk, more) = rest.split_at(end);
            on_chunk(Chunk::Text(chunk));
            rest = more;
        }
    }
}

#[async_trait]
impl Model for Demo {
    async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        let (messages, before) = going_on(&request.messages);
        let last_user = messages.iter().rev().find(|m| m.role == Role::User);
        let content = last_user.map(|m| m.content.as_slice()).unwrap_or_default();
        let asked = plain_text(content);
        let asked = match json::clean(&asked) {
            blank if blank.trim().is_empty() => Cow::Owned(named(content)),
            asked => asked,
        };
        let since = messages.iter().rev();
        let since = since.take_while(|m| m.role != Role::User);
        let turn = since.filter(|m| m.role == Role::Assistant).count();
        let stage = asked.split(THEN).nth(turn).map(str::to_owned);
        let directives = Directives::read(stage.as_deref().unwrap_or(&asked));
        let mut text = asked.into_owned();
        let mut tool_calls = Vec::new();
        if let (None, Some(results)) = (&stage, results(messages)) {
            text = results;
        } else {
            if let Some(wait) = directives.sleep {
                self.clock.sleep(wait).await;
            }
            if let Some(fail) = directives.fail {
                return Err(error(&fail));
            }
            tool_calls = directives.calls;
        }
        let padding = match &request.output {
            Some(output) => {
                text = sample::sample(&output.schema, &text).to_string();
                ' '
            }
            None if request.json_object => {
                text = serde_json::json!({ "text": text }).to_string();
                ' '
            }
            None => '.',
        };
        if !tool_calls.is_empty() {
            text.clear();
        } else if let Some((count, _)) = directives.pace {
            let missing = count.saturating_sub(text.chars().count());
            text.extend(std::iter::repeat_n(padding, missing));
        }
        let mut pace = directives.pace;
        if let Some(rest) = text.strip_prefix(&before).filter(|_| !before.is_empty()) {
            if let Some((count, _)) = &mut pace {
                let (rest, whole) = (rest.chars().count(), text.chars().count());
                // About as fast as before.
                *count = ((*count * rest + whole / 2) / whole.max(1)).max(1);
            }
            text = rest.to_owned();
        }
        self.say(&text, pace.filter(|_| !text.is_empty()), on_chunk)
            .await;
        Ok(reply(request, text, tool_calls))
    }
}

/// Names the content of a message without text.
fn named(content: &[ContentPart]) -> String {
    let names = content.iter().filter_map(|part| match part {
        ContentPart::Image { .. } => Some("[image]"),
        ContentPart::File { .. } => Some("[file]"),
        ContentPart::Text { .. }
        | ContentPart::Reasoning { .. }
        | ContentPart::Digest { .. }
        | ContentPart::Attached(_) => None,
    });
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        "(no text)".to_owned()
    } else {
        names.join(" ")
    }
}

/// The conversation up to an answer that is to be continued, and the text of that answer so far.
fn going_on(messages: &[Arc<Message>]) -> (&[Arc<Message>], String) {
    match messages {
        [before @ .., said, told]
            if said.role == Role::Assistant && plain_text(&told.content).contains(GO_ON) =>
        {
            (before, plain_text(&said.content))
        }
        _ => (messages, String::new()),
    }
}

fn reply(request: &Request, text: String, tool_calls: Vec<ToolCall>) -> Reply {
    let words = |text: &str| text.split_whitespace().count() as u64;
    let said = |m: &Arc<Message>| texts(&m.content).map(words).sum::<u64>();
    let called: u64 = tool_calls
        .iter()
        .map(|c| words(&c.name) + words(&c.arguments.to_string()))
        .sum();
    let usage = Usage {
        input_tokens: request.messages.iter().map(said).sum::<u64>()
            + request.system.as_deref().map_or(0, words)
            + request.tail.as_deref().map_or(0, words),
        output_tokens: words(&text) + called,
        ..Usage::default()
    };
    let content = if text.is_empty() {
        Vec::new()
    } else {
        vec![ContentPart::Text { text }]
    };
    let finish = if tool_calls.is_empty() {
        Finish::Stop
    } else {
        Finish::ToolCalls
    };
    Reply {
        content,
        tool_calls,
        finish,
        usage,
        model: request.model.clone(),
    }
}

/// The text of the tool results, if the conversation ends with them.
fn results(messages: &[Arc<Message>]) -> Option<String> {
    let after = messages
        .iter()
        .rposition(|m| m.role != Role::Tool)
        .map_or(0, |at| at + 1);
    let mut text = String::new();
    for message in &messages[after..] {
        if !text.is_empty() {
            text.push('\n');
        }
        let name = message.name.as_deref().unwrap_or("tool");
        let _ = write!(text, "{name} answered: {}", plain_text(&message.content));
    }
    (after < messages.len()).then_some(text)
}

fn error(fail: &Fail) -> Error {
    match *fail {
        Fail::Status(code, wait) => {
            status::classify(code, &status::Refusal::said("as asked"), wait)
        }
        Fail::Timeout => Error::Timeout {
            wait: Wait::FirstByte,
            limit: Duration::ZERO,
        },
        Fail::Refused => Error::Refused {
            message: "as asked".to_owned(),
        },
        Fail::Overflow => Error::ContextOverflow {
            message: "as asked".to_owned(),
        },
        Fail::Garbage => Error::bad("as asked"),
    }
}

#[cfg(test)]
#[path = "demo/tests.rs"]
mod tests;
