//! The database's clock set back and forward by an hour, as can happen in a failover to another machine.

use mainspring_shared::store::{AfterSend, ClaimOutcome, Inspect, Renewal, SweepReady};

use super::prelude::*;

const HOUR: i64 = 3_600_000;

async fn renew(store: &dyn Inspect, ms: i64, n: u128) -> Renewal {
    let renewed = store.at(time(ms)).renew_boot(boot(n), millis(TTL), 0).await;
    renewed.expect("the store answers")
}

/// The number of sessions to enqueue.
async fn due(store: &dyn Inspect, ms: i64) -> usize {
    let query = SweepReady {
        pool: None,
        older_than_ms: 1_500,
        after: None,
        limit: 10,
    };
    let swept = store.at(time(ms)).sweep_ready(query).await;
    swept.expect("the store answers").sessions.len()
}

pub async fn a_dead_process_is_found_although_the_clock_was_set_back(store: &dyn Inspect) {
    register_at(store, HOUR, 1).await;
    register_at(store, HOUR, 2).await;
    accept(store, HOUR, opening(1, 1)).await;
    claim(store, HOUR + 1, 1, 1, 1).await;
    // The first boot dies, and the clock is set back; the second boot renews.
    assert!(matches!(
        renew(store, 1_000, 2).await,
        Renewal::Renewed { .. }
    ));
    let busy = try_claim(store, 1_001, 2, 1, 2).await;
    assert_eq!(busy, ClaimOutcome::Busy, "it might live");
    assert!(matches!(
        renew(store, 9_000, 2).await,
        Renewal::Renewed { .. }
    ));
    assert_eq!(due(store, 1_000 + TTL).await, 0);
    assert_eq!(due(store, 1_001 + TTL).await, 1);
    let taken = claim(store, 1_001 + TTL, 2, 1, 3).await;
    assert_eq!(taken.send.record.crashes, 1);
    assert_eq!(renew(store, 1_002 + TTL, 1).await, Renewal::Dead);
}

pub async fn a_live_process_keeps_what_it_has_when_the_clock_is_set_back(store: &dyn Inspect) {
    register_at(store, HOUR, 1).await;
    register_at(store, HOUR, 2).await;
    accept(store, HOUR, opening(1, 1)).await;
    let claimed = claim(store, HOUR + 1, 1, 1, 1).await;
    for ms in [1_000, 4_000, 7_000, 10_000, 13_000] {
        for n in [2, 1] {
            let renewed = renew(store, ms, n).await;
            assert!(matches!(renewed, Renewal::Renewed { .. }), "{n} at {ms}");
        }
        assert_eq!(due(store, ms + 2_900).await, 0);
    }
    complete(store, 15_000, ending(&claimed, AfterSend::Release)).await;
    let boots = store
        .at(time(15_000))
        .list_boots()
        .await
        .expect("the store answers");
    let until: Vec<_> = boots.iter().map(|boot| boot.lease_until).collect();
    assert_eq!(until, [time(13_000 + TTL), time(13_000 + TTL)]);
}

pub async fn what_became_ready_before_the_clock_was_set_back_is_swept(store: &dyn Inspect) {
    register_at(store, HOUR, 1).await;
    accept(store, HOUR, opening(1, 1)).await;
    assert_eq!(
        due(store, HOUR + 1_499).await,
        0,
        "it was enqueued just now"
    );
    assert_eq!(due(store, 0).await, 1);
    let claimed = claim(store, 10, 1, 1, 1).await;
    assert_eq!(due(store, 20).await, 0);
    complete(store, 30, ending(&claimed, AfterSend::Release)).await;
    assert_eq!(due(store, 40).await, 0);
}

pub async fn nothing_is_early_after_the_clock_was_set_back(store: &dyn Inspect) {
    accept(store, HOUR, with(opening(1, 1), delayed(5_000))).await;
    let due = HOUR + 5_000;
    for (ms, served) in [(0, 0), (5_000, 0), (due - 1, 0), (due, 1)] {
        let swept = store.at(time(ms)).sweep_alarms(boot(SCHEDULER), 10).await;
        let swept = swept.expect("the store answers");
        assert_eq!(swept.served, served, "at {ms}");
        assert_eq!(swept.next_alarm_at, at(due).filter(|_| served == 0));
    }
    assert_eq!(stored(store, 1).await.position, Some(1));
}

pub async fn a_clock_that_is_set_forward_costs_leases_and_nothing_else(store: &dyn Inspect) {
    register_at(store, 0, 1).await;
    accept(store, 0, opening(1, 1)).await;
    let claimed = claim(store, 1, 1, 1, 1).await;
    // A boot that renews before anyone checks keeps everything it has.
    assert!(matches!(
        renew(store, HOUR, 1).await,
        Renewal::Renewed { .. }
    ));
    assert_eq!(due(store, HOUR + 2_000).await, 0);
    register_at(store, 2 * HOUR, 2).await;
    let taken = claim(store, 2 * HOUR, 2, 1, 2).await;
    assert_eq!(renew(store, 2 * HOUR, 1).await, Renewal::Dead);
    let late = store
        .at(time(2 * HOUR))
        .complete_sends(vec![ending(&claimed, AfterSend::Release)])
        .await;
    let lost = mainspring_shared::store::CompleteOutcome::LeaseLost;
    assert_eq!(late.expect("the store answers"), [lost]);
    complete(store, 2 * HOUR + 1, ending(&taken, AfterSend::Release)).await;
}
