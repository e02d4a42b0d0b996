//! `StopCalls`: tells the calls of the open round to stop, and waits for them.

use mainspring_shared::send::machine::Event;

use crate::send::run::Run;

impl Run<'_> {
    /// Tells the running calls to stop. Returns an event if there are none.
    pub(in crate::send) fn stop_calls(&mut self) -> Option<Event> {
        self.round.calls.stop(true);
        self.round.calls.is_empty().then_some(Event::CallsAborted)
    }
}
