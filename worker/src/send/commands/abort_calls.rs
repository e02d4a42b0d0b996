//! `AbortCalls`: drops the calls of the open round, however far they got.

use crate::send::calls::Calls;
use crate::send::run::Run;

impl Run<'_> {
    /// Drops the running calls and enters what they paid providers.
    pub(in crate::send) fn abort_calls(&mut self) {
        self.pay_for_vectors(None);
        self.round.calls = Calls::default();
    }
}
