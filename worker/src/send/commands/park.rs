//! `Park`: the send waits for something outside, without a worker.

use std::time::Duration;

use mainspring_shared::send::WaitingOn;
use mainspring_shared::send::machine::Event;
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT, SIGNAL_RESULT};
use mainspring_shared::store::{ParkOutcome, ParkSend, ParkUntil};

use crate::send::run::{Run, RunOutcome};
use crate::writes;

impl Run<'_> {
    pub(in crate::send) async fn park(&mut self, on: WaitingOn, after: Option<Duration>) -> Event {
        self.drop_beside();
        // Stored first, so that calls settled here are not made again after the wake-up.
        if let Some(event) = self.flush_results().await {
            return event;
        }
        let paused = self.lease_state.paused.take();
        let is_paused = paused.is_some();
        let after = match paused {
            Some(pause) => match self.before_pause(pause).await {
                Ok(after) => Some(after),
                Err(event) => return event,
            },
            None => after,
        };
        // An attempt that was followed by a pause is no failure of the model: it may be the reason
        // for the pause.
        let not_failed = if is_paused {
            self.bill.totals.attempts.unsigned_abs()
        } else {
            self.asking.not_failed()
        };
        let stopping = self.kernel.lifecycle.is_stopping();
        // The worker that is woken when the time is up ends the send.
        let after = [after, self.time_left()].into_iter().flatten().min();
        let item = ParkSend {
            key: self.send.record.key,
            lease: self.lease_state.lease(),
            send_id: self.send.record.id,
            on,
            until: after.map_or(ParkUntil::Asked, ParkUntil::After),
            unless: match on {
                _ if is_paused => 0,
                WaitingOn::Retry | WaitingOn::Timer if stopping => 0,
                WaitingOn::Retry | WaitingOn::Timer => SIGNAL_INBOX | SIGNAL_INTERRUPT,
                WaitingOn::Tool | WaitingOn::Human | WaitingOn::Agent | WaitingOn::Run => {
                    SIGNAL_RESULT | SIGNAL_INTERRUPT
                }
                WaitingOn::Recovery => 0,
            },
            usage: self.bill.unpaid.clone(),
            totals: self.bill.sums_so_far(not_failed),
        };
        // The store does not know of signals that a step lowered meanwhile.
        if self.lease_state.heard & item.unless != 0 {
            return match self.open_after(0).await {
                Ok(open) => Event::Woken { open },
                Err(event) => event,
            };
        }
        let writes = &self.kernel.writes;
        let write = || writes.park(item.clone());
        let parked = self
            .db_retry()
            .write(write, |outcome| matches!(outcome, ParkOutcome::Locked));
        match parked.await {
            Ok(ParkOutcome::Parked { .. }) => {
                self.bill.unpaid.clear();
                self.ending.outcome = RunOutcome::Done(None);
                Event::Stored
            }
            Ok(ParkOutcome::Cancelled { enqueue, .. }) => {
                if let Some(ready) = enqueue {
                    writes::enqueue(&self.kernel.parts, ready);
                }
                // The cancel wrote the send's message, which this window does not have.
                self.ending.outcome = RunOutcome::Lost;
                Event::Stored
            }
            Ok(ParkOutcome::Woken { signals }) => {
                self.lease_state.wrote();
                match self.open_after(signals).await {
                    Ok(open) => Event::Woken { open },
                    Err(event) => event,
                }
            }
            // Parking releases the lease, so a repeat after an unacknowledged commit ends here too.
            Ok(ParkOutcome::LeaseLost | ParkOutcome::Locked) | Err(_) => {
                self.release_as_lost().await
            }
        }
    }
}
