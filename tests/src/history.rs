//! What clients asked and what they were told, and whether one system that keeps its promises can
//! have told them so.
//!
//! Clients note each operation with the moments of its begin and its end; an operation without an
//! end, or without a definite answer, may have happened or not. The check is made afterwards and
//! needs nothing of the system: in the manner of register and list checks, it compares answers with
//! each other and with the order in which they were asked for in real time.

mod check;
mod streams;

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

pub use check::violations;

/// What a client asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// A send, a steering word or an interruption, under an idempotency key.
    Send {
        /// The key: whatever is asked under it is one request.
        key: String,
        /// The session.
        session: String,
        /// Whether it takes its place in the session when it is accepted, so that places follow the
        /// order of requests.
        in_order: bool,
    },
    /// The end of a send.
    Cancel {
        /// The send.
        send: String,
    },
    /// An answer to a call.
    Post {
        /// The call.
        call: String,
        /// What was answered, as the transcript shows it.
        text: String,
    },
    /// A send as it is.
    Read {
        /// The send.
        send: String,
    },
    /// A session's whole transcript.
    Transcript {
        /// The session.
        session: String,
    },
}

/// What it was told.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// Nothing definite: it may have happened or not.
    Unknown,
    /// No, for good: it did not happen and will not.
    No(String),
    /// The answer: a send, or what became of a posted answer, or the messages.
    Yes(Value),
}

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Who asked.
    pub client: usize,
    /// When, in the order of everything noted.
    pub begun: u64,
    /// When it was answered.
    pub ended: u64,
    /// What was asked.
    pub op: Op,
    /// What was answered.
    pub told: Told,
}

/// A durable event as a reader saw it, or a piece of text.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Where a reader resumes; none of a live event.
    pub id: Option<String>,
    /// Its type.
    pub name: String,
    /// Its data.
    pub data: Value,
}

/// What one reader of a session saw, from the first event on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// The session.
    pub session: String,
    /// The events, in the order of their arrival. A reader that went on elsewhere goes on here.
    pub events: Vec<Seen>,
    /// Whether it is to have seen everything.
    pub whole: bool,
}

/// Everything that was noted.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The operations, by the end of each.
    pub entries: Vec<Entry>,
    /// The readers.
    pub readings: Vec<Reading>,
}

/// A book in which clients note. Clones write into the same book.
#[derive(Debug, Clone, Default)]
pub struct Book(Arc<Mutex<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    moment: u64,
    entries: Vec<Entry>,
}

impl Book {
    /// A moment behind all that were given before.
    pub fn moment(&self) -> u64 {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.moment += 1;
        pages.moment
    }

    /// Notes an operation that began at `begun` and has just ended.
    pub fn note(&self, client: usize, begun: u64, op: Op, told: Told) {
        let ended = self.moment();
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.entries.push(Entry {
            client,
            begun,
            ended,
            op,
            told,
        });
    }

    /// What was noted so far.
    pub fn entries(&self) -> Vec<Entry> {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.entries.clone()
    }
}

/// Whether nothing can change a send any more.
pub(crate) fn is_final(send: &Value) -> bool {
    matches!(
        send["status"].as_str(),
        Some("completed" | "failed" | "cancelled")
    )
}

#[cfg(test)]
mod tests;
