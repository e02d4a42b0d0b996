//! What a send has cost: its totals, which part of them is stored, and what is left to spend.

use std::time::Duration;

use mainspring_shared::budget::{Budget, Short, Spent, Used};
use mainspring_shared::error::Code;
use mainspring_shared::memory::PaidCall;
use mainspring_shared::session::shown::Background;
use mainspring_shared::store::{SendTotals, StartedSend, UsageRow};
use mainspring_shared::tool::{Approval, CallRecord};
use mainspring_shared::usage::Usage;
use serde_json::Value;

use super::allowance::{Allowance, UncommittedSpend};
use crate::llm::{Request, Resolved};
use crate::metrics;

/// The totals of a send.
#[derive(Debug)]
pub(super) struct Bill<'a> {
    /// What may still be spent.
    pub(super) allowance: Allowance,
    /// What the session has spent.
    pub(super) spent: &'a mut Spent,
    /// The current totals.
    pub(super) totals: SendTotals,
    /// The totals without the children and runs that the model is only told of with the next step,
    /// if there are any.
    pub(super) aside: Option<Box<UncommittedSpend>>,
    /// Usage rows that no transaction has stored yet.
    pub(super) unpaid: Vec<UsageRow>,
    /// Model calls begun in the current round, as of the last stored step.
    pub(super) stored_attempts: i32,
    /// Embedding calls under the current grant.
    vectors: i32,
}

impl<'a> Bill<'a> {
    pub(super) fn new(send: &StartedSend, totals: SendTotals, spent: &'a mut Spent) -> Self {
        Self {
            allowance: Allowance::new(send, &totals, *spent),
            spent,
            totals,
            aside: None,
            unpaid: Vec::new(),
            stored_attempts: send.record.attempts,
            vectors: 0,
        }
    }

    /// Whether model calls have begun that no stored step records.
    pub(super) fn is_behind(&self) -> bool {
        self.totals.attempts > self.stored_attempts
    }

    /// Limits a request to what is left. Returns true if its answer may have fewer tokens than the
    /// agent allows.
    pub(super) fn allow(
        &mut self,
        request: &mut Request,
        resolved: &Resolved,
    ) -> Result<bool, Short> {
        let shown = self.totals.shown.as_ref();
        let back = shown.and_then(|shown| shown.sent_back);
        if back.is_some_and(|back| self.totals.rounds < back.unpriced_before) {
            return Ok(false);
        }
        let price = resolved.facts.price.as_ref();
        let aside = self.aside.as_deref_mut();
        self.allowance
            .allow(request, &mut self.totals, aside, price)
    }

    /// The totals for the next step. `not_failed` of the round's calls do not count as failures.
    pub(super) fn sums(&mut self, rounds: i32, attempts: i32, not_failed: u32) -> SendTotals {
        let mut totals = SendTotals {
            rounds,
            attempts,
            counted: self.allowance.counted(rounds, attempts),
            not_failed: at_most(not_failed, attempts),
            ..self.totals.clone()
        };
        totals.session = self.allowance.session(&totals);
        self.spend(&totals);
        totals
    }

    /// The totals for a step that does not store what the model is told next.
    pub(super) fn sums_so_far(&mut self, not_failed: u32) -> SendTotals {
        let mut totals = self.totals.clone();
        totals.counted = self.allowance.counted(totals.rounds, totals.attempts);
        totals.not_failed = at_most(not_failed, totals.attempts);
        match &self.aside {
            Some(aside) => self.allowance.restore(aside, &mut totals),
            None => totals.session = self.allowance.session(&totals),
        }
        self.spend(&totals);
        totals
    }

    /// Records an answer that its provider works on in the background, or that there is none;
    /// returns the previous one.
    pub(super) fn note_background(&mut self, open: Option<Background>) -> Option<Background> {
        if open.is_none() && self.totals.shown.is_none() {
            return None;
        }
        let shown = self.totals.shown.get_or_insert_default();
        std::mem::replace(&mut shown.background, open)
    }

    /// Records what a tool keeps of a call.
    pub(super) fn keep_handle(&mut self, call_id: String, handle: Value) {
        let shown = self.totals.shown.get_or_insert_default();
        shown.handles.insert(call_id, handle);
    }

    /// What a tool has kept of a call.
    pub(super) fn handle(&self, call_id: &str) -> Option<&Value> {
        self.totals.shown.as_ref()?.handles.get(call_id)
    }

    /// Forgets what tools have kept of calls, which are all over.
    pub(super) fn forget_handles(&mut self) {
        if let Some(shown) = &mut self.totals.shown {
            shown.handles.clear();
        }
    }

    fn spend(&mut self, totals: &SendTotals) {
        if let Some(spent) = totals.session {
            *self.spent = spent;
        }
    }

    /// Records that a step with these totals was stored. What the model is told is stored together
    /// with messages.
    pub(super) fn stored(&mut self, totals: SendTotals, with_messages: bool) {
        self.unpaid.clear();
        self.stored_attempts = totals.attempts;
        if with_messages {
            self.totals = totals;
            self.aside = None;
        }
    }

    /// Takes the unstored costs of calls outside the rounds. A round's own call is repeated by the
    /// next worker under the same number.
    pub(super) fn take_unpaid_beside(&mut self) -> Vec<UsageRow> {
        let mut rows = std::mem::take(&mut self.unpaid);
        rows.retain(|row| !row.is_of_round());
        rows
    }

    /// Enters the cost of a model call; returns the session's spending including it, if that is
    /// tracked.
    pub(super) fn enter(&mut self, row: UsageRow) -> Option<Spent> {
        self.totals.usage.add(&row.usage);
        if let Some(aside) = &mut self.aside {
            aside.usage.add(&row.usage);
        }
        metrics::model_used(&row);
        self.unpaid.push(row);
        self.allowance.session(&self.totals)
    }

    /// The usage row of an embedding call that the send waited for, under the grant `epoch`.
    pub(super) fn row_of_vectors(&mut self, epoch: i64, call: PaidCall) -> UsageRow {
        self.vectors += 1;
        UsageRow::of_vectors(epoch, self.vectors, call.model, call.usage)
    }

    /// The usage row of the current attempt.
    pub(super) fn row(&self, model: String, usage: Usage) -> UsageRow {
        UsageRow {
            round: self.totals.rounds,
            attempt: self.totals.attempts,
            model,
            usage,
        }
    }

    /// The slice of the remaining budget for each child or run of the round; `None` if it would be
    /// too small for any.
    pub(super) fn slice(&self, children: usize) -> Option<Spent> {
        // One share is kept for the work on their results.
        self.allowance.share(&self.totals, children as u64 + 1)
    }

    /// The budget of a child or a run, from its slice.
    pub(super) fn child_budget(&self, call: &str, wall: Option<Duration>) -> Option<Budget> {
        let slice = self.totals.held.0.get(call);
        self.allowance.budget(slice, wall)
    }

    /// Adds the cost of a finished child or run to this send's totals.
    pub(super) fn roll_up(&mut self, call: &CallRecord) {
        let Some(result) = &call.result else {
            return;
        };
        // A call with a receipt, or whose work goes on, keeps its slice. A child that was never
        // made, or that a person did not permit, gives it back.
        let goes_on = matches!(
            result.code,
            Some(Code::ToolInterrupted | Code::ToolCancelled)
        ) || result.value.as_deref().is_some_and(is_receipt);
        if goes_on && call.approval != Approval::Asked {
            return;
        }
        let value = result.value.as_deref();
        let member = |name| value.and_then(|value: &Value| value.get(name));
        let usage = member("usage").and_then(|usage| serde_json::from_value(usage.clone()).ok());
        // A run reports what else it used, and so does a child with work still going on below it;
        // any other child counts its model answers.
        let kept = member("kept").and_then(|kept| serde_json::from_value(kept.clone()).ok());
        let rounds = member("rounds").and_then(Value::as_u64).unwrap_or(0);
        let used = Used {
            usage: usage.unwrap_or_default(),
            kept: kept.unwrap_or(Spent {
                rounds,
                ..Spent::default()
            }),
        };
        self.take_in(&call.call_id, used, Spent::default());
    }

    /// Takes in the usage of a child or run whose end the model is told of with the next step.
    pub(super) fn take_in(&mut self, call: &str, used: Used, slice: Spent) {
        if self.aside.is_none() {
            self.aside = Some(Box::new(self.allowance.aside(&self.totals)));
        }
        self.allowance.settle(&mut self.totals, call, used, slice);
    }
}

fn at_most(not_failed: u32, attempts: i32) -> i32 {
    i32::try_from(not_failed).unwrap_or(i32::MAX).min(attempts)
}

/// Whether this is the receipt of a call whose child works in the background.
fn is_receipt(value: &Value) -> bool {
    value.get("status").and_then(Value::as_str) == Some("accepted")
}
