//! `StoreResults`: stores the results of the open round's calls.

use mainspring_shared::send::machine::{Event, Open};
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INTERRUPT, SIGNAL_RESULT};
use mainspring_shared::store::{AppendRound, CallChange};

use crate::send::pending_messages::PendingMessages;
use crate::send::run::Run;

impl Run<'_> {
    /// Stores results, and the round's answers to the model once it has them all.
    pub(in crate::send) async fn store_results(&mut self) -> Event {
        if let Some(event) = self.first_word().await {
            return event;
        }
        if self.round.open(self.now()) == Open::Nothing {
            self.tell_results();
        }
        let changes = self.round.fresh_changes(self.now());
        let item = self.with_pending_messages(changes);
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

    /// Stores results that arrived while other calls are still running.
    pub(in crate::send) async fn flush_results(&mut self) -> Option<Event> {
        let changes = self.round.fresh_changes(self.now());
        if changes.is_empty() {
            return None;
        }
        self.store_changes(changes).await
    }

    /// Stores changes of calls; returns an event if that failed.
    pub(in crate::send) async fn store_changes(
        &mut self,
        changes: Vec<CallChange>,
    ) -> Option<Event> {
        let item = self.changes_only(changes);
        match self.append(item).await {
            Ok(signals) => {
                if signals & SIGNAL_CANCEL != 0 {
                    self.lease_state.handles.cancel.cancel();
                }
                self.lease_state.heard |= signals & (SIGNAL_RESULT | SIGNAL_INTERRUPT);
                None
            }
            Err(event) => Some(event),
        }
    }

    /// A step with all that the model is told next, the changes that belong to it, and `more`.
    pub(in crate::send) fn with_pending_messages(&mut self, more: Vec<CallChange>) -> AppendRound {
        let PendingMessages {
            messages,
            mut changes,
            deliveries,
            ..
        } = std::mem::take(&mut self.prompt.pending_messages);
        changes.extend(more);
        let totals = self.sums();
        AppendRound {
            messages,
            deliveries,
            totals,
            ..self.changes_only(changes)
        }
    }

    pub(in crate::send) fn changes_only(&mut self, changes: Vec<CallChange>) -> AppendRound {
        AppendRound {
            fold: None,
            key: self.send.record.key,
            lease: self.lease_state.lease(),
            send_id: self.send.record.id,
            messages: Vec::new(),
            calls: Vec::new(),
            changes,
            deliveries: Vec::new(),
            usage: self.bill.unpaid.clone(),
            round: None,
            totals: self.bill.sums_so_far(self.asking.not_failed()),
        }
    }

    /// What the open round needs after a step that lowered `signals`.
    pub(in crate::send) async fn open_after(&mut self, signals: i32) -> Result<Open, Event> {
        let signals = signals | std::mem::take(&mut self.lease_state.heard);
        self.lease_state.lowered(signals);
        if signals & SIGNAL_RESULT != 0
            && let Some(round) = self.round.records.first().map(|record| record.round)
            && !self.read_round(round).await
        {
            return Err(self.release_as_lost().await);
        }
        if signals & SIGNAL_INTERRUPT != 0 {
            self.round
                .interrupt(false, self.lease_state.lease.epoch, self.now());
            if let Some(event) = self.first_word().await {
                return Err(event);
            }
        }
        Ok(self.look())
    }
}
