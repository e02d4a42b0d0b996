//! Notifications after a commit: sessions with work are enqueued for workers, steps are published
//! to schedulers, and signals are sent to the workers of running sends.
//!
//! Notifications are hints. They never delay a response, and are dropped if a buffer is full: the
//! sweep enqueues the session later.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use mainspring_runtime::buggify;
use mainspring_shared::bus::{Bus, RunNotice, StepNotice, Topic};
use mainspring_shared::id::{RunKey, SessionKey};
use mainspring_shared::queue::{
    ACTIVATION_SESSIONS_MAX, ACTIVATION_SPREAD, Activation, Lane, Queue,
};
use mainspring_shared::store::{CancelOutcome, ReadySession};
use mainspring_shared::time::Timestamp;
use serde::Serialize;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::metrics::{ENQUEUED, ENQUEUES_DROPPED};

/// Maximum number of sessions waiting for a push: several accept groups.
const PENDING_MAX: usize = 8_192;

/// Sessions per push.
const BURST_MAX: usize = 1_024;

/// Maximum number of sessions that are spread over jobs of [`ACTIVATION_SPREAD`]. If there are
/// more, jobs are filled up.
const FEW: usize = 64;

/// Sends notifications after a commit. All of them are hints that may get lost: workers and
/// schedulers poll the database for the same information.
#[derive(Debug)]
pub struct Notifier {
    /// The queue that tells workers which sessions have work.
    pub queue: Arc<dyn Queue>,
    bus: Arc<dyn Bus>,
    pending: mpsc::Sender<ReadySession>,
    /// Notified when a run has new events that came through this process.
    runs_changed: Notify,
}

impl Notifier {
    /// Returns a notifier, and the receiver of its sessions for [`run`].
    pub fn new(queue: Arc<dyn Queue>, bus: Arc<dyn Bus>) -> (Self, mpsc::Receiver<ReadySession>) {
        let (pending, ready) = mpsc::channel(PENDING_MAX);
        let notifier = Self {
            queue,
            bus,
            pending,
            runs_changed: Notify::new(),
        };
        (notifier, ready)
    }

    /// Live notifications between processes.
    pub fn bus(&self) -> &dyn Bus {
        self.bus.as_ref()
    }

    /// Enqueues sessions with work in the background. Never waits; drops sessions if the buffer is full.
    pub fn enqueue(&self, sessions: impl IntoIterator<Item = ReadySession>) {
        for session in sessions {
            if buggify("ring.full") || self.pending.try_send(session).is_err() {
                metrics::counter!(ENQUEUES_DROPPED).increment(1);
            }
        }
    }

    /// Publishes committed steps to all schedulers.
    pub fn publish_steps(&self, notices: &[StepNotice]) {
        if !notices.is_empty() {
            self.publish(Topic::Steps, notices);
        }
    }

    /// Signals the worker that runs this session. If `signals` is 0, it reads them from the
    /// database.
    pub fn signal(&self, key: SessionKey, signals: i32) {
        self.publish(Topic::Signals, &[(key, signals)]);
    }

    /// Publishes the notifications for cancelled sends. Returns false if some could not be
    /// cancelled because their sessions are locked.
    pub fn cancelled(&self, outcomes: Vec<CancelOutcome>) -> bool {
        let mut all = true;
        for outcome in outcomes {
            match outcome {
                CancelOutcome::Signalled { send, .. } => self.signal(send.key, 0),
                CancelOutcome::Cancelled {
                    send,
                    step,
                    enqueue,
                } => {
                    self.enqueue(enqueue);
                    self.publish_steps(&[StepNotice::new(send.key, send.id, step, true)]);
                }
                CancelOutcome::Locked => all = false,
                CancelOutcome::AlreadyFinal(_) | CancelOutcome::NotFound => {}
            }
        }
        all
    }

    /// Tells all schedulers about runs that were advanced or have new events.
    pub fn publish_runs(&self, notices: &[RunNotice]) {
        if !notices.is_empty() {
            self.publish(Topic::Runs, notices);
        }
    }

    /// Notifies the owner of a run, which may be this process, that it has new events.
    pub fn run_changed(&self, key: RunKey) {
        self.wake_runs();
        self.publish_runs(&[RunNotice { key, step: None }]);
    }

    /// Wakes this process's run loop.
    pub fn wake_runs(&self) {
        self.runs_changed.notify_one();
    }

    /// Resolves once [`Self::wake_runs`] has been called.
    pub async fn runs_woken(&self) {
        self.runs_changed.notified().await;
    }

    /// Wakes the timer loops of all schedulers for a timer that is due before their next check.
    pub fn timer_due(&self, at: Timestamp) {
        self.bus
            .publish(Topic::Timers, Bytes::from(at.0.to_string()));
    }

    /// Tells the workers that something was paused or resumed.
    pub fn pauses_changed(&self) {
        self.bus.publish(Topic::Pauses, Bytes::new());
    }

    fn publish<T: Serialize + ?Sized>(&self, topic: Topic, notices: &T) {
        match serde_json::to_vec(notices) {
            Ok(json) => self.bus.publish(topic, Bytes::from(json)),
            Err(error) => tracing::error!(error = %error, "could not serialize notices"),
        }
    }
}

/// Pushes ready sessions until `closing` is cancelled and none is left.
pub async fn run(
    queue: Arc<dyn Queue>,
    mut ready: mpsc::Receiver<ReadySession>,
    closing: CancellationToken,
) {
    let mut burst = Vec::new();
    loop {
        tokio::select! {
            biased;
            count = ready.recv_many(&mut burst, BURST_MAX) => {
                if count == 0 {
                    return;
                }
                push(queue.as_ref(), &mut burst).await;
            }
            () = closing.cancelled() => ready.close(),
        }
    }
}

async fn push(queue: &dyn Queue, burst: &mut Vec<ReadySession>) {
    for (lane, sessions) in by_lane(burst.drain(..)) {
        let count = sessions.len() as u64;
        let fitted = queue.push(&lane, pack(&sessions)).await;
        let name = if fitted { ENQUEUED } else { ENQUEUES_DROPPED };
        metrics::counter!(name).increment(count);
    }
}

/// Groups sessions by lane, in order.
fn by_lane(sessions: impl IntoIterator<Item = ReadySession>) -> BTreeMap<Lane, Vec<SessionKey>> {
    let mut lanes: BTreeMap<Lane, Vec<SessionKey>> = BTreeMap::new();
    for session in sessions {
        let lane = Lane {
            pool: session.pool,
            priority: session.priority,
        };
        lanes.entry(lane).or_default().push(session.key);
    }
    lanes
}

/// Distributes sessions over jobs of roughly equal size.
pub fn pack(sessions: &[SessionKey]) -> Vec<Activation> {
    let size = if sessions.len() <= FEW {
        ACTIVATION_SPREAD
    } else {
        ACTIVATION_SESSIONS_MAX
    };
    let jobs = sessions.len().div_ceil(size).max(1);
    let each = sessions.len().div_ceil(jobs).max(1);
    sessions
        .chunks(each)
        .map(|chunk| Activation {
            sessions: chunk.to_vec(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use mainspring_shared::agent::Priority;
    use mainspring_shared::id::{SessionId, TenantId};
    use uuid::Uuid;

    use super::*;

    fn key(n: u128) -> SessionKey {
        SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(Uuid::from_u128(n)),
        }
    }

    #[test]
    fn few_sessions_are_spread_and_many_fill_their_jobs() {
        for (count, jobs) in [(0, 0), (1, 1), (8, 1), (9, 2), (64, 8), (65, 5), (128, 8)] {
            let packed = pack(&(0..count).map(key).collect::<Vec<_>>());
            assert_eq!(packed.len(), jobs, "{count} sessions");
            let sizes: Vec<_> = packed.iter().map(|job| job.sessions.len()).collect();
            assert!(
                sizes.iter().all(|size| *size <= ACTIVATION_SESSIONS_MAX),
                "{sizes:?}"
            );
            assert_eq!(sizes.iter().sum::<usize>(), count as usize);
        }
    }

    #[test]
    fn lanes_are_kept_apart() {
        let ready = |n, pool: &str, priority| ReadySession {
            key: key(n),
            pool: pool.to_owned(),
            priority,
            ready_since: Timestamp(0),
        };
        let lanes = by_lane([
            ready(1, "a", Priority::High),
            ready(2, "a", Priority::Low),
            ready(3, "b", Priority::High),
            ready(4, "a", Priority::High),
        ]);
        let lane = |pool: &str, priority| Lane {
            pool: pool.to_owned(),
            priority,
        };
        assert_eq!(lanes.len(), 3);
        assert_eq!(lanes[&lane("a", Priority::High)], [key(1), key(4)]);
        assert_eq!(lanes[&lane("b", Priority::High)], [key(3)]);
    }
}
