//! The lifecycle of processes.

use mainspring_shared::model::PublishedModels;
use mainspring_shared::store::{
    AfterSend, BootRecord, Inspect, NewBoot, PoolTools, Renewal, Resumed, Role,
};
use mainspring_shared::tool::Published;

use super::prelude::*;

async fn list(store: &dyn Inspect, ms: i64) -> Vec<BootRecord> {
    let mut boots = store
        .at(time(ms))
        .list_boots()
        .await
        .expect("the store answers");
    boots.sort_by_key(|boot| boot.id);
    boots
}

async fn renew(store: &dyn Inspect, ms: i64, n: u128, in_flight: u32) -> Renewal {
    let renewal = store
        .at(time(ms))
        .renew_boot(boot(n), millis(TTL), in_flight)
        .await;
    renewal.expect("the store answers")
}

async fn stop(store: &dyn Inspect, ms: i64, n: u128) {
    let stopped = store.at(time(ms)).stop_boot(boot(n)).await;
    stopped.expect("the store answers");
}

fn renewed(ms: i64) -> Renewal {
    Renewal::Renewed {
        at: time(ms),
        signals: Vec::new(),
    }
}

pub async fn a_registered_boot_is_listed(store: &dyn Inspect) {
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
        ttl: millis(TTL),
        protocol: mainspring_shared::store::PROTOCOL,
        dead_at: None,
    };
    assert_eq!(list(store, 6).await, [expected]);
}

pub async fn a_renewal_extends_the_lease(store: &dyn Inspect) {
    register(store, 1).await;
    assert_eq!(renew(store, 4_000, 1, 3).await, renewed(4_000));
    let record = one(list(store, 4_000).await);
    assert_eq!(record.lease_until, time(4_000 + TTL));
    assert_eq!((record.in_flight, record.started_at), (3, time(0)));
}

pub async fn a_late_boot_that_nobody_missed_goes_on(store: &dyn Inspect) {
    register(store, 1).await;
    assert_eq!(renew(store, 3 * TTL, 1, 0).await, renewed(3 * TTL));
    accept(store, 3 * TTL, opening(1, 1)).await;
    claim(store, 3 * TTL + 1, 1, 1, 1).await;
}

pub async fn an_unknown_or_stopped_boot_is_dead(store: &dyn Inspect) {
    assert_eq!(renew(store, 0, 1, 0).await, Renewal::Dead);
    register(store, 1).await;
    stop(store, 100, 1).await;
    assert_eq!(renew(store, 101, 1, 0).await, Renewal::Dead);
    let record = one(list(store, 101).await);
    assert_eq!((record.dead_at, record.lease_until), (at(100), time(100)));
}

pub async fn a_renewal_tells_of_its_own_sessions_signals_only(store: &dyn Inspect) {
    register(store, 1).await;
    register(store, 2).await;
    for (n, boot_n) in [(1, 1), (2, 2), (3, 1), (4, 1)] {
        accept(store, 0, opening(n, n)).await;
        claim(store, 10, boot_n, n, n).await;
    }
    for n in [3, 2, 1] {
        cancel(store, 20, n).await;
    }
    let Renewal::Renewed { mut signals, .. } = renew(store, 30, 1, 0).await else {
        panic!("the boot lives");
    };
    signals.sort_unstable();
    assert_eq!(signals, [(key(1), 1), (key(3), 1)]);
}

pub async fn ended_boots_are_listed_for_ten_minutes(store: &dyn Inspect) {
    register(store, 1).await;
    register(store, 2).await;
    stop(store, 100, 1).await;
    let ids = |boots: Vec<BootRecord>| boots.iter().map(|b| b.id).collect::<Vec<_>>();
    let minutes = 60_000;
    assert_eq!(ids(list(store, 9 * minutes).await), [boot(1), boot(2)]);
    assert_eq!(ids(list(store, 10 * minutes + 5_000).await), [boot(2)]);
    assert_eq!(ids(list(store, 11 * minutes).await), []);
}

pub async fn retention_removes_ended_boots_that_nothing_names(store: &dyn Inspect) {
    running(store).await;
    register(store, 2).await;
    register(store, 3).await;
    // The first boot's lease expires, but nobody takes over what it owns.
    stop(store, 100, 2).await;
    let day = 86_400_000;
    let renewal = renew(store, 2 * day, 3, 0).await;
    assert_eq!(renewal, renewed(2 * day));
    let mut gone = 0;
    loop {
        let swept = store.at(time(2 * day)).sweep_retention(millis(day)).await;
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

/// The process itself gives back what it owned, so no death is counted.
pub async fn a_boot_that_ends_gives_back_what_it_owns(store: &dyn Inspect) {
    let first = running(store).await;
    accept(store, 5, opening(2, 2)).await;
    claim(store, 10, 1, 2, 7).await;
    register(store, 2).await;
    accept(store, 5, opening(3, 3)).await;
    let other = claim(store, 10, 2, 3, 8).await;
    stop(store, 20, 1).await;
    for n in [1, 2] {
        let left = dumped(store, n).await;
        assert_eq!((left.hot.owner, left.hot.token), (None, None));
        assert!(left.hot.ready_since.is_some());
        assert_eq!((left.sends[0].crashes, left.sends[0].attempts), (0, 1));
    }
    assert_eq!(dumped(store, 3).await.hot.owner, Some(boot(2)));
    assert!(!release(store, 21, &first).await);
    let taken = claim(store, 30, 2, 1, 9).await;
    assert_eq!(taken.send.resumed, Some(Resumed::Handover));
    assert_eq!(
        (taken.send.record.crashes, taken.send.record.attempts),
        (0, 1)
    );
    complete(store, 40, ending(&other, AfterSend::Release)).await;
}

/// A boot declared dead by a takeover, but still alive: what was not taken over yet does not count
/// as a death.
pub async fn a_boot_that_was_declared_dead_gives_back_the_rest(store: &dyn Inspect) {
    running(store).await;
    accept(store, 5, opening(2, 2)).await;
    claim(store, 10, 1, 2, 7).await;
    let late = 2 * TTL;
    register_at(store, late, 2).await;
    let taken = claim(store, late, 2, 1, 8).await;
    assert_eq!(
        (taken.send.record.crashes, taken.send.record.attempts),
        (1, 1)
    );
    stop(store, late, 1).await;
    let rest = claim(store, late, 2, 2, 9).await;
    assert_eq!(rest.send.record.crashes, 0);
}

pub async fn a_boot_sees_what_it_owns_page_by_page(store: &dyn Inspect) {
    register(store, 1).await;
    register(store, 2).await;
    for n in 1..=5 {
        accept(store, n as i64, opening(n, n)).await;
        claim(store, 10, 1 + n % 2, n, 100 + n).await;
    }
    let mut found = Vec::new();
    let mut after = None;
    for page in 0.. {
        let owned = store.owned_sessions(boot(2), after, 2).await;
        let owned = owned.expect("the store answers");
        found.extend(owned.sessions);
        after = owned.next;
        if after.is_none() {
            assert_eq!(page, 2);
            break;
        }
    }
    let expected: Vec<_> = [1, 3, 5]
        .into_iter()
        .map(|n| (key(n), token(100 + n)))
        .collect();
    assert_eq!(found, expected);
    let none = store.owned_sessions(boot(3), None, 100).await;
    assert_eq!(none.expect("the store answers").sessions, []);
}

pub async fn what_workers_have_is_listed_by_pool(store: &dyn Inspect) {
    let published = |names: &[&str]| {
        let mut published = Published::default();
        for name in names {
            published.add((*name).to_owned(), &format!("says {name}"));
        }
        published
    };
    let models = |provider: &str| PublishedModels {
        default: provider.to_owned(),
        ..PublishedModels::default()
    };
    let with = |provider: &str, published: Published| Published {
        models: Some(models(provider)),
        ..published
    };
    let workers = [
        (
            1,
            "default",
            Role::Worker,
            with("a", published(&["look", "put"])),
        ),
        (
            2,
            "default",
            Role::Worker,
            with("b", published(&["put", "act"])),
        ),
        (3, "gpu", Role::Worker, Published::default()),
        (4, "other", Role::Scheduler, published(&["none"])),
    ];
    for (n, pool, role, tools) in workers {
        let new = NewBoot {
            id: boot(n),
            role,
            name: "named".to_owned(),
            pool: pool.to_owned(),
            concurrency: 4,
            ttl: millis(TTL),
            protocol: mainspring_shared::store::PROTOCOL,
            tools,
        };
        let registered = store.at(time(0)).register_boot(new).await;
        registered.expect("the store answers");
    }
    let list = async |ms| {
        store
            .at(time(ms))
            .list_tools()
            .await
            .expect("the store answers")
    };
    let of = |pool: &str, tools, providers: &[&str]| PoolTools {
        pool: pool.to_owned(),
        tools,
        silent: providers.is_empty(),
        models: (!providers.is_empty())
            .then(|| providers.iter().map(|name| models(name)).collect()),
    };
    let all = published(&["act", "look", "put"]);
    let silent = of("gpu", Published::default(), &[]);
    let expected = [of("default", all, &["a", "b"]), silent];
    assert_eq!(list(1).await, expected);
    stop(store, 10, 1).await;
    assert_eq!(
        list(11).await,
        expected,
        "one that restarts is away for a while"
    );
    renew(store, 600_000, 2, 0).await;
    let left = [of("default", published(&["act", "put"]), &["b"])];
    assert_eq!(list(700_000).await, left);
}
