//! What holds a send back until someone resumes it.

use std::time::Duration;

use mainspring_shared::pause::PauseKey;
use mainspring_shared::send::machine::Event;
use mainspring_shared::store::PauseWait;

use super::load;
use super::run::Run;
use crate::llm::{Error, Resolved};

/// After this time a parked send looks by itself whether it may go on. Whoever resumes wakes it, and only
/// a note that was lost makes a send wait for as long.
const AGAIN_AFTER: Duration = Duration::from_hours(1);

/// The same where it could not be noted what the send waits for.
const SOON: Duration = Duration::from_secs(5);

impl Run<'_> {
    /// What holds back everything of the send: its tenant or its agent.
    pub(super) fn held_back(&self) -> Option<PauseKey> {
        let tenant = self.send.record.key.tenant;
        let agent = self.send.agent.name.as_deref();
        self.kernel.pauses.now().of_send(tenant, agent)
    }

    /// What the machine is told of a pause that is in the way.
    pub(super) fn paused(&mut self, pause: PauseKey) -> Event {
        tracing::debug!(send.id = %self.send.record.id, %pause, "a send waits for the end of a pause");
        self.hold.paused = Some(pause);
        Event::Paused {
            within: AGAIN_AFTER,
        }
    }

    /// What is stored before the send is parked for a pause. Returns how long it waits at most; an event when
    /// that did not work.
    pub(super) async fn before_pause(&mut self, pause: PauseKey) -> Result<Duration, Event> {
        // Results of calls that were to be stored with the next round: it may not come for long.
        let told = std::mem::take(&mut self.prompt.pending_messages.changes);
        if !told.is_empty()
            && let Some(event) = self.store_changes(told).await
        {
            return Err(event);
        }
        Ok(self.note_pause(pause).await)
    }

    /// Notes what the send is about to be parked for, so that whoever resumes finds it, however soon. Returns
    /// how long it waits at most.
    async fn note_pause(&mut self, pause: PauseKey) -> Duration {
        let item = PauseWait {
            tenant: self.send.record.key.tenant,
            send: self.send.record.id,
            pause,
        };
        match self.kernel.parts.store.await_resume(item).await {
            Ok(()) => AGAIN_AFTER,
            Err(error) => {
                tracing::debug!(send.id = %self.send.record.id, %error, "a pause was not noted");
                SOON
            }
        }
    }

    /// The model that is asked, or what is in its way: where its provider is paused, the next of the
    /// agent's models stands in for it whose provider is not.
    pub(super) fn resolve_unpaused(&mut self) -> Result<Result<Resolved, PauseKey>, Error> {
        let set = self.kernel.pauses.now();
        let resolved = self.resolve()?;
        let Some(pause) = set.of_provider(&resolved.provider) else {
            return Ok(Ok(resolved));
        };
        let before = self.asking.tries.fallback;
        // An answer that the provider works on is waited for: it is paid for.
        let may_fall_back = !load::has_background(&self.send);
        while may_fall_back && self.asking.tries.fallback < self.send.agent.fallback.len() {
            self.asking.tries.fallback += 1;
            if let Ok(next) = self.resolve()
                && set.of_provider(&next.provider).is_none()
            {
                return Ok(Ok(next));
            }
        }
        self.asking.tries.fallback = before;
        Ok(Err(pause))
    }
}
