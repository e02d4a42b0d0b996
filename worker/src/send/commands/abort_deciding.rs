//! `AbortDeciding`: the decision of hooks about an end is not wanted any longer.

use crate::send::run::Run;

impl Run<'_> {
    /// Drops the question to hooks. An answer that is dropped with it was no failure.
    pub(in crate::send) fn abort_deciding(&mut self) {
        self.ending.deciding.asked = None;
        self.take_back();
        self.asking.tries.interrupted = self.asking.not_failed() + 1;
    }
}
