//! Pauses: what an operator, or a tenant for its own agents and tools, has put on hold.
//!
//! Paused work waits: everything is accepted as before, and nothing is refused or lost.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::TenantId;
use crate::named::named;
use crate::time::Timestamp;

/// Maximum length of the name of something paused, in bytes.
pub const PAUSED_NAME_BYTES_MAX: usize = 200;

/// Maximum length of a reason, in bytes.
pub const PAUSE_REASON_BYTES_MAX: usize = 1_000;

named! {
    /// What can be paused, in the order of the names: lists are in the same order in every store.
    PauseKind {
        /// The sends of a tenant's agents with this name.
        Agent = "agent",
        /// A pool: its workers take no more work.
        Pool = "pool",
        /// A model provider, for all tenants.
        Provider = "provider",
        /// A tenant: none of its sends starts or continues with another round.
        Tenant = "tenant",
        /// A tenant's tools with this name, as far as workers call them.
        Tool = "tool",
    }
}

impl PauseKind {
    /// Whether only operators can pause it.
    pub fn is_of_system(self) -> bool {
        matches!(self, Self::Tenant | Self::Provider | Self::Pool)
    }
}

/// Something that can be paused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PauseKey {
    /// The tenant that is paused, or that has the agent or the tool; the default tenant for
    /// providers and pools.
    pub tenant: TenantId,
    /// What it is.
    pub kind: PauseKind,
    /// Its name; the printed id of a tenant.
    pub name: String,
}

impl PauseKey {
    /// A whole tenant.
    pub fn tenant(tenant: TenantId) -> Self {
        Self {
            tenant,
            kind: PauseKind::Tenant,
            name: tenant.to_string(),
        }
    }

    /// A provider or a pool.
    pub fn of_system(kind: PauseKind, name: &str) -> Self {
        Self::of(TenantId::DEFAULT, kind, name)
    }

    /// An agent or a tool of a tenant.
    pub fn of(tenant: TenantId, kind: PauseKind, name: &str) -> Self {
        Self {
            tenant,
            kind,
            name: name.to_owned(),
        }
    }
}

/// The form used in list cursors.
impl fmt::Display for PauseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.tenant, self.kind.as_str(), self.name)
    }
}

/// A text that is not a cursor of a list of pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a cursor of a list of pauses")]
pub struct ParsePauseKeyError;

impl FromStr for PauseKey {
    type Err = ParsePauseKeyError;

    fn from_str(text: &str) -> Result<Self, ParsePauseKeyError> {
        let mut parts = text.splitn(3, '.');
        let mut part = || parts.next().ok_or(ParsePauseKeyError);
        let tenant = part()?.parse().map_err(|_| ParsePauseKeyError)?;
        let kind = PauseKind::parse(part()?).ok_or(ParsePauseKeyError)?;
        let name = part()?.to_owned();
        is_pause_name(&name)
            .then_some(Self { tenant, kind, name })
            .ok_or(ParsePauseKeyError)
    }
}

/// Whether something with this name can be paused.
pub fn is_pause_name(name: &str) -> bool {
    (1..=PAUSED_NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control)
}

/// A pause that is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseRecord {
    /// What is paused.
    pub key: PauseKey,
    /// Why, for people.
    pub reason: Option<String>,
    /// When it started.
    pub created_at: Timestamp,
}

/// Everything that is currently paused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PauseSet(BTreeSet<PauseKey>);

impl PauseSet {
    /// The first of these keys that is paused.
    fn first(&self, keys: impl IntoIterator<Item = PauseKey>) -> Option<PauseKey> {
        keys.into_iter().find(|key| self.0.contains(key))
    }

    /// Whether nothing is paused.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pause that holds back sends of a tenant's agent, if any.
    pub fn of_send(&self, tenant: TenantId, agent: Option<&str>) -> Option<PauseKey> {
        if self.is_empty() {
            return None;
        }
        let agent = agent.map(|name| PauseKey::of(tenant, PauseKind::Agent, name));
        self.first([PauseKey::tenant(tenant)].into_iter().chain(agent))
    }

    /// The pause that holds back calls of a tool, if any.
    pub fn of_tool(&self, tenant: TenantId, name: &str) -> Option<PauseKey> {
        if self.is_empty() {
            return None;
        }
        self.first([PauseKey::of(tenant, PauseKind::Tool, name)])
    }

    /// The pause that holds back calls of a provider's models, if any.
    pub fn of_provider(&self, name: &str) -> Option<PauseKey> {
        if self.is_empty() {
            return None;
        }
        self.first([PauseKey::of_system(PauseKind::Provider, name)])
    }

    /// Whether any provider is paused.
    pub fn has_provider(&self) -> bool {
        self.0.iter().any(|key| key.kind == PauseKind::Provider)
    }

    /// Whether a pool is paused.
    pub fn holds_pool(&self, name: &str) -> bool {
        let key = PauseKey::of_system(PauseKind::Pool, name);
        !self.is_empty() && self.0.contains(&key)
    }
}

impl FromIterator<PauseKey> for PauseSet {
    fn from_iter<I: IntoIterator<Item = PauseKey>>(keys: I) -> Self {
        Self(keys.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLUE: TenantId = TenantId(2);

    #[test]
    fn a_pause_holds_what_it_names_and_nothing_else() {
        let set: PauseSet = [
            PauseKey::tenant(BLUE),
            PauseKey::of(TenantId::DEFAULT, PauseKind::Agent, "a"),
            PauseKey::of(TenantId::DEFAULT, PauseKind::Tool, "t"),
            PauseKey::of_system(PauseKind::Provider, "p"),
            PauseKey::of_system(PauseKind::Pool, "gpu"),
        ]
        .into_iter()
        .collect();
        assert_eq!(set.of_send(BLUE, None), Some(PauseKey::tenant(BLUE)));
        let held = set.of_send(TenantId::DEFAULT, Some("a"));
        assert_eq!(held.map(|key| key.kind), Some(PauseKind::Agent));
        assert_eq!(set.of_send(TenantId::DEFAULT, Some("b")), None);
        assert_eq!(set.of_send(TenantId::DEFAULT, None), None);
        assert!(set.of_tool(TenantId::DEFAULT, "t").is_some());
        assert!(set.of_tool(BLUE, "t").is_none());
        assert!(set.of_provider("p").is_some() && set.of_provider("t").is_none());
        assert!(set.has_provider() && set.holds_pool("gpu") && !set.holds_pool("p"));
    }

    #[test]
    fn cursors_parse_back_whatever_the_name() {
        for name in ["a", "a.b", "ten_2", "ü/:."] {
            let key = PauseKey::of(BLUE, PauseKind::Tool, name);
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        for bad in [
            "",
            "ten_1",
            "ten_1.tool",
            "ten_1.tool.",
            "ten_1.x.y",
            "1.tool.y",
        ] {
            assert_eq!(bad.parse::<PauseKey>(), Err(ParsePauseKeyError), "{bad}");
        }
    }
}
