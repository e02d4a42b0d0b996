//! Every request, and how it was answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainspring_shared::time::{Clock, Timestamp};
use serde::{Deserialize, Serialize};

use super::prompt::Protocol;

/// Texts are kept up to here.
const TEXT_CHARS_MAX: usize = 4_096;

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Everything was handed to the connection.
    Sent,
    /// The client left before.
    ClientLeft,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number, from 0, in the order of arrival.
    pub n: u64,
    /// When it had arrived whole.
    pub at: Timestamp,
    /// The protocol.
    pub protocol: Protocol,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// The model asked for.
    pub model: String,
    /// The mark of `[[session …]]`.
    pub session: Option<String>,
    /// The mark of `[[send …]]`.
    pub send: Option<String>,
    /// The last user text, shortened.
    pub text: String,
    /// The assistant's turns since that text.
    pub round: usize,
    /// Which request this is, from 1, with the same session mark, text and round; 0 when
    /// attempts are not counted.
    pub attempt: u32,
    /// Messages in it.
    pub messages: usize,
    /// SHA-256 of the body, in hex: equal for equal requests.
    pub body_sha256: String,
    /// The body, where bodies are kept.
    pub body: Option<String>,
    /// What was answered: `reply`, `tool_calls`, or the directive that spoiled it.
    pub answer: String,
    /// Words read and written that are billed, from when the answer begins: all of it, whoever hears it.
    #[serde(default)]
    pub billed: Option<(usize, usize)>,
    /// The status that was answered.
    pub status: u16,
    /// When the answer ended.
    pub ended_at: Option<Timestamp>,
    /// How it ended; absent while it goes on.
    pub end: Option<End>,
}

/// Counts since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Requests that arrived.
    pub requests: u64,
    /// Requests being answered.
    pub in_flight: u64,
    /// The most that were answered at once.
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
    /// Times that everything was forgotten: an answer that began before finds no entry.
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

    /// What is kept so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.book().entries.clone()
    }

    /// What is kept of one send.
    pub fn of_send(&self, mark: &str) -> Vec<Entry> {
        let of = |entry: &&Entry| entry.send.as_deref() == Some(mark);
        self.book().entries.iter().filter(of).cloned().collect()
    }

    /// The counts.
    pub fn stats(&self) -> Stats {
        Stats {
            requests: self.requests.load(Ordering::Relaxed),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            in_flight_max: self.in_flight_max.load(Ordering::Relaxed),
        }
    }

    /// Forgets entries and attempts; counts go on.
    pub fn forget(&self) {
        let mut book = self.book();
        let life = book.life + 1;
        *book = Book {
            life,
            ..Book::default()
        };
    }

    /// Enters a request; `fill` makes the entry out of its number and attempt.
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

/// A request that is being answered; dropped, it ends the entry.
#[derive(Debug)]
pub(super) struct Open {
    ledger: Arc<Ledger>,
    place: Option<(u64, usize)>,
    sent: bool,
}

impl Open {
    /// Notes what is answered.
    pub(super) fn answers(&self, what: &str, status: u16) {
        self.entry(|entry| {
            what.clone_into(&mut entry.answer);
            entry.status = status;
        });
    }

    /// Notes what it costs.
    pub(super) fn bills(&self, words: Option<(usize, usize)>) {
        self.entry(|entry| entry.billed = words);
    }

    /// Notes that nothing is left to send.
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
