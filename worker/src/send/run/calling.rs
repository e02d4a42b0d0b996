//! Running a round's calls and settling them.

use std::time::Duration;

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::event::LiveKind;
use mainspring_shared::id::SessionKey;
use mainspring_shared::send::machine::{Event, Open};
use mainspring_shared::store::{CallChange, CallStep};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{
    Approval, CallRecord, CallResult, CallState, Repeat, answers, cancelled_call,
};
use serde_json::Value;

use super::Run;
use super::persist::Outage;
use crate::hook::ToolCall;
use crate::send::calls::{Begin, Calls, Over};
use crate::send::children::answered_for_good;
use crate::send::plan;
use crate::tool::{Effect, Place};

/// How long a result waits for those of calls beside it before it is stored by itself.
const FLUSH_AFTER: Duration = Duration::from_millis(500);

/// Bytes of arguments that a live event carries: it is for those who look on, not for a file.
const LIVE_BYTES_MAX: usize = 16 << 10;

impl Run<'_> {
    /// Reads the open round's calls. False when the database does not say.
    pub(super) async fn read_round(&mut self, round: i32) -> bool {
        let mut outage = Outage::default();
        let send = self.send.record.id;
        let records = loop {
            match self
                .kernel
                .parts
                .store
                .read_round(self.key, send, round)
                .await
            {
                Ok(records) => break records,
                Err(error) => {
                    if !self.outlast(&error.into(), &mut outage).await {
                        return false;
                    }
                }
            }
        };
        // Results that are not stored yet are known better here.
        for record in records {
            match self.records.iter_mut().find(|r| r.place == record.place) {
                Some(known) if known.result.is_some() => {}
                Some(known) => *known = record,
                None => self.records.push(record),
            }
        }
        self.records.sort_by_key(|record| record.place);
        true
    }

    /// The call that stood in the place of a model failed, and the send with it, as the call did.
    pub(super) async fn call_failed(&mut self, message: String) -> Event {
        let round = self.totals.rounds - 1;
        let send = self.send.record.id;
        let store = &self.kernel.parts.store;
        // Without an answer the send fails all the same, only less precisely.
        let calls = store.read_round(self.key, send, round).await;
        let results = calls.unwrap_or_default().into_iter();
        let code = results.filter_map(|call| call.result?.code).next_back();
        self.asked = None;
        self.owed().asked = None;
        self.cannot(Failure::new(code.unwrap_or(Code::ToolFailed), message))
    }

    /// Begins the calls whose turn it is; settles those that nobody may make.
    pub(super) async fn run_calls(&mut self) -> Option<Event> {
        let now = self.now();
        if self.move_outside(now) {
            // Stored before the children exist: their ends, however soon, find who waits.
            if let Some(event) = self.flush_results().await {
                return Some(event);
            }
            if let Some(event) = self.spawn_children().await {
                return Some(event);
            }
        }
        for place in 0..self.records.len() {
            let record = &self.records[place];
            if let Some(result) = plan::verdict(record, &self.offers, self.lease.epoch, now) {
                self.give_up(place, result);
            }
        }
        self.begin_next().await
    }

    /// Calls that a person has permitted and that are made outside wait for their results from now
    /// on. True when some of them ask for children or runs.
    fn move_outside(&mut self, now: Timestamp) -> bool {
        let mut moved = Vec::new();
        for (place, record) in self.records.iter_mut().enumerate() {
            if record.state() != CallState::Requested {
                continue;
            }
            if let Some(Place::Outside { on, deadline }) =
                self.offers.get(&record.name).map(|offer| &offer.place)
            {
                record.waits_on = Some(*on);
                record.deadline_at = deadline.map(|within| now.after(within));
                self.fresh.push(place);
                moved.push(place);
            }
        }
        for place in &moved {
            self.announce_call(*place);
        }
        moved
            .iter()
            .any(|place| self.effect(&self.records[*place]).is_agents_work())
    }

    /// Begins the next calls, or says that all are over.
    async fn begin_next(&mut self) -> Option<Event> {
        loop {
            let places = plan::first(&self.records, &self.offers);
            if places.is_empty() {
                return Some(self.calls_over());
            }
            let marks = self.mark(&places);
            if !marks.is_empty()
                && let Some(event) = self.store_changes(marks).await
            {
                return Some(event);
            }
            for place in places {
                self.begin(place);
            }
            if !self.calls.is_empty() {
                return None;
            }
        }
    }

    /// Enters that calls begin in their rows as kept here; returns what of it has to be durable
    /// before they are made.
    fn mark(&mut self, places: &[usize]) -> Vec<CallChange> {
        let epoch = self.lease.epoch;
        let mut marks = Vec::new();
        for place in places {
            let record = &mut self.records[*place];
            let durable = plan::needs_mark(record, epoch);
            if record.started_epoch != Some(epoch) {
                record.started_epoch = Some(epoch);
                record.attempt += 1;
            }
            if durable {
                marks.push(CallChange {
                    call_id: record.call_id.clone(),
                    change: CallStep::Started,
                });
            }
        }
        marks
    }

    fn begin(&mut self, place: usize) {
        let record = self.records[place].clone();
        let Some(offer) = self.offers.get(&record.name) else {
            return;
        };
        let Place::Here(tool) = &offer.place else {
            return;
        };
        let begin = Begin {
            place,
            tool: tool.clone(),
            offer: offer.clone(),
            hooks: self.kernel.parts.hooks.clone(),
        };
        self.announce_call(place);
        let clock = self.kernel.parts.clock.clone();
        let asking = (self.key, self.lease.boot);
        self.calls.begin(clock, asking, &record, begin);
    }

    /// Tells readers of the round's calls that are made outside from now on.
    pub(super) fn announce_waiting(&self) {
        for (place, record) in self.records.iter().enumerate() {
            let waits = matches!(record.state(), CallState::Waits(_));
            if waits && record.approval == Approval::None {
                self.announce_call(place);
            }
        }
    }

    /// Tells readers that a call begins, here or outside.
    pub(super) fn announce_call(&self, place: usize) {
        let record = &self.records[place];
        let fits = record.arguments.to_string().len() <= LIVE_BYTES_MAX;
        let arguments = if fits {
            record.arguments.clone()
        } else {
            Value::Null
        };
        self.live(LiveKind::ToolCallStarted {
            id: record.call_id.clone(),
            name: record.name.clone(),
            arguments,
        });
    }

    /// Takes a result in; an event when all calls are over.
    pub(super) async fn call_over(&mut self, place: usize, over: Over) -> Option<Event> {
        match over {
            Over::Abort(message) => {
                let result = CallResult::error(Code::ToolFailed, format!("error: {message}"));
                self.settle(place, result);
                self.failure = Some(Failure::new(Code::ToolFailed, message));
                self.calls = Calls::default();
                return Some(Event::CallsAborted);
            }
            Over::Result(result) => self.settle(place, result),
        }
        if !self.calls.is_empty() {
            self.flush = self.flush.or(Some(FLUSH_AFTER));
            return None;
        }
        self.flush = None;
        if self.reach.cancel.is_cancelled() {
            return Some(self.calls_over());
        }
        self.begin_next().await
    }

    /// Gives a call its result, which is not stored yet.
    pub(super) fn settle(&mut self, place: usize, result: CallResult) {
        let now = self.now();
        let record = &mut self.records[place];
        if record.result.is_none() {
            record.result = Some(result);
            record.waits_on = None;
            record.settled_at = Some(now);
            if !self.fresh.contains(&place) {
                self.fresh.push(place);
            }
        }
    }

    /// Gives a call a result in the place of one that is waited for. Someone may have brought that
    /// one meanwhile: [`Run::first_word`] says which of them counts, before any is told.
    fn give_up(&mut self, place: usize, result: CallResult) {
        let record = &self.records[place];
        if record.result.is_none() && matches!(record.state(), CallState::Waits(_)) {
            self.given_up.push(place);
        }
        self.settle(place, result);
    }

    /// Stores what calls were given that are not waited for any longer, and takes what their rows say
    /// from then on: the result of whoever was first. An event when that did not work.
    pub(super) async fn first_word(&mut self) -> Option<Event> {
        let given_up = std::mem::take(&mut self.given_up);
        let round = self.records[*given_up.first()?].round;
        let fresh = std::mem::take(&mut self.fresh).into_iter();
        let (unsure, fresh) = fresh.partition(|place| given_up.contains(place));
        self.fresh = fresh;
        let changes = self.changes_of(unsure);
        if !changes.is_empty()
            && let Some(event) = self.store_changes(changes).await
        {
            return Some(event);
        }
        for place in given_up {
            self.records[place].result = None;
        }
        if self.read_round(round).await {
            return None;
        }
        Some(self.release_as_lost().await)
    }

    fn calls_over(&mut self) -> Event {
        let open = self.open();
        let mut fresh = self.fresh.iter();
        let may_ride = self.given_up.is_empty()
            && fresh.all(|place| self.records[*place].repeat == Repeat::Safe);
        if open == Open::Nothing && may_ride {
            self.tell_results();
        }
        Event::CallsOver { open, may_ride }
    }

    /// What the rows of calls get that changed since they were stored.
    pub(super) fn fresh_changes(&mut self) -> Vec<CallChange> {
        let fresh = std::mem::take(&mut self.fresh);
        self.changes_of(fresh)
    }

    fn changes_of(&self, places: Vec<usize>) -> Vec<CallChange> {
        let now = self.now();
        let changes = places.into_iter().filter_map(|place| {
            let record = &self.records[place];
            let change = match (&record.result, record.waits_on) {
                (Some(result), _) => CallStep::Settled(result.clone()),
                (None, Some(on)) => CallStep::Waits {
                    on,
                    deadline: record.deadline_at.map(|at| at.since(now)),
                },
                (None, None) => return None,
            };
            Some(CallChange {
                call_id: record.call_id.clone(),
                change,
            })
        });
        changes.collect()
    }

    /// Puts the round's results among what the model is told next.
    pub(super) fn tell_results(&mut self) {
        debug_assert!(self.given_up.is_empty(), "who was first is not known");
        let changes = self.fresh_changes();
        if let Some(answers) = answers(&self.records) {
            self.unsaid.answers(answers, changes);
            let hooked = !self.kernel.parts.hooks.is_empty();
            for record in std::mem::take(&mut self.records) {
                if hooked {
                    self.over.extend(seen_by_hooks(&record));
                }
                let effect = self.effect(&record);
                if effect.is_agents_work() {
                    self.roll_up(&record);
                }
                let child = answered_for_good(&record).filter(|_| effect == Effect::Delegate);
                self.answered.extend(child.map(|session| SessionKey {
                    session,
                    ..self.key
                }));
            }
        }
    }

    /// An interruption came: calls that can stop do, those that did not begin are not made, and
    /// nobody outside is waited for.
    pub(super) fn interrupt_calls(&mut self) {
        self.calls.stop(false);
        self.interrupt_waiting(true);
    }

    /// Settles what is not under way here as interrupted.
    pub(super) fn interrupt_waiting(&mut self, unbegun: bool) {
        let epoch = self.lease.epoch;
        for place in 0..self.records.len() {
            let over = match self.records[place].state() {
                CallState::Settled => false,
                CallState::Waits(_) => true,
                CallState::Requested => unbegun,
                CallState::Started { epoch: begun } => unbegun && begun != epoch,
            };
            if over {
                let text = "error: a message came in between; this call was not made or its result \
                            is not waited for";
                self.give_up(place, CallResult::error(Code::ToolInterrupted, text));
            }
        }
    }

    /// Settles whatever is open, because the send ends, and puts the results among what is stored
    /// with its end. An event when that did not work.
    pub(super) async fn end_calls(&mut self) -> Option<Event> {
        for place in 0..self.records.len() {
            self.give_up(place, cancelled_call());
        }
        if let Some(event) = self.first_word().await {
            return Some(event);
        }
        if !self.records.is_empty() {
            self.tell_results();
        }
        None
    }
}

/// A call that is over, as hooks are shown it.
fn seen_by_hooks(record: &CallRecord) -> Option<(ToolCall, CallResult)> {
    let call = ToolCall {
        call_id: record.call_id.clone(),
        name: record.name.clone(),
        arguments: record.arguments.as_object().cloned().unwrap_or_default(),
    };
    Some((call, record.result.clone()?))
}
