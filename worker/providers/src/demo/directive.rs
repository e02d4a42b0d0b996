//! Parses the directives in a text.

use std::time::Duration;

use mainspring_shared::message::ToolCall;
use mainspring_shared::time::Span;
use serde_json::{Map, Value};

use mainspring_worker::llm::json;

/// Maximum number of chunks that can be requested.
const CHUNKS_MAX: usize = 10_000;

/// The longest wait that can be requested.
const WAIT_MAX: Duration = Duration::from_hours(1);

/// Maximum number of tool calls in one answer.
const CALLS_MAX: usize = 64;

/// A way to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fail {
    /// As a response with this status and retry-after time.
    Status(u16, Option<Duration>),
    Timeout,
    Refused,
    Overflow,
    Garbage,
}

/// The directives of a text. If one occurs several times, the first one counts, except for tools.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Directives {
    pub(super) calls: Vec<ToolCall>,
    pub(super) sleep: Option<Duration>,
    pub(super) pace: Option<(usize, Duration)>,
    pub(super) fail: Option<Fail>,
}

impl Directives {
    pub(super) fn read(text: &str) -> Self {
        let mut found = Self::default();
        let mut rest = text;
        let mut at_start = true;
        while let Some(at) = rest.find('!') {
            let begins = if at == 0 {
                at_start
            } else {
                rest[..at].ends_with(char::is_whitespace)
            };
            rest = &rest[at + 1..];
            at_start = false;
            if begins {
                rest = found.one(rest);
                at_start = rest.starts_with('!');
            }
        }
        found
    }

    /// Parses the directive after a `!`; returns the rest of the text.
    fn one<'t>(&mut self, text: &'t str) -> &'t str {
        let (keyword, rest) = word(text);
        match keyword {
            "tool" => {
                let (name, rest) = word(rest);
                if name.is_empty() || self.calls.len() == CALLS_MAX {
                    return text;
                }
                let (arguments, rest) = object(rest);
                let id = format!("call_{}", self.calls.len());
                self.calls.push(ToolCall::new(id, name, arguments));
                rest
            }
            "sleep" => {
                let (wait, rest) = word(rest);
                let Some(wait) = span(wait) else { return text };
                self.sleep.get_or_insert(wait);
                rest
            }
            "stream" => {
                let (pace, rest) = word(rest);
                let read = pace.split_once('x').and_then(|(count, pause)| {
                    let count = count
                        .parse()
                        .ok()
                        .filter(|n| (1..=CHUNKS_MAX).contains(n))?;
                    Some((count, span(pause)?))
                });
                let Some(pace) = read else { return text };
                self.pace.get_or_insert(pace);
                rest
            }
            "fail" => {
                let (how, rest) = word(rest);
                let (wait, after) = word(rest);
                let wait = span(wait);
                let Some(fail) = fail(how, wait) else {
                    return text;
                };
                self.fail.get_or_insert(fail);
                if wait.is_some() { after } else { rest }
            }
            _ => text,
        }
    }
}

fn fail(how: &str, wait: Option<Duration>) -> Option<Fail> {
    Some(match how {
        "timeout" => Fail::Timeout,
        "refused" => Fail::Refused,
        "overflow" => Fail::Overflow,
        "garbage" => Fail::Garbage,
        status => Fail::Status(
            status.parse().ok().filter(|s| (400..600).contains(s))?,
            wait,
        ),
    })
}

fn span(text: &str) -> Option<Duration> {
    text.parse().ok().map(|Span(wait)| wait.min(WAIT_MAX))
}

/// The next word, and the rest of the text.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(' ');
    text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()))
}

/// The JSON object at the start of `text`, or an empty one.
fn object(text: &str) -> (Value, &str) {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    match values.next() {
        Some(Ok(object @ Value::Object(_))) => {
            (json::clean_value(object), &text[values.byte_offset()..])
        }
        _ => (Value::Object(Map::new()), text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(n: usize, name: &str, arguments: Value) -> ToolCall {
        ToolCall::new(format!("call_{n}"), name, arguments)
    }

    #[test]
    fn directives_are_found_anywhere_in_a_text() {
        let found = Directives::read(
            "please !tool a {\"x\": \"!sleep 1s\"} and !tool b\n!sleep 200ms, no: !sleep 200ms !stream 20x10ms !fail 429 2s",
        );
        assert_eq!(
            found.calls,
            [
                call(0, "a", json!({"x": "!sleep 1s"})),
                call(1, "b", json!({}))
            ]
        );
        assert_eq!(found.sleep, Some(Duration::from_millis(200)));
        assert_eq!(found.pace, Some((20, Duration::from_millis(10))));
        assert_eq!(
            found.fail,
            Some(Fail::Status(429, Some(Duration::from_secs(2))))
        );
    }

    #[test]
    fn what_only_looks_like_a_directive_is_text() {
        for text in [
            "hello!",
            "wow!sleep 1s",
            "!",
            "!!",
            "!tool",
            "!sleep soon",
            "!stream 0x1ms",
            "!stream 99999x1ms",
            "!fail 200",
            "!fail",
            "! sleep 1",
        ] {
            assert_eq!(Directives::read(text), Directives::default(), "{text}");
        }
    }

    #[test]
    fn every_way_to_fail_has_a_name() {
        let fail = |text: &str| Directives::read(text).fail;
        assert_eq!(fail("!fail 503"), Some(Fail::Status(503, None)));
        assert_eq!(fail("!fail timeout"), Some(Fail::Timeout));
        assert_eq!(fail("!fail refused"), Some(Fail::Refused));
        assert_eq!(fail("!fail overflow"), Some(Fail::Overflow));
        assert_eq!(fail("!fail garbage"), Some(Fail::Garbage));
    }
}
