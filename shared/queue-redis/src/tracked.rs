//! A connection that counts its requests in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisFuture, Value};

/// The number of requests in flight on a worker's connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    /// Whether no request is in flight.
    pub(crate) fn is_zero(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    fn enter(&self) -> Entered {
        self.0.fetch_add(1, Ordering::AcqRel);
        Entered(Arc::clone(&self.0))
    }
}

/// Counts a request until it is answered or cancelled.
struct Entered(Arc<AtomicUsize>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The connection that apalis gets. apalis polls only when it is woken, and the doorbell has to
/// know whether a fetch that began before the ring is still in flight.
#[derive(Debug, Clone)]
pub(crate) struct Tracked {
    inner: MultiplexedConnection,
    in_flight: InFlight,
}

impl Tracked {
    pub(crate) fn new(inner: MultiplexedConnection) -> Self {
        Self {
            inner,
            in_flight: InFlight::default(),
        }
    }

    /// The counter, shared with this connection and its clones.
    pub(crate) fn in_flight(&self) -> InFlight {
        self.in_flight.clone()
    }
}

impl ConnectionLike for Tracked {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        let entered = self.in_flight.enter();
        let reply = self.inner.req_packed_command(cmd);
        Box::pin(async move {
            let reply = reply.await;
            drop(entered);
            reply
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let entered = self.in_flight.enter();
        let replies = self.inner.req_packed_commands(cmd, offset, count);
        Box::pin(async move {
            let replies = replies.await;
            drop(entered);
            replies
        })
    }

    fn get_db(&self) -> i64 {
        self.inner.get_db()
    }
}
