//! Pauses that hold a send back until it is resumed.

use std::time::Duration;

use mainspring_shared::pause::PauseKey;
use mainspring_shared::send::machine::Event;
use mainspring_shared::store::PauseWait;

use super::load;
use super::run::Run;
use crate::llm::{Error, Resolved};

/// After this time a parked send checks by itself whether it may continue. A resume wakes it, so
/// only a lost note makes a send wait for this long.
const AGAIN_AFTER: Duration = Duration::from_hours(1);

/// The same if the reason for the wait could not be stored.
const SOON: Duration = Duration::from_secs(5);

impl Run<'_> {
    /// The pause that holds back the whole send: of its tenant or its agent.
    pub(super) fn held_back(&self) -> Option<PauseKey> {
        let tenant = self.send.record.key.tenant;
        let agent = self.send.agent.name.as_deref();
        self.kernel.pauses.now().of_send(tenant, agent)
    }

    /// The event for a pause that is in the way.
    pub(super) fn paused(&mut self, pause: PauseKey) -> Event {
        tracing::debug!(send.id = %self.send.record.id, %pause, "a send waits for the end of a pause");
        self.lease_state.paused = Some(pause);
        Event::Paused {
            within: AGAIN_AFTER,
        }
    }

    /// Stores what must be durable before the send is parked for a pause. Returns how long it waits
    /// at most, or an event if that failed.
    pub(super) async fn before_pause(&mut self, pause: PauseKey) -> Result<Duration, Event> {
        // Call results that would have been stored with the next round, which may be far off.
        let told = std::mem::take(&mut self.prompt.pending_messages.changes);
        if !told.is_empty()
            && let Some(event) = self.store_changes(told).await
        {
            return Err(event);
        }
        Ok(self.note_pause(pause).await)
    }

    /// Stores the pause that the send is about to be parked for, so that a resume finds it, however
    /// soon. Returns how long it waits at most.
    async fn note_pause(&mut self, pause: PauseKey) -> Duration {
        let item = PauseWait {
            tenant: self.send.record.key.tenant,
            send: self.send.record.id,
            pause,
        };
        match self.kernel.parts.store.await_resume(item).await {
            Ok(()) => AGAIN_AFTER,
            Err(error) => {
                tracing::debug!(
                    send.id = %self.send.record.id,
                    %error,
                    "could not record which pause a send waits for"
                );
                SOON
            }
        }
    }

    /// The model to ask, or the pause that is in the way. If its provider is paused, the agent's
    /// next model with an unpaused provider stands in for it.
    pub(super) fn resolve_unpaused(&mut self) -> Result<Result<Resolved, PauseKey>, Error> {
        let set = self.kernel.pauses.now();
        let resolved = self.resolve()?;
        let Some(pause) = set.of_provider(&resolved.provider) else {
            return Ok(Ok(resolved));
        };
        let before = self.asking.tries.fallback;
        // A background answer is waited for, because it is paid for.
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
