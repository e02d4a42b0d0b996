//! Projections: what a send that has ended is shown as, where its agent shows digests of older sends.
//!
//! A projection is a function of the send's messages. It is stored beside them when the send ends, so that
//! who loads the session need not read what it stands for. A row is worth no more than that: where one is
//! missing, or of another version, the transcript is read, and the next send that ends stores it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{ContextSpec, Representation};
use crate::id::SendId;
use crate::message::{ContentPart, Message, NewMessage, Role};
use crate::session::fold::digest::{Digest, of_send, sends};
use crate::time::Timestamp;

/// The version of what is stored. It rises whenever the same messages give another digest.
pub const VERSION: i32 = 1;

/// Projections of earlier sends that one step stores at most.
pub const HEALED_MAX: usize = 64;

/// A send that has ended, as it is shown once it is old: those of its messages that no fold stood for then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Projection {
    /// The first message that it stands for.
    pub from_seq: i64,
    /// The last one.
    pub to_seq: i64,
    /// The send.
    pub send_id: SendId,
    /// The [version](VERSION) of the code that computed it.
    pub version: i32,
    /// What is left of the messages.
    pub left: SendDigest,
}

/// The digest of a finished send that stands for its messages.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SendDigest {
    /// What the user said; empty where a fold stands for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub asked: String,
    /// What was done and answered.
    pub done: String,
    /// How many results of each tool there are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub results: BTreeMap<String, usize>,
}

/// Projections that a store has of a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Projected {
    /// Those that are shown in the place of the window's first messages, in order.
    pub shown: Vec<Projection>,
    /// The last message up to which each send of the window has a row; 0 where the first one has none.
    pub stored_to: i64,
}

impl Projection {
    /// The projection of a send's messages; none of nothing.
    pub fn of(messages: &[Arc<Message>]) -> Option<Self> {
        let (first, last) = (messages.first()?, messages.last()?);
        let Digest { asked, done } = of_send(messages);
        let mut results = BTreeMap::new();
        for name in messages.iter().filter_map(|message| message.name.clone()) {
            *results.entry(name).or_default() += 1;
        }
        Some(Self {
            from_seq: first.seq,
            to_seq: last.seq,
            send_id: first.send_id,
            version: VERSION,
            left: SendDigest {
                asked,
                done,
                results,
            },
        })
    }

    /// What the model is shown: what was asked, unless a fold stands for that, and what was done.
    pub fn messages(&self) -> impl Iterator<Item = Arc<Message>> {
        let said = [
            (Role::User, &self.left.asked, self.from_seq),
            (Role::Assistant, &self.left.done, self.to_seq),
        ];
        let said = said.into_iter().filter(|(_, text, _)| !text.is_empty());
        said.map(|(role, text, seq)| {
            let message = NewMessage {
                role,
                ..NewMessage::user(vec![ContentPart::text(text.clone())], 0)
            };
            Arc::new(message.at(seq, self.send_id, Timestamp(0), 0))
        })
    }

    /// Bytes that it takes, roughly.
    pub fn weight(&self) -> usize {
        /// What it costs beside its text.
        const FIXED: usize = 256;
        FIXED + self.left.asked.len() + self.left.done.len()
    }
}

impl Projected {
    /// What of these rows of a session, from `begin` on by their first messages, stands for the first
    /// messages of a window that begins there: an unbroken row of them, as far as this agent shows digests of
    /// them whatever is said behind them.
    pub fn of(mut rows: Vec<Projection>, begin: i64, context: &ContextSpec) -> Self {
        // A bounded window may begin within a send, whose row stands for more.
        let is_cut = context.last_messages.is_some();
        let first = rows.first().filter(|_| is_cut);
        let mut next = first.map_or(begin, |first| first.from_seq);
        let unbroken = rows.iter().take_while(|row| {
            let follows = row.from_seq == next && row.version == VERSION;
            next = row.to_seq + 1;
            follows
        });
        let unbroken = unbroken.count();
        rows.truncate(unbroken);
        let stored_to = rows.last().map_or(0, |row| row.to_seq);
        rows.truncate(digested(rows.len(), context));
        if rows.first().is_some_and(|first| first.from_seq > begin) {
            rows.clear();
        }
        Self {
            shown: rows,
            stored_to,
        }
    }

    /// The first message that has to be read of a window that begins with `begin`.
    pub fn behind(&self, begin: i64) -> i64 {
        self.shown.last().map_or(begin, |last| last.to_seq + 1)
    }
}

/// How many of so many sends that have ended, from the first of the window on, are shown as digests.
pub fn digested(ended: usize, context: &ContextSpec) -> usize {
    match context.representation {
        Representation::Verbatim => 0,
        Representation::Projection => blocks(ended, context.fold.keep_sends() as usize),
    }
}

/// How many of so many things are shown otherwise, where the newest `keep` are not: whole blocks.
pub(super) fn blocks(count: usize, keep: usize) -> usize {
    let block = keep.max(1);
    count.saturating_sub(block) / block * block
}

/// The projections to store with the end of a send: of the sends of a window that have none behind
/// `stored_to`, the oldest first and at most [`HEALED_MAX`] of them, and of the last one, which ends. Gives up
/// to which message all have one then. `is_cut` says that the first message may not be its send's first one.
pub fn to_store(window: &[Arc<Message>], stored_to: i64, is_cut: bool) -> (Vec<Projection>, i64) {
    let mut lacking: Vec<_> = sends(window)
        .enumerate()
        .filter(|(place, send)| *place > 0 || !is_cut || send.len() == window.len())
        .map(|(_, send)| send)
        .filter(|send| send[0].seq > stored_to)
        .collect();
    let ends = lacking.pop();
    let heals_all = lacking.len() <= HEALED_MAX;
    lacking.truncate(HEALED_MAX);
    let healed = lacking.into_iter().filter_map(Projection::of);
    let mut projections: Vec<_> = healed.collect();
    let healed_to = projections.last().map_or(stored_to, |last| last.to_seq);
    projections.extend(ends.and_then(Projection::of));
    let all_to = projections.last().map_or(stored_to, |last| last.to_seq);
    (projections, if heals_all { all_to } else { healed_to })
}

/// The projections of a transcript that is copied piece by piece: of the sends that no fold of the copy stands
/// for.
#[derive(Debug)]
pub struct Copied {
    /// The last message that a fold stands for.
    fold_end: i64,
    /// The last messages, which are of one send.
    send: Vec<Arc<Message>>,
    whole: Vec<Projection>,
}

impl Copied {
    /// Those of a copy whose folds end with this message.
    pub fn new(fold_end: i64) -> Self {
        Self {
            fold_end,
            send: Vec::new(),
            whole: Vec::new(),
        }
    }

    /// Adds messages that have so many in front of them in the copy.
    pub fn add(&mut self, messages: &[Message], behind: i64) {
        let copies = messages.iter().zip(behind + 1..);
        for (message, seq) in copies.filter(|(_, seq)| *seq > self.fold_end) {
            let last = self.send.last();
            if last.is_some_and(|last| last.send_id != message.send_id) {
                self.whole.extend(Projection::of(&self.send));
                self.send.clear();
            }
            self.send.push(Arc::new(Message {
                seq,
                ..message.clone()
            }));
        }
    }

    /// All of them, once there are no more messages.
    pub fn end(mut self) -> Vec<Projection> {
        self.whole.extend(Projection::of(&self.send));
        self.whole
    }
}

#[cfg(test)]
mod tests;
