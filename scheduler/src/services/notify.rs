//! Rings: telling the workers which sessions have work, after the commit that made it so.
//!
//! A ring is a hint. It never delays the answer to a request, and one that does not fit is
//! dropped: the sweep finds its session.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainspring_runtime::buggify;
use mainspring_shared::id::SessionKey;
use mainspring_shared::queue::{ACTIVATION_SESSIONS_MAX, Activation, Lane, Queue};
use mainspring_shared::store::ReadySession;
use tokio::sync::mpsc;
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

/// Where rings are left to be pushed in the background.
#[derive(Debug, Clone)]
pub(crate) struct Ringer {
    waiting: mpsc::Sender<ReadySession>,
}

impl Ringer {
    /// A ringer and what its task takes from.
    pub(crate) fn new() -> (Self, mpsc::Receiver<ReadySession>) {
        let (waiting, rings) = mpsc::channel(WAITING_MAX);
        (Self { waiting }, rings)
    }

    /// Leaves rings to be pushed. Never waits.
    pub(crate) fn ring(&self, sessions: impl IntoIterator<Item = ReadySession>) {
        for session in sessions {
            if buggify("ring.full") || self.waiting.try_send(session).is_err() {
                metrics::counter!(RINGS_DROPPED).increment(1);
            }
        }
    }
}

/// Pushes rings until `closing` is cancelled and none is left.
pub(crate) async fn run(
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
pub(crate) fn pack(sessions: &[SessionKey]) -> Vec<Activation> {
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
    use mainspring_shared::time::Timestamp;
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
