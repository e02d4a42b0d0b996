//! Creating, changing and deleting sessions.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::SendId;
use mainspring_shared::send::{SendStatus, StopReason, WaitingOn};
use mainspring_shared::session::{Lifecycle, SessionRecord, SessionStatus};
use mainspring_shared::step::StepKind;
use mainspring_shared::store::{
    AcceptOutcome, AfterSend, ClaimOutcome, CompleteOutcome, CreateOutcome, DeleteOutcome, Inspect,
    NewSession, ParkUntil, RefuseReason, SessionPatch, UpdateOutcome,
};
use serde_json::{Map, Value, json};

use super::prelude::*;

async fn create(store: &dyn Inspect, ms: i64, new: NewSession) -> SessionRecord {
    let outcomes = store.at(time(ms)).create_sessions(vec![(new, None)]).await;
    match one(outcomes.expect("the store answers")) {
        CreateOutcome::Created(record) => *record,
        other => panic!("a new session was expected: {other:?}"),
    }
}

async fn update(store: &dyn Inspect, ms: i64, n: u128, patch: SessionPatch) -> SessionRecord {
    let outcome = store.at(time(ms)).update_session(key(n), patch).await;
    match outcome.expect("the store answers") {
        UpdateOutcome::Updated(record) => *record,
        UpdateOutcome::NotFound => panic!("the session was expected"),
    }
}

async fn close(store: &dyn Inspect, ms: i64, n: u128, closed: bool) -> SessionRecord {
    let patch = SessionPatch {
        closed: Some(closed),
        ..SessionPatch::default()
    };
    update(store, ms, n, patch).await
}

async fn delete(store: &dyn Inspect, ms: i64, n: u128) -> DeleteOutcome {
    let outcome = store
        .at(time(ms))
        .delete_session(key(n), boot(SCHEDULER))
        .await;
    outcome.expect("the store answers")
}

async fn status(store: &dyn Inspect, n: u128) -> SessionStatus {
    let record = store.get_session(key(n)).await.expect("the store answers");
    record.expect("the session exists").status
}

fn metadata(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("an object was expected: {other}"),
    }
}

pub async fn a_created_session_reads_back(store: &dyn Inspect) {
    let new = NewSession {
        agent: AgentSpec {
            name: Some("poet".to_owned()),
            system_prompt: Some("Rhyme \"well\".\n\u{1f980} \u{e9}".to_owned()),
            temperature: Some(0.7),
            max_tokens: Some(u32::MAX),
            ..AgentSpec::default()
        },
        metadata: metadata(json!({ "team": "a", "n": 3, "deep": { "list": [1, null, "x"] } })),
        ..new_session(1)
    };
    let record = create(store, 7, new.clone()).await;
    let expected = SessionRecord {
        key: key(1),
        status: SessionStatus::Idle,
        agent: new.agent,
        agent_version: 1,
        metadata: new.metadata,
        messages: 0,
        first_seq: 1,
        parent: None,
        created_at: time(7),
        updated_at: time(7),
    };
    assert_eq!(record, expected);
    let read = store.get_session(key(1)).await.expect("the store answers");
    assert_eq!(read, Some(expected));
}

pub async fn an_unknown_session_is_none(store: &dyn Inspect) {
    let read = store.get_session(key(1)).await.expect("the store answers");
    assert_eq!(read, None);
    let outcome = store
        .at(time(0))
        .update_session(key(1), SessionPatch::default())
        .await;
    let outcome = outcome.expect("the store answers");
    assert_eq!(outcome, UpdateOutcome::NotFound);
    assert_eq!(delete(store, 0, 1).await, DeleteOutcome::NotFound);
}

pub async fn a_new_agent_is_a_new_version_and_moves_the_pool(store: &dyn Inspect) {
    create(store, 0, new_session(1)).await;
    let agent = AgentSpec {
        pool: Some("gpu".to_owned()),
        ..AgentSpec::default()
    };
    let patch = SessionPatch {
        agent: Some(agent.clone()),
        ..SessionPatch::default()
    };
    let record = update(store, 5, 1, patch).await;
    assert_eq!((record.agent_version, record.agent), (2, agent));
    assert_eq!((record.created_at, record.updated_at), (time(0), time(5)));
    let accepted = accept(store, 6, sending(1, 1)).await;
    assert_eq!(accepted.enqueue.expect("it became ready").pool, "gpu");
    register(store, 1).await;
    let claimed = claim(store, 7, 1, 1, 1).await;
    assert_eq!(claimed.send.record.agent_version, Some(2));
}

pub async fn metadata_is_replaced_whole_and_leaves_the_agent(store: &dyn Inspect) {
    let new = NewSession {
        metadata: metadata(json!({ "a": 1, "b": 2 })),
        ..new_session(1)
    };
    create(store, 0, new).await;
    let patch = SessionPatch {
        metadata: Some(metadata(json!({ "c": [] }))),
        ..SessionPatch::default()
    };
    let record = update(store, 5, 1, patch).await;
    assert_eq!(record.metadata, metadata(json!({ "c": [] })));
    assert_eq!(record.agent_version, 1);
}

pub async fn a_closed_session_takes_no_sends_until_it_is_reopened(store: &dyn Inspect) {
    create(store, 0, new_session(1)).await;
    let closed = close(store, 1, 1, true).await;
    assert_eq!(closed.status, SessionStatus::Closed);
    let refused = offer(store, 2, sending(1, 1)).await;
    assert_eq!(refused, AcceptOutcome::Refused(RefuseReason::SessionClosed));
    let open = close(store, 3, 1, false).await;
    assert_eq!(open.status, SessionStatus::Idle);
    accept(store, 4, sending(1, 1)).await;
}

pub async fn closing_leaves_accepted_work_to_be_done(store: &dyn Inspect) {
    accept(store, 0, opening(1, 1)).await;
    accept(store, 1, sending(2, 1)).await;
    close(store, 2, 1, true).await;
    register(store, 1).await;
    let claimed = claim(store, 3, 1, 1, 1).await;
    let completed = complete(store, 4, ending(&claimed, AfterSend::Continue)).await;
    let (next, _) = completed.next.expect("the second send goes on");
    assert_eq!(next.record.id, send(2));
    assert_eq!(status(store, 1).await, SessionStatus::Closed);
}

pub async fn a_session_says_where_it_stands(store: &dyn Inspect) {
    create(store, 0, new_session(1)).await;
    assert_eq!(status(store, 1).await, SessionStatus::Idle);
    accept(store, 0, with(sending(9, 1), delayed(60_000))).await;
    assert_eq!(status(store, 1).await, SessionStatus::Idle, "delayed only");
    accept(store, 1, sending(1, 1)).await;
    assert_eq!(status(store, 1).await, SessionStatus::Queued);
    register(store, 1).await;
    let claimed = claim(store, 2, 1, 1, 1).await;
    assert_eq!(status(store, 1).await, SessionStatus::Running);
    let item = waiting(&claimed, WaitingOn::Recovery, ParkUntil::Asked);
    park(store, 3, item).await;
    assert_eq!(status(store, 1).await, SessionStatus::Waiting);
    let resumed = store
        .at(time(4))
        .resume_recovery(boot(SCHEDULER), key(1))
        .await;
    assert_eq!(resumed.expect("the store answers"), Some(send(1)));
    assert_eq!(status(store, 1).await, SessionStatus::Queued);
    claim(store, 5, 1, 1, 2).await;
    let stopped = store.at(time(6)).stop_boot(boot(1)).await;
    stopped.expect("the store answers");
    assert_eq!(
        status(store, 1).await,
        SessionStatus::Queued,
        "the owner gave it back"
    );
    register(store, 2).await;
    let claimed = claim(store, 7, 2, 1, 3).await;
    complete(store, 8, ending(&claimed, AfterSend::Release)).await;
    assert_eq!(status(store, 1).await, SessionStatus::Idle);
    close(store, 9, 1, true).await;
    assert_eq!(status(store, 1).await, SessionStatus::Closed);
}

pub async fn deleting_ends_every_open_send_under_a_grant(store: &dyn Inspect) {
    running(store).await;
    accept(store, 11, with(sending(3, 1), delayed(900))).await;
    accept(store, 12, sending(2, 1)).await;
    let steps_before = steps(store, 1).await.len() as i64;
    let outcome = delete(store, 20, 1).await;
    let expected = DeleteOutcome::Deleted {
        cancelled: vec![send(1), send(2), send(3)],
        owner: Some(boot(1)),
        last_step: steps_before + 3,
    };
    assert_eq!(outcome, expected);
    for n in 1..=3 {
        let record = stored(store, n).await;
        assert_eq!(record.status, SendStatus::Cancelled);
        assert_eq!(record.stop_reason, Some(StopReason::Cancelled));
        assert_eq!((record.finished_at, record.alarm_at), (at(20), None));
        assert_eq!((record.waiting_on, record.error), (None, None));
    }
    let finals: Vec<SendId> = steps(store, 1)
        .await
        .into_iter()
        .filter(|step| step.kind == StepKind::Finished)
        .inspect(|step| assert_eq!((step.epoch, step.boot), (2, boot(SCHEDULER))))
        .map(|step| step.send_id)
        .collect();
    assert_eq!(finals, [send(1), send(2), send(3)]);
}

pub async fn deleting_takes_the_lease_away(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 15, round(&claimed, 0)).await;
    delete(store, 20, 1).await;
    let lost = store
        .at(time(21))
        .complete_sends(vec![ending(&claimed, AfterSend::Release)])
        .await;
    assert_eq!(
        lost.expect("the store answers"),
        [CompleteOutcome::LeaseLost]
    );
    let erased = store.at(time(22)).erase_session(key(1), 100).await;
    assert!(!erased.expect("the store answers").more);
    let dump = dumped(store, 1).await;
    assert_eq!(
        (dump.messages.len(), dump.calls.len(), dump.usage.len()),
        (0, 0, 0)
    );
    assert_eq!(dump.agent_version, None);
    assert_eq!(dump.hot.lifecycle, Lifecycle::Deleted);
    assert_eq!((dump.hot.owner, dump.hot.token), (None, None));
    assert_eq!((dump.hot.pending, dump.hot.signals), (0, 0));
    assert_eq!((dump.hot.ready_since, dump.hot.epoch), (None, 2));
}

pub async fn a_deleted_session_is_gone_but_for_its_sends(store: &dyn Inspect) {
    accept(store, 0, opening(1, 1)).await;
    delete(store, 1, 1).await;
    let read = store.get_session(key(1)).await.expect("the store answers");
    assert_eq!(read, None);
    assert_eq!(transcript(store, 1).await, []);
    assert_eq!(delete(store, 2, 1).await, DeleteOutcome::NotFound);
    let refused = offer(store, 3, sending(2, 1)).await;
    assert_eq!(
        refused,
        AcceptOutcome::Refused(RefuseReason::SessionNotFound)
    );
    let outcome = store
        .at(time(4))
        .update_session(key(1), SessionPatch::default())
        .await;
    let outcome = outcome.expect("the store answers");
    assert_eq!(outcome, UpdateOutcome::NotFound);
    register(store, 1).await;
    assert_eq!(try_claim(store, 5, 1, 1, 1).await, ClaimOutcome::Idle);
    assert_eq!(stored(store, 1).await.status, SendStatus::Cancelled);
    assert_eq!(
        steps(store, 1).await.len(),
        2,
        "its steps stay as evidence too"
    );
}

pub async fn deleting_an_idle_session_ends_nothing(store: &dyn Inspect) {
    create(store, 0, new_session(1)).await;
    let expected = DeleteOutcome::Deleted {
        cancelled: Vec::new(),
        owner: None,
        last_step: 0,
    };
    assert_eq!(delete(store, 1, 1).await, expected);
}

pub async fn deleting_a_waiting_send_leaves_no_message(store: &dyn Inspect) {
    let claimed = running(store).await;
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    park(store, 20, item).await;
    let outcome = delete(store, 30, 1).await;
    let DeleteOutcome::Deleted {
        cancelled, owner, ..
    } = outcome
    else {
        panic!("a deleted session was expected: {outcome:?}");
    };
    assert_eq!((cancelled, owner), (vec![send(1)], None));
    assert_eq!(last_step(store, 1).await.refs.messages, 0);
    assert_eq!(stored(store, 1).await.waiting_on, None);
}

pub async fn a_change_shows_the_session_at_its_own_time(store: &dyn Inspect) {
    running(store).await;
    let patch = SessionPatch {
        metadata: Some(Map::new()),
        ..SessionPatch::default()
    };
    let held = update(store, TTL, 1, patch.clone()).await;
    assert_eq!(held.status, SessionStatus::Running);
    let orphaned = update(store, TTL + 1, 1, patch).await;
    assert_eq!(orphaned.status, SessionStatus::Queued);
}
