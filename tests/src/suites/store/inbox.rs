//! Messages for sessions that may be busy.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::error::Code;
use mainspring_shared::id::TenantId;
use mainspring_shared::inbox::{Fate, InboxItem, ItemKind};
use mainspring_shared::message::{ContentPart, NewMessage};
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT};
use mainspring_shared::store::{
    AfterSend, AuditOptions, CallBegin, DeliverItem, DeliverOutcome, IdempotencyKey, Inspect,
    ParkUntil, ReadInbox, Renewal, SessionPatch,
};
use mainspring_shared::tool::CallResult;

use super::prelude::*;

const BOTH: i32 = SIGNAL_INBOX | SIGNAL_INTERRUPT;

fn keyed(item: DeliverItem, name: &str, body: u8) -> DeliverItem {
    let request = IdempotencyKey {
        tenant: TenantId::DEFAULT,
        route: "POST /v1/sends".to_owned(),
        key: name.to_owned(),
        body_hash: [body; 32],
    };
    DeliverItem {
        idempotency: Some(request),
        ..item
    }
}

/// Send 1 waits on this, with a deadline at 9000.
async fn waits_on(store: &dyn Inspect, on: WaitingOn) {
    register(store, 1).await;
    accept(store, 0, with(opening(1, 1), until(9_000))).await;
    let claimed = claim(store, 10, 1, 1, 1).await;
    let item = waiting(&claimed, on, ParkUntil::After(millis(5_000)));
    park(store, 20, item).await;
}

pub async fn a_running_send_is_told_of_words(store: &dyn Inspect) {
    running(store).await;
    let taken = delivered(store, 20, item("a", 1, OnBusy::Steer)).await;
    let stored_item = InboxItem {
        id: "a".to_owned(),
        n: 2,
        kind: ItemKind::Message,
        mode: OnBusy::Steer,
        send_id: Some(send(1)),
        content: news("a"),
        fate: Fate::Pending,
        seq: None,
        created_at: time(20),
        settled_at: None,
    };
    let expected = Taken {
        send_id: send(1),
        item: stored_item.clone(),
        enqueue: None,
        owner: Some(boot(1)),
    };
    assert_eq!(taken, expected);
    let dump = dumped(store, 1).await;
    assert_eq!(dump.inbox, inbox(store, 1).await);
    assert_eq!(dump.inbox, [stored_item]);
    assert_eq!((dump.hot.signals, dump.steps.len()), (SIGNAL_INBOX, 1));
    let renewal = store.at(time(30)).renew_boot(boot(1), millis(TTL), 1).await;
    let expected = Renewal::Renewed {
        at: time(30),
        signals: vec![(key(1), SIGNAL_INBOX)],
    };
    assert_eq!(renewal.expect("the store answers"), expected);
}

pub async fn an_interrupt_is_a_signal_of_its_own(store: &dyn Inspect) {
    running(store).await;
    let taken = delivered(store, 20, item("a", 1, OnBusy::Interrupt)).await;
    assert_eq!((taken.enqueue, taken.owner), (None, Some(boot(1))));
    assert_eq!(taken.item.mode, OnBusy::Interrupt);
    assert_eq!(signals(store, 1).await, BOTH);
}

pub async fn a_released_send_hears_of_words_when_it_is_claimed(store: &dyn Inspect) {
    let claimed = running(store).await;
    release(store, 15, &claimed).await;
    let taken = delivered(store, 20, item("a", 1, OnBusy::Interrupt)).await;
    assert_eq!(
        (taken.send_id, taken.enqueue, taken.owner),
        (send(1), None, None)
    );
    let again = claim(store, 30, 1, 1, 2).await;
    assert_eq!(again.counters.signals, BOTH, "a claim lowers nothing");
    assert_eq!(signals(store, 1).await, BOTH);
}

pub async fn places_are_drawn_with_those_of_sends(store: &dyn Inspect) {
    running(store).await;
    delivered(store, 20, item("b", 1, OnBusy::Steer)).await;
    accept(store, 21, sending(2, 1)).await;
    delivered(store, 22, item("a", 1, OnBusy::Coalesce)).await;
    delivered(store, 23, item("c", 1, OnBusy::Steer)).await;
    assert_eq!(stored(store, 2).await.position, Some(3));
    let items: Vec<_> = inbox(store, 1)
        .await
        .into_iter()
        .map(|i| (i.id, i.n))
        .collect();
    let expected = [("b", 2), ("a", 4), ("c", 5)].map(|(id, n)| (id.to_owned(), n));
    assert_eq!(items, expected);
    assert_eq!(dumped(store, 1).await.hot.next_position, 6);
}

pub async fn words_wake_a_send_that_waits_for_time(store: &dyn Inspect) {
    register(store, 1).await;
    for on in [WaitingOn::Retry, WaitingOn::Timer] {
        for mode in [OnBusy::Steer, OnBusy::Interrupt] {
            let n = 1 + 2 * u128::from(on == WaitingOn::Timer) + u128::from(mode == OnBusy::Steer);
            accept(store, 0, with(opening(n, n), until(9_000))).await;
            let claimed = claim(store, 10, 1, n, n).await;
            let park_item = waiting(&claimed, on, ParkUntil::After(millis(5_000)));
            park(store, 20, park_item).await;
            let taken = delivered(store, 30, item("a", n, mode)).await;
            assert_eq!(taken.enqueue.expect("it goes on").ready_since, time(30));
            assert_eq!((taken.send_id, taken.owner), (send(n), None));
            let record = stored(store, n).await;
            assert_eq!(
                (record.status, record.alarm_at),
                (SendStatus::Waiting, at(9_000))
            );
            let again = claim(store, 40, 1, n, 10 + n).await;
            assert_ne!(again.counters.signals & SIGNAL_INBOX, 0);
            let reason = if on == WaitingOn::Retry {
                "retry"
            } else {
                "result"
            };
            let step = last_step(store, n).await;
            assert_eq!(step.refs.reason.as_deref(), Some(reason));
        }
    }
}

pub async fn a_steered_send_goes_on_waiting_for_others(store: &dyn Inspect) {
    register(store, 1).await;
    let others = [
        WaitingOn::Tool,
        WaitingOn::Human,
        WaitingOn::Agent,
        WaitingOn::Run,
        WaitingOn::Recovery,
    ];
    for (n, on) in (1..).zip(others) {
        accept(store, 0, opening(n, n)).await;
        let claimed = claim(store, 10, 1, n, n).await;
        wait_for_calls(store, 20, &claimed, on, vec![waits(WaitingOn::Tool)]).await;
        let taken = delivered(store, 30, item("a", n, OnBusy::Steer)).await;
        assert_eq!((taken.send_id, taken.enqueue), (send(n), None), "{on:?}");
        let hot = dumped(store, n).await.hot;
        assert_eq!((hot.ready_since, hot.signals), (None, SIGNAL_INBOX));
        let call = call_of(store, &call(&claimed, 0, 0)).await;
        assert_eq!(call.waits_on, Some(WaitingOn::Tool));
    }
}

pub async fn an_interrupt_settles_what_is_waited_for(store: &dyn Inspect) {
    let claimed = running(store).await;
    let begins = vec![
        waits(WaitingOn::Tool),
        CallBegin::Requested,
        asks(500),
        settled(),
        waits(WaitingOn::Agent),
    ];
    wait_for_calls(store, 20, &claimed, WaitingOn::Tool, begins).await;
    let taken = delivered(store, 30, item("a", 1, OnBusy::Interrupt)).await;
    assert_eq!(taken.enqueue.expect("it goes on").ready_since, time(30));
    let calls = calls_of(store, &claimed, 0).await;
    let interrupted = CallResult::error(Code::ToolInterrupted, "a message interrupted it");
    let interrupted = Some(interrupted);
    let expected = [
        &interrupted,
        &None,
        &interrupted,
        &Some(CallResult::text("seen")),
        &interrupted,
    ];
    assert_eq!(
        calls.iter().map(|c| &c.result).collect::<Vec<_>>(),
        expected
    );
    let when: Vec<_> = calls.iter().map(|c| c.settled_at).collect();
    assert_eq!(when, [at(30), None, at(30), at(20), at(30)]);
    assert!(calls.iter().all(|found| found.waits_on.is_none()));
    let again = claim(store, 40, 1, 1, 2).await;
    assert_eq!(again.counters.signals, BOTH);
    let late = post_text(store, 50, 1, &call(&claimed, 0, 0), "late").await;
    assert_eq!(late, mainspring_shared::store::PostOutcome::AlreadySettled);
}

pub async fn an_interrupt_waits_for_recovery(store: &dyn Inspect) {
    let claimed = running(store).await;
    let begins = vec![waits(WaitingOn::Tool)];
    wait_for_calls(store, 20, &claimed, WaitingOn::Recovery, begins).await;
    let taken = delivered(store, 30, item("a", 1, OnBusy::Interrupt)).await;
    assert_eq!((taken.send_id, taken.enqueue), (send(1), None));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.ready_since, hot.signals), (None, BOTH));
    let found = call_of(store, &call(&claimed, 0, 0)).await;
    assert_eq!(
        (found.result, found.waits_on),
        (None, Some(WaitingOn::Tool))
    );
}

pub async fn the_next_send_absorbs_what_no_other_does(store: &dyn Inspect) {
    register(store, 1).await;
    accept(store, 0, with(opening(1, 1), delayed(900))).await;
    accept(store, 1, sending(2, 1)).await;
    accept(store, 2, sending(3, 1)).await;
    let taken = delivered(store, 3, item("a", 1, OnBusy::Steer)).await;
    assert_eq!(
        (taken.send_id, taken.item.send_id),
        (send(2), Some(send(2)))
    );
    assert_eq!((taken.enqueue, taken.owner), (None, None));
    assert_eq!(taken.item.fate, Fate::Pending);
    assert_eq!(stored(store, 2).await.input, words(2), "the input stays");
    assert_eq!(dumped(store, 1).await.hot.ready_since, at(1));
    let claimed = claim(store, 10, 1, 1, 1).await;
    assert_eq!(claimed.counters.signals, SIGNAL_INBOX);
}

pub async fn words_join_the_last_queued_send(store: &dyn Inspect) {
    running(store).await;
    accept(store, 11, sending(3, 1)).await;
    accept(store, 12, sending(2, 1)).await;
    accept(store, 13, with(sending(4, 1), delayed(900))).await;
    let taken = delivered(store, 20, item("a", 1, OnBusy::Coalesce)).await;
    assert_eq!(taken.send_id, send(2), "the last one that has its place");
    assert_eq!((taken.enqueue, taken.owner), (None, None));
    assert_eq!((taken.item.fate, taken.item.seq), (Fate::Delivered, None));
    assert_eq!(taken.item.settled_at, at(20));
    assert_eq!(inbox(store, 1).await, [taken.item]);
    delivered(store, 21, item("b", 1, OnBusy::Coalesce)).await;
    let joined = [words(2), news("a"), news("b")].concat();
    assert_eq!(stored(store, 2).await.input, joined);
    assert_eq!(stored(store, 3).await.input, words(3));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.signals, hot.pending), (0, 2));
    assert_eq!(steps(store, 1).await.len(), 4, "joining is no step");
}

pub async fn words_join_a_queued_send_of_an_idle_worker(store: &dyn Inspect) {
    register(store, 1).await;
    accept(store, 0, opening(1, 1)).await;
    let taken = delivered(store, 1, item("a", 1, OnBusy::Coalesce)).await;
    assert_eq!(taken.send_id, send(1));
    let claimed = claim(store, 10, 1, 1, 1).await;
    assert_eq!(claimed.send.record.input, [words(1), news("a")].concat());
}

pub async fn what_nothing_absorbs_is_to_be_sent(store: &dyn Inspect) {
    register(store, 1).await;
    let created = vec![(new_session(1), None)];
    let created = store.at(time(0)).create_sessions(created).await;
    created.expect("the store answers");
    accept(store, 0, with(opening(2, 2), delayed(900))).await;
    let before = store.dump().await.expect("the store answers");
    for mode in [OnBusy::Coalesce, OnBusy::Steer, OnBusy::Interrupt] {
        for session in [1, 2] {
            let outcome = deliver(store, 1, keyed(item("a", session, mode), "k", 0)).await;
            assert_eq!(outcome, DeliverOutcome::Idle, "{mode:?}");
        }
    }
    assert_eq!(store.dump().await.expect("the store answers"), before);
    accept(store, 2, opening(3, 3)).await;
    claim(store, 3, 1, 3, 1).await;
    let outcome = deliver(store, 4, item("a", 3, OnBusy::Coalesce)).await;
    assert_eq!(outcome, DeliverOutcome::Idle, "what runs has started");
    delivered(store, 5, keyed(item("a", 3, OnBusy::Steer), "k", 1)).await;
}

pub async fn a_late_result_waits_for_the_next_send(store: &dyn Inspect) {
    let claimed = running(store).await;
    complete(store, 20, ending(&claimed, AfterSend::Release)).await;
    let late = |id: &str| DeliverItem {
        kind: ItemKind::LateResult,
        ..item(id, 1, OnBusy::Steer)
    };
    let outcome = deliver(store, 30, late("a")).await;
    let DeliverOutcome::Kept(kept) = outcome else {
        panic!("it is to be kept: {outcome:?}");
    };
    assert_eq!((kept.fate, kept.send_id), (Fate::Pending, None));
    let again = deliver(store, 31, late("a")).await;
    assert_eq!(again, DeliverOutcome::Kept(kept.clone()));
    assert_eq!(inbox(store, 1).await, [*kept]);
    let full = DeliverItem {
        items_max: 1,
        ..late("b")
    };
    assert_eq!(deliver(store, 32, full).await, DeliverOutcome::Full);
    let joining = DeliverItem {
        mode: OnBusy::Coalesce,
        ..late("b")
    };
    let outcome = deliver(store, 32, joining).await;
    assert_eq!(outcome, DeliverOutcome::Idle, "nothing is queued");
    let words = deliver(store, 33, item("c", 1, OnBusy::Steer)).await;
    assert_eq!(words, DeliverOutcome::Idle, "words are a send");
    assert!(signals(store, 1).await & SIGNAL_INBOX != 0);
    // The next send sees the signal when it starts.
    accept(store, 40, sending(2, 1)).await;
    let claimed = claim(store, 41, 1, 1, 2).await;
    assert!(claimed.counters.signals & SIGNAL_INBOX != 0);
    let mut first = round(&claimed, 0);
    first.messages.insert(1, NewMessage::user(news("a"), 0));
    first.deliveries = vec![delivery("a", 1)];
    append(store, 42, first).await;
    let told = inbox(store, 1).await.remove(0);
    assert_eq!(told.fate, Fate::Delivered);
    let violations = store.at(time(50)).audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("the store answers"), []);
}

pub async fn unknown_and_closed_sessions_take_no_words(store: &dyn Inspect) {
    running(store).await;
    let outcome = deliver(store, 11, item("a", 9, OnBusy::Steer)).await;
    assert_eq!(outcome, DeliverOutcome::NotFound);
    let closing = |closed| SessionPatch {
        closed: Some(closed),
        ..SessionPatch::default()
    };
    let closed = store
        .at(time(12))
        .update_session(key(1), closing(true))
        .await;
    closed.expect("the store answers");
    for mode in [OnBusy::Coalesce, OnBusy::Steer, OnBusy::Interrupt] {
        let outcome = deliver(store, 13, item("a", 1, mode)).await;
        assert_eq!(outcome, DeliverOutcome::Closed);
    }
    let open = store
        .at(time(14))
        .update_session(key(1), closing(false))
        .await;
    open.expect("the store answers");
    delivered(store, 15, item("a", 1, OnBusy::Steer)).await;
    let deleted = store
        .at(time(20))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    let outcome = deliver(store, 21, item("b", 1, OnBusy::Steer)).await;
    assert_eq!(outcome, DeliverOutcome::NotFound);
    assert_eq!(inbox(store, 1).await, [], "the inbox goes with its session");
    let erased = store.at(time(22)).erase_session(key(1), 100).await;
    assert!(!erased.expect("the store answers").more);
    assert_eq!(dumped(store, 1).await.inbox, []);
}

pub async fn a_repeated_item_changes_nothing(store: &dyn Inspect) {
    running(store).await;
    accept(store, 11, sending(2, 1)).await;
    for mode in [OnBusy::Interrupt, OnBusy::Coalesce] {
        let id = format!("{mode:?}");
        let first = delivered(store, 20, item(&id, 1, mode)).await;
        let before = store.dump().await.expect("the store answers");
        let other = DeliverItem {
            content: vec![ContentPart::text("something else")],
            mode: OnBusy::Steer,
            ..item(&id, 1, mode)
        };
        for repeat in [item(&id, 1, mode), other] {
            let again = delivered(store, 30, repeat).await;
            assert_eq!((again.send_id, &again.item), (first.send_id, &first.item));
            assert_eq!((again.enqueue, again.owner), (None, None));
        }
        assert_eq!(store.dump().await.expect("the store answers"), before);
    }
}

pub async fn a_key_makes_a_repeat_harmless(store: &dyn Inspect) {
    running(store).await;
    accept(store, 11, opening(2, 2)).await;
    delivered(store, 20, keyed(item("a", 1, OnBusy::Steer), "k", 0)).await;
    let before = store.dump().await.expect("the store answers");
    let again = deliver(store, 30, keyed(item("b", 2, OnBusy::Steer), "k", 0)).await;
    assert_eq!(again, DeliverOutcome::Replayed(send(1)));
    let other = deliver(store, 31, keyed(item("b", 1, OnBusy::Steer), "k", 1)).await;
    assert_eq!(other, DeliverOutcome::Mismatch);
    let idempotency = keyed(item("b", 1, OnBusy::Steer), "k", 0).idempotency;
    let send_again = mainspring_shared::store::AcceptSend {
        idempotency,
        ..sending(3, 1)
    };
    let outcome = offer(store, 32, send_again).await;
    let replayed = mainspring_shared::store::AcceptOutcome::Replayed(send(1));
    assert_eq!(
        outcome, replayed,
        "the keys of sends and of words are the same"
    );
    assert_eq!(store.dump().await.expect("the store answers"), before);
}

pub async fn refused_words_leave_their_key_free(store: &dyn Inspect) {
    running(store).await;
    let full = DeliverItem {
        items_max: 0,
        ..item("a", 1, OnBusy::Steer)
    };
    let outcome = deliver(store, 20, keyed(full, "k", 0)).await;
    assert_eq!(outcome, DeliverOutcome::Full);
    delivered(store, 21, keyed(item("a", 1, OnBusy::Steer), "k", 1)).await;
}

pub async fn a_session_has_a_bound_of_undelivered_items(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    let bounded = |id: &str, mode| DeliverItem {
        items_max: 2,
        ..item(id, 1, mode)
    };
    delivered(store, 20, bounded("a", OnBusy::Steer)).await;
    delivered(store, 21, bounded("b", OnBusy::Coalesce)).await;
    delivered(store, 22, bounded("c", OnBusy::Interrupt)).await;
    for mode in [OnBusy::Steer, OnBusy::Interrupt, OnBusy::Coalesce] {
        let outcome = deliver(store, 23, bounded("d", mode)).await;
        assert_eq!(outcome, DeliverOutcome::Full, "{mode:?}");
    }
    delivered(store, 24, bounded("c", OnBusy::Interrupt)).await;
    let mut told = round(&claimed, 0);
    told.deliveries = vec![delivery("a", 0)];
    append(store, 30, told).await;
    delivered(store, 31, bounded("d", OnBusy::Steer)).await;
}

pub async fn items_of_one_call_see_those_before_them(store: &dyn Inspect) {
    waits_on(store, WaitingOn::Retry).await;
    accept(store, 21, sending(2, 1)).await;
    let bounded = |id: &str, session, mode| DeliverItem {
        items_max: 2,
        ..item(id, session, mode)
    };
    let items = vec![
        keyed(bounded("a", 1, OnBusy::Steer), "k", 0),
        bounded("b", 9, OnBusy::Steer),
        keyed(bounded("b", 1, OnBusy::Steer), "k", 0),
        bounded("c", 1, OnBusy::Coalesce),
        bounded("d", 1, OnBusy::Interrupt),
        bounded("e", 1, OnBusy::Steer),
        bounded("a", 1, OnBusy::Steer),
    ];
    let outcomes = store
        .at(time(30))
        .deliver_items(boot(SCHEDULER), items)
        .await;
    let outcomes = outcomes.expect("the store answers");
    let ids = outcomes.iter().map(|outcome| match outcome {
        DeliverOutcome::Accepted { send_id, item, .. } => Ok((item.id.as_str(), *send_id)),
        other => Err(other.clone()),
    });
    let expected = [
        Ok(("a", send(1))),
        Err(DeliverOutcome::NotFound),
        Err(DeliverOutcome::Replayed(send(1))),
        Ok(("c", send(2))),
        Ok(("d", send(1))),
        Err(DeliverOutcome::Full),
        Ok(("a", send(1))),
    ];
    assert_eq!(ids.collect::<Vec<_>>(), expected);
    let places: Vec<_> = inbox(store, 1)
        .await
        .into_iter()
        .map(|i| (i.id, i.n))
        .collect();
    let expected = [("a", 3), ("c", 4), ("d", 5)].map(|(id, n)| (id.to_owned(), n));
    assert_eq!(places, expected);
}

pub async fn an_inbox_is_read_piece_by_piece(store: &dyn Inspect) {
    let claimed = running(store).await;
    for id in ["a", "b", "c", "d"] {
        delivered(store, 20, item(id, 1, OnBusy::Steer)).await;
    }
    let mut told = round(&claimed, 0);
    told.deliveries = vec![delivery("b", 0)];
    append(store, 30, told).await;
    let read = async |pending, after, limit| {
        let query = ReadInbox {
            key: key(1),
            pending,
            after,
            limit,
        };
        let items = store.read_inbox(query).await.expect("the store answers");
        items.into_iter().map(|item| item.id).collect::<Vec<_>>()
    };
    assert_eq!(read(false, 0, 9).await, ["a", "b", "c", "d"]);
    assert_eq!(read(true, 0, 2).await, ["a", "c"]);
    assert_eq!(read(false, 2, 2).await, ["b", "c"]);
    assert_eq!(read(true, 4, 9).await, ["d"]);
    assert!(read(true, 5, 9).await.is_empty());
    assert_eq!(inbox(store, 9).await, [], "an unknown session");
}
