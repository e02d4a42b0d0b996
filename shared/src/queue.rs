//! The queue port: it carries activations, which are ids and never state.
//!
//! A queue may lose, repeat and reorder what it is given; every activation can be rebuilt from
//! the database by the sweep. So no method of it fails its caller.

mod fair;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::agent::Priority;
use crate::id::{SessionKey, TenantId};

pub use fair::{FairOrder, WEIGHT_MAX};

/// Sessions that one job may name: what a group of accepts makes ready together shares a job.
pub const ACTIVATION_SESSIONS_MAX: usize = 16;

/// Sessions of a job while there are few, or workers to spare: several workers share them, and a job's fetch and
/// acknowledgement are still shared by several sessions.
pub const ACTIVATION_SPREAD: usize = 8;

/// A job: "these sessions have work".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activation {
    /// The sessions; usually one, at most [`ACTIVATION_SESSIONS_MAX`].
    pub sessions: Vec<SessionKey>,
}

/// One of the queues: a pool's workers and a priority.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The pool.
    pub pool: String,
    /// The priority.
    pub priority: Priority,
}

impl Lane {
    /// Whether jobs can pass those that wait in it. What is low waits for the high lane anyway.
    pub const fn has_way_past(&self) -> bool {
        matches!(self.priority, Priority::High)
    }
}

/// What a handler says of a job. There is no failure: what went wrong is a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// The job is spent.
    Done,
    /// This worker is stopping; the sweep or another worker takes the sessions.
    Stopping,
}

/// What drives a worker: called once per job, concurrently.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Takes the job's sessions over. Returns as soon as they are admitted, not when they are
    /// done; while no slot is free it waits, which is what slows the queue's fetching.
    async fn handle(&self, activation: Activation) -> Disposition;

    /// The same for a job that was put ahead of others. Also returns sessions that it did not take over, for
    /// their tenants have their share of this worker: they are to go behind.
    async fn handle_ahead(&self, activation: Activation) -> (Disposition, Vec<SessionKey>) {
        (self.handle(activation).await, Vec::new())
    }
}

/// Somewhere to put activations and to take them from.
#[async_trait]
pub trait Queue: Send + Sync + fmt::Debug {
    /// Puts activations into a lane, within a bounded time. Returns false when they did not fit or
    /// the queue is away: then the sweep brings them.
    async fn push(&self, lane: &Lane, activations: Vec<Activation>) -> bool;

    /// The same for sessions of tenants that have little to do, which are to pass what waits in the lane. A
    /// queue or lane that has no way past puts them behind.
    async fn push_ahead(&self, lane: &Lane, activations: Vec<Activation>) -> bool {
        self.push(lane, activations).await
    }

    /// Jobs that wait in a lane, without those that are to pass them; none while the queue is away.
    async fn depth(&self, lane: &Lane) -> Option<u64>;

    /// Whether the queue can be reached, as far as is known. While it is not, workers poll the
    /// database.
    fn is_available(&self) -> bool;

    /// Takes note of a tenant's weight: how many of its sessions are taken for each of a tenant with weight 1, while
    /// both have some that wait. A queue that serves all alike has no use for it.
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
