//! The calls of a round, from request to answer.

use mainspring_shared::error::Code;
use mainspring_shared::message::{ContentPart, NewMessage, Role};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::step::{Step, StepKind, StepRefs};
use mainspring_shared::store::{
    AfterSend, AppendOutcome, AppendRound, CallBegin, CallStep, Inspect, SendTotals,
};
use mainspring_shared::tool::{Approval, CallRecord, CallResult, CallState, Repeat};
use serde_json::json;

use super::prelude::*;

/// A call of send 1, requested at 20 and not started.
fn requested(call_id: &str, place: i32) -> CallRecord {
    CallRecord {
        call_id: call_id.to_owned(),
        session: key(1).session,
        send_id: send(1),
        round: 0,
        place,
        name: "look".to_owned(),
        arguments: arguments(call_id),
        repeat: Repeat::Keyed,
        waits_on: None,
        approval: Approval::None,
        started_epoch: None,
        attempt: 0,
        deadline_at: None,
        asked: Vec::new(),
        result: None,
        requested_at: time(20),
        claim: None,
        settled_at: None,
    }
}

/// A result with every optional part.
fn rich() -> CallResult {
    let error = CallResult::error(Code::ToolTimeout, "too late \"by far\"\n");
    let digest = ContentPart::Digest {
        text: "read \u{1f980} \"late\"".to_owned(),
    };
    CallResult {
        content: error.content.into_iter().chain([digest]).collect(),
        whole: Some("the whole of it \u{1f980}".to_owned()),
        value: Some(Box::new(
            json!({ "n": [1.5, null, "x"], "big": 9_007_199_254_740_993_i64 }),
        )),
        ..CallResult::error(Code::ToolTimeout, "")
    }
}

pub async fn a_round_stores_its_calls_as_they_begin(store: &dyn Inspect) {
    let claimed = running(store).await;
    let for_a_tool = CallBegin::Waits {
        on: WaitingOn::Tool,
        approval: false,
        deadline: Some(millis(300)),
    };
    let begins = vec![
        CallBegin::Requested,
        CallBegin::Started,
        for_a_tool,
        asks(500),
        waits(WaitingOn::Agent),
        CallBegin::Settled(rich()),
    ];
    append(store, 20, asking(&claimed, 0, begins)).await;
    let id = |place| call(&claimed, 0, place);
    let expected = [
        requested(&id(0), 0),
        CallRecord {
            started_epoch: Some(1),
            attempt: 1,
            ..requested(&id(1), 1)
        },
        CallRecord {
            waits_on: Some(WaitingOn::Tool),
            deadline_at: at(320),
            ..requested(&id(2), 2)
        },
        CallRecord {
            waits_on: Some(WaitingOn::Human),
            approval: Approval::Asked,
            deadline_at: at(520),
            ..requested(&id(3), 3)
        },
        CallRecord {
            waits_on: Some(WaitingOn::Agent),
            ..requested(&id(4), 4)
        },
        CallRecord {
            result: Some(rich()),
            settled_at: at(20),
            ..requested(&id(5), 5)
        },
    ];
    assert_eq!(calls_of(store, &claimed, 0).await, expected);
    assert_eq!(dumped(store, 1).await.calls, expected);
    assert_eq!(call_of(store, &id(3)).await, expected[3]);
    assert_eq!(calls_of(store, &claimed, 1).await, []);
}

pub async fn the_calls_of_a_round_are_read_by_their_places(store: &dyn Inspect) {
    let claimed = running(store).await;
    let begins = || (0..12).map(|_| settled()).collect();
    for index in [0, 1, 11] {
        let mut item = asking(&claimed, index, begins());
        item.calls.reverse();
        item.messages.clear();
        append(store, 20, item).await;
    }
    for index in [0, 1, 11] {
        let calls = calls_of(store, &claimed, index).await;
        let ids: Vec<_> = calls.iter().map(|found| found.call_id.clone()).collect();
        let expected: Vec<_> = (0..12).map(|place| call(&claimed, index, place)).collect();
        assert_eq!(ids, expected, "round {index}");
        assert!(calls.iter().all(|found| found.round == index));
    }
    let dump = dumped(store, 1).await;
    assert!(dump.calls.is_sorted_by(|a, b| a.call_id < b.call_id));
    assert_eq!(dump.calls.len(), 36);
}

pub async fn changes_go_along_the_life_of_a_call(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![CallBegin::Requested])).await;
    let id = call(&claimed, 0, 0);
    let started = vec![change(&id, CallStep::Started)];
    append(store, 30, changing(&claimed, 0, started)).await;
    let mut expected = CallRecord {
        started_epoch: Some(1),
        attempt: 1,
        ..requested(&id, 0)
    };
    assert_eq!(call_of(store, &id).await, expected);
    let waits = CallStep::Waits {
        on: WaitingOn::Agent,
        deadline: Some(millis(60)),
    };
    append(store, 40, changing(&claimed, 0, vec![change(&id, waits)])).await;
    (expected.waits_on, expected.deadline_at) = (Some(WaitingOn::Agent), at(100));
    assert_eq!(expected.state(), CallState::Waits(WaitingOn::Agent));
    assert_eq!(call_of(store, &id).await, expected);
    let again = vec![change(&id, CallStep::Started)];
    append(store, 50, changing(&claimed, 0, again)).await;
    (expected.waits_on, expected.attempt) = (None, 2);
    assert_eq!(call_of(store, &id).await, expected);
    let over = vec![change(&id, CallStep::Settled(rich()))];
    append(store, 60, changing(&claimed, 0, over)).await;
    (expected.result, expected.settled_at) = (Some(rich()), at(60));
    assert_eq!(call_of(store, &id).await, expected);
}

pub async fn a_call_that_asks_waits_and_keeps_what_it_asked(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![CallBegin::Started])).await;
    let id = call(&claimed, 0, 0);
    let asks = CallStep::Asks {
        asked: vec![question("sure?", 1)],
        deadline: Some(millis(60)),
    };
    append(store, 30, changing(&claimed, 0, vec![change(&id, asks)])).await;
    let mut expected = CallRecord {
        started_epoch: Some(1),
        attempt: 1,
        waits_on: Some(WaitingOn::Human),
        deadline_at: at(90),
        asked: vec![question("sure?", 1)],
        ..requested(&id, 0)
    };
    let found = call_of(store, &id).await;
    assert_eq!(found, expected);
    assert_eq!(found.open_question().map(|(number, _)| number), Some(1));
    // Begun again, it asks once more, and later has its result: what it asked stays.
    let begun = vec![change(&id, CallStep::Started)];
    append(store, 40, changing(&claimed, 0, begun)).await;
    (expected.waits_on, expected.attempt) = (None, 2);
    assert_eq!(call_of(store, &id).await, expected);
    let both = vec![question("sure?", 1), question("\u{0}really?", 2)];
    let asks = CallStep::Asks {
        asked: both.clone(),
        deadline: None,
    };
    append(store, 50, changing(&claimed, 0, vec![change(&id, asks)])).await;
    (expected.waits_on, expected.deadline_at) = (Some(WaitingOn::Human), None);
    expected.asked = both;
    assert_eq!(call_of(store, &id).await, expected);
    let over = vec![change(&id, CallStep::Settled(rich()))];
    append(store, 60, changing(&claimed, 0, over)).await;
    (expected.waits_on, expected.settled_at) = (None, at(60));
    expected.result = Some(rich());
    assert_eq!(call_of(store, &id).await, expected);
}

pub async fn permission_stays_asked_through_another_wait(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![asks(100)])).await;
    let waits = CallStep::Waits {
        on: WaitingOn::Human,
        deadline: None,
    };
    let id = call(&claimed, 0, 0);
    append(store, 30, changing(&claimed, 0, vec![change(&id, waits)])).await;
    let found = call_of(store, &id).await;
    assert_eq!(found.approval, Approval::Asked);
    assert_eq!(
        (found.waits_on, found.deadline_at),
        (Some(WaitingOn::Human), None)
    );
    let begun = vec![change(&id, CallStep::Started)];
    append(store, 40, changing(&claimed, 0, begun)).await;
    let found = call_of(store, &id).await;
    assert_eq!(found.approval, Approval::Asked, "what was asked stays");
    assert_eq!((found.waits_on, found.attempt), (None, 1));
}

pub async fn a_settled_call_stays_as_it_is(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![settled()])).await;
    let id = call(&claimed, 0, 0);
    let before = call_of(store, &id).await;
    let waits = CallStep::Waits {
        on: WaitingOn::Tool,
        deadline: Some(millis(1)),
    };
    let changes = [CallStep::Started, waits, CallStep::Settled(rich())];
    let mut changes: Vec<_> = changes.into_iter().map(|step| change(&id, step)).collect();
    changes.push(settling("call_unknown", "nobody asked"));
    append(store, 30, changing(&claimed, 0, changes)).await;
    assert_eq!(call_of(store, &id).await, before);
    assert_eq!(dumped(store, 1).await.calls.len(), 1);
}

pub async fn changes_of_one_round_happen_in_order(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![CallBegin::Requested])).await;
    let id = call(&claimed, 0, 0);
    let changes = vec![
        change(&id, CallStep::Started),
        settling(&id, "first"),
        settling(&id, "second"),
    ];
    append(store, 30, changing(&claimed, 0, changes)).await;
    let found = call_of(store, &id).await;
    assert_eq!(found.result, Some(CallResult::text("first")));
    assert_eq!((found.attempt, found.started_epoch), (1, Some(1)));
}

pub async fn results_without_a_round_are_a_step_of_calls(store: &dyn Inspect) {
    let claimed = running(store).await;
    let begins = vec![CallBegin::Started, CallBegin::Started];
    append(store, 20, asking(&claimed, 0, begins)).await;
    let changes = vec![settling(call(&claimed, 0, 1), "b")];
    let (first_seq, step, _) = append(store, 30, changing(&claimed, 0, changes)).await;
    assert_eq!((first_seq, step), (3, 3));
    let expected = Step {
        n: 3,
        send_id: send(1),
        kind: StepKind::Calls,
        epoch: 1,
        boot: boot(1),
        at: time(30),
        refs: StepRefs::default(),
    };
    assert_eq!(
        last_step(store, 1).await,
        expected,
        "even without a message"
    );
    let changes = vec![settling(call(&claimed, 0, 0), "a")];
    let messages = vec![
        tool_result(&call(&claimed, 0, 0), 0, 1),
        tool_result(&call(&claimed, 0, 1), 0, 2),
    ];
    let item = AppendRound {
        messages: messages.clone(),
        ..changing(&claimed, 0, changes)
    };
    let (first_seq, step, _) = append(store, 40, item).await;
    assert_eq!((first_seq, step), (3, 4));
    let last = last_step(store, 1).await;
    assert_eq!((last.kind, last.refs.round), (StepKind::Calls, None));
    assert_eq!((last.refs.first_seq, last.refs.messages), (Some(3), 2));
    let all = transcript(store, 1).await;
    let numbered = messages.into_iter().zip(3..);
    let numbered: Vec<_> = numbered
        .map(|(message, seq)| message.at(seq, send(1), time(40), 1))
        .collect();
    assert_eq!(all[2..], numbered);
    let asked: Vec<_> = all[2..].iter().map(|m| m.asked_at_seq).collect();
    assert_eq!(asked, [Some(2), Some(2)], "in the batch before");
    assert_eq!(stored(store, 1).await.rounds, 1);
}

pub async fn results_ride_with_the_next_round(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![CallBegin::Started])).await;
    let mut item = asking(&claimed, 1, vec![CallBegin::Started]);
    item.changes = vec![settling(call(&claimed, 0, 0), "seen")];
    let result = tool_result(&call(&claimed, 0, 0), 0, 1);
    item.messages.insert(0, result);
    append(store, 30, item).await;
    let roles: Vec<_> = transcript(store, 1).await.iter().map(|m| m.role).collect();
    let expected = [Role::User, Role::Assistant, Role::Tool, Role::Assistant];
    assert_eq!(roles, expected);
    let states: Vec<_> = dumped(store, 1)
        .await
        .calls
        .iter()
        .map(CallRecord::state)
        .collect();
    let begun = CallState::Started { epoch: 1 };
    assert_eq!(states, [CallState::Settled, begun]);
    let last = last_step(store, 1).await;
    assert_eq!((last.kind, last.refs.messages), (StepKind::Round, 2));
}

pub async fn the_stored_calls_say_their_answers(store: &dyn Inspect) {
    let claimed = running(store).await;
    let begins = vec![CallBegin::Settled(rich()), settled()];
    append(store, 20, asking(&claimed, 0, begins)).await;
    let messages = answers_of(store, &claimed, 0).await;
    let failed = NewMessage {
        content: rich().content,
        failed: true,
        ..tool_result(&call(&claimed, 0, 0), 0, 1)
    };
    assert_eq!(messages, [failed, tool_result(&call(&claimed, 0, 1), 0, 2)]);
}

pub async fn a_final_send_settles_its_calls(store: &dyn Inspect) {
    let claimed = running(store).await;
    let begins = vec![CallBegin::Started, waits(WaitingOn::Tool)];
    append(store, 20, asking(&claimed, 0, begins)).await;
    let ids = [call(&claimed, 0, 0), call(&claimed, 0, 1)];
    let mut item = ending(&claimed, AfterSend::Release);
    item.messages = vec![tool_result(&ids[0], 0, 1), tool_result(&ids[1], 0, 2)];
    item.changes = ids.iter().map(|id| settling(id, "over")).collect();
    (item.usage, item.round) = (Vec::new(), None);
    complete(store, 30, item).await;
    for id in ids {
        let found = call_of(store, &id).await;
        assert_eq!(found.result, Some(CallResult::text("over")));
        assert_eq!((found.waits_on, found.settled_at), (None, at(30)));
    }
    let asked: Vec<_> = transcript(store, 1)
        .await
        .iter()
        .map(|m| m.asked_at_seq)
        .collect();
    assert_eq!(asked, [None, None, Some(2), Some(2)]);
}

pub async fn a_cancelled_end_settles_its_calls_too(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![CallBegin::Started])).await;
    cancel(store, 25, 1).await;
    let id = call(&claimed, 0, 0);
    let mut item = ending(&claimed, AfterSend::Release);
    item.messages = vec![tool_result(&id, 0, 1)];
    item.changes = vec![settling(&id, "over")];
    (item.usage, item.round) = (Vec::new(), None);
    complete(store, 30, item).await;
    let found = call_of(store, &id).await;
    assert_eq!(found.result, Some(CallResult::text("over")));
    assert_eq!(seqs(&transcript(store, 1).await), [1, 2, 3]);
}

pub async fn a_takeover_finds_which_calls_were_begun(store: &dyn Inspect) {
    let claimed = running(store).await;
    let begins = vec![CallBegin::Started, CallBegin::Requested, settled()];
    append(store, 20, asking(&claimed, 0, begins)).await;
    register_at(store, TTL + 1, 2).await;
    let second = claim(store, TTL + 1, 2, 1, 2).await;
    assert_eq!(second.send.record.rounds, 1);
    let states: Vec<_> = calls_of(store, &second, 0)
        .await
        .iter()
        .map(CallRecord::state)
        .collect();
    let begun = CallState::Started { epoch: 1 };
    assert_eq!(states, [begun, CallState::Requested, CallState::Settled]);
    let id = call(&claimed, 0, 0);
    let again = vec![change(&id, CallStep::Started)];
    append(store, TTL + 2, changing(&second, 0, again)).await;
    let found = call_of(store, &id).await;
    assert_eq!((found.started_epoch, found.attempt), (Some(2), 2));
    let message = "a step of calls is durable";
    assert_eq!(stored(store, 1).await.crashes, 0, "{message}");
}

pub async fn a_stale_owner_changes_no_call(store: &dyn Inspect) {
    let stale = running(store).await;
    append(store, 20, asking(&stale, 0, vec![CallBegin::Started])).await;
    release(store, 30, &stale).await;
    register(store, 2).await;
    claim(store, 40, 2, 1, 2).await;
    let before = store.dump().await.expect("the store answers");
    let mut item = asking(&stale, 1, vec![CallBegin::Started]);
    item.changes = vec![settling(call(&stale, 0, 0), "late")];
    let outcomes = store.at(time(50)).append_rounds(vec![item]).await;
    assert_eq!(
        outcomes.expect("the store answers"),
        [AppendOutcome::LeaseLost]
    );
    assert_eq!(store.dump().await.expect("the store answers"), before);
}

pub async fn a_call_of_another_session_is_left_alone(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![CallBegin::Started])).await;
    accept(store, 21, opening(2, 2)).await;
    let other = claim(store, 22, 1, 2, 2).await;
    let changes = vec![settling(call(&claimed, 0, 0), "not yours")];
    let item = AppendRound {
        totals: SendTotals::default(),
        ..changing(&other, 0, changes)
    };
    append(store, 23, item).await;
    assert_eq!(call_of(store, &call(&claimed, 0, 0)).await.result, None);
    let elsewhere = store.read_round(key(2), send(1), 0).await;
    assert_eq!(elsewhere.expect("the store answers"), []);
}

pub async fn calls_are_found_by_id_in_the_asked_order(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![settled(), settled()])).await;
    let mine = claimed.key.tenant;
    let other = mainspring_shared::id::TenantId(2);
    let ids = vec![
        (mine, call(&claimed, 0, 1)),
        (mine, "call_unknown".to_owned()),
        (other, call(&claimed, 0, 0)),
        (mine, call(&claimed, 0, 0)),
    ];
    let found = store.get_calls(ids).await.expect("the store answers");
    let places: Vec<_> = found.iter().map(|f| f.as_ref().map(|c| c.place)).collect();
    assert_eq!(places, [Some(1), None, None, Some(0)]);
}
