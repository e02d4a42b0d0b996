//! Several processes that use one database concurrently.

use std::collections::BTreeSet;

use mainspring_shared::agent::OnBusy;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, CancelOutcome, ClaimOutcome, IdempotencyKey, Inspect as _,
};
use mainspring_store_core::SqlStore;

use crate::mysql::opened::{Opened, open, open_again};
use crate::mysql::steps::*;

fn keyed(name: &str) -> IdempotencyKey {
    IdempotencyKey {
        tenant: key(1).tenant,
        route: "sends".to_owned(),
        key: name.to_owned(),
        body_hash: [7; 32],
    }
}

async fn pending(store: &SqlStore, session: u128) -> i64 {
    let dump = store.dump().await.expect("dumps");
    let mut sessions = dump.sessions.into_iter();
    let session = sessions.find(|found| found.key == key(session));
    session.expect("it is there").hot.pending
}

/// Number of sessions in each test below.
const SESSIONS: u128 = 6;
/// Number of sends to each session.
const SENDS: u128 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sends_to_the_same_sessions_from_two_processes_all_get_a_place_of_their_own() {
    let Some(Opened { store, place }) = open().await else {
        return;
    };
    let other = open_again(&place).await;
    register(&store, 0, 1).await;
    for session in 1..=SESSIONS {
        accept(&store, 0, opening(session, session)).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for n in 1..=SENDS {
        let store = if n % 2 == 0 {
            store.clone()
        } else {
            other.clone()
        };
        tasks.spawn(async move {
            // Each group locks all sessions, in an order of its own.
            let mut items: Vec<AcceptSend> = (1..=SESSIONS)
                .map(|session| sending(1_000 * n + session, session))
                .collect();
            items.rotate_left((n % SESSIONS) as usize);
            if n % 3 == 0 {
                items.reverse();
            }
            // Items whose session stayed locked for too long are retried, as every caller does.
            while !items.is_empty() {
                let outcomes = store
                    .at(time(10))
                    .accept_sends(SCHEDULER, items.clone())
                    .await;
                let outcomes = items.into_iter().zip(outcomes.expect("accepts"));
                let left = outcomes.filter_map(|(item, outcome)| match outcome {
                    AcceptOutcome::Accepted(_) => None,
                    AcceptOutcome::Locked => Some(item),
                    other => panic!("{other:?}"),
                });
                items = left.collect();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    for session in 1..=SESSIONS {
        assert_eq!(pending(&store, session).await, 1 + SENDS as i64);
    }
    assert_sound(&store, 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_session_is_claimed_once_and_a_send_cancelled_once() {
    let Some(Opened { store, place }) = open().await else {
        return;
    };
    let other = open_again(&place).await;
    for n in 1..=4 {
        register(&store, 0, n).await;
    }
    for session in 1..=SESSIONS {
        accept(&store, 0, opening(session, session)).await;
    }
    let mut claims = tokio::task::JoinSet::new();
    for n in 1..=4_u128 {
        let store = if n % 2 == 0 {
            store.clone()
        } else {
            other.clone()
        };
        claims.spawn(async move {
            let items = (1..=SESSIONS).map(|session| claiming(session, 100 * n + session));
            store
                .at(time(1))
                .claim_sessions(boot(n), items.collect())
                .await
        });
    }
    let mut claimed = BTreeSet::new();
    while let Some(done) = claims.join_next().await {
        for outcome in done.expect("no panic").expect("claims") {
            if let ClaimOutcome::Claimed(session) = outcome {
                assert!(
                    claimed.insert(session.key),
                    "{} is claimed twice",
                    session.key
                );
            }
        }
    }
    assert_eq!(claimed.len() as u128, SESSIONS);
    for session in 1..=SESSIONS {
        accept(&store, 2, sending(50 + session, session)).await;
    }
    let mut cancels = tokio::task::JoinSet::new();
    for n in 0..4 {
        let store = if n % 2 == 0 {
            store.clone()
        } else {
            other.clone()
        };
        cancels.spawn(async move {
            let store = store.at(time(3));
            let items = (1..=SESSIONS).map(|session| (key(session).tenant, send(50 + session)));
            let mut items: Vec<_> = items.collect();
            let mut outcomes = Vec::new();
            while !items.is_empty() {
                let asked = std::mem::take(&mut items);
                let answers = store.cancel_sends(SCHEDULER, asked.clone()).await;
                for (item, outcome) in asked.into_iter().zip(answers.expect("cancels")) {
                    match outcome {
                        // Another task holds the session's lock: retry, as callers do.
                        CancelOutcome::Locked => items.push(item),
                        outcome => outcomes.push(outcome),
                    }
                }
            }
            outcomes
        });
    }
    let mut ended = 0;
    while let Some(done) = cancels.join_next().await {
        for outcome in done.expect("no panic") {
            match outcome {
                CancelOutcome::Cancelled { .. } => ended += 1,
                CancelOutcome::AlreadyFinal(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(ended, SESSIONS);
    assert_sound(&store, 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_key_makes_one_send_whoever_is_asked() {
    let Some(Opened { store, place }) = open().await else {
        return;
    };
    let other = open_again(&place).await;
    accept(&store, 0, opening(1, 1)).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8_u128 {
        let store = if n % 2 == 0 {
            store.clone()
        } else {
            other.clone()
        };
        tasks.spawn(async move {
            let mut item = sending(10 + n, 1);
            item.options.on_busy = OnBusy::Enqueue;
            item.idempotency = Some(keyed("the same"));
            store.at(time(1)).accept_sends(SCHEDULER, vec![item]).await
        });
    }
    let mut accepted = 0;
    while let Some(done) = tasks.join_next().await {
        match &done.expect("no panic").expect("answers")[..] {
            [AcceptOutcome::Accepted(_)] => accepted += 1,
            [AcceptOutcome::Replayed(_)] => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(accepted, 1);
    assert_sound(&store, 40).await;
}
