//! Lives of processes: parameters and results.

use super::Result;
use crate::id::SessionKey;
use crate::id::{BootId, LeaseToken};
use crate::time::Timestamp;
use crate::tool::Published;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::time::Duration;

/// What one of a process's pools of connections to the database is used for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// What they are for.
    pub pool: &'static str,
    /// Connections that are open.
    pub open: u32,
    /// Those of them that nobody uses.
    pub idle: u32,
    /// Callers that wait for one.
    pub waiting: u32,
}

/// The lives of processes, and the leases by which they own sessions.
#[async_trait]
pub trait Boots: Send + Sync {
    /// The connections of this process; none where the store has no pools.
    fn connections(&self) -> Vec<Connections> {
        Vec::new()
    }

    /// Enters a process's life; its lease runs from the database's now.
    async fn register_boot(&self, boot: NewBoot) -> Result<()>;

    /// Extends a boot's lease by `ttl` and returns the signals raised for its sessions. A boot
    /// that was declared dead stays dead: the answer is `Renewal::Dead`, and the process has
    /// nothing left to write. Leases of others that end later than any renewal could make them, since
    /// the database's clock was set back, are cut: they end as if they had been renewed just now.
    async fn renew_boot(&self, boot: BootId, ttl: Duration, in_flight: u32) -> Result<Renewal>;

    /// Ends a boot at once and gives back what it still owned, as its own process asks for it: no
    /// crash is counted, but each send that ran counts a model call that may have been begun.
    async fn stop_boot(&self, boot: BootId) -> Result<()>;

    /// Sessions that a boot owns and that have work, in the order of [`Sweeps::sweep_ready`](super::Sweeps::sweep_ready), with the
    /// token of each grant: a page behind `after`, and where the next one begins, if there is one.
    async fn owned_sessions(
        &self,
        boot: BootId,
        after: Option<(Timestamp, SessionKey)>,
        limit: u32,
    ) -> Result<Owned>;

    /// The boots that are alive, and those that ended within the last ten minutes.
    async fn list_boots(&self) -> Result<Vec<BootRecord>>;

    /// What the workers of each pool say that agents may name, of those that
    /// [`list_boots`](Self::list_boots) lists; by pool.
    async fn list_tools(&self) -> Result<Vec<PoolTools>>;
}

/// The methods of [`Boots`] as [`store_methods`](crate::store_methods) hands them over.
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

/// What a process does.
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

/// A process's life to enter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBoot {
    /// Drawn at start.
    pub id: BootId,
    /// What the process does.
    pub role: Role,
    /// A label for people.
    pub name: String,
    /// The pool it serves; of no meaning for a scheduler.
    pub pool: String,
    /// Sends it may have in flight.
    pub concurrency: u32,
    /// How long its lease runs.
    pub ttl: Duration,
    /// What its program speaks: [`PROTOCOL`](super::PROTOCOL).
    pub protocol: u32,
    /// What agents may name where it is a worker.
    pub tools: Published,
}

/// What the workers of a pool say that agents may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolTools {
    /// The pool.
    pub pool: String,
    /// What they have, all together.
    pub tools: Published,
    /// Whether one of them says nothing, as those of older releases do: it may have anything.
    pub silent: bool,
}

impl PoolTools {
    /// Of what each worker says, what each pool has; by pool.
    pub fn of(workers: impl IntoIterator<Item = (String, Published)>) -> Vec<Self> {
        let mut pools: BTreeMap<String, Self> = BTreeMap::new();
        for (pool, tools) in workers {
            let found = pools.entry(pool.clone()).or_insert_with(|| Self {
                pool,
                tools: Published::default(),
                silent: false,
            });
            found.silent |= tools.is_silent();
            found.tools.join(&tools);
        }
        pools.into_values().collect()
    }
}

/// A process's life as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootRecord {
    /// Its id.
    pub id: BootId,
    /// What the process does.
    pub role: Role,
    /// A label for people.
    pub name: String,
    /// The pool it serves.
    pub pool: String,
    /// Sends it may have in flight.
    pub concurrency: u32,
    /// Sends it had in flight at its last renewal.
    pub in_flight: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// When its lease ends.
    pub lease_until: Timestamp,
    /// How long its lease runs from a renewal.
    pub ttl: Duration,
    /// Which [`PROTOCOL`](super::PROTOCOL) its program speaks; 0 for a release that did not note it.
    pub protocol: u32,
    /// When it was declared dead or stopped.
    pub dead_at: Option<Timestamp>,
}

/// Those of some boots, read together, that have not ended. Nobody declares a boot dead that owns no session: one that did
/// not stop itself counts until its lease has run out, by the database's clock when the last of all was renewed.
pub fn alive(boots: &[BootRecord]) -> impl Iterator<Item = &BootRecord> + Clone {
    let open = boots.iter().filter(|boot| boot.dead_at.is_none());
    let renewed = |boot: &BootRecord| {
        let ttl = i64::try_from(boot.ttl.as_millis()).unwrap_or(i64::MAX);
        boot.lease_until.0.saturating_sub(ttl)
    };
    let now = open.clone().map(renewed).max();
    open.filter(move |boot| now.is_none_or(|now| boot.lease_until.0 >= now))
}

/// The answer to a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// The lease goes on.
    Renewed {
        /// When, by the database's clock.
        at: Timestamp,
        /// Sessions of this boot with signals raised, and which.
        signals: Vec<(SessionKey, i32)>,
    },
    /// The boot was declared dead: everything it held may belong to others.
    Dead,
}

/// A page of what a boot owns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owned {
    /// The sessions, with the tokens of their grants.
    pub sessions: Vec<(SessionKey, LeaseToken)>,
    /// Where the next page begins; none at the end.
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
            // Late, or of a process that was killed less than a lease ago.
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
