//! Results and permissions from outside.

use mainspring_shared::id::SessionId;
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::SIGNAL_RESULT;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptSend, CallAnswer, CallBegin, NewSession, Parent, ParkUntil, PostOutcome, PostResult,
    Target,
};
use mainspring_shared::tool::{Approval, CallResult, CallState, call_id};
use mainspring_store_sqlite::SqliteStore;
use uuid::Uuid;

use crate::steps::*;

fn said(text: &str) -> CallAnswer {
    CallAnswer::Result(CallResult::text(text))
}

/// Whether an accepted answer rings, and whether a boot has to hear of it.
fn accepted(outcome: PostOutcome) -> (bool, bool) {
    match outcome {
        PostOutcome::Accepted { ring, owner, .. } => (ring.is_some(), owner.is_some()),
        other => panic!("an answer was expected to be accepted: {other:?}"),
    }
}

#[tokio::test]
async fn a_send_goes_on_with_the_last_result_that_it_waits_for() {
    let Opened { store, dir: _dir } = open().await;
    let begins = vec![
        waits(WaitingOn::Tool),
        waits(WaitingOn::Human),
        CallBegin::Requested,
    ];
    waiting(&store, begins, WaitingOn::Tool).await;
    let first = post(&store, 30, 1, (1, 0), said("one")).await;
    let expected = PostOutcome::Accepted {
        key: key(1),
        send_id: send(1),
        ring: None,
        owner: None,
    };
    assert_eq!(first, expected);
    assert_eq!(hot(&store, 1).await.ready_since, None);
    assert_eq!(hot(&store, 1).await.signals, SIGNAL_RESULT);
    let again = post(&store, 31, 1, (1, 0), said("other")).await;
    assert_eq!(again, PostOutcome::AlreadySettled);
    let last = post(&store, 32, 1, (1, 1), said("two")).await;
    assert_eq!(accepted(last), (true, false));
    assert_eq!(hot(&store, 1).await.ready_since, at(32));
    let call = call(&store, 1, 0).await;
    assert_eq!(call.result, Some(CallResult::text("one")));
    assert_eq!((call.settled_at, call.waits_on), (at(30), None));
    let again = claim(&store, 33, 1, 1, 2).await;
    assert_eq!(again.counters.signals, SIGNAL_RESULT);
    let resumed = last_step(&store, 1).await;
    assert_eq!(resumed.refs.reason.as_deref(), Some("result"));
    assert_sound(&store, 34).await;
}

#[tokio::test]
async fn a_running_send_is_told_by_a_signal() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    let begins = vec![waits(WaitingOn::Tool), CallBegin::Started];
    append(&store, 20, calling(&claimed, begins)).await;
    let outcome = post(&store, 30, 1, (1, 0), said("one")).await;
    let expected = PostOutcome::Accepted {
        key: key(1),
        send_id: send(1),
        ring: None,
        owner: Some(boot(1)),
    };
    assert_eq!(outcome, expected);
    assert_eq!(hot(&store, 1).await.signals, SIGNAL_RESULT);
    let here = post(&store, 31, 1, (1, 1), said("not yours")).await;
    assert_eq!(here, PostOutcome::NotWaiting);
}

#[tokio::test]
async fn a_permitted_call_is_the_workers_to_run() {
    let Opened { store, dir: _dir } = open().await;
    waiting(
        &store,
        vec![asks(), waits(WaitingOn::Tool)],
        WaitingOn::Human,
    )
    .await;
    let tool = post(&store, 30, 1, (1, 1), CallAnswer::Approve).await;
    assert_eq!(tool, PostOutcome::NotWaiting, "nobody asked for permission");
    assert_eq!(
        accepted(post(&store, 31, 1, (1, 1), said("seen")).await),
        (false, false)
    );
    let given = post(&store, 32, 1, (1, 0), CallAnswer::Approve).await;
    assert_eq!(accepted(given), (true, false));
    let call = call(&store, 1, 0).await;
    assert_eq!(call.state(), CallState::Requested);
    assert_eq!((call.approval, call.deadline_at), (Approval::Given, None));
    for answer in [CallAnswer::Approve, said("no")] {
        let late = post(&store, 33, 1, (1, 0), answer).await;
        assert_eq!(late, PostOutcome::NotWaiting);
    }
    assert_sound(&store, 34).await;
}

#[tokio::test]
async fn a_call_that_waits_for_permission_can_be_refused() {
    let Opened { store, dir: _dir } = open().await;
    waiting(&store, vec![asks()], WaitingOn::Human).await;
    let refused = post(&store, 30, 1, (1, 0), said("no")).await;
    assert_eq!(accepted(refused), (true, false));
    let call = call(&store, 1, 0).await;
    assert_eq!(call.result, Some(CallResult::text("no")));
    assert_eq!(call.approval, Approval::Asked);
}

#[tokio::test]
async fn what_a_call_does_not_wait_for_cannot_be_posted() {
    let Opened { store, dir: _dir } = open().await;
    let ours = [WaitingOn::Agent, WaitingOn::Run, WaitingOn::Timer];
    waiting(&store, ours.map(waits).to_vec(), WaitingOn::Agent).await;
    for place in 0..3 {
        let outcome = post(&store, 30, 1, (1, place), said("guess")).await;
        assert_eq!(outcome, PostOutcome::NotWaiting);
    }
    assert_eq!(hot(&store, 1).await.signals, 0);
}

#[tokio::test]
async fn a_send_that_waits_for_something_else_only_gets_the_signal() {
    let Opened { store, dir: _dir } = open().await;
    waiting(&store, vec![waits(WaitingOn::Tool)], WaitingOn::Recovery).await;
    let outcome = post(&store, 30, 1, (1, 0), said("one")).await;
    assert_eq!(accepted(outcome), (false, false));
    assert_eq!(hot(&store, 1).await.signals, SIGNAL_RESULT);
    assert_eq!(stored(&store, 1).await.status, SendStatus::Waiting);
}

#[tokio::test]
async fn results_of_one_call_of_the_port_see_those_before_them() {
    let Opened { store, dir: _dir } = open().await;
    let begins = vec![waits(WaitingOn::Tool), waits(WaitingOn::Tool)];
    waiting(&store, begins, WaitingOn::Tool).await;
    let item = |place, text: &str| PostResult {
        key: key(1),
        call_id: call_id(send(1), 0, place),
        answer: said(text),
    };
    let items = vec![item(0, "a"), item(0, "b"), item(1, "c"), item(2, "d")];
    let outcomes = store.post_results(at(30), items).await.expect("answers");
    let [first, second, third, fourth] = outcomes.try_into().expect("four outcomes");
    assert_eq!(accepted(first), (false, false));
    assert_eq!(second, PostOutcome::AlreadySettled);
    assert_eq!(accepted(third), (true, false));
    assert_eq!(fourth, PostOutcome::Unknown);
    let result = call(&store, 1, 0).await.result;
    assert_eq!(result, Some(CallResult::text("a")));
}

/// Sessions 1 to `last`, each the child of the one before; the last asks in send `last`.
async fn chain(store: &SqliteStore, last: u128) {
    register(store, 0, 1).await;
    for n in 1..=last {
        let parent = (n > 1).then(|| Parent {
            session: SessionId(Uuid::from_u128(n - 1)),
            call_id: format!("call_{n}"),
            root: key(1).session,
            depth: i32::try_from(n - 1).expect("a short chain"),
        });
        let new = NewSession {
            parent,
            ..new_session(n)
        };
        let item = AcceptSend {
            target: Target::New(Box::new(new)),
            ..sending(n, n)
        };
        accept(store, 0, item).await;
    }
    let claimed = claim(store, 10, 1, last, 1).await;
    append(store, 20, calling(&claimed, vec![waits(WaitingOn::Human)])).await;
    park(store, 21, &claimed, WaitingOn::Human, ParkUntil::Asked).await;
}

#[tokio::test]
async fn ancestors_may_answer_and_nobody_else() {
    let Opened { store, dir: _dir } = open().await;
    chain(&store, 3).await;
    accept(&store, 22, opening(9, 9)).await;
    let stranger = post(&store, 30, 9, (3, 0), said("hm")).await;
    assert_eq!(stranger, PostOutcome::Unknown);
    let outcome = post(&store, 31, 1, (3, 0), said("yes")).await;
    let PostOutcome::Accepted {
        key: asked, ring, ..
    } = outcome
    else {
        panic!("the root may answer: {outcome:?}");
    };
    assert_eq!(asked, key(3));
    assert_eq!(ring.expect("it goes on").key, key(3));
    assert_sound(&store, 32).await;
}

#[tokio::test]
async fn an_ancestor_answers_from_sixteen_steps_above_and_no_further() {
    let Opened { store, dir: _dir } = open().await;
    chain(&store, 18).await;
    let far = post(&store, 30, 1, (18, 0), said("yes")).await;
    assert_eq!(far, PostOutcome::Unknown);
    let near = post(&store, 31, 2, (18, 0), said("yes")).await;
    assert_eq!(accepted(near), (true, false));
}

#[tokio::test]
async fn a_deleted_session_neither_answers_nor_is_answered() {
    let Opened { store, dir: _dir } = open().await;
    chain(&store, 3).await;
    let deleted = store.delete_session(at(22), key(1), SCHEDULER).await;
    deleted.expect("answers");
    let above = post(&store, 30, 1, (3, 0), said("yes")).await;
    assert_eq!(above, PostOutcome::Unknown);
    let deleted = store.delete_session(at(31), key(3), SCHEDULER).await;
    deleted.expect("answers");
    let below = post(&store, 32, 2, (3, 0), said("yes")).await;
    assert_eq!(below, PostOutcome::Unknown);
}
