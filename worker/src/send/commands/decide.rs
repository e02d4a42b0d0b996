//! `Decide`: asks hooks about an end; they may let the send continue.

use std::sync::Arc;

use mainspring_shared::send::machine::{Decision, End, Event};

use crate::hook::{EndReason, Ending};
use crate::send::run::Run;

impl Run<'_> {
    /// Asks hooks about an end. Returns an event if there is nothing to ask.
    pub(in crate::send) fn decide(&mut self, end: End) -> Option<Event> {
        let answered = self.asking.reply.is_some();
        let rounds = self.bill.totals.rounds.unsigned_abs() + u32::from(answered);
        // A send of which nothing is stored has nothing to continue.
        let why = EndReason::of(end, answered).filter(|_| rounds > 0);
        let Some(why) = why else {
            return Some(Event::Decided(Decision::End));
        };
        self.ending.deciding.reply = self.asking.reply.take().map(Arc::new);
        let ending = Ending {
            why,
            reply: self.ending.deciding.reply.clone(),
            rounds_left: self.rules.rounds_max.saturating_sub(rounds),
            sent_back: self.sent_back().times,
        };
        let (hooks, at) = (self.kernel.parts.hooks.clone(), self.place());
        let asked = Box::pin(async move { hooks.before_end(at, &ending).await });
        self.ending.deciding.asked = Some((why, asked));
        None
    }
}
