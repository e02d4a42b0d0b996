//! Agents by name.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::agent::{
    AgentKey, AgentLimits, AgentName, AgentQuery, AgentVersion, Alias, NamedAgent, Pick,
};
use mainspring_shared::id::TenantId;
use mainspring_shared::skill::BrokenSkill;
use mainspring_shared::store::{
    Agents, AliasOutcome, ListAgentVersions, ListAgents, Page, PublishAgent, PublishNote,
    PublishOutcome, Result, SetAlias,
};
use mainspring_shared::time::Timestamp;

use crate::lists::StoredList;
use crate::memory::ModelStore;
use crate::money;
use crate::reads::page;
use crate::skills::Named;
use crate::state::{Seen, State};

/// Published agents, and what they have: skills and lists.
#[derive(Debug, Default)]
pub(crate) struct AgentTables {
    pub(crate) named: BTreeMap<AgentKey, StoredAgent>,
    /// By tenant and name.
    pub(crate) skills: BTreeMap<(TenantId, String), Named>,
    /// By tenant and folder.
    pub(crate) broken_skills: BTreeMap<(TenantId, String), BrokenSkill>,
    /// By tenant and key.
    pub(crate) lists: BTreeMap<(TenantId, String), StoredList>,
}

/// An agent with its versions in order.
#[derive(Debug)]
pub(crate) struct StoredAgent {
    agent: NamedAgent,
    versions: Vec<AgentVersion>,
}

impl StoredAgent {
    pub(crate) fn limits(&self) -> &AgentLimits {
        &self.agent.limits
    }

    fn version(&self, n: i32) -> Option<&AgentVersion> {
        let place = usize::try_from(n).ok()?.checked_sub(1)?;
        self.versions.get(place)
    }
}

#[async_trait]
impl Agents for ModelStore {
    async fn publish_agent(&self, item: PublishAgent) -> Result<PublishOutcome> {
        let (mut state, now) = self.begin();
        Ok(publish(&mut state, now, item))
    }

    async fn set_alias(&self, item: SetAlias) -> Result<AliasOutcome> {
        let (mut state, now) = self.begin();
        Ok(set_alias(&mut state, now, item))
    }

    async fn archive_agent(&self, key: AgentKey, archived: bool) -> Result<Option<NamedAgent>> {
        let (mut state, now) = self.begin();
        let Some(kept) = state.agents.named.get_mut(&key) else {
            return Ok(None);
        };
        if kept.agent.archived_at.is_some() != archived {
            kept.agent.archived_at = archived.then_some(now);
            kept.agent.updated_at = now;
        }
        Ok(Some(kept.agent.clone()))
    }

    async fn get_agent(&self, key: AgentKey) -> Result<Option<NamedAgent>> {
        let (state, _) = self.begin();
        Ok(state.agents.named.get(&key).map(|kept| kept.agent.clone()))
    }

    async fn list_agents(&self, query: ListAgents) -> Result<Page<NamedAgent>> {
        let (state, _) = self.begin();
        let wanted = state.agents.named.values().map(|kept| &kept.agent);
        let wanted = wanted.filter(|agent| agent.key.tenant == query.tenant);
        let wanted = wanted.filter(|agent| query.archived || agent.archived_at.is_none());
        let after = query.after.as_ref();
        let wanted = wanted.filter(|agent| after.is_none_or(|after| agent.key.name > *after));
        Ok(page(wanted.cloned(), query.limit))
    }

    async fn limited_agents(&self, tenant: TenantId) -> Result<Vec<(AgentName, AgentLimits)>> {
        let (state, _) = self.begin();
        let agents = state.agents.named.values().map(|kept| &kept.agent);
        let limited = agents.filter(|it| it.key.tenant == tenant && it.limits.stored().is_some());
        Ok(limited
            .map(|agent| (agent.key.name.clone(), agent.limits.clone()))
            .collect())
    }

    async fn get_agent_version(&self, key: AgentKey, n: i32) -> Result<Option<AgentVersion>> {
        let (state, _) = self.begin();
        let kept = state.agents.named.get(&key);
        Ok(kept.and_then(|kept| kept.version(n)).cloned())
    }

    async fn list_agent_versions(&self, query: ListAgentVersions) -> Result<Page<AgentVersion>> {
        let (state, _) = self.begin();
        let versions = state.agents.named.get(&query.key).into_iter();
        let versions = versions.flat_map(|kept| kept.versions.iter().rev());
        let older = versions.filter(|one| query.before.is_none_or(|before| one.n < before));
        Ok(page(older.cloned(), query.limit))
    }

    async fn find_agents(
        &self,
        tenant: TenantId,
        queries: Vec<AgentQuery>,
    ) -> Result<Vec<Option<AgentVersion>>> {
        let (state, _) = self.begin();
        let found = queries.into_iter().map(|query| find(&state, tenant, query));
        Ok(found.collect())
    }
}

fn publish(state: &mut State, now: Timestamp, item: PublishAgent) -> PublishOutcome {
    match state.seen(item.idempotency.as_ref()) {
        Seen::Never => {}
        Seen::Mismatch => return PublishOutcome::Mismatch,
        Seen::Before(note) => {
            let PublishNote { n, added } = note.into();
            let kept = state.agents.named.get(&item.key);
            let version = kept.and_then(|kept| kept.version(n));
            let version = version.expect("versions stay").clone();
            return PublishOutcome::Replayed {
                version: Box::new(version),
                added,
            };
        }
    }
    let kept = state
        .agents
        .named
        .entry(item.key.clone())
        .or_insert_with(|| StoredAgent {
            agent: NamedAgent {
                key: item.key.clone(),
                version: 0,
                aliases: BTreeMap::new(),
                created_at: now,
                updated_at: now,
                archived_at: None,
                limits: AgentLimits::default(),
            },
            versions: Vec::new(),
        });
    let before = kept.agent.limits.sends_running;
    if let Some(limits) = item.limits.clone()
        && limits != kept.agent.limits
    {
        let before = std::mem::replace(&mut kept.agent.limits, limits);
        let changed = (&before, &kept.agent.limits);
        money::apply_agent_limits(&mut state.tenants.money, &item.key, changed);
        kept.agent.updated_at = now;
    }
    let running = kept.agent.limits.sends_running;
    let of_seats = item.limits.is_some() && (before.is_some() || running.is_some());
    let key = kept.agent.key.clone();
    let added = kept
        .versions
        .last()
        .is_none_or(|newest| newest.spec != item.spec);
    if added {
        kept.agent.version += 1;
        kept.versions.push(AgentVersion {
            key: item.key,
            n: kept.agent.version,
            hash: item.spec.hash(),
            spec: item.spec,
            created_at: now,
        });
    }
    if added || kept.agent.archived_at.is_some() {
        kept.agent.archived_at = None;
        kept.agent.updated_at = now;
    }
    let version = kept.versions.last().expect("it has one now").clone();
    let note = PublishNote {
        n: version.n,
        added,
    };
    state.remember(item.idempotency.as_ref(), note.into(), now);
    if of_seats {
        state.apply_agent_limits(&key, now);
    }
    PublishOutcome::Published {
        version: Box::new(version),
        added,
    }
}

fn set_alias(state: &mut State, now: Timestamp, item: SetAlias) -> AliasOutcome {
    let kept = state.agents.named.get_mut(&item.key);
    let Some(kept) = kept.filter(|kept| kept.agent.archived_at.is_none()) else {
        return AliasOutcome::NotFound;
    };
    if item.version.is_some_and(|n| kept.version(n).is_none()) {
        return AliasOutcome::NoVersion;
    }
    let aliases = &mut kept.agent.aliases;
    let before: Option<i32> = match item.version {
        Some(n) => aliases.insert(item.alias, n),
        None => aliases.remove(&item.alias),
    };
    if before != item.version {
        kept.agent.updated_at = now;
    }
    AliasOutcome::Changed(Box::new(kept.agent.clone()))
}

fn find(state: &State, tenant: TenantId, query: AgentQuery) -> Option<AgentVersion> {
    let key = AgentKey {
        tenant,
        name: query.name,
    };
    let kept = state.agents.named.get(&key)?;
    if kept.agent.archived_at.is_some() {
        return None;
    }
    let n = match query.pick {
        Pick::Newest => kept.agent.version,
        Pick::Version(n) => n,
        Pick::Alias(alias) => pointed(&kept.agent, &alias)?,
    };
    kept.version(n).cloned()
}

fn pointed(agent: &NamedAgent, alias: &Alias) -> Option<i32> {
    agent.aliases.get(alias).copied()
}

/// The limits of sends in flight of a tenant's agents, for the agents that have one.
pub(crate) fn running(state: &State, tenant: TenantId) -> BTreeMap<AgentName, u32> {
    let agents = state.agents.named.values().map(|kept| &kept.agent);
    let agents = agents.filter(|agent| agent.key.tenant == tenant);
    agents
        .filter_map(|agent| Some((agent.key.name.clone(), agent.limits.sends_running?)))
        .collect()
}

/// All agents with their versions.
pub(crate) fn dump(state: &State) -> Vec<(NamedAgent, Vec<AgentVersion>)> {
    let all = state.agents.named.values();
    all.map(|kept| (kept.agent.clone(), kept.versions.clone()))
        .collect()
}
