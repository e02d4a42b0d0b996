//! Words for sessions that are busy.

use std::time::Duration;

use mainspring_shared::agent::OnBusy;
use mainspring_shared::inbox::{Fate, InboxItem, ItemKind};
use mainspring_shared::message::{ContentPart, NewMessage};
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INBOX, SIGNAL_INTERRUPT};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    CompleteOutcome, DeliverItem, DeliverOutcome, Delivery, IdempotencyKey, ParkOutcome, ParkUntil,
    ReadInbox, SessionPatch, Then,
};
use mainspring_shared::tool::interrupted_call;
use mainspring_store_sqlite::SqliteStore;

use crate::steps::*;

/// The parts of an acceptance: the absorbing send, the item, whether someone has to ring, whether a
/// boot has to hear of it.
fn accepted(outcome: DeliverOutcome) -> (u128, InboxItem, bool, bool) {
    match outcome {
        DeliverOutcome::Accepted {
            send_id,
            item,
            ring,
            owner,
        } => (send_id.0.as_u128(), *item, ring.is_some(), owner.is_some()),
        other => panic!("an item was expected to be accepted: {other:?}"),
    }
}

async fn pending(store: &SqliteStore) -> Vec<String> {
    let query = ReadInbox {
        key: key(1),
        pending: true,
        after: 0,
        limit: 10,
    };
    let items = store.read_inbox(query).await.expect("answers");
    items.into_iter().map(|item| item.id).collect()
}

#[tokio::test]
async fn a_running_send_hears_of_an_item_and_its_round_delivers_it() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    let (absorbing, item, rings, told) =
        accepted(deliver(&store, 11, words(1, "a", OnBusy::Steer)).await);
    assert_eq!((absorbing, rings, told), (1, false, true));
    let expected = InboxItem {
        id: "a".to_owned(),
        n: 2,
        kind: ItemKind::Message,
        mode: OnBusy::Steer,
        send_id: Some(send(1)),
        content: vec![ContentPart::text("words of a")],
        fate: Fate::Pending,
        seq: None,
        created_at: at(11).expect("a time"),
        settled_at: None,
    };
    assert_eq!(item, expected);
    assert_eq!(hot(&store, 1).await.signals, SIGNAL_INBOX);
    deliver(&store, 12, words(1, "b", OnBusy::Interrupt)).await;
    assert_eq!(
        hot(&store, 1).await.signals,
        SIGNAL_INBOX | SIGNAL_INTERRUPT
    );
    assert_eq!(pending(&store).await, ["a", "b"]);
    let mut item = round(&claimed);
    item.messages
        .insert(0, NewMessage::user(expected.content.clone(), 0));
    let said = |id: &str, message| Delivery {
        item_id: id.to_owned(),
        message,
    };
    item.deliveries = vec![said("a", 0), said("a", 1), said("nothing", 1)];
    append(&store, 20, item).await;
    let settled = InboxItem {
        fate: Fate::Delivered,
        seq: Some(1),
        settled_at: at(20),
        ..expected
    };
    assert_eq!(inbox(&store, 1).await[0], settled);
    assert_eq!(pending(&store).await, ["b"]);
    let dump = store.dump().await.expect("answers");
    assert_eq!(dump.sessions[0].inbox, inbox(&store, 1).await);
    assert_sound(&store, 21).await;
}

#[tokio::test]
async fn words_join_the_last_queued_send() {
    let Opened { store, dir: _dir } = open().await;
    running(&store).await;
    let none = deliver(&store, 11, words(1, "a", OnBusy::Coalesce)).await;
    assert_eq!(none, DeliverOutcome::Idle);
    accept(&store, 12, sending(2, 1)).await;
    accept(&store, 13, sending(3, 1)).await;
    let (absorbing, item, rings, told) =
        accepted(deliver(&store, 14, words(1, "b", OnBusy::Coalesce)).await);
    assert_eq!((absorbing, rings, told), (3, false, false));
    assert_eq!((item.fate, item.seq), (Fate::Delivered, None));
    assert_eq!(item.settled_at, at(14));
    let texts = ["words of 3", "words of b"].map(ContentPart::text);
    assert_eq!(stored(&store, 3).await.input, texts);
    assert_eq!(stored(&store, 2).await.input.len(), 1);
    assert_eq!(hot(&store, 1).await.signals, 0);
    assert_sound(&store, 15).await;
}

#[tokio::test]
async fn the_next_send_absorbs_what_no_send_under_way_can() {
    let Opened { store, dir: _dir } = open().await;
    register(&store, 0, 1).await;
    accept(&store, 0, opening(1, 1)).await;
    accept(&store, 0, sending(2, 1)).await;
    let (absorbing, item, rings, told) =
        accepted(deliver(&store, 1, words(1, "a", OnBusy::Steer)).await);
    assert_eq!((absorbing, rings, told), (1, false, false));
    assert_eq!(item.fate, Fate::Pending);
    let claimed = claim(&store, 10, 1, 1, 1).await;
    assert_eq!(claimed.counters.signals, SIGNAL_INBOX);
    assert_sound(&store, 11).await;
}

#[tokio::test]
async fn a_session_that_cannot_take_an_item_says_why() {
    let Opened { store, dir: _dir } = open().await;
    let steer = |id: &str| words(1, id, OnBusy::Steer);
    assert_eq!(
        deliver(&store, 0, steer("a")).await,
        DeliverOutcome::NotFound
    );
    let claimed = running(&store).await;
    let few = |id: &str| DeliverItem {
        items_max: 1,
        ..steer(id)
    };
    accepted(deliver(&store, 11, few("a")).await);
    assert_eq!(deliver(&store, 12, few("b")).await, DeliverOutcome::Full);
    let item = ending(&claimed, &claimed.send.record, Then::Release);
    complete(&store, 20, item).await;
    assert_eq!(deliver(&store, 21, steer("b")).await, DeliverOutcome::Idle);
    assert_eq!(pending(&store).await, ["a"], "it waits for the next send");
    let closing = SessionPatch {
        closed: Some(true),
        ..SessionPatch::default()
    };
    let closed = store.update_session(at(22), key(1), closing).await;
    closed.expect("answers");
    assert_eq!(
        deliver(&store, 23, steer("b")).await,
        DeliverOutcome::Closed
    );
    let deleted = store.delete_session(at(24), key(1), SCHEDULER).await;
    deleted.expect("answers");
    assert_eq!(
        deliver(&store, 25, steer("b")).await,
        DeliverOutcome::NotFound
    );
}

#[tokio::test]
async fn a_repeated_item_changes_nothing() {
    let Opened { store, dir: _dir } = open().await;
    running(&store).await;
    let keyed = |id: &str, hash: u8| DeliverItem {
        idempotency: Some(IdempotencyKey {
            tenant: key(1).tenant,
            route: "POST /v1/sends".to_owned(),
            key: "k".to_owned(),
            body_hash: [hash; 32],
        }),
        ..words(1, id, OnBusy::Steer)
    };
    let first = accepted(deliver(&store, 11, keyed("a", 1)).await);
    let replayed = deliver(&store, 12, keyed("b", 1)).await;
    assert_eq!(replayed, DeliverOutcome::Replayed(send(1)));
    let mismatch = deliver(&store, 13, keyed("c", 2)).await;
    assert_eq!(mismatch, DeliverOutcome::Mismatch);
    let full = DeliverItem {
        items_max: 0,
        ..words(1, "a", OnBusy::Interrupt)
    };
    let again = accepted(deliver(&store, 14, full).await);
    assert_eq!(again, (1, first.1, false, false));
    assert_eq!(pending(&store).await, ["a"]);
    assert_eq!(hot(&store, 1).await.signals, SIGNAL_INBOX);
}

#[tokio::test]
async fn a_send_that_waits_for_time_alone_goes_on_at_once() {
    for on in [WaitingOn::Retry, WaitingOn::Timer] {
        let Opened { store, dir: _dir } = open().await;
        let claimed = running(&store).await;
        let until = ParkUntil::After(Duration::from_mins(1));
        park(&store, 20, &claimed, on, until).await;
        let (_, _, rings, told) = accepted(deliver(&store, 30, words(1, "a", OnBusy::Steer)).await);
        assert_eq!((rings, told), (true, false), "{on:?}");
        assert_eq!(hot(&store, 1).await.ready_since, at(30));
        assert_eq!(stored(&store, 1).await.alarm_at, None);
        let again = claim(&store, 31, 1, 1, 2).await;
        assert_eq!(again.counters.signals, SIGNAL_INBOX);
        assert_sound(&store, 32).await;
    }
}

#[tokio::test]
async fn an_interrupt_settles_what_a_send_waits_for() {
    let Opened { store, dir: _dir } = open().await;
    let begins = vec![waits(WaitingOn::Tool), asks()];
    waiting(&store, begins, WaitingOn::Tool).await;
    let (_, _, rings, _) = accepted(deliver(&store, 30, words(1, "a", OnBusy::Steer)).await);
    assert!(!rings, "a steer waits for the results");
    assert_eq!(hot(&store, 1).await.ready_since, None);
    let (_, _, rings, _) = accepted(deliver(&store, 31, words(1, "b", OnBusy::Interrupt)).await);
    assert!(rings);
    for place in 0..2 {
        let call = call(&store, 1, place).await;
        assert_eq!(call.result, Some(interrupted_call()));
        assert_eq!((call.waits_on, call.settled_at), (None, at(31)));
    }
    let again = claim(&store, 32, 1, 1, 2).await;
    assert_eq!(again.counters.signals, SIGNAL_INBOX | SIGNAL_INTERRUPT);
    let mut said = results(&again, Vec::new());
    said.messages = answers(&store, 1, 1).await;
    append(&store, 33, said).await;
    assert_sound(&store, 34).await;
}

#[tokio::test]
async fn a_send_that_waits_for_a_word_after_a_death_is_not_interrupted() {
    let Opened { store, dir: _dir } = open().await;
    waiting(&store, vec![waits(WaitingOn::Tool)], WaitingOn::Recovery).await;
    let (_, _, rings, _) = accepted(deliver(&store, 30, words(1, "a", OnBusy::Interrupt)).await);
    assert!(!rings);
    assert_eq!(hot(&store, 1).await.ready_since, None);
    assert_eq!(call(&store, 1, 0).await.result, None);
}

#[tokio::test]
async fn a_send_does_not_end_over_an_item_that_it_was_to_deliver() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    deliver(&store, 11, words(1, "a", OnBusy::Steer)).await;
    let mut end = ending(&claimed, &claimed.send.record, Then::Release);
    end.unless = SIGNAL_INBOX;
    let before = store.dump().await.expect("answers");
    let outcome = try_complete(&store, 20, end.clone()).await;
    assert_eq!(outcome, CompleteOutcome::Undelivered);
    let mut after = store.dump().await.expect("answers");
    assert_eq!(after.sessions[0].hot.signals, 0);
    after.sessions[0].hot.signals = SIGNAL_INBOX;
    assert_eq!(after.sessions[0].hot.writes, 1);
    after.sessions[0].hot.writes = 0;
    assert_eq!(after, before, "nothing else was written");
    let done = complete(&store, 21, end).await;
    assert_eq!(done.status, SendStatus::Completed, "it was told once");
}

#[tokio::test]
async fn a_cancel_wins_over_an_item_and_the_results_are_written_all_the_same() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    deliver(&store, 11, words(1, "a", OnBusy::Interrupt)).await;
    accept(&store, 12, sending(2, 1)).await;
    cancel(&store, 13, 1).await;
    let mut end = ending(&claimed, &claimed.send.record, Then::Continue);
    end.unless = SIGNAL_INBOX | SIGNAL_INTERRUPT;
    end.deliveries = vec![Delivery {
        item_id: "a".to_owned(),
        message: 0,
    }];
    let done = complete(&store, 20, end).await;
    assert_eq!(done.status, SendStatus::Cancelled);
    assert_eq!(inbox(&store, 1).await[0].seq, Some(1));
    let (_, counters) = done.next.expect("send 2 runs");
    assert_eq!(counters.signals, SIGNAL_INBOX, "the rest was of send 1");
    assert_sound(&store, 21).await;
}

#[tokio::test]
async fn what_a_send_did_not_deliver_is_left_to_the_next_one() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    deliver(&store, 11, words(1, "a", OnBusy::Interrupt)).await;
    let item = ending(&claimed, &claimed.send.record, Then::Release);
    complete(&store, 20, item).await;
    assert_eq!(hot(&store, 1).await.signals, SIGNAL_INBOX);
    accept(&store, 30, sending(2, 1)).await;
    let next = claim(&store, 31, 1, 1, 2).await;
    assert_eq!(next.counters.signals, SIGNAL_INBOX);
    cancel(&store, 32, 2).await;
    let parked = try_park(
        &store,
        33,
        parking(&next, WaitingOn::Retry, ParkUntil::Asked),
    )
    .await;
    assert!(
        matches!(parked, ParkOutcome::Cancelled { .. }),
        "{parked:?}"
    );
    assert_eq!(hot(&store, 1).await.signals, SIGNAL_INBOX);
    assert_eq!(pending(&store).await, ["a"]);
}

#[tokio::test]
async fn a_send_is_not_parked_over_what_it_would_wait_for() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    deliver(&store, 11, words(1, "a", OnBusy::Steer)).await;
    let mut item = parking(&claimed, WaitingOn::Tool, ParkUntil::Asked);
    item.unless = SIGNAL_INTERRUPT;
    item.usage = ending(&claimed, &claimed.send.record, Then::Release).usage;
    let unless = mainspring_shared::store::ParkSend {
        unless: SIGNAL_INBOX,
        ..item.clone()
    };
    let before = store.dump().await.expect("answers");
    let woken = try_park(&store, 20, unless.clone()).await;
    let signals = SIGNAL_INBOX;
    assert_eq!(woken, ParkOutcome::Woken { signals });
    let mut after = store.dump().await.expect("answers");
    assert_eq!(after.sessions[0].hot.signals, 0);
    after.sessions[0].hot.signals = SIGNAL_INBOX;
    after.sessions[0].hot.writes -= 1;
    assert_eq!(after, before, "nothing else was written");
    deliver(&store, 21, words(1, "b", OnBusy::Steer)).await;
    let parked = try_park(&store, 22, item).await;
    assert!(matches!(parked, ParkOutcome::Parked { .. }), "{parked:?}");
    assert_eq!(hot(&store, 1).await.signals, SIGNAL_INBOX, "it stays");
    let late = try_park(&store, 23, unless).await;
    assert_eq!(late, ParkOutcome::LeaseLost);
}

#[tokio::test]
async fn a_cancel_goes_before_what_would_wake() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    deliver(&store, 11, words(1, "a", OnBusy::Steer)).await;
    cancel(&store, 12, 1).await;
    let mut item = parking(&claimed, WaitingOn::Tool, ParkUntil::Asked);
    item.unless = SIGNAL_INBOX | SIGNAL_CANCEL;
    let parked = try_park(&store, 20, item).await;
    assert!(
        matches!(parked, ParkOutcome::Cancelled { .. }),
        "{parked:?}"
    );
}

#[tokio::test]
async fn an_inbox_is_read_piece_by_piece() {
    let Opened { store, dir: _dir } = open().await;
    running(&store).await;
    for id in ["c", "a", "b"] {
        deliver(&store, 11, words(1, id, OnBusy::Steer)).await;
    }
    let read = async |after, limit, pending| {
        let query = ReadInbox {
            key: key(1),
            pending,
            after,
            limit,
        };
        let items = store.read_inbox(query).await.expect("answers");
        items.into_iter().map(|item| (item.id, item.n)).collect()
    };
    for pending in [false, true] {
        let first: Vec<(String, i64)> = read(0, 2, pending).await;
        assert_eq!(first, [("c".to_owned(), 2), ("a".to_owned(), 3)]);
        let rest: Vec<(String, i64)> = read(3, 2, pending).await;
        assert_eq!(rest, [("b".to_owned(), 4)]);
    }
}
