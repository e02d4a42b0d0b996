//! `AbortDeciding`: what hooks would say about an end is no longer wanted.

use crate::send::run::Run;

impl Run<'_> {
    /// Nobody waits for what hooks would say. An answer that is dropped with the question was no failure.
    pub(in crate::send) fn abort_deciding(&mut self) {
        self.ending.deciding.asked = None;
        self.take_back();
        self.asking.tries.interrupted = self.asking.not_failed() + 1;
    }
}
