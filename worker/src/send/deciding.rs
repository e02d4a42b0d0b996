//! Hooks may let a send continue that is about to end.

use std::sync::Arc;

use futures::future::BoxFuture;
use mainspring_shared::message::{ContentPart, NewMessage};
use mainspring_shared::send::machine::{Decision, Event};
use mainspring_shared::session::shown::{SaidInRound, SentBack};
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INTERRUPT, SIGNAL_RESULT};

use super::run::Run;
use crate::hook::{EndReason, GoOn};
use crate::llm::Reply;

/// The question to hooks about the end of the send, and their reply.
#[derive(Default)]
pub(super) struct Deciding {
    pub(super) asked: Option<(EndReason, BoxFuture<'static, Option<GoOn>>)>,
    /// The answer that hooks are asked about.
    pub(super) reply: Option<Arc<Reply>>,
    /// The message that follows the answer that is stored next.
    pub(super) back: Option<NewMessage>,
}

impl Deciding {
    /// What hooks reply; pending forever while they are not asked.
    pub(super) async fn said(&mut self) -> Option<GoOn> {
        match &mut self.asked {
            Some((_, asked)) => asked.await,
            None => std::future::pending().await,
        }
    }
}

impl Run<'_> {
    /// How often hooks have let the send continue.
    pub(super) fn sent_back(&self) -> SentBack {
        let shown = self.bill.totals.shown.as_ref();
        shown.and_then(|shown| shown.sent_back).unwrap_or_default()
    }

    /// Takes back the answer that hooks were asked about.
    pub(super) fn take_back(&mut self) {
        if let Some(reply) = self.ending.deciding.reply.take() {
            self.asking.reply = Some(Arc::unwrap_or_clone(reply));
        }
    }

    /// Does what hooks want: the send continues for as long as it may.
    pub(super) async fn decided(&mut self, wish: Option<GoOn>) -> Event {
        let ends = Event::Decided(Decision::End);
        let why = self.ending.deciding.asked.take().map(|(why, _)| why);
        self.take_back();
        let Some(why) = why else {
            return ends;
        };
        let Some(wish) = wish else {
            return ends;
        };
        let answered = self.asking.reply.is_some();
        let next = self.bill.totals.rounds + i32::from(answered);
        let config = &self.kernel.parts.config;
        let mut back = self.sent_back();
        let is_spent = why == EndReason::Budget;
        let is_last = next.unsigned_abs() >= self.rules.rounds_max;
        // The budget of a child or a leaf is granted by its parent or run, so hooks cannot extend
        // it.
        let record = &self.send.record;
        if is_spent && (record.reports_to.is_some() || record.run.is_some()) {
            return ends;
        }
        if is_spent || is_last {
            let left = config.extra_rounds_max.saturating_sub(back.granted);
            let granted = wish.rounds.min(left);
            if granted == 0 {
                return ends;
            }
            back.granted += granted;
            if is_last {
                back.rounds += granted;
                self.rules.rounds_max += granted;
            }
            if is_spent {
                back.unpriced_before = next.saturating_add_unsigned(granted);
            }
        }
        back.times += 1;
        self.rules.decides = back.times < config.continues_max;
        self.ending.failure = None;
        self.bill.totals.shown.get_or_insert_default().sent_back = Some(back);
        // The message opens the next round; an answer that must fit a schema is corrected in its
        // own round.
        let message = NewMessage::user(vec![ContentPart::text(wish.message)], next);
        if answered {
            self.ending.deciding.back = Some(message);
            return Event::Decided(Decision::Again);
        }
        self.round.passed = false;
        self.prompt.pending_messages.messages.push(message);
        self.store_said().await
    }

    /// Stores what the model is told next, without an answer to it.
    async fn store_said(&mut self) -> Event {
        let round = self.bill.totals.rounds;
        let ids = self.asking.hooked.injected.in_round(round);
        if !ids.is_empty() {
            let shown = self.bill.totals.shown.get_or_insert_default();
            shown.injected = Some(SaidInRound { round, ids });
        }
        let item = self.with_pending_messages(Vec::new());
        match self.append(item).await {
            Ok(signals) => {
                self.lease_state.heard |= signals & (SIGNAL_RESULT | SIGNAL_INTERRUPT);
                let cancelled = signals & SIGNAL_CANCEL != 0;
                Event::Decided(Decision::Asked { cancelled })
            }
            Err(event) => event,
        }
    }
}
