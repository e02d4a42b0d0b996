//! Removal of what apalis leaves in Redis: finished jobs, and workers that died.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use redis::RedisResult;

use crate::lane::{Keys, REGISTRY};
use crate::link::Live;
use crate::queue::Core;
use crate::scripts::{self, STEP};

/// How often the janitor runs.
const INTERVAL: Duration = Duration::from_secs(10);
/// Time limit of one step; if it is exceeded, the pass is given up.
const STEP_LIMIT: Duration = Duration::from_secs(2);
/// Maximum number of steps per pass and set: a million jobs, more than can be finished between two
/// passes.
const STEPS_MAX: usize = 5_000;
/// Maximum number of lanes per pass.
const LANES_MAX: usize = 1_024;
/// A worker that has been silent for this long is dead, and so is every worker that could have
/// noticed.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// A pass ended early; the next one continues.
struct GivenUp;

impl Core {
    pub(crate) async fn janitor(&self, mut stop: BoxFuture<'static, ()>) {
        loop {
            // Jittered, because all processes do the same work.
            let wait = INTERVAL.mul_f64(0.75 + 0.5 * self.sources.entropy.fraction());
            if tokio::time::timeout(wait, &mut stop).await.is_ok() {
                return;
            }
            tokio::select! {
                () = &mut stop => return,
                _ = self.tidy() => {}
            }
        }
    }

    pub(crate) async fn tidy(&self) -> usize {
        let mut tidied = 0;
        // Whatever was done before a failure counts; the next pass does the rest.
        let _ = self.tidy_all(&mut tidied).await;
        self.counters.tidied.add(tidied);
        tidied
    }

    async fn tidy_all(&self, tidied: &mut usize) -> Result<(), GivenUp> {
        let mut live = self.link.live().ok_or(GivenUp)?;
        for keys in self.registered(&mut live).await? {
            for set in [&keys.done, &keys.dead] {
                for _ in 0..STEPS_MAX {
                    let step = scripts::tidy(&mut live.connection, &keys, set);
                    let forgotten = bounded(step).await;
                    let forgotten = self.checked(&live, forgotten)?;
                    *tidied += forgotten;
                    if forgotten < STEP {
                        break;
                    }
                }
            }
            self.bury(&mut live, &keys).await?;
        }
        Ok(())
    }

    /// The lanes that ever had a worker; no others have finished jobs.
    async fn registered(&self, live: &mut Live) -> Result<Vec<Keys>, GivenUp> {
        let mut ask = redis::cmd("ZRANGE");
        ask.arg(REGISTRY).arg(0).arg(LANES_MAX - 1);
        let names = bounded(ask.query_async::<Vec<String>>(&mut live.connection)).await;
        let names = self.checked(live, names)?;
        let lanes: BTreeMap<_, _> = names
            .iter()
            .filter_map(|name| Some((name.as_str(), Keys::of_registered(&self.prefix, name)?)))
            .collect();
        Ok(lanes.into_values().collect())
    }

    /// Ends workers that died while no other worker of their lane was left to notice.
    async fn bury(&self, live: &mut Live, keys: &Keys) -> Result<(), GivenUp> {
        let names = bounded(scripts::stale(&mut live.connection, keys, SILENCE_MAX)).await;
        for name in self.checked(live, names)? {
            let retired = bounded(scripts::retire(&mut live.connection, keys, &name)).await;
            self.checked(live, retired)?;
        }
        Ok(())
    }

    fn checked<T>(&self, live: &Live, outcome: Option<RedisResult<T>>) -> Result<T, GivenUp> {
        match outcome {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => {
                self.link.report(live, &error);
                Err(GivenUp)
            }
            None => {
                self.link.suspect();
                Err(GivenUp)
            }
        }
    }
}

async fn bounded<T>(step: impl Future<Output = RedisResult<T>>) -> Option<RedisResult<T>> {
    tokio::time::timeout(STEP_LIMIT, step).await.ok()
}
