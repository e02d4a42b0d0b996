//! Concurrent callers: each thing happens once, and nobody waits for ever.

use mainspring_shared::agent::{AgentSpec, OnBusy};
use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_RESULT};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AppendOutcome, CallBegin, ClaimOutcome, DeliverOutcome,
    IdempotencyKey, Inspect as _, Parent, ParkOutcome, PostOutcome, Target,
};

use crate::postgres::tools::{asking, ids, only_calls, outside, park_on, waits, words};
use crate::postgres::world::{TENANT, World, id, new_session, to, to_target, with_world};

/// Creates a child session for a call of `parent`, with a send that reports to it.
async fn child(world: &World, at: i64, parent: SessionKey, call_id: &str) -> (SessionKey, SendId) {
    let mut session = new_session(AgentSpec::default());
    session.parent = Some(Parent {
        session: parent.session,
        call_id: call_id.to_owned(),
        root: parent.session,
        depth: 1,
    });
    let key = session.key;
    let item = AcceptSend {
        reports_to: Some(call_id.to_owned()),
        run: None,
        ..to_target(Target::New(Box::new(session)))
    };
    let (send, _) = world.send(at, item).await;
    (key, send)
}

async fn cancel(world: &World, at: i64, send: SendId) {
    let cancelled = world
        .store
        .at(world.time(at))
        .cancel_sends(BootId(id()), vec![(TENANT, send)])
        .await;
    cancelled.expect("cancels");
}

fn agent() -> CallBegin {
    waits(WaitingOn::Agent, false)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_reporters_report_each_child_once() {
    with_world("child_many", async |world| {
        let mut parents = Vec::new();
        let mut sends = Vec::new();
        for _ in 0..6 {
            let (parent, _) = world.waiting(WaitingOn::Agent, [agent(), agent()]).await;
            for call_id in ids(&parent, 2) {
                let (_, send) = child(world, 5, parent.key, &call_id).await;
                sends.push(send);
            }
            parents.push(parent.key);
        }
        for send in &sends {
            cancel(world, 6, *send).await;
        }
        let reporters = (0..4).map(|n| {
            let named = (n % 2 == 1).then(|| sends.iter().map(|id| (TENANT, *id)).collect());
            async move {
                world
                    .store
                    .at(world.time(7))
                    .report_children(named, 5)
                    .await
            }
        });
        let mut told: Vec<SendId> = Vec::new();
        let mut enqueued = 0;
        for outcomes in futures::future::join_all(reporters).await {
            for outcome in outcomes.expect("reports") {
                told.push(outcome.send_id);
                enqueued += usize::from(outcome.enqueue.is_some());
            }
        }
        let rest = world
            .store
            .at(world.time(8))
            .report_children(None, 100)
            .await;
        for outcome in rest.expect("reports") {
            told.push(outcome.send_id);
            enqueued += usize::from(outcome.enqueue.is_some());
        }
        told.sort();
        sends.sort();
        assert_eq!(told, sends);
        assert_eq!(enqueued, parents.len(), "each parent went on once");
        world.assert_sound(70_000).await;
    })
    .await;
}

/// Adds an idempotency key that makes this the same request each time.
fn keyed(item: AcceptSend) -> AcceptSend {
    AcceptSend {
        idempotency: Some(IdempotencyKey {
            tenant: TENANT,
            route: "POST /v1/sends".to_owned(),
            key: "k".to_owned(),
            body_hash: [1; 32],
        }),
        ..item
    }
}

#[tokio::test]
async fn racing_repeats_agree_on_one_send() {
    with_world("racing_keys", async |world| {
        let key = world.session().await;
        let tasks = (0..8).map(|_| world.accept(1, vec![keyed(to(key))]));
        let outcomes: Vec<_> = futures::future::join_all(tasks).await.concat();
        let sends: Vec<SendId> = outcomes
            .iter()
            .filter_map(|outcome| match outcome {
                AcceptOutcome::Replayed(id) => Some(*id),
                _ => None,
            })
            .collect();
        assert_eq!(sends.len(), 7, "{outcomes:?}");
        assert!(sends.iter().all(|id| *id == sends[0]));
        world.record(sends[0]).await;
        world.assert_sound(1).await;
    })
    .await;
}

/// A result and words that arrive while their send is being parked: either it does not wait, or it
/// is enqueued.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_between_results_and_parks() {
    with_world("wake_ups", async |world| {
        let worker = world.boot_now().await;
        for turn in 0..40 {
            let key = world.session().await;
            world
                .store
                .accept_sends(worker, vec![to(key)])
                .await
                .expect("accepts");
            let claimed = world
                .store
                .claim_sessions(worker, vec![crate::postgres::world::cold(key)]);
            let claimed = claimed.await.expect("claims").remove(0);
            let ClaimOutcome::Claimed(claimed) = claimed else {
                panic!("not claimed");
            };
            let round = asking(&claimed, [outside()]);
            world
                .store
                .append_rounds(vec![round])
                .await
                .expect("appends");
            let call_id = ids(&claimed, 1).remove(0);
            let mut park = park_on(&claimed, WaitingOn::Tool);
            park.unless = SIGNAL_INBOX | SIGNAL_RESULT;
            park.lease.write = 1;
            let parks = world.store.park_sends(vec![park]);
            let posts = vec![crate::postgres::tools::result(key, &call_id, "x")];
            let posts = world.store.post_results(posts);
            let steer = vec![words(key, "a", OnBusy::Steer)];
            let steers = world.store.deliver_items(worker, steer);
            let (parked, posted, steered) = if turn % 2 == 0 {
                futures::future::join3(parks, posts, steers).await
            } else {
                let (posted, parked, steered) = futures::future::join3(posts, parks, steers).await;
                (parked, posted, steered)
            };
            let (parked, posted, steered) = (
                parked.expect("parks"),
                posted.expect("posts"),
                steered.expect("steers"),
            );
            let PostOutcome::Accepted { enqueue, .. } = &posted[0] else {
                panic!("{posted:?}");
            };
            assert!(matches!(steered[0], DeliverOutcome::Accepted { .. }));
            match &parked[0] {
                ParkOutcome::Parked { .. } => {
                    assert!(enqueue.is_some(), "it waits and nobody enqueues it");
                }
                ParkOutcome::Woken { signals } => {
                    assert_ne!(*signals, 0);
                    // A steer alone leaves the call still pending, so the send parks again.
                    let mut again = only_calls(&claimed);
                    again.lease.write = 2;
                    let appended = world.store.append_rounds(vec![again]).await;
                    let appended = appended.expect("appends").remove(0);
                    assert_ne!(appended, AppendOutcome::LeaseLost);
                }
                other => panic!("{other:?}"),
            }
        }
        let found = world
            .store
            .audit(mainspring_shared::store::AuditOptions::default());
        assert_eq!(found.await.expect("audits"), []);
    })
    .await;
}
