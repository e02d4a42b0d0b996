//! Telling workers and schedulers what a commit means for them: which sessions have work, which steps
//! were written, what concerns a send that is running.
//!
//! A notice is a hint. It never delays the answer to a request, and one that does not fit is
//! dropped: the sweep finds its session.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use mainspring_runtime::buggify;
use mainspring_shared::bus::{Bus, RunNotice, StepNotice, Topic};
use mainspring_shared::id::{RunKey, SessionKey};
use mainspring_shared::queue::{ACTIVATION_SESSIONS_MAX, Activation, Lane, Queue};
use mainspring_shared::store::{CancelOutcome, ReadySession};
use mainspring_shared::time::Timestamp;
use serde::Serialize;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::metrics::{RINGS_DROPPED, RUNG};

/// Rings that may wait for a push: several accept groups' worth.
const WAITING_MAX: usize = 8_192;

/// Rings that one push may carry.
const BURST_MAX: usize = 1_024;

/// Sessions per job while few ring at once: several workers get a share, and a job still costs
/// its fetch and acknowledgement only once per handful of sends.
const SPREAD: usize = 8;

/// Rings up to which [`SPREAD`] is used; beyond, jobs are filled.
const FEW: usize = 64;

/// Tells others, after a commit, what it means for them. Everything here is a hint that may get lost:
/// workers and schedulers find the same in the database a little later.
#[derive(Debug)]
pub struct Notifier {
    /// Where sessions with work are announced.
    pub queue: Arc<dyn Queue>,
    bus: Arc<dyn Bus>,
    waiting: mpsc::Sender<ReadySession>,
    /// Notified when a run has events that came through this process.
    runs_changed: Notify,
}

impl Notifier {
    /// A notifier, and the sessions that [`run`] pushes for it.
    pub fn new(queue: Arc<dyn Queue>, bus: Arc<dyn Bus>) -> (Self, mpsc::Receiver<ReadySession>) {
        let (waiting, ready) = mpsc::channel(WAITING_MAX);
        let notifier = Self {
            queue,
            bus,
            waiting,
            runs_changed: Notify::new(),
        };
        (notifier, ready)
    }

    /// Enqueues sessions with work in the background. Never waits; what does not fit is dropped.
    pub fn ring(&self, sessions: impl IntoIterator<Item = ReadySession>) {
        for session in sessions {
            if buggify("ring.full") || self.waiting.try_send(session).is_err() {
                metrics::counter!(RINGS_DROPPED).increment(1);
            }
        }
    }

    /// Tells every scheduler of steps that were committed here.
    pub fn steps(&self, notices: &[StepNotice]) {
        if !notices.is_empty() {
            self.publish(Topic::Steps, notices);
        }
    }

    /// Tells the workers that something about this session concerns whoever runs it: these signals,
    /// or what the database says when there are none.
    pub fn signal(&self, key: SessionKey, signals: i32) {
        self.publish(Topic::Signals, &[(key, signals)]);
    }

    /// Tells whom the ends of sends concern. False where some could not be asked to end, because
    /// someone else has their sessions locked.
    pub fn ends(&self, outcomes: Vec<CancelOutcome>) -> bool {
        let mut all = true;
        for outcome in outcomes {
            match outcome {
                CancelOutcome::Signalled { send, .. } => self.signal(send.key, 0),
                CancelOutcome::Cancelled { send, step, ring } => {
                    self.ring(ring);
                    self.steps(&[StepNotice {
                        key: send.key,
                        send: send.id,
                        n: step,
                        settled: true,
                    }]);
                }
                CancelOutcome::Locked => all = false,
                CancelOutcome::AlreadyFinal(_) | CancelOutcome::NotFound => {}
            }
        }
        all
    }

    /// Tells every scheduler of runs that were advanced or have events.
    pub fn runs(&self, notices: &[RunNotice]) {
        if !notices.is_empty() {
            self.publish(Topic::Runs, notices);
        }
    }

    /// Tells the owner of a run, which may be this process, that it has events.
    pub fn run_changed(&self, key: RunKey) {
        self.wake_runs();
        self.runs(&[RunNotice { key, step: None }]);
    }

    /// Makes this process's loop of runs look again at once.
    pub fn wake_runs(&self) {
        self.runs_changed.notify_one();
    }

    /// Resolves when a run has events that came through this process.
    pub async fn runs_woken(&self) {
        self.runs_changed.notified().await;
    }

    /// Wakes the schedulers for a timer that is due before they would look by themselves.
    pub fn timer_due(&self, at: Timestamp) {
        self.bus
            .publish(Topic::Timers, Bytes::from(at.0.to_string()));
    }

    fn publish<T: Serialize + ?Sized>(&self, topic: Topic, notices: &T) {
        match serde_json::to_vec(notices) {
            Ok(json) => self.bus.publish(topic, Bytes::from(json)),
            Err(error) => tracing::error!(error = %error, "notices could not be written"),
        }
    }
}

/// Pushes rings until `closing` is cancelled and none is left.
pub async fn run(
    queue: Arc<dyn Queue>,
    mut rings: mpsc::Receiver<ReadySession>,
    closing: CancellationToken,
) {
    let mut burst = Vec::new();
    loop {
        tokio::select! {
            biased;
            count = rings.recv_many(&mut burst, BURST_MAX) => {
                if count == 0 {
                    return;
                }
                push(queue.as_ref(), &mut burst).await;
            }
            () = closing.cancelled() => rings.close(),
        }
    }
}

async fn push(queue: &dyn Queue, burst: &mut Vec<ReadySession>) {
    for (lane, sessions) in by_lane(burst.drain(..)) {
        let count = sessions.len() as u64;
        let fitted = queue.push(&lane, pack(&sessions)).await;
        let name = if fitted { RUNG } else { RINGS_DROPPED };
        metrics::counter!(name).increment(count);
    }
}

/// Sessions by the lane they go through, in the order they came, each once.
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

/// Jobs of about equal size.
pub fn pack(sessions: &[SessionKey]) -> Vec<Activation> {
    let size = if sessions.len() <= FEW {
        SPREAD
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
