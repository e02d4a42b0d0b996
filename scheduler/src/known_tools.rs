//! The tools that workers publish, to warn clients about unknown or misspelt names in an agent's
//! `tools`.
//!
//! It is only a warning: a worker that has the tool may be about to start, and a repeated request
//! must get the same response whatever tools the workers have by then.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::store::{PoolTools, Store};
use mainspring_shared::time::Clock;
use mainspring_shared::tool::ToolFault;

/// Maximum age of the cache for sends, so that many sends with the same misspelt name cost one
/// read.
const SENDS_READ_EVERY: Duration = Duration::from_secs(30);

/// Maximum age of the cache before a model is refused for its price: a worker that knows it may have
/// started.
const PRICES_READ_EVERY: Duration = Duration::from_secs(1);

/// A cache of the published tools. A name found in the cache is not looked up again.
#[derive(Debug, Default)]
pub(crate) struct KnownTools(Mutex<Cache>);

#[derive(Debug, Default)]
struct Cache {
    pools: BTreeMap<String, PoolTools>,
    /// When the last read began, on the monotonic clock.
    read_at: Option<Duration>,
}

impl KnownTools {
    /// What an agent names that no worker of its pool has. Empty if the pool has no
    /// known worker, if one of its workers does not publish its tools, or if the database is
    /// unavailable.
    pub(crate) async fn missing(
        &self,
        store: &dyn Store,
        clock: &dyn Clock,
        agent: &AgentSpec,
    ) -> Vec<ToolFault> {
        self.missing_within(store, clock, agent, Duration::ZERO)
            .await
    }

    /// Like [`Self::missing`], but the cache may be up to [`SENDS_READ_EVERY`] old.
    pub(crate) async fn missing_cached(
        &self,
        store: &dyn Store,
        clock: &dyn Clock,
        agent: &AgentSpec,
    ) -> Vec<ToolFault> {
        self.missing_within(store, clock, agent, SENDS_READ_EVERY)
            .await
    }

    async fn missing_within(
        &self,
        store: &dyn Store,
        clock: &dyn Clock,
        agent: &AgentSpec,
        every: Duration,
    ) -> Vec<ToolFault> {
        let names_provider = agent
            .model
            .as_ref()
            .is_some_and(|model| model.contains('/'));
        if agent.tools.is_empty() && !names_provider {
            return Vec::new();
        }
        let faults = self.faults(agent);
        if faults.as_ref().is_some_and(Vec::is_empty) || !self.is_due(clock.monotonic(), every) {
            return faults.unwrap_or_default();
        }
        let Ok(pools) = store.list_tools().await else {
            return Vec::new();
        };
        let pools = pools.into_iter().map(|pool| (pool.pool.clone(), pool));
        self.lock().pools = pools.collect();
        self.faults(agent).unwrap_or_default()
    }

    /// The model that an agent names, as `PROVIDER/MODEL`, if the workers of this pool say that they
    /// do not know what calls of it cost. `None` if one of them knows, if none of them is known, if
    /// one does not say, or if the database is unavailable.
    pub(crate) async fn lacks_price(
        &self,
        store: &dyn Store,
        clock: &dyn Clock,
        (pool, model): (&str, Option<&str>),
    ) -> Option<String> {
        let known = |cache: &Cache| Some(cache.pools.get(pool)?.lacks_price(model));
        let cached = known(&self.lock());
        if cached == Some(None) || !self.is_due(clock.monotonic(), PRICES_READ_EVERY) {
            return cached.flatten();
        }
        let pools = store.list_tools().await.ok()?;
        let pools = pools.into_iter().map(|pool| (pool.pool.clone(), pool));
        let mut cache = self.lock();
        cache.pools = pools.collect();
        known(&cache).flatten()
    }

    /// Whether the caller has to refresh the cache, because no refresh has started within `every`.
    fn is_due(&self, now: Duration, every: Duration) -> bool {
        let mut cache = self.lock();
        let due = cache
            .read_at
            .is_none_or(|read_at| now.saturating_sub(read_at) >= every);
        if due {
            cache.read_at = Some(now);
        }
        due
    }

    /// None if the pool is not in the cache.
    fn faults(&self, agent: &AgentSpec) -> Option<Vec<ToolFault>> {
        let cache = self.lock();
        let pool = cache.pools.get(agent.pool())?;
        Some(pool.lacks(agent))
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        // No statement under this lock can panic between two changes, so the cache is never inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
