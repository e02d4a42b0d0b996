//! The lives of processes.

use mainspring_shared::store::{BootRecord, Renewal, Role, Store};

use super::prelude::*;

async fn list(store: &dyn Store, ms: i64) -> Vec<BootRecord> {
    let mut boots = store.list_boots(at(ms)).await.expect("the store answers");
    boots.sort_by_key(|boot| boot.id);
    boots
}

async fn renew(store: &dyn Store, ms: i64, n: u128, in_flight: u32) -> Renewal {
    let renewal = store.renew_boot(at(ms), boot(n), millis(TTL), in_flight);
    renewal.await.expect("the store answers")
}

async fn stop(store: &dyn Store, ms: i64, n: u128) {
    let stopped = store.stop_boot(at(ms), boot(n)).await;
    stopped.expect("the store answers");
}

fn renewed() -> Renewal {
    Renewal::Renewed {
        signals: Vec::new(),
    }
}

pub async fn a_registered_boot_is_listed(store: &dyn Store) {
    register_at(store, 5, 1).await;
    let expected = BootRecord {
        id: boot(1),
        role: Role::Worker,
        name: "worker-1".to_owned(),
        pool: "default".to_owned(),
        concurrency: 4,
        in_flight: 0,
        started_at: time(5),
        lease_until: time(5 + TTL),
        dead_at: None,
    };
    assert_eq!(list(store, 6).await, [expected]);
}

pub async fn a_renewal_extends_the_lease(store: &dyn Store) {
    register(store, 1).await;
    assert_eq!(renew(store, 4_000, 1, 3).await, renewed());
    let record = one(list(store, 4_000).await);
    assert_eq!(record.lease_until, time(4_000 + TTL));
    assert_eq!((record.in_flight, record.started_at), (3, time(0)));
}

pub async fn a_late_boot_that_nobody_missed_goes_on(store: &dyn Store) {
    register(store, 1).await;
    assert_eq!(renew(store, 3 * TTL, 1, 0).await, renewed());
    accept(store, 3 * TTL, opening(1, 1)).await;
    claim(store, 3 * TTL + 1, 1, 1, 1).await;
}

pub async fn an_unknown_or_stopped_boot_is_dead(store: &dyn Store) {
    assert_eq!(renew(store, 0, 1, 0).await, Renewal::Dead);
    register(store, 1).await;
    stop(store, 100, 1).await;
    assert_eq!(renew(store, 101, 1, 0).await, Renewal::Dead);
    let record = one(list(store, 101).await);
    assert_eq!((record.dead_at, record.lease_until), (at(100), time(100)));
}

pub async fn a_renewal_tells_of_its_own_sessions_signals_only(store: &dyn Store) {
    register(store, 1).await;
    register(store, 2).await;
    for (n, boot_n) in [(1, 1), (2, 2), (3, 1), (4, 1)] {
        accept(store, 0, opening(n, n)).await;
        claim(store, 10, boot_n, n, n).await;
    }
    for n in [3, 2, 1] {
        cancel(store, 20, n).await;
    }
    let Renewal::Renewed { mut signals } = renew(store, 30, 1, 0).await else {
        panic!("the boot lives");
    };
    signals.sort_unstable();
    assert_eq!(signals, [(key(1), 1), (key(3), 1)]);
}

pub async fn ended_boots_are_listed_for_ten_minutes(store: &dyn Store) {
    register(store, 1).await;
    register(store, 2).await;
    stop(store, 100, 1).await;
    let ids = |boots: Vec<BootRecord>| boots.iter().map(|b| b.id).collect::<Vec<_>>();
    let minutes = 60_000;
    assert_eq!(ids(list(store, 9 * minutes).await), [boot(1), boot(2)]);
    assert_eq!(ids(list(store, 10 * minutes + 5_000).await), [boot(2)]);
    assert_eq!(ids(list(store, 11 * minutes).await), []);
}

pub async fn retention_removes_ended_boots_that_nothing_names(store: &dyn Store) {
    running(store).await;
    register(store, 2).await;
    register(store, 3).await;
    stop(store, 100, 1).await;
    stop(store, 100, 2).await;
    let day = 86_400_000;
    let renewal = renew(store, 2 * day, 3, 0).await;
    assert_eq!(renewal, renewed());
    let mut gone = 0;
    loop {
        let swept = store.sweep_retention(at(2 * day), millis(day)).await;
        match swept.expect("the store answers") {
            0 => break,
            n => gone += n,
        }
    }
    assert_eq!(gone, 1);
    let boots = store.dump().await.expect("the store answers").boots;
    let left: Vec<_> = boots.iter().map(|boot| boot.id).collect();
    assert_eq!(left, [boot(1), boot(3)], "boot 1 still owns a session");
}
