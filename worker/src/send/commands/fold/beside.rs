//! Folds that nobody waits for: during a send that goes on, and after one that has ended.

use std::sync::Arc;

use mainspring_shared::agent::FoldStrategy;
use mainspring_shared::id::SendId;
use mainspring_shared::send::machine::Event;
use mainspring_shared::session::SIGNAL_INTERRUPT;
use mainspring_shared::session::fold::plan::{Pressure, Room};
use mainspring_shared::store::{FoldAtRest, UsageRow};
use uuid::Uuid;

use super::Beside;
use crate::fold::{Fault, Written, resting};
use crate::send::run::Run;

impl Run<'_> {
    /// Begins a fold while the send goes on, unless the send is likely to end before the fold is
    /// written, so that nobody waits for it. Returns an event if digests, which cost nothing, were
    /// attached at once.
    pub(super) async fn fold_beside(&mut self, tokens: u64, room: Room) -> Option<Event> {
        let is_short = self.bill.totals.rounds == 0;
        let by_digests = self.send.agent.context.fold.strategy == FoldStrategy::Projection;
        let is_written =
            self.folding.beside.is_some() || self.kernel.kept.resting.has(self.send.record.key);
        if is_written || (is_short && !by_digests) {
            return None;
        }
        // What is left of a budget is for the answers that are waited for.
        if !by_digests && !self.bill.allowance.is_unlimited() {
            return None;
        }
        if !self.read_whole().await {
            return Some(self.release_as_lost().await);
        }
        let span = Arc::new(self.choose(tokens, room, Pressure::Soft)?);
        if by_digests {
            self.folding.span = Some(span);
            return Some(Event::TooLong);
        }
        if self.ask_for_fold(&span, true) {
            self.folding.beside = self.folding.writing.take().map(|writing| Beside {
                writing,
                asked: self.folding.asked.take(),
                span,
            });
        }
        None
    }

    /// Attaches a fold that was written while the send went on, or digests if the next attempt
    /// would fail too; other failures are retried later. Returns an event if the step could not be
    /// stored.
    pub(in crate::send) async fn written_beside(
        &mut self,
        written: Result<Written, Fault>,
    ) -> Option<Event> {
        let Beside { asked, span, .. } = self.folding.beside.take()?;
        self.folding.asked = asked;
        match written {
            Ok(written) => {
                if let Some(reply) = &written.reply {
                    self.pay_for_fold(reply.model.clone(), reply.usage);
                }
                let attached = self.attach(written, &span).await;
                self.attached_beside(attached)
            }
            Err(Fault::Forbidden(why)) => {
                self.forbid(&why);
                None
            }
            Err(fault) => {
                tracing::warn!(send.id = %self.send.record.id, %fault, "could not write a fold during a send");
                self.folding.tried.failures += 1;
                self.pay_for_fault(&fault);
                if !fault.is_lasting() {
                    return None;
                }
                let attached = self.attach_digest(&span).await;
                self.attached_beside(attached)
            }
        }
    }

    /// Handles the outcome of the step that attached such a fold.
    fn attached_beside(&mut self, attached: Event) -> Option<Event> {
        let Event::Folded { cancelled } = attached else {
            return Some(attached);
        };
        if cancelled {
            self.lease_state.handles.cancel.cancel();
        }
        if self.lease_state.heard & SIGNAL_INTERRUPT != 0 {
            // This step lowered the signal, so the run must be told to check what arrived.
            self.lease_state.handles.interrupt.notify_one();
        }
        None
    }

    /// Called when the send has ended. A fold that is being written goes on without it. If there is
    /// none, begins one that the next send would otherwise have to wait for.
    pub(in crate::send) async fn fold_at_rest(&mut self, is_last: bool) {
        let mut begun = self.folding.beside.take();
        if begun.is_none() && is_last {
            begun = self.begin_at_rest().await;
        }
        if let Some(begun) = begun {
            self.let_rest(begun);
        }
    }

    /// Lets a fold go on without the send.
    fn let_rest(&self, begun: Beside) {
        let Beside {
            writing,
            asked,
            span,
        } = begun;
        let item = self.at_rest(Vec::new());
        let written = (writing, asked, span);
        resting::spawn(self.kernel, self.place(), item, written, self.notebook());
    }

    /// What is stored without a lease for calls outside the rounds.
    fn at_rest(&self, usage: Vec<UsageRow>) -> FoldAtRest {
        FoldAtRest {
            key: self.send.record.key,
            send_id: self.send.record.id,
            boot: self.lease_state.lease.boot,
            context_version: *self.prompt.version,
            fold: None,
            usage,
        }
    }

    /// Called when the run is left. If the lease was lost before the cost of calls outside the
    /// rounds was stored, the cost is stored without a lease. A fold that is still being written
    /// goes on without the send.
    pub(in crate::send) fn leave_unpaid(&mut self) {
        if let Some(begun) = self.folding.beside.take() {
            self.let_rest(begun);
        }
        let unpaid = self.bill.take_unpaid_beside();
        if !unpaid.is_empty() {
            resting::spawn_pay(self.kernel, self.at_rest(unpaid));
        }
    }

    async fn begin_at_rest(&mut self) -> Option<Beside> {
        let (tokens, room) = self
            .folding
            .measured
            .last
            .filter(|(at, room)| *at >= room.soft)?;
        let by_model = matches!(
            self.send.agent.context.fold.strategy,
            FoldStrategy::Summary | FoldStrategy::Agentic | FoldStrategy::Http
        );
        // The budget of a send that has ended cannot be checked.
        let can = by_model && self.bill.allowance.is_unlimited();
        if !can
            || !self.kernel.kept.resting.takes(self.send.record.key)
            || self.kernel.lifecycle.is_stopping()
        {
            return None;
        }
        if !self.read_whole().await {
            return None;
        }
        let nobody = SendId(Uuid::nil());
        let span = self.choose_beside(nobody, tokens, room, Pressure::Soft)?;
        let span = Arc::new(span);
        if !self.ask_for_fold(&span, true) {
            return None;
        }
        self.folding.writing.take().map(|writing| Beside {
            writing,
            asked: self.folding.asked.take(),
            span,
        })
    }

    /// Drops the fold that is written while the send goes on, because the lease is given up or
    /// something more urgent came; enters what it may have cost.
    pub(in crate::send) fn drop_beside(&mut self) {
        if let Some(beside) = self.folding.beside.take() {
            self.folding.asked = beside.asked;
            self.pay_for_fold_estimated();
        }
    }
}
