//! What happens as time passes.

use mainspring_shared::agent::{OnBusy, Priority, SendOptions};
use mainspring_shared::error::Code;
use mainspring_shared::send::{SendStatus, StopReason, WaitingOn};
use mainspring_shared::session::SIGNAL_INBOX;
use mainspring_shared::step::StepKind;
use mainspring_shared::store::{
    AfterSend, AlarmSweep, ClaimOutcome, CompleteOutcome, CompleteSend, Inspect, ParkUntil, Renewal,
};
use mainspring_shared::tool::cancelled_call;

use super::prelude::*;

async fn sweep(store: &dyn Inspect, ms: i64) -> AlarmSweep {
    sweep_some(store, ms, 100).await
}

async fn sweep_some(store: &dyn Inspect, ms: i64, limit: u32) -> AlarmSweep {
    let swept = store
        .at(time(ms))
        .sweep_alarms(boot(SCHEDULER), limit)
        .await;
    swept.expect("the store answers")
}

/// The failure of a send that passed its deadline at `ms`.
async fn assert_failed(store: &dyn Inspect, ms: i64, n: u128) {
    let record = stored(store, n).await;
    assert_eq!(record.status, SendStatus::Failed);
    assert_eq!(record.stop_reason, Some(StopReason::Deadline));
    let failure = record.error.expect("a failed send says why");
    assert_eq!(failure.code, Code::SendDeadline);
    assert!(!failure.message.is_empty());
    assert_eq!((record.finished_at, record.alarm_at), (at(ms), None));
    assert_eq!(record.waiting_on, None);
    assert!(!record.cancel_requested);
}

pub async fn nothing_due_tells_when_to_look_again(store: &dyn Inspect) {
    let expected = AlarmSweep {
        now: time(5),
        ..AlarmSweep::default()
    };
    assert_eq!(sweep(store, 5).await, expected);
    accept(store, 5, with(opening(1, 1), delayed(300))).await;
    accept(store, 5, with(opening(2, 2), until(200))).await;
    let expected = AlarmSweep {
        next_alarm_at: at(205),
        now: time(6),
        ..AlarmSweep::default()
    };
    assert_eq!(sweep(store, 6).await, expected);
}

pub async fn a_delayed_send_gets_its_place_when_due(store: &dyn Inspect) {
    let options = SendOptions {
        delay: span(300),
        priority: Priority::Low,
        ..until(5_000)
    };
    accept(store, 0, with(opening(1, 1), options)).await;
    assert_eq!(sweep(store, 299).await.served, 0);
    let swept = sweep(store, 300).await;
    assert_eq!((swept.served, swept.finished.len()), (1, 0));
    assert_eq!(swept.next_alarm_at, at(5_000));
    let enqueue = one(swept.enqueue);
    assert_eq!((enqueue.key, enqueue.ready_since), (key(1), time(300)));
    assert_eq!(enqueue.priority, Priority::Low);
    let record = stored(store, 1).await;
    assert_eq!((record.position, record.alarm_at), (Some(1), at(5_000)));
    assert_eq!(record.status, SendStatus::Queued);
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.pending, hot.ready_since), (1, at(300)));
    assert_eq!(steps(store, 1).await.len(), 1, "a place is no step");
    assert_eq!(sweep(store, 301).await.served, 0);
}

pub async fn delayed_sends_get_their_places_in_the_order_they_are_due(store: &dyn Inspect) {
    accept(store, 0, with(opening(1, 1), delayed(300))).await;
    accept(store, 0, with(sending(2, 1), delayed(200))).await;
    accept(store, 0, with(sending(3, 1), delayed(100))).await;
    let swept = sweep(store, 400).await;
    assert_eq!((swept.served, swept.enqueue.len()), (3, 1));
    for (n, position) in [(3, 1), (2, 2), (1, 3)] {
        assert_eq!(stored(store, n).await.position, Some(position));
    }
    assert_eq!(dumped(store, 1).await.hot.pending, 3);
}

pub async fn a_due_send_behind_a_running_one_rings_nobody(store: &dyn Inspect) {
    running(store).await;
    accept(store, 11, with(sending(2, 1), delayed(100))).await;
    let swept = sweep(store, 200).await;
    assert_eq!((swept.served, swept.enqueue.len()), (1, 0));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.pending, hot.ready_since), (1, at(0)));
}

pub async fn a_due_send_behind_a_waiting_one_makes_nothing_ready(store: &dyn Inspect) {
    let claimed = running(store).await;
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    park(store, 20, item).await;
    accept(store, 30, with(sending(2, 1), delayed(100))).await;
    let swept = sweep(store, 200).await;
    assert_eq!((swept.served, swept.enqueue.len()), (1, 0));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.pending, hot.ready_since), (1, None));
    assert_eq!(stored(store, 2).await.position, Some(2));
}

pub async fn a_parked_retry_becomes_ready_when_due(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    let item = waiting(&claimed, WaitingOn::Retry, ParkUntil::After(millis(100)));
    park(store, 20, item).await;
    assert_eq!(sweep(store, 119).await.served, 0);
    let swept = sweep(store, 120).await;
    assert_eq!(swept.served, 1);
    assert_eq!(one(swept.enqueue).ready_since, time(120));
    let record = stored(store, 1).await;
    assert_eq!(record.status, SendStatus::Waiting, "until it is claimed");
    assert_eq!(record.alarm_at, None);
    assert_eq!(sweep(store, 121).await.served, 0);
    let again = claim(store, 130, 1, 1, 2).await;
    assert_eq!(again.send.record.id, send(1));
    assert_eq!(again.counters.pending, 1);
}

pub async fn a_queued_send_fails_at_its_deadline(store: &dyn Inspect) {
    accept(store, 0, with(opening(1, 1), until(300))).await;
    let swept = sweep(store, 300).await;
    assert_eq!(swept.finished, [(key(1), send(1), 2)]);
    assert_eq!((swept.served, swept.enqueue.len()), (1, 0));
    assert_failed(store, 300, 1).await;
    let step = last_step(store, 1).await;
    assert_eq!((step.kind, step.epoch), (StepKind::Finished, 0));
    assert_eq!(step.boot, boot(SCHEDULER));
    assert_eq!(step.refs.status.as_deref(), Some("failed"));
    assert_eq!(step.refs.reason.as_deref(), Some("deadline"));
    assert_eq!(transcript(store, 1).await, []);
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.pending, hot.ready_since), (0, None));
    register(store, 1).await;
    assert_eq!(try_claim(store, 301, 1, 1, 1).await, ClaimOutcome::Idle);
}

pub async fn a_deadline_before_the_delay_ends_the_send(store: &dyn Inspect) {
    let options = SendOptions {
        delay: span(900),
        ..until(300)
    };
    accept(store, 0, with(opening(1, 1), options)).await;
    let swept = sweep(store, 1_000).await;
    assert_eq!(swept.finished.len(), 1);
    assert_failed(store, 1_000, 1).await;
    assert_eq!(stored(store, 1).await.position, None);
    assert_eq!(dumped(store, 1).await.hot.pending, 0);
}

pub async fn a_waiting_send_fails_at_its_deadline(store: &dyn Inspect) {
    register(store, 1).await;
    accept(store, 0, with(opening(1, 1), until(300))).await;
    accept(store, 1, sending(2, 1)).await;
    let claimed = claim(store, 10, 1, 1, 1).await;
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    park(store, 20, item).await;
    let swept = sweep(store, 350).await;
    assert_eq!(swept.finished, [(key(1), send(1), 4)]);
    assert_eq!(one(swept.enqueue).ready_since, time(350));
    assert_failed(store, 350, 1).await;
    let step = last_step(store, 1).await;
    assert_eq!((step.epoch, step.boot), (2, boot(SCHEDULER)));
    assert_eq!((step.refs.first_seq, step.refs.messages), (Some(1), 1));
    let messages = transcript(store, 1).await;
    assert_eq!((messages.len(), messages[0].epoch), (1, 2));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.owner, hot.ready_since), (None, at(350)));
}

pub async fn a_send_that_waits_for_calls_fails_with_their_answers(store: &dyn Inspect) {
    register(store, 1).await;
    accept(store, 0, with(opening(1, 1), until(300))).await;
    let claimed = claim(store, 10, 1, 1, 1).await;
    let begins = vec![settled(), waits(WaitingOn::Agent)];
    wait_for_calls(store, 20, &claimed, WaitingOn::Agent, begins).await;
    delivered(store, 30, item("a", 1, OnBusy::Steer)).await;
    let swept = sweep(store, 350).await;
    assert_eq!(swept.finished, [(key(1), send(1), 4)]);
    assert_failed(store, 350, 1).await;
    let calls = calls_of(store, &claimed, 0).await;
    assert_eq!(calls[1].result, Some(cancelled_call()));
    let expected = answers_of(store, &claimed, 0).await.into_iter().zip(3..);
    let expected: Vec<_> = expected
        .map(|(message, seq)| message.at(seq, send(1), time(350), 2))
        .collect();
    assert_eq!(transcript(store, 1).await[2..], expected);
    let refs = last_step(store, 1).await.refs;
    assert_eq!((refs.first_seq, refs.messages), (Some(3), 2));
    assert_eq!(signals(store, 1).await, SIGNAL_INBOX);
}

pub async fn a_send_that_waits_too_long_for_others_becomes_ready(store: &dyn Inspect) {
    register(store, 1).await;
    let others = [
        WaitingOn::Tool,
        WaitingOn::Human,
        WaitingOn::Agent,
        WaitingOn::Run,
    ];
    for (n, on) in (1..).zip(others) {
        accept(store, 0, with(opening(n, n), until(9_000))).await;
        let claimed = claim(store, 10, 1, n, n).await;
        append(store, 15, asking(&claimed, 0, vec![waits(on)])).await;
        let item = waiting(&claimed, on, ParkUntil::After(millis(100)));
        park(store, 20, item).await;
        assert_eq!(sweep(store, 119).await.served, 0);
        let enqueue = one(sweep(store, 120).await.enqueue);
        assert_eq!(
            (enqueue.key, enqueue.ready_since),
            (key(n), time(120)),
            "{on:?}"
        );
        let found = call_of(store, &call(&claimed, 0, 0)).await;
        assert_eq!((found.waits_on, found.result), (Some(on), None));
        assert_eq!(stored(store, n).await.alarm_at, at(9_000));
        claim(store, 130, 1, n, 10 + n).await;
        let step = last_step(store, n).await;
        assert_eq!(step.refs.reason.as_deref(), Some("result"));
    }
}

pub async fn a_released_send_fails_at_its_deadline(store: &dyn Inspect) {
    register(store, 1).await;
    accept(store, 0, with(opening(1, 1), until(300))).await;
    let claimed = claim(store, 10, 1, 1, 1).await;
    append(store, 15, round(&claimed, 0)).await;
    release(store, 20, &claimed).await;
    let swept = sweep(store, 300).await;
    assert_eq!((swept.finished.len(), swept.enqueue.len()), (1, 0));
    assert_failed(store, 300, 1).await;
    assert_eq!(seqs(&transcript(store, 1).await), [1, 2, 3]);
    assert_eq!(dumped(store, 1).await.hot.ready_since, None);
}

pub async fn a_running_send_is_left_to_its_worker(store: &dyn Inspect) {
    register(store, 1).await;
    accept(store, 0, with(opening(1, 1), until(300))).await;
    let claimed = claim(store, 10, 1, 1, 1).await;
    let swept = sweep(store, 400).await;
    assert_eq!((swept.served, swept.finished.len()), (1, 0));
    let record = stored(store, 1).await;
    assert_eq!(record.status, SendStatus::Running);
    // It is checked again when the lease can no longer be held.
    assert_eq!(
        (record.alarm_at, record.deadline_at),
        (at(TTL + 1), at(300))
    );
    assert_eq!(sweep(store, 401).await.served, 0);
    append(store, 402, round(&claimed, 0)).await;
    let renewed = store
        .at(time(5_000))
        .renew_boot(boot(1), millis(TTL), 1)
        .await;
    renewed.expect("the store answers");
    let swept = sweep(store, TTL + 1).await;
    assert_eq!((swept.served, swept.finished.len()), (1, 0));
    assert_eq!(swept.next_alarm_at, at(5_000 + TTL + 1));
    // Its round was already charged.
    let item = CompleteSend {
        usage: Vec::new(),
        ..ending(&claimed, AfterSend::Release)
    };
    complete(store, TTL + 2, item).await;
    assert_eq!(stored(store, 1).await.alarm_at, None);
}

pub async fn a_running_send_whose_worker_is_dead_fails_at_its_deadline(store: &dyn Inspect) {
    register(store, 1).await;
    accept(store, 0, with(opening(1, 1), until(300))).await;
    accept(store, 1, sending(2, 1)).await;
    let claimed = claim(store, 10, 1, 1, 1).await;
    append(store, 15, round(&claimed, 0)).await;
    assert_eq!(sweep(store, 300).await.finished, []);
    let swept = sweep(store, TTL + 1).await;
    assert_eq!(swept.finished.len(), 1);
    assert_eq!(swept.begun, [(key(1), send(1))]);
    assert_eq!(one(swept.enqueue).key, key(1));
    assert_failed(store, TTL + 1, 1).await;
    let late = store
        .at(time(TTL + 2))
        .renew_boot(boot(1), millis(TTL), 1)
        .await;
    assert_eq!(late.expect("the store answers"), Renewal::Dead);
    let item = ending(&claimed, AfterSend::Continue);
    let ended = store.at(time(TTL + 2)).complete_sends(vec![item]).await;
    assert_eq!(
        one(ended.expect("the store answers")),
        CompleteOutcome::LeaseLost
    );
    register_at(store, TTL + 3, 2).await;
    let next = claim(store, TTL + 3, 2, 1, 2).await;
    assert_eq!(next.send.record.id, send(2));
}

pub async fn a_cancel_that_a_dead_worker_did_not_obey_ends_the_send(store: &dyn Inspect) {
    register(store, 1).await;
    accept(store, 0, opening(1, 1)).await;
    claim(store, 10, 1, 1, 1).await;
    cancel(store, 20, 1).await;
    assert_eq!(stored(store, 1).await.status, SendStatus::Running);
    assert_eq!(sweep(store, TTL).await.served, 0);
    let swept = sweep(store, TTL + 1).await;
    assert_eq!(swept.finished.len(), 1);
    let record = stored(store, 1).await;
    assert_eq!(record.status, SendStatus::Cancelled);
    assert_eq!((record.finished_at, record.alarm_at), (at(TTL + 1), None));
    assert_eq!(dumped(store, 1).await.hot.owner, None);
}

pub async fn the_oldest_alarms_are_served_first(store: &dyn Inspect) {
    for (n, delay) in [(1, 300), (2, 100), (3, 200)] {
        accept(store, 0, with(opening(n, n), delayed(delay))).await;
    }
    let swept = sweep_some(store, 500, 2).await;
    let due: Vec<_> = swept.enqueue.iter().map(|enqueue| enqueue.key).collect();
    assert_eq!(due, [key(2), key(3)]);
    assert_eq!((swept.served, swept.next_alarm_at), (2, at(300)));
    let swept = sweep_some(store, 500, 2).await;
    assert_eq!((swept.served, swept.next_alarm_at), (1, None));
}

pub async fn a_recovery_is_resumed_once_someone_asks(store: &dyn Inspect) {
    let claimed = running(store).await;
    let item = waiting(&claimed, WaitingOn::Recovery, ParkUntil::Asked);
    park(store, 20, item).await;
    let resumed = store
        .at(time(30))
        .resume_recovery(boot(SCHEDULER), key(1))
        .await;
    assert_eq!(resumed.expect("the store answers"), Some(send(1)));
    assert_eq!(dumped(store, 1).await.hot.ready_since, at(30));
    assert_eq!(stored(store, 1).await.status, SendStatus::Waiting);
    let again = claim(store, 40, 1, 1, 2).await;
    assert!(again.send.resumed.is_some());
}

pub async fn nothing_else_is_resumed(store: &dyn Inspect) {
    let resume = async |ms, n| {
        let resumed = store
            .at(time(ms))
            .resume_recovery(boot(SCHEDULER), key(n))
            .await;
        resumed.expect("the store answers")
    };
    assert_eq!(resume(0, 1).await, None, "unknown");
    let claimed = running(store).await;
    assert_eq!(resume(11, 1).await, None, "running");
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    park(store, 20, item).await;
    assert_eq!(resume(30, 1).await, None, "waiting for something else");
    assert_eq!(dumped(store, 1).await.hot.ready_since, None);
}
