//! Who gets a slot.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use mainspring_runtime::buggify;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::queue::{Activation, Disposition, FairOrder, Handler};
use tokio::sync::OwnedSemaphorePermit;

use crate::Kernel;
use crate::send::Reach;
use crate::session;

/// The sessions that this process works on.
#[derive(Debug, Default)]
pub(crate) struct Running {
    sessions: Mutex<HashMap<SessionKey, Entry>>,
}

#[derive(Debug, Default)]
struct Entry {
    /// Someone rang while it ran: the run that ends may have missed what that was about.
    again: bool,
    send: Option<Control>,
}

/// How others reach a running send.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    /// The send.
    pub(crate) send: SendId,
    /// How its run is told.
    pub(crate) reach: Reach,
}

impl Running {
    /// Enters a session; false when it is entered already, and then its run will look again.
    fn enter(&self, key: SessionKey) -> bool {
        let mut sessions = self.lock();
        if let Some(entry) = sessions.get_mut(&key) {
            entry.again = true;
            return false;
        }
        sessions.insert(key, Entry::default());
        true
    }

    /// Leaves a session; false when someone rang meanwhile, and then it stays entered.
    fn leave(&self, key: SessionKey) -> bool {
        let mut sessions = self.lock();
        if let Some(entry) = sessions.get_mut(&key)
            && std::mem::take(&mut entry.again)
        {
            entry.send = None;
            return false;
        }
        sessions.remove(&key);
        true
    }

    /// Names the send that a session's run is at.
    pub(crate) fn at(&self, key: SessionKey, control: Control) {
        if let Some(entry) = self.lock().get_mut(&key) {
            entry.send = Some(control);
        }
    }

    /// The send that a session's run is at.
    pub(crate) fn control(&self, key: SessionKey) -> Option<Control> {
        self.lock().get(&key)?.send.clone()
    }

    /// Whether a session is entered.
    pub(crate) fn contains(&self, key: SessionKey) -> bool {
        self.lock().contains_key(&key)
    }

    /// Sessions entered.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.lock().len()).unwrap_or(u32::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, Entry>> {
        // Nothing between two statements under this lock can panic, so it is never half changed.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue's side of the worker.
#[derive(Debug)]
pub(crate) struct Admission(pub(crate) Arc<Kernel>);

#[async_trait]
impl Handler for Admission {
    async fn handle(&self, activation: Activation) -> Disposition {
        for key in activation.sessions {
            if !admit(&self.0, key).await {
                return Disposition::Stopping;
            }
        }
        Disposition::Done
    }
}

/// Gives a session a slot, waiting for one and for the end of a pause of the pool, and starts its run. False when the worker stops.
pub(crate) async fn admit(kernel: &Arc<Kernel>, key: SessionKey) -> bool {
    tokio::select! {
        biased;
        () = kernel.lifecycle.stopping() => return false,
        () = kernel.pauses.pool_open(&kernel.parts.config.pool) => {}
    }
    if let Ok(slot) = kernel.slots.clone().try_acquire_owned() {
        start(kernel, key, slot);
        return true;
    }
    kernel.turns.wait(key);
    let slot = tokio::select! {
        biased;
        () = kernel.lifecycle.stopping() => return false,
        slot = kernel.slots.clone().acquire_owned() => slot,
    };
    let Ok(slot) = slot else { return false };
    // As many wait as sessions do: each slot is for the session whose turn it is, and this one's comes by
    // another's.
    if let Some(key) = kernel.turns.next() {
        start(kernel, key, slot);
    }
    true
}

/// The sessions that wait for a slot, in the turns of their tenants: one that floods the queue delays
/// only itself here, too.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<FairOrder>);

impl Turns {
    fn wait(&self, key: SessionKey) {
        self.lock().put(key);
    }

    /// The weights of tenants count where sessions go on the queue; here are few.
    fn next(&self) -> Option<SessionKey> {
        self.lock().take(|_| 1)
    }

    fn lock(&self) -> MutexGuard<'_, FairOrder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives sessions slots as long as there are free ones; returns how many got none.
pub(crate) fn admit_free(kernel: &Arc<Kernel>, keys: impl Iterator<Item = SessionKey>) {
    for key in keys {
        if kernel.running.contains(key) {
            continue;
        }
        let Ok(slot) = kernel.slots.clone().try_acquire_owned() else {
            return;
        };
        start(kernel, key, slot);
    }
}

fn start(kernel: &Arc<Kernel>, key: SessionKey, slot: OwnedSemaphorePermit) {
    if buggify("admit.lost") || !kernel.running.enter(key) {
        return;
    }
    let kernel = kernel.clone();
    kernel.clone().tasks.runs.spawn(async move {
        session::run(&kernel, key).await;
        while !kernel.running.leave(key) {
            // What was enqueued during a stop is another worker's.
            if !kernel.lifecycle.is_stopping() {
                session::run(&kernel, key).await;
            }
        }
        drop(slot);
    });
}

#[cfg(test)]
mod tests {
    use mainspring_shared::id::{SessionId, TenantId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_ring_during_a_run_makes_it_look_again_and_a_left_session_can_be_entered() {
        let running = Running::default();
        let key = SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(Uuid::nil()),
        };
        assert!(running.enter(key));
        assert!(!running.enter(key), "it runs already");
        assert!(!running.leave(key), "someone rang meanwhile");
        assert!(running.leave(key));
        assert_eq!(running.count(), 0);
        assert!(running.enter(key));
    }
}
