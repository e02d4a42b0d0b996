//! The active window: the messages that the next model call sees.
//!
//! It is a function of rows alone: the transcript's tail and the start of the send's window. So a
//! worker that has the session cached and one that loads it afresh send the model the same request,
//! byte for byte.
//!
//! A bounded window moves in blocks and only between sends ([`from_seq`]). In between, each request
//! starts with the bytes of the previous one, which the provider can serve from its prompt cache.

use std::sync::Arc;

use crate::message::{Message, Role};
use crate::session::fold::{self, Fold};
use crate::session::projection::{Projected, Projection};

/// A contiguous tail of a transcript, at least as long as the active window.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Window {
    messages: Vec<Arc<Message>>,
    /// Digests of the sends before them, in order; the messages of those sends are not held.
    projections: Vec<Arc<Projection>>,
    /// The folds of the messages before those, in order.
    folds: Vec<Arc<Fold>>,
    next_seq: i64,
    /// The last message up to which each send's projection is known to be stored.
    projected_to: i64,
    /// Maintained incrementally, so that a cache need not walk a long transcript after each send.
    weight: usize,
}

/// Messages that do not directly follow the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("message {found} does not follow {expected}")]
pub struct Gap {
    /// The expected `seq`.
    pub expected: i64,
    /// The actual `seq`.
    pub found: i64,
}

impl Window {
    /// The window of a session without messages.
    pub fn empty() -> Self {
        Self {
            next_seq: 1,
            ..Self::default()
        }
    }

    /// A tail that ends just before `next_seq`.
    pub fn new(messages: Vec<Message>, next_seq: i64) -> Result<Self, Gap> {
        let start = next_seq - messages.len() as i64;
        let mut window = Self {
            messages: Vec::with_capacity(messages.len()),
            next_seq: start,
            ..Self::default()
        };
        window.extend(messages)?;
        Ok(window)
    }

    /// The window with these folds in front of it; covered folds are dropped.
    #[must_use]
    pub fn behind(mut self, mut folds: Vec<Fold>) -> Self {
        self.weight -= self
            .folds
            .drain(..)
            .map(|fold| fold_weight(&fold))
            .sum::<usize>();
        folds.retain(|fold| fold.covered_by.is_none());
        folds.sort_by_key(|fold| fold.from_seq);
        self.weight += folds.iter().map(fold_weight).sum::<usize>();
        self.folds = folds.into_iter().map(Arc::new).collect();
        self
    }

    /// The window with these projections in place of the messages before those it holds.
    pub fn projected(mut self, projected: Projected) -> Result<Self, Gap> {
        let first = projected.shown.first();
        let mut expected = first.map_or(self.messages_from(), |first| first.from_seq);
        let begins = projected
            .shown
            .iter()
            .map(|it| (it.from_seq, it.to_seq + 1));
        for (found, next) in begins.chain([(self.messages_from(), 0)]) {
            if found != expected {
                return Err(Gap { expected, found });
            }
            expected = next;
        }
        self.weight += projected
            .shown
            .iter()
            .map(Projection::weight)
            .sum::<usize>();
        self.projections = projected.shown.into_iter().map(Arc::new).collect();
        self.projected_to = projected.stored_to;
        Ok(self)
    }

    /// The projections shown in the active window that starts at this `seq`.
    pub fn projections(&self, from: i64) -> &[Arc<Projection>] {
        let begin = fold::begin(from, self.fold_end());
        let before = self.projections.iter();
        let before = before.take_while(|it| it.from_seq < begin).count();
        &self.projections[before..]
    }

    /// Whether the active window that starts at this `seq` starts in the middle of a projection.
    pub fn cuts(&self, from: i64) -> bool {
        let begin = fold::begin(from, self.fold_end());
        let mut all = self.projections.iter();
        all.any(|it| it.from_seq < begin && begin <= it.to_seq)
    }

    /// The last message up to which each send's projection is known to be stored; 0 if none is.
    pub fn projected_to(&self) -> i64 {
        self.projected_to
    }

    /// Records up to which message each send's projection is stored.
    pub fn stored_to(&mut self, seq: i64) {
        self.projected_to = seq;
    }

    /// Replaces its messages and projections by the messages of a window that was read.
    pub fn replace(&mut self, read: Self) {
        let folds = self.folds.drain(..);
        let folds = folds.map(|fold| Fold::clone(&fold)).collect();
        let projected_to = self.projected_to;
        *self = read.behind(folds);
        self.projected_to = projected_to;
    }

    /// Adds a fold and drops the folds that it covers.
    pub fn fold(&mut self, new: Fold) {
        let gone = self.folds.extract_if(.., |fold| new.covers(fold));
        self.weight -= gone.map(|fold| fold_weight(&fold)).sum::<usize>();
        self.weight += fold_weight(&new);
        self.folds.push(Arc::new(new));
        self.folds.sort_by_key(|fold| fold.from_seq);
    }

    /// The window as it was at this `next_seq`, with these folds.
    #[must_use]
    pub fn until(&self, next_seq: i64, folds: Vec<Fold>) -> Self {
        let before = self.messages.iter();
        let before = before.take_while(|message| message.seq < next_seq);
        let messages: Vec<_> = before.cloned().collect();
        Self {
            weight: messages.iter().map(|message| weight(message)).sum(),
            next_seq: self.messages_from() + messages.len() as i64,
            messages,
            ..Self::default()
        }
        .behind(folds)
    }

    /// The folds before the window, in order.
    pub fn folds(&self) -> &[Arc<Fold>] {
        &self.folds
    }

    /// The last message that a fold replaces; 0 if there are no folds.
    pub fn fold_end(&self) -> i64 {
        fold::end(self.folds.iter().map(Arc::as_ref))
    }

    /// Appends messages.
    pub fn extend(&mut self, messages: impl IntoIterator<Item = Message>) -> Result<(), Gap> {
        for message in messages {
            if message.seq != self.next_seq {
                return Err(Gap {
                    expected: self.next_seq,
                    found: message.seq,
                });
            }
            self.weight += weight(&message);
            self.messages.push(Arc::new(message));
            self.next_seq += 1;
        }
        Ok(())
    }

    /// The `seq` of the session's next message.
    pub fn next_seq(&self) -> i64 {
        self.next_seq
    }

    /// The first `seq` of the projections and messages held; `next_seq` if there are none.
    pub fn from_seq(&self) -> i64 {
        let projected = self.projections.first();
        projected.map_or_else(|| self.messages_from(), |first| first.from_seq)
    }

    /// The first `seq` held.
    fn messages_from(&self) -> i64 {
        self.next_seq - self.messages.len() as i64
    }

    /// Approximate bytes held; what a cache counts.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// The active window: the messages from this `seq` on that neither a fold nor a projection
    /// replaces. It never starts between a call and its result.
    pub fn active(&self, from: i64) -> &[Arc<Message>] {
        let from = fold::begin(from, self.fold_end());
        let Some(index) = usize::try_from(from - self.messages_from()).ok() else {
            return &self.messages;
        };
        let asked = self
            .messages
            .get(index)
            .and_then(|message| match message.role {
                Role::Tool => message.asked_at_seq,
                Role::User | Role::Assistant => None,
            });
        let back = asked.map_or(0, |asked| usize::try_from(from - asked).unwrap_or(0));
        &self.messages[index.saturating_sub(back).min(self.messages.len())..]
    }

    /// The active window as it will be once these following messages are stored.
    pub fn active_with(
        &self,
        from: i64,
        following: impl Iterator<Item = Message>,
    ) -> Vec<Arc<Message>> {
        let stored = self.active(from).iter().cloned();
        stored.chain(following.map(Arc::new)).collect()
    }

    /// All messages held.
    pub fn held(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// The last message.
    pub fn last(&self) -> Option<&Message> {
        self.messages.last().map(Arc::as_ref)
    }

    /// Drops what no window that starts at `from` or later needs.
    pub fn trim(&mut self, from: i64) {
        let keep = self.active(from).len();
        let gone = self.messages.drain(..self.messages.len() - keep);
        self.weight -= gone.map(|message| weight(&message)).sum::<usize>();
        let begin = fold::begin(from, self.fold_end());
        let gone = self.projections.extract_if(.., |it| it.to_seq < begin);
        self.weight -= gone.map(|it| it.weight()).sum::<usize>();
    }
}

/// Where the window of a send starts whose first message is `input_seq`.
///
/// That is 1 without a bound. With one, at most `last_messages` messages are in the window, the
/// send's first one included; the start then stays for about half as many messages and moves
/// forward by as many.
///
/// If the window would start at a result, it is extended back to the call. Messages that the send
/// itself adds come on top.
pub fn from_seq(input_seq: i64, last_messages: Option<u32>) -> i64 {
    let Some(last) = last_messages else { return 1 };
    let last = i64::from(last).max(1);
    let block = (last / 2).max(1);
    let over = (input_seq - last).max(0);
    1 + (over + block - 1) / block * block
}

fn fold_weight(fold: &Fold) -> usize {
    /// Overhead of a fold besides its text.
    const FIXED: usize = 256;
    FIXED + fold.text.len()
}

fn weight(message: &Message) -> usize {
    /// Overhead of a message besides its text: its own fields and an allocation.
    const FIXED: usize = 256;
    let content: usize = message
        .content
        .iter()
        .map(crate::message::ContentPart::weight)
        .sum();
    let calls: usize = message
        .tool_calls
        .iter()
        .map(|call| call.name.len() + call.id.len() + call.arguments.to_string().len() + FIXED)
        .sum();
    FIXED + content + calls
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::id::SendId;
    use crate::message::{ContentPart, NewMessage};
    use crate::time::Timestamp;

    /// A transcript from a list of rounds: `n` is a round with `n` calls, 0 a plain answer.
    fn transcript(rounds: &[u32]) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut push = |role, asked_back| {
            let seq = messages.len() as i64 + 1;
            let new = NewMessage {
                role,
                asked_back,
                ..NewMessage::user(vec![ContentPart::text(seq.to_string())], 0)
            };
            messages.push(new.at(seq, SendId(Uuid::nil()), Timestamp(0), 1));
        };
        for calls in rounds {
            push(Role::User, None);
            push(Role::Assistant, None);
            for n in 1..=*calls {
                push(Role::Tool, Some(n));
            }
        }
        messages
    }

    proptest! {
        #[test]
        fn warm_and_cold_windows_are_equal_and_whole(
            rounds in proptest::collection::vec(0u32..5, 1..12),
            last in 1u32..12,
            split in 0usize..40,
        ) {
            let all = transcript(&rounds);
            let next = all.len() as i64 + 1;
            let split = split.min(all.len());
            let mut warm = Window::new(all[..split].to_vec(), split as i64 + 1).expect("contiguous");
            warm.trim(from_seq(split as i64 + 1, Some(last)));
            warm.extend(all[split..].to_vec()).expect("contiguous");
            // What a store returns to a caller that holds nothing.
            let begin = from_seq(next, Some(last));
            let first = all.iter().find(|m| m.seq == begin);
            let from = first.and_then(|m| m.asked_at_seq).unwrap_or(begin);
            let tail = all.iter().filter(|m| m.seq >= from).cloned().collect();
            let cold = Window::new(tail, next).expect("contiguous");
            prop_assert_eq!(warm.active(begin), cold.active(begin));
            if let Some(first) = cold.active(begin).first() {
                prop_assert!(first.role != Role::Tool, "begins between a call and its result");
            }
        }

        #[test]
        fn a_window_moves_in_blocks_and_never_back(input_seq in 1i64..500, last in 1u32..60) {
            let from = from_seq(input_seq, Some(last));
            let shown = input_seq - from + 1;
            prop_assert!((1..=i64::from(last)).contains(&shown), "{shown} of {last}");
            prop_assert!(from == 1 || shown > i64::from(last) / 2);
            let next = from_seq(input_seq + 1, Some(last));
            prop_assert!(next == from || next == from + (i64::from(last) / 2).max(1));
        }
    }

    #[test]
    fn an_unbounded_window_is_the_whole_transcript() {
        let all = transcript(&[0, 2, 0]);
        let window = Window::new(all.clone(), all.len() as i64 + 1).expect("contiguous");
        assert_eq!(window.active(from_seq(4, None)).len(), all.len());
    }

    #[test]
    fn a_gap_is_refused() {
        let mut window = Window::empty();
        let mut late = transcript(&[0]);
        assert_eq!(
            window.extend(late.split_off(1)),
            Err(Gap {
                expected: 1,
                found: 2
            })
        );
    }
}
