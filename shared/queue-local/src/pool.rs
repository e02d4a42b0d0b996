//! The jobs that wait for the workers of one pool.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainspring_shared::agent::Priority;
use mainspring_shared::id::SessionKey;
use mainspring_shared::queue::{ACTIVATION_SESSIONS_MAX, Activation};
use tokio::sync::Semaphore;

/// Maximum number of sessions that wait in one lane: a few megabytes. Further ones wait in the
/// database.
const LANE_SESSIONS_MAX: usize = 65_536;
/// One in this many jobs is taken from the low lane even while high ones wait.
const LOW_SHARE: u64 = 8;

/// The place in which a job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// Ahead of the high lane.
    Ahead,
    /// One of the lanes.
    Lane(Priority),
}

/// Both lanes of a pool, and the jobs that overtake them.
#[derive(Debug)]
pub(crate) struct Pool {
    lanes: Mutex<Lanes>,
    /// One permit per job of the lanes, so that each job wakes one worker.
    jobs: Semaphore,
    /// One permit per job that goes ahead.
    ahead: Semaphore,
}

#[derive(Debug, Default)]
struct Lanes {
    ahead: Waiting,
    high: Waiting,
    low: Waiting,
    taken: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Activation>,
    /// The sessions of `jobs`. A session that is already waiting is not added again.
    sessions: HashSet<SessionKey>,
}

impl Waiting {
    /// Returns whether the sessions fit, and whether they became a job.
    fn add(&mut self, sessions: &[SessionKey]) -> (bool, bool) {
        let new = |key: &&SessionKey| !self.sessions.contains(*key);
        let mut sessions: Vec<_> = sessions.iter().filter(new).copied().collect();
        if self.sessions.len() + sessions.len() > LANE_SESSIONS_MAX {
            return (false, false);
        }
        sessions.retain(|key| self.sessions.insert(*key));
        if sessions.is_empty() {
            return (true, false);
        }
        self.jobs.push_back(Activation { sessions });
        (true, true)
    }

    fn take(&mut self) -> Option<Activation> {
        let job = self.jobs.pop_front()?;
        for key in &job.sessions {
            self.sessions.remove(key);
        }
        Some(job)
    }
}

impl Pool {
    pub(crate) fn new() -> Self {
        Self {
            lanes: Mutex::default(),
            jobs: Semaphore::new(0),
            ahead: Semaphore::new(0),
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds jobs. Returns whether all of them fit.
    pub(crate) fn push(&self, line: Line, activations: &[Activation]) -> bool {
        let mut lanes = self.lanes();
        let (lane, permits) = match line {
            Line::Ahead => (&mut lanes.ahead, &self.ahead),
            Line::Lane(Priority::High) => (&mut lanes.high, &self.jobs),
            Line::Lane(Priority::Low) => (&mut lanes.low, &self.jobs),
        };
        let (mut fits, mut jobs) = (true, 0);
        for activation in activations {
            for sessions in activation.sessions.chunks(ACTIVATION_SESSIONS_MAX) {
                let (fit, new) = lane.add(sessions);
                fits &= fit;
                jobs += usize::from(new);
            }
        }
        drop(lanes);
        permits.add_permits(jobs);
        fits
    }

    pub(crate) fn depth(&self, priority: Priority) -> usize {
        let lanes = self.lanes();
        match priority {
            Priority::High => lanes.high.jobs.len(),
            Priority::Low => lanes.low.jobs.len(),
        }
    }

    /// Waits for the next job of the lanes. A cancelled call takes none.
    pub(crate) async fn take(self: Arc<Self>) -> (Activation, Line) {
        loop {
            if let Ok(permit) = self.jobs.acquire().await {
                permit.forget();
            }
            // Each permit is added after its job, so a taker with a permit finds a job.
            if let Some((job, priority)) = self.lanes().take() {
                return (job, Line::Lane(priority));
            }
        }
    }

    /// Waits for the next job that goes ahead.
    pub(crate) async fn take_ahead(self: Arc<Self>) -> (Activation, Line) {
        loop {
            if let Ok(permit) = self.ahead.acquire().await {
                permit.forget();
            }
            if let Some(job) = self.lanes().ahead.take() {
                return (job, Line::Ahead);
            }
        }
    }
}

impl Lanes {
    fn take(&mut self) -> Option<(Activation, Priority)> {
        self.taken += 1;
        let high = |lanes: &mut Self| Some((lanes.high.take()?, Priority::High));
        let low = |lanes: &mut Self| Some((lanes.low.take()?, Priority::Low));
        if self.taken.is_multiple_of(LOW_SHARE) {
            low(self).or_else(|| high(self))
        } else {
            high(self).or_else(|| low(self))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use mainspring_shared::id::{SessionId, TenantId};
    use uuid::Uuid;

    const HIGH: Line = Line::Lane(Priority::High);
    const LOW: Line = Line::Lane(Priority::Low);

    fn key(n: usize) -> SessionKey {
        SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(Uuid::from_u128(n as u128)),
        }
    }

    fn one(n: usize) -> Activation {
        Activation {
            sessions: vec![key(n)],
        }
    }

    fn take(pool: &Arc<Pool>) -> Option<(usize, Priority)> {
        let (job, line) = Arc::clone(pool).take().now_or_never()?;
        let Line::Lane(priority) = line else {
            panic!("{line:?}");
        };
        Some((job.sessions[0].session.0.as_u128() as usize, priority))
    }

    #[test]
    fn what_goes_ahead_is_taken_apart() {
        let pool = Arc::new(Pool::new());
        assert!(pool.push(HIGH, &[one(1)]));
        assert!(pool.push(Line::Ahead, &[one(2), one(2)]));
        assert_eq!(pool.depth(Priority::High), 1, "what waits in the lane");
        let ahead = Arc::clone(&pool).take_ahead().now_or_never().unwrap();
        assert_eq!(ahead, (one(2), Line::Ahead));
        assert!(Arc::clone(&pool).take_ahead().now_or_never().is_none());
        assert_eq!(take(&pool), Some((1, Priority::High)));
        assert_eq!(take(&pool), None);
    }

    #[test]
    fn a_session_waits_once_and_again_after_it_was_taken() {
        let pool = Arc::new(Pool::new());
        assert!(pool.push(HIGH, &[one(1), one(1)]));
        assert!(pool.push(HIGH, &[one(1)]));
        assert_eq!(pool.depth(Priority::High), 1);
        assert_eq!(take(&pool), Some((1, Priority::High)));
        assert_eq!(take(&pool), None);
        assert!(pool.push(HIGH, &[one(1)]));
        assert_eq!(take(&pool), Some((1, Priority::High)));
    }

    #[test]
    fn high_goes_first_and_low_is_not_starved() {
        let pool = Arc::new(Pool::new());
        for n in 0..20 {
            pool.push(LOW, &[one(n)]);
            pool.push(HIGH, &[one(n)]);
        }
        let order: Vec<_> = std::iter::from_fn(|| take(&pool)).collect();
        assert_eq!(order.len(), 40);
        let low_among_first = |n| {
            let low = |(_, priority): &&(usize, Priority)| *priority == Priority::Low;
            order[..n].iter().filter(low).count()
        };
        assert_eq!(low_among_first(7), 0);
        assert_eq!(low_among_first(16), 2);
    }

    #[test]
    fn a_full_lane_refuses() {
        let pool = Arc::new(Pool::new());
        let many: Vec<_> = (0..LANE_SESSIONS_MAX).map(one).collect();
        assert!(pool.push(LOW, &many));
        assert!(!pool.push(LOW, &[one(LANE_SESSIONS_MAX)]));
        assert!(pool.push(LOW, &[one(0)]), "it waits already");
        assert!(pool.push(HIGH, &[one(LANE_SESSIONS_MAX)]));
    }
}
