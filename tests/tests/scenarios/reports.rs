//! What users of comparable systems have reported: agents that ask, are answered, interrupted and cancelled.

use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, OnBusy};
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::message::Role::Tool;
use mainspring_shared::message::plain_text;
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::store::{CallAnswer, DumpSession, PostOutcome};
use mainspring_shared::tool::schema::any_object;
use mainspring_shared::tool::{CallResult, DeclaredTool, ExternalTool, ToolEntry, call_id};
use mainspring_tests::world::World;
use serde_json::{Value, json};

/// A world with a session whose agent has the external tools `pay` and, with an approval, `refund`.
async fn start() -> (World, SessionKey) {
    let world = World::new().await;
    let external = |name: &str, approval| {
        ToolEntry::Declared(DeclaredTool::External(ExternalTool {
            name: name.into(),
            description: String::new(),
            parameters: any_object(),
            repeat: None,
            deadline: None,
            approval,
            pool: None,
            extra: mainspring_shared::stored::Extra::default(),
        }))
    };
    let named = ["put", "ask_person"].map(|name| ToolEntry::Named(name.into()));
    let declared = [external("pay", false), external("refund", true)];
    let agent = AgentSpec {
        tools: named.into_iter().chain(declared).collect(),
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    (world, key)
}

async fn send(world: &World, key: SessionKey, calls: &Value) -> SendId {
    world.send(key, &format!("plan {calls}")).await
}

async fn until(world: &World, id: SendId, on: WaitingOn) {
    for _ in 0..10_000 {
        let record = world.record(id).await;
        if record.waiting_on == Some(on) {
            return;
        }
        assert!(!record.status.is_final(), "{record:#?}");
        world.pass(Duration::from_millis(20)).await;
    }
    panic!("{id} does not wait for {on:?}");
}

async fn session(world: &World) -> DumpSession {
    world.dump().await.sessions.remove(0)
}

fn results(session: &DumpSession) -> Vec<String> {
    let tools = session
        .messages
        .iter()
        .filter(|message| message.role == Tool);
    tools.map(|message| plain_text(&message.content)).collect()
}

fn result(text: &str) -> CallAnswer {
    CallAnswer::Result(CallResult::text(text))
}

fn is_accepted(outcome: &PostOutcome) -> bool {
    matches!(outcome, PostOutcome::Accepted { .. })
}

// langchain-ai/langgraph#4397: two tool results for one call after an approval.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_approved_twice_has_one_result() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let id = send(&world, key, &json!([[["refund", {}]]])).await;
    until(&world, id, WaitingOn::Human).await;
    let call = call_id(id, 0, 0);
    assert!(is_accepted(
        &world.post(key, &call, CallAnswer::Approve).await
    ));
    let again = world.post(key, &call, CallAnswer::Approve).await;
    assert_eq!(again, PostOutcome::AlreadySettled);
    until(&world, id, WaitingOn::Tool).await;
    let again = world.post(key, &call, CallAnswer::Approve).await;
    assert_eq!(again, PostOutcome::AlreadySettled);
    assert!(is_accepted(
        &world.post(key, &call, result("refunded")).await
    ));
    world.settle(&[id]).await;
    assert_eq!(results(&session(&world).await), ["refunded"]);
    world.audit().await;
}

// mastra-ai/mastra#16468: of two suspended calls of one tool, the second one cannot be resumed.
#[tokio::test(start_paused = true)]
async fn two_calls_of_one_tool_are_answered_one_after_the_other() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let id = send(
        &world,
        key,
        &json!([[["pay", {"n": 1}], ["pay", {"n": 2}]]]),
    )
    .await;
    until(&world, id, WaitingOn::Tool).await;
    for (place, text) in [(1, "second"), (0, "first")] {
        let outcome = world.post(key, &call_id(id, 0, place), result(text)).await;
        assert!(is_accepted(&outcome), "{outcome:?}");
        world.pass(Duration::from_secs(1)).await;
    }
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(results(&session(&world).await), ["first", "second"]);
    world.audit().await;
}

// langchain-ai/langgraphjs#1298: after the answer to the first question, the second one halts silently.
#[tokio::test(start_paused = true)]
async fn a_question_may_follow_a_question() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let ask = |text: &str| json!([["ask_person", { "question": text }]]);
    let id = send(&world, key, &json!([ask("one?"), ask("two?")])).await;
    for (round, text) in [(0, "yes"), (1, "no")] {
        until(&world, id, WaitingOn::Human).await;
        let outcome = world.post(key, &call_id(id, round, 0), result(text)).await;
        assert!(is_accepted(&outcome), "{outcome:?}");
        world.pass(Duration::from_secs(1)).await;
    }
    world.settle(&[id]).await;
    assert_eq!(results(&session(&world).await), ["yes", "no"]);
    world.audit().await;
}

// agentscope-ai/agentscope-java#2470, strands-agents/harness-sdk#859: an interruption leaves a call without a
// result, and no later message is answered.
#[tokio::test(start_paused = true)]
async fn an_interrupted_call_has_a_result_and_the_session_goes_on() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let id = send(&world, key, &json!([[["pay", {}], ["pay", {}]]])).await;
    until(&world, id, WaitingOn::Tool).await;
    world.deliver(key, "never mind", OnBusy::Interrupt).await;
    let next = world.send(key, "something else").await;
    for record in world.settle(&[id, next]).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    }
    assert_eq!(results(&session(&world).await).len(), 2);
    world.audit().await;
}

// openJiuwen-ai/agent-core#959: a plain message after a request for confirmation silences the session.
#[tokio::test(start_paused = true)]
async fn a_message_after_a_request_for_permission_waits_its_turn() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let id = send(&world, key, &json!([[["refund", {}]]])).await;
    until(&world, id, WaitingOn::Human).await;
    let next = world.send(key, "and now?").await;
    world.pass(Duration::from_mins(1)).await;
    assert_eq!(world.record(next).await.status, SendStatus::Queued);
    let no = CallAnswer::Refuse(CallResult::text("no"));
    assert!(is_accepted(&world.post(key, &call_id(id, 0, 0), no).await));
    for record in world.settle(&[id, next]).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    }
    world.audit().await;
}

// odysseus-dev/odysseus#3570, littlehorse-enterprises/littlehorse#2059: tools of an answer that was stopped run
// again with the next one; late answers reach ended work.
#[tokio::test(start_paused = true)]
async fn what_a_cancelled_send_has_done_is_not_done_again() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let id = send(&world, key, &json!([[["put", {"n": 1}]], [["pay", {}]]])).await;
    until(&world, id, WaitingOn::Tool).await;
    world.cancel(key, id).await;
    let late = world.post(key, &call_id(id, 1, 0), result("paid")).await;
    assert_eq!(late, PostOutcome::AlreadySettled);
    let next = world.send(key, "go on").await;
    let record = world.settle(&[next]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(world.acts.of("put").len(), 1);
    world.audit().await;
}
