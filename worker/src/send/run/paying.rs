//! What a send's model calls and children cost, and whether it may go on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mainspring_shared::budget::{Budget, Short, Spent, Used};
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{RunId, RunKey};
use mainspring_shared::inbox::{InboxItem, ItemKind, ended_run};
use mainspring_shared::send::SendStatus;
use mainspring_shared::send::machine::Event;
use mainspring_shared::store::{SendTotals, UsageRow};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{Approval, CallRecord};
use mainspring_shared::usage::Usage;
use mainspring_shared::workflow::run::Starter;
use serde_json::Value;

use super::attempt::Asked;
use super::persist::Outage;
use super::{Pending, Run};
use crate::llm::{Request, Resolved, estimate_request_tokens};
use crate::send::children::is_ephemeral;

impl Run<'_> {
    /// When the send's time is up.
    pub(super) fn ends_at(&self) -> Option<Timestamp> {
        self.purse.ends_at(self.send.record.started_at)
    }

    /// How much of its time is left.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let now = self.now();
        self.ends_at().map(|at| at.since(now))
    }

    /// Whether its time is up; then the machine is told once.
    pub(super) fn time_is_up(&mut self) -> bool {
        let up = self.time_left().is_some_and(|left| left.is_zero());
        self.seen.deadline |= up;
        up
    }

    /// Holds a request to what is left. True when its answer may have fewer tokens than the agent
    /// allows.
    pub(super) fn allow(
        &mut self,
        request: &mut Request,
        resolved: &Resolved,
    ) -> Result<bool, Short> {
        let price = resolved.price.as_ref();
        let aside = self.aside.as_mut();
        self.purse.allow(request, &mut self.totals, aside, price)
    }

    /// The event of a model call that is not made.
    pub(super) fn short(&mut self, short: Short) -> Event {
        self.cannot(Failure::new(Code::BudgetExceeded, short.to_string()))
    }

    /// Of so many calls begun in the open round, those that are no failures.
    fn stored_not_failed(&self, attempts: i32) -> i32 {
        let not_failed = i32::try_from(self.not_failed()).unwrap_or(i32::MAX);
        not_failed.min(attempts)
    }

    /// The sums as the next step stores them.
    pub(super) fn sums(&mut self, rounds: i32, attempts: i32) -> SendTotals {
        let mut totals = SendTotals {
            rounds,
            attempts,
            counted: self.purse.counted(rounds, attempts),
            not_failed: self.stored_not_failed(attempts),
            ..self.totals.clone()
        };
        totals.session = self.purse.session(&totals);
        if let Some(spent) = totals.session {
            *self.spent = spent;
        }
        totals
    }

    /// The sums as a step stores them that does not tell the model what it is told next.
    pub(super) fn sums_so_far(&mut self) -> SendTotals {
        let mut totals = self.totals.clone();
        totals.counted = self.purse.counted(totals.rounds, totals.attempts);
        totals.not_failed = self.stored_not_failed(totals.attempts);
        match &self.aside {
            Some(aside) => self.purse.restore(aside, &mut totals),
            None => totals.session = self.purse.session(&totals),
        }
        if let Some(spent) = totals.session {
            *self.spent = spent;
        }
        totals
    }

    /// Enters what an answer cost.
    pub(super) fn pay(&mut self, model: &str, usage: &mut Usage) {
        if let Some(asked) = self.asked.take() {
            let price = asked.price.as_ref();
            usage.cost_usd = usage.cost_usd.or(price.map(|price| price.of(usage)));
            if self.partial.is_none() {
                self.purse.measure(&asked.request, usage);
            }
        }
        self.enter(model.to_owned(), *usage);
    }

    /// Enters what a call may have cost that broke off: providers bill what they have read and
    /// written by then.
    pub(super) fn pay_estimated(&mut self) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        let mut usage = Usage {
            input_tokens: estimate_request_tokens(&asked.request),
            output_tokens: streamed_tokens(&asked.streamed),
            estimated: true,
            ..Usage::default()
        };
        usage.cost_usd = asked.price.map(|price| price.of(&usage));
        self.enter(asked.request.model.clone(), usage);
    }

    /// Enters what a call may have cost that a hook ended: nothing, where the model was not heard.
    pub(super) fn pay_refused(&mut self) {
        let heard = self.asked.as_ref();
        if heard.is_some_and(|asked| asked.streamed.load(Ordering::Relaxed) > 0) {
            self.pay_estimated();
        }
        self.asked = None;
        self.owed().asked = None;
    }

    fn enter(&mut self, model: String, usage: Usage) {
        self.totals.usage.add(&usage);
        if let Some(aside) = &mut self.aside {
            aside.usage.add(&usage);
        }
        let row = UsageRow {
            round: self.totals.rounds,
            attempt: self.totals.attempts,
            model,
            usage,
        };
        self.unpaid.push(row.clone());
        let session = self.purse.session(&self.totals);
        let mut owed = self.owed();
        owed.asked = None;
        owed.rows.push(row);
        owed.session = session;
    }

    /// Enters a call that begins with those who end the send should its run break down.
    pub(super) fn owe(&mut self, asked: &Asked) {
        let row = UsageRow {
            round: self.totals.rounds,
            attempt: self.totals.attempts,
            model: asked.request.model.clone(),
            usage: Usage {
                input_tokens: estimate_request_tokens(&asked.request),
                estimated: true,
                ..Usage::default()
            },
        };
        let session = self.purse.session(&self.totals);
        let mut owed = self.owed();
        owed.session = session;
        owed.asked = Some(Pending {
            row,
            price: asked.price,
            streamed: asked.streamed.clone(),
        });
    }

    /// Stores what an attempt cost that broke off, and that it was made: whoever takes the send over
    /// after a death knows both. An event when that did not work.
    pub(super) async fn note_spending(&mut self) -> Option<Event> {
        if self.unpaid.is_empty() {
            return None;
        }
        self.store_changes(Vec::new()).await
    }

    /// Gives the session back; what was spent in vain is stored before.
    pub(super) async fn hand_over(&mut self) -> Event {
        if !self.unpaid.is_empty() {
            // What follows finds out whether the lease is still held.
            let _ = self.store_changes(Vec::new()).await;
        }
        self.release().await
    }

    /// What a child or run of the round gets of what is left; none when that is too little for any.
    pub(super) fn slice(&self, children: usize) -> Option<Spent> {
        // One share stays for what is made of their results.
        self.purse.share(&self.totals, children as u64 + 1)
    }

    /// The budget of a child or a run, by what was set aside for it.
    pub(super) fn child_budget(&self, call: &str) -> Option<Budget> {
        let slice = self.totals.held.0.get(call);
        self.purse.budget(slice, self.time_left())
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

    /// Takes in what a child used whose end the model is told with the next step.
    fn take_in(&mut self, call: &str, used: Used, slice: Spent) {
        if self.aside.is_none() {
            self.aside = Some(self.purse.aside(&self.totals));
        }
        self.purse.settle(&mut self.totals, call, used, slice);
    }

    /// Adds what a run cost whose end is the input of this send; false when the database does not
    /// say for as long as the lease allows.
    pub(super) async fn roll_up_input(&mut self) -> bool {
        // Stored with the first round, as the input is.
        let told = self.send.record.rounds > 0;
        let Some(run) = self.send.record.options.ended_run.filter(|_| !told) else {
            return true;
        };
        let mut outage = Outage::default();
        loop {
            match self.roll_up_runs(vec![run]).await {
                Ok(()) => return true,
                Err(error) => {
                    if !self.outlast(&error.into(), &mut outage).await {
                        return false;
                    }
                }
            }
        }
    }

    /// Takes in what runs used, whose ends the model is told with the next step.
    async fn roll_up_runs(&mut self, runs: Vec<RunId>) -> super::delegating::StoreResult<()> {
        let tenant = self.key.tenant;
        let keys = runs.into_iter().map(|run| RunKey { tenant, run });
        let records = self.kernel.parts.store.get_runs(keys.collect()).await?;
        for run in records.into_iter().flatten() {
            let starter = run.options.starter.as_deref();
            if let Some(Starter {
                call_id,
                budget,
                used: Some(used),
                ..
            }) = starter
            {
                let slice = budget.unwrap_or_default().slice();
                self.take_in(call_id, *used, slice);
            }
        }
        Ok(())
    }

    /// Adds what children and runs cost whose ends came into the inbox.
    pub(super) async fn roll_up_items(
        &mut self,
        items: &[InboxItem],
    ) -> super::delegating::StoreResult<()> {
        let runs: Vec<_> = items
            .iter()
            .filter_map(|item| ended_run(&item.id))
            .collect();
        if !runs.is_empty() {
            self.roll_up_runs(runs).await?;
        }
        let ended = items.iter().filter(|item| item.kind == ItemKind::Child);
        let sends = ended.filter_map(|item| item.id.strip_prefix("child_")?.parse().ok());
        let ids: Vec<_> = sends.map(|send| (self.key.tenant, send)).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let records = self.kernel.parts.store.get_sends(ids).await?;
        for child in records.into_iter().flatten() {
            let Some(call) = &child.reports_to else {
                continue;
            };
            let used = Used {
                usage: child.usage,
                kept: child.kept(),
            };
            let slice = child.options.budget.unwrap_or_default().slice();
            self.take_in(call, used, slice);
            if child.status == SendStatus::Completed {
                let session = self.kernel.parts.store.get_session(child.key).await?;
                let gone = session.as_ref().is_some_and(is_ephemeral);
                self.answered.extend(gone.then_some(child.key));
            }
        }
        Ok(())
    }
}

/// Tokens of an answer that broke off.
pub(super) fn streamed_tokens(streamed: &AtomicU64) -> u64 {
    streamed.load(Ordering::Relaxed)
}

/// Whether this is what a call is told whose child works in the background.
fn is_receipt(value: &Value) -> bool {
    value.get("status").and_then(Value::as_str) == Some("accepted")
}
