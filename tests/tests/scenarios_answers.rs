//! Answers that come while other calls of the same round still run.

use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, OnBusy};
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{CallAnswer, PostOutcome};
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

/// The result of a quick call is stored after the answer and before the slow call ends: that step
/// lowers the signal of the answer.
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

/// The same for words that want the send to go on at once.
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

/// The end of a quick child is reported before the receipt of another one is stored.
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
