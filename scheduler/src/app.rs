//! What every request and every loop shares.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use mainspring_runtime::{Group, Lifecycle};
use mainspring_shared::bus::Bus;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::queue::Queue;
use mainspring_shared::send::SendRecord;
use mainspring_shared::store::{CreateOutcome, IdempotencyKey, NewSession, Store};
use mainspring_shared::time::Clock;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::SchedulerConfig;
use crate::accept::Accept;
use crate::api::problem::Problem;
use crate::boot::Boot;
use crate::ring::Ringer;
use crate::watch::Watch;

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

/// A session to create and what makes a repeat harmless.
pub(crate) type Creation = (NewSession, Option<IdempotencyKey>);

/// A running scheduler.
pub(crate) struct App {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) config: SchedulerConfig,
    pub(crate) metrics: Option<RenderMetrics>,
    pub(crate) lifecycle: Lifecycle,
    /// Cancelled once no request is under way any more: what requests need may end.
    pub(crate) closing: CancellationToken,
    pub(crate) boot: Boot,
    pub(crate) ringer: Ringer,
    pub(crate) watch: Watch,
    pub(crate) accept: Accept,
    /// Creations of sessions that share a transaction.
    pub(crate) creations: Group<Creation, Result<CreateOutcome, Problem>>,
    /// Reads of sends that share a query.
    pub(crate) reads: Group<(TenantId, SendId), Result<Option<SendRecord>, Problem>>,
    /// Requests under way.
    pub(crate) requests: Arc<Semaphore>,
    /// Requests that wait or stream.
    pub(crate) waiters: Arc<Semaphore>,
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
    pub(crate) fn boot_id(&self) -> Result<BootId, Problem> {
        self.boot.id().ok_or_else(Problem::not_registered)
    }

    /// A send; its reads share queries with those of other callers.
    pub(crate) async fn read_send(
        &self,
        tenant: TenantId,
        id: SendId,
    ) -> Result<Option<SendRecord>, Problem> {
        self.reads
            .submit((tenant, id))
            .await
            .unwrap_or_else(|_| Err(Problem::stopping()))
    }

    /// A fresh session's key.
    pub(crate) fn new_session_key(&self, tenant: TenantId) -> SessionKey {
        SessionKey {
            tenant,
            session: mainspring_shared::id::SessionId(self.entropy.ordered_id()),
        }
    }
}

/// Reads of concurrent callers in one query.
pub(crate) fn reads(
    store: Arc<dyn Store>,
) -> Group<(TenantId, SendId), Result<Option<SendRecord>, Problem>> {
    Group::spawn(2, move |ids: Vec<(TenantId, SendId)>| {
        let store = store.clone();
        async move {
            let count = ids.len();
            match store.get_sends(ids).await {
                Ok(found) => found.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(Problem::from(&error)); count],
            }
        }
    })
}

/// Creations of concurrent callers in one transaction.
pub(crate) fn creations(store: Arc<dyn Store>) -> Group<Creation, Result<CreateOutcome, Problem>> {
    Group::spawn(1, move |items: Vec<Creation>| {
        let store = store.clone();
        async move {
            let count = items.len();
            match store.create_sessions(None, items).await {
                Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(Problem::from(&error)); count],
            }
        }
    })
}
