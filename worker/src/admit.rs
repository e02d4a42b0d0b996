//! Admission: which sessions get a slot.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use mainspring_runtime::buggify;
use mainspring_shared::dispatch::Dispatch;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::queue::{Activation, Disposition, Handler};

use crate::Kernel;
use crate::boot::Life;
use crate::send::SendHandles;
use crate::session;
use crate::slots::Slot;

/// The sessions that this process works on.
#[derive(Debug, Default)]
pub(crate) struct Running {
    sessions: Mutex<HashMap<SessionKey, Entry>>,
}

#[derive(Debug, Default)]
struct Entry {
    /// The session was enqueued while it ran; the run that ends may have missed the reason.
    again: bool,
    /// The session was granted again, by an accept after the end of the run that is leaving.
    handed: Option<Handed>,
    /// The send of the last grant, because its message may arrive twice.
    granted: Option<SendId>,
    send: Option<Control>,
}

/// A session that was granted to this process with a send.
#[derive(Debug)]
pub(crate) struct Handed {
    /// The boot that it was granted to.
    pub(crate) life: Life,
    pub(crate) dispatch: Box<Dispatch>,
}

/// What to do next in a session that is entered.
#[derive(Debug)]
pub(crate) enum Task {
    /// Claim it.
    Claim,
    /// Run what was granted.
    Run(Handed),
}

/// How others reach a running send.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    /// The send.
    pub(crate) send: SendId,
    /// The handles through which its run is signalled.
    pub(crate) handles: SendHandles,
}

impl Running {
    /// Enters a session. Returns false if it is entered already; its run will then check again.
    fn enter(&self, key: SessionKey) -> bool {
        let mut sessions = self.lock();
        if let Some(entry) = sessions.get_mut(&key) {
            entry.again = true;
            return false;
        }
        sessions.insert(key, Entry::default());
        true
    }

    /// Gives a granted session to the run that is active for it; returns it if there is none.
    fn join(&self, handed: Handed) -> Option<Handed> {
        match self.lock().get_mut(&handed.dispatch.key()) {
            Some(entry) => {
                if entry.granted.replace(handed.dispatch.send) != Some(handed.dispatch.send) {
                    entry.handed = Some(handed);
                }
                None
            }
            None => Some(handed),
        }
    }

    /// Forgets a session whose run ended without leaving it.
    fn forget(&self, key: SessionKey) {
        self.lock().remove(&key);
    }

    /// Leaves a session. If there is more to do, returns that and the session stays entered.
    fn leave(&self, key: SessionKey) -> Option<Task> {
        let mut sessions = self.lock();
        if let Some(entry) = sessions.get_mut(&key) {
            let task = match entry.handed.take() {
                Some(handed) => Some(Task::Run(handed)),
                None => std::mem::take(&mut entry.again).then_some(Task::Claim),
            };
            if task.is_some() {
                entry.send = None;
                return task;
            }
        }
        sessions.remove(&key);
        None
    }

    /// Sets the send that a session's run is working on.
    pub(crate) fn at(&self, key: SessionKey, control: Control) {
        if let Some(entry) = self.lock().get_mut(&key) {
            entry.send = Some(control);
        }
    }

    /// The send that a session's run is working on.
    pub(crate) fn control(&self, key: SessionKey) -> Option<Control> {
        self.lock().get(&key)?.send.clone()
    }

    /// The runs of the sessions that are entered.
    pub(crate) fn controls(&self) -> Vec<(SessionKey, Control)> {
        let sessions = self.lock();
        let running = sessions.iter();
        let running = running.filter_map(|(key, entry)| Some((*key, entry.send.clone()?)));
        running.collect()
    }

    /// Whether a session is entered.
    pub(crate) fn contains(&self, key: SessionKey) -> bool {
        self.lock().contains_key(&key)
    }

    /// The number of entered sessions.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.lock().len()).unwrap_or(u32::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, Entry>> {
        // No code under this lock can panic midway, so the value is never half changed.
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

    async fn handle_ahead(&self, activation: Activation) -> (Disposition, Vec<SessionKey>) {
        let mut behind = Vec::new();
        for key in activation.sessions {
            if self.0.tasks.slots.is_at_its_share(key.tenant) {
                behind.push(key);
            } else if !admit(&self.0, key).await {
                return (Disposition::Stopping, behind);
            }
        }
        (Disposition::Done, behind)
    }
}

/// Waits for the end of a pause of the pool and for a slot, then starts the session's run. Returns
/// false if the worker stops.
pub(crate) async fn admit(kernel: &Arc<Kernel>, key: SessionKey) -> bool {
    tokio::select! {
        biased;
        () = kernel.lifecycle.stopping() => return false,
        () = kernel.pauses.pool_open(&kernel.parts.config.pool) => {}
    }
    let slot = tokio::select! {
        biased;
        () = kernel.lifecycle.stopping() => return false,
        slot = kernel.tasks.slots.take(key) => slot,
    };
    // `None` if another job waits for the same session.
    if let Some(slot) = slot {
        start(kernel, key, slot);
    }
    true
}

/// Starts sessions for as long as their tenants may have slots; returns whether any was denied one.
pub(crate) fn admit_free(kernel: &Arc<Kernel>, keys: impl Iterator<Item = SessionKey>) -> bool {
    let mut denied = false;
    for key in keys {
        if kernel.running.contains(key) {
            continue;
        }
        match kernel.tasks.slots.try_take(key.tenant) {
            Some(slot) => start(kernel, key, slot),
            None => denied = true,
        }
    }
    denied
}

fn start(kernel: &Arc<Kernel>, key: SessionKey, slot: Slot) {
    if buggify("admit.lost") || !kernel.running.enter(key) {
        return;
    }
    work(kernel, key, slot, Some(Task::Claim));
}

/// Starts a session that was granted with its send; returns it if there is no slot.
pub(crate) fn hand(kernel: &Arc<Kernel>, handed: Handed) -> Option<Handed> {
    let handed = kernel.running.join(handed)?;
    let key = handed.dispatch.key();
    let Some(slot) = kernel.tasks.slots.try_take(key.tenant) else {
        return Some(handed);
    };
    // If the session was enqueued meanwhile, its run finds it granted.
    let entered = kernel.running.enter(key);
    let handed = kernel.running.join(handed);
    if entered {
        work(kernel, key, slot, None);
    }
    handed
}

/// Leaves a session when dropped, if it was not left.
struct Entered<'a>(&'a Running, SessionKey);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.forget(self.1);
        }
    }
}

/// Does the work of a session that is entered: `first`, or else whatever was left for it.
fn work(kernel: &Arc<Kernel>, key: SessionKey, slot: Slot, first: Option<Task>) {
    let kernel = kernel.clone();
    kernel.clone().tasks.runs.spawn(async move {
        // Also if it panics: a session that stays entered is never looked for.
        let _entered = Entered(&kernel.running, key);
        let mut next = first.or_else(|| kernel.running.leave(key));
        while let Some(task) = next.take() {
            match task {
                Task::Run(handed) => session::run_granted(&kernel, handed).await,
                // A session that was enqueued during a stop is left to another worker.
                Task::Claim if kernel.lifecycle.is_stopping() => {}
                Task::Claim => session::run(&kernel, key).await,
            }
            next = kernel.running.leave(key);
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
        assert!(
            matches!(running.leave(key), Some(Task::Claim)),
            "someone rang meanwhile"
        );
        assert!(running.leave(key).is_none());
        assert_eq!(running.count(), 0);
        assert!(running.enter(key));
    }
}
