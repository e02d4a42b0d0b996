//! Agents by name.

use async_trait::async_trait;

use super::sends::IdempotencyKey;
use super::{Page, Result};
use crate::agent::{
    AgentKey, AgentLimits, AgentName, AgentQuery, AgentSpec, AgentVersion, Alias, NamedAgent,
};
use crate::id::TenantId;

/// Agents that are published under names, their versions and aliases.
#[async_trait]
pub trait Agents: Send + Sync {
    /// Publishes a spec as the newest version of an agent, which is created or restored if need be.
    ///
    /// A spec that equals the newest version's adds no version. Limits belong to the agent, not to
    /// a version. With an idempotency key a repeat publishes nothing.
    async fn publish_agent(&self, item: PublishAgent) -> Result<PublishOutcome>;

    /// Points an alias at a version, or removes it.
    async fn set_alias(&self, item: SetAlias) -> Result<AliasOutcome>;

    /// Archives an agent, which prevents new use, or restores it; `None` when unknown.
    async fn archive_agent(&self, key: AgentKey, archived: bool) -> Result<Option<NamedAgent>>;

    /// An agent, archived or not; `None` when unknown.
    async fn get_agent(&self, key: AgentKey) -> Result<Option<NamedAgent>>;

    /// Agents by name.
    async fn list_agents(&self, query: ListAgents) -> Result<Page<NamedAgent>>;

    /// A tenant's agents that have limits, including archived ones, by name.
    async fn limited_agents(&self, tenant: TenantId) -> Result<Vec<(AgentName, AgentLimits)>>;

    /// A version, whether the agent is archived or not; `None` when unknown.
    async fn get_agent_version(&self, key: AgentKey, n: i32) -> Result<Option<AgentVersion>>;

    /// An agent's versions, newest first.
    async fn list_agent_versions(&self, query: ListAgentVersions) -> Result<Page<AgentVersion>>;

    /// Resolves references to versions, in order; `None` if the agent, the version or the alias is
    /// unknown, or the agent is archived.
    async fn find_agents(
        &self,
        tenant: TenantId,
        queries: Vec<AgentQuery>,
    ) -> Result<Vec<Option<AgentVersion>>>;
}

/// The methods of [`Agents`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! agents_methods {
    ($apply:ident) => {
        $apply! { Agents:
            write publish_agent(item: $crate::store::PublishAgent) -> $crate::store::PublishOutcome;
            write set_alias(item: $crate::store::SetAlias) -> $crate::store::AliasOutcome;
            write archive_agent(
                key: $crate::agent::AgentKey,
                archived: bool
            ) -> Option<$crate::agent::NamedAgent>;
            read get_agent(key: $crate::agent::AgentKey) -> Option<$crate::agent::NamedAgent>;
            read list_agents(
                query: $crate::store::ListAgents
            ) -> $crate::store::Page<$crate::agent::NamedAgent>;
            read limited_agents(
                tenant: $crate::id::TenantId
            ) -> Vec<($crate::agent::AgentName, $crate::agent::AgentLimits)>;
            read get_agent_version(
                key: $crate::agent::AgentKey,
                n: i32
            ) -> Option<$crate::agent::AgentVersion>;
            read list_agent_versions(
                query: $crate::store::ListAgentVersions
            ) -> $crate::store::Page<$crate::agent::AgentVersion>;
            read find_agents(
                tenant: $crate::id::TenantId,
                queries: Vec<$crate::agent::AgentQuery>
            ) -> Vec<Option<$crate::agent::AgentVersion>>;
        }
    };
}

/// A spec to publish.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishAgent {
    /// The agent.
    pub key: AgentKey,
    /// The spec.
    pub spec: AgentSpec,
    /// The agent's new limits; unchanged when absent.
    pub limits: Option<AgentLimits>,
    /// The request's idempotency key.
    pub idempotency: Option<IdempotencyKey>,
}

/// The outcome of publishing a spec.
#[derive(Debug, Clone, PartialEq)]
pub enum PublishOutcome {
    /// The spec is this version.
    Published {
        /// The newest version.
        version: Box<AgentVersion>,
        /// Whether this call added it.
        added: bool,
    },
    /// The key was used for the same request, which had this outcome.
    Replayed {
        /// The version then.
        version: Box<AgentVersion>,
        /// Whether it was added then.
        added: bool,
    },
    /// The key was used for another request.
    Mismatch,
}

/// An alias to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAlias {
    /// The agent.
    pub key: AgentKey,
    /// The alias.
    pub alias: Alias,
    /// The version that it points at from now on; none to remove it.
    pub version: Option<i32>,
}

/// The outcome of changing an alias.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AliasOutcome {
    /// The agent after the change.
    Changed(Box<NamedAgent>),
    /// The agent is unknown or archived.
    NotFound,
    /// The agent has no version of this number.
    NoVersion,
}

/// A query for agents, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListAgents {
    /// The owner.
    pub tenant: TenantId,
    /// Whether to include archived agents.
    pub archived: bool,
    /// Only agents after this name.
    pub after: Option<AgentName>,
    /// Page size.
    pub limit: u32,
}

/// A query for an agent's versions, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListAgentVersions {
    /// The agent.
    pub key: AgentKey,
    /// Only versions before this one.
    pub before: Option<i32>,
    /// Page size.
    pub limit: u32,
}

/// What an idempotency key records of a published spec: the version, and whether it was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishNote {
    /// The version.
    pub n: i32,
    /// Whether it was added.
    pub added: bool,
}

impl From<PublishNote> for uuid::Uuid {
    fn from(note: PublishNote) -> Self {
        Self::from_u64_pair(u64::from(note.added), u64::from(note.n.unsigned_abs()))
    }
}

impl From<uuid::Uuid> for PublishNote {
    fn from(id: uuid::Uuid) -> Self {
        let (added, n) = id.as_u64_pair();
        Self {
            n: i32::try_from(n).unwrap_or(i32::MAX),
            added: added != 0,
        }
    }
}
