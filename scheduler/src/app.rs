//! What every request and every loop shares.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use mainspring_runtime::Lifecycle;
use mainspring_shared::bus::Bus;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::id::{BootId, SessionKey, TenantId};
use mainspring_shared::queue::Queue;
use mainspring_shared::store::{self, Store};
use mainspring_shared::time::Clock;
use tokio::sync::Semaphore;

use crate::SchedulerConfig;
use crate::error::Error;
use crate::services::accept::Acceptor;
use crate::services::notify::Notifier;
use crate::services::registration::Registration;
use crate::services::watch::Watch;

/// Prints the process's metrics in the Prometheus text format.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Called once with the address, when the first request can be answered.
pub type OnAccepting = Box<dyn FnOnce(SocketAddr) + Send>;

/// What a scheduler is made of.
pub struct Parts {
    /// The truth.
    pub store: Arc<dyn Store>,
    /// Where sessions with work are announced.
    pub queue: Arc<dyn Queue>,
    /// Live notices.
    pub bus: Arc<dyn Bus>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Ids, fences, jitter.
    pub entropy: Arc<dyn Entropy>,
    /// The bounds.
    pub config: SchedulerConfig,
    /// What `/metrics` shows; without it the path does not exist.
    pub metrics: Option<RenderMetrics>,
    /// Whom to tell that requests are answered.
    pub on_accepting: Option<OnAccepting>,
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

/// A running scheduler: its ports, and the services over them.
pub(crate) struct App {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) config: SchedulerConfig,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) registration: Registration,
    pub(crate) notifier: Notifier,
    pub(crate) watch: Watch,
    pub(crate) acceptor: Acceptor,
    pub(crate) http: Http,
}

/// What only the API needs.
pub(crate) struct Http {
    /// Requests under way.
    pub(crate) requests: Arc<Semaphore>,
    /// Requests that wait or stream.
    pub(crate) waiters: Arc<Semaphore>,
    /// Bytes of the bodies that are held.
    pub(crate) bodies: Arc<Semaphore>,
    pub(crate) metrics: Option<RenderMetrics>,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl App {
    /// The boot to write under. Until the first registration succeeds, nothing can be written.
    pub(crate) fn boot_id(&self) -> Result<BootId, Error> {
        self.registration.id().ok_or_else(Error::not_registered)
    }

    /// A fresh session's key.
    pub(crate) fn new_session_key(&self, tenant: TenantId) -> SessionKey {
        SessionKey {
            tenant,
            session: mainspring_shared::id::SessionId(self.entropy.ordered_id()),
        }
    }
}

/// Does items together, or one by one when the data of one of them is at fault, so that it alone
/// fails.
pub(crate) async fn each<T, R, F, Fut>(items: Vec<T>, step: F) -> Vec<Result<R, Error>>
where
    T: Clone,
    F: Fn(Vec<T>) -> Fut,
    Fut: Future<Output = store::Result<Vec<R>>>,
{
    let count = items.len();
    match step(items.clone()).await {
        Ok(outcomes) if outcomes.len() == count => outcomes.into_iter().map(Ok).collect(),
        Ok(_) => (0..count).map(|_| Err(Error::internal())).collect(),
        Err(error) if error.is_of_data() && count > 1 => {
            let mut outcomes = Vec::with_capacity(count);
            for item in items {
                outcomes.push(match step(vec![item]).await {
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
        let outcomes = each(vec![1, 2, 3], step).await;
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
        let outcomes = each(vec![1, 2, 3], step).await;
        assert_eq!(outcomes.len(), 3);
        assert_eq!(calls.get(), 1);
    }
}
