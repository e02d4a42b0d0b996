//! `Release`: the session is released with its send as it is.

use mainspring_shared::send::machine::Event;
use mainspring_shared::store::{ReadySession, ReleaseLoss, ReleaseSession};

use crate::send::run::{Run, RunOutcome};
use crate::writes;

impl Run<'_> {
    /// Releases the session. Costs, and the beginning of an answer that was paid for, are stored
    /// first.
    pub(in crate::send) async fn release(&mut self) -> Event {
        self.drop_beside();
        let begun = self.keep_begun();
        if begun || !self.bill.unpaid.is_empty() {
            // The release below finds out whether the lease is still held.
            let _ = self.store_changes(Vec::new()).await;
        }
        self.give_back().await
    }

    /// Releases the session as it is, and enqueues it so that another worker continues at once.
    /// Retries for as long as the boot lives: renewals would otherwise keep a session that nobody
    /// works on.
    pub(in crate::send) async fn give_back(&mut self) -> Event {
        let item = ReleaseSession {
            key: self.send.record.key,
            lease: self.lease_state.lease,
            lost: self.lost(),
        };
        let writes = &self.kernel.writes;
        let write = || writes.release(item);
        self.ending.outcome = match self.db_retry().write(write, |_| false).await {
            Ok(true) => RunOutcome::Done(None),
            Ok(false) | Err(_) => RunOutcome::Lost,
        };
        if matches!(self.ending.outcome, RunOutcome::Done(_)) {
            let ready = ReadySession {
                key: self.send.record.key,
                pool: self.kernel.parts.config.pool.clone(),
                priority: self.send.record.options.priority,
                ready_since: self.send.record.created_at,
            };
            writes::enqueue(&self.kernel.parts, ready);
        }
        Event::Stored
    }

    /// What work of the send is lost with this run.
    fn lost(&self) -> ReleaseLoss {
        if self.ending.crashed {
            ReleaseLoss::Work
        } else {
            ReleaseLoss::call_if(self.bill.is_behind())
        }
    }

    /// Releases a session whose state here can no longer be trusted to match the database.
    pub(in crate::send) async fn release_as_lost(&mut self) -> Event {
        self.give_back().await;
        self.ending.outcome = RunOutcome::Lost;
        Event::LeaseLost
    }
}
