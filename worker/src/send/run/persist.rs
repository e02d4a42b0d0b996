//! What a run writes: rounds, ends, parks and releases, each until the database has answered.
//!
//! After an outage nothing is sent again blind: the send is read back first, and what turns out to
//! be stored is left to whoever claims the session next.

use std::time::Duration;

use mainspring_shared::error::{Code, Coded, Failure};
use mainspring_shared::message::{NewMessage, plain_text};
use mainspring_shared::send::machine::{End, Event};
use mainspring_shared::send::{SendRecord, SendResult, StopReason, WaitingOn};
use mainspring_shared::session::SIGNAL_CANCEL;
use mainspring_shared::store::{
    AppendOutcome, AppendRound, CompleteOutcome, CompleteSend, Error as StoreError, ParkOutcome,
    ParkSend, ParkUntil, ReadySession, ReleaseSession, SendTotals, Then,
};
use mainspring_shared::time::Timestamp;

use super::{Left, Run};
use crate::metrics;
use crate::send::settle;
use crate::writes::{self, SharedError};

impl Run<'_> {
    /// Stores the round of the reply, with an answer to each call.
    pub(super) async fn store_round(&mut self) -> Event {
        let Some(reply) = self.reply.take() else {
            return Event::LeaseLost;
        };
        let index = self.totals.rounds;
        let (answer, calls) = settle::round(&reply, self.send.record.id, index);
        let messages: Vec<_> = self.input.iter().cloned().chain(answer).collect();
        let totals = SendTotals {
            usage: self.totals.usage,
            rounds: index + 1,
            attempts: 0,
        };
        let item = AppendRound {
            key: self.key,
            lease: self.lease,
            send_id: self.send.record.id,
            messages: messages.clone(),
            calls,
            usage: self.unpaid.clone(),
            round: settle::round_ref(&reply, index),
            totals,
        };
        let mut outage = Outage::default();
        loop {
            if outage.began
                && let Some(record) = self.read_back().await
                && record.rounds > index
            {
                // The commit had gone through; what it numbered is loaded by whoever claims next.
                return self.release_as_lost().await;
            }
            match self.kernel.writes.append(item.clone()).await {
                Ok(AppendOutcome::Appended {
                    first_seq,
                    at,
                    counters,
                    ..
                }) => {
                    self.totals = totals;
                    self.input = None;
                    self.unpaid.clear();
                    if !self.remember(messages, first_seq, at) {
                        return self.release_as_lost().await;
                    }
                    return Event::RoundStored {
                        cancelled: counters.signals & SIGNAL_CANCEL != 0,
                    };
                }
                // Refused by what an earlier attempt of ours did, it may still be held.
                Ok(AppendOutcome::LeaseLost) if outage.began => {
                    return self.release_as_lost().await;
                }
                Ok(AppendOutcome::LeaseLost) => return Event::LeaseLost,
                Err(error) => {
                    if !self.outlast(&error, &mut outage).await {
                        return self.release_as_lost().await;
                    }
                }
            }
        }
    }

    /// Stores the end, and takes what the transaction took next.
    pub(super) async fn end(&mut self, end: End) -> Event {
        let mut item = self.completion(end);
        let mut outage = Outage::default();
        loop {
            if outage.began
                && let Some(record) = self.read_back().await
                && record.status.is_final()
            {
                return self.release_as_lost().await;
            }
            match self.kernel.writes.complete(item.clone()).await {
                Ok(CompleteOutcome::Completed(completed)) => {
                    metrics::send_ended(completed.status);
                    let kept = self.remember(item.messages, completed.first_seq, completed.at);
                    if let Some(ready) = completed.ring {
                        writes::ring(&self.kernel.parts, ready);
                    }
                    if !kept {
                        return self.release_as_lost().await;
                    }
                    self.left = Left::Done(completed.next.map(Box::new));
                    return Event::Stored;
                }
                Ok(CompleteOutcome::LeaseLost) if outage.began => {
                    return self.release_as_lost().await;
                }
                Ok(CompleteOutcome::LeaseLost) => return Event::LeaseLost,
                Err(error) => {
                    if self.outlast(&error, &mut outage).await {
                        continue;
                    }
                    if outage.began || item.messages.is_empty() {
                        return self.release_as_lost().await;
                    }
                    // The database refuses the answer itself: the send ends without it.
                    let failure = Failure::new(error.code(), "the answer could not be stored");
                    item.messages.clear();
                    item.result = SendResult::failed(StopReason::Internal, failure);
                }
            }
        }
    }

    fn completion(&mut self, end: End) -> CompleteSend {
        let index = self.totals.rounds;
        let reply = self.reply.take();
        let mut messages: Vec<_> = self.input.take().into_iter().collect();
        if let Some(reply) = reply.as_ref().filter(|reply| !reply.content.is_empty()) {
            messages.push(settle::answer(reply, index));
        }
        let result = match end {
            End::Completed(reason) => {
                let text = match &reply {
                    Some(reply) => plain_text(&reply.content),
                    None => settle::last_text(self.window.active(None), self.send.record.id),
                };
                SendResult::completed(reason, text)
            }
            End::Failed(reason, code) => {
                let failure = self.failure.take().filter(|failure| failure.code == code);
                let failure = failure.unwrap_or_else(|| Failure::new(code, summary(code)));
                SendResult::failed(reason, failure)
            }
            End::Cancelled => SendResult::cancelled(),
        };
        if reply.is_some() {
            self.totals.rounds = index + 1;
        }
        let stopping = self.kernel.lifecycle.is_stopping();
        CompleteSend {
            key: self.key,
            lease: self.lease,
            send_id: self.send.record.id,
            messages,
            usage: std::mem::take(&mut self.unpaid),
            round: reply.as_ref().map(|reply| settle::round_ref(reply, index)),
            totals: self.totals,
            result,
            then: if stopping { Then::Release } else { self.then },
        }
    }

    pub(super) async fn park(&mut self, on: WaitingOn, after: Option<Duration>) -> Event {
        let item = ParkSend {
            key: self.key,
            lease: self.lease,
            send_id: self.send.record.id,
            on,
            until: after.map_or(ParkUntil::Asked, ParkUntil::After),
            usage: self.unpaid.clone(),
            totals: self.totals,
        };
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
                // Parking gives the lease back, so a repeat after an unheard commit ends here too.
                Ok(ParkOutcome::LeaseLost) => return Event::LeaseLost,
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
    async fn release_as_lost(&mut self) -> Event {
        self.release().await;
        self.left = Left::Lost;
        Event::LeaseLost
    }

    async fn read_back(&mut self) -> Option<SendRecord> {
        let ids = vec![(self.key.tenant, self.send.record.id)];
        self.kernel.parts.store.get_sends(ids).await.ok()?.pop()?
    }

    /// Adds what was stored to the window; false when it does not continue it.
    fn remember(&mut self, messages: Vec<NewMessage>, first_seq: i64, at: Timestamp) -> bool {
        let stored = messages
            .into_iter()
            .zip(first_seq..)
            .map(|(message, seq)| message.at(seq, self.send.record.id, at, self.lease.epoch));
        self.window.extend(stored).is_ok()
    }

    /// Waits out an outage of the database, for as long as the lease allows. False when the error
    /// is of another kind or the lease is gone.
    async fn outlast(&mut self, error: &SharedError, outage: &mut Outage) -> bool {
        if !matches!(error.as_ref(), StoreError::Unavailable { .. }) {
            tracing::error!(send.id = %self.send.record.id, %error, "a write was refused");
            return false;
        }
        let pause = outage.next();
        let jitter = pause.mul_f64(self.kernel.parts.entropy.fraction());
        tokio::select! {
            () = self.lost.cancelled() => false,
            () = self.kernel.parts.clock.sleep(pause / 2 + jitter / 2) => true,
        }
    }
}

fn summary(code: Code) -> &'static str {
    match code {
        Code::SendDeadline => "the deadline passed before the send ended",
        Code::SendWorkerCrashLimit => "workers died under this send too often",
        _ => "the send could not be answered",
    }
}

/// How long the database has been away.
#[derive(Debug, Default)]
struct Outage {
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
