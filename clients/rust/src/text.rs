//! The text of an answer so far, from its events, without what has become void.

use crate::events::TextPiece;
use crate::types::{ContentPart, DeltaEvent, Role, SendEvent};

/// Deltas are put together by round, attempt and offset, in characters. Those of an older attempt are void, and everything
/// streamed is that isn't stored, once a send is resumed. A resumption is durable, so that it may come after the first deltas
/// of the attempt that it began: these stay.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) shown: String,
    send: Option<String>,
    /// Round and attempt.
    at: (i64, i64),
    streamed: String,
    void: bool,
    renewed: bool,
    stored: bool,
}

impl Default for Text {
    fn default() -> Self {
        Self {
            shown: String::new(),
            send: None,
            at: (-1, 0),
            streamed: String::new(),
            void: false,
            renewed: false,
            stored: false,
        }
    }
}

impl Text {
    /// Live events may have been lost.
    pub(crate) fn reconnected(&mut self) {
        self.renewed = false;
    }

    /// What the event changes.
    pub(crate) fn feed(&mut self, event: &SendEvent) -> Option<TextPiece> {
        let send = event.send_id()?;
        if self.send.as_deref() != Some(send) {
            self.send = Some(send.to_owned());
            self.begin((-1, 0));
        }
        match event {
            SendEvent::MessageDelta(delta) => self.delta(delta),
            SendEvent::MessageReset(reset) => {
                let at = (reset.round, reset.attempt);
                if at >= self.at {
                    self.begin(at);
                    self.renewed = true;
                }
            }
            SendEvent::SendResumed(_) => {
                self.void |= !(self.renewed || self.stored);
                self.renewed = false;
            }
            SendEvent::MessageCompleted(message) if message.role == Role::Assistant => {
                let round = i64::from(message.round);
                let attempt = if round == self.at.0 { self.at.1 } else { 0 };
                self.begin((round, attempt));
                let texts = message.content.iter().filter_map(|part| match part {
                    ContentPart::TextPart(part) => Some(part.text.as_str()),
                    _ => None,
                });
                self.streamed = texts.collect();
                self.stored = true;
            }
            SendEvent::SendCompleted(send) => {
                self.streamed = send.output_text.clone().unwrap_or_default();
                self.void = false;
            }
            _ => return None,
        }
        let text = if self.void {
            String::new()
        } else {
            self.streamed.clone()
        };
        self.show(text)
    }

    fn begin(&mut self, at: (i64, i64)) {
        self.at = at;
        self.streamed.clear();
        (self.void, self.renewed, self.stored) = (false, false, false);
    }

    fn delta(&mut self, delta: &DeltaEvent) {
        let at = (delta.round, delta.attempt);
        if at < self.at || (self.stored && at.0 == self.at.0) {
            return;
        }
        if at > self.at {
            let renewed = at.0 == self.at.0;
            self.begin(at);
            self.renewed = renewed;
        }
        let have = self.streamed.chars().count();
        let offset = usize::try_from(delta.offset).unwrap_or_default();
        if offset <= have {
            self.streamed.extend(delta.text.chars().skip(have - offset));
            self.void = false;
        }
    }

    fn show(&mut self, text: String) -> Option<TextPiece> {
        let before = std::mem::replace(&mut self.shown, text.clone());
        if text == before {
            return None;
        }
        Some(match text.strip_prefix(before.as_str()) {
            Some(more) => TextPiece {
                text: more.to_owned(),
                replace: false,
            },
            None => TextPiece {
                text,
                replace: true,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(name: &str, mut data: Value) -> SendEvent {
        data["send_id"] = "snd_1".into();
        SendEvent::read(name, data).expect("an event")
    }

    fn delta(attempt: i64, offset: i64, text: &str) -> SendEvent {
        let data = json!({"round": 0, "attempt": attempt, "offset": offset, "text": text});
        event("message.delta", data)
    }

    fn resumed() -> SendEvent {
        let data = json!({"id": "snd_1", "status": "running", "at": "2026-01-01T00:00:00Z"});
        event("send.resumed", data)
    }

    #[test]
    fn what_a_dead_worker_said_is_void_and_what_its_heir_says_is_not() {
        let mut text = Text::default();
        text.feed(&delta(1, 0, "It was l\u{f6}st"));
        let reset = json!({"round": 0, "attempt": 2, "reason": "takeover"});
        let reset = SendEvent::read("message.reset", {
            let mut reset = reset;
            reset["send_id"] = "snd_1".into();
            reset
        });
        let piece = text.feed(&reset.expect("a reset"));
        assert_eq!(
            piece.map(|piece| (piece.replace, piece.text)),
            Some((true, String::new()))
        );
        text.feed(&delta(2, 0, "It was"));
        assert_eq!(text.feed(&resumed()), None);
        assert_eq!(text.shown, "It was");
        text.feed(&delta(2, 4, "as sent"));
        assert_eq!(text.shown, "It was sent");
        assert_eq!(text.feed(&delta(1, 11, " late")), None);
    }

    #[test]
    fn a_resumption_alone_makes_what_was_streamed_void() {
        let mut text = Text::default();
        text.feed(&delta(1, 0, "abc"));
        text.feed(&resumed());
        assert_eq!(text.shown, "");
        text.feed(&delta(1, 3, "d"));
        assert_eq!(text.shown, "abcd");
    }

    #[test]
    fn a_gap_shows_nothing_wrong() {
        let mut text = Text::default();
        assert_eq!(text.feed(&delta(1, 3, "d")), None);
        text.feed(&delta(1, 0, "abc"));
        assert_eq!(text.shown, "abc");
    }
}
