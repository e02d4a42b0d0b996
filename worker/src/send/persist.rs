//! How a run writes and reads: each until the database has answered.
//!
//! Each write carries its number under the lease, so that one that is sent again after an outage
//! takes effect once. Where the answer does not say how things stand, the session is given back to
//! whoever claims it next.

use std::future::Future;
use std::time::Duration;

use mainspring_shared::id::SendId;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::machine::Event;
use mainspring_shared::store::{AppendOutcome, AppendRound, Error as StoreError};
use mainspring_shared::time::Timestamp;
use tokio_util::sync::CancellationToken;

use super::run::Run;
use crate::Parts;
use crate::hook::Moment;
use crate::writes::SharedError;

/// What the database says to a question.
pub(super) type StoreResult<T> = Result<T, StoreError>;

/// Why something was not written, as far as is known.
#[derive(Debug)]
pub(super) enum Unwritten {
    /// The database was asked once, and refused it.
    Refused(SharedError),
    /// The lease is gone, or it is not known what became of an earlier attempt.
    Lost,
}

impl<'a> Run<'a> {
    /// Patience for what this run asks of the database.
    pub(super) fn patience(&self) -> Patience<'a> {
        Patience {
            parts: &self.kernel.parts,
            lost: self.hold.reach.lost.clone(),
            send: self.send.record.id,
        }
    }

    /// Stores a step that does not end the send; returns the signals that it lowered. A repeat after
    /// an outage is told what became of the first attempt.
    pub(super) async fn append(&mut self, item: AppendRound) -> Result<i32, Event> {
        self.forget_children().await;
        let writes = &self.kernel.writes;
        let write = || writes.append(item.clone());
        let appended = self
            .patience()
            .write(write, |outcome| matches!(outcome, AppendOutcome::Locked));
        let Ok(AppendOutcome::Appended {
            first_seq,
            at,
            counters,
            ..
        }) = appended.await
        else {
            // Whatever refused it, nothing of the lease may stay behind.
            return Err(self.release_as_lost().await);
        };
        self.hold.wrote();
        self.hold.owed().rows.clear();
        self.bill.stored(item.totals, !item.messages.is_empty());
        self.hold.lowered(counters.signals);
        self.show_stored(&item.messages, first_seq, true).await;
        if !self.remember(item.messages, first_seq, at) {
            return Err(self.release_as_lost().await);
        }
        if let Some(fold) = item.fold {
            let fold = fold.at(counters.context_version, item.send_id, at);
            self.prompt.window.fold(fold);
            // Whatever else changed the context meanwhile is read before the next send begins.
            if counters.context_version == *self.prompt.version + 1 {
                *self.prompt.version = counters.context_version;
            }
        }
        Ok(counters.signals)
    }

    /// Shows hooks what was stored.
    pub(super) async fn show_stored(&mut self, messages: &[NewMessage], first: i64, goes_on: bool) {
        let hooks = self.kernel.parts.hooks.clone();
        if hooks.is_empty() || messages.is_empty() {
            return;
        }
        let stored = Moment::MessagesStored {
            first_seq: first,
            messages,
        };
        let looks = hooks.observe(self.place(), stored);
        self.observed(looks, goes_on).await;
    }

    /// Adds what was stored to the window; false when it does not continue it.
    pub(super) fn remember(
        &mut self,
        messages: Vec<NewMessage>,
        first_seq: i64,
        at: Timestamp,
    ) -> bool {
        let stored = messages
            .into_iter()
            .zip(first_seq..)
            .map(|(message, seq)| message.at(seq, self.send.record.id, at, self.hold.lease.epoch));
        self.prompt.window.extend(stored).is_ok()
    }
}

/// Patience with the database, for as long as the lease lasts.
#[derive(Debug, Clone)]
pub(super) struct Patience<'a> {
    parts: &'a Parts,
    lost: CancellationToken,
    send: SendId,
}

impl Patience<'_> {
    /// Asks the database until it answers. None when what it says is no outage, or the lease is gone.
    pub(super) async fn ask<T, F>(self, mut ask: impl FnMut() -> F) -> Option<T>
    where
        F: Future<Output = StoreResult<T>>,
    {
        let mut outage = Outage::default();
        loop {
            match ask().await {
                Ok(answer) => return Some(answer),
                Err(error) => {
                    if !self.outlast(&error.into(), &mut outage).await {
                        return None;
                    }
                }
            }
        }
    }

    /// Writes until the database has answered, and not only that someone else has locked the session.
    pub(super) async fn write<T, F>(
        self,
        mut write: impl FnMut() -> F,
        is_locked: impl Fn(&T) -> bool,
    ) -> Result<T, Unwritten>
    where
        F: Future<Output = Result<T, SharedError>>,
    {
        let mut outage = Outage::default();
        loop {
            match write().await {
                Ok(outcome) if !is_locked(&outcome) => return Ok(outcome),
                Ok(_) => {
                    if !self.pause(&mut outage).await {
                        return Err(Unwritten::Lost);
                    }
                }
                Err(error) => {
                    if !self.outlast(&error, &mut outage).await {
                        return Err(if outage.began {
                            Unwritten::Lost
                        } else {
                            Unwritten::Refused(error)
                        });
                    }
                }
            }
        }
    }

    /// Waits out an outage of the database, for as long as the lease allows. False when the error
    /// is of another kind or the lease is gone.
    async fn outlast(&self, error: &SharedError, outage: &mut Outage) -> bool {
        if !matches!(error.as_ref(), StoreError::Unavailable { .. }) {
            tracing::error!(send.id = %self.send, %error, "a write was refused");
            return false;
        }
        self.pause(outage).await
    }

    /// Waits before the database is asked again; false when the lease is gone.
    pub(super) async fn pause(&self, outage: &mut Outage) -> bool {
        let pause = outage.next();
        let jitter = pause.mul_f64(self.parts.entropy.fraction());
        tokio::select! {
            biased;
            () = self.lost.cancelled() => false,
            () = self.parts.clock.sleep(pause / 2 + jitter / 2) => true,
        }
    }
}

/// How long the database has been away.
#[derive(Debug, Default)]
pub(super) struct Outage {
    began: bool,
    pause: Duration,
}

impl Outage {
    fn next(&mut self) -> Duration {
        self.began = true;
        let doubled = (self.pause * 2).max(Duration::from_millis(50));
        self.pause = doubled.min(Duration::from_secs(1));
        self.pause
    }
}
