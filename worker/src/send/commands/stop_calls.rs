//! `StopCalls`: the calls of the open round are told to stop, and waited for.

use mainspring_shared::send::machine::Event;

use crate::send::run::Run;

impl Run<'_> {
    /// Tells the calls that run to stop. An event where none does.
    pub(in crate::send) fn stop_calls(&mut self) -> Option<Event> {
        self.round.calls.stop(true);
        self.round.calls.is_empty().then_some(Event::CallsAborted)
    }
}
