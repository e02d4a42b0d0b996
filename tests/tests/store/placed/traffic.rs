//! Traffic of tenants on three databases, while one of them moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, ClaimOutcome, CompleteOutcome, Error, ReadMessages, Renewal,
};
use mainspring_store_placed::PlacedStore;

use crate::placed::world::{NAMES, TTL, answer, cold, moment, to, with_world};

/// Number of sessions of each tenant.
const SESSIONS: usize = 4;

/// Asserts that the error is one worth retrying.
fn again(error: &Error) {
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

/// Sends to a session, one after the other, as a client and a worker that retry until they get an
/// outcome.
async fn converse(
    store: Arc<PlacedStore>,
    boot: BootId,
    key: SessionKey,
    done: Arc<AtomicBool>,
    ended: Arc<AtomicU64>,
) -> Vec<SendId> {
    let mut sends = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let item = to(key);
        loop {
            match store.accept_sends(boot, vec![item.clone()]).await {
                Ok(outcomes) if outcomes == [AcceptOutcome::Locked] => moment().await,
                Ok(outcomes) => {
                    assert!(
                        matches!(outcomes[..], [AcceptOutcome::Accepted(_)]),
                        "{outcomes:?}"
                    );
                    break;
                }
                Err(error) => {
                    again(&error);
                    moment().await;
                }
            }
        }
        let claim = cold(key);
        let claimed = loop {
            match store.claim_sessions(boot, vec![claim.clone()]).await {
                Ok(mut outcomes) => match outcomes.remove(0) {
                    ClaimOutcome::Claimed(claimed) => break *claimed,
                    ClaimOutcome::Busy => moment().await,
                    other => panic!("not claimed: {other:?}"),
                },
                Err(error) => {
                    again(&error);
                    moment().await;
                }
            }
        };
        assert_eq!(claimed.send.record.id, item.id, "one after the other");
        let end = answer(&claimed);
        loop {
            match store.complete_sends(vec![end.clone()]).await {
                Ok(outcomes) if outcomes == [CompleteOutcome::Locked] => moment().await,
                Ok(outcomes) => {
                    assert!(
                        matches!(outcomes[..], [CompleteOutcome::Completed(_)]),
                        "{outcomes:?}"
                    );
                    break;
                }
                Err(error) => {
                    again(&error);
                    moment().await;
                }
            }
        }
        ended.fetch_add(1, Ordering::Relaxed);
        sends.push(item.id);
    }
    sends
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_moves_under_load_and_nothing_is_lost_or_done_twice() {
    with_world("traffic", async |world| {
        let mut tenants: Vec<TenantId> = Vec::new();
        for place in NAMES {
            let tenant = world.tenant(&format!("of-{place}")).await;
            world.take(tenant, place).await;
            tenants.push(tenant);
        }
        let boot = world.boot().await;
        let done = Arc::new(AtomicBool::new(false));
        let mut clients = Vec::new();
        let mut counts = Vec::new();
        for tenant in &tenants {
            let ended = Arc::new(AtomicU64::new(0));
            counts.push(ended.clone());
            for _ in 0..SESSIONS {
                let key = world.session(*tenant).await;
                let client = converse(world.placed.clone(), boot, key, done.clone(), ended.clone());
                clients.push((key, tokio::spawn(client)));
            }
        }
        let nomad = tenants[0];
        for to in ["b", "c", "home"] {
            let others: Vec<u64> = counts.iter().map(|it| it.load(Ordering::Relaxed)).collect();
            let moved = world.take(nomad, to).await;
            assert_eq!(moved.placement.place, to);
            for (n, before) in others.into_iter().enumerate().skip(1) {
                let now = counts[n].load(Ordering::Relaxed);
                assert!(now > before, "tenant {n} stood still");
            }
            // The tenant that moved makes progress, too.
            let before = counts[0].load(Ordering::Relaxed);
            while counts[0].load(Ordering::Relaxed) == before {
                moment().await;
            }
            let renewed = world.placed.renew_boot(boot, TTL, 1).await.expect("renews");
            assert!(matches!(renewed, Renewal::Renewed { .. }));
        }
        done.store(true, Ordering::Relaxed);
        for (key, client) in clients {
            let sends = client.await.expect("joins");
            assert!(!sends.is_empty());
            // Two messages per send, in order, each exactly once.
            let query = ReadMessages {
                key,
                after: 0,
                limit: 100_000,
            };
            let messages = world.placed.read_messages(query).await.expect("reads");
            let told: Vec<SendId> = messages.iter().map(|message| message.send_id).collect();
            let expected: Vec<SendId> = sends.iter().flat_map(|send| [*send, *send]).collect();
            assert_eq!(told, expected);
        }
        world.assert_sound().await;
    })
    .await;
}
