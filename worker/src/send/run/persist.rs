//! What a run writes on its way: rounds and the results of their calls, each until the database has
//! answered.
//!
//! Each write carries its number under the lease, so that one that is sent again after an outage
//! takes effect once. Where the answer does not say how things stand, the session is given back to
//! whoever claims it next.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mainspring_shared::budget::Spent;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::machine::{Event, Open};
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INBOX, SIGNAL_INTERRUPT, SIGNAL_RESULT};
use mainspring_shared::store::{AppendOutcome, AppendRound, CallChange, Error as StoreError};
use mainspring_shared::time::Timestamp;

use super::{Inbox, Run};
use crate::hook::At;
use crate::llm::Reply;
use crate::send::unsaid::Unsaid;
use crate::send::{plan, settle};
use crate::writes::SharedError;

impl Run<'_> {
    /// Stores the round of the reply with its calls.
    pub(super) async fn store_round(&mut self) -> Event {
        let Some(reply) = self.reply.take() else {
            return Event::LeaseLost;
        };
        let index = self.totals.rounds;
        let asking = settle::Asking {
            key: self.key,
            send: self.send.record.id,
            round: index,
            epoch: self.lease.epoch,
            now: self.now(),
            stopping: self.kernel.lifecycle.is_stopping(),
            answer_within: self.kernel.parts.config.answer_within,
            no_children: false,
        };
        let round = self.round(&reply, asking);
        let Unsaid {
            mut messages,
            changes,
            deliveries,
            ..
        } = std::mem::take(&mut self.unsaid);
        // Calls that are all refused have their answers in the round's own transaction.
        let called = !round.records.is_empty();
        let answered = plan::open(&round.records, self.now()) == Open::Nothing;
        messages.extend(round.messages);
        messages.extend(self.correction(index));
        let totals = self.sums(index + 1, 0);
        let item = AppendRound {
            key: self.key,
            lease: self.reach.lease(self.lease),
            send_id: self.send.record.id,
            messages,
            calls: round.calls,
            changes,
            deliveries,
            usage: self.unpaid.clone(),
            round: Some(settle::round_ref(&reply, index)),
            totals,
        };
        match self.append(item).await {
            Ok(signals) => {
                // What was answered before was asked by a round that is over.
                self.heard = signals & SIGNAL_INTERRUPT;
                if !answered {
                    self.records = round.records;
                    self.announce_waiting();
                }
                let hooks = self.kernel.parts.hooks.clone();
                let place = At {
                    round: index,
                    ..self.place()
                };
                if called {
                    self.observed(hooks.round_stored(place), true).await;
                }
                if let Some(event) = self.spawn_children().await {
                    return event;
                }
                let open = self.look();
                Event::RoundStored {
                    cancelled: signals & SIGNAL_CANCEL != 0,
                    open,
                }
            }
            Err(event) => event,
        }
    }

    /// The round with its calls; what its children and runs get is set aside, and where that is too
    /// little they are not made.
    fn round(&mut self, reply: &Reply, mut asking: settle::Asking) -> settle::Round {
        let tools = self.kernel.parts.tools.clone();
        let is_agents_work = |name: &str| tools.effect(name).is_agents_work();
        let calls = reply.tool_calls.iter();
        let children = calls.filter(|call| is_agents_work(&call.name)).count();
        if children == 0 {
            return settle::round(reply, asking, &self.offers, &self.vetted);
        }
        let slice = self.slice(children);
        asking.no_children = slice.is_none();
        let round = settle::round(reply, asking, &self.offers, &self.vetted);
        let made = round.records.iter().filter(|r| r.result.is_none());
        let made = made.filter(|record| is_agents_work(&record.name));
        if let Some(slice) = slice.filter(|slice| *slice != Spent::default()) {
            let held = made.map(|record| (record.call_id.clone(), slice));
            self.totals.held.0.extend(held);
        }
        round
    }

    /// Stores results, and the answers of the round once it has them all.
    pub(super) async fn store_results(&mut self) -> Event {
        if let Some(event) = self.first_word().await {
            return event;
        }
        if self.open() == Open::Nothing {
            self.tell_results();
        }
        let changes = self.fresh_changes();
        let Unsaid {
            messages,
            changes: told,
            deliveries,
            ..
        } = std::mem::take(&mut self.unsaid);
        let totals = self.sums(self.totals.rounds, self.totals.attempts);
        let item = AppendRound {
            messages,
            deliveries,
            totals,
            ..self.changes_only(told.into_iter().chain(changes).collect())
        };
        match self.append(item).await {
            Ok(signals) => {
                let cancelled = signals & SIGNAL_CANCEL != 0;
                match self.open_after(signals).await {
                    Ok(open) => Event::ResultsStored { cancelled, open },
                    Err(event) => event,
                }
            }
            Err(event) => event,
        }
    }

    /// Stores results that came while other calls still run.
    pub(super) async fn flush_results(&mut self) -> Option<Event> {
        let changes = self.fresh_changes();
        if changes.is_empty() {
            return None;
        }
        self.store_changes(changes).await
    }

    /// Stores changes of calls; an event when that did not work.
    pub(super) async fn store_changes(&mut self, changes: Vec<CallChange>) -> Option<Event> {
        let item = self.changes_only(changes);
        match self.append(item).await {
            Ok(signals) => {
                if signals & SIGNAL_CANCEL != 0 {
                    self.reach.cancel.cancel();
                }
                self.heard |= signals & (SIGNAL_RESULT | SIGNAL_INTERRUPT);
                None
            }
            Err(event) => Some(event),
        }
    }

    fn changes_only(&mut self, changes: Vec<CallChange>) -> AppendRound {
        AppendRound {
            key: self.key,
            lease: self.reach.lease(self.lease),
            send_id: self.send.record.id,
            messages: Vec::new(),
            calls: Vec::new(),
            changes,
            deliveries: Vec::new(),
            usage: self.unpaid.clone(),
            round: None,
            totals: self.sums_so_far(),
        }
    }

    /// What the open round needs after a step that lowered these signals.
    pub(super) async fn open_after(&mut self, signals: i32) -> Result<Open, Event> {
        let signals = signals | std::mem::take(&mut self.heard);
        self.lowered(signals);
        if signals & SIGNAL_RESULT != 0
            && let Some(round) = self.records.first().map(|record| record.round)
            && !self.read_round(round).await
        {
            return Err(self.release_as_lost().await);
        }
        if signals & SIGNAL_INTERRUPT != 0 {
            self.interrupt_waiting(false);
            if let Some(event) = self.first_word().await {
                return Err(event);
            }
        }
        Ok(self.look())
    }

    /// Takes note of signals that a step lowered.
    fn lowered(&mut self, signals: i32) {
        if self.inbox == Inbox::Raised || signals & SIGNAL_INBOX != 0 {
            self.inbox = Inbox::Lowered;
        }
    }

    /// Stores a step that does not end the send; returns the signals that it lowered. A repeat after
    /// an outage is told what became of the first attempt.
    async fn append(&mut self, item: AppendRound) -> Result<i32, Event> {
        self.forget_children().await;
        let mut outage = Outage::default();
        loop {
            match self.kernel.writes.append(item.clone()).await {
                Ok(AppendOutcome::Appended {
                    first_seq,
                    at,
                    counters,
                    ..
                }) => {
                    self.wrote();
                    self.unpaid.clear();
                    self.owed().rows.clear();
                    self.stored_attempts = item.totals.attempts;
                    // Whatever is told is told with messages.
                    if !item.messages.is_empty() {
                        self.totals = item.totals;
                        self.aside = None;
                    }
                    self.lowered(counters.signals);
                    self.show_stored(&item.messages, first_seq, true).await;
                    if !self.remember(item.messages, first_seq, at) {
                        return Err(self.release_as_lost().await);
                    }
                    return Ok(counters.signals);
                }
                // Whatever refused it, nothing of the lease may stay behind.
                Ok(AppendOutcome::LeaseLost) => return Err(self.release_as_lost().await),
                Ok(AppendOutcome::Locked) => {
                    if !self.pause(&mut outage).await {
                        return Err(self.release_as_lost().await);
                    }
                }
                Err(error) => {
                    if !self.outlast(&error, &mut outage).await {
                        return Err(self.release_as_lost().await);
                    }
                }
            }
        }
    }

    /// Counts a write under the lease.
    pub(super) fn wrote(&self) {
        self.reach.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Shows hooks what was stored.
    pub(super) async fn show_stored(&mut self, messages: &[NewMessage], first: i64, goes_on: bool) {
        let hooks = self.kernel.parts.hooks.clone();
        if hooks.is_empty() || messages.is_empty() {
            return;
        }
        let looks = hooks.messages_stored(self.place(), first, messages);
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
            .map(|(message, seq)| message.at(seq, self.send.record.id, at, self.lease.epoch));
        self.window.extend(stored).is_ok()
    }

    /// Waits out an outage of the database, for as long as the lease allows. False when the error
    /// is of another kind or the lease is gone.
    pub(super) async fn outlast(&mut self, error: &SharedError, outage: &mut Outage) -> bool {
        if !matches!(error.as_ref(), StoreError::Unavailable { .. }) {
            tracing::error!(send.id = %self.send.record.id, %error, "a write was refused");
            return false;
        }
        self.pause(outage).await
    }

    /// Waits before the database is asked again; false when the lease is gone.
    pub(super) async fn pause(&mut self, outage: &mut Outage) -> bool {
        let pause = outage.next();
        let jitter = pause.mul_f64(self.kernel.parts.entropy.fraction());
        tokio::select! {
            biased;
            () = self.reach.lost.cancelled() => false,
            () = self.kernel.parts.clock.sleep(pause / 2 + jitter / 2) => true,
        }
    }
}

/// How long the database has been away.
#[derive(Debug, Default)]
pub(super) struct Outage {
    pub(super) began: bool,
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
