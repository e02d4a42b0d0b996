//! What a send has cost: its sums, what of them is stored, and what is left to spend.

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

/// The sums of a send.
#[derive(Debug)]
pub(super) struct Bill<'a> {
    /// What may still be spent.
    pub(super) allowance: Allowance,
    /// What the session has spent.
    pub(super) spent: &'a mut Spent,
    /// The sums as they are now.
    pub(super) totals: SendTotals,
    /// The sums without what the model is told of with the next step, where that holds any.
    pub(super) aside: Option<UncommittedSpend>,
    /// Responses that no transaction has stored yet.
    pub(super) unpaid: Vec<UsageRow>,
    /// Model calls begun in the present round, as of the last step.
    pub(super) stored_attempts: i32,
    /// Calls for vectors under the present grant.
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

    /// Whether model calls were begun that no step tells of.
    pub(super) fn is_behind(&self) -> bool {
        self.totals.attempts > self.stored_attempts
    }

    /// Holds a request to what is left. True when its answer may have fewer tokens than the agent
    /// allows.
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
        let aside = self.aside.as_mut();
        self.allowance
            .allow(request, &mut self.totals, aside, price)
    }

    /// The sums as the next step stores them. `not_failed` of the calls begun in the round are no
    /// failures.
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

    /// The sums as a step stores them that does not store what the model is told next.
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

    /// Takes note of an answer that its provider works on, or that there is none; returns what was known.
    pub(super) fn note_background(&mut self, open: Option<Background>) -> Option<Background> {
        if open.is_none() && self.totals.shown.is_none() {
            return None;
        }
        let shown = self.totals.shown.get_or_insert_default();
        std::mem::replace(&mut shown.background, open)
    }

    fn spend(&mut self, totals: &SendTotals) {
        if let Some(spent) = totals.session {
            *self.spent = spent;
        }
    }

    /// Takes note of a step with these sums. What the model is told is stored with messages.
    pub(super) fn stored(&mut self, totals: SendTotals, with_messages: bool) {
        self.unpaid.clear();
        self.stored_attempts = totals.attempts;
        if with_messages {
            self.totals = totals;
            self.aside = None;
        }
    }

    /// What no step has stored of the calls beside the rounds. A round's own call is its next owner's to repeat, under
    /// the same number.
    pub(super) fn take_unpaid_beside(&mut self) -> Vec<UsageRow> {
        let mut rows = std::mem::take(&mut self.unpaid);
        rows.retain(|row| !row.is_of_round());
        rows
    }

    /// Enters what a call of a model cost; what the session has spent with it, where that is counted.
    pub(super) fn enter(&mut self, row: UsageRow) -> Option<Spent> {
        self.totals.usage.add(&row.usage);
        if let Some(aside) = &mut self.aside {
            aside.usage.add(&row.usage);
        }
        metrics::model_used(&row);
        self.unpaid.push(row);
        self.allowance.session(&self.totals)
    }

    /// The row of vectors that the send waited for, under the grant with this number.
    pub(super) fn row_of_vectors(&mut self, epoch: i64, call: PaidCall) -> UsageRow {
        self.vectors += 1;
        UsageRow::of_vectors(epoch, self.vectors, call.model, call.usage)
    }

    /// The row of the present attempt.
    pub(super) fn row(&self, model: String, usage: Usage) -> UsageRow {
        UsageRow {
            round: self.totals.rounds,
            attempt: self.totals.attempts,
            model,
            usage,
        }
    }

    /// What a child or run of the round gets of what is left; none when that is too little for any.
    pub(super) fn slice(&self, children: usize) -> Option<Spent> {
        // One share stays for what is made of their results.
        self.allowance.share(&self.totals, children as u64 + 1)
    }

    /// The budget of a child or a run, by what was set aside for it.
    pub(super) fn child_budget(&self, call: &str, wall: Option<Duration>) -> Option<Budget> {
        let slice = self.totals.held.0.get(call);
        self.allowance.budget(slice, wall)
    }

    /// Adds what a finished child or run cost to this send's sums.
    pub(super) fn roll_up(&mut self, call: &CallRecord) {
        let Some(result) = &call.result else {
            return;
        };
        // A receipt, or what goes on, keeps its slice; one that was never made gives it
        // back, and so does one that nobody permitted.
        let goes_on = matches!(
            result.code,
            Some(Code::ToolInterrupted | Code::ToolCancelled)
        ) || result.value.as_ref().is_some_and(is_receipt);
        if goes_on && call.approval != Approval::Asked {
            return;
        }
        let value = result.value.as_ref();
        let member = |name| value.and_then(|value: &Value| value.get(name));
        let usage = member("usage").and_then(|usage| serde_json::from_value(usage.clone()).ok());
        // A run says what it used besides, and so does a child below which others work on; any other
        // child counts its model answers.
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

    /// Takes in what a child or run used whose end the model is told with the next step.
    pub(super) fn take_in(&mut self, call: &str, used: Used, slice: Spent) {
        if self.aside.is_none() {
            self.aside = Some(self.allowance.aside(&self.totals));
        }
        self.allowance.settle(&mut self.totals, call, used, slice);
    }
}

fn at_most(not_failed: u32, attempts: i32) -> i32 {
    i32::try_from(not_failed).unwrap_or(i32::MAX).min(attempts)
}

/// Whether this is what a call is told whose child works in the background.
fn is_receipt(value: &Value) -> bool {
    value.get("status").and_then(Value::as_str) == Some("accepted")
}
