//! The session's lease, and what reaches its holder: signals, messages, the loss of the lease.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainspring_shared::budget::{Price, Spent};
use mainspring_shared::lease::Lease;
use mainspring_shared::pause::PauseKey;
use mainspring_shared::session::SIGNAL_INBOX;
use mainspring_shared::store::UsageRow;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::partial_answer::PartialAnswer;

/// Handles through which other tasks signal a running send.
#[derive(Debug, Clone)]
pub(crate) struct SendHandles {
    /// The session may belong to someone else.
    pub(crate) lost: CancellationToken,
    /// The send is to end.
    pub(crate) cancel: CancellationToken,
    /// The inbox has something for the next round.
    pub(crate) news: Arc<AtomicBool>,
    /// The inbox has something that does not wait.
    pub(crate) interrupt: Arc<Notify>,
    /// Writes under the lease so far.
    pub(crate) writes: Arc<AtomicI64>,
    /// What the model has said of the answer that is under way.
    pub(crate) said: Arc<PartialAnswer>,
    /// What was spent and is not stored yet, for whoever ends the send when its run cannot.
    pub(crate) owed: Arc<Mutex<Owed>>,
}

impl SendHandles {
    /// The lease as the next write carries it.
    pub(crate) fn lease(&self, lease: Lease) -> Lease {
        Lease {
            write: self.writes.load(Ordering::Relaxed),
            ..lease
        }
    }
}

/// What a run owes the send's sums.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// Responses that no transaction has stored yet.
    pub(crate) rows: Vec<UsageRow>,
    /// The model call that is under way: what it costs so far.
    pub(crate) asked: Option<Pending>,
    /// What the session has spent with the rows, where that is counted.
    pub(crate) session: Option<Spent>,
}

/// A model call that is under way.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Without what was streamed.
    pub(super) row: UsageRow,
    pub(super) price: Option<Price>,
    /// Tokens that came back so far, estimated.
    pub(super) streamed: Arc<AtomicU64>,
}

impl Pending {
    /// What it has cost so far.
    pub(super) fn so_far(&self) -> UsageRow {
        let mut row = self.row.clone();
        row.usage.output_tokens = self.streamed.load(Ordering::Relaxed);
        row.usage.cost_usd = self.price.map(|price| price.at_most(&row.usage));
        row
    }
}

impl Owed {
    /// All that is owed, the call that is under way as far as it came.
    pub(crate) fn settle(&mut self) -> (Vec<UsageRow>, Option<Spent>) {
        let mut rows = std::mem::take(&mut self.rows);
        let mut session = self.session.take();
        if let Some(pending) = self.asked.take() {
            let row = pending.so_far();
            session = session.map(|session| session.plus(Spent::of(&row.usage, 0)));
            rows.push(row);
        }
        (rows, session)
    }
}

/// What this worker knows of the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inbox {
    /// What was in it has been read.
    Known,
    /// It may have something; the signal is lowered.
    Lowered,
    /// It has something, and the signal is up: it has to be lowered before the inbox is read, so
    /// that whatever comes later raises it again.
    Raised,
}

/// What interrupts a send once, and was reported to its machine.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) cancel: bool,
    pub(super) deadline: bool,
    pub(super) drain: bool,
}

/// A lease and what comes in under it.
#[derive(Debug)]
pub(super) struct Hold {
    /// The lease as it was granted.
    pub(super) lease: Lease,
    pub(super) handles: SendHandles,
    /// Whether the inbox has to be read before the model is asked.
    pub(super) inbox: Inbox,
    /// Signals that a step lowered, and about which nothing was done yet.
    pub(super) heard: i32,
    /// What the send is about to be parked for.
    pub(super) paused: Option<PauseKey>,
    pub(super) seen: Seen,
}

impl Hold {
    /// With the signals of the claim; `resumed` when an earlier worker had the send.
    pub(super) fn new(lease: Lease, handles: SendHandles, signals: i32, resumed: bool) -> Self {
        Self {
            lease,
            handles,
            // Whoever had the send before may have lowered the signal and died.
            inbox: if signals & SIGNAL_INBOX != 0 {
                Inbox::Raised
            } else if resumed {
                Inbox::Lowered
            } else {
                Inbox::Known
            },
            heard: 0,
            paused: None,
            seen: Seen::default(),
        }
    }

    /// The lease as the next write carries it.
    pub(super) fn lease(&self) -> Lease {
        self.handles.lease(self.lease)
    }

    /// Counts a write under the lease.
    pub(super) fn wrote(&self) {
        self.handles.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes note of signals that a step lowered.
    pub(super) fn lowered(&mut self, signals: i32) {
        if self.inbox == Inbox::Raised || signals & SIGNAL_INBOX != 0 {
            self.inbox = Inbox::Lowered;
        }
    }

    /// What is owed, for a moment: nothing may be awaited under it.
    pub(super) fn owed(&self) -> MutexGuard<'_, Owed> {
        // Nothing between two statements under this lock can panic, so it is never half changed.
        let owed = &self.handles.owed;
        owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
