//! Replies that are lost after the commit, for one operation at a time.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::BootId;
use mainspring_shared::message::{ContentPart, NewMessage};
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_RESULT};
use mainspring_shared::step::StepKind;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptSend, AfterSend, CallBegin, CallChange, CallStep, CompleteOutcome, DeliverItem,
    DeliverOutcome, Delivery, IdempotencyKey, Inspect as _, ParkOutcome, ParkSend, PostOutcome,
};
use mainspring_shared::tool::{Approval, CallResult};

use crate::postgres::lossy_proxy::{LossyProxy, with_lossy_proxy};
use crate::postgres::tools::{
    answered, approval, asking, ids, only_calls, outside, park_on, result, waits, words,
};
use crate::postgres::world::{TENANT, World, answer, first_round, id, to};

async fn steps_of(world: &World, key: mainspring_shared::id::SessionKey, kind: StepKind) -> usize {
    let steps = world.store.read_steps(key, 0, 100).await.expect("reads");
    steps.iter().filter(|step| step.kind == kind).count()
}

fn assert_lost(proxy: &LossyProxy) {
    assert!(proxy.has_lost(), "no answer was lost");
}

#[tokio::test]
async fn a_round_is_stored_once_and_its_signals_are_told_again() {
    with_lossy_proxy("lost_round", async |world, proxy| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let steer = || words(key, "a", OnBusy::Steer);
        world.deliver(3, vec![steer()]).await;
        proxy.lose_statement();
        let round = asking(&claimed, [CallBegin::Started]);
        let asked = round.messages[1].clone();
        let (first_seq, counters) = world.append(4, round).await;
        assert_lost(proxy);
        assert_eq!(first_seq, 1);
        assert_eq!(counters.signals & SIGNAL_INBOX, SIGNAL_INBOX);
        assert_eq!(world.signals(key).await, 0);

        let call_id = ids(&claimed, 1).remove(0);
        let mut settles = only_calls(&claimed);
        settles.changes.push(CallChange {
            call_id: call_id.clone(),
            change: CallStep::Settled(CallResult::text("done")),
        });
        proxy.lose_statement();
        world.append(5, settles).await;
        assert_lost(proxy);
        // What was stored before must not be mistaken for the next request.
        let mut tells = only_calls(&claimed);
        tells.messages = answered(&asked);
        tells
            .messages
            .push(NewMessage::user(vec![ContentPart::text("a")], 0));
        tells.deliveries.push(Delivery {
            item_id: "a".to_owned(),
            message: 1,
        });
        proxy.lose_statement();
        let (first_seq, counters) = world.append(6, tells).await;
        assert_lost(proxy);
        assert_eq!((first_seq, counters.next_seq), (3, 5));
        assert_eq!(counters.signals & SIGNAL_INBOX, 0, "nothing lies there");
        assert_eq!(steps_of(world, key, StepKind::Calls).await, 2);
        assert_eq!(world.call(&call_id).await.attempt, 1);
        world.assert_sound(6).await;
    })
    .await;
}

#[tokio::test]
async fn a_send_that_was_woken_or_kept_from_ending_is_told_so_again() {
    with_lossy_proxy("lost_woken", async |world, proxy| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let round = asking(&claimed, [outside()]);
        let asked = round.messages[1].clone();
        world.append(3, round).await;
        let call_id = ids(&claimed, 1).remove(0);
        world.post(4, vec![result(key, &call_id, "x")]).await;
        let park = ParkSend {
            unless: SIGNAL_RESULT,
            ..park_on(&claimed, WaitingOn::Tool)
        };
        proxy.lose_statement();
        let woken = world.park(5, park).await;
        assert_lost(proxy);
        assert!(
            matches!(woken, ParkOutcome::Woken { signals } if signals & SIGNAL_RESULT != 0),
            "{woken:?}"
        );
        let record = world.record(send).await;
        assert_eq!(record.status, SendStatus::Running);

        world.deliver(6, vec![words(key, "a", OnBusy::Steer)]).await;
        let mut last = answer(&claimed, AfterSend::Release);
        last.messages = answered(&asked);
        last.usage.clear();
        last.round = None;
        last.unless = SIGNAL_INBOX;
        proxy.lose_statement();
        let kept = world.try_complete(7, last.clone()).await;
        assert_lost(proxy);
        assert_eq!(kept, CompleteOutcome::Undelivered);
        assert_eq!(world.record(send).await.status, SendStatus::Running);

        last.messages
            .push(NewMessage::user(vec![ContentPart::text("a")], 0));
        last.deliveries.push(Delivery {
            item_id: "a".to_owned(),
            message: 1,
        });
        proxy.lose_statement();
        let done = world.complete(8, last).await;
        assert_lost(proxy);
        assert_eq!(done.status, SendStatus::Completed);
        assert_eq!(steps_of(world, key, StepKind::Finished).await, 1);
        world.assert_sound(8).await;
    })
    .await;
}

#[tokio::test]
async fn a_park_is_made_once_and_one_that_a_cancel_ends_ends_once() {
    with_lossy_proxy("lost_park", async |world, proxy| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        world.append(3, first_round(&claimed)).await;
        let park = ParkSend {
            unless: SIGNAL_RESULT | SIGNAL_INBOX,
            ..park_on(&claimed, WaitingOn::Retry)
        };
        proxy.lose_statement();
        let parked = world.park(4, park).await;
        assert_lost(proxy);
        assert_eq!(parked, ParkOutcome::Parked { step: 3 });

        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        world.append(3, asking(&claimed, [outside()])).await;
        let cancelled = world
            .store
            .at(world.time(4))
            .cancel_sends(BootId(id()), vec![(TENANT, send)])
            .await;
        cancelled.expect("cancels");
        proxy.lose_commit();
        let ended = world.park(5, park_on(&claimed, WaitingOn::Tool)).await;
        assert_lost(proxy);
        assert!(
            matches!(
                ended,
                ParkOutcome::Cancelled {
                    step: 3,
                    enqueue: None
                }
            ),
            "{ended:?}"
        );
        assert_eq!(steps_of(world, key, StepKind::Finished).await, 1);
        world.assert_sound(5).await;
    })
    .await;
}

#[tokio::test]
async fn a_result_from_outside_is_accepted_although_the_answer_was_lost() {
    with_lossy_proxy("lost_post", async |world, proxy| {
        let asks = waits(WaitingOn::Human, true);
        let (claimed, _) = world.waiting(WaitingOn::Human, [asks, outside()]).await;
        let key = claimed.key;
        let calls = ids(&claimed, 2);
        proxy.lose_commit();
        let posted = world.post(10, vec![approval(key, &calls[0])]).await;
        assert_lost(proxy);
        assert!(
            matches!(posted[0], PostOutcome::Accepted { enqueue: None, .. }),
            "{posted:?}"
        );
        assert_eq!(world.call(&calls[0]).await.approval, Approval::Given);
        proxy.lose_commit();
        let items = vec![result(key, &calls[1], "x"), result(key, &calls[1], "x")];
        let posted = world.post(11, items).await;
        assert_lost(proxy);
        assert!(
            matches!(
                posted[0],
                PostOutcome::Accepted {
                    enqueue: Some(_),
                    ..
                }
            ),
            "{posted:?}"
        );
        assert_eq!(
            posted[1],
            PostOutcome::AlreadySettled,
            "the first one counts"
        );
        world.assert_sound(11).await;
    })
    .await;
}

#[tokio::test]
async fn words_are_stored_once_although_the_answer_was_lost() {
    with_lossy_proxy("lost_words", async |world, proxy| {
        let (claimed, _) = world.waiting(WaitingOn::Retry, []).await;
        let key = claimed.key;
        let item = DeliverItem {
            idempotency: Some(IdempotencyKey {
                tenant: TENANT,
                route: "r".to_owned(),
                key: "k".to_owned(),
                body_hash: [1; 32],
            }),
            ..words(key, "a", OnBusy::Steer)
        };
        proxy.lose_commit();
        let delivered = world.deliver(10, vec![item]).await;
        assert_lost(proxy);
        let DeliverOutcome::Accepted {
            enqueue: Some(enqueue),
            ..
        } = &delivered[0]
        else {
            panic!("{delivered:?}");
        };
        assert_eq!(enqueue.ready_since, world.time(10));
        assert_eq!(world.inbox(key, false).await.len(), 1);
        world.assert_sound(10).await;
    })
    .await;
}

#[tokio::test]
async fn the_end_of_a_child_rings_although_the_answer_was_lost() {
    with_lossy_proxy("lost_report", async |world, proxy| {
        let (parent, _) = world
            .waiting(WaitingOn::Agent, [waits(WaitingOn::Agent, false)])
            .await;
        let child = AcceptSend {
            reports_to: Some(ids(&parent, 1).remove(0)),
            run: None,
            ..to(world.session().await)
        };
        let (send, _) = world.send(5, child).await;
        let cancelled = world
            .store
            .at(world.time(6))
            .cancel_sends(BootId(id()), vec![(TENANT, send)])
            .await;
        cancelled.expect("cancels");
        proxy.lose_commit();
        let told = world
            .store
            .at(world.time(7))
            .report_children(None, 10)
            .await;
        let told = told.expect("reports");
        assert_lost(proxy);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].send_id, told[0].parent), (send, parent.key));
        assert!(told[0].enqueue.is_some());
        let again = world
            .store
            .at(world.time(8))
            .report_children(None, 10)
            .await;
        assert_eq!(again.expect("reports"), []);
        world.assert_sound(8).await;
    })
    .await;
}

#[tokio::test]
async fn a_session_that_was_granted_with_a_send_is_told_so_again() {
    with_lossy_proxy("lost_grant", async |world, proxy| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let ended = world
            .try_complete(3, answer(&claimed, AfterSend::Release))
            .await;
        assert!(matches!(ended, CompleteOutcome::Completed(_)), "{ended:?}");
        let item = AcceptSend {
            keeper: Some(worker),
            ..to(key)
        };
        proxy.lose_statement();
        let (send, accepted) = world.send(4, item).await;
        assert_lost(proxy);
        let granted = accepted.granted.expect("it rests");
        assert_eq!((granted.epoch, accepted.enqueue), (2, None));
        assert_eq!(granted.counters.next_seq, claimed.counters.next_seq + 2);
        let record = world.record(send).await;
        assert_eq!(
            (record.status, record.agent_version),
            (SendStatus::Running, Some(granted.agent_version))
        );
        world.assert_sound(5).await;
    })
    .await;
}
