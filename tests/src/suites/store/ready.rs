//! Finding sessions that should have been enqueued.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::SessionKey;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{
    AcceptSend, AfterSend, Inspect, NewSession, ParkUntil, ReadySession, SweepReady, Swept, Target,
};

use super::prelude::*;

fn all() -> SweepReady {
    SweepReady {
        pool: None,
        older_than_ms: 0,
        after: None,
        limit: 100,
    }
}

async fn sweep(store: &dyn Inspect, ms: i64, query: SweepReady) -> Swept {
    let swept = store.at(time(ms)).sweep_ready(query).await;
    swept.expect("the store answers")
}

fn keys(sessions: &[ReadySession]) -> Vec<SessionKey> {
    sessions.iter().map(|session| session.key).collect()
}

fn in_pool(n: u128, pool: &str) -> AcceptSend {
    let session = NewSession {
        agent: AgentSpec {
            pool: Some(pool.to_owned()),
            ..AgentSpec::default()
        },
        ..new_session(n)
    };
    AcceptSend {
        target: Target::New(Box::new(session)),
        ..sending(n, n)
    }
}

pub async fn ready_sessions_are_found_oldest_first(store: &dyn Inspect) {
    accept(store, 30, opening(1, 1)).await;
    accept(store, 10, opening(2, 2)).await;
    accept(store, 20, opening(4, 4)).await;
    accept(store, 20, opening(3, 3)).await;
    let swept = sweep(store, 50, all()).await;
    assert_eq!(keys(&swept.sessions), [key(2), key(3), key(4), key(1)]);
    assert_eq!(swept.next, None);
    let first = ReadySession {
        key: key(2),
        pool: "default".to_owned(),
        priority: mainspring_shared::agent::Priority::High,
        ready_since: time(10),
    };
    assert_eq!(swept.sessions[0], first);
}

pub async fn a_page_goes_on_where_the_last_one_ended(store: &dyn Inspect) {
    for n in 1..=5 {
        accept(store, 10, opening(n, n)).await;
    }
    let mut query = SweepReady { limit: 2, ..all() };
    let mut found = Vec::new();
    for _ in 0..4 {
        let swept = sweep(store, 50, query.clone()).await;
        assert!(swept.sessions.len() <= 2);
        found.extend(keys(&swept.sessions));
        query.after = swept.next;
        if swept.next.is_none() {
            break;
        }
    }
    assert_eq!(found, [1, 2, 3, 4, 5].map(key));
    assert_eq!(query.after, None, "the end is told");
}

pub async fn only_the_asked_pool_is_found(store: &dyn Inspect) {
    accept(store, 0, in_pool(1, "gpu")).await;
    accept(store, 0, opening(2, 2)).await;
    for (pool, n) in [("gpu", 1), ("default", 2)] {
        let query = SweepReady {
            pool: Some(pool.to_owned()),
            ..all()
        };
        let swept = sweep(store, 10, query).await;
        assert_eq!(keys(&swept.sessions), [key(n)]);
    }
}

pub async fn sessions_that_were_just_rung_for_are_left(store: &dyn Inspect) {
    accept(store, 0, opening(1, 1)).await;
    accept(store, 50, opening(2, 2)).await;
    let query = SweepReady {
        older_than_ms: 100,
        ..all()
    };
    let found = sweep(store, 99, query.clone()).await.sessions;
    assert_eq!(keys(&found), []);
    let found = sweep(store, 100, query).await.sessions;
    assert_eq!(keys(&found), [key(1)]);
}

pub async fn held_waiting_and_idle_sessions_are_not_ready(store: &dyn Inspect) {
    running(store).await;
    accept(store, 0, opening(2, 2)).await;
    let claimed = claim(store, 10, 1, 2, 2).await;
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    park(store, 20, item).await;
    accept(store, 0, opening(3, 3)).await;
    let claimed = claim(store, 10, 1, 3, 3).await;
    complete(store, 20, ending(&claimed, AfterSend::Continue)).await;
    accept(store, 20, with(opening(4, 4), delayed(500))).await;
    assert_eq!(sweep(store, 30, all()).await, Swept::default());
}

pub async fn sessions_of_dead_and_leaving_workers_are_found(store: &dyn Inspect) {
    running(store).await;
    let expired = sweep(store, TTL + 1, all()).await.sessions;
    assert_eq!(keys(&expired), [key(1)]);
    assert_eq!(expired[0].ready_since, time(0));
    assert_eq!(keys(&sweep(store, TTL, all()).await.sessions), []);
    let stopped = store.at(time(20)).stop_boot(boot(1)).await;
    stopped.expect("the store answers");
    let orphaned = sweep(store, 21, all()).await.sessions;
    assert_eq!(keys(&orphaned), [key(1)]);
    register(store, 2).await;
    accept(store, 0, opening(2, 2)).await;
    let claimed = claim(store, 22, 2, 2, 2).await;
    release(store, 23, &claimed).await;
    let released = sweep(store, 24, all()).await.sessions;
    assert_eq!(keys(&released), [key(1), key(2)]);
}
