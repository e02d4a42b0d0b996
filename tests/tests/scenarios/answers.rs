//! Answers that arrive while other calls of the same round are still running.

use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, OnBusy, SendOptions};
use mainspring_shared::message::plain_text;
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{CallAnswer, PostOutcome};
use mainspring_shared::time::Span;
use mainspring_shared::tool::{CallResult, ToolEntry, call_id};
use mainspring_tests::world::World;
use serde_json::json;

const MS: Duration = Duration::from_millis(1);

fn agent() -> AgentSpec {
    let named = ["put", "act", "ask_person", "spawn_agent"];
    AgentSpec {
        tools: named.map(|name| ToolEntry::Named(name.into())).to_vec(),
        ..AgentSpec::default()
    }
}

/// The result of a quick call is stored after the answer arrives and before the slow call ends;
/// storing it lowers the answer's signal.
#[tokio::test(start_paused = true)]
async fn an_answer_before_a_result_is_stored_is_not_waited_for_again() {
    let world = World::new().await;
    let key = world.session(agent()).await;
    let calls = json!([[
        ["ask_person", { "question": "go on?" }],
        ["act", { "n": 1, "ms": 100 }],
        ["put", { "n": 2, "ms": 4_000 }],
    ]]);
    let id = world.send(key, &format!("plan {calls}")).await;
    let _worker = world.worker("w", world.store.clone());
    world.pass(300 * MS).await;
    let answer = CallAnswer::Result(CallResult::text("yes"));
    let posted = world.post(key, &call_id(id, 0, 0), answer).await;
    assert!(matches!(posted, PostOutcome::Accepted { .. }), "{posted:?}");
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    world.audit().await;
}

/// The same for an interruption, which makes the send continue at once.
#[tokio::test(start_paused = true)]
async fn an_interruption_before_a_result_is_stored_ends_the_waiting() {
    let world = World::new().await;
    let key = world.session(agent()).await;
    let calls = json!([[
        ["ask_person", { "question": "go on?" }],
        ["act", { "n": 1, "ms": 100 }],
        ["put", { "n": 2, "ms": 4_000 }],
    ]]);
    let id = world.send(key, &format!("plan {calls}")).await;
    let _worker = world.worker("w", world.store.clone());
    world.pass(300 * MS).await;
    world.deliver(key, "never mind", OnBusy::Interrupt).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    world.audit().await;
}

/// A quick child reports its end before the receipt of another child is stored.
#[tokio::test(start_paused = true)]
async fn a_child_that_ends_before_the_receipt_of_another_is_not_waited_for_again() {
    let world = World::new().await;
    let key = world.session(agent()).await;
    for pause in 0..6 {
        let calls = json!([[
            ["spawn_agent", { "task": format!("quick {pause}") }],
            ["spawn_agent", { "task": "sleep 50", "background": true }],
            ["act", { "n": pause, "ms": 100 * pause }],
        ]]);
        let id = world.send(key, &format!("plan {calls}")).await;
        let worker = world.worker("w", world.store.clone());
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        worker.stop();
    }
    world.audit().await;
}

/// What happens between an accepted answer and the worker's next check for it.
#[derive(Debug, Clone, Copy)]
enum Overtakes {
    Interrupt,
    Cancel,
    Deadline,
    /// The call's own time is up.
    Expiry,
    /// Another call of the round that ends the send.
    Abort,
}

/// An accepted answer is the call's result, whatever happens before the worker reads it.
#[tokio::test(start_paused = true)]
async fn an_accepted_answer_is_told_whatever_overtakes_it() {
    for what in [
        Overtakes::Interrupt,
        Overtakes::Cancel,
        Overtakes::Deadline,
        Overtakes::Expiry,
        Overtakes::Abort,
    ] {
        overtaken(what).await;
    }
}

async fn overtaken(what: Overtakes) {
    let world = World::new().await;
    let external = json!({"type": "external", "name": "sign", "deadline": "2s"});
    let mut agent = agent();
    agent
        .tools
        .push(serde_json::from_value(external).expect("a tool"));
    let key = world.session(agent).await;
    let ends = match what {
        Overtakes::Abort => json!({ "n": 1, "ms": 3_000, "abort": true }),
        _ => json!({ "n": 1, "ms": 3_000 }),
    };
    let calls = json!([[["sign", {}], ["put", ends]]]);
    let options = SendOptions {
        deadline: matches!(what, Overtakes::Deadline).then(|| Span(2_000 * MS)),
        ..SendOptions::default()
    };
    let id = world
        .send_with(key, &format!("plan {calls}"), options)
        .await;
    let _worker = world.worker("w", world.store.clone());
    world.pass(1_000 * MS).await;
    let call = call_id(id, 0, 0);
    let answer = CallAnswer::Result(CallResult::text("signed"));
    let posted = world.post(key, &call, answer).await;
    assert!(matches!(posted, PostOutcome::Accepted { .. }), "{posted:?}");
    match what {
        Overtakes::Interrupt => drop(world.deliver(key, "stop", OnBusy::Interrupt).await),
        Overtakes::Cancel => world.cancel(key, id).await,
        Overtakes::Deadline | Overtakes::Expiry | Overtakes::Abort => {}
    }
    world.settle(&[id]).await;
    let dump = world.dump().await;
    let mut messages = dump.sessions.iter().flat_map(|session| &session.messages);
    let told = messages.find(|message| message.tool_call_id.as_deref() == Some(call.as_str()));
    let told = told.map(|message| plain_text(&message.content));
    assert_eq!(told.as_deref(), Some("signed"), "{what:?}");
    world.audit().await;
}

/// The process that cancelled a send died before it cancelled the send's children: a scheduler
/// finds the child that is still running, and that child's own child.
#[tokio::test(start_paused = true)]
async fn children_of_a_send_that_ended_alone_end_too() {
    let world = World::new().await;
    let key = world.session(agent()).await;
    let asks = json!([[["ask_person", { "question": "?" }]]]);
    let delegates = json!([[["spawn_agent", { "task": format!("plan {asks}") }]]]);
    let calls = json!([[["spawn_agent", { "task": format!("plan {delegates}") }]]]);
    let id = world.send(key, &format!("plan {calls}")).await;
    let _worker = world.worker("w", world.store.clone());
    world.pass(5_000 * MS).await;
    let statuses = async || {
        let dump = world.dump().await;
        let sends = dump.sessions.iter().flat_map(|session| &session.sends);
        sends.map(|send| send.status).collect::<Vec<_>>()
    };
    assert_eq!(statuses().await, [SendStatus::Waiting; 3]);
    world.cancel(key, id).await;
    world.pass(60_000 * MS).await;
    let waits = [
        SendStatus::Cancelled,
        SendStatus::Waiting,
        SendStatus::Waiting,
    ];
    assert_eq!(statuses().await, waits, "nobody looks");
    let _scheduler = world.scheduler("s", world.store.clone()).await;
    world.pass(30_000 * MS).await;
    assert_eq!(statuses().await, [SendStatus::Cancelled; 3]);
    world.audit().await;
}
