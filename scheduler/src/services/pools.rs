//! Which worker pools a tenant may name: those that it is allowed, and never another tenant's own
//! pool.
//!
//! This is checked when an agent is published, when a session gets its agent, and when a run is
//! created. The default pool belongs to no tenant, so a tenant that is allowed any pool causes no
//! read as long as it names no other one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, DEFAULT_POOL};
use mainspring_shared::id::TenantId;
use mainspring_shared::tenant::Pools;
use mainspring_shared::workflow::run::RunOptions;
use mainspring_shared::workflow::spec::Spec;

use crate::app::App;
use crate::error::Error;

/// How long the pools that were read are used.
const CACHE_TTL: Duration = Duration::from_secs(5);

type All = Arc<Vec<(TenantId, Pools)>>;

/// The pools of all tenants, as last read.
#[derive(Debug, Default)]
pub struct KnownPools {
    /// Tenants restricted to some pools, among those that sent requests.
    bounded: RwLock<BTreeSet<TenantId>>,
    read: Mutex<Option<(Duration, All)>>,
}

impl KnownPools {
    /// Records which pools a tenant that sends requests may name.
    pub fn note(&self, tenant: TenantId, pools: &Pools) {
        if self.is_bounded(tenant) == pools.is_bounded() {
            return;
        }
        let mut bounded = self.bounded.write().unwrap_or_else(PoisonError::into_inner);
        if pools.is_bounded() {
            bounded.insert(tenant);
        } else {
            bounded.remove(&tenant);
        }
    }

    /// Records a change of a tenant's pools, and drops what was read.
    pub fn changed(&self, tenant: TenantId, pools: &Pools) {
        self.note(tenant, pools);
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn is_bounded(&self, tenant: TenantId) -> bool {
        let bounded = self.bounded.read().unwrap_or_else(PoisonError::into_inner);
        bounded.contains(&tenant)
    }

    fn known(&self) -> Option<(Duration, All)> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.clone()
    }

    async fn all(&self, app: &App) -> Result<All, Error> {
        let now = app.clock.monotonic();
        if let Some((at, all)) = self.known()
            && now.saturating_sub(at) < CACHE_TTL
        {
            return Ok(all);
        }
        let all = Arc::new(app.store.tenant_pools().await?);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        *read = Some((now, Arc::clone(&all)));
        Ok(all)
    }
}

/// Why a tenant may not name a pool; none if it may.
async fn fault(app: &App, tenant: TenantId, pool: &str) -> Result<Option<String>, Error> {
    if pool == DEFAULT_POOL && !app.known.pools.is_bounded(tenant) {
        return Ok(None);
    }
    let all = app.known.pools.all(app).await?;
    Ok(Pools::fault(&all, tenant, pool))
}

/// Whether a tenant may name a pool.
pub async fn may_name(app: &App, tenant: TenantId, pool: &str) -> Result<bool, Error> {
    Ok(fault(app, tenant, pool).await?.is_none())
}

/// Refuses an agent whose sends would run in a pool that its tenant may not name. `at` points to
/// the agent.
pub async fn admit_agent(
    app: &App,
    tenant: TenantId,
    agent: &AgentSpec,
    at: &str,
) -> Result<(), Error> {
    match fault(app, tenant, agent.pool()).await? {
        None => Ok(()),
        Some(why) => Err(Error::invalid(format!("{at}/pool"), why)),
    }
}

/// Like `admit_agent`, for the leaves of a run.
pub async fn admit_run(
    app: &App,
    tenant: TenantId,
    (spec, options): (&Spec, &RunOptions),
    at: &str,
) -> Result<(), Error> {
    // This pool applies to all leaves.
    if let Some(pool) = &options.pool {
        return match fault(app, tenant, pool).await? {
            None => Ok(()),
            Some(why) => Err(Error::invalid(format!("{at}/options/pool"), why)),
        };
    }
    let named = options.agents.values();
    let named = named.map(|pinned| pinned.spec.pool());
    let written = spec.pools().into_iter();
    let written = written.map(|pool| pool.unwrap_or(DEFAULT_POOL));
    for pool in named.chain(written).collect::<BTreeSet<&str>>() {
        if let Some(why) = fault(app, tenant, pool).await? {
            let why = format!("the pool of one of its leaves {why}");
            return Err(Error::invalid(format!("{at}/spec"), why));
        }
    }
    Ok(())
}
