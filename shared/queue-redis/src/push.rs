//! Pushing: bounded in time, in one step per few hundred jobs, each with its tokens for the bell.

use std::time::Duration;

use mainspring_shared::queue::{Activation, Lane};

use crate::job;
use crate::lane::Keys;
use crate::link::Live;
use crate::queue::Core;
use crate::scripts::{self, STEP};

/// How long a push may keep its caller.
const PUSH_LIMIT: Duration = Duration::from_millis(100);

impl Core {
    /// Pushes all of it, or as much as succeeds in time; whether it was all.
    pub(crate) async fn push(&self, lane: &Lane, activations: &[Activation]) -> bool {
        let jobs = job::jobs(activations);
        if jobs.is_empty() {
            return true;
        }
        let keys = self.keys(lane);
        let mut left = jobs.len();
        let Some(live) = self.link.live() else {
            self.counters.failed.add(left);
            return false;
        };
        let outcome =
            tokio::time::timeout(PUSH_LIMIT, self.push_jobs(&keys, jobs, live, &mut left)).await;
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
        &self,
        keys: &Keys,
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
                match scripts::push(&mut live.connection, keys, &step).await {
                    Ok(true) => break,
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
}

enum Refused {
    Full,
    Failed,
}
