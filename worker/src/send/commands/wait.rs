//! `Wait`: a pause in memory before the model is asked again.

use std::time::Duration;

use mainspring_shared::send::machine::Event;

use crate::metrics;
use crate::send::run::Run;

impl Run<'_> {
    /// Waits before the model is asked again. What the attempt cost that broke off is stored before,
    /// and that it was made: whoever takes the send over after a death knows both. An event when that
    /// did not work.
    pub(in crate::send) async fn wait(&mut self, wait: Duration) -> Option<Event> {
        if let Some(failure) = &self.ending.failure {
            metrics::model_call_retried(failure.code);
        }
        self.asking.tries.wait = Some(wait);
        self.note_spending().await
    }

    /// Stores what was spent in vain. An event when that did not work.
    pub(in crate::send) async fn note_spending(&mut self) -> Option<Event> {
        if self.bill.unpaid.is_empty() {
            return None;
        }
        self.store_changes(Vec::new()).await
    }
}
