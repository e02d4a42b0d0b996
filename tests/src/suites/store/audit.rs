//! The invariants and the dump.

use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{AppendRound, AuditOptions, Dump, ParkUntil, Store, Then};

use super::prelude::*;

async fn violated(store: &dyn Store, ms: i64) -> Vec<String> {
    let violations = store.audit(at(ms), AuditOptions::default()).await;
    let violations = violations.expect("the store answers");
    for violation in &violations {
        assert!(!violation.rows.is_empty(), "{violation:?}");
    }
    violations.into_iter().map(|v| v.invariant).collect()
}

pub async fn an_empty_store_is_empty_and_sound(store: &dyn Store) {
    let dump = store.dump().await.expect("the store answers");
    assert_eq!(dump, Dump::default());
    assert_eq!(violated(store, 0).await, Vec::<String>::new());
}

pub async fn every_ordinary_step_leaves_the_store_sound(store: &dyn Store) {
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    accept(store, 12, with(sending(3, 1), delayed(100))).await;
    append(store, 13, round(&claimed, 0)).await;
    let item = waiting(&claimed, WaitingOn::Retry, ParkUntil::After(millis(50)));
    park(store, 20, item).await;
    assert_eq!(violated(store, 21).await, Vec::<String>::new());
    let swept = store.sweep_alarms(at(200), boot(SCHEDULER), 10).await;
    swept.expect("the store answers");
    assert_eq!(violated(store, 201).await, Vec::<String>::new());
    let claimed = claim(store, 210, 1, 1, 2).await;
    let mut item = ending(&claimed, Then::Continue);
    item.messages = vec![answer("done", 1, &[])];
    item.usage = vec![usage_row(1, 2)];
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
    let deleted = store.delete_session(at(TTL + 8), key(1), boot(SCHEDULER));
    deleted.await.expect("the store answers");
    assert_eq!(violated(store, TTL + 9).await, Vec::<String>::new());
}

pub async fn a_round_that_nobody_paid_for_is_reported(store: &dyn Store) {
    let claimed = running(store).await;
    let item = AppendRound {
        usage: Vec::new(),
        ..round(&claimed, 0)
    };
    append(store, 20, item).await;
    assert_eq!(violated(store, 21).await, ["usage.matches_rounds"]);
}

pub async fn a_call_without_a_result_is_reported_once_the_next_round_came(store: &dyn Store) {
    let claimed = running(store).await;
    let mut item = round(&claimed, 0);
    item.messages.pop();
    item.calls.clear();
    append(store, 20, item).await;
    append(store, 30, round(&claimed, 1)).await;
    assert_eq!(violated(store, 31).await, ["call.one_result"]);
}

pub async fn a_running_send_that_nobody_takes_over_is_reported(store: &dyn Store) {
    running(store).await;
    let bound = AuditOptions::default().takeover_bound.as_millis() as i64;
    let within = violated(store, TTL + bound - 1).await;
    assert_eq!(within, Vec::<String>::new());
    let beyond = violated(store, TTL + bound + 1).await;
    assert_eq!(beyond, ["send.running_has_lease"]);
}

pub async fn a_dump_is_in_order(store: &dyn Store) {
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
