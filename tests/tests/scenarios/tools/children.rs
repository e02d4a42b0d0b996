//! Sends that delegate tasks to children.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::OnBusy;
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::Role::{self, User};
use mainspring_shared::message::plain_text;
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::step::StepKind;
use mainspring_shared::store::{CallAnswer, PostOutcome};
use mainspring_shared::tool::{CallResult, ToolEntry, call_id};
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use serde_json::json;

use super::{agent, plan, results, session, until};

/// An agent that may delegate; the script plays its children as well.
async fn delegating() -> (World, SessionKey) {
    let world = World::new().await;
    let mut agent = agent();
    agent.tools.push(ToolEntry::Named("spawn_agent".into()));
    let key = world.session(agent).await;
    (world, key)
}

#[tokio::test(start_paused = true)]
async fn a_child_works_while_its_parent_waits_as_a_row() {
    let (world, key) = delegating().await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[
        ["spawn_agent", {"task": "sleep 5000", "tools": ["look", "nothing"]}],
        ["look", {"n": 1}],
    ]]);
    let id = world.send(key, &plan(&calls)).await;
    until(&world, id, WaitingOn::Agent).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    // Two rounds of its own and one of the child's.
    assert_eq!(record.usage.input_tokens, 30);
    let dump = world.dump().await;
    let (parent, child) = (&dump.sessions[0], &dump.sessions[1]);
    assert_eq!(results(parent), ["echo: sleep 5000", "look did 1"]);
    let above = child.parent.as_ref().expect("a child");
    assert_eq!((above.session, above.depth), (key.session, 1));
    let spec = world
        .store
        .get_session(child.key)
        .await
        .expect("never fails");
    let allowed = spec.expect("it exists").agent.allow.expect("narrowed");
    assert_eq!(allowed, ["look"]);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_in_the_background_reports_to_the_inbox() {
    let (world, key) = delegating().await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([
        [["spawn_agent", {"task": "sleep 2000", "background": true}]],
        [["look", {"ms": 10_000}]],
    ]);
    let id = world.send(key, &plan(&calls)).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let session = session(&world).await;
    assert!(results(&session)[0].contains("works in the background"));
    let told = session
        .messages
        .iter()
        .rev()
        .find(|m| m.role == User)
        .expect("told");
    assert!(
        plain_text(&told.content).contains("echo: sleep 2000"),
        "{told:?}"
    );
    assert_eq!(session.inbox.len(), 1);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn agents_do_not_delegate_without_end() {
    let (world, key) = delegating().await;
    let _worker = world.worker("w", world.store.clone());
    // Each child is asked to create another.
    let mut task = "hello".to_owned();
    for _ in 0..5 {
        task = plan(&json!([[["spawn_agent", {"task": task}]]]));
    }
    let id = world.send(key, &task).await;
    world.settle(&[id]).await;
    let dump = world.dump().await;
    assert_eq!(dump.sessions.len(), 4);
    let deepest = dump
        .sessions
        .iter()
        .max_by_key(|s| s.parent.as_ref().map_or(0, |p| p.depth));
    let code = deepest.expect("some").calls[0]
        .result
        .as_ref()
        .and_then(|r| r.code);
    assert_eq!(code, Some(Code::LimitExceeded));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_childs_question_is_answered_at_the_root() {
    let (world, key) = delegating().await;
    let _worker = world.worker("w", world.store.clone());
    let ask = plan(&json!([[["ask_person", {"question": "which?"}]]]));
    let id = world
        .send(key, &plan(&json!([[["spawn_agent", {"task": ask}]]])))
        .await;
    until(&world, id, WaitingOn::Agent).await;
    world.pass(Duration::from_secs(1)).await;
    let dump = world.dump().await;
    let question = dump.sessions[1].calls[0].call_id.clone();
    let answer = CallAnswer::Result(CallResult::text("this one"));
    let outcome = world.post(key, &question, answer).await;
    assert!(
        matches!(outcome, PostOutcome::Accepted { .. }),
        "{outcome:?}"
    );
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_fault_at_any_write_of_a_send_with_a_child_changes_nothing_of_the_outcome() {
    async fn run(plan_of: FaultPlan) -> (Vec<Vec<(Role, String)>>, bool) {
        let (world, key) = delegating().await;
        let faulty = Arc::new(Faulty::new(world.store.clone(), plan_of));
        let calls = json!([[
            ["spawn_agent", {"task": "sleep 100"}],
            ["spawn_agent", {"task": "sleep 100", "lifecycle": "ephemeral"}],
            ["put", {"n": 1}],
        ]]);
        let id = world.send(key, &plan(&calls)).await;
        let _first = world.worker("first", faulty.clone());
        world.pass(Duration::from_millis(1)).await;
        let dies = matches!(plan_of.fault, Fault::DieBefore | Fault::DieAfter);
        let _second = dies.then(|| world.worker("second", world.store.clone()));
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(
            record.status,
            SendStatus::Completed,
            "{plan_of:?}: {record:#?}"
        );
        world.pass(Duration::from_secs(20)).await;
        world.audit().await;
        let dump = world.dump().await;
        let said = dump.sessions.iter().map(|session| {
            // A deleted session's remains don't count: a sweep removes them.
            let is_there = session.hot.lifecycle != Lifecycle::Deleted;
            let said = session.messages.iter().filter(|_| is_there);
            said.map(|m| (m.role, plain_text(&m.content))).collect()
        });
        (said.collect(), faulty.fired())
    }
    let (expected, _) = run(FaultPlan::NEVER).await;
    let left = expected.iter().filter(|said| !said.is_empty());
    assert_eq!((expected.len(), left.count()), (3, 2));
    for fault in Fault::ALL {
        let mut reached = 0;
        for at in 0.. {
            let (said, fired) = run(FaultPlan { at, fault }).await;
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

#[tokio::test(start_paused = true)]
async fn a_cancel_goes_down_the_tree() {
    let (world, key) = delegating().await;
    let _worker = world.worker("w", world.store.clone());
    let deep = plan(&json!([[["spawn_agent", {"task": "sleep 3600000"}]]]));
    let calls = json!([[["spawn_agent", {"task": deep}], ["look", {"ms": 100_000}]]]);
    let id = world.send(key, &plan(&calls)).await;
    world.pass(Duration::from_secs(5)).await;
    world.cancel(key, id).await;
    world.pass(Duration::from_secs(10)).await;
    let dump = world.dump().await;
    assert_eq!(dump.sessions.len(), 3);
    for session in &dump.sessions {
        for send in &session.sends {
            assert_eq!(send.status, SendStatus::Cancelled, "{send:#?}");
        }
    }
    world.audit().await;
}

/// A child's cost is counted once, however often its parent is parked before the model is told of
/// the child's end.
#[tokio::test(start_paused = true)]
async fn a_childs_cost_is_counted_once_though_its_parent_waits_for_the_model() {
    let (world, key) = delegating().await;
    let _worker = world.worker("w", world.store.clone());
    let task = json!([[["spawn_agent", {"task": "sleep 3000"}]]]);
    let id = world.send(key, &plan(&task)).await;
    until(&world, id, WaitingOn::Agent).await;
    // The first two model calls for this are refused, each with a hint to retry in a minute.
    world.deliver(key, "fail-late 2", OnBusy::Steer).await;
    until(&world, id, WaitingOn::Retry).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.output_text.as_deref(), Some("echo: fail-late 2"));
    // Two rounds of its own and one of the child's.
    assert_eq!(record.usage.input_tokens, 30);
    world.audit().await;
}

/// How often the session's sends were resumed.
async fn resumptions(world: &World, key: SessionKey) -> usize {
    let dump = world.dump().await;
    let session = dump.sessions.iter().find(|session| session.key == key);
    let steps = &session.expect("it exists").steps;
    let resumed = steps.iter().filter(|step| step.kind == StepKind::Resumed);
    resumed.count()
}

/// Idempotency keys prevent repeats only for a limited time; a person may take longer to answer.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_keys_are_gone_ends_a_send_with_a_child_in_the_background() {
    let (world, key) = delegating().await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[
        ["spawn_agent", {"task": "sleep 2000", "background": true}],
        ["ask_person", {"question": "go on?"}],
    ]]);
    let id = world.send(key, &plan(&calls)).await;
    until(&world, id, WaitingOn::Human).await;
    world.pass(Duration::from_mins(1)).await;
    let kept = Duration::from_secs(10);
    assert!(
        world
            .store
            .sweep_retention(kept)
            .await
            .expect("never fails")
            > 0
    );
    let answer = CallAnswer::Result(CallResult::text("yes"));
    world.post(key, &call_id(id, 0, 1), answer).await;
    world.pass(Duration::from_secs(5)).await;
    let record = world.record(id).await;
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    assert_eq!(resumptions(&world, key).await, 1);
    assert_eq!(world.dump().await.sessions.len(), 2);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_round_that_is_older_than_its_keys_makes_its_child_and_its_run_once() {
    let world = World::new().await;
    let mut agent = agent();
    for name in ["spawn_agent", "create_workflow"] {
        agent.tools.push(ToolEntry::Named(name.into()));
    }
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    let spec = json!({"name": "one", "root": {"type": "agent", "id": "only", "input": "hello",
        "spec": {"name": "a", "system_prompt": "work"}}});
    let calls = json!([[
        ["spawn_agent", {"task": "sleep 600000"}],
        ["create_workflow", {"spec": spec}],
        ["create_workflow", {"spec": spec, "detached": true}],
        // This call times out after a minute, so the send is resumed although the others are still
        // running.
        ["brief", {}],
    ]]);
    let id = world.send(key, &plan(&calls)).await;
    until(&world, id, WaitingOn::Tool).await;
    world.pass(Duration::from_secs(30)).await;
    let kept = Duration::from_secs(10);
    assert!(
        world
            .store
            .sweep_retention(kept)
            .await
            .expect("never fails")
            > 0
    );
    world.pass(Duration::from_mins(1)).await;
    assert_eq!(resumptions(&world, key).await, 1);
    let record = world.record(id).await;
    assert_eq!(record.waiting_on, Some(WaitingOn::Agent), "{record:#?}");
    let dump = world.dump().await;
    assert_eq!((dump.sessions.len(), dump.runs.len()), (2, 2));
    let session = &dump.sessions[0];
    let over = session.calls.iter().filter(|call| call.result.is_some());
    let mut over: Vec<_> = over.map(|call| call.name.as_str()).collect();
    over.sort_unstable();
    assert_eq!(over, ["brief", "create_workflow"]);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn only_children_that_work_are_too_many() {
    let (world, key) = delegating().await;
    let _worker = world.worker("w", world.store.clone());
    let many = |count: usize, task: &str| vec![json!(["spawn_agent", {"task": task}]); count];
    let first = world
        .send(key, &plan(&json!([many(101, "sleep 5000")])))
        .await;
    let record = world.settle(&[first]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let refused = |said: &[String]| {
        let late = said
            .iter()
            .filter(|text| text.contains("are already working"));
        late.count()
    };
    let said = results(&session(&world).await);
    assert_eq!((said.len(), refused(&said)), (101, 1));
    let more = world
        .send(key, &plan(&json!([many(60, "hello"), many(60, "hello")])))
        .await;
    let record = world.settle(&[more]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let said = results(&session(&world).await);
    assert_eq!((said.len(), refused(&said)), (221, 1));
}

#[tokio::test(start_paused = true)]
async fn a_child_answers_in_the_shape_that_its_task_asks_for() {
    let (world, key) = delegating().await;
    let _worker = world.worker("w", world.store.clone());
    let schema = json!({"type": "object", "required": ["n"]});
    let task = format!("answers {}", json!(["no", "{\"n\": 7}"]));
    let calls = json!([[["spawn_agent", {
        "task": task, "output_schema": schema,
        "max_tokens": 99, "temperature": 0.5, "metadata": {"team": "x"},
    }]]]);
    let id = world.send(key, &plan(&calls)).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let dump = world.dump().await;
    let value = dump.sessions[0].calls[0].result.clone();
    let value = value.and_then(|result| result.value).expect("a value");
    assert_eq!(value["output"], json!({"n": 7}));
    let child = world.store.get_session(dump.sessions[1].key).await;
    let child = child.expect("never fails").expect("it exists");
    assert_eq!(child.metadata["team"], json!("x"));
    let agent = child.agent;
    assert_eq!((agent.max_tokens, agent.temperature), (Some(99), Some(0.5)));
}

/// The inputs of the existing sessions, in order, without the parent's.
async fn there(world: &World) -> Vec<String> {
    let sessions = world.dump().await.sessions;
    let mut there = Vec::new();
    for session in &sessions[1..] {
        let found = world.store.get_session(session.key).await;
        if found.expect("never fails").is_some() {
            there.push(plain_text(&session.sends[0].input));
        }
    }
    there.sort_unstable();
    there
}

#[tokio::test(start_paused = true)]
async fn a_child_is_kept_as_long_as_its_parent_says() {
    let (world, key) = delegating().await;
    let _worker = world.worker("w", world.store.clone());
    let below = json!([[["spawn_agent", {"task": "sleep 400000", "background": true}]]]);
    let calls = json!([[
        ["spawn_agent", {"task": "once", "lifecycle": "ephemeral"}],
        ["spawn_agent", {"task": "refuse", "lifecycle": "ephemeral"}],
        ["spawn_agent", {"task": plan(&below), "lifecycle": "ephemeral"}],
        ["spawn_agent", {"task": "kept", "lifecycle": "linked"}],
        ["spawn_agent", {"task": "free", "lifecycle": "detached"}],
        ["spawn_agent", {"task": "later", "lifecycle": "ephemeral", "background": true}],
        ["spawn_agent", {"task": "never", "lifecycle": "sometimes"}],
    ]]);
    let id = world.send(key, &plan(&calls)).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    let next = world.send(key, "anything new?").await;
    world.settle(&[next]).await;
    let parent = session(&world).await;
    let said = results(&parent);
    assert_eq!(said[0], "echo: once");
    assert_eq!(
        (said[3].as_str(), said[4].as_str()),
        ("echo: kept", "echo: free")
    );
    assert!(said[6].contains("lifecycle"), "{}", said[6]);
    let words = parent
        .messages
        .iter()
        .filter(|message| message.role == User);
    let told = words.map(|message| plain_text(&message.content));
    assert_eq!(told.filter(|text| text.contains("echo: later")).count(), 1);
    // A failed child stays for inspection; a child's own children are deleted with it once it has
    // answered.
    assert_eq!(there(&world).await, ["free", "kept", "refuse"]);
    let sessions = world.dump().await.sessions;
    let of = |text: &str| {
        let found = sessions.iter().find(|session| {
            let sends = session.sends.first();
            sends.is_some_and(|send| plain_text(&send.input) == text)
        });
        found.and_then(|session| session.parent.as_ref())
    };
    assert_eq!(of("free"), None, "it is nobody's");
    assert_eq!(of("kept").map(|parent| parent.session), Some(key.session));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn detached_children_stand_no_deeper_than_others() {
    let (world, key) = delegating().await;
    let _worker = world.worker("w", world.store.clone());
    let mut task = "deepest".to_owned();
    for _ in 0..4 {
        let calls = json!([[["spawn_agent", {"task": task, "lifecycle": "detached"}]]]);
        task = plan(&calls);
    }
    let id = world.send(key, &task).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(
        world.dump().await.sessions.len(),
        4,
        "three below the first"
    );
    assert_eq!(world.script.calls("deepest"), 0);
    world.audit().await;
}
