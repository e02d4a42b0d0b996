//! How a send is left before its end: parked until something comes, or given back as it is.

use std::time::Duration;

use mainspring_shared::send::WaitingOn;
use mainspring_shared::send::machine::Event;
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT, SIGNAL_RESULT};
use mainspring_shared::store::{ParkOutcome, ParkSend, ParkUntil, ReadySession, ReleaseSession};

use super::persist::Outage;
use super::{Left, Run};
use crate::writes;

impl Run<'_> {
    pub(super) async fn park(&mut self, on: WaitingOn, after: Option<Duration>) -> Event {
        // What was settled here is not made again by whoever is woken, however much later.
        if let Some(event) = self.flush_results().await {
            return event;
        }
        let stopping = self.kernel.lifecycle.is_stopping();
        // Whoever is woken by the end of its time ends it.
        let after = [after, self.time_left()].into_iter().flatten().min();
        let item = ParkSend {
            key: self.key,
            lease: self.reach.lease(self.lease),
            send_id: self.send.record.id,
            on,
            until: after.map_or(ParkUntil::Asked, ParkUntil::After),
            unless: match on {
                WaitingOn::Retry | WaitingOn::Timer if stopping => 0,
                WaitingOn::Retry | WaitingOn::Timer => SIGNAL_INBOX | SIGNAL_INTERRUPT,
                WaitingOn::Tool | WaitingOn::Human | WaitingOn::Agent | WaitingOn::Run => {
                    SIGNAL_RESULT | SIGNAL_INTERRUPT
                }
                WaitingOn::Recovery => 0,
            },
            usage: self.unpaid.clone(),
            totals: self.sums_so_far(),
        };
        // What a step between lowered, the store does not know any more.
        if self.heard & item.unless != 0 {
            return match self.open_after(0).await {
                Ok(open) => Event::Woken { open },
                Err(event) => event,
            };
        }
        let mut outage = Outage::default();
        loop {
            match self.kernel.writes.park(item.clone()).await {
                Ok(ParkOutcome::Parked { .. }) => {
                    self.left = Left::Done(None);
                    return Event::Stored;
                }
                Ok(ParkOutcome::Cancelled { ring, .. }) => {
                    if let Some(ready) = ring {
                        writes::ring(&self.kernel.parts, ready);
                    }
                    // The cancel wrote the send's message, which this window does not have.
                    self.left = Left::Lost;
                    return Event::Stored;
                }
                Ok(ParkOutcome::Woken { signals }) => {
                    self.wrote();
                    return match self.open_after(signals).await {
                        Ok(open) => Event::Woken { open },
                        Err(event) => event,
                    };
                }
                // Parking gives the lease back, so a repeat after an unheard commit ends here too.
                Ok(ParkOutcome::LeaseLost) => return self.release_as_lost().await,
                Ok(ParkOutcome::Locked) => {
                    if !self.pause(&mut outage).await {
                        return self.release_as_lost().await;
                    }
                }
                Err(error) => {
                    if !self.outlast(&error, &mut outage).await {
                        return self.release_as_lost().await;
                    }
                }
            }
        }
    }

    /// Gives the session back as it is, and rings so that another worker goes on at once. Tries for
    /// as long as the life lasts: its renewals would keep a session that nobody here works on.
    pub(super) async fn release(&mut self) -> Event {
        let item = ReleaseSession {
            key: self.key,
            lease: self.lease,
            lost: self.totals.attempts > self.stored_attempts,
        };
        let mut outage = Outage::default();
        self.left = loop {
            match self.kernel.writes.release(item).await {
                Ok(true) => break Left::Done(None),
                Err(error) if self.outlast(&error, &mut outage).await => {}
                Ok(false) | Err(_) => break Left::Lost,
            }
        };
        if matches!(self.left, Left::Done(_)) {
            let ready = ReadySession {
                key: self.key,
                pool: self.kernel.parts.config.pool.clone(),
                priority: self.send.record.options.priority,
                ready_since: self.send.record.created_at,
            };
            writes::ring(&self.kernel.parts, ready);
        }
        Event::Stored
    }

    /// Leaves a session whose state here can no longer be trusted to match the database's.
    pub(super) async fn release_as_lost(&mut self) -> Event {
        self.release().await;
        self.left = Left::Lost;
        Event::LeaseLost
    }
}
