//! `AbortCalls`: the calls of the open round are dropped, however far they are.

use crate::send::calls::Calls;
use crate::send::run::Run;

impl Run<'_> {
    /// Drops the calls that run; what they had their providers paid is entered.
    pub(in crate::send) fn abort_calls(&mut self) {
        self.pay_for_vectors(None);
        self.round.calls = Calls::default();
    }
}
