//! Tools that ask a person while their call is made.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::store::{CallAnswer, PostOutcome};
use mainspring_shared::tool::{CallResult, INQUIRIES_MAX, Reply, ToolEntry, call_id};
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use mainspring_worker::WorkerConfig;
use serde_json::{Value, json};

use super::{plan, results, session, until};

/// A world with a session whose agent has the tools that record what they do.
async fn start() -> (World, SessionKey) {
    let world = World::new().await;
    let named = ["look", "put", "act", "ask_person"];
    let agent = AgentSpec {
        tools: named.map(|name| ToolEntry::Named(name.into())).to_vec(),
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    (world, key)
}

fn accept(n: i64) -> Reply {
    let content = json!({ "n": n }).as_object().cloned();
    Reply::Accept { content }
}

async fn answer(
    world: &World,
    key: SessionKey,
    (send, place, question): (SendId, usize, usize),
    reply: Reply,
) -> PostOutcome {
    let answer = CallAnswer::Reply { question, reply };
    world.post(key, &call_id(send, 0, place), answer).await
}

/// Waits until the call asks its question of this number.
async fn asks(world: &World, place: usize, number: usize) -> String {
    for _ in 0..10_000 {
        let call = session(world).await.calls.into_iter().nth(place);
        if let Some(call) = call
            && let Some((open, asked)) = call.open_question()
            && open == number
        {
            return asked.inquiry.message.clone();
        }
        world.pass(Duration::from_millis(20)).await;
    }
    panic!("call {place} does not ask its question {number}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asks_is_parked_and_made_again_with_its_answers() {
    for (tool, repeats) in [("look", 3), ("put", 3), ("act", 3)] {
        let (world, key) = start().await;
        let _worker = world.worker("w", world.store.clone());
        let calls = json!([[[tool, {"asks": ["first?", "second?"]}]]]);
        let id = world.send(key, &plan(&calls)).await;
        until(&world, id, WaitingOn::Human).await;
        assert_eq!(asks(&world, 0, 1).await, "first?");
        assert_eq!(world.acts.of(tool).len(), 1);
        let early = answer(&world, key, (id, 0, 2), accept(2)).await;
        assert_eq!(early, PostOutcome::NotWaiting);
        answer(&world, key, (id, 0, 1), accept(1)).await;
        assert_eq!(asks(&world, 0, 2).await, "second?");
        let again = answer(&world, key, (id, 0, 1), Reply::Decline {}).await;
        assert_eq!(again, PostOutcome::AlreadySettled, "that one is answered");
        until(&world, id, WaitingOn::Human).await;
        answer(&world, key, (id, 0, 2), Reply::Decline {}).await;
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed, "{tool}");
        let session = session(&world).await;
        let said = results(&session);
        assert_eq!(
            said,
            [r#"{"action":"accept","content":{"n":1}} {"action":"decline"}"#]
        );
        assert_eq!(world.acts.of(tool).len(), repeats, "{tool}");
        let calls = world.acts.of(tool);
        assert!(calls.iter().all(|act| act.call_id == calls[0].call_id));
        world.audit().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_is_shown_and_answered_while_other_calls_run() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[["act", {"asks": ["sure?"]}], ["look", {"ms": 60_000, "n": 2}]]]);
    let id = world.send(key, &plan(&calls)).await;
    assert_eq!(asks(&world, 0, 1).await, "sure?");
    assert_eq!(world.record(id).await.status, SendStatus::Running);
    answer(&world, key, (id, 0, 1), accept(7)).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let said = results(&session(&world).await);
    assert_eq!(
        said,
        [r#"{"action":"accept","content":{"n":7}}"#, "look did 2"]
    );
    assert_eq!(world.acts.of("act").len(), 2);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_answers_expires_with_its_call() {
    let (world, key) = start().await;
    let config = WorkerConfig {
        answer_within: Some(Duration::from_mins(5)),
        ..WorkerConfig::default()
    };
    let _worker = world.worker_with(config, world.store.clone());
    let id = world
        .send(key, &plan(&json!([[["act", {"asks": ["sure?"]}]]])))
        .await;
    until(&world, id, WaitingOn::Human).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let session = session(&world).await;
    let result = session.calls[0].result.clone().expect("settled");
    assert_eq!(result.code, Some(Code::ToolTimeout));
    assert!(
        result.whole_text().contains("nobody answered"),
        "{result:?}"
    );
    assert_eq!(world.acts.of("act").len(), 1);
    let late = answer(&world, key, (id, 0, 1), accept(1)).await;
    assert_eq!(late, PostOutcome::AlreadySettled);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_asks_on_and_on_comes_to_an_end() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let questions: Vec<Value> = (0..=INQUIRIES_MAX).map(|n| json!(n.to_string())).collect();
    let id = world
        .send(key, &plan(&json!([[["look", {"asks": questions}]]])))
        .await;
    for number in 1..=INQUIRIES_MAX {
        asks(&world, 0, number).await;
        answer(&world, key, (id, 0, number), accept(1)).await;
    }
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let said = results(&session(&world).await);
    assert!(said[0].contains("16 questions"), "{said:?}");
    assert_eq!(world.acts.of("look").len(), INQUIRIES_MAX + 1);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_or_a_cancel_ends_a_call_that_asks() {
    for cancels in [false, true] {
        let (world, key) = start().await;
        let _worker = world.worker("w", world.store.clone());
        let id = world
            .send(key, &plan(&json!([[["act", {"asks": ["sure?"]}]]])))
            .await;
        until(&world, id, WaitingOn::Human).await;
        if cancels {
            world.cancel(key, id).await;
        } else {
            let error = CallResult::error(Code::ToolFailed, "error: not today");
            let ended = world
                .post(key, &call_id(id, 0, 0), CallAnswer::Result(error))
                .await;
            assert!(matches!(ended, PostOutcome::Accepted { .. }));
        }
        world.settle(&[id]).await;
        let session = session(&world).await;
        assert!(session.calls[0].result.is_some());
        assert_eq!(world.acts.of("act").len(), 1);
        world.audit().await;
    }
}

/// Runs a send whose keyed tool asks two questions, on a worker that fails or dies at one write. Returns the results, and
/// whether the fault was reached.
async fn asking(plan_of: FaultPlan) -> (Vec<String>, bool) {
    let (world, key) = start().await;
    let faulty = Arc::new(Faulty::new(world.store.clone(), plan_of));
    let calls = json!([[["put", {"asks": ["first?", "second?"]}], ["look", {"n": 1, "ms": 50}]]]);
    let id = world.send(key, &plan(&calls)).await;
    let _first = world.worker("first", faulty.clone());
    world.pass(Duration::from_millis(1)).await;
    let dies = matches!(plan_of.fault, Fault::DieBefore | Fault::DieAfter);
    let _second = dies.then(|| world.worker("second", world.store.clone()));
    for _ in 0..2000 {
        let record = world.record(id).await;
        if record.status.is_final() {
            break;
        }
        let call = session(&world).await.calls.into_iter().next();
        let open = call.and_then(|call| call.open_question().map(|(number, _)| number));
        if let Some(number) = open {
            answer(&world, key, (id, 0, number), accept(number as i64)).await;
        }
        world.pass(Duration::from_millis(100)).await;
    }
    let record = world.record(id).await;
    assert_eq!(
        record.status,
        SendStatus::Completed,
        "{plan_of:?}: {record:#?}"
    );
    world.pass(Duration::from_secs(20)).await;
    world.audit().await;
    let session = session(&world).await;
    let asked = &session.calls[0].asked;
    assert_eq!(
        asked.len(),
        2,
        "{plan_of:?}: no question is asked twice: {asked:?}"
    );
    (results(&session), faulty.fired())
}

#[tokio::test(start_paused = true)]
async fn a_fault_at_any_write_of_a_send_that_asks_loses_and_doubles_nothing() {
    let (expected, _) = asking(FaultPlan::NEVER).await;
    let both = r#"{"action":"accept","content":{"n":1}} {"action":"accept","content":{"n":2}}"#;
    assert_eq!(expected, [both, "look did 1"]);
    for fault in Fault::ALL {
        let mut reached = 0;
        for at in 0.. {
            let (said, fired) = asking(FaultPlan { at, fault }).await;
            assert_eq!(said, expected, "{fault:?} at write {at}");
            if !fired {
                break;
            }
            reached += 1;
        }
        assert!(
            reached > 6,
            "{fault:?} was injected at {reached} positions only"
        );
    }
}
