//! Caches keys and limits for some seconds.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lru::LruCache;
use mainspring_scheduler::App;
use mainspring_shared::id::{KeyId, TenantId};
use mainspring_shared::store;
use mainspring_shared::tenant::{KeyRecord, Limits, NAME_CHARS_MAX};

/// Maximum number of cached keys. Unknown keys are cached too, so that a client with a deleted key
/// only causes an occasional lookup.
const KEYS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("is not zero");

/// The last use of a key is stored at most this often.
const NOTED_EVERY: Duration = Duration::from_mins(1);

/// A cached lookup, with its time on the monotonic clock.
#[derive(Debug, Clone)]
struct Looked<T> {
    at: Duration,
    /// When the last lookup was started.
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

    /// The key with this id, at most some seconds old.
    pub(super) async fn find(&self, app: &App, id: KeyId) -> store::Result<Option<Arc<KeyRecord>>> {
        let now = app.clock.monotonic();
        if let Some(found) = fresh(&self.records, &id, now, self.believed) {
            return Ok(found);
        }
        self.look_up(app, id).await
    }

    /// The key with this id, read from the database.
    pub(super) async fn look_up(
        &self,
        app: &App,
        id: KeyId,
    ) -> store::Result<Option<Arc<KeyRecord>>> {
        let now = app.clock.monotonic();
        let found = app.store.find_key(id).await?.map(Arc::new);
        remember(&self.records, id, now, found.clone());
        Ok(found)
    }

    /// The tenant with this name, at most some seconds old.
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

    /// The limits of a tenant, at most some seconds old.
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

    /// Occasionally stores that a key was used, which is known once its secret was accepted.
    /// Nothing depends on it, so a failure is only logged.
    pub(super) async fn note(&self, app: &App, id: KeyId) {
        {
            let now = app.clock.monotonic();
            let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
            let last = noted.get(&id).copied();
            if last.is_some_and(|last| now.saturating_sub(last) < NOTED_EVERY) {
                return;
            }
            noted.put(id, now);
        }
        if let Err(error) = app.store.touch_keys(vec![id]).await {
            tracing::debug!(%error, "could not record that an API key was used");
        }
    }
}

/// The cached value, if it has not expired. In the second half of its lifetime, one request looks
/// it up again while the others keep using it. They never use it after its expiry, because that
/// lookup may have failed or been dropped.
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
