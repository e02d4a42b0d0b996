//! Parking sends and giving leases back.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::send::{SendStatus, StopReason, WaitingOn};
use mainspring_shared::session::shown::{Shown, ShownMemory};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT, SIGNAL_RESULT};
use mainspring_shared::step::{Step, StepKind, StepRefs};
use mainspring_shared::store::{Inspect, ParkOutcome, ParkSend, ParkUntil, SendTotals};
use mainspring_shared::tool::cancelled_call;

use super::prelude::*;

pub async fn a_parked_send_waits_and_holds_nothing(store: &dyn Inspect) {
    let claimed = running(store).await;
    let item = waiting(&claimed, WaitingOn::Tool, ParkUntil::Asked);
    let outcome = park(store, 20, item).await;
    assert_eq!(outcome, ParkOutcome::Parked { step: 2 });
    let record = stored(store, 1).await;
    assert_eq!(record.status, SendStatus::Waiting);
    assert_eq!(record.waiting_on, Some(WaitingOn::Tool));
    assert_eq!((record.alarm_at, record.finished_at), (None, None));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.owner, hot.token, hot.ready_since), (None, None, None));
    let expected = Step {
        n: 2,
        send_id: send(1),
        kind: StepKind::Waiting,
        epoch: 1,
        boot: boot(1),
        at: time(20),
        refs: StepRefs {
            reason: Some("tool".to_owned()),
            ..StepRefs::default()
        },
    };
    assert_eq!(last_step(store, 1).await, expected);
}

pub async fn a_parked_send_holds_back_those_behind_it(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    let item = waiting(&claimed, WaitingOn::Retry, ParkUntil::After(millis(100)));
    park(store, 20, item).await;
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.pending, hot.ready_since), (1, None));
    assert_eq!(stored(store, 2).await.status, SendStatus::Queued);
}

pub async fn the_alarm_is_the_earlier_of_wait_and_deadline(store: &dyn Inspect) {
    register(store, 1).await;
    for (n, until_park, alarm) in [
        (1, ParkUntil::After(millis(100)), 120),
        (2, ParkUntil::After(millis(9_000)), 5_000),
        (3, ParkUntil::Asked, 5_000),
    ] {
        accept(store, 0, with(opening(n, n), until(5_000))).await;
        let claimed = claim(store, 10, 1, n, n).await;
        let item = waiting(&claimed, WaitingOn::Timer, until_park);
        park(store, 20, item).await;
        assert_eq!(stored(store, n).await.alarm_at, at(alarm), "send {n}");
    }
}

pub async fn what_was_paid_for_before_the_wait_is_stored(store: &dyn Inspect) {
    let claimed = running(store).await;
    let shown = Some(Shown {
        from_seq: Some(3),
        notes: Some("blue".into()),
        memory: Some(ShownMemory {
            provider: "builtin".into(),
            namespace: "user/1".parse().ok(),
            entries: vec!["mem_1".into()],
            tokens: 12,
            text: Some("- likes tea".into()),
            note: None,
        }),
        ..Shown::default()
    });
    let totals = SendTotals {
        usage: cost(30),
        attempts: 3,
        counted: 3,
        not_failed: 2,
        shown: shown.clone(),
        ..SendTotals::default()
    };
    let item = ParkSend {
        usage: vec![usage_row(0, 1), usage_row(0, 3)],
        totals,
        ..waiting(&claimed, WaitingOn::Retry, ParkUntil::Asked)
    };
    park(store, 20, item).await;
    let record = stored(store, 1).await;
    assert_eq!((record.usage, record.attempts), (cost(30), 3));
    assert_eq!((record.counted, record.not_failed), (3, 2));
    assert_eq!(record.shown, shown);
    let usage = dumped(store, 1).await.usage;
    assert_eq!(usage, [(send(1), 0, 1), (send(1), 0, 3)]);
}

pub async fn a_raised_cancel_ends_the_send_instead(store: &dyn Inspect) {
    let claimed = running(store).await;
    cancel(store, 11, 1).await;
    let item = ParkSend {
        usage: vec![usage_row(0, 1)],
        ..waiting(&claimed, WaitingOn::Retry, ParkUntil::After(millis(10)))
    };
    let outcome = park(store, 20, item).await;
    let expected = ParkOutcome::Cancelled {
        step: 2,
        enqueue: None,
    };
    assert_eq!(outcome, expected);
    let record = stored(store, 1).await;
    assert_eq!(record.status, SendStatus::Cancelled);
    assert_eq!(record.stop_reason, Some(StopReason::Cancelled));
    assert_eq!((record.waiting_on, record.alarm_at), (None, None));
    let step = last_step(store, 1).await;
    assert_eq!((step.kind, step.epoch), (StepKind::Finished, 1));
    assert_eq!(step.refs.status.as_deref(), Some("cancelled"));
    let dump = dumped(store, 1).await;
    assert_eq!((dump.hot.owner, dump.hot.signals), (None, 0));
    assert_eq!(dump.hot.ready_since, None);
    assert_eq!(dump.usage.len(), 1, "what was paid for stays");
}

pub async fn a_park_that_is_cancelled_answers_the_open_calls(store: &dyn Inspect) {
    let claimed = running(store).await;
    let begins = vec![waits(WaitingOn::Tool), settled()];
    append(store, 15, asking(&claimed, 0, begins)).await;
    delivered(store, 16, item("a", 1, OnBusy::Steer)).await;
    cancel(store, 17, 1).await;
    let mut item = waiting(&claimed, WaitingOn::Tool, ParkUntil::Asked);
    item.unless = SIGNAL_INBOX;
    let outcome = park(store, 20, item).await;
    let expected = ParkOutcome::Cancelled {
        step: 3,
        enqueue: None,
    };
    assert_eq!(outcome, expected, "a cancel goes before the other signals");
    let calls = calls_of(store, &claimed, 0).await;
    assert_eq!(calls[0].result, Some(cancelled_call()));
    assert_eq!((calls[0].settled_at, calls[0].waits_on), (at(20), None));
    let expected = answers_of(store, &claimed, 0).await.into_iter().zip(3..);
    let expected: Vec<_> = expected
        .map(|(message, seq)| message.at(seq, send(1), time(20), 1))
        .collect();
    assert_eq!(transcript(store, 1).await[2..], expected);
    let refs = last_step(store, 1).await.refs;
    assert_eq!((refs.first_seq, refs.messages), (Some(3), 2));
    assert_eq!(signals(store, 1).await, SIGNAL_INBOX);
}

pub async fn what_has_come_keeps_a_send_from_waiting(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 15, asking(&claimed, 0, vec![waits(WaitingOn::Tool)])).await;
    delivered(store, 16, item("a", 1, OnBusy::Interrupt)).await;
    let mut expected = store.dump().await.expect("the store answers");
    let item = |unless| ParkSend {
        unless,
        usage: vec![usage_row(1, 7)],
        ..waiting(&claimed, WaitingOn::Tool, ParkUntil::Asked)
    };
    let outcome = park(store, 20, item(SIGNAL_RESULT | SIGNAL_INTERRUPT)).await;
    let signals = SIGNAL_INBOX | SIGNAL_INTERRUPT;
    assert_eq!(outcome, ParkOutcome::Woken { signals });
    expected.sessions[0].hot.signals = 0;
    expected.sessions[0].hot.writes += 1;
    let message = "nothing else is written";
    assert_eq!(
        store.dump().await.expect("the store answers"),
        expected,
        "{message}"
    );
    let outcome = park(store, 30, item(SIGNAL_RESULT | SIGNAL_INTERRUPT)).await;
    assert_eq!(outcome, ParkOutcome::Parked { step: 3 }, "they were told");
}

pub async fn signals_that_were_not_asked_for_let_a_send_wait(store: &dyn Inspect) {
    let claimed = running(store).await;
    delivered(store, 16, item("a", 1, OnBusy::Steer)).await;
    let mut item = waiting(&claimed, WaitingOn::Tool, ParkUntil::Asked);
    item.unless = SIGNAL_RESULT | SIGNAL_INTERRUPT;
    let outcome = park(store, 20, item).await;
    assert_eq!(outcome, ParkOutcome::Parked { step: 2 });
    assert_eq!(signals(store, 1).await, SIGNAL_INBOX, "they stay raised");
}

pub async fn a_cancelled_park_rings_for_the_next_send(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    cancel(store, 12, 1).await;
    let item = waiting(&claimed, WaitingOn::Retry, ParkUntil::After(millis(10)));
    let outcome = park(store, 20, item).await;
    let ParkOutcome::Cancelled {
        enqueue: Some(enqueue),
        ..
    } = outcome
    else {
        panic!("a session to enqueue was expected: {outcome:?}");
    };
    assert_eq!((enqueue.key, enqueue.ready_since), (key(1), time(20)));
    assert_eq!(dumped(store, 1).await.hot.ready_since, at(20));
    let next = claim(store, 30, 1, 1, 2).await;
    assert_eq!(next.send.record.id, send(2));
    assert_eq!(next.counters.signals, 0);
}

pub async fn a_wait_forgets_earlier_crashes(store: &dyn Inspect) {
    running(store).await;
    register_at(store, TTL + 1, 2).await;
    let claimed = claim(store, TTL + 1, 2, 1, 2).await;
    assert_eq!(claimed.send.record.crashes, 1);
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    park(store, TTL + 2, item).await;
    let message = "a wait is a durable step";
    assert_eq!(stored(store, 1).await.crashes, 0, "{message}");
}

pub async fn a_released_send_stays_ready_and_running(store: &dyn Inspect) {
    let claimed = running(store).await;
    let before = dumped(store, 1).await;
    assert!(release(store, 20, &claimed).await);
    let mut expected = before;
    (expected.hot.owner, expected.hot.token) = (None, None);
    assert_eq!(dumped(store, 1).await, expected);
    assert_eq!(expected.hot.ready_since, at(0));
    assert_eq!(stored(store, 1).await.status, SendStatus::Running);
    assert!(!release(store, 21, &claimed).await, "it is given back once");
}
