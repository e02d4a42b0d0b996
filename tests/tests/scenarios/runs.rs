//! Whole runs with schedulers and workers, in simulated time.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::error::Code;
use mainspring_shared::id::{BootId, RunId, RunKey, SendId};
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{AcceptSend, CallAnswer, NewRun, Target};
use mainspring_shared::tool::{CallResult, ToolEntry};
use mainspring_shared::workflow::run::{
    DSL_VERSION, NodeState, RunAsk, RunLeaf, RunOptions, RunRecord, RunStatus,
};
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use serde_json::{Value, json};

fn agent(id: &str, input: &str) -> Value {
    json!({ "type": "agent", "id": id, "input": input,
            "spec": { "name": id, "system_prompt": "work" } })
}

/// One leaf first, then four in parallel, and one that sees all their results.
fn fan_out() -> Value {
    json!({ "name": "digest", "input": "tea", "root": { "type": "sequence", "steps": [
        agent("plan", "think of {{input}}"),
        { "type": "foreach", "id": "research", "as": "t", "items": ["a", "b", "c", "d"],
          "max_concurrency": 2, "body": agent("r", "look at {{t}}") },
        agent("write", "write: {{research}}"),
    ]}})
}

const WRITTEN: &str =
    "echo: write: echo: look at a\n\necho: look at b\n\necho: look at c\n\necho: look at d";

fn assert_written(run: &RunRecord) {
    assert_eq!((run.status, &run.error), (RunStatus::Completed, &None));
    let text = run.result.as_ref().map(ToString::to_string);
    let text = text.unwrap_or_default();
    let wanted = Value::from(WRITTEN).to_string();
    assert!(text.contains(wanted.trim_matches('"')), "{text}");
}

/// Asserts that the model was called once for each leaf.
fn assert_asked_once(world: &World) {
    for input in [
        "think of tea",
        "look at a",
        "look at b",
        "look at c",
        "look at d",
    ] {
        assert_eq!(world.script.calls(input), 1, "{input}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fan_out_runs_to_its_end() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let _scheduler = world.scheduler("s", world.store.clone()).await;
    let key = world.start_run(&fan_out(), None).await;
    let run = world.settle_run(key).await;
    assert_written(&run);
    assert_asked_once(&world);
    assert_eq!((run.counts.leaves, run.counts.completed), (6, 6));
    assert_eq!(run.usage.input_tokens, 60);
    let nodes = world.nodes(key).await;
    assert!(nodes.iter().all(|node| node.state == NodeState::Completed));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn two_schedulers_share_runs_and_do_nothing_twice() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let _one = world.scheduler("one", world.store.clone()).await;
    let _two = world.scheduler("two", world.store.clone()).await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(world.start_run(&fan_out(), None).await);
    }
    for key in runs {
        assert_written(&world.settle_run(key).await);
    }
    assert_eq!(world.script.calls("think of tea"), 5);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_ends_its_leaves_and_a_retry_keeps_what_was_done() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let _scheduler = world.scheduler("s", world.store.clone()).await;
    let spec = json!({ "name": "slow", "root": { "type": "sequence", "steps": [
        agent("quick", "quick"), agent("slow", "sleep 30000"), agent("last", "last") ]}});
    let key = world.start_run(&spec, None).await;
    world
        .wait_for_run(key, |run| run.counts.completed == 1 && run.counts.live == 1)
        .await;
    world.pass(Duration::from_secs(1)).await;
    let reason = Some("enough".to_owned());
    world.ask_run(key, RunAsk::Cancel { reason }).await;
    let run = world.settle_run(key).await;
    assert_eq!(run.status, RunStatus::Cancelled);
    assert_eq!((run.counts.live, run.counts.completed), (0, 1));
    let dump = world.dump().await;
    let sends = dump.sessions.iter().flat_map(|session| &session.sends);
    let statuses: Vec<_> = sends.map(|send| send.status).collect();
    assert_eq!(statuses, [SendStatus::Completed, SendStatus::Cancelled]);
    world.audit().await;
    world.ask_run(key, RunAsk::Retry { max_tokens: None }).await;
    let again = world
        .wait_for_run(key, |run| run.attempt == 2 && run.status.is_final())
        .await;
    assert_eq!(again.status, RunStatus::Completed);
    assert_eq!(world.script.calls("quick"), 1);
    assert_eq!(world.script.calls("sleep 30000"), 2);
    world.audit().await;
}

/// Waits for the call that waits for a person in the run's only open leaf.
async fn question(world: &World, key: RunKey) -> (mainspring_shared::id::SessionKey, String) {
    for _ in 0..1_000 {
        for session in world.dump().await.sessions {
            let asks = session.calls.iter().find(|call| call.waits_on.is_some());
            if let Some(call) = asks {
                return (session.key, call.call_id.clone());
            }
        }
        world.pass(Duration::from_millis(50)).await;
    }
    panic!("nobody asks: {:#?}", world.nodes(key).await);
}

#[tokio::test(start_paused = true)]
async fn an_approval_waits_for_a_person_and_is_answered_at_the_runs_session() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let _scheduler = world.scheduler("s", world.store.clone()).await;
    let above = world.session(AgentSpec::default()).await;
    let spec = json!({ "name": "gate", "root": { "type": "sequence", "steps": [
        { "type": "approval", "id": "ok", "message": "Shall I?" }, agent("then", "go on") ]}});
    let key = world.start_run(&spec, Some(above.session)).await;
    let (leaf, call_id) = question(&world, key).await;
    world
        .wait_for_run(key, |run| run.status == RunStatus::Waiting)
        .await;
    assert_ne!(leaf, above);
    let yes = CallResult {
        value: Some(Box::new(json!({ "approved": true }))),
        ..CallResult::text(json!({ "approved": true }).to_string())
    };
    world.post(above, &call_id, CallAnswer::Result(yes)).await;
    let run = world.settle_run(key).await;
    assert_eq!((run.status, &run.error), (RunStatus::Completed, &None));
    assert_eq!(world.script.calls("go on"), 1);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_a_nested_workflow_end_in_their_time() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let _scheduler = world.scheduler("s", world.store.clone()).await;
    let inner = json!({ "name": "inner", "root": agent("deep", "deep {{input}}") });
    let spec = json!({ "name": "outer", "root": { "type": "sequence", "steps": [
        { "type": "wait", "id": "pause", "seconds": 600 },
        { "type": "workflow", "id": "nested", "spec": inner, "input": "water" } ]}});
    let key = world.start_run(&spec, None).await;
    world
        .wait_for_run(key, |run| run.status == RunStatus::Waiting)
        .await;
    let run = world.settle_run(key).await;
    assert_eq!((run.status, &run.error), (RunStatus::Completed, &None));
    let (started, ended) = (run.started_at.expect("it began"), run.finished_at);
    let took = ended.expect("it ended").since(started);
    assert!(took >= Duration::from_mins(10), "{took:?}");
    assert!(took < Duration::from_secs(602), "{took:?}");
    assert_eq!(world.script.calls("deep water"), 1);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn the_runs_of_a_deleted_session_end_with_it() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let _scheduler = world.scheduler("s", world.store.clone()).await;
    let above = world.session(AgentSpec::default()).await;
    let spec = json!({ "name": "slow", "root": agent("slow", "sleep 3000000") });
    let key = world.start_run(&spec, Some(above.session)).await;
    world.wait_for_run(key, |run| run.counts.live == 1).await;
    world.delete(above).await;
    let run = world.settle_run(key).await;
    assert_eq!(run.status, RunStatus::Cancelled);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_be_read_ends_its_leaves_and_fails_for_whoever_waits() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let asking = AgentSpec {
        tools: vec![ToolEntry::Named("ask_person".to_owned())],
        ..AgentSpec::default()
    };
    let above = world.session(asking).await;
    let plan = json!([[["ask_person", { "question": "how far?" }]]]);
    let waiting = world.send(above, &format!("plan {plan}")).await;
    let key = RunKey {
        tenant: above.tenant,
        run: RunId(uuid::Uuid::from_u128(7)),
    };
    let (asks, call_id) = question(&world, key).await;
    assert_eq!(asks, above);
    let new = NewRun {
        key,
        name: "odd".to_owned(),
        spec: json!({ "root": "of an older release" }),
        dsl_version: DSL_VERSION,
        input: Value::Null,
        options: RunOptions::default(),
        session: Some(above.session),
        reports_to: Some(call_id.clone()),
        depth: 1,
        idempotency: None,
    };
    world
        .store
        .create_runs(vec![new])
        .await
        .expect("never fails");
    let leaf = AcceptSend {
        id: SendId(uuid::Uuid::from_u128(8)),
        target: Target::Existing(world.session(AgentSpec::default()).await),
        input: vec![ContentPart::text("sleep 3000000")],
        options: SendOptions::default(),
        reports_to: None,
        run: Some(RunLeaf {
            run: key.run,
            path: "/0".to_owned(),
            attempt: 1,
        }),
        idempotency: None,
        queued_max: 10,
        keeper: None,
    };
    let (leaf_id, leaf_key) = (leaf.id, leaf.target.key());
    let accepted = world
        .store
        .accept_sends(BootId(uuid::Uuid::nil()), vec![leaf]);
    accepted.await.expect("never fails");
    world.ring_in("default", leaf_key).await;
    world.pass(Duration::from_mins(1)).await;
    let _scheduler = world.scheduler("s", world.store.clone()).await;
    let run = world.settle_run(key).await;
    assert_eq!(run.status, RunStatus::Failed);
    let error = run.error.expect("it says why");
    assert_eq!(error.code, Code::Internal);
    let took = run.finished_at.expect("it ended").since(run.created_at);
    assert!(took >= Duration::from_mins(1), "{took:?}");
    let ended = world.settle(&[waiting, leaf_id]).await;
    let statuses: Vec<_> = ended.iter().map(|send| send.status).collect();
    assert_eq!(statuses, [SendStatus::Completed, SendStatus::Cancelled]);
    let calls = world.store.get_calls(vec![(above.tenant, call_id)]).await;
    let call = calls.expect("never fails").remove(0).expect("is there");
    let result = call.result.expect("is settled");
    assert_eq!(result.code, Some(Code::Internal));
    world.audit().await;
}

/// A workflow with an agent that continues in its session for a second round, in parallel with a
/// slow one.
fn two_rounds() -> Value {
    json!({ "name": "twice", "root": { "type": "parallel", "branches": [
        { "type": "loop", "id": "cycle", "as": "round", "max_iterations": 2,
          "on_exhausted": "continue", "until": { "ref": "build.ok" }, "continue_nodes": ["build"],
          "body": agent("build", "build {{round}}") },
        agent("slow", "sleep 3000000"),
    ] } })
}

#[tokio::test(start_paused = true)]
async fn a_run_fails_where_a_session_that_it_needs_cannot_be_read_for_good() {
    let sound = FaultPlan {
        at: usize::MAX,
        fault: Fault::FailBefore,
    };
    for (belongs, built) in [(false, 1), (true, 0)] {
        let world = World::new().await;
        let _worker = world.worker("w", world.store.clone());
        let store = Arc::new(Faulty::new(world.store.clone(), sound));
        store.corrupt_reads("get_session");
        let _scheduler = world.scheduler("s", store).await;
        let above = world.session(AgentSpec::default()).await;
        let above = belongs.then_some(above.session);
        let key = world.start_run(&two_rounds(), above).await;
        let run = world.settle_run(key).await;
        assert_eq!(run.status, RunStatus::Failed);
        assert_eq!(run.error.expect("it says why").code, Code::Internal);
        let took = run.finished_at.expect("it ended").since(run.created_at);
        let looks = Duration::from_secs(30)..Duration::from_mins(1);
        assert!(looks.contains(&took), "{took:?}");
        let builds = world.script.ledger();
        let builds = builds
            .iter()
            .filter(|asked| asked.user.starts_with("build"));
        assert_eq!(builds.count(), built);
        world.pass(Duration::from_secs(5)).await;
        let sessions = world.dump().await.sessions.into_iter();
        let mut sends = sessions.flat_map(|session| session.sends);
        assert!(sends.all(|send| send.status.is_final()), "nothing is left");
        world.audit().await;
    }
}
