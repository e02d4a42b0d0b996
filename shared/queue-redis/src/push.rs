//! Pushing: bounded in time, in one step per few hundred jobs, with few rings.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainspring_shared::queue::{Activation, Lane};

use crate::job;
use crate::lane::Keys;
use crate::link::Live;
use crate::queue::Core;
use crate::scripts::{self, STEP};

/// How long a push may keep its caller.
const PUSH_LIMIT: Duration = Duration::from_millis(100);
/// Rings are at least this far apart: each costs a fetch on every idle worker of the pool.
const RING_GAP: Duration = Duration::from_millis(4);

/// A lane that something was pushed into.
#[derive(Debug)]
pub(crate) struct OpenLane {
    pub(crate) keys: Keys,
    bell: Mutex<Bell>,
}

impl OpenLane {
    pub(crate) fn new(lane: &Lane) -> Self {
        Self {
            keys: Keys::of(lane),
            bell: Mutex::new(Bell::default()),
        }
    }

    fn bell<T>(&self, act: impl FnOnce(&mut Bell) -> T) -> T {
        act(&mut self.bell.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// When a lane was rung for. The first ring is never delayed; those that come too soon after it
/// share one at the end of the gap.
#[derive(Debug, Default)]
struct Bell {
    last: Option<Duration>,
    /// Whether somebody is going to ring.
    promised: bool,
}

impl Bell {
    /// Whether a push that begins at `now` rings by itself.
    fn lead(&mut self, now: Duration) -> bool {
        let lead = !self.promised && self.last.is_none_or(|last| now >= last + RING_GAP);
        if lead {
            self.last = Some(now);
        }
        lead
    }

    /// For a push that did not ring and is over at `now`: how soon its caller has to, if nobody
    /// has promised to yet. Asked after the push, so that the promised ring comes after the jobs.
    fn promise(&mut self, now: Duration) -> Option<Duration> {
        if std::mem::replace(&mut self.promised, true) {
            return None;
        }
        let due = self.last.map_or(now, |last| last + RING_GAP);
        Some(due.saturating_sub(now))
    }

    /// Called right before the promised ring.
    fn keep(&mut self, now: Duration) {
        self.promised = false;
        self.last = Some(now);
    }
}

impl Core {
    /// Pushes all of it, or as much as succeeds in time; whether it was all.
    pub(crate) async fn push(self: &Arc<Self>, lane: &Lane, activations: &[Activation]) -> bool {
        let jobs = job::jobs(activations);
        if jobs.is_empty() {
            return true;
        }
        let lane = self.lane(lane);
        let mut left = jobs.len();
        let Some(live) = self.link.live() else {
            self.counters.failed.add(left);
            return false;
        };
        let outcome =
            tokio::time::timeout(PUSH_LIMIT, self.push_jobs(&lane, jobs, live, &mut left)).await;
        match outcome {
            Ok(Ok(())) => true,
            Ok(Err(Refused::Full)) => {
                self.counters.full.add(left);
                false
            }
            Ok(Err(Refused::Failed)) => {
                self.counters.failed.add(left);
                false
            }
            Err(_) => {
                self.link.suspect();
                self.counters.failed.add(left);
                false
            }
        }
    }

    async fn push_jobs(
        self: &Arc<Self>,
        lane: &Arc<OpenLane>,
        jobs: Vec<String>,
        mut live: Live,
        left: &mut usize,
    ) -> Result<(), Refused> {
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            let mut step: Vec<(String, String)> = jobs
                .by_ref()
                .take(STEP)
                .map(|job| (String::new(), job))
                .collect();
            let mut again = true;
            loop {
                self.name(&mut step);
                let now = self.sources.clock.monotonic();
                let ring = lane.bell(|bell| bell.lead(now));
                let pushed = scripts::push(&mut live.connection, &lane.keys, &step, ring).await;
                match pushed {
                    Ok(true) if ring => break,
                    Ok(true) => {
                        self.ring_later(lane);
                        break;
                    }
                    Ok(false) => return Err(Refused::Full),
                    Err(error) => {
                        self.link.report(&live, &error);
                        // A connection that was cut while idle is back in a moment.
                        if !error.is_unrecoverable_error() || !std::mem::take(&mut again) {
                            return Err(Refused::Failed);
                        }
                        live = self.link.available().await;
                    }
                }
            }
            *left -= step.len();
            self.counters.pushed.add(step.len());
        }
        Ok(())
    }

    /// Gives the jobs ids that were never used, also not by a first attempt of the same push: one
    /// id twice in a lane would end the worker that finishes it second. The form is one that
    /// apalis prints as it was read.
    fn name(&self, jobs: &mut [(String, String)]) {
        let prefix = self.sources.entropy.ordered_id();
        for (n, (id, _)) in jobs.iter_mut().enumerate() {
            *id = format!("{}-{n}", prefix.as_hyphenated());
        }
    }

    fn ring_later(self: &Arc<Self>, lane: &Arc<OpenLane>) {
        let now = self.sources.clock.monotonic();
        let Some(wait) = lane.bell(|bell| bell.promise(now)) else {
            return;
        };
        let (core, lane) = (Arc::clone(self), Arc::clone(lane));
        tokio::spawn(async move {
            let clock = &core.sources.clock;
            clock.sleep(wait).await;
            let now = clock.monotonic();
            lane.bell(|bell| bell.keep(now));
            if let Some(mut live) = core.link.live() {
                let mut ring = redis::cmd("PUBLISH");
                ring.arg(&lane.keys.bell).arg("");
                // A lost ring costs a worker's next look, a quarter of a second away.
                let rung = ring.query_async::<()>(&mut live.connection);
                let _ = tokio::time::timeout(PUSH_LIMIT, rung).await;
            }
        });
    }
}

enum Refused {
    Full,
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ring_is_at_once_and_the_next_ones_share_one() {
        let start = Duration::from_secs(1);
        let after = |ms| start + Duration::from_millis(ms);
        let mut bell = Bell::default();
        assert!(bell.lead(start));
        assert!(!bell.lead(after(1)));
        assert_eq!(bell.promise(after(1)), Some(Duration::from_millis(3)));
        assert!(!bell.lead(after(2)));
        assert_eq!(bell.promise(after(2)), None);
        bell.keep(after(4));
        assert!(!bell.lead(after(5)));
        assert_eq!(bell.promise(after(5)), Some(Duration::from_millis(3)));
        bell.keep(after(8));
        assert!(bell.lead(after(12)));
    }

    #[test]
    fn a_push_that_ends_after_the_promised_ring_promises_another() {
        let start = Duration::from_secs(1);
        let after = |ms| start + Duration::from_millis(ms);
        let mut bell = Bell::default();
        assert!(bell.lead(start));
        assert!(!bell.lead(after(3)));
        assert_eq!(bell.promise(after(20)), Some(Duration::ZERO));
    }
}
