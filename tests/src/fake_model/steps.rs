//! The bytes of a stream, the pauses between them, and where it breaks.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::stream;
use mainspring_shared::time::Clock;

use super::answer::Said;
use super::ledger::Open;
use super::prompt::{Prompt, Protocol};
use super::script::Script;
use super::{anthropic, openai, responses};

/// Chunks of a stream without a `stream` directive.
const CHUNKS: usize = 4;

/// A step of a stream.
#[derive(Debug)]
pub(super) enum Step {
    Send(Bytes),
    Pause(Duration),
    /// Lets what was sent reach the wire.
    Flush,
    Break,
}

/// The events of a stream: before, during and after the text.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) before: Vec<String>,
    pub(super) text: Vec<String>,
    pub(super) after: Vec<String>,
}

/// The steps of a stream.
pub(super) fn steps(
    protocol: Protocol,
    prompt: &Prompt,
    script: &Script,
    said: &Said,
    attempt: u32,
    open: &Open,
) -> VecDeque<Step> {
    let (count, pause) = script.stream.unwrap_or((CHUNKS, Duration::ZERO));
    let chunks = pieces(&said.text, count);
    let events = match protocol {
        Protocol::OpenAi => openai::events(said, &chunks, prompt.include_usage),
        Protocol::Responses => responses::events(said, &chunks),
        Protocol::Anthropic => anthropic::events(said, &chunks),
    };
    let silent = script.silent.as_ref().and_then(|silent| silent.at(attempt));
    let cut = script.cut.as_ref().and_then(|cut| cut.at(attempt));
    let error = script.error.as_ref().and_then(|error| error.at(attempt));
    let mut steps = VecDeque::new();
    let send = |steps: &mut VecDeque<Step>, events: Vec<String>| {
        steps.extend(events.into_iter().map(|event| Step::Send(event.into())));
    };
    send(&mut steps, events.before);
    for (n, event) in events.text.into_iter().enumerate() {
        if cut == Some(&n) {
            break;
        }
        if n > 0 && !pause.is_zero() {
            steps.push_back(Step::Pause(pause));
        }
        steps.push_back(Step::Send(event.into()));
        if n == 0
            && let Some(wait) = silent
        {
            steps.push_back(Step::Pause(*wait));
        }
    }
    if cut.is_some() {
        open.answers("cut", 200);
        steps.extend([Step::Flush, Step::Break]);
    } else if let Some(kind) = error {
        open.answers("error", 200);
        let event = match protocol {
            Protocol::OpenAi => openai::error_event(kind),
            Protocol::Responses => responses::error_event(kind),
            Protocol::Anthropic => anthropic::error_event(kind),
        };
        steps.push_back(Step::Send(event.into()));
    } else {
        if script.badutf8 {
            steps.push_back(Step::Send(bad_utf8(protocol)));
        }
        send(&mut steps, events.after);
    }
    if script.split { split(steps) } else { steps }
}

/// The text in at most `count` pieces of about the same length.
fn pieces(text: &str, count: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let count = count.min(chars.len());
    let at = |n: usize| chars.len() * n / count;
    (0..count)
        .map(|n| chars[at(n)..at(n + 1)].iter().collect())
        .collect()
}

fn bad_utf8(protocol: Protocol) -> Bytes {
    let event = match protocol {
        Protocol::OpenAi => openai::text_event("\u{1}"),
        Protocol::Responses => responses::text_event("\u{1}"),
        Protocol::Anthropic => anthropic::text_event("\u{1}"),
    };
    // Where the bad byte goes, as JSON escapes its placeholder.
    let (before, after) = event.split_once("\\u0001").unwrap_or((&event, ""));
    [before.as_bytes(), b"\xff", after.as_bytes()]
        .concat()
        .into()
}

fn split(steps: VecDeque<Step>) -> VecDeque<Step> {
    let mut split = VecDeque::new();
    for step in steps {
        match step {
            Step::Send(bytes) => {
                for at in 0..bytes.len() {
                    split.extend([Step::Send(bytes.slice(at..=at)), Step::Flush]);
                }
            }
            other => split.push_back(other),
        }
    }
    split
}

/// A non-streamed answer; of the directives for streams, only `cut` applies to it.
pub(super) fn whole_of(
    body: &str,
    script: &Script,
    attempt: u32,
    open: Open,
    clock: Arc<dyn Clock>,
) -> Response {
    let mut steps = VecDeque::new();
    if script
        .cut
        .as_ref()
        .is_some_and(|cut| cut.at(attempt).is_some())
    {
        open.answers("cut", 200);
        let half = body.as_bytes()[..body.len() / 2].to_vec();
        steps.extend([Step::Send(half.into()), Step::Flush, Step::Break]);
    } else {
        steps.push_back(Step::Send(body.to_owned().into()));
    }
    stream_of("application/json", steps, open, clock)
}

/// Sends the steps, and closes the ledger entry after the last.
pub(super) fn stream_of(
    content_type: &'static str,
    steps: VecDeque<Step>,
    open: Open,
    clock: Arc<dyn Clock>,
) -> Response {
    let body = stream::unfold(
        (steps, open, clock),
        async |(mut steps, mut open, clock)| {
            loop {
                let Some(step) = steps.pop_front() else {
                    open.sent();
                    return None;
                };
                match step {
                    Step::Send(bytes) => return Some((Ok(bytes), (steps, open, clock))),
                    Step::Pause(wait) => clock.sleep(wait).await,
                    Step::Flush => tokio::task::yield_now().await,
                    Step::Break => {
                        open.sent();
                        steps.clear();
                        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
                        return Some((Err(broken), (steps, open, clock)));
                    }
                }
            }
        },
    );
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::from_stream(body)).into_response()
}
