//! Questions and approvals that nobody answers.

use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::Code;
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::store::{CallAnswer, PostOutcome};
use mainspring_shared::tool::{CallResult, ToolEntry, call_id};
use mainspring_tests::world::World;
use mainspring_worker::WorkerConfig;
use serde_json::json;

use super::{plan, results, session, until};

fn asking() -> AgentSpec {
    let put = json!({"type": "worker", "name": "put", "approval": true});
    AgentSpec {
        tools: vec![
            ToolEntry::Named("ask_person".into()),
            serde_json::from_value(put).expect("a tool"),
        ],
        ..AgentSpec::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_expires_and_the_model_is_told_what_holds() {
    let world = World::new().await;
    let key = world.session(asking()).await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[
        ["ask_person", {"question": "which?", "kind": "choice", "options": ["red", "blue"],
                        "expires_seconds": 60, "default": "blue"}],
        ["ask_person", {"question": "why?", "expires_seconds": 30}],
        ["ask_person", {"question": "which?", "kind": "choice"}],
    ]]);
    let id = world.send(key, &plan(&calls)).await;
    until(&world, id, WaitingOn::Human).await;
    world.pass(Duration::from_secs(20)).await;
    assert_eq!(world.record(id).await.status, SendStatus::Waiting);
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let session = session(&world).await;
    let said = results(&session);
    assert!(
        said[0].ends_with("the default that you gave: blue"),
        "{said:?}"
    );
    assert!(said[1].contains("nobody answered in time"), "{said:?}");
    let codes: Vec<_> = session
        .calls
        .iter()
        .map(|call| call.result.as_ref().and_then(|result| result.code))
        .collect();
    let invalid = Some(Code::ToolInvalidArguments);
    assert_eq!(codes, [None, Some(Code::ToolTimeout), invalid]);
    let late = CallAnswer::Result(CallResult::text("red"));
    let late = world.post(key, &call_id(id, 0, 0), late).await;
    assert_eq!(late, PostOutcome::AlreadySettled);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_permits_in_time_is_not_made() {
    let world = World::new().await;
    let key = world.session(asking()).await;
    let config = WorkerConfig {
        answer_within: Some(Duration::from_mins(5)),
        ..WorkerConfig::default()
    };
    let _worker = world.worker_with(config, world.store.clone());
    let calls = json!([[["put", {"n": 1}], ["put", {"n": 2}]]]);
    let id = world.send(key, &plan(&calls)).await;
    until(&world, id, WaitingOn::Human).await;
    world
        .post(key, &call_id(id, 0, 0), CallAnswer::Approve)
        .await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let session = session(&world).await;
    let said = results(&session);
    assert_eq!(said[0], "put did 1");
    assert!(said[1].contains("nobody approved"), "{said:?}");
    let code = session.calls[1]
        .result
        .as_ref()
        .and_then(|result| result.code);
    assert_eq!(code, Some(Code::ToolDenied));
    assert_eq!(world.acts.of("put").len(), 1);
    world.audit().await;
}
