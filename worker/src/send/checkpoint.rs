//! Checkpoints of a long answer while it streams: if a worker crashes, the next one shows the
//! checkpoint to the model and asks for the rest.
//!
//! Answers that take less than [`EVERY`] cost nothing. The checkpoint is cleared by the step that
//! stores the answer or records that it was void.

use std::time::Duration;

use mainspring_shared::send::machine::Event;
use mainspring_shared::session::shown::{BEGUN_BYTES_MAX, Begun, Shown};
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INTERRUPT, SIGNAL_RESULT};

use super::lease_state::Pending;
use super::run::Run;

/// How long an answer streams before its first checkpoint, and between checkpoints.
const EVERY: Duration = Duration::from_secs(5);

/// The checkpoint of the answer in flight.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    /// When to check next whether there is more to keep.
    due: Option<Duration>,
    /// Bytes of the answer that are durable.
    kept: usize,
    /// The same for the answer that is continued next.
    taken_up: usize,
}

impl Checkpoint {
    /// Called when a model call begins at `now`.
    pub(super) fn begin(&mut self, now: Duration) {
        // A worker that adds nothing to the answer it took up stores nothing, so its crash counts.
        self.kept = std::mem::take(&mut self.taken_up);
        self.wait(now);
    }

    /// Takes up an answer whose durable part is `begun`.
    pub(super) fn take_up(&mut self, begun: &Begun) {
        self.taken_up = begun.text.len();
    }

    /// Schedules the next check, as long as more could be kept.
    fn wait(&mut self, now: Duration) {
        self.due = (self.kept < BEGUN_BYTES_MAX).then(|| now + EVERY);
    }
}

impl Run<'_> {
    /// How long until the next checkpoint; `None` while there is no answer that could be continued.
    pub(super) fn checkpoint_in(&self) -> Option<Duration> {
        let due = self.asking.streaming.checkpoint.due?;
        let shown = self.bill.totals.shown.as_ref();
        // With a background answer the provider keeps the text.
        let by_itself = shown.is_some_and(|shown| shown.background.is_some());
        let is_asked = self.asking.call.is_some() && self.asking.asked.is_some();
        (is_asked && !by_itself && self.may_go_on())
            .then(|| due.saturating_sub(self.kernel.parts.clock.monotonic()))
    }

    /// Stores what was said so far. Returns an event if that failed, or if a signal was raised that
    /// does not wait for the answer.
    pub(super) async fn keep_said(&mut self) -> Option<Event> {
        let now = self.kernel.parts.clock.monotonic();
        self.asking.streaming.checkpoint.wait(now);
        let (round, attempt) = (self.bill.totals.rounds, self.bill.totals.attempts);
        let unpaid = self.lease_state.owed().asked.as_ref().map(Pending::so_far);
        let begun = Begun::new(
            round,
            &self.lease_state.handles.said.text(),
            unpaid.map(Box::new),
        );
        let bytes = begun.text.len();
        if bytes <= self.asking.streaming.checkpoint.kept || begun.text.trim().is_empty() {
            return None;
        }
        // From this write on there is something to clear.
        self.bill.totals.shown.get_or_insert_default();
        let mut item = self.changes_only(Vec::new());
        let shown = item.totals.shown.get_or_insert_default();
        shown.begun = Some(begun);
        // A worker that finds this checkpoint knows of a crash, which accounts for the one call
        // that is recorded nowhere else. The attempts before it are recorded here, so that no two
        // calls have the same number.
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
            self.lease_state.handles.cancel.cancel();
        }
        self.lease_state.heard |= signals & (SIGNAL_RESULT | SIGNAL_INTERRUPT);
        // The write lowered the signal, so nothing else would check.
        let interrupts = signals & SIGNAL_INTERRUPT != 0 && self.has_news().await;
        interrupts.then_some(Event::Interrupted)
    }

    /// Enters the cost, as far as it was kept, of a call whose worker crashed in the middle of an
    /// answer. It is stored with the next write, and nothing else enters it.
    pub(super) fn bill_crashed_call(&mut self) {
        let shown = self.bill.totals.shown.as_mut();
        if let Some(row) = shown.and_then(Shown::take_unpaid) {
            self.bill.allowance.found();
            // The call is accounted for, for later workers too, and was no failure.
            self.rules.lost = self.rules.lost.saturating_sub(1);
            self.asking.tries.interrupted += 1;
            self.enter(row);
        }
    }
}
