//! What clients requested and were told, and a check whether a correct system could have told them that.
//!
//! Clients record each operation with the moments at which it began and ended. An operation without
//! a definite answer may or may not have happened. The check runs afterwards and needs nothing from
//! the system: like register and list checkers, it compares answers with each other and with the
//! real-time order of the requests.

mod check;
mod streams;

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

pub use check::violations;

/// An operation that a client requested.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// A send, a steering message or an interruption, under an idempotency key.
    Send {
        /// The key: all requests with it are the same request.
        key: String,
        /// The session.
        session: String,
        /// Whether it takes its position in the session when it is accepted, so that positions
        /// follow the order of requests.
        in_order: bool,
    },
    /// A cancellation of a send.
    Cancel {
        /// The send.
        send: String,
    },
    /// A posted result of a call.
    Post {
        /// The call.
        call: String,
        /// The result, as the transcript shows it.
        text: String,
    },
    /// A read of a send.
    Read {
        /// The send.
        send: String,
    },
    /// A read of a session's whole transcript.
    Transcript {
        /// The session.
        session: String,
    },
}

/// What the client was told.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// Nothing definite: it may or may not have happened.
    Unknown,
    /// A definite refusal: it did not happen and never will.
    No(String),
    /// The answer: a send, the outcome of a posted result, or the messages.
    Yes(Value),
}

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The client.
    pub client: usize,
    /// When it began, in the order of everything recorded.
    pub begun: u64,
    /// When it ended.
    pub ended: u64,
    /// The request.
    pub op: Op,
    /// The answer.
    pub told: Told,
}

/// A durable event, or a piece of text, as a reader saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The ID to resume after; `None` for live events.
    pub id: Option<String>,
    /// Its type.
    pub name: String,
    /// Its data.
    pub data: Value,
}

/// What one reader of a session saw, starting with the first event.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// The session.
    pub session: String,
    /// The events, in order of arrival. A reader that reconnects elsewhere continues here.
    pub events: Vec<Seen>,
    /// Whether it should have seen everything.
    pub whole: bool,
}

/// Everything recorded.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The operations, in the order in which they ended.
    pub entries: Vec<Entry>,
    /// What readers saw.
    pub readings: Vec<Reading>,
}

/// The book in which clients record operations. Clones share the same book.
#[derive(Debug, Clone, Default)]
pub struct Book(Arc<Mutex<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    moment: u64,
    entries: Vec<Entry>,
}

impl Book {
    /// A new moment, after all given out before.
    pub fn moment(&self) -> u64 {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.moment += 1;
        pages.moment
    }

    /// Records an operation that began at `begun` and has just ended.
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

    /// The operations recorded so far.
    pub fn entries(&self) -> Vec<Entry> {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.entries.clone()
    }
}

/// Whether a send is in a final state.
pub(crate) fn is_final(send: &Value) -> bool {
    matches!(
        send["status"].as_str(),
        Some("completed" | "failed" | "cancelled")
    )
}

#[cfg(test)]
mod tests;
