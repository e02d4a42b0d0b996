//! What a provider counted of a request, for the next one that begins like it.

use super::Request;
use crate::message::{ContentPart, Message, Role};
use crate::usage::Usage;

/// A request that a provider has said the size of, with its answer. The count replaces the estimate of
/// what it covers: the messages that were asked, the answer, and everything in front of them.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The messages that it had, in order.
    asked: Vec<Mark>,
    /// What stood behind them.
    tail: Option<String>,
    /// What they and the answer took, with everything around them.
    tokens: u64,
}

/// What tells a message from another one that stands in its place.
type Mark = (i64, Role, usize);

impl Measured {
    /// What a provider said of a request and its answer; nothing, if that is an estimate itself.
    pub fn of(request: &Request, usage: &Usage) -> Option<Self> {
        (!usage.estimated).then(|| Self {
            asked: request.messages.iter().map(|m| mark(m)).collect(),
            tail: request.tail.clone(),
            tokens: usage.input_tokens.saturating_add(usage.output_tokens),
        })
    }

    /// How many messages of a request are known, and what they take. None unless it begins with just
    /// those that were measured, and the answer behind them: a window that moved begins with others,
    /// which may be of any size.
    pub fn covers(&self, request: &Request) -> Option<(usize, u64)> {
        let (known, rest) = request.messages.split_at_checked(self.asked.len())?;
        let same = known.iter().map(|m| mark(m)).eq(self.asked.iter().copied());
        let answer = rest.first()?;
        let last = self.asked.last();
        let follows = last.is_some_and(|last| last.0 + 1 == answer.seq);
        let answered = same && follows && answer.role == Role::Assistant;
        answered.then_some((known.len() + 1, self.tokens))
    }

    /// Whether the request ends with the tail that was measured.
    pub fn covers_tail(&self, request: &Request) -> bool {
        self.tail == request.tail
    }

    /// What a request takes: what was counted of it, and the rest by these estimates of a message and of
    /// a text. None where nothing of it was counted.
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

fn mark(message: &Message) -> Mark {
    let weights = message.content.iter().map(ContentPart::weight);
    (message.seq, message.role, weights.sum())
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
            system: None,
            messages: messages.collect(),
            max_tokens: 100,
            settled: 0,
            resume: None,
            tail: None,
            cache_key: None,
            temperature: None,
            top_p: None,
            stop: Vec::new(),
            reasoning_effort: None,
            thinking_tokens: None,
            images_max_edge: None,
            tools: Vec::new(),
            output: None,
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
        let measured = Measured::of(&asked, &usage()).expect("counted");
        let longer = |more: &[(i64, Role, usize)]| request(&[&BASE[..], more].concat());
        let (answer, result) = ((4, Role::Assistant, 9), (5, Role::Tool, 30_000));
        assert_eq!(measured.covers(&longer(&[answer, result])), Some((4, 77)));
        assert_eq!(measured.covers(&asked), None, "the answer is not in it");
        // A window that moved has as many messages, but others.
        let moved = request(&[
            BASE[2],
            answer,
            result,
            (6, Role::Assistant, 3),
            (7, Role::User, 3),
        ]);
        assert_eq!(measured.covers(&moved), None);
        // Something else came in between.
        let other = longer(&[(4, Role::User, 30_000), (5, Role::Assistant, 9)]);
        assert_eq!(measured.covers(&other), None);
    }

    #[test]
    fn what_was_counted_replaces_the_estimate_of_what_it_covers() {
        let measured = Measured::of(&request(&BASE), &usage()).expect("counted");
        let more = [(4, Role::Assistant, 9_000), (5, Role::User, 3)];
        let mut next = request(&[&BASE[..], &more].concat());
        let of = |next: &Request| measured.tokens(next, estimate_message_tokens, estimate_tokens);
        assert_eq!(of(&next), Some(77 + 5));
        next.tail = Some("abc".into());
        assert_eq!(of(&next), Some(77 + 5 + 1));
        assert_eq!(of(&request(&more)), None);
    }

    #[test]
    fn an_estimate_measures_nothing() {
        let estimated = Usage {
            estimated: true,
            ..usage()
        };
        assert!(Measured::of(&request(&BASE), &estimated).is_none());
    }
}
