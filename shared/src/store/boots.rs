//! Boots, the lifetimes of processes: parameters and results.

use super::Result;
use crate::agent::AgentSpec;
use crate::id::SessionKey;
use crate::id::{BootId, LeaseToken, TenantId};
use crate::model::PublishedModels;
use crate::time::Timestamp;
use crate::tool::{Published, ToolFault};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// The current use of one of a process's database connection pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// The pool's name.
    pub pool: &'static str,
    /// Open connections.
    pub open: u32,
    /// Those of the open connections that are idle.
    pub idle: u32,
    /// Callers waiting for a connection.
    pub waiting: u32,
}

/// Counter: how often a database was found to have gone back in time.
pub const DATABASE_WENT_BACK: &str = "mainspring_database_went_back_total";

/// The database lacks commits that it had acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WentBack {
    /// When that was noticed, by the database's clock.
    pub at: Timestamp,
    /// How long before it the last commits that are there took place, at least.
    pub by: Duration,
}

impl fmt::Display for WentBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the database went back in time, which was noticed at {}: it lacks at least the last {} ms \
             of what it had stored",
            self.at,
            self.by.as_millis()
        )
    }
}

/// Boots, and the leases by which they own sessions.
#[async_trait]
pub trait Boots: Send + Sync {
    /// The connection pools of this process; empty if the store has none.
    fn connections(&self) -> Vec<Connections> {
        Vec::new()
    }

    /// Whether a boot's lease, as far as it concerns a tenant, may not be relied on any more although
    /// the boot lives: with several databases, one of them may not have renewed it.
    fn has_lapsed(&self, _boot: BootId, _tenant: TenantId) -> bool {
        false
    }

    /// How often connections were lost, or servers replaced. Whatever was read before that may be
    /// more than the database still has.
    fn losses(&self) -> u64 {
        0
    }

    /// When the database last went back in time, as a renewal found, if that was not long ago.
    fn went_back(&self) -> Option<WentBack> {
        None
    }

    /// Registers a boot; its lease runs from the database's current time.
    async fn register_boot(&self, boot: NewBoot) -> Result<()>;

    /// Extends a boot's lease by `ttl` and returns the signals raised for its sessions.
    ///
    /// A boot that was declared dead stays dead: the answer is `Renewal::Dead`, and the process may
    /// write nothing more. Leases of other boots that end later than any renewal could have made
    /// them, because the database's clock was set back, are shortened to end as if they had been
    /// renewed just now.
    async fn renew_boot(&self, boot: BootId, ttl: Duration, in_flight: u32) -> Result<Renewal>;

    /// Ends a boot at once, at its own request, and releases what it still owned. No crash is
    /// counted, but each running send counts a model call that may have been started.
    async fn stop_boot(&self, boot: BootId) -> Result<()>;

    /// Sessions with work that a boot owns, in the order of
    /// [`Sweeps::sweep_ready`](super::Sweeps::sweep_ready), with the token of each grant: the page
    /// after `after`, and where the next page starts, if there is one.
    async fn owned_sessions(
        &self,
        boot: BootId,
        after: Option<(Timestamp, SessionKey)>,
        limit: u32,
    ) -> Result<Owned>;

    /// The boots that are alive, and those that ended within the last ten minutes.
    async fn list_boots(&self) -> Result<Vec<BootRecord>>;

    /// The tools that agents may name, as published by the workers that
    /// [`list_boots`](Self::list_boots) lists; by pool.
    async fn list_tools(&self) -> Result<Vec<PoolTools>>;
}

/// The methods of [`Boots`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! boots_methods {
    ($apply:ident) => {
        $apply! { Boots:
            read register_boot(boot: $crate::store::NewBoot) -> ();
            read renew_boot(
                boot: $crate::id::BootId,
                ttl: std::time::Duration,
                in_flight: u32
            ) -> $crate::store::Renewal;
            read stop_boot(boot: $crate::id::BootId) -> ();
            read owned_sessions(
                boot: $crate::id::BootId,
                after: Option<($crate::time::Timestamp, $crate::id::SessionKey)>,
                limit: u32
            ) -> $crate::store::Owned;
            read list_boots() -> Vec<$crate::store::BootRecord>;
            read list_tools() -> Vec<$crate::store::PoolTools>;
        }
    };
}

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It serves the API and the background loops.
    Scheduler,
    /// It runs sends.
    Worker,
}

impl Role {
    /// The name in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Worker => "worker",
        }
    }

    /// The role with this name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Scheduler, Self::Worker]
            .into_iter()
            .find(|role| role.as_str() == text)
    }
}

/// A boot to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBoot {
    /// Its id, drawn at start.
    pub id: BootId,
    /// The process's role.
    pub role: Role,
    /// A label for people.
    pub name: String,
    /// The pool it serves; meaningless for a scheduler.
    pub pool: String,
    /// Maximum number of sends in flight.
    pub concurrency: u32,
    /// The duration of its lease.
    pub ttl: Duration,
    /// The [`PROTOCOL`](super::PROTOCOL) that its program speaks.
    pub protocol: u32,
    /// The tools that agents may name, if it is a worker.
    pub tools: Published,
}

/// The tools that agents may name in a pool, as published by its workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolTools {
    /// The pool.
    pub pool: String,
    /// The union of what they publish.
    pub tools: Published,
    /// Whether one of them publishes nothing, like workers of older releases: it may have any tools.
    pub silent: bool,
    /// The models of its workers, each worker's once; `None` if one of them does not say.
    pub models: Option<BTreeSet<PublishedModels>>,
}

impl PoolTools {
    /// What an agent names that no worker of the pool has: tools, MCP servers, and the provider of its model. The
    /// pointers are into the agent.
    pub fn lacks(&self, agent: &AgentSpec) -> Vec<ToolFault> {
        let tools = if self.silent {
            Vec::new()
        } else {
            self.tools.lacks(&agent.tools, &self.pool)
        };
        let tools = tools.into_iter().map(|fault| ToolFault {
            pointer: format!("/tools{}", fault.pointer),
            ..fault
        });
        let model = agent
            .model
            .as_deref()
            .and_then(|model| self.no_provider(model));
        let model = model.map(|detail| ToolFault {
            pointer: "/model".to_owned(),
            detail,
        });
        model.into_iter().chain(tools).collect()
    }

    /// What to say of a model whose provider none of the workers has.
    fn no_provider(&self, model: &str) -> Option<String> {
        let mut said = None;
        for own in self.models.as_ref()? {
            said = Some(own.no_provider(model)?);
        }
        said
    }

    /// The model that an agent names, as `PROVIDER/MODEL`, if no worker of the pool can tell what a
    /// call of it costs.
    pub fn lacks_price(&self, model: Option<&str>) -> Option<String> {
        let mut lacking = None;
        for own in self.models.as_ref()? {
            lacking = Some(own.lacks_price(model)?);
        }
        lacking
    }

    /// Merges what each worker publishes, by pool.
    pub fn of(workers: impl IntoIterator<Item = (String, Published)>) -> Vec<Self> {
        let mut pools: BTreeMap<String, Self> = BTreeMap::new();
        for (pool, tools) in workers {
            let found = pools.entry(pool.clone()).or_insert_with(|| Self {
                pool,
                tools: Published::default(),
                silent: false,
                models: Some(BTreeSet::new()),
            });
            let models = found.models.take();
            found.models = models.zip(tools.models.clone()).map(|(mut all, own)| {
                all.insert(own);
                all
            });
            found.silent |= tools.is_silent();
            found.tools.join(&tools);
        }
        pools.into_values().collect()
    }
}

/// A boot as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootRecord {
    /// Its id.
    pub id: BootId,
    /// The process's role.
    pub role: Role,
    /// A label for people.
    pub name: String,
    /// The pool it serves.
    pub pool: String,
    /// Maximum number of sends in flight.
    pub concurrency: u32,
    /// Sends it had in flight at its last renewal.
    pub in_flight: u32,
    /// When it started.
    pub started_at: Timestamp,
    /// When its lease ends.
    pub lease_until: Timestamp,
    /// The duration of its lease from a renewal.
    pub ttl: Duration,
    /// The [`PROTOCOL`](super::PROTOCOL) that its program speaks; 0 for a release that did not
    /// record it.
    pub protocol: u32,
    /// When it was declared dead or stopped.
    pub dead_at: Option<Timestamp>,
}

/// Those of these boots, read together, that are still alive.
///
/// A boot that owns no session is never declared dead. So one that did not stop itself counts as
/// alive until its lease expires, measured by the latest renewal among all of these boots, by the
/// database's clock.
pub fn alive(boots: &[BootRecord]) -> impl Iterator<Item = &BootRecord> + Clone {
    let open = boots.iter().filter(|boot| boot.dead_at.is_none());
    let renewed = |boot: &BootRecord| {
        let ttl = i64::try_from(boot.ttl.as_millis()).unwrap_or(i64::MAX);
        boot.lease_until.0.saturating_sub(ttl)
    };
    let now = open.clone().map(renewed).max();
    open.filter(move |boot| now.is_none_or(|now| boot.lease_until.0 >= now))
}

/// The outcome of a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// The lease was extended.
    Renewed {
        /// When, by the database's clock.
        at: Timestamp,
        /// Sessions of this boot with raised signals, and their signals.
        signals: Vec<(SessionKey, i32)>,
    },
    /// The boot was declared dead: everything it owned may belong to others.
    Dead,
}

/// A page of the sessions that a boot owns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owned {
    /// The sessions, with the tokens of their grants.
    pub sessions: Vec<(SessionKey, LeaseToken)>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<(Timestamp, SessionKey)>,
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn who_neither_stopped_nor_renewed_its_lease_is_not_alive() {
        let boot = |id: u128, lease_until: i64, dead_at: Option<i64>| BootRecord {
            id: BootId(Uuid::from_u128(id)),
            role: Role::Scheduler,
            name: String::new(),
            pool: String::new(),
            concurrency: 0,
            in_flight: 0,
            started_at: Timestamp(0),
            lease_until: Timestamp(lease_until),
            ttl: Duration::from_secs(4),
            protocol: 0,
            dead_at: dead_at.map(Timestamp),
        };
        let boots = [
            boot(1, 20_000, None),
            // A late renewal, or a process that was killed less than a lease ago.
            boot(2, 16_000, None),
            boot(3, 15_999, None),
            boot(4, 30_000, Some(15_000)),
        ];
        let ids = |boots: &[BootRecord]| -> Vec<u128> {
            alive(boots).map(|boot| boot.id.0.as_u128()).collect()
        };
        assert_eq!(ids(&boots), [1, 2]);
        assert_eq!(ids(&boots[2..]), [3], "the last to have renewed it");
        assert_eq!(ids(&[]), [0_u128; 0]);
    }
}
