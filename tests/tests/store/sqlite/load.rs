//! Many concurrent callers.

use std::sync::Arc;

use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, AfterSend, ClaimOutcome, CompleteOutcome, Inspect as _, SweepReady,
};
use mainspring_store_sqlite::SqliteStore;

use crate::sqlite::opened::{Opened, open};
use crate::sqlite::steps::*;

const SESSIONS: u128 = 16;
const SENDERS: u128 = 4;
const EACH: u128 = 40;

/// Sends to all sessions in turn.
async fn send_all(store: Arc<SqliteStore>, sender: u128) {
    for n in 0..EACH {
        let item = sending(1_000 * (sender + 1) + n, 1 + (n + sender) % SESSIONS);
        let outcome = one(store
            .accept_sends(SCHEDULER, vec![item])
            .await
            .expect("answers"));
        assert!(matches!(outcome, AcceptOutcome::Accepted(_)), "{outcome:?}");
    }
}

/// Claims whatever is ready and works on it, until `total` sends are final.
async fn work_all(store: Arc<SqliteStore>, n: u128, total: usize) {
    let mut token = n << 64;
    loop {
        let query = SweepReady {
            pool: None,
            older_than_ms: 0,
            after: None,
            limit: 8,
        };
        let ready = store.sweep_ready(query).await.expect("answers").sessions;
        if ready.is_empty() && final_sends(&store).await == total {
            return;
        }
        let items = ready.iter().map(|ready| {
            token += 1;
            mainspring_shared::store::ClaimSession {
                key: ready.key,
                ..claiming(0, token)
            }
        });
        let items = items.collect();
        for outcome in store.claim_sessions(boot(n), items).await.expect("answers") {
            let ClaimOutcome::Claimed(claimed) = outcome else {
                continue;
            };
            let mut claimed = claimed;
            let mut record = claimed.send.record.clone();
            loop {
                let end = ending(&claimed, &record, AfterSend::Continue);
                let outcome = one(store.complete_sends(vec![end]).await.expect("answers"));
                let CompleteOutcome::Completed(done) = outcome else {
                    panic!("nobody else may own it");
                };
                match done.next {
                    Some((next, _)) => {
                        record = next.record;
                        claimed.lease.write += 1;
                    }
                    None => break,
                }
            }
        }
    }
}

async fn final_sends(store: &SqliteStore) -> usize {
    let dump = store.dump().await.expect("answers");
    let sends = dump.sessions.iter().flat_map(|session| &session.sends);
    sends.filter(|send| send.status.is_final()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_senders_and_workers_leave_a_sound_store() {
    let Opened { store, place: _dir } = open().await;
    let store = Arc::new(store);
    let sessions = (1..=SESSIONS).map(|n| (new_session(n), None)).collect();
    store.create_sessions(sessions).await.expect("answers");
    let mut tasks = Vec::new();
    for sender in 0..SENDERS {
        tasks.push(tokio::spawn(send_all(store.clone(), sender)));
    }
    let total = (SENDERS * EACH) as usize;
    for n in 1..=3 {
        register(&store, 0, n).await;
        tasks.push(tokio::spawn(work_all(store.clone(), n, total)));
    }
    for task in tasks {
        task.await.expect("ends well");
    }
    let dump = store.dump().await.expect("answers");
    let messages: usize = dump.sessions.iter().map(|s| s.messages.len()).sum();
    assert_eq!(messages, 2 * total, "every send said and was answered once");
    assert_sound(&store, 0).await;
}
