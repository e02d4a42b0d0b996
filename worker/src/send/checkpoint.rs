//! The beginning of a long answer, kept while it is streamed: a worker that dies without a word leaves it to
//! the next one, who shows it to the model and asks for the rest.
//!
//! Answers that take less than [`EVERY`] cost nothing. What is kept is cleared by the step that stores the
//! answer, or that it was void.

use std::time::Duration;

use mainspring_shared::send::machine::Event;
use mainspring_shared::session::shown::{BEGUN_BYTES_MAX, Begun, Shown};
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INTERRUPT, SIGNAL_RESULT};

use super::hold::Pending;
use super::run::Run;

/// How long is streamed until what was said is kept, and kept again.
const EVERY: Duration = Duration::from_secs(5);

/// What is kept of the answer that is under way.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    /// When it is looked next whether there is more.
    due: Option<Duration>,
    /// Bytes that are durable.
    kept: usize,
    /// The same of the answer that is gone on with next.
    taken_up: usize,
}

impl Checkpoint {
    /// A model call begins at this time.
    pub(super) fn begin(&mut self, now: Duration) {
        // A life that adds nothing to what it took up keeps nothing: its death counts.
        self.kept = std::mem::take(&mut self.taken_up);
        self.wait(now);
    }

    /// The model goes on with an answer of which this is durable.
    pub(super) fn take_up(&mut self, begun: &Begun) {
        self.taken_up = begun.text.len();
    }

    /// Looks again, as long as more could be kept.
    fn wait(&mut self, now: Duration) {
        self.due = (self.kept < BEGUN_BYTES_MAX).then(|| now + EVERY);
    }
}

impl Run<'_> {
    /// How long until what was said is kept; none while nobody says anything that could be gone on with.
    pub(super) fn checkpoint_in(&self) -> Option<Duration> {
        let due = self.asking.streaming.checkpoint.due?;
        let shown = self.bill.totals.shown.as_ref();
        // The provider keeps what it works on by itself.
        let by_itself = shown.is_some_and(|shown| shown.background.is_some());
        let is_asked = self.asking.call.is_some() && self.asking.asked.is_some();
        (is_asked && !by_itself && self.may_go_on())
            .then(|| due.saturating_sub(self.kernel.parts.clock.monotonic()))
    }

    /// Keeps what was said so far. An event when that did not work, or when something was raised that does
    /// not wait for the answer.
    pub(super) async fn keep_said(&mut self) -> Option<Event> {
        let now = self.kernel.parts.clock.monotonic();
        self.asking.streaming.checkpoint.wait(now);
        let (round, attempt) = (self.bill.totals.rounds, self.bill.totals.attempts);
        let unpaid = self.hold.owed().asked.as_ref().map(Pending::so_far);
        let begun = Begun::new(round, &self.hold.handles.said.text(), unpaid.map(Box::new));
        let bytes = begun.text.len();
        if bytes <= self.asking.streaming.checkpoint.kept || begun.text.trim().is_empty() {
            return None;
        }
        // From now on there is something to clear.
        self.bill.totals.shown.get_or_insert_default();
        let mut item = self.changes_only(Vec::new());
        let shown = item.totals.shown.get_or_insert_default();
        shown.begun = Some(begun);
        // Whoever finds this finds a worker's death, which counts the call that nothing else tells of; those
        // before it are told of here, so that no two calls have the same number.
        item.totals.attempts = self.bill.stored_attempts.max(attempt - 1);
        let counted = self.bill.allowance.counted(round, item.totals.attempts);
        item.totals.counted = counted;
        item.totals.not_failed = item.totals.not_failed.min(item.totals.attempts);
        let signals = match self.append(item).await {
            Ok(signals) => signals,
            Err(event) => return Some(event),
        };
        self.asking.streaming.checkpoint.kept = bytes;
        self.asking.streaming.checkpoint.wait(now);
        if signals & SIGNAL_CANCEL != 0 {
            self.hold.handles.cancel.cancel();
        }
        self.hold.heard |= signals & (SIGNAL_RESULT | SIGNAL_INTERRUPT);
        // It is lowered now: nobody else would look.
        let interrupts = signals & SIGNAL_INTERRUPT != 0 && self.has_news().await;
        interrupts.then_some(Event::Interrupted)
    }

    /// Enters what the call of a worker cost that died in the middle of an answer, as far as it was kept. From
    /// now on it is stored with whatever is stored next, and nobody else enters it.
    pub(super) fn pay_for_the_dead(&mut self) {
        let shown = self.bill.totals.shown.as_mut();
        if let Some(row) = shown.and_then(Shown::take_unpaid) {
            self.bill.allowance.found();
            // It is known from now on, also by who comes next, and was no failure.
            self.rules.lost = self.rules.lost.saturating_sub(1);
            self.asking.tries.interrupted += 1;
            self.enter(row);
        }
    }
}
