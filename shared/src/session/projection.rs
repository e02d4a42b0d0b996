//! Projections: stored digests of finished sends, for agents that show older sends as digests.
//!
//! A projection is a pure function of the send's messages. It is stored with the messages when the
//! send ends, so that loading the session does not require reading the messages it replaces. It is
//! only a cache: if a row is missing or has another version, the transcript is read instead, and
//! the row is stored when the session's next send ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{ContextSpec, Representation};
use crate::id::SendId;
use crate::message::{ContentPart, Message, NewMessage, Role};
use crate::session::fold::digest::{Digest, of_send, sends};
use crate::time::Timestamp;

/// The version of the stored format.
///
/// Must be raised whenever the same messages would give a different digest.
pub const VERSION: i32 = 1;

/// Maximum number of missing projections of earlier sends that one step stores.
pub const HEALED_MAX: usize = 64;

/// The digest that replaces a finished send once it is old.
///
/// It covers those of the send's messages that were not folded when it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Projection {
    /// The first message that it replaces.
    pub from_seq: i64,
    /// The last message that it replaces.
    pub to_seq: i64,
    /// The send.
    pub send_id: SendId,
    /// The [version](VERSION) of the code that computed it.
    pub version: i32,
    /// The digest of the messages.
    pub left: SendDigest,
}

/// The texts of a finished send's digest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SendDigest {
    /// What the user said; empty if a fold replaces it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub asked: String,
    /// What was done and answered.
    pub done: String,
    /// The number of results, by tool name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub results: BTreeMap<String, usize>,
}

/// The stored projections of a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Projected {
    /// The projections shown in place of the window's first messages, in order.
    pub shown: Vec<Projection>,
    /// The last message up to which every send of the window has a row; 0 if the first send has none.
    pub stored_to: i64,
}

impl Projection {
    /// The projection of a send's messages; `None` if there are no messages.
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

    /// The messages shown to the model: what was asked, unless that is folded, and what was done.
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

    /// Approximate size in bytes.
    pub fn weight(&self) -> usize {
        /// Overhead besides the text.
        const FIXED: usize = 256;
        FIXED + self.left.asked.len() + self.left.done.len()
    }
}

impl Projected {
    /// Selects the projections that replace the first messages of a window that starts at `begin`.
    ///
    /// `rows` are the session's rows from `begin` on, ordered by their first messages. Only an
    /// unbroken run of them counts, and only as many as this agent shows as digests regardless of
    /// what follows.
    pub fn of(mut rows: Vec<Projection>, begin: i64, context: &ContextSpec) -> Self {
        // A bounded window may start in the middle of a send, whose row covers more than the window.
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

    /// The first message that must be read for a window that starts at `begin`.
    pub fn behind(&self, begin: i64) -> i64 {
        self.shown.last().map_or(begin, |last| last.to_seq + 1)
    }
}

/// How many of the window's `ended` finished sends, oldest first, are shown as digests.
pub fn digested(ended: usize, context: &ContextSpec) -> usize {
    match context.representation {
        Representation::Verbatim => 0,
        Representation::Projection => blocks(ended, context.fold.keep_sends() as usize),
    }
}

/// How many of `count` items are shortened when at least the newest `keep` stay as they are.
///
/// A multiple of `keep`, so that the boundary moves in blocks.
pub(super) fn blocks(count: usize, keep: usize) -> usize {
    let block = keep.max(1);
    count.saturating_sub(block) / block * block
}

/// The projections to store when a send ends.
///
/// These are the one of the ending send, which is the last of the window, and those that earlier
/// sends after `stored_to` still lack: oldest first, at most [`HEALED_MAX`]. Also returns the
/// message up to which every send then has a projection. `is_cut` means that the window may start
/// in the middle of a send.
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

/// Builds the projections of a transcript that is copied in pieces.
///
/// Sends that are folded in the copy get none.
#[derive(Debug)]
pub struct ProjectionBuilder {
    /// The last message that a fold replaces.
    fold_end: i64,
    /// The messages of the send being collected.
    send: Vec<Arc<Message>>,
    whole: Vec<Projection>,
}

impl ProjectionBuilder {
    /// For a copy whose folds end at `fold_end`.
    pub fn new(fold_end: i64) -> Self {
        Self {
            fold_end,
            send: Vec::new(),
            whole: Vec::new(),
        }
    }

    /// Adds messages that follow the first `behind` messages of the copy.
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

    /// Returns all projections, once there are no more messages.
    pub fn end(mut self) -> Vec<Projection> {
        self.whole.extend(Projection::of(&self.send));
        self.whole
    }
}

#[cfg(test)]
mod tests;
