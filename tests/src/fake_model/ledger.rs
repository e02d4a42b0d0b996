//! The record of every request and how it was answered.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainspring_shared::time::{Clock, Timestamp};
use serde::{Deserialize, Serialize};

use super::prompt::Protocol;

/// Longest text kept in an entry.
const TEXT_CHARS_MAX: usize = 4_096;

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Everything was handed to the connection.
    Sent,
    /// The client disconnected before.
    ClientLeft,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number in the order of arrival, from 0.
    pub n: u64,
    /// When the whole request had arrived.
    pub at: Timestamp,
    /// The protocol.
    pub protocol: Protocol,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// The model asked for.
    pub model: String,
    /// The session label, from `[[session …]]`.
    pub session: Option<String>,
    /// The send label, from `[[send …]]`.
    pub send: Option<String>,
    /// The last user text, truncated.
    pub text: String,
    /// Assistant turns since that text.
    pub round: usize,
    /// The attempt number, from 1, among requests with the same session label, text and round; 0 if
    /// attempts are not counted.
    pub attempt: u32,
    /// The number of messages in it.
    pub messages: usize,
    /// SHA-256 of the body, in hex.
    pub body_sha256: String,
    /// The body, if bodies are kept.
    pub body: Option<String>,
    /// What was answered: `reply`, `tool_calls`, or the directive that prevented it.
    pub answer: String,
    /// Words read and written that are billed, set when the answer begins: the whole answer, even
    /// if the client does not wait for it.
    #[serde(default)]
    pub billed: Option<(usize, usize)>,
    /// The status of the response.
    pub status: u16,
    /// When the answer ended.
    pub ended_at: Option<Timestamp>,
    /// How it ended; `None` while it is in progress.
    pub end: Option<End>,
}

/// Counts since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Requests received.
    pub requests: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// The most requests in flight at once.
    pub in_flight_max: u64,
}

/// The requests of one server, in the order of arrival.
#[derive(Debug)]
pub struct Ledger {
    entries: Mutex<Book>,
    entries_max: usize,
    keep_bodies: bool,
    clock: Arc<dyn Clock>,
    requests: AtomicU64,
    in_flight: AtomicU64,
    in_flight_max: AtomicU64,
}

#[derive(Debug, Default)]
struct Book {
    entries: Vec<Entry>,
    attempts: HashMap<(Option<String>, String, usize), u32>,
    /// How often the ledger was cleared, so that an answer begun before does not touch a newer entry.
    life: u64,
}

impl Ledger {
    pub(super) fn new(entries_max: usize, keep_bodies: bool, clock: Arc<dyn Clock>) -> Self {
        Self {
            entries: Mutex::default(),
            entries_max,
            keep_bodies,
            clock,
            requests: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            in_flight_max: AtomicU64::new(0),
        }
    }

    /// The entries kept so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.book().entries.clone()
    }

    /// The entries of one send.
    pub fn of_send(&self, mark: &str) -> Vec<Entry> {
        let of = |entry: &&Entry| entry.send.as_deref() == Some(mark);
        self.book().entries.iter().filter(of).cloned().collect()
    }

    /// The labels of the sends whose answers are not complete yet.
    pub fn open(&self) -> BTreeSet<String> {
        let book = self.book();
        let open = book.entries.iter().filter(|entry| entry.end.is_none());
        open.filter_map(|entry| entry.send.clone()).collect()
    }

    /// The counts.
    pub fn stats(&self) -> Stats {
        Stats {
            requests: self.requests.load(Ordering::Relaxed),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            in_flight_max: self.in_flight_max.load(Ordering::Relaxed),
        }
    }

    /// Clears entries and attempts; the counts continue.
    pub fn forget(&self) {
        let mut book = self.book();
        let life = book.life + 1;
        *book = Book {
            life,
            ..Book::default()
        };
    }

    /// Adds a request; `fill` builds the entry from its number and attempt.
    pub(super) fn enter(
        self: &Arc<Self>,
        session: Option<&str>,
        text: &str,
        round: usize,
        fill: impl FnOnce(u64, u32) -> Entry,
    ) -> (Open, u32) {
        let n = self.requests.fetch_add(1, Ordering::Relaxed);
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.in_flight_max.fetch_max(now, Ordering::Relaxed);
        let mut book = self.book();
        let room = book.entries.len() < self.entries_max;
        let attempt = if room {
            let key = (session.map(str::to_owned), text.to_owned(), round);
            let count = book.attempts.entry(key).or_insert(0);
            *count += 1;
            *count
        } else {
            0
        };
        let place = room.then(|| {
            let mut entry = fill(n, attempt);
            entry.text = text.chars().take(TEXT_CHARS_MAX).collect();
            book.entries.push(entry);
            (book.life, book.entries.len() - 1)
        });
        drop(book);
        (
            Open {
                ledger: Arc::clone(self),
                place,
                sent: false,
            },
            attempt,
        )
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn keeps_bodies(&self) -> bool {
        self.keep_bodies
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in flight; dropping this closes its entry.
#[derive(Debug)]
pub(super) struct Open {
    ledger: Arc<Ledger>,
    place: Option<(u64, usize)>,
    sent: bool,
}

impl Open {
    /// Records what is answered.
    pub(super) fn answers(&self, what: &str, status: u16) {
        self.entry(|entry| {
            what.clone_into(&mut entry.answer);
            entry.status = status;
        });
    }

    /// Records what the answer costs.
    pub(super) fn bills(&self, words: Option<(usize, usize)>) {
        self.entry(|entry| entry.billed = words);
    }

    /// Records that everything was sent.
    pub(super) fn sent(&mut self) {
        self.sent = true;
    }

    fn entry(&self, change: impl FnOnce(&mut Entry)) {
        let mut book = self.ledger.book();
        if let Some((life, at)) = self.place
            && life == book.life
        {
            change(&mut book.entries[at]);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let now = self.ledger.now();
        let end = if self.sent {
            End::Sent
        } else {
            End::ClientLeft
        };
        self.entry(|entry| {
            entry.ended_at = Some(now);
            entry.end = Some(end);
        });
        self.ledger.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
