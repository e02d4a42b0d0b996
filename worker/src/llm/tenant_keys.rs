//! The tenants' own provider keys, as cached by this process.
//!
//! If a tenant has set a key, its calls are made with that key, and never with the operator's just
//! because the tenant's could not be read.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use mainspring_runtime::Sealer;
use mainspring_shared::id::TenantId;
use mainspring_shared::memory::Embedder;
use mainspring_shared::provider_key::{ProviderKeyRecord, seal_context};
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;

use super::{Error, Model, Secret};

/// How long a key is used without checking the database, as `PUT /v1/provider-keys` promises.
const VALID: Duration = Duration::from_secs(10);

/// The same while the database does not answer.
const VALID_AWAY: Duration = Duration::from_mins(10);

/// How many pairs of tenant and provider are cached. Each model with a key of its own has its own HTTP
/// client.
const KNOWN_MAX: NonZeroUsize = NonZeroUsize::new(1_024).expect("it is not 0");

/// A client that may use a key.
pub(crate) trait KeyedClient {
    /// The same client with a tenant's own key; `None` if it uses no key.
    fn with_own(&self, key: &Secret) -> Option<Result<Arc<Self>, Error>>;

    /// Whether it uses a key.
    fn has_key(&self) -> bool;
}

impl KeyedClient for dyn Model {
    fn with_own(&self, key: &Secret) -> Option<Result<Arc<Self>, Error>> {
        Some(self.keyed()?.with_key(key))
    }

    fn has_key(&self) -> bool {
        self.keyed().is_some()
    }
}

impl KeyedClient for dyn Embedder {
    fn with_own(&self, key: &Secret) -> Option<Result<Arc<Self>, Error>> {
        let made = self.keyed()?.with_key(key.expose());
        // An error during setup never contains a key.
        Some(made.map_err(|error| Error::Auth {
            message: error.to_string(),
        }))
    }

    fn has_key(&self) -> bool {
        self.keyed().is_some()
    }
}

/// Cached lookups, by tenant and provider.
type Found<M> = LruCache<(TenantId, Arc<str>), Known<M>>;

/// The keys of tenants, and the clients that use them.
#[derive(Debug)]
pub(crate) struct TenantKeys<M: ?Sized = dyn Model> {
    sealer: Option<Arc<Sealer>>,
    known: Mutex<Found<M>>,
}

impl<M: KeyedClient + ?Sized> Default for TenantKeys<M> {
    fn default() -> Self {
        Self::new(None)
    }
}

/// What a tenant has set for a provider.
#[derive(Debug)]
struct Known<M: ?Sized> {
    read_at: Duration,
    /// The sealed key and the client with it; `None` if the tenant has set none.
    own: Option<(String, Arc<M>)>,
}

impl<M: ?Sized> Clone for Known<M> {
    fn clone(&self) -> Self {
        Self {
            read_at: self.read_at,
            own: self.own.clone(),
        }
    }
}

impl<M: ?Sized> Known<M> {
    fn model(&self, shared: &Arc<M>) -> Arc<M> {
        let own = self.own.as_ref();
        own.map_or_else(|| Arc::clone(shared), |(_, model)| Arc::clone(model))
    }
}

impl<M: KeyedClient + ?Sized> TenantKeys<M> {
    pub(super) fn new(sealer: Option<Arc<Sealer>>) -> Self {
        Self {
            sealer,
            known: Mutex::new(LruCache::new(KNOWN_MAX)),
        }
    }

    /// The model to ask for a tenant: `shared`, or the same with the tenant's own key if it has set
    /// one. `anew` reads the key again, however recently it was read.
    pub(crate) async fn model(
        &self,
        (store, clock): (&dyn Store, &dyn Clock),
        (tenant, provider): (TenantId, &Arc<str>),
        shared: &Arc<M>,
        anew: bool,
    ) -> Result<Arc<M>, Error> {
        if !shared.has_key() {
            return Ok(Arc::clone(shared));
        }
        let name = (tenant, Arc::clone(provider));
        let now = clock.monotonic();
        let known = self.lock().get(&name).cloned();
        let within = |known: &Known<M>, valid| now.saturating_sub(known.read_at) < valid;
        if let Some(known) = known.as_ref().filter(|known| !anew && within(known, VALID)) {
            return Ok(known.model(shared));
        }
        let found = match store.find_provider_key(tenant, provider.to_string()).await {
            Ok(found) => found,
            Err(error) => {
                if let Some(known) = known.filter(|known| within(known, VALID_AWAY)) {
                    return Ok(known.model(shared));
                }
                return Err(Error::Unreached {
                    message: format!("the tenant's provider key cannot be read: {error}"),
                    retry_after: None,
                });
            }
        };
        let before = known.and_then(|known| known.own);
        let own = match (found, before) {
            (None, _) => None,
            (Some(record), Some((sealed, model))) if sealed == record.sealed => {
                Some((sealed, model))
            }
            (Some(record), _) => {
                let model = shared.with_own(&self.open(&record)?).transpose()?;
                model.map(|model| (record.sealed, model))
            }
        };
        let known = Known { read_at: now, own };
        let model = known.model(shared);
        self.lock().put(name, known);
        Ok(model)
    }

    /// The model that would be asked for a tenant, from the cache only.
    pub(crate) fn known(&self, tenant: TenantId, provider: &Arc<str>, shared: &Arc<M>) -> Arc<M> {
        let name = (tenant, Arc::clone(provider));
        let known = self.lock();
        let known = known.peek(&name);
        known.map_or_else(|| Arc::clone(shared), |known| known.model(shared))
    }

    fn open(&self, record: &ProviderKeyRecord) -> Result<Secret, Error> {
        let provider = &record.provider;
        let unreadable = |why: &str| Error::Auth {
            message: format!(
                "the key that the tenant has set for {provider} cannot be read: {why}"
            ),
        };
        let Some(sealer) = &self.sealer else {
            return Err(unreadable("this worker has no secrets_key"));
        };
        let opened = sealer.open(&seal_context(record.tenant, provider), &record.sealed);
        let opened = opened.map_err(|error| unreadable(&error.to_string()))?;
        let key = String::from_utf8(opened).map_err(|_| unreadable("it is no text"))?;
        Ok(Secret::new(key))
    }

    fn lock(&self) -> MutexGuard<'_, Found<M>> {
        // No code under this lock can panic between two changes.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
