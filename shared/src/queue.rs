//! The queue port: it carries activations, which are ids and never state.
//!
//! A queue may lose, repeat and reorder activations: the sweep can rebuild all of them from the
//! database. So its methods never fail.

mod fair;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::agent::Priority;
use crate::id::{SessionKey, TenantId};

pub use fair::{FairOrder, WEIGHT_MAX};

/// Maximum number of sessions in a job: those that a group of accepts makes ready together share one.
pub const ACTIVATION_SESSIONS_MAX: usize = 16;

/// Number of sessions in a job while there are few of them, or idle workers: the sessions are
/// spread over several workers, and several of them still share a job's fetch and acknowledgement.
pub const ACTIVATION_SPREAD: usize = 8;

/// A job: "these sessions have work".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activation {
    /// The sessions; usually one, at most [`ACTIVATION_SESSIONS_MAX`].
    pub sessions: Vec<SessionKey>,
}

/// One queue: a pool and a priority.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The pool.
    pub pool: String,
    /// The priority.
    pub priority: Priority,
}

impl Lane {
    /// Whether jobs can be put ahead of waiting ones. Not in the low lane, which waits for the high
    /// one anyway.
    pub const fn has_way_past(&self) -> bool {
        matches!(self.priority, Priority::High)
    }
}

/// A handler's response to a job. There is no failure: errors are recorded in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// The job is done.
    Done,
    /// This worker is stopping; the sweep or another worker will take the sessions.
    Stopping,
}

/// Receives the jobs of a worker: called once per job, concurrently.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Takes over the job's sessions. Returns as soon as they are admitted, not when they are done.
    /// While no slot is free it waits, which throttles the queue's fetching.
    async fn handle(&self, activation: Activation) -> Disposition;

    /// Handles a job that was put ahead of others. Also returns sessions that it did not take over,
    /// because their tenants already have their share of this worker: these must be enqueued at the back.
    async fn handle_ahead(&self, activation: Activation) -> (Disposition, Vec<SessionKey>) {
        (self.handle(activation).await, Vec::new())
    }
}

/// A queue of activations.
#[async_trait]
pub trait Queue: Send + Sync + fmt::Debug {
    /// Enqueues activations in a lane, within a bounded time. Returns false if they did not fit or
    /// the queue is unavailable; then the sweep enqueues them.
    async fn push(&self, lane: &Lane, activations: Vec<Activation>) -> bool;

    /// Enqueues sessions of tenants with little work ahead of those that wait in the lane. A queue
    /// or lane that does not support this puts them at the back.
    async fn push_ahead(&self, lane: &Lane, activations: Vec<Activation>) -> bool {
        self.push(lane, activations).await
    }

    /// Number of jobs waiting in a lane, not counting those put ahead; `None` while the queue is unavailable.
    async fn depth(&self, lane: &Lane) -> Option<u64>;

    /// Whether the queue works, as far as is known: it can be reached, and does what it is asked to.
    /// While it does not, workers poll the database.
    fn is_available(&self) -> bool;

    /// Why the queue does not work, for people. `None` while it does.
    fn trouble(&self) -> Option<String> {
        (!self.is_available()).then(|| "the queue is not available".to_owned())
    }

    /// Sets a tenant's weight: how many of its sessions are taken for each one of a tenant with
    /// weight 1, while both have sessions waiting. Ignored by a queue that serves all tenants alike.
    fn weigh(&self, _tenant: TenantId, _weight: u32) {}

    /// Feeds `handler` from both lanes of `pool` until `stop` resolves. Reconnects by itself for
    /// as long as it takes.
    async fn run(
        &self,
        pool: &str,
        handler: Arc<dyn Handler>,
        stop: futures::future::BoxFuture<'static, ()>,
    );
}
