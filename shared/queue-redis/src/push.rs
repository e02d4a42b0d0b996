//! Pushing jobs, within a time limit: each step pushes a few hundred jobs together with their
//! tokens for the bell.

use std::time::Duration;

use mainspring_shared::queue::Activation;

use crate::job;
use crate::lane::Line;
use crate::link::Live;
use crate::queue::Core;
use crate::scripts::{self, Pushed, STEP};

/// How long a push may block its caller.
const PUSH_LIMIT: Duration = Duration::from_millis(100);

impl Core {
    /// Pushes the activations, or as many as possible in time; returns whether that was all. Jobs
    /// for the line ahead go to the normal line while not all workers take from the line ahead, as
    /// those of earlier releases do not.
    pub(crate) async fn push(&self, line: &Line, activations: &[Activation]) -> bool {
        let jobs = job::jobs(activations);
        if jobs.is_empty() {
            return true;
        }
        let mut left = jobs.len();
        let Some(live) = self.link.live() else {
            self.counters.failed.add(left);
            return false;
        };
        let push = self.push_jobs(line, jobs, live, &mut left);
        let outcome = tokio::time::timeout(PUSH_LIMIT, push).await;
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
        line: &Line,
        jobs: Vec<String>,
        mut live: Live,
        left: &mut usize,
    ) -> Result<(), Refused> {
        let mut jobs = jobs.into_iter().peekable();
        let behind = self.keys(&Line::of(&line.lane));
        let (mut keys, mut ahead) = (self.keys(line), line.ahead);
        while jobs.peek().is_some() {
            let mut step: Vec<(String, String)> = jobs
                .by_ref()
                .take(STEP)
                .map(|job| (String::new(), job))
                .collect();
            let mut again = true;
            loop {
                self.name(&mut step);
                let unless_fewer = ahead.then_some(&*behind);
                match scripts::push(&mut live.connection, &keys, &step, unless_fewer).await {
                    Ok(Pushed::Done) => break,
                    Ok(Pushed::Full) => return Err(Refused::Full),
                    Ok(Pushed::Unserved) => (keys, ahead) = (behind.clone(), false),
                    Err(error) => {
                        self.link.report(&live, &error);
                        // A connection that was cut while idle is replaced in a moment.
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

    /// Gives the jobs ids that were never used, not even by an earlier attempt of the same push: if
    /// one id is in a lane twice, the worker that finishes it second ends. apalis prints ids of
    /// this form as it read them.
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
