//! The invariants and the dump.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{
    AfterSend, AppendRound, AuditOptions, CallBegin, Dump, Inspect, ParkUntil,
};

use super::prelude::*;

async fn violated(store: &dyn Inspect, ms: i64) -> Vec<String> {
    let violations = store.at(time(ms)).audit(AuditOptions::default()).await;
    let violations = violations.expect("the store answers");
    for violation in &violations {
        assert!(!violation.rows.is_empty(), "{violation:?}");
    }
    violations.into_iter().map(|v| v.invariant).collect()
}

pub async fn an_empty_store_is_empty_and_sound(store: &dyn Inspect) {
    let dump = store.dump().await.expect("the store answers");
    assert_eq!(dump, Dump::default());
    assert_eq!(violated(store, 0).await, Vec::<String>::new());
}

pub async fn every_ordinary_step_leaves_the_store_sound(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    accept(store, 12, with(sending(3, 1), delayed(100))).await;
    append(store, 13, round(&claimed, 0)).await;
    let mut item = waiting(&claimed, WaitingOn::Retry, ParkUntil::After(millis(50)));
    item.totals = totals(1);
    park(store, 20, item).await;
    assert_eq!(violated(store, 21).await, Vec::<String>::new());
    let swept = store.at(time(200)).sweep_alarms(boot(SCHEDULER), 10).await;
    swept.expect("the store answers");
    assert_eq!(violated(store, 201).await, Vec::<String>::new());
    let claimed = claim(store, 210, 1, 1, 2).await;
    let mut item = ending(&claimed, AfterSend::Continue);
    item.messages = vec![answer("done", 1, &[])];
    item.usage = vec![usage_row(1, 2)];
    item.round = Some(round_ref(1));
    item.totals = totals(2);
    complete(store, 220, item).await;
    assert_eq!(violated(store, 221).await, Vec::<String>::new());
    register_at(store, TTL + 1, 2).await;
    let claimed = claim(store, TTL + 1, 2, 1, 3).await;
    assert_eq!(violated(store, TTL + 2).await, Vec::<String>::new());
    release(store, TTL + 3, &claimed).await;
    cancel(store, TTL + 4, 2).await;
    cancel(store, TTL + 5, 3).await;
    assert_eq!(violated(store, TTL + 6).await, Vec::<String>::new());
    accept(store, TTL + 7, opening(4, 2)).await;
    let deleted = store
        .at(time(TTL + 8))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    assert_eq!(violated(store, TTL + 9).await, Vec::<String>::new());
}

pub async fn a_round_that_nobody_paid_for_is_reported(store: &dyn Inspect) {
    let claimed = running(store).await;
    let item = AppendRound {
        usage: Vec::new(),
        ..round(&claimed, 0)
    };
    append(store, 20, item).await;
    let names = ["usage.matches_rounds", "usage.sums"];
    assert_eq!(violated(store, 21).await, names);
}

pub async fn a_call_without_a_result_is_reported_once_the_next_round_came(store: &dyn Inspect) {
    let claimed = running(store).await;
    let mut item = round(&claimed, 0);
    item.messages.pop();
    item.calls.clear();
    append(store, 20, item).await;
    append(store, 30, round(&claimed, 1)).await;
    assert_eq!(violated(store, 31).await, ["call.one_result"]);
}

pub async fn an_open_round_is_reported_once_its_send_is_final(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![settled()])).await;
    assert_eq!(violated(store, 21).await, Vec::<String>::new());
    let mut item = ending(&claimed, AfterSend::Release);
    (item.messages, item.usage, item.round) = (Vec::new(), Vec::new(), None);
    complete(store, 30, item).await;
    assert_eq!(violated(store, 31).await, ["call.one_result"]);
}

pub async fn answers_in_another_order_are_reported(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![settled(), settled()])).await;
    let mut item = changing(&claimed, 0, Vec::new());
    item.messages = vec![
        tool_result(&call(&claimed, 0, 1), 0, 1),
        tool_result(&call(&claimed, 0, 0), 0, 2),
    ];
    append(store, 30, item).await;
    assert_eq!(violated(store, 31).await, ["call.one_result"]);
}

pub async fn words_between_a_call_and_its_answer_are_reported(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![settled()])).await;
    let words = mainspring_shared::message::NewMessage::user(words(9), 0);
    let mut item = changing(&claimed, 0, Vec::new());
    item.messages = vec![words, tool_result(&call(&claimed, 0, 0), 0, 2)];
    append(store, 30, item).await;
    assert_eq!(violated(store, 31).await, ["call.one_result"]);
}

pub async fn an_answer_to_a_call_that_is_open_is_reported(store: &dyn Inspect) {
    let claimed = running(store).await;
    let mut item = asking(&claimed, 0, vec![CallBegin::Started]);
    item.messages.push(tool_result(&call(&claimed, 0, 0), 0, 1));
    append(store, 20, item).await;
    assert_eq!(violated(store, 21).await, ["call.one_result"]);
    let changes = vec![settling(call(&claimed, 0, 0), "seen")];
    append(store, 30, changing(&claimed, 0, changes)).await;
    assert_eq!(violated(store, 31).await, Vec::<String>::new());
}

pub async fn a_delivery_without_its_message_is_reported(store: &dyn Inspect) {
    let claimed = running(store).await;
    delivered(store, 15, item("a", 1, OnBusy::Steer)).await;
    let mut item = round(&claimed, 0);
    item.deliveries = vec![delivery("a", 9)];
    append(store, 20, item).await;
    assert_eq!(violated(store, 21).await, ["inbox.one_fate"]);
}

pub async fn a_child_that_nobody_reports_is_reported_after_a_minute(store: &dyn Inspect) {
    let claimed = running(store).await;
    wait_for_calls(
        store,
        20,
        &claimed,
        WaitingOn::Agent,
        vec![waits(WaitingOn::Agent)],
    )
    .await;
    accept(store, 30, child(2, 2, 1, &call(&claimed, 0, 0))).await;
    cancel(store, 40, 2).await;
    let minute = 60_000;
    assert_eq!(violated(store, 40 + minute).await, Vec::<String>::new());
    assert_eq!(violated(store, 41 + minute).await, ["child.reported"]);
    report(store, 42 + minute).await;
    assert_eq!(violated(store, 43 + minute).await, Vec::<String>::new());
}

pub async fn a_child_without_its_parent_needs_no_report(store: &dyn Inspect) {
    let claimed = running(store).await;
    wait_for_calls(
        store,
        20,
        &claimed,
        WaitingOn::Agent,
        vec![waits(WaitingOn::Agent)],
    )
    .await;
    accept(store, 30, child(2, 2, 1, &call(&claimed, 0, 0))).await;
    cancel(store, 40, 2).await;
    let deleted = store
        .at(time(50))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    assert_eq!(violated(store, 100_000).await, Vec::<String>::new());
}

pub async fn calls_words_and_children_leave_the_store_sound(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    delivered(store, 12, item("a", 1, OnBusy::Coalesce)).await;
    delivered(store, 13, item("b", 1, OnBusy::Steer)).await;
    let begins = vec![waits(WaitingOn::Tool), asks(900), waits(WaitingOn::Agent)];
    wait_for_calls(store, 14, &claimed, WaitingOn::Tool, begins).await;
    assert_eq!(violated(store, 16).await, Vec::<String>::new());
    post_text(store, 17, 1, &call(&claimed, 0, 0), "x").await;
    accept(store, 18, child(3, 3, 1, &call(&claimed, 0, 2))).await;
    cancel(store, 19, 3).await;
    report(store, 20).await;
    delivered(store, 21, item("c", 1, OnBusy::Interrupt)).await;
    assert_eq!(violated(store, 22).await, Vec::<String>::new());
    let again = claim(store, 30, 1, 1, 2).await;
    let mut told = changing(&again, 0, Vec::new());
    told.messages = answers_of(store, &again, 0).await;
    for id in ["b", "c"] {
        told.deliveries
            .push(delivery(id, told.messages.len() as u32));
        let words = mainspring_shared::message::NewMessage::user(news(id), 0);
        told.messages.push(words);
    }
    append(store, 31, told).await;
    assert_eq!(violated(store, 32).await, Vec::<String>::new());
    append(store, 33, asking(&again, 1, vec![CallBegin::Started])).await;
    release(store, 34, &again).await;
    assert_eq!(violated(store, 35).await, Vec::<String>::new());
    cancel(store, 36, 1).await;
    assert_eq!(violated(store, 37).await, Vec::<String>::new());
    let deleted = store
        .at(time(40))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    assert_eq!(violated(store, 41).await, Vec::<String>::new());
}

pub async fn a_running_send_that_nobody_takes_over_is_reported(store: &dyn Inspect) {
    running(store).await;
    let bound = AuditOptions::default().takeover_bound.as_millis() as i64;
    let within = violated(store, TTL + bound - 1).await;
    assert_eq!(within, Vec::<String>::new());
    let beyond = violated(store, TTL + bound + 1).await;
    assert_eq!(beyond, ["send.running_has_lease"]);
}

pub async fn a_dump_is_in_order(store: &dyn Inspect) {
    register(store, 2).await;
    register(store, 1).await;
    accept(store, 0, opening(5, 2)).await;
    accept(store, 0, opening(4, 1)).await;
    accept(store, 0, sending(3, 2)).await;
    let dump = store.dump().await.expect("the store answers");
    let boots: Vec<_> = dump.boots.iter().map(|boot| boot.id).collect();
    assert_eq!(boots, [boot(1), boot(2)]);
    let sessions: Vec<SessionKey> = dump.sessions.iter().map(|s| s.key).collect();
    assert_eq!(sessions, [key(1), key(2)]);
    let sends: Vec<SendId> = dump.sessions[1].sends.iter().map(|s| s.id).collect();
    assert_eq!(sends, [send(3), send(5)]);
    assert_eq!(dump.sessions[0].agent_version, Some(1));
}
