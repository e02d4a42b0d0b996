//! Cancelling sends.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::TenantId;
use mainspring_shared::message::Role;
use mainspring_shared::send::{SendRecord, SendStatus, StopReason, WaitingOn};
use mainspring_shared::session::SIGNAL_INBOX;
use mainspring_shared::step::{Step, StepKind, StepRefs};
use mainspring_shared::store::{
    AfterSend, CallBegin, CancelOutcome, ClaimOutcome, Inspect, ParkUntil, ReadySession, Renewal,
};
use mainspring_shared::tool::cancelled_call;

use super::prelude::*;

async fn cancelled(
    store: &dyn Inspect,
    ms: i64,
    n: u128,
) -> (SendRecord, i64, Option<ReadySession>) {
    match cancel(store, ms, n).await {
        CancelOutcome::Cancelled {
            send,
            step,
            enqueue,
        } => {
            assert_eq!(*send, stored(store, n).await);
            assert_eq!(send.status, SendStatus::Cancelled);
            assert_eq!(send.stop_reason, Some(StopReason::Cancelled));
            assert_eq!((send.finished_at, send.alarm_at), (at(ms), None));
            assert_eq!((send.waiting_on, &send.error), (None, &None));
            assert!(send.cancel_requested);
            (*send, step, enqueue)
        }
        other => panic!("an end was expected: {other:?}"),
    }
}

async fn signalled(store: &dyn Inspect, ms: i64, n: u128) -> SendRecord {
    match cancel(store, ms, n).await {
        CancelOutcome::Signalled { send, owner } => {
            assert_eq!(owner, boot(1));
            assert_eq!(*send, stored(store, n).await);
            *send
        }
        other => panic!("a signal was expected: {other:?}"),
    }
}

pub async fn a_queued_send_ends_at_once(store: &dyn Inspect) {
    accept(store, 0, with(opening(1, 1), until(500))).await;
    let (_, step, enqueue) = cancelled(store, 10, 1).await;
    assert_eq!((step, enqueue), (2, None));
    let expected = Step {
        n: 2,
        send_id: send(1),
        kind: StepKind::Finished,
        epoch: 0,
        boot: boot(SCHEDULER),
        at: time(10),
        refs: StepRefs {
            reason: Some("cancelled".to_owned()),
            status: Some("cancelled".to_owned()),
            ..StepRefs::default()
        },
    };
    assert_eq!(last_step(store, 1).await, expected);
    assert_eq!(transcript(store, 1).await, []);
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.pending, hot.ready_since, hot.epoch), (0, None, 0));
    register(store, 1).await;
    assert_eq!(try_claim(store, 20, 1, 1, 1).await, ClaimOutcome::Idle);
}

pub async fn a_running_send_of_a_dead_worker_ends_at_once(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 15, round(&claimed, 0)).await;
    signalled(store, TTL, 1).await;
    let (record, _, enqueue) = cancelled(store, TTL + 1, 1).await;
    assert_eq!((record.rounds, enqueue), (1, None));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.owner, hot.token, hot.epoch), (None, None, 2));
    let late = store
        .at(time(TTL + 2))
        .renew_boot(boot(1), millis(TTL), 1)
        .await;
    assert_eq!(late.expect("the store answers"), Renewal::Dead);
}

pub async fn a_queued_send_leaves_the_others_ready(store: &dyn Inspect) {
    accept(store, 0, opening(1, 1)).await;
    accept(store, 1, sending(2, 1)).await;
    cancelled(store, 10, 1).await;
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.pending, hot.ready_since), (1, at(0)));
    register(store, 1).await;
    assert_eq!(claim(store, 20, 1, 1, 1).await.send.record.id, send(2));
}

pub async fn a_delayed_send_ends_without_its_place(store: &dyn Inspect) {
    accept(store, 0, with(opening(1, 1), delayed(500))).await;
    let (record, ..) = cancelled(store, 10, 1).await;
    assert_eq!(record.position, None);
    assert_eq!(dumped(store, 1).await.hot.pending, 0);
    let swept = store.at(time(900)).sweep_alarms(boot(SCHEDULER), 10).await;
    assert_eq!(swept.expect("the store answers").served, 0);
}

pub async fn with_only_delayed_sends_left_nothing_is_ready(store: &dyn Inspect) {
    accept(store, 0, opening(1, 1)).await;
    accept(store, 1, with(sending(2, 1), delayed(500))).await;
    cancelled(store, 10, 1).await;
    assert_eq!(dumped(store, 1).await.hot.ready_since, None);
}

pub async fn a_queued_send_behind_a_waiting_one_leaves_it_waiting(store: &dyn Inspect) {
    let claimed = running(store).await;
    let item = waiting(&claimed, WaitingOn::Retry, ParkUntil::After(millis(100)));
    park(store, 20, item).await;
    accept(store, 30, sending(2, 1)).await;
    let (_, _, enqueue) = cancelled(store, 40, 2).await;
    assert_eq!(enqueue, None);
    assert_eq!(dumped(store, 1).await.hot.ready_since, None);
    let swept = store.at(time(120)).sweep_alarms(boot(SCHEDULER), 10).await;
    swept.expect("the store answers");
    accept(store, 130, sending(3, 1)).await;
    cancelled(store, 140, 3).await;
    let message = "the retry is due and stays so";
    assert_eq!(dumped(store, 1).await.hot.ready_since, at(120), "{message}");
}

pub async fn a_waiting_send_ends_under_a_grant(store: &dyn Inspect) {
    let claimed = running(store).await;
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    park(store, 20, item).await;
    let (_, step, enqueue) = cancelled(store, 30, 1).await;
    assert_eq!((step, enqueue), (3, None));
    let expected = Step {
        n: 3,
        send_id: send(1),
        kind: StepKind::Finished,
        epoch: 2,
        boot: boot(SCHEDULER),
        at: time(30),
        refs: StepRefs {
            first_seq: Some(1),
            messages: 1,
            round: None,
            fold: None,
            reason: Some("cancelled".to_owned()),
            status: Some("cancelled".to_owned()),
        },
    };
    assert_eq!(last_step(store, 1).await, expected);
    let messages = transcript(store, 1).await;
    assert_eq!(seqs(&messages), [1]);
    assert_eq!((messages[0].role, messages[0].epoch), (Role::User, 2));
    assert_eq!(messages[0].content, words(1));
    assert_eq!((messages[0].round, messages[0].created_at), (0, time(30)));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.owner, hot.token, hot.ready_since), (None, None, None));
    assert_eq!(hot.epoch, 2);
}

pub async fn an_input_that_was_said_is_not_said_again(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 15, round(&claimed, 0)).await;
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    park(store, 20, item).await;
    cancelled(store, 30, 1).await;
    assert_eq!(seqs(&transcript(store, 1).await), [1, 2, 3]);
    let refs = last_step(store, 1).await.refs;
    assert_eq!((refs.first_seq, refs.messages), (None, 0));
}

pub async fn a_send_that_waits_for_calls_ends_with_their_answers(store: &dyn Inspect) {
    let claimed = running(store).await;
    let begins = vec![waits(WaitingOn::Tool), settled(), CallBegin::Requested];
    wait_for_calls(store, 15, &claimed, WaitingOn::Tool, begins).await;
    let (_, step, _) = cancelled(store, 30, 1).await;
    let calls = calls_of(store, &claimed, 0).await;
    for (place, when) in [(0, 30), (1, 15), (2, 30)] {
        let found = &calls[place];
        assert_eq!((found.settled_at, found.waits_on), (at(when), None));
        let is_ended = found.result == Some(cancelled_call());
        assert_eq!(is_ended, when == 30, "call {place}");
    }
    let expected = answers_of(store, &claimed, 0).await.into_iter().zip(3..);
    let expected: Vec<_> = expected
        .map(|(message, seq)| message.at(seq, send(1), time(30), 2))
        .collect();
    let all = transcript(store, 1).await;
    assert_eq!(all[2..], expected, "under the grant of the end");
    let asked: Vec<_> = expected.iter().map(|m| m.asked_at_seq).collect();
    assert_eq!(asked, [Some(2), Some(2), Some(2)]);
    let last = last_step(store, 1).await;
    assert_eq!((last.n, last.kind), (step, StepKind::Finished));
    assert_eq!((last.refs.first_seq, last.refs.messages), (Some(3), 3));
    assert_eq!(last.refs.round, None);
}

pub async fn a_released_send_ends_with_the_answers_of_its_calls(store: &dyn Inspect) {
    let claimed = running(store).await;
    let begins = vec![CallBegin::Started];
    append(store, 15, asking(&claimed, 0, begins)).await;
    release(store, 20, &claimed).await;
    cancelled(store, 30, 1).await;
    let calls = calls_of(store, &claimed, 0).await;
    assert_eq!(calls[0].result, Some(cancelled_call()));
    assert_eq!((calls[0].started_epoch, calls[0].attempt), (Some(1), 1));
    assert_eq!(seqs(&transcript(store, 1).await), [1, 2, 3]);
}

pub async fn answered_calls_are_not_answered_again(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 15, asking(&claimed, 0, vec![settled()])).await;
    let mut item = changing(&claimed, 0, Vec::new());
    item.messages = answers_of(store, &claimed, 0).await;
    append(store, 16, item).await;
    release(store, 20, &claimed).await;
    cancelled(store, 30, 1).await;
    assert_eq!(seqs(&transcript(store, 1).await), [1, 2, 3]);
    assert_eq!(last_step(store, 1).await.refs.messages, 0);
}

pub async fn the_inbox_outlives_a_cancelled_send(store: &dyn Inspect) {
    let claimed = running(store).await;
    let begins = vec![waits(WaitingOn::Tool), waits(WaitingOn::Human)];
    wait_for_calls(store, 15, &claimed, WaitingOn::Tool, begins).await;
    post_text(store, 20, 1, &call(&claimed, 0, 0), "x").await;
    delivered(store, 21, item("a", 1, OnBusy::Steer)).await;
    cancelled(store, 30, 1).await;
    assert_eq!(signals(store, 1).await, SIGNAL_INBOX, "and nothing else");
    assert_eq!(
        dumped(store, 1).await.hot.ready_since,
        None,
        "words are no work"
    );
    accept(store, 40, sending(2, 1)).await;
    let next = claim(store, 41, 1, 1, 2).await;
    assert_eq!(next.counters.signals, SIGNAL_INBOX);
}

pub async fn the_end_of_a_waiting_send_frees_those_behind_it(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    park(store, 20, item).await;
    let (_, _, enqueue) = cancelled(store, 30, 1).await;
    let enqueue = enqueue.expect("the next send can go on");
    assert_eq!((enqueue.key, enqueue.ready_since), (key(1), time(30)));
    let next = claim(store, 40, 1, 1, 2).await;
    assert_eq!((next.send.record.id, next.lease.epoch), (send(2), 3));
    assert_eq!(seqs(&next.window), [1], "what was said stays in the window");
}

pub async fn a_running_send_is_told(store: &dyn Inspect) {
    running(store).await;
    let record = signalled(store, 20, 1).await;
    assert!(record.cancel_requested);
    assert_eq!(record.status, SendStatus::Running);
    assert_eq!(dumped(store, 1).await.hot.signals, 1);
    let renewal = store.at(time(30)).renew_boot(boot(1), millis(TTL), 1).await;
    let expected = Renewal::Renewed {
        at: time(30),
        signals: vec![(key(1), 1)],
    };
    assert_eq!(renewal.expect("the store answers"), expected);
    signalled(store, 40, 1).await;
    assert_eq!(steps(store, 1).await.len(), 1, "telling is no step");
}

pub async fn a_told_send_that_was_released_ends_at_the_next_cancel(store: &dyn Inspect) {
    let claimed = running(store).await;
    signalled(store, 20, 1).await;
    release(store, 30, &claimed).await;
    let (_, _, enqueue) = cancelled(store, 40, 1).await;
    assert_eq!(enqueue, None);
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.signals, hot.ready_since, hot.epoch), (0, None, 2));
    assert_eq!(seqs(&transcript(store, 1).await), [1]);
}

pub async fn a_released_send_ends_at_once_and_rings_for_the_next(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    release(store, 20, &claimed).await;
    let (_, _, enqueue) = cancelled(store, 30, 1).await;
    assert_eq!(enqueue.expect("a send is left").ready_since, time(30));
    assert_eq!(last_step(store, 1).await.epoch, 2);
}

pub async fn the_signal_outlives_the_owner(store: &dyn Inspect) {
    running(store).await;
    signalled(store, TTL - 1, 1).await;
    let late = TTL + 1;
    register_at(store, late, 2).await;
    let claimed = claim(store, late + 1, 2, 1, 2).await;
    assert_eq!(claimed.counters.signals, 1);
    assert!(claimed.send.record.cancel_requested);
    let completed = complete(store, late + 2, ending(&claimed, AfterSend::Release)).await;
    assert_eq!(completed.status, SendStatus::Cancelled);
}

pub async fn a_final_send_stays_as_it_is(store: &dyn Inspect) {
    let claimed = running(store).await;
    complete(store, 20, ending(&claimed, AfterSend::Release)).await;
    let before = store.dump().await.expect("the store answers");
    let record = stored(store, 1).await;
    let outcome = cancel(store, 30, 1).await;
    assert_eq!(outcome, CancelOutcome::AlreadyFinal(Box::new(record)));
    assert_eq!(store.dump().await.expect("the store answers"), before);
}

pub async fn an_unknown_send_is_not_found(store: &dyn Inspect) {
    assert_eq!(cancel(store, 0, 1).await, CancelOutcome::NotFound);
    accept(store, 0, opening(1, 1)).await;
    let items = vec![(TenantId(2), send(1))];
    let outcomes = store.at(time(1)).cancel_sends(boot(SCHEDULER), items).await;
    let outcome = one(outcomes.expect("the store answers"));
    assert_eq!(outcome, CancelOutcome::NotFound, "it is another tenant's");
}

pub async fn cancels_of_one_call_have_each_their_outcome(store: &dyn Inspect) {
    running(store).await;
    accept(store, 11, sending(2, 1)).await;
    accept(store, 12, sending(3, 1)).await;
    let ids = [2, 9, 1, 3, 2].map(|n| (TenantId::DEFAULT, send(n)));
    let outcomes = store
        .at(time(20))
        .cancel_sends(boot(SCHEDULER), ids.to_vec())
        .await
        .expect("the store answers");
    let [second, unknown, first, third, again] = &outcomes[..] else {
        panic!("five outcomes were expected: {outcomes:?}");
    };
    assert!(matches!(second, CancelOutcome::Cancelled { step: 4, .. }));
    assert_eq!(unknown, &CancelOutcome::NotFound);
    assert!(matches!(first, CancelOutcome::Signalled { .. }));
    assert!(matches!(third, CancelOutcome::Cancelled { step: 5, .. }));
    assert!(matches!(again, CancelOutcome::AlreadyFinal(_)));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.pending, hot.ready_since), (0, at(0)));
}
