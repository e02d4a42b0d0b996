//! Words for busy sessions.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::inbox::Fate;
use mainspring_shared::message::{ContentPart, NewMessage};
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AppendOutcome, CompleteOutcome, DeliverItem, DeliverOutcome,
    Delivery, IdempotencyKey, ReadInbox, SessionPatch, Then,
};

use crate::tools::{asking, ids, only_calls, outside, park_on, waits, words};
use crate::world::{TENANT, World, answer, id, in_second_round, to, with_world};

fn keyed(item: DeliverItem, key: &str, body: u8) -> DeliverItem {
    DeliverItem {
        idempotency: Some(request(key, body)),
        ..item
    }
}

fn request(key: &str, body: u8) -> IdempotencyKey {
    IdempotencyKey {
        tenant: TENANT,
        route: "POST /v1/sends".to_owned(),
        key: key.to_owned(),
        body_hash: [body; 32],
    }
}

async fn deliver_one(world: &World, at: i64, item: DeliverItem) -> DeliverOutcome {
    world.deliver(at, vec![item]).await.remove(0)
}

#[tokio::test]
async fn words_for_a_running_send_are_delivered_at_its_next_boundary() {
    with_world("steer", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let outcome = deliver_one(world, 3, words(key, "a", OnBusy::Steer)).await;
        let DeliverOutcome::Accepted {
            send_id,
            item,
            ring: None,
            owner: Some(owner),
        } = outcome
        else {
            panic!("{outcome:?}");
        };
        assert_eq!((send_id, owner), (send, worker));
        assert_eq!(
            (item.n, item.fate, item.send_id),
            (2, Fate::Pending, Some(send))
        );
        let outcome = deliver_one(world, 4, words(key, "b", OnBusy::Interrupt)).await;
        assert!(matches!(outcome, DeliverOutcome::Accepted { .. }));

        // The send may not end over it.
        let mut last = answer(&claimed, Then::Continue);
        last.unless = SIGNAL_INBOX;
        let kept = world.try_complete(5, last.clone()).await;
        assert_eq!(kept, CompleteOutcome::Undelivered);
        assert_eq!(world.signals(key).await, 0);
        let record = world.record(send).await;
        assert_eq!((record.status, record.rounds), (SendStatus::Running, 0));
        world.assert_sound(5).await;

        let mut round = crate::world::first_round(&claimed);
        for (message, item_id) in [(2, "a"), (3, "b")] {
            let content = vec![ContentPart::text(item_id)];
            round.messages.push(NewMessage::user(content, 0));
            round.deliveries.push(Delivery {
                item_id: item_id.to_owned(),
                message,
            });
        }
        let (first_seq, _) = world.append(6, round).await;
        let items = world.inbox(key, false).await;
        let fates: Vec<_> = items
            .iter()
            .map(|i| (i.n, i.fate, i.seq, i.settled_at))
            .collect();
        let at = world.at(6);
        assert_eq!(
            fates,
            [
                (2, Fate::Delivered, Some(first_seq + 2), at),
                (3, Fate::Delivered, Some(first_seq + 3), at)
            ]
        );
        assert_eq!(world.inbox(key, true).await, []);
        last.messages.remove(0);
        last.messages[0].round = 1;
        in_second_round(&mut last);
        world.complete(7, last).await;
        world.assert_sound(7).await;
    })
    .await;
}

#[tokio::test]
async fn what_a_send_leaves_in_the_inbox_is_told_to_the_next() {
    with_world("inbox_next", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        world.send(1, to(key)).await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        deliver_one(world, 3, words(key, "a", OnBusy::Interrupt)).await;
        let raised = SIGNAL_INBOX | SIGNAL_INTERRUPT;
        assert_eq!(world.signals(key).await, raised);
        let done = world.complete(4, answer(&claimed, Then::Continue)).await;
        let (next, counters) = done.next.expect("goes on");
        assert_eq!(counters.signals, SIGNAL_INBOX);
        let mut last = answer(&claimed, Then::Continue);
        last.send_id = next.record.id;
        last.messages
            .push(NewMessage::user(vec![ContentPart::text("a")], 0));
        last.messages.swap(1, 2);
        last.deliveries.push(Delivery {
            item_id: "a".to_owned(),
            message: 1,
        });
        let done = world.complete(5, last).await;
        assert!(done.next.is_none());
        let items = world.inbox(key, false).await;
        assert_eq!((items[0].fate, items[0].seq), (Fate::Delivered, Some(4)));
        assert_eq!(
            items[0].send_id,
            Some(claimed.send.record.id),
            "who absorbed it"
        );
        world.assert_sound(5).await;
        // The signal stays for whoever comes; a claim brings it, an append lowers it.
        world.send(6, to(key)).await;
        let claimed = world.claim(7, worker, key).await;
        assert_eq!(claimed.counters.signals, SIGNAL_INBOX);
        let (_, counters) = world.append(8, crate::world::first_round(&claimed)).await;
        assert_eq!(
            (counters.signals, world.signals(key).await),
            (SIGNAL_INBOX, 0)
        );
    })
    .await;
}

#[tokio::test]
async fn coalesced_words_join_the_last_send_that_waits_for_its_turn() {
    with_world("coalesce", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let idle = deliver_one(world, 0, words(key, "a", OnBusy::Coalesce)).await;
        assert_eq!(idle, DeliverOutcome::Idle);
        let (first, _) = world.send(1, to(key)).await;
        world.claim(2, worker, key).await;
        let idle = deliver_one(world, 3, words(key, "a", OnBusy::Coalesce)).await;
        assert_eq!(idle, DeliverOutcome::Idle, "the only send has begun");
        world.send(4, to(key)).await;
        let (last, _) = world.send(4, to(key)).await;
        let items = vec![
            words(key, "a", OnBusy::Coalesce),
            words(key, "b", OnBusy::Coalesce),
            words(key, "a", OnBusy::Coalesce),
        ];
        let joined = world.deliver(5, items).await;
        for (outcome, n) in joined.iter().zip([4, 5, 4]) {
            let DeliverOutcome::Accepted {
                send_id,
                item,
                ring: None,
                owner: None,
            } = outcome
            else {
                panic!("{outcome:?}");
            };
            assert_eq!((*send_id, item.n, item.fate), (last, n, Fate::Delivered));
            assert_eq!((item.seq, item.settled_at), (None, world.at(5)));
        }
        let input = world.record(last).await.input;
        assert_eq!(input, ["hello", "a", "b"].map(ContentPart::text));
        assert_eq!(world.record(first).await.input.len(), 1);
        assert_eq!(world.signals(key).await, 0);
        let (_, accepted) = world.send(6, to(key)).await;
        assert_eq!(accepted.position, Some(6), "items draw their places, too");
        world.assert_sound(6).await;
    })
    .await;
}

#[tokio::test]
async fn a_queued_head_absorbs_steers_when_nothing_has_begun() {
    with_world("steer_queued", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let idle = deliver_one(world, 0, words(key, "a", OnBusy::Steer)).await;
        assert_eq!(idle, DeliverOutcome::Idle);
        let (head, _) = world.send(1, to(key)).await;
        world.send(1, to(key)).await;
        let outcome = deliver_one(world, 2, words(key, "a", OnBusy::Steer)).await;
        assert!(
            matches!(&outcome, DeliverOutcome::Accepted { send_id, ring: None, owner: None, .. } if *send_id == head),
            "{outcome:?}"
        );
        let claimed = world.claim(3, worker, key).await;
        assert_eq!(claimed.counters.signals, SIGNAL_INBOX);
        world.assert_sound(3).await;
    })
    .await;
}

#[tokio::test]
async fn waits_for_a_time_end_at_once_and_waits_for_others_only_when_interrupted() {
    with_world("steer_waiting", async |world| {
        for on in [WaitingOn::Retry, WaitingOn::Timer] {
            let (claimed, _) = world.waiting(on, []).await;
            let item = words(claimed.key, "a", OnBusy::Steer);
            let outcome = deliver_one(world, 10, item).await;
            let DeliverOutcome::Accepted {
                ring: Some(ring), ..
            } = outcome
            else {
                panic!("{outcome:?}");
            };
            assert_eq!(ring.ready_since, world.time(10));
        }
        let begins = [outside(), waits(WaitingOn::Agent, false)];
        let (claimed, worker) = world.waiting(WaitingOn::Tool, begins).await;
        let key = claimed.key;
        let outcome = deliver_one(world, 11, words(key, "a", OnBusy::Steer)).await;
        assert!(matches!(
            outcome,
            DeliverOutcome::Accepted { ring: None, .. }
        ));
        assert_eq!(world.call(&ids(&claimed, 1)[0]).await.result, None);
        let outcome = deliver_one(world, 12, words(key, "b", OnBusy::Interrupt)).await;
        assert!(matches!(
            outcome,
            DeliverOutcome::Accepted { ring: Some(_), .. }
        ));
        for call_id in ids(&claimed, 2) {
            let call = world.call(&call_id).await;
            assert_eq!(call.waits_on, None);
            let result = call.result.expect("is settled");
            assert_eq!(result.code, Some(Code::ToolInterrupted));
        }
        let again = world.claim(13, worker, key).await;
        let raised = SIGNAL_INBOX | SIGNAL_INTERRUPT;
        assert_eq!(again.counters.signals, raised);
        world.assert_sound(13).await;

        let (claimed, _) = world.waiting(WaitingOn::Recovery, [outside()]).await;
        let item = words(claimed.key, "a", OnBusy::Interrupt);
        let outcome = deliver_one(world, 14, item).await;
        assert!(matches!(
            outcome,
            DeliverOutcome::Accepted { ring: None, .. }
        ));
        assert_eq!(world.call(&ids(&claimed, 1)[0]).await.result, None);
    })
    .await;
}

#[tokio::test]
async fn an_inbox_has_a_bound_and_an_item_one_life() {
    with_world("inbox_full", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        world.claim(2, worker, key).await;
        let item = |name| DeliverItem {
            items_max: 2,
            ..words(key, name, OnBusy::Steer)
        };
        let items = ["a", "b", "c", "a"].map(item).to_vec();
        let outcomes = world.deliver(3, items).await;
        assert!(matches!(outcomes[1], DeliverOutcome::Accepted { .. }));
        assert_eq!(outcomes[2], DeliverOutcome::Full);
        let DeliverOutcome::Accepted {
            send_id,
            item: known,
            ring: None,
            owner: None,
        } = &outcomes[3]
        else {
            panic!("{outcomes:?}");
        };
        assert_eq!((*send_id, known.n), (send, 2));
        let page = ReadInbox {
            key,
            pending: true,
            after: 2,
            limit: 1,
        };
        let page = world.store.read_inbox(page).await.expect("reads");
        assert_eq!(page.len(), 1);
        assert_eq!(page[0].id, "b");
        let full = deliver_one(world, 4, item("d")).await;
        assert_eq!(full, DeliverOutcome::Full);
    })
    .await;
}

#[tokio::test]
async fn a_repeated_request_answers_with_the_send_that_absorbed_it() {
    with_world("inbox_keys", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let refused = keyed(words(key, "a", OnBusy::Steer), "k", 1);
        assert_eq!(deliver_one(world, 0, refused).await, DeliverOutcome::Idle);
        let (send, _) = world.send(1, to(key)).await;
        world.claim(2, worker, key).await;
        let item = |name, body| keyed(words(key, name, OnBusy::Steer), "k", body);
        let items = vec![item("a", 1), item("b", 1), item("c", 2)];
        let outcomes = world.deliver(3, items).await;
        assert!(matches!(outcomes[0], DeliverOutcome::Accepted { .. }));
        let rest = [DeliverOutcome::Replayed(send), DeliverOutcome::Mismatch];
        assert_eq!(outcomes[1..], rest);
        let again = deliver_one(world, 4, item("d", 1)).await;
        assert_eq!(again, DeliverOutcome::Replayed(send));
        assert_eq!(world.inbox(key, false).await.len(), 1);
        // The same request as a send is a repeat, too.
        let accepted = AcceptSend {
            idempotency: Some(request("k", 1)),
            ..to(key)
        };
        let accepted = world.accept(5, vec![accepted]).await;
        assert_eq!(accepted, [AcceptOutcome::Replayed(send)]);
    })
    .await;
}

#[tokio::test]
async fn closed_and_unknown_sessions_take_no_words() {
    with_world("inbox_closed", async |world| {
        let key = world.session().await;
        world.send(1, to(key)).await;
        let patch = SessionPatch {
            closed: Some(true),
            ..SessionPatch::default()
        };
        world
            .store
            .update_session(world.at(2), key, patch)
            .await
            .expect("closes");
        let unknown = SessionKey {
            session: mainspring_shared::id::SessionId(id()),
            ..key
        };
        let items = [key, unknown].map(|key| words(key, "a", OnBusy::Steer));
        let outcomes = world.deliver(3, items.to_vec()).await;
        assert_eq!(outcomes, [DeliverOutcome::Closed, DeliverOutcome::NotFound]);
    })
    .await;
}

/// A result and words that come while their send is being parked: it does not wait, or someone
/// rings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_between_results_and_parks() {
    with_world("wake_ups", async |world| {
        let worker = world.boot_now().await;
        for turn in 0..40 {
            let key = world.session().await;
            world
                .store
                .accept_sends(None, worker, vec![to(key)])
                .await
                .expect("accepts");
            let claimed = world
                .store
                .claim_sessions(None, worker, vec![crate::world::cold(key)]);
            let claimed = claimed.await.expect("claims").remove(0);
            let mainspring_shared::store::ClaimOutcome::Claimed(claimed) = claimed else {
                panic!("not claimed");
            };
            let round = asking(&claimed, [outside()]);
            world
                .store
                .append_rounds(None, vec![round])
                .await
                .expect("appends");
            let call_id = ids(&claimed, 1).remove(0);
            let mut park = park_on(&claimed, WaitingOn::Tool);
            park.unless = SIGNAL_INBOX | mainspring_shared::session::SIGNAL_RESULT;
            park.lease.write = 1;
            let parks = world.store.park_sends(None, vec![park]);
            let posts = vec![crate::tools::result(key, &call_id, "x")];
            let posts = world.store.post_results(None, posts);
            let steer = vec![words(key, "a", OnBusy::Steer)];
            let steers = world.store.deliver_items(None, worker, steer);
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
            let mainspring_shared::store::PostOutcome::Accepted { ring, .. } = &posted[0] else {
                panic!("{posted:?}");
            };
            assert!(matches!(steered[0], DeliverOutcome::Accepted { .. }));
            match &parked[0] {
                mainspring_shared::store::ParkOutcome::Parked { .. } => {
                    assert!(ring.is_some(), "it waits and nobody rings");
                }
                mainspring_shared::store::ParkOutcome::Woken { signals } => {
                    assert_ne!(*signals, 0);
                    // A steer alone leaves the call to wait for: it is asked again.
                    let mut again = only_calls(&claimed);
                    again.lease.write = 2;
                    let appended = world.store.append_rounds(None, vec![again]).await;
                    let appended = appended.expect("appends").remove(0);
                    assert_ne!(appended, AppendOutcome::LeaseLost);
                }
                other => panic!("{other:?}"),
            }
        }
        let found = world
            .store
            .audit(None, mainspring_shared::store::AuditOptions::default());
        assert_eq!(found.await.expect("audits"), []);
    })
    .await;
}
