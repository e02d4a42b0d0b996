//! A scheduler's loops.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainspring_runtime::Lifecycle;
use mainspring_shared::agent::Priority;
use mainspring_shared::id::BootId;
use mainspring_shared::queue::{Activation, Lane, Queue as _};
use mainspring_shared::store::{Inspect, SweepReady};
use mainspring_shared::time::Clock;

use super::wires::Wire;

/// What every scheduler does in a loop: serve alarms, fire timers, enqueue leftover sessions.
pub(super) async fn sweep(
    store: Arc<dyn Inspect>,
    wire: Wire,
    clock: Arc<dyn Clock>,
    boot: BootId,
    lifecycle: Lifecycle,
    every: Arc<Mutex<Duration>>,
) {
    while !lifecycle.is_stopping() {
        store.wake_paused(100).await.expect("never fails");
        let alarms = store.sweep_alarms(boot, 100).await.expect("never fails");
        let called = store.call_seats(None).await.expect("never fails");
        store.sweep_money(100).await.expect("never fails");
        let reported = store.report_children(None, 100).await;
        let reported = reported.expect("never fails");
        let query = SweepReady {
            pool: None,
            older_than_ms: 1000,
            after: None,
            limit: 1000,
        };
        let swept = store.sweep_ready(query).await.expect("never fails");
        let fired = store.fire_timers(boot, 100).await;
        let fired = fired.expect("never fails").enqueue;
        let told = reported
            .into_iter()
            .filter_map(|told| told.enqueue)
            .chain(fired);
        let swept = swept.sessions.into_iter().chain(called.enqueue);
        for ready in alarms.enqueue.into_iter().chain(told).chain(swept) {
            let lane = Lane {
                pool: ready.pool,
                priority: Priority::High,
            };
            wire.push(
                &lane,
                vec![Activation {
                    sessions: vec![ready.key],
                }],
            )
            .await;
        }
        let every = *every.lock().expect("nothing panics under it");
        clock.sleep(every).await;
    }
}
