//! The state that requests and loops share.

use std::fmt;
use std::sync::Arc;

use mainspring_runtime::Lifecycle;
use mainspring_shared::blob::Depot;
use mainspring_shared::bus::Bus;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::id::{BootId, SessionKey, TenantId};
use mainspring_shared::queue::Queue;
use mainspring_shared::store::{self, Store};
use mainspring_shared::time::Clock;

use crate::SchedulerConfig;
use crate::error::Error;
use crate::loops::auditor::RecentSessions;
use crate::services::accept::Acceptor;
use crate::services::keepers::Keepers;
use crate::services::limits::{KnownAgents, KnownLimits};
use crate::services::notify::Notifier;
use crate::services::pools::KnownPools;
use crate::services::registration::Registration;
use crate::services::spending::KnownSpending;
use crate::services::time::KnownTime;
use crate::services::watch::Watch;
use crate::services::webhooks::WebhookParts;

/// The ports and settings of a scheduler.
pub struct Parts {
    /// The database: the source of truth.
    pub store: Arc<dyn Store>,
    /// Content-addressed storage.
    pub blobs: Arc<Depot>,
    /// The queue that tells workers which sessions have work.
    pub queue: Arc<dyn Queue>,
    /// Live notifications between processes.
    pub bus: Arc<dyn Bus>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness for ids, tokens and jitter.
    pub entropy: Arc<dyn Entropy>,
    /// Intervals and limits.
    pub config: SchedulerConfig,
    /// What sending webhooks requires.
    pub webhooks: WebhookParts,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("store", &self.store)
            .field("queue", &self.queue)
            .field("bus", &self.bus)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// A running scheduler: its ports, and the services built on them.
pub struct App {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub config: SchedulerConfig,
    /// External systems other than the database and the queue.
    pub outside: Outside,
    /// The process this scheduler runs in.
    pub process: Process,
    pub notifier: Notifier,
    pub watch: Watch,
    pub acceptor: Acceptor,
    /// Cached knowledge that saves reads of the database.
    pub known: Known,
}

/// What a scheduler talks to besides the database and the queue.
#[derive(Debug)]
pub struct Outside {
    /// Content-addressed storage.
    pub blobs: Arc<Depot>,
    /// What sending webhooks requires.
    pub webhooks: WebhookParts,
}

/// The process of a scheduler: its lease and its shutdown.
#[derive(Debug)]
pub struct Process {
    /// The registration whose boot id this process writes under.
    pub registration: Registration,
    /// Whether the process is to stop.
    pub lifecycle: Lifecycle,
}

/// What a scheduler knows without asking the database. All of it is a hint that may be stale or
/// missing.
#[derive(Debug, Default)]
pub struct Known {
    /// Which worker keeps which session.
    pub keepers: Keepers,
    /// Which sessions were written recently.
    pub(crate) recent_sessions: RecentSessions,
    /// The concurrency limits of tenants.
    pub limits: KnownLimits,
    /// Which agents have limits.
    pub agents: KnownAgents,
    /// What tenants with spending limits have spent.
    pub spending: KnownSpending,
    /// Which worker pools tenants may name.
    pub pools: KnownPools,
    /// The database's current time.
    pub(crate) time: KnownTime,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl App {
    /// The boot id to write under. Fails until the first registration has succeeded.
    pub fn boot_id(&self) -> Result<BootId, Error> {
        self.process
            .registration
            .id()
            .ok_or_else(Error::not_registered)
    }

    /// Live notifications between processes.
    pub fn bus(&self) -> &dyn Bus {
        self.notifier.bus()
    }

    /// The key for a new session.
    pub fn new_session_key(&self, tenant: TenantId) -> SessionKey {
        SessionKey {
            tenant,
            session: mainspring_shared::id::SessionId(self.entropy.ordered_id()),
        }
    }
}

/// Processes items in one batch. If the batch fails because of invalid data, each item is processed
/// separately, so that only the invalid ones fail. Returns one result per item, in order.
pub async fn each<T, R, F, Fut>(items: &[T], step: F) -> Vec<Result<R, Error>>
where
    T: Clone,
    F: Fn(Vec<T>) -> Fut,
    Fut: Future<Output = store::Result<Vec<R>>>,
{
    let count = items.len();
    match step(items.to_vec()).await {
        Ok(outcomes) if outcomes.len() == count => outcomes.into_iter().map(Ok).collect(),
        Ok(_) => (0..count).map(|_| Err(Error::internal())).collect(),
        Err(error) if error.is_of_data() && count > 1 => {
            let mut outcomes = Vec::with_capacity(count);
            for item in items {
                outcomes.push(match step(vec![item.clone()]).await {
                    Ok(outcome) => outcome.into_iter().next().ok_or_else(Error::internal),
                    Err(error) => Err(Error::from(&error)),
                });
            }
            outcomes
        }
        Err(error) => {
            let error = Error::from(&error);
            (0..count).map(|_| Err(error.clone())).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_item_whose_data_is_at_fault_fails_alone() {
        let step = async |items: Vec<i32>| {
            if items.contains(&2) {
                return Err(store::Error::Refused {
                    source: "no twos".into(),
                });
            }
            Ok(items.into_iter().map(|n| n * 10).collect())
        };
        let outcomes = each(&[1, 2, 3], step).await;
        assert_eq!(outcomes, [Ok(10), Err(Error::internal()), Ok(30)]);
    }

    #[tokio::test]
    async fn an_outage_is_not_tried_again_for_each_item() {
        let calls = std::cell::Cell::new(0);
        let step = async |_: Vec<i32>| -> store::Result<Vec<i32>> {
            calls.set(calls.get() + 1);
            Err(store::Error::Unavailable {
                source: "away".into(),
            })
        };
        let outcomes = each(&[1, 2, 3], step).await;
        assert_eq!(outcomes.len(), 3);
        assert_eq!(calls.get(), 1);
    }
}
