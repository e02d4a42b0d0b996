//! Database reads and writes of a run, each retried until the database has answered.
//!
//! Each write carries its number under the lease, so that a write that is repeated after an outage
//! takes effect once. If the answer does not tell the state of the session, the session is released
//! for the next worker that claims it.

use std::future::Future;

use mainspring_shared::message::NewMessage;
use mainspring_shared::send::machine::Event;
use mainspring_shared::store::{AppendOutcome, AppendRound};
use mainspring_shared::time::Timestamp;

use super::run::Run;
use crate::db_retry::DbRetry;
use crate::hook::Moment;

impl<'a> Run<'a> {
    /// The retry policy for this run's database requests.
    pub(super) fn db_retry(&self) -> DbRetry<'a> {
        let lost = self.lease_state.handles.lost.clone();
        DbRetry::new(&self.kernel.parts, lost, self.send.record.id)
    }

    /// Stores a step that does not end the send; returns the signals that it lowered. If it is
    /// repeated after an outage, it gets the outcome of the first attempt.
    pub(super) fn append(
        &mut self,
        item: AppendRound,
    ) -> impl Future<Output = Result<i32, Event>> + Send {
        self.append_boxed(Box::new(item))
    }

    /// The same, boxed, so that callers hold no memory for the item while they wait.
    async fn append_boxed(&mut self, item: Box<AppendRound>) -> Result<i32, Event> {
        self.forget_children().await;
        let writes = &self.kernel.writes;
        let write = || writes.append(AppendRound::clone(&item));
        let appended = self
            .db_retry()
            .write(write, |outcome| matches!(outcome, AppendOutcome::Locked));
        let Ok(AppendOutcome::Appended {
            first_seq,
            at,
            counters,
            ..
        }) = appended.await
        else {
            // Whatever refused the write, nothing of the lease may stay behind.
            return Err(self.release_as_lost().await);
        };
        self.lease_state.wrote();
        self.lease_state.owed().rows.clear();
        self.bill.stored(item.totals, !item.messages.is_empty());
        self.lease_state.lowered(counters.signals);
        self.show_stored(&item.messages, first_seq, true).await;
        let AppendRound {
            messages,
            fold,
            send_id,
            ..
        } = *item;
        if !self.remember(messages, first_seq, at) {
            return Err(self.release_as_lost().await);
        }
        if let Some(fold) = fold {
            let fold = fold.at(counters.context_version, send_id, at);
            self.prompt.window.fold(fold);
            // Any other change of the context is read before the next send begins.
            if counters.context_version == *self.prompt.version + 1 {
                *self.prompt.version = counters.context_version;
            }
        }
        Ok(counters.signals)
    }

    /// Shows hooks what was stored.
    pub(super) async fn show_stored(&mut self, messages: &[NewMessage], first: i64, goes_on: bool) {
        if messages.is_empty() {
            return;
        }
        let stored = Moment::MessagesStored {
            first_seq: first,
            messages,
        };
        self.show(self.place(), stored, goes_on).await;
    }

    /// Adds what was stored to the window; returns false if it does not continue the window.
    pub(super) fn remember(
        &mut self,
        messages: Vec<NewMessage>,
        first_seq: i64,
        at: Timestamp,
    ) -> bool {
        let stored = messages.into_iter().zip(first_seq..).map(|(message, seq)| {
            message.at(seq, self.send.record.id, at, self.lease_state.lease.epoch)
        });
        self.prompt.window.extend(stored).is_ok()
    }
}
