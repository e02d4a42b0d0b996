//! The queue: its pools by name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::future::{BoxFuture, join, join_all};
use mainspring_shared::queue::{Activation, Handler, Lane, Queue};
use tokio_util::sync::CancellationToken;

use crate::pool::{Line, Pool};
use crate::worker::{self, Takes};

/// Maximum number of pools; more than any process has workers for.
const POOLS_MAX: usize = 1_024;

/// The queue inside one process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct LocalQueue {
    pools: Arc<Mutex<HashMap<String, Arc<Pool>>>>,
}

impl LocalQueue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    fn pool(&self, name: &str) -> Option<Arc<Pool>> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(name) {
            return Some(Arc::clone(pool));
        }
        if pools.len() >= POOLS_MAX {
            return None;
        }
        let pool = Arc::new(Pool::new());
        pools.insert(name.to_owned(), Arc::clone(&pool));
        Some(pool)
    }
}

#[async_trait]
impl Queue for LocalQueue {
    async fn push(&self, lane: &Lane, activations: Vec<Activation>) -> bool {
        self.pool(&lane.pool)
            .is_some_and(|pool| pool.push(Line::Lane(lane.priority), &activations))
    }

    async fn push_ahead(&self, lane: &Lane, activations: Vec<Activation>) -> bool {
        let line = if lane.has_way_past() {
            Line::Ahead
        } else {
            Line::Lane(lane.priority)
        };
        self.pool(&lane.pool)
            .is_some_and(|pool| pool.push(line, &activations))
    }

    async fn depth(&self, lane: &Lane) -> Option<u64> {
        let pool = self.pool(&lane.pool)?;
        Some(pool.depth(lane.priority) as u64)
    }

    fn is_available(&self) -> bool {
        true
    }

    async fn run(&self, pool: &str, handler: Arc<dyn Handler>, stop: BoxFuture<'static, ()>) {
        let Some(pool) = self.pool(pool) else {
            tracing::error!(pool, "too many pools; no work is taken from this one");
            return stop.await;
        };
        let stopping = CancellationToken::new();
        // Also cancelled when this future is dropped.
        let ended = stopping.clone().drop_guard();
        let lines = [Takes::Lanes, Takes::Ahead]
            .map(|takes| worker::supervise(pool.clone(), takes, handler.clone(), stopping.clone()));
        let stop = async {
            stop.await;
            drop(ended);
        };
        join(stop, join_all(lines)).await;
    }
}
