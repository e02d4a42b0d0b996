//! Use of the database connection pools.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::store::{Connections, Store};
use mainspring_shared::time::Clock;

use crate::Lifecycle;

/// Gauge: open connections, by `pool` and `state`: `busy` or `idle`.
const OPEN: &str = "mainspring_database_connections";
/// Gauge: callers waiting for a connection, by `pool`.
const WAITING: &str = "mainspring_database_connection_waiters";

const INTERVAL: Duration = Duration::from_secs(5);

/// Measures the store's connections until shutdown.
pub(super) fn watch(store: Arc<dyn Store>, clock: Arc<dyn Clock>, lifecycle: &Lifecycle) {
    let stopping = lifecycle.stopping();
    lifecycle.spawn(async move {
        let mut stopping = std::pin::pin!(stopping);
        loop {
            store.connections().iter().for_each(measure);
            tokio::select! {
                () = &mut stopping => return,
                () = clock.sleep(INTERVAL) => {}
            }
        }
    });
}

pub(super) fn measure(used: &Connections) {
    let busy = used.open.saturating_sub(used.idle);
    for (state, count) in [("busy", busy), ("idle", used.idle)] {
        metrics::gauge!(OPEN, "pool" => used.pool, "state" => state).set(f64::from(count));
    }
    metrics::gauge!(WAITING, "pool" => used.pool).set(f64::from(used.waiting));
}
