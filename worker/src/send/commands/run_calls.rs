//! `RunCalls` and `InterruptCalls`: the calls of the open round that this worker makes.

use std::time::Duration;

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::event::{LiveEvent, LiveKind};
use mainspring_shared::send::machine::{Event, Open};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{
    Approval, CallRecord, CallResult, CallState, INQUIRIES_MAX, Inquiry, Repeat,
};
use serde_json::Value;

use crate::send::calls::{Begin, CallOutcome, Calls};
use crate::send::plan;
use crate::send::run::Run;
use crate::tool::{Executor, Keep, Progress};

/// How long a result waits for those of other calls before it is stored by itself.
const FLUSH_AFTER: Duration = Duration::from_millis(500);

/// Maximum bytes of arguments in a live event, which is for observers and need not carry a file.
const LIVE_BYTES_MAX: usize = 16 << 10;

impl Run<'_> {
    /// Begins the calls whose turn it is; settles those that must not be made.
    pub(in crate::send) async fn run_calls(&mut self) -> Option<Event> {
        let now = self.now();
        self.round.skip_rest(now);
        if self.move_outside(now) {
            // Stored before the children exist, so that their ends, however soon, find the waiting
            // call.
            if let Some(event) = self.flush_results().await {
                return Some(event);
            }
            if let Some(event) = self.spawn_children().await {
                return Some(event);
            }
        }
        for place in 0..self.round.records.len() {
            let record = &self.round.records[place];
            // A tool that kept a handle takes up its own work, which begins nothing again.
            let taken_up = self.bill.handle(&record.call_id).map(|_| CallRecord {
                repeat: Repeat::Keyed,
                ..record.clone()
            });
            if let Some(result) = plan::verdict(
                taken_up.as_ref().unwrap_or(record),
                &self.prompt.offers,
                self.lease_state.lease.epoch,
                now,
            ) {
                self.round.give_up(place, result, now);
            }
        }
        self.begin_next().await
    }

    /// Makes calls that a person has permitted and that are made outside wait for their results.
    /// Returns true if some of them ask for children or runs.
    fn move_outside(&mut self, now: Timestamp) -> bool {
        let mut moved = Vec::new();
        for (place, record) in self.round.records.iter_mut().enumerate() {
            if record.state() != CallState::Requested {
                continue;
            }
            if let Some(Executor::Outside { on, deadline }) = self
                .prompt
                .offers
                .get(&record.name)
                .map(|offer| &offer.place)
            {
                record.waits_on = Some(*on);
                record.deadline_at = deadline.map(|within| now.after(within));
                self.round.fresh.push(place);
                moved.push(place);
            }
        }
        for place in &moved {
            self.announce_call(*place);
        }
        moved
            .iter()
            .any(|place| self.effect(&self.round.records[*place]).is_agents_work())
    }

    /// Begins the next calls, or reports that all are over.
    async fn begin_next(&mut self) -> Option<Event> {
        self.round.skip_rest(self.now());
        loop {
            let (records, offers) = (&self.round.records, &self.prompt.offers);
            let (pauses, tenant) = (self.kernel.pauses.now(), self.send.record.key.tenant);
            let is_held = |name: &str| pauses.of_tool(tenant, name).is_some();
            let places = plan::first(records, offers, is_held);
            if places.is_empty() {
                let held = plan::held(records, offers, |name| pauses.of_tool(tenant, name));
                return Some(match held {
                    Some(pause) => self.paused(pause),
                    None => self.calls_over(),
                });
            }
            let marks = self.round.begin(&places, self.lease_state.lease.epoch);
            if !marks.is_empty()
                && let Some(event) = self.store_changes(marks).await
            {
                return Some(event);
            }
            for place in places {
                self.begin(place);
            }
            if !self.round.calls.is_empty() {
                return None;
            }
        }
    }

    fn begin(&mut self, place: usize) {
        let record = self.round.records[place].clone();
        let Some(offer) = self.prompt.offers.get(&record.name) else {
            return;
        };
        let Executor::Here(tool) = &offer.place else {
            return;
        };
        let begin = Begin {
            place,
            tool: tool.clone(),
            offer: offer.clone(),
            hooks: self.kernel.parts.hooks.clone(),
            skills: self.prompt.offers.skills(&self.send.agent),
            content: self.kernel.kept.content.clone(),
            tells: self.kernel.parts.config.trace_content,
            progress: self.progress_of(&record.call_id),
            handle: self.bill.handle(&record.call_id).cloned(),
        };
        self.announce_call(place);
        let clock = self.kernel.parts.clock.clone();
        let asking = (self.send.record.key, self.lease_state.lease.boot);
        self.round.calls.begin(clock, asking, &record, begin);
    }

    /// Stores what a tool keeps of a call, and tells it; returns an event if that failed.
    pub(in crate::send) async fn keep_handle(&mut self, keep: Keep) -> Option<Event> {
        self.bill.keep_handle(keep.call_id, keep.handle);
        let event = self.store_changes(Vec::new()).await;
        if event.is_none() {
            // The call may be over by now.
            let _ = keep.stored.send(());
        }
        event
    }

    /// Where a call reports how far it is: to those who read the send's events.
    fn progress_of(&self, call_id: &str) -> Progress {
        let (live, id) = (self.kernel.live.clone(), call_id.to_owned());
        let (key, send_id) = (self.send.record.key, self.send.record.id);
        Progress::new(self.kernel.parts.clock.clone(), move |report| {
            let kind = LiveKind::ToolCallProgress {
                id: id.clone(),
                progress: report.progress,
                total: report.total,
                message: report.message,
            };
            live.send(key, LiveEvent { send_id, kind });
        })
    }

    /// Tells readers of the round's calls that are waited for outside.
    pub(in crate::send) fn announce_waiting(&self) {
        for (place, record) in self.round.records.iter().enumerate() {
            let waits = matches!(record.state(), CallState::Waits(_));
            if waits && record.approval == Approval::None {
                self.announce_call(place);
            }
        }
    }

    /// Tells readers that a call begins, here or outside.
    pub(in crate::send) fn announce_call(&self, place: usize) {
        let record = &self.round.records[place];
        let given = Some(&record.arguments).filter(|given| given.len() <= LIVE_BYTES_MAX);
        let text = given.filter(|given| given.is_verbatim());
        self.live(LiveKind::ToolCallStarted {
            id: record.call_id.clone(),
            name: record.name.clone(),
            arguments: given.map_or(Value::Null, |given| given.value().clone()),
            text: text.map(|given| given.text().into_owned()),
        });
    }

    /// Records the result of a call; returns an event if all calls are over.
    pub(in crate::send) async fn call_over(
        &mut self,
        place: usize,
        over: CallOutcome,
    ) -> Option<Event> {
        self.pay_for_vectors(Some(place));
        match over {
            CallOutcome::Abort(message) => {
                let result = CallResult::error(Code::ToolFailed, format!("error: {message}"));
                self.settle(place, result);
                self.ending.failure = Some(Failure::new(Code::ToolFailed, message));
                self.pay_for_vectors(None);
                self.round.calls = Calls::default();
                return Some(Event::CallsAborted);
            }
            CallOutcome::Lost(why) => return Some(self.work_lost(&why).await),
            CallOutcome::Asks(inquiry) => {
                if let Some(event) = self.ask_person(place, *inquiry).await {
                    return Some(event);
                }
            }
            CallOutcome::Result(result) => self.settle(place, result),
        }
        if !self.round.calls.is_empty() {
            self.round.flush = self.round.flush.or(Some(FLUSH_AFTER));
            return None;
        }
        self.round.flush = None;
        if self.lease_state.handles.cancel.is_cancelled() {
            return Some(self.calls_over());
        }
        self.begin_next().await
    }

    /// Stores at once what a tool asks, so that a person can answer while other calls run, and it is not asked twice if
    /// this worker dies; returns an event if that failed.
    async fn ask_person(&mut self, place: usize, inquiry: Inquiry) -> Option<Event> {
        if self.round.records[place].asked.len() >= INQUIRIES_MAX {
            let text = format!(
                "error: the tool has asked {INQUIRIES_MAX} questions and asks on; it is not called again"
            );
            self.settle(place, CallResult::error(Code::ToolFailed, text));
            return None;
        }
        let within = self.kernel.parts.config.answer_within;
        let deadline = within.map(|within| self.now().after(within));
        self.round.ask(place, inquiry, deadline);
        self.flush_results().await
    }

    /// The process that made the calls died. Known results are stored before the rest is given up.
    async fn work_lost(&mut self, why: &str) -> Event {
        tracing::warn!(
            send.id = %self.send.record.id,
            session.id = %self.send.record.key.session,
            why,
            "the process of a send's tools died; the send will be taken up again"
        );
        if let Some(event) = self.flush_results().await {
            return event;
        }
        self.ending.crashed = true;
        Event::WorkLost
    }

    fn calls_over(&mut self) -> Event {
        let (open, may_ride) = (self.round.open(self.now()), self.round.may_ride());
        if open == Open::Nothing && may_ride {
            self.tell_results();
        }
        Event::CallsOver {
            open: self.or_passed(open),
            may_ride,
        }
    }

    /// Handles an interruption: stops the calls that can be stopped, skips those that have not
    /// begun, and gives up those that wait outside.
    pub(in crate::send) fn interrupt_calls(&mut self) {
        self.round.calls.stop(false);
        self.round
            .interrupt(true, self.lease_state.lease.epoch, self.now());
    }
}
