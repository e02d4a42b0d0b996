//! The secrets that HTTP tools may send: by name, and each only to its own hosts.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use mainspring_runtime::Sealer;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::secret::{Held, row, seal_context};
use mainspring_shared::tool::{DeclaredTool, ToolEntry};

/// How long a secret is used without checking the database, as `PUT /v1/secrets` promises.
const VALID: Duration = Duration::from_secs(10);

/// The same while the database does not answer.
const VALID_AWAY: Duration = Duration::from_mins(10);

/// How many secrets are cached.
const KNOWN_MAX: NonZeroUsize = NonZeroUsize::new(1_024).expect("it is not 0");

/// Where the secrets of tools are. By default there are none.
#[derive(Debug, Clone, Default)]
pub struct Vault(Option<Arc<Source>>);

/// Why a secret cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoSecret {
    /// There is none, or it cannot be read.
    Never(String),
    /// The database does not answer.
    Away(String),
}

enum Source {
    /// Those of tenants in the database, and those of the configuration, which are the default tenant's.
    Stored {
        store: Arc<dyn Store>,
        sealer: Option<Arc<Sealer>>,
        own: BTreeMap<String, Held>,
        clock: Arc<dyn Clock>,
        known: Mutex<LruCache<(TenantId, String), Known>>,
    },
    /// Those that a process was started with.
    Given(BTreeMap<String, Held>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stored { .. } => "Stored",
            Self::Given(_) => "Given",
        })
    }
}

#[derive(Clone)]
struct Known {
    read_at: Duration,
    held: Result<Option<Held>, NoSecret>,
}

impl Vault {
    /// The secrets that tenants have set, opened by `sealer`, and those of the operator, which only the default tenant's
    /// tools may use.
    pub fn stored(
        store: Arc<dyn Store>,
        sealer: Option<Arc<Sealer>>,
        own: BTreeMap<String, Held>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self(Some(Arc::new(Source::Stored {
            store,
            sealer,
            own,
            clock,
            known: Mutex::new(LruCache::new(KNOWN_MAX)),
        })))
    }

    /// These secrets and no others.
    pub(crate) fn given(secrets: BTreeMap<String, Held>) -> Self {
        Self(Some(Arc::new(Source::Given(secrets))))
    }

    /// A tenant's secret.
    pub(crate) async fn get(&self, tenant: TenantId, name: &str) -> Result<Held, NoSecret> {
        let held = match self.0.as_deref() {
            None => None,
            Some(Source::Given(secrets)) => secrets.get(name).cloned(),
            Some(Source::Stored { own, .. })
                if tenant == TenantId::DEFAULT && own.contains_key(name) =>
            {
                own.get(name).cloned()
            }
            Some(source @ Source::Stored { .. }) => source.read(tenant, name).await?,
        };
        held.ok_or_else(|| NoSecret::Never(format!("there is no secret named {name:?}")))
    }

    /// The secrets that the tools of an agent name, as far as there are any.
    pub(crate) async fn of_agent(
        &self,
        agent: &AgentSpec,
        tenant: TenantId,
    ) -> Result<BTreeMap<String, Held>, String> {
        let mut found = BTreeMap::new();
        for entry in &agent.tools {
            let ToolEntry::Declared(DeclaredTool::Http(tool)) = entry else {
                continue;
            };
            for name in tool.request.iter().flat_map(|request| request.secrets()) {
                match self.get(tenant, name).await {
                    Ok(held) => {
                        found.insert(name.to_owned(), held);
                    }
                    // The call says so.
                    Err(NoSecret::Never(_)) => {}
                    Err(NoSecret::Away(why)) => return Err(why),
                }
            }
        }
        Ok(found)
    }
}

impl Source {
    async fn read(&self, tenant: TenantId, name: &str) -> Result<Option<Held>, NoSecret> {
        let Self::Stored {
            store,
            sealer,
            clock,
            known,
            ..
        } = self
        else {
            return Ok(None);
        };
        let key = (tenant, name.to_owned());
        let now = clock.monotonic();
        let before = locked(known).get(&key).cloned();
        let within = |known: &Known, valid| now.saturating_sub(known.read_at) < valid;
        if let Some(known) = before.as_ref().filter(|known| within(known, VALID)) {
            return known.held.clone();
        }
        let record = match store.find_provider_key(tenant, row(name)).await {
            Ok(record) => record,
            Err(error) => {
                if let Some(known) = before.filter(|known| within(known, VALID_AWAY)) {
                    return known.held;
                }
                let why = format!("the secret {name:?} cannot be read now");
                tracing::warn!(%error, "a tenant's secret cannot be read");
                return Err(NoSecret::Away(why));
            }
        };
        // One that cannot be opened is kept as such, too: otherwise each call of the tool would read it.
        let opened = record.map(|record| open(sealer.as_deref(), tenant, name, &record.sealed));
        let held = opened.transpose();
        let fresh = Known {
            read_at: now,
            held: held.clone(),
        };
        locked(known).put(key, fresh);
        held
    }
}

fn open(
    sealer: Option<&Sealer>,
    tenant: TenantId,
    name: &str,
    sealed: &str,
) -> Result<Held, NoSecret> {
    let unreadable = |why: &str| {
        NoSecret::Never(format!(
            "the secret {name:?} cannot be opened by this worker: {why}"
        ))
    };
    let Some(sealer) = sealer else {
        return Err(unreadable("it has no secrets_key"));
    };
    let opened = sealer.open(&seal_context(tenant, name), sealed);
    let opened = opened.map_err(|error| unreadable(&error.to_string()))?;
    serde_json::from_slice(&opened).map_err(|_| unreadable("its form is unknown"))
}

fn locked(
    known: &Mutex<LruCache<(TenantId, String), Known>>,
) -> MutexGuard<'_, LruCache<(TenantId, String), Known>> {
    // No code under this lock can panic between two changes.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
