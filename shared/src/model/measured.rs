//! A provider's count of a request, reused for the next one with the same prefix.

use serde::{Deserialize, Serialize};

use super::{Calibration, Request, expect_message_tokens, expect_tokens};
use crate::message::{ContentPart, Message, Role};
use crate::usage::Usage;

/// The provider's token counts of a request and its answer. They replace the estimate of what they
/// cover: the request's messages, the answer, and everything before them. Small, so that it is
/// stored with the round: a worker that takes the send over decides by the same numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Identifies the request's messages.
    asked: Marks,
    /// Bytes of the request's tail.
    #[serde(default)]
    tail: u64,
    /// Tokens of the whole request.
    input: u64,
    /// Tokens of the answer.
    output: u64,
    /// Expected tokens of the request, before any correction.
    expected: u64,
}

/// A fingerprint that distinguishes messages from others in their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Marks {
    count: u64,
    first: i64,
    last: i64,
    weight: u64,
}

impl Measured {
    /// The provider's counts of a request with this expected size, and its answer; `None` if they
    /// are themselves estimates.
    pub fn of(request: &Request, usage: &Usage, expected: u64) -> Option<Self> {
        (!usage.estimated).then(|| Self {
            asked: Marks::of(request.messages.iter().map(AsRef::as_ref)),
            tail: tail(request),
            input: usage.input_tokens,
            output: usage.output_tokens,
            expected,
        })
    }

    /// How many messages of a request are covered, and their tokens. `None` unless the request
    /// starts with exactly the measured messages, followed by the answer: a window that moved
    /// starts with other messages, of unknown size.
    pub fn covers(&self, request: &Request) -> Option<(usize, u64)> {
        let count = usize::try_from(self.asked.count).ok()?;
        let (known, rest) = request.messages.split_at_checked(count)?;
        let answer = rest.first()?;
        let follows = count > 0 && self.asked.last + 1 == answer.seq;
        let answered = follows && answer.role == Role::Assistant;
        let same = answered && Marks::of(known.iter().map(AsRef::as_ref)) == self.asked;
        same.then_some((count + 1, self.input.saturating_add(self.output)))
    }

    /// Whether the request's tail has the measured size.
    pub fn covers_tail(&self, request: &Request) -> bool {
        self.tail == tail(request)
    }

    /// The calibration from these counts, for a model whose facts say `tokens`.
    pub fn calibration(&self, tokens: f64) -> Calibration {
        let mut calibration = Calibration::new(tokens);
        calibration.observe(self.expected, self.input);
        calibration
    }

    /// The expected tokens of a request to a model whose facts say `tokens`: what was counted, plus
    /// the rest estimated with the same calibration. `None` if nothing of it was counted.
    pub fn expects(&self, request: &Request, tokens: f64) -> Option<u64> {
        let calibration = self.calibration(tokens);
        let of_message = |message: &Message| calibration.of(expect_message_tokens(message));
        let of_text = |text: &str| calibration.of(expect_tokens(text));
        self.tokens(request, of_message, of_text)
    }

    /// The tokens of a request: what was counted, plus the rest by these estimates of a message and
    /// of a text. `None` if nothing of it was counted.
    pub fn tokens(
        &self,
        request: &Request,
        of_message: impl Fn(&Message) -> u64,
        of_text: impl Fn(&str) -> u64,
    ) -> Option<u64> {
        let (count, known) = self.covers(request)?;
        let rest: u64 = request.messages[count..]
            .iter()
            .map(|m| of_message(m))
            .sum();
        let tail = request.tail.as_deref();
        let tail = tail
            .filter(|_| !self.covers_tail(request))
            .map_or(0, of_text);
        Some(known + rest + tail)
    }
}

impl Marks {
    fn of<'m>(messages: impl Iterator<Item = &'m Message>) -> Self {
        messages.fold(Self::default(), |marks, message| Self {
            count: marks.count + 1,
            first: if marks.count == 0 {
                message.seq
            } else {
                marks.first
            },
            last: message.seq,
            weight: marks.weight + weight(message),
        })
    }
}

fn weight(message: &Message) -> u64 {
    let weights = message.content.iter().map(ContentPart::weight);
    weights.map(|weight| weight as u64).sum()
}

fn tail(request: &Request) -> u64 {
    request.tail.as_ref().map_or(0, |tail| tail.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::id::SendId;
    use crate::message::{ContentPart, NewMessage};
    use crate::model::estimate_message_tokens;
    use crate::model::estimate_tokens;
    use crate::time::Timestamp;

    fn request(messages: &[(i64, Role, usize)]) -> Request {
        let messages = messages.iter().map(|(seq, role, chars)| {
            let new = NewMessage {
                role: *role,
                ..NewMessage::user(vec![ContentPart::text("a".repeat(*chars))], 0)
            };
            Arc::new(new.at(*seq, SendId(uuid::Uuid::nil()), Timestamp(0), 1))
        });
        Request {
            model: "m".into(),
            messages: messages.collect(),
            max_tokens: 100,
            ..Request::default()
        }
    }

    fn usage() -> Usage {
        Usage {
            input_tokens: 70,
            output_tokens: 7,
            ..Usage::default()
        }
    }

    const BASE: [(i64, Role, usize); 3] = [
        (1, Role::User, 30),
        (2, Role::Assistant, 30),
        (3, Role::User, 3),
    ];

    #[test]
    fn only_the_same_beginning_of_a_request_is_known() {
        let asked = request(&BASE);
        let measured = Measured::of(&asked, &usage(), 70).expect("counted");
        let longer = |more: &[(i64, Role, usize)]| request(&[&BASE[..], more].concat());
        let (answer, result) = ((4, Role::Assistant, 9), (5, Role::Tool, 30_000));
        assert_eq!(measured.covers(&longer(&[answer, result])), Some((4, 77)));
        assert_eq!(measured.covers(&asked), None, "the answer is not in it");
        // A window that moved has the same number of messages, but different ones.
        let moved = request(&[
            BASE[2],
            answer,
            result,
            (6, Role::Assistant, 3),
            (7, Role::User, 3),
        ]);
        assert_eq!(measured.covers(&moved), None);
        // Another message is in between.
        let other = longer(&[(4, Role::User, 30_000), (5, Role::Assistant, 9)]);
        assert_eq!(measured.covers(&other), None);
    }

    #[test]
    fn what_was_counted_replaces_the_estimate_of_what_it_covers() {
        let measured = Measured::of(&request(&BASE), &usage(), 70).expect("counted");
        let more = [(4, Role::Assistant, 9_000), (5, Role::User, 3)];
        let mut next = request(&[&BASE[..], &more].concat());
        let of = |next: &Request| measured.tokens(next, estimate_message_tokens, estimate_tokens);
        assert_eq!(of(&next), Some(77 + 5));
        next.tail = Some("abc".into());
        assert_eq!(of(&next), Some(77 + 5 + 1));
        assert_eq!(of(&request(&more)), None);
    }

    #[test]
    fn other_messages_in_the_same_place_are_not_known() {
        let measured = Measured::of(&request(&BASE), &usage(), 70).expect("counted");
        let mut other = BASE;
        other[1].2 += 1;
        let next = [&other[..], &[(4, Role::Assistant, 9)]].concat();
        assert_eq!(measured.covers(&request(&next)), None);
    }

    #[test]
    fn its_calibration_is_what_was_counted_for_what_was_expected() {
        let counted = Usage {
            input_tokens: 1_500,
            ..usage()
        };
        let measured = Measured::of(&request(&BASE), &counted, 1_000).expect("counted");
        assert_eq!(measured.calibration(1.0).of(100), 150);
        let short = Measured::of(&request(&BASE), &usage(), 70).expect("counted");
        assert_eq!(short.calibration(1.2).of(100), 120, "too short to tell");
    }

    #[test]
    fn an_estimate_measures_nothing() {
        let estimated = Usage {
            estimated: true,
            ..usage()
        };
        assert!(Measured::of(&request(&BASE), &estimated, 70).is_none());
    }
}
