//! What a run writes: rounds, ends, parks and releases, each until the database has answered.
//!
//! Each write carries its number under the lease, so that one that is sent again after an outage
//! takes effect once. Where the answer does not say how things stand, the session is given back to
//! whoever claims it next.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mainspring_shared::budget::{Short, Spent};
use mainspring_shared::error::{Code, Coded, Failure};
use mainspring_shared::message::{NewMessage, Role, plain_text};
use mainspring_shared::send::machine::{End, Event, Open};
use mainspring_shared::send::{SendResult, SendStatus, StopReason, WaitingOn};
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INBOX, SIGNAL_INTERRUPT, SIGNAL_RESULT};
use mainspring_shared::store::{
    AppendOutcome, AppendRound, CallChange, CompleteOutcome, CompleteSend, Error as StoreError,
    ParkOutcome, ParkSend, ParkUntil, ReadySession, ReleaseSession, Then,
};
use mainspring_shared::time::Timestamp;

use super::{Inbox, Left, Run};
use crate::hook::At;
use crate::llm::Reply;
use crate::metrics;
use crate::send::unsaid::Unsaid;
use crate::send::{plan, settle};
use crate::tools::is_agents_work;
use crate::writes::{self, SharedError};

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
        let names = reply.tool_calls.iter().map(|call| call.name.as_str());
        let children = names.filter(|name| is_agents_work(name)).count();
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
    async fn open_after(&mut self, signals: i32) -> Result<Open, Event> {
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
    fn wrote(&self) {
        self.reach.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Stores the end, and takes what the transaction took next.
    pub(super) async fn end(&mut self, end: End) -> Event {
        if let Some(event) = self.end_calls().await {
            return event;
        }
        // The signal is lowered: nobody would look again for what came. An answer that was made
        // without it is followed by another round; any other end tells it.
        if self.inbox == Inbox::Lowered {
            let answers = self.reply.is_some() && matches!(end, End::Completed(_));
            if answers {
                match self.lacks_words().await {
                    Some(true) => return Event::Undelivered,
                    Some(false) => self.inbox = Inbox::Known,
                    None => return self.release_as_lost().await,
                }
            } else {
                self.gather(self.totals.rounds).await;
            }
        }
        let mut item = self.completion(end);
        let mut outage = Outage::default();
        loop {
            match self.kernel.writes.complete(item.clone()).await {
                Ok(CompleteOutcome::Completed(completed)) => {
                    self.wrote();
                    metrics::send_ended(completed.status);
                    if let (SendStatus::Failed, Some(failure)) =
                        (completed.status, &item.result.error)
                    {
                        tracing::warn!(
                            send.id = %item.send_id,
                            session.id = %self.key.session,
                            code = failure.code.as_str(),
                            stop_reason = ?item.result.stop_reason,
                            rounds = item.totals.rounds,
                            "a send failed"
                        );
                    }
                    self.report().await;
                    if completed.status != SendStatus::Completed {
                        self.end_children().await;
                    }
                    let kept = self.remember(item.messages, completed.first_seq, completed.at);
                    if let Some(ready) = completed.ring {
                        writes::ring(&self.kernel.parts, ready);
                    }
                    let hooks = self.kernel.parts.hooks.clone();
                    let place = self.place();
                    let looks = hooks.send_ended(place, completed.status);
                    self.observed(looks, false).await;
                    if !kept {
                        return self.release_as_lost().await;
                    }
                    self.left = Left::Done(completed.next.map(Box::new));
                    return Event::Stored;
                }
                Ok(CompleteOutcome::Undelivered) => {
                    self.wrote();
                    // The signals are lowered now. What raised them may have been told with this
                    // round's question: then the answer stands, and nothing is asked again.
                    if self.lacks_nothing(&item).await {
                        item.lease = self.reach.lease(self.lease);
                        continue;
                    }
                    return self.goes_on(item);
                }
                // An earlier attempt may have ended it and kept the lease for the next send.
                Ok(CompleteOutcome::LeaseLost) => return self.release_as_lost().await,
                Ok(CompleteOutcome::Locked) => {
                    if !self.pause(&mut outage).await {
                        return self.release_as_lost().await;
                    }
                }
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

    /// Whether the end that is to be stored delivers all that lies in the inbox. False when the
    /// database does not say: then the next round looks.
    async fn lacks_nothing(&mut self, item: &CompleteSend) -> bool {
        let pending = self.kernel.parts.store.read_inbox(self.pending_items());
        let Ok(pending) = pending.await else {
            return false;
        };
        let told = |id: &str| item.deliveries.iter().any(|told| told.item_id == id);
        !self.is_full(&pending) && pending.iter().all(|pending| told(&pending.id))
    }

    /// The send was to end, but has been told something: its answer becomes a round.
    fn goes_on(&mut self, item: CompleteSend) -> Event {
        let mut messages = item.messages;
        // The answer is made anew from the reply, which is kept for this.
        messages.pop();
        self.unsaid = Unsaid {
            messages,
            changes: item.changes,
            deliveries: item.deliveries,
            ..Unsaid::default()
        };
        self.unpaid = item.usage;
        self.totals.rounds -= 1;
        self.inbox = Inbox::Lowered;
        Event::Undelivered
    }

    fn completion(&mut self, end: End) -> CompleteSend {
        let index = self.totals.rounds;
        let reply = self.reply.clone();
        let Unsaid {
            mut messages,
            changes,
            deliveries,
            ..
        } = std::mem::take(&mut self.unsaid);
        let answer = reply.as_ref().filter(|reply| !reply.content.is_empty());
        if let Some(reply) = answer {
            messages.push(settle::answer(reply, index));
        } else if reply.is_none() {
            let stored = self.window.last().map(|message| message.role);
            let last = messages.last().map(|message| message.role).or(stored);
            // Calls without their results are not left behind, so an answer is one in words.
            if last != Some(Role::Assistant) {
                messages.extend(settle::closing(end, index));
            }
        }
        let result = match end {
            End::Completed(reason) => {
                let text = match &reply {
                    Some(reply) => plain_text(&reply.content),
                    None => settle::last_text(self.window.active(None), self.send.record.id),
                };
                SendResult {
                    output: reply.as_ref().and(self.value()),
                    ..SendResult::completed(reason, text)
                }
            }
            End::Failed(StopReason::Deadline, _) if self.time_is_up() => {
                let failure = Failure::new(Code::BudgetExceeded, Short::Wall.to_string());
                SendResult::failed(StopReason::Budget, failure)
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
        // Only an answer can be followed by another round.
        let answered = answer.is_some() && result.status == SendStatus::Completed;
        let stopping = self.kernel.lifecycle.is_stopping();
        CompleteSend {
            key: self.key,
            lease: self.reach.lease(self.lease),
            send_id: self.send.record.id,
            messages,
            changes,
            deliveries,
            usage: std::mem::take(&mut self.unpaid),
            round: reply.as_ref().map(|reply| settle::round_ref(reply, index)),
            totals: self.sums(self.totals.rounds, self.totals.attempts),
            result,
            unless: if answered {
                SIGNAL_INBOX | SIGNAL_INTERRUPT
            } else {
                0
            },
            then: if stopping { Then::Release } else { self.then },
        }
    }

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
    pub(super) async fn outlast(&mut self, error: &SharedError, outage: &mut Outage) -> bool {
        if !matches!(error.as_ref(), StoreError::Unavailable { .. }) {
            tracing::error!(send.id = %self.send.record.id, %error, "a write was refused");
            return false;
        }
        self.pause(outage).await
    }

    /// Waits before the database is asked again; false when the lease is gone.
    async fn pause(&mut self, outage: &mut Outage) -> bool {
        let pause = outage.next();
        let jitter = pause.mul_f64(self.kernel.parts.entropy.fraction());
        tokio::select! {
            biased;
            () = self.reach.lost.cancelled() => false,
            () = self.kernel.parts.clock.sleep(pause / 2 + jitter / 2) => true,
        }
    }
}

fn summary(code: Code) -> &'static str {
    match code {
        Code::SendDeadline => "the deadline passed before the send ended",
        Code::LimitExceeded => "messages interrupted one round too often",
        Code::SendWorkerCrashLimit => "workers died under this send too often",
        _ => "the send could not be answered",
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
