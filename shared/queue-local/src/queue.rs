//! The queue: its pools by name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::future::BoxFuture;
use mainspring_shared::queue::{Activation, Handler, Lane, Queue};

use crate::pool::Pool;
use crate::worker;

/// Pools that may have had work: more than anybody has workers for.
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
            .is_some_and(|pool| pool.push(lane.priority, &activations))
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
            tracing::error!(pool, "there are too many pools to work on this one");
            return stop.await;
        };
        worker::supervise(pool, handler, stop).await;
    }
}
