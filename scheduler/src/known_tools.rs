//! What the workers say that agents may name: a word too much or misspelt is told to whoever writes it.
//!
//! It is a warning and no refusal: a worker with the tool may be on its way, and a request that is
//! repeated is answered as before whatever the workers have by then.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::store::{PoolTools, Store};
use mainspring_shared::time::Clock;
use mainspring_shared::tool::ToolFault;

/// How long sends are answered from what was read: many with the same word misspelt are one read.
const SENDS_READ_EVERY: Duration = Duration::from_secs(30);

/// What was last read. A name that was known once is not asked for again.
#[derive(Debug, Default)]
pub(crate) struct KnownTools(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    pools: BTreeMap<String, PoolTools>,
    /// When the last read began, on the monotonic clock.
    read_at: Option<Duration>,
}

impl KnownTools {
    /// What an agent names that no worker of its pool has. Nothing where no worker is known there, or
    /// one that does not say what it has, or where the database does not answer.
    pub(crate) async fn lacks(
        &self,
        store: &dyn Store,
        clock: &dyn Clock,
        agent: &AgentSpec,
    ) -> Vec<ToolFault> {
        self.lacks_since(store, clock, agent, Duration::ZERO).await
    }

    /// The same for a send, as it was known a short while ago.
    pub(crate) async fn lacks_lately(
        &self,
        store: &dyn Store,
        clock: &dyn Clock,
        agent: &AgentSpec,
    ) -> Vec<ToolFault> {
        self.lacks_since(store, clock, agent, SENDS_READ_EVERY)
            .await
    }

    async fn lacks_since(
        &self,
        store: &dyn Store,
        clock: &dyn Clock,
        agent: &AgentSpec,
        every: Duration,
    ) -> Vec<ToolFault> {
        if agent.tools.is_empty() {
            return Vec::new();
        }
        let faults = self.faults(agent);
        if faults.as_ref().is_some_and(Vec::is_empty) || !self.is_due(clock.monotonic(), every) {
            return faults.unwrap_or_default();
        }
        let Ok(pools) = store.list_tools(None).await else {
            return Vec::new();
        };
        let pools = pools.into_iter().map(|pool| (pool.pool.clone(), pool));
        self.lock().pools = pools.collect();
        self.faults(agent).unwrap_or_default()
    }

    /// Whether the caller has to read, because nobody began to within `every`.
    fn is_due(&self, now: Duration, every: Duration) -> bool {
        let mut known = self.lock();
        let due = known
            .read_at
            .is_none_or(|read_at| now.saturating_sub(read_at) >= every);
        if due {
            known.read_at = Some(now);
        }
        due
    }

    /// None where nothing is known of the pool.
    fn faults(&self, agent: &AgentSpec) -> Option<Vec<ToolFault>> {
        let known = self.lock();
        let pool = known.pools.get(agent.pool())?;
        if pool.silent {
            return Some(Vec::new());
        }
        Some(pool.tools.lacks(&agent.tools, &pool.pool))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing between two statements under this lock can panic, so it is never half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
