//! Results of the open round's calls: read from their rows, settled and told to the model.

use mainspring_shared::id::SessionKey;
use mainspring_shared::message::{ContentPart, NewMessage, Role};
use mainspring_shared::send::machine::{Event, Open};
use mainspring_shared::tool::{CallRecord, CallResult, answers, cancelled_call};

use super::children::answered_for_good;
use super::round::Round;
use super::run::Run;
use crate::hook::ToolCall;
use crate::tool::Effect;

impl Run<'_> {
    /// Reads the open round's calls. Returns false if the database does not answer.
    pub(super) async fn read_round(&mut self, round: i32) -> bool {
        let (key, send) = (self.send.record.key, self.send.record.id);
        let store = &self.kernel.parts.store;
        let records = self
            .db_retry()
            .ask(|| store.read_round(key, send, round))
            .await;
        let is_known = records.is_some();
        self.round.merge(records.unwrap_or_default());
        is_known
    }

    /// Gives a call its result, to be stored later.
    pub(super) fn settle(&mut self, place: usize, result: CallResult) {
        let now = self.now();
        self.round.settle(place, result, now);
    }

    /// Stores the results given to calls that are not waited for any longer, then adopts what their
    /// rows say: the first stored result wins. Returns an event if that failed.
    pub(super) async fn first_word(&mut self) -> Option<Event> {
        let now = self.now();
        let (given_up, changes) = self.round.given_up_changes(now);
        let round = self.round.records[*given_up.first()?].round;
        if !changes.is_empty()
            && let Some(event) = self.store_changes(changes).await
        {
            return Some(event);
        }
        for place in given_up {
            self.round.records[place].result = None;
        }
        if self.read_round(round).await {
            return None;
        }
        Some(self.release_as_lost().await)
    }

    /// Adds the round's results to what the model is told next.
    pub(super) fn tell_results(&mut self) {
        debug_assert!(self.round.given_up.is_empty(), "who was first is not known");
        let changes = self.round.fresh_changes(self.now());
        if let Some(mut answers) = answers(&self.round.records) {
            let results = self.round.records.iter();
            answers.extend(results.flat_map(beside));
            self.bill.forget_handles();
            self.prompt.pending_messages.answers(answers, changes);
            let hooked = !self.kernel.parts.hooks.is_empty();
            self.round.passed = self.passes();
            let settled = self.round.records.iter().filter_map(|r| r.settled_at);
            self.asking.tries.results_at = settled.max();
            for record in std::mem::take(&mut self.round.records) {
                if hooked {
                    self.round.over.extend(seen_by_hooks(&record));
                }
                let effect = self.effect(&record);
                if effect.is_agents_work() {
                    self.bill.roll_up(&record);
                }
                let child = answered_for_good(&record).filter(|_| effect == Effect::Delegate);
                self.round.answered.extend(child.map(|session| SessionKey {
                    session,
                    ..self.send.record.key
                }));
            }
        }
    }

    /// What the open round needs; if nothing, its results are told to the model next.
    pub(super) fn look(&mut self) -> Open {
        let open = self.round.open(self.now());
        if open == Open::Nothing && !self.round.records.is_empty() {
            self.tell_results();
        }
        self.or_passed(open)
    }

    /// What a round whose results are in the transcript needs: nothing, unless one of its calls
    /// passed the turn and the worker crashed before it could end the send.
    pub(super) async fn told_round(&mut self) -> Result<Open, Event> {
        let last = self.prompt.window.last();
        let told =
            last.filter(|last| last.role == Role::Tool && last.send_id == self.send.record.id);
        let Some(round) = told.map(|last| last.round) else {
            return Ok(Open::Nothing);
        };
        let mut offers = self.prompt.offers.list().iter();
        if !offers.any(|offer| offer.traits.effect == Effect::PassTurn) {
            return Ok(Open::Nothing);
        }
        if !self.read_round(round).await {
            return Err(self.release_as_lost().await);
        }
        let passed = self.passes();
        self.round = Round::default();
        self.round.passed = passed;
        Ok(if passed { Open::Passed } else { Open::Nothing })
    }

    /// What the round needs, given what its calls need.
    pub(super) fn or_passed(&self, open: Open) -> Open {
        let passed = open == Open::Nothing && (self.round.passed || self.passes());
        if passed { Open::Passed } else { open }
    }

    /// Whether one of the round's calls ends the model's turn. A send that must return a value ends
    /// only with one.
    fn passes(&self) -> bool {
        let mut calls = self.round.records.iter();
        let wants_value = matches!(self.prompt.output, Ok(Some(_)));
        // The model must see what hooks said about the results.
        let is_told = |call: &CallRecord| {
            let result = call.result.as_ref();
            result.is_some_and(|result| !result.said.is_empty())
        };
        !wants_value
            && !self.round.records.iter().any(is_told)
            && calls.any(|call| {
                let succeeded = call.result.as_ref().is_some_and(|result| !result.failed);
                succeeded && self.effect(call) == Effect::PassTurn
            })
    }

    /// Settles whatever is open because the send ends, and adds the results to what is stored with
    /// the end. Returns an event if that failed.
    pub(super) async fn end_calls(&mut self) -> Option<Event> {
        let now = self.now();
        for place in 0..self.round.records.len() {
            self.round.give_up(place, cancelled_call(), now);
        }
        if let Some(event) = self.first_word().await {
            return Some(event);
        }
        if !self.round.records.is_empty() {
            self.tell_results();
        }
        None
    }
}

/// What hooks said about a call. It is placed after all results of the round, so that no result is
/// separated from its call, and opens the next round.
fn beside(record: &CallRecord) -> impl Iterator<Item = NewMessage> + '_ {
    let said = record.result.iter().flat_map(|result| &result.said);
    said.map(|text| NewMessage::user(vec![ContentPart::text(text)], record.round + 1))
}

/// A finished call, as hooks see it.
fn seen_by_hooks(record: &CallRecord) -> Option<(ToolCall, CallResult)> {
    let call = ToolCall {
        call_id: record.call_id.clone(),
        name: record.name.clone(),
        said: Some(record.arguments.text().into()),
        arguments: record.arguments.as_object().cloned().unwrap_or_default(),
    };
    Some((call, record.result.clone()?))
}
