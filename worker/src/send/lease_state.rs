//! The session's lease, and what reaches its holder: signals, messages and the loss of the lease.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainspring_shared::budget::{Price, Spent};
use mainspring_shared::lease::Lease;
use mainspring_shared::pause::PauseKey;
use mainspring_shared::session::SIGNAL_INBOX;
use mainspring_shared::store::UsageRow;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::received::Received;
use crate::partial_answer::PartialAnswer;

/// Handles through which other tasks signal a running send.
#[derive(Debug, Clone)]
pub(crate) struct SendHandles {
    /// Cancelled when another worker may own the session.
    pub(crate) lost: CancellationToken,
    /// Cancelled when the send is to end.
    pub(crate) cancel: CancellationToken,
    /// Set when the inbox has something for the next round.
    pub(crate) news: Arc<AtomicBool>,
    /// Notified when the inbox has something urgent.
    pub(crate) interrupt: Arc<Notify>,
    /// The number of writes under the lease so far.
    pub(crate) writes: Arc<AtomicI64>,
    /// The text received of the answer in flight.
    pub(crate) said: Arc<PartialAnswer>,
    /// Costs that are not stored yet, for the code that ends the send if its run cannot.
    pub(crate) owed: Arc<Mutex<Owed>>,
}

impl SendHandles {
    /// The lease with the number of the next write.
    pub(crate) fn lease(&self, lease: Lease) -> Lease {
        Lease {
            write: self.writes.load(Ordering::Relaxed),
            ..lease
        }
    }
}

/// Costs of a run that are not yet in the send's stored totals.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// Usage rows that no transaction has stored yet.
    pub(crate) rows: Vec<UsageRow>,
    /// The model call in flight with its cost so far.
    pub(crate) asked: Option<Pending>,
    /// The session's spending including the rows, if that is tracked.
    pub(crate) session: Option<Spent>,
}

/// A model call in flight.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The row without what was received.
    pub(super) row: UsageRow,
    pub(super) price: Option<Price>,
    /// What was received so far.
    pub(super) received: Arc<Received>,
}

impl Pending {
    /// The row with its cost so far.
    pub(super) fn so_far(&self) -> UsageRow {
        let mut row = self.row.clone();
        let input = row.usage.input_tokens;
        row.usage = self.received.usage(input, self.price.as_ref());
        row
    }
}

impl Owed {
    /// Takes everything that is owed, including the call in flight as far as it got.
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
    /// Everything in it has been read.
    Known,
    /// It may have something; the signal is lowered.
    Lowered,
    /// It has something and the signal is up. The signal must be lowered before the inbox is read,
    /// so that whatever arrives later raises it again.
    Raised,
}

/// Interruptions that were reported to the send's machine; each is reported once.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) cancel: bool,
    pub(super) deadline: bool,
    pub(super) drain: bool,
}

/// A lease and what arrives under it.
#[derive(Debug)]
pub(super) struct LeaseState {
    /// The lease as it was granted.
    pub(super) lease: Lease,
    pub(super) handles: SendHandles,
    /// Whether the inbox must be read before the model is asked.
    pub(super) inbox: Inbox,
    /// Signals that a step lowered and that are not handled yet.
    pub(super) heard: i32,
    /// The pause that the send is about to be parked for.
    pub(super) paused: Option<PauseKey>,
    pub(super) seen: Seen,
}

impl LeaseState {
    /// Starts with the signals of the claim; `resumed` if an earlier worker had the send.
    pub(super) fn new(lease: Lease, handles: SendHandles, signals: i32, resumed: bool) -> Self {
        Self {
            lease,
            handles,
            // An earlier worker may have lowered the signal and then crashed.
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

    /// The lease with the number of the next write.
    pub(super) fn lease(&self) -> Lease {
        self.handles.lease(self.lease)
    }

    /// Counts a write under the lease.
    pub(super) fn wrote(&self) {
        self.handles.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Records signals that a step lowered.
    pub(super) fn lowered(&mut self, signals: i32) {
        if self.inbox == Inbox::Raised || signals & SIGNAL_INBOX != 0 {
            self.inbox = Inbox::Lowered;
        }
    }

    /// Locks what is owed; must not be held across an await.
    pub(super) fn owed(&self) -> MutexGuard<'_, Owed> {
        // No code under this lock can panic midway, so the value is never half changed.
        let owed = &self.handles.owed;
        owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
