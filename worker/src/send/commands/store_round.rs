//! `StoreRound`: stores an answer with its calls, and everything that the model was told before it,
//! in one transaction.

use mainspring_shared::agent::FoldStrategy;
use mainspring_shared::budget::Spent;
use mainspring_shared::send::machine::{Event, Open};
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INTERRUPT};
use mainspring_shared::store::AppendRound;

use crate::hook::{At, Moment};
use crate::llm::Reply;
use crate::send::pending_messages::PendingMessages;
use crate::send::run::Run;
use crate::send::{plan, settle};

impl Run<'_> {
    /// Stores the round of the reply with its calls.
    pub(in crate::send) async fn store_round(&mut self) -> Event {
        self.asking.tries.interrupted = 0;
        self.asking.mended.next_round();
        let Some(reply) = self.asking.reply.take() else {
            if std::mem::take(&mut self.round.passed) {
                // The turn was passed, but something arrived: the round is stored, and the next one
                // tells its results.
                return Event::RoundStored {
                    cancelled: false,
                    open: Open::Nothing,
                };
            }
            return Event::LeaseLost;
        };
        let index = self.bill.totals.rounds;
        let asking = settle::RoundContext {
            key: self.send.record.key,
            send: self.send.record.id,
            round: index,
            epoch: self.lease_state.lease.epoch,
            now: self.now(),
            stopping: self.kernel.lifecycle.is_stopping(),
            answer_within: self.kernel.parts.config.answer_within,
            no_children: false,
        };
        let round = self.round(&reply, asking);
        let PendingMessages {
            mut messages,
            changes,
            deliveries,
            ..
        } = std::mem::take(&mut self.prompt.pending_messages);
        // If all calls are refused, their results go into the round's own transaction.
        let called = !round.records.is_empty();
        let answered = plan::open(&round.records, self.now()) == Open::Nothing;
        messages.extend(round.messages);
        messages.extend(self.correction(index));
        let mut totals = self.bill.sums(index + 1, 0, self.asking.not_failed());
        let measured = self.bill.allowance.measured();
        let folds = self.send.agent.context.fold.strategy != FoldStrategy::None;
        if folds && (measured.is_some() || totals.shown.is_some()) {
            totals.shown.get_or_insert_default().measured = measured;
        }
        let item = AppendRound {
            fold: None,
            key: self.send.record.key,
            lease: self.lease_state.lease(),
            send_id: self.send.record.id,
            messages,
            calls: round.calls,
            changes,
            deliveries,
            usage: self.bill.unpaid.clone(),
            round: Some(settle::round_ref(
                &reply,
                index,
                self.asking.question,
                totals.shown.as_ref(),
            )),
            totals,
        };
        match self.append(item).await {
            Ok(signals) => {
                // Earlier result signals belong to a round that is over.
                self.lease_state.heard = signals & SIGNAL_INTERRUPT;
                if !answered {
                    self.round.records = round.records;
                    self.announce_waiting();
                }
                let place = At {
                    round: index,
                    ..self.place()
                };
                if called {
                    self.show(place, Moment::RoundStored, true).await;
                }
                if let Some(event) = self.spawn_children().await {
                    return event;
                }
                let open = self.look();
                Event::RoundStored {
                    cancelled: signals & SIGNAL_CANCEL != 0,
                    open,
                }
            }
            Err(event) => event,
        }
    }

    /// The round with its calls. The slices of its children and runs are set aside; if those would
    /// be too small, the children are not created.
    fn round(&mut self, reply: &Reply, mut asking: settle::RoundContext) -> settle::Round {
        let tools = self.kernel.parts.tools.clone();
        let is_agents_work = |name: &str| tools.effect(name).is_agents_work();
        let pauses = self.kernel.pauses.now();
        let calls = reply.tool_calls.iter();
        let children = calls.filter(|call| is_agents_work(&call.name)).count();
        if children == 0 {
            return settle::round(
                reply,
                asking,
                (&self.prompt.offers, &pauses),
                &self.round.vetted,
            );
        }
        let slice = self.bill.slice(children);
        asking.no_children = slice.is_none();
        let round = settle::round(
            reply,
            asking,
            (&self.prompt.offers, &pauses),
            &self.round.vetted,
        );
        let made = round.records.iter().filter(|r| r.result.is_none());
        let made = made.filter(|record| is_agents_work(&record.name));
        if let Some(slice) = slice.filter(|slice| *slice != Spent::default()) {
            let held = made.map(|record| (record.call_id.clone(), slice));
            self.bill.totals.held.0.extend(held);
        }
        round
    }
}
