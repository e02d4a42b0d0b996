//! The open round: its calls as their rows say or will say, and which changes are not stored yet.
//! It only changes itself; the run stores the changes.

use std::collections::BTreeSet;
use std::time::Duration;

use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::send::machine::Open;
use mainspring_shared::store::{CallChange, CallStep};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{
    Approval, Asked, CallRecord, CallResult, CallState, Inquiry, Repeat,
};
use uuid::Uuid;

use super::calls::Calls;
use super::plan;
use super::vet::Vetted;
use crate::hook::ToolCall;

/// The result of a call that a message interrupted: it is not made, or not waited for.
const INTERRUPTED: &str = "error: a message interrupted it; this call was not made or its result \
                           is not waited for";

/// The calls of the round that is open.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The calls, in order.
    pub(super) records: Vec<CallRecord>,
    /// Places of the calls that changed since they were stored.
    pub(super) fresh: Vec<usize>,
    /// Places of the calls that are not waited for any longer, though their rows may already have a
    /// result.
    pub(super) given_up: Vec<usize>,
    /// Children and runs that the calls created under an earlier worker.
    pub(super) made: BTreeSet<Uuid>,
    /// The calls of the last round with their results, which hooks have not been told yet.
    pub(super) over: Vec<(ToolCall, CallResult)>,
    /// Ephemeral children that have answered and are to be deleted.
    pub(super) answered: Vec<SessionKey>,
    /// The calls that run in this process.
    pub(super) calls: Calls,
    /// The vetted calls of the last answer.
    pub(super) vetted: Vec<Vetted>,
    /// Whether one of its calls ended the model's turn.
    pub(super) passed: bool,
    /// When to store results that have arrived, although other calls are still running.
    pub(super) flush: Option<Duration>,
}

impl Round {
    /// What the calls still need.
    pub(super) fn open(&self, now: Timestamp) -> Open {
        plan::open(&self.records, now)
    }

    /// Merges stored rows. A result that is not stored yet takes precedence over its row.
    pub(super) fn merge(&mut self, stored: Vec<CallRecord>) {
        for record in stored {
            match self.records.iter_mut().find(|r| r.place == record.place) {
                Some(known) if known.result.is_some() => {}
                Some(known) => *known = record,
                None => self.records.push(record),
            }
        }
        self.records.sort_by_key(|record| record.place);
    }

    /// Records that calls start under this epoch; returns the changes that must be durable before
    /// the calls are made.
    pub(super) fn begin(&mut self, places: &[usize], epoch: i64) -> Vec<CallChange> {
        let mut marks = Vec::new();
        for place in places {
            let record = &mut self.records[*place];
            let durable = plan::needs_mark(record, epoch);
            if record.state() != (CallState::Started { epoch }) {
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

    /// Gives a call its result, to be stored later; the first result wins.
    pub(super) fn settle(&mut self, place: usize, result: CallResult, now: Timestamp) {
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

    /// Lets a call wait for a person's answer to what its tool asks, to be stored at once.
    pub(super) fn ask(&mut self, place: usize, inquiry: Inquiry, deadline: Option<Timestamp>) {
        let record = &mut self.records[place];
        if record.result.is_some() {
            return;
        }
        record.asked.push(Asked {
            inquiry,
            attempt: record.attempt,
            reply: None,
        });
        record.waits_on = Some(WaitingOn::Human);
        record.deadline_at = deadline;
        if !self.fresh.contains(&place) {
            self.fresh.push(place);
        }
    }

    /// Gives a call a result instead of the one that is waited for. Another process may have stored
    /// that one meanwhile, so the row is read back before the model is shown either.
    pub(super) fn give_up(&mut self, place: usize, result: CallResult, now: Timestamp) {
        let record = &self.records[place];
        if record.result.is_none() && matches!(record.state(), CallState::Waits(_)) {
            self.given_up.push(place);
        }
        self.settle(place, result, now);
    }

    /// Settles as interrupted every call that this worker has not started: those that wait outside
    /// and, with `unbegun`, those that never started or started under another epoch.
    pub(super) fn interrupt(&mut self, unbegun: bool, epoch: i64, now: Timestamp) {
        for place in 0..self.records.len() {
            let over = match self.records[place].state() {
                CallState::Settled => false,
                CallState::Waits(_) => true,
                CallState::Requested => unbegun,
                CallState::Started { epoch: begun } => unbegun && begun != epoch,
            };
            if over {
                let result = CallResult::error(Code::ToolInterrupted, INTERRUPTED);
                self.give_up(place, result, now);
            }
        }
    }

    /// Settles the calls that have not started once a result says to skip them. The reason is
    /// stored with that result, so a worker that takes the send over skips the same calls.
    pub(super) fn skip_rest(&mut self, now: Timestamp) {
        let mut results = self.records.iter().filter_map(|it| it.result.as_ref());
        let Some(why) = results.find_map(|it| it.skips.clone()) else {
            return;
        };
        for place in 0..self.records.len() {
            let record = &self.records[place];
            // A call that a person was asked about has been decided by that person.
            if record.state() == CallState::Requested && record.approval == Approval::None {
                let text = format!("error: this call was skipped: {why}");
                self.settle(place, CallResult::error(Code::ToolDenied, text), now);
            }
        }
    }

    /// Whether the changes may be stored with the next round: if they are lost, the calls are made
    /// again.
    pub(super) fn may_ride(&self) -> bool {
        let mut fresh = self.fresh.iter();
        self.given_up.is_empty() && fresh.all(|place| self.records[*place].repeat == Repeat::Safe)
    }

    /// The row changes of the calls that changed since they were stored.
    pub(super) fn fresh_changes(&mut self, now: Timestamp) -> Vec<CallChange> {
        let fresh = std::mem::take(&mut self.fresh);
        self.changes_of(fresh, now)
    }

    /// The same for only the calls that are not waited for any longer; also returns all their
    /// places.
    pub(super) fn given_up_changes(&mut self, now: Timestamp) -> (Vec<usize>, Vec<CallChange>) {
        let given_up = std::mem::take(&mut self.given_up);
        let fresh = std::mem::take(&mut self.fresh).into_iter();
        let (unsure, fresh) = fresh.partition(|place| given_up.contains(place));
        self.fresh = fresh;
        (given_up, self.changes_of(unsure, now))
    }

    fn changes_of(&self, places: Vec<usize>, now: Timestamp) -> Vec<CallChange> {
        let changes = places.into_iter().filter_map(|place| {
            let record = &self.records[place];
            let change = match (&record.result, record.waits_on) {
                (Some(result), _) => CallStep::Settled(result.clone()),
                (None, Some(_)) if record.open_question().is_some() => CallStep::Asks {
                    asked: record.asked.clone(),
                    deadline: record.deadline_at.map(|at| at.since(now)),
                },
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
}

#[cfg(test)]
mod tests {
    use mainspring_shared::id::{SendId, SessionId};
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    fn call(place: i32, repeat: Repeat) -> CallRecord {
        CallRecord {
            call_id: format!("call_{place}"),
            session: SessionId(Uuid::nil()),
            send_id: SendId(Uuid::nil()),
            round: 0,
            place,
            name: "look".into(),
            arguments: json!({}).into(),
            repeat,
            waits_on: None,
            approval: Approval::None,
            started_epoch: None,
            attempt: 0,
            deadline_at: None,
            asked: Vec::new(),
            result: None,
            requested_at: NOW,
            claim: None,
            settled_at: None,
        }
    }

    fn round(calls: Vec<CallRecord>) -> Round {
        Round {
            records: calls,
            ..Round::default()
        }
    }

    fn waits(place: i32) -> CallRecord {
        CallRecord {
            waits_on: Some(WaitingOn::Tool),
            deadline_at: Some(Timestamp(1_500)),
            ..call(place, Repeat::Once)
        }
    }

    #[test]
    fn the_first_result_of_a_call_counts_and_is_stored_once() {
        let mut round = round(vec![call(0, Repeat::Safe)]);
        round.settle(0, CallResult::text("first"), NOW);
        round.settle(0, CallResult::text("second"), NOW);
        assert_eq!(round.records[0].result, Some(CallResult::text("first")));
        assert_eq!(round.fresh_changes(NOW).len(), 1);
        assert_eq!(round.fresh_changes(NOW), []);
        assert_eq!(round.open(NOW), Open::Nothing);
    }

    #[test]
    fn rows_do_not_replace_a_result_that_is_not_stored_yet() {
        let mut round = round(vec![call(1, Repeat::Safe)]);
        round.settle(0, CallResult::text("known here"), NOW);
        let stored = CallRecord {
            result: Some(CallResult::text("of the row")),
            ..call(1, Repeat::Safe)
        };
        round.merge(vec![stored, call(0, Repeat::Safe)]);
        let places: Vec<_> = round.records.iter().map(|record| record.place).collect();
        assert_eq!(places, [0, 1]);
        let result = round.records[1].result.as_ref();
        assert_eq!(result, Some(&CallResult::text("known here")));
    }

    #[test]
    fn what_waited_outside_is_told_from_what_is_certain() {
        let mut round = round(vec![waits(0), call(1, Repeat::Safe)]);
        round.interrupt(true, 7, NOW);
        assert!(!round.may_ride(), "who was first is not known");
        let (given_up, changes) = round.given_up_changes(NOW);
        assert_eq!(given_up, [0]);
        let ids: Vec<_> = changes.iter().map(|change| &*change.call_id).collect();
        assert_eq!(ids, ["call_0"]);
        assert!(round.may_ride());
        assert_eq!(round.fresh_changes(NOW)[0].call_id, "call_1");
    }

    #[test]
    fn an_interruption_leaves_what_this_life_has_begun() {
        let mut round = round(vec![call(0, Repeat::Once), call(1, Repeat::Once)]);
        let marks = round.begin(&[0], 7);
        assert_eq!(
            marks.len(),
            1,
            "it must not be made twice, so it is stored first"
        );
        assert_eq!(round.begin(&[0], 7), []);
        assert_eq!(round.records[0].attempt, 1);
        round.interrupt(true, 7, NOW);
        assert_eq!(round.records[0].result, None);
        assert!(round.records[1].result.is_some());
        round.interrupt(true, 8, NOW);
        assert!(
            round.records[0].result.is_some(),
            "begun in an earlier life"
        );
    }

    #[test]
    fn the_rest_of_a_round_is_skipped_but_for_what_runs_waits_or_was_approved() {
        let approved = CallRecord {
            approval: Approval::Given,
            ..call(3, Repeat::Once)
        };
        let calls = vec![
            call(0, Repeat::Safe),
            call(1, Repeat::Once),
            waits(2),
            approved,
            call(4, Repeat::Safe),
        ];
        let mut round = round(calls);
        round.begin(&[1], 7);
        round.skip_rest(NOW);
        assert!(round.records.iter().all(|record| record.result.is_none()));
        let result = CallResult {
            skips: Some("enough".into()),
            ..CallResult::text("found")
        };
        round.settle(0, result, NOW);
        round.skip_rest(NOW);
        let open = round.records.iter().filter(|it| it.result.is_none());
        let open: Vec<_> = open.map(|record| record.place).collect();
        assert_eq!(open, [1, 2, 3]);
        let skipped = round.records[4].result.as_ref().expect("skipped");
        assert_eq!(skipped.code, Some(Code::ToolDenied));
        assert!(skipped.whole_text().contains("enough"));
    }

    #[test]
    fn a_wait_is_stored_with_the_time_that_is_left() {
        let mut round = round(vec![waits(0)]);
        round.fresh.push(0);
        let changes = round.fresh_changes(NOW);
        assert_eq!(
            changes[0].change,
            CallStep::Waits {
                on: WaitingOn::Tool,
                deadline: Some(Duration::from_millis(500)),
            }
        );
    }
}
