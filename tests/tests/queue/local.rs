//! The in-process queue and bus.

use std::future::{Ready, ready};
use std::sync::Arc;

use mainspring_queue_local::{LocalBus, LocalQueue};
use mainspring_shared::bus::Bus;
use mainspring_shared::queue::Queue;
use mainspring_tests::suites::queue::{assert_complete, harness};

fn queue() -> Ready<Option<((), Arc<dyn Queue>)>> {
    ready(Some(((), Arc::new(LocalQueue::new()))))
}

fn bus() -> Ready<Option<((), Arc<dyn Bus>)>> {
    ready(Some(((), Arc::new(LocalBus::new()))))
}

mainspring_tests::queue_suite!(super::queue);
mainspring_tests::bus_suite!(super::bus);

#[test]
fn the_suites_are_complete() {
    assert_complete();
}

#[tokio::test]
async fn a_session_that_waits_is_not_added_again() {
    let (queue, pool, key) = (LocalQueue::new(), harness::pool(), harness::session());
    for _ in 0..1_000 {
        let pushed = harness::activations(&[key]);
        assert!(queue.push(&harness::high(&pool), pushed).await);
    }
    assert_eq!(queue.depth(&harness::high(&pool)).await, Some(1));
}
