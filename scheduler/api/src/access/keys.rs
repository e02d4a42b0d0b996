//! Keys and limits that were looked up, for some seconds.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lru::LruCache;
use mainspring_scheduler::App;
use mainspring_shared::id::{KeyId, TenantId};
use mainspring_shared::store;
use mainspring_shared::tenant::{KeyRecord, Limits, NAME_CHARS_MAX};

/// Keys that are remembered at once. Unknown ones are remembered too, so that a client with a deleted key
/// costs one look-up in a while.
const KEYS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("is not zero");

/// The last use of a key is stored once in this time.
const NOTED_EVERY: Duration = Duration::from_mins(1);

/// What was looked up, and when by the monotonic clock.
#[derive(Debug, Clone)]
struct Looked<T> {
    at: Duration,
    /// When someone last set out to look it up again.
    asked: Duration,
    found: T,
}

#[derive(Debug)]
pub(super) struct Keys {
    believed: Duration,
    records: Mutex<LruCache<KeyId, Looked<Option<Arc<KeyRecord>>>>>,
    limits: Mutex<LruCache<TenantId, Looked<Limits>>>,
    names: Mutex<LruCache<String, Looked<Option<TenantId>>>>,
    noted: Mutex<LruCache<KeyId, Duration>>,
}

impl Keys {
    pub(super) fn new(believed: Duration) -> Self {
        Self {
            believed,
            records: Mutex::new(LruCache::new(KEYS_MAX)),
            limits: Mutex::new(LruCache::new(KEYS_MAX)),
            names: Mutex::new(LruCache::new(KEYS_MAX)),
            noted: Mutex::new(LruCache::new(KEYS_MAX)),
        }
    }

    /// The key with this id, as it was at most some seconds ago.
    pub(super) async fn find(&self, app: &App, id: KeyId) -> store::Result<Option<Arc<KeyRecord>>> {
        let now = app.clock.monotonic();
        if let Some(found) = fresh(&self.records, &id, now, self.believed) {
            return Ok(found);
        }
        self.look_up(app, id).await
    }

    /// The key with this id, as it is now.
    pub(super) async fn look_up(
        &self,
        app: &App,
        id: KeyId,
    ) -> store::Result<Option<Arc<KeyRecord>>> {
        let now = app.clock.monotonic();
        let found = app.store.find_key(id).await?.map(Arc::new);
        remember(&self.records, id, now, found.clone());
        if found.is_some() {
            self.note(app, id, now).await;
        }
        Ok(found)
    }

    /// The tenant with this name, as it was at most some seconds ago.
    pub(super) async fn named(&self, app: &App, name: &str) -> store::Result<Option<TenantId>> {
        if name.chars().count() > NAME_CHARS_MAX {
            return Ok(None);
        }
        let now = app.clock.monotonic();
        let name = name.to_owned();
        if let Some(found) = fresh(&self.names, &name, now, self.believed) {
            return Ok(found);
        }
        let found = app.store.named_tenant(name.clone()).await?;
        remember(&self.names, name, now, found);
        Ok(found)
    }

    /// What a tenant may use, as it was at most some seconds ago.
    pub(super) async fn limits(&self, app: &App, tenant: TenantId) -> store::Result<Limits> {
        let now = app.clock.monotonic();
        if let Some(found) = fresh(&self.limits, &tenant, now, self.believed) {
            return Ok(found);
        }
        let found = app.store.get_tenant(tenant);
        let agents = app.store.limited_agents(tenant);
        let (found, agents) = tokio::try_join!(found, agents)?;
        app.known.agents.note(tenant, agents);
        if let Some(found) = &found {
            app.notifier.queue.weigh(tenant, found.weight);
            app.known.pools.note(tenant, &found.pools);
        }
        let limits = found.map(|tenant| tenant.limits).unwrap_or_default();
        remember(&self.limits, tenant, now, limits.clone());
        Ok(limits)
    }

    /// Stores that a key was used, now and then. Nothing depends on it, so a failure is only logged.
    async fn note(&self, app: &App, id: KeyId, now: Duration) {
        {
            let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
            let last = noted.get(&id).copied();
            if last.is_some_and(|last| now.saturating_sub(last) < NOTED_EVERY) {
                return;
            }
            noted.put(id, now);
        }
        if let Err(error) = app.store.touch_keys(vec![id]).await {
            tracing::debug!(%error, "the use of a key could not be noted");
        }
    }
}

/// What is still believed. In the second half of that time one request looks it up again and the others
/// go on believing it, but never beyond its end: that one may have failed, or been given up.
fn fresh<K: std::hash::Hash + Eq, T: Clone>(
    known: &Mutex<LruCache<K, Looked<T>>>,
    key: &K,
    now: Duration,
    believed: Duration,
) -> Option<T> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let looked = known.get_mut(key)?;
    let half = believed / 2;
    let age = now.saturating_sub(looked.at);
    if age >= believed {
        return None;
    }
    if age >= half && now.saturating_sub(looked.asked) >= half {
        looked.asked = now;
        return None;
    }
    Some(looked.found.clone())
}

fn remember<K: std::hash::Hash + Eq, T>(
    known: &Mutex<LruCache<K, Looked<T>>>,
    key: K,
    at: Duration,
    found: T,
) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = at;
    known.put(key, Looked { at, asked, found });
}
