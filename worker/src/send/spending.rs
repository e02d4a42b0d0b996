//! Enters the costs of a send's model calls, children and runs, and tracks how much time is left.

use std::time::Duration;

use mainspring_shared::budget::Used;
use mainspring_shared::id::{RunId, RunKey, SendId};
use mainspring_shared::inbox::{InboxItem, ItemKind, ended_run};
use mainspring_shared::model::Measured;
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{SendTotals, UsageRow};
use mainspring_shared::time::Timestamp;
use mainspring_shared::usage::Usage;
use mainspring_shared::workflow::run::Starter;

use super::children::is_ephemeral;
use super::lease_state::Pending;
use super::model_call::BegunCall;
use super::run::Run;
use crate::llm::{estimate_request_tokens, expect_request_tokens};

impl Run<'_> {
    /// When the send's time is up.
    pub(super) fn ends_at(&self) -> Option<Timestamp> {
        self.bill.allowance.ends_at(self.send.record.started_at)
    }

    /// How much time the send has left.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let now = self.now();
        self.ends_at().map(|at| at.since(now))
    }

    /// Whether its time is up; the machine is told only once.
    pub(super) fn time_is_up(&mut self) -> bool {
        let up = self.time_left().is_some_and(|left| left.is_zero());
        self.lease_state.seen.deadline |= up;
        up
    }

    /// The totals for the next step.
    pub(super) fn sums(&mut self) -> SendTotals {
        let not_failed = self.asking.not_failed();
        let (rounds, attempts) = (self.bill.totals.rounds, self.bill.totals.attempts);
        self.bill.sums(rounds, attempts, not_failed)
    }

    /// Enters the cost of an answer.
    pub(super) fn pay(&mut self, model: &str, usage: &mut Usage) {
        if let Some(asked) = self.asking.asked.take() {
            let price = asked.facts.price;
            usage.cost_usd = usage.cost_usd.or(price.map(|price| price.of(usage)));
            // An estimate says nothing about the provider's token counts, so nothing is learned
            // from it.
            let mut measured = None;
            if !usage.estimated {
                let expected = expect_request_tokens(&asked.request);
                measured = Measured::of(&asked.request, usage, expected);
                let model = (&*asked.provider, asked.request.model.as_str());
                let calibrations = self.kernel.parts.providers.calibrations();
                let before = calibrations.most(model);
                calibrations.observe(model, &asked.facts, expected, usage.input_tokens);
                self.compare_count(before, expected, usage.input_tokens);
            }
            if self.asking.partial.is_none() {
                self.bill.allowance.measure(measured);
            }
        }
        self.enter_answer(model.to_owned(), *usage);
    }

    /// Enters the estimated cost of a call that was cut off: providers bill what they have read and
    /// written by then.
    pub(super) fn pay_estimated(&mut self) {
        let Some(asked) = self.asking.asked.take() else {
            return;
        };
        let input = estimate_request_tokens(&asked.request);
        let usage = asked.received.usage(input, asked.facts.price.as_ref());
        self.enter_answer(asked.request.model.clone(), usage);
    }

    /// Enters the estimated cost of a call that a hook ended; nothing if the model had not begun to answer.
    pub(super) fn pay_refused(&mut self) {
        let begun = self.asking.asked.as_ref();
        if begun.is_some_and(|asked| asked.received.has_begun()) {
            self.pay_estimated();
        }
        self.asking.asked = None;
        self.lease_state.owed().asked = None;
    }

    fn enter_answer(&mut self, model: String, usage: Usage) {
        self.lease_state.owed().asked = None;
        let row = self.bill.row(model, usage);
        self.enter(row);
    }

    /// Enters the cost of a model call, for the next step and for the code that ends the send if
    /// its run crashes first.
    pub(super) fn enter(&mut self, row: UsageRow) {
        let session = self.bill.enter(row.clone());
        let mut owed = self.lease_state.owed();
        owed.rows.push(row);
        owed.session = session;
    }

    /// Registers a call that begins, so that it is billed even if the run crashes.
    pub(super) fn owe(&mut self, asked: &BegunCall) {
        let usage = Usage {
            input_tokens: estimate_request_tokens(&asked.request),
            estimated: true,
            ..Usage::default()
        };
        let row = self.bill.row(asked.request.model.clone(), usage);
        let session = self.bill.allowance.session(&self.bill.totals);
        let mut owed = self.lease_state.owed();
        owed.session = session;
        owed.asked = Some(Pending {
            row,
            price: asked.facts.price,
            received: asked.received.clone(),
        });
    }

    /// Adds the cost of a run whose end is the input of this send. Returns false if the database
    /// does not answer for as long as the lease is held.
    pub(super) async fn roll_up_input(&mut self) -> bool {
        // It was stored with the first round, as the input was.
        let told = self.send.record.rounds > 0;
        match self.send.record.options.ended_run.filter(|_| !told) {
            Some(run) => Box::pin(self.roll_up_ended(vec![run], Vec::new())).await,
            None => true,
        }
    }

    /// Adds the costs of children and runs whose ends arrived in the inbox. Returns false if the
    /// database does not answer.
    pub(super) async fn roll_up_items(&mut self, items: &[InboxItem]) -> bool {
        let runs = items.iter().filter_map(|item| ended_run(&item.id));
        let ended = items.iter().filter(|item| item.kind == ItemKind::Child);
        let sends = ended.filter_map(|item| item.id.strip_prefix("child_")?.parse().ok());
        let (runs, sends): (Vec<_>, Vec<_>) = (runs.collect(), sends.collect());
        if runs.is_empty() && sends.is_empty() {
            return true;
        }
        Box::pin(self.roll_up_ended(runs, sends)).await
    }

    /// Takes in the usage of runs and children whose ends the model is told of with the next step.
    /// Everything is read before any of it is taken in, so that a repeated read after an outage
    /// counts once.
    async fn roll_up_ended(&mut self, runs: Vec<RunId>, sends: Vec<SendId>) -> bool {
        let tenant = self.send.record.key.tenant;
        let runs: Vec<_> = runs.into_iter().map(|run| RunKey { tenant, run }).collect();
        let sends: Vec<_> = sends.into_iter().map(|send| (tenant, send)).collect();
        let store = &self.kernel.parts.store;
        let ended = self.db_retry().ask(|| async {
            let runs = store.get_runs(runs.clone()).await?;
            let mut children = Vec::new();
            for child in store.get_sends(sends.clone()).await?.into_iter().flatten() {
                let session = if child.status == SendStatus::Completed {
                    store.get_session(child.key).await?
                } else {
                    None
                };
                children.push((child, session.as_ref().is_some_and(is_ephemeral)));
            }
            Ok((runs, children))
        });
        let Some((runs, children)) = ended.await else {
            return false;
        };
        for run in runs.into_iter().flatten() {
            let starter = run.options.starter.as_deref();
            if let Some(Starter {
                call_id,
                budget,
                used: Some(used),
                ..
            }) = starter
            {
                let slice = budget.unwrap_or_default().slice();
                self.bill.take_in(call_id, *used, slice);
            }
        }
        for (child, gone) in children {
            let Some(call) = &child.reports_to else {
                continue;
            };
            let used = Used {
                usage: child.usage,
                kept: child.kept(),
            };
            let slice = child.options.budget.unwrap_or_default().slice();
            self.bill.take_in(call, used, slice);
            self.round.answered.extend(gone.then_some(child.key));
        }
        true
    }
}
