//! Calls from request to result, and how they end with their send.

use std::time::Duration;

use mainspring_shared::agent::SendOptions;
use mainspring_shared::id::TenantId;
use mainspring_shared::message::Role;
use mainspring_shared::send::{SendStatus, StopReason, WaitingOn};
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INBOX};
use mainspring_shared::step::{StepKind, StepRefs};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptSend, AppendOutcome, CallBegin, CallChange, CallStep, CancelOutcome, Claimed,
    ParkOutcome, ParkUntil, Then,
};
use mainspring_shared::time::Span;
use mainspring_shared::tool::{
    Approval, CallRecord, CallResult, CallState, Repeat, call_id, cancelled_call,
};
use mainspring_store_sqlite::SqliteStore;
use serde_json::json;

use crate::steps::*;

fn change(place: usize, change: CallStep) -> CallChange {
    CallChange {
        call_id: call_id(send(1), 0, place),
        change,
    }
}

fn settled(text: &str) -> CallStep {
    CallStep::Settled(CallResult::text(text))
}

#[tokio::test]
async fn calls_begin_as_they_are_asked_for_and_read_back() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    let whole = CallResult {
        whole: Some("all of it".to_owned()),
        value: Some(json!({ "a": [1, null] })),
        ..CallResult::text("it \u{1f980} '\"\\")
    };
    let begins = vec![
        CallBegin::Started,
        CallBegin::Requested,
        CallBegin::Waits {
            on: WaitingOn::Tool,
            approval: false,
            deadline: Some(Duration::from_millis(500)),
        },
        asks(),
        CallBegin::Settled(whole.clone()),
    ];
    append(&store, 20, calling(&claimed, begins)).await;
    let calls = store.read_round(key(1), send(1), 0).await.expect("answers");
    let requested = |place: i32| CallRecord {
        call_id: call_id(send(1), 0, place.unsigned_abs() as usize),
        session: key(1).session,
        send_id: send(1),
        round: 0,
        place,
        name: format!("tool-{place}"),
        arguments: json!({ "n": place }),
        repeat: Repeat::Once,
        waits_on: None,
        approval: Approval::None,
        started_epoch: None,
        attempt: 0,
        deadline_at: None,
        result: None,
        requested_at: at(20).expect("a time"),
        settled_at: None,
    };
    let expected = [
        CallRecord {
            started_epoch: Some(1),
            attempt: 1,
            ..requested(0)
        },
        requested(1),
        CallRecord {
            waits_on: Some(WaitingOn::Tool),
            deadline_at: at(520),
            ..requested(2)
        },
        CallRecord {
            waits_on: Some(WaitingOn::Human),
            approval: Approval::Asked,
            ..requested(3)
        },
        CallRecord {
            result: Some(whole),
            settled_at: at(20),
            ..requested(4)
        },
    ];
    assert_eq!(calls, expected);
    let ids = vec![
        (TenantId::DEFAULT, call_id(send(1), 0, 2)),
        (TenantId(7), call_id(send(1), 0, 2)),
        (TenantId::DEFAULT, call_id(send(1), 0, 5)),
    ];
    let found = store.get_calls(ids).await.expect("answers");
    assert_eq!(found, [Some(expected[2].clone()), None, None]);
    let dump = store.dump().await.expect("answers");
    assert_eq!(dump.sessions[0].calls, expected);
    assert_sound(&store, 21).await;
}

#[tokio::test]
async fn a_round_is_read_by_places_and_without_its_neighbours() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    let settled = || CallBegin::Settled(CallResult::text("so"));
    for round in [1, 10, 2] {
        let mut item = calling(&claimed, (0..12).map(|_| settled()).collect());
        for (place, call) in item.calls.iter_mut().enumerate() {
            call.call_id = call_id(send(1), round, place);
            call.round = round;
        }
        append(&store, 20, item).await;
    }
    for round in [1, 2, 10] {
        let calls = store.read_round(key(1), send(1), round).await;
        let calls = calls.expect("answers");
        let places: Vec<_> = calls.iter().map(|call| (call.round, call.place)).collect();
        let expected: Vec<_> = (0..12).map(|place| (round, place)).collect();
        assert_eq!(places, expected);
    }
    let elsewhere = store.read_round(key(2), send(1), 1).await;
    assert_eq!(elsewhere.expect("answers"), []);
    let before = store.read_round(key(1), send(1), 0).await;
    assert_eq!(before.expect("answers"), []);
}

#[tokio::test]
async fn changes_apply_in_order_and_never_to_what_is_settled() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    let begins = vec![asks(), CallBegin::Started, CallBegin::Started];
    append(&store, 20, calling(&claimed, begins)).await;
    let later = CallStep::Waits {
        on: WaitingOn::Agent,
        deadline: Some(Duration::from_millis(5)),
    };
    let unknown = CallChange {
        call_id: "call_of_nobody".to_owned(),
        change: settled("nothing"),
    };
    let changes = vec![
        change(1, settled("first")),
        change(0, CallStep::Started),
        change(1, settled("second")),
        unknown,
        change(1, CallStep::Started),
        change(2, later),
        change(0, settled("done")),
    ];
    append(&store, 30, results(&claimed, changes)).await;
    let begun = call(&store, 1, 0).await;
    assert_eq!((begun.started_epoch, begun.attempt), (Some(1), 1));
    assert_eq!((begun.waits_on, begun.approval), (None, Approval::Asked));
    assert_eq!(begun.result, Some(CallResult::text("done")));
    let first = call(&store, 1, 1).await;
    assert_eq!(first.result, Some(CallResult::text("first")));
    assert_eq!((first.settled_at, first.attempt), (at(30), 1));
    let waits = call(&store, 1, 2).await;
    assert_eq!(waits.state(), CallState::Waits(WaitingOn::Agent));
    assert_eq!((waits.deadline_at, waits.attempt), (at(35), 1));
    assert_sound(&store, 31).await;
}

#[tokio::test]
async fn a_call_of_another_session_is_left_alone() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    append(&store, 20, calling(&claimed, vec![CallBegin::Started])).await;
    accept(&store, 21, opening(2, 2)).await;
    let other = claim(&store, 22, 1, 2, 2).await;
    let changes = vec![change(0, settled("not yours"))];
    append(&store, 23, results(&other, changes)).await;
    assert_eq!(call(&store, 1, 0).await.result, None);
}

#[tokio::test]
async fn a_step_of_calls_is_a_step_of_its_own_kind_with_or_without_messages() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    append(&store, 20, calling(&claimed, vec![CallBegin::Requested])).await;
    let started = results(&claimed, vec![change(0, CallStep::Started)]);
    append(&store, 30, started).await;
    let step = last_step(&store, 1).await;
    assert_eq!(step.kind, StepKind::Calls);
    assert_eq!((step.n, step.refs), (3, StepRefs::default()));
    let changes = vec![change(0, settled("seen"))];
    append(&store, 40, results(&claimed, changes)).await;
    let mut said = results(&claimed, Vec::new());
    said.messages = answers(&store, 1, 1).await;
    append(&store, 50, said).await;
    let step = last_step(&store, 1).await;
    let refs = StepRefs {
        first_seq: Some(3),
        messages: 1,
        ..StepRefs::default()
    };
    assert_eq!((step.kind, step.refs), (StepKind::Calls, refs));
    assert_sound(&store, 51).await;
}

#[tokio::test]
async fn a_failed_tools_message_says_so() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    let begins = vec![
        CallBegin::Settled(cancelled_call()),
        CallBegin::Settled(CallResult::text("well")),
    ];
    append(&store, 20, calling(&claimed, begins)).await;
    let mut said = results(&claimed, Vec::new());
    said.messages = answers(&store, 1, 1).await;
    append(&store, 30, said).await;
    let failed: Vec<bool> = transcript(&store, 1)
        .await
        .iter()
        .map(|m| m.failed)
        .collect();
    assert_eq!(failed, [false, false, true, false]);
}

#[tokio::test]
async fn a_step_lowers_all_signals_but_a_cancel_and_says_what_they_were() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    let mode = mainspring_shared::agent::OnBusy::Steer;
    deliver(&store, 11, words(1, "i", mode)).await;
    cancel(&store, 12, 1).await;
    let AppendOutcome::Appended { counters, .. } = append(&store, 20, round(&claimed)).await else {
        panic!("the lease holds");
    };
    assert_eq!(counters.signals, SIGNAL_INBOX | SIGNAL_CANCEL);
    assert_eq!(counters.next_seq, 3);
    assert_eq!(hot(&store, 1).await.signals, SIGNAL_CANCEL);
}

/// Fails unless the calls of send 1 were ended with it and answered, by grant `epoch` at `ms`. The
/// one that had its result keeps it.
async fn assert_ended(store: &SqliteStore, ms: i64, epoch: i64) {
    let results: Vec<_> = [
        call(store, 1, 0).await.result,
        call(store, 1, 1).await.result,
        call(store, 1, 2).await.result,
    ]
    .into_iter()
    .flatten()
    .collect();
    let ended = cancelled_call();
    let kept = CallResult::text("known");
    assert_eq!(results, [ended.clone(), kept, ended]);
    let transcript = transcript(store, 1).await;
    let said: Vec<_> = transcript[2..]
        .iter()
        .map(|m| (m.role, m.tool_call_id.clone(), m.asked_at_seq, m.failed))
        .collect();
    let answered = |place, failed| {
        let id = call_id(send(1), 0, place);
        (Role::Tool, Some(id), Some(2), failed)
    };
    let expected = [answered(0, true), answered(1, false), answered(2, true)];
    assert_eq!(said, expected);
    for message in &transcript[2..] {
        assert_eq!((message.epoch, Some(message.created_at)), (epoch, at(ms)));
    }
    let step = last_step(store, 1).await;
    assert_eq!(step.kind, StepKind::Finished);
    assert_eq!((step.refs.first_seq, step.refs.messages), (Some(3), 3));
    assert_sound(store, ms + 1).await;
}

fn open_calls() -> Vec<CallBegin> {
    let known = CallBegin::Settled(CallResult::text("known"));
    vec![waits(WaitingOn::Tool), known, CallBegin::Started]
}

#[tokio::test]
async fn cancelling_a_waiting_send_answers_its_calls() {
    let Opened { store, dir: _dir } = open().await;
    waiting(&store, open_calls(), WaitingOn::Tool).await;
    let cancelled = cancel(&store, 30, 1).await;
    assert!(matches!(cancelled, CancelOutcome::Cancelled { .. }));
    assert_ended(&store, 30, 2).await;
}

#[tokio::test]
async fn cancelling_a_send_that_was_given_back_answers_its_calls() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    append(&store, 20, calling(&claimed, open_calls())).await;
    give_back(&store, 21, &claimed).await;
    let cancelled = cancel(&store, 30, 1).await;
    assert!(matches!(cancelled, CancelOutcome::Cancelled { .. }));
    assert_ended(&store, 30, 2).await;
}

async fn give_back(store: &SqliteStore, ms: i64, claimed: &Claimed) {
    let item = mainspring_shared::store::ReleaseSession {
        key: claimed.key,
        lease: claimed.lease,
        lost: false,
    };
    let released = store.release_sessions(at(ms), vec![item]).await;
    assert_eq!(released.expect("answers"), [true]);
}

#[tokio::test]
async fn a_deadline_of_a_waiting_send_answers_its_calls() {
    let Opened { store, dir: _dir } = open().await;
    register(&store, 0, 1).await;
    let item = AcceptSend {
        options: SendOptions {
            deadline: Some(Span(Duration::from_millis(100))),
            ..SendOptions::default()
        },
        ..opening(1, 1)
    };
    accept(&store, 0, item).await;
    let claimed = claim(&store, 10, 1, 1, 1).await;
    append(&store, 20, calling(&claimed, open_calls())).await;
    park(&store, 21, &claimed, WaitingOn::Tool, ParkUntil::Asked).await;
    let swept = store.sweep_alarms(at(100), SCHEDULER, 10).await;
    assert_eq!(swept.expect("answers").finished.len(), 1);
    let record = stored(&store, 1).await;
    assert_eq!(record.stop_reason, Some(StopReason::Deadline));
    assert_ended(&store, 100, 2).await;
}

#[tokio::test]
async fn a_park_that_finds_a_cancel_answers_the_calls_of_its_send() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    append(&store, 20, calling(&claimed, open_calls())).await;
    cancel(&store, 21, 1).await;
    let mut item = parking(&claimed, WaitingOn::Tool, ParkUntil::Asked);
    item.unless = SIGNAL_CANCEL;
    let parked = try_park(&store, 30, item).await;
    assert!(
        matches!(parked, ParkOutcome::Cancelled { .. }),
        "{parked:?}"
    );
    assert_eq!(stored(&store, 1).await.status, SendStatus::Cancelled);
    assert_ended(&store, 30, 1).await;
}

#[tokio::test]
async fn results_and_their_messages_may_come_with_the_end() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    append(&store, 20, calling(&claimed, vec![CallBegin::Started])).await;
    let result = CallResult::text("in the end");
    let mut end = ending(&claimed, &claimed.send.record, Then::Release);
    end.changes = vec![change(0, CallStep::Settled(result.clone()))];
    let settled = CallRecord {
        result: Some(result.clone()),
        ..call(&store, 1, 0).await
    };
    end.messages = mainspring_shared::tool::answers(&[settled]).expect("it is settled");
    end.messages.push(answer("done", 1));
    end.usage[0].round = 1;
    complete(&store, 30, end).await;
    assert_eq!(call(&store, 1, 0).await.result, Some(result));
    assert_eq!(transcript(&store, 1).await.len(), 4);
    assert_sound(&store, 31).await;
}

#[tokio::test]
async fn a_tool_that_is_too_late_lets_its_send_go_on() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    append(&store, 20, calling(&claimed, vec![waits(WaitingOn::Tool)])).await;
    let until = ParkUntil::After(Duration::from_millis(50));
    park(&store, 21, &claimed, WaitingOn::Tool, until).await;
    let early = store.sweep_alarms(at(70), SCHEDULER, 10).await;
    assert_eq!(early.expect("answers").ring, []);
    let due = store.sweep_alarms(at(71), SCHEDULER, 10).await;
    assert_eq!(due.expect("answers").ring.len(), 1);
    let again = claim(&store, 72, 1, 1, 2).await;
    assert!(again.send.resumed.is_some());
    let late = call(&store, 1, 0).await;
    assert_eq!(late.state(), CallState::Waits(WaitingOn::Tool));
    assert_sound(&store, 73).await;
}

#[tokio::test]
async fn a_deleted_session_leaves_no_call_and_no_item() {
    let Opened { store, dir: _dir } = open().await;
    waiting(&store, open_calls(), WaitingOn::Tool).await;
    let mode = mainspring_shared::agent::OnBusy::Steer;
    deliver(&store, 22, words(1, "i", mode)).await;
    accept(&store, 23, opening(2, 2)).await;
    let other = claim(&store, 24, 1, 2, 2).await;
    append(&store, 25, calling(&other, vec![CallBegin::Started])).await;
    let deleted = store.delete_session(at(30), key(1), SCHEDULER).await;
    deleted.expect("answers");
    let erased = store.erase_session(at(30), key(1), 100).await;
    assert!(!erased.expect("answers").more);
    let dump = store.dump().await.expect("answers");
    assert_eq!(dump.sessions[0].calls, []);
    assert_eq!(dump.sessions[0].inbox, []);
    assert_eq!(dump.sessions[1].calls.len(), 1, "a neighbour's stay");
    assert_sound(&store, 31).await;
}
