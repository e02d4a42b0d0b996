//! Published agents with limits of their own: on open sends, on money and on tokens.
//!
//! Which of a tenant's agents have limits is read along with the tenant's own limits. If none has,
//! nothing else is read. Otherwise the agent of an existing session is read, and cached for some
//! seconds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use lru::LruCache;
use mainspring_shared::agent::{AgentLimits, AgentName, AgentSpec};
use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::store::{AcceptSend, Target};

use crate::app::App;
use crate::error::Error;

/// How long a session's agent is cached.
const CACHE_TTL: Duration = Duration::from_secs(5);

/// Maximum number of sessions whose agents are cached.
const SESSIONS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("it is not 0");

/// Maximum number of sessions that are read concurrently for one request.
const READS_MAX: usize = 8;

type Limited = Arc<BTreeMap<AgentName, AgentLimits>>;

/// The agents with limits, by tenant.
#[derive(Debug)]
pub struct KnownAgents {
    limited: RwLock<HashMap<TenantId, Limited>>,
    sessions: Mutex<LruCache<SessionKey, (Duration, Option<AgentName>)>>,
}

impl Default for KnownAgents {
    fn default() -> Self {
        Self {
            limited: RwLock::default(),
            sessions: Mutex::new(LruCache::new(SESSIONS_MAX)),
        }
    }
}

impl KnownAgents {
    /// Records the agents of a tenant that have limits.
    pub fn note(&self, tenant: TenantId, mut agents: Vec<(AgentName, AgentLimits)>) {
        agents.retain(|(_, limits)| concerns_requests(limits));
        if agents.is_empty() && self.of(tenant).is_none() {
            return;
        }
        let mut limited = self.limited.write().unwrap_or_else(PoisonError::into_inner);
        if agents.is_empty() {
            limited.remove(&tenant);
        } else {
            limited.insert(tenant, Arc::new(agents.into_iter().collect()));
        }
    }

    pub(super) fn of(&self, tenant: TenantId) -> Option<Limited> {
        let limited = self.limited.read().unwrap_or_else(PoisonError::into_inner);
        limited.get(&tenant).cloned()
    }

    fn sessions(
        &self,
    ) -> std::sync::MutexGuard<'_, LruCache<SessionKey, (Duration, Option<AgentName>)>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a request may be refused because of these limits. The limit on sends in flight is
/// enforced by the store.
fn concerns_requests(limits: &AgentLimits) -> bool {
    let others = AgentLimits {
        sends_running: None,
        ..limits.clone()
    };
    others.stored().is_some()
}

/// The sends of one agent with limits.
#[derive(Debug)]
pub(super) struct OfAgent<'a> {
    pub(super) agent: AgentName,
    pub(super) limits: AgentLimits,
    pub(super) sends: Vec<&'a AcceptSend>,
}

/// The sends of one tenant whose agents have limits, by agent, in their order.
pub(super) async fn limited<'a>(
    app: &App,
    tenant: TenantId,
    items: &[&'a AcceptSend],
) -> Result<Vec<OfAgent<'a>>, Error> {
    let Some(limited) = app.known.agents.of(tenant) else {
        return Ok(Vec::new());
    };
    let keys: BTreeSet<SessionKey> = items.iter().filter_map(|item| asks(item)).collect();
    let mut reads: Vec<BoxFuture<'_, Result<_, Error>>> = Vec::new();
    for key in keys {
        reads.push(async move { Ok((key, agent_of_session(app, key).await?)) }.boxed());
    }
    let of_sessions: BTreeMap<SessionKey, Option<AgentName>> = stream::iter(reads)
        .buffered(READS_MAX)
        .try_collect()
        .await?;
    let mut found: BTreeMap<AgentName, OfAgent<'a>> = BTreeMap::new();
    for item in items.iter().copied() {
        let agent = match (&item.options.agent, &item.target) {
            (Some(own), _) => name_of(own),
            (None, Target::New(session)) => name_of(&session.agent),
            (None, Target::Existing(key)) => of_sessions.get(key).cloned().flatten(),
        };
        let Some(agent) = agent else {
            continue;
        };
        let Some(limits) = limited.get(&agent) else {
            continue;
        };
        let of = found.entry(agent.clone()).or_insert_with(|| OfAgent {
            agent,
            limits: limits.clone(),
            sends: Vec::new(),
        });
        of.sends.push(item);
    }
    Ok(found.into_values().collect())
}

/// The session whose agent a send uses; none if the send itself determines its agent.
fn asks(item: &AcceptSend) -> Option<SessionKey> {
    match (&item.options.agent, &item.target) {
        (None, Target::Existing(key)) => Some(*key),
        (Some(_), _) | (None, Target::New(_)) => None,
    }
}

/// The published agent of a session; none if the session defines its agent inline.
async fn agent_of_session(app: &App, key: SessionKey) -> Result<Option<AgentName>, Error> {
    let now = app.clock.monotonic();
    let known = app.known.agents.sessions().get(&key).cloned();
    if let Some((at, agent)) = known
        && now.saturating_sub(at) < CACHE_TTL
    {
        return Ok(agent);
    }
    let session = app.store.get_session(key).await?;
    let agent = session.and_then(|session| name_of(&session.agent));
    let mut sessions = app.known.agents.sessions();
    sessions.put(key, (now, agent.clone()));
    Ok(agent)
}

fn name_of(spec: &AgentSpec) -> Option<AgentName> {
    Some(spec.reference()?.name.clone())
}
