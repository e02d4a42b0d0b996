//! `Wait`: backs off in memory before the model is asked again.

use std::time::Duration;

use mainspring_shared::send::machine::Event;

use crate::metrics;
use crate::send::run::Run;

impl Run<'_> {
    /// Backs off before the model is asked again. First stores the cost of the failed attempt and
    /// that it was made, so that a worker that takes the send over knows both. Returns an event if
    /// that failed.
    pub(in crate::send) async fn wait(&mut self, wait: Duration) -> Option<Event> {
        if let Some(failure) = &self.ending.failure {
            metrics::model_call_retried(failure.code);
        }
        self.asking.tries.wait = Some(wait);
        self.note_spending().await
    }

    /// Stores what was spent in vain. Returns an event if that failed.
    pub(in crate::send) async fn note_spending(&mut self) -> Option<Event> {
        if self.bill.unpaid.is_empty() {
            return None;
        }
        self.store_changes(Vec::new()).await
    }
}
